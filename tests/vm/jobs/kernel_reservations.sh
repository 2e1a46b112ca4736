# shellcheck shell=dash
# Two hosts of the Linux kernel, told apart by their identifiers, reserve one namespace of our target by nvme-cli: who
# may read and write, what each is told that the other one did, what it asks not to be told, and what survives the
# target's end. Without multipath, as a kernel with it would take both hosts for paths to one disk. Needs the program
# frwr, built with the feature verbs.
# tools: nvme:nvme-cli
# limit: 300
# own-boot
IP=10.9.0.1
PORT=4420
NQN=nqn.2026-11.invalid.frwr:disk
SERVED=/tmp/served
KEPT=/tmp/reservations
# The first block that is written, and its bytes.
BLOCK=7
BLOCK_BYTES=4096
# RTYPE: Write Exclusive, and Write Exclusive - Registrants Only.
WRITE_EXCLUSIVE=1
REGISTRANTS_ONLY=3
# Of notifications.
REGISTRATION_PREEMPTED=1
RESERVATION_RELEASED=2
RESERVATION_PREEMPTED=3

# Hosts have the numbers of their controllers, 0 and 1, and the keys 0xa0 and 0xa1.
key() { echo "0xa$1"; }
disk() { echo "/dev/nvme${1}n1"; }
controller() { echo "/dev/nvme$1"; }
state_is() { [ "$(cat "/sys/class/nvme/nvme$1/state")" = "$2" ]; }

modules() {
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi || return 1
    insmod /h/modules/nvme-core.ko multipath=N && load nvme-fabrics nvme-rdma && mkdir -p /etc/nvme /run/nvme
    grep -q N /sys/module/nvme_core/parameters/multipath
}

said() { grep -q "$1" "$LOGS/serve.stderr"; }

start_serve() {
    frwr serve --device rxe0 --listen $IP:$PORT --namespace $SERVED --subsystem $NQN --cores 0 --reservations $KEPT \
        --json > "$LOGS/serve.json" 2> "$LOGS/serve.stderr" &
    serve=$!
    wait_for 60 said '^listening on' || { cat "$LOGS/serve.stderr"; return 1; }
}

end_serve() {
    kill -TERM "$serve" && wait "$serve"
    code=$?
    cat "$LOGS/serve.json" "$LOGS/serve.stderr"
    [ $code -eq 0 ]
}

# In this order, as the kernel numbers its controllers. Asked for as nvme-cli does, which itself takes another host's connection for one
# that is there already.
connect() {
    local host
    for host in 0 1; do
        echo "transport=rdma,traddr=$IP,trsvcid=$PORT,nqn=$NQN,hostnqn=nqn.2026-11.invalid.frwr:host$host,$(
        )hostid=0f0e0d0c-0b0a-4908-8706-05040302010$host,nr_io_queues=1,reconnect_delay=1" > /dev/nvme-fabrics || return 1
        wait_for 20 test -b "$(disk $host)" && grep -q "host$host\$" "/sys/class/nvme/nvme$host/hostnqn" || return 1
    done
}

register() { nvme resv-register "$(disk "$1")" -n 1 --rrega=0 --nrkey="$(key "$1")"; }
acquire() { # host rtype racqa [prkey]
    nvme resv-acquire "$(disk "$1")" -n 1 --crkey="$(key "$1")" --rtype="$2" --racqa="$3" --prkey="${4:-0}"
}
release() { # host rtype rrela
    nvme resv-release "$(disk "$1")" -n 1 --crkey="$(key "$1")" --rtype="$2" --rrela="$3"
}
reported() { # registrants rtype ptpls
    nvme resv-report "$(disk 0)" -n 1 --eds > /tmp/report || return 1
    cat /tmp/report
    grep -q "^regctl *: *$1\$" /tmp/report && grep -q "^rtype *: *$2\$" /tmp/report &&
        grep -q "^ptpls *: *$3\$" /tmp/report
}
writes() { nvme write "$(disk "$1")" -s $BLOCK -c 0 -z $BLOCK_BYTES -d /tmp/block; }
reads() { nvme read "$(disk "$1")" -s $BLOCK -c 0 -z $BLOCK_BYTES -d /tmp/found; }

