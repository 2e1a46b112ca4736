//! Where queue pairs take their receives from: a queue of their own, or one that the queue pairs of a port share.

use crate::provider::{DomainId, PostError, PostRefusal, ReceiveRequest, SharedReceiveQueueId};
use std::collections::VecDeque;

/// Receives that were posted and not yet taken, oldest first.
#[derive(Debug)]
struct Posted {
    receives: VecDeque<ReceiveRequest>,
    capacity: usize,
}

impl Posted {
    fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Self { receives: VecDeque::with_capacity(capacity), capacity }
    }

    /// Takes receives, or the front of them.
    fn post(&mut self, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        let room = self.capacity - self.receives.len();
        let accepted = room.min(receives.len());
        self.receives.extend(receives.iter().take(accepted));
        if accepted == receives.len() { Ok(()) } else { Err(PostError::new(accepted, PostRefusal::QueueFull)) }
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(super) struct SharedReceiveQueue {
    id: SharedReceiveQueueId,
    /// The domain that the local keys of its receives are of.
    domain: DomainId,
    posted: Posted,
}

impl SharedReceiveQueue {
    pub(super) fn new(id: SharedReceiveQueueId, domain: DomainId, entries: u32) -> Self {
        Self { id, domain, posted: Posted::new(entries) }
    }
}

/// The shared receive queues of a port: a handful.
#[derive(Debug, Default)]
pub(super) struct SharedReceiveQueues(Vec<SharedReceiveQueue>);

impl SharedReceiveQueues {
    pub(super) fn insert(&mut self, queue: SharedReceiveQueue) {
        self.0.push(queue);
    }

    pub(super) fn remove(&mut self, id: SharedReceiveQueueId) {
        self.0.retain(|queue| queue.id != id);
    }

    pub(super) fn post(&mut self, id: SharedReceiveQueueId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        let queue = self.get_mut(id).ok_or(PostError::new(0, PostRefusal::NotReady))?;
        queue.posted.post(receives)
    }

    fn get(&self, id: SharedReceiveQueueId) -> Option<&SharedReceiveQueue> {
        self.0.iter().find(|queue| queue.id == id)
    }

    fn get_mut(&mut self, id: SharedReceiveQueueId) -> Option<&mut SharedReceiveQueue> {
        self.0.iter_mut().find(|queue| queue.id == id)
    }
}

/// Where one queue pair takes its receives from.
#[derive(Debug)]
pub(super) struct ReceiveQueue(Source);

#[derive(Debug)]
enum Source {
    Own(Posted),
    Shared(SharedReceiveQueueId),
}

impl ReceiveQueue {
    /// A queue of the queue pair's own.
    pub(super) fn own(entries: u32) -> Self {
        Self(Source::Own(Posted::new(entries)))
    }

    pub(super) const fn shared(id: SharedReceiveQueueId) -> Self {
        Self(Source::Shared(id))
    }

    pub(super) const fn is_shared(&self) -> bool {
        matches!(self.0, Source::Shared(_))
    }

    /// Takes receives, or the front of them. A queue pair that shares its receives has no queue to post to.
    pub(super) fn post(&mut self, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        match &mut self.0 {
            Source::Own(posted) => posted.post(receives),
            Source::Shared(_) => Err(PostError::new(0, PostRefusal::Invalid)),
        }
    }

    pub(super) fn is_empty(&self, shared: &SharedReceiveQueues) -> bool {
        match &self.0 {
            Source::Own(posted) => posted.receives.is_empty(),
            Source::Shared(id) => shared.get(*id).is_none_or(|queue| queue.posted.receives.is_empty()),
        }
    }

    /// The oldest receive.
    pub(super) fn take(&mut self, shared: &mut SharedReceiveQueues) -> Option<ReceiveRequest> {
        match &mut self.0 {
            Source::Own(posted) => posted.receives.pop_front(),
            Source::Shared(id) => shared.get_mut(*id)?.posted.receives.pop_front(),
        }
    }

    /// The oldest receive of those that are flushed with the queue pair: none of a shared queue.
    pub(super) fn take_own(&mut self) -> Option<ReceiveRequest> {
        match &mut self.0 {
            Source::Own(posted) => posted.receives.pop_front(),
            Source::Shared(_) => None,
        }
    }

    /// The domain that local keys of the receives are of, for a queue pair of `domain`.
    pub(super) fn domain(&self, shared: &SharedReceiveQueues, domain: DomainId) -> DomainId {
        match &self.0 {
            Source::Own(_) => domain,
            Source::Shared(id) => shared.get(*id).map_or(domain, |queue| queue.domain),
        }
    }
}
