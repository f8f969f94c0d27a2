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


def routine(family, precision):
    if precision in "cz":
        if family.startswith(("syev", "sygv")):
            return precision + "he" + family[2:]
        return precision + family.replace("orgqr", "ungqr").replace("ormqr", "unmqr")
    return precision + family


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

    def matrix(self, rows, cols, diagonal=0.0):
        count = rows * cols * (2 if self.complex else 1)
        at = self.chance.randrange(len(self.pool) - count)
        x = self.pool[at : at + count].astype(self.real).view(self.dtype)
        if diagonal:
            x[:: rows + 1] = diagonal
        return x

    def empty(self, count):
        return self.np.zeros(max(1, count), self.dtype)

    def reals(self, count):
        return self.np.zeros(max(1, count), self.real)

    def ints(self, count, value=0):
        return self.np.full(max(1, count), value, self.np.int32)


WORK, LWORK, RWORK, LRWORK, IWORK, LIWORK = "work", "lwork", "rwork", "lrwork", "iwork", "liwork"
LENGTHS = {LWORK: WORK, LRWORK: RWORK, LIWORK: IWORK}


class Place(str):
    """A workspace or its length in a list of arguments."""


def arguments_of(family, d, m, n, k):
    """The arguments after info's predecessor: letters, sizes, scalars, arrays, places of workspaces."""
    pick = d.chance.choice
    adjoint = "C" if d.complex else "T"
    uplo, trans, side, diag = pick("UL"), pick(["N", adjoint]), pick("LR"), pick("NU")
    work = [Place(WORK), Place(LWORK)]
    rwork = [Place(RWORK)] if d.complex else []
    rlwork = [Place(RWORK), Place(LRWORK)] if d.complex else []
    iwork = [Place(IWORK), Place(LIWORK)]
    least, info = min(m, n), d.ints(1)
    of_side = m if side == "L" else n
    one, beta = 1.0, pick([0.0, 1.0])
    spd = lambda: d.matrix(n, n, 4.0 * n)
    if family == "gemm":
        ta, tb = pick(["N", adjoint]), pick(["N", adjoint])
        lda, ldb = (m if ta == "N" else k), (k if tb == "N" else n)
        return [ta, tb, m, n, k, one, d.matrix(m, k), lda, d.matrix(k, n), ldb, beta, d.matrix(m, n), m]
    if family == "gemmtr":
        ta, tb = pick(["N", adjoint]), pick(["N", adjoint])
        lda, ldb = (n if ta == "N" else k), (k if tb == "N" else n)
        return [uplo, ta, tb, n, k, one, d.matrix(n, k), lda, d.matrix(k, n), ldb, beta, d.matrix(n, n), n]
    if family in ("symm", "hemm"):
        return [side, uplo, m, n, one, d.matrix(of_side, of_side), of_side, d.matrix(m, n), m, beta, d.matrix(m, n), m]
    if family in ("syrk", "herk", "syr2k", "her2k"):
        turn = {"syrk": "T", "syr2k": "T"}.get(family, "C")
        trans = pick(["N", turn])
        ld = n if trans == "N" else k
        alpha = Real(one) if family == "herk" else one
        beta = Real(beta) if family in ("herk", "her2k") else beta
        second = [d.matrix(n, k), ld] if family in ("syr2k", "her2k") else []
        return [uplo, trans, n, k, alpha, d.matrix(n, k), ld, *second, beta, d.matrix(n, n), n]
    if family in ("trmm", "trsm"):
        a = d.matrix(of_side, of_side, 4.0 * of_side)
        return [side, uplo, trans, "N", m, n, one, a, of_side, d.matrix(m, n), m]
    if family == "getrf":
        return [m, n, d.matrix(m, n), m, d.ints(least), info]
    if family == "getrs":
        pivots = d.np.arange(1, n + 1, dtype=d.np.int32)
        return [trans, n, k, spd(), n, pivots, d.matrix(n, k), n, info]
    if family == "gesv":
        return [n, k, d.matrix(n, n), n, d.ints(n), d.matrix(n, k), n, info]
    if family in ("potrf", "potri", "lauum"):
        return [uplo, n, spd(), n, info]
    if family in ("potrs", "posv"):
        return [uplo, n, k, spd(), n, d.matrix(n, k), n, info]
    if family == "trtri":
        return [uplo, "N", n, spd(), n, info]
    if family == "trtrs":
        return [uplo, trans, "N", n, k, spd(), n, d.matrix(n, k), n, info]
    if family in ("geqrf", "gelqf"):
        return [m, n, d.matrix(m, n), m, d.empty(least), *work, info]
    if family in ("orgqr", "ormqr"):
        # Small reflectors, so that the products stay bounded.
        a, tau = d.matrix(m, n), d.empty(n)
        a *= 0.1 / math.sqrt(m)
        tau[:] = 1.0
        if family == "orgqr":
            return [m, n, min(k, n), a, m, tau, *work, info]
        cols = d.chance.randrange(1, n + 1)
        return ["L", trans, m, cols, n, a, m, tau, d.matrix(m, cols), m, *work, info]
    if family == "gels":
        return [trans, m, n, k, d.matrix(m, n), m, d.matrix(m, k), m, *work, info]
    if family in ("gelsd", "gelss"):
        extra = (rwork + [Place(IWORK)]) if family == "gelsd" else ([d.reals(5 * least)] if d.complex else [])
        return [m, n, k, d.matrix(m, n), m, d.matrix(m, k), m, d.reals(least), Real(-1.0), d.ints(1), *work, *extra, info]
    job = pick("NV")
    if family == "syev":
        return [job, uplo, n, d.matrix(n, n), n, d.reals(n), *work, *([d.reals(3 * n)] if d.complex else []), info]
    if family == "syevd":
        return [job, uplo, n, d.matrix(n, n), n, d.reals(n), *work, *rlwork, *iwork, info]
    if family == "sygvd":
        return [1, job, uplo, n, d.matrix(n, n), n, spd(), n, d.reals(n), *work, *rlwork, *iwork, info]
    if family == "syevr":
        window = [Real(0.0), Real(0.0), 1, n, Real(0.0), d.ints(1), d.reals(n), d.empty(n * n), n, d.ints(2 * n)]
        return [job, "A", uplo, n, d.matrix(n, n), n, *window, *work, *rlwork, *iwork, info]
    if family in ("gesdd", "gesvd"):
        job = pick("NS")
        jobs = [job] if family == "gesdd" else [job, job]
        vectors = [d.empty(m * least), m, d.empty(least * n), least]
        if family == "gesdd":
            extra = rwork_of_gesdd(d, job, m, n) + [d.ints(8 * least)]
        else:
            extra = [d.reals(5 * least)] if d.complex else []
        return [*jobs, m, n, d.matrix(m, n), m, d.reals(least), *vectors, *work, *extra, info]
    values = [d.empty(n)] if d.complex else [d.reals(n), d.reals(n)]
    extra = [d.reals(2 * n)] if d.complex else []
    return ["N", job, n, d.matrix(n, n), n, *values, d.empty(1), 1, d.empty(n * n), n, *work, *extra, info]


