//! A storage that can compare and write, around one that cannot.

use super::{
    comparison::{Comparison, Step},
    locks::{Range, RangeLocks, TooManyWays},
    way::Way,
};
use crate::storage::{
    AttachError, Completion, CompletionBatch, Cookie, Features, Geometry, Operation, QueueFull, ResizeError, Storage,
    StorageError, StorageStatistics,
};
use arrayvec::ArrayVec;
use core::{task::Waker, time::Duration};
use frwr_mempool::DeviceMemory;
use std::{collections::VecDeque, os::fd::BorrowedFd, sync::Arc};

/// Bytes of one compare and write at most, or one block: locks and headers of cluster software are single blocks, and
/// whoever writes to such a range waits meanwhile.
pub const MAX_COMPARE_AND_WRITE_BYTES: u32 = 32 << 10;

/// Of one way at a time: more than [`RangeLocks`] of a medium let run beside each other would only wait.
const MAX_COMPARISONS: usize = 16;
/// Changes that one way holds back at a time, of as many as queues usually have; those behind them wait in front of it.
const MAX_HELD: usize = 128;

/// A storage that can say what it has under way.
pub trait Changing: Storage {
    /// Something that was submitted, and has not completed, changes a block from `start` on and in front of `end`. Asked
    /// only while a range of the medium is locked.
    fn is_changing(&self, start: u64, end: u64) -> bool;
}

impl Operation {
    /// It changes a block from `start` on and in front of `end`.
    #[must_use]
    pub const fn changes_any(self, start: u64, end: u64) -> bool {
        match self.blocks() {
            Some(blocks) if self.changes() => Range::new(blocks).overlaps(Range { start, end }),
            _ => false,
        }
    }
}

/// One way to a medium, with [`Operation::CompareAndWrite`]. All ways to a medium, of all cores and devices, have the same
/// [`RangeLocks`], and nobody else changes the medium: then the operation is one step to all of them.
///
/// It waits until each of the others has been flushed, so that a way that nobody polls any more is to be dropped.
#[derive(Debug)]
pub struct Comparing<S> {
    // Dropped first: nothing changes the medium any more when the locks of this way go.
    inner: S,
    way: Way,
    buffers: Option<DeviceMemory>,
    /// Blocks of one at most.
    most: u32,
    comparisons: ArrayVec<Comparison, MAX_COMPARISONS>,
    /// Changes of what is locked.
    held: VecDeque<(Cookie, Operation)>,
    ended: ArrayVec<Completion, MAX_COMPARISONS>,
    /// Nothing is locked, and nothing waits here: whatever comes is the inner storage's.
    is_plain: bool,
    /// What the inner storage counts for steps that nobody asked for as such.
    steps: StorageStatistics,
    own: StorageStatistics,
}

impl<S: Changing> Comparing<S> {
    /// # Errors
    /// [`TooManyWays`].
    pub fn new(inner: S, locks: &Arc<RangeLocks>) -> Result<Self, TooManyWays> {
        let most = (MAX_COMPARE_AND_WRITE_BYTES / inner.geometry().block_bytes()).max(1);
        let mut way = Way::new(locks)?;
        way.look(|_| false);
        let is_plain = way.is_free();
        Ok(Self {
            inner,
            way,
            buffers: None,
            most,
            comparisons: ArrayVec::new(),
            held: VecDeque::with_capacity(MAX_HELD),
            ended: ArrayVec::new(),
            is_plain,
            steps: StorageStatistics::default(),
            own: StorageStatistics::default(),
        })
    }

    /// The storage that it is around.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    #[cfg(test)]
    pub(crate) fn into_inner(self) -> S {
        self.inner
    }

    /// Nothing of it waits here.
    fn has_nothing(&self) -> bool {
        self.comparisons.is_empty() && self.held.is_empty() && self.ended.is_empty()
    }

    fn is_at_rest(&self) -> bool {
        self.is_plain && self.way.is_current()
    }

