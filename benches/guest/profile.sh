# shellcheck shell=dash
# No row of its own: where the time of rows A14, A15 and A17 goes. Each program runs on one processor, is sampled there by a timer,
# and its time per request without samples, the median, is split by what the samples stood in. docs/performance.md reads it:
#   tests/vm/run --programs target/vm/benches.list benches/guest/profile.sh
# The timer interrupts nothing that has interrupts off: such a stretch counts where it turns them on again.
# tools: perf:linux-perf
# limit: 420
. /h/guest/figures.sh
# Samples per second. An emulated interrupt takes some 20 us, so that more of them would be measured too.
RATE=997
# Samples that count: from this share of a run to that, so that neither its set-up nor its end is among them.
FROM=0.45
TO=0.9
# What `latency` has its reactor on; its main thread is elsewhere.
PROCESSOR=1

# Splits samples (`perf script`: a line with program, process and time, a line for each frame, an empty one) into parts of one
# request's time. Parts of the kernel go by the innermost function that is a part of soft RoCE.
split_samples() { # name us_per_request
    awk -v name="$1" -v us="$2" -v from=$FROM -v to=$TO -v symbols="$LOGS/$1.symbols" '
        function part(  i, where, task, soft) {
            if (process == 0) return "idle"
            if (dso[1] !~ /^\[/ || dso[1] == "[vdso]") return dso[1] ~ /^(frwr|verbs_)/ ? "program" : "libraries"
            for (i = 1; i <= frames; i++) {
                if (task == "" && symbol[i] ~ /^rxe_(requester|responder|completer)$/) task = substr(symbol[i], 5)
                if (symbol[i] ~ /do_softirq/) soft = 1
                if (symbol[i] ~ /^ib_uverbs_write/) where = "post"
                if (symbol[i] ~ /^ib_uverbs_(ioctl|cmd_verbs)/) where = "ioctl"
            }
            # Behind the end of a system call what was put off is done.
            if (task != "") return task (soft ? " (softirq)" : "")
            if (where != "") return where
            if (soft) return "softirq"
            return symbol[frames] ~ /^(entry_|ret_|syscall_)/ || symbol[frames - 1] ~ /^(entry_|do_syscall)/ ? "system call" : "interrupts"
        }
        function keep() {
            if (frames == 0) return
            all++
            at[all] = time; of[all] = process; who[all] = part(); top[all] = dso[1] " " symbol[1]
            samples[process]++
            frames = 0
        }
        /^[^\t]/ && NF { keep(); time = $NF + 0; process = $(NF - 1) + 0; next }
        NF > 1 {
            frames++
            dso[frames] = $NF; gsub(/^\(|\)$/, "", dso[frames]); sub(/.*\//, "", dso[frames])
            symbol[frames] = $2
        }
        END {
            keep()
            for (p in samples) if (p != 0 && samples[p] > samples[main]) main = p
            for (i = 1; i <= all; i++) if (of[i] == main) { if (!first) first = at[i]; last = at[i] }
            for (i = 1; i <= all; i++) {
                if (at[i] < first + from * (last - first) || at[i] > first + to * (last - first)) continue
                n++
                if (of[i] != main && of[i] != 0 && who[i] !~ /softirq/) who[i] = "others"
                parts[who[i]]++
                tops[who[i] ": " top[i]]++
            }
            if (n == 0) exit 1
            line = sprintf("%s %.1f us of %d samples:", name, us, n)
            split("program,libraries,system call,post,ioctl,requester,responder,completer,requester (softirq),responder (softirq),completer (softirq),softirq,interrupts,others,idle", order, ",")
            for (i = 1; i in order; i++) if (parts[order[i]]) line = line sprintf(" %s %.1f,", order[i], us * parts[order[i]] / n)
            sub(/,$/, "", line)
            print line
            for (t in tops) printf "%.2f %s\n", us * tops[t] / n, t > symbols
        }'
}

# Both processors, since a program is known only where it was started; those of processor 1 are looked at.
sampled() { # command...
    timeout -s KILL 60 perf record -q -a -e cpu-clock -F $RATE -g -o /tmp/perf.data -- "$@"
}

told() { # name us_per_request
    perf script -i /tmp/perf.data -C $PROCESSOR -F comm,pid,time,ip,sym,dso 2> /tmp/perf.err > /tmp/perf.txt
    line=$(split_samples "$1" "$2" < /tmp/perf.txt) || {
        echo "no samples in $(wc -c < /tmp/perf.data) bytes and $(wc -l < /tmp/perf.txt) lines"
        tail -n 3 /tmp/perf.err
        return 1
    }
    note "$line" && echo "$line"
    sort -rn "$LOGS/$1.symbols" | head -n 60 > /tmp/symbols && mv /tmp/symbols "$LOGS/$1.symbols"
}

# With one request at a time its median counts, with rounds the mean: see benches/guest/requests.sh.
ours() { # name figure arguments...
    name=$1 figure=$2
    shift 2
    latency --runtime 1 --warm-up 0.2 "$@" || return 1
    alone=$($figure)
    sampled /h/bin/frwr latency --device rxe0 --one-process --cores $PROCESSOR --json --warm-up 0.2 --runtime 3 "$@" \
        > /tmp/latency.out 2> /tmp/latency.err || { tail -n 3 /tmp/latency.err; return 1; }
    keep_report
    echo "$name: $alone us alone, $($figure) us sampled"
    told "$name" "$alone"
}

one_at_a_time() { reported p50; }

# The last of "us NUMBER" and "median NUMBER".
peers_figure() { awk '$1 == "us" || $1 == "median" { value = $2 } END { print value }'; }

peer() { # name iterations_a_second command... ITERATIONS
    name=$1 each=$2
    shift 2
    alone=$(timeout -s KILL 60 taskset -c $PROCESSOR "$@" "$each" | peers_figure)
    [ -n "$alone" ] || return 1
    sampled taskset -c $PROCESSOR "$@" $((3 * each)) > /tmp/peer || return 1
    echo "$name: $alone us alone, $(peers_figure < /tmp/peer) us sampled"
    told "$name" "$alone"
}

for key in static request memory; do
    run_test "ours_$key" ours "ours_$key" one_at_a_time --op request --key $key --size 4096 --depth 1
done
run_test loop_static peer loop_static 9000 verbs_request rxe0 static 4096 1
run_test loop_reg_mr peer loop_reg_mr 6000 verbs_request rxe0 reg_mr 4096 1
run_test ours_write ours ours_write one_at_a_time --op write --key static --size 4096 --depth 1
run_test loop_write peer loop_write 18000 verbs_write rxe0 4096
run_test ours_read ours ours_read one_at_a_time --op request --key request --peer read --size 4096 --depth 1
