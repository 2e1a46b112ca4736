//! Moves a file between a storage target and a host through registered requests, each on its own core; or does what it is told.

use clap::Parser as _;
use frwr::{
    CommandLine, Error, Task,
    check::{self, Machine, self_test},
    completions,
    ctl::ctl,
    diagnostics::{LEVELS, say, subscribe},
    latency::{self, LatencyConfig},
    manual, mistaken,
    output::{Output, on_own_stack, success},
    report::Report as _,
    runner::{Config, DiscoverConfig, LoadConfig, RunReport, ServeConfig},
    runner::{discover_on_device, discovered_json, discovered_table, load_on_device, run, serve_on_device},
    signals::{Signals, catch_harmless},
    top::top,
};
use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    on_own_stack(program)
}

fn program() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let output = match CommandLine::try_parse_from(&arguments) {
        Ok(command_line) => {
            let json = arguments.iter().any(|argument| argument == "--json");
            done(command_line, json)
        }
        Err(error) => mistaken(&arguments, error),
    };
    output.print()
}

fn done(command_line: CommandLine, json: bool) -> Output {
    // What is no text is none of its levels either.
    let levels = std::env::var_os(LEVELS).map(|levels| levels.to_string_lossy().into_owned());
    let _subscribed = match subscribe(command_line.verbose, command_line.log_format, levels.as_deref()) {
        Ok(subscribed) => subscribed,
        Err(error) => return error.output(json),
    };
    tracing::debug!("understood: {command_line:?}");
    let CommandLine { task, arguments, .. } = command_line;
    let done = match task {
        None => Config::new(arguments).and_then(|config| Ok(moved(json, &run(&config, &Signals::catch()?, &mut say)?))),
        Some(Task::Serve(arguments)) => ServeConfig::new(arguments).and_then(|config| served(json, &config)),
        Some(Task::Load(arguments)) => LoadConfig::new(arguments)
            .and_then(|config| Ok(moved(json, &load_on_device(&config, &Signals::catch()?, &mut say)?))),
        Some(Task::Discover(arguments)) => DiscoverConfig::new(arguments).and_then(|config| discovered(json, &config)),
        Some(Task::Ctl(arguments)) => ctl(&arguments, &mut say),
        Some(Task::Top(arguments)) => Signals::catch().and_then(|signals| top(&arguments, &signals)),
        Some(Task::Latency(arguments)) => measured(*arguments),
        Some(Task::Check(arguments)) => checked(&arguments),
        Some(Task::Completions { shell }) => Ok(completions(shell)),
        Some(Task::Man { folder }) => manual(&folder),
    };
    done.unwrap_or_else(|error| error.output(json))
}

fn served(json: bool, config: &ServeConfig) -> Result<Output, Error> {
    if config.arguments.check_config {
        let understood = config.describe();
        return Ok(success(if json { understood.to_string() } else { format!("{understood:#}") }));
    }
    let report = serve_on_device(config, &Signals::catch_reloading()?, &mut say)?;
    Ok(report.output(json))
}

fn discovered(json: bool, config: &DiscoverConfig) -> Result<Output, Error> {
    let found = discover_on_device(config, &Signals::catch()?, &mut say)?;
    Ok(success(if json { discovered_json(&found).to_string() } else { discovered_table(&found) }))
}

fn measured(arguments: latency::Arguments) -> Result<Output, Error> {
    let config = LatencyConfig::new(arguments)?;
    let outcome = latency::run(&config, &Signals::catch()?, &mut say)?;
    Ok(outcome.output(config.output.json))
}

fn checked(arguments: &check::Arguments) -> Result<Output, Error> {
    catch_harmless()?;
    Ok(check::run(arguments, Machine::this, self_test))
}

/// What a host's run came to.
fn moved(json: bool, report: &RunReport) -> Output {
    let stderr = report.caught.as_ref().map_or_else(String::new, |caught| format!("caught: {caught}\n"));
    Output { stderr, ..report.output(json) }
}
