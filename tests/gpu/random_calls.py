"""Random calls over all families of level 3 and LAPACK: how much time `auto` loses against the better side of each
call, measured, and how wrong its predictions are.

    python3 KIT/random_calls.py [--calls 500] [--profile FILE] [--out FILE] [--markdown FILE]

The same calls are made in processes of their own: with GPU_OFFLOAD=off, with force, in auto with the profile of a
calibration (made first unless --profile names one) and in auto without any. Each process begins without anything
learnt and makes a few calls that are not counted, with which the GPU starts and loads its libraries. Shapes are
log-uniform, letters random; a call that would take a CPU too long is drawn anew. Each process runs --passes times and
the least time of each call counts, on every side. Needs NumPy.
"""
import argparse
import ctypes
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import kit

HERE = os.path.dirname(os.path.abspath(__file__))
# What the project promises of the total time, over the better side of each call, in per cent.
PROMISED = {"calibrated": 5.0, "uncalibrated": 15.0}
# And of the predictions' errors in each family, in per cent: the median, and what nine of ten stay below.
PROMISED_ERRORS = (15.0, 40.0)

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--prefix", default=os.path.join(HERE, "prefix"), help="the prefix under test")
arguments.add_argument("--calls", type=int, default=500)
arguments.add_argument("--seed", type=int, default=1)
arguments.add_argument("--most", type=int, default=6000, help="the largest dimension")
arguments.add_argument("--most-s", type=float, default=0.4, help="a call that is guessed to take a CPU of 16 cores longer is drawn anew")
arguments.add_argument("--passes", type=int, default=2, help="processes of each kind; the least time of a call counts")
arguments.add_argument("--threads", type=int, default=min(16, os.cpu_count() or 1), help="CPU threads")
arguments.add_argument("--level", type=int, default=9, help="level of auto; 9 takes what is predicted to finish sooner")
arguments.add_argument("--profile", metavar="FILE", help="a profile of this machine, instead of calibrating")
arguments.add_argument("--quick", action="store_true", help="calibrate --quick")
arguments.add_argument("--out", metavar="FILE", help="every call's times as JSON")
arguments.add_argument("--markdown", metavar="FILE", help="the tables (docs/performance/decisions.md)")
arguments.add_argument("--sim", metavar="DIR", help="folder of the simulated CUDA: tests this script, proves no speed")
arguments.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
options = arguments.parse_args()

PRECISIONS = "sdcz"
# Families, with what a CPU of 16 cores does of them in a second (multiply-adds of float64; guesses, which only bound
# how long a call may take).
LEVEL3 = "gemm symm hemm syrk herk syr2k her2k trmm trsm gemmtr".split()
FACTORISATIONS = "getrf getrs gesv potrf potrs posv potri trtri trtrs lauum geqrf gelqf orgqr ormqr gels".split()
SPECTRAL = "gelsd gelss syev syevd syevr sygvd gesdd gesvd geev".split()
FAMILIES = LEVEL3 + FACTORISATIONS + SPECTRAL
ONLY_COMPLEX = ("hemm", "herk", "her2k")


def guessed_s(family, precision, m, n, k):
    """What a CPU of 16 cores takes, roughly."""
    least = min(m, n)
    madds, rate = {
        "gelsd": (3 * m * n * least, 4e10), "gelss": (6 * m * n * least, 4e10),
        "syev": (5 * n**3, 2e10), "syevd": (4 * n**3, 6e10), "syevr": (4 * n**3, 6e10), "sygvd": (6 * n**3, 6e10),
        "gesdd": (9 * m * n * least, 5e10), "gesvd": (11 * m * n * least, 2e10), "geev": (13 * n**3, 1.2e10),
    }.get(family, (m * n * (k if family in LEVEL3 else least), 2e11 if family in LEVEL3 else 7e10))
    return madds / rate * (4 if precision in "cz" else 1) * (0.5 if precision in "sc" else 1)


