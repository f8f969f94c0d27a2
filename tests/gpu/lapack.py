"""Times and judges LAPACK's drivers on a machine with a GPU, on a kit made by prepare.sh: ours forced to the GPU, the
library in SciPy's wheel, a naive port to cuSOLVER and cuSOLVER alone, our CPU path. Data in ordinary memory, best of
the runs. Writes JSON; `cargo xtask bench lapack --from FILE` makes the tables and plots.

    python3 KIT/lapack.py --out lapack.json [--columns ours,naive,wheel] [--deadline 175] [--add FILE]

What the deadline does not allow, seen from smaller sizes, is left out and said; a later run may measure the rest and add
it to the file of the one before (--add lapack.json --missing; --columns, --only). Beside each time stand the residual, the loss of
orthogonality and the error of the singular values where they are known, in units of n eps (LAPACK's tests accept 30).
Exit status 1 if one is above that in ours, or a forced call ran on the CPU. Needs NumPy; SciPy for the wheel's column.
"""
import argparse
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time

import kit

HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS = ("ours", "naive", "wheel", "cpu")
# Of LAPACK's own tests.
BOUND = 30
# Runs of a case: as many as fit into this time, at most the second number.
ENOUGH_S, MOST_RUNS = 1.5, 4
# Smallest singular value of the graded matrices; the largest is 1.
SMALLEST = 1e-14

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--prefix", default=os.path.join(HERE, "prefix"), help="the prefix under test")
arguments.add_argument("--threads", type=int, default=min(16, os.cpu_count() or 1), help="CPU threads")
arguments.add_argument("--sizes", default="2048,4096,8192", help="orders; what is slow is measured at all but the largest of three")
arguments.add_argument("--columns", default="ours,naive,wheel", help="what is measured (naive: cuSOLVER alone as well; cpu: ours with GPU_OFFLOAD=off)")
arguments.add_argument("--only", metavar="LIST", help="only these routines, with commas between (dgesdd)")
arguments.add_argument("--deadline", type=float, default=175, metavar="S", help="the whole run ends after about this time")
arguments.add_argument("--add", metavar="FILE", help="an earlier result of the same machine, whose figures are kept where nothing new is measured")
arguments.add_argument("--missing", action="store_true", help="measure only what the file of --add lacks")
arguments.add_argument("--out", default="lapack.json", help="where the results go")
arguments.add_argument("--sim", metavar="DIR", help="folder of the simulated CUDA: tests this script, proves no speed")
arguments.add_argument("--child", metavar="COLUMN", help=argparse.SUPPRESS)
options = arguments.parse_args()
columns = options.columns.split(",")
if set(columns) - set(COLUMNS):
    arguments.error(f"--columns: {options.columns} (accepted: {', '.join(COLUMNS)})")
KEYS = ("routine", "kind", "n")


def cases():
    """(routine, kind, n), by size: what smaller cases foretell spares the larger ones."""
    sizes = [int(n) for n in options.sizes.split(",")]
    for i, n in enumerate(sizes):
        quick = i < 2 or len(sizes) < 3
        for family, kinds, precisions, at_largest in (
            ("potrf", ("random",), "dsz", True),
            ("gesv", ("random",), "dsz", True),
            ("getrf", ("random",), "d", True),
            ("geqrf", ("random",), "d", True),
            ("syevd", ("vectors",), "dsz", True),
            ("sygvd", ("vectors",), "d", False),
            ("gesdd", ("vectors", "vectors, graded", "values", "values, graded"), "d", False),
            ("gesdd", ("vectors",), "sz", False),
            ("gelsd", ("square",), "d", False),
            ("geev", ("right vectors",), "d", False),
        ):
            for precision in precisions:
                for kind in kinds:
                    if quick or at_largest and precision == "d":
                        case = (kit.routine(family, precision), kind, n)
                        if not options.only or case[0] in options.only.split(","):
                            yield (family, precision, *case)


# ---- one column in a process of its own ----------------------------------------------------------


