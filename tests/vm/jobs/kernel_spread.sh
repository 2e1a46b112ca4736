# shellcheck shell=dash
# The Linux kernel's NVMe host on a disk that frwr serves from two cores: its two I/O queues are on a core each.
# Needs the program frwr, built with the feature verbs.
# tools: nvme:nvme-cli fio:fio
# limit: 120
IP=10.9.0.1
PORT=4420
NQN=nqn.2026-11.invalid.frwr:disk
HOST=nqn.2026-11.invalid.frwr:kernel
SERVED=/tmp/served

begin_modules() {
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvme-core nvme-fabrics nvme-rdma &&
        mkdir -p /etc/nvme /run/nvme
}

said() { grep -q "$1" "$LOGS/spread.stderr"; }

# At all addresses of the machine.
start_serve() {
    frwr serve --device rxe0 --listen 0.0.0.0:$PORT --namespace $SERVED --backing auto --subsystem $NQN --allow-host $HOST \
        --cores 0,1 --json > "$LOGS/spread.json" 2> "$LOGS/spread.stderr" &
    serve=$!
    wait_for 60 said '^listening on' || { cat "$LOGS/spread.stderr"; return 1; }
}

# Its counters are then in the JSON.
end_serve() {
    kill -TERM "$serve" && wait "$serve"
    code=$?
    cat "$LOGS/spread.json" "$LOGS/spread.stderr"
    [ $code -eq 0 ]
}

# The address in the log is the one that the host asked at.
discover() {
    nvme discover -t rdma -a $IP -s $PORT -q $HOST | tee /tmp/discovered
    grep -q "subnqn: *$NQN" /tmp/discovered && grep -q "traddr: *$IP\$" /tmp/discovered
}

# With multipath, nvme0c0n1 is a path to the disk and no device.
disk() {
    for path in /dev/nvme[0-9]n1; do [ ! -b "$path" ] || { echo "$path"; return; }; done
    return 1
}
connect() {
    nvme connect -t rdma -a $IP -s $PORT -n $NQN -q $HOST -i 2 -Q 64 && wait_for 20 disk > /dev/null
}
disconnect() { nvme disconnect -n $NQN | tee /dev/stderr | grep -q 'disconnected 1' && ! disk; }

# As README.md finds it.
disk_is_listed() { [ "$(nvme list | awk '/frwr software target/ { print $1 }')" = "$(disk)" ]; }

# The kernel's host has a queue for each CPU: one job on each.
verified_load() {
    fio --filename="$(disk)" --allow_file_create=0 --direct=1 --ioengine=libaio --iodepth=16 --rw=randrw --bsrange=4k-64k \
        --verify=crc32c --verify_backlog=64 --size=16m --time_based --runtime=3 --randseed=7 \
        --name=one --offset=0 --cpus_allowed=0 --name=other --offset=16m --cpus_allowed=1
}

# A controller that ends and comes again has its queues on both cores again.
new_session() { disconnect && connect && dd if="$(disk)" of=/dev/null bs=64k count=16 iflag=direct; }

error_log_is_clean() {
    nvme smart-log "$(disk)" > /tmp/smart && cat /tmp/smart && grep -q '^num_err_log_entries[[:space:]]*: *0$' /tmp/smart
}

# Each core's reads and writes are in its entry of the report.
both_cores_served() {
    [ "$(grep -o '"reads":[1-9][0-9]*,"region":"[^"]*",[^{}]*"role":"target",[^{}]*"writes":[1-9][0-9]*' \
        "$LOGS/spread.json" | wc -l)" -eq 2 ]
}

run_test modules begin_modules
head -c 33554432 /dev/urandom > $SERVED
run_test serve_listens start_serve
run_test discover discover
run_test connect connect
run_test disk_is_listed disk_is_listed
run_test verified_load verified_load
run_test error_log_is_clean error_log_is_clean
run_test new_session new_session
run_test disconnect disconnect
run_test serve_ends end_serve
run_test both_cores_served both_cores_served
