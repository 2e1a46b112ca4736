//! One MR: its state machine, its key, what the peer is told.
//!
//! Methods are the arrows between its states; an arrow that does not exist is refused and
//! leaves the MR unchanged. Nothing here posts: the caller marks an MR when its work request enters a chain
//! (`register_posted`, `invalidate_posted`) and says so when the post refused it (`register_refused`,
//! `invalidate_refused`). The core that owns the connection calls everything here.

mod error;
mod key;
#[cfg(test)]
mod key_test;
mod release;
#[cfg(test)]
mod small_domain;
mod state;

pub use error::MrError;
use frwr_mempool::mutant;
use key::next_masked;
pub use key::{IovaPolicy, KEY_TAG_BITS, check_next_key, iova, next_key};
pub(crate) use key::{IovaRule, tag_mask};
pub use state::{Cause, ConnectionKey, Grant, Mapping, Registration, ReturnPolicy, State};

use crate::provider::{
    Access, BaseId, ElementRange, Operation, RegistrationFields, RegistrationId, Token, TokenKind, WorkRequest,
};
use core::num::NonZeroU32;

/// What [`Mr::open_in_chain`] registers, with everything about it checked: the bytes lie in their base registration, and neither
/// they nor their base address wrap around (I18).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// The request slot.
    pub(crate) owner: u32,
    pub(crate) bytes: u32,
    pub(crate) base: BaseId,
    /// So many stand in the chain's table, from the MR's first place on.
    pub(crate) elements: u32,
    pub(crate) access: Access,
    pub(crate) iova: u64,
    /// The low bits of a key that change.
    pub(crate) key_mask: u32,
}

/// Bytes of one descriptor: one cache line, so that a step touches one.
pub const MR_BYTES: usize = 64;

/// The object and key of an MR that has none.
const NO_OBJECT: RegistrationId = RegistrationId(u32::MAX);

/// The owner of a pad: no request slot has this number.
const NO_SLOT: u32 = u32::MAX;
const _: () = assert!(NO_SLOT > Token::MAX_INDEX);

/// Whom an MR serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Requests, one after the other.
    Request,
    /// All requests of its connection: the four bytes that take a peer's padding (S90 to S92).
    Pad,
}

/// Where an MR is in its life, without what it holds there: a transition that keeps the rest writes one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Absent,
    Idle,
    /// Idle, and the current key was valid once.
    Spent,
    IdlePending,
    Owned,
    Mapped,
    Registering,
    Valid,
    Invalidating,
    Stale,
    Recovering,
}

/// One MR descriptor.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Mr {
    /// What is mapped, from Mapped to Invalidating, in the form that a chain takes. Object, key and the first element's place are
    /// kept throughout.
    fields: RegistrationFields,
    /// Of the latest registration; its index is the descriptor's number.
    token: Token,
    /// The request slot; from Owned to Invalidating.
    owner: u32,
    /// Generation of an earlier invalidation in flight; from IdlePending to Registering, `None` elsewhere.
    pending: Option<NonZeroU32>,
    connection: ConnectionKey,
    step: Step,
    /// Why it is Stale.
    cause: Cause,
    role: Role,
    /// Low byte of the last key whose registration was posted: what the device has. A burnt key never reached it (S86).
    device_tag: u8,
}

const _: () = assert!(size_of::<Mr>() <= MR_BYTES, "a descriptor must fit one cache line");

impl Default for Mr {
    fn default() -> Self {
        Self::absent()
    }
}

impl Mr {
    /// A descriptor without a device object, for who has one of them.
    #[must_use]
    pub const fn absent() -> Self {
        Self::numbered(0, 0)
    }

    /// The same of many: the number that its tokens carry, at most [`Token::MAX_INDEX`], and the first of its places in the chain's
    /// table of elements.
    #[must_use]
    pub const fn numbered(number: u32, first_element: u32) -> Self {
        let nothing = RegistrationFields {
            object: NO_OBJECT,
            base: BaseId(0),
            old_key: 0,
            key: 0,
            access: Access::RemoteRead,
            iova: 0,
            length: 0,
            elements: ElementRange { first: first_element, count: 0 },
        };
        Self {
            fields: nothing,
            token: Token::new(TokenKind::Register, number, BEFORE_FIRST),
            owner: 0,
            pending: None,
            connection: ConnectionKey { index: 0, epoch: 0 },
            step: Step::Absent,
            cause: Cause::UnusedAtDisconnect,
            role: Role::Request,
            device_tag: 0,
        }
    }

