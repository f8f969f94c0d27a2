"""What a first port of a program to cuSOLVER does, by ctypes: copy the operands from ordinary memory, call the library,
copy the results back, with device memory that was allocated before the clock starts. For lapack.py.

The driver's interface is used instead of the runtime's, which the simulated CUDA has as well; a copy of pageable
memory is the same one.
"""
import ctypes
import os
import time

import numpy as np

import kit

# cudaDataType by precision, and of the real type that belongs to it.
TYPES, REAL_TYPES = dict(s=0, d=1, c=4, z=5), dict(s=0, d=1, c=0, z=1)
LOWER, VECTORS, NO_VECTORS, NON_BLOCKING = 0, 1, 0, 1
I64, SIZE, POINTER = ctypes.c_int64, ctypes.c_size_t, ctypes.c_void_p


class Unavailable(Exception):
    """There is no GPU, no library, or no such function in it."""


class Device:
    """One device, its first stream, one handle of cuSOLVER."""

    def __init__(self, first=()):
        try:
            self.driver = ctypes.CDLL(kit.find_library("libcuda.so.1", first) or "libcuda.so.1")
            found = kit.find_library("libcusolver.so.[0-9]*", first)
            if not found:
                raise Unavailable("no libcusolver.so")
            for needed in ("libcublasLt.so.[0-9]*", "libcublas.so.[0-9]*", "libnvJitLink.so.[0-9]*", "libcusparse.so.[0-9]*"):
                # Of the same release; where its own search path knows them this changes nothing.
                beside = kit.find_library(needed, [os.path.dirname(found)])
                if beside:
                    ctypes.CDLL(beside, ctypes.RTLD_GLOBAL)
            self.solver = ctypes.CDLL(found)
        except OSError as error:
            raise Unavailable(str(error)) from None
        self.held = []
        device, context = ctypes.c_int(), POINTER()
        self.stream, self.handle, self.params = POINTER(), POINTER(), POINTER()
        self.drive("cuInit", ctypes.c_uint(0))
        self.drive("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self.drive("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.drive("cuCtxPushCurrent_v2", context)
        self.drive("cuStreamCreate", ctypes.byref(self.stream), ctypes.c_uint(NON_BLOCKING))
        self.solve("cusolverDnCreate", ctypes.byref(self.handle))
        self.solve("cusolverDnSetStream", self.handle, self.stream)
        self.solve("cusolverDnCreateParams", ctypes.byref(self.params))

    def _call(self, library, name, *words):
        try:
            function = getattr(library, name)
        except AttributeError:
            raise Unavailable(f"no {name}") from None
        code = function(*words)
        if code:
            raise RuntimeError(f"{name}: error {code}")

    def drive(self, name, *words):
        self._call(self.driver, name, *words)

    def solve(self, name, *words):
        self._call(self.solver, name, *words)

    def allocate(self, bytes_):
        """An address on the device, until `free`."""
        at = ctypes.c_uint64()
        self.drive("cuMemAlloc_v2", ctypes.byref(at), SIZE(max(256, bytes_)))
        self.held.append(at.value)
        return POINTER(at.value)

    def free(self):
        for at in self.held:
            self.drive("cuMemFree_v2", ctypes.c_uint64(at))
        self.held = []

    def up(self, to, array):
        self.drive("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(to.value), POINTER(array.ctypes.data), SIZE(array.nbytes), self.stream)

    def down(self, array, at):
        self.drive("cuMemcpyDtoHAsync_v2", POINTER(array.ctypes.data), ctypes.c_uint64(at.value), SIZE(array.nbytes), self.stream)

    def wait(self):
        self.drive("cuStreamSynchronize", self.stream)


class Port:
    """One routine on the device: `run` copies up, computes and copies down, and returns the milliseconds of all of it and
    of the library's part. Results are in `out`, by the names of calls.py."""

    def __init__(self, device, family, precision, operands, by_qr=False):
        self.device, self.family, self.precision, self.by_qr = device, family, precision, by_qr
        self.operands = operands
        self.n = operands["a"].shape[0]
        self.kind, self.real = TYPES[precision], REAL_TYPES[precision]
        self.dtype = operands["a"].dtype
        real_dtype = np.zeros(0, self.dtype).real.dtype
        n, each = self.n, self.dtype.itemsize
        # What goes up, what comes down.
        self.on = {name: device.allocate(array.nbytes) for name, array in operands.items()}
        vectors = {"potrf": {}, "getrf": {}, "gesv": {}, "geqrf": {"tau": (n, self.dtype)}, "syevd": {"w": (n, real_dtype)}}
        vectors |= {"sygvd": {"w": (n, real_dtype)}, "gesdd": {"s": (n, real_dtype)}, "gesddn": {"s": (n, real_dtype)}}
        vectors |= {"geev": {"w": (n, np.result_type(self.dtype, np.complex64))}}
        if family not in vectors:
            raise Unavailable(f"cuSOLVER has no {family}")
        self.out = {name: np.empty(length, dtype) for name, (length, dtype) in vectors[family].items()}
        squares = {"gesdd": ("u", "vt"), "geev": ("right",), "gesddn": ("u", "vt")}.get(family, ())
        for name in squares:
            self.on[name] = device.allocate(each * n * n)
            if family != "gesddn":
                self.out[name] = np.empty((n, n), self.dtype, order="F")
        for name, array in self.out.items():
            if name not in self.on:
                self.on[name] = device.allocate(array.nbytes)
        if family in ("getrf", "gesv"):
            self.on["ipiv"], self.out["ipiv64"] = device.allocate(8 * n), np.empty(n, np.int64)
        self.down = {"gesv": ("b",), "getrf": ("a", "ipiv64"), "gesdd": ("s", "u", "vt"), "gesddn": ("s",), "geev": ("w", "right")}.get(
            family, ("a", *self.out)
        )
        self.info = device.allocate(4)
        self.error = ctypes.c_double()
        self._workspace()

    def close(self):
        self.device.free()

    def _entry(self):
        """The function and its arguments before the workspace; sizes asked by the same with _bufferSize."""
        n, k, r, on = I64(self.n), self.kind, self.real, self.on
        a = (k, on["a"], n)
        lower = ctypes.c_int(LOWER)
        job = ctypes.c_int(VECTORS)
        if self.family == "potrf":
            return "Xpotrf", (lower, n, *a, k)
        if self.family in ("getrf", "gesv"):
            return "Xgetrf", (n, n, *a, k)
        if self.family == "geqrf":
            return "Xgeqrf", (n, n, *a, k, on["tau"], k)
        if self.family == "syevd":
            return "Xsyevd", (job, lower, n, *a, r, on["w"], k)
        if self.family in ("gesdd", "gesddn"):
            vectors = self.family == "gesdd"
            u, v = (k, on["u"], n), (k, on["vt"], n)
            if self.by_qr:
                letter = ctypes.c_byte(ord("S" if vectors else "N"))
                return "Xgesvd", (letter, letter, n, n, *a, r, on["s"], *u, *v, k)
            # Vectors always: see ARCHITECTURE.md.
            return "Xgesvdp", (job, ctypes.c_int(1), n, n, *a, r, on["s"], *u, *v, k)
        if self.family == "geev":
            w = TYPES["z" if self.precision in "dz" else "c"]
            return "Xgeev", (ctypes.c_int(NO_VECTORS), job, n, *a, w, on["w"], k, None, n, k, on["right"], n, k)
        raise Unavailable(f"cuSOLVER has no {self.family}")

    def _workspace(self):
        device = self.device
        if self.family == "sygvd":
            letter = {"s": "Ssygvd", "d": "Dsygvd", "c": "Chegvd", "z": "Zhegvd"}[self.precision]
            n, on = ctypes.c_int(self.n), self.on
            words = (device.handle, ctypes.c_int(1), ctypes.c_int(VECTORS), ctypes.c_int(LOWER), n, on["a"], n, on["b"], n, on["w"])
            length = ctypes.c_int()
            device.solve(f"cusolverDn{letter}_bufferSize", *words, ctypes.byref(length))
            work = device.allocate(length.value * self.dtype.itemsize)
            self.compute = lambda: device.solve(f"cusolverDn{letter}", *words, work, length, self.info)
            return
        name, words = self._entry()
        on_device, on_host = SIZE(), SIZE()
        # The question knows no pivots.
        device.solve(f"cusolverDn{name}_bufferSize", device.handle, device.params, *words, ctypes.byref(on_device), ctypes.byref(on_host))
        work, self.host = device.allocate(on_device.value), ctypes.create_string_buffer(max(1, on_host.value))
        space = (work, on_device, self.host if on_host.value else None, on_host, self.info)
        if name == "Xgetrf":
            words = (*words[:-1], self.on["ipiv"], words[-1])
        if name == "Xgesvdp":
            space += (ctypes.byref(self.error),)
        self.compute = lambda: device.solve(f"cusolverDn{name}", device.handle, device.params, *words, *space)
        if self.family == "gesv":
            factor, n = self.compute, I64(self.n)
            solve = (ctypes.c_int(0), n, I64(self.operands["b"].shape[1]), self.kind, self.on["a"], n, self.on["ipiv"], self.kind, self.on["b"], n, self.info)

            def both():
                factor()
                device.solve("cusolverDnXgetrs", device.handle, device.params, *solve)

            self.compute = both

    def run(self):
        device = self.device
        started = time.perf_counter()
        for name, array in self.operands.items():
            device.up(self.on[name], array)
        device.wait()
        uploaded = time.perf_counter()
        self.compute()
        device.wait()
        computed = time.perf_counter()
        for name in self.down:
            array = self.operands[name] if name in self.operands else self.out[name]
            device.down(array, self.on["ipiv" if name == "ipiv64" else name])
        device.wait()
        ended = time.perf_counter()
        info = np.empty(1, np.int32)
        device.down(info, self.info)
        device.wait()
        return (ended - started) * 1e3, (computed - uploaded) * 1e3, int(info[0])
