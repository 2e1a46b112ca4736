# shellcheck shell=dash
# {kernel host, our host} x {kernel target, our target}: the same 4 KiB random reads in one boot, as a table. The figures
# are printed, never asserted; that every run verifies or ends without errors is.
# Needs the program frwr, built with the feature verbs.
# tools: fio:fio
# limit: 300
# own-boot
ADDRESS=10.9.0.1
PORT=4420
KERNEL_NQN=nqn.2014-08.org.nvmexpress:ram
OUR_NQN=nqn.2026-11.invalid.frwr:file
NVMET=/sys/kernel/config/nvmet
SECONDS_EACH=3
BYTES=16777216
TABLE=/tmp/table

modules() {
    load crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvmet nvmet-rdma nvme-core \
        nvme-fabrics nvme-rdma && insmod /h/modules/brd.ko rd_nr=1 rd_size=65536 || return 1
    grep -q ' /sys/kernel/config ' /proc/mounts || mount -t configfs none /sys/kernel/config
}

kernel_target() {
    local subsystem=$NVMET/subsystems/$KERNEL_NQN port=$NVMET/ports/1
    mkdir -p $subsystem/namespaces/1 $port && echo 1 > $subsystem/attr_allow_any_host &&
        echo -n /dev/ram0 > $subsystem/namespaces/1/device_path && echo 1 > $subsystem/namespaces/1/enable &&
        echo rdma > $port/addr_trtype && echo ipv4 > $port/addr_adrfam && echo $ADDRESS > $port/addr_traddr &&
        echo $PORT > $port/addr_trsvcid && ln -s $subsystem $port/subsystems/$KERNEL_NQN
}

end_kernel_target() { rm $NVMET/ports/1/subsystems/$KERNEL_NQN && rmdir $NVMET/ports/1; }

said() { grep -q '^listening on' "$LOGS/serve.stderr"; }

our_target() {
    head -c 67108864 /dev/zero > /tmp/served
    frwr serve --device rxe0 --listen $ADDRESS:$PORT --namespace /tmp/served --cores 0 --queue-depth 64 --json \
        > "$LOGS/serve.json" 2> "$LOGS/serve.stderr" &
    serve=$!
    wait_for 30 said
}

end_our_target() { kill -TERM $serve && wait $serve; }

row() { echo "$1 $2 $3 $4 $5 $6" | tee -a $TABLE; } # host target depth iops p50_us p99_us

percentile() { grep '^3;' /tmp/fio.out | tr ';' '\n' | sed -n "s/^$1.000000%=//p" | head -n 1; }

kernel_host() { # target nqn
    echo "transport=rdma,traddr=$ADDRESS,trsvcid=$PORT,nqn=$2,nr_io_queues=1,queue_size=64" > /dev/nvme-fabrics || return 1
    wait_for 10 test -b /dev/nvme0n1 || return 1
    for depth in 1 32; do
        # Terse version 3: field 8 is read IOPS; percentiles, in us, carry their names. They are of the whole latency, from the
        # submission on: of the kernel's host most is spent in it.
        fio --name=r --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=$depth --ioengine=libaio --direct=1 \
            --size=$BYTES --time_based --runtime=$SECONDS_EACH --clat_percentiles=0 --lat_percentiles=1 \
            --percentile_list=50:99 --output-format=terse --terse-version=3 > /tmp/fio.out || { cat /tmp/fio.out; return 1; }
        iops=$(grep '^3;' /tmp/fio.out | cut -d ';' -f 8)
        row kernel "$1" $depth "$iops" "$(percentile 50)" "$(percentile 99)"
    done
    for controller in /sys/class/nvme/nvme*; do echo 1 > "$controller/delete_controller"; done
}

figure() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" /tmp/load.json; }

our_host() { # target nqn
    for depth in 1 32; do
        timeout -s KILL 100 frwr load --device rxe0 --connect $ADDRESS:$PORT --cores 1 --subsystem "$2" \
            --bytes $BYTES --queue-depth $depth --runtime $SECONDS_EACH --json > /tmp/load.json || {
            cat /tmp/load.json
            return 1
        }
        row ours "$1" $depth "$(figure iops | cut -d . -f 1)" "$(figure p50 | cut -d . -f 1)" \
            "$(figure p99 | cut -d . -f 1)"
    done
}

# Ratios are those to the kernel on both ends at the same depth.
table() {
    awk '{ iops[$1 $2 $3] = $4; p50[$1 $2 $3] = $5; p99[$1 $2 $3] = $6 }
        END {
            printf "%-6s %-7s %5s %8s %8s %8s   against the kernel on both ends: IOPS, p50, p99\n",
                "host", "target", "depth", "IOPS", "p50 us", "p99 us"
            for (d = 1; d <= 32; d += 31) for (h = 0; h < 2; h++) for (t = 0; t < 2; t++) {
                host = h ? "ours" : "kernel"; target = t ? "ours" : "kernel"; k = host target d; c = "kernelkernel" d
                if (iops[c] && p50[c] && p99[c])
                    printf "%-6s %-7s %5d %8d %8d %8d   %.2f %.2f %.2f\n", host, target, d, iops[k], p50[k], p99[k],
                        iops[k] / iops[c], p50[k] / p50[c], p99[k] / p99[c]
            }
        }' $TABLE | tee "$LOGS/table"
}

run_test modules modules
run_test kernel_target kernel_target
run_test kernel_host_on_kernel_target kernel_host kernel $KERNEL_NQN
run_test our_host_on_kernel_target our_host kernel $KERNEL_NQN
run_test kernel_target_ends end_kernel_target
run_test our_target our_target
run_test our_host_on_our_target our_host ours $OUR_NQN
run_test kernel_host_on_our_target kernel_host ours $OUR_NQN
run_test our_target_ends end_our_target
run_test table table
while read -r line; do note "$line"; done < "$LOGS/table"
