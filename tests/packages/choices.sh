# What an administrator chooses by hand, before and after.
. /mnt/deb/lib.sh
begin "$1"
[ "$start" = openblas ] && other=$openblas || other=$folder/blas
choose libblas.so.3 $folder/blas
state > /tmp/before

check "$start: install" quietly dpkg -i /mnt/v1.deb
check "$start: a choice by hand stays" test "$(current libblas.so.3)" = $folder/blas/libblas.so.3
check "$start: the others are ours" test "$(current liblapack.so.3)" = $ours/liblapack.so.3
check "$start: ours beside it" programs
check "$start: remove" quietly dpkg -r gpu-offload
state > /tmp/now
same "$start: untouched, as before" /tmp/before /tmp/now

for mode in set auto; do
    check "$start, $mode: install" quietly dpkg -i /mnt/v1.deb
    case $mode in
    set) choose libblas.so.3 $ours ;;
    auto) quietly update-alternatives --auto libblas.so.3-$arch ;;
    esac
    check "$start, $mode: ours" numpy gpu-offload/libblas.so.3
    check "$start, $mode: reconfigure keeps it" quietly dpkg -i /mnt/v2.deb
    check "$start, $mode: still ours" numpy gpu-offload/libblas.so.3
    check "$start, $mode: purge" quietly dpkg -P gpu-offload
    state > /tmp/now
    same "$start, $mode: the earlier choice is back" /tmp/before /tmp/now
done

# A choice made while ours is installed is not taken back.
quietly update-alternatives --auto libblas.so.3-$arch
check "$start: install once more" quietly dpkg -i /mnt/v1.deb
choose libblas.so.3 $other
check "$start: purge" quietly dpkg -P gpu-offload
check "$start: the new choice stays" test "$(current libblas.so.3)" = $other/libblas.so.3
check "$start: by hand" sh -c "update-alternatives --query libblas.so.3-$arch | grep -q 'Status: manual'"
quietly update-alternatives --auto libblas.so.3-$arch
state > /tmp/before

# Taken out of the alternatives by hand, in every order, and brought back.
for order in "libblas.so.3 liblapack.so.3 libopenblas.so.0" "libblas.so.3 libopenblas.so.0 liblapack.so.3" \
    "liblapack.so.3 libblas.so.3 libopenblas.so.0" "liblapack.so.3 libopenblas.so.0 libblas.so.3" \
    "libopenblas.so.0 libblas.so.3 liblapack.so.3" "libopenblas.so.0 liblapack.so.3 libblas.so.3"; do
    quietly dpkg -i /mnt/v1.deb
    for link in $order; do
        quietly update-alternatives --remove $link-$arch $ours/$link
        check "$start, $order: programs without $link of ours" programs
    done
    state > /tmp/now
    same "$start, $order: as before" /tmp/before /tmp/now
    check "$start, $order: purge" quietly dpkg -P gpu-offload
    state > /tmp/now
    same "$start, $order: as before, after the purge" /tmp/before /tmp/now
done
