# shellcheck shell=dash
# frwr latency over soft RoCE, as two processes and as one: each operation, key and way to kill it; peers that die.
# limit: 300
ADDRESS=10.9.0.1
LONG="--runtime 60 --warm-up 0"

said() { grep -qs "$1" "$LOGS/latency.stderr"; }

# A number or word of a report in JSON.
field() { # name file
    sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$2"
}

start_server() {
    rm -f "$LOGS/latency.stderr"
    frwr latency --device rxe0 --cores 0 > "$LOGS/latency.stdout" 2> "$LOGS/latency.stderr" &
    server=$!
    wait_for 30 said '^listening on 10.9.0.1:49200' || { cat "$LOGS/latency.stderr"; return 1; }
}

end_server() {
    kill -TERM $server && wait $server
    code=$?
    cat "$LOGS/latency.stdout" "$LOGS/latency.stderr"
    [ $code -eq 0 ] && grep -q 'client(s) served' "$LOGS/latency.stdout"
}

client() { # arguments...
    timeout -s KILL 60 frwr latency $ADDRESS --device rxe0 --cores 1 "$@"
}

# So many requests of this kind, with so many work requests each.
measures() { # requests work_requests command...
    local requests=$1 work=$2
    shift 2
    "$@" --iterations "$requests" --warm-up 0.05 --json > /tmp/report 2> /tmp/err || { cat /tmp/report /tmp/err; return 1; }
    cat /tmp/report
    grep -qE "\"requests\":${requests}[,}]" /tmp/report && grep -qE "\"work_requests_per_request\":${work}[,}]" /tmp/report &&
        grep -q '"hardware":null' /tmp/report
}

one_process() { # arguments...
    timeout -s KILL 60 frwr latency --device rxe0 --one-process --cores 0,1 "$@"
}

every_request() {
    measures 500 2.0 client && measures 500 3.0 client --invalidate local && measures 500 1.0 client --key static &&
        measures 500 1.0 client --key memory && measures 500 2.0 client --peer read && measures 2000 2.0 client --depth 32 &&
        measures 500 4.0 client --size 8192 --segments 2 --depth 4
}

every_other_operation() {
    measures 500 1.0 client --op write && measures 500 1.0 client --op read --depth 4 && measures 500 1.0 client --op send &&
        measures 500 1.0 client --op pingpong && measures 500 1.0 client --op pingpong --key memory --depth 4 &&
        measures 500 16.0 client --op write --size 128 --ranges 16 --depth 2 &&
        measures 500 4.0 client --op read --ranges 4 --segments 2 &&
        measures 640 2.0 client --op register && measures 640 2.0 client --op register --batch 32 &&
        measures 500 1.0 client --op write --key memory && measures 500 1.0 client --op read --key memory --depth 4 &&
        measures 640 0.0 client --op register --key memory --batch 32
}

# What differs where both ends are in one program; each operation is run by its two processes, and over the emulated card.
one_program() {
    measures 500 2.0 one_process && measures 500 3.0 one_process --invalidate local && measures 2000 2.0 one_process --depth 32 &&
        measures 500 1.0 one_process --op write && measures 640 2.0 one_process --op register --batch 32
}

# A13: from the first request that is counted to the end of the last, all memory of the reactor's thread is there.
# A second run decides where the first had one: the kernel may take back a page of the program once, and what a request needs
# would fault in both.
no_page_faults() { # work_requests arguments...
    local work=$1 turn
    shift
    for turn in first second; do
        measures 6400 "$work" client "$@" || return 1
        ! grep -q '"page_faults":0,"page_faults_of_process":' /tmp/report || return 0
        echo "the $turn run had page faults"
    done
    return 1
}

no_operation_has_page_faults() {
    no_page_faults 2.0 --depth 32 && no_page_faults 1.0 --op write --depth 8 && no_page_faults 2.0 --op register --batch 32
}

large_keys() {
    measures 320 2.0 one_process --op register --batch 32 --size 16777216 &&
        measures 64 0.0 one_process --op register --key memory --batch 32 --size 16777216
}

tables() {
    one_process --runtime 0.5 --warm-up 0.1 > /tmp/out || return 1
    cat /tmp/out
    grep -q t_typical /tmp/out && grep -q 'windows' /tmp/out
}

# One after the other, each a client of its own for the server.
several_sizes() {
    client --size 64,16K,512 --iterations 300 --warm-up 0.05 --json > /tmp/report || return 1
    cat /tmp/report
    [ "$(grep -oE '"requests":300[,}]' /tmp/report | wc -l)" -ge 3 ] &&
        [ "$(grep -oE '"size":(64|512|16384)[,}]' /tmp/report | tr -dc '0-9\n' | tr '\n' ' ')" = "64 16384 512 " ]
}

start_client() {
    # shellcheck disable=SC2086  # several words
    frwr latency $ADDRESS --device rxe0 --cores 1 $LONG --json > /tmp/client.json 2> /tmp/client.err &
    client=$!
}

# One line of error, and this exit code.
ends_with() { # exit_code regex
    wait $client
    code=$?
    cat /tmp/client.json /tmp/client.err
    grep -v '^libibverbs: ' /tmp/client.err > /tmp/said
    [ $code -eq "$1" ] && [ "$(wc -l < /tmp/said)" -eq 1 ] && grep -qE "$2" /tmp/said
}

the_server_is_killed() {
    rm -f "$LOGS/latency.stderr"
    start_server && start_client && wait_for 30 said '^client .*: request' || return 1
    kill -KILL $server
    ends_with 1 '^error: 10.9.0.1:49200: the peer is gone after [0-9]+ requests'
}

the_client_is_killed() {
    start_client && wait_for 30 said '^client .*: request' || return 1
    kill -KILL $client
    wait_for 30 said '^client is gone after [0-9]* command' && [ "$(grep -c 'is gone' "$LOGS/latency.stderr")" -eq 1 ] &&
        measures 100 2.0 client
}

nobody_listens() {
    client --json > /tmp/client.json 2> /tmp/client.err &
    client=$!
    ends_with 1 '^error: 10.9.0.1:49200: no connection'
}

run_test nobody_listens_is_told_in_one_line nobody_listens
run_test server_listens start_server
run_test requests_of_two_processes every_request
run_test other_operations_of_two_processes every_other_operation
run_test no_operation_has_page_faults no_operation_has_page_faults
run_test two_clients_do_not_mix measures 2000 2.0 client --connections 4 --depth 8
run_test several_sizes_one_after_the_other several_sizes
run_test server_ends end_server
run_test operations_of_one_process one_program
run_test large_keys large_keys
run_test tables tables
run_test the_server_is_killed the_server_is_killed
run_test server_listens_again start_server
run_test the_client_is_killed the_client_is_killed
run_test server_ends_again end_server
