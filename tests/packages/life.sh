# Install, use, upgrade, remove, purge.
. /mnt/deb/lib.sh
begin "$1"
state > /tmp/before

check "$start: install" quietly dpkg -i /mnt/v1.deb
for link in $links; do
    check "$start: $link is ours" test "$(current $link)" = $ours/$link
done
check "$start: NumPy uses ours" numpy gpu-offload/libblas.so.3 gpu-offload/liblapack.so.3
check "$start: R uses ours" r gpu-offload/libblas.so.3 gpu-offload/liblapack.so.3
for bind in '' 1; do
    check "$start: a program linked with -lopenblas uses ours (LD_BIND_NOW=$bind)" linked \
        gpu-offload/libblas.so.3 !openblas-pthread
done
check "$start: the tool finds the libraries" sh -c "gpu-offload env --shell sh | grep -F $ours"
check "$start: run" gpu-offload run /mnt/linked gpu-offload/libblas.so.3
for page in gpu-offload gpu-offload-run; do
    check "$start: man page $page" gzip -t /usr/share/man/man1/$page.1.gz
done
check "$start: completions" bash -n /usr/share/bash-completion/completions/gpu-offload
check "$start: the files are the package's" dpkg --verify gpu-offload
check "$start: the configuration is accepted" sh -c '! GPU_OFFLOAD=force GPU_OFFLOAD_THRESHOLD=0 \
    GPU_OFFLOAD_LOG=debug /mnt/linked 2>&1 | grep config.toml'

state > /tmp/installed
check "$start: install again" quietly dpkg -i /mnt/v1.deb
state > /tmp/now
same "$start: installing again changes nothing" /tmp/installed /tmp/now

# Programs start all the time while the package is upgraded.
echo '# mine' >> /etc/gpu-offload/config.toml
(
    while [ ! -e /tmp/stop ]; do
        numpy && bind='' linked || echo trouble
    done > /tmp/during 2>&1
) &
check "$start: upgrade" quietly dpkg --force-confold -i /mnt/v2.deb
touch /tmp/stop
wait
check "$start: programs start during the upgrade" test ! -s /tmp/during
check "$start: the version is the new one" test "$(dpkg-query -W -f '${Version}' gpu-offload)" = 99.0
check "$start: the administrator's settings stay" grep -q '# mine' /etc/gpu-offload/config.toml
state > /tmp/now
same "$start: after the upgrade as before it" /tmp/installed /tmp/now

check "$start: remove" quietly dpkg -r gpu-offload
state > /tmp/now
same "$start: after the removal as before the installation" /tmp/before /tmp/now
check "$start: programs run after the removal" programs
check "$start: the settings outlive the removal" test -e /etc/gpu-offload/config.toml

check "$start: install after a removal" quietly dpkg --force-confold -i /mnt/v1.deb
check "$start: NumPy uses ours again" numpy gpu-offload/libblas.so.3
check "$start: purge" quietly dpkg -P gpu-offload
state > /tmp/now
same "$start: after the purge as before the installation" /tmp/before /tmp/now
check "$start: programs run after the purge" programs
leftovers > /tmp/left
check "$start: nothing is left: $(tr '\n' ' ' < /tmp/left)" test ! -s /tmp/left
