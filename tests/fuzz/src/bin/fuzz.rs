//! The fuzzer of the target that FRWR_FUZZ_TARGET names; without it, the targets, each with its share of the time and its inputs in a
//! run of everything. One program for all of them, because each would be linked with everything.

#![no_main]

use std::sync::LazyLock;

static RUN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FRWR_FUZZ_TARGET").unwrap_or_default();
    frwr_fuzz::named(&name).unwrap_or_else(|error| panic!("FRWR_FUZZ_TARGET: {error}")).run
});

/// What is instrumented for a fuzzer links with nothing else: no other program could say it.
fn list_unless_named() {
    if std::env::var_os("FRWR_FUZZ_TARGET").is_none() {
        frwr_fuzz::TARGETS.iter().for_each(|target| println!("{} {} {}", target.name, target.share, target.inputs));
        std::process::exit(0);
    }
}

libfuzzer_sys::fuzz_target!(init: list_unless_named(), |bytes: &[u8]| RUN(bytes));
