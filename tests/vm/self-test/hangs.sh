# shellcheck shell=dash
# A test that never ends.
# limit: 1
run_test good true
run_test stuck sleep 100000
