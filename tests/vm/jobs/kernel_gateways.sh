# shellcheck shell=dash
# The Linux kernel's host with multipath on two gateways in front of one NBD server: each is killed, cut off and ended
# in turn, and between two failures the operator turns ANA states there and back, all of it below a load that verifies. Each
# gateway has a device of its own, with a cable to one of the host's. Needs the program frwr, built with the feature verbs. tests/run
# kernel takes FRWR_FAILOVERS for more of it, and FRWR_PAUSE, within which each has to be over.
# tools: nvme:nvme-cli fio:fio qemu-nbd:qemu-utils
# limit: 900
FAILOVERS=3
PORT=4420
NQN=nqn.2026-11.invalid.frwr:disk
HOST=nqn.2026-11.invalid.frwr:kernel
HOST_ID=0f0e0d0c-0b0a-4908-8706-050403020100
DISK=/tmp/disk.img
SERVER=/tmp/disk.sock
# Connections that a gateway has to the NBD server.
CONNECTIONS=2
# What docs/operating.md recommends, in seconds. A host that hears nothing gives a gateway up within one and a half times its keep alive.
KEEP_ALIVE=5
RECONNECT_DELAY=2
# How long a request may wait at most, in seconds: the time to give a gateway up, and what the operator needs to be certain of its end.
# Not judged where nobody asks for it: a guest that the machine gives no processor measures that.
PAUSE=
# Requests that a path has to complete until it counts as taken: twice as many as are outstanding.
TAKEN=64

address() { if [ "$1" = a ]; then echo 10.9.1.2; else echo 10.9.2.2; fi; }
host_address() { if [ "$1" = a ]; then echo 10.9.1.1; else echo 10.9.2.1; fi; }
other() { if [ "$1" = a ]; then echo b; else echo a; fi; }
port_id() { if [ "$1" = a ]; then echo 1; else echo 17; fi; }
identifiers() { if [ "$1" = a ]; then echo 1-32759; else echo 32760-65519; fi; }

modules() {
    load veth crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvme-core nvme-fabrics nvme-rdma || return 1
    mkdir -p /etc/nvme /run/nvme
    cat /sys/module/nvme_core/parameters/multipath
    grep -q Y /sys/module/nvme_core/parameters/multipath
}

# For each gateway a cable: its end, gw_a with device rxe_gw_a, and the host's, host_a with rxe_host_a.
cables() {
    local gateway end
    for gateway in a b; do
        ip link add host_$gateway type veth peer name gw_$gateway || return 1
        ip addr add "$(host_address $gateway)/24" dev host_$gateway && ip addr add "$(address $gateway)/24" dev gw_$gateway || return 1
        for end in host_$gateway gw_$gateway; do
            ip link set $end mtu 9000 && ip link set $end up || return 1
        done
        # All ends belong to one machine: without these it answers for, and routes to, the wrong end.
        for end in all host_$gateway gw_$gateway; do
            echo 1 > /proc/sys/net/ipv4/conf/$end/accept_local
            echo 0 > /proc/sys/net/ipv4/conf/$end/rp_filter
            echo 1 > /proc/sys/net/ipv4/conf/$end/arp_ignore
            echo 2 > /proc/sys/net/ipv4/conf/$end/arp_announce
        done
        for end in host_$gateway gw_$gateway; do rdma link add rxe_$end type rxe netdev $end || return 1; done
    done
    rdma link
}

remove_cables() {
    local gateway
    for gateway in a b; do
        rdma link delete rxe_host_$gateway && rdma link delete rxe_gw_$gateway && ip link delete host_$gateway || return 1
    done
}

nbd_server() {
    truncate -s 64M $DISK || return 1
    qemu-nbd --persistent --shared=0 --socket $SERVER --format raw $DISK > "$LOGS/qemu-nbd.log" 2>&1 &
    server=$!
    wait_for 30 [ -S $SERVER ]
}
# Those that the server has accepted and not closed yet.
connections() { grep -cE " 03 +[0-9]+ $SERVER\$" /proc/net/unix; }
has_connections() { [ "$(connections)" -eq "$1" ]; }

