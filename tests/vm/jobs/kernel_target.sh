# shellcheck shell=dash
# Our host on the Linux kernel's target (nvmet-rdma): verified load, all block sizes, scatter lists, keys counted on both
# sides, and a target that goes away and comes back.
# Needs the programs frwr and optional-commands, built with the feature verbs.
# limit: 400
# own-boot
ADDRESS=10.9.0.1
PORT=4420
NQN=nqn.2014-08.org.nvmexpress:ram
NVMET=/sys/kernel/config/nvmet
SUBSYSTEM=$NVMET/subsystems/$NQN
# shellcheck source=tests/vm/guest/trace.sh
. /h/guest/trace.sh

modules() {
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvmet nvmet-rdma || return 1
    insmod /h/modules/brd.ko rd_nr=1 rd_size=65536 || return 1
    insmod /h/modules/null_blk.ko nr_devices=1 gb=1 memory_backed=1 bs=4096 || return 1
    grep -q ' /sys/kernel/config ' /proc/mounts || mount -t configfs none /sys/kernel/config
}

namespace() { # identifier device_or_file
    local namespace=$SUBSYSTEM/namespaces/$1
    mkdir -p "$namespace" && echo -n "$2" > "$namespace/device_path" || return 1
    # A file here is in memory, where there is no O_DIRECT.
    [ -b "$2" ] || echo 1 > "$namespace/buffered_io" || return 1
    echo 1 > "$namespace/enable"
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
    head -c 4194304 /dev/zero > /tmp/holes
    mkdir -p $SUBSYSTEM && echo 1 > $SUBSYSTEM/attr_allow_any_host && namespace 1 /dev/ram0 && namespace 2 /dev/nullb0 &&
        namespace 3 /tmp/holes && open_port 16384
}

load_it() { # arguments...
    timeout -s KILL 200 frwr load --device rxe0 --connect $ADDRESS:$PORT --cores 1 --subsystem $NQN "$@"
}

# One number of the JSON line in /tmp/load.json.
figure() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" /tmp/load.json; }

load_json() { load_it --json "$@" > /tmp/load.json; code=$?; cat /tmp/load.json; return $code; }

mixed_load() { # nsid arguments...
    local nsid=$1
    shift
    load_json --nsid "$nsid" --file /tmp/file --runtime 1 "$@"
}

every_key_killed_by_the_peer() {
    load_json --file /tmp/file --runtime 1 --no-in-capsule && [ "$(figure registrations)" -gt 1000 ] || return 1
    # Connect and Identify open memory as well, without an invitation.
    echo "made $(figure registrations) peer $(figure remote_invalidations) own $(figure local_invalidations)"
    [ "$(figure local_invalidations)" -lt 10 ]
}

block_sizes() { # nsid least factor
    local size=$2
    while [ "$size" -le 1048576 ]; do
        depth=$((size > 65536 ? 4 : 16))
        load_json --nsid "$1" --file /tmp/small --runtime 0 --block-size $size --queue-depth $depth > /tmp/line || {
            cat /tmp/line
            return 1
        }
        echo "$size: $(figure requests) requests"
        size=$((size * $3))
    done
}

discovered() {
    frwr discover --device rxe0 --connect $ADDRESS:$PORT | tee /tmp/discovered
    grep -q "^rdma *$ADDRESS *$PORT *nvm *$NQN\$" /tmp/discovered
}

# The kernel reads what was written: that no mistake is made twice in the same way.
disk_has_the_file() { # device file
    cmp -n "$(stat -c %s "$2")" "$1" "$2"
}

lists_of_whole_blocks() {
    load_json --file /tmp/small --block-size 65536 --scatter 4 --queue-depth 8 --runtime 1 || return 1
    [ "$(figure split_requests)" -gt 0 ] && [ "$(figure bounced_commands)" -eq 0 ]
}

lists_that_cut_blocks() { # pieces
    load_json --file /tmp/small --block-size 65536 --scatter "$1" --queue-depth 8 --runtime 1 || return 1
    [ "$(figure bounced_commands)" -gt 0 ] || return 1
    load_json --file /tmp/small --block-size 65536 --scatter "$1" --queue-depth 8 --runtime 0 &&
        disk_has_the_file /dev/ram0 /tmp/small
}

# What of Compare, Write Zeroes and Dataset Management the target offers, and what it leaves behind.
optional_commands() { # nsid what_is_said_of_write_zeroes
    local line
    optional-commands rxe0 $ADDRESS:$PORT $NQN "$1" > /tmp/optional
    code=$?
    cat /tmp/optional
    while read -r line; do note "the kernel's target, namespace $1: $line"; done < /tmp/optional
    [ $code -eq 0 ] && grep -q '^Compare: ' /tmp/optional && grep -q "^Write Zeroes: $2" /tmp/optional &&
        grep -q '^Dataset Management: [0-9]* of 11 ' /tmp/optional
}

# A file gives its blocks back, and has holes there. In memory it cannot be told to fill a range with zeros.
holes_are_zeros() { optional_commands 3 refused && grep -q '^Dataset Management: 11 of 11 ' /tmp/optional; }

four_queues() {
    load_json --file /tmp/file --runtime 1 --queues 4 && [ "$(figure queues)" -eq 4 ]
}

