# shellcheck shell=dash
# A26: a message there and back where both ends sleep for each, beside perftest, whose loop in C waits by ibv_get_cq_event; and polling.
# Half a round trip in microseconds, the median of a run, as perftest has it. Both have a process on each processor.
# tools: ib_send_lat:perftest taskset:util-linux
# limit: 300
. /h/guest/figures.sh
MESSAGES=300

heard() { grep -qs '^listening on' /tmp/server.err; }

# Both ends of frwr latency, with these options on either side; the report is /tmp/latency.json.
ours() { # arguments...
    rm -f /tmp/server.err /tmp/latency.json
    /h/bin/frwr latency --device rxe0 --cores 0 "$@" > /tmp/server.out 2> /tmp/server.err &
    server=$!
    wait_for 30 heard || { cat /tmp/server.err; return 1; }
    timeout -s KILL 60 /h/bin/frwr latency 10.9.0.1 --device rxe0 --cores 1 --op send --size 64 --iterations $MESSAGES \
        --warm-up 0.1 --json "$@" > /tmp/latency.out 2> /tmp/latency.err
    code=$?
    kill -TERM $server
    wait $server
    keep_report
    echo "$*: $(cat /tmp/latency.json)"
    [ $code -eq 0 ] || { tail -n 1 /tmp/latency.err; return 1; }
}

# The same of perftest; its server ends with the client.
perftest() { # arguments...
    /h/bin/taskset -c 0 ib_send_lat -F -d rxe0 -x 1 -s 64 -n $MESSAGES "$@" > /tmp/perftest.server 2>&1 &
    server=$!
    wait_for 10 listening 18515 || { cat /tmp/perftest.server; return 1; }
    timeout -s KILL 60 /h/bin/taskset -c 1 ib_send_lat -F -d rxe0 -x 1 -s 64 -n $MESSAGES "$@" 10.9.0.1 > /tmp/perftest 2>&1
    cat /tmp/perftest
    kill $server 2> /dev/null
    wait $server
    awk '$1 == 64 && $5 > 0 { print $5 }' /tmp/perftest > /tmp/typical
    grep -q . /tmp/typical
}

# In turns.
round() {
    ours --idle sleep:0 && sample asleep "$(reported p50)" && sample sleeps "$(reported sleeps_per_request)" &&
        perftest -e && sample asleep_perftest "$(cat /tmp/typical)" &&
        ours --idle spin && sample polling "$(reported p50)" &&
        perftest && sample polling_perftest "$(cat /tmp/typical)"
}

rounds a_message_to_who_sleeps "asleep sleeps asleep_perftest polling polling_perftest" round
