# shellcheck shell=dash
# For jobs that measure (benches/guest): `. /h/guest/figures.sh`. A figure has as many samples as there are rounds, one line
# "KEY VALUE" each in the file `figures` of the job's results, and "= KEY" when all were taken; "! KEY reason" where they cannot be.
ROUNDS=${ROUNDS:-5}
FIGURES=$LOGS/figures

sample() { echo "$1 $2" >> "$FIGURES"; } # key value

# The keys have no figure, and why.
no_figure() { # keys reason
    local key
    for key in $1; do echo "! $key $2" >> "$FIGURES"; done
}

# Runs a command that takes one sample of each key, once for each round. The things that are compared belong into one
# command, so that they take turns. What fails ends the keys, not the job.
rounds() { # name keys command...
    local name=$1 keys=$2 round=1 key
    shift 2
    begin "$name"
    while [ $round -le "$ROUNDS" ]; do
        if ! "$@" > /tmp/round 2>&1; then
            cat /tmp/round >> "$LOGS/$name.log"
            no_figure "$keys" "$(grep -v '^ *$' /tmp/round | tail -n 1)"
            report "$name" FAILED "in round $round, see $name.log"
            return
        fi
        cat /tmp/round >> "$LOGS/$name.log"
        round=$((round + 1))
    done
    for key in $keys; do echo "= $key" >> "$FIGURES"; done
    report "$name" ok
}

# The report of a run, without its list of cores, whose members have the same names.
keep_report() { tail -n 1 /tmp/latency.out | sed 's/"per_core":\[[^]]*\],*//' > /tmp/latency.json; }

# One run of frwr latency on rxe0 with both ends in one process and on one core, as the loops in C are; its report is
# /tmp/latency.json.
latency() { # arguments...
    rm -f /tmp/latency.json
    timeout -s KILL 60 /h/bin/frwr latency --device rxe0 --one-process --cores 1 --json "$@" > /tmp/latency.out 2> /tmp/latency.err
    code=$?
    keep_report
    echo "$*: $(cat /tmp/latency.json)"
    # The last line is the reason where there is no figure.
    [ $code -eq 0 ] || { tail -n 1 /tmp/latency.err | grep . || echo "frwr latency: exit code $code"; return 1; }
}

# A number of that report; of times the median is p50.
reported() { # name
    sed -n "s/.*\"$1\":\([0-9.eE+-]*\).*/\1/p" /tmp/latency.json
}

# Microseconds per request of that report.
us_per_request() { reported requests_per_second | awk '$1 > 0 { printf "%.4f\n", 1e6 / $1 }'; }

# A peer that prints "us NUMBER" in its last line: one sample.
peer_sample() { # key command...
    local key=$1
    shift
    timeout -s KILL 60 "$@" > /tmp/peer 2>&1 || { tail -n 1 /tmp/peer; echo "$*: failed: $(tail -n 1 /tmp/peer)"; return 1; }
    cat /tmp/peer
    sample "$key" "$(awk '$1 == "us" { value = $2 } END { print value }' /tmp/peer)"
}

# The median of the run that peer_sample has just taken a sample of, which prints "median NUMBER" as well.
peer_median() { # key
    sample "$1" "$(awk '$1 == "median" { value = $2 } END { print value }' /tmp/peer)"
}
