#!/bin/bash
# Gathers what the GPU machine needs into one folder: the prefix, netlib's level-3 programs (package
# libblas-test) and LAPACK programs (those that `cargo xtask conformance --suite lapack` uses), the compiled
# clients, lapack_bench and level3_bench, and the engine's own test programs. That machine then needs no Rust,
# Fortran or package registry.
#   tests/gpu/prepare.sh PREFIX KIT      then there:   bash KIT/run.sh
set -euo pipefail
if [ $# -ne 2 ]; then echo "usage: prepare.sh PREFIX KIT" >&2; exit 2; fi
prefix=$1 kit=$2
here=$(cd "$(dirname "$0")" && pwd)
netlib=/usr/lib/x86_64-linux-gnu/blas
[ -e "$prefix/lib/libblas.so.3" ] || { echo "no lib/libblas.so.3 in $prefix; run cargo xtask dist" >&2; exit 1; }
[ -e "$netlib/xblat3d" ] || { echo "no $netlib/xblat3d; install the package libblas-test" >&2; exit 1; }
# LAPACK's programs are those of the archive's own release; see xtask/src/conformance/lapack.rs.
netlib_lapack=/usr/lib/x86_64-linux-gnu/lapack
if ! dpkg-query -W -f='${Version}' liblapack-test 2>/dev/null | grep -q '^3\.12\.'; then
    netlib_lapack=${XDG_CACHE_HOME:-$HOME/.cache}/gpu-offload/conformance/lapack-test
fi
[ -e "$netlib_lapack/xlintstd" ] || { echo "no $netlib_lapack/xlintstd; run cargo xtask conformance --suite lapack" >&2; exit 1; }
mkdir -p "$kit/prefix" "$kit/netlib" "$kit/netlib-lapack"
cp -a "$prefix/." "$kit/prefix/"
cp "$netlib"/xblat3? "$netlib"/x?cblat3 "$netlib"/?blat3.in "$netlib"/?in3 "$kit/netlib/"
cp "$netlib_lapack"/xlintst[sdcz] "$netlib_lapack"/xlintstrf[sdcz] "$netlib_lapack"/xeigtst[sdcz] "$kit/netlib-lapack/"
strip "$kit/netlib-lapack"/x*
cp "$netlib_lapack"/{[sdcz]test.in,[sdcz]test_rfp.in,[sdcz]ed.in,[sdcz]sg.in,sep.in,svd.in} "$kit/netlib-lapack/"
for program in dgemm level3 callers; do
    gcc -O2 -o "$kit/$program" "$here/$program.c" "$prefix/lib/libblas.so.3" -Wl,-rpath-link,"$prefix/lib" -lm -lpthread
done
gcc -O2 -o "$kit/lapack" "$here/lapack.c" "$prefix/lib/liblapack.so.3" "$prefix/lib/libblas.so.3" -Wl,-rpath-link,"$prefix/lib" -lm
target=${CARGO_TARGET_DIR:-$here/../../target}
cargo build --quiet --release --package level3 --manifest-path "$here/../../Cargo.toml"
cargo build --quiet --release --package gpu-backend --example lapack_bench --example level3_bench --manifest-path "$here/../../Cargo.toml"
cargo build --quiet --release --package cost-model --example agree --manifest-path "$here/../../Cargo.toml"
cp "$target/release/level3-random" "$target/release/examples/"{lapack_bench,level3_bench,agree} "$kit/"
strip "$kit/level3-random" "$kit/lapack_bench" "$kit/level3_bench" "$kit/agree"
# The engine's own tests, as cargo says that it built them.
mkdir -p "$kit/tests"
cargo test --quiet --release --package gpu-backend --no-run --message-format json --manifest-path "$here/../../Cargo.toml" \
    --test gemm --test level3 --test budget --test eigen --test lapack |
    python3 -c 'import json, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made["target"]["kind"] == ["test"]:
        print(made["target"]["name"], made["executable"])' |
    while read -r name program; do strip -o "$kit/tests/$name" "$program"; done
cp "$here"/{run.sh,run.py,bench.py,programs.py,verify.py,random_calls.py,calibrations.py,kit.py,netlib_lapack.py,lapack.py,calls.py,cusolver.py,coverage.py,naive.c,bench.h} "$kit/"
echo "$kit"
