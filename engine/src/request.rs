//! The requester's slot: a message, the MRs that it opened, and what frees it.

use crate::chain::NOT_POSTED;
use crate::event::RequestStatus;
use crate::options::MAX_MRS_PER_REQUEST;
use arrayvec::ArrayVec;
use frwr_mempool::{mutant, slab::Handle};

/// Two cache lines, half of the budget of one slot (goal A23); a power of two, so that its place is a shift away.
const SLOT_BYTES: usize = 128;
const _: () = assert!(size_of::<Request>() == SLOT_BYTES, "a request slot takes two cache lines");

/// A request in flight. Its generation makes the name of an ended request harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestHandle(pub(crate) Handle);

impl RequestHandle {
    /// Names no request, now or ever: what a table has before the first, and whose reply one is that nobody waits for.
    pub const NONE: Self = Self(Handle::from_parts(u32::MAX, 0));

    /// A handle by its numbers, for tables that keep them. One that names no request in flight is harmless.
    #[must_use]
    pub fn from_parts(index: u32, generation: u32) -> Self {
        Self(Handle::from_parts(index, generation))
    }

    /// The slot's index: below the engine's number of request slots, for tables of the upper layer.
    #[must_use]
    pub fn index(self) -> u32 {
        self.0.index()
    }

    /// The slot's generation.
    #[must_use]
    pub fn generation(self) -> u32 {
        self.0.generation()
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// It waits for MRs, send queue entries or receives, in order, and holds none of them.
    Waiting,
    /// Its memory is mapped, its message is written, and neither is in a chain: it was taken out of it.
    Queued,
    /// Its message is posted, or in the chain that the next flush posts, and no reply was seen. Of one without a message: its
    /// registration is, whether it is valid yet or not.
    Posted,
    /// Its end is known; those of its MRs that are left have keys that are not dead yet.
    Fencing,
    /// Its end is about to be reported: the slot keeps what its event says until that is taken.
    Ended,
    /// Its end was reported. Only Hold keeps the slot: no completion has passed its message, so that the device may still
    /// read it (K9, K10).
    Held,
}

/// What a request sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A message.
    Usual,
    /// A message with bytes out of the caller's memory: the end waits for the message's completion too (S51).
    Inline,
    /// None: made by `register_now`, and its registration is waited for.
    Standalone,
    /// A message that nobody answers: its completion is the end.
    OneWay,
}

impl Kind {
    #[inline(always)]
    pub(crate) const fn of(sends: bool, answered: bool, inline: bool) -> Self {
        match (sends, answered, inline) {
            (false, ..) => Self::Standalone,
            (true, false, _) => Self::OneWay,
            (true, true, false) => Self::Usual,
            (true, true, true) => Self::Inline,
        }
    }
}

/// How far a request of which kind has come, on whose connection.
#[derive(Clone, Copy, Debug, Eq)]
#[repr(C, align(4))]
pub(crate) struct Standing {
    phase: Phase,
    kind: Kind,
    /// Index of the connection.
    connection: u16,
}

impl Standing {
    /// Of a usual request whose reply may come.
    pub(crate) const fn posted(connection: u16) -> Self {
        Self { phase: Phase::Posted, kind: Kind::Usual, connection }
    }

    /// Of a request whose reply, confirmation or completion may come.
    #[inline(always)]
    pub(crate) const fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    const fn bits(self) -> u32 {
        self.phase as u32 | (self.kind as u32) << 8 | (self.connection as u32) << 16
    }
}

// As one number: every reply asks for all of it.
impl PartialEq for Standing {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

/// Bytes of one request's slot, hot while the request lives (goal A23); its message is elsewhere.
pub const REQUEST_SLOT_BYTES: usize = size_of::<Request>();

/// MRs of one request.
pub(crate) type Mrs = ArrayVec<u32, MAX_MRS_PER_REQUEST>;

/// One slot. What stands side by side is written together when a request is made.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Request {
    cookie: u64,
    /// Where its message stands in the send queue's ring, once it is staged; of a standalone one its registration. The device may
    /// read the message until a completion has passed it ([`crate::chain::SendQueue::is_pending`]).
    message_position: u64,
    /// What the caller is told when the fence is done, in the form of its event; [`RequestStatus::Lost`] until something else is known.
    outcome: RequestStatus,
    standing: Standing,
    /// The peer was asked to invalidate one of the keys.
    invited: bool,
    /// MRs whose keys are not known to be dead.
    mrs: Mrs,
}

impl Request {
    /// One that waits for its admission, to stand so afterwards.
    pub(crate) fn waiting(cookie: u64, posted: Standing, invited: bool) -> Self {
        let standing = Standing { phase: Phase::Waiting, ..posted };
        Self::posted(cookie, standing, invited, NOT_POSTED)
    }