class Data:
    """Matrices of a size, made once."""

    def __init__(self):
        self.known, self.n = {}, None

    def get(self, n, what, precision):
        if n != self.n:
            self.known, self.n = {}, n
        if (what, precision) not in self.known:
            self.known[what, precision] = self._make(n, what, precision)
        return self.known[what, precision]

    def _make(self, n, what, precision):
        import numpy as np

        import calls

        if what == "graded":
            return np.load(os.path.join(os.environ["LAPACK_GRADED"], f"{n}.npy"))
        if what == "general":
            return calls.random_square(precision, n)
        general = self.get(n, "general", precision)
        a = np.asfortranarray(general + general.conj().T)
        if what == "positive":
            a[np.diag_indices(n)] += 2 * n
        return a


def graded(n):
    """Singular values from 1 to SMALLEST, in equal steps of their logarithms; both bases are dense."""
    import numpy as np

    q = np.linalg.qr(np.random.default_rng(n).standard_normal((n, n)))[0]
    return np.asfortranarray((q * graded_values(n)) @ q[::-1].T)


def graded_values(n):
    import numpy as np

    return np.geomspace(1.0, SMALLEST, n)


def operands(data, family, precision, kind, n):
    """The operands of a call, not to be overwritten."""
    what = {"potrf": "positive", "syevd": "symmetric", "sygvd": "symmetric"}.get(family, "graded" if "graded" in kind else "general")
    given = {"a": data.get(n, what, precision)}
    if family == "sygvd":
        given["b"] = data.get(n, "positive", precision)
    if family in ("gesv", "gelsd"):
        given["b"] = given["a"][:, :1].copy(order="F") + 1
    return given


def times_vector(a, x, conjugated=False):
    """A x, or A^H x."""
    return a.conj().T @ x if conjugated else a @ x


def accuracy(family, kind, given, result):
    """Figures in units of n eps. `result` gives what the routine left, by calls.py's names."""
    import numpy as np

    a = given["a"]
    n, real = a.shape[0], a.real.dtype
    unit = n * float(np.finfo(real).eps)
    # The judge's own rounding is that of a few products with a vector, far below n eps.
    x = np.where(np.random.default_rng(1).random(n) < 0.5, -1, 1).astype(a.dtype)
    norm = lambda v: float(np.linalg.norm(np.asarray(v, np.result_type(v, np.float64)).ravel()))
    frobenius = float(np.linalg.norm(a.ravel(order="K").view(real)))
    found = {}

    def residual(left, right, size):
        found["residual"] = norm(left - right) / (unit * frobenius * size)

    def orthogonal(q, weight=None):
        y = q @ x
        back = times_vector(q, y if weight is None else weight @ y, True)
        found["orthogonality"] = max(found.get("orthogonality", 0.0), norm(back - x) / (unit * norm(x)))

    if family == "potrf":
        lower = np.tril(result("a"))
        residual(a @ x, lower @ (lower.conj().T @ x), norm(x))
    elif family in ("gesv", "gelsd"):
        solution = result("b")[:n]
        residual(a @ solution, given["b"], norm(solution))
    elif family == "getrf":
        lu, left = result("a"), a @ x
        for i, pivot in enumerate(result("ipiv")[:n] - 1):
            left[[i, pivot]] = left[[pivot, i]]
        half = np.triu(lu) @ x
        residual(left, np.tril(lu, -1) @ half + half, norm(x))
    elif family == "geqrf":
        qr, tau, left = result("a"), result("tau"), a @ x
        for j in range(n):
            v = qr[j + 1 :, j]
            factor = np.conj(tau[j]) * (left[j] + np.vdot(v, left[j + 1 :]))
            left[j] -= factor
            left[j + 1 :] -= factor * v
        residual(left, np.triu(qr) @ x, norm(x))
    elif family == "syevd":
        v, w = result("a"), result("w")
        residual(a @ x, v @ (w * times_vector(v, x, True)), norm(x))
        orthogonal(v)
    elif family == "sygvd":
        v, w, b = result("a"), result("w"), given["b"]
        y = v @ x
        residual(a @ y, b @ (v @ (w * x)), norm(y))
        orthogonal(v, b)
    elif family == "gesdd":
        s = result("s")
        if "graded" in kind:
            found["values"] = float(np.abs(s - graded_values(n)).max() / (unit * s[0]))
        if "vectors" in kind:
            u, vt = result("u"), result("vt")
            residual(a @ x, u @ (s * (vt @ x)), norm(x))
            orthogonal(u)
            orthogonal(vt)
        elif "graded" not in kind:
            found["norm"] = abs(norm(s) - frobenius) / float(unit * frobenius)
    elif family == "geev":
        v, w = result("right"), result("w")
        combined = v @ x
        # Of a real matrix a complex pair takes two columns.
        y, j = np.empty(n, a.dtype), 0
        while j < n:
            if np.iscomplexobj(a) or w[j].imag == 0:
                y[j] = w[j] * x[j] if np.iscomplexobj(a) else w[j].real * x[j]
                j += 1
            else:
                re, im = w[j].real, w[j].imag
                y[j], y[j + 1] = re * x[j] + im * x[j + 1], re * x[j + 1] - im * x[j]
                j += 2
        residual(a @ combined, v @ y, norm(combined))
    return found


