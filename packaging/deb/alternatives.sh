# Shared by postinst and prerm, which the package holds with this text in them.
#
# The order matters: Debian's OpenBLAS finds its own internals by the name libopenblas.so.0, so that ours
# is the last to come and the first to go.
folder=/usr/lib/x86_64-linux-gnu
ours=$folder/gpu-offload
# What an administrator had chosen by hand before we came: a file for each link, with the path in it.
before=/var/lib/gpu-offload/before

# group FILE: the name of its alternatives.
group() { echo "$1-x86_64-linux-gnu"; }

# field NAME GROUP: a line of what update-alternatives knows of a group, the first of that name.
field() {
    update-alternatives --query "$2" 2>/dev/null | sed -n "s/^$1: //p;/^$/q"
}

# registered FILE PATH: whether PATH is one of the choices.
registered() {
    update-alternatives --list "$(group "$1")" 2>/dev/null | grep -qxF "$2"
}
