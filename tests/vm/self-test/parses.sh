# shellcheck shell=dash
# Every kind of line that a Rust test binary prints.
run_libtest /h/tests/several
run_libtest /h/tests/aborts
run_libtest /h/tests/disagrees
