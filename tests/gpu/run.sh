#!/bin/bash
# Everything that a real GPU must prove, from a folder made by prepare.sh: `bash KIT/run.sh`.
# Needs bash, python3 and an NVIDIA driver; libgfortran5 for netlib's programs. Options: run.py --help.
# Without a GPU everything counts as skipped; REQUIRE_GPU=1 turns skipped into failed.
set -euo pipefail
exec python3 "$(dirname "$0")/run.py" "$@"
