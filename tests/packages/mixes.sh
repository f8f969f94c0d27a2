# Every choice of the three alternatives, the one before it being any other; then without the reference.
. /mnt/deb/lib.sh
begin "$1"
check "$start: install" quietly dpkg -i /mnt/v1.deb
providers="$ours $openblas $folder/blas"
for blas in $providers; do
    for lapack in $ours $openblas $folder/lapack; do
        for direct in $ours $openblas; do
            name="$(basename $blas) + $(basename $lapack) + $(basename $direct)"
            choose libblas.so.3 $blas
            choose liblapack.so.3 $lapack
            choose libopenblas.so.0 $direct
            check "$name: NumPy" numpy
            check "$name: R" r
            for bind in '' 1; do
                check "$name: linked with -lopenblas (LD_BIND_NOW=$bind)" linked $(basename $direct)
            done
            check "$name: NumPy's BLAS" numpy "$(basename $blas)/libblas.so.3"
        done
    done
done
# The half of another variant finds the internals too.
quietly dpkg -i /var/cache/openblas/libopenblas0-serial_*.deb
choose libopenblas.so.0 $ours
for link in libblas.so.3 liblapack.so.3; do choose $link $folder/openblas-serial; done
check "serial + serial + ours" programs
for link in $links; do
    quietly update-alternatives --auto $link-$arch
    check "auto: $link is ours" test "$(current $link)" = $ours/$link
done
check "auto" programs
# Debian's OpenBLAS goes while ours stays, and the other way round.
choose libblas.so.3 $openblas
check "OpenBLAS removed" quietly dpkg -P libopenblas0-pthread libopenblas0-serial
check "without OpenBLAS" programs
check "purge" quietly dpkg -P gpu-offload
check "reference alone" programs
