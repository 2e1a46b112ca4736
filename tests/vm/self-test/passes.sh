# shellcheck shell=dash
# Goes well, so the rig has to say so.
run_test nothing true