def drawn():
    """(family, precision, m, n, k, seed of the data), the same in every process."""
    chance = random.Random(options.seed)

    def size(low=16, high=options.most):
        return int(math.exp(chance.uniform(math.log(low), math.log(max(low, high) + 1))))

    calls = []
    while len(calls) < options.calls:
        family, precision = chance.choice(FAMILIES), chance.choice(PRECISIONS)
        if family in ONLY_COMPLEX and precision in "sd":
            continue
        m, n, k = size(), size(), size()
        if family in ("getrs", "gesv", "potrs", "posv", "trtrs"):
            m, k = n, size(1, n)
        elif family in ("orgqr", "ormqr", "gels", "gelsd", "gelss"):
            m, n = max(m, n), min(m, n)
            k = n if family == "ormqr" else size(1, n)
        elif family not in LEVEL3 + ["getrf", "geqrf", "gelqf", "gesdd", "gesvd"]:
            m = k = n
        sizes = (m, n, k)
        if guessed_s(family, precision, *sizes) <= options.most_s and max(m * n, m * k, n * k, n * n) <= POOL // 2:
            calls.append((family, precision, *sizes, chance.randrange(1 << 30)))
    return calls


# Numbers of the pool that matrices are cut from, so that making data takes as long as copying it.
POOL = 32_000_000


class Real(float):
    """A scalar of the real type that belongs to the precision."""


class Data:
    """Operands of one call."""

    def __init__(self, np, pool, precision, seed):
        self.np, self.pool, self.chance = np, pool, random.Random(seed)
        self.complex = precision in "cz"
        self.real = np.float32 if precision in "sc" else np.float64
        self.dtype = (np.complex64 if precision == "c" else np.complex128) if self.complex else self.real

    def numbers(self, count):
        count *= 2 if self.complex else 1
        at = self.chance.randrange(len(self.pool) - count)
        return self.pool[at : at + count].astype(self.real).view(self.dtype)

    def matrix(self, rows, cols, diagonal=0.0):
        x = self.numbers(rows * cols).reshape((rows, cols), order="F")
        if diagonal:
            self.np.fill_diagonal(x, diagonal)
        return x


def level3_arguments(family, d, m, n, k):
    """Letters, sizes, scalars and arrays of a call of level 3."""
    pick = d.chance.choice
    adjoint = "C" if d.complex else "T"
    uplo, trans, side = pick("UL"), pick(["N", adjoint]), pick("LR")
    of_side = m if side == "L" else n
    one, beta = 1.0, pick([0.0, 1.0])
    if family == "gemm":
        ta, tb = pick(["N", adjoint]), pick(["N", adjoint])
        lda, ldb = (m if ta == "N" else k), (k if tb == "N" else n)
        return [ta, tb, m, n, k, one, d.numbers(m * k), lda, d.numbers(k * n), ldb, beta, d.numbers(m * n), m]
    if family == "gemmtr":
        ta, tb = pick(["N", adjoint]), pick(["N", adjoint])
        lda, ldb = (n if ta == "N" else k), (k if tb == "N" else n)
        return [uplo, ta, tb, n, k, one, d.numbers(n * k), lda, d.numbers(k * n), ldb, beta, d.numbers(n * n), n]
    if family in ("symm", "hemm"):
        return [side, uplo, m, n, one, d.numbers(of_side * of_side), of_side, d.numbers(m * n), m, beta, d.numbers(m * n), m]
    if family in ("syrk", "herk", "syr2k", "her2k"):
        turn = {"syrk": "T", "syr2k": "T"}.get(family, "C")
        trans = pick(["N", turn])
        ld = n if trans == "N" else k
        alpha = Real(one) if family == "herk" else one
        beta = Real(beta) if family in ("herk", "her2k") else beta
        second = [d.numbers(n * k), ld] if family in ("syr2k", "her2k") else []
        return [uplo, trans, n, k, alpha, d.numbers(n * k), ld, *second, beta, d.numbers(n * n), n]
    # trmm, trsm
    a = d.matrix(of_side, of_side, 4.0 * of_side)
    return [side, uplo, trans, "N", m, n, one, a, of_side, d.numbers(m * n), m]


