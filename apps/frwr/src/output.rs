//! What the program prints: results and errors, for people and for programs.

use crate::{
    error::{Error, FAILED},
    signals::catch_harmless,
};
use serde_json::json;
use std::{
    io::{self, ErrorKind, Write},
    process::ExitCode,
    thread::{self, JoinHandle},
};

/// Bytes of a program's stack: what systems commonly give one.
const STACK: usize = 8 << 20;

/// Runs a program on a stack that is large enough whatever `ulimit -s` says: with less than some 300 KiB it would be ended by SIGABRT, in
/// the middle of whatever it does. To be called by `main` alone.
#[must_use]
pub fn on_own_stack(program: fn() -> ExitCode) -> ExitCode {
    match thread::Builder::new().name("frwr-main".to_owned()).stack_size(STACK).spawn(program).map(JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => {
            let message =
                format!("no thread ({error}); check the process limit (ulimit -u), and that of memory (ulimit -v)");
            Error::failed("thread", message).output(false).print()
        }
    }
}

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
                ExitCode::from(self.exit_code.max(FAILED))
            }
        }
    }
}

impl Error {
    /// A line on standard error, and with `json` an object on standard output.
    #[must_use]
    pub fn output(&self, json: bool) -> Output {
        let (name, text) = (self.name(), self.to_string());
        let stdout = if json { format!("{}\n", json!({ "error": name, "message": text })) } else { String::new() };
        Output { stdout, stderr: format!("error: {}\n", in_line(&text)), exit_code: self.exit_code() }
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

/// A name of somebody else's choice within a line: a line break, or what else a terminal takes for more than text, stands there as
/// its escape. JSON has its own.
#[must_use]
pub fn in_line(name: &str) -> String {
    let escaped = |letter: char| if letter.is_control() { letter.escape_default().to_string() } else { letter.into() };
    name.chars().map(escaped).collect()
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
