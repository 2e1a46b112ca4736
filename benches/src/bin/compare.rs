//! Measures frwr beside what people would use instead; started by `benches/run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    frwr_benches::compare::run(std::env::args_os())
}
