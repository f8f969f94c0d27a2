"""Everything that a real GPU must prove, on a kit made by prepare.sh. Prints a table; the last line is
`N passed, N failed, N skipped`. Standard library only.

Without a GPU every row is skipped (failed with REQUIRE_GPU=1). `--sim DIR` runs the rows that make
sense on the simulated CUDA: it tests this script, and proves nothing about a GPU.
"""
import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import kit
import netlib_lapack

HERE = os.path.dirname(os.path.abspath(__file__))
# A dgemm of n = 8192 takes 7 s on a slow 16-core CPU; what takes ten times that hangs.
DEADLINE_S = 240

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--prefix", default=os.path.join(HERE, "prefix"), help="the prefix under test")
arguments.add_argument("--n", type=int, default=8192, help="size of the large product")
arguments.add_argument("--threads", type=int, default=min(16, os.cpu_count() or 1), help="CPU threads")
arguments.add_argument("--sim", metavar="DIR", help="folder of the simulated CUDA")
arguments.add_argument("--lapack-n", metavar="N,N", help="sizes of the LAPACK calls through the libraries (2000,4000)")
arguments.add_argument("--bench-n", type=int, metavar="N", help="size of lapack_bench (1024)")
arguments.add_argument("--minutes", type=float, default=1, help="how long the threads of the endurance part go on (1)")
arguments.add_argument("--precisions", metavar="LETTERS", help="of netlib's LAPACK programs (sdcz)")
arguments.add_argument("--only", metavar="LIST", help="only these parts, with commas between; a wrong one lists them")
arguments.add_argument("--ctypes", action="store_true", help=argparse.SUPPRESS)
arguments.add_argument("--numpy", action="store_true", help=argparse.SUPPRESS)
options = arguments.parse_args()

rows = kit.Rows()
row = rows.add
scratch = tempfile.mkdtemp(prefix="gpu-offload-")
place = kit.Place(options.prefix, scratch, options.threads, [options.sim] if options.sim else [])
lib, environment = place.lib, place.environment


