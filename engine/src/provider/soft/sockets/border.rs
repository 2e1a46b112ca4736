//! What another process may send: packets in the order in which a queue pair makes them, and answers to what was asked.
//! Within one process nobody could do otherwise; what does not pass here ends the connection.

use super::packet::Header;
use crate::provider::soft::requester::{MAX_MESSAGE, is_before};
use crate::provider::soft::wire::{Request, Response};
use std::collections::VecDeque;

/// RDMA READs that one queue pair has outstanding at most: what connection managers negotiate has eight bits.
const MAX_READS: usize = u8::MAX as usize;

/// A message of several packets that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Send { invalidate: Option<u32> },
    Write { key: u32, address: u64, left: u32 },
}

/// Where the peer's requests are at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    /// Number of the message that is under way, or comes next.
    sequence: u32,
    within: Option<Within>,
    abandoned: bool,
}

impl Requests {
    /// Where they are behind this packet; `None` where it cannot come now.
    pub(super) fn behind(self, header: &Header<Request>) -> Option<Self> {
        let in_order = header.sequence == self.sequence && !self.abandoned;
        if !in_order {
            return None;
        }
        if header.what == Request::Abandoned {
            return (header.length == 0).then_some(Self { abandoned: true, ..self });
        }
        if header.first != self.within.is_none() {
            return None;
        }
        let within = match header.what {
            Request::Send { invalidate } => self.send(header, invalidate)?,
            Request::Write { key, address, total } => self.write(header, key, address, total)?,
            Request::Read { length, .. } => {
                let alone = header.first && header.last && header.length == 0 && u64::from(length) <= MAX_MESSAGE;
                return alone.then_some(Self { sequence: self.sequence.wrapping_add(1), ..self });
            }
            Request::Abandoned => return None,
        };
        let sequence = if header.last { self.sequence.wrapping_add(1) } else { self.sequence };
        Some(Self { sequence, within: if header.last { None } else { Some(within) }, ..self })
    }

    fn send(self, header: &Header<Request>, invalidate: Option<u32>) -> Option<Within> {
        let within = Within::Send { invalidate };
        let goes_on = self.within.is_none_or(|before| before == within);
        // Empty packets, but for the last, would keep a message going for ever.
        (goes_on && (header.last || header.length > 0)).then_some(within)
    }

    fn write(self, header: &Header<Request>, key: u32, address: u64, total: u32) -> Option<Within> {
        let goes_on = self.within.is_none_or(|before| before == Within::Write { key, address, left: total });
        let left = total.checked_sub(header.length)?;
        let ends = header.last == (left == 0);
        let moves = header.last || header.length > 0;
        let address = address.wrapping_add(u64::from(header.length));
        let good = goes_on && ends && moves && u64::from(total) <= MAX_MESSAGE;
        good.then_some(Within::Write { key, address, left })
    }
}

/// An RDMA READ that was sent and is not answered.
#[derive(Clone, Copy, Debug)]
struct Reading {
    sequence: u32,
    left: u32,
    begun: bool,
}

/// What the peer may answer to what was sent to it.
#[derive(Debug)]
pub(super) struct Answers {
    /// Messages before this number were sent, whole.
    sent: u32,
    /// A part of the next was.
    is_sending: bool,
    reads: VecDeque<Reading>,
}

impl Default for Answers {
    fn default() -> Self {
        Self { sent: 0, is_sending: false, reads: VecDeque::with_capacity(MAX_READS) }
    }
}

impl Answers {
    /// A packet goes to the peer.
    pub(super) fn note_sent(&mut self, header: &Header<Request>) {
        if let Request::Read { length, .. } = header.what {
            self.reads.push_back(Reading { sequence: header.sequence, left: length, begun: false });
        }
        self.is_sending = !header.last;
        if header.last {
            self.sent = header.sequence.wrapping_add(1);
        }
    }

    /// Whether the peer can say this now.
    pub(super) fn permit(&self, header: &Header<Response>) -> bool {
        let sequence = header.sequence;
        let read = self.reads.front();
        match header.what {
            Response::Data => read.is_some_and(|read| {
                let moves = header.length > 0 || read.left == 0;
                let ends = header.last == (header.length == read.left);
                let begins = header.first != read.begun;
                sequence == read.sequence && header.length <= read.left && moves && ends && begins
            }),
            _ if !(header.first && header.last && header.length == 0) => false,
            // It says that the message with this number was executed.
            Response::Acknowledge => {
                is_before(sequence, self.sent) && read.is_none_or(|read| is_before(sequence, read.sequence))
            }
            // These say that those before it were.
            Response::NotReady | Response::Refuse(_) => {
                let was_begun = is_before(sequence, self.sent) || (self.is_sending && sequence == self.sent);
                was_begun && read.is_none_or(|read| !is_before(read.sequence, sequence))
            }
        }
    }

    /// It was said.
    pub(super) fn note_heard(&mut self, header: &Header<Response>) {
        if header.what != Response::Data {
            return;
        }
        if let Some(read) = self.reads.front_mut() {
            read.left -= header.length.min(read.left);
            read.begun = true;
        }
        if header.last {
            self.reads.pop_front();
        }
    }
}
