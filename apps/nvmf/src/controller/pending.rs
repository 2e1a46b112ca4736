//! Changes that have begun and are not over: what other cores have not taken, namespaces that leave, hosts that drain, and what became of
//! all that.

use super::change::{ChangeError, ChangeEvent, ChangeId, HeldUp, MAX_DRAINS};
use super::listeners::Heard;
use super::options::MAX_CORES;
use super::spread::message::Order;
use crate::wire::Nqn;
use core::time::Duration;
use frwr_engine::provider::CommandError;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// How often it is looked whether commands that a change waits for have ended: that looks at every slot of the core.
const LOOK_PERIOD: Duration = Duration::from_millis(1);

/// A change until it is done, and the time behind which it is told what holds it up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) id: ChangeId,
    until: Duration,
    told: bool,
}

impl Deadline {
    pub(super) fn new(id: ChangeId, now: Duration, within: Duration) -> Self {
        Self { id, until: now.saturating_add(within), told: false }
    }

    /// It is over, and that was not told.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        !self.told && now >= self.until
    }

    pub(super) fn is_told(&mut self) {
        self.told = true;
    }
}

/// In place of a member's bit: the home core itself, which waits for its device. There are fewer members than bits.
const HOME: u64 = 1 << (u64::BITS - 1);
const _: () = assert!(MAX_CORES as u32 - 1 < u64::BITS);

/// A change that not all cores have taken.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: ChangeId,
    pub(super) order: Order,
    /// Members that have not answered, a bit each, and the home core.
    owed: u64,
    /// Some core could not.
    pub(super) failed: bool,
    /// Why the device of the home core could not.
    pub(super) reason: Option<CommandError>,
    /// It takes back what another one began.
    pub(super) undoes: bool,
}

impl Open {
    /// These members were told of it; the home core itself may wait for its device.
    pub(super) fn new(id: ChangeId, order: Order, (members, home): (u64, bool), undoes: bool) -> Self {
        let owed = if home { members | HOME } else { members };
        Self { id, order, owed, failed: false, reason: None, undoes }
    }

    /// That which it takes back failed for this reason.
    pub(super) fn because(self, reason: Option<CommandError>) -> Self {
        Self { reason, ..self }
    }
}

/// Why a namespace waits for its commands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// All of them have ended: its storage is handed back.
    Gone,
    /// None reaches beyond so many blocks.
    Within { blocks: u64 },
}

/// A namespace that waits for its commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) deadline: Deadline,
    pub(super) place: usize,
    pub(super) subsystem: Nqn,
    pub(super) identifier: u32,
    pub(super) until: Until,
}

/// Whose controllers end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "names are values, and there are few of these")]
pub(super) enum Drained {
    /// All hosts', until that is taken back.
    All,
    /// Those of one host, until that is taken back.
    Host(Nqn),
    /// Those of hosts that are allowed no longer, of the subsystem of this index.
    Barred(usize),
    /// All of the subsystem of this index, which goes with them.
    Subsystem(usize),
    /// Those that were connected by a listener that is gone.
    Listener(SocketAddr),
}

/// Controllers that end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    pub(super) id: ChangeId,
    pub(super) of: Drained,
    /// How long that may take.
    pub(super) within: Duration,
    pub(super) deadline: Deadline,
    /// Nothing is left of them.
    pub(super) is_done: bool,
}

impl Drain {
    pub(super) fn new(id: ChangeId, of: Drained, now: Duration, within: Duration) -> Self {
        Self { id, of, within, deadline: Deadline::new(id, now, within), is_done: false }
    }
}

/// All changes of one core that are not over.
pub(super) struct Pending<S> {
    last: u32,
    open: Option<Open>,
    waiting: Vec<Waiting>,
    drains: Vec<Drain>,
    /// Controllers drain here.
    controllers: bool,
    /// Namespaces have not got all data buffers that are to be kept for them.
    buffers: bool,
    /// Control has not been told of listeners that leave.
    listeners: bool,
    events: VecDeque<ChangeEvent<S>>,
    next_look: Duration,
    /// There is something to look at.
    is_any: bool,
}

impl<S> Pending<S> {
    /// Room for so many namespaces.
    pub(super) fn new(namespaces: usize) -> Self {
        Self {
            last: 0,
            open: None,
            waiting: Vec::with_capacity(namespaces),
            drains: Vec::with_capacity(MAX_DRAINS),
            controllers: false,
            buffers: false,
            listeners: false,
            events: VecDeque::with_capacity(namespaces),
            next_look: Duration::ZERO,
            is_any: false,
        }
    }

