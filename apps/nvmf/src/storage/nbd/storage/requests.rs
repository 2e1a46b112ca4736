//! Operations on their way to servers.

use super::super::{
    link::Link,
    tasks::Sent,
    wire::{Command, MAX_PART_BYTES, Request, command_flag},
};
use super::{NbdStorage, Operation, StorageError};

impl NbdStorage {
    /// Gives requests to connections that take some, the one with fewest in flight first.
    fn fill(&mut self) {
        while self.flushed > 0 {
            let takes = |(at, link): (usize, &Link)| Some((link.connection.in_flight(), at, link.connection.takes()?));
            let Some((_, at, longest)) = self.links.iter().enumerate().filter_map(takes).min() else { return };
            let Some(slot) = self.queue.pop_front() else { return };
            self.flushed -= 1;
            self.send(slot, at, longest);
        }
    }

    /// Sends what is next of an operation over a connection that takes it.
    fn send(&mut self, slot: u32, at: usize, longest: u32) {
        let fails_flushes = self.shared().fails_flushes();
        let (age, key) = (self.shared().age(), self.tasks.key(slot));
        let Some(task) = self.tasks.get(slot) else { return };
        let operation = task.operation;
        if operation == Operation::Flush && fails_flushes {
            return self.end(slot, Err(StorageError::Medium));
        }
        if task.is_overtaken() {
            return self.end(slot, Err(StorageError::Unreachable));
        }
        let block_bytes = self.access.geometry.block_bytes();
        let longest = longest.min(MAX_PART_BYTES);
        let part = task.part(longest - longest % block_bytes);
        let flush = (operation == Operation::Flush).then(|| self.shared().begin_flush());
        let fua = if operation.changes() && self.access.asks_for_fua() { command_flag::FUA } else { 0 };
        let (command, flags) = match operation {
            Operation::Read { .. } => (Command::Read, 0),
            Operation::Write { .. } => (Command::Write, fua),
            Operation::Flush => (Command::Flush, 0),
            Operation::WriteZeroes { deallocate: false, .. } => (Command::WriteZeroes, fua | command_flag::NO_HOLE),
            Operation::WriteZeroes { .. } => (Command::WriteZeroes, fua),
            Operation::Deallocate { .. } => (Command::Trim, fua),
            // Refused by the check.
            Operation::CompareAndWrite { .. } => return self.end(slot, Err(StorageError::Unsupported)),
        };
        let sent = Sent { connection: at, key, part, age, flush, coverage: Default::default(), error: 0 };
        self.tasks.send(slot, sent);
        if let (Some(link), Some(buffers)) = (self.links.get_mut(at), &self.buffers) {
            let request = Request { command, flags, cookie: key, offset: part.offset, length: part.length };
            link.connection.put(request, part, buffers);
        }
    }

    /// Hands to the kernel what connections have for it; nothing where nothing is done any more, before the next poll ends it all.
    pub(super) fn start(&mut self) {
        if self.shared().refuses().is_some() {
            return;
        }
        self.fill();
        for at in 0..self.links.len() {
            let connection = &mut self.links[at].connection;
            if let Some(buffers) = self.buffers.as_ref().filter(|_| connection.is_open() && connection.is_sending()) {
                self.statistics.system_calls += 1;
                if let Err(end) = connection.send(buffers) {
                    self.lost(at, end);
                }
            }
            if let Some(wakeup) = &self.wakeup {
                self.links[at].connection.tell(wakeup);
            }
        }
    }
}
