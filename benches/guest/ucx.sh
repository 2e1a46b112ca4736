# shellcheck shell=dash
# The peer of row A19: UCX gets into memory that is registered each time, and puts from it.
# limit: 120
. /h/guest/figures.sh
export UCX_MODULE_DIR=/h/lib/ucx UCX_TLS=rc_verbs UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=1
# No cache of registrations, and no copy instead of a registration.
export UCX_RCACHE_ENABLE=n UCX_IB_REG_METHODS=direct UCX_ZCOPY_THRESH=0

# Both ways in turns.
moves() { # bytes iterations
    for way in get put; do
        peer_sample "${way}_$1" ucx_rma 10.9.0.1 $way "$1" "$2" || return 1
    done
}

keys_of() { # bytes
    echo "get_$1 put_$1"
}

rounds bytes_4096 "$(keys_of 4096)" moves 4096 2000
rounds bytes_1048576 "$(keys_of 1048576)" moves 1048576 60
