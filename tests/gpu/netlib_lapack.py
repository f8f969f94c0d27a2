"""Netlib's LAPACK programs forced to the GPU with threshold 0, beside the same programs with `off`: no more numerical
failures, no other errors, every routed family on the device, and nothing on the CPU but what has no GPU path.

    python3 KIT/netlib_lapack.py [--precisions sdcz] [--brief | --whole] [--programs DIR] [--prefix DIR] [--sim DIR]

Every small call of a forced run costs what the device needs for it, so only the parts that reach routed routines run,
with fewer sizes; what was cut is printed. `--brief` has fewer still and one precision a program: half a minute on the
simulated CUDA. `--whole` runs every input of LAPACK's own test script as it is, for hours there. The last line is
`N passed, N failed, N skipped`. run.py runs it as one of its parts.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import kit

HERE = os.path.dirname(os.path.abspath(__file__))
# Parts of the linear-equation programs whose routines are routed: LU, Cholesky, triangular matrices, QR, LQ and least
# squares.
PATHS = ("GE", "PO", "TR", "QR", "LQ", "LS")
# The lists of each input that are thinned, by how their line's text begins: positions that stay, counted from 1, or
# other values. Blocksizes reach the reference's blocked code and not the device, but that code calls level 3, which is
# forced as well; with 64 all matrices are one block. (With one blocksize alone xlintst's QR part fails on any library:
# 221 of 8568 tests of 3.12's xlintstd, so two stay.)
ONE_BLOCK = "64"
LINEAR = {"Values of M": (1, 2, 5, 7), "Values of N": (1, 2, 5, 7), "Values of NRHS": (1, 3), "Values of NB": "1 " + ONE_BLOCK, "Values of NX": "1 1"}
SYMMETRIC = {"Values of NB": ONE_BLOCK, "Values of NBMIN": (5,), "Values of NX": (5,)}
GENERALIZED = {"Values of N": (1, 2, 4, 7), "Values of NB": ONE_BLOCK, "Values of NBMIN": (3,), "Values of NX": (3,)}
SVD_SIZES = (2, 6, 8, 13, 18)
SVD = {"Values of M": SVD_SIZES, "Values of N": SVD_SIZES, "Values of NB": ONE_BLOCK} | {"Values of " + name: (5,) for name in ("NBMIN", "NX", "NRHS")}
# Only the drivers are routed; the reference's routines below them make tens of thousands of products of order 40.
DRIVERS_ALONE = ("sep.in", "svd.in")
RFP = {"Values of N": (1, 2, 4, 7, 9), "Values of NRHS": (1, 3)}
# With --brief: instead of the lists above, and each program's precision.
BRIEF = {
    "test.in": {"Values of M": "3 10", "Values of N": "3 10", "Values of NRHS": "2"},
    "sg.in": {"Values of N": "1 10"},
    "_rfp.in": {"Values of N": "1 11", "Values of NRHS": "2"},
}
BRIEF_PRECISIONS = "dscszz"
# Each route of a program may take so long (s); the slowest takes a tenth on the CPU. Whole inputs: see WHOLE.
LIMIT_S, LIMIT_WHOLE_S = 300, 7200
# A forced program keeps two processors busy: its own thread, and those that serve the device.
AT_ONCE = max(1, min(8, (os.cpu_count() or 2) // 2))

# Program (with {p} for the precision's letter), input, precisions.
PROGRAMS = (
    ("xlintst{p}", "{p}test.in", "sdcz"),
    ("xeigtst{p}", "sep.in", "sdcz"),
    ("xeigtst{p}", "{p}sg.in", "sdcz"),
    ("xeigtst{p}", "svd.in", "sdcz"),
    ("xeigtst{p}", "{p}ed.in", "sdcz"),
    ("xlintstrf{p}", "{p}test_rfp.in", "sdcz"),
)

# What LAPACK's own test script runs besides, as it is: little of it reaches routed routines, but all of it must hold.
WHOLE = tuple(
    ("xeigtst{p}", data, "sdcz")
    for data in ("nep.in", "se2.in", "{p}ec.in", "{p}gg.in", "{p}gd.in", "{p}sb.in", "{p}bb.in", "glm.in", "gqr.in", "gsv.in", "csd.in", "lse.in")
) + (("xlintstds", "dstest.in", "d"), ("xlintstzc", "zctest.in", "z"))

# Routed families that each precision's programs call, by their real names. (getri passes the door, but the backend has
# no path for it.)
FAMILIES = """getrf getrs gesv potrf potrs posv potri trtri trtrs lauum geqrf orgqr ormqr gelqf gels gelsd gelss
syev syevd syevr syevx sygv sygvd sygvx gesvd gesdd geev""".split()


def families(precision):
    return [kit.routine(family, precision) for family in FAMILIES]


def _values(line):
    """The leading numbers of a line, and what stands behind them."""
    words = line.split()
    count = next((i for i, word in enumerate(words) if not word.isdigit()), len(words))
    return words[:count], " ".join(words[count:])


def _thin(lines, lists):
    """Keeps these positions or puts these values in these lists, and corrects the numbers of values before them."""
    out, thinned = [], {}
    for at, line in enumerate(lines):
        values, text = _values(line)
        name = " ".join(text.split()[:3])
        if name in lists and name not in thinned:
            kept = lists[name].split() if isinstance(lists[name], str) else [values[i - 1] for i in lists[name]]
            # The number stands on the line before, or serves several lists and has been corrected already.
            number, what = _values(out[-1])
            if len(number) == 1 and what.startswith("Number of "):
                out[-1] = f"{len(kept)}  {what}"
            line = " ".join(kept) + "  " + text
            thinned[name] = f"{name.removeprefix('Values of ')} {' '.join(kept)} of {' '.join(values)}"
        out.append(line)
    if len(thinned) != len(lists):
        raise ValueError(f"the input lacks {set(lists) - set(thinned)}")
    return out, "; ".join(thinned.values())


def cut(data, text, brief=False):
    """The input that is run, and in words what of netlib's own is run."""
    lines = text.splitlines()
    fewer = next((lists for name, lists in BRIEF.items() if brief and data.endswith(name)), {})
    if data.endswith("test.in"):
        lines, what = _thin(lines, LINEAR | fewer)
        path = data[0].upper()
        is_path = lambda line: line[:1] == path and len(line.split()[0]) == 3
        lines = [line for line in lines if not is_path(line) or line[1:3] in PATHS]
        return "\n".join(lines) + "\n", f"{what}; paths {' '.join(PATHS)} alone"
    for name, lists in (("sep.in", SYMMETRIC), ("sg.in", GENERALIZED), ("svd.in", SVD), ("_rfp.in", RFP)):
        if data.endswith(name):
            lines, what = _thin(lines, lists | fewer)
            if name in DRIVERS_ALONE:
                at = next(i for i, line in enumerate(lines) if line.startswith("T") and "test the LAPACK routines" in line)
                lines[at] = "F" + lines[at][1:]
                what += "; drivers alone"
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


