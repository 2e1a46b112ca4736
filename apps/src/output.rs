//! What the programs print: results and errors, for people and for programs.

use serde_json::json;

/// What a run prints and how it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// For standard output: with `--json` exactly one line.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// 0: done; 1: not possible on this machine or device; 2: the arguments are wrong.
    pub exit_code: u8,
}

/// What was asked for, on standard output.
#[must_use]
pub fn success(mut text: String) -> Output {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Output { stdout: text, stderr: String::new(), exit_code: 0 }
}

/// What went wrong: a line on standard error, and with `json` an object on standard output.
#[must_use]
pub fn failure(json: bool, exit_code: u8, name: &str, message: &str) -> Output {
    let stdout = if json { format!("{}\n", json!({ "error": name, "message": message })) } else { String::new() };
    Output { stdout, stderr: format!("error: {message}\n"), exit_code }
}

/// What clap says behind what is wrong.
const ENDS: [&str; 2] = ["Usage:", "For more information"];

/// What clap has to say in several lines, in one: the argument, its value and what would be accepted by `program`.
#[must_use]
pub fn usage_line(program: &str, error: &clap::Error) -> String {
    let text = error.to_string();
    let said = text.lines().map(str::trim).take_while(|line| !ENDS.iter().any(|end| line.starts_with(end)));
    let said: Vec<&str> = said.filter(|line| !line.is_empty()).collect();
    let said = said.join(" ").replace(" tip: ", "; ");
    format!("{}; `{program} --help` lists what is accepted", said.trim_start_matches("error: "))
}
