//! Nanoseconds of a message's round trip between cores 0 and 1.
//!
//! `ping-pong raw|lane ITERATIONS` prints `ns FIGURE`, of the fastest of 20 blocks of iterations.

use std::process::ExitCode;

use frwr_benches::{arguments::main_of, ping_pong::run};

fn main() -> ExitCode {
    main_of("ping-pong raw|lane ITERATIONS", |[by], iterations| Ok(format!("ns {:.1}", run(by, iterations)?)))
}