def enough(ms):
    return len(ms) >= MOST_RUNS or sum(ms) > ENOUGH_S * 1e3


def by_lapack(entry, given, family, precision, kind):
    """One case through a library's LAPACK."""
    import calls

    letters = {"potrf": dict(uplo="L"), "syevd": dict(jobz="V", uplo="L"), "sygvd": dict(jobz="V", uplo="L")}.get(family, {})
    if family == "gesdd":
        letters = dict(jobz="S" if "vectors" in kind else "N")
    if family == "geev":
        letters = dict(jobvl="N", jobvr="V")
    own = {name: array.copy(order="F") for name, array in given.items()}
    call, ms = calls.Call(entry, family, precision, **own, **letters), []
    while not ms or not enough(ms):
        for name, array in given.items():
            own[name][...] = array
        # OpenBLAS's threads, NumPy's own too, look for work for 32 ms after their last.
        time.sleep(0.05)
        started = time.perf_counter()
        info = call.run()
        ms.append((time.perf_counter() - started) * 1e3)
        if info:
            return {"error": f"info {info}"}

    def result(name):
        if family == "geev" and name == "w" and precision in "sd":
            return call.operand("wr") + 1j * call.operand("wi")
        return call.operand(name)

    return {"ms": ms, "accuracy": accuracy(family, kind, given, result)}


def by_cusolver(device, given, family, precision, kind):
    """One case by the naive port; the SVD by both of cuSOLVER's ways."""
    import cusolver

    answer = {}
    name = "gesddn" if family == "gesdd" and "values" in kind else family
    for prefix, by_qr in (("", False), ("qr_", True)) if family == "gesdd" else (("", False),):
        own = {operand: array.copy(order="F") for operand, array in given.items()}
        port, ms, kernel_ms = cusolver.Port(device, name, precision, own, by_qr), [], []

        def once():
            for operand, array in given.items():
                own[operand][...] = array
            return port.run()

        try:
            # The first run loads the library's kernels.
            once()
            while not ms or not enough(ms):
                total, alone, info = once()
                ms.append(total), kernel_ms.append(alone)
                if info:
                    return {"error": f"info {info}"}
        finally:
            port.close()

        def result(what):
            if what == "vt" and not by_qr:
                # Xgesvdp leaves V.
                return port.out["vt"].conj().T
            if what == "ipiv":
                return port.out["ipiv64"]
            return own[what] if what in own else port.out[what]

        answer[prefix + "ms"], answer[prefix + "kernel_ms"] = ms, kernel_ms
        answer[prefix + "accuracy"] = accuracy(family, kind, given, result)
    return answer


