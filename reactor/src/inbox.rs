//! Messages between cores: one bounded single-producer single-consumer lane per pair, so that no two senders ever share
//! a cache line.

use core::fmt;
use std::sync::Arc;

use frwr_mempool::lane::{Receiver, Sender};

use crate::group::Group;

/// Messages taken per iteration: with some ten nanoseconds each, the pollers wait for less than a microsecond.
#[cfg(not(loom))]
pub const INBOX_BUDGET: usize = 64;
/// One: so few that budgets run out in a model.
#[cfg(loom)]
pub const INBOX_BUDGET: usize = 1;
/// Messages that one lane holds unless [`crate::Options`] say otherwise: four full inbox budgets.
pub const LANE_CAPACITY: usize = 256;
#[cfg(not(loom))]
const _: () = assert!(LANE_CAPACITY == 4 * INBOX_BUDGET, "as said");

/// Number of a reactor among those started together, from 0; not the number of its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CoreIndex(pub u16);

impl CoreIndex {
    /// As an index into a list of reactors.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for CoreIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A reactor, possibly the receiving one itself.
    Core(CoreIndex),
    /// A thread that is no reactor: the number of its [`ForeignOutbox`].
    Foreign(u16),
}

/// A message was not sent; it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError<M> {
    /// The lane is full: would block. Keep the message and try in the next iteration.
    #[error("the lane is full; keep the message and try again in the next iteration")]
    Full(M),
    /// The receiving reactor is gone.
    #[error("the receiving reactor is gone")]
    Closed(M),
    /// There is no such reactor.
    #[error("there is no such reactor")]
    NoSuchReactor(M),
}

impl<M> SendError<M> {
    /// The message.
    pub fn into_message(self) -> M {
        match self {
            Self::Full(message) | Self::Closed(message) | Self::NoSuchReactor(message) => message,
        }
    }
}

/// The sending ends of one owner, one lane to each reactor.
struct Lanes<M>(Vec<Sender<M>>);

impl<M> Lanes<M> {
    /// In memory of the calling thread, which will send: each send writes there.
    fn new(lanes: Vec<Sender<M>>) -> Self {
        let mut own = Vec::with_capacity(lanes.len());
        own.extend(lanes);
        Self(own)
    }

    #[inline]
    fn send(&mut self, to: CoreIndex, message: M) -> Result<(), SendError<M>> {
        let Some(lane) = self.0.get_mut(to.index()) else { return Err(SendError::NoSuchReactor(message)) };
        if lane.is_closed() {
            return Err(SendError::Closed(message));
        }
        lane.push(message).map_err(|full| SendError::Full(full.0))
    }
}

/// Sends messages from one reactor to all, itself included. It belongs to the reactor's context.
pub struct Outbox<M> {
    lanes: Lanes<M>,
    core: CoreIndex,
    group: Arc<Group>,
}

impl<M> Outbox<M> {
    pub(crate) fn new(lanes: Vec<Sender<M>>, core: CoreIndex, group: Arc<Group>) -> Self {
        Self { lanes: Lanes::new(lanes), core, group }
    }

    /// Sends without blocking. Messages of one sender arrive in order. Wakes the receiver if it sleeps.
    #[inline]
    pub fn send(&mut self, to: CoreIndex, message: M) -> Result<(), SendError<M>> {
        let sent = self.lanes.send(to, message);
        match &sent {
            Ok(()) => self.group.wake(to.index()),
            Err(SendError::Full(_)) => self.group.count_would_block(self.core.index()),
            Err(_) => {}
        }
        sent
    }

    /// The reactor that owns it.
    #[must_use]
    pub fn core(&self) -> CoreIndex {
        self.core
    }

    /// Number of reactors that can be reached.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.lanes.0.len()
    }
}

impl<M> fmt::Debug for Outbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("core", &self.core).field("reactors", &self.reactors()).finish_non_exhaustive()
    }
}

/// Sends messages to all reactors from one thread that is no reactor. Each such thread needs its own.
pub struct ForeignOutbox<M> {
    lanes: Lanes<M>,
    number: u16,
    would_blocks: u64,
    group: Arc<Group>,
}

impl<M> ForeignOutbox<M> {
    pub(crate) fn new(lanes: Vec<Sender<M>>, number: u16, group: Arc<Group>) -> Self {
        Self { lanes: Lanes::new(lanes), number, would_blocks: 0, group }
    }

    /// Sends without blocking, as [`Outbox::send`] does.
    pub fn send(&mut self, to: CoreIndex, message: M) -> Result<(), SendError<M>> {
        let sent = self.lanes.send(to, message);
        match &sent {
            Ok(()) => self.group.wake(to.index()),
            Err(SendError::Full(_)) => self.would_blocks = self.would_blocks.saturating_add(1),
            Err(_) => {}
        }
        sent
    }

    /// Its number, as receivers see it in [`Source::Foreign`].
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// How often a lane was full.
    #[must_use]
    pub fn would_blocks(&self) -> u64 {
        self.would_blocks
    }
}

impl<M> fmt::Debug for ForeignOutbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignOutbox").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The receiving ends of one reactor.
pub(crate) struct Inbox<M> {
    /// The lane of the first source. There is always one, so that a look at it needs no loop.
    near: (Source, Receiver<M>),
    far: Vec<(Source, Receiver<M>)>,
    /// The lane that is looked at first, 0 is `near`: it moves on, so that a full lane cannot starve the others.
    first: usize,
}

impl<M> Inbox<M> {
    pub(crate) fn new(source: Source, lane: Receiver<M>) -> Self {
        Self { near: (source, lane), far: Vec::new(), first: 0 }
    }

    pub(crate) fn add(&mut self, source: Source, lane: Receiver<M>) {
        self.far.push((source, lane));
    }

    /// Whether something came that [`Self::receive`] has not seen: one load for each lane. What it saw and left, because its
    /// budget was used up, is no news.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.near.1.has_news() || (!self.far.is_empty() && self.far.iter().any(|(_, lane)| lane.has_news()))
    }

    /// Takes at most `budget` messages and returns how many.
    #[inline(never)]
    pub(crate) fn receive(&mut self, budget: usize, mut take: impl FnMut(Source, M)) -> usize {
        let lanes = 1 + self.far.len();
        let (mut received, mut next) = (0, self.first);
        for _ in 0..lanes {
            if received == budget {
                break;
            }
            let lane = if next == 0 { Some(&mut self.near) } else { self.far.get_mut(next - 1) };
            if let Some((source, lane)) = lane {
                received += lane.pop_batch(budget - received, |message| take(*source, message));
            }
            next = if next + 1 < lanes { next + 1 } else { 0 };
        }
        // A budget that ran out in a lane starts behind that lane next time; a complete round starts where it did.
        self.first = next;
        received
    }

    /// Drops what is left, at most a full lane of each, and returns how many messages there were.
    pub(crate) fn discard(&mut self) -> usize {
        let lanes = self.far.iter_mut().chain([&mut self.near]);
        lanes.map(|(_, lane)| lane.pop_batch(lane.capacity(), drop)).sum()
    }
}
