//! What a server answers: from bytes to parts of operations that have ended, with the data of reads on its way to the buffers. Every
//! number is checked against what was asked for before it moves anything.

use super::{
    tasks::{Part, Tasks},
    wire::{self, Chunk, NbdBreach, Reply},
};
use crate::storage::Operation;
use frwr_mempool::DeviceMemory;

/// Where in the stream it is.
#[derive(Clone, Copy, Debug)]
enum Reading {
    Header,
    /// Data of a read, which goes to the buffers; its end may be that of the reply.
    Data {
        slot: u32,
        buffer: usize,
        left: u32,
        is_last: bool,
    },
    /// The rest of an error.
    Skip {
        slot: u32,
        left: u32,
        is_last: bool,
    },
}

/// The stream of one connection.
#[derive(Debug)]
pub(super) struct Replies {
    reading: Reading,
    structured: bool,
}

/// A request was answered: whose it was, with 0 or an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) slot: u32,
    pub(super) error: u32,
}

impl Replies {
    pub(super) const fn new(structured: bool) -> Self {
        Self { reading: Reading::Header, structured }
    }

    /// Takes bytes from the front of `input`, up to the next request that is answered: how many, and which. 0 bytes where it needs more.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        connection: usize,
        tasks: &mut Tasks,
        buffers: &DeviceMemory,
    ) -> Result<(usize, Option<Answer>), NbdBreach> {
        match self.reading {
            Reading::Header => self.header(input, connection, tasks, buffers),
            Reading::Data { slot, buffer, left, is_last } => {
                let step = input.len().min(left as usize);
                // The part was checked to lie in them.
                let _ = buffers.write(buffer, &input[..step]);
                let left = left - step as u32;
                if left > 0 {
                    self.reading = Reading::Data { slot, buffer: buffer + step, left, is_last };
                    return Ok((step, None));
                }
                self.end_of_chunk(step, slot, is_last, tasks)
            }
            Reading::Skip { slot, left, is_last } => {
                let step = input.len().min(left as usize);
                let left = left - step as u32;
                if left > 0 {
                    self.reading = Reading::Skip { slot, left, is_last };
                    return Ok((step, None));
                }
                self.end_of_chunk(step, slot, is_last, tasks)
            }
        }
    }

    fn header(
        &mut self,
        input: &[u8],
        connection: usize,
        tasks: &mut Tasks,
        buffers: &DeviceMemory,
    ) -> Result<(usize, Option<Answer>), NbdBreach> {
        let Some((reply, taken)) = wire::reply(input, self.structured)? else { return Ok((0, None)) };
        let (Reply::Simple { cookie, .. } | Reply::Chunk { cookie, .. }) = reply;
        let slot = tasks.find(cookie, connection).ok_or(NbdBreach::Cookie(cookie))?;
        let Some(task) = tasks.get_mut(slot) else { return Err(NbdBreach::Cookie(cookie)) };
        let is_read = matches!(task.operation, Operation::Read { .. });
        let Some(sent) = task.sent.as_mut() else { return Err(NbdBreach::Cookie(cookie)) };
        match reply {
            Reply::Simple { .. } if is_read && self.structured => Err(NbdBreach::Style),
            Reply::Simple { error: 0, .. } if is_read => {
                let Part { buffer, length, .. } = sent.part;
                if !sent.coverage.add(0, length)? {
                    return Err(NbdBreach::Style);
                }
                self.reading = Reading::Data { slot, buffer, left: length, is_last: true };
                Ok((taken, None))
            }
            // A reply is in chunks, or it is not.
            Reply::Simple { .. } if sent.error != 0 => Err(NbdBreach::Style),
            Reply::Simple { error, .. } => Ok((taken, Some(Answer { slot, error }))),
            Reply::Chunk { is_last, chunk, .. } => {
                match chunk {
                    Chunk::Data { .. } if !is_read => return Err(NbdBreach::Chunk(1)),
                    Chunk::Hole { .. } if !is_read => return Err(NbdBreach::Chunk(2)),
                    Chunk::Data { offset, bytes } => {
                        let start = placed(&sent.part, offset, bytes)?;
                        if !sent.coverage.add(start, start + bytes)? {
                            return Err(NbdBreach::Data { offset, bytes });
                        }
                        let buffer = sent.part.buffer + start as usize;
                        self.reading = Reading::Data { slot, buffer, left: bytes, is_last };
                        return Ok((taken, None));
                    }
                    Chunk::Hole { offset, bytes } => {
                        let start = placed(&sent.part, offset, bytes)?;
                        if !sent.coverage.add(start, start + bytes)? {
                            return Err(NbdBreach::Data { offset, bytes });
                        }
                        // The part was checked to lie in them.
                        let _ = buffers.fill(sent.part.buffer + start as usize, bytes as usize, 0);
                    }
                    Chunk::Error { error, rest } => {
                        if sent.error == 0 {
                            sent.error = error;
                        }
                        if rest > 0 {
                            self.reading = Reading::Skip { slot, left: rest, is_last };
                            return Ok((taken, None));
                        }
                    }
                    Chunk::End => {}
                }
                self.end_of_chunk(taken, slot, is_last, tasks)
            }
        }
    }

    fn end_of_chunk(
        &mut self,
        taken: usize,
        slot: u32,
        is_last: bool,
        tasks: &Tasks,
    ) -> Result<(usize, Option<Answer>), NbdBreach> {
        self.reading = Reading::Header;
        if !is_last {
            return Ok((taken, None));
        }
        let Some(task) = tasks.get(slot) else { return Ok((taken, None)) };
        let Some(sent) = &task.sent else { return Ok((taken, None)) };
        let (found, wanted) = (sent.coverage.bytes(), sent.part.length);
        if matches!(task.operation, Operation::Read { .. }) && sent.error == 0 && found != wanted {
            return Err(NbdBreach::Short { found, wanted });
        }
        Ok((taken, Some(Answer { slot, error: sent.error })))
    }
}

/// Where in a part data lies that begins at `offset` of the export.
fn placed(part: &Part, offset: u64, bytes: u32) -> Result<u32, NbdBreach> {
    let start = offset
        .checked_sub(part.offset)
        .filter(|start| start.checked_add(bytes.into()).is_some_and(|end| end <= part.length.into()));
    // Not beyond `length`.
    start.map(|start| start as u32).ok_or(NbdBreach::Data { offset, bytes })
}
