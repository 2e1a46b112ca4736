//! What a reactor is made of before it has a context: its place among the others.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use frwr_mempool::lane;

use crate::clock::Clock;
use crate::core_set::CpuId;
use crate::group::Group;
use crate::inbox::{CoreIndex, ForeignOutbox, Inbox, LANE_CAPACITY, Outbox, Source};
use crate::publish::Published;
use crate::reactor::{Context, Reactor};
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

/// What a reactor does while nothing is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls on: lowest latency, the whole core.
    #[default]
    Spin,
    /// Sleeps after more than this many empty iterations in a row, as long as all pollers allow; messages, changes of pollers and
    /// shutdown wake it. Each send costs a fence then.
    SleepAfter(u32),
}

/// How reactors behave; the same for all reactors of one wiring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Messages per lane, 2 to 65536; rounded up to a power of two.
    pub lane_capacity: usize,
    /// What to do while nothing is to do.
    pub idle: Idle,
    /// Charge time to each poller: two clock reads around each poll. Off by default.
    pub time_pollers: bool,
    /// How long the other reactors may drain after one panicked.
    pub panic_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lane_capacity: LANE_CAPACITY,
            idle: Idle::default(),
            time_pollers: false,
            panic_grace: Duration::from_secs(1),
        }
    }
}

/// A wiring that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
        // Before anything is made for so many.
        check(reactors, foreign, options)?;
        Self::placed(&vec![(None, None); reactors], foreign, clock, options)
    }

    /// The same for reactors whose CPU and NUMA node are known.
    pub(crate) fn placed(
        places: &[(Option<CpuId>, Option<u32>)],
        foreign: usize,
        clock: &Clock,
        options: Options,
    ) -> Result<Self, WiringError> {
        let reactors = places.len();
        check(reactors, foreign, options)?;
        let group = Arc::new(Group::new(reactors, options.idle != Idle::Spin));
        let sources = indices(reactors).map(|core| Source::Core(CoreIndex(core)));
        let mut inboxes: Vec<Option<Inbox<M>>> = places.iter().map(|_| None).collect();
        let mut senders = Vec::new();
        for source in sources.chain(indices(foreign).map(Source::Foreign)) {
            let mut to_each = Vec::with_capacity(reactors);
            for inbox in &mut inboxes {
                let (sender, receiver) = lane::bounded(options.lane_capacity);
                to_each.push(sender);
                match inbox {
                    Some(inbox) => inbox.add(source, receiver),
                    None => *inbox = Some(Inbox::new(source, receiver)),
                }
            }
            senders.push(to_each);
        }
        let mut senders = senders.into_iter();
        let seat = |(((core, &(cpu, node)), inbox), to_each)| {
            let core = CoreIndex(core);
            let published = Arc::new(Published::new(core, cpu));
            let (group, clock) = (Arc::clone(&group), clock.clone());
            let outbox = Outbox::new(to_each, core, Arc::clone(&group));
            (Seat { core, cpu, node, clock, inbox, group, published, options }, outbox)
        };
        let seats =
            indices(reactors).zip(places).zip(inboxes.into_iter().flatten()).zip(senders.by_ref()).map(seat).collect();
        let foreign = indices(foreign)
            .zip(senders)
            .map(|(number, to_each)| ForeignOutbox::new(to_each, number, Arc::clone(&group)));
        let foreign = foreign.collect();
        Ok(Self { seats, foreign, shutdown: ShutdownHandle(group) })
    }
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

/// Numbers below a limit that was checked to fit.
fn indices(count: usize) -> impl Iterator<Item = u16> {
    (0..=u16::MAX).take(count)
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

    /// Shuts all reactors down; for a context that knows when the work is done.
    #[must_use]
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle(Arc::clone(&self.group))
    }

    /// Makes the reactor. Call it on the thread that will run it.
    #[must_use]
    pub fn reactor<C: Context<Message = M>>(self, context: C) -> Reactor<C> {
        Reactor::new(self, context)
    }
}

impl<M> fmt::Debug for Seat<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("core", &self.core).field("cpu", &self.cpu).finish_non_exhaustive()
    }
}