    /// A compare and write, or something that may change what is locked.
    #[cold]
    fn submit_beside(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if let Operation::CompareAndWrite { lba, blocks, buffer } = operation {
            if self.comparisons.len() + self.ended.len() >= MAX_COMPARISONS {
                return Err(QueueFull);
            }
            let step = Step::Waits;
            self.comparisons.push(Comparison { cookie, lba, blocks, buffer, bytes: 0, step });
            self.is_plain = false;
        } else if operation.changes() && operation.blocks().is_some_and(|of| self.way.excludes(Range::new(of))) {
            if self.held.len() >= MAX_HELD {
                return Err(QueueFull);
            }
            self.held.push_back((cookie, operation));
            self.is_plain = false;
        } else {
            return self.inner.submit(cookie, operation);
        }
        self.own.submitted += 1;
        Ok(())
    }

    /// Bytes of each part of its buffer. `None` where it has nothing to do.
    fn check(&self, comparison: &Comparison) -> Result<Option<usize>, StorageError> {
        let Comparison { lba, blocks, buffer, .. } = *comparison;
        let (_, bytes) = self.inner.geometry().extent(lba, blocks)?;
        if self.inner.features().read_only {
            return Err(StorageError::ReadOnly);
        }
        if blocks > self.most {
            return Err(StorageError::Unsupported);
        }
        let bytes = usize::try_from(bytes).map_err(|_| StorageError::BufferOutOfRange)?;
        let buffers = self.buffers.as_ref().ok_or(StorageError::BufferOutOfRange)?;
        buffers.slice(buffer, bytes.saturating_mul(3)).map_err(|_| StorageError::BufferOutOfRange)?;
        Ok((blocks > 0).then_some(bytes))
    }

    /// Takes everything that waits here as far as it goes now.
    #[cold]
    fn advance(&mut self) {
        // The second time around, for who has nobody to wait for but himself.
        for _ in 0..2 {
            if !self.way.is_current() {
                let inner = &self.inner;
                self.way.look(|range| inner.is_changing(range.start, range.end));
            }
            let mut at = 0;
            while at < self.comparisons.len() {
                if self.step(at) {
                    self.comparisons.swap_remove(at);
                } else {
                    at += 1;
                }
            }
        }
        self.let_go();
        self.is_plain = self.way.is_free() && self.has_nothing();
    }

    /// Takes one as far as it goes; whether it has ended.
    fn step(&mut self, at: usize) -> bool {
        loop {
            let mut comparison = self.comparisons[at];
            let Comparison { cookie, lba, blocks, .. } = comparison;
            comparison.step = match comparison.step {
                Step::Waits => match self.check(&comparison) {
                    Ok(Some(bytes)) => {
                        comparison.bytes = bytes;
                        let Some(lock) = self.way.lock(Range::new((lba, blocks))) else { return false };
                        Step::Locks(lock)
                    }
                    nothing => return self.end(cookie, nothing.map(|_| ())),
                },
                Step::Locks(lock) if self.way.has_locked(lock) => Step::Reads(lock),
                Step::Reads(lock) => {
                    let operation = Operation::Read { lba, blocks, buffer: comparison.found() };
                    if self.inner.submit(cookie, operation).is_err() {
                        return false;
                    }
                    Step::Reading(lock)
                }
                Step::Writes(lock) => {
                    let operation = Operation::Write { lba, blocks, buffer: comparison.written() };
                    if self.inner.submit(cookie, operation).is_err() {
                        return false;
                    }
                    Step::Writing(lock)
                }
                Step::Ends(lock, result) if self.way.unlock(lock) => return self.end(cookie, result),
                Step::Locks(_) | Step::Reading(_) | Step::Writing(_) | Step::Ends(..) => return false,
            };
            if matches!(comparison.step, Step::Reading(_) | Step::Writing(_)) {
                self.steps.submitted += 1;
            }
            self.comparisons[at] = comparison;
        }
    }

    fn end(&mut self, cookie: Cookie, result: Result<(), StorageError>) -> bool {
        self.ended.push(Completion { cookie, result });
        true
    }

