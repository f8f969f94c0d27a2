"""Calls of LAPACK by ctypes, in any library that has its Fortran entries: a routine's arguments from one line, its
workspaces by its own query, operands as NumPy arrays in Fortran order. What lapack.py and coverage.py share.
"""
import ctypes
import json
import os

import numpy as np

import kit

# Arguments by the real routine's name. "z:" stands in the complex routines alone, "d:" in the real ones alone.
SIGNATURES = {
    "potrf": "uplo n a lda info",
    "potrs": "uplo n nrhs a lda b ldb info",
    "potri": "uplo n a lda info",
    "posv": "uplo n nrhs a lda b ldb info",
    "trtri": "uplo diag n a lda info",
    "trtrs": "uplo trans diag n nrhs a lda b ldb info",
    "lauum": "uplo n a lda info",
    "getrf": "m n a lda ipiv info",
    "getrs": "trans n nrhs a lda ipiv b ldb info",
    "getri": "n a lda ipiv work lwork info",
    "gesv": "n nrhs a lda ipiv b ldb info",
    "geqrf": "m n a lda tau work lwork info",
    "gelqf": "m n a lda tau work lwork info",
    "orgqr": "m n k a lda tau work lwork info",
    "ormqr": "side trans m n k a lda tau c ldc work lwork info",
    "gels": "trans m n nrhs a lda b ldb work lwork info",
    "gelsd": "m n nrhs a lda b ldb s rcond rank work lwork z:rwork iwork info",
    "gelss": "m n nrhs a lda b ldb s rcond rank work lwork z:rwork info",
    "syev": "jobz uplo n a lda w work lwork z:rwork info",
    "syevd": "jobz uplo n a lda w work lwork z:rwork z:lrwork iwork liwork info",
    "syevr": "jobz range uplo n a lda vl vu il iu abstol found w z ldz isuppz work lwork z:rwork z:lrwork iwork liwork info",
    "syevx": "jobz range uplo n a lda vl vu il iu abstol found w z ldz work lwork z:rwork iwork ifail info",
    "sygv": "itype jobz uplo n a lda b ldb w work lwork z:rwork info",
    "sygvd": "itype jobz uplo n a lda b ldb w work lwork z:rwork z:lrwork iwork liwork info",
    "sygvx": "itype jobz range uplo n a lda b ldb vl vu il iu abstol found w z ldz work lwork z:rwork iwork ifail info",
    "gesdd": "jobz m n a lda s u ldu vt ldvt work lwork z:rwork iwork info",
    "gesvd": "jobu jobvt m n a lda s u ldu vt ldvt work lwork z:rwork info",
    "geev": "jobvl jobvr n a lda d:wr d:wi z:w left ldleft right ldright work lwork z:rwork info",
}
# Option letters, in the order of each routine's arguments.
LETTERS = dict(uplo="UL", diag="NU", trans="NTC", side="LR", jobz="NV", range="AVI", jobu="ASON", jobvt="ASON", jobvl="NV", jobvr="NV")
DTYPES = dict(s=np.float32, d=np.float64, c=np.complex64, z=np.complex128)
REALS = dict(s=np.float32, d=np.float64, c=np.float32, z=np.float64)


def arguments(family, precision):
    """The routine's arguments, by name."""
    unwanted = "d:" if precision in "cz" else "z:"
    return [word.split(":")[-1] for word in SIGNATURES[family].split() if not word.startswith(unwanted)]


def accepted(family, precision, option):
    """The letters of one of a routine's options."""
    if option == "jobz" and family == "gesdd":
        return "ASON"
    if option == "trans" and family in ("ormqr", "gels"):
        return "NC" if precision in "cz" else "NT"
    return LETTERS[option]


def in_library(path):
    """The entries of a library: a function of a routine's name."""
    library = ctypes.CDLL(path)
    return lambda routine: ctypes.cast(getattr(library, routine + "_"), ctypes.c_void_p).value


def in_scipy():
    """The same of the library that SciPy's wheel brings along."""
    from scipy.linalg import cython_lapack

    with open("/proc/self/maps") as maps:
        if "/scipy.libs/" not in maps.read():
            raise ImportError("this SciPy is no wheel with a library of its own")
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

    def entry(routine):
        capsule = cython_lapack.__pyx_capi__[routine]
        return get(capsule, get_name(capsule))

    return entry


def random_square(precision, n):
    """A general matrix of numbers from -1/2 to 1/2, the same ones for each n."""
    random, real = np.random.default_rng(n), REALS[precision]
    a = np.empty((n, n), DTYPES[precision], order="F")
    a.real = random.random((n, n), real) - real(0.5)
    if precision in "cz":
        a.imag = random.random((n, n), real) - real(0.5)
    return a


