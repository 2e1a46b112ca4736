//! Measures how fast memory is opened to a peer, used, and closed again.

use clap::{CommandFactory as _, Parser as _};
use frwr_apps::{
    latency::{Arguments, LatencyConfig, LatencyError, explained, run},
    output::{Output, failure, on_own_stack, success},
    signals::Signals,
};
use std::{io::Write as _, process::ExitCode};

/// Exit code of wrong arguments.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    on_own_stack(program)
}

fn program() -> ExitCode {
    let json = std::env::args_os().any(|argument| argument == "--json");
    let output = match Arguments::try_parse() {
        Ok(arguments) => measured(arguments)
            .unwrap_or_else(|error| failure(json, error.exit_code(), error.name(), &error.to_string())),
        Err(error) if !error.use_stderr() => success(error.to_string()),
        Err(error) => failure(json, USAGE, "usage", &explained(error, &said(), &Arguments::command())),
    };
    output.print()
}

/// The command line behind the program's name; what is no text is no flag either.
fn said() -> Vec<String> {
    std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect()
}

fn measured(arguments: Arguments) -> Result<Output, LatencyError> {
    let config = LatencyConfig::new(arguments)?;
    let signals = Signals::catch()?;
    let outcome = run(&config, &signals, &mut |line| {
        let _ = writeln!(std::io::stderr(), "{line}");
    })?;
    Ok(outcome.output(config.json))
}
