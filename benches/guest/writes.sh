# shellcheck shell=dash
# Row A17: unprotected WRITEs beside a bare loop of verbs, on the same processor, and perftest.
# tools: ib_write_lat:perftest ib_write_bw:perftest
# limit: 300
. /h/guest/figures.sh

single() {
    latency --op write --key memory --size 4096 --depth 1 --runtime 0.5 --warm-up 0.2 && sample write_4096 "$(reported p50)" &&
        sample write_mean_4096 "$(us_per_request)" &&
        latency --op write --key static --size 4096 --depth 1 --runtime 0.5 --warm-up 0.2 && sample write_window_4096 "$(reported p50)" && one_at_a_time && peer_sample write_loop_4096 taskset -c 1 verbs_write rxe0 4096 8000
}

# Both ends of a program of perftest; its server ends with the client. What the client prints is in /tmp/perftest.
both_ends() { # command...
    "$@" > /tmp/perftest.server 2>&1 &
    server=$!
    wait_for 10 listening 18515 || { cat /tmp/perftest.server; return 1; }
    timeout -s KILL 60 "$@" 10.9.0.1 > /tmp/perftest 2>&1
    code=$?
    cat /tmp/perftest
    kill $server 2> /dev/null
    wait $server
    return $code
}

# One WRITE in flight, each with a completion that is waited for, as ours have it: millions per second, the fifth number of the line of
# results, is one by the time of one.
one_at_a_time() {
    # Where the line is there it has measured; its two ends part from each other behind that, and one may complain.
    both_ends ib_write_bw -F -d rxe0 -x 1 -s 4096 -n 8000 -t 1 -Q 1 --noPeak
    time=$(awk '$1 == 4096 && $5 > 0 { printf "%.3f", 1 / $5 }' /tmp/perftest)
    [ -n "$time" ] && sample perftest_one_4096 "$time"
}

# "t_typical" is the fifth number of its one line; half a round trip of WRITEs that answer each other.
perftest() {
    both_ends ib_write_lat -F -d rxe0 -x 1 -s 4096 -n 2000 || return 1
    typical=$(awk '$1 == 4096 { print $5 }' /tmp/perftest)
    [ -n "$typical" ] && sample perftest_4096 "$typical"
}

# Five percent of a time wants more of them.
# shellcheck disable=SC2034  # figures.sh reads it
ROUNDS=11
rounds single "write_4096 write_mean_4096 write_window_4096 perftest_one_4096 write_loop_4096" single
ROUNDS=5
rounds perftest perftest_4096 perftest
