"""Every routine with a GPU path that SciPy offers, on matrices that are easy and hard, each call on both sides:
`gpu-offload verify` judges the results by residuals and orthogonality. Runs SciPy's own wheel on the libraries.

    python3 KIT/verify.py [--sizes 300,1000] [--large 4000] [--out FILE]

The last line is `N passed, N failed, N skipped`, a row a routine. Needs NumPy and SciPy.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import kit

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = """gemm symm hemm syrk herk syr2k her2k trmm trsm getrf getrs getri gesv potrf potrs potri posv trtri trtrs lauum
geqrf orgqr ormqr gels gelsd gelss syev syevd syevr syevx sygv sygvd sygvx gesdd gesvd geev""".split()
COMPLETE = "all calls were made"
KINDS = ("random", "graded", "clustered", "deficient", "tiny", "huge")

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--prefix", default=os.path.join(HERE, "prefix"), help="the prefix under test")
arguments.add_argument("--sizes", default="300,1000", help="orders; the first with every kind of matrix, others with random and graded ones")
arguments.add_argument("--large", type=int, default=0, metavar="N", help="an order for the quicker routines in float64")
arguments.add_argument("--threads", type=int, default=min(16, os.cpu_count() or 1), help="CPU threads")
arguments.add_argument("--kinds", default=",".join(KINDS), help="of matrices of the first size")
arguments.add_argument("--deadline", type=int, default=900, metavar="S", help="seconds after which the calls end and are judged as far as they came")
arguments.add_argument("--out", help="file for the findings as JSON")
arguments.add_argument("--sim", metavar="DIR", help="folder of the simulated CUDA")
arguments.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
options = arguments.parse_args()


def name(family, precision):
    """The routine's name in this precision; None where there is none."""
    if precision in "sd" and family in ("hemm", "herk", "her2k"):
        return None
    return kit.routine(family, precision)


