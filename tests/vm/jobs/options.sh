# shellcheck shell=dash
# Options of the device on the wire, and what a person is told where one cannot be.
# tools: setpriv:util-linux
. /h/guest/halves.sh
make_served 1048576

OPTIONS="--gid-index 1 --ib-port 1 --traffic-class 32 --ack-timeout 16 --retry-count 5 --rnr-retry-count 5"

load_with() { # options...
    load_file --bytes "$BYTES" --expect-sha256 "$DIGEST" --runtime 1 --json "$@" | tee /dev/stderr |
        grep -q '"verified":true'
}

# Root may lock what it wants by this capability.
limited() { # KiB command...
    local limit=$1
    shift
    (ulimit -l "$limit" && exec /h/bin/setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$@")
}

load_with_little_memory() { limited 64 /h/bin/frwr load --device rxe0 --connect "$ADDRESS" --cores 1 --runtime 1; }
serve_with_little_memory() {
    limited 64 timeout 60 /h/bin/frwr serve --device rxe0 --listen 10.9.0.1:4421 --namespace $SERVED --cores 0
}

LITTLE_MEMORY='^error: .*locked memory.* 64 KiB.*ulimit -l'

run_test serve_listens start_serve
# shellcheck disable=SC2086
run_test every_option_but_the_mtu load_with $OPTIONS
run_test a_gid_index_that_does_not_exist fails_with 1 '^error: .*GID.* 200' load_file --gid-index 200
run_test a_port_that_does_not_exist fails_with 1 '^error: .*port.* 9' load_file --ib-port 9
run_test a_bad_mtu fails_with 2 '^error: --mtu is 1500: must be 256,' load_file --mtu 1500
run_test a_bad_retry_count fails_with 2 '^error: --retry-count is 8: must be from 0 to 7' load_file --retry-count 8
run_test a_device_that_does_not_exist fails_with 1 '^error: there is no RDMA device mlx5_0; devices here: rxe0' \
    frwr load --device mlx5_0 --connect "$ADDRESS"
run_test an_address_of_nobody fails_with 1 '^error: --listen 10.77.0.1:4420: .*(errno 99 EADDRNOTAVAIL)' \
    frwr serve --device rxe0 --listen 10.77.0.1:4420 --namespace $SERVED --cores 0
run_test load_with_little_memory fails_with 1 "$LITTLE_MEMORY" load_with_little_memory
run_test serve_with_little_memory fails_with 1 "$LITTLE_MEMORY" serve_with_little_memory
run_test serve_ends end_serve
# The connection manager does not negotiate it: both sides are told.
# shellcheck disable=SC2086
run_test serve_takes_every_option start_serve --mtu 1024 $OPTIONS
# shellcheck disable=SC2086
run_test every_option load_with --mtu 1024 $OPTIONS
run_test serve_ends_again end_serve
