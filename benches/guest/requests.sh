# shellcheck shell=dash
# Rows A14, A15 and A19: 4 KiB requests with a key each, with one key for the whole run, and with ibv_reg_mr for each, ours and the bare loop's;
# and beside UCX's gets and puts. What is compared takes turns, on the same processor. Counts of rows A10 to A12 come along.
# Where one request is under way at a time its median counts: the host takes processors away, which neither side can see, and a mean
# has all of that in it.
# limit: 540
. /h/guest/figures.sh
export UCX_MODULE_DIR=/h/lib/ucx UCX_TLS=rc_verbs UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=1
# No cache of registrations, and no copy instead of a registration.
export UCX_RCACHE_ENABLE=n UCX_IB_REG_METHODS=direct UCX_ZCOPY_THRESH=0
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

# Rounds of the loops, so that they take as long as ours.
loop_rounds() { echo $((4000 / $1)); } # depth

turns() { # depth
    ours "static_$1" --key static --size 4096 --depth "$1" &&
        ours "request_$1" --key request --size 4096 --depth "$1" && counts "$1" &&
        ours "memory_$1" --key memory --size 4096 --depth "$1"
}

# The bare loop's, beside ours once more.
loops() { # depth
    ours "beside_$1" --key request --size 4096 --depth "$1" &&
        peer "loop_static_$1" verbs_request rxe0 static 4096 "$1" "$(loop_rounds "$1")" &&
        peer "loop_reg_mr_$1" verbs_request rxe0 reg_mr 4096 "$1" "$(loop_rounds "$1")"
}

# Data that come beside a get, data that go beside a put.
beside_ucx() { # bytes iterations
    ours "come_$1" --key request --size "$1" --depth 1 && peer "get_$1" ucx_rma 10.9.0.1 get "$1" "$2" &&
        ours "go_$1" --key request --peer read --size "$1" --depth 1 && peer "put_$1" ucx_rma 10.9.0.1 put "$1" "$2"
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
    rounds "loops_$depth" "$(both beside_$depth loop_static_$depth loop_reg_mr_$depth)" loops $depth
done
ROUNDS=5
rounds ucx_4096 "$(both come_4096 get_4096 go_4096 put_4096)" beside_ucx 4096 2000
rounds ucx_1048576 "$(both come_1048576 get_1048576 go_1048576 put_1048576)" beside_ucx 1048576 40
