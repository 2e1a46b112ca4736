//! What this machine offers to frwr, and what falls short.

use frwr_apps::{
    check::{Machine, run, self_test},
    output::{failure, on_own_stack},
    signals::catch_harmless,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    on_own_stack(program)
}

fn program() -> ExitCode {
    if let Err(error) = catch_harmless() {
        return failure(false, error.exit_code(), error.name(), &error.to_string()).print();
    }
    run(std::env::args_os(), Machine::this, self_test).print()
}
