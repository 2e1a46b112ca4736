//! Memory that is removed while connections are open.
//!
//! Requests do not count who uses which memory. What is withdrawn is found by nobody any more, so that what uses it can only become
//! less, and a walk that stops wherever it still finds a user sees all of them: each MR that is open over the memory, each
//! transfer that waits with its elements named. What else may use it stands in a send queue, and has ended once a completion has passed
//! all that stood there when the last of those was gone.

use super::Engine;
use crate::{
    connection::Phase,
    event::RequestStatus,
    gather::MemoryId,
    link::{NotAsked, ToControl},
    memories::{self, Withdrawal},
    mr::{Mr, State},
    provider::Port,
};
use frwr_mempool::mutant;

/// Connections, MRs and transfers that wait which one poll looks at for all memories that leave: a core may have thousands of
/// connections with hundreds of MRs each, and requests that do not wait for any of this. The next poll goes on.
const MAX_WALKED_PER_POLL: u32 = 512;

/// Why a memory is not removed. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveMemoryError {
    /// It is not one that the caller declared, or is being removed, or was.
    #[error("the memory was not declared by Engine::add_memory, or is being removed already")]
    UnknownMemory,
    /// Control has not taken earlier messages yet.
    #[error("control is busy; poll it and try again")]
    WouldBlock,
    /// The engine's Control was dropped: the memory is the device's until that is dropped as well.
    #[error("the engine's Control was dropped, so that no memory can be removed; keep it as long as its engines")]
    NoControl,
}

impl From<NotAsked> for RemoveMemoryError {
    fn from(reason: NotAsked) -> Self {
        match reason {
            NotAsked::Busy => Self::WouldBlock,
            NotAsked::Gone => Self::NoControl,
        }
    }
}

impl<P: Port> Engine<P> {
    /// Withdraws a memory: from here on whatever names it is refused as of an unknown memory, and [`Event::MemoryRemoved`] says when
    /// neither the device nor a peer reaches it any more. Until then it is theirs (promise Hold), and must stay mapped.
    ///
    /// What was taken before goes on: requests end as they do, and so do transfers, also those that wait, because a
    /// peer awaits them. Keys of it that stay open ([`Engine::register_now`]) hold it up until they are cancelled, as
    /// each does that opens several memories, and connections that end until they have ended. A request that waits for
    /// its turn and names it in a chunk, or behind its message, has told nobody yet, and ends as
    /// [`RequestStatus::MemoryRemoved`]. A connection that opens meanwhile does not have it.
    ///
    /// Its name is not that of the next memory in its place: names of one place come again behind 65,536 memories.
    ///
    /// [`Event::MemoryRemoved`]: crate::Event::MemoryRemoved
    ///
    /// # Errors
    /// [`RemoveMemoryError`].
    pub fn remove_memory(&mut self, memory: MemoryId) -> Result<(), RemoveMemoryError> {
        if memory == memories::OWN || self.memories.get(memory).is_none() {
            return Err(RemoveMemoryError::UnknownMemory);
        }
        self.link.ask(ToControl::WithdrawMemory { memory })?;
        self.memories.withdraw(memory);
        self.chores.raise_alert();
        for index in 0..self.connections.len() {
            if self.connections[index].withdraw(memory) {
                self.end_parked(index, memory);
            }
        }
        Ok(())
    }

    /// Ends the requests of a connection that wait and name a memory.
    fn end_parked(&mut self, index: usize, memory: MemoryId) {
        let mut next = self.connections[index].waiting().first_request();
        while let Some(slot) = next {
            next = self.wait_links.request_behind(slot);
            let named = self.requests.handle_at(slot).filter(|_| self.is_parked_with(slot, memory));
            let Some(handle) = named else { continue };
            self.wait_no_more(index, slot);
            self.end_unposted(handle, RequestStatus::MemoryRemoved);
        }
    }

    /// Whether a request that waits names a memory, in its chunks or behind its message.
    fn is_parked_with(&self, slot: u32, memory: MemoryId) -> bool {
        self.parked.segments(slot).any(|segment| segment.memory == memory)
    }

    /// The local key of a memory on a connection.
    fn key_of(&self, index: usize, memory: MemoryId) -> Option<u32> {
        self.connections[index].reach.get(usize::from(memory.place()))?.key_of(memory)
    }

    /// Has Control release what nothing uses any more. Called by each poll while there is something that may be in use.
    #[cold]
    pub(super) fn release_withdrawn(&mut self) -> u32 {
        let (mut at, mut work, mut left) = (0, 0, MAX_WALKED_PER_POLL);
        while left > 0
            && let Some(mut withdrawal) = self.memories.withdrawn(at)
        {
            let is_unused = self.is_unused(&mut withdrawal, &mut left) || mutant!(removed_in_use);
            self.memories.walked(at, withdrawal);
            let release = ToControl::ReleaseMemory { memory: withdrawal.memory() };
            // Where its lane is full the next poll tells it.
            if is_unused && self.link.tell(release) {
                self.memories.release(at);
                work += 1;
            } else {
                at += 1;
            }
        }
        // Those that this poll did not come to are the first of the next.
        self.memories.begin_with(at);
        work
    }

