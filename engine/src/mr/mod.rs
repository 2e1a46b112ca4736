//! One MR: its state machine, its key, what the peer is told.
//!
//! Methods are the arrows between its states; an arrow that does not exist is refused and leaves
//! the MR unchanged. Nothing here posts: an MR makes its work request in a chain (`open`,
//! `invalidate_posted`), and whoever posts that says when it was refused (`register_refused`,
//! `invalidate_refused`). The core that owns the connection calls everything here.

mod error;
mod key;
#[cfg(test)]
mod key_test;
mod open;
mod release;
#[cfg(test)]
mod small_domain;
mod state;

pub use error::MrError;
pub use key::{IovaPolicy, IovaRule, KEY_TAG_BITS, tag_mask};
pub use open::Opening;
pub use state::{Cause, ConnectionKey, Grant, Registration, ReturnPolicy, State};

use crate::provider::{Access, RegistrationId, Token, TokenKind};
use core::num::NonZeroU32;
use open::BEFORE_FIRST;

/// Bytes of one descriptor: one cache line, so that a step touches one.
pub const MR_BYTES: usize = 64;

/// The object and key of an MR that has none.
const NO_OBJECT: RegistrationId = RegistrationId(u32::MAX);

/// The request slot that the pad serves: a number that none has, so that no request is its owner.
pub(crate) const NO_SLOT: u32 = u32::MAX;
const _: () = assert!(NO_SLOT > Token::MAX_INDEX);

/// Whom an MR serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Requests, one after the other.
    Request,
    /// All requests of its connection: the four bytes that take a peer's padding (S90 to S92).
    Pad,
}

/// Where an MR is in its life, without what it holds there. That of a spent one is 0 ([`Standing::spent`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Step {
    /// Idle, and the current key was valid once.
    Spent,
    Registering,
    Valid,
    Absent,
    Idle,
    IdlePending,
    Mapped,
    Invalidating,
    Stale,
    Recovering,
}

/// On whose connection an MR is, and where in its life, as one number: every request asks for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing(u64);

impl Standing {
    #[inline(always)]
    const fn of(connection: ConnectionKey, step: Step) -> Self {
        Self(connection.bits() as u64 | (step as u64) << 32)
    }

    /// Of one that is free, and whose current key was valid once: its connection's own number.
    #[inline(always)]
    const fn spent(connection: ConnectionKey) -> Self {
        Self::of(connection, Step::Spent)
    }
}

/// Of an MR whose registration is staged or posted, which is all that is known of it when the usual reply comes.
impl From<ConnectionKey> for Standing {
    fn from(connection: ConnectionKey) -> Self {
        Self::of(connection, Step::Registering)
    }
}

/// One MR descriptor. What stands side by side is read or written together.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Mr {
    /// The base address that the peer uses; as bytes, right and owner of what is mapped, from Mapped to Invalidating.
    iova: u64,
    object: RegistrationId,
    /// Its own place in the chain's table of elements.
    element: u32,
    /// The key before this registration.
    old_key: u32,
    key: u32,
    /// Bytes covered.
    length: u32,
    access: Access,
    /// Low byte of the last key whose registration was posted: what the device has. A burnt key never reached it (S86).
    device_tag: u8,
    /// Why it is Stale.
    cause: Cause,
    role: Role,
    /// Of the latest registration; its index is the descriptor's number.
    token: Token,
    /// The request slot.
    owner: u32,
    /// Generation of an earlier invalidation in flight; from IdlePending to Registering, `None` elsewhere.
    pending: Option<NonZeroU32>,
    connection: ConnectionKey,
    step: Step,
}

const _: () = assert!(size_of::<Mr>() <= MR_BYTES, "a descriptor must fit one cache line");

impl Mr {
    /// A descriptor without a device object: the number that its tokens carry, at most
    /// [`Token::MAX_INDEX`], and its place in the chain's table of elements.
    #[must_use]
    pub const fn numbered(number: u32, element: u32) -> Self {
        Self {
            iova: 0,
            object: NO_OBJECT,
            element,
            old_key: 0,
            key: 0,
            length: 0,
            access: Access::RemoteRead,
            device_tag: 0,
            cause: Cause::UnusedAtDisconnect,
            role: Role::Request,
            token: Token::new(TokenKind::Register, number, BEFORE_FIRST),
            owner: 0,
            pending: None,
            connection: ConnectionKey { index: 0, epoch: 0 },
            step: Step::Absent,
        }
    }

    /// Gives the descriptor a device object: Absent to Idle (S18, S19, S103). The generation goes
    /// on counting, so that completions of an earlier object stay recognisable.
    ///
    /// # Errors
    /// [`MrError::InvalidState`] when it has one.
    pub fn install(&mut self, object: RegistrationId, key: u32, connection: ConnectionKey) -> Result<(), MrError> {
        if self.step != Step::Absent {
            return Err(MrError::InvalidState);
        }
        self.object = object;
        self.key = key;
        self.device_tag = key as u8;
        self.connection = connection;
        self.step = Step::Idle;
        Ok(())
    }

    /// What the peer is told, in a message behind the registration (S39, U2); `None` unless that is
    /// in the send queue or was carried out (I22).
    #[must_use]
    pub const fn grant(&self) -> Option<Grant> {
        if self.is_registered() { Some(self.latest().0) } else { None }
    }

