# shellcheck shell=dash
# A second device comes to a target that serves, and leaves it, again and again, by `frwr ctl`: under the Linux kernel's host with a path
# by each device, and under our own host by the second one. Whoever uses the first device sees nothing of it. The second one is made after
# the target was started, and another one in its place is taken from the machine under load. Needs the program frwr, built with the feature
# verbs.
# tools: nvme:nvme-cli fio:fio
# limit: 900
A=10.9.0.1
B=10.9.1.1
C=10.9.2.1
PORT=4420
# Another port, which a listener that is added has.
OTHER_PORT=4421
NQN=nqn.2026-11.invalid.frwr:disk
HOST=nqn.2026-11.invalid.frwr:kernel
# Who uses the second namespace, by `frwr load`.
OWN=nqn.2026-11.invalid.frwr:own
DISK=/tmp/disk.img
OWN_DISK=/tmp/own.img
OWN_BYTES=4194304
CONTROL=/tmp/control
# Seconds between attempts of the kernel's host to connect again.
RECONNECT_DELAY=1
# Requests of a path behind which it counts as used: more than are outstanding.
USED=100

modules() {
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvme-core nvme-fabrics nvme-rdma || return 1
    mkdir -p /etc/nvme /run/nvme
    grep -q Y /sys/module/nvme_core/parameters/multipath
}

said() { grep -q "$1" "$serve_log.stderr"; }
start_serve() { # log_name cores idle
    serve_log=$LOGS/$1
    truncate -s 32M $DISK && truncate -s $OWN_BYTES $OWN_DISK && cat > /tmp/serve.toml << END || return 1
device = "rxe0"
listen = "$A:$PORT"
cores = "$2"
idle = "$3"
io_queues = 2
queue_depth = 64
hosts = 4
metrics = "127.0.0.1:0"
control = "$CONTROL"

[[subsystem]]
nqn = "$NQN"

[[subsystem.namespace]]
file = "$DISK"

[[subsystem.namespace]]
file = "$OWN_DISK"
END
    frwr serve --json --config /tmp/serve.toml > "$serve_log.json" 2> "$serve_log.stderr" &
    serve=$!
    wait_for 60 said '^listening on' || { cat "$serve_log.stderr"; return 1; }
}
# What it says of itself at the end: nothing of anybody is left.
end_serve() {
    kill -TERM "$serve" && wait "$serve"
    code=$?
    cat "$serve_log.json" "$serve_log.stderr"
    [ $code -eq 0 ] && grep -q '"passed":true' "$serve_log.json"
}

ask() { frwr ctl --json --control $CONTROL "$@"; }
changed() { # method parameter...
    ask "$@" | tee /tmp/answer
    grep -q '"changed":true' /tmp/answer && grep -q '"complete":true' /tmp/answer
}
# It ends so, with one line that has all of these, and nothing has come or gone.
refused() { # exit_code "word word..." method parameter...
    local wanted=$1 words=$2 code word
    shift 2
    frwr ctl --control $CONTROL "$@" > /tmp/out 2> /tmp/err
    code=$?
    cat /tmp/out /tmp/err
    [ $code -eq "$wanted" ] && [ "$(wc -l < /tmp/err)" -eq 1 ] && ! [ -s /tmp/out ] || { echo "-- exit code $code"; return 1; }
    for word in $words; do grep -qF -- "$word" /tmp/err || { echo "-- no $word"; return 1; }; done
    has_devices rxe0 && nothing_is_left rxe1
}

# Names and states of its devices, such as "rxe0 serves, rxe1 gone", and nothing that any of them should not have done.
has_devices() { # name state...
    ask devices > /tmp/devices || return 1
    cat /tmp/devices
    names=$(grep -o '"name":"[^"]*"' /tmp/devices | cut -d '"' -f 4 | tr '\n' ' ')
    [ "$names" = "$* " ] &&
        ! grep -qE '"(commands_failed|frees_refused|memories_refused|domains_kept|queue_pairs_kept|memories_kept)":[1-9]' /tmp/devices
}
is_in_state() { ask devices | tr '{' '\n' | grep "\"name\":\"$1\"" | grep -q "\"state\":\"$2\""; } # device state

