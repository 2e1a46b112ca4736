# shellcheck shell=dash
# Row A20: our host and the kernel's on the kernel's target with a null_blk device, 4 KiB random reads, in turns. Of the
# kernel's host fio reports the whole latency, from the submission on; of ours `load` does, up to the dead key.
# tools: fio:fio
# limit: 200
# own-boot
. /h/guest/figures.sh
ADDRESS=10.9.0.1
PORT=4420
NQN=nqn.2014-08.org.nvmexpress:null
NVMET=/sys/kernel/config/nvmet
# Small, because `load` reads all of it once and hashes that with nothing in flight, inside the time of its IOPS.
BYTES=1048576

target() {
    local subsystem=$NVMET/subsystems/$NQN port=$NVMET/ports/1
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvmet nvmet-rdma nvme-core \
        nvme-fabrics nvme-rdma && insmod /h/modules/null_blk.ko nr_devices=1 gb=1 memory_backed=1 bs=4096 || return 1
    grep -q ' /sys/kernel/config ' /proc/mounts || mount -t configfs none /sys/kernel/config
    mkdir -p $subsystem/namespaces/1 $port && echo 1 > $subsystem/attr_allow_any_host &&
        echo -n /dev/nullb0 > $subsystem/namespaces/1/device_path && echo 1 > $subsystem/namespaces/1/enable &&
        echo rdma > $port/addr_trtype && echo ipv4 > $port/addr_adrfam && echo $ADDRESS > $port/addr_traddr &&
        echo $PORT > $port/addr_trsvcid && ln -s $subsystem $port/subsystems/$NQN
}

# Terse version 3: field 8 is read IOPS; percentiles, in us, carry their names.
fio_result() { grep '^3;' /tmp/fio.out; }

kernel_host() { # depth
    fio --name=r --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth="$1" --ioengine=libaio --direct=1 --size=$BYTES \
        --time_based --runtime=1 --clat_percentiles=0 --lat_percentiles=1 --percentile_list=50 \
        --output-format=terse --terse-version=3 > /tmp/fio.out || { cat /tmp/fio.out; return 1; }
    sample "kernel_iops_$1" "$(fio_result | cut -d ';' -f 8)"
    sample "kernel_median_$1" "$(fio_result | tr ';' '\n' | sed -n 's/^50.000000%=//p' | head -n 1)"
}

figure() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" /tmp/load.json; }

our_host() { # depth
    timeout -s KILL 60 frwr load --device rxe0 --connect $ADDRESS:$PORT --cores 1 --subsystem $NQN --bytes $BYTES \
        --queue-depth "$1" --runtime 1 --json > /tmp/load.json 2> /tmp/load.err || { cat /tmp/load.json /tmp/load.err; return 1; }
    sample "ours_iops_$1" "$(figure iops)"
    sample "ours_median_$1" "$(figure p50)"
}

# The kernel's host is there only for its turn: it keeps its connection alive by work of its own.
connect() {
    echo "transport=rdma,traddr=$ADDRESS,trsvcid=$PORT,nqn=$NQN,nr_io_queues=1,queue_size=64" > /dev/nvme-fabrics &&
        wait_for 10 test -b /dev/nvme0n1
}

disconnect() { for controller in /sys/class/nvme/nvme*; do echo 1 > "$controller/delete_controller"; done; }

turns() {
    connect && kernel_host 1 && kernel_host 32 && disconnect && our_host 1 && our_host 32
}

keys="kernel_median_1 kernel_iops_1 kernel_median_32 kernel_iops_32 ours_median_1 ours_iops_1 ours_median_32 ours_iops_32"
run_test target target
# A turn is seven seconds, in which the host may do something else: each side wants one in which it did not.
# shellcheck disable=SC2034  # figures.sh reads it
ROUNDS=9
rounds both_hosts "$keys" turns
run_test target_ends eval "rm $NVMET/ports/1/subsystems/$NQN && rmdir $NVMET/ports/1"
