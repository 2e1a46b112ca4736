# shellcheck shell=dash
# The Linux kernel's NVMe host on a disk that frwr serves: discovery, nvme-cli, a file system, verified load, and
# what happens when one side goes away. Needs the program frwr, built with the feature verbs.
# tools: nvme:nvme-cli fio:fio mkfs.ext4:e2fsprogs fsck.ext4:e2fsprogs
# limit: 300
IP=10.9.0.1
PORT=4420
NQN=nqn.2026-11.invalid.frwr:disk
HOST=nqn.2026-11.invalid.frwr:kernel
SERVED=/tmp/served
SYSTEM=/tmp/mnt
RAM_DISK=/dev/ram0
CONFIGURATION=/tmp/serve.toml
# Bit of a file's flags in /proc, x86-64.
O_DIRECT=040000
# Seconds between attempts of the host to connect again; it gives up after ten minutes.
RECONNECT_DELAY=1
# shellcheck source=tests/vm/guest/trace.sh
. /h/guest/trace.sh

begin_modules() {
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvme-core nvme-fabrics nvme-rdma \
        crc32c_generic libcrc32c crc16 mbcache jbd2 ext4 && mkdir -p "$SYSTEM" /etc/nvme /run/nvme
}

said() { grep -q "$1" "$LOGS/$serve_log.stderr"; }

# A target of its own log files; $serve is its process.
serve() { # log_name arguments...
    serve_log=$1
    shift
    frwr serve --json "$@" > "$LOGS/$serve_log.json" 2> "$LOGS/$serve_log.stderr" &
    serve=$!
    wait_for 60 said '^listening on' || { cat "$LOGS/$serve_log.stderr"; return 1; }
}
serve_namespace() { # log_name file_or_device arguments...
    local name=$1 path=$2
    shift 2
    serve "$name" --device rxe0 --listen $IP:$PORT --cores 0 --subsystem $NQN --allow-host $HOST \
        --namespace "$path" --backing auto "$@"
}
start_serve() { # log_name arguments...
    local name=$1
    shift
    serve_namespace "$name" $SERVED "$@"
}

# Its counters are then in the JSON.
end_serve() {
    kill -TERM "$serve" && wait "$serve"
    code=$?
    cat "$LOGS/$serve_log.json" "$LOGS/$serve_log.stderr"
    [ $code -eq 0 ]
}

# A counter of the target's report.
counter() { # name
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$LOGS/$serve_log.json"
}

# The host's controller, such as nvme0, and its disk: with multipath, nvme0c0n1 is a path to it and no device.
controller() { for path in /sys/class/nvme/nvme*; do [ ! -e "$path" ] || echo "${path##*/}"; done; }
disk() {
    for path in /dev/nvme[0-9]n1; do [ ! -b "$path" ] || { echo "$path"; return; }; done
    return 1
}
state() { cat "/sys/class/nvme/$(controller)/state"; }
is_live() { [ "$(state 2> /dev/null)" = live ]; }

connect() {
    nvme connect -t rdma -a $IP -s $PORT -n $NQN -q $HOST -i 2 -Q 64 --reconnect-delay=$RECONNECT_DELAY || return 1
    wait_for 20 disk > /dev/null && wait_for 10 is_live
}
disconnect() { nvme disconnect -n $NQN | tee /dev/stderr | grep -q 'disconnected 1' && ! disk; }

# How often the host set up a session again by itself, so far.
reconnects() { dmesg | grep -c 'Successfully reconnected'; }

# On the disk only: without it, fio would make a file of its name.
fio_on_disk() { fio --filename="$(disk)" --allow_file_create=0 --direct=1 --ioengine=libaio "$@"; }

md5_of() { dd if="$1" bs=64k iflag=direct 2> /dev/null | md5sum | cut -d ' ' -f 1; }

discover() {
    nvme discover -t rdma -a $IP -s $PORT -q $HOST | tee /tmp/discovered
    grep -q "subnqn: *$NQN" /tmp/discovered && grep -q 'trtype: *rdma' /tmp/discovered || return 1
    # Whoever may not connect does not see it.
    ! nvme discover -t rdma -a $IP -s $PORT -q nqn.2026-11.invalid.frwr:stranger | grep -q "$NQN"
}
a_stranger_is_refused() { ! nvme connect -t rdma -a $IP -s $PORT -n $NQN -q nqn.2026-11.invalid.frwr:stranger; }

