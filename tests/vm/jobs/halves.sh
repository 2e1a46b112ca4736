# shellcheck shell=dash
# frwr-reactor serve and load as two processes over the device: a file there and back, what ends a run, and system calls.
# Needs the programs frwr-reactor and frwr-check, built with the feature verbs.
# tools: strace:strace
# limit: 300
ADDRESS=10.9.0.1:4420
SERVED=/tmp/served
COPY=/tmp/copy
head -c 67108001 /dev/urandom > $SERVED
BYTES=$(stat -c %s $SERVED)
DIGEST=$(sha256sum $SERVED | cut -d ' ' -f 1)

said() { grep -q "$1" "$LOGS/serve.stderr"; }

start_serve() { # arguments...
    frwr-reactor serve --device rxe0 --listen $ADDRESS --namespace $SERVED --cores 0 --json "$@" \
        > "$LOGS/serve.json" 2> "$LOGS/serve.stderr" &
    serve=$!
    wait_for 30 said '^listening on' || { cat "$LOGS/serve.stderr"; return 1; }
}

end_serve() {
    kill -TERM $serve && wait $serve
    code=$?
    cat "$LOGS/serve.json" "$LOGS/serve.stderr"
    [ $code -eq 0 ] && grep -q '"passed":true' "$LOGS/serve.json"
}

load_file() { # arguments...
    timeout -s KILL 100 frwr-reactor load --device rxe0 --connect $ADDRESS --cores 1 "$@"
}

a_copy_has_the_same_bytes() {
    load_file --bytes "$BYTES" --expect-sha256 "$DIGEST" --output $COPY --runtime 2 && cmp $SERVED $COPY
}

a_file_goes_there_and_back() { load_file --file /h/bin/frwr-check --runtime 2; }
keys_are_killed_locally() { load_file --no-remote-invalidate --runtime 1 --json | tee /dev/stderr | grep -q '"remote_invalidations":0,'; }
nobody_listens_is_told_in_one_line() {
    load_file --reconnects 1 > /tmp/out 2> /tmp/err
    code=$?
    cat /tmp/out /tmp/err
    [ $code -eq 1 ] && grep -q '^error: no session with' /tmp/err && [ "$(grep -vc -e ' s  ' -e '^libibverbs: ' /tmp/err)" -eq 1 ]
}

# Of the main thread alone: posts are the other one's.
few_system_calls() {
    load_file --runtime 20 --json > /tmp/load.json 2> /tmp/load.err &
    load=$!
    wait_for 60 grep -q 'mixed load' /tmp/load.err || return 1
    for main in $(pidof frwr-reactor); do
        # By its arguments: `timeout` is another program, and serve is the other one of this name.
        tr '\0' ' ' < "/proc/$main/cmdline" | grep -q '^frwr-reactor load ' && break
    done
    timeout -s INT 10 strace -c -p "$main" -o /tmp/calls
    cat /tmp/calls /tmp/load.err
    kill -INT "$main"
    wait $load
    calls=$(awk '$NF == "total" { print $4 }' /tmp/calls)
    echo "calls in 10 s: $calls"
    [ "$calls" -lt 200 ]
}

the_target_goes_away() {
    load_file --runtime 60 --reconnects 2 > /tmp/out 2> /tmp/err &
    load=$!
    wait_for 60 grep -q 'mixed load' /tmp/err || return 1
    kill -KILL $serve
    wait $load
    code=$?
    cat /tmp/out /tmp/err
    [ $code -eq 1 ] && grep -q '^caught: the host gave up' /tmp/err
}

run_test check_lists_the_device frwr-check --device rxe0
run_test nobody_listens_is_told_in_one_line nobody_listens_is_told_in_one_line
run_test serve_listens start_serve
run_test a_copy_has_the_same_bytes a_copy_has_the_same_bytes
run_test a_file_goes_there_and_back a_file_goes_there_and_back
run_test keys_are_killed_locally keys_are_killed_locally
run_test few_system_calls few_system_calls
run_test serve_ends end_serve
run_test serve_listens_again start_serve --no-remote-invalidate
run_test plain_sends load_file --runtime 1
run_test the_target_goes_away the_target_goes_away
