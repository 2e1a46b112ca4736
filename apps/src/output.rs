//! What the programs print: results and errors, for people and for programs.

use crate::signals::catch_harmless;
use serde_json::json;
use std::{
    io::{self, ErrorKind, Write},
    process::ExitCode,
};

/// Exit code where results could not be told.
const UNTOLD: u8 = 1;

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

impl Output {
    /// Prints it, and ends the program with the exit code: 1 where it says success and standard output did not take all of it, so that
    /// nobody takes half a report for a whole one. Who reads no further (`| head -1`) has what was wanted.
    #[must_use]
    pub fn print(&self) -> ExitCode {
        // Also what is printed before there is a run may go to a file that has no room: that is an error, and no signal's end.
        let _ = catch_harmless();
        let mut stderr = io::stderr();
        let told = write_all(&mut io::stdout(), &self.stdout);
        // Nobody is left to be told where these fail.
        let _ = stderr.write_all(self.stderr.as_bytes());
        match told {
            Ok(()) => ExitCode::from(self.exit_code),
            Err(error) => {
                let _ = writeln!(
                    stderr,
                    "error: standard output cannot be written ({error}); make room, or send it to another file"
                );
                ExitCode::from(self.exit_code.max(UNTOLD))
            }
        }
    }
}

/// Writes a whole text; a reader that has gone wants no more of it.
fn write_all(to: &mut dyn Write, text: &str) -> io::Result<()> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
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
