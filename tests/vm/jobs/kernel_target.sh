# shellcheck shell=dash
# Our host on the Linux kernel's target (nvmet-rdma): verified load, all block sizes, scatter lists, keys counted on both
# sides, and a target that goes away and comes back.
# Needs the program frwr-reactor, built with the feature verbs.
# limit: 400
ADDRESS=10.9.0.1
PORT=4420
NQN=nqn.2014-08.org.nvmexpress:ram
NVMET=/sys/kernel/config/nvmet
SUBSYSTEM=$NVMET/subsystems/$NQN
T=/sys/kernel/tracing

modules() {
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvmet nvmet-rdma || return 1
    insmod /h/modules/brd.ko rd_nr=1 rd_size=65536 || return 1
    insmod /h/modules/null_blk.ko nr_devices=1 gb=1 memory_backed=1 bs=4096 || return 1
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
}

namespace() { # identifier device
    mkdir -p "$SUBSYSTEM/namespaces/$1" && echo -n "$2" > "$SUBSYSTEM/namespaces/$1/device_path" &&
        echo 1 > "$SUBSYSTEM/namespaces/$1/enable"
}

# One port at a time: both have the same address.
open_port() { # bytes of in-capsule data
    local port=$NVMET/ports/1
    mkdir -p $port && echo rdma > $port/addr_trtype && echo ipv4 > $port/addr_adrfam &&
        echo $ADDRESS > $port/addr_traddr && echo $PORT > $port/addr_trsvcid &&
        echo "$1" > $port/param_inline_data_size && ln -s $SUBSYSTEM $port/subsystems/$NQN
}

close_port() { rm $NVMET/ports/1/subsystems/$NQN && rmdir $NVMET/ports/1; }

subsystem() {
    mkdir -p $SUBSYSTEM && echo 1 > $SUBSYSTEM/attr_allow_any_host && namespace 1 /dev/ram0 && namespace 2 /dev/nullb0 &&
        open_port 16384
}

load_it() { # arguments...
    timeout -s KILL 200 frwr-reactor load --device rxe0 --connect $ADDRESS:$PORT --cores 1 --subsystem $NQN "$@"
}

# One number of the JSON line in /tmp/load.json.
figure() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" /tmp/load.json; }

load_json() { load_it --json "$@" > /tmp/load.json; code=$?; cat /tmp/load.json; return $code; }

mixed_load() { # nsid arguments...
    local nsid=$1
    shift
    load_json --nsid "$nsid" --file /tmp/file --runtime 2 "$@"
}

every_key_killed_by_the_peer() {
    load_json --file /tmp/file --runtime 1 --no-in-capsule && [ "$(figure registrations)" -gt 1000 ] || return 1
    # Connect and Identify open memory as well, without an invitation.
    echo "made $(figure registrations) peer $(figure remote_invalidations) own $(figure local_invalidations)"
    [ "$(figure local_invalidations)" -lt 10 ]
}

block_sizes() { # nsid least
    local size=$2
    while [ "$size" -le 1048576 ]; do
        depth=$((size > 65536 ? 4 : 16))
        load_json --nsid "$1" --file /tmp/small --runtime 0 --block-size $size --queue-depth $depth > /tmp/line || {
            cat /tmp/line
            return 1
        }
        echo "$size: $(figure requests) requests"
        size=$((size * 2))
    done
}

head -c 8388108 /dev/urandom > /tmp/file
head -c 2096652 /dev/urandom > /tmp/small

run_test modules modules
run_test subsystem subsystem
run_test mixed_load_on_a_ram_disk mixed_load 1
run_test mixed_load_on_null_blk mixed_load 2
run_test mixed_load_deep mixed_load 1 --queue-depth 127
run_test mixed_load_without_in_capsule_data mixed_load 1 --no-in-capsule
run_test keys_killed_locally mixed_load 1 --no-in-capsule --no-remote-invalidate
run_test every_key_killed_by_the_peer every_key_killed_by_the_peer
run_test block_sizes_on_a_ram_disk block_sizes 1 512
run_test block_sizes_on_null_blk block_sizes 2 4096
run_test port_closes close_port