the_disk_holds_what_is_served() { [ "$(md5_of "$(disk)")" = "$(md5sum < $SERVED | cut -d ' ' -f 1)" ]; }

nvme_cli() {
    device=/dev/$(controller)
    nvme list && nvme list-subsys && nvme id-ctrl "$device" && nvme id-ns "$(disk)" && nvme ns-descs "$(disk)" || return 1
    nvme smart-log "$device" && nvme error-log "$device" && nvme fw-log "$device" && nvme effects-log "$device" || return 1
    nvme ana-log "$device" && nvme changed-ns-list-log "$device" || return 1
    for feature in 1 2 4 5 6 7 10 11 15; do nvme get-feature "$device" -f $feature || return 1; done
    nvme id-ctrl "$device" | grep -q "^subnqn *: *$NQN" || return 1
    for property in 0x0 0x8 0x14 0x1c; do nvme get-property "$device" -o $property -H || return 1; done
}
nvme_cli_io() {
    head -c 4096 /dev/urandom > /tmp/block
    nvme write "$(disk)" -s 7 -c 0 -z 4096 -d /tmp/block && nvme compare "$(disk)" -s 7 -c 0 -z 4096 -d /tmp/block || return 1
    ! nvme compare "$(disk)" -s 8 -c 0 -z 4096 -d /tmp/block || return 1
    nvme write-zeroes "$(disk)" -s 7 -c 0 && nvme read "$(disk)" -s 7 -c 0 -z 4096 -d /tmp/zeroes || return 1
    [ "$(tr -d '\0' < /tmp/zeroes | wc -c)" -eq 0 ] && nvme dsm "$(disk)" -d -s 0 -b 16 && nvme flush "$(disk)" || return 1
    # The failed compare is in the log.
    nvme error-log "/dev/$(controller)" | grep -q -i 'compare'
}

# The second MiB: what lies around it stays. In the file it becomes a hole.
the_host_discards() {
    local before
    before=$(around_the_second_mib | md5sum)
    busybox blkdiscard -o 1048576 -l 1048576 "$(disk)" || return 1
    [ "$(dd if="$(disk)" bs=64k skip=16 count=16 iflag=direct | tr -d '\0' | wc -c)" -eq 0 ] &&
        [ "$(around_the_second_mib | md5sum)" = "$before" ]
}
around_the_second_mib() {
    dd if="$(disk)" bs=64k count=16 iflag=direct && dd if="$(disk)" bs=64k skip=32 count=16 iflag=direct
}

# A tree of files: every program and script of this job.
copy_a_tree() {
    mkfs.ext4 -q -F "$(disk)" && mount -t ext4 "$(disk)" $SYSTEM || return 1
    mkdir $SYSTEM/tree && cp -r /h/jobs /h/guest /h/modules $SYSTEM/tree || return 1
    (cd $SYSTEM/tree && find . -type f -exec md5sum {} + > /tmp/sums) && cp /tmp/sums $SYSTEM/sums
    umount $SYSTEM && fsck.ext4 -f -n "$(disk)"
}
the_tree_is_there_after_a_new_session() {
    disconnect && connect || return 1
    mount -t ext4 -o ro "$(disk)" $SYSTEM || return 1
    (cd $SYSTEM/tree && md5sum -c -s ../sums)
    code=$?
    wc -l $SYSTEM/sums
    umount $SYSTEM
    return $code
}

# Random reads and writes of mixed sizes at depth 32, each block verified.
verified_load() { # seconds arguments...
    seconds=$1
    shift
    fio_on_disk --name=mix --iodepth=32 --rw=randrw --bsrange=4k-128k \
        --verify=crc32c --verify_backlog=256 --size=48m --time_based --runtime="$seconds" --randseed=7 "$@"
}
written_and_verified() {
    fio_on_disk --name=whole --iodepth=32 --rw=randwrite --bs=4k \
        --verify=crc32c --do_verify=1 --size=16m
}