def run(command, env, deadline_s=DEADLINE_S, **more):
    try:
        return subprocess.run(command, env=env, capture_output=True, text=True, errors="replace", timeout=deadline_s, **more)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"still running after {deadline_s} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def last_words(done):
    lines = [line for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    return f"exit status {done.returncode}: " + (lines[-1][:200] if lines else "nothing was printed")


def calls(log):
    """Device calls by routine, and fallbacks by (routine, reason)."""
    device, fallbacks = {}, {}
    if os.path.exists(log):
        with open(log) as lines:
            for line in lines:
                entry = json.loads(line)
                if entry.get("event") != "call":
                    continue
                if entry["route"] == "gpu":
                    device[entry["routine"]] = device.get(entry["routine"], 0) + 1
                else:
                    key = (entry["routine"], f"{entry['reason']} {entry.get('detail') or ''}".strip())
                    fallbacks[key] = fallbacks.get(key, 0) + 1
    return device, fallbacks


def logged(name):
    log = os.path.join(scratch, name + ".jsonl")
    return log, dict(GPU_OFFLOAD_LOG="decisions", GPU_OFFLOAD_LOG_FILE=log)


def dgemm(env, repeats=6, check=True):
    done = run([os.path.join(HERE, "dgemm"), str(options.n), str(repeats)] + (["check"] if check else []), env)
    try:
        return done, json.loads(done.stdout)
    except ValueError:
        return done, None


def ctypes_client():
    """A Python program on libblas by ctypes: dgemm n = 1500 of ones."""
    blas = ctypes.CDLL("libblas.so.3")
    n = ctypes.c_int(1500)
    one, zero = ctypes.c_double(1), ctypes.c_double(0)
    a = (ctypes.c_double * (n.value**2))(*([1.0] * n.value**2))
    c = (ctypes.c_double * (n.value**2))(*([float("nan")] * n.value**2))
    ref = ctypes.byref
    blas.dgemm_(b"N", b"N", ref(n), ref(n), ref(n), ref(one), a, ref(n), a, ref(n), ref(zero), c, ref(n), ctypes.c_size_t(1), ctypes.c_size_t(1))
    sys.exit(any(value != n.value for value in c))


def numpy_client():
    """The same by NumPy; exit status 3 if NumPy is absent or brings its own BLAS."""
    try:
        import numpy as np
    except ImportError:
        sys.exit(3)
    a = np.random.default_rng(1).standard_normal((1500, 1500))
    c = a @ a
    with open("/proc/self/maps") as maps:
        if not any(os.path.realpath(lib) in line for line in maps):
            sys.exit(3)
    x = np.ones(1500)
    sys.exit(not np.max(np.abs(c @ x - a @ (a @ x))) < 1e-9)


def wheel_times():
    """dgemm by the OpenBLAS in NumPy's wheel, in ms."""
    program = (
        "import sys, time, json, numpy as np\n"
        "n = int(sys.argv[1]); r = np.random.default_rng(1); a = r.random((n, n)); b = r.random((n, n)); ms = []\n"
        "c = np.empty((n, n))\n"
        "for _ in range(5):\n"
        "    t = time.perf_counter(); np.matmul(a, b, out=c); ms.append((time.perf_counter() - t) * 1e3)\n"
        "maps = open('/proc/self/maps').read()\n"
        "print(json.dumps({'ms': ms, 'wheel': 'numpy.libs' in maps, 'version': np.__version__}))\n"
    )
    env = environment()
    env.pop("LD_LIBRARY_PATH")
    done = run([sys.executable, "-c", program, str(options.n)], env)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return None


def nvblas(autopin):
    """Best time of the peer, or None."""
    env = place.nvblas(autopin)
    if env is None:
        return None
    done, result = dgemm(env, repeats=4)
    if result is None or done.returncode:
        print("NVBLAS:", last_words(done))
        return None
    return min(result["ms"])


def large_products():
    best = {}
    for mode in ("force", "auto"):
        log, variables = logged("dgemm-" + mode)
        done, result = dgemm(environment(GPU_OFFLOAD=mode, **variables))
        device, fallbacks = calls(log)
        name = f"dgemm n={options.n}, {mode}" + (" after calibrate --quick" if mode == "auto" else "")
        if result is None or done.returncode:
            row(name, False, last_words(done))
            continue
        best[mode] = min(result["ms"])
        detail = f"best {best[mode]:.1f} ms, all {result['ms']}, error {result['worst_ratio']:.3g} of the bound, device calls {device}, on the CPU {fallbacks}"
        # auto may run the first calls on the CPU while the GPU starts; force may not.
        row(name, result["worst_ratio"] <= 1 and device.get("dgemm", 0) > 0 and (mode == "auto" or not fallbacks), detail)
    return best


def peers(best):
    for autopin in (True, False):
        name = "faster than NVBLAS " + ("with autopin" if autopin else "without autopin")
        if options.sim:
            continue
        peer = nvblas(autopin)
        if peer is None:
            row(name, "skipped", "libnvblas is not here or did not run")
            continue
        row(name, len(best) == 2 and max(best.values()) < peer, f"NVBLAS {peer:.1f} ms, ours {best}")


def netlib():
    for p in "sdcz":
        for program, data in ((f"xblat3{p}", f"{p}blat3.in"), (f"x{p}cblat3", f"{p}in3")):
            folder = os.path.join(scratch, program)
            os.mkdir(folder)
            log, variables = logged(program)
            env = environment(GPU_OFFLOAD="force", GPU_OFFLOAD_THRESHOLD=0, **variables)
            with open(os.path.join(HERE, "netlib", data)) as source:
                done = run([os.path.join(HERE, "netlib", program)], env, stdin=source, cwd=folder)
            text = done.stdout
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), errors="replace") as written:
                    text += written.read()
            device, fallbacks = calls(log)
            passed, failed = text.count("PASSED"), text.count("FAIL") + text.count("FATAL")
            families = ["gemm", "symm", "syrk", "syr2k", "trmm", "trsm"] + (["hemm", "herk", "her2k"] if p in "cz" else [])
            absent = [p + family for family in families if not device.get(p + family)]
            held = done.returncode == 0 and passed > 0 and not failed and not absent and not fallbacks
            detail = f"{passed} PASSED, {failed} failures, device calls {device}, never on the device {absent}, on the CPU {fallbacks}"
            row(f"netlib {program}, force, threshold 0", held, detail if done.returncode == 0 else detail + "; " + last_words(done))


