//! The command line of the program, as far as it does nothing yet.

use clap::Parser as _;
use frwr::check::{Machine, SelfTest, run};
use frwr::latency::LatencyConfig;
use frwr::output::Output;
use frwr::runner::{Config, DiscoverConfig, LoadConfig, ServeConfig};
use frwr::{CommandLine, Task, check, mistaken};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;

/// What is to be done, and arguments: a line each, of any bytes.
pub(crate) fn command_line(bytes: &[u8]) {
    let Some((task, rest)) = bytes.split_first() else { return };
    let task = match task % 3 {
        0 => None,
        1 => Some("latency"),
        _ => Some("check"),
    };
    let said = rest.split(|byte| *byte == b'\n').map(|argument| OsStr::from_bytes(argument).to_owned());
    let arguments: Vec<OsString> = ["frwr"].into_iter().chain(task).map(OsString::from).chain(said).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    match CommandLine::try_parse_from(&arguments) {
        Ok(line) => understood(line, json),
        Err(error) => printed(&mistaken(&arguments, error), json),
    }
}

/// What is refused is refused in words.
fn told(error: Option<impl ToString>) {
    assert!(error.is_none_or(|error| !error.to_string().is_empty()));
}

fn understood(line: CommandLine, json: bool) {
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
        Some(Task::Latency(latency)) => told(LatencyConfig::new(*latency).err()),
        Some(Task::Check(arguments)) => checked(&arguments, json),
        // Whoever serves on this machine is not asked.
        Some(Task::Ctl(_) | Task::Top(_)) => {}
        // These follow from the command line alone, whatever is said; and pages are written where somebody says.
        Some(Task::Completions { .. } | Task::Man { .. }) => {}
    }
}

/// With its output: sizing computes with whatever it is given.
fn checked(arguments: &check::Arguments, json: bool) {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    printed(&run(arguments, || MACHINE.get_or_init(Machine::this).clone(), |_| SelfTest::NotRun), json);
}

fn printed(output: &Output, json: bool) {
    assert!(!(output.stdout.is_empty() && output.stderr.is_empty()));
    // Help is for people.
    let is_help = !output.stdout.starts_with('{');
    assert!(!json || output.exit_code != 0 || is_help || output.stdout.trim_end().lines().count() == 1);
}
