"""A NumPy program with heavy and light calls, as anybody writes them. It knows nothing of gpu-offload.

Prints one JSON object a line: what, n, the best time in seconds, and the residual's ratio to what
rounding allows (LAPACK's measure; below 30 is right).
"""
import json
import sys
import time

import numpy as np

repeats, sizes = int(sys.argv[1]), [int(word) for word in sys.argv[2:]]
rng = np.random.default_rng(7)
eps = np.finfo(float).eps


def say(what, n, call, residual):
    best = min(timed(call) for _ in range(repeats))
    print(json.dumps({"what": what, "n": n, "best_s": best, "ratio": float(residual(call()))}), flush=True)


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


for n in sizes:
    a, b = rng.standard_normal((n, n)), rng.standard_normal((n, n))
    x = rng.standard_normal(n)
    f, g = a.astype(np.float32), b.astype(np.float32)

    def of_product(c, left, right, unit):
        """C x against A (B x): n terms twice."""
        return np.max(np.abs(c @ x - left @ (right @ x))) / (n * np.sqrt(n) * unit)

    say("a @ b, float64", n, lambda: a @ b, lambda c: of_product(c, a, b, eps))
    say("a @ b, float32", n, lambda: f @ g, lambda c: of_product(c, f, g, np.finfo(np.float32).eps))
    say(
        "solve(a, x)",
        n,
        lambda: np.linalg.solve(a, x),
        lambda s: np.max(np.abs(a @ s - x)) / (np.max(np.abs(s)) * n * np.sqrt(n) * eps),
    )
