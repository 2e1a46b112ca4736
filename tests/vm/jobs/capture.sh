# shellcheck shell=dash
# Keys on the wire: serve and load on two devices whose frames really cross, captured and decoded by a program that asks
# neither of them; then load on the Linux kernel's target. Needs the programs frwr and roce-keys.
# tools: tcpdump:tcpdump
# limit: 240
HOST=10.9.1.1
TARGET=10.9.1.2
ADDRESS=$TARGET:4420
NQN=nqn.2014-08.org.nvmexpress:captured
NVMET=/sys/kernel/config/nvmet
head -c 4194304 /dev/urandom > /tmp/captured

serve_is_up() { grep -q '^listening on' "$LOGS/serve.stderr"; }
capturing() { grep -q 'listening on' "$LOGS/tcpdump.stderr"; }

# tcpdump has written everything: its file no longer grows.
is_written() { # file
    size=$(stat -c %s "$1")
    usleep 300000
    [ "$(stat -c %s "$1")" -eq "$size" ]
}

# Runs a load under a capture and has its keys judged. The capture holds heads only: 256 bytes have all headers and entries.
keys_of() { # name key_indices_that_come_round load_argument...
    capture=$1 indices=$2
    shift 2
    : > "$LOGS/tcpdump.stderr"
    /h/bin/tcpdump --immediate-mode -U -Z root -i v0 -s 256 -B 65536 -w "/tmp/$capture.pcap" udp port 4791 2> "$LOGS/tcpdump.stderr" &
    dump=$!
    wait_for 20 capturing || return 1
    timeout -s KILL 100 frwr load --device rxe1 --connect $ADDRESS --cores 1 "$@"
    code=$?
    wait_for 20 is_written "/tmp/$capture.pcap"
    kill -INT $dump && wait $dump
    cat "$LOGS/tcpdump.stderr"
    # What the capture lost it cannot vouch for.
    : > /tmp/judged
    [ $code -eq 0 ] && grep -q '^0 packets dropped by kernel' "$LOGS/tcpdump.stderr" &&
        roce-keys "/tmp/$capture.pcap" $HOST "$indices" > /tmp/judged
    code=$?
    cat /tmp/judged
    note "$capture: $(cat /tmp/judged)"
    return $code
}

# One request at a time takes few MRs thousands of times, and the low byte of a key has 256 values: the same key comes again,
# and must not before all others of its index.
one_at_a_time() { # name load_argument...
    capture=$1
    shift
    keys_of "$capture" 1 --file /tmp/captured --no-in-capsule --queue-depth 1 --runtime 1 "$@"
}

start_serve() { # arguments...
    frwr serve --device rxe2 --listen $ADDRESS --namespace /tmp/captured --cores 0 "$@" 2> "$LOGS/serve.stderr" &
    serve=$!
    wait_for 30 serve_is_up
}

# The kernel's target, with a RAM disk, on the other end of the cable.
kernel_target() {
    local subsystem=$NVMET/subsystems/$NQN port=$NVMET/ports/1
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvmet nvmet-rdma &&
        insmod /h/modules/brd.ko rd_nr=1 rd_size=16384 || return 1
    grep -q ' /sys/kernel/config ' /proc/mounts || mount -t configfs none /sys/kernel/config
    mkdir -p $subsystem/namespaces/1 $port && echo 1 > $subsystem/attr_allow_any_host &&
        echo -n /dev/ram0 > $subsystem/namespaces/1/device_path && echo 1 > $subsystem/namespaces/1/enable &&
        echo rdma > $port/addr_trtype && echo ipv4 > $port/addr_adrfam && echo $TARGET > $port/addr_traddr &&
        echo 4420 > $port/addr_trsvcid && ln -s $subsystem $port/subsystems/$NQN
}
end_kernel_target() {
    rm $NVMET/ports/1/subsystems/$NQN && rmdir $NVMET/ports/1 && echo 0 > $NVMET/subsystems/$NQN/namespaces/1/enable &&
        rmdir $NVMET/subsystems/$NQN/namespaces/1 $NVMET/subsystems/$NQN
}

run_test add_veth_pair add_veth_pair
run_test serve_listens start_serve
run_test keys_killed_by_the_target keys_of remote 0 --file /tmp/captured --runtime 1
run_test keys_killed_by_the_host keys_of local 0 --no-remote-invalidate --runtime 1
run_test keys_that_come_again_by_the_target one_at_a_time remote_again
run_test keys_that_come_again_by_the_host one_at_a_time local_again --no-remote-invalidate
kill -TERM $serve && wait $serve
run_test kernel_target kernel_target
run_test keys_killed_by_the_kernel keys_of kernel 0 --subsystem $NQN --file /tmp/captured --runtime 1 --no-in-capsule
run_test keys_killed_by_the_host_on_the_kernel keys_of kernel_local 0 --subsystem $NQN --no-remote-invalidate --bytes 4194304 \
    --runtime 1
run_test keys_that_come_again_by_the_kernel one_at_a_time kernel_again --subsystem $NQN
run_test keys_that_come_again_by_the_host_on_the_kernel one_at_a_time kernel_local_again --subsystem $NQN --no-remote-invalidate
run_test kernel_target_ends end_kernel_target
run_test remove_veth_pair remove_veth_pair
