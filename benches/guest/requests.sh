# shellcheck shell=dash
# Rows A14 and A15: 4 KiB requests with a key each, with one key for the whole run, and with ibv_reg_mr for each, ours and with one at a
# time the bare loop's. What is compared takes turns, on the same processor. Counts of rows A10 to A12 come along.
# Where one request is under way at a time its median counts: the host takes processors away, which neither side can see, and a mean
# has all of that in it.
# limit: 540
. /h/guest/figures.sh
# The processor of all that is measured: the one that `latency` has its reactor on.
PROCESSOR=1

# Time per request and median of ours. The median is of one request's latency: with one at a time that is the time per request.
ours() { # key arguments...
    key=$1
    shift
    latency --op request --runtime 0.5 --warm-up 0.2 "$@" && sample "$key" "$(us_per_request)" && sample "${key}_median" "$(reported p50)"
}

# The same of a peer.
peer() { # key command...
    key=$1
    shift
    peer_sample "$key" taskset -c $PROCESSOR "$@" && peer_median "${key}_median"
}

counts() { # depth
    sample "doorbells_$1" "$(reported doorbells_per_request)"
    sample "work_requests_$1" "$(reported work_requests_per_request)"
    sample "completions_$1" "$(reported send_completions_per_request)"
}

turns() { # depth
    ours "static_$1" --key static --size 4096 --depth "$1" &&
        ours "request_$1" --key request --size 4096 --depth "$1" && counts "$1" &&
        ours "memory_$1" --key memory --size 4096 --depth "$1"
}

# The bare loop's, beside ours once more.
loops() {
    ours beside_1 --key request --size 4096 --depth 1 &&
        peer loop_static_1 verbs_request rxe0 static 4096 1 4000 && peer loop_reg_mr_1 verbs_request rxe0 reg_mr 4096 1 4000
}

# Each key, and its median's.
both() { # key...
    for each in "$@"; do echo "$each ${each}_median"; done
}

for depth in 1 8 32; do
    # Means of many at a time have in them whatever the host does meanwhile: each side wants a turn without.
    # shellcheck disable=SC2034  # figures.sh reads it
    if [ $depth = 1 ]; then ROUNDS=9; else ROUNDS=7; fi
    rounds "depth_$depth" "$(both static_$depth request_$depth memory_$depth) doorbells_$depth work_requests_$depth completions_$depth" \
        turns $depth
done
ROUNDS=9
rounds loops "$(both beside_1 loop_static_1 loop_reg_mr_1)" loops
