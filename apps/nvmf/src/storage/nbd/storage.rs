//! One core's way to an export.

mod losses;
mod requests;

use super::super::{
    AttachError, Completion, CompletionBatch, Cookie, Features, Geometry, Operation, QueueFull, Storage, StorageError,
    StorageStatistics,
};
use super::{
    access::Access,
    connection::Connection,
    link::Link,
    replies::Answer,
    shared::{Done, Entered, Shared},
    tasks::Tasks,
    wakeup::Wakeup,
    wire::error,
};
use core::{task::Waker, time::Duration};
use frwr_mempool::DeviceMemory;
use std::{collections::VecDeque, os::fd::BorrowedFd};

/// An export of an NBD server, by one connection or several: operations become requests that [`Storage::flush`] hands to the kernel by
/// one system call for each connection, answers are asked for by one for each poll and connection that has requests in flight.
///
/// When a connection ends by its server, what it has not answered is sent again over the next one, unless a later change of the same
/// bytes was acknowledged. When it ends otherwise with changes unanswered, nothing is done any more
/// ([`MediumFault::Unanswered`](super::super::MediumFault::Unanswered)). Without a server operations wait as long as they were told to.
///
/// Dropping it waits for nobody and ends its connections. Buffers are touched by its methods alone, and so by nobody from then on. What
/// the server has of its operations it may still carry out, and a Flush among them may be told to nobody that it failed: poll until all
/// have ended before it is dropped, where somebody else goes on with the export.
#[derive(Debug)]
pub struct NbdStorage {
    entered: Entered,
    access: Access,
    buffers: Option<DeviceMemory>,
    tasks: Tasks,
    links: Vec<Link>,
    /// Operations that no server has, in order.
    queue: VecDeque<u32>,
    /// Of these, those in front that may be sent.
    flushed: usize,
    ended: VecDeque<Completion>,
    /// Flushes that the server has done, and that are not to be believed yet.
    doubted: VecDeque<(u32, Done)>,
    /// Since when there is no connection that anything was answered over.
    away_since: Option<Duration>,
    /// What others know of that.
    told_away: bool,
    /// Changes that were answered in this poll: the least age at which one was sent.
    oldest_answered: Option<u32>,
    now: Duration,
    /// Where its core may sleep.
    wakeup: Option<Wakeup>,
    statistics: StorageStatistics,
}

impl NbdStorage {
    /// `connections` are open, `depth` is from 1 to [`super::super::MAX_STORAGE_DEPTH`].
    pub(super) fn new(entered: Entered, access: Access, connections: Vec<Connection>, depth: usize) -> Self {
        let links: Vec<_> = connections.into_iter().map(Link::new).collect();
        links.iter().for_each(|_| entered.shared.opened());
        Self {
            entered,
            access,
            buffers: None,
            tasks: Tasks::new(depth),
            links,
            queue: VecDeque::with_capacity(depth),
            flushed: 0,
            ended: VecDeque::with_capacity(depth),
            doubted: VecDeque::with_capacity(depth),
            away_since: None,
            told_away: false,
            oldest_answered: None,
            now: Duration::ZERO,
            wakeup: None,
            statistics: StorageStatistics::default(),
        }
    }

    fn shared(&self) -> &Shared {
        &self.entered.shared
    }

    /// Where an operation lies, in bytes of the export; that it can be done at all.
    fn check(&self, operation: Operation) -> Result<(u64, u64), StorageError> {
        let buffers = self.buffers.as_ref().ok_or(StorageError::BufferOutOfRange)?;
        let Some((lba, blocks)) = operation.blocks() else { return Ok((0, 0)) };
        if operation.changes() && self.access.is_read_only() {
            return Err(StorageError::ReadOnly);
        }
        let features = self.features();
        let is_known = match operation {
            Operation::WriteZeroes { .. } => features.write_zeroes,
            Operation::Deallocate { .. } => features.deallocate,
            // Another client may write between the two halves.
            Operation::CompareAndWrite { .. } => false,
            _ => true,
        };
        if !is_known {
            return Err(StorageError::Unsupported);
        }
        let (start, bytes) = self.access.geometry.extent(lba, blocks)?;
        if let Operation::Read { buffer, .. } | Operation::Write { buffer, .. } = operation {
            let room = buffers.len().checked_sub(buffer);
            room.filter(|room| *room as u64 >= bytes).ok_or(StorageError::BufferOutOfRange)?;
        }
        Ok((start, bytes))
    }

