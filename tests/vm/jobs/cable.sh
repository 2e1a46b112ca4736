# shellcheck shell=dash
# serve and load on two devices with a virtual cable between them: what is moved is on the wire, in packets of the path MTU.
# shellcheck disable=SC2034  # read by halves.sh
SERVE_DEVICE=rxe2 LOAD_DEVICE=rxe1 ADDRESS=10.9.1.2:4420
. /h/guest/halves.sh
make_served 8388000
# Headers of Ethernet, IP, UDP and the transport, and to spare.
HEADERS=128

sent() { cat "/sys/class/net/$1/statistics/tx_$2"; }

# Load in between; says in $load_bytes, $serve_bytes and $serve_packets what the devices have sent.
watched() { # options of load...
    load_bytes=$(sent v0 bytes) serve_bytes=$(sent v1 bytes) serve_packets=$(sent v1 packets)
    load_file --runtime 1 --json "$@" > /tmp/report
    code=$?
    load_bytes=$(($(sent v0 bytes) - load_bytes)) serve_bytes=$(($(sent v1 bytes) - serve_bytes))
    serve_packets=$(($(sent v1 packets) - serve_packets))
    cat /tmp/report
    echo "load sent $load_bytes bytes, serve $serve_bytes in $serve_packets packets"
    [ $code -eq 0 ] && grep -q '"verified":true' /tmp/report
}

# Data goes by RDMA WRITE from serve's device.
the_file_crosses_the_cable() {
    watched --bytes "$BYTES" --expect-sha256 "$DIGEST" --output /tmp/copy && cmp "$SERVED" /tmp/copy &&
        [ "$serve_bytes" -gt "$BYTES" ]
}

# What is written is read by serve's device: answers carry it.
a_file_goes_there_and_back() {
    watched --file /bin/busybox && [ "$load_bytes" -gt "$(stat -c %s /bin/busybox)" ]
}

packets_have_the_path_mtu() {
    watched --bytes "$BYTES" --expect-sha256 "$DIGEST" --mtu 512 && [ "$serve_bytes" -gt "$BYTES" ] &&
        [ "$serve_bytes" -lt $((serve_packets * (512 + HEADERS))) ]
}

is_up() { grep -q ACTIVE /sys/class/infiniband/rxe2/ports/1/state; }

# The listener is there behind that as before, and asks for nothing.
the_link_goes_down_and_up() {
    ip link set v1 down && wait_for 20 eval '! is_up' && ip link set v1 up && wait_for 20 is_up && the_file_crosses_the_cable
}

run_test add_veth_pair add_veth_pair
run_test serve_listens start_serve
run_test the_file_crosses_the_cable the_file_crosses_the_cable
run_test the_link_goes_down_and_up the_link_goes_down_and_up
run_test a_file_goes_there_and_back a_file_goes_there_and_back
run_test serve_ends end_serve
run_test serve_listens_again start_serve --mtu 512
run_test packets_have_the_path_mtu packets_have_the_path_mtu
run_test serve_ends_again end_serve
run_test remove_veth_pair remove_veth_pair
