# shellcheck shell=dash
# Rows A16 and A19: keys that are made and killed, 32 per doorbell, beside ibv_reg_mr and ibv_dereg_mr, UCX, and a bare loop of windows;
# and one at a time.
# limit: 400
. /h/guest/figures.sh
# A key takes microseconds, and samples of either side differ by half and more: more of them find both sides undisturbed.
# shellcheck disable=SC2034  # figures.sh reads it
ROUNDS=9
export UCX_MODULE_DIR=/h/lib/ucx UCX_TLS=rc_verbs UCX_NET_DEVICES=rxe0:1
# No cache of registrations.
export UCX_RCACHE_ENABLE=n UCX_IB_REG_METHODS=direct
# The processor that `latency` has its reactor on.
PROCESSOR=1

turns() { # bytes iterations_of_reg_mr
    latency --op register --batch 32 --size "$1" --runtime 0.5 --warm-up 0.2 && sample "windows_$1" "$(us_per_request)" &&
        peer_sample "reg_mr_$1" verbs_keys rxe0 reg_mr "$1" "$2" &&
        peer_sample "windows_loop_$1" verbs_keys rxe0 windows "$1" 200
}

# One after the other, as UCX has them, and 32 behind one doorbell.
beside_ucx() { # bytes iterations_of_ucx
    latency --op register --batch 32 --size "$1" --runtime 0.5 --warm-up 0.2 && sample "beside_$1" "$(us_per_request)" &&
        latency --op register --batch 1 --size "$1" --runtime 0.5 --warm-up 0.2 && sample "single_$1" "$(us_per_request)" &&
        peer_sample "ucx_$1" taskset -c $PROCESSOR ucx_keys "$1" "$2"
}

keys_of() { # bytes
    echo "windows_$1 reg_mr_$1 windows_loop_$1"
}

# Fewer where one takes longer.
rounds keys_4096 "$(keys_of 4096)" turns 4096 300
rounds keys_1048576 "$(keys_of 1048576)" turns 1048576 100
rounds keys_16777216 "$(keys_of 16777216)" turns 16777216 20
rounds ucx_4096 "beside_4096 single_4096 ucx_4096" beside_ucx 4096 4000
rounds ucx_1048576 "beside_1048576 single_1048576 ucx_1048576" beside_ucx 1048576 2000
