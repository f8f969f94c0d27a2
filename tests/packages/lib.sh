# What the scenarios share. They run in a throw-away Debian 12 root; /mnt holds the packages (v1.deb, v2.deb)
# and the program `linked`. Every check prints one line that begins with "ok" or "FAIL".

arch=x86_64-linux-gnu
folder=/usr/lib/$arch
ours=$folder/gpu-offload
links="libblas.so.3 liblapack.so.3 libopenblas.so.0"
openblas=$folder/openblas-pthread
export DEBIAN_FRONTEND=noninteractive OPENBLAS_NUM_THREADS=2

# check WHAT CMD...: the command succeeds.
check() {
    what=$1
    shift
    if said=$("$@" 2>&1); then
        echo "ok $what"
    else
        echo "FAIL $what: $(echo "$said" | tail -n 12 | tr '\n' '|')"
    fi
}

# same WHAT A B: two files hold the same.
same() { check "$1" diff "$2" "$3"; }

quietly() { "$@" > /tmp/said 2>&1 || { cat /tmp/said; return 1; }; }

# The programs run without any variable of ours. A word as argument must be part of a mapped file's name.
numpy() {
    env -i PATH="$PATH" python3 -c '
import sys, numpy as n
a = n.array([[2.0, 1.0], [1.0, 3.0]])
assert n.allclose(n.linalg.solve(a, a @ n.array([3.0, 4.0])), [3.0, 4.0])
assert n.allclose(n.linalg.eigh(a @ a.T)[0], [1.9098300562505257, 13.090169943749475])
maps = open("/proc/self/maps").read()
for word in sys.argv[1:]: assert word in maps, word + " is not mapped"
' "$@"
}
r() {
    env -i PATH="$PATH" Rscript --vanilla -e '
a <- matrix(c(2, 1, 1, 3), 2)
stopifnot(all.equal(solve(a, a %*% c(3, 4)), matrix(c(3, 4), 2)), all.equal(svd(a)$d, c(3.618034, 1.381966), tolerance = 1e-6))
maps <- readLines("/proc/self/maps")
for (word in commandArgs(TRUE)) if (!any(grepl(word, maps, fixed = TRUE))) stop(word, " is not mapped")' "$@"
}
# A program linked with -lopenblas; only where there is a library of that name.
linked() {
    [ ! -e $folder/libopenblas.so.0 ] || env -i LD_BIND_NOW="$bind" /mnt/linked "$@"
}
programs() { numpy && r && bind='' linked && bind=1 linked; }

choose() { quietly update-alternatives --set "$1-$arch" "$2/$1"; }
current() { readlink "/etc/alternatives/$1-$arch"; }

# Everything about BLAS that must be after a removal as it was before the installation.
state() {
    ldconfig
    for link in $links; do
        update-alternatives --query $link-$arch 2>&1
        cat /var/lib/dpkg/alternatives/$link-$arch 2>&1
    done
    find /etc/alternatives $folder -maxdepth 1 \( -name '*blas*' -o -name '*lapack*' \) \
        -printf '%p %l\n' | sort
    for file in /usr/lib/python3/dist-packages/numpy/linalg/*.so \
        /usr/lib/python3/dist-packages/numpy/core/_multiarray_umath*.so /usr/lib/R/lib/libR.so \
        /usr/lib/R/modules/lapack.so /mnt/linked; do
        echo "$file"
        ldd "$file" | sed 's/ (0x.*//'
    done
    ldconfig -p | grep -E 'blas|lapack'
}
# What is left of the package, anywhere.
leftovers() {
    find / -xdev \( -path /proc -o -path /mnt -o -path /tmp \) -prune -o -name '*gpu-offload*' -print
    find / -xdev \( -path /proc -o -path /mnt -o -path /tmp \) -prune -o -name '*gpu_offload*' -print
    grep -rl gpu-offload /etc /var/lib 2>/dev/null | grep -v '^/var/lib/dpkg/status-old$'
    true
}

# begin NAME: the system's own libraries as the scenario wants them.
begin() {
    case $1 in
    reference) ;;
    openblas) quietly dpkg -i /var/cache/openblas/libopenblas0-pthread_*.deb ;;
    esac
    start=$1
}
