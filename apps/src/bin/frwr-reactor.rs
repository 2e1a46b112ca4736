//! Moves a file between a storage target and a host through registered requests, each on its own core.

use clap::Parser as _;
use frwr_apps::{
    output::{failure, usage_line},
    runner::{CommandLine, Config, DiscoverConfig, LoadConfig, RunError, RunReport, ServeConfig, Task},
    runner::{discover_on_rdma, discovered_json, discovered_table, load_on_rdma, run, serve_on_rdma},
};
use std::{
    io::Write as _,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

/// Exit code of a run that found something wrong.
const FOUND: u8 = 1;
/// Exit code of wrong arguments.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let json = std::env::args_os().any(|argument| argument == "--json");
    let ended = match CommandLine::try_parse() {
        Ok(CommandLine { task: None, arguments }) => {
            Config::new(arguments).and_then(|config| moved(json, &run(&config, &*stop()?, &mut say)?))
        }
        Ok(CommandLine { task: Some(Task::Serve(arguments)), .. }) => ServeConfig::new(arguments).and_then(|config| {
            if config.check_only {
                let understood = config.describe();
                print(&if json { format!("{understood}\n") } else { format!("{understood:#}\n") });
                return Ok(true);
            }
            let report = serve_on_rdma(&config, &*stop()?, &mut say)?;
            print(&if json { format!("{}\n", report.json()) } else { report.table() });
            Ok(report.passed())
        }),
        Ok(CommandLine { task: Some(Task::Load(arguments)), .. }) => {
            LoadConfig::new(arguments).and_then(|config| moved(json, &load_on_rdma(&config, &*stop()?, &mut say)?))
        }
        Ok(CommandLine { task: Some(Task::Discover(arguments)), .. }) => {
            DiscoverConfig::new(arguments).and_then(|config| {
                let found = discover_on_rdma(&config, &*stop()?)?;
                print(&if json { format!("{}\n", discovered_json(&found)) } else { discovered_table(&found) });
                Ok(true)
            })
        }
        Err(error) if !error.use_stderr() => {
            print(&error.to_string());
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(json, USAGE, "usage", &usage_line("frwr-reactor", &error)),
    };
    match ended {
        Ok(passed) => ExitCode::from(if passed { 0 } else { FOUND }),
        Err(error) => fail(json, error.exit_code(), error.name(), &error.to_string()),
    }
}

/// What a host's run came to; returns whether nothing was wrong.
fn moved(json: bool, report: &RunReport) -> Result<bool, RunError> {
    print(&if json { format!("{}\n", report.json()) } else { report.table() });
    if let Some(caught) = &report.caught {
        say(&format!("caught: {caught}"));
    }
    Ok(report.passed())
}

/// Set by SIGINT and SIGTERM.
fn stop() -> Result<Arc<AtomicBool>, RunError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(RunError::Signal)?;
    }
    Ok(stop)
}

fn fail(json: bool, exit_code: u8, name: &str, message: &str) -> ExitCode {
    let output = failure(json, exit_code, name, message);
    print(&output.stdout);
    let _ = std::io::stderr().write_all(output.stderr.as_bytes());
    ExitCode::from(output.exit_code)
}

/// Nobody is left to be told where standard output fails.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Progress goes to standard error.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
