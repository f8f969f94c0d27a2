"""Where LAPACK's calls go, from the engine's log of real calls: for every routed routine, precision and combination of
options the side that ran the call and the reason, forced and in `auto`. On a kit made by prepare.sh:

    python3 KIT/coverage.py --out coverage.json --markdown coverage.md [--n 4000] [--deadline 175] [--from FILE]

Matrices are square (of least squares n by n / 2) and well-conditioned. The routines whose calls take longest are called
at n in double precision and with their usual options, and at half or a quarter of n otherwise; what was not called at n
says so. In `auto` decisions follow the profile (`gpu-offload calibrate` runs first unless there is one), the GPU and
cuSOLVER have started, and nothing is learnt meanwhile. Exit status 1 if a forced call ended on the CPU without being
one that has no GPU path. Needs NumPy.
"""
import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

import kit

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = ("force", "auto")
# Options that an ordinary program asks for, of the families whose calls take longest.
USUAL = {"gesdd": ("S", "N"), "gesvd": ("SS", "NN"), "geev": ("NV", "NN"), "gelss": ("",)}
USUAL |= {"syev": ("VL",), "syevd": ("VL", "NL"), "syevr": ("VAL", "NAL", "VIL"), "syevx": ("VAL", "VIL"), "sygv": ("VL",), "sygvd": ("VL",), "sygvx": ("VAL",)}
# Families whose other options are called at n / 2 (n / 4: geev's, minutes on the CPU at n = 4000).
OTHERS_AT = {"geev": 4, "gesvd": 4, "syevx": 4, "sygvx": 4}

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--prefix", default=os.path.join(HERE, "prefix"), help="the prefix under test")
arguments.add_argument("--threads", type=int, default=min(16, os.cpu_count() or 1), help="CPU threads")
arguments.add_argument("--n", type=int, default=4000, help="order of the matrices")
arguments.add_argument("--deadline", type=float, default=175, metavar="S", help="calls end after about this time; what was not called is missing in the table")
arguments.add_argument("--profile", metavar="DIR", help="XDG_DATA_HOME of a profile of this machine; otherwise calibrate --quick runs")
arguments.add_argument("--sim", metavar="DIR", help="folder of the simulated CUDA: tests this script, tells nothing of a GPU")
arguments.add_argument("--from", dest="given", metavar="FILE", help="call nothing: make the table of an earlier run's JSON")
arguments.add_argument("--out", default="coverage.json", help="where the calls and decisions go")
arguments.add_argument("--markdown", metavar="FILE", help="where the table goes")
arguments.add_argument("--child", metavar="MODE", help=argparse.SUPPRESS)
options = arguments.parse_args()


def combinations(family, precision):
    """Every legal combination of a routine's letters, as one word each."""
    import calls

    names = [name for name in calls.arguments(family, precision) if name in calls.LETTERS]
    for letters in itertools.product(*(calls.accepted(family, precision, name) for name in names)):
        # A holds one set of vectors only.
        if not (family == "gesvd" and letters == ("O", "O")):
            yield dict(zip(names, letters))


def jobs():
    """(family, precision, letters, itype, divisor of n), the most telling first."""
    import calls

    first, second = [], []
    for family in calls.SIGNATURES:
        for precision in "dszc":
            for letters in combinations(family, precision):
                word = "".join(letters.values())
                for itype in (1, 2, 3) if "itype" in calls.arguments(family, precision) else (None,):
                    is_usual = family not in USUAL or word in USUAL[family]
                    is_whole = is_usual and (precision == "d" or family not in USUAL)
                    job = (family, precision, letters, itype)
                    if is_whole:
                        first.append((*job, 1))
                    else:
                        second.append((*job, OTHERS_AT.get(family, 2) if not is_usual else 2))
    return first + second