def level3_call(library, name, args, d):
    """A function that makes the call, and returns no error."""
    np = d.np
    function, words, hidden, kept = library[name + "_"], [], [], []
    function.restype = None
    for a in args:
        if isinstance(a, str):
            words.append(ctypes.c_char_p(a.encode()))
            hidden.append(ctypes.c_size_t(1))
            continue
        if isinstance(a, int):
            a = np.array([a], np.int32)
        elif isinstance(a, Real):
            a = np.array([float(a)], d.real)
        elif isinstance(a, float):
            a = np.array([a], d.dtype)
        kept.append(a)
        words.append(ctypes.c_void_p(a.ctypes.data))

    def run():
        function(*words, *hidden)
        return 0

    # Their addresses are all that the words hold.
    run.kept = kept
    return run


def lapack_operands(family, d, m, n, k):
    """What a call of LAPACK is given, by calls.py's names: letters, sizes and arrays that are read."""
    pick, np = d.chance.choice, d.np
    adjoint = "C" if d.complex else "T"
    given = dict(uplo=pick("UL"), trans=pick(["N", adjoint]), side="L", diag="N")
    if family in ("getrs", "potrf", "potri", "potrs", "posv", "lauum", "trtri", "trtrs"):
        given["a"] = d.matrix(n, n, 4.0 * n)
    elif family in ("gesv", "getrf", "geqrf", "gelqf", "orgqr", "ormqr", "gels", "gelsd", "gelss"):
        given["a"] = d.matrix(m, n)
    else:
        given |= dict(jobz=pick("NV"), range="A", jobvl="N")
        given["jobvr"] = given["jobz"]
        if family in ("gesdd", "gesvd"):
            given["jobz"] = given["jobu"] = given["jobvt"] = pick("NS")
        given["a"] = d.matrix(m, n)
    if family in ("getrs", "gesv", "potrs", "posv", "trtrs", "gels", "gelsd", "gelss"):
        given["b"] = d.matrix(m if family.startswith("gels") else n, k)
    if family == "sygvd":
        given["b"] = d.matrix(n, n, 4.0 * n)
    if family == "getrs":
        given["ipiv"] = np.arange(1, n + 1, dtype=np.int32)
    if family in ("orgqr", "ormqr"):
        # Small reflectors, so that the products stay bounded.
        given["a"] *= 0.1 / math.sqrt(m)
        given |= dict(k=min(k, n), tau=np.ones(n, d.dtype))
    if family == "ormqr":
        cols = d.chance.randrange(1, n + 1)
        given |= dict(m=m, n=cols, k=n, c=d.matrix(m, cols))
    return given


