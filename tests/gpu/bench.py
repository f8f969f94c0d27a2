"""Times level-3 BLAS calls on a machine with a GPU, on a kit made by prepare.sh: ours forced to the GPU, our
CPU path, NVBLAS with and without autopin, a naive port, cuBLAS alone, and the floor of what moves ordinary memory:
the bytes of each call streamed in and out at once with nothing computed. Data in ordinary memory. Writes JSON;
`cargo xtask bench gpu --from FILE` makes the tables and plots. Where one run may not take that long, each may measure
some of them (--columns) and add them to the file of the one before (--add). Standard library only.
"""
import argparse
import glob
import json
import os
import re
import subprocess
import tempfile
import time

import kit

HERE = os.path.dirname(os.path.abspath(__file__))
arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--prefix", default=os.path.join(HERE, "prefix"))
arguments.add_argument("--threads", type=int, default=min(16, os.cpu_count() or 1), help="CPU threads")
arguments.add_argument("--budget-s", type=float, default=420, help="the whole run ends after about this time")
arguments.add_argument("--most-case-s", type=float, default=30, help="a case that is expected to take longer, seen from smaller ones, is left out")
arguments.add_argument("--columns", default="ours,streams,naive,cpu,nvblas_autopin,nvblas", help="what is measured, in this order (naive: cuBLAS alone as well)")
arguments.add_argument("--add", metavar="FILE", help="an earlier result of the same machine, whose figures are kept where nothing new is measured")
arguments.add_argument("--most", type=int, default=16384, help="largest n")
arguments.add_argument("--out", default="level3.json", help="where the results go")
options = arguments.parse_args()
scratch = tempfile.mkdtemp(prefix="gpu-offload-")
place = kit.Place(options.prefix, scratch, options.threads)
environment = place.environment
started = time.time()

SIZES = [n for n in (512, 1024, 2048, 4096, 8192, 16384) if n <= options.most]
GEMMS = ("dgemm", "sgemm", "zgemm")
OTHERS = ("dsyrk", "dtrsm", "dsymm", "dtrmm")
# Written and not read, so that their results may lie in new pages.
FRESH = GEMMS + ("dsyrk", "dsymm")
# Tall, wide, long k: the shapes of tall QR panels, block updates, and Gram matrices of long data; few and many
# right-hand sides of a triangle.
SHAPES = [(routine, *size) for size in ((32768, 512, 512), (512, 32768, 512), (512, 512, 131072)) for routine in GEMMS]
SHAPES += [("dsyrk", 512, 512, 131072), ("dsyrk", 8192, 8192, 512)]
SHAPES += [(routine, m, n, m) for routine in ("dtrsm", "dtrmm", "dsymm") for m, n in ((512, 32768), (8192, 512))]
# What level3.c does: calls of a case, the first one included, and how long a call may take for so many.
CALLS, SLOW_CALL_S = 4, 3
COLUMNS = ("ours", "streams", "naive", "cpu", "nvblas_autopin", "nvblas")
columns = options.columns.split(",")
if set(columns) - set(COLUMNS):
    arguments.error(f"--columns: {options.columns} (accepted: {', '.join(COLUMNS)})")


def cases():
    """(routine, m, n, k, output), by size: a slow peer is spared what its smaller cases foretell."""
    for n in SIZES:
        for routine in GEMMS + OTHERS:
            if routine == "zgemm" and n > 8192:
                continue
            yield routine, n, n, n, "touched"
            if routine in FRESH:
                yield routine, n, n, n, "fresh"
    for routine, m, n, k in SHAPES:
        yield routine, m, n, k, "touched"
        if routine in FRESH:
            yield routine, m, n, k, "fresh"


