//! The first half of an MR's life: its registration enters a chain and takes effect, or is refused
//! by the post.

use super::{ConnectionKey, KEY_TAG_BITS, Mr, MrError, NO_SLOT, Role, Standing, Step, key::next_key, tag_mask};
use crate::provider::{Access, BaseId, ElementRange, Operation, RegistrationFields, Token, WorkRequest};
use frwr_mempool::mutant;

/// What [`Mr::open`] registers. Whoever gathered it has checked it, so that no registration has to:
/// it has bytes, it has elements, each of them has a byte, and neither addresses nor base address
/// wrap around (I18, [`crate::gather`] and [`super::IovaRule`]).
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The request slot that the MR serves.
    pub owner: u32,
    /// Bytes covered: the sum of the elements' lengths (S35).
    pub bytes: u32,
    /// The base registration that they lie in.
    pub base: BaseId,
    /// Elements covered. One stands in the MR's place in the chain's table; who lists more than that says in the work
    /// request where they stand.
    pub elements: u32,
    /// The remote right (S32).
    pub access: Access,
    /// The base address for the peer, from [`super::IovaRule`].
    pub iova: u64,
    /// The low bits of a key that change, from [`tag_mask`].
    pub key_mask: u32,
}

impl Opening {
    fn is_sound(&self) -> bool {
        let covers = self.bytes != 0 && self.elements != 0 && self.elements <= self.bytes;
        covers && self.iova.checked_add(self.bytes.into()).is_some() && self.key_mask <= tag_mask(KEY_TAG_BITS)
    }
}

/// By what an MR's next registration is known.
struct Next {
    /// The key in front of it, as the device has it.
    old_key: u32,
    key: u32,
    token: Token,
}

impl Mr {
    /// Makes a free MR's registration in its place of a chain, unsignalled, with the next key and
    /// the next generation (S23, S37, S45): Idle or IdlePending to Registering. Returns the key,
    /// which may be named behind `place` in that chain and nowhere else (U2, I22). `begins_round`
    /// is set where the bits of the key that change are zero, and else left. What is refused
    /// changes nothing, burns no key and leaves `place` alone.
    ///
    /// # Errors
    /// [`MrError::InvalidState`] when it is not free (I1, I2, I21); [`MrError::StaleConnection`]
    /// and [`MrError::WrongQueue`] when it belongs elsewhere (I23, I24).
    #[inline(always)]
    pub fn open(
        &mut self,
        connection: ConnectionKey,
        opening: &Opening,
        place: &mut WorkRequest,
        begins_round: &mut bool,
    ) -> Result<u32, MrError> {
        debug_assert!(opening.is_sound(), "who gathers checks it: {opening:?}");
        // Of a Spent one the device has the key in front of this one.
        let mut next =
            Next { old_key: self.key, key: self.key.wrapping_add(1), token: Token(self.token.0 + GENERATION_STEP) };
        let is_usual = self.standing() == Standing::spent(connection) && next.key & opening.key_mask != 0;
        if !is_usual && !mutant!(K21_key) {
            next = self.next_otherwise(connection, opening.key_mask)?;
            *begins_round |= next.key & opening.key_mask == 0;
        }
        let Next { old_key, key, token } = next;
        // F7: all uses of an MR have one generation.
        let token = if mutant!(F7_generation) { self.token } else { token };
        let fields = RegistrationFields {
            object: self.object,
            base: opening.base,
            old_key,
            key,
            access: opening.access,
            iova: opening.iova,
            length: opening.bytes,
            elements: ElementRange { first: self.element, count: opening.elements },
        };
        // Side by side, so that each value is at hand once.
        self.token = token;
        (self.iova, self.old_key, self.key) = (opening.iova, old_key, key);
        (self.length, self.access) = (opening.bytes, opening.access);
        *place = WorkRequest { token, signalled: false, fence: false, operation: Operation::Register(fields) };
        self.owner = opening.owner;
        self.step = Step::Registering;
        self.device_tag = key as u8;
        Ok(key)
    }

