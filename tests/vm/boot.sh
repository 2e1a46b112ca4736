# shellcheck shell=bash
# One run of the guest. Sourced.

# Emulated processors; more than the machine has only make the guest slower.
GUEST_CPUS=2
# MiB: a 64 MiB file that two processes hold, two targets of some 350 MiB, the hugepages, and the system with its page cache.
GUEST_MEMORY=2560
# Pages kept in the guest, of 2 MiB and of 1 GiB. Of the latter no other machine has any for certain once it has been up for a while.
GUEST_HUGEPAGES=96
GUEST_LARGE_PAGES=1
# Seconds from QEMU's start to the first job: many times what a boot takes on a busy machine.
BOOT_LIMIT=${FRWR_VM_BOOT_LIMIT:-60}
# Seconds for a job that declares no "# limit:".
JOB_LIMIT=120
# QEMU's exit code when /init's leave N ended it is 2 N + 1.
EXIT_OK=1
EXIT_FAILED=3
# timeout's exit codes for a limit that ran out, the second when it had to send SIGKILL.
EXIT_LIMIT=(124 137)

qemu=""
watch=""

# tsc=reliable: otherwise the kernel takes the emulated TSC for broken and turns to a far slower clock.
# no_timer_check: on a busy machine an emulated timer may be late enough for the kernel to give up at boot.
kernel_arguments() {
    echo "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check mitigations=off nokaslr log_buf_len=4M hugepages=$GUEST_HUGEPAGES hugepagesz=1G hugepages=$GUEST_LARGE_PAGES"
}

# Two shares: what the guest only reads, which it may keep in its page cache, and what it writes, which must be here whatever
# becomes of it.
# Never KVM: the rig has to run where there is none, and must not behave differently where there is.
qemu_command() { # share serial
    command=(qemu-system-x86_64 -M q35 -accel "tcg,thread=multi" -cpu max -smp "$GUEST_CPUS" -m "$GUEST_MEMORY"
        -nodefaults -no-user-config -no-reboot -display none -serial "$2"
        -fsdev "local,id=share,path=${1//,/,,},security_model=none,readonly=on" -device "virtio-9p-pci,fsdev=share,mount_tag=share"
        -fsdev "local,id=out,path=${1//,/,,}/out,security_model=none" -device "virtio-9p-pci,fsdev=out,mount_tag=out"
        -device "isa-debug-exit,iobase=0xf4,iosize=4"
        -kernel "$CACHE/kernel/vmlinux" -initrd "$CACHE/kernel/initramfs.cpio" -append "$(kernel_arguments)")
}

# Notes once a second how long QEMU's threads ran, and how long they waited for a processor of this machine, in ns. The guest sees
# nothing of that: it measures it as time.
note_waits() { # pid of timeout, file
    local child
    while sleep 1; do
        # A line without its end.
        read -r child _ < "/proc/$1/task/$1/children"
        [ -n "$child" ] || continue
        # A thread that ends meanwhile costs this second.
        cat /proc/"$child"/task/*/schedstat > "$2.new" && mv "$2.new" "$2"
    done 2> /dev/null
}

# The share of the time that they wanted to run, in percent.
waited() { # file
    [ ! -f "$1" ] || awk '{ ran += $1; waited += $2 } END { if (ran > 0) printf "%.0f", 100 * waited / (ran + waited) }' "$1"
}

# Returns QEMU's exit code, or timeout's.
boot() { # share limit
    local command
    qemu_command "$1" "file:$1/console.txt"
    # In the background, so that a signal to the rig is not held up until the guest ends.
    timeout -k 5 "$2" "${command[@]}" > "$1/qemu.log" 2>&1 < /dev/null &
    qemu=$!
    note_waits "$qemu" "$1/waits" &
    watch=$!
    wait "$qemu"
    local code=$?
    kill "$watch" 2> /dev/null
    qemu="" watch=""
    return $code
}

boot_interactive() { # share
    local command
    qemu_command "$1" mon:stdio
    "${command[@]}"
}

stop_guest() {
    [ -z "$qemu" ] || kill "$qemu" "$watch" 2> /dev/null
}

limit_reached() { # exit code
    [[ " ${EXIT_LIMIT[*]} " == *" $1 "* ]]
}

boot_seconds() { # job_name...
    local sum=$BOOT_LIMIT name limit
    for name in "$@"; do
        limit=$(declared limit "${JOB_FILES[$name]}")
        sum=$((sum + ${limit:-$JOB_LIMIT}))
    done
    echo "$sum"
}
