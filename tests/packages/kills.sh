# The package's scripts and dpkg itself are killed at every step: programs run at once, and the command
# given again ends as if nothing had happened.
. /mnt/deb/lib.sh
begin "$1"
# One choice by hand, so that there is something to give back.
[ "$start" = openblas ] && choose libblas.so.3 $folder/blas
state > /tmp/before
quietly dpkg -i /mnt/v1.deb
[ "$start" = openblas ] && choose libblas.so.3 $ours
state > /tmp/installed

# In front of the real one: kills the calling script before or after the call that /run/at names, or the
# call itself before its n-th change of the file system.
cat > /usr/local/sbin/update-alternatives <<'W'
#!/bin/sh
real=/usr/bin/update-alternatives
case "$1" in --query | --list) exec $real "$@" ;; esac
call=$(($(cat /run/call) + 1))
echo $call > /run/call
read -r at where < /run/at
[ $call = "$at" ] || exec $real "$@"
case $where in
before) ;;
after) $real "$@" ;;
*)
    changes=rename,symlink,unlink
    if strace -qq -o /dev/null -e trace=$changes -e inject=$changes:signal=KILL:when=$where $real "$@"; then
        # Fewer changes than that.
        exit 0
    fi
    ;;
esac
echo killed > /run/killed
kill -KILL $PPID
W
chmod 755 /usr/local/sbin/update-alternatives

# once SCRIPT ARGUMENTS AT WHERE: whether it was killed there.
once() {
    echo 0 > /run/call
    echo "$3 $4" > /run/at
    rm -f /run/killed
    "/var/lib/dpkg/info/gpu-offload.$1" $2 > /tmp/said 2>&1 || true
    [ -e /run/killed ]
}
# kills SCRIPT ARGUMENTS BACK ARGUMENTS END: kills SCRIPT at each of its steps; END is the state it leads to,
# BACK the script that undoes it.
kills() {
    points=0
    for call in 1 2 3 4; do
        for where in before 1 2 3 4 5 6 7 8 9 10 11 12 after; do
            if once "$1" "$2" $call $where; then
                points=$((points + 1))
                check "$start: $1 killed at call $call, $where: programs" programs
                once "$1" "$2" 0 0
                state > /tmp/now
                same "$start: $1 killed at call $call, $where: given again" "$5" /tmp/now
            fi
            once "$3" "$4" 0 0
            [ "$3" = postinst ] && [ "$start" = openblas ] && choose libblas.so.3 $ours
        done
    done
    check "$start: $1 was killed at $points points" test $points -ge 12
}
[ "$start" = openblas ] && choose libblas.so.3 $ours
kills prerm remove postinst "configure 0.1.0" /tmp/before
once prerm remove 0 0
state > /tmp/now
same "$start: removed" /tmp/before /tmp/now
# After postinst the choice by hand is still the earlier one.
once postinst "configure" 0 0
state > /tmp/registered
once prerm remove 0 0
kills postinst configure prerm remove /tmp/registered
once postinst configure 0 0
rm /usr/local/sbin/update-alternatives

# dpkg itself, at every seventh rename.
when=1
while ! strace -qq -o /dev/null -e trace=rename -e inject=rename:signal=KILL:when=$when \
    dpkg --force-confold -i /mnt/v2.deb > /tmp/said 2>&1; do
    check "$start: dpkg killed at rename $when of an upgrade: programs" programs
    quietly dpkg --configure -a
    quietly dpkg -i /mnt/v1.deb
    when=$((when + 7))
done
check "$start: dpkg was killed during an upgrade" test $when -gt 20
check "$start: the upgrade ends" test "$(dpkg-query -W -f '${Version} ${Status}' gpu-offload)" = "99.0 install ok installed"
when=1
while ! strace -qq -o /dev/null -e trace=rename,unlink,rmdir -e inject=rename,unlink,rmdir:signal=KILL:when=$when \
    dpkg -P gpu-offload > /tmp/said 2>&1; do
    check "$start: dpkg killed at change $when of a purge: programs" programs
    quietly dpkg -i /mnt/v1.deb
    when=$((when + 7))
done
check "$start: dpkg was killed during a purge" test $when -gt 20
state > /tmp/now
same "$start: purged" /tmp/before /tmp/now
