//! What this machine offers to frwr, and what falls short.

use frwr_apps::check::{Machine, run, self_test};
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let output = run(std::env::args_os(), Machine::this, self_test);
    // Nobody is left to be told where these fail.
    let _ = std::io::stderr().write_all(output.stderr.as_bytes());
    let _ = std::io::stdout().write_all(output.stdout.as_bytes());
    ExitCode::from(output.exit_code)
}