    /// Gives the descriptor a device object: Absent or Recovering to Idle (S18, S19, S103). The generation goes on
    /// counting, so that completions of an earlier object stay recognisable.
    ///
    /// # Errors
    /// [`MrError::InvalidState`] when it has one.
    pub fn install(&mut self, object: RegistrationId, key: u32, connection: ConnectionKey) -> Result<(), MrError> {
        if !matches!(self.step, Step::Absent | Step::Recovering) {
            return Err(MrError::InvalidState);
        }
        self.fields.object = object;
        self.fields.key = key;
        self.device_tag = key as u8;
        self.connection = connection;
        self.role = Role::Request;
        self.pending = None;
        self.step = Step::Idle;
        Ok(())
    }

    /// Takes a free MR for a request slot: Idle or IdlePending to Owned (S23).
    ///
    /// # Errors
    /// [`MrError::InvalidState`] when it is not free; [`MrError::StaleConnection`] and [`MrError::WrongQueue`] when it
    /// belongs elsewhere (I23, I24).
    pub fn take(&mut self, owner: u32, connection: ConnectionKey) -> Result<(), MrError> {
        self.check_free(connection)?;
        self.owner = owner;
        self.step = Step::Owned;
        Ok(())
    }

    /// [`Mr::take`] and [`Mr::map`] in one: Idle or IdlePending to Mapped. What is refused changes nothing.
    ///
    /// # Errors
    /// As those two.
    #[inline(always)]
    pub fn open(&mut self, owner: u32, connection: ConnectionKey, mapping: &Mapping) -> Result<Grant, MrError> {
        self.check_free(connection)?;
        let fields = self.prepare(mapping)?;
        self.owner = owner;
        Ok(grant_of(&fields))
    }

    /// [`Mr::open`] and [`Mr::register_posted`] in one, for who makes the work request at once: Idle or IdlePending to
    /// Registering, with the work request, unsignalled, put into its place. Returns token and key; `begins_round` is set where the bits of
    /// the key that change are zero, and else left. What is refused changes nothing.
    ///
    /// # Errors
    /// [`MrError::InvalidState`], [`MrError::StaleConnection`], [`MrError::WrongQueue`] as [`Mr::take`].
    #[inline(always)]
    pub(crate) fn open_in_chain(
        &mut self,
        connection: ConnectionKey,
        opening: &Opening,
        place: &mut WorkRequest,
        begins_round: &mut bool,
    ) -> Result<(Token, u32), MrError> {
        debug_assert!(opening.bytes != 0 && opening.elements != 0 && opening.elements <= opening.bytes);
        debug_assert!(opening.iova.checked_add(opening.bytes.into()).is_some(), "no base address wraps around");
        // Of a Spent one the device has the key in front of this one.
        let (mut old_key, mut key) = (self.fields.key, self.fields.key.wrapping_add(1));
        let mut token = Token(self.token.0 + GENERATION_STEP);
        if (self.step != Step::Spent || key & opening.key_mask == 0) && !mutant!(K21_key_at_once) {
            self.check_free(connection)?;
            key = next_masked(self.fields.key, opening.key_mask);
            // K21: a key that was burnt is used again.
            if key as u8 == self.device_tag && !mutant!(burnt_key_at_once) {
                key = next_masked(key, opening.key_mask);
            }
            old_key = (key & !0xFF) | u32::from(self.device_tag);
            token = following(self.token);
            *begins_round |= key & opening.key_mask == 0;
        }
        self.check_connection(connection)?;
        let fields = RegistrationFields {
            object: self.fields.object,
            base: opening.base,
            old_key,
            key,
            access: opening.access,
            iova: opening.iova,
            length: opening.bytes,
            elements: ElementRange { first: self.fields.elements.first, count: opening.elements },
        };
        // Side by side, so that each value is at hand once.
        self.token = token;
        self.fields = fields;
        *place = WorkRequest { token, signalled: false, fence: false, operation: Operation::Register(fields) };
        self.owner = opening.owner;
        self.step = Step::Registering;
        self.device_tag = key as u8;
        Ok((token, key))
    }

    /// Takes a free MR as the connection's pad (S90). From here on it can only be mapped, registered and destroyed.
    ///
    /// # Errors
    /// As [`Mr::take`].
    pub fn take_as_pad(&mut self, connection: ConnectionKey) -> Result<(), MrError> {
        self.take(NO_SLOT, connection)?;
        self.role = Role::Pad;
        Ok(())
    }

    /// Prepares a registration: Owned to Mapped, with the next key and the next generation. The device knows nothing of it
    /// (S41); a failed map burns no key, a map that is given back burns one (S37, S86, D14).
    ///
    /// # Errors
    /// [`MrError::InvalidState`] unless Owned (I1, I21); [`MrError::InvalidArgument`] for an empty mapping or one that
    /// wraps around (I18); [`MrError::InvalidKey`] for more rotating bits than a key has (I20).
    pub fn map(&mut self, mapping: &Mapping) -> Result<Grant, MrError> {
        if self.step != Step::Owned {
            return Err(MrError::InvalidState);
        }
        self.prepare(mapping).map(|fields| grant_of(&fields))
    }

