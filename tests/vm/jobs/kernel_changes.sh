# shellcheck shell=dash
# A target is changed at random by `frwr ctl` under the Linux kernel's host, with a path by each of two devices of which one comes and
# goes: what that shows follows each change, what it reads is what it wrote, no error that no change explains, and a hostile reader of
# metrics disturbs nobody. Needs the programs frwr and random-changes, built with the feature verbs. tests/run kernel takes FRWR_CHANGES
# and FRWR_CHANGES_SEED for more of it.
# limit: 600
CHANGES=60
SEED=1
IP=10.9.0.1
PORT=4420
# Of the device that comes and goes.
SECOND_IP=10.9.1.1
NQN=nqn.2026-11.invalid.frwr:disk
HOST=nqn.2026-11.invalid.frwr:kernel
MEDIA=/tmp/media
SOCKET=/tmp/control

modules() {
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvme-core nvme-fabrics nvme-rdma &&
        grep -q Y /sys/module/nvme_core/parameters/multipath
}

second_device() {
    ip link add dummy1 type dummy && ip link set dummy1 mtu 9000 up && ip addr add $SECOND_IP/24 dev dummy1 &&
        rdma link add rxe1 type rxe netdev dummy1
}

said() { grep -q "$1" "$LOGS/serve.stderr"; }

start_serve() {
    mkdir -p $MEDIA && truncate -s 4M $MEDIA/medium-0 || return 1
    frwr serve --device rxe0 --listen $IP:$PORT --namespace $MEDIA/medium-0 --backing auto --subsystem $NQN --cores 0 --json \
        --hosts 6 --control $SOCKET --metrics 127.0.0.1:0 > "$LOGS/serve.json" 2> "$LOGS/serve.stderr" &
    serve=$!
    wait_for 60 said '^listening on' || { cat "$LOGS/serve.stderr"; return 1; }
}

change_it() {
    metrics=$(sed -n 's|^listening on.*http://\(.*\)/metrics$|\1|p' "$LOGS/serve.stderr")
    random-changes --program /h/bin/frwr --control $SOCKET --metrics "$metrics" --device rxe0 --connect $IP:$PORT \
        --second rxe1/$SECOND_IP:$PORT --subsystem $NQN --host $HOST --folder $MEDIA --changes $CHANGES --seed $SEED
    code=$?
    note "$(tail -n 1 "$LOGS/change_it.log")"
    return $code
}

remove_second_device() { rdma link delete rxe1 && ip link delete dummy1; }

nothing_is_connected() { [ -z "$(ls /sys/class/nvme)" ]; }

# Nothing of anybody is left, and what it was told is in its report.
end_serve() {
    kill -TERM "$serve" && wait "$serve"
    code=$?
    cat "$LOGS/serve.json" "$LOGS/serve.stderr"
    [ $code -eq 0 ] && grep -q '"passed":true' "$LOGS/serve.json"
}

run_test modules modules
run_test second_device second_device
run_test serve_listens start_serve
run_test change_it change_it
run_test nothing_is_connected wait_for 20 nothing_is_connected
run_test serve_ends end_serve
run_test remove_second_device remove_second_device
