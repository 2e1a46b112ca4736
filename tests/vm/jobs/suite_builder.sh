# shellcheck shell=dash
# The tests of the provider once more, with chains built by ibv_wr_*: what engine and program post is the same by then.
# limit: 900
export FRWR_CONFORMANCE_DEVICE=rxe0 FRWR_CONFORMANCE_ADDRESS=10.9.0.1 FRWR_CONFORMANCE_POST=builder
# All that a provider has to do is one program, which may take as long as several.
PROGRAM_LIMIT=600
for bin in /h/tests/conformance_*; do
    case $bin in *conformance_engine) continue ;; esac
    [ -x "$bin" ] || continue
    run_libtest "$bin"
done