def general(n, kind, dtype, random):
    import numpy as np

    def normal(*shape):
        real = random.standard_normal(shape)
        return (real + 1j * random.standard_normal(shape) if np.issubdtype(dtype, np.complexfloating) else real)

    if kind == "random":
        return normal(n, n).astype(dtype)
    if kind in ("tiny", "huge"):
        # Products of such numbers leave the range; LAPACK scales where it promises to.
        info = np.finfo(dtype)
        return (normal(n, n) * float(info.tiny if kind == "tiny" else info.max) ** 0.8).astype(dtype)
    u, v = np.linalg.qr(normal(n, n))[0], np.linalg.qr(normal(n, n))[0]
    small = 2.0 * np.finfo(dtype).eps
    values = {
        "graded": np.geomspace(1.0, small, n),
        "clustered": np.repeat([1.0, 1.0 + 4 * small, 0.5], -(-n // 3))[:n],
        "deficient": np.where(np.arange(n) < n // 2, 1.0, 0.0),
    }[kind]
    return ((u * values) @ v).astype(dtype)


def calls(n, kind, precision, quick):
    import numpy as np
    from scipy.linalg import blas, lapack

    dtype = dict(s=np.float32, d=np.float64, c=np.complex64, z=np.complex128)[precision]
    random = np.random.default_rng(n)
    a = np.asfortranarray(general(n, kind, dtype, random))
    b = np.asfortranarray(general(n, "random", dtype, random)[:, : min(n, 5)])
    tall = np.asfortranarray(a[:, : max(1, n // 2)])
    symmetric = np.asfortranarray(a + a.conj().T)
    scale = np.abs(a).max() or 1.0
    positive = (a / scale) @ (a / scale).conj().T + n * np.eye(n)
    positive = np.asfortranarray(positive.astype(dtype))
    triangle = np.asfortranarray((np.triu(a / scale) + n * np.eye(n)).astype(dtype))

    def lapack_call(family, *args, **more):
        # What SciPy does not offer in this precision is counted by the parent.
        function = getattr(lapack, name(family, precision) or "", None)
        return function(*args, **more) if function else None

    def blas_call(family, *args, **more):
        function = getattr(blas, name(family, precision) or "", None)
        return function(*args, **more) if function else None

    lu, pivots, info = lapack_call("getrf", a)
    if info == 0:
        lapack_call("getri", lu, pivots)
        for trans in (0, 1, 2):
            lapack_call("getrs", lu, pivots, b, trans=trans)
    lapack_call("gesv", a, b)
    for lower in (0, 1):
        factor, _ = lapack_call("potrf", positive, lower=lower, clean=0)
        lapack_call("potrs", factor, b, lower=lower)
        lapack_call("potri", factor, lower=lower)
        lapack_call("lauum", factor, lower=lower)
        lapack_call("posv", positive, b, lower=lower)
        side = np.asfortranarray(triangle.T) if lower else triangle
        for unit in (0, 1):
            lapack_call("trtri", side if not unit else np.asfortranarray(side / n), lower=lower, unitdiag=unit)
        for trans in (0, 1, 2):
            lapack_call("trtrs", side, b, lower=lower, trans=trans)
        for routine in ("symm", "hemm"):
            blas_call(routine, 1.0, symmetric, a / scale, lower=lower)
        for routine in ("syrk", "herk"):
            blas_call(routine, 1.0, tall / scale, lower=lower)
        for routine in ("syr2k", "her2k"):
            blas_call(routine, 1.0, tall / scale, tall / scale, lower=lower)
        for right in (0, 1):
            blas_call("trmm", 1.5, side, a / scale, side=right, lower=lower)
            blas_call("trsm", 1.5, side, a / scale, side=right, lower=lower)
    for trans in (0, 1, 2):
        blas_call("gemm", 1.0, a / scale, tall / scale, trans_a=trans)
    for matrix in (a, tall):
        qr, tau, _, _ = lapack_call("geqrf", matrix)
        for routine in ("orgqr", "ungqr"):
            function = getattr(lapack, precision + routine, None)
            if function:
                function(qr, tau)
        adjoint = "C" if precision in "cz" else "T"
        lwork = 64 * n
        for trans in ("N", adjoint):
            function = getattr(lapack, name("ormqr", precision))
            function("L", trans, qr, tau, a, lwork)
    transposed = "C" if precision in "cz" else "T"
    for matrix in (tall, np.asfortranarray(tall.conj().T)):
        rows = max(matrix.shape)
        right = np.asfortranarray(general(rows, "random", dtype, random)[:, : min(n, 5)])
        for trans in ("N", transposed):
            lapack_call("gels", matrix, right, trans=trans)
        for routine in ("gelsd", "gelss"):
            if quick and routine == "gelss":
                continue
            # SciPy computes the workspaces of gelsd by its own query.
            from scipy.linalg import lstsq

            lstsq(matrix, right[: matrix.shape[0]], lapack_driver=routine, check_finite=False)
    for lower in (0, 1):
        for vectors in (0, 1):
            if not quick:
                lapack_call("syev", symmetric, compute_v=vectors, lower=lower)
            lapack_call("syevd", symmetric, compute_v=vectors, lower=lower)
        lapack_call("syevr", symmetric, compute_v=1, lower=lower)
        lapack_call("syevr", symmetric, compute_v=1, range="I", il=1, iu=max(1, n // 4), lower=lower)
        if not quick:
            lapack_call("syevx", symmetric, compute_v=1, range="I", il=1, iu=max(1, n // 4), lower=lower)
        uplo = "L" if lower else "U"
        for itype in (1, 2, 3):
            lapack_call("sygvd", symmetric, positive, itype=itype, uplo=uplo)
        if not quick:
            lapack_call("sygv", symmetric, positive, uplo=uplo)
            lapack_call("sygvx", symmetric, positive, uplo=uplo, range="I", il=1, iu=max(1, n // 4))
    for matrix in (a, tall, np.asfortranarray(tall.conj().T)):
        for full in (0, 1):
            lapack_call("gesdd", matrix, full_matrices=full)
            if not quick:
                lapack_call("gesvd", matrix, full_matrices=full)
        lapack_call("gesdd", matrix, compute_uv=0)
    if not quick:
        lapack_call("geev", a, compute_vl=0, compute_vr=1)
        lapack_call("geev", a, compute_vl=0, compute_vr=0)


def child():
    import faulthandler

    faulthandler.enable()
    for i, n in enumerate(int(n) for n in options.sizes.split(",")):
        for kind in options.kinds.split(",") if i == 0 else KINDS[:2]:
            for precision in "sdcz":
                calls(n, kind, precision, quick=i > 0)
    if options.large:
        calls(options.large, "random", "d", quick=True)
    print(COMPLETE)


def parent():
    rows = kit.Rows()
    if not (options.sim or kit.gpu_present()):
        rows.add("every routine on both sides", "skipped", kit.NO_GPU)
        return rows
    place = kit.Place(options.prefix, tempfile.mkdtemp(prefix="gpu-offload-"), options.threads, [options.sim] if options.sim else [])
    report = options.out or os.path.join(place.scratch, "verify.json")
    tool = os.path.join(options.prefix, "bin/gpu-offload")
    command = ["timeout", str(options.deadline), tool, "verify", "--threshold", "0", "--json", report, sys.executable, os.path.abspath(__file__), "--child"]
    command += ["--sizes", options.sizes, "--large", str(options.large), "--kinds", options.kinds]
    done = subprocess.run(command, env=place.environment(), capture_output=True, text=True, errors="replace")
    complete = COMPLETE in done.stdout
    rows.add("all calls", complete, COMPLETE if complete else (done.stdout + done.stderr)[-1500:])
    if not os.path.exists(report):
        return rows
    with open(report) as found:
        found = json.load(found)
    for family in FAMILIES:
        names = [name(family, p) for p in "sdcz"]
        names = [n for n in names if n in found]
        compared = sum(found[n]["compared"] for n in names)
        wrong = sum(found[n]["wrong"] for n in names)
        worst = {}
        for n in names:
            for what, figure in found[n]["worst"].items():
                if figure["gpu"] > worst.get(what, (-1,))[0]:
                    worst[what] = (figure["gpu"], figure.get("cpu"), n, figure["at"])
        skipped = {}
        for n in names:
            for why, count in found[n]["skipped"].items():
                skipped[why] = skipped.get(why, 0) + count
        text = "; ".join(
            f"{what} {gpu:.3g}" + (f" (CPU {cpu:.3g})" if cpu is not None else "") + f" in {at_name} {' '.join(map(str, at))}"
            for what, (gpu, cpu, at_name, at) in worst.items()
        )
        text += "".join(f"; not compared {count}: {why}" for why, count in skipped.items())
        rows.add(f"{family}, {len(names)} precisions, {compared} calls", compared > 0 and wrong == 0, f"{wrong} wrong; {text}")
    return rows


if options.child:
    child()
else:
    rows = parent()
    print(rows.line())
    sys.exit(1 if rows.count("failed") else 0)
