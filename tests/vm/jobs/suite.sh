# shellcheck shell=dash
# Every Rust test binary that the host gave.
# limit: 1200
# The tests of providers take this device and listen at this address.
export FRWR_CONFORMANCE_DEVICE=rxe0 FRWR_CONFORMANCE_ADDRESS=10.9.0.1
# All that a provider has to do is one program, which may take as long as several.
PROGRAM_LIMIT=600
for bin in /h/tests/*; do
    [ -x "$bin" ] || continue
    run_libtest "$bin"
done