write_configuration() { # gateway
    local other
    other=$(other "$1")
    cat > "/tmp/$1.toml" << END
device = "rxe_gw_$1"
listen = "$(address "$1"):$PORT"
controller_ids = "$(identifiers "$1")"
first_port_id = $(port_id "$1")
other_gateway = "$(port_id "$other")/$(address "$other"):$PORT"
control = "/tmp/control-$1"
cores = "unpinned"
idle = "sleep"
queue_depth = 64
hosts = 2
io_queues = 1

[[subsystem]]
nqn = "$NQN"
allowed_hosts = ["$HOST"]
ana_state = "inaccessible"

[[subsystem.namespace]]
nbd = "nbd+unix:///?socket=$SERVER&x-connections=$CONNECTIONS"
END
}

# The process of a gateway is in $gateway_a or $gateway_b.
process() { eval echo "\$gateway_$1"; }
starts=0
start_gateway() { # gateway
    starts=$((starts + 1))
    started="$LOGS/serve-$1-$starts"
    frwr serve --json --config "/tmp/$1.toml" > "$started.json" 2> "$started.stderr" &
    eval "gateway_$1=\$!"
    wait_for 60 grep -q '^listening on' "$started.stderr" || { cat "$started.stderr"; return 1; }
}
begin_gateways() {
    local gateway
    for gateway in a b; do write_configuration $gateway && start_gateway $gateway || return 1; done
    wait_for 20 has_connections $((2 * CONNECTIONS)) && set_state a optimized
}
end_gateway() { # gateway
    kill -TERM "$(process "$1")" && wait "$(process "$1")"
}
end_gateways() { end_gateway a && end_gateway b && wait_for 20 has_connections 0 && kill -TERM "$server"; }

ask() { # gateway method [parameter...]
    local gateway=$1
    shift
    frwr ctl --json --control "/tmp/control-$gateway" "$@"
}
set_state() { ask "$1" set_ana_state subsystem=$NQN state="$2"; }

# The host's controller of a gateway, such as nvme0; the path to the disk by it is nvme0c0n1, the disk itself nvme0n1.
controller() { # gateway
    local path
    for path in /sys/class/nvme/nvme*; do
        ! grep -qs "traddr=$(address "$1")," "$path/address" || { echo "${path##*/}"; return; }
    done
    return 1
}
is_live() { [ "$(cat "/sys/class/nvme/$(controller "$1")/state")" = live ]; }
path() { echo /sys/block/nvme*c"$(controller "$1" | tr -d nvme)"n1; }
has_state() { [ "$(cat "$(path "$1")/ana_state")" = "$2" ]; } # gateway state
disk() {
    local disk
    for disk in /dev/nvme[0-9]n1; do [ ! -b "$disk" ] || { echo "$disk"; return; }; done
    return 1
}
requests() { awk '{ print $1 + $5 }' "$(path "$1")/stat"; } # gateway
has_more_requests() { [ "$(requests "$1")" -ge "$2" ]; } # gateway count