# Of the process that serves: objects that the kernel has of it on other devices than the first one, and how often it has device files of
# those open. While a device serves it is ours and librdmacm's; librdmacm keeps its own until the process ends.
objects() {
    local threads kind
    threads=$(ls "/proc/$serve/task" | tr '\n' '|')
    for kind in qp mr cm_id cq pd; do
        rdma res show $kind | grep -E '^(link|dev) rxe[12]' | grep -E " pid (${threads}none) "
    done
}
device_file() { cat "/sys/class/infiniband_verbs/uverbs$1/ibdev" 2> /dev/null; } # number
open_files() { # device
    local file number
    for file in /proc/"$serve"/fd/*; do
        number=$(readlink "$file" | sed -n 's|^/dev/infiniband/uverbs||p')
        [ -z "$number" ] || [ "$(device_file "$number")" != "$1" ] || echo "$file $1"
    done | wc -l
}
nothing_is_left() { # device
    objects | tee /tmp/objects
    echo "files of $1: $(open_files "$1")"
    ! [ -s /tmp/objects ] && [ "$(open_files "$1")" -le 1 ]
}
# As the same looks where there is something.
something_is_there() { [ -n "$(objects)" ] && [ "$(open_files "$1")" -eq 2 ]; } # device

add_interface() { ip link add "$1" type dummy && ip link set "$1" mtu 9000 up; } # name
add_link() { rdma link add "$1" type rxe netdev "$2" && wait_for 20 [ -e "/sys/class/infiniband/$1" ]; } # device interface

# What an operator may type that cannot be: each time the value, the reason, and what there is to do about it.
a_device_that_is_not_there() {
    refused 1 "rxe1 rxe0 nothing was changed frwr check" add_device device=rxe1 listen=$B:$PORT
}
one_without_the_address() {
    add_interface dummy1 && add_link rxe1 dummy1 || return 1
    refused 1 "rxe1 $B:$PORT cannot listen nothing was changed ip address" add_device device=rxe1 listen=$B:$PORT || return 1
    ip addr add $B/24 dev dummy1
}
an_address_of_another_device() {
    refused 1 "rxe1 $A:$OTHER_PORT cannot listen nothing was changed" add_device device=rxe1 listen=$A:$OTHER_PORT &&
        refused 1 "rxe0 rxe1 $A:$PORT remove it there first" add_device device=rxe1 listen=$A:$PORT
}
one_that_is_there() {
    refused 1 "rxe0 already add_listener nothing was changed" add_device device=rxe0 listen=$A:$OTHER_PORT
}
one_of_another_kind() {
    refused 2 "soft rxe0 RDMA devices run serve twice" add_device device=soft listen=$B:$PORT
}
one_that_cannot_leave() {
    refused 2 "rxe1 rxe0 name one of" remove_device device=rxe1 && refused 1 "rxe0 no other device add_device" remove_device device=rxe0
}

add_device() { # device address
    changed add_device device="$1" listen="$2":$PORT && has_devices rxe0 "$1" && is_in_state rxe0 serves && is_in_state "$1" serves &&
        something_is_there "$1" || return 1
    listed_at $A $A && listed_at $A "$2" && listed_at "$2" $A && listed_at "$2" "$2"
}
listed_at() { # where what
    nvme discover -t rdma -a "$1" -s $PORT -q $HOST > /tmp/discovered || { cat /tmp/discovered; return 1; }
    grep -q "traddr: *$2\$" /tmp/discovered || { echo "-- $1 does not list $2"; cat /tmp/discovered; return 1; }
}
a_device_is_there_once() {
    frwr ctl --control $CONTROL add_device device=rxe1 listen=$B:$OTHER_PORT 2> /tmp/err && return 1
    cat /tmp/err
    grep -q 'rxe1 already' /tmp/err && grep -q add_listener /tmp/err
}

figure() { ask metrics | sed 's/\\n/\n/g' | sed -n "s/^$1{[^}]*device=\\\\*\"$2\\\\*\"[^}]*} //p" | head -n 1; } # name device
metrics_have() { # device...
    local device
    for device in "$@"; do
        echo "$device: $(figure frwr_device_work_requests_total "$device") work requests," \
            "$(figure frwr_device_connections_total "$device") connections, up $(figure frwr_listener_up "$device")"
        [ "$(figure frwr_device_work_requests_total "$device")" -gt 0 ] && [ "$(figure frwr_listener_up "$device")" = 1 ] &&
            [ "$(figure frwr_device_failures_total "$device")" = 0 ] || return 1
    done
}
metrics_have_one() { ! ask metrics | grep -qE 'rxe[12]' && ask metrics | grep -q frwr_device_work_requests_total; }
commands() { ask status | sed -n 's/.*"commands":\([0-9]*\).*/\1/p'; }

# The kernel's controller by an address, such as nvme0.
controller() { # address
    local path
    for path in /sys/class/nvme/nvme*; do
        ! grep -qs "traddr=$1," "$path/address" || { echo "${path##*/}"; return; }
    done
    return 1
}
is_live() { [ "$(cat "/sys/class/nvme/$(controller "$1")/state")" = live ]; }
is_not_live() { ! is_live "$1"; }
has_no_controller() { ! controller "$1"; }
disk() {
    local disk
    for disk in /dev/nvme[0-9]n1; do [ ! -b "$disk" ] || { echo "$disk"; return; }; done
    return 1
}
requests() { awk '{ print $1 + $5 }' /sys/block/nvme*c"$(controller "$1" | tr -d nvme)"n1/stat; } # address
has_more_requests() { [ "$(requests "$1")" -ge "$2" ]; } # address count
is_used() { wait_for 60 has_more_requests "$1" $(($(requests "$1") + USED)) && [ ! -e /tmp/load-failed ]; } # address

connect() { # address
    nvme connect -t rdma -a "$1" -s $PORT -n $NQN -q $HOST -i 2 -Q 32 --reconnect-delay=$RECONNECT_DELAY --ctrl-loss-tmo=-1 || return 1
    wait_for 20 is_live "$1" && wait_for 20 disk
}
connect_by_both() {
    connect $B && echo round-robin | tee /sys/class/nvme-subsystem/nvme-subsys*/iopolicy && nvme list-subsys
}
disconnect_from() { # address
    nvme disconnect -d "$(controller "$1")" && wait_for 20 has_no_controller "$1"
}

# Until it is told to end: writes all of a small area in random order, and then reads what is there, so that what was lost, or came late,
# is found.
load_forever() {
    local seed=0
    while [ ! -e /tmp/end-load ]; do
        seed=$((seed + 1))
        fio --name=hot --filename="$(disk)" --allow_file_create=0 --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bs=4k \
            --size=2m --loops=4 --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --randseed=$seed \
            > /tmp/fio.log 2>&1 || { touch /tmp/load-failed; break; }
    done
    echo $seed > /tmp/loads
    cp /tmp/fio.log "$LOGS/fio.log"
    [ ! -e /tmp/load-failed ]
}
begin_load() {
    rm -f /tmp/end-load /tmp/load-failed
    load_forever &
    load=$!
    is_used $A
}
end_load() {
    touch /tmp/end-load
    wait "$load" || { cat "$LOGS/fio.log"; return 1; }
    note "the kernel's host wrote and verified 8 MiB $(cat /tmp/loads) times"
}
the_disk_holds_what_is_served() { [ "$(dd if="$(disk)" bs=64k iflag=direct | md5sum)" = "$(md5sum < $DISK)" ]; }

# Our own host by the second device, which waits where there is no path.
operations() { ask namespaces | tr '{' '\n' | grep '"namespace":2,' | sed -n 's/.*"operations":\([0-9]*\).*/\1/p'; }
own_has_done() { [ "$(operations)" -ge "$1" ]; }
own_goes_on() { kill -0 "$own" && wait_for 60 own_has_done $(($(operations) + USED)); }
begin_own() {
    frwr load --device rxe1 --connect $B:$PORT --subsystem $NQN --nsid 2 --host-nqn $OWN --rw randrw --allow-overwrite --bytes $OWN_BYTES \
        --block-size 4096 --queue-depth 8 --rate-iops 400 --runtime 36000 --reconnects 100 --io-retries 100 --cores unpinned --idle sleep \
        --json > "$LOGS/own.json" 2> "$LOGS/own.stderr" &
    own=$!
    own_goes_on
}
end_own() { # reconnects
    kill -TERM "$own" && wait "$own"
    code=$?
    cat "$LOGS/own.json" "$LOGS/own.stderr"
    [ $code -eq 0 ] && grep -q '"verified":true' "$LOGS/own.json" && grep -q "\"reconnects\":$1[,}]" "$LOGS/own.json"
}

both_are_used() { is_used $A && is_used $B; }

# A listener alone: who came by it is drained and comes back by itself when there is one again.
the_listener_goes_and_comes() {
    changed add_listener address=rxe1/$B:$OTHER_PORT && listed_port $OTHER_PORT || return 1
    changed remove_listener address=$B:$OTHER_PORT || return 1
    both_are_used && changed remove_listener address=$B:$PORT drain=true && wait_for 20 is_not_live $B && is_used $A || return 1
    ! listed_at $A $B && changed add_listener address=rxe1/$B:$PORT && wait_for 30 is_live $B && both_are_used && own_goes_on
}
listed_port() { nvme discover -t rdma -a $A -s $PORT -q $HOST | grep -q "trsvcid: *$1\$"; }

the_device_leaves() { # device address
    local before
    before=$(commands)
    changed remove_device device="$1" && has_devices rxe0 && nothing_is_left "$1" && metrics_have_one && [ "$(commands)" -ge "$before" ] &&
        ! listed_at $A "$2" && wait_for 20 is_not_live "$2" && is_used $A
}
# Hosts that wait for it come back by themselves.
it_comes_again() { add_device rxe1 $B && wait_for 30 is_live $B && both_are_used && metrics_have rxe0 rxe1; }

# As somebody does whose card is at another place now.
another_one_comes() {
    disconnect_from $B && add_interface dummy2 && ip addr add $C/24 dev dummy2 && add_link rxe2 dummy2 || return 1
    add_device rxe2 $C && connect $C && is_used $A && is_used $C && metrics_have rxe0 rxe2
}
# Taken without a word, under load. rxe of this kernel waits meanwhile for all processes that have its device file open: librdmacm's is
# closed when the target has ended.
it_is_taken_under_load() {
    timeout 300 rdma link delete rxe2 &
    removal=$!
    wait_for 60 is_in_state rxe2 gone && is_in_state rxe0 serves && wait_for 60 has_no_controller $C && is_used $A && ! listed_at $A $C &&
        changed remove_device device=rxe2 && has_devices rxe0 && [ -z "$(objects)" ] && metrics_have_one && is_used $A
}
it_is_gone_when_the_target_has_ended() { wait "$removal" && ! [ -e /sys/class/infiniband/rxe2 ]; }
# There was nothing of it any more that anybody waits for.
the_first_one_can_go() {
    timeout 60 rdma link delete rxe1 && ! [ -e /sys/class/infiniband/rxe1 ] && ip link delete dummy1 && ip link delete dummy2
}

# What there is of the first path in the kernel's log: it connected, and that is all.
the_first_path_never_broke() {
    dmesg | grep "nvme $(controller $A): " | tee /tmp/first
    ! grep -E 'reconnect|recovery|timeout|failed|error' /tmp/first &&
        ! dmesg | grep -E 'I/O error, dev|Buffer I/O error|critical .* error, dev'
}
disconnect() { nvme disconnect -n $NQN | tee /dev/stderr | grep -q "disconnected $1"; } # controllers

run_test modules modules
run_test serve_listens start_serve sleeping unpinned:2 sleep
run_test a_device_that_is_not_there a_device_that_is_not_there
run_test one_without_the_address one_without_the_address
run_test an_address_of_another_device an_address_of_another_device
run_test one_that_is_there one_that_is_there
run_test one_of_another_kind one_of_another_kind
run_test one_that_cannot_leave one_that_cannot_leave
run_test connect_by_the_first connect $A
run_test begin_load begin_load
run_test add_device add_device rxe1 $B
run_test a_device_is_there_once a_device_is_there_once
run_test connect_by_both connect_by_both
run_test both_are_used both_are_used
run_test metrics_have_both metrics_have rxe0 rxe1
run_test begin_own begin_own
run_test the_listener_goes_and_comes the_listener_goes_and_comes
run_test the_device_leaves the_device_leaves rxe1 $B
run_test it_comes_again it_comes_again
run_test own_goes_on own_goes_on
run_test end_own end_own 2
run_test the_device_leaves_again the_device_leaves rxe1 $B
run_test another_one_comes another_one_comes
run_test it_is_taken_under_load it_is_taken_under_load
run_test end_load end_load
run_test the_disk_holds_what_is_served the_disk_holds_what_is_served
run_test the_first_path_never_broke the_first_path_never_broke
run_test disconnect disconnect 1
run_test serve_ends end_serve
run_test it_is_gone_when_the_target_has_ended it_is_gone_when_the_target_has_ended
# The same without completion channels, by a core that polls.
run_test serve_polls start_serve polling 0 spin
run_test connect_to_one_that_polls connect $A
run_test begin_load_again begin_load
run_test one_that_polls_takes_a_device add_device rxe1 $B
run_test connect_by_both_again connect_by_both
run_test both_are_used_again both_are_used
run_test one_that_polls_gives_it_back the_device_leaves rxe1 $B
run_test end_load_again end_load
run_test disconnect_at_the_end disconnect 2
run_test serve_ends_at_the_end end_serve
run_test the_first_one_can_go the_first_one_can_go
