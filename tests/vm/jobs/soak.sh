# shellcheck shell=dash
# Halves that are killed at random instants: half of the time hosts that load one serve, then serves that one load loads.
# Who survives goes on, with every byte verified and without more memory; nothing of the dead is left.
# tests/run sets the next two lines, and the limit, as it is asked.
SOAK_SECONDS=20
SOAK_SEED=1
# limit: 180
. /h/guest/halves.sh

# Deaths before memory is compared: until then the survivor takes what it will ever need.
WARM_UP=2
# KiB that a survivor may have more behind them: what its allocator keeps of one host or another.
SLACK=256
# Thousandths of a second between a start and a death, at most: connecting, the first file and the load all take a part of it.
LONGEST_LIFE=2500
FILE=/tmp/soak.file
FILE_BYTES=262144

# The numbers of the seed; jobs have no other source that can be had again.
state=$SOAK_SEED
draw() { # below; in $drawn
    state=$(((state * 1103515245 + 12345) & 0x7fffffff))
    drawn=$(((state >> 8) % $1))
}
live_a_while() { draw $LONGEST_LIFE && usleep $((drawn * 1000)); }

uptime_seconds() { cut -d . -f 1 /proc/uptime; }
resident() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }
descriptors() { ls "/proc/$1/fd" | wc -l; }
# What the survivor has of the devices, and of the system.
held() { # survivor other
    objects_beside "$2"
    echo "descriptors $(descriptors "$1")"
}

has_nothing_beside() { ! objects_beside "$1" | grep -qv ' 0$'; }
serves_nobody() { objects_beside | grep -q '^qp 0$'; }
serve_is_as_before() { held $serve none | cmp -s - /tmp/before; }

# What the dead one had is gone: at once, or when its last packet is.
is_gone() { # survivor
    wait_for 20 has_nothing_beside "$1" || { echo "left of the dead:" && objects_beside "$1" && return 1; }
}

die() { # process survivor
    kill -KILL "$1" || { echo "it had ended by itself"; cat /tmp/load.err "$LOGS/serve.stderr"; return 1; }
    wait "$1"
    code=$?
    [ $code -eq 137 ] || { echo "process $1 ended with $code"; cat /tmp/load.err "$LOGS/serve.stderr"; return 1; }
    is_gone "$2"
}

is_flat() { # name first last
    echo "resident memory of $1: $2 KiB, at last $3 KiB"
    [ "$3" -le $(($2 + SLACK)) ]
}

# The namespace is the file itself, which outlives serve. Few buffers: an emulated machine takes seconds to map as many as usual.
serve_the_file() { start_serve --backing auto --max-transfer 64K --queue-depth 32; }

moves_a_file() {
    load_file --file $FILE --runtime 0 --json > /tmp/report 2> /tmp/err || { cat /tmp/report /tmp/err; return 1; }
    requests=$((requests + $(field requests /tmp/report)))
    grep -q '"verified":true' /tmp/report
}

a_host_dies() {
    frwr load --device "$LOAD_DEVICE" --connect "$ADDRESS" --cores 1 --file $FILE --runtime 600 \
        > /tmp/load.json 2> /tmp/load.err &
    load=$!
    live_a_while
    die $load $serve && moves_a_file
}

hosts_die() {
    first=""
    ends=$(($(uptime_seconds) + SOAK_SECONDS / 2))
    while [ "$(uptime_seconds)" -lt $ends ] || [ $hosts -le $WARM_UP ]; do
        a_host_dies || return 1
        hosts=$((hosts + 1))
        wait_for 20 serve_is_as_before || { echo "serve had:" && cat /tmp/before && echo "it has:" && held $serve none; return 1; }
        [ $hosts -ne $WARM_UP ] || first=$(resident $serve)
    done
    is_flat serve "$first" "$(resident $serve)"
}

load_is_back() { held $load $serve | cmp -s - /tmp/loaded || ! kill -0 $load; }
came_back() {
    wait_for 60 load_is_back || { echo "load had:" && cat /tmp/loaded && echo "it has:" && held $load $serve && cat /tmp/load.err; return 1; }
}

# The next one is there before the host has tried in vain too often.
a_serve_dies() {
    live_a_while
    kill -0 $load || { echo "load has ended"; cat /tmp/load.json /tmp/load.err; return 1; }
    die $serve $load && serve_the_file && came_back
}

serves_die() {
    start_load --file $FILE --runtime $((SOAK_SECONDS + 600)) --reconnects 100 --io-retries 100 || return 1
    held $load $serve > /tmp/loaded
    first=""
    at=0
    ends=$(($(uptime_seconds) + SOAK_SECONDS / 2))
    while [ "$(uptime_seconds)" -lt $ends ] || [ $at -eq 0 ]; do
        a_serve_dies || return 1
        at=$((at + 1))
        [ $at -ne $WARM_UP ] || first=$(resident $load)
        last=$(resident $load)
    done
    serves=$at
    kill -TERM $load && wait $load
    code=$?
    cat /tmp/load.json /tmp/load.err
    [ $code -eq 0 ] && grep -q '"verified":true' /tmp/load.json || return 1
    requests=$((requests + $(field requests /tmp/load.json)))
    [ -z "$first" ] || is_flat load "$first" "$last"
}

# What a serve acknowledged is there for the next one.
the_file_outlives_serve() {
    moves_a_file && die $serve none && serve_the_file || return 1
    load_file --bytes $FILE_BYTES --expect-sha256 "$(sha256sum $FILE | cut -d ' ' -f 1)" --runtime 0 --json > /tmp/report ||
        { cat /tmp/report; return 1; }
    grep -q '"verified":true' /tmp/report
}

hosts=0 serves=0 requests=0
make_served 1048576
head -c $FILE_BYTES /dev/urandom > $FILE
run_test serve_listens serve_the_file
run_test the_first_host_is_served moves_a_file
wait_for 20 serves_nobody
held $serve none > /tmp/before
run_test what_serve_has_is_seen is_seen /tmp/before
run_test hosts_die hosts_die
run_test serves_die serves_die
run_test the_file_outlives_serve the_file_outlives_serve
run_test serve_ends end_serve
note "seed $SOAK_SEED, $SOAK_SECONDS s: $hosts hosts and $serves serves killed, $requests requests verified"
