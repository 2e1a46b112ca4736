//! Who asks and changes the target.

use serde_json::{Value, json};
use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
};

/// Somebody who types changes (`frwr ctl`), and asks over a connection that stays.
#[derive(Debug)]
pub struct Ctl {
    program: PathBuf,
    socket: PathBuf,
    stream: BufReader<UnixStream>,
}

/// What `frwr ctl` says that does nothing.
#[derive(Debug)]
pub struct Refusal {
    code: Option<i32>,
    message: String,
}

impl Refusal {
    /// One that the target gives its reason for, and not a defect.
    #[must_use]
    pub fn is_explained(&self) -> bool {
        matches!(self.code, Some(1 | 2)) && ["(-32602)", "(-32004)"].iter().any(|code| self.message.contains(code))
    }

    /// Hosts have to let go of something first, which they do.
    pub(super) fn is_early(&self) -> bool {
        self.message.contains("a change before is not complete")
    }
}

impl Ctl {
    /// `program` is the path of `frwr`.
    ///
    /// # Errors
    /// There is no target at the socket.
    pub fn open(program: &Path, socket: &Path) -> io::Result<Self> {
        let stream = BufReader::new(UnixStream::connect(socket)?);
        Ok(Self { program: program.to_owned(), socket: socket.to_owned(), stream })
    }

    /// Types it.
    ///
    /// # Errors
    /// What is told then.
    pub fn change(&mut self, method: &str, parameters: &Value) -> Result<Value, Refusal> {
        let mut command = Command::new(&self.program);
        command.arg("ctl").arg("--control").arg(&self.socket).args(["--json", method]);
        let parameters = parameters.as_object().into_iter().flatten();
        command.args(parameters.map(|(name, value)| format!("{name}={}", typed(value))));
        let done = command.output().map_err(|error| Refusal { code: None, message: error.to_string() })?;
        let answer: Option<Value> = serde_json::from_slice(&done.stdout).ok();
        match answer {
            Some(answer) if done.status.success() => Ok(answer),
            _ => Err(Refusal { code: done.status.code(), message: String::from_utf8_lossy(&done.stderr).into_owned() }),
        }
    }

    /// What the target says.
    ///
    /// # Errors
    /// It says that it cannot, or nothing.
    pub fn ask(&mut self, method: &str) -> Result<Value, String> {
        self.ask_with(method, &json!({}))
    }

    /// The same of a method that takes something.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_with(&mut self, method: &str, parameters: &Value) -> Result<Value, String> {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": parameters });
        // Whoever was silent longest makes room where many come: a hostile reader's clients do.
        let line = match self.said_to(&request) {
            Err(_) => self.connect_again().and_then(|()| self.said_to(&request)),
            said => said,
        };
        let line = line.map_err(|error| format!("{method}: {error}"))?;
        let mut answer: Value = serde_json::from_str(&line).map_err(|error| format!("{method}: {error}: {line:?}"))?;
        if answer["error"].is_null() { Ok(answer["result"].take()) } else { Err(format!("{method}: {answer}")) }
    }

    /// The line that is its answer.
    fn said_to(&mut self, request: &Value) -> io::Result<String> {
        let mut line = String::new();
        writeln!(self.stream.get_mut(), "{request}")?;
        match self.stream.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    fn connect_again(&mut self) -> io::Result<()> {
        self.stream = BufReader::new(UnixStream::connect(&self.socket)?);
        Ok(())
    }

    /// A list of what the target says.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn list(&mut self, name: &str) -> Result<Vec<Value>, String> {
        let answer = self.ask(name)?;
        answer[name].as_array().cloned().ok_or_else(|| format!("{name}: {answer}"))
    }
}

/// As a person types a value: text without quotation marks.
fn typed(value: &Value) -> String {
    match value {
        // Such as an NGUID of digits alone, or bytes as text, which would be read as a number.
        Value::String(text) if serde_json::from_str::<Value>(text).is_ok() => value.to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