# Requests of the path to the disk; the disk itself counts none where multipath is on.
requests() { cat /sys/block/nvme*c*n1/stat | awk '{ print $1 + $5 }'; }
more_requests() { [ "$(requests)" -gt "$1" ]; }
# Starts verified load, and returns when it runs.
start_load() { # command...
    seen=$(requests)
    "$@" > /tmp/fio.log 2>&1 &
    load=$!
    wait_for 60 more_requests $((seen + 200)) || { cat /tmp/fio.log; return 1; }
}

# The load ends with errors, and nothing hangs.
disconnect_under_load() {
    start_load verified_load 60 || return 1
    disconnect
    code=$?
    wait $load
    echo "fio ended with $?"
    tail -n 5 /tmp/fio.log
    [ $code -eq 0 ] && connect && the_disk_answers
}
the_disk_answers() { dd if="$(disk)" of=/dev/null bs=64k count=16 iflag=direct; }

# What the target does not end in order leaves the host without an answer.
kill_serve() {
    kill -KILL "$serve"
    wait "$serve"
    echo "serve ended with $?"
}

# The target goes away under load that writes, and comes back with the same file. The host's I/O waits meanwhile; what was not
# answered it sends again, and every block that is read holds what was written there last.
target_comes_back() { # log_name least_commands_sent_again command_that_ends_serve
    before=$(reconnects)
    begin_trace nvme_failover_req || return 1
    start_load verified_load 4 || return 1
    "$3" && start_serve "$1" || return 1
    wait $load
    code=$?
    cat /tmp/fio.log
    end_trace || return 1
    sent_again=$(calls nvme_failover_req)
    note "target $1 under load: the host reconnected $(($(reconnects) - before)) times and sent $sent_again commands again"
    [ $code -eq 0 ] && wait_for 20 is_live && [ "$(reconnects)" -gt "$before" ] && [ "$sent_again" -ge "$2" ] &&
        the_disk_holds_what_is_served
}

ram_disk() { insmod /h/modules/brd.ko rd_nr=1 rd_size=65536 && [ -b $RAM_DISK ]; }

serve_a_block_device() { serve_namespace block_device $RAM_DISK --in-capsule 0; }

# As serve says, which would say so otherwise, and as the kernel says of its file.
past_the_page_cache() {
    local file flags opened=0
    cat "$LOGS/$serve_log.stderr"
    said "^$RAM_DISK: 67108864 bytes, io_uring\$" && ! said 'page cache' && ! said 'io_uring is refused' || return 1
    for file in /proc/$serve/fd/*; do
        [ "$(readlink "$file")" = $RAM_DISK ] || continue
        flags=$(sed -n 's/^flags:[[:space:]]*//p' "/proc/$serve/fdinfo/${file##*/}")
        echo "$file: flags $flags"
        [ $((flags & O_DIRECT)) -ne 0 ] || return 1
        opened=$((opened + 1))
    done
    [ $opened -gt 0 ]
}

the_block_device_holds_what_the_disk_holds() { [ "$(md5_of "$(disk)")" = "$(md5_of $RAM_DISK)" ]; }

# By a file instead of the command line, with what is off unless it is asked for: receives that connections share, several data
# blocks per command; and hosts that kill their keys themselves.
serve_by_a_file() {
    cat > $CONFIGURATION << END
device = "rxe0"
listen = "$IP:$PORT"
cores = "0"
queue_depth = 64
hosts = 2
in_capsule = 4096
data_blocks = 4
shared_receives = 512
remote_invalidate = false

[[subsystem]]
nqn = "$NQN"
allowed_hosts = ["$HOST"]
serial = "BY-A-FILE"

[[subsystem.namespace]]
file = "$SERVED"
END
    frwr serve --config $CONFIGURATION --check-config && serve configured --config $CONFIGURATION
}

the_host_sees_what_the_file_says() {
    nvme id-ctrl "/dev/$(controller)" > /tmp/controller
    cat /tmp/controller
    grep -q '^msdbd *: 4$' /tmp/controller && grep -q '^ioccsz *: 260$' /tmp/controller &&
        grep -q '^sn *: BY-A-FILE' /tmp/controller
}

# All of them were given back.
receives_were_shared() {
    end_serve && [ "$(counter shared_receives)" -eq 512 ] && [ "$(counter shared_receives_withdrawn)" -eq 0 ]
}