def _play(folder, scratch, environment, size, program, data, route):
    result = Result(program, data, route)
    where = os.path.join(scratch, f"{program}-{data}-{route}")
    os.mkdir(where)
    result.log = os.path.join(where, "log.jsonl")
    with open(os.path.join(folder, data)) as source:
        text, result.cut = (source.read(), "nothing") if size == "whole" else cut(data, source.read(), size == "brief")
    # One thread: which of several adds what last must not decide a test.
    env = environment(GPU_OFFLOAD=route, GPU_OFFLOAD_THRESHOLD=0, GPU_OFFLOAD_LOG="summary", GPU_OFFLOAD_LOG_FILE=result.log, OPENBLAS_NUM_THREADS=1)
    limit = LIMIT_WHOLE_S if size == "whole" else LIMIT_S
    started = time.time()
    try:
        done = subprocess.run([os.path.join(folder, program)], input=text, env=env, cwd=where, capture_output=True, text=True, errors="replace", timeout=limit)
        result.status, result.text, result.errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        result.status, result.text = 124, (late.stdout or b"").decode(errors="replace")
        result.errors = f"still running after {limit} s"
    except OSError as error:
        result.status, result.errors = 127, str(error)
    result.seconds = time.time() - started
    return result


def _programs(precisions, size):
    """(program, input, whether it must reach the device)."""
    jobs = []
    for i, (program, data, all_of) in enumerate(PROGRAMS + (WHOLE if size == "whole" else ())):
        for p in BRIEF_PRECISIONS[i] if size == "brief" else all_of:
            if p in precisions:
                jobs.append((program.format(p=p), data.format(p=p), i < len(PROGRAMS)))
    return jobs


