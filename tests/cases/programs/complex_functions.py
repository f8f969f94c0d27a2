"""Complex functions through ctypes (case F5): the CBLAS _sub forms, the Fortran functions, which return two numbers
as C's structures of two are returned, and the float functions."""
import ctypes
import sys

blas = ctypes.CDLL("libblas.so.3", mode=ctypes.RTLD_GLOBAL)
lapack = ctypes.CDLL("liblapack.so.3")
bad = 0


def same(what, got, wanted):
    global bad
    if abs(got - wanted) > 1e-6 * (1 + abs(wanted)):
        print("WRONG", what, got, "expected", wanted)
        bad = 1


def reference(x, y, conjugate):
    return sum((a.conjugate() if conjugate else a) * b for a, b in zip(x, y))


x, y = [1 + 2j, 3 - 1j, -2 + 1j], [2 - 1j, 1 + 1j, 4 + 3j]
for letter, real in (("z", ctypes.c_double), ("c", ctypes.c_float)):
    array = real * 6
    cx = array(*[part for v in x for part in (v.real, v.imag)])
    cy = array(*[part for v in y for part in (v.real, v.imag)])
    for name, conjugate in (("dotc", True), ("dotu", False)):
        out = (real * 2)()
        getattr(blas, f"cblas_{letter}{name}_sub")(3, cx, 1, cy, 1, out)
        same(f"cblas_{letter}{name}_sub", complex(*out), reference(x, y, conjugate))
        function = getattr(blas, f"{letter}{name}_")
        function.restype = type("Complex", (ctypes.Structure,), {"_fields_": [("re", real), ("im", real)]})
        n, inc = ctypes.c_int(3), ctypes.c_int(1)
        value = function(ctypes.byref(n), cx, ctypes.byref(inc), cy, ctypes.byref(inc))
        same(f"{letter}{name}", complex(value.re, value.im), reference(x, y, conjugate))
    ladiv = getattr(lapack, f"{letter}ladiv_")
    ladiv.restype = function.restype
    value = ladiv((real * 2)(1, 2), (real * 2)(3, -4))
    same(f"{letter}ladiv", complex(value.re, value.im), (1 + 2j) / (3 - 4j))

one, three = ctypes.c_int(1), ctypes.c_int(3)
floats = (ctypes.c_float * 3)(3, 4, 12)
blas.snrm2_.restype = ctypes.c_float
same("snrm2", blas.snrm2_(ctypes.byref(three), floats, ctypes.byref(one)), 13)
blas.sdot_.restype = ctypes.c_float
same("sdot", blas.sdot_(ctypes.byref(three), floats, ctypes.byref(one), floats, ctypes.byref(one)), 169)
blas.scnrm2_.restype = ctypes.c_float
pairs = (ctypes.c_float * 4)(1, 2, 2, 4)
same("scnrm2", blas.scnrm2_(ctypes.byref(ctypes.c_int(2)), pairs, ctypes.byref(one)), 5)
lapack.slange_.restype = ctypes.c_float
largest = lapack.slange_(b"M", ctypes.byref(three), ctypes.byref(one), floats, ctypes.byref(three), None, ctypes.c_size_t(1))
same("slange", largest, 12)
lapack.slamch_.restype = ctypes.c_float
same("slamch", lapack.slamch_(b"E", ctypes.c_size_t(1)) / 5.9604644775390625e-08, 1)
sys.exit(bad)
