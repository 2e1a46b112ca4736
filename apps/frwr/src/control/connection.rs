//! A client of the control socket.

use super::{
    frames::{Frames, MAX_REQUEST_BYTES},
    rpc::{self, ANSWER_TOO_LARGE, Call, Failure, Message, Wrong},
};
use serde_json::Value;
use std::{
    collections::VecDeque,
    io::{ErrorKind, Read as _, Write as _},
    os::unix::net::UnixStream,
};

/// Bytes of an answer, or of all answers of a batch: more namespaces than a subsystem may have. Metrics of so many are longer (one that
/// was read, written and flushed has some ten thousand bytes of them) and are had by HTTP, where nothing else waits behind an answer.
pub(crate) const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Bytes taken of a client in a turn.
const READ_BYTES: usize = 64 << 10;
/// Bytes given to a client in a turn.
const WRITE_BYTES: usize = 256 << 10;

/// What is being answered.
#[derive(Debug)]
struct Answering {
    is_batch: bool,
    /// Not begun yet.
    left: VecDeque<Result<Call, Wrong>>,
    /// The id of the one that is carried out, and whether one is.
    under_way: Option<Option<Value>>,
    /// Each is JSON.
    answers: Vec<String>,
    bytes: usize,
}

/// One connection. It is answered in the order of its requests, one after the other, and the next one is looked at when the answer of
/// the last has gone: so a client that does not read is not served.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    frames: Frames,
    answering: Option<Answering>,
    output: Vec<u8>,
    written: usize,
    /// Nothing more is read.
    is_deaf: bool,
    /// It can be forgotten.
    is_over: bool,
}

impl Connection {
    /// A stream that does not block.
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            frames: Frames::default(),
            answering: None,
            output: Vec::new(),
            written: 0,
            is_deaf: false,
            is_over: false,
        }
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Somebody works for it, or it has not read all that it was told.
    pub(super) fn is_served(&self) -> bool {
        self.answering.is_some() || !self.output.is_empty()
    }

    /// It wants to be woken by what it says.
    pub(super) fn listens(&self) -> bool {
        !self.is_deaf && !self.is_served() && self.frames.room() > 0
    }

    /// It has something that it was not able to take.
    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Reads and writes as much as can be without waiting, within the limits of a turn. Returns whether something moved.
    pub(super) fn turn(&mut self, scratch: &mut [u8]) -> bool {
        let mut moved = self.write();
        if self.listens() {
            moved |= self.read(scratch);
        }
        if !self.is_served() && !self.is_over {
            self.understand();
        }
        moved
    }

    fn read(&mut self, scratch: &mut [u8]) -> bool {
        let room = self.frames.room().min(READ_BYTES).min(scratch.len());
        match self.stream.read(&mut scratch[..room]) {
            Ok(0) => {
                self.is_deaf = true;
                true
            }
            Ok(bytes) => {
                self.frames.push(&scratch[..bytes]);
                true
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            Err(_) => {
                self.is_over = true;
                true
            }
        }
    }

    fn write(&mut self) -> bool {
        let left = &self.output[self.written..];
        if left.is_empty() {
            return false;
        }
        match self.stream.write(&left[..left.len().min(WRITE_BYTES)]) {
            Ok(bytes) => {
                self.written += bytes;
                if self.written == self.output.len() {
                    // Large ones are rare, and give their memory back.
                    (self.output, self.written) = (Vec::new(), 0);
                }
                bytes > 0
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            Err(_) => {
                self.is_over = true;
                true
            }
        }
    }

    /// Begins with the next request, if there is a whole one.
    fn understand(&mut self) {
        match self.frames.next() {
            Ok(Some(bytes)) => self.begin(rpc::read(&bytes)),
            Ok(None) if self.is_deaf => match self.frames.end() {
                Ok(()) => self.is_over = true,
                Err(failure) => self.give_up(failure),
            },
            Ok(None) => {}
            Err(failure) => self.give_up(failure),
        }
    }

    fn begin(&mut self, message: Message) {
        let (is_batch, left) = match message {
            Message::Single(one) => (false, VecDeque::from([one])),
            Message::Batch(all) => (true, all.into()),
        };
        self.answering = Some(Answering { is_batch, left, under_way: None, answers: Vec::new(), bytes: 0 });
    }

    /// Nothing that follows can be understood: this is said, and the connection ends when it was read.
    fn give_up(&mut self, failure: Failure) {
        (self.frames, self.is_deaf) = (Frames::default(), true);
        self.output.extend(rpc::answer(Value::Null, Err(failure)).to_string().into_bytes());
        self.output.push(b'\n');
    }

    /// The next call that is to be carried out, and to be answered by [`Connection::answer`]: one at a time.
    pub(super) fn next_call(&mut self) -> Option<Call> {
        loop {
            let answering = self.answering.as_mut().filter(|answering| answering.under_way.is_none())?;
            match answering.left.pop_front() {
                Some(Ok(call)) => {
                    answering.under_way = Some(call.id.clone());
                    return Some(call);
                }
                Some(Err(Wrong { id, failure })) => answering.add(id, Err(failure)),
                None => {
                    self.send();
                    return None;
                }
            }
        }
    }

    /// The call that was taken is done.
    pub(super) fn answer(&mut self, result: Result<Value, Failure>) {
        let Some(answering) = &mut self.answering else { return };
        if let Some(Some(id)) = answering.under_way.take() {
            answering.add(id, result);
        }
        if answering.left.is_empty() {
            self.send();
        }
    }

    /// All is answered.
    fn send(&mut self) {
        let Some(Answering { is_batch, answers, .. }) = self.answering.take() else { return };
        if answers.is_empty() {
            return;
        }
        let text = if is_batch { format!("[{}]", answers.join(",")) } else { answers.concat() };
        self.output.extend(text.into_bytes());
        self.output.push(b'\n');
        self.write();
    }
}

impl Answering {
    fn add(&mut self, id: Value, result: Result<Value, Failure>) {
        let mut text = rpc::answer(id.clone(), result).to_string();
        if self.bytes + text.len() > MAX_ANSWER_BYTES {
            let (found, before) = (text.len(), self.bytes);
            let said = format!(
                "the answer has {found} bytes behind {before} of the same batch, and all may have {MAX_ANSWER_BYTES}; ask for a part \
                 (`subsystem=NQN`, of metrics also `namespace=NSID`), or one by one"
            );
            text = rpc::answer(id, Err(Failure::new(ANSWER_TOO_LARGE, said))).to_string();
        }
        self.bytes += text.len();
        self.answers.push(text);
    }
}

/// Room for what is read in a turn.
pub(super) fn scratch() -> Box<[u8]> {
    const { assert!(READ_BYTES <= MAX_REQUEST_BYTES, "a turn fits a request") };
    vec![0; READ_BYTES].into_boxed_slice()
}
