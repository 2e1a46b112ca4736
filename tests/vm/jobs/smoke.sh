# shellcheck shell=dash
# Is the guest itself in order: device, device nodes, limits, traffic within one device and between two.
# tools: ibv_devices:ibverbs-utils ibv_rc_pingpong:ibverbs-utils

link_is_active() { rdma link show rxe0/1 | grep -q 'state ACTIVE.*netdev dummy0'; }
device_is_listed() { ibv_devices | grep -q rxe0; }
memory_can_be_locked() { [ "$(ulimit -l)" = unlimited ]; }
hugepages_are_there() { [ "$(cat /proc/sys/vm/nr_hugepages)" -ge 64 ]; }

# RoCE v2 over IPv4 is GID index 1.
pingpong() { # server_device client_device
    ibv_rc_pingpong -d "$1" -g 1 -n 200 -m 4096 -c &
    server=$!
    if wait_for 20 listening 18515 && ibv_rc_pingpong -d "$2" -g 1 -n 200 -m 4096 -c 127.0.0.1; then
        wait $server
    else
        kill $server
        return 1
    fi
}

run_test link_is_active link_is_active
run_test device_is_listed device_is_listed
run_test memory_can_be_locked memory_can_be_locked
run_test hugepages_are_there hugepages_are_there
run_test pingpong_within_one_device pingpong rxe0 rxe0
run_test add_veth_pair add_veth_pair
run_test pingpong_between_two_devices pingpong rxe1 rxe2
run_test remove_veth_pair remove_veth_pair