    /// Some change waits for something.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.is_any
    }

    /// It is time to look.
    pub(super) fn looks(&mut self, now: Duration) -> bool {
        let looks = now >= self.next_look;
        if looks {
            self.next_look = now.saturating_add(LOOK_PERIOD);
        }
        looks
    }

    fn note(&mut self) {
        let drains = self.drains.iter().any(|drain| !drain.is_done);
        self.is_any = self.controllers || self.buffers || self.listeners || drains || !self.waiting.is_empty();
    }

    /// The next change may begin.
    pub(super) fn may_begin(&self) -> Result<(), ChangeError> {
        self.open.as_ref().map_or(Ok(()), |open| Err(ChangeError::Busy(open.id)))
    }

    pub(super) fn next_id(&mut self) -> ChangeId {
        self.last = self.last.wrapping_add(1);
        ChangeId(self.last)
    }

    /// Members were told of a change.
    pub(super) fn open(&mut self, open: Open) {
        self.open = Some(open);
    }

    /// A member, by its bit, has taken the change, or could not.
    pub(super) fn answered(&mut self, member: u64, taken: bool) {
        if let Some(open) = &mut self.open {
            open.owed &= !member;
            open.failed |= !taken;
        }
    }

    /// The device of the home core has done its part, or could not.
    pub(super) fn answered_at_home(&mut self, heard: Heard) {
        self.answered(HOME, heard == Heard::Taken);
        if let (Some(open), Heard::Refused(reason)) = (&mut self.open, heard) {
            open.reason = reason;
        }
    }

    /// The change that all members have answered; it is open no longer.
    pub(super) fn take_answered(&mut self) -> Option<Open> {
        self.open.take_if(|open| open.owed == 0)
    }

    /// A namespace waits for its commands.
    pub(super) fn wait(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
        self.note();
    }

    /// A namespace has another size before it was as small as it should be.
    pub(super) fn supersede_shrinking(&mut self, place: usize) {
        let shrinks = |waiting: &mut Waiting| waiting.place == place && matches!(waiting.until, Until::Within { .. });
        let superseded = self.waiting.extract_if(.., shrinks);
        self.events.extend(superseded.map(|waiting| ChangeEvent::Superseded { id: waiting.deadline.id }));
        self.note();
    }

    pub(super) fn waiting(&self, at: usize) -> Option<Waiting> {
        self.waiting.get(at).copied()
    }

    /// It waits no longer. Another one may have its number.
    pub(super) fn waits_no_longer(&mut self, at: usize) {
        self.waiting.swap_remove(at);
        self.note();
    }

    /// What holds it up is told.
    pub(super) fn waiting_is_told(&mut self, at: usize, by: HeldUp) {
        if let Some(waiting) = self.waiting.get_mut(at) {
            waiting.deadline.is_told();
            let id = waiting.deadline.id;
            self.tell(ChangeEvent::HeldUp { id, by });
        }
    }

    /// Another drain has room.
    pub(super) fn has_room_to_drain(&self) -> Result<(), ChangeError> {
        if self.drains.len() < MAX_DRAINS { Ok(()) } else { Err(ChangeError::Drains) }
    }

    pub(super) fn drain(&mut self, drain: Drain) {
        self.drains.push(drain);
        self.note();
    }

    /// What holds a drain up is told.
    pub(super) fn drain_is_told(&mut self, id: ChangeId, by: HeldUp) {
        if let Some(drain) = self.drains.iter_mut().find(|drain| drain.id == id) {
            drain.deadline.is_told();
        }
        self.tell(ChangeEvent::HeldUp { id, by });
    }

    pub(super) fn drains(&self) -> &[Drain] {
        &self.drains
    }

    /// Nothing is left of what drained. Hosts that are kept away are so until that is taken back.
    pub(super) fn drain_is_done(&mut self, id: ChangeId) {
        let is_kept = |drain: &Drain| matches!(drain.of, Drained::All | Drained::Host(_));
        self.drains.retain(|drain| drain.id != id || is_kept(drain));
        if let Some(drain) = self.drains.iter_mut().find(|drain| drain.id == id) {
            drain.is_done = true;
        }
        self.note();
    }

    /// Hosts are kept away no longer; false where they were not. A drain that is not done yet is so by that.
    pub(super) fn resume(&mut self, of: Drained) -> bool {
        let Some(at) = self.drains.iter().position(|drain| drain.of == of) else { return false };
        let drain = self.drains.remove(at);
        if !drain.is_done {
            self.tell(ChangeEvent::Done { id: drain.id });
        }
        self.note();
        true
    }

    /// Who is kept away, `None` for all, and whether nothing is left of them.
    pub(super) fn kept_away(&self) -> impl Iterator<Item = (Option<Nqn>, bool)> {
        self.drains.iter().filter_map(|drain| match drain.of {
            Drained::All => Some((None, drain.is_done)),
            Drained::Host(name) => Some((Some(name), drain.is_done)),
            Drained::Barred(_) | Drained::Subsystem(_) | Drained::Listener(_) => None,
        })
    }

    /// A host is kept away for now.
    pub(super) fn keeps_away(&self, host: Option<Nqn>) -> bool {
        self.drains.iter().any(|drain| match drain.of {
            Drained::All => true,
            Drained::Host(name) => host == Some(name),
            Drained::Barred(_) | Drained::Subsystem(_) | Drained::Listener(_) => false,
        })
    }

    /// Whether controllers drain here.
    pub(super) fn controllers_drain(&mut self, drain: bool) {
        self.controllers = drain;
        self.note();
    }

    /// Whether buffers are kept for all namespaces.
    pub(super) fn buffers_are_shared(&mut self, done: bool) {
        self.buffers = !done;
        self.note();
    }

    /// They are not.
    pub(super) fn shares_buffers(&self) -> bool {
        self.buffers
    }

    /// Whether Control is to be told of listeners that leave.
    pub(super) fn listeners_leave(&mut self, unstopped: bool) {
        self.listeners = unstopped;
        self.note();
    }

    /// It is.
    pub(super) fn stops_listeners(&self) -> bool {
        self.listeners
    }

    pub(super) fn tell(&mut self, event: ChangeEvent<S>) {
        self.events.push_back(event);
    }

    /// The oldest news that nobody took.
    pub(super) fn next_event(&mut self) -> Option<ChangeEvent<S>> {
        self.events.pop_front()
    }
}