# What the kernel does with the host's keys, from before the host connects until the target has ended: then nothing is under way.
begin_keys() { begin_trace rxe_reg_fast_mr rxe_invalidate_mr nvme_rdma_inv_rkey_done; }

# 500 reads, then 128 writes, each read back and verified. No more: the tracer slows an emulated machine down.
io_with_keys() {
    fio_on_disk --name=keys --iodepth=8 --rw=randread --bs=4k --number_ios=500 --size=16m &&
        fio_on_disk --name=verified --iodepth=8 --rw=randwrite --bs=64k --size=8m --verify=crc32c --do_verify=1
}

# Each registration is a command whose key the target killed or left to the host; each key that it killed, a message of its
# killed; each other one, a LOCAL_INV of the host's, which completed.
keys_are_counted_one_for_one() { # killed by: target, host
    end_trace || return 1
    local registered completed answers commands by_target by_host
    registered=$(calls rxe_reg_fast_mr) completed=$(calls nvme_rdma_inv_rkey_done)
    answers=$(calls rxe_invalidate_mr rxe_responder) commands=$(calls rxe_invalidate_mr rxe_requester)
    by_target=$(counter remote_invalidations) by_host=$(counter plain_responses)
    note "keys of the host, a session whose $1 kills them: $registered registered; killed by the target $answers, by its own" \
        "counter $by_target; by LOCAL_INV $commands, by our counter $by_host"
    [ "$registered" -eq $((by_target + by_host)) ] && [ "$answers" -eq "$by_target" ] && [ "$commands" -eq "$by_host" ] &&
        [ "$completed" -eq "$by_host" ] || return 1
    if [ "$1" = target ]; then [ "$by_target" -gt 500 ]; else [ "$by_host" -gt 500 ] && [ "$by_target" -eq 0 ]; fi
}

run_test modules begin_modules
head -c 67108864 /dev/urandom > $SERVED
run_test serve_listens start_serve served
run_test discover discover
run_test a_stranger_is_refused a_stranger_is_refused
run_test connect connect
run_test the_disk_holds_what_is_served the_disk_holds_what_is_served
run_test nvme_cli nvme_cli
run_test nvme_cli_io nvme_cli_io
run_test the_host_discards the_host_discards
run_test copy_a_tree copy_a_tree
run_test the_tree_is_there_after_a_new_session the_tree_is_there_after_a_new_session
run_test written_and_verified written_and_verified
run_test verified_load verified_load 4
run_test disconnect_under_load disconnect_under_load
run_test target_restarted_under_load target_comes_back restarted 0 end_serve
run_test target_killed_under_load target_comes_back killed 1 kill_serve
run_test disconnect disconnect
run_test serve_ends end_serve
run_test ram_disk ram_disk
run_test begin_keys begin_keys
run_test serve_a_block_device serve_a_block_device
run_test past_the_page_cache past_the_page_cache
run_test connect_to_a_block_device connect
run_test io_with_keys io_with_keys
run_test the_block_device_holds_what_the_disk_holds the_block_device_holds_what_the_disk_holds
run_test disconnect_from_a_block_device disconnect
run_test serve_of_a_block_device_ends end_serve
run_test keys_are_invalidated_by_the_target keys_are_counted_one_for_one target
run_test begin_keys_with_plain_sends begin_keys
run_test serve_by_a_file serve_by_a_file
run_test connect_again connect
run_test the_host_sees_what_the_file_says the_host_sees_what_the_file_says
run_test io_with_plain_sends io_with_keys
run_test disconnect_with_plain_sends disconnect
run_test receives_were_shared receives_were_shared
run_test keys_are_invalidated_by_the_host keys_are_counted_one_for_one host
run_test serve_with_plain_sends start_serve plain --no-remote-invalidate --in-capsule 0
run_test connect_at_the_end connect
run_test verified_load_with_plain_sends verified_load 2
run_test disconnect_at_the_end disconnect
run_test serve_ends_at_the_end end_serve
# One for each time that the target came back; more are sessions that broke by themselves, and were made again.
note "the kernel's host reconnected $(reconnects) times by itself"