def child(column):
    """Answers cases from standard input, one JSON line each."""
    import calls

    data, log = Data(), calls.Log(os.environ.get("GPU_OFFLOAD_LOG_FILE", ""))
    try:
        if column == "naive":
            import cusolver

            device = cusolver.Device([options.sim] if options.sim else [])
            measure = lambda *case: by_cusolver(device, *case)
        else:
            entry = calls.in_scipy() if column == "wheel" else calls.in_library(os.path.join(options.prefix, "lib/liblapack.so.3"))
            measure = lambda *case: by_lapack(entry, *case)
    except Exception as error:
        print(json.dumps({"unavailable": f"{type(error).__name__}: {error}"}), flush=True)
        return
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        family, precision, routine, kind, n = json.loads(line)
        try:
            answer = measure(operands(data, family, precision, kind, n), family, precision, kind)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        if column == "ours" and "ms" in answer:
            of_this = [entry for entry in log.calls() if entry["routine"] == routine]
            answer["on_gpu"] = sum(entry["route"] == "gpu" for entry in of_this)
            answer["on_cpu"] = [f"{entry['reason']} {entry.get('detail') or ''}".strip() for entry in of_this if entry["route"] != "gpu"]
        print(json.dumps(answer), flush=True)


# ---- the parent -----------------------------------------------------------------------------------


class Column:
    """A process that measures one column."""

    def __init__(self, name, env, results):
        self.name, self.left_out = name, []
        # Seconds of a case, preparing and one run, by its keys; of earlier runs only the call's time is known.
        self.times = {case: row[name + "_ms"] / 1e3 + 1 for case, row in results.items() if name + "_ms" in row}
        command = [sys.executable, os.path.abspath(__file__), "--child", name, "--prefix", options.prefix]
        command += ["--sim", options.sim] if options.sim else []
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answer = self._answer()
        if answer is None or "unavailable" in answer:
            print(f"{name}: not measured: {answer['unavailable'] if answer else 'the process ended'}")
            self.close()

    def _answer(self):
        """None where the process has ended or the deadline has passed; it is stopped then."""
        left = options.deadline + 20 - (time.time() - started)
        # The child writes whole lines and flushes them.
        if not select.select([self.process.stdout], [], [], max(0.1, left))[0]:
            print(f"{self.name}: stopped at the deadline")
            self.process.kill()
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def expected_s(self, case):
        """From the next smaller size; 0 if there is none."""
        family, precision, routine, kind, n = case
        known = [(size, s) for (r, k, size), s in self.times.items() if (r, k) == (routine, kind) and size < n]
        return max(known)[1] * (n / max(known)[0]) ** 3 if known else 0.0

    def measure(self, case):
        """The answer, or None."""
        left = options.deadline - (time.time() - started)
        if self.process is None:
            return None
        if left < 0 or self.expected_s(case) > left:
            self.left_out.append(f"{case[2]} {case[3]} {case[4]} ({self.expected_s(case):.0f} s expected)")
            return None
        begun = time.time()
        try:
            self.process.stdin.write(json.dumps(case) + "\n")
            self.process.stdin.flush()
            answer = self._answer()
        except BrokenPipeError:
            answer = None
        if answer is None:
            print(f"{self.name}: ended at {case}, exit status {self.process.wait()}")
            self.close()
            return None
        # Runs beyond the first do not take longer as n grows; preparing does.
        ms = answer.get("ms", [])
        self.times[case[2:]] = time.time() - begun if len(ms) < 2 else time.time() - begun - sum(ms[1:]) / 1e3
        if "error" in answer:
            print(f"{self.name}: {case[2]} {case[3]} {case[4]}: {answer['error']}")
            return None
        return answer

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def earlier(own):
    """Rows of --add by their keys."""
    with open(options.add) as file:
        before = json.load(file)
    if any(before["machine"][key] != own[key] for key in ("gpu", "cpu", "threads")):
        arguments.error(f"--add: {options.add} is of another machine: {before['machine']}")
    own["runs"] = before["machine"].get("runs", 1) + 1
    return {tuple(row[key] for key in KEYS): row for row in before["rows"]}