def python_clients():
    for flag, name in (("--numpy", "NumPy of this machine"), ("--ctypes", "Python by ctypes")):
        log, variables = logged(flag.strip("-"))
        done = run([sys.executable if flag == "--ctypes" else "/usr/bin/python3", os.path.abspath(__file__), "--prefix", options.prefix, flag], environment(GPU_OFFLOAD="force", **variables))
        if done.returncode == 3 and flag == "--numpy":
            print("NumPy here is absent or brings its own BLAS; ctypes stands in")
            continue
        device, fallbacks = calls(log)
        row(f"{name}, force", done.returncode == 0 and device.get("dgemm", 0) > 0 and not fallbacks, f"device calls {device}, on the CPU {fallbacks}, {last_words(done) if done.returncode else 'right'}")


# The wheel's OpenBLAS may be faster by this factor at most.
WHEEL_FACTOR = 1.05


# Both vary from run to run on a shared machine: the best of so many rounds counts on each side.
WHEEL_ROUNDS = 3


def cpu_quality():
    name = f"CPU path, dgemm n={options.n}, {options.threads} threads, against the NumPy wheel's OpenBLAS"
    ours, theirs, version = [], [], None
    for _ in range(WHEEL_ROUNDS if not options.sim else 0):
        wheel = wheel_times()
        if wheel is None or not wheel["wheel"]:
            break
        version = wheel["version"]
        theirs += wheel["ms"]
        done, result = dgemm(environment(GPU_OFFLOAD="off"), repeats=5, check=False)
        if result is None:
            row(name, False, last_words(done))
            return
        ours += result["ms"]
        if min(ours) <= WHEEL_FACTOR * min(theirs):
            break
    if not ours:
        row(name, "skipped", "no NumPy wheel here" if not options.sim else "not measured on the simulation")
        return
    ratio = min(ours) / min(theirs)
    row(name, ratio <= WHEEL_FACTOR, f"{min(ours):.0f} ms, NumPy {version} {min(theirs):.0f} ms, ratio {ratio:.3f}")


def random_calls():
    log, variables = logged("random")
    command = [os.path.join(HERE, "level3-random"), "--library", os.path.join(lib, "libblas.so.3"), "--calls", "10000", "--threads", "8", "--json", "--except", "openblas-nan-beta"]
    done = run(command, environment(GPU_OFFLOAD="force", GPU_OFFLOAD_THRESHOLD=0, **variables))
    device, fallbacks = calls(log)
    try:
        lines = [json.loads(line) for line in done.stdout.splitlines()]
    except ValueError:
        lines = []
    summary = next((line for line in lines if "families" in line), None)
    if summary is None:
        row("random level-3 calls, force, threshold 0", False, last_words(done))
        return
    for line in lines[:5]:
        if line is not summary:
            print(line)
    detail = f"{summary['passed']} right, {summary['failed']} wrong, {summary['excepted']} excepted, errors up to {100 * summary['largest_error_of_bound']:.0f} % of the bound, {sum(device.values())} calls of {len(device)} routines on the device, on the CPU {fallbacks}"
    row("random level-3 calls, force, threshold 0", summary["failed"] == 0 and len(device) == 40 and not fallbacks, detail)


# Calls of one run of the endurance part, whose dimensions reach 300; and the work, m n k, from which they go to
# the device: about half of them.
ENDURANCE_CALLS, ENDURANCE_THRESHOLD = 20_000, 16**3


