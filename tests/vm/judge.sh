# shellcheck shell=bash
# What a boot's results say. Sourced. All verdicts end up in $passed, $failed and $skipped.

# What the kernel log must not hold after a boot.
COMPLAINTS=(
    'WARNING: '                             # WARN_ON: a kernel invariant broke, e.g. a QP destroyed with a window bound
    'BUG: '                                 # NULL dereference, lock-up, leak found by the resource tracker
    'Oops'                                  # a fault in kernel code
    'general protection fault'              # the same, by a wild pointer
    'Call Trace:'                           # whatever else the kernel found worth a stack
    'Kernel panic'                          # the guest did not survive
    'blocked for more than [0-9]+ seconds'  # a task hangs in the kernel: a teardown waits for a reference
    'rcu: INFO:'                            # a processor stalled
    'rcu_.* self-detected stall'            # the same, as worded by other versions
    'restrack: '                            # verbs objects left behind when their device went
    'rdma_rxe: .*(leak|unfree|timed out|still|failed)' # rxe's own teardown complaints
    'segfault at'                           # a program crashed, perhaps one that no test watched
    'Out of memory: '                       # the guest is too small for what runs in it: results mean nothing
)

complaints() { # file...
    local pattern
    pattern=$(IFS='|'; echo "${COMPLAINTS[*]}")
    cat "$@" 2> /dev/null | tr -d '\r' | grep -aE "$pattern"
}

# Lines of a failed test's log that are shown at once: who reads of the failure may have nothing but what the run printed.
TOLD_LINES=12

pass_record() { passed=$((passed + 1)); }

fail_record() { # name why...
    failed=$((failed + 1))
    echo "FAILED: vm $*"
}

# The results are whole when the last line counts the records before it.
results_complete() { # file
    local records
    records=$(grep -cE '^(ok|FAILED|skipped) ' "$1" 2> /dev/null) || records=0
    [ "$(tail -n 1 "$1" 2> /dev/null)" = "complete $records" ]
}

jobs_complete() { # share job_name...
    local share=$1 name
    shift
    for name in "$@"; do
        results_complete "$share/out/$name/results" || return 1
    done
}

boot_complete() { # share job_name...
    jobs_complete "$@" && [ -f "$1/out/done" ]
}

# Nothing that a test did explains this boot's end: not its hanging, and not a kernel that fell over it.
is_infrastructure_failure() { # share exit_code
    [ -f "$1/out/first-test" ] || return 0
    if limit_reached "$2"; then return 1; fi
    [ -z "$(complaints "$1/console.txt")" ]
}

count_records() { # job_name results
    local outcome name detail
    while read -r outcome name detail; do
        case $outcome in
            ok) pass_record ;;
            FAILED)
                fail_record "$1/$name: $detail"
                tail -n $TOLD_LINES "$(dirname "$2")/${name%%::*}.log" 2> /dev/null | tr -d '\r' | cut -c -300 | sed 's/^/    | /'
                ;;
            skipped)
                skipped=$((skipped + 1))
                echo "SKIPPED: vm $1/$name: $detail"
                ;;
            note) echo "vm: $1: $name $detail" ;;
        esac
    done < "$2"
}

# A job that provokes the kernel declares what the kernel says then; it must say it, and its boot is not judged further.
judge_log() { # job_name expected file...
    local name=$1 expected=$2 found
    shift 2
    if [ -n "$expected" ]; then
        cat "$@" 2> /dev/null | grep -aqE "$expected" ||
            fail_record "$name/kernel-log: it does not hold what the job expects: $expected"
        return
    fi
    found=$(complaints "$@")
    [ -z "$found" ] || fail_record "$name/kernel-log: $(wc -l <<< "$found") lines of complaint, see $RESULTS/$name
$(head -n 10 <<< "$found" | sed 's/^/    /')"
}

show_end() { # share
    echo "    -- end of the console ($1)"
    tail -n 30 "$1/console.txt" 2> /dev/null | tr -d '\r' | sed 's/^/    /'
    echo "    -- last output of the test"
    # shellcheck disable=SC2012  # names are ours
    tail -n 10 "$(ls -t "$1"/out/*/*.log 2> /dev/null | head -n 1)" 2> /dev/null | sed 's/^/    /'
}

# What a boot with incomplete results died of; one failure for each job that did not come to its end.
judge_incomplete() { # share exit_code limit job_name...
    local share=$1 code=$2 limit=$3 name why running
    shift 3
    running=$(cat "$share/out/running" 2> /dev/null)
    if [ -f "$share/out/setup-failed" ]; then
        why="the guest's set-up failed: $(cat "$share/out/setup-failed")"
    elif limit_reached "$code"; then
        why="stopped after $limit s in ${running:-the boot}"
    else
        why="the guest died in ${running:-the boot} (exit code $code)"
    fi
    for name in "$@"; do
        results_complete "$share/out/$name/results" || fail_record "$name: $why"
    done
    # All jobs came to their end, so the guest did not come to its own.
    ! jobs_complete "$share" "$@" || fail_record "$1/teardown: $why"
    show_end "$share"
    complaints "$share/console.txt" | head -n 10 | sed 's/^/    kernel: /'
    return 0
}

judge() { # share exit_code limit job_name...
    local share=$1 code=$2 limit=$3 name expected="" wanted=$EXIT_OK
    shift 3
    for name in "$@"; do
        [ ! -f "$share/out/$name/results" ] || count_records "$name" "$share/out/$name/results"
        ! grep -qs '^FAILED ' "$share/out/$name/results" || wanted=$EXIT_FAILED
    done
    # Only a boot of one job may expect complaints.
    [ $# -gt 1 ] || expected=$(declared expects "${JOB_FILES[$1]}")
    if ! boot_complete "$share" "$@"; then
        # A kernel that was meant to die takes the rest of the job with it.
        if [ -n "$expected" ] && grep -aqE "$expected" "$share/console.txt" && ! limit_reached "$code"; then return; fi
        judge_incomplete "$share" "$code" "$limit" "$@"
        return
    fi
    if [ -n "$expected" ]; then
        judge_log "$1" "$expected" "$share"/out/{boot,end}.log "$share/out/$1/kernel.log"
    else
        judge_log "$1" "" "$share/out/boot.log"
        for name in "$@"; do judge_log "$name" "" "$share/out/$name/kernel.log"; done
        judge_log "${*: -1}" "" "$share/out/end.log"
    fi
    [ "$code" -eq "$wanted" ] || fail_record "$1: QEMU ended with $code, $wanted belongs to these results"
}
