# shellcheck shell=dash
# The kernel dies under a test: that is the test's doing, and nothing to try again.
run_test good true
run_test panic sh -c "echo c > /proc/sysrq-trigger"
