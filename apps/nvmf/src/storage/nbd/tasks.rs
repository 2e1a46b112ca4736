//! Operations that a storage holds, and which part of each a server has.

use super::{
    super::{Cookie, Operation},
    coverage::Coverage,
    shared::Begun,
};

/// How often an operation is sent again after its connection has ended: more, and it is what ends servers.
const MAX_RESENDS: u8 = 8;

/// What of an operation is one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// First byte of the export.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) length: u32,
    /// Offset in the buffers.
    pub(super) buffer: usize,
}

/// A request that a server has.
#[derive(Debug)]
pub(super) struct Sent {
    /// By its place among the storage's.
    pub(super) connection: usize,
    /// The cookie on the wire.
    pub(super) key: u64,
    pub(super) part: Part,
    /// [`Shared::age`](super::shared::Shared::age) when it was sent.
    pub(super) age: u32,
    pub(super) flush: Option<Begun>,
    /// Of a read.
    pub(super) coverage: Coverage,
    /// What an error chunk said; 0 for nothing.
    pub(super) error: u32,
}

/// An operation.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) cookie: Cookie,
    pub(super) operation: Operation,
    /// First byte of the export.
    start: u64,
    bytes: u64,
    done: u64,
    /// Order of submission.
    sequence: u64,
    resends: u8,
    /// It may have been carried out, and a later change of the same bytes was acknowledged: it cannot be sent again.
    superseded: bool,
    pub(super) sent: Option<Sent>,
}

/// A change that a server may have carried out, and has not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Pending {
    slot: u32,
    sequence: u64,
    start: u64,
    end: u64,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Tasks {
    all: Vec<Option<Task>>,
    free: Vec<u32>,
    pending: Vec<Pending>,
    next_sequence: u64,
    next_key: u32,
}

impl Task {
    /// What comes next of it, of `limit` bytes at most.
    pub(super) fn part(&self, limit: u32) -> Part {
        let buffer = match self.operation {
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => buffer,
            _ => 0,
        };
        // What is done lies in the buffer, whose offsets are `usize`; and the rest is at most `limit`.
        let length = (self.bytes - self.done).min(limit.into()) as u32;
        Part { offset: self.start + self.done, length, buffer: buffer + self.done as usize }
    }

    /// It may not be sent any more: a server may have carried it out, and others behind it.
    pub(super) const fn is_overtaken(&self) -> bool {
        self.superseded && self.resends > 0
    }

    /// Nothing of it was ever given to a server.
    pub(super) const fn is_untouched(&self) -> bool {
        self.sent.is_none() && self.resends == 0 && self.done == 0
    }

    /// So many bytes more are done; whether that is all of them.
    pub(super) fn advance(&mut self, bytes: u32) -> bool {
        self.done = (self.done + u64::from(bytes)).min(self.bytes);
        // What follows was sent to nobody.
        (self.resends, self.superseded) = (0, false);
        self.done == self.bytes
    }

    /// It is to be sent once more; false where that was done often enough.
    pub(super) fn again(&mut self) -> bool {
        self.resends += 1;
        self.resends <= MAX_RESENDS
    }
}

impl Tasks {
    pub(super) fn new(depth: usize) -> Self {
        // Bounded by `MAX_STORAGE_DEPTH`.
        let free = (0..depth as u32).rev().collect();
        let all = core::iter::repeat_with(|| None).take(depth).collect();
        Self { all, free, pending: Vec::with_capacity(depth), next_sequence: 0, next_key: 0 }
    }

    pub(super) fn depth(&self) -> usize {
        self.all.len()
    }

    /// Operations that it holds.
    pub(super) fn held(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Takes one of `bytes` bytes from `start` on; its slot, or `None` where there is none.
    pub(super) fn add(&mut self, cookie: Cookie, operation: Operation, start: u64, bytes: u64) -> Option<u32> {
        let slot = self.free.pop()?;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let task =
            Task { cookie, operation, start, bytes, done: 0, sequence, resends: 0, superseded: false, sent: None };
        self.all[slot as usize] = Some(task);
        Some(slot)
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Task> {
        self.all.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Task> {
        self.all.get_mut(slot as usize)?.as_mut()
    }

    /// It is over.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Task> {
        let task = self.all.get_mut(slot as usize)?.take()?;
        self.pending.retain(|pending| pending.slot != slot);
        self.free.push(slot);
        Some(task)
    }

    /// A cookie that no request of a slot had for long.
    pub(super) fn key(&mut self, slot: u32) -> u64 {
        self.next_key = self.next_key.wrapping_add(1);
        u64::from(self.next_key) << 32 | u64::from(slot)
    }

    /// The slot of a request that is in flight on that connection, by what a server says is its cookie.
    pub(super) fn find(&self, key: u64, connection: usize) -> Option<u32> {
        // Its lower half.
        let slot = key as u32;
        let sent = self.get(slot)?.sent.as_ref()?;
        (sent.key == key && sent.connection == connection).then_some(slot)
    }

    /// A part of it goes to a server.
    pub(super) fn send(&mut self, slot: u32, sent: Sent) {
        let Some(task) = self.all.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        // One that is sent again is there still.
        if task.operation.changes() && !self.pending.iter().any(|pending| pending.slot == slot && task.resends > 0) {
            let (start, end) = (sent.part.offset, sent.part.offset + u64::from(sent.part.length));
            self.pending.push(Pending { slot, sequence: task.sequence, start, end });
        }
        task.sent = Some(sent);
    }

    /// A server has answered a part of a change. Those in front of it that touch its bytes, and have no answer, cannot be sent again.
    pub(super) fn acknowledged(&mut self, slot: u32) {
        let Some(at) = self.pending.iter().position(|pending| pending.slot == slot) else { return };
        let this = self.pending.swap_remove(at);
        let overtakes =
            |other: &&Pending| other.sequence < this.sequence && other.start < this.end && this.start < other.end;
        for other in self.pending.iter().filter(overtakes) {
            if let Some(task) = self.all.get_mut(other.slot as usize).and_then(Option::as_mut) {
                task.superseded = true;
            }
        }
    }

    /// The slots of what is in flight on a connection, the one submitted last first.
    pub(super) fn in_flight(&self, connection: usize) -> Vec<u32> {
        let is_there = |task: &&Task| task.sent.as_ref().is_some_and(|sent| sent.connection == connection);
        let tasks = (0_u32..).zip(&self.all).filter_map(|(slot, task)| Some((slot, task.as_ref().filter(is_there)?)));
        let mut slots: Vec<_> = tasks.map(|(slot, task)| (core::cmp::Reverse(task.sequence), slot)).collect();
        slots.sort_unstable();
        slots.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Flushes that a server has.
    pub(super) fn take_flushes(&mut self) -> impl Iterator<Item = Begun> {
        self.all.iter_mut().flatten().filter_map(|task| task.sent.as_mut()?.flush.take())
    }
}