in_load() { grep -qs 'mixed load' /tmp/load.err; }

# Seconds in which no request ended.
still_seconds() { grep -c 'mixed load *0 IOPS' /tmp/load.err; }
more_still_seconds() { [ "$(still_seconds)" -gt "$1" ]; }
# Does something to the target, and waits until the load stands still.
stands_still_after() { # command...
    local before
    before=$(still_seconds)
    "$@" && wait_for 60 more_still_seconds "$before" || { cat /tmp/load.err; return 1; }
}

# A load in the background; then whatever is done to the target; then it has to end well.
begin_load() { # arguments...
    # What the one before said must not be taken for this one's.
    rm -f /tmp/load.err
    load_it --json --file /tmp/small "$@" > /tmp/load.json 2> /tmp/load.err &
    load=$!
    wait_for 60 in_load
}

end_load() {
    wait $load
    code=$?
    cat /tmp/load.err /tmp/load.json
    return $code
}

# The load goes on after its runtime is over until what was outstanding has ended: it reconnects in any case.
the_target_goes_away_and_comes_back() {
    begin_load --runtime 5 --reconnects 100 || return 1
    stands_still_after close_port && open_port 16384 || return 1
    end_load && [ "$(figure reconnects)" -ge 1 ] && [ "$(figure requests)" -gt 1000 ]
}

ana() { echo "$1" > $NVMET/ports/1/ana_groups/1/ana_state; }

the_path_is_closed_and_opened_again() {
    begin_load --runtime 5 || return 1
    stands_still_after ana inaccessible && ana optimized || return 1
    end_load && [ "$(figure ana_events)" -ge 2 ] && [ "$(figure reconnects)" -eq 0 ]
}

a_path_that_stays_closed_is_told() {
    ana persistent-loss
    load_json --file /tmp/small --runtime 1
    code=$?
    ana optimized
    [ $code -eq 1 ] && grep -q 'ANA state PersistentLoss' /tmp/load.json
}

# Windows as the device bound and invalidated them: on a SEND_WITH_INV of the target, which is its responder's work, or on a
# LOCAL_INV of ours, which is its requester's.
traced() { echo "$(calls rxe_bind_mw) $(calls rxe_invalidate_mw rxe_responder) $(calls rxe_invalidate_mw rxe_requester)"; }

# Every one of them is one that we know of.
counted_by_the_kernel() { # load argument...
    local opening kernel ours
    begin_trace rxe_bind_mw rxe_invalidate_mw || return 1
    # Opening the device tests it first; nobody listens at this port.
    frwr load --device rxe0 --connect $ADDRESS:1 --reconnects 0 --cores 1
    end_trace || return 1
    opening=$(traced)
    begin_trace rxe_bind_mw rxe_invalidate_mw || return 1
    load_json --file /tmp/small --runtime 0 --no-in-capsule "$@"
    code=$?
    end_trace && [ $code -eq 0 ] || return 1
    kernel=$(echo "$(traced) $opening" | awk '{ print $1 - $4, $2 - $5, $3 - $6 }')
    ours="$(figure registrations) $(figure remote_invalidations) $(figure local_invalidations)"
    note "windows bound, killed by the target, by LOCAL_INV ${*:-}: kernel $kernel ($opening to open the device), ours $ours"
    [ "$kernel" = "$ours" ] && [ "$(figure registrations)" -gt 1000 ]
}

none_killed_by_the_peer() { counted_by_the_kernel --no-remote-invalidate && [ "$(figure remote_invalidations)" -eq 0 ]; }

head -c 4193804 /dev/urandom > /tmp/file
head -c 2096652 /dev/urandom > /tmp/small

run_test modules modules
run_test subsystem subsystem
run_test discovered discovered
run_test mixed_load_on_a_ram_disk mixed_load 1
run_test mixed_load_on_null_blk mixed_load 2
run_test mixed_load_deep mixed_load 1 --queue-depth 127
run_test mixed_load_without_in_capsule_data mixed_load 1 --no-in-capsule
run_test keys_killed_locally mixed_load 1 --no-in-capsule --no-remote-invalidate
run_test every_key_killed_by_the_peer every_key_killed_by_the_peer
run_test counted_by_the_kernel counted_by_the_kernel
run_test counted_by_the_kernel_with_local_invalidations none_killed_by_the_peer
run_test lists_of_whole_blocks lists_of_whole_blocks
run_test lists_that_cut_blocks lists_that_cut_blocks 3
run_test optional_commands_on_a_ram_disk optional_commands 1 '15 of 15 '
run_test optional_commands_on_null_blk optional_commands 2 '15 of 15 '
run_test optional_commands_on_a_file holes_are_zeros
run_test four_queues four_queues
run_test the_path_is_closed_and_opened_again the_path_is_closed_and_opened_again
run_test a_path_that_stays_closed_is_told a_path_that_stays_closed_is_told
run_test the_target_goes_away_and_comes_back the_target_goes_away_and_comes_back
run_test block_sizes_on_a_ram_disk block_sizes 1 512 2
run_test block_sizes_on_null_blk block_sizes 2 4096 16
run_test port_closes close_port
