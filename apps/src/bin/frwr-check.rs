//! What this machine offers to frwr, and what falls short.

use frwr_apps::check::{Machine, run, self_test};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(std::env::args_os(), Machine::this, self_test).print()
}
