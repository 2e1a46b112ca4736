# shellcheck shell=dash
# Row A13: system calls and page faults per request in steady state. Two runs of different length are counted, and the
# difference is per request: what begins and ends a run cancels. The peer is a process of its own.
# On rxe a post of sends is one write(2) to the device file; posts of receives and polls are memory only.
# tools: strace:strace
# limit: 150
. /h/guest/figures.sh
PORT=7471
FEW=4000
MANY=24000

start_server() {
    frwr-latency --device rxe0 --listen 10.9.0.1:$PORT > /tmp/server.out 2>&1 &
    server=$!
    wait_for 30 grep -qs '^listening on' /tmp/server.out || { cat /tmp/server.out; return 1; }
}

client() { # iterations
    set -- --device rxe0 --op request --key request --size 4096 --depth 32 --iterations "$1" --json "10.9.0.1:$PORT"
    # The server of one client may end with it.
    kill -0 $server 2> /dev/null || start_server || return 1
    timeout -s KILL 100 $under /h/bin/frwr-latency "$@" > /tmp/latency.out 2> /tmp/latency.err
    code=$?
    tail -n 1 /tmp/latency.out > /tmp/latency.json
    cat /tmp/latency.json
    [ $code -eq 0 ] || { tail -n 1 /tmp/latency.err; return 1; }
}

# strace's summary has lines "% seconds usecs calls errors name"; errors may be empty.
calls_of() { awk '$NF == "total" { total = $4 } $NF == "write" { posts = $4 } END { print total + 0, posts + 0 }' /tmp/calls; }

per_request() { awk -v few="$1" -v many="$2" -v requests=$((MANY - FEW)) 'BEGIN { printf "%.6f\n", (many - few) / requests }'; }

doorbells() { awk -v each="$(reported doorbells_per_request)" -v requests="$1" 'BEGIN { printf "%.0f\n", each * requests }'; }

system_calls() {
    under="strace -f -c -o /tmp/calls"
    client $FEW || return 1
    set -- $(calls_of) $(doorbells $FEW)
    client $MANY || return 1
    set -- "$@" $(calls_of) $(doorbells $MANY)
    echo "calls, writes, doorbells: $1 $2 $3 of $FEW requests, $4 $5 $6 of $MANY"
    sample posts "$(per_request "$2" "$5")"
    sample posts_expected "$(per_request "$3" "$6")"
    sample calls_but_posts "$(per_request $(($1 - $2)) $(($4 - $5)))"
}

faults() { sed -n 's/.*Minor (reclaiming a frame) page faults: *//p' /tmp/latency.err; }

page_faults() {
    under="busybox time -v"
    client $FEW || return 1
    few=$(faults)
    client $MANY || return 1
    echo "page faults: $few of $FEW requests, $(faults) of $MANY"
    sample page_faults "$(per_request "$few" "$(faults)")"
}

# Exact, so that one round is enough.
ROUNDS=1
start_server
rounds system_calls "posts posts_expected calls_but_posts" system_calls
rounds page_faults page_faults page_faults
kill $server 2> /dev/null
wait
