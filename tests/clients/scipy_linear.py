"""A SciPy client: LAPACK and BLAS as SciPy reaches them, each checked by its residual or its value.

Exit status 1 if one is wrong.
"""
import ctypes
import sys

import numpy as np
import scipy.linalg as la
from scipy.linalg import blas, cython_lapack, lapack

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
float32 = np.finfo(np.float32).eps / np.finfo(float).eps
cf, cg = f.astype(np.complex64), g.astype(np.complex64)
judge("cdotc", blas.cdotc(cf, cg) - np.sum(f.conj() * g), n * float32, n)
judge("cdotu", blas.cdotu(cf, cg) - np.sum(f * g), n * float32, n)
single = np.arange(1, 5, dtype=np.float32)
judge("sdot", blas.sdot(single, single) - 30, 30, 1)
judge("scnrm2", blas.scnrm2(cf) - np.linalg.norm(f), np.linalg.norm(f) * float32, n)
judge("slamch", lapack.slamch("E") / 2.0**-24 - 1, 1, 1)
judge("slange", lapack.slange("M", a.astype(np.float32)) - np.abs(a).max(), np.abs(a).max() * float32, 1)


def ladiv(letter, real):
    """x / y by SciPy's own way into LAPACK for compiled code, which Python's functions do not have."""
    capsule = cython_lapack.__pyx_capi__[f"{letter}ladiv"]
    name, address = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    result = type("Complex", (ctypes.Structure,), {"_fields_": [("re", real), ("im", real)]})
    function = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p)(address(capsule, name(capsule)))
    x, y = (real * 2)(1, 2), (real * 2)(3, -4)
    value = function(ctypes.addressof(x), ctypes.addressof(y))
    return complex(value.re, value.im)


judge("zladiv", ladiv("z", ctypes.c_double) - (1 + 2j) / (3 - 4j), 1, 1)
judge("cladiv", ladiv("c", ctypes.c_float) - (1 + 2j) / (3 - 4j), float32, 1)
judge("snrm2", blas.snrm2(single) - np.float32(np.sqrt(30)), np.sqrt(30) * 2**29, 1)
sys.exit(bad)
