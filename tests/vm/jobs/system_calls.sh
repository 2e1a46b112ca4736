# shellcheck shell=dash
# System calls of the whole load process, all threads, its whole life: posts equal doorbells, and hardly anything else.
# On rxe a post of sends is write(2) with command 28 (IB_USER_VERBS_CMD_POST_SEND) to the device file; posts of receives and
# polls are memory only. The watch for stalls is the main thread's, which looks as often as its threshold is short: it is off.
# tools: strace:strace
# limit: 120
. /h/guest/halves.sh
make_served 262144
MOST_PER_SECOND=20

# Lines are "THREAD TIME CALL(...". A call that was interrupted by another thread's is shown in two lines; its end does
# not count. The self-test posts from the main thread, before there is a reactor: the second one, since the first only gives it its
# stack.
summary() { # trace
    awk '
        $3 ~ /^(<\.\.\.|---|\+\+\+)/ { next }
        !($1 in seen) { seen[$1]; if (++started == 2) main = $1 }
        { is_post = $3 ~ /^write\(/ && $4 ~ /^"\\34\\0\\0\\0/ }
        is_post && $1 != main { posts++; threads[$1] }
        is_post && $1 == main { posts_of_main++ }
        # Steady state: between the first and the last line of progress that names it.
        /write\(2, .*mixed load/ { if (!from) { from = $2; at_from = others } else { to = $2; at_to = others } }
        from && is_post { posts_since++ }
        /write\(2, .*mixed load/ { posts_at_to = posts_since }
        !is_post { others++ }
        # Which they are, for the log.
        from && !is_post { name = $3; sub(/\(.*/, "", name); calls[name " of " ($1 == main ? "main" : "thread " $1)]++ }
        END {
            for (thread in threads) reactors++
            for (name in calls) print "# since the steady state began: " calls[name] " " name
            seconds = to - from
            print "posts=" posts + 0 " posters=" reactors + 0 " posts_of_main=" posts_of_main + 0
            print "seconds=" seconds " posts_in_them=" posts_at_to + 0 " others_in_them=" at_to - at_from
        }' "$1"
}

posts_are_doorbells_and_little_else_happens() {
    timeout -s KILL 100 strace -f -ttt -e trace=all -o /tmp/trace \
        /h/bin/frwr load --device rxe0 --connect "$ADDRESS" --cores 1 --runtime 8 --stall-threshold 0 --json \
        > /tmp/report 2> /tmp/load.err || { cat /tmp/load.err; return 1; }
    cat /tmp/load.err /tmp/report
    grep -c . /tmp/trace
    gzip -c /tmp/trace > "$LOGS/trace.gz"
    summary /tmp/trace > /tmp/summary
    cat /tmp/summary
    awk -F '[= ]' -v doorbells="$(field doorbells /tmp/report)" -v markers="$(field drain_markers /tmp/report)" \
        -v most="$MOST_PER_SECOND" '
        /^posts=/ { posts = $2; posters = $4 }
        /^seconds=/ { seconds = $2; busy = $4; others = $6 }
        END {
            print posts " posts, " doorbells " doorbells and " markers " drain markers; in " seconds " s of steady state " \
                busy " posts and " others / seconds " other calls a second, at most " most
            exit !(posters == 1 && posts > 100 && posts == doorbells + markers && markers >= 1 && seconds >= 4 &&
                busy > 100 && others / seconds < most)
        }' /tmp/summary
}

run_test serve_listens start_serve
run_test posts_are_doorbells_and_little_else_happens posts_are_doorbells_and_little_else_happens
run_test serve_ends end_serve
