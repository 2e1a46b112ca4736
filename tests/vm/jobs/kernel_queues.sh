# shellcheck shell=dash
# Our host with I/O queues on two cores, on the Linux kernel's target (nvmet-rdma): verified load, a grant of fewer queues, and
# a target that goes away and comes back.
# Needs the program frwr, built with the feature verbs.
# limit: 200
# own-boot
ADDRESS=10.9.0.1
PORT=4420
NQN=nqn.2014-08.org.nvmexpress:queues
NVMET=/sys/kernel/config/nvmet
SUBSYSTEM=$NVMET/subsystems/$NQN

modules() {
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvmet nvmet-rdma || return 1
    insmod /h/modules/brd.ko rd_nr=1 rd_size=16384 || return 1
    grep -q ' /sys/kernel/config ' /proc/mounts || mount -t configfs none /sys/kernel/config
}

open_port() {
    local port=$NVMET/ports/1
    mkdir -p $port && echo rdma > $port/addr_trtype && echo ipv4 > $port/addr_adrfam &&
        echo $ADDRESS > $port/addr_traddr && echo $PORT > $port/addr_trsvcid && ln -s $SUBSYSTEM $port/subsystems/$NQN
}

close_port() { rm $NVMET/ports/1/subsystems/$NQN && rmdir $NVMET/ports/1; }

subsystem() {
    mkdir -p $SUBSYSTEM/namespaces/1 && echo 1 > $SUBSYSTEM/attr_allow_any_host &&
        echo -n /dev/ram0 > $SUBSYSTEM/namespaces/1/device_path && echo 1 > $SUBSYSTEM/namespaces/1/enable && open_port
}

load_it() { # arguments...
    timeout -s KILL 120 frwr load --device rxe0 --connect $ADDRESS:$PORT --subsystem $NQN --cores 0,1 --json "$@"
}

# One number of the JSON line in /tmp/load.json.
figure() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" /tmp/load.json; }

load_json() { load_it "$@" > /tmp/load.json; code=$?; cat /tmp/load.json; return $code; }

# Every core has done some of it.
both_worked() {
    [ "$(grep -o '"requests":[1-9][0-9]*,"role":"host"' /tmp/load.json | wc -l)" -eq 2 ]
}

two_cores() { # arguments...
    load_json --file /tmp/small --runtime 1 "$@" && both_worked && [ "$(figure queues)" -eq 2 ]
}

disk_has_the_file() {
    load_json --file /tmp/small --runtime 0 && cmp -n "$(stat -c %s /tmp/small)" /dev/ram0 /tmp/small
}

two_queues_each() { load_json --file /tmp/small --runtime 1 --queues 2 && [ "$(figure queues)" -eq 4 ]; }

one_queue_granted() {
    close_port && echo 1 > $SUBSYSTEM/attr_qid_max && open_port || return 1
    load_json --file /tmp/small --runtime 1
    code=$?
    close_port && echo 128 > $SUBSYSTEM/attr_qid_max && open_port
    [ $code -eq 0 ] && [ "$(figure queues)" -eq 1 ] && grep -q '"without_queue":true' /tmp/load.json
}

in_load() { grep -qs 'mixed load' /tmp/load.err; }
# Seconds in which no request ended.
still_seconds() { grep -c 'mixed load *0 IOPS' /tmp/load.err; }
more_still_seconds() { [ "$(still_seconds)" -gt "$1" ]; }

# The load goes on after its runtime is over until what was outstanding has ended: it reconnects in any case.
the_target_goes_away_and_comes_back() {
    rm -f /tmp/load.err
    load_it --file /tmp/small --runtime 4 --reconnects 100 > /tmp/load.json 2> /tmp/load.err &
    load=$!
    wait_for 60 in_load || return 1
    before=$(still_seconds)
    close_port && wait_for 60 more_still_seconds "$before" && open_port || { cat /tmp/load.err; return 1; }
    wait $load
    code=$?
    cat /tmp/load.err /tmp/load.json
    [ $code -eq 0 ] && [ "$(figure reconnects)" -ge 1 ] && both_worked
}

head -c 1048076 /dev/urandom > /tmp/small

run_test modules modules
run_test subsystem subsystem
run_test two_cores two_cores
run_test two_cores_without_in_capsule_data two_cores --no-in-capsule
run_test disk_has_the_file disk_has_the_file
run_test two_queues_each two_queues_each
run_test one_queue_granted one_queue_granted
run_test the_target_goes_away_and_comes_back the_target_goes_away_and_comes_back
run_test port_closes close_port