    /// Changes of what is not locked any more go on.
    fn let_go(&mut self) {
        let mut at = 0;
        while let Some(&(cookie, operation)) = self.held.get(at) {
            if operation.blocks().is_some_and(|of| self.way.excludes(Range::new(of))) {
                at += 1;
            } else if self.inner.submit(cookie, operation).is_ok() {
                self.held.remove(at);
                // The inner storage counts it from now on.
                self.own.submitted -= 1;
            } else {
                break;
            }
        }
    }

    /// Takes what is of its steps from what the inner storage has completed.
    fn take_steps(&mut self, out: &mut CompletionBatch, from: usize) {
        let mut at = from;
        while at < out.len() {
            let Completion { cookie, result } = out[at];
            let Some(comparison) = self.comparisons.iter_mut().find(|comparison| comparison.cookie == cookie) else {
                at += 1;
                continue;
            };
            comparison.ended(result, self.buffers.as_ref());
            self.steps.completed += 1;
            self.steps.failed += u64::from(result.is_err());
            out.remove(at);
        }
    }

    #[cold]
    fn poll_beside(&mut self, out: &mut CompletionBatch, from: usize) {
        self.take_steps(out, from);
        self.advance();
        while !out.is_full() {
            let Some(completion) = self.ended.pop_at(0) else { break };
            self.own.completed += 1;
            self.own.failed += u64::from(completion.result.is_err());
            out.push(completion);
        }
        self.is_plain = self.way.is_free() && self.has_nothing();
    }
}

impl<S: Changing> Storage for Comparing<S> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        self.inner.resize(blocks)
    }

    #[inline]
    fn features(&self) -> Features {
        let features = self.inner.features();
        Features { compare_and_write: if features.read_only { 0 } else { self.most }, ..features }
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.inner.attach(buffers.clone())?;
        self.buffers = Some(buffers);
        Ok(())
    }

    #[inline]
    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.is_plain && !matches!(operation, Operation::CompareAndWrite { .. }) {
            return self.inner.submit(cookie, operation);
        }
        self.submit_beside(cookie, operation)
    }

    /// What has a lock, or waits for one, is not taken back.
    fn cancel(&mut self, cookie: Cookie) -> bool {
        if let Some(at) = self.comparisons.iter().position(|comparison| comparison.cookie == cookie) {
            let waits = self.comparisons[at].step == Step::Waits;
            if waits {
                self.comparisons.swap_remove(at);
                self.own.cancelled += 1;
            }
            return waits;
        }
        if self.ended.iter().any(|completion| completion.cookie == cookie) {
            return false;
        }
        if let Some(at) = self.held.iter().position(|(held, _)| *held == cookie) {
            self.held.remove(at);
            self.own.cancelled += 1;
            return true;
        }
        self.inner.cancel(cookie)
    }

    #[inline]
    fn flush(&mut self) {
        if !self.is_at_rest() {
            self.advance();
        }
        self.inner.flush();
    }

    #[inline]
    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        let before = out.len();
        let polled = self.inner.poll(now, out);
        if self.is_at_rest() {
            return polled;
        }
        self.poll_beside(out, before);
        out.len() - before
    }

    fn wakes(&mut self, waker: &Waker) {
        self.way.wakes(waker);
        self.inner.wakes(waker);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    /// Who is locked out, or waits for others, is woken by them only where it has nothing to do itself.
    fn arm(&mut self) -> bool {
        self.inner.arm() && self.rests()
    }

    fn rests(&self) -> bool {
        self.inner.rests() && self.has_nothing() && self.way.is_current()
    }

    fn statistics(&self) -> StorageStatistics {
        let (inner, steps, own) = (self.inner.statistics(), &self.steps, &self.own);
        StorageStatistics {
            submitted: inner.submitted + own.submitted - steps.submitted,
            completed: inner.completed + own.completed - steps.completed,
            failed: inner.failed + own.failed - steps.failed,
            cancelled: inner.cancelled + own.cancelled,
            ..inner
        }
    }
}
