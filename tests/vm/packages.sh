# shellcheck shell=bash
# Which Debian packages are needed for what, and the one place that installs them. Sourced.
# An entry is PACKAGE or PACKAGE:COMMAND; with a command, the command is what has to be there.

# To build the programs with the verbs provider (ibverbs-sys runs cmake and bindgen).
# shellcheck disable=SC2034  # read by tests/run
BUILD_PACKAGES=(cmake:cmake make:make python3:python3 pkg-config:pkg-config libclang-dev libnl-3-dev libnl-route-3-dev libibverbs-dev
    librdmacm-dev)
# Disks that tests of storages make, fill and take away, as root.
# shellcheck disable=SC2034  # as above
DISK_PACKAGES=(mount:mount mount:losetup e2fsprogs:mkfs.ext4)
# What looks at the page of the metrics port, and at what stands in a terminal.
# shellcheck disable=SC2034  # as above
SCREEN_PACKAGES=(chromium:chromium tmux:tmux)
# Servers of block devices that namespaces are tried over.
# shellcheck disable=SC2034  # as above
NBD_PACKAGES=(nbdkit:nbdkit qemu-utils:qemu-nbd)
# A cluster of Ceph on this machine alone: its daemons and its tools; of its libraries those that the programs load.
# shellcheck disable=SC2034  # as above
CEPH_PACKAGES=(ceph-mon:ceph-mon ceph-osd:ceph-osd ceph-common:rbd librbd1)
# The libraries that an emulated card stands below.
# shellcheck disable=SC2034  # as above
CARD_PACKAGES=(libibverbs1 librdmacm1 ibverbs-providers)
# What the host needs to make and run the guest.
RIG_PACKAGES=(qemu-system-x86:qemu-system-x86_64 cpio:cpio xz-utils:xz binutils:strip)
# What is copied into the guest. A job adds its own with "# tools:".
GUEST_PACKAGES=(busybox-static iproute2:rdma iproute2:ip libibverbs1 librdmacm1 ibverbs-providers libgcc-s1)

# Debian keeps rdma and ldconfig where the PATH of an ordinary user does not look.
PATH=$PATH:/usr/sbin:/sbin

package_present() { # entry
    local command=${1#*:}
    if [ "$command" != "$1" ]; then
        command -v "$command" > /dev/null
    else
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null)" = installed ]
    fi
}

missing_packages() { # entry...
    local entry
    for entry in "$@"; do
        package_present "$entry" || echo "${entry%%:*}"
    done | sort -u
}

as_admin() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Root installs; so does a CI machine's user who may. On a person's machine nothing is installed behind their back.
may_install() {
    [ "$(id -u)" -eq 0 ] || { [ "${CI:-}" = true ] && sudo -n true 2> /dev/null; }
}

# The lists of a fresh machine are empty or too old, so they are brought up to date before anything is asked for; once, since without
# a network it takes long, and who asks for several packages would wait for each.
lists_asked_for=""
ask_for_lists() {
    [ -z "$lists_asked_for" ] || return 0
    lists_asked_for=yes
    apt_get update -q
}

apt_install() { # package...
    ask_for_lists || return
    apt_get install -qy --no-install-recommends "$@"
}

# Only one at a time: what runs side by side would be refused, since apt-get waits for nobody who reads or writes its lists.
apt_get() { # arguments
    (flock 9 && as_admin env DEBIAN_FRONTEND=noninteractive apt-get "$@") 9> "${TMPDIR:-/tmp}/frwr-apt-get.$(id -u)"
}

# Makes the packages present, or says in $why what is missing and returns 1.
need_packages() { # entry...
    local missing
    why=""
    if ! command -v apt-get > /dev/null || ! command -v dpkg-query > /dev/null; then
        why="the virtual machine needs Debian or Ubuntu: apt-get is missing"
        return 1
    fi
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! may_install; then
        why="missing: ${missing[*]}; as root: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
        return 1
    fi
    install_packages "${missing[@]}" || return
    mapfile -t missing < <(missing_packages "$@")
    # What was installed may have put out what was there before, of another version.
    if [ ${#missing[@]} -gt 0 ]; then
        install_packages "${missing[@]}" || return
        mapfile -t missing < <(missing_packages "$@")
    fi
    [ ${#missing[@]} -gt 0 ] || return 0
    why="apt-get installed them, and still not found (is PATH complete?): ${missing[*]}"
    return 1
}

# Or says in $why that it could not.
install_packages() { # package...
    local output
    echo "vm: installing $*" >&2
    why="apt-get could not install: $*"
    output=$(mktemp) || return
    # Not in a shell of its own, which would forget what it asked for.
    if ! apt_install "$@" > "$output" 2>&1; then
        tail -n 20 "$output" >&2
        rm -f "$output"
        return 1
    fi
    rm -f "$output"
    why=""
}

# Of Debian's package of Prometheus its promtool alone, in this folder, to which PATH leads from now on: the package has 94 MiB and needs a
# dozen others for its pages, and what it installs begins to collect. Or says in $why what is missing and returns 1.
need_promtool() { # folder
    local folder
    why="" PATH=$PATH:$(realpath -m "$1")
    ! command -v promtool > /dev/null || return 0
    if ! may_install || ! command -v dpkg-deb > /dev/null; then
        why="missing: promtool, which is in the package prometheus"
        return 1
    fi
    why="apt-get could not fetch: prometheus"
    folder=$(mktemp -d) || return
    if ask_for_lists > /dev/null 2>&1 && (cd "$folder" && apt-get download -q prometheus) > /dev/null 2>&1 &&
        dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -xO ./usr/bin/promtool > "$folder/promtool"; then
        install -D -m 755 "$folder/promtool" "$1/promtool" && why=""
    fi
    rm -rf "$folder"
    [ -z "$why" ]
}
