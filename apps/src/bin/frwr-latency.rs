//! Measures how fast memory is opened to a peer, used, and closed again.

use clap::Parser as _;
use frwr_apps::{
    latency::{Arguments, LatencyConfig, LatencyError, LatencyOutcome, run},
    output::{Output, failure, success, usage_line},
    runner::RunError,
};
use std::{
    io::Write as _,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

/// Exit code of wrong arguments.
const USAGE: u8 = 2;
/// Exit code of a server whose connections did not all end in time.
const UNDRAINED: u8 = 1;
/// Exit code where a second signal ended it: that of shells for SIGINT.
const INTERRUPTED: i32 = 130;

fn main() -> ExitCode {
    let json = std::env::args_os().any(|argument| argument == "--json");
    let output = match Arguments::try_parse() {
        Ok(arguments) => measured(arguments)
            .unwrap_or_else(|error| failure(json, error.exit_code(), error.name(), &error.to_string())),
        Err(error) if !error.use_stderr() => success(error.to_string()),
        Err(error) => failure(json, USAGE, "usage", &usage_line("frwr-latency", &error)),
    };
    // Nobody is left to be told where these fail.
    let _ = std::io::stderr().write_all(output.stderr.as_bytes());
    let _ = std::io::stdout().write_all(output.stdout.as_bytes());
    ExitCode::from(output.exit_code)
}

fn measured(arguments: Arguments) -> Result<Output, LatencyError> {
    let config = LatencyConfig::new(arguments)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends it at once.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))
            .map_err(RunError::Signal)?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(RunError::Signal)?;
    }
    let outcome = run(&config, &stop, &mut |line| {
        let _ = writeln!(std::io::stderr(), "{line}");
    })?;
    let exit_code = match &outcome {
        LatencyOutcome::Served(report) if !report.passed() => UNDRAINED,
        _ => 0,
    };
    let output = success(match (outcome, config.json) {
        (LatencyOutcome::Measured(report), true) => report.json().to_string(),
        (LatencyOutcome::Measured(report), false) => report.table(),
        (LatencyOutcome::Served(report), true) => report.json().to_string(),
        (LatencyOutcome::Served(report), false) => report.text(),
    });
    Ok(Output { exit_code, ..output })
}
