# shellcheck shell=dash
# Every Rust test binary that the host gave.
# limit: 900
for bin in /h/tests/*; do
    [ -x "$bin" ] || continue
    run_libtest "$bin"
done
