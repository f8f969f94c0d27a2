"""Netlib's LAPACK programs on the GPU route and on the CPU route: which parts of them run, their input, what
they print, what the engine's log says about them. run.py makes rows of it.

Every small call of a forced run costs what the device needs for it, so only the parts that reach routed
routines run; `cut` says what is run. Called by itself this file prints that.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

# Parts of the linear-equation programs whose routines are routed: LU, Cholesky and QR.
PATHS = ("GE", "PO", "QR")
# The lists of each input that are thinned, by how their line's text begins: positions that stay, counted from 1.
# Blocksizes reach the reference's blocked code and not the device. (With one blocksize alone xlintst's QR
# part fails on any library: 221 of 8568 tests of 3.12's xlintstd, so two stay.)
LINEAR = {"Values of M": (1, 2, 4, 6, 7), "Values of N": (1, 2, 4, 6, 7), "Values of NRHS": (1, 3), "Values of NB": (1, 5), "Values of NX": (1, 5)}
SYMMETRIC = {"Values of NB": (5,), "Values of NBMIN": (5,), "Values of NX": (5,)}
SVD_SIZES = (2, 6, 8, 13, 18)
SVD = {"Values of M": SVD_SIZES, "Values of N": SVD_SIZES} | {"Values of " + name: (5,) for name in ("NB", "NBMIN", "NX", "NRHS")}
# Only the drivers are routed; the reference's routines below them make tens of thousands of products of order 40.
DRIVERS_ALONE = ("sep.in", "svd.in")
RFP = {"Values of N": (1, 2, 4, 7, 9), "Values of NRHS": (1, 3)}
# Both routes of a program may take so long (s); the slowest takes a tenth on the CPU.
LIMIT_S = 100
AT_ONCE = 8

# Program (with {p} for the precision's letter), input, precisions.
PROGRAMS = (
    ("xlintst{p}", "{p}test.in", "sdcz"),
    ("xeigtst{p}", "sep.in", "sdcz"),
    ("xeigtst{p}", "{p}sg.in", "sdcz"),
    ("xeigtst{p}", "svd.in", "sdcz"),
    ("xeigtst{p}", "{p}ed.in", "sdcz"),
    ("xlintstrf{p}", "{p}test_rfp.in", "sdcz"),
)

# Routed families that each precision's programs call, by the names in the log. (getri passes the door, but the
# backend has no path for it.)
REAL = ("getrf getrs gesv potrf potrs posv potri geqrf orgqr ormqr syev syevd syevr syevx sygv sygvd sygvx gesvd gesdd geev").split()
COMPLEX = ("getrf getrs gesv potrf potrs posv potri geqrf ungqr unmqr heev heevd heevr heevx hegv hegvd hegvx gesvd gesdd geev").split()


def families(precision):
    return [precision + name for name in (REAL if precision in "sd" else COMPLEX)]


def _values(line):
    """The leading numbers of a line, and what stands behind them."""
    words = line.split()
    count = next((i for i, word in enumerate(words) if not word.isdigit()), len(words))
    return words[:count], " ".join(words[count:])


def _thin(lines, lists):
    """Keeps these positions of these lists, and corrects the numbers of values that stand before them."""
    out, thinned = [], {}
    for at, line in enumerate(lines):
        values, text = _values(line)
        name = " ".join(text.split()[:3])
        if name in lists and name not in thinned:
            kept = lists[name]
            # The number stands on the line before, or serves several lists and has been corrected already.
            number, what = _values(out[-1])
            if len(number) == 1 and what.startswith("Number of "):
                out[-1] = f"{len(kept)}  {what}"
            line = " ".join(values[i - 1] for i in kept) + "  " + text
            thinned[name] = f"{len(kept)} of {len(values)} {name}"
        out.append(line)
    if len(thinned) != len(lists):
        raise ValueError(f"the input lacks {set(lists) - set(thinned)}")
    return out, ", ".join(thinned.values())


def cut(data, text):
    """The input that is run, and in words what of netlib's own is run."""
    lines = text.splitlines()
    if data.endswith("test.in"):
        lines, what = _thin(lines, LINEAR)
        path = data[0].upper()
        is_path = lambda line: line[:1] == path and len(line.split()[0]) == 3
        lines = [line for line in lines if not is_path(line) or line[1:3] in PATHS]
        return "\n".join(lines) + "\n", f"{what}, paths {' '.join(PATHS)} alone"
    if data.endswith("sg.in"):
        return text, "all of it"
    for name, lists in (("sep.in", SYMMETRIC), ("svd.in", SVD), ("_rfp.in", RFP)):
        if data.endswith(name):
            lines, what = _thin(lines, lists)
            if name in DRIVERS_ALONE:
                at = next(i for i, line in enumerate(lines) if line.startswith("T") and "test the LAPACK routines" in line)
                lines[at] = "F" + lines[at][1:]
                what += ", drivers alone"
            return "\n".join(lines) + "\n", what
    # The drivers of nonsymmetric problems stand one after another; ?geev's part begins and ends with "?EV".
    first, last = (i for i, line in enumerate(lines) if line[1:4] == "EV ")
    return "\n".join(lines[first : last + 1]) + "\n", "?geev alone, not ?gees, ?geevx, ?geesx"