# Each gateway tells of both.
discover() {
    local gateway listed
    for gateway in a b; do
        nvme discover -t rdma -a "$(address $gateway)" -s $PORT -w "$(host_address $gateway)" -q $HOST -I $HOST_ID | tee /tmp/discovered
        for listed in a b; do
            grep -q "traddr: *$(address $listed)\$" /tmp/discovered && grep -q "portid: *$(port_id $listed)\$" /tmp/discovered || return 1
        done
    done
}
# By one gateway's address the host connects to both.
connect_all() {
    nvme connect-all -t rdma -a "$(address a)" -s $PORT -q $HOST -I $HOST_ID || return 1
    wait_for 20 is_live a && wait_for 20 is_live b && nvme list-subsys || return 1
    nvme disconnect -n $NQN | tee /dev/stderr | grep -q 'disconnected 2'
}
connect() {
    local gateway
    for gateway in a b; do
        nvme connect -t rdma -a "$(address $gateway)" -s $PORT -w "$(host_address $gateway)" -n $NQN -q $HOST -I $HOST_ID -i 1 -Q 64 \
            --keep-alive-tmo=$KEEP_ALIVE --reconnect-delay=$RECONNECT_DELAY --ctrl-loss-tmo=-1 || return 1
    done
    wait_for 20 is_live a && wait_for 20 is_live b && wait_for 20 disk && nvme list-subsys || return 1
    wait_for 20 has_state a optimized && wait_for 20 has_state b inaccessible || return 1
    active=a
}

# Until it is told to end: writes all of a small area in random order, and then reads what is there; so that what was lost, or came late,
# is found. The longest time of a request, in ns, is a line of /tmp/longest.
load_forever() {
    local seed=0
    while [ ! -e /tmp/end-load ]; do
        seed=$((seed + 1))
        fio --name=hot --filename="$(disk)" --allow_file_create=0 --direct=1 --ioengine=libaio --iodepth=32 --rw=randwrite --bs=4k \
            --size=2m --loops=4 --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --randseed=$seed \
            --output-format=json --output=/tmp/fio.json > /tmp/fio.log 2>&1 || { touch /tmp/load-failed; break; }
        awk -F '[:,]' '/"max" :/ && $2 > most { most = $2 } END { printf "%.0f\n", most }' /tmp/fio.json >> /tmp/longest
    done
    cat /tmp/fio.log /tmp/fio.json > "$LOGS/fio.log"
    [ ! -e /tmp/load-failed ]
}
begin_load() {
    load_forever &
    load=$!
    wait_for 60 has_more_requests $active 1000
}
end_load() {
    local longest
    touch /tmp/end-load
    wait $load || { cat "$LOGS/fio.log"; return 1; }
    longest=$(($(sort -n /tmp/longest | tail -n 1) / 1000000))
    note "$(wc -l < /tmp/longest) loads of 8 MiB written and verified at depth 32; the longest request took $longest ms"
    is_in_time "$longest"
}

# As long as may be, where somebody has said how long.
is_in_time() { [ -z "$PAUSE" ] || [ "$1" -le $((PAUSE * 1000)) ]; } # milliseconds

# Hundredths of a second since the guest was up.
now() { awk '{ printf "%.0f", $1 * 100 }' /proc/uptime; }

# The gateway's process is gone, and the NBD server has let go of all that it had of it.
is_fenced() { has_connections $CONNECTIONS; }
power_off() { # gateway
    kill -KILL "$(process "$1")"
    # It says that it was killed.
    wait "$(process "$1")"
    wait_for 20 is_fenced
}
# What it was given ends, and it takes nothing more; by the network of operators, which hosts do not share.
has_nothing_in_hand() { ask "$1" status | grep -q '"commands_in_flight":0,'; }
silence() { # gateway
    set_state "$1" inaccessible && wait_for 60 has_nothing_in_hand "$1"
}

# Frames go to nobody, in both directions, and no end sees that.
cut_off() { # gateway
    ip neigh replace "$(address "$1")" lladdr 02:00:00:00:00:01 dev "host_$1" nud permanent &&
        ip neigh replace "$(host_address "$1")" lladdr 02:00:00:00:00:01 dev "gw_$1" nud permanent
}
heal() { # gateway
    ip neigh del "$(address "$1")" dev "host_$1" && ip neigh del "$(host_address "$1")" dev "gw_$1"
}

# Of each kind of failure what happens to the active gateway, and what the operator does until it can write no more; then how it comes
# back, to be the one that waits.
fail_killed() { power_off "$1"; }
return_killed() { start_gateway "$1"; }
fail_ended() { end_gateway "$1" && wait_for 20 is_fenced; }
return_ended() { start_gateway "$1"; }
fail_cut_off() { cut_off "$1" && silence "$1"; }
return_cut_off() { heal "$1"; }

