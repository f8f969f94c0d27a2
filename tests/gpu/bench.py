"""Times level-3 BLAS calls on a machine with a GPU, on a kit made by prepare.sh: ours forced to the GPU, our
CPU path, NVBLAS with and without autopin, a naive port, cuBLAS alone. All in one run, data in ordinary
memory. Writes JSON; `cargo xtask bench gpu --from FILE` makes the tables and plots. Standard library only.
"""
import argparse
import glob
import json
import os
import subprocess
import tempfile
import time

import kit

HERE = os.path.dirname(os.path.abspath(__file__))
arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--prefix", default=os.path.join(HERE, "prefix"))
arguments.add_argument("--threads", type=int, default=min(16, os.cpu_count() or 1), help="CPU threads")
arguments.add_argument("--budget-s", type=float, default=420, help="the whole run ends after about this time")
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
# Tall, wide, long k: the shapes of tall QR panels, block updates, and Gram matrices of long data.
SHAPES = [("dgemm", 32768, 512, 512), ("dgemm", 512, 32768, 512), ("dgemm", 512, 512, 131072), ("dsyrk", 512, 512, 131072)]
# A peer's case that would take longer than this alone, seen from the next smaller size, is left out.
MOST_CASE_S = 12


def cases():
    """(routine, m, n, k, output), by size: a slow peer is spared what its smaller cases foretell."""
    for n in SIZES:
        for routine in GEMMS + OTHERS:
            if routine == "zgemm" and n > 8192:
                continue
            yield routine, n, n, n, "touched"
            if routine in ("dgemm", "dsyrk"):
                yield routine, n, n, n, "fresh"
    for routine, m, n, k in SHAPES:
        yield routine, m, n, k, "touched"
        yield routine, m, n, k, "fresh"


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
        expected_s = 5 * flops(case) / slowest if slowest else 0
        if case[1] * case[2] > 2048**2 and expected_s > MOST_CASE_S or time.time() - started > options.budget_s:
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


results = {}
program = os.path.join(HERE, "level3")
log = os.path.join(scratch, "ours.jsonl")
forced = dict(GPU_OFFLOAD="force", GPU_OFFLOAD_THRESHOLD="0", GPU_OFFLOAD_LOG="summary", GPU_OFFLOAD_LOG_FILE=log)
times = {"ms": "ours_ms"}
measure(program, environment(**forced), "ours", results, times)
naive = build_naive()
if naive:
    measure(naive, environment(), "naive", results, {"naive_ms": "naive_ms", "kernel_ms": "kernel_ms"})
for autopin in (True, False):
    env = place.nvblas(autopin)
    if env:
        key = "nvblas_autopin_ms" if autopin else "nvblas_ms"
        measure(program, env, key, results, {"ms": key})
measure(program, environment(GPU_OFFLOAD="off"), "cpu", results, {"ms": "cpu_ms"})

try:
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
except OSError:
    gpu = "not known"
cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
machine = {"gpu": gpu, "cpu": cpu, "threads": options.threads, "date": time.strftime("%Y-%m-%d")}
rows = [dict(zip(("routine", "m", "n", "k", "output"), case), **values) for case, values in results.items()]
with open(options.out, "w") as out:
    json.dump({"machine": machine, "rows": rows}, out, indent=1)
columns = ["ours_ms", "nvblas_autopin_ms", "nvblas_ms", "naive_ms", "kernel_ms", "cpu_ms"]
print(f"{'call':38}" + "".join(f"{c.removesuffix('_ms'):>16}" for c in columns))
for row in rows:
    name = f"{row['routine']} {row['m']} x {row['n']} x {row['k']} {row['output']}"
    print(f"{name:38}" + "".join(f"{row[c]:16.2f}" if c in row else f"{'':>16}" for c in columns))
if os.path.exists(log):
    print(open(log).read()[-3000:])
print(f"{len(rows)} cases, {time.time() - started:.0f} s, written to {options.out}")