# Tests 5 to 7 of ?drvev ask for the same bits from calls with and without left eigenvectors, which the GPU does
# not compute: of two routes the bits differ. (Of OpenBLAS with two threads alone they differ too: 8 of 1100 in
# xeigtstc, 2 cores, 2026-12-02.) The result of these tests is 0 or 1/ulp.
TWO_ROUTES = re.compile(r"IWK=.*test\( ?[567]\)= *(0\.450E\+16|0\.839E\+07)")


def totals(data, text):
    """(tests, numerical failures, other errors, failures of TWO_ROUTES): the failures and errors as
    lapack_testing.py of LAPACK counts them; the tests with those of the parts that have failures. The last are not among the second."""
    tests = numerical = other = excepted = 0
    for line in text.splitlines():
        words = line.split()
        if "run)" in words:
            tests += int(words[words.index("run)") - 2])
        if "out of" in line:
            numerical += int(words[words.index("out") - 1])
            tests += int(words[words.index("of") + 1])
        if data.endswith("ed.in") and TWO_ROUTES.search(line):
            excepted += 1
        other += ("illegal" in line or "Illegal" in line) + (" INFO" in line)
    return tests, numerical - excepted, other, excepted


def summary(log):
    """Of a log of level summary: device calls by routine, CPU calls by (routine, reason), both only where > 0."""
    device, fallbacks = {}, {}
    if not os.path.exists(log):
        return device, fallbacks
    with open(log) as lines:
        for line in lines:
            entry = json.loads(line)
            if entry.get("event") != "summary":
                continue
            routine = entry["routine"]
            if entry["gpu_calls"]:
                device[routine] = device.get(routine, 0) + entry["gpu_calls"]
            named = 0
            for reason, count in entry["fallbacks"].items():
                fallbacks[routine, reason] = fallbacks.get((routine, reason), 0) + count
                named += count
            # Calls that were never meant for the GPU: by the decision's reason.
            rest = entry["cpu_calls"] - named
            if rest > 0:
                reasons = " or ".join(sorted(entry["reasons"]))
                fallbacks[routine, reasons] = fallbacks.get((routine, reasons), 0) + rest
    return device, fallbacks


def unexpected(fallbacks):
    """Those that are no decision by the call's own data: a device or library that failed."""
    return sorted(reason for _, reason in fallbacks if not reason.startswith("no GPU path"))


class Result:
    def __init__(self, program, data, route):
        self.name, self.data, self.route = program, data, route
        self.status, self.seconds, self.text, self.errors, self.log, self.cut = None, 0.0, "", "", "", ""


def _play(folder, scratch, environment, program, data, route):
    result = Result(program, data, route)
    where = os.path.join(scratch, f"{program}-{data}-{route}")
    os.mkdir(where)
    result.log = os.path.join(where, "log.jsonl")
    with open(os.path.join(folder, data)) as source:
        text, result.cut = cut(data, source.read())
    env = environment(GPU_OFFLOAD=route, GPU_OFFLOAD_THRESHOLD=0, GPU_OFFLOAD_LOG="summary", GPU_OFFLOAD_LOG_FILE=result.log, OPENBLAS_NUM_THREADS=2)
    started = time.time()
    try:
        done = subprocess.run([os.path.join(folder, program)], input=text, env=env, cwd=where, capture_output=True, text=True, errors="replace", timeout=LIMIT_S)
        result.status, result.text, result.errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        result.status, result.text = 124, (late.stdout or b"").decode(errors="replace")
        result.errors = f"still running after {LIMIT_S} s"
    except OSError as error:
        result.status, result.errors = 127, str(error)
    result.seconds = time.time() - started
    return result


def play(folder, scratch, environment, precisions="sdcz"):
    """Runs all programs on both routes, AT_ONCE at a time; pairs (forced, off)."""
    jobs = []
    for program, data, all_of in PROGRAMS:
        for p in all_of:
            if p in precisions:
                jobs.append((program.format(p=p), data.format(p=p)))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {}
        # The slow route first.
        for route in ("force", "off"):
            for program, data in jobs:
                runs[program, data, route] = pool.submit(_play, folder, scratch, environment, program, data, route)
        return [(runs[job + ("force",)].result(), runs[job + ("off",)].result()) for job in jobs]


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "netlib-lapack")
    for program, data, precisions in PROGRAMS:
        p = precisions[0]
        with open(os.path.join(folder, data.format(p=p))) as source:
            print(f"{program.format(p=p)} < {data.format(p=p)}: {cut(data.format(p=p), source.read())[1]}")