def child():
    import numpy as np

    import calls

    pool = np.random.default_rng(options.seed).standard_normal(POOL)
    entry = calls.in_library("liblapack.so.3")
    blas = ctypes.CDLL("libblas.so.3", mode=ctypes.RTLD_GLOBAL)

    def run(family, precision, m, n, k, seed):
        d = Data(np, pool, precision, seed)
        if family in LEVEL3:
            call = level3_call(blas, kit.routine(family, precision), level3_arguments(family, d, m, n, k), d)
        else:
            call = calls.Call(entry, family, precision, **lapack_operands(family, d, m, n, k)).run
        began = time.perf_counter()
        info = call()
        return time.perf_counter() - began, info

    # The GPU starts, and loads what LAPACK needs; then each routine once. None of this counts.
    large = min(options.most, 3000)
    began = time.time()
    while time.time() - began < 3 and options.most >= 3000:
        run("gemm", "d", large, large, large, 1)
    for family in ("getrf", "geqrf", "syevd", "gesdd"):
        for _ in range(2):
            run(family, "d", large // 2, large // 2, large // 2, 1)
    for family in FAMILIES:
        for precision in PRECISIONS:
            if not (family in ONLY_COMPLEX and precision in "sd"):
                middle = min(400, options.most)
                run(family, precision, middle, middle, middle, 1)
    print("begins", os.path.getsize(os.environ["GPU_OFFLOAD_LOG_FILE"]) if os.path.exists(os.environ.get("GPU_OFFLOAD_LOG_FILE", "")) else 0, flush=True)
    for call in drawn():
        seconds, info = run(*call)
        print(json.dumps([seconds, info]), flush=True)
    print("ends", flush=True)


def process(place, mode, name, number, data_home):
    """One process: seconds and info of each call, and the records of its log."""
    import calls

    log = os.path.join(place.scratch, f"{name}-{number}.jsonl")
    state = os.path.join(place.scratch, f"state-{name}-{number}")
    variables = dict(GPU_OFFLOAD=mode, GPU_OFFLOAD_LEVEL=options.level, XDG_DATA_HOME=data_home, XDG_STATE_HOME=state, GPU_OFFLOAD_LOG="decisions", GPU_OFFLOAD_LOG_FILE=log)
    if mode == "force":
        variables["GPU_OFFLOAD_THRESHOLD"] = 0
    command = [sys.executable, os.path.abspath(__file__), "--child"]
    for option in ("calls", "seed", "most", "most_s"):
        command += ["--" + option.replace("_", "-"), str(getattr(options, option))]
    done = subprocess.run(command, env=place.environment(**variables), capture_output=True, text=True, errors="replace")
    lines = done.stdout.splitlines()
    if done.returncode or not lines or lines[-1] != "ends":
        sys.exit(f"{name}: exit status {done.returncode} after {len(lines)} lines: {done.stderr[-1500:]}")
    start = next(i for i, line in enumerate(lines) if line.startswith("begins"))
    position = int(lines[start].split()[1])
    return [json.loads(line) for line in lines[start + 1 : -1]], calls.Log(log, position).calls()


def matched(calls, records):
    """Each call's own record, or None where it never reached the engine. A LAPACK routine that stays on the CPU calls
    others, whose records come before its own or without it."""
    at, own = 0, []
    for family, precision, *_ in calls:
        wanted, found = kit.routine(family, precision), None
        for i in range(at, min(at + 400, len(records))):
            if records[i]["routine"] == wanted:
                found = i
                break
        own.append(None if found is None else records[found])
        at = at if found is None else found + 1
    return own


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def parent():
    place = kit.Place(options.prefix, tempfile.mkdtemp(prefix="gpu-offload-"), options.threads, [options.sim] if options.sim else [])
    homes = {name: os.path.join(place.scratch, name) for name in ("calibrated", "uncalibrated")}
    for home in homes.values():
        os.makedirs(os.path.join(home, "gpu-offload"))
    profile = os.path.join(homes["calibrated"], "gpu-offload", "profile.toml")
    began = time.time()
    if options.profile:
        with open(options.profile) as source, open(profile, "w") as target:
            target.write(source.read())
    else:
        place.calibrate(homes["calibrated"], options.quick)
        print(f"calibrated in {time.time() - began:.0f} s", flush=True)
    kinds = {"cpu": ("off", "calibrated"), "gpu": ("force", "calibrated"), "calibrated": ("auto", "calibrated"), "uncalibrated": ("auto", "uncalibrated")}
    calls = drawn()
    seconds = {kind: [math.inf] * len(calls) for kind in kinds}
    infos, records = {}, {}
    for number in range(options.passes):
        for kind, (mode, home) in kinds.items():
            times, lines = process(place, mode, kind, number, homes[home])
            seconds[kind] = [min(a, b[0]) for a, b in zip(seconds[kind], times)]
            infos[kind] = [b[1] for b in times]
            records[kind] = lines
            print(f"{kind}, pass {number + 1}: {sum(b[0] for b in times):.2f} s in calls, {time.time() - began:.0f} s in all", flush=True)
    return report(calls, seconds, infos, records)


def errors(calls, seconds, own):
    """|predicted / measured - 1| of each side, by family, in per cent."""
    by_family = {}
    for i, (call, record) in enumerate(zip(calls, own)):
        if not record or not record["predicted_cpu_s"] or not record["predicted_gpu_s"] or record["startup_s"]:
            continue
        for side in ("cpu", "gpu"):
            error = 100 * abs(record[f"predicted_{side}_s"] / seconds[side][i] - 1)
            by_family.setdefault(call[0], {}).setdefault(side, []).append(error)
    return by_family


def report(calls, seconds, infos, records):
    better = [min(c, g) for c, g in zip(seconds["cpu"], seconds["gpu"])]
    total = sum(better)
    rows = kit.Rows()
    bad = [i for i in range(len(calls)) if any(infos[kind][i] != infos["cpu"][i] for kind in infos)]
    rows.add("info of every call is the CPU's", not bad, f"differs in {[(calls[i], [infos[kind][i] for kind in infos]) for i in bad[:5]]}" if bad else "it is")
    text = ["# Decisions on a GPU machine", "", "Written by `tests/gpu/random_calls.py`; do not edit.", ""]
    text += [f"{len(calls)} random calls over {len(FAMILIES)} families, sizes up to {options.most}, {options.threads} CPU threads, level {options.level}, seed {options.seed}; the least of {options.passes} runs counts on each side.", ""]
    text += ["| | seconds | over the better side of each call |", "|---|---|---|", f"| the better side of each call | {total:.2f} | |"]
    names = {"cpu": "CPU alone", "gpu": "GPU wherever it can", "calibrated": "auto, calibrated", "uncalibrated": "auto, uncalibrated"}
    losses = {}
    for kind, name in names.items():
        losses[kind] = 100 * (sum(seconds[kind]) / total - 1)
        text.append(f"| {name} | {sum(seconds[kind]):.2f} | {losses[kind]:.1f} % |")
    for kind, limit in PROMISED.items():
        rows.add(f"auto, {kind}, within {limit:g} % of the better side of each call", losses[kind] <= limit, f"{losses[kind]:.1f} %")
    found = {}
    for kind in PROMISED:
        own = matched(calls, records[kind])
        found[kind] = errors(calls, seconds, own)
        text += ["", f"## Where the time goes: {names[kind]}", "", "| call | CPU ms | GPU ms | auto ms | predicted CPU, GPU ms | why |", "|---|---|---|---|---|---|"]
        worst = sorted(range(len(calls)), key=lambda i: better[i] - seconds[kind][i])[:12]
        for i in worst:
            family, precision, m, n, k, _ = calls[i]
            r = own[i]
            shown = f"{r['predicted_cpu_s'] * 1e3:.2f}, {r['predicted_gpu_s'] * 1e3:.2f} | {r['route']}, {r['reason']}" if r else "| below the threshold"
            text.append(f"| {kit.routine(family, precision)} {m} {n} {k} | {seconds['cpu'][i] * 1e3:.2f} | {seconds['gpu'][i] * 1e3:.2f} | {seconds[kind][i] * 1e3:.2f} | {shown} |")
        text += ["", f"## Errors of the predictions, in per cent of the measured time: {names[kind]}", ""]
        text += ["With what was learnt until then, of the calls that reach the engine.", "", "| family | calls | CPU median | 90 % below | GPU median | 90 % below |", "|---|---|---|---|---|---|"]
        for family in FAMILIES:
            sides = found[kind].get(family)
            if not sides:
                continue
            cells = [f"{f:.0f}" for side in ("cpu", "gpu") for f in (statistics.median(sides[side]), percentile(sides[side], 0.9))]
            text.append(f"| {family} | {len(sides['cpu'])} | {' | '.join(cells)} |")
            if kind == "calibrated":
                both = sides["cpu"] + sides["gpu"]
                median, most = statistics.median(both), percentile(both, 0.9)
                rows.add(f"predictions of {family}", median <= PROMISED_ERRORS[0] and most <= PROMISED_ERRORS[1], f"median {median:.0f} %, nine of ten below {most:.0f} %, {len(sides['cpu'])} calls")
    text = "\n".join(text) + "\n"
    print(text)
    if options.markdown:
        with open(options.markdown, "w") as out:
            out.write(text)
    if options.out:
        every = [dict(routine=kit.routine(f, p), m=m, n=n, k=k, **{kind: seconds[kind][i] for kind in seconds}) for i, (f, p, m, n, k, _) in enumerate(calls)]
        with open(options.out, "w") as out:
            json.dump({"over_better_side_percent": losses, "errors_percent": found, "calls": every}, out, indent=1)
    return rows


if options.child:
    child()
elif not (options.sim or kit.gpu_present()):
    rows = kit.Rows()
    rows.add("random calls on both sides", "skipped", kit.NO_GPU)
    print(rows.line())
else:
    rows = parent()
    print(rows.line())
    sys.exit(1 if rows.count("failed") else 0)
