# shellcheck shell=dash
# Cores that sleep on soft RoCE: completion channels wake them, and who has nothing to do makes no iterations. Each sleep is one wake-up,
# so that counts say it, whatever the machine does meanwhile.
# limit: 300
. /h/guest/halves.sh
make_served 262144
CONTROL=/tmp/control.sock
SLEEPS=50
# Between two sleeps: what woke it is looked for, then the pollers agree, arm, and everything is looked at once more.
MOST_ITERATIONS=8

# What the only core has counted: sleeps and iterations.
counted() {
    frwr ctl --control $CONTROL cores > /tmp/told || { cat /tmp/told; return 1; }
    tr -d ' \n' < /tmp/told > /tmp/cores
    echo "$(field sleeps /tmp/cores) $(field iterations /tmp/cores)"
}

has_slept() { # how often
    [ "$(counted | cut -d ' ' -f 1)" -ge "$1" ]
}

an_idle_core_makes_no_iterations() {
    local before after
    before=$(counted) || { cat /tmp/cores; return 1; }
    wait_for 60 has_slept $((${before% *} + SLEEPS)) && after=$(counted) || { cat /tmp/cores; return 1; }
    echo "$before $after" | awk -v most=$MOST_ITERATIONS '{
        print $3 - $1 " sleeps, " $4 - $2 " iterations, at most " most " each"
        exit !($4 - $2 <= most * ($3 - $1))
    }'
}

# As much as was asked for, with every byte as it was written; a host that sleeps has slept.
moves() { # whether_it_sleeps arguments...
    local sleeps=$1
    shift
    load_file --bytes "$BYTES" --expect-sha256 "$DIGEST" --runtime 1 --json "$@" > /tmp/report || { cat /tmp/report; return 1; }
    cat /tmp/report
    grep -q '"verified":true' /tmp/report || return 1
    [ "$sleeps" = no ] || [ "$(field sleeps /tmp/report)" -gt 0 ]
}

heard() { grep -qs '^listening on' "$LOGS/latency.stderr"; }

start_latency() {
    frwr latency --device rxe0 --cores 0 --idle sleep:0 > "$LOGS/latency.stdout" 2> "$LOGS/latency.stderr" &
    latency=$!
    wait_for 30 heard || { cat "$LOGS/latency.stderr"; return 1; }
}

# So many requests of a client whose core sleeps as well, or polls on.
latencies() { # how
    timeout -s KILL 100 frwr latency 10.9.0.1 --device rxe0 --cores 1 --iterations 50 --warm-up 0 --rate 20 --json --idle "$1" \
        > /tmp/report 2> /tmp/err || { cat /tmp/report /tmp/err; return 1; }
    cat /tmp/report
    note "request, one every 50 ms, to a server that sleeps, client $1: $(field sleeps_per_request /tmp/report) sleeps each"
    grep -q '"requests":50,' /tmp/report
}

latency_of_who_sleeps() {
    latencies sleep:0 && ! grep -q '"sleeps_per_request":0.0' /tmp/report && latencies spin && grep -q '"sleeps_per_request":0.0' /tmp/report
}

end_latency() { kill -TERM $latency && wait $latency; }

run_test serve_listens start_serve --idle sleep:0 --control $CONTROL
run_test an_idle_core_makes_no_iterations an_idle_core_makes_no_iterations
run_test a_host_that_polls_on_wakes_the_target moves no
run_test both_sleep moves yes --idle sleep:0 --queue-depth 1
run_test both_sleep_under_load moves yes --idle sleep --queue-depth 32
run_test an_idle_core_makes_no_iterations_behind_them an_idle_core_makes_no_iterations
run_test serve_ends end_serve
run_test serve_shares_receives start_serve --idle sleep:0 --shared-receives 1024 --no-remote-invalidate --backing auto
run_test shared_receives_wake moves yes --idle sleep:0 --queue-depth 4
run_test serve_ends_again end_serve
run_test latency_listens start_latency
run_test latency_of_who_sleeps latency_of_who_sleeps
run_test latency_ends end_latency
