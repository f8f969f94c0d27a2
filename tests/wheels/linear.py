"""NumPy and SciPy from wheels in one process: each result by its residual, and which libraries served it.

Arguments: the engine's path, where it must be loaded, or "-" where it must not; then "swapped", "served" by a file
elsewhere, or "own", what the OpenBLAS of both wheels must be.
"""
import ctypes
import sys

import numpy as np
import scipy.linalg as sl

engine, wanted = sys.argv[1:]
bad = 0


def say(what, held, more=""):
    global bad
    print("ok" if held else "WRONG", what, more)
    bad |= not held


def judge(what, residual, norm, n, eps=np.finfo(float).eps):
    """LAPACK's own measure: a residual over norm, n and eps stays below 30."""
    ratio = float(np.max(np.abs(residual))) / (float(norm) * n * eps)
    say(what, ratio < 30, f"{ratio:.3g}")


rng = np.random.default_rng(11)
n = 160
a, b = rng.standard_normal((n, n)), rng.standard_normal((n, n))
z = a + 1j * b
s = a + a.T
spd = a @ a.T + n * np.eye(n)
product = np.einsum("ik,kj->ij", a, b)
big = np.abs(a).max()
eye = np.eye(n)

judge("numpy matmul", a @ b - product, n, n)
judge("numpy matmul of transposes", (b.T @ a.T).T - product, n, n)
single = a.astype(np.float32) @ b.astype(np.float32)
judge("numpy matmul, single", single - product, n, n, np.finfo(np.float32).eps)
judge("numpy matmul, complex", (z @ z.conj().T).real - (a @ a.T + b @ b.T), n, n)
x = np.linalg.solve(a, b)
judge("numpy solve", a @ x - b, np.abs(x).max() * big, n)
judge("numpy cholesky", np.linalg.cholesky(spd) @ np.linalg.cholesky(spd).T - spd, np.abs(spd).max(), n)
w, v = np.linalg.eigh(s)
judge("numpy eigh", s @ v - v * w, np.abs(w).max(), n)
u, d, vt = np.linalg.svd(a)
judge("numpy svd", (u * d) @ vt - a, d.max(), n)
q, r = np.linalg.qr(z)
judge("numpy qr", q @ r - z, np.abs(z).max(), n)
if engine == "-":
    # On the GPU route this call is the CPU's, which the log would show.
    try:
        np.linalg.inv(np.zeros((n, n)))
        say("numpy inv of a singular matrix", False)
    except np.linalg.LinAlgError:
        say("numpy inv of a singular matrix", True)

x = sl.solve(a, b)
judge("scipy solve", a @ x - b, np.abs(x).max() * big, n)
judge("scipy cholesky", sl.cholesky(spd, lower=True) @ sl.cholesky(spd) - spd, np.abs(spd).max(), n)
w, v = sl.eigh(s)
judge("scipy eigh", s @ v - v * w, np.abs(w).max(), n)
u, d, vt = sl.svd(z)
judge("scipy svd", (u * d) @ vt - z, d.max(), n)
q, r = sl.qr(a)
judge("scipy qr", q.T @ q - eye, 1, n)
x = sl.solve_triangular(r, b)
judge("scipy solve_triangular", r @ x - b, np.abs(x).max() * np.abs(r).max(), n)
judge("scipy dgemm", sl.blas.dgemm(1.0, a, b) - product, n, n)
judge("scipy symm", sl.blas.dsymm(1.0, s, b) - s @ b, n * big, n)
w, v = sl.eig(a)
judge("scipy eig", a @ v - v * w, np.abs(w).max(), n)

with open("/proc/self/maps") as maps:
    loaded = sorted({line.split()[-1] for line in maps if ".so" in line})
blas = [path for path in loaded if "openblas" in path]
kept = [path for path in blas if "/orig-" in path]
own = [path for path in blas if path not in kept]
if wanted == "served":
    kept = [path for path in own if "/site-packages/" in path]
    own = [path for path in own if path not in kept]
say("two wheels, two libraries", len(own) == 2, own)
say("the originals behind them", len(kept) == (0 if wanted == "own" else 2), kept)
engines = [path for path in loaded if "libgpu_offload.so" in path]
say("the engine", engines == ([] if engine == "-" else [engine]), engines)
for path in own:
    handle = ctypes.CDLL(path)
    spelt = ["openblas_get_config", "openblas_get_config64_"]
    spelt += ["scipy_" + name for name in spelt]
    found = [name for name in spelt if hasattr(handle, name)]
    for name in found:
        function = handle[name]
        function.restype = ctypes.c_char_p
        say(name, function().startswith(b"OpenBLAS "), path)
    say("one spelling", len(found) == 1, found)
    say("no name of our own", not hasattr(handle, "gpu_offload_wheel_lp64_dgemm_"))
sys.exit(bad)
