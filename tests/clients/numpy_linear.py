"""A NumPy client: products, solve, Cholesky, eigh, svd, qr, each checked by its residual.

Exit status 1 if one is wrong. With an argument, the BLAS that NumPy loaded must lie in that folder.
"""
import os
import sys

import numpy as np

bad = 0


def judge(what, residual, norm, n):
    """LAPACK's own measure: a residual over norm, n and eps stays below 30."""
    global bad
    ratio = float(np.max(np.abs(residual))) / (float(norm) * n * np.finfo(float).eps)
    wrong = not ratio < 30
    print("WRONG" if wrong else "ok", what, f"{ratio:.3g}")
    bad |= wrong


if len(sys.argv) > 1:
    folder = os.path.realpath(sys.argv[1])
    np.ones((2, 2)) @ np.ones((2, 2))
    with open("/proc/self/maps") as maps:
        loaded = sorted({line.split()[-1] for line in maps if "libblas.so" in line})
    if not loaded or any(os.path.dirname(path) != folder for path in loaded):
        print("WRONG library: NumPy loaded", loaded, "instead of one in", folder)
        sys.exit(1)

rng = np.random.default_rng(7)
n = 200
a, b = rng.standard_normal((n, n)), rng.standard_normal((n, n))
z = a + 1j * b
s = a + a.T
judge("matmul", a @ b - np.einsum("ik,kj->ij", a, b), n, n)
judge("complex matmul", (z @ z.conj().T).real - (a @ a.T + b @ b.T), n, n)
x = np.linalg.solve(a, b)
judge("solve", a @ x - b, np.abs(x).max() * np.abs(a).max(), n)
p = a @ a.T + n * np.eye(n)
low = np.linalg.cholesky(p)
judge("cholesky", low @ low.T - p, np.abs(p).max(), n)
w, v = np.linalg.eigh(s)
judge("eigh", s @ v - v * w, np.abs(w).max(), n)
u, sigma, vt = np.linalg.svd(a)
judge("svd", (u * sigma) @ vt - a, sigma[0], n)
q, r = np.linalg.qr(a)
judge("qr", q @ r - a, np.abs(r).max(), n)
lam, vec = np.linalg.eig(a)
judge("eig", a @ vec - vec * lam, np.abs(lam).max(), n)
wz, vz = np.linalg.eigh(z + z.conj().T)
judge("complex eigh", (z + z.conj().T) @ vz - vz * wz, np.abs(wz).max(), n)
sys.exit(bad)
