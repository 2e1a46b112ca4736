# shellcheck shell=dash
# For jobs that count calls of kernel functions: `. /h/guest/trace.sh`. The function tracer writes a line for every call, with its
# caller, in interrupts too; a probe would miss those that come while another one is handled.
TRACE=/sys/kernel/tracing
# KiB for each processor: a call takes 32 bytes, and a job has tens of thousands.
TRACE_BUFFER=8192
CALLS=/tmp/calls

# The tracer stays on from the first trace to the guest's end, and only what it traces changes: with it the kernel's scheduler is patched
# while it runs, in which a processor that QEMU emulates has hung for ever (in one of some forty runs, both of the host's processors busy).
begin_trace() { # function...
    grep -q " $TRACE " /proc/mounts || mount -t tracefs none $TRACE || return 1
    # In one step, and in front of the tracer: without a filter every function of the kernel would be traced.
    printf '%s\n' "$@" > $TRACE/set_ftrace_filter || { echo "the kernel has not all of the functions to trace: $*"; return 1; }
    if ! grep -qx function $TRACE/current_tracer; then
        echo 0 > $TRACE/tracing_on && echo $TRACE_BUFFER > $TRACE/buffer_size_kb && echo function > $TRACE/current_tracer || return 1
    fi
    echo > $TRACE/trace && echo 1 > $TRACE/tracing_on
}

# Calls by function and caller are then in a file; fails where the tracer has lost any.
end_trace() {
    echo 0 > $TRACE/tracing_on
    awk -v calls=$CALLS '
        /entries-written:/ { split($3, number, "/"); whole = number[1] == number[2] }
        # "FUNCTION <-CALLER", with or without the names of their modules in brackets.
        !/^#/ && NF > 1 { gsub(/ \[[a-z0-9_]+\]/, ""); count[$(NF - 1) " " substr($NF, 3)]++ }
        END {
            printf "" > calls
            for (call in count) print call, count[call] > calls
            exit !whole
        }' $TRACE/trace
    local code=$?
    sort $CALLS | sed 's/^\([^ ]*\) \([^ ]*\) /traced: \1 called by \2: /'
    [ $code -eq 0 ] || echo "the tracer has lost calls: give it a larger buffer"
    return $code
}

calls() { # function [caller]
    awk -v name="$1" -v caller="${2:-}" '$1 == name && (caller == "" || $2 == caller) { sum += $3 } END { print sum + 0 }' $CALLS
}
