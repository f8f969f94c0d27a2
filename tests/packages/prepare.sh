#!/bin/sh
# In a fresh Debian 12 root: the programs that the package is tried with. Debian's OpenBLAS is only
# downloaded, into /var/cache, so that each scenario can begin with or without it.
set -e
export DEBIAN_FRONTEND=noninteractive
printf 'path-exclude=/usr/share/doc/*\npath-include=/usr/share/doc/*/copyright\npath-exclude=/usr/share/locale/*\n' \
    > /etc/dpkg/dpkg.cfg.d/small
apt-get -q update
apt-get -qy --no-install-recommends install r-base-core python3-numpy libblas3 liblapack3 strace
apt-get -qy clean
mkdir -p /var/cache/openblas
cd /var/cache/openblas
apt-get -q -o APT::Sandbox::User=root download libopenblas0-pthread libopenblas0-serial
