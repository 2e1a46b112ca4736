# shellcheck shell=dash
# Hosts that are killed under load: serve goes on, and keeps nothing of them.
# limit: 120
. /h/guest/halves.sh
make_served 1048576
KILLED=5
CONNECTS=20

resident() { awk '/^VmRSS/ { print $2 }' /proc/$serve/status; }
no_queue_pairs() { [ "$(objects_beside | head -n 1)" = "qp 0" ]; }
objects_are_as_before() { objects_beside > /tmp/now; cmp -s /tmp/before /tmp/now; }

kill_under_load() {
    start_load --runtime 60 || return 1
    # Its loop is at work.
    kill -0 $load && kill -KILL $load
    wait $load
    [ $? -eq 137 ]
}

serves_the_next() {
    load_file --bytes "$BYTES" --expect-sha256 "$DIGEST" --runtime 0 --json > /tmp/report || { cat /tmp/report; return 1; }
    grep -q '"verified":true' /tmp/report
}

the_next_load_is_served() {
    at=0
    while [ $at -lt $KILLED ]; do
        kill_under_load && serves_the_next || return 1
        at=$((at + 1))
    done
}

# Behind what the kills left, which is nothing either.
nothing_is_left_behind() {
    wait_for 20 objects_are_as_before || { cat /tmp/before /tmp/now; return 1; }
    resident=$(resident)
    at=$KILLED
    while [ $at -lt $CONNECTS ]; do
        load_file --bytes 4096 --runtime 0 > /dev/null 2> /tmp/err || { cat /tmp/err; return 1; }
        at=$((at + 1))
    done
    wait_for 20 objects_are_as_before || { cat /tmp/before /tmp/now; return 1; }
    echo "objects of serve:" && cat /tmp/now && rdma res show pd && rdma res show mr
    echo "resident: $resident KiB, after $((CONNECTS - KILLED)) more hosts $(resident) KiB"
    [ "$(resident)" -le $((resident + 256)) ]
}

run_test serve_listens start_serve
run_test the_first_load_is_served serves_the_next
wait_for 20 no_queue_pairs
objects_beside > /tmp/before
run_test the_objects_of_serve_are_seen is_seen /tmp/before
run_test the_next_load_is_served the_next_load_is_served
run_test nothing_is_left_behind nothing_is_left_behind
run_test serve_ends end_serve
