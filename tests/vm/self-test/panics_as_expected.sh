# shellcheck shell=dash
# The kernel dies as declared.
# own-boot
# expects: Kernel panic - not syncing: sysrq triggered crash
run_test good true
echo c > /proc/sysrq-trigger
sleep 100