    /// Goes on with the walk, by so many steps at most. Whether it has come to its end.
    fn is_unused(&mut self, withdrawal: &mut Withdrawal, left: &mut u32) -> bool {
        while withdrawal.connection() < self.connections.len() {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            if !self.is_unused_by(withdrawal, left) {
                return false;
            }
            withdrawal.pass_connection();
        }
        true
    }

    /// Goes on with one connection.
    fn is_unused_by(&mut self, withdrawal: &mut Withdrawal, left: &mut u32) -> bool {
        let (index, memory) = (withdrawal.connection(), withdrawal.memory());
        let connection = &self.connections[index];
        match connection.phase() {
            // Nothing of the caller's is posted before a connection is ready.
            Phase::Vacant | Phase::Opening(_) => return true,
            // Whatever it has posted has ended when it has.
            Phase::Ending { .. } => return mutant!(removed_while_ending),
            Phase::Ready => {}
        }
        let reach = connection.reach.get(usize::from(memory.place()));
        // One that opened since then.
        if reach.is_none_or(|reach| reach.key_of(memory).is_none()) {
            return true;
        }
        if withdrawal.barrier().is_none() {
            if !self.is_out_of_use(index, withdrawal, left) {
                return false;
            }
            let connection = &self.connections[index];
            if connection.sending.queue().in_flight() == 0 || mutant!(removed_without_barrier) {
                return true;
            }
            let key = connection.key;
            withdrawal.await_barrier(self.barrier(index).map(|position| (key, position)));
        }
        let Some((key, position)) = withdrawal.barrier() else { return false };
        let connection = &self.connections[index];
        if key != connection.key || !connection.sending.queue().is_pending(position) {
            return true;
        }
        if !connection.sending.queue().is_barrier_at(position) {
            withdrawal.await_barrier(None);
        }
        false
    }

    /// Whether no MR of a connection is open over a memory, and no transfer waits that would use it.
    fn is_out_of_use(&self, index: usize, withdrawal: &mut Withdrawal, left: &mut u32) -> bool {
        let memory = withdrawal.memory();
        let connection = &self.connections[index];
        let mrs = self.pool.of(connection.key.index);
        while mrs.start + withdrawal.mr() < mrs.end {
            if *left == 0 || self.is_open_over(index, mrs.start + withdrawal.mr(), memory) {
                return false;
            }
            *left -= 1;
            withdrawal.pass_mr();
        }
        // All at once, or one could pass the walk.
        *left = left.saturating_sub(connection.waiting().transfers() as u32);
        let mut waiting = connection.waiting().all_transfers(&self.wait_links);
        !waiting.any(|slot| self.is_transfer_with(index, slot, memory)) || mutant!(removed_under_transfers)
    }

    /// Whether an MR's key opens part of a memory, or may: what is being destroyed does not tell what it opened, and a
    /// list out of several memories not which.
    fn is_open_over(&self, index: usize, descriptor: u32, memory: MemoryId) -> bool {
        match self.pool.get(descriptor).map(Mr::state) {
            None | Some(State::Absent | State::Idle { .. } | State::IdlePending { .. }) => false,
            Some(State::Stale(_) | State::Recovering) => true,
            Some(
                State::Mapped { .. } | State::Registering { .. } | State::Valid { .. } | State::Invalidating { .. },
            ) => self.key_of(index, memory).is_some_and(|key| self.elements.may_lie_in(descriptor, key)),
        }
    }

    fn is_transfer_with(&self, index: usize, slot: u32, memory: MemoryId) -> bool {
        let Some(key) = self.key_of(index, memory) else { return false };
        let lies = |local| self.elements.range(local).iter().any(|element| element.lkey == key);
        self.transfers.operations_at(slot).iter().any(|operation| lies(operation.local))
    }

    /// Where the barrier stands that tells when all is done that is in a send queue now: an RDMA WRITE of no bytes, which names no memory
    /// and of which the peer is told nothing. `None` where no entry is free for one; some come back, since what is in the queue does.
    fn barrier(&mut self, index: usize) -> Option<u64> {
        let connection = &mut self.connections[index];
        let last = connection.sending.queue().last_barrier();
        if last.is_some() || !connection.sending.reserve(self.making.cost.message) {
            return last;
        }
        let position = connection.sending.stage_barrier(index as u16);
        self.mark_dirty(index as u16);
        Some(position)
    }
}
