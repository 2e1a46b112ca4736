//! Moves a file between a storage target and a host through registered requests, each on its own core.

use clap::Parser as _;
use frwr_apps::{
    output::{Output, failure, on_own_stack, success, usage_line},
    runner::{CommandLine, Config, DiscoverConfig, LoadConfig, RunError, RunReport, ServeConfig, Task},
    runner::{discover_on_rdma, discovered_json, discovered_table, load_on_rdma, run, serve_on_rdma},
    signals::Signals,
};
use std::{io::Write as _, process::ExitCode};

/// Exit code of a run that found something wrong.
const FOUND: u8 = 1;
/// Exit code of wrong arguments.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    on_own_stack(program)
}

fn program() -> ExitCode {
    let json = std::env::args_os().any(|argument| argument == "--json");
    let output = match CommandLine::try_parse() {
        Ok(command_line) => done(command_line, json)
            .unwrap_or_else(|error| failure(json, error.exit_code(), error.name(), &error.to_string())),
        Err(error) if !error.use_stderr() => success(error.to_string()),
        Err(error) => failure(json, USAGE, "usage", &usage_line(&called(), &error)),
    };
    output.print()
}

/// What to ask for help: the half that was asked for has options of its own.
fn called() -> String {
    let first = std::env::args_os().nth(1).unwrap_or_default();
    let half = ["serve", "load", "discover"].into_iter().find(|half| first == *half);
    half.map_or_else(|| "frwr-reactor".to_owned(), |half| format!("frwr-reactor {half}"))
}

fn done(command_line: CommandLine, json: bool) -> Result<Output, RunError> {
    let CommandLine { task, arguments } = command_line;
    match task {
        None => Ok(moved(json, &run(&Config::new(arguments)?, &Signals::catch()?, &mut say)?)),
        Some(Task::Serve(arguments)) => {
            let config = ServeConfig::new(arguments)?;
            if config.check_only {
                let understood = config.describe();
                return Ok(success(if json { understood.to_string() } else { format!("{understood:#}") }));
            }
            let report = serve_on_rdma(&config, &Signals::catch()?, &mut say)?;
            Ok(judged(report.passed(), if json { report.json().to_string() } else { report.table() }))
        }
        Some(Task::Load(arguments)) => {
            Ok(moved(json, &load_on_rdma(&LoadConfig::new(arguments)?, &Signals::catch()?, &mut say)?))
        }
        Some(Task::Discover(arguments)) => {
            let found = discover_on_rdma(&DiscoverConfig::new(arguments)?, &Signals::catch()?, &mut say)?;
            let text = if json { discovered_json(&found).to_string() } else { discovered_table(&found) };
            Ok(success(text))
        }
    }
}

/// What a host's run came to.
fn moved(json: bool, report: &RunReport) -> Output {
    let told = judged(report.passed(), if json { report.json().to_string() } else { report.table() });
    let stderr = report.caught.as_ref().map_or_else(String::new, |caught| format!("caught: {caught}\n"));
    Output { stderr, ..told }
}

/// A report, and whether nothing was wrong.
fn judged(passed: bool, text: String) -> Output {
    Output { exit_code: if passed { 0 } else { FOUND }, ..success(text) }
}

/// Progress goes to standard error.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
