# shellcheck shell=dash
# For jobs that count calls of kernel functions: `. /h/guest/trace.sh`. The function tracer writes a line for every call, with its
# caller, in interrupts too; a probe would miss those that come while another one is handled.
TRACE=/sys/kernel/tracing
# KiB for each processor: a call takes 32 bytes, and a job has tens of thousands.
TRACE_BUFFER=8192
CALLS=/tmp/calls

begin_trace() { # function...
    local function
    grep -q " $TRACE " /proc/mounts || mount -t tracefs none $TRACE || return 1
    echo nop > $TRACE/current_tracer && echo $TRACE_BUFFER > $TRACE/buffer_size_kb && echo > $TRACE/set_ftrace_filter || return 1
    for function in "$@"; do
        # Without a filter every function of the kernel would be traced.
        echo "$function" >> $TRACE/set_ftrace_filter || { echo "the kernel has no function $function to trace"; return 1; }
    done
    echo function > $TRACE/current_tracer && echo > $TRACE/trace && echo 1 > $TRACE/tracing_on
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
    echo nop > $TRACE/current_tracer && echo > $TRACE/set_ftrace_filter && echo 1 > $TRACE/tracing_on
    sort $CALLS | sed 's/^\([^ ]*\) \([^ ]*\) /traced: \1 called by \2: /'
    [ $code -eq 0 ] || echo "the tracer has lost calls: give it a larger buffer"
    return $code
}

calls() { # function [caller]
    awk -v name="$1" -v caller="${2:-}" '$1 == name && (caller == "" || $2 == caller) { sum += $3 } END { print sum + 0 }' $CALLS
}
