# shellcheck shell=dash
# Rows A17 and A18: unprotected WRITEs beside a bare loop of verbs, on the same processor, and perftest.
# tools: ib_write_lat:perftest ib_write_bw:perftest
# limit: 300
. /h/guest/figures.sh

single() {
    latency --op write --key memory --size 4096 --depth 1 --runtime 0.5 --warm-up 0.2 && sample write_4096 "$(reported p50)" &&
        sample write_mean_4096 "$(us_per_request)" &&
        latency --op write --key static --size 4096 --depth 1 --runtime 0.5 --warm-up 0.2 && sample write_window_4096 "$(reported p50)" && one_at_a_time && peer_sample write_loop_4096 taskset -c 1 verbs_write rxe0 single 4096 8000
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

# 32 WRITEs in rounds, as the loop in C has them, as two operations of 16 ranges: one doorbell and one completion for all. What is said of a
# request is of 16 WRITEs.
round_of_lists() {
    latency --op write --key memory --size 128 --ranges 16 --depth 2 --rounds one --runtime 0.5 --warm-up 0.2 &&
        sample write_list_8 "$(of_16 "$(us_per_request)")" && sample doorbells_list_8 "$(of_16 "$(reported doorbells_per_request)")" &&
        sample completions_list_8 "$(of_16 "$(reported send_completions_per_request)")" &&
        sample work_requests_list_8 "$(of_16 "$(reported work_requests_per_request)")"
}

of_16() { awk -v all="$1" 'BEGIN { printf "%.6f", all / 16 }'; }

# The same as 32 operations: one doorbell for all of a round, or one for each.
round_of() { # one|each
    latency --op write --key memory --size 8 --depth 32 --rounds "$1" --runtime 0.5 --warm-up 0.2 &&
        sample "write_$1_8" "$(us_per_request)" && sample "doorbells_$1_8" "$(reported doorbells_per_request)" &&
        sample "completions_$1_8" "$(reported send_completions_per_request)"
}

batches() {
    peer_sample each_loop_8 taskset -c 1 verbs_write rxe0 each 8 600 && round_of each &&
        peer_sample batched_loop_8 taskset -c 1 verbs_write rxe0 batched 8 600 && round_of_lists &&
        round_of one
}

batched="each_loop_8 batched_loop_8 write_list_8 doorbells_list_8 completions_list_8 work_requests_list_8"
for doorbells in each one; do
    batched="$batched write_${doorbells}_8 doorbells_${doorbells}_8 completions_${doorbells}_8"
done

# The difference of two times, or five percent of one, wants more of them.
# shellcheck disable=SC2034  # figures.sh reads it
ROUNDS=11
rounds single "write_4096 write_mean_4096 write_window_4096 perftest_one_4096 write_loop_4096" single
rounds batches "$batched" batches
ROUNDS=5
rounds perftest perftest_4096 perftest
