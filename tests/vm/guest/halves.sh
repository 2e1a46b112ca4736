# shellcheck shell=dash
# For jobs that run frwr serve and load as two processes: `. /h/guest/halves.sh` after setting what differs.
# Needs the program frwr, built with the feature verbs.
# shellcheck disable=SC2034  # jobs read some
SERVE_DEVICE=${SERVE_DEVICE:-rxe0}
LOAD_DEVICE=${LOAD_DEVICE:-rxe0}
ADDRESS=${ADDRESS:-10.9.0.1:4420}
SERVED=/tmp/served

# What is served, and how load is told what to expect of it.
make_served() { # bytes
    head -c "$1" /dev/urandom > $SERVED
    BYTES=$1
    DIGEST=$(sha256sum $SERVED | cut -d ' ' -f 1)
}

said() { grep -qs "$1" "$LOGS/serve.stderr"; }

start_serve() { # arguments...
    # What the one before said must not be taken for this one's.
    rm -f "$LOGS/serve.json" "$LOGS/serve.stderr"
    frwr serve --device "$SERVE_DEVICE" --listen "$ADDRESS" --namespace $SERVED --cores 0 --json "$@" \
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
    timeout -s KILL 100 frwr load --device "$LOAD_DEVICE" --connect "$ADDRESS" --cores 1 "$@"
}

# What programs have of the devices, by kind: a line "KIND COUNT" each; of all of them, or of all but one process. Whose an object is
# the kernel says by the thread that made it, which is never a program's first one here, and not at all once that thread has ended: who
# looks for what the dead left leaves out what the living have.
objects_beside() { # [process]
    threads=$(ls "/proc/${1:-none}/task" 2> /dev/null | tr '\n' '|')
    for kind in qp mr cm_id cq pd; do
        echo "$kind $(rdma res show $kind | grep -E '^(link|dev) ' | grep -v ' comm \[' | grep -cvE " pid (${threads}none) ")"
    done
}

# An idle serve has a listener, memory and completion queues: where none are seen of it, nothing would be of what the dead left.
is_seen() { # file of objects_beside
    cat "$1"
    ! grep -v '^qp ' "$1" | grep -q ' 0$'
}

# Starts load in the background, with its output in /tmp/load.json and /tmp/load.err, and waits for its steady state.
# Not behind `timeout`, so that $load is its process.
start_load() { # arguments...
    rm -f /tmp/load.json /tmp/load.err
    frwr load --device "$LOAD_DEVICE" --connect "$ADDRESS" --cores 1 --json "$@" \
        > /tmp/load.json 2> /tmp/load.err &
    load=$!
    wait_for 60 grep -qs 'mixed load' /tmp/load.err || { cat /tmp/load.err; return 1; }
}

# A number or word of a report in JSON. Names in lists of a report come before the same name of the report itself.
field() { # name file
    sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$2"
}

# The command ends with this exit code and one line of error that matches; nothing else but progress on stderr, and what a core has to
# say of a busy machine.
fails_with() { # exit_code regex command...
    local wanted=$1 regex=$2 code
    shift 2
    "$@" > /tmp/out 2> /tmp/err
    code=$?
    cat /tmp/out /tmp/err
    grep -v -e ' s  ' -e '^libibverbs: ' -e "^$SERVED: " -e '^listening on ' -e '^warning: process ' \
        -e '^core [0-9]* (reactor [0-9]*) ' -e '^stalls: ' -e '^all cores are ready, after ' /tmp/err > /tmp/said
    [ $code -eq "$wanted" ] || { echo "-- exit code $code"; return 1; }
    [ "$(wc -l < /tmp/said)" -eq 1 ] && grep -qE "$regex" /tmp/said || { echo "-- not one line with $regex:"; cat /tmp/said; return 1; }
    ! [ -s /tmp/out ] || { echo "-- something on stdout"; return 1; }
}