    /// It has nothing to do that a server would have to know.
    fn is_nothing(&self, operation: Operation, bytes: u64) -> bool {
        match operation {
            Operation::Flush => self.access.is_read_only() || self.access.is_write_through(),
            _ => bytes == 0,
        }
    }

    fn end(&mut self, slot: u32, result: Result<(), StorageError>) {
        if let Some(task) = self.tasks.remove(slot) {
            self.ended.push_back(Completion { cookie: task.cookie, result });
        }
    }

    /// It has no operation.
    fn has_nothing(&self) -> bool {
        self.tasks.held() == 0 && self.ended.is_empty()
    }

    /// What it has waits for sockets or for time alone: not for another poll, nor for what other cores' servers answer.
    fn waits(&self) -> bool {
        let takes = || self.links.iter().any(|link| link.connection.takes().is_some());
        let is_sent = self.queue.is_empty() || self.queue.len() == self.flushed && !takes();
        is_sent && self.ended.is_empty() && self.doubted.is_empty() && self.shared().refuses().is_none()
    }

    /// Takes what a connection has received.
    fn receive(&mut self, at: usize) {
        let Some(link) = self.links.get_mut(at) else { return };
        if !link.connection.is_open() || !link.is_to_be_looked_at(self.now) {
            return;
        }
        self.statistics.system_calls += 1;
        if let Err(end) = link.connection.receive() {
            return self.lost(at, end);
        }
        loop {
            let (Some(link), Some(buffers)) = (self.links.get_mut(at), &self.buffers) else { return };
            match link.connection.answer(at, &mut self.tasks, buffers) {
                Ok(Some(answer)) => self.answered(at, answer),
                Ok(None) => break,
                Err(end) => return self.lost(at, end),
            }
        }
        if self.links.get(at).is_some_and(|link| link.connection.is_left()) {
            self.links[at].connection.leave();
            self.went(at);
        }
    }

    fn answered(&mut self, at: usize, Answer { slot, error }: Answer) {
        let Some(task) = self.tasks.get_mut(slot) else { return };
        let Some(sent) = task.sent.take() else { return };
        let operation = task.operation;
        if error == error::ESHUTDOWN {
            // It was not carried out; the next server does it.
            let again = task.again();
            self.links[at].connection.let_go();
            if let Some(begun) = sent.flush {
                self.shared().end_flush(begun);
            }
            return if again { self.queue_again(slot) } else { self.end(slot, Err(StorageError::Unreachable)) };
        }
        let is_over = task.advance(sent.part.length);
        self.links[at].has_answered();
        self.away_since = None;
        if operation.changes() {
            self.tasks.acknowledged(slot);
            self.oldest_answered = Some(self.oldest_answered.map_or(sent.age, |oldest| oldest.min(sent.age)));
        }
        let result = outcome(operation, error);
        if let Some(begun) = sent.flush {
            if result.is_err() {
                self.shared().flush_failed();
            }
            let done = self.shared().end_flush(begun);
            match result {
                Ok(()) => self.doubted.push_back((slot, done)),
                Err(_) => self.end(slot, Err(StorageError::Medium)),
            }
            return;
        }
        match result {
            Ok(()) if !is_over => {
                self.statistics.restarts += 1;
                self.queue_again(slot);
            }
            result => self.end(slot, result),
        }
    }

    /// It goes to a server before all others.
    fn queue_again(&mut self, slot: u32) {
        self.queue.push_front(slot);
        self.flushed += 1;
    }

    /// Flushes that every other one beside them has an answer for.
    fn finish_flushes(&mut self) {
        while let Some(&(slot, done)) = self.doubted.front()
            && let Some(result) = self.shared().outcome(done)
        {
            self.doubted.pop_front();
            self.end(slot, result);
        }
    }
}

/// What a server's answer to an operation comes to.
const fn outcome(operation: Operation, error: u32) -> Result<(), StorageError> {
    match (operation, error) {
        (_, 0) => Ok(()),
        // A hint, which never fails for what the medium cannot do.
        (Operation::Deallocate { .. }, error::EINVAL | error::EOVERFLOW | error::ENOTSUP) => Ok(()),
        (_, error::ENOSPC) => Err(StorageError::NoSpace),
        (operation, error::EPERM) if operation.changes() => Err(StorageError::ReadOnly),
        _ => Err(StorageError::Medium),
    }
}

