# shellcheck shell=dash
# Runs in the guest: sets up verbs, runs the jobs of this boot, tears down. Its exit code becomes the guest's:
# 0 every test passed or was skipped, 1 a test failed, 2 the set-up failed.
# shellcheck source=/dev/null
. /h/env # VERBS_MODULES JOBS INTERACTIVE RDMA_CORE, written by the host
# shellcheck source=tests/vm/guest/lib.sh
. /h/guest/lib.sh
OUT=/h/out

die() { # why
    echo "$*" > "$OUT/setup-failed"
    dmesg > "$OUT/boot.log"
    exit 2
}

# On a busy machine the emulated timer that the kernel measures the TSC by may be late; the guest's clock then runs many times too
# fast, and all time-outs end too soon. The kernel measures by another timer as well, and says where the two disagree.
check_clock() {
    ! dmesg | grep -q 'tsc: PIT calibration deviates' || die "the kernel has measured its clock wrongly"
}

set_up() {
    check_clock
    # libibverbs looks for provider lists in a folder and warns when it is not there; ours comes by RDMAV_DRIVERS.
    mkdir -p /dev/pts /dev/shm /etc/libibverbs.d
    mount -t devpts none /dev/pts
    mount -t tmpfs none /dev/shm
    mount -t tmpfs none /tmp
    mount -t tmpfs none /run
    # The libraries lie where the programs' loader looks for them.
    ln -s /h/lib /lib64
    ln -s /h/lib /lib/x86_64-linux-gnu
    echo 'root:x:0:0:root:/tmp:/bin/sh' > /etc/passwd
    echo 'root:x:0:' > /etc/group
    echo '127.0.0.1 localhost' > /etc/hosts
    hostname guest
    ulimit -l unlimited
    ulimit -c 0

    # shellcheck disable=SC2086
    load $VERBS_MODULES || die "a module did not load"
    ip link set lo up
    # An MTU of 9000 carries the largest InfiniBand MTU, 4096.
    if ! { ip link set dummy0 mtu 9000 && ip addr add 10.9.0.1/24 dev dummy0 && ip link set dummy0 up; }; then
        die "dummy0 does not come up"
    fi
    rdma link add rxe0 type rxe netdev dummy0 || die "rdma link add failed"
    for node in uverbs0 rdma_cm; do
        [ -c "/dev/infiniband/$node" ] || die "there is no /dev/infiniband/$node"
    done
}

# Objects that a test left behind make the kernel complain here.
tear_down() {
    for link in /sys/class/infiniband/*; do
        [ ! -e "$link" ] || rdma link delete "${link##*/}"
    done
}

run_job() { # name
    JOB=$1
    LOGS=$OUT/$JOB
    mkdir -p "$LOGS"
    RESULTS=$LOGS/results
    export JOB LOGS RESULTS
    {
        echo "# kernel: $(uname -r)"
        echo "# device: rxe0"
        echo "# driver: rdma_rxe on dummy0, mtu $(cat /sys/class/net/dummy0/mtu)"
        echo "# rdma-core: $RDMA_CORE"
        echo "# uptime at start: $(cut -d ' ' -f 1 /proc/uptime) s"
    } > "$RESULTS"
    # A process of its own: an exit or a lost variable in one job does not touch the next.
    sh -c '. /h/guest/lib.sh; . "/h/jobs/$JOB.sh"' > "$LOGS/job.log" 2>&1 < /dev/null
    code=$?
    [ "$code" -eq 0 ] || report job FAILED "the job itself ended with exit code $code, see job.log"
    dmesg -c > "$LOGS/kernel.log"
    # In file order: the host takes the last line as proof that nothing is missing.
    records=$(grep -cE '^(ok|FAILED|skipped) ' "$RESULTS")
    ! grep -q '^FAILED ' "$RESULTS" || failed=1
    echo "complete $records" >> "$RESULTS"
}

set_up > "$OUT/setup.log" 2>&1 || die "set-up"
dmesg -c > "$OUT/boot.log"
# From now on the serial console carries the kernel log, for guests that do not live to save it. A person at the
# console reads it with dmesg.
[ -n "$INTERACTIVE" ] || dmesg -n 8

failed=0
for job in $JOBS; do
    run_job "$job"
done
if [ -n "$INTERACTIVE" ]; then
    cat /h/guest/motd
    cd /tmp || exit 2
    ENV=/h/guest/lib.sh setsid cttyhack sh
fi
tear_down > "$OUT/teardown.log" 2>&1
dmesg > "$OUT/end.log"
cut -d ' ' -f 1 /proc/uptime > "$OUT/done"
sync
exit $failed
