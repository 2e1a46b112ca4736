# shellcheck shell=dash
# All tests pass, and the kernel complains.
run_test good true
echo "WARNING: CPU: 0 PID: 1 at nowhere" > /dev/kmsg
