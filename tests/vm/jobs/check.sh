# shellcheck shell=dash
# frwr check where something is missing: it says what, with the remedy, and ends with 0.
# tools: setpriv:util-linux
FEW_LIBRARIES=/tmp/lib

# frwr check says each of these, behind "* " with the remedy in the next line.
says() { # command... -- regex...
    local command=""
    while [ "$1" != -- ]; do command="$command $1"; shift; done
    shift
    $command > /tmp/said 2> /tmp/err
    code=$?
    cat /tmp/said /tmp/err
    [ $code -eq 0 ] || return 1
    # libibverbs has a word of its own to say where it has no configuration.
    for regex; do
        grep -A 1 -E "^\\* .*$regex" /tmp/said | grep -q '^ *remedy: ' || { echo "not said: $regex"; return 1; }
    done
}

everything_is_there() {
    frwr check > /tmp/said || return 1
    cat /tmp/said
    # What soft RoCE deviates in is known, and no shortcoming of this machine.
    grep -q '^\* rxe0 deviates from the specification: ' /tmp/said &&
        grep -q '^    self-test  .* passed, .* 0 failed' /tmp/said &&
        ! grep -E '^\* .*(rxe0|libibverbs|librdmacm|infiniband)' /tmp/said | grep -qv ' deviates from the specification: '
}

without_libraries() {
    mkdir -p $FEW_LIBRARIES
    cp /h/lib/ld-linux* /h/lib/libc.so* /h/lib/libm.so* /h/lib/libgcc_s.so* $FEW_LIBRARIES/
    mount --bind $FEW_LIBRARIES /h/lib || return 1
    says /h/bin/frwr check -- 'libibverbs.so.1 was not found' 'librdmacm.so.1 was not found' 'rxe0 cannot be opened'
    code=$?
    /h/bin/frwr check --json > /tmp/json
    json=$?
    /h/bin/frwr load --device rxe0 --connect 10.9.0.1:4420 > /tmp/out 2> /tmp/err
    load=$?
    umount /h/lib
    cat /tmp/json /tmp/err
    [ $code -eq 0 ] && [ $json -eq 0 ] && grep -q '"rdma_verbs_library"' /tmp/json && [ $load -eq 1 ] &&
        [ "$(wc -l < /tmp/err)" -eq 1 ] && grep -q '^error: .*libibverbs' /tmp/err
}

without_device_files() {
    mount -t tmpfs none /dev/infiniband || return 1
    says frwr check -- '/dev/infiniband/rdma_cm is missing' '/dev/infiniband/uverbs0 is missing' 'rxe0 cannot be opened'
    code=$?
    umount /dev/infiniband
    return $code
}

without_permission() {
    chmod 600 /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm
    says /h/bin/setpriv --reuid 1000 --regid 1000 --clear-groups /h/bin/frwr check -- \
        '/dev/infiniband/rdma_cm may not be opened' '/dev/infiniband/uverbs0 may not be opened' 'rxe0 cannot be opened'
    code=$?
    chmod 666 /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm
    return $code
}

with_permission_only() {
    chmod 666 /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm
    /h/bin/setpriv --reuid 1000 --regid 1000 --clear-groups /h/bin/frwr check --device rxe0 | tee /tmp/said
    grep -qE '^self-test .* passed, .* 0 failed' /tmp/said
}

with_little_locked_memory() {
    ulimit -l 64
    # Root may lock what it wants by this capability.
    says /h/bin/setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock /h/bin/frwr check -- '64 KiB may be locked'
}

without_an_active_port() {
    ip link set dummy0 down
    says frwr check -- 'no port of any RDMA device is active'
    code=$?
    ip link set dummy0 up
    return $code
}

run_test everything_is_there everything_is_there
run_test without_libraries without_libraries
run_test without_device_files without_device_files
run_test without_permission without_permission
run_test with_permission_only with_permission_only
run_test without_an_active_port without_an_active_port
run_test with_little_locked_memory with_little_locked_memory