    /// What follows on what a free MR had, wherever its keys have come and whether or not the device has the last one.
    #[cold]
    #[inline(never)]
    fn next_otherwise(&self, connection: ConnectionKey, key_mask: u32) -> Result<Next, MrError> {
        self.check_free(connection)?;
        let mut key = next_key(self.key, key_mask);
        // K21: a key that was burnt is used again.
        if key as u8 == self.device_tag && !mutant!(burnt_key) {
            key = next_key(key, key_mask);
        }
        Ok(Next { old_key: (key & !0xFF) | u32::from(self.device_tag), key, token: following(self.token) })
    }

    /// [`Mr::open`] of the connection's pad, which serves no request slot, whatever `opening` says (S90).
    /// From here on it can only be destroyed.
    ///
    /// # Errors
    /// As [`Mr::open`].
    pub fn open_as_pad(
        &mut self,
        connection: ConnectionKey,
        opening: &Opening,
        place: &mut WorkRequest,
    ) -> Result<u32, MrError> {
        let key = self.open(connection, opening, place, &mut false)?;
        (self.role, self.owner) = (Role::Pad, NO_SLOT);
        Ok(key)
    }

    /// The post refused the registration, or its chain was given up: Registering to Mapped. The
    /// device knows nothing of it (S41); the key stays burnt (D14).
    ///
    /// # Errors
    /// [`MrError::InvalidState`] unless Registering.
    pub fn register_refused(&mut self) -> Result<(), MrError> {
        if self.step != Step::Registering {
            return Err(MrError::InvalidState);
        }
        self.step = Step::Mapped;
        if !mutant!(refused_key_burns_tag) {
            self.device_tag = self.old_key as u8;
        }
        Ok(())
    }

    /// Gives an MR back whose registration was refused: Mapped to Idle or IdlePending (S85, S86).
    ///
    /// # Errors
    /// [`MrError::Denied`] for the pad (I26), [`MrError::Busy`] while the device may know it (I7 to
    /// I9), [`MrError::InvalidState`] otherwise (I13).
    pub fn give_back(&mut self) -> Result<(), MrError> {
        self.check_request_role()?;
        self.step = match (self.step, self.pending) {
            (Step::Mapped, None) => Step::Idle,
            (Step::Mapped, Some(_)) => Step::IdlePending,
            // K3: a key that is valid goes on the free list.
            (Step::Registering | Step::Valid, _) if mutant!(K3_refused) => Step::Idle,
            (Step::Registering | Step::Valid | Step::Invalidating, _) => return Err(MrError::Busy),
            _ => return Err(MrError::InvalidState),
        };
        Ok(())
    }

    /// A completion shows that the registration of `generation` took effect, its own or a later one
    /// of the same queue: Registering to Valid. Repeating it changes nothing.
    ///
    /// # Errors
    /// [`MrError::StaleCompletion`] when it belongs to another use (I16).
    #[inline]
    pub fn registered(&mut self, generation: u32) -> Result<(), MrError> {
        match self.step {
            Step::Registering if generation == self.generation() => {
                // A pending invalidation stood in front of it in the same queue: it is done as
                // well.
                self.step = Step::Valid;
                self.pending = None;
                Ok(())
            }
            // The peer's reply or an invalidation may overtake this news.
            Step::Valid | Step::Invalidating | Step::Spent if generation == self.generation() => Ok(()),
            Step::IdlePending | Step::Mapped if self.is_pending(generation) => Ok(()),
            _ => Err(MrError::StaleCompletion),
        }
    }
}

/// Between two generations: odd ones, so that none is 0 and nobody has to look.
const GENERATION_STEP: u64 = 2;

/// A generation from here on is followed by the first one, at the next chance: with every round of
/// its keys, or whenever the one before was burnt.
pub(super) const GENERATIONS: u32 = 1 << 31;
const _: () = assert!(
    GENERATION_STEP << KEY_TAG_BITS < (u32::MAX - GENERATIONS) as u64,
    "no generation runs over into the index that stands above it in a token before its keys have come round"
);

/// The generation of a descriptor that was never opened; the first one is 1.
pub(super) const BEFORE_FIRST: u32 = u32::MAX;
const FIRST: u32 = 1;
const _: () = assert!(following(Token(BEFORE_FIRST as u64)).0 == FIRST as u64);

/// The token of the next generation.
#[inline(always)]
pub(super) const fn following(token: Token) -> Token {
    if token.generation() >= GENERATIONS {
        return Token((token.0 & !(u32::MAX as u64)) + FIRST as u64);
    }
    Token(token.0 + GENERATION_STEP)
}