def rwork_of_gesdd(d, job, m, n):
    """LAPACK 3.12's formula; the query does not tell it."""
    if not d.complex:
        return []
    least, most = min(m, n), max(m, n)
    return [d.reals(max(5 * least * least + 5 * least, 2 * most * least + 2 * least * least + least) if job == "S" else 7 * least)]


def made(library, name, args, d):
    """A function without arguments that makes the call, and info's array; workspaces as the routine asks for."""
    np = d.np
    function = library[name + "_"]
    function.restype = None
    types = {WORK: d.dtype, RWORK: d.real, IWORK: np.int32}
    spaces = {place: np.zeros(1, types[place]) for place in types}
    lengths = dict.fromkeys(LENGTHS, -1)

    def encoded():
        out, hidden, kept = [], [], []
        for a in args:
            if isinstance(a, Place):
                a = spaces[a] if a in spaces else lengths[a]
            if isinstance(a, str):
                a = ctypes.c_char_p(a.encode())
                hidden.append(ctypes.c_size_t(1))
                out.append(a)
                continue
            if isinstance(a, int):
                a = np.array([a], np.int32)
            elif isinstance(a, Real):
                a = np.array([float(a)], d.real)
            elif isinstance(a, float):
                a = np.array([a], d.dtype)
            kept.append(a)
            out.append(ctypes.c_void_p(a.ctypes.data))
        return out + hidden, kept

    if any(isinstance(a, Place) for a in args):
        words, kept = encoded()
        function(*words)
        for length, place in LENGTHS.items():
            count = max(1, int(spaces[place][0].real))
            spaces[place], lengths[length] = np.zeros(count, types[place]), count
        args[-1][0] = 0
    words, kept = encoded()
    return (lambda: function(*words)), kept, args[-1]


def child():
    import numpy as np

    pool = np.random.default_rng(options.seed).standard_normal(POOL)
    library = ctypes.CDLL("liblapack.so.3", mode=ctypes.RTLD_GLOBAL)
    blas = ctypes.CDLL("libblas.so.3", mode=ctypes.RTLD_GLOBAL)

    def run(family, precision, m, n, k, seed):
        d = Data(np, pool, precision, seed)
        args = arguments_of(family, d, m, n, k)
        call, kept, last = made(blas if family in LEVEL3 else library, routine(family, precision), args, d)
        began = time.perf_counter()
        call()
        seconds = time.perf_counter() - began
        return seconds, 0 if family in LEVEL3 else int(last[0])

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
    records = []
    if os.path.exists(log):
        with open(log) as entries:
            entries.seek(position)
            records = [entry for entry in map(json.loads, entries) if entry.get("event") == "call"]
    return [json.loads(line) for line in lines[start + 1 : -1]], records


def matched(calls, records):
    """Each call's own record, or None where it never reached the engine. A LAPACK routine that stays on the CPU calls
    others, whose records come before its own or without it."""
    at, own = 0, []
    for family, precision, *_ in calls:
        wanted, found = routine(family, precision), None
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
        command = [os.path.join(options.prefix, "bin", "gpu-offload"), "calibrate"] + (["--quick"] if options.quick else [])
        done = subprocess.run(command, env=place.environment(XDG_DATA_HOME=homes["calibrated"]), capture_output=True, text=True, errors="replace")
        if done.returncode:
            sys.exit(f"calibrate: exit status {done.returncode}: {done.stderr[-1000:]}")
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
            text.append(f"| {routine(family, precision)} {m} {n} {k} | {seconds['cpu'][i] * 1e3:.2f} | {seconds['gpu'][i] * 1e3:.2f} | {seconds[kind][i] * 1e3:.2f} | {shown} |")
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
        every = [dict(routine=routine(f, p), m=m, n=n, k=k, **{kind: seconds[kind][i] for kind in seconds}) for i, (f, p, m, n, k, _) in enumerate(calls)]
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
