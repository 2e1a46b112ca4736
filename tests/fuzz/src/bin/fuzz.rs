//! The fuzzer of the target that FRWR_FUZZ_TARGET names. One program for all of them, because each would be linked with everything.

#![no_main]

use std::sync::LazyLock;

static RUN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FRWR_FUZZ_TARGET").unwrap_or_default();
    frwr_fuzz::named(&name).unwrap_or_else(|error| panic!("FRWR_FUZZ_TARGET: {error}")).run
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| RUN(bytes));
