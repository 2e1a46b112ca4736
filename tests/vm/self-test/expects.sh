# shellcheck shell=dash
# The kernel complains as declared.
# own-boot
# expects: WARNING: .* at nowhere
run_test good true
echo "WARNING: CPU: 0 PID: 1 at nowhere" > /dev/kmsg