def endurance():
    """16 threads, all routines and precisions, sizes on both sides of the threshold, each result checked."""
    until, seed, passed, largest, on_device, wrong = time.time() + 60 * options.minutes, 0, 0, 0.0, 0, []
    while not wrong and (seed == 0 or time.time() < until):
        seed += 1
        log, variables = logged(f"endurance-{seed}")
        calls_wanted = 400 if options.sim else ENDURANCE_CALLS
        command = [os.path.join(HERE, "level3-random"), "--library", os.path.join(lib, "libblas.so.3"), "--calls", str(calls_wanted)]
        command += ["--threads", "16", "--most", "300", "--seed", str(1000 + seed), "--json", "--except", "openblas-nan-beta"]
        env = environment(GPU_OFFLOAD="force", GPU_OFFLOAD_THRESHOLD=ENDURANCE_THRESHOLD, OPENBLAS_NUM_THREADS=1, **variables)
        done = run(command, env)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        summary = next((line for line in lines if "families" in line), None)
        device, fallbacks = calls(log)
        if os.path.exists(log):
            os.remove(log)
        if summary is None or summary["failed"] or fallbacks or not device:
            wrong.append(f"seed {1000 + seed}: {[line for line in lines if line is not summary][:3] or last_words(done)}, on the CPU {fallbacks}")
            break
        passed, on_device = passed + summary["passed"], on_device + sum(device.values())
        largest = max(largest, summary["largest_error_of_bound"])
    detail = wrong or f"{passed} right in {seed} processes, {on_device} of them on the device, errors up to {100 * largest:.0f} % of the bound"
    row(f"16 threads, mixed calls on both sides of the threshold, {options.minutes:g} minutes", not wrong, detail)


def programs():
    """NumPy's wheels, untouched and changed: see programs.py."""
    report = os.path.join(scratch, "programs.json")
    command = [sys.executable, os.path.join(HERE, "programs.py"), "--prefix", options.prefix, "--threads", str(options.threads), "--out", report]
    done = run(command + (["--sim", options.sim, "--n", "300"] if options.sim else []), dict(os.environ), deadline_s=4 * DEADLINE_S)
    print(done.stdout)
    last = done.stdout.splitlines()[-1] if done.stdout else last_words(done)
    skipped = done.returncode == 0 and last.startswith("0 passed")
    row("whole programs with NumPy's wheels", "skipped" if skipped else done.returncode == 0, last)


def verified():
    """Every routine on both sides: see verify.py."""
    command = [sys.executable, os.path.join(HERE, "verify.py"), "--prefix", options.prefix, "--threads", str(options.threads)]
    sizes = ["--sim", options.sim, "--sizes", "40,60"] if options.sim else ["--sizes", "300,1000", "--large", "4000"]
    done = run(command + sizes, dict(os.environ), deadline_s=4 * DEADLINE_S)
    print(done.stdout)
    last = done.stdout.splitlines()[-1] if done.stdout else last_words(done)
    row("every routine on both sides, through SciPy", done.returncode == 0, last)


def level3_ms(case, **variables):
    done = run([os.path.join(HERE, "level3")], environment(GPU_OFFLOAD="force", **variables), input=case + "\n")
    try:
        return json.loads(done.stdout)["best_ms"]
    except ValueError:
        print(last_words(done))
        return None


# Of its speed in the device's memory, a product of 16 GiB of operands within 2 GiB must reach this.
OUT_OF_CORE_SHARE = 0.7


def out_of_core():
    log, variables = logged("small")
    done, result = dgemm(environment(GPU_OFFLOAD="force", GPU_OFFLOAD_MEMORY_LIMIT="512MiB", **variables), repeats=2)
    device, fallbacks = calls(log)
    held = result is not None and done.returncode == 0 and device.get("dgemm") == 2 and not fallbacks
    row(f"dgemm n={options.n} within 512 MiB of device memory", held, f"error {result['worst_ratio']:.3g} of the bound, {result['ms']} ms, on the CPU {fallbacks}" if result else last_words(done))
    if options.sim:
        return
    case = "dgemm 26752 26752 26752 touched"
    inside, outside = level3_ms(case), level3_ms(case, GPU_OFFLOAD_MEMORY_LIMIT="2GiB")
    name = f"dgemm n=26752 (16 GiB) within 2 GiB, at least {OUT_OF_CORE_SHARE:.0%} of the speed in core"
    row(name, bool(inside and outside) and inside >= OUT_OF_CORE_SHARE * outside, f"{outside} ms, in core {inside} ms")


# A product into new pages may take this much of one into old pages, and of the sum of that one and the page faults.
FRESH_OF_TOUCHED, FRESH_OF_FLOOR = 1.6, 1.1
FRESH_ROUNDS = 3