# The type of the oldest notification that a host has not read, which it has by that: byte 8 of 64; empty for none.
told() { # host
    nvme get-log "$(controller "$1")" --log-id=0x80 --log-len=64 --raw-binary > /tmp/page || return 1
    tail -c +9 /tmp/page | head -c 1 | tr -d '\000' | tr '\001\002\003' 123
}

both_register() { register 0 && register 1 && reported 2 0 0; }

one_writes() {
    acquire 0 $WRITE_EXCLUSIVE 0 && writes 0 && reads 0 && reads 1 && ! writes 1 && reported 2 $WRITE_EXCLUSIVE 0 &&
        [ -z "$(told 1)" ] && ! acquire 1 $WRITE_EXCLUSIVE 0
}

# The first one is unregistered by that, and told so; nvme-cli knows the page by its own name.
the_other_preempts() {
    acquire 1 $REGISTRANTS_ONLY 1 "$(key 0)" && writes 1 && ! writes 0 && reads 0 &&
        reported 1 $REGISTRANTS_ONLY 0 || return 1
    [ "$(told 0)" = $REGISTRATION_PREEMPTED ] && [ -z "$(told 0)" ] && [ -z "$(told 1)" ] &&
        nvme resv-notif-log "$(controller 0)"
}

registrants_write_and_are_told_of_the_end() {
    register 0 && writes 0 && release 1 $REGISTRANTS_ONLY 0 && [ "$(told 0)" = $RESERVATION_RELEASED ] &&
        [ -z "$(told 1)" ]
}

what_is_masked_is_not_told() {
    nvme set-feature "$(controller 0)" -n 1 -f 0x82 -v 0xe || return 1
    nvme get-feature "$(controller 0)" -n 1 -f 0x82 | tee /tmp/feature
    grep -q 'alue: *0x0*e$' /tmp/feature && acquire 1 $REGISTRANTS_ONLY 0 && release 1 $REGISTRANTS_ONLY 0 &&
        [ -z "$(told 0)" ] && nvme set-feature "$(controller 0)" -n 1 -f 0x82 -v 0
}

both_are_live() { state_is 0 live && state_is 1 live; }

# The hosts come again by themselves.
it_survives_the_targets_end() {
    nvme set-feature "$(controller 1)" -n 1 -f 0x83 -v 1 && acquire 1 $WRITE_EXCLUSIVE 0 &&
        reported 2 $WRITE_EXCLUSIVE 1 || return 1
    end_serve && start_serve && wait_for 60 both_are_live && reported 2 $WRITE_EXCLUSIVE 1 && writes 1 && ! writes 0
}

all_is_cleared() {
    release 1 0 1 && reported 0 0 1 && [ "$(told 0)" = $RESERVATION_PREEMPTED ] && writes 0 && writes 1
}

disconnect() { nvme disconnect -n $NQN | tee /dev/stderr | grep -q 'disconnected 2'; }

run_test modules modules
head -c 16777216 /dev/zero > $SERVED
head -c $BLOCK_BYTES /dev/urandom > /tmp/block
run_test serve_listens start_serve
run_test connect connect
run_test both_register both_register
run_test one_writes one_writes
run_test the_other_preempts the_other_preempts
run_test registrants_write_and_are_told_of_the_end registrants_write_and_are_told_of_the_end
run_test what_is_masked_is_not_told what_is_masked_is_not_told
run_test it_survives_the_targets_end it_survives_the_targets_end
run_test all_is_cleared all_is_cleared
run_test disconnect disconnect
run_test serve_ends end_serve