    /// One whose work requests go into the chain at once, the last of them to this position. It has no MRs yet.
    #[inline(always)]
    pub(crate) fn posted(cookie: u64, standing: Standing, invited: bool, message_position: u64) -> Self {
        Self { cookie, message_position, outcome: RequestStatus::Lost, standing, invited, mrs: ArrayVec::new() }
    }

    #[inline(always)]
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Where its message stands in the send queue; see the field.
    #[inline(always)]
    pub(crate) fn message_position(&self) -> u64 {
        self.message_position
    }

    /// What is known of how it ends.
    #[inline(always)]
    pub(crate) fn outcome(&self) -> &RequestStatus {
        &self.outcome
    }

    #[inline(always)]
    pub(crate) fn phase(&self) -> Phase {
        self.standing.phase
    }

    /// Index of its connection.
    #[inline(always)]
    pub(crate) fn connection(&self) -> usize {
        usize::from(self.standing.connection)
    }

    /// The peer was asked to invalidate one of its keys.
    #[inline(always)]
    pub(crate) fn is_invited(&self) -> bool {
        self.invited
    }

    /// MRs whose keys are not known to be dead.
    #[inline(always)]
    pub(crate) fn mrs(&self) -> &[u32] {
        &self.mrs
    }

    pub(crate) fn is_standalone(&self) -> bool {
        self.standing.kind == Kind::Standalone
    }

    pub(crate) fn is_one_way(&self) -> bool {
        self.standing.kind == Kind::OneWay
    }

    /// A receive is kept for its reply.
    pub(crate) fn awaits_reply(&self) -> bool {
        matches!(self.standing.kind, Kind::Usual | Kind::Inline)
    }

    pub(crate) fn awaits_message(&self) -> bool {
        self.standing.kind == Kind::Inline
    }

    /// Whether its reply may come on the connection of whose usual request that may be said.
    #[inline(always)]
    pub(crate) fn is_posted_on(&self, posted: Standing) -> bool {
        self.standing == posted || self.is_inline_on(posted)
    }

    /// The same of a message with bytes out of the caller's memory. A call, so that the other one is compared as one number.
    #[inline(never)]
    fn is_inline_on(&self, posted: Standing) -> bool {
        self.standing == posted.of(Kind::Inline)
    }

    /// Its end is known, and reported or about to be.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.standing.phase, Phase::Ended | Phase::Held)
    }
}

/// Its MRs.
impl Request {
    /// It has one more.
    #[inline(always)]
    pub(crate) fn add_mr(&mut self, descriptor: u32) {
        self.mrs.push(descriptor);
    }

    /// It has none any more.
    pub(crate) fn take_mrs(&mut self) -> Mrs {
        core::mem::take(&mut self.mrs)
    }

    /// A key of it is dead. Whether nothing of it lives that its end waits for, beside perhaps its message.
    #[inline(always)]
    pub(crate) fn lose_key(&mut self, descriptor: u32) -> bool {
        // K15: one dead key stands for all of its request.
        if self.mrs.as_slice() == [descriptor] || mutant!(K15_fenced) {
            self.lose_keys();
            return self.standing.phase == Phase::Fencing;
        }
        if let Some(at) = self.mrs.iter().position(|held| *held == descriptor) {
            self.mrs.swap_remove(at);
        }
        // Another one is left, or this one was never its own.
        false
    }

    /// The key of the one at this place is dead.
    pub(crate) fn lose_key_at(&mut self, at: usize) -> u32 {
        self.mrs.remove(at)
    }

    /// All its keys are dead.
    #[inline(always)]
    pub(crate) fn lose_keys(&mut self) {
        // Not cleared: that would look once more how many there are.
        self.mrs = ArrayVec::new();
    }
}

/// The steps of its life.
impl Request {
    /// It is out of the chain, unposted.
    pub(crate) fn unstage(&mut self) {
        self.standing.phase = Phase::Queued;
        self.message_position = NOT_POSTED;
    }

    /// Its message moved up in the chain.
    pub(crate) fn moved_to(&mut self, position: u64) {
        self.message_position = if mutant!(unstaged_message_position) { self.message_position } else { position };
    }

    /// This is what is known of its end.
    #[inline(always)]
    pub(crate) fn ends_as(&mut self, outcome: RequestStatus) {
        self.outcome = outcome;
    }

    /// Its end is known; its keys are to die.
    #[inline(always)]
    pub(crate) fn fence(&mut self) {
        self.standing.phase = Phase::Fencing;
    }

    /// The device never sees its message, or cannot any more.
    pub(crate) fn forget_message(&mut self) {
        self.message_position = NOT_POSTED;
    }

    /// Its keys are dead: its end is about to be reported.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        self.standing.phase = Phase::Ended;
    }

    /// What its end says.
    pub(crate) fn take_outcome(&mut self) -> RequestStatus {
        core::mem::replace(&mut self.outcome, RequestStatus::Lost)
    }

    /// Its end was reported, and the device may still read its message.
    #[inline(always)]
    pub(crate) fn hold(&mut self) {
        self.standing.phase = Phase::Held;
    }
}
