//! The command lines of the programs, as far as they do nothing yet.

use clap::{CommandFactory as _, Parser as _};
use frwr_apps::check::{Machine, SelfTest, run};
use frwr_apps::latency::{Arguments, LatencyConfig, explained};
use frwr_apps::output::usage_line;
use frwr_apps::runner::{CommandLine, Config, DiscoverConfig, LoadConfig, ServeConfig, Task};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;

/// A program, and its arguments: a line each, of any bytes.
pub(crate) fn command_line(bytes: &[u8]) {
    let Some((program, rest)) = bytes.split_first() else { return };
    let arguments = rest.split(|byte| *byte == b'\n').map(|argument| OsStr::from_bytes(argument).to_owned());
    match program % 3 {
        0 => reactor(&with_name("frwr-reactor", arguments)),
        1 => latency(&with_name("frwr-latency", arguments)),
        _ => check(with_name("frwr-check", arguments)),
    }
}

fn with_name(name: &str, arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    core::iter::once(OsString::from(name)).chain(arguments).collect()
}

/// What is refused is refused in words.
fn told(error: Option<impl ToString>) {
    assert!(error.is_none_or(|error| !error.to_string().is_empty()));
}

fn reactor(arguments: &[OsString]) {
    let line = match CommandLine::try_parse_from(arguments) {
        Ok(line) => line,
        Err(error) => return told(Some(usage_line("frwr-reactor", &error))),
    };
    match line.task {
        None => told(Config::new(line.arguments).err()),
        // Other files than ours may be pipes, and devices, that never end.
        Some(Task::Serve(serve)) if serve.config.is_some() => {}
        Some(Task::Serve(serve)) => match ServeConfig::new(serve) {
            Ok(config) => assert!(config.describe().is_object()),
            Err(error) => told(Some(error)),
        },
        Some(Task::Load(load)) => told(LoadConfig::new(load).err()),
        Some(Task::Discover(discover)) => told(DiscoverConfig::new(discover).err()),
    }
}

fn latency(arguments: &[OsString]) {
    match Arguments::try_parse_from(arguments) {
        Ok(arguments) => told(LatencyConfig::new(arguments).err()),
        Err(error) if !error.use_stderr() => {}
        Err(error) => {
            let said: Vec<_> = arguments.iter().skip(1).map(|said| said.to_string_lossy().into_owned()).collect();
            told(Some(explained(error, &said, &Arguments::command())));
        }
    }
}

/// With its output: sizing computes with whatever it is given.
fn check(arguments: Vec<OsString>) {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    let json = arguments.iter().any(|argument| argument == "--json");
    let output = run(arguments, || MACHINE.get_or_init(Machine::this).clone(), |_| SelfTest::NotRun);
    assert!(!(output.stdout.is_empty() && output.stderr.is_empty()));
    // Help is for people.
    let is_help = !output.stdout.starts_with('{');
    assert!(!json || output.exit_code != 0 || is_help || output.stdout.trim_end().lines().count() == 1);
}
