#!/bin/bash
# Gathers what the GPU machine needs into one folder: the prefix, netlib's level-3 programs (package
# libblas-test) and the compiled client. That machine then needs no Rust, Fortran or package registry.
#   tests/gpu/prepare.sh PREFIX KIT      then there:   bash KIT/run.sh
set -euo pipefail
if [ $# -ne 2 ]; then echo "usage: prepare.sh PREFIX KIT" >&2; exit 2; fi
prefix=$1 kit=$2
here=$(cd "$(dirname "$0")" && pwd)
netlib=/usr/lib/x86_64-linux-gnu/blas
[ -e "$prefix/lib/libblas.so.3" ] || { echo "no lib/libblas.so.3 in $prefix; run cargo xtask dist" >&2; exit 1; }
[ -e "$netlib/xblat3d" ] || { echo "no $netlib/xblat3d; install the package libblas-test" >&2; exit 1; }
mkdir -p "$kit/prefix" "$kit/netlib"
cp -a "$prefix/." "$kit/prefix/"
cp "$netlib"/xblat3? "$netlib"/x?cblat3 "$netlib"/?blat3.in "$netlib"/?in3 "$kit/netlib/"
for program in dgemm level3 callers; do
    gcc -O2 -o "$kit/$program" "$here/$program.c" "$prefix/lib/libblas.so.3" -Wl,-rpath-link,"$prefix/lib" -lm -lpthread
done
cargo build --quiet --release --package level3 --manifest-path "$here/../../Cargo.toml"
cp "${CARGO_TARGET_DIR:-$here/../../target}/release/level3-random" "$kit/"
strip "$kit/level3-random"
cp "$here"/{run.sh,run.py,bench.py,kit.py,naive.c,bench.h} "$kit/"
echo "$kit"
