//! Arguments to output: a function, so that tests need no process.

use super::{Machine, SizingArguments, machine_json, machine_text, sizing_output};
use clap::{Parser, Subcommand};
use serde_json::json;
use std::ffi::OsString;

/// What a run prints and how it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// For standard output: with `--json` exactly one line.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// 0: done; 1: the device cannot be used; 2: the arguments are wrong.
    pub exit_code: u8,
}

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
        Err(error) => failure(json, USAGE, "usage", &usage_line(&error)),
    }
}

fn success(mut text: String) -> Output {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Output { stdout: text, stderr: String::new(), exit_code: 0 }
}

fn failure(json: bool, exit_code: u8, name: &str, message: &str) -> Output {
    let stdout = if json { format!("{}\n", json!({ "error": name, "message": message })) } else { String::new() };
    Output { stdout, stderr: format!("error: {message}\n"), exit_code }
}

/// What clap says behind what is wrong.
const ENDS: [&str; 2] = ["Usage:", "For more information"];

/// What clap has to say in several lines, in one: the argument, its value and what would be accepted.
fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let said = text.lines().map(str::trim).take_while(|line| !ENDS.iter().any(|end| line.starts_with(end)));
    let said: Vec<&str> = said.filter(|line| !line.is_empty()).collect();
    let said = said.join(" ");
    format!("{}; `frwr-check --help` lists what is accepted", said.trim_start_matches("error: "))
}