class Call:
    """One call of a routine. `given` holds its operands by name (a, b, …; arrays that it overwrites), its option
    letters, and its sizes and scalars where they do not follow from the operands; what is an output alone is made
    here. The workspaces are made by the routine's own query, so that `run` is the call and nothing else."""

    def __init__(self, entry, family, precision, **given):
        self.family, self.precision, self.given = family, precision, given
        self.name = kit.routine(family, precision)
        self.names = arguments(family, precision)
        a = given["a"]
        self.m, self.n = given.get("m", a.shape[0]), given.get("n", a.shape[1])
        self.least, self.most = min(self.m, self.n), max(self.m, self.n)
        self.out, self.integers = {}, {}
        self.info = ctypes.c_int(-999)
        self.addresses = [self._argument(name) for name in self.names]
        # The lengths of the option letters, as compilers of Fortran pass them.
        self.lengths = [ctypes.c_size_t(1) for name in self.names if name in LETTERS]
        types = [ctypes.c_void_p] * len(self.addresses) + [ctypes.c_size_t] * len(self.lengths)
        self.function = ctypes.CFUNCTYPE(None, *types)(entry(self.name))
        self._workspaces()

    def run(self):
        """info."""
        self.function(*self.addresses, *self.lengths)
        return self.info.value

    def operand(self, name):
        return self.given[name] if name in self.given else self.out[name]

    def letters(self):
        return "".join(self.given[name] for name in self.names if name in LETTERS)

    def _array(self, name, shape, dtype):
        self.out[name] = np.empty(shape, dtype, order="F")
        return self.out[name].ctypes.data

    def _integer(self, name, value):
        self.integers[name] = ctypes.c_int(value)
        return ctypes.addressof(self.integers[name])

    def _vectors(self, name):
        """Shape of an output of vectors, (1, 1) where the options leave it alone."""
        wanted = lambda option: self.given.get(option, "N")
        if name == "z":
            return (self.n, self.n) if wanted("jobz") == "V" else (1, 1)
        if name in ("left", "right"):
            return (self.n, self.n) if wanted("jobvl" if name == "left" else "jobvr") == "V" else (1, 1)
        job = wanted("jobz") if self.family == "gesdd" else wanted("jobu" if name == "u" else "jobvt")
        if job == "O" and self.family == "gesdd":
            # The other one lies in A.
            job = "A" if (self.m < self.n) == (name == "u") else "N"
        order = self.m if name == "u" else self.n
        if job == "A":
            return (order, order)
        if job == "S":
            return (self.m, self.least) if name == "u" else (self.least, self.n)
        return (1, 1)

    def _argument(self, name):
        own, real = DTYPES[self.precision], REALS[self.precision]
        if name in LETTERS:
            self.out[name] = ctypes.c_char(self.given[name].encode())
            return ctypes.addressof(self.out[name])
        if name == "info":
            return ctypes.addressof(self.info)
        if name == "m":
            return self._integer(name, self.m)
        if name == "n":
            return self._integer(name, self.n)
        if name == "k":
            return self._integer(name, self.given.get("k", len(self.operand("tau"))))
        if name == "nrhs":
            return self._integer(name, self.given["b"].shape[1])
        if name in ("itype", "il", "iu"):
            return self._integer(name, self.given.get(name, 1))
        if name in ("lwork", "lrwork", "liwork"):
            return self._integer(name, -1)
        if name in ("found", "rank"):
            return self._integer(name, -1)
        if name in ("vl", "vu", "abstol", "rcond"):
            self.out[name] = np.array([self.given.get(name, -1.0 if name == "rcond" else 0.0)], real)
            return self.out[name].ctypes.data
        if name.startswith("ld"):
            return self._integer(name, max(1, self.operand(name.removeprefix("ld")).shape[0]))
        if name in self.given:
            assert self.given[name].flags.f_contiguous
            return self.given[name].ctypes.data
        if name in ("u", "vt", "z", "left", "right"):
            return self._array(name, self._vectors(name), own)
        if name in ("s", "tau"):
            return self._array(name, self.least, real if name == "s" else own)
        if name in ("w", "wr", "wi"):
            return self._array(name, self.n, own if self.family == "geev" else real)
        if name in ("ipiv", "ifail", "isuppz"):
            return self._array(name, 2 * self.most, np.int32)
        if name == "work":
            return self._array(name, 1, own)
        if name == "rwork":
            return self._array(name, 1, real)
        if name == "iwork":
            return self._array(name, 1, np.int32)
        raise ValueError(f"no rule for {name} of {self.name}")

    def _length(self, name):
        """Of a workspace whose length is no argument and not answered by the query either."""
        least = self.least
        if name == "rwork":
            if self.family == "gesdd":
                # dbdsdc's part and, with vectors, the bidiagonal's; both bounds of the documentation.
                return 7 * least if self.given["jobz"] == "N" else least * max(5 * least + 7, 2 * self.most + 2 * least + 1)
            return {"gelss": 5, "gesvd": 5, "syev": 3, "sygv": 3, "syevx": 7, "sygvx": 7, "geev": 2}[self.family] * self.most
        return {"gesdd": 8, "syevx": 5, "sygvx": 5}[self.family] * self.most

    def _workspaces(self):
        if "lwork" in self.integers:
            if self.run() != 0:
                raise ValueError(f"{self.name}: info {self.info.value} of a workspace query")
        for name in ("work", "rwork", "iwork"):
            if name not in self.names:
                continue
            answered = "l" + name in self.integers or self.family == "gelsd"
            # A single's answer may have been rounded down.
            length = int(self.out[name][0].real * (1 + 1e-6)) + 1 if answered else self._length(name)
            if "l" + name in self.integers:
                self.integers["l" + name].value = length
            self.addresses[self.names.index(name)] = self._array(name, max(1, length), self.out[name].dtype)


class Log:
    """The calls that the engine logs as JSON lines (GPU_OFFLOAD_LOG=decisions), from one look to the next, the first one
    from this position in the file on."""

    def __init__(self, path, at=0):
        self.path, self.at = path, at

    def calls(self):
        if not os.path.exists(self.path):
            return []
        with open(self.path) as lines:
            lines.seek(self.at)
            text = lines.read()
            self.at = lines.tell()
        entries = [json.loads(line) for line in text.splitlines()]
        return [entry for entry in entries if entry["event"] == "call"]