def bytes_moved(case):
    """What a call must move in and out: whole matrices, or triangles."""
    routine, m, n, k, _ = case
    each = {"s": 4, "d": 8, "z": 16}[routine[0]]
    moved_in, moved_out = {
        "gemm": (m * k + k * n, m * n),
        "syrk": (n * k, n * (n + 1) // 2),
    }.get(routine[1:], (m * (m + 1) // 2 + m * n, m * n))
    return each * moved_in, each * moved_out


def streams(results):
    """The bytes of every case, by the staging threads that move them in a call."""
    moved = {case: bytes_moved(case) for case in cases()}
    moves = sorted(set(moved.values()))
    command = [os.path.join(HERE, "level3_bench"), "--moves", ",".join("%d:%d" % pair for pair in moves)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    ms = {(int(i), int(o)): float(t) for i, o, t in re.findall(r"moved (\d+):(\d+) in ([\d.]+) ms", done.stdout)}
    for case, pair in moved.items():
        if pair in ms:
            results.setdefault(case, {})["streams_ms"] = ms[pair]
    print(f"streams: {len(ms)} of {len(moves)} at {time.time() - started:.0f} s, exit status {done.returncode} {done.stderr[-300:]}")


def flops(case):
    routine, m, n, k, _ = case
    return 2.0 * m * n * k * (4 if routine[0] == "z" else 1) / (1 if routine in GEMMS + ("dsymm",) else 2)


def measure(program, env, key, results, rate_of):
    """One process for all cases. A case is sent when the one before has answered, so that a slow peer can be
    spared its largest cases."""
    try:
        process = subprocess.Popen([program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        print(f"{key}: {error}")
        return
    slowest = 1e9
    for case in cases():
        call_s = flops(case) / slowest
        expected_s = call_s * (2 if call_s > SLOW_CALL_S else CALLS)
        if case[1] * case[2] > 2048**2 and expected_s > options.most_case_s or time.time() - started > options.budget_s:
            print(f"{key}: left out {' '.join(map(str, case))}, {expected_s:.0f} s expected")
            continue
        try:
            process.stdin.write("%s %d %d %d %s\n" % case)
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            print(f"{key}: ended at {case}, exit status {process.wait()}")
            return
        answer = json.loads(line)
        for name in rate_of:
            results.setdefault(case, {})[rate_of[name]] = answer[name]
        first = answer[next(iter(rate_of))]
        if case[1] >= 1024 and case[2] >= 1024:
            slowest = flops(case) / max(first * 1e-3, 1e-9)
    process.stdin.close()
    process.wait()
    print(f"{key}: done at {time.time() - started:.0f} s", flush=True)


def build_naive():
    """The naive port, where a CUDA compiler is."""
    target = os.path.join(scratch, "naive")
    for nvcc in ["nvcc"] + sorted(glob.glob("/usr/local/cuda*/bin/nvcc")):
        try:
            done = subprocess.run([nvcc, "-O2", "-o", target, os.path.join(HERE, "naive.c"), "-lcublas"], capture_output=True, text=True)
        except OSError:
            continue
        if done.returncode == 0:
            return target
        print("naive: " + done.stderr.strip()[-300:])
    return None


def measure_column(column):
    if column == "naive":
        naive = build_naive()
        if naive:
            measure(naive, environment(), column, results, {"naive_ms": "naive_ms", "kernel_ms": "kernel_ms"})
        return
    if column == "streams":
        streams(results)
        return
    env = {
        "ours": lambda: environment(**forced),
        "cpu": lambda: environment(GPU_OFFLOAD="off"),
        "nvblas_autopin": lambda: place.nvblas(True),
        "nvblas": lambda: place.nvblas(False),
    }[column]()
    if env:
        measure(program, env, column, results, {"ms": column + "_ms"})


program = os.path.join(HERE, "level3")
log = os.path.join(scratch, "ours.jsonl")
forced = dict(GPU_OFFLOAD="force", GPU_OFFLOAD_THRESHOLD="0", GPU_OFFLOAD_LOG="summary", GPU_OFFLOAD_LOG_FILE=log)

machine = kit.machine(options.threads)
results = {}
if options.add:
    with open(options.add) as earlier:
        earlier = json.load(earlier)
    before = earlier["machine"]
    if any(before[key] != machine[key] for key in ("gpu", "cpu", "threads")):
        arguments.error(f"--add: {options.add} is of another machine: {before}")
    machine["runs"] = before.get("runs", 1) + 1
    keys = ("routine", "m", "n", "k", "output")
    for row in earlier["rows"]:
        results[tuple(row.pop(key) for key in keys)] = row
for column in columns:
    measure_column(column)
rows = [dict(zip(("routine", "m", "n", "k", "output"), case), **values) for case, values in results.items()]
with open(options.out, "w") as out:
    json.dump({"machine": machine, "rows": rows}, out, indent=1)
shown = ["ours_ms", "nvblas_autopin_ms", "nvblas_ms", "naive_ms", "kernel_ms", "streams_ms", "cpu_ms"]
print(f"{'call':38}" + "".join(f"{c.removesuffix('_ms'):>16}" for c in shown))
for row in rows:
    name = f"{row['routine']} {row['m']} x {row['n']} x {row['k']} {row['output']}"
    print(f"{name:38}" + "".join(f"{row[c]:16.2f}" if c in row else f"{'':>16}" for c in shown))
if os.path.exists(log):
    print(open(log).read()[-3000:])
print(f"{len(rows)} cases, {time.time() - started:.0f} s, written to {options.out}")