def _row(rows, forced, off, routed):
    """Judges one program; its device calls by routine."""
    device, fallbacks = summary(forced.log)
    counts, expected = totals(forced.data, forced.text), totals(off.data, off.text)
    detail = f"{counts[0]} tests, {counts[1]} numerical failures, {counts[2]} other errors, {counts[3]} excepted in {forced.seconds:.0f} s; off {expected} in {off.seconds:.0f} s"
    detail += f"; {sum(device.values())} device calls; on the CPU {({' '.join(key): count for key, count in sorted(fallbacks.items())})}"
    held = forced.status == 0 and off.status == 0 and counts[0] >= expected[0] > 0
    held = held and counts[1] <= expected[1] and counts[2] <= expected[2] and "End of tests" in forced.text
    held = held and (device or not routed) and not unexpected(fallbacks)
    for one in (forced, off):
        if one.status != 0:
            last = [line for line in (one.text + "\n" + one.errors).splitlines() if line.strip()][-1:]
            detail += f"; {one.route}: exit status {one.status}: {' '.join(last)[:200]}"
    if not held:
        print("\n".join(line for line in forced.text.splitlines() if "out of" in line or "llegal" in line or " INFO" in line))
    rows.add(f"netlib {forced.name} < {forced.data}, force, threshold 0, against off", bool(held), detail)
    return device


def judge(rows, folder, scratch, environment, precisions="sdcz", size="cut"):
    """Runs the programs ("brief", "cut" or "whole") on both routes, AT_ONCE at a time, and adds a row each, and one about
    the families."""
    started, device_calls, cuts, runs = time.time(), {}, {}, {}
    jobs = _programs(precisions, size)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        # The slow route first.
        for route in ("force", "off"):
            for program, data, _ in jobs:
                runs[program, data, route] = pool.submit(_play, folder, scratch, environment, size, program, data, route)
        for program, data, routed in jobs:
            forced, off = (runs[program, data, route].result() for route in ("force", "off"))
            cuts.setdefault(forced.cut, []).append(f"{forced.name} < {forced.data}")
            for routine, count in _row(rows, forced, off, routed).items():
                device_calls[routine] = device_calls.get(routine, 0) + count
    for what, where in cuts.items():
        print(f"cut: {what} ({', '.join(where)})")
    if size == "brief":
        # In whatever precision.
        absent = [family for family in FAMILIES if not any(device_calls.get(kit.routine(family, p)) for p in precisions)]
    else:
        absent = [family for p in precisions for family in families(p) if not device_calls.get(family)]
    rows.add("every routed LAPACK family on the device by netlib's programs", not absent, f"never on the device {absent}; device calls {device_calls}; {time.time() - started:.0f} s")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--prefix", default=os.path.join(HERE, "prefix"), help="the prefix under test")
    arguments.add_argument("--programs", default=os.path.join(HERE, "netlib-lapack"), help="folder of the programs and their inputs")
    arguments.add_argument("--precisions", default="sdcz", metavar="LETTERS")
    size = arguments.add_mutually_exclusive_group()
    size.add_argument("--brief", action="store_true", help="one precision a program, the fewest sizes")
    size.add_argument("--whole", action="store_true", help="every input, as it is")
    arguments.add_argument("--sim", metavar="DIR", help="folder of the simulated CUDA")
    options = arguments.parse_args()
    rows = kit.Rows()
    if options.sim or kit.gpu_present():
        with tempfile.TemporaryDirectory(prefix="gpu-offload-") as scratch:
            place = kit.Place(options.prefix, scratch, 1, [options.sim] if options.sim else [])
            judge(rows, options.programs, scratch, place.environment, options.precisions, "whole" if options.whole else "brief" if options.brief else "cut")
    else:
        rows.add("netlib's LAPACK programs", "skipped", kit.NO_GPU)
    print(rows.line())
    return rows.count("failed") > 0


if __name__ == "__main__":
    sys.exit(main())
