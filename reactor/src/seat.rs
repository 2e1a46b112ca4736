//! What a reactor is made of before it has a context: its place among the others.

use core::fmt;
use std::sync::Arc;
use std::task::Waker;

use frwr_mempool::lane::{self, Sender};

use crate::clock::Clock;
use crate::core_set::CpuId;
use crate::group::{Group, Member, Sleeper};
use crate::inbox::{CoreIndex, ForeignOutbox, Inbox, Outbox, Source};
use crate::options::{Idle, Options};
use crate::publish::Published;
use crate::shutdown::ShutdownHandle;

/// Reactors of one wiring. Lanes grow with the square of their number: 64 reactors already need 4096.
pub const MAX_REACTORS: usize = 64;
/// Foreign threads of one wiring. Each has a lane to every reactor, which looks into all its lanes in every iteration: as
/// many as reactors are plenty.
const MAX_FOREIGN: usize = 64;
/// A lane that holds fewer messages than this would block all the time; one that holds more hides a stuck receiver.
const LANE_LIMITS: core::ops::RangeInclusive<usize> = 2..=65_536;

const _: () = assert!(*LANE_LIMITS.end() <= lane::MAX_CAPACITY, "a lane is never cut");
const _: () = assert!(MAX_REACTORS <= u16::MAX as usize && MAX_FOREIGN <= u16::MAX as usize, "numbers fit 16 bits");

/// A wiring that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WiringError {
    /// Zero reactors, or too many.
    #[error("{0} reactors were asked for; a process runs 1 to {MAX_REACTORS}")]
    Reactors(usize),
    /// Too many foreign threads.
    #[error("{0} foreign threads were asked for; at most {MAX_FOREIGN} get a lane: let one thread send for several")]
    Foreign(usize),
    /// The lane capacity is out of range.
    #[error("a lane capacity of {0} was asked for; it must be {first} to {last}", first = LANE_LIMITS.start(), last = LANE_LIMITS.end())]
    LaneCapacity(usize),
}

/// Reactors that can send to each other, not yet running: give each seat a context, then step or run the reactors.
/// [`crate::Reactors`] does this on pinned threads.
#[derive(Debug)]
pub struct Wiring<M> {
    /// One seat per reactor, with the sending ends for its context.
    pub seats: Vec<(Seat<M>, Outbox<M>)>,
    /// One per foreign thread.
    pub foreign: Vec<ForeignOutbox<M>>,
    /// Shuts all of them down.
    pub shutdown: ShutdownHandle,
}

impl<M> Wiring<M> {
    /// Wires reactors and foreign threads: a lane from each of them to each reactor.
    pub fn new(reactors: usize, foreign: usize, clock: &Clock, options: Options) -> Result<Self, WiringError> {
        let frame = Frame::new(reactors, foreign, clock.clone(), options)?;
        let (senders, inboxes): (Vec<_>, Vec<_>) = frame.cores().map(|_| frame.lanes()).unzip();
        let mut outboxes = by_sender(senders).into_iter();
        let seat = |((core, inbox), lanes)| (frame.seat(core, Place::default(), inbox), frame.outbox(core, lanes));
        let seats = frame.cores().zip(inboxes).zip(outboxes.by_ref()).map(seat).collect();
        Ok(Self { seats, foreign: frame.foreign_outboxes(outboxes), shutdown: frame.shutdown_handle() })
    }
}

/// Where a reactor runs, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) cpu: Option<CpuId>,
    pub(crate) node: Option<u32>,
}

/// What the reactors of one wiring have in common before there are lanes between them.
pub(crate) struct Frame {
    reactors: u16,
    foreign: u16,
    clock: Clock,
    options: Options,
    group: Arc<Group>,
}

impl Frame {
    pub(crate) fn new(reactors: usize, foreign: usize, clock: Clock, options: Options) -> Result<Self, WiringError> {
        // Before anything is made for so many.
        check(reactors, foreign, options)?;
        let (Ok(cores), Ok(threads)) = (u16::try_from(reactors), u16::try_from(foreign)) else {
            return Err(WiringError::Reactors(reactors));
        };
        let group = Arc::new(Group::new(reactors, options.idle != Idle::Spin));
        Ok(Self { reactors: cores, foreign: threads, clock, options, group })
    }

    pub(crate) fn cores(&self) -> impl Iterator<Item = CoreIndex> + use<> {
        (0..self.reactors).map(CoreIndex)
    }

