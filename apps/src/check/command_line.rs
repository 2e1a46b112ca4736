//! Arguments to output: a function, so that tests need no process.

use super::{Machine, SizingArguments, machine_json, machine_text, sizing_output};
use crate::output::{Output, failure, success, usage_line};
use clap::{Parser, Subcommand};
use std::ffi::OsString;

/// Exit code of a device that cannot be used.
const IMPOSSIBLE: u8 = 1;
/// Exit code of wrong arguments.
const USAGE: u8 = 2;

/// What this machine offers to frwr, and what falls short.
#[derive(Debug, Parser)]
#[command(name = "frwr-check", version)]
struct Arguments {
    /// One line of JSON instead of a screen of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// What the engine would ask of a device with the given attributes.
    Sizing(SizingArguments),
}

/// Runs `frwr-check` with these arguments, the program's name included. `machine` is asked only where the task needs it.
pub fn run(arguments: impl IntoIterator<Item = OsString>, machine: impl FnOnce() -> Machine) -> Output {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    match Arguments::try_parse_from(&arguments) {
        Ok(Arguments { task: None, json }) => {
            let machine = machine();
            success(if json { machine_json(&machine).to_string() } else { machine_text(&machine) })
        }
        Ok(Arguments { task: Some(Task::Sizing(device)), json }) => match sizing_output(&device, json) {
            Ok(text) => success(text),
            Err(error) => failure(json, IMPOSSIBLE, error.name(), &error.to_string()),
        },
        Err(error) if !error.use_stderr() => success(error.to_string()),
        Err(error) => failure(json, USAGE, "usage", &usage_line("frwr-check", &error)),
    }
}
