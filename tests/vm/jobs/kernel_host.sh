# shellcheck shell=dash
# The Linux kernel's NVMe host on a disk that frwr-reactor serves.
# tools: nvme:nvme-cli
# limit: 120
ADDRESS=10.9.0.1
PORT=4420
NQN=nqn.2026-11.invalid.frwr:file
said() { grep -q "$1" "$LOGS/serve.stderr"; }

head -c 67108864 /dev/urandom > /tmp/served
start_serve() { # arguments...
    frwr-reactor serve --device rxe0 --listen $ADDRESS:$PORT --namespace /tmp/served --cores 0 --json "$@" \
        > "$LOGS/serve.json" 2> "$LOGS/serve.stderr" &
    serve=$!
    wait_for 30 said '^listening on' || { cat "$LOGS/serve.stderr"; return 1; }
}
modules() { load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvme-core nvme-fabrics nvme-rdma crc32c_generic libcrc32c crc16 mbcache jbd2 ext4; }
conn() {
    echo "transport=rdma,traddr=$ADDRESS,trsvcid=$PORT,nqn=$NQN,nr_io_queues=1,queue_size=64" > /dev/nvme-fabrics
    code=$?
    dmesg | tail -20
    wait_for 10 test -b /dev/nvme0n1
    return $code
}
dd_md5() {
   dd if=/dev/nvme0n1 bs=64k iflag=direct 2>/dev/null| md5sum ; md5sum /tmp/served
   nvme id-ctrl /dev/nvme0; nvme id-ns /dev/nvme0n1; nvme smart-log /dev/nvme0;  nvme error-log /dev/nvme0; nvme list
}
run_test modules modules
run_test serve_listens start_serve
run_test conn conn
run_test dd_md5 dd_md5
[ ! -e /sys/class/nvme/nvme0 ] || echo 1 > /sys/class/nvme/nvme0/delete_controller
kill -TERM $serve; wait $serve
cat $LOGS/serve.json
