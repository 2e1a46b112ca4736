# shellcheck shell=dash
# One test passes, one fails, one is skipped, and one reports nonsense.
run_test good true
run_test bad false
report cannot skipped "for a reason"
report odd maybe
