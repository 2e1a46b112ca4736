# shellcheck shell=dash
# The peer of row A19: UCX puts from memory that is registered each time.
# limit: 120
. /h/guest/figures.sh
export UCX_MODULE_DIR=/h/lib/ucx UCX_TLS=rc_verbs UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=1
# No cache of registrations, and no copy instead of a registration.
export UCX_RCACHE_ENABLE=n UCX_IB_REG_METHODS=direct UCX_ZCOPY_THRESH=0

rounds put_4096 ucx_4096 peer_sample ucx_4096 ucx_put 10.9.0.1 4096 2000
rounds put_1048576 ucx_1048576 peer_sample ucx_1048576 ucx_put 10.9.0.1 1048576 60
