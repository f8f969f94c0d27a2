"""Whole programs on NumPy wheels: an untouched copy beside one that `gpu-offload install --venv` has changed.

`programs.py --prefix DIR` makes the second copy from the NumPy and SciPy of the python that runs it, calibrates,
and times dense linear algebra in `auto` on both, in turn, and one cold eigh in a new process. The last line is
`N passed, N failed, N skipped`; --out writes JSON. NumPy and a GPU needed; SciPy's part is left out without it.
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time

import kit

HERE = os.path.dirname(os.path.abspath(__file__))
# Of the steps that the project promises a multiple for, and the mean over all of them, in float64.
PROMISED, LEAST, MEAN = ("product", "solve", "cholesky", "qr", "eigh", "svd"), 2.5, 5.0
# A step counts as slower beyond this: two runs of one step on the untouched wheel differ by as much.
NOISE = 1.05

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--prefix", default=os.path.join(HERE, "prefix"), help="the prefix under test")
arguments.add_argument("--n", type=int, default=6000, help="size of the matrices")
arguments.add_argument("--threads", type=int, default=min(16, os.cpu_count() or 1), help="CPU threads")
arguments.add_argument("--repeats", type=int, default=2, help="runs of each step; the best counts")
arguments.add_argument("--sim", metavar="DIR", help="folder of the simulated CUDA: tests this script, proves no speed")
arguments.add_argument("--out", metavar="FILE", help="write the times as JSON")
arguments.add_argument("--tests", action="store_true", help="also NumPy's and SciPy's own linear-algebra tests with force")
arguments.add_argument("--worker", choices=("steps", "cold"), help=argparse.SUPPRESS)
options = arguments.parse_args()


def steps(np, dtype, n):
    """Name and function of each step; the inputs are made here, and are the same in both copies."""
    random = np.random.default_rng(20)
    a = random.standard_normal((n, n)).astype(dtype)
    b = random.standard_normal((n, n)).astype(dtype)
    x = random.standard_normal(n).astype(dtype)
    symmetric = (a + a.T) / 2
    positive = a @ a.T / n + 2 * np.eye(n, dtype=dtype)
    block = random.standard_normal((n, 64)).astype(dtype)

    def subspace():
        q = block
        for _ in range(20):
            q, _ = np.linalg.qr(symmetric @ q)
        return np.einsum("ij,ij->j", q, symmetric @ q)

    return {
        "product": lambda: a @ b,
        "solve": lambda: np.linalg.solve(a, x),
        "cholesky": lambda: np.linalg.cholesky(positive),
        "qr": lambda: np.linalg.qr(a),
        "eigh": lambda: np.linalg.eigh(symmetric),
        "svd": lambda: np.linalg.svd(a, full_matrices=False),
        "lstsq": lambda: np.linalg.lstsq(a, x, rcond=None),
        "subspace": subspace,
    }


def library_seconds(log, position):
    """Seconds inside the library that the log tells of, from a position on, and the new position."""
    seconds, lines = 0.0, []
    if log and os.path.exists(log):
        with open(log) as entries:
            entries.seek(position)
            lines = entries.readlines()
            position = entries.tell()
    routes = {}
    for line in lines:
        entry = json.loads(line)
        if entry.get("event") == "call":
            seconds += entry.get("seconds") or 0.0
            routes.setdefault(entry["routine"], set()).add(entry["route"])
    return seconds, position, {name: "+".join(sorted(sides)) for name, sides in routes.items()}


def worker_steps():
    import numpy as np

    log, position = os.environ.get("GPU_OFFLOAD_LOG_FILE"), 0
    for dtype in ("float64", "float32"):
        for name, step in steps(np, dtype, 512).items():
            step()  # the threads, and with ours the GPU, are awake
        time.sleep(2.0)
        for name, step in steps(np, dtype, options.n).items():
            _, position, _ = library_seconds(log, position)
            best = math.inf
            for _ in range(options.repeats):
                start = time.perf_counter()
                step()
                best = min(best, time.perf_counter() - start)
            inside, position, routes = library_seconds(log, position)
            print(json.dumps(dict(dtype=dtype, step=name, seconds=best, library=inside / options.repeats, routes=routes)), flush=True)


def worker_cold():
    import numpy as np

    n = options.n
    a = np.random.default_rng(3).standard_normal((n, n))
    a += a.T.copy()
    start = time.perf_counter()
    values, vectors = np.linalg.eigh(a)
    seconds = time.perf_counter() - start
    residual = np.abs(a[:64] @ vectors - vectors[:64] * values).max() / (n * np.finfo(float).eps * np.abs(values).max())
    print(json.dumps(dict(seconds=seconds, residual=residual)))


if options.worker:
    {"steps": worker_steps, "cold": worker_cold}[options.worker]()
    sys.exit(0)

rows = kit.Rows()
row = rows.add


def finish(code=None):
    print(rows.line())
    sys.exit(code if code is not None else rows.count("failed") > 0)


def copy_of_packages(into):
    """A folder laid out as an environment, with a copy of NumPy and, where it is there, SciPy."""
    import numpy

    source = os.path.dirname(os.path.dirname(os.path.abspath(numpy.__file__)))
    site = os.path.join(into, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
    os.makedirs(site)
    with open(os.path.join(into, "pyvenv.cfg"), "w") as out:
        out.write(f"home = {os.path.dirname(os.path.realpath(sys.executable))}\ninclude-system-site-packages = true\n")
    for name in os.listdir(source):
        package = name.split("-")[0].split(".")[0].lower()
        if package in ("numpy", "scipy") and os.path.isdir(os.path.join(source, name)):
            shutil.copytree(os.path.join(source, name), os.path.join(site, name), symlinks=True)
    return site


scratch = tempfile.mkdtemp(prefix="gpu-offload-")
place = kit.Place(options.prefix, scratch, options.threads, [options.sim] if options.sim else [])
tool = os.path.join(os.path.abspath(options.prefix), "bin", "gpu-offload")


def python(site, arguments, **variables):
    """Runs the worker, or a module, with the packages of a folder. The prefix is not in the library path: the
    wheels find what they need by themselves."""
    env = place.environment(**variables)
    env["PYTHONPATH"] = site
    path = [p for p in env["LD_LIBRARY_PATH"].split(":") if p != place.lib]
    env["LD_LIBRARY_PATH"] = ":".join(path)
    if not path:
        del env["LD_LIBRARY_PATH"]
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, errors="replace", cwd=scratch)


def work(site, worker, **variables):
    command = [os.path.abspath(__file__), "--worker", worker, "--n", str(options.n), "--repeats", str(options.repeats)]
    done = python(site, command, **variables)
    if done.returncode:
        row(worker, False, f"exit status {done.returncode}: {done.stderr[-300:]}")
        finish(1)
    return [json.loads(line) for line in done.stdout.splitlines()]


try:
    import numpy  # noqa: F401
except ImportError:
    row("whole programs", "skipped", "no NumPy here")
    finish()
if not options.sim and not kit.gpu_present():
    row("whole programs", "skipped", kit.NO_GPU)
    finish()

stock, ours = (copy_of_packages(os.path.join(scratch, name)) for name in ("stock", "ours"))
installed = subprocess.run([tool, "install", "--venv", os.path.join(scratch, "ours")], env=place.environment(), capture_output=True, text=True)
row("install --venv", installed.returncode == 0, (installed.stdout + installed.stderr).strip().replace("\n", "; ")[-300:])
if installed.returncode:
    finish(1)
start = time.perf_counter()
calibrated = subprocess.run([tool, "calibrate"], env=place.environment(), capture_output=True, text=True)
row("calibrate", calibrated.returncode == 0, f"{time.perf_counter() - start:.1f} s; {calibrated.stderr.strip()[-200:]}")

cold_stock = work(stock, "cold")[0]
cold_ours = work(ours, "cold")[0]
row(
    f"one cold eigh n = {options.n}",
    "passed" if options.sim or cold_ours["seconds"] < cold_stock["seconds"] and cold_ours["residual"] < 30 else "failed",
    f"{cold_stock['seconds']:.2f} s untouched, {cold_ours['seconds']:.2f} s ours, start included; residual {cold_ours['residual']:.3f} of n eps",
)
log = os.path.join(scratch, "steps.jsonl")
before = work(stock, "steps")
after = work(ours, "steps", GPU_OFFLOAD_LOG="decisions", GPU_OFFLOAD_LOG_FILE=log)
report = dict(n=options.n, threads=options.threads, numpy=numpy.__version__, cold=dict(stock=cold_stock, ours=cold_ours), steps=[])
for dtype in ("float64", "float32"):
    gains = {}
    for old, new in zip(before, after):
        if old["dtype"] != dtype:
            continue
        gain = old["seconds"] / new["seconds"]
        gains[old["step"]] = gain
        least = LEAST if dtype == "float64" and old["step"] in PROMISED else 1 / NOISE
        report["steps"].append(dict(dtype=dtype, step=old["step"], stock=old["seconds"], ours=new["seconds"], library=new["library"], routes=new["routes"]))
        row(
            f"{dtype} {old['step']}",
            "passed" if options.sim or gain >= least else "failed",
            f"{old['seconds'] * 1e3:.0f} ms untouched, {new['seconds'] * 1e3:.0f} ours, of which {new['library'] * 1e3:.0f} in our library: {gain:.2f} x ({new['routes']})",
        )
    mean = math.exp(sum(map(math.log, gains.values())) / len(gains))
    total = [sum(entry["seconds"] for entry in side if entry["dtype"] == dtype) for side in (before, after)]
    report[dtype] = dict(mean=mean, stock=total[0], ours=total[1])
    row(
        f"{dtype} together",
        "passed" if options.sim or dtype == "float32" or mean >= MEAN else "failed",
        f"geometric mean {mean:.2f} x, total {total[0]:.2f} and {total[1]:.2f} s: {total[0] / total[1]:.2f} x",
    )

if options.tests:
    # The packages' own tests, on the GPU wherever a path exists, and once more as they were.
    for package in ("numpy.linalg", "scipy.linalg"):
        outcomes = []
        for site, variables in ((stock, {}), (ours, dict(GPU_OFFLOAD="force", GPU_OFFLOAD_THRESHOLD="0"))):
            done = python(site, ["-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-n", str(options.threads // 2), "--pyargs", package], **variables)
            lines = done.stdout.splitlines()
            failures = sorted(line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR")))
            outcomes.append((failures, lines[-1] if lines else done.stderr[-200:]))
        new = [failure for failure in outcomes[1][0] if failure not in outcomes[0][0]]
        ran = " passed" in outcomes[1][1]
        row(f"{package}'s own tests, force", ran and not new, f"{outcomes[1][1]}; untouched: {outcomes[0][1]}; new failures: {new[:10]}")

removed = subprocess.run([tool, "uninstall", "--venv", os.path.join(scratch, "ours")], env=place.environment(), capture_output=True, text=True)
same = subprocess.run(["diff", "-rq", "-x", "__pycache__", stock, ours], capture_output=True, text=True)
row("uninstall --venv", removed.returncode == 0 and not same.stdout, (same.stdout or "byte-identical")[:300])
if options.out:
    with open(options.out, "w") as out:
        json.dump(report, out, indent=1)
shutil.rmtree(scratch, ignore_errors=True)
finish()
