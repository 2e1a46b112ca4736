# shellcheck shell=dash
# Hostile and confused peers attack the target while the Linux kernel's host works on it: each attack costs only itself,
# and is one line of the target's. Needs the programs frwr and hostile, built with the feature verbs.
# tools: fio:fio rping:rdmacm-utils
# limit: 200
# own-boot
IP=10.9.0.1
PORT=4420
NQN=nqn.2026-11.invalid.frwr:disk
SERVED=/tmp/served
# Each takes a few seconds; far beyond what all attacks take.
LOAD_SECONDS=600

modules() {
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvme-core nvme-fabrics nvme-rdma
}

said() { grep -q "$1" "$LOGS/serve.stderr"; }

start_serve() {
    head -c 33554432 /dev/urandom > $SERVED
    frwr serve --device rxe0 --listen $IP:$PORT --namespace $SERVED --block-size 4096 --subsystem $NQN --cores 0 --json \
        --hosts 8 --in-capsule 4096 > "$LOGS/serve.json" 2> "$LOGS/serve.stderr" &
    serve=$!
    wait_for 60 said '^listening on' || { cat "$LOGS/serve.stderr"; return 1; }
}

connect() {
    echo "transport=rdma,traddr=$IP,trsvcid=$PORT,nqn=$NQN,nr_io_queues=2,queue_size=64" > /dev/nvme-fabrics &&
        wait_for 20 test -b /dev/nvme0n1
}

requests() { cat /sys/block/nvme*n1/stat | awk '{ sum += $1 + $5 } END { print sum }'; }
more_requests() { [ "$(requests)" -gt "$1" ]; }

# Reads and writes whose every block is verified, until it is told to end. The first blocks are left to the attacks: a host that
# vanishes may have written there what the target had fetched of it by then.
start_load() {
    fio --name=mix --filename=/dev/nvme0n1 --allow_file_create=0 --direct=1 --ioengine=libaio --iodepth=16 --rw=randrw \
        --bsrange=4k-64k --verify=crc32c --verify_backlog=64 --offset=4m --size=24m --time_based --runtime=$LOAD_SECONDS > "$LOGS/fio.log" 2>&1 &
    load=$!
    wait_for 60 more_requests 500
}

# Its lines about incidents; numbers of seconds and of requests stand in others.
incidents() { grep -E '^(peer |a peer|[0-9]+ more incidents)' "$LOGS/serve.stderr"; }
lines() { incidents | grep -c -E "$1"; }

# What each attack expects is text, not an expression.
escaped() { sed 's/[][().*^$+?{}\\]/\\&/g'; }

the_attacks() {
    hostile rxe0 $IP:$PORT $NQN > /tmp/attacks
    code=$?
    cat /tmp/attacks
    return $code
}

# One line for each attack, of which some are told in the same words; but for the flood: some of it is told, the rest is counted.
one_line_for_each() {
    local wrong=0 attacks=0 name said found alike tab
    tab=$(printf '\t')
    while IFS=$tab read -r name said; do
        attacks=$((attacks + 1))
        [ "$name" != flood ] || continue
        found=$(lines "$(echo "$said" | escaped)")
        # Whoever vanishes when all its commands were answered already did nothing wrong.
        [ "$name" != vanishes ] || [ "$found" -ne 0 ] || continue
        # On a busy machine connections of the flood, which are silent too, may wait as long.
        [ "$name" != silent ] || [ "$found" -lt 2 ] || continue
        alike=$(cut -f 2 /tmp/attacks | grep -c -x -F -e "$said")
        [ "$found" -eq "$alike" ] || { echo "$name: $found lines with: $said"; wrong=1; }
    done < /tmp/attacks
    incidents
    [ $wrong -eq 0 ] && [ $attacks -gt 25 ]
}

# Debian's test program: it speaks another protocol, and sends no private data.
rping_is_turned_away() {
    before=$(incidents | wc -l)
    timeout 30 rping -c -a $IP -p $PORT -C 1 -d
    code=$?
    one_more() { [ "$(incidents | wc -l)" -gt "$before" ]; }
    wait_for 10 one_more || { echo "no incident was told"; return 1; }
    echo "exit code $code, incidents: $before, then $(incidents | wc -l)"
    incidents | tail -n +$((before + 1))
    [ $code -ne 0 ] && [ "$(incidents | wc -l)" -eq $((before + 1)) ]
}

# Nothing was lost, and nothing had to be sent again.
the_load_is_as_before() {
    seen=$(requests)
    wait_for 30 more_requests $((seen + 500)) || return 1
    kill -INT $load && wait $load
    cat "$LOGS/fio.log"
    ! grep -qE 'verify:|err= *[1-9]|error' "$LOGS/fio.log" && ! dmesg | grep -qE 'nvme.*(reconnect|timeout|I/O error|failed)'
}

disconnect() { for controller in /sys/class/nvme/nvme*; do echo 1 > "$controller/delete_controller"; done; }

counter() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$LOGS/serve.json"; }

# Slots, buffers and queues are as they were at the beginning: all free.
nothing_is_left() {
    local name
    kill -TERM $serve && wait $serve
    code=$?
    cat "$LOGS/serve.json" "$LOGS/serve.stderr"
    [ $code -eq 0 ] || return 1
    for name in commands_in_flight slots_used orphans buffers_used queues; do
        [ "$(counter $name)" -eq 0 ] || { echo "$name: $(counter $name)"; return 1; }
    done
    note "$(counter incidents) incidents, $(counter rejected) of them connect requests; kernel's host undisturbed"
}

run_test modules modules
run_test serve_listens start_serve
run_test connect connect
run_test the_load_runs start_load
run_test the_attacks the_attacks
run_test one_line_for_each one_line_for_each
run_test rping_is_turned_away rping_is_turned_away
run_test the_load_is_as_before the_load_is_as_before
run_test disconnect disconnect
run_test nothing_is_left nothing_is_left