class Operands:
    """Matrices by precision and order, made once, and copies of them to be overwritten, in memory that is used again:
    touching new pages takes longer than most calls."""

    def __init__(self):
        self.known, self.copies = {}, {}

    def copy(self, name, a):
        import numpy as np

        key = (name, a.dtype.char, a.shape)
        if key not in self.copies:
            self.copies[key] = np.empty(a.shape, a.dtype, order="F")
        self.copies[key][...] = a
        return self.copies[key]

    def square(self, precision, n):
        """Random, with a diagonal that makes it definite by its Hermitian part, and triangles well-conditioned."""
        import numpy as np

        import calls

        if (precision, n) not in self.known:
            a = calls.random_square(precision, n)
            a[np.diag_indices(n)] = 2 * n
            self.known[precision, n] = a
        return self.known[precision, n]

    def of(self, family, precision, n, letters):
        """The operands of a call."""
        import numpy as np

        a = self.square(precision, n)
        given = {"a": self.copy("a", a[:, : n // 2] if family in ("gels", "gelsd", "gelss") else a)}
        # Within a triangle the matrix is as it is; where it stands for a factor of getrf or potrf, for that as well.
        if family in ("sygv", "sygvd", "sygvx"):
            given["b"] = self.copy("b", a)
        if family in ("getrs", "gesv", "potrs", "posv", "trtrs", "gels", "gelsd", "gelss"):
            given["b"] = self.copy("b", a[:, :4])
        if family in ("getrs", "getri"):
            given["ipiv"] = np.arange(1, n + 1, dtype=np.int32)
        if family in ("orgqr", "ormqr"):
            # Reflectors with tau = 0 are the identity.
            given["tau"] = np.zeros(n, a.dtype)
        if family == "ormqr":
            given["c"] = self.copy("c", a)
        if letters.get("range") == "I":
            given |= {"il": 1, "iu": max(1, n // 4)}
        if letters.get("range") == "V":
            given |= {"vl": 0.0, "vu": 2.0 * n}
        return given


def ready(entry, log):
    """Waits until `auto` sends a call to the GPU, cuSOLVER included, or it is plain that it does not."""
    import numpy as np

    import calls

    until = time.time() + 15
    n = min(2000, options.n)
    a = np.asfortranarray(np.eye(n) * n + 1)
    while time.time() < until:
        calls.Call(entry, "potrf", "d", a=a.copy(order="F"), uplo="L").run()
        if any(entry["route"] == "gpu" for entry in log.calls()):
            return True
        time.sleep(0.1)
    return False


def child(mode):
    """Calls everything, and prints a JSON line for each call."""
    import calls

    log, entry, operands = calls.Log(os.environ["GPU_OFFLOAD_LOG_FILE"]), calls.in_library(os.path.join(options.prefix, "lib/liblapack.so.3")), Operands()
    if not ready(entry, log):
        print("no call went to the GPU in 15 s", file=sys.stderr)
    until, warmed = time.time() + options.deadline, set()
    for family, precision, letters, itype, part in jobs():
        n = max(options.n // part, 2)
        if time.time() > until:
            break

        def made(n):
            given = operands.of(family, precision, n, letters) | letters | ({"itype": itype} if itype else {})
            return calls.Call(entry, family, precision, **given)

        if mode == "force" and (family, precision) not in warmed:
            # cuSOLVER loads a routine's kernels at its first call.
            made(max(n // 8, 2)).run()
            warmed.add((family, precision))
        call = made(n)
        log.calls()
        started = time.perf_counter()
        info = call.run()
        seconds = time.perf_counter() - started
        # What a routine calls while it runs on the CPU is not the routine itself; its own line comes last.
        own = [found for found in log.calls() if found["routine"] == call.name]
        line = dict(family=family, routine=call.name, precision=precision, letters=call.letters(), itype=itype, n=n, mode=mode, info=info, seconds=seconds)
        if own:
            line |= {"route": own[-1]["route"], "reason": own[-1]["reason"], "detail": own[-1].get("detail")}
        else:
            # Below the threshold, or options that the reader does not know.
            line |= {"route": "cpu", "reason": "the engine was not asked", "detail": None}
        print(json.dumps(line), flush=True)


def measure():
    """Both modes, one after the other; the calls."""
    found, started = [], time.time()
    with tempfile.TemporaryDirectory(prefix="gpu-offload-") as scratch:
        place = kit.Place(options.prefix, scratch, options.threads, [options.sim] if options.sim else [])
        own = {"XDG_DATA_HOME": options.profile} if options.profile else {}
        if not options.profile:
            tool = os.path.join(options.prefix, "bin/gpu-offload")
            done = subprocess.run([tool, "calibrate", "--quick"], env=place.environment(), capture_output=True, text=True)
            print(f"calibrate --quick: status {done.returncode}, {time.time() - started:.0f} s")
        for i, mode in enumerate(MODES):
            log = os.path.join(scratch, mode + ".jsonl")
            env = place.environment(GPU_OFFLOAD=mode, GPU_OFFLOAD_LEARN="off", GPU_OFFLOAD_LOG="decisions", GPU_OFFLOAD_LOG_FILE=log, **own)
            if options.sim:
                env["GPU_OFFLOAD_THRESHOLD"] = "0"
            # What the first one leaves of the time is the second one's.
            left = (options.deadline - (time.time() - started)) / (len(MODES) - i)
            command = [sys.executable, os.path.abspath(__file__), "--child", mode, "--prefix", options.prefix, "--n", str(options.n), "--deadline", str(left)]
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            found += lines
            print(f"{mode}: {len(lines)} of {len(jobs())} calls, exit status {done.returncode}, {time.time() - started:.0f} s", flush=True)
            if done.returncode:
                sys.exit(1)
    return {"machine": kit.machine(options.threads, bool(options.sim)), "n": options.n, "calls": found}


def reason(call):
    return call["reason"] + (f": {call['detail']}" if call["detail"] else "")


def unexpected(found):
    """Forced calls on the CPU that are no case without a GPU path, and calls with an info."""
    wrong = []
    for call in found["calls"]:
        if call["info"] or call["mode"] == "force" and call["route"] != "gpu" and not (call["detail"] or "").startswith("no GPU path"):
            wrong.append(call)
    return wrong


def markdown(found):
    """A row for those of a family's options that went the same way; a column by mode and precision."""
    n, machine = found["n"], found["machine"]
    sides = {key: {call["mode"]: call for call in group} for key, group in _by_key(found["calls"])}
    words = {}
    for family, word, _ in sides:
        if word not in words.setdefault(family, []):
            words[family].append(word)
    rows = {}
    for family, all_of in words.items():
        for word in all_of:
            of = [sides.get((family, word, p), {}) for p in "sdcz"]
            cells = tuple(_cell(both, mode, n) for mode in MODES for both in of)
            why = {f"{mode}: {reason(both[mode])}" for both in of for mode in both if both[mode]["route"] != "gpu"}
            # Times would tell every row from every other.
            same = tuple(cell.split(" ")[0] for cell in cells)
            rows.setdefault((family, same, tuple(sorted(why))), []).append((word, cells))
    out = [
        "# LAPACK: what runs on the GPU",
        "",
        f"Made by `tests/gpu/coverage.py` from the engine's log of {len(found['calls'])} real calls; do not edit. {machine['gpu']}, {machine['threads']} CPU threads,",
        f"{machine['date']}. One call a cell, of order {n}, or as it says behind @. Options are in the order of the routine's arguments, itype first.",
        "`auto` decides by the machine's profile, with the GPU and cuSOLVER started and nothing learnt. What `auto` leaves to the CPU shows what",
        "the call took there and, forced, on the GPU (ms; of a row of several options, the first one's). An empty cell was not called.",
        "",
        "| routine | options | " + " | ".join(f"{p}, {mode}" for mode in MODES for p in "sdcz") + " | why on the CPU |",
        "|---|---|" + "---|" * (4 * len(MODES)) + "---|",
    ]
    for (family, _, why), options_and_cells in rows.items():
        names = " ".join(word for word, _ in options_and_cells)
        out.append(f"| {family} | {names} | {' | '.join(options_and_cells[0][1])} | {'; '.join(why)} |")
    out.append("")
    for mode in MODES:
        group = [call for call in found["calls"] if call["mode"] == mode]
        out.append(f"- {mode}: {sum(call['route'] == 'gpu' for call in group)} of {len(group)} calls on the GPU.")
    return "\n".join(out) + "\n"


def _by_key(found):
    groups = {}
    for call in found:
        groups.setdefault((call["family"], f"{call['itype'] or ''}{call['letters']}", call["precision"]), []).append(call)
    return groups.items()


def _cell(both, mode, n):
    if mode not in both:
        return ""
    call = both[mode]
    cell = call["route"].upper() + (f"@{call['n']}" if call["n"] != n else "")
    other = both.get("force", {"route": "cpu"})
    if mode == "auto" and call["route"] == "cpu" and other["route"] == "gpu":
        cell += f" {call['seconds'] * 1e3:.3g} against {other['seconds'] * 1e3:.3g}"
    return cell


def main():
    if options.given:
        with open(options.given) as file:
            found = json.load(file)
    else:
        found = measure()
        with open(options.out, "w") as out:
            json.dump(found, out, indent=1)
    text = markdown(found)
    if options.markdown:
        with open(options.markdown, "w") as out:
            out.write(text)
    print(text)
    wrong = unexpected(found)
    for call in wrong:
        print("WRONG:", json.dumps(call))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(child(options.child) if options.child else main())
