# shellcheck shell=dash
# frwr serve and load as two processes over the device: a file there and back, and what ends a run.
# limit: 300
. /h/guest/halves.sh
COPY=/tmp/copy
make_served 67108001

# Every key was killed and none is live; the most work requests for each request.
keys_are_dead() { # report most
    awk -v made="$(field registrations "$1")" -v by_us="$(field local_invalidations "$1")" \
        -v by_peer="$(field remote_invalidations "$1")" -v destroyed="$(field keys_destroyed_live "$1")" \
        -v live="$(field keys_live "$1")" -v work="$(field work_requests "$1")" \
        -v requests="$(field requests "$1")" -v most="$2" 'BEGIN {
            print made " keys, " by_us " + " by_peer " + " destroyed " dead, " live " live; " \
                work / requests " work requests per request, at most " most
            exit !(made > 0 && made == by_us + by_peer + destroyed && live == "0" && work <= most * requests)
        }'
}

a_copy_has_the_same_bytes() {
    load_file --bytes "$BYTES" --expect-sha256 "$DIGEST" --output $COPY --runtime 2 --json > /tmp/report || return 1
    cat /tmp/report
    cmp $SERVED $COPY && [ "$(field sha256 /tmp/report)" = "$DIGEST" ] && grep -q '"verified":true' /tmp/report &&
        [ "$(field remote_invalidations /tmp/report)" -gt 16384 ] && keys_are_dead /tmp/report 2.0
}

a_file_goes_there_and_back() {
    load_file --file /bin/busybox --runtime 2 --json > /tmp/report || return 1
    cat /tmp/report
    grep -q '"verified":true' /tmp/report && keys_are_dead /tmp/report 2.0
}

keys_are_killed_locally() {
    load_file --no-remote-invalidate --runtime 1 --json > /tmp/report || return 1
    cat /tmp/report
    [ "$(field remote_invalidations /tmp/report)" -eq 0 ] && keys_are_dead /tmp/report 3.0
}

the_target_goes_away() {
    start_load --runtime 60 --reconnects 2 || return 1
    kill -KILL $serve
    wait $load
    code=$?
    cat /tmp/load.json /tmp/load.err
    [ $code -eq 1 ] && grep -q '^caught: the host gave up' /tmp/load.err
}

run_test check_lists_the_device frwr check --device rxe0
run_test nobody_listens_is_told_in_one_line fails_with 1 '^error: no session with' load_file --reconnects 1
run_test serve_listens start_serve
run_test a_copy_has_the_same_bytes a_copy_has_the_same_bytes
run_test a_file_goes_there_and_back a_file_goes_there_and_back
run_test keys_are_killed_locally keys_are_killed_locally
run_test serve_ends end_serve
run_test serve_listens_again start_serve --no-remote-invalidate
run_test plain_sends load_file --runtime 1
run_test the_target_goes_away the_target_goes_away