def page_faults():
    """The least time in ms, and how, in which threads make the pages of a result of n x n; None if that failed."""
    mib = max(8 * options.n**2 >> 20, 1)
    done = run([os.path.join(HERE, "level3_bench"), "--floor", str(mib)], environment())
    made = re.findall(r"New pages, ((?:Touch|Populate), \d+ threads): ([\d.]+) ms", done.stdout)
    if done.returncode or not made:
        print(last_words(done))
        return None
    return min((float(ms), how) for how, ms in made)


def fresh_result():
    """A product into new pages, beside one into old pages and the least that page faults take, in turns."""
    case = f"dgemm {options.n} {options.n} {options.n} "
    rounds = [(level3_ms(case + "touched"), level3_ms(case + "fresh"), page_faults()) for _ in range(FRESH_ROUNDS)]
    name = f"dgemm n={options.n} into fresh memory, at most {FRESH_OF_TOUCHED} of touched and {FRESH_OF_FLOOR} of touched and page faults"
    if not all(map(all, rounds)):
        row(name, False, f"{rounds}")
        return
    touched, fresh, (faults, how) = (sorted(values)[FRESH_ROUNDS // 2] for values in zip(*rounds))
    floor = touched + faults
    held = fresh <= FRESH_OF_TOUCHED * touched and fresh <= FRESH_OF_FLOOR * floor
    row(name, "skipped" if options.sim else held, f"{fresh:.1f} ms, touched {touched:.1f}, page faults {faults:.1f} ({how}): {fresh / touched:.2f} and {fresh / floor:.2f}")


def callers():
    log, variables = logged("callers")
    done = run([os.path.join(HERE, "callers"), "16", "2048", "8"], environment(GPU_OFFLOAD="force", **variables))
    device, fallbacks = calls(log)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        row("16 threads call dgemm n=2048 at once", False, last_words(done))
        return
    held = done.returncode == 0 and not fallbacks and (options.sim or result["together_ms"] < result["serial_ms"])
    row("16 threads call dgemm n=2048 at once", held, f"{result['together_ms']} ms, one after another {result['serial_ms']} ms, error {result['worst_ratio']} of the bound, on the CPU {fallbacks}")


def netlib_lapack_programs():
    """Netlib's LAPACK programs: see netlib_lapack.py."""
    precisions = options.precisions or ("d" if options.sim else "sdcz")
    netlib_lapack.judge(rows, os.path.join(HERE, "netlib-lapack"), scratch, environment, precisions)


# What lapack_bench knows.
BENCHED = """potrf trtri trtrs lauum getrf gesv geqrf gelqf gels gelsd gelss syevd syevri syevxi sygvd gesdd gesddn
geev""".split()


def lapack_bench():
    """The backend without the libraries in front of it, all routines."""
    n = options.bench_n or (96 if options.sim else 1024)
    command = [os.path.join(HERE, "lapack_bench"), "--runs", "2", *BENCHED, str(n)]
    done = run(command + (["--library-dir", options.sim] if options.sim else []), environment())
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if "residual" in line]
    print("\n".join(lines))
    # A run that ends early is no success.
    held = done.returncode == 0 and len(lines) == len(BENCHED)
    row(f"lapack_bench n={n}, {len(lines)} of {len(BENCHED)} residuals", held, "; ".join(lines) if held else last_words(done))


LAPACK_ROUTINES = ("dpotrf", "dgetrf", "dgesv", "dgeqrf", "dsyevd", "dgesdd", "dgeev")
FORCED_RUNS = 3


def lapack_client():
    """LAPACK through the libraries, forced and off: info, residuals, where it ran, both times."""
    sizes = [int(n) for n in options.lapack_n.split(",")] if options.lapack_n else [100] if options.sim else [2000, 4000]
    for n in sizes:
        for routine in LAPACK_ROUTINES:
            log, variables = logged(f"lapack-{routine}-{n}")
            if options.sim:
                variables["GPU_OFFLOAD_THRESHOLD"] = 0
            found = {}
            for mode, runs, more in (("force", FORCED_RUNS, variables), ("off", 1, {})):
                done = run([os.path.join(HERE, "lapack"), str(n), str(runs), routine], environment(GPU_OFFLOAD=mode, **more))
                try:
                    found[mode] = json.loads(done.stdout)
                except ValueError:
                    found[mode] = dict(held=False, best_ms=None, ms=[], info=None, residual=last_words(done))
            device, fallbacks = calls(log)
            forced, off = found["force"], found["off"]
            # What the CPU part of a routine calls is not the routine itself.
            held = forced["held"] and off["held"] and device.get(routine) == FORCED_RUNS and not any(name == routine for name, _ in fallbacks)
            detail = f"GPU {forced['best_ms']} ms of {forced['ms']}, CPU {off['best_ms']} ms, info {forced['info']} and {off['info']}, residual {forced['residual']} and {off['residual']}, device calls {device}, on the CPU {fallbacks}"
            row(f"{routine} n={n}, force and off", held, detail)


# What the engine's own test programs are, as prepare.sh packs them.
TESTS = ("gemm", "level3", "budget", "eigen", "lapack")
# What takes ten times as long as on a slow machine hangs.
TESTS_DEADLINE_S = 300


def engine_tests():
    """The engine's own tests that need no control of the device, on this one."""
    device = dict(GPU_OFFLOAD_TEST_DEVICE="sim", SIM_CUDA_LIBRARY=os.path.join(options.sim, "libcuda.so.1")) if options.sim else dict(GPU_OFFLOAD_TEST_DEVICE="real")
    for name in TESTS:
        # One at a time: hooks are of the whole process.
        done = run([os.path.join(HERE, "tests", name), "--test-threads", "1"], environment(**device), deadline_s=TESTS_DEADLINE_S)
        result = re.search(r"^test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored", done.stdout, re.MULTILINE)
        passed, failed, ignored = map(int, result.groups()) if result else (0, 0, 0)
        wrong = re.findall(r"^test (\S+) \.\.\. FAILED", done.stdout, re.MULTILINE)
        said = re.findall(r"^thread .* panicked at .*\n.*", done.stdout, re.MULTILINE)
        held = done.returncode == 0 and passed > 0 and not failed and not ignored
        row(f"the engine's tests: {name}", held, f"{passed} passed" if held else f"{passed} passed, failed {wrong}: {said[:5]}; {last_words(done)}")


def calibrate():
    done = run([os.path.join(options.prefix, "bin/gpu-offload"), "calibrate", "--quick"], environment())
    row("gpu-offload calibrate --quick", done.returncode == 0, last_words(done))


PARTS = {
    "blas": (calibrate, lambda: peers(large_products()), netlib, random_calls, out_of_core, fresh_result, callers, python_clients, cpu_quality),
    "tests": (engine_tests,),
    "netlib-lapack": (netlib_lapack_programs,),
    "lapack-bench": (lapack_bench,),
    "lapack": (lapack_client,),
    "verify": (verified,),
    "endurance": (endurance,),
    "programs": (programs,),
}
chosen = options.only.split(",") if options.only else list(PARTS)
unknown = [part for part in chosen if part not in PARTS]
if unknown:
    arguments.error(f"--only: no part {unknown}; accepted: {', '.join(PARTS)}")

if options.ctypes:
    ctypes_client()
if options.numpy:
    numpy_client()
started = time.time()
if not os.path.exists(os.path.join(lib, "libblas.so.3")):
    sys.exit(f"no libblas.so.3 in {lib}; make the kit with tests/gpu/prepare.sh")
if options.sim or kit.gpu_present():
    tool = os.path.join(options.prefix, "bin/gpu-offload")
    done = run([tool, "status"], environment())
    # Status 1 means that heavy calls cannot go to the GPU: the reason is on the screen.
    row("gpu-offload status", done.returncode == 0, "ready" if done.returncode == 0 else last_words(done))
    print(done.stdout)
    for part in chosen:
        for step in PARTS[part]:
            step()
else:
    row("everything", "skipped", kit.NO_GPU)

print(f"\n{'result':8} row  ({time.time() - started:.0f} s)")
for name, result in rows.all:
    print(f"{result:8} {name}")
print(rows.line())
sys.exit(rows.count("failed") > 0)
