# shellcheck shell=dash
# What a job may use. Jobs run in busybox sh; $LOGS is their results folder, /h/bin holds programs and tools,
# /h/tests Rust test binaries.
export PATH=/h/bin:/bin
export HOME=/tmp
export RDMAV_DRIVERS=/h/lib/librxe
# Seconds that one program may take before it is killed: a guard against hangs, many times what it needs.
PROGRAM_LIMIT=${PROGRAM_LIMIT:-240}

# Debian's busybox sh prefers its own applets to what PATH names; a tool of the same name needs its full path.
ip() { /h/bin/ip "$@"; }

# The host reads from these when the first test began, and which one hung.
begin() { # name
    [ -e /h/out/first-test ] || : > /h/out/first-test
    echo "$JOB/$1" > /h/out/running
}

# One record: the outcome is ok, FAILED or skipped.
report() { # name outcome [detail...]
    local name=$1 outcome=$2
    shift 2
    case $outcome in ok | FAILED | skipped) ;; *) set -- "unknown outcome $outcome" "$@"; outcome=FAILED ;; esac
    # One line, whatever the detail holds.
    echo "$outcome $(echo "$name" | tr ' \n' '__' | sed 's/_$//') $(echo "$*" | tr '\n' ' ')" >> "$RESULTS"
}

# A figure that the rig prints, whatever the tests' outcome.
note() { # text...
    echo "note $(echo "$*" | tr '\n' ' ')" >> "$RESULTS"
}

# A test that is a command: it passes with exit code 0. Its output goes to NAME.log.
run_test() { # name command...
    local name=$1 code
    shift
    begin "$name"
    "$@" > "$LOGS/$name.log" 2>&1
    code=$?
    if [ "$code" -eq 0 ]; then report "$name" ok; else report "$name" FAILED "exit code $code, see $name.log"; fi
}

# A Rust test binary: each of its tests becomes a record NAME::TEST.
run_libtest() { # path [arguments of libtest...]
    local bin=$1 name code started
    started=$(cut -d . -f 1 /proc/uptime)
    name=$(basename "$bin")
    shift
    begin "$name"
    # One thread: the device's limits are shared, and the log names the test that hung. The output of passing tests
    # holds their SKIPPED lines.
    RUST_BACKTRACE=1 timeout -s KILL "$PROGRAM_LIMIT" "$bin" --test-threads=1 --show-output "$@" \
        > "$LOGS/$name.log" 2> "$LOGS/$name.stderr"
    code=$?
    [ -s "$LOGS/$name.stderr" ] || rm -f "$LOGS/$name.stderr"
    awk -v bin="$name" -v code="$code" -f /h/guest/libtest.awk "$LOGS/$name.log" >> "$RESULTS"
    echo "# $name: $(($(cut -d . -f 1 /proc/uptime) - started)) s" >> "$RESULTS"
}

# Loads kernel modules in the given order; one that is there already is no error.
load() { # module...
    local module
    for module in "$@"; do
        [ -d "/sys/module/$(echo "$module" | tr - _)" ] || insmod "/h/modules/$module.ko" || return 1
    done
}

# Waits until the command succeeds, at most the given number of seconds: of pauses, for the machine may be busy, but where the command
# itself takes long not of more than three times as many.
wait_for() { # seconds command...
    local polls=$(($1 * 20)) now_up last_up
    read -r now_up _ < /proc/uptime
    last_up=$((${now_up%.*} + 3 * $1))
    shift
    until "$@"; do
        polls=$((polls - 1))
        read -r now_up _ < /proc/uptime
        [ "$polls" -gt 0 ] && [ "${now_up%.*}" -lt "$last_up" ] || return 1
        usleep 50000
    done
}

listening() { # tcp port
    grep -q "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6
}

# For the shell: runs a job of this share and shows its records; its logs are in /tmp/NAME.
job() { # name
    mkdir -p "/tmp/$1"
    : > "/tmp/$1/results"
    JOB=$1 LOGS=/tmp/$1 RESULTS=/tmp/$1/results sh -c '. /h/guest/lib.sh; . "/h/jobs/$JOB.sh"'
    cat "/tmp/$1/results"
}

# Two more devices, rxe1 on v0 (10.9.1.1) and rxe2 on v1 (10.9.1.2), whose frames cross a virtual cable.
add_veth_pair() {
    local end
    load veth && ip link add v0 type veth peer name v1 || return 1
    ip addr add 10.9.1.1/24 dev v0 && ip addr add 10.9.1.2/24 dev v1 || return 1
    for end in v0 v1; do
        ip link set "$end" mtu 9000 && ip link set "$end" up || return 1
    done
    # Both ends belong to one host: without these it answers for, and routes to, the wrong end.
    for end in all v0 v1; do
        echo 1 > "/proc/sys/net/ipv4/conf/$end/accept_local"
        echo 0 > "/proc/sys/net/ipv4/conf/$end/rp_filter"
        echo 1 > "/proc/sys/net/ipv4/conf/$end/arp_ignore"
        echo 2 > "/proc/sys/net/ipv4/conf/$end/arp_announce"
    done
    rdma link add rxe1 type rxe netdev v0 && rdma link add rxe2 type rxe netdev v1
}

remove_veth_pair() {
    rdma link delete rxe1 && rdma link delete rxe2 && ip link delete v0
}
