# shellcheck shell=dash
# The guest ends in the middle of a test, without a word of the kernel.
run_test good true
run_test powered_off reboot -f
sleep 100