# The load goes on by that gateway, since some time ago.
taken() { # gateway requests_before since
    wait_for 120 has_more_requests "$1" $(($2 + TAKEN)) || return 1
    took=$(($(now) - $3))
}

fail_over() { # kind
    local from=$active to before since
    to=$(other $from)
    # It serves.
    wait_for 120 has_more_requests $from $(($(requests $from) + TAKEN)) || return 1
    before=$(requests "$to") since=$(now)
    "fail_$1" $from && set_state "$to" optimized && taken "$to" "$before" "$since" || return 1
    echo "$1 $from: $took hundredths of a second" >> /tmp/pauses
    is_in_time $((took * 10)) || return 1
    active=$to
    "return_$1" $from && wait_for 120 is_live $from && wait_for 20 has_state $from inaccessible && [ ! -e /tmp/load-failed ]
}

# Nothing has failed: what one gateway has in hand is answered, and the other one goes on.
turn() {
    local from=$active to before since
    to=$(other $from)
    before=$(requests "$to") since=$(now)
    set_state $from inaccessible && set_state "$to" optimized && taken "$to" "$before" "$since" || return 1
    echo "turned $from: $took hundredths of a second" >> /tmp/turns
    active=$to
}

# Kinds are three and gateways are two, so that six are all kinds of both.
kind() { # number
    case $(($1 % 3)) in 0) echo killed ;; 1) echo cut_off ;; 2) echo ended ;; esac
}
failovers() {
    local number=0 kind
    while [ $number -lt $FAILOVERS ]; do
        kind=$(kind $number)
        fail_over "$kind" && turn && turn || { echo "-- failover $number, $kind of $active"; tell_state; return 1; }
        number=$((number + 1))
    done
    cat /tmp/pauses /tmp/turns
    note "$number failovers; $(longest_of /tmp/pauses)"
    note "$(wc -l < /tmp/turns) turns of ANA states; $(longest_of /tmp/turns)"
}
# Where it goes wrong.
tell_state() {
    cat /tmp/pauses
    for path in /sys/class/nvme/nvme*; do echo "${path##*/}: $(cat "$path/state" "$path/address")"; done
    for path in /sys/block/nvme*c*n1; do echo "${path##*/}: $(cat "$path/ana_state" "$path/stat")"; done
    echo "connections of the NBD server: $(connections)"
    dmesg | tail -n 40
}
longest_of() { # file
    sed 's/^\([^:]*\): \([0-9]*\) .*/\2 \1/' "$1" | sort -n | awk '{ all[NR] = $1; name = $2 " of " $3 }
        END { printf "the median took %.2f s, the longest %.2f s (%s)", all[int((NR + 1) / 2)] / 100, all[NR] / 100, name }'
}

the_disk_holds_what_the_server_has() {
    [ "$(dd if="$(disk)" bs=64k iflag=direct | md5sum)" = "$(md5sum < $DISK)" ]
}
# What a path could not do the host sends by another one, and says nothing of.
no_error_reached_the_disk() { ! dmesg | grep -E 'I/O error, dev|Buffer I/O error|critical .* error, dev'; }
disconnect() { nvme disconnect -n $NQN | tee /dev/stderr | grep -q 'disconnected 2'; }

run_test modules modules
run_test cables cables
run_test nbd_server nbd_server
run_test begin_gateways begin_gateways
run_test discover discover
run_test connect_all connect_all
run_test connect connect
run_test begin_load begin_load
run_test failovers failovers
run_test end_load end_load
run_test the_disk_holds_what_the_server_has the_disk_holds_what_the_server_has
run_test no_error_reached_the_disk no_error_reached_the_disk
run_test disconnect disconnect
run_test end_gateways end_gateways
run_test remove_cables remove_cables
