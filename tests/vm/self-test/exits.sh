# shellcheck shell=dash
# The job itself ends badly.
run_test good true
exit 3