    /// The lanes to one reactor: their sending ends, reactors first, and its inbox. Call it on the thread that will run the
    /// reactor: who writes memory first has it on its node, and what one core writes in its own memory is on no line of another's.
    pub(crate) fn lanes<M>(&self) -> (Vec<Sender<M>>, Inbox<M>) {
        let lane = || lane::bounded(self.options.lane_capacity);
        let (sender, receiver) = lane();
        // There is always a first reactor.
        let mut inbox = Inbox::new(Source::Core(CoreIndex(0)), receiver);
        let mut senders = Vec::with_capacity(usize::from(self.reactors) + usize::from(self.foreign));
        senders.push(sender);
        for source in self.cores().skip(1).map(Source::Core).chain((0..self.foreign).map(Source::Foreign)) {
            let (sender, receiver) = lane();
            senders.push(sender);
            inbox.add(source, receiver);
        }
        (senders, inbox)
    }

    pub(crate) fn seat<M>(&self, core: CoreIndex, place: Place, inbox: Inbox<M>) -> Seat<M> {
        let published = Arc::new(Published::new(core, place.cpu));
        let (group, clock, options) = (Arc::clone(&self.group), self.clock.clone(), self.options);
        Seat { core, cpu: place.cpu, node: place.node, clock, inbox, group, published, options }
    }

    /// What a reactor shares with the others: each of [`Self::cores`] has that.
    pub(crate) fn member(&self, core: CoreIndex) -> Arc<Member> {
        self.group.member(core.index()).cloned().unwrap_or_default()
    }

    /// Call it on the thread that will send.
    pub(crate) fn outbox<M>(&self, core: CoreIndex, lanes: Vec<Sender<M>>) -> Outbox<M> {
        Outbox::new(lanes, core, Arc::clone(&self.group))
    }

    /// One for each foreign thread, of the lanes that are left when all reactors have theirs.
    pub(crate) fn foreign_outboxes<M>(&self, lanes: impl Iterator<Item = Vec<Sender<M>>>) -> Vec<ForeignOutbox<M>> {
        let outbox = |(number, lanes)| ForeignOutbox::new(lanes, number, Arc::clone(&self.group));
        (0..self.foreign).zip(lanes).map(outbox).collect()
    }

    pub(crate) fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle(Arc::clone(&self.group))
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// Of the sending ends that each reactor made, all of them in the same order, those of each sender.
pub(crate) fn by_sender<M>(to_each: Vec<Vec<Sender<M>>>) -> Vec<Vec<Sender<M>>> {
    let reactors = to_each.len();
    let mut of_each = Vec::new();
    for senders in to_each {
        of_each.resize_with(senders.len(), || Vec::with_capacity(reactors));
        for (lanes, sender) in of_each.iter_mut().zip(senders) {
            lanes.push(sender);
        }
    }
    of_each
}

fn check(reactors: usize, foreign: usize, options: Options) -> Result<(), WiringError> {
    if !(1..=MAX_REACTORS).contains(&reactors) {
        return Err(WiringError::Reactors(reactors));
    }
    if foreign > MAX_FOREIGN {
        return Err(WiringError::Foreign(foreign));
    }
    if !LANE_LIMITS.contains(&options.lane_capacity) {
        return Err(WiringError::LaneCapacity(options.lane_capacity));
    }
    Ok(())
}

/// The place of one reactor: its CPU, clock, inbox and number.
pub struct Seat<M> {
    pub(crate) core: CoreIndex,
    pub(crate) cpu: Option<CpuId>,
    pub(crate) node: Option<u32>,
    pub(crate) clock: Clock,
    pub(crate) inbox: Inbox<M>,
    pub(crate) group: Arc<Group>,
    pub(crate) published: Arc<Published>,
    pub(crate) options: Options,
}

impl<M> Seat<M> {
    /// Number among the reactors.
    #[must_use]
    pub fn core(&self) -> CoreIndex {
        self.core
    }

    /// The CPU it is pinned to; `None` is unpinned.
    #[must_use]
    pub fn cpu(&self) -> Option<CpuId> {
        self.cpu
    }

    /// NUMA node of that CPU, if known: where its memory should be.
    #[must_use]
    pub fn node(&self) -> Option<u32> {
        self.node
    }

    /// The clock that its reactor will read.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Wakes its reactor, from any thread, if it sleeps: for what pollers of it look at and others write ([`frwr_mempool::Bell`]). To be
    /// called behind the write that it shall see. It costs a fence; where reactors never sleep, nothing.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::new(Sleeper { group: Arc::clone(&self.group), core: self.core.index() }))
    }

    /// Its reactor polls on while nothing is to do, whatever [`Options::idle`] says of all: some of several may sleep, and others not.
    #[must_use]
    pub fn awake(mut self) -> Self {
        self.options.idle = Idle::Spin;
        self
    }

    /// Shuts all reactors down; for a context that knows when the work is done.
    #[must_use]
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle(Arc::clone(&self.group))
    }
}

impl<M> fmt::Debug for Seat<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("core", &self.core).field("cpu", &self.cpu).finish_non_exhaustive()
    }
}
