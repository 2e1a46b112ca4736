//! Who asks a control socket, one thing after the other.

use super::SocketArguments;
use crate::{
    Error,
    control::{INVALID_PARAMS, MAX_ANSWER_BYTES, METHOD_NOT_FOUND, candidates},
    runner::{LONGEST_QUESTION, longest_answer},
};
use core::time::Duration;
use serde_json::{Map, Value, json};
use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

/// How long an answer to a question may take: longer than a core has that stands still.
const PATIENCE: Duration = Duration::from_secs(30);
const _: () = assert!(PATIENCE.as_secs() > LONGEST_QUESTION.as_secs());
/// Changes of others that a change may stand behind and be waited for, each as long as any takes: one whose medium
/// hangs. Behind more of them it is made all the same, and its answer is not heard.
const IN_FRONT: u32 = 1;
/// How long an answer to a change may take: as long as the target has for it, by its own deadlines.
const PATIENCE_OF_CHANGE: Duration = longest_answer(IN_FRONT);
const _: () = assert!(PATIENCE_OF_CHANGE.as_secs() > PATIENCE.as_secs());
/// What is around an answer.
const FRAME_BYTES: u64 = 4096;

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    id: u64,
    /// How long the next answer is waited for.
    patience: Duration,
}

impl Client {
    /// Connects to the socket that is named, or to the only one that there is.
    pub(crate) fn open(arguments: &SocketArguments) -> Result<Self, Error> {
        let path = arguments.control.clone().map_or_else(only_one, Ok)?;
        let connected = UnixStream::connect(&path).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        });
        let stream = connected.map_err(|error| unreachable(&path, PATIENCE, &error))?;
        Ok(Self { path, stream: BufReader::new(stream), id: 0, patience: PATIENCE })
    }

    /// Waits for the next answers as long as so many changes may take.
    pub(super) fn wait_for_changes(&mut self, changes: u32) -> Result<(), Error> {
        self.patience = PATIENCE_OF_CHANGE.saturating_mul(changes);
        let set = self.stream.get_ref().set_read_timeout(Some(self.patience));
        set.map_err(|error| unreachable(&self.path, self.patience, &error))
    }

    /// What the target answers.
    pub(crate) fn call(&mut self, method: &str, parameters: Map<String, Value>) -> Result<Value, Error> {
        self.id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": parameters });
        let mut answer = self.exchange(&request).map_err(|error| unreachable(&self.path, self.patience, &error))?;
        if answer["error"].is_object() {
            return Err(refused(method, &answer["error"]));
        }
        Ok(answer["result"].take())
    }

    fn exchange(&mut self, request: &Value) -> io::Result<Value> {
        self.stream.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut line = Vec::new();
        let most = MAX_ANSWER_BYTES as u64 + FRAME_BYTES;
        self.stream.by_ref().take(most).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer has no end"));
        }
        Ok(serde_json::from_slice(&line)?)
    }
}

fn only_one() -> Result<PathBuf, Error> {
    let found = candidates();
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => {
            let remedy = "start `frwr serve`, or name its socket by --control";
            Err(Error::failed("control_socket", format!("no target of this user runs with a control socket; {remedy}")))
        }
        several => {
            let paths: Vec<_> = several.iter().map(|path| path.display().to_string()).collect();
            let text = format!("{} targets run: {}; name one by --control", paths.len(), paths.join(", "));
            Err(Error::usage("control_socket", text))
        }
    }
}

fn unreachable(path: &Path, patience: Duration, error: &io::Error) -> Error {
    let remedy = "is `frwr serve` running there, and are you who started it?";
    let reason = match error.kind() {
        // Of a socket that is waited for.
        io::ErrorKind::WouldBlock => format!("no answer in {} s", patience.as_secs()),
        _ => error.to_string(),
    };
    Error::failed("control_socket", format!("{path:?} does not answer: {reason}; {remedy}"))
}

/// Where another command line would cure it, it is one of that kind.
fn refused(method: &str, error: &Value) -> Error {
    let code = error["code"].as_i64().unwrap_or_default();
    let text = format!("{method}: {} ({code})", error["message"].as_str().unwrap_or_default());
    match code {
        METHOD_NOT_FOUND => Error::usage("method", text),
        INVALID_PARAMS => Error::usage("parameters", text),
        _ => Error::failed("refused", text),
    }
}