    #[inline(always)]
    fn prepare(&mut self, mapping: &Mapping) -> Result<RegistrationFields, MrError> {
        if mapping.bytes == 0 || mapping.elements == 0 || mapping.elements > mapping.bytes {
            return Err(MrError::InvalidArgument);
        }
        // The last address from which the bytes do not wrap around.
        let last = u64::MAX - u64::from(mapping.bytes);
        if mapping.address > last || mapping.iova > last {
            return Err(MrError::InvalidArgument);
        }
        if mapping.rotating_key_bits > KEY_TAG_BITS {
            return Err(MrError::InvalidKey);
        }
        let mut key = next_key(self.fields.key, mapping.rotating_key_bits);
        // Keys that were burnt unused may have come round to the one that the device had last (I20).
        if key as u8 == self.device_tag {
            key = next_key(key, mapping.rotating_key_bits);
        }
        // F7: all uses of an MR have one generation.
        if !mutant!(F7_generation) {
            self.token = following(self.token);
        }
        let fields = RegistrationFields {
            object: self.fields.object,
            base: mapping.base,
            old_key: (key & !0xFF) | u32::from(self.device_tag),
            key,
            access: mapping.access,
            iova: mapping.iova,
            length: mapping.bytes,
            elements: ElementRange { first: self.fields.elements.first, count: mapping.elements },
        };
        self.fields = fields;
        self.step = Step::Mapped;
        Ok(fields)
    }

    /// Gives an MR back unused, also after a failed marshal: Owned or Mapped to Idle (S85, S86).
    ///
    /// # Errors
    /// [`MrError::Denied`] for the pad (I26), [`MrError::Busy`] while the device may know it (I7 to I9),
    /// [`MrError::InvalidState`] otherwise (I13).
    pub fn give_back(&mut self) -> Result<(), MrError> {
        self.check_request_role()?;
        self.step = match (self.step, self.pending) {
            (Step::Owned | Step::Mapped, None) => Step::Idle,
            (Step::Owned | Step::Mapped, Some(_)) => Step::IdlePending,
            // K3: a key that is valid goes on the free list.
            (Step::Registering | Step::Valid, _) if mutant!(K3_refused) => Step::Idle,
            (Step::Registering | Step::Valid | Step::Invalidating, _) => return Err(MrError::Busy),
            _ => return Err(MrError::InvalidState),
        };
        Ok(())
    }

    /// The registration enters a chain: Mapped to Registering (S45). Returns its fields.
    ///
    /// # Errors
    /// [`MrError::InvalidState`] unless Mapped (I2, I3).
    #[inline(always)]
    pub fn register_posted(&mut self) -> Result<RegistrationFields, MrError> {
        self.enter_chain().copied()
    }

    /// [`Mr::register_posted`] for who copies the fields to their place.
    ///
    /// # Errors
    /// As that.
    #[inline(always)]
    pub(crate) fn enter_chain(&mut self) -> Result<&RegistrationFields, MrError> {
        if self.step != Step::Mapped {
            return Err(MrError::InvalidState);
        }
        self.step = Step::Registering;
        self.device_tag = self.fields.key as u8;
        Ok(&self.fields)
    }

    /// The post refused the registration: Registering back to Mapped. The key stays burnt (D14).
    ///
    /// # Errors
    /// [`MrError::InvalidState`] unless Registering.
    pub fn register_refused(&mut self) -> Result<(), MrError> {
        if self.step != Step::Registering {
            return Err(MrError::InvalidState);
        }
        self.step = Step::Mapped;
        if !mutant!(refused_key_burns_tag) {
            self.device_tag = self.fields.old_key as u8;
        }
        Ok(())
    }

    /// A completion shows that the registration of `generation` took effect, its own or a later one of the same queue:
    /// Registering to Valid. Repeating it changes nothing.
    ///
    /// # Errors
    /// [`MrError::StaleCompletion`] when it belongs to another use (I16).
    #[inline]
    pub fn registered(&mut self, generation: u32) -> Result<(), MrError> {
        match self.step {
            Step::Registering if generation == self.generation() => {
                // A pending invalidation stood in front of it in the same queue: it is done as well.
                self.step = Step::Valid;
                self.pending = None;
                Ok(())
            }
            // The peer's reply or an invalidation may overtake this news.
            Step::Valid | Step::Invalidating | Step::Spent if generation == self.generation() => Ok(()),
            Step::IdlePending | Step::Owned | Step::Mapped if self.is_pending(generation) => Ok(()),
            _ => Err(MrError::StaleCompletion),
        }
    }

