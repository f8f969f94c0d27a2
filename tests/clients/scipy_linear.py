"""A SciPy client: LAPACK and BLAS as SciPy reaches them, each checked by its residual or its value.

Exit status 1 if one is wrong.
"""
import sys

import numpy as np
import scipy.linalg as la
from scipy.linalg import blas

bad = 0


def judge(what, residual, norm, n):
    """LAPACK's own measure: a residual over norm, n and eps stays below 30."""
    global bad
    ratio = float(np.max(np.abs(residual))) / (float(norm) * n * np.finfo(float).eps)
    wrong = not ratio < 30
    print("WRONG" if wrong else "ok", what, f"{ratio:.3g}")
    bad |= wrong


rng = np.random.default_rng(7)
n = 200
a, b = rng.standard_normal((n, n)), rng.standard_normal((n, 3))
z = a + 1j * rng.standard_normal((n, n))
x = la.solve(a, b)
judge("solve", a @ x - b, np.abs(x).max() * np.abs(a).max(), n)
p, low, up = la.lu(a)
judge("lu", p @ low @ up - a, np.abs(up).max(), n)
s = a @ a.T + n * np.eye(n)
c = la.cholesky(s, lower=True)
judge("cholesky", c @ c.T - s, np.abs(s).max(), n)
q, r, pivot = la.qr(a, pivoting=True)
judge("qr with pivots", q @ r - a[:, pivot], np.abs(r).max(), n)
for driver in ("gesdd", "gesvd"):
    u, sigma, vt = la.svd(z, lapack_driver=driver)
    judge(f"svd, {driver}", (u * sigma) @ vt - z, sigma[0], n)
h = z + z.conj().T
for driver in ("ev", "evd", "evr", "evx"):
    w, v = la.eigh(h, driver=driver)
    judge(f"eigh, {driver}", h @ v - v * w, np.abs(w).max(), n)
t, q = la.schur(a)
judge("schur", q @ t @ q.T - a, np.abs(t).max(), n)
aa, bb, q, w = la.qz(a, s)
judge("qz", q @ bb @ w.T - s, np.abs(s).max(), n)
w, v = la.eig(a)
judge("eig", a @ v - v * w, np.abs(w).max(), n)
f, g = z[0].copy(), z[1].copy()
judge("zdotc", blas.zdotc(f, g) - np.sum(f.conj() * g), n, n)
judge("zdotu", blas.zdotu(f, g) - np.sum(f * g), n, n)
single = np.arange(1, 5, dtype=np.float32)
judge("sdot", blas.sdot(single, single) - 30, 30, 1)
judge("snrm2", blas.snrm2(single) - np.float32(np.sqrt(30)), np.sqrt(30) * 2**29, 1)
sys.exit(bad)
