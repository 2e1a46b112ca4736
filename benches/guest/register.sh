# shellcheck shell=dash
# Row A16: keys that are made and killed, 32 per doorbell, beside ibv_reg_mr and ibv_dereg_mr and a bare loop of windows.
# limit: 300
. /h/guest/figures.sh
# A key takes microseconds, and samples of either side differ by half and more: more of them find both sides undisturbed.
# shellcheck disable=SC2034  # figures.sh reads it
ROUNDS=9

turns() { # bytes iterations_of_reg_mr
    latency --op register --batch 32 --size "$1" --runtime 0.5 --warm-up 0.2 && sample "windows_$1" "$(us_per_request)" &&
        peer_sample "reg_mr_$1" verbs_keys rxe0 reg_mr "$1" "$2" &&
        peer_sample "windows_loop_$1" verbs_keys rxe0 windows "$1" 200
}

keys_of() { # bytes
    echo "windows_$1 reg_mr_$1 windows_loop_$1"
}

# Fewer where one takes longer.
rounds keys_4096 "$(keys_of 4096)" turns 4096 300
rounds keys_1048576 "$(keys_of 1048576)" turns 1048576 100
rounds keys_16777216 "$(keys_of 16777216)" turns 16777216 20