    /// The grant, for a message on `connection` that stands behind the registration (U2).
    ///
    /// # Errors
    /// [`MrError::NotOrdered`] when the registration is not in that queue pair's send queue yet (I22);
    /// [`MrError::StaleConnection`] and [`MrError::WrongQueue`] when the MR belongs elsewhere.
    pub fn announce(&self, connection: ConnectionKey) -> Result<Grant, MrError> {
        match self.step {
            Step::Registering | Step::Valid => {
                self.check_connection(connection)?;
                Ok(self.current_grant())
            }
            _ => Err(MrError::NotOrdered),
        }
    }

    /// What the peer is or will be told; `None` where nothing is mapped.
    #[must_use]
    pub const fn grant(&self) -> Option<Grant> {
        if self.is_mapped() { Some(self.current_grant()) } else { None }
    }

    /// The remote right of what is mapped.
    #[must_use]
    pub const fn access(&self) -> Option<Access> {
        if self.is_mapped() { Some(self.fields.access) } else { None }
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
            (Step::Owned, _) => State::Owned { owner, pending },
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
            (Role::Request, Step::Owned) => Some(self.owner),
            (Role::Request, _) if self.is_mapped() => Some(self.owner),
            _ => None,
        }
    }

    /// Whether this is a connection's pad.
    #[must_use]
    pub const fn is_pad(&self) -> bool {
        matches!(self.role, Role::Pad)
    }

    /// Whether a peer may be able to use the key: from the post of the registration to the proof that it is dead.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        match self.step {
            Step::Absent | Step::Idle | Step::Spent => false,
            Step::Owned | Step::Mapped => self.pending.is_some(),
            Step::Stale => !matches!(self.cause, Cause::UnusedAtDisconnect),
            _ => true,
        }
    }

    /// Whether `key` is the current key and its registration was posted, so that a peer may invalidate it.
    #[must_use]
    pub const fn holds_key(&self, key: u32) -> bool {
        self.fields.key == key && matches!(self.step, Step::Registering | Step::Valid)
    }

    /// The device object.
    #[must_use]
    pub const fn object(&self) -> RegistrationId {
        self.fields.object
    }

    /// The current key; of a mapped MR the one it is going to have.
    #[must_use]
    pub const fn key(&self) -> u32 {
        self.fields.key
    }

    /// Tells one successful map from the other: [`u32::MAX`] in front of the first, then 1 and odd numbers, which come round after some
    /// 2^30; part of the tokens (I16).
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.token.generation()
    }

    /// Index of the first of its places in the chain's table of elements.
    #[must_use]
    #[inline(always)]
    pub(crate) const fn first_element(&self) -> u32 {
        self.fields.elements.first
    }

    /// The connection that the device object was made for.
    #[must_use]
    pub const fn connection(&self) -> ConnectionKey {
        self.connection
    }

    /// Token of the registration.
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

    const fn current_grant(&self) -> Grant {
        grant_of(&self.fields)
    }

    const fn registration(&self) -> Registration {
        let RegistrationFields { base, old_key, access, iova, length, elements, .. } = self.fields;
        Registration { iova, length, elements: elements.count, base, access, old_tag: old_key as u8 }
    }

    const fn is_mapped(&self) -> bool {
        matches!(self.step, Step::Mapped | Step::Registering | Step::Valid | Step::Invalidating)
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

/// What the peer is told of a registration.
pub(crate) const fn grant_of(fields: &RegistrationFields) -> Grant {
    Grant { key: fields.key, address: fields.iova, length: fields.length }
}

/// What makes the token of an invalidation of that of a registration.
const INVALIDATE_LESS_REGISTER: u64 = (TokenKind::Invalidate as u64 - TokenKind::Register as u64) << 60;
const _: () = {
    let token = Token(Token::new(TokenKind::Register, 1, 1).0 + INVALIDATE_LESS_REGISTER);
    assert!(matches!(token.kind(), TokenKind::Invalidate) && token.index() == 1);
};

/// Between two generations: odd ones, so that none is 0 and nobody has to look.
const GENERATION_STEP: u64 = 2;

/// A generation from here on is followed by the first one, at the next chance: with every round of its keys, or whenever one is mapped.
const GENERATIONS: u32 = 1 << 31;
const _: () = assert!(
    GENERATION_STEP << KEY_TAG_BITS < (u32::MAX - GENERATIONS) as u64,
    "no generation runs over into the index that stands above it in a token before its keys have come round"
);

/// The generation of a descriptor that was never mapped; the first one is 1.
const BEFORE_FIRST: u32 = u32::MAX;
const FIRST: u32 = 1;
const _: () = assert!(following(Token(BEFORE_FIRST as u64)).0 == FIRST as u64);

/// The token of the next generation.
#[inline(always)]
const fn following(token: Token) -> Token {
    if token.generation() >= GENERATIONS {
        return Token((token.0 & !(u32::MAX as u64)) + FIRST as u64);
    }
    Token(token.0 + GENERATION_STEP)
}
