//! Instructions of one message that is sent and received.
//!
//! `lane one|batch frwr|rtrb|array-queue|seg-queue|channel ITERATIONS`, to be counted like `freelist`.

use std::process::ExitCode;

use frwr_benches::{arguments::main_of, lane::run};

fn main() -> ExitCode {
    main_of("lane one|batch frwr|rtrb|array-queue|seg-queue|channel ITERATIONS", |[size, queue], iterations| {
        let messages = run(size, queue, iterations)?;
        Ok(format!("{iterations} iterations of {messages} objects"))
    })
}
