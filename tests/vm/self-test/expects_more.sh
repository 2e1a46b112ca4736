# shellcheck shell=dash
# The kernel does not complain, although the job declares that it will.
# own-boot
# expects: WARNING: .* at nowhere
run_test good true
