# shellcheck shell=dash
# Row A13: system calls and page faults per request in steady state, of the threads that carry reactors. For the calls two runs of
# different length are counted, and the difference is per request: what begins and ends a run cancels. Page faults are the client's own
# count, from the beginning of its measurement to the end of the last request. The peer is a process of its own.
# On rxe a post of sends is write(2) with command 28 (IB_USER_VERBS_CMD_POST_SEND) to the device file; posts of receives and
# polls are memory only. The main thread, which waits and tests the device at first, is not counted.
# tools: strace:strace
# limit: 150
. /h/guest/figures.sh
PORT=7471
FEW=4000
MANY=24000

start_server() {
    frwr latency --device rxe0 --listen 10.9.0.1:$PORT > /tmp/server.out 2>&1 &
    server=$!
    wait_for 30 grep -qs '^listening on' /tmp/server.out || { cat /tmp/server.out; return 1; }
}

# Without a warm-up calls are counted, so that requests are those that are reported; page faults behind one, since the first time that a
# piece of the program runs is no steady state.
client() { # iterations
    kill -0 $server 2> /dev/null || start_server || return 1
    # shellcheck disable=SC2086  # words of a command
    timeout -s KILL 100 $under /h/bin/frwr latency 10.9.0.1:$PORT --device rxe0 --op request --key request --size 4096 \
        --depth 32 --cores 1 --warm-up $warm_up --iterations "$1" --json > /tmp/latency.out 2> /tmp/latency.err
    code=$?
    keep_report
    cat /tmp/latency.json
    [ $code -eq 0 ] || { tail -n 1 /tmp/latency.err; return 1; }
}

# Posts, and other calls, of all threads but the first two: the program's own, and the one that gives it its stack. A call that was interrupted by another thread's is shown in two
# lines; its end does not count.
calls_of() {
    awk '
        $2 ~ /^(<\.\.\.|---|\+\+\+)/ { next }
        !($1 in seen) { seen[$1]; if (++started <= 2) waits[$1] }
        $1 in waits { next }
        $2 ~ /^write\(/ && $3 ~ /^"\\34\\0\\0\\0/ { posts++; next }
        { others++ }
        END { print posts + 0, others + 0 }' /tmp/calls
}

per_request() { # few many [requests]
    awk -v few="$1" -v many="$2" -v requests="${3:-$((MANY - FEW))}" 'BEGIN { printf "%.6f\n", (many - few) / requests }'
}

doorbells() { awk -v each="$(reported doorbells_per_request)" -v requests="$1" 'BEGIN { printf "%.0f\n", each * requests }'; }

# Posts, other calls and doorbells of one run, in $posts, $others and $rung.
count_calls() { # iterations
    client "$1" || return 1
    read -r posts others << END
$(calls_of)
END
    rung=$(doorbells "$1")
    echo "$1 requests: $posts posts, $others other calls, $rung doorbells"
}

system_calls() {
    under="strace -f -o /tmp/calls" warm_up=0
    count_calls $FEW || return 1
    few_posts=$posts few_others=$others few_rung=$rung
    count_calls $MANY || return 1
    sample posts "$(per_request "$few_posts" "$posts")"
    sample posts_expected "$(per_request "$few_rung" "$rung")"
    sample calls_but_posts "$(per_request "$few_others" "$others")"
}

# Of the process from its first instruction to its last. Runs differ there by some: where memory comes from in which the report is
# made depends on what was freed before.
faults() { sed -n 's/.*Minor (reclaiming a frame) page faults: *//p' /tmp/latency.err; }

page_faults() {
    under="busybox time -v" warm_up=0.05
    client $FEW || return 1
    few=$(faults)
    client $MANY || return 1
    echo "page faults of whole runs: $few of $FEW requests, $(faults) of $MANY"
    echo "page faults while $MANY requests were measured: $(reported page_faults), $(reported page_faults_of_process) of the process"
    [ -n "$(reported page_faults)" ] && [ -n "$(reported page_faults_of_process)" ] || return 1
    sample faults_of_reactor "$(per_request 0 "$(reported page_faults)" $MANY)"
    sample faults_of_process "$(per_request 0 "$(reported page_faults_of_process)" $MANY)"
    sample faults_of_run "$(per_request "$few" "$(faults)")"
}

# Counts are exact, so that one round is enough.
# shellcheck disable=SC2034  # figures.sh reads it
ROUNDS=1
start_server
rounds system_calls "posts posts_expected calls_but_posts" system_calls
rounds page_faults "faults_of_reactor faults_of_process faults_of_run" page_faults
kill $server 2> /dev/null
wait
