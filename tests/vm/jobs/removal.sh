# shellcheck shell=dash
# The device is removed under load: serve, load and an idle serve end with one line each, and nothing hangs.
# own-boot
. /h/guest/halves.sh
make_served 1048576
GONE='^error: device rxe0 is gone'

ended() { ! kill -0 "$1" 2> /dev/null; }

# An exit code of 1 and the one line.
ended_well() { # process stderr
    wait_for 30 ended "$1" || { echo "process $1 goes on"; kill -KILL "$1"; }
    wait "$1"
    code=$?
    echo "process $1: exit code $code" && cat "$2"
    [ $code -eq 1 ] && [ "$(grep -c "$GONE" "$2")" -eq 1 ] && [ "$(grep -c '^error: ' "$2")" -eq 1 ]
}

the_device_goes() {
    frwr serve --device rxe0 --listen 10.9.0.1:4421 --namespace $SERVED --cores 0 > /tmp/idle.out 2> /tmp/idle.err &
    idle=$!
    wait_for 30 grep -q '^listening on' /tmp/idle.err && start_load --runtime 60 || return 1
    timeout 60 rdma link delete rxe0 &
    removal=$!
}

the_link_is_deleted() { wait $removal && ! [ -e /sys/class/infiniband/rxe0 ]; }

run_test serve_listens start_serve
run_test the_device_goes the_device_goes
run_test load_ends ended_well $load /tmp/load.err
run_test serve_ends ended_well $serve "$LOGS/serve.stderr"
run_test an_idle_serve_ends ended_well $idle /tmp/idle.err
run_test the_link_is_deleted the_link_is_deleted