def put(row, column, answer):
    """An answer's figures into a row: best times, and the accuracy beside them."""
    for key in ("ms", "kernel_ms", "qr_ms", "qr_kernel_ms"):
        if key in answer:
            name = {"ms": column, "kernel_ms": "kernel", "qr_ms": "naive_qr", "qr_kernel_ms": "kernel_qr"}[key]
            row[name + "_ms"] = min(answer[key])
    # JSON has no NaN.
    told = lambda figures: {what: figure if math.isfinite(figure) else None for what, figure in figures.items()}
    row[column + "_accuracy"] = told(answer["accuracy"])
    if "qr_accuracy" in answer:
        row["naive_qr_accuracy"] = told(answer["qr_accuracy"])
    if column == "ours":
        row["ours_all_ms"], row["on_gpu"], row["on_cpu"] = answer["ms"], answer["on_gpu"], answer["on_cpu"]


def main():
    own, wrong = kit.machine(options.threads), []
    results = earlier(own) if options.add else {}
    with tempfile.TemporaryDirectory(prefix="gpu-offload-") as scratch:
        place = kit.Place(options.prefix, scratch, options.threads, [options.sim] if options.sim else [])
        import numpy as np

        chosen = list(cases())
        for n in sorted({case[4] for case in chosen if "graded" in case[3]}):
            np.save(os.path.join(scratch, f"{n}.npy"), graded(n))
        print(f"prepared at {time.time() - started:.0f} s")
        env = place.environment(LAPACK_GRADED=scratch, GPU_OFFLOAD="off")
        log = dict(GPU_OFFLOAD_LOG="decisions", GPU_OFFLOAD_LOG_FILE=os.path.join(scratch, "ours.jsonl"))
        forced = place.environment(LAPACK_GRADED=scratch, GPU_OFFLOAD="force", GPU_OFFLOAD_THRESHOLD=0, **log)
        # The wheel is to find its own library.
        alone = {name: value for name, value in env.items() if name != "LD_LIBRARY_PATH"}
        processes = [Column(name, {"ours": forced, "wheel": alone}.get(name, env), results) for name in columns]
        for column in processes:
            for n in sorted({case[4] for case in chosen}):
                for case in (case for case in chosen if case[4] == n):
                    row = results.get(case[2:], {})
                    answer = None if options.missing and column.name + "_ms" in row else column.measure(case)
                    if answer is None:
                        continue
                    row = results.setdefault(case[2:], dict(zip(KEYS, case[2:])))
                    put(row, column.name, answer)
                    if column.name == "ours":
                        judge(row, wrong)
                print(f"{column.name}: n = {n} done at {time.time() - started:.0f} s", flush=True)
            if column.left_out:
                print(f"{column.name}: left out, for the deadline: {', '.join(column.left_out)}")
        for column in processes:
            column.close()
    with open(options.out, "w") as out:
        json.dump({"machine": own, "rows": list(results.values())}, out, indent=1)
    table(results.values())
    print(f"{len(results)} cases, {time.time() - started:.0f} s, written to {options.out}")
    for text in wrong:
        print("WRONG:", text)
    return bool(wrong) or not results


def judge(row, wrong):
    """Ours must have run on the GPU and be as right as LAPACK's tests ask."""
    name = f"{row['routine']} {row['kind']} {row['n']}"
    if row["on_cpu"] or not row["on_gpu"]:
        wrong.append(f"{name}: {row['on_gpu']} calls on the GPU, on the CPU {row['on_cpu']}")
    for what, figure in row["ours_accuracy"].items():
        if figure is None or figure > BOUND:
            wrong.append(f"{name}: {what} {figure}")


def table(rows):
    shown = ("ours", "wheel", "cpu", "naive", "kernel", "naive_qr", "kernel_qr")
    print(f"{'call':34}" + "".join(f"{column:>11}" for column in shown) + "  accuracy of ours | wheel | naive")
    for row in rows:
        name = f"{row['routine']} {row['kind']} {row['n']}"
        times = "".join(f"{row[c + '_ms']:11.2f}" if c + "_ms" in row else f"{'':>11}" for c in shown)
        figures = [row.get(c + "_accuracy", {}) for c in ("ours", "wheel", "naive")]
        print(f"{name:34}{times}  " + " | ".join(", ".join(f"{what} {figure if figure is None else format(figure, '.2g')}" for what, figure in f.items()) for f in figures))


started = time.time()
if __name__ == "__main__":
    sys.exit(child(options.child) if options.child else main())