    /// The remote right of what is registered.
    #[must_use]
    pub const fn access(&self) -> Option<Access> {
        if self.is_registered() { Some(self.access) } else { None }
    }

    /// The state with its data.
    #[must_use]
    pub const fn state(&self) -> State {
        let (owner, pending, registration) = (self.owner, self.pending, self.registration());
        match (self.step, pending) {
            (Step::Absent, _) => State::Absent,
            (Step::IdlePending, Some(pending)) => State::IdlePending { pending },
            (Step::Idle | Step::IdlePending, _) => State::Idle { spent: false },
            (Step::Spent, _) => State::Idle { spent: true },
            (Step::Mapped, _) => State::Mapped { owner, pending, registration },
            (Step::Registering, _) => State::Registering { owner, pending, registration },
            (Step::Valid, _) => State::Valid { owner, registration },
            (Step::Invalidating, _) => State::Invalidating { owner, registration },
            (Step::Stale, _) => State::Stale(self.cause),
            (Step::Recovering, _) => State::Recovering,
        }
    }

    /// The request slot that holds the MR; `None` for a free one and for the pad.
    #[must_use]
    #[inline]
    pub const fn owner(&self) -> Option<u32> {
        match (self.role, self.step) {
            (Role::Request, Step::Mapped) => Some(self.owner),
            (Role::Request, _) if self.is_registered() => Some(self.owner),
            _ => None,
        }
    }

    /// Whether a peer may be able to use the key: from the post of the registration to the proof that it is dead.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        match self.step {
            Step::Absent | Step::Idle | Step::Spent => false,
            Step::Mapped => self.pending.is_some(),
            Step::Stale => !matches!(self.cause, Cause::UnusedAtDisconnect),
            _ => true,
        }
    }

    /// The device object.
    #[must_use]
    pub const fn object(&self) -> RegistrationId {
        self.object
    }

    /// The current key; of a Mapped MR the one that was burnt.
    #[must_use]
    pub const fn key(&self) -> u32 {
        self.key
    }

    /// The key that the device has, or had last: not one that was burnt.
    pub(crate) const fn device_key(&self) -> u32 {
        self.key & !0xFF | self.device_tag as u32
    }

    /// The one in front of the current registration.
    pub(crate) const fn former_key(&self) -> u32 {
        self.old_key
    }

    /// What its latest registration opens or opened, whatever became of it, and the request slot that it was for:
    /// [`NO_SLOT`] for the pad.
    #[inline(always)]
    pub(crate) const fn latest(&self) -> (Grant, Access, u32) {
        (Grant { key: self.key, address: self.iova, length: self.length }, self.access, self.owner)
    }

    /// Index of the connection that it belongs to.
    #[inline(always)]
    pub(crate) const fn connection(&self) -> u16 {
        self.connection.index
    }

    /// Token of the latest registration. Its generation tells one opening from the other (I16):
    /// [`u32::MAX`] in front of the first, then 1 and odd numbers, which come round after some
    /// 2^30.
    #[must_use]
    pub const fn token_register(&self) -> Token {
        self.token
    }

    /// Token of the invalidation. Its kind differs from the registration's, so that two late flushes cannot be mistaken for one
    /// another (F7, S115).
    #[must_use]
    #[inline(always)]
    pub const fn token_invalidate(&self) -> Token {
        Token(self.token.0 + INVALIDATE_LESS_REGISTER)
    }

    const fn registration(&self) -> Registration {
        let Self { iova, length, access, old_key, .. } = *self;
        Registration { iova, length, access, old_tag: old_key as u8 }
    }

    #[inline(always)]
    const fn standing(&self) -> Standing {
        Standing::of(self.connection, self.step)
    }

    const fn generation(&self) -> u32 {
        self.token.generation()
    }

    const fn is_pad(&self) -> bool {
        matches!(self.role, Role::Pad)
    }

    const fn is_registered(&self) -> bool {
        matches!(self.step, Step::Registering | Step::Valid | Step::Invalidating)
    }

    const fn is_pending(&self, generation: u32) -> bool {
        matches!(self.pending, Some(pending) if pending.get() == generation)
    }

    #[inline]
    const fn check_free(&self, connection: ConnectionKey) -> Result<(), MrError> {
        match self.step {
            Step::Idle | Step::Spent | Step::IdlePending => self.check_connection(connection),
            _ => Err(MrError::InvalidState),
        }
    }

    #[inline]
    const fn check_connection(&self, connection: ConnectionKey) -> Result<(), MrError> {
        if self.connection.bits() == connection.bits() {
            Ok(())
        } else if self.connection.index != connection.index {
            Err(MrError::WrongQueue)
        } else {
            Err(MrError::StaleConnection)
        }
    }

    const fn check_request_role(&self) -> Result<(), MrError> {
        if self.is_pad() { Err(MrError::Denied) } else { Ok(()) }
    }
}

/// What makes the token of an invalidation of that of a registration.
const INVALIDATE_LESS_REGISTER: u64 = (TokenKind::Invalidate as u64 - TokenKind::Register as u64) << 60;
const _: () = {
    let token = Token(Token::new(TokenKind::Register, 1, 1).0 + INVALIDATE_LESS_REGISTER);
    assert!(matches!(token.kind(), TokenKind::Invalidate) && token.index() == 1);
};