impl Drop for NbdStorage {
    /// Nobody waits for its flushes.
    fn drop(&mut self) {
        for begun in self.tasks.take_flushes() {
            self.entered.shared.end_flush(begun);
        }
        self.tell(false);
        for link in &mut self.links {
            link.connection.leave();
        }
    }
}

impl Storage for NbdStorage {
    fn geometry(&self) -> Geometry {
        self.access.geometry
    }

    fn features(&self) -> Features {
        let Access { export, .. } = &self.access;
        Features {
            write_zeroes: export.can_write_zeroes(),
            deallocate: export.can_trim(),
            read_only: self.access.is_read_only(),
            write_through: self.access.is_write_through(),
            shared: true,
            compare_and_write: 0,
        }
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        if self.buffers.is_some() {
            return Err(AttachError::Twice);
        }
        self.buffers = Some(buffers);
        Ok(())
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.tasks.held() + self.ended.len() >= self.tasks.depth() {
            return Err(QueueFull);
        }
        let (start, bytes, refused) = match self.check(operation) {
            Ok((start, bytes)) => (start, bytes, self.shared().refuses().map(Err)),
            Err(error) => (0, 0, Some(Err(error))),
        };
        let result = refused.or_else(|| self.is_nothing(operation, bytes).then_some(Ok(())));
        let Some(slot) = self.tasks.add(cookie, operation, start, bytes) else { return Err(QueueFull) };
        self.statistics.submitted += 1;
        match result {
            Some(result) => self.end(slot, result),
            None => self.queue.push_back(slot),
        }
        Ok(())
    }

    /// What a server has is not taken back: it gives back nothing.
    fn cancel(&mut self, cookie: Cookie) -> bool {
        let waits = |slot: &u32| self.tasks.get(*slot).is_some_and(|task| task.cookie == cookie && task.is_untouched());
        let Some(at) = self.queue.iter().position(waits) else { return false };
        let Some(slot) = self.queue.remove(at) else { return false };
        self.flushed -= usize::from(at < self.flushed);
        self.tasks.remove(slot);
        self.statistics.cancelled += 1;
        true
    }

    fn flush(&mut self) {
        let waits = self.queue.len() > self.flushed;
        self.flushed = self.queue.len();
        self.statistics.flushes += u64::from(waits);
        if waits {
            self.start();
        }
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        self.now = now;
        let before = out.len();
        if self.shared().refuses().is_none() {
            for at in 0..self.links.len() {
                self.receive(at);
            }
        }
        if let Some(error) = self.shared().refuses() {
            self.refuse(error);
        } else {
            if !self.links.iter().all(|link| link.connection.is_open()) || self.away_since.is_some() {
                self.reconnect();
            }
            self.start();
            if !self.doubted.is_empty() {
                self.finish_flushes();
            }
        }
        // Before anybody hears of them.
        if let Some(oldest) = self.oldest_answered.take()
            && !self.access.is_write_through()
        {
            self.shared().acknowledge(oldest);
        }
        self.statistics.hand_on(&mut self.ended, out);
        out.len() - before
    }

    /// Without descriptors it is polled while it has operations.
    fn wakes(&mut self, _: &Waker) {
        self.wakeup = Wakeup::new().ok();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wakeup.as_ref().map(Wakeup::descriptor)
    }

    /// With nothing it keeps nobody awake for other storages.
    fn arm(&mut self) -> bool {
        if self.has_nothing() {
            return true;
        }
        if !self.waits() {
            return false;
        }
        let Some(wakeup) = &self.wakeup else { return false };
        self.links.iter_mut().for_each(|link| link.connection.tell_just(wakeup));
        wakeup.begin().is_ok()
    }

    fn rests(&self) -> bool {
        self.has_nothing() || self.waits() && self.links.iter().all(|link| link.rests(self.now))
    }

    fn statistics(&self) -> StorageStatistics {
        StorageStatistics { fault: self.shared().fault(self.access.bytes()), ..self.statistics }
    }
}
