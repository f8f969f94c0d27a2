"""How often calibrations of this machine decide alike, over 5,000 random calls of all routines, none of which is made.

    python3 KIT/calibrations.py [--runs 3] [--quick] [--keep FOLDER] [PROFILE PROFILE...]

Calibrates --runs times (94 s each) unless profiles are named. Prints a table; the last line is
`N passed, N failed, N skipped`. Standard library only.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

import kit

HERE = os.path.dirname(os.path.abspath(__file__))
arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("profiles", nargs="*", metavar="PROFILE", help="of this machine, instead of calibrating")
arguments.add_argument("--prefix", default=os.path.join(HERE, "prefix"), help="the prefix under test")
arguments.add_argument("--runs", type=int, default=3, help="calibrations")
arguments.add_argument("--quick", action="store_true", help="calibrate --quick")
arguments.add_argument("--threads", type=int, default=min(16, os.cpu_count() or 1), help="CPU threads")
arguments.add_argument("--keep", metavar="FOLDER", help="copy the profiles there")
arguments.add_argument("--markdown", metavar="FILE", help="write the table")
arguments.add_argument("--sim", metavar="DIR", help="folder of the simulated CUDA: tests this script, proves nothing about a GPU")
options = arguments.parse_args()


def calibrated(place):
    """Profiles of calibrations one after the other."""
    found = []
    for number in range(options.runs):
        home = os.path.join(place.scratch, f"calibration-{number}")
        began = time.time()
        found.append(place.calibrate(home, options.quick))
        print(f"calibration {number + 1} of {options.runs}: {time.time() - began:.0f} s", flush=True)
        if options.keep:
            os.makedirs(options.keep, exist_ok=True)
            shutil.copy(found[-1], os.path.join(options.keep, f"profile-{number + 1}.toml"))
    return found


rows = kit.Rows()
if not (options.profiles or options.sim or kit.gpu_present()):
    rows.add("calibrations decide alike", "skipped", kit.NO_GPU)
else:
    place = kit.Place(options.prefix, tempfile.mkdtemp(prefix="gpu-offload-"), options.threads, [options.sim] if options.sim else [])
    profiles = options.profiles or calibrated(place)
    done = subprocess.run([os.path.join(HERE, "agree"), *profiles], capture_output=True, text=True)
    print(done.stdout + done.stderr)
    if options.markdown:
        with open(options.markdown, "w") as out:
            out.write(f"# {len(profiles)} calibrations\n\nWritten by `tests/gpu/calibrations.py`; do not edit.\n\n{done.stdout}")
    total = [line for line in done.stdout.splitlines() if line.startswith("| all |")]
    rows.add(f"{len(profiles)} calibrations decide alike in 97 % of random calls", done.returncode == 0, total[0] if total else done.stderr.strip())
print(rows.line())
sys.exit(1 if rows.count("failed") else 0)
