//! The second half of an MR's life: invalidation, failure, recovery, the end.

use super::{Cause, ConnectionKey, Mr, MrError, NO_OBJECT, NO_SLOT, ReturnPolicy, Role, Step};
use crate::provider::{Operation, Token};
use core::num::NonZeroU32;
use frwr_mempool::mutant;

impl Mr {
    /// The invalidation enters a chain: Registering or Valid to Invalidating, or to IdlePending where the policy allows
    /// it (S65, D2, D10). A Registering MR may be invalidated because its registration is ahead in the same queue.
    ///
    /// # Errors
    /// [`MrError::Denied`] for the pad (I26); [`MrError::AlreadyInvalid`] (I5); [`MrError::InvalidState`] where no key
    /// can be valid, and for a Stale MR, which an invalidation never repairs (I4); [`MrError::StaleKey`] (I6).
    #[inline]
    pub fn invalidate_posted(&mut self, key: u32, policy: ReturnPolicy) -> Result<Operation, MrError> {
        self.check_request_role()?;
        match self.step {
            Step::Registering | Step::Valid => {}
            Step::Invalidating | Step::IdlePending | Step::Spent => return Err(MrError::AlreadyInvalid),
            _ => return Err(MrError::InvalidState),
        }
        if key != self.fields.key {
            return Err(MrError::StaleKey);
        }
        Ok(self.begin_invalidation(policy))
    }

    /// [`Mr::invalidate_posted`] of the current key, for who makes the work request at once: with its token, and the request slot
    /// that it belongs to. `None`, and nothing is changed, where that would be refused.
    #[inline(always)]
    pub(crate) fn invalidate_in_chain(&mut self, policy: ReturnPolicy) -> Option<(Token, u32, Operation)> {
        if self.is_pad() || !matches!(self.step, Step::Registering | Step::Valid) {
            return None;
        }
        // F7: one token for both work requests of an MR.
        let token = if mutant!(F7_token) { self.token_register() } else { self.token_invalidate() };
        Some((token, self.owner, self.begin_invalidation(policy)))
    }

    /// Registering or Valid to Invalidating or IdlePending.
    #[inline(always)]
    fn begin_invalidation(&mut self, policy: ReturnPolicy) -> Operation {
        if policy == ReturnPolicy::OnInvalidateCompleted {
            (self.step, self.pending) = (Step::Invalidating, None);
        } else {
            // No generation is 0.
            (self.step, self.pending) = (Step::IdlePending, NonZeroU32::new(self.generation()));
        }
        Operation::Invalidate { object: self.fields.object, key: self.fields.key }
    }

    /// The request slot of the invalidation that has this token, where the MR waits for that one to complete.
    #[inline(always)]
    pub(crate) fn owner_while_invalidating(&self, token: Token) -> Option<u32> {
        (token == self.token_invalidate() && self.step == Step::Invalidating).then_some(self.owner)
    }

    /// [`Mr::invalidated`] of an MR that waits for it, as was seen.
    #[inline(always)]
    pub(crate) fn invalidation_done(&mut self) {
        debug_assert!(self.step == Step::Invalidating && self.pending.is_none());
        self.step = Step::Spent;
    }

    /// A completion shows that the invalidation of `generation` took effect, its own or a later one of the same queue:
    /// Invalidating or IdlePending to Idle. An MR that was taken early stays with its new owner.
    ///
    /// # Errors
    /// [`MrError::StaleCompletion`] when no such invalidation is in flight, among others because a later one of the same
    /// MR has replaced it (I16).
    #[inline]
    pub fn invalidated(&mut self, generation: u32) -> Result<(), MrError> {
        match self.step {
            // F7: the completion of an earlier use counts for this one.
            Step::Invalidating if generation == self.generation() || mutant!(F7_invalidated) => self.step = Step::Spent,
            // Another key may have been burnt since: that one was never valid.
            Step::IdlePending if self.is_pending(generation) => {
                self.step = if self.fields.key as u8 == self.device_tag { Step::Spent } else { Step::Idle };
            }
            Step::Owned | Step::Mapped | Step::Registering if self.is_pending(generation) => {}
            _ => return Err(MrError::StaleCompletion),
        }
        self.pending = None;
        Ok(())
    }

    /// The reply of request `owner` said that the peer invalidated `key`: Registering or Valid to Idle (S58).
    ///
    /// # Errors
    /// [`MrError::Denied`] for the pad (I26); [`MrError::ProtocolError`] when that request does not hold that key on that
    /// connection, or the key is not valid (I25).
    pub fn remotely_invalidated(&mut self, owner: u32, connection: ConnectionKey, key: u32) -> Result<(), MrError> {
        self.check_request_role()?;
        if connection != self.connection {
            return Err(MrError::ProtocolError);
        }
        // K14: any key that the peer names is the request's.
        let key = if mutant!(K14_reply) { self.fields.key } else { key };
        self.key_died(owner, key)
    }

    /// The same for a request slot that exists, which the pad has not, and that holds this MR: both are of one connection.
    #[inline(always)]
    pub(crate) fn key_died(&mut self, owner: u32, key: u32) -> Result<(), MrError> {
        debug_assert!(owner != NO_SLOT || !self.is_pad());
        // K15: a key whose registration was never posted, or of another request, may be invalidated.
        let is_valid = matches!(self.step, Step::Registering | Step::Valid)
            || (mutant!(K15_unregistered) && self.step == Step::Mapped);
        if is_valid && (self.owner == owner || mutant!(K15_owner)) && key == self.fields.key {
            self.step = Step::Spent;
            self.pending = None;
            return Ok(());
        }
        Err(MrError::ProtocolError)
    }

    /// The registration of `generation` failed or was flushed; it may have taken effect all the same.
    /// Everything that the MR is now used for stands behind it in the same queue: to Stale (S57, D2).
    ///
    /// # Errors
    /// [`MrError::StaleCompletion`] when it belongs to another use (I16).
    pub fn register_failed(&mut self, generation: u32) -> Result<(), MrError> {
        let current = generation == self.generation();
        let concerned = match self.step {
            Step::Registering => current || self.is_pending(generation),
            Step::Invalidating | Step::Stale => current,
            Step::IdlePending | Step::Owned | Step::Mapped => self.is_pending(generation),
            _ => false,
        };
        // K4: an MR whose registration was flushed may be taken again.
        if mutant!(K4_register) && concerned {
            self.step = Step::Spent;
            return Ok(());
        }
        self.become_stale_if(concerned, Cause::FlushedRegister)
    }

    /// The invalidation of `generation` failed or was flushed: to Stale, whoever has the MR by now (S74, D2, D6). For an
    /// MR that is Stale already its first cause stands.
    ///
    /// # Errors
    /// [`MrError::StaleCompletion`] when no such invalidation is in flight (I16).
    pub fn invalidate_failed(&mut self, generation: u32) -> Result<(), MrError> {
        let concerned = self.invalidation_in_flight(generation) || self.is_stale_of(generation);
        // K4: the same of its invalidation.
        if mutant!(K4_invalidate) && concerned {
            self.step = Step::Spent;
            return Ok(());
        }
        self.become_stale_if(concerned, Cause::FlushedInvalidate)
    }

    /// The post refused the invalidation of `generation`: the key is still valid, to Stale (S71 to S73, D7).
    ///
    /// # Errors
    /// [`MrError::StaleCompletion`] when no such invalidation was marked as posted.
    pub fn invalidate_refused(&mut self, generation: u32) -> Result<(), MrError> {
        let concerned = self.invalidation_in_flight(generation);
        self.become_stale_if(concerned, Cause::UnpostedInvalidate)
    }

    /// The queue pair is in error and drained: every MR of the connection becomes Stale, to be destroyed (S94, S96). The
    /// pad and an MR that is Stale already are no exception; the first cause stands.
    ///
    /// # Errors
    /// [`MrError::InvalidState`] without a device object; [`MrError::StaleConnection`] and [`MrError::WrongQueue`] for
    /// another connection.
    pub fn connection_lost(&mut self, connection: ConnectionKey) -> Result<(), MrError> {
        let cause = match self.step {
            Step::Absent | Step::Recovering => return Err(MrError::InvalidState),
            Step::Stale => self.cause,
            Step::Registering | Step::Valid => Cause::ValidAtDisconnect,
            Step::Invalidating | Step::IdlePending => Cause::FlushedInvalidate,
            Step::Owned | Step::Mapped if self.pending.is_some() => Cause::FlushedInvalidate,
            Step::Idle | Step::Spent | Step::Owned | Step::Mapped => Cause::UnusedAtDisconnect,
        };
        self.check_connection(connection)?;
        self.become_stale(cause);
        Ok(())
    }

    /// The repair begins: Stale to Recovering; the old object is destroyed and a new one made (S103, D8).
    ///
    /// # Errors
    /// [`MrError::InvalidState`] unless Stale (I30).
    pub fn begin_recovery(&mut self) -> Result<(), MrError> {
        if self.step != Step::Stale {
            return Err(MrError::InvalidState);
        }
        self.step = Step::Recovering;
        Ok(())
    }

    /// The repair succeeded: Recovering to Idle with a new object and key (S103).
    ///
    /// # Errors
    /// [`MrError::InvalidState`] unless Recovering (I30).
    pub fn recovered(
        &mut self,
        object: crate::provider::RegistrationId,
        key: u32,
        connection: ConnectionKey,
    ) -> Result<(), MrError> {
        if self.step != Step::Recovering {
            return Err(MrError::InvalidState);
        }
        self.install(object, key, connection)
    }

    /// The device object was destroyed: Idle, Stale or Recovering to Absent (S20, S94, S105).
    ///
    /// # Errors
    /// [`MrError::Busy`] while a request holds it or the device may be working on it (I11); [`MrError::InvalidState`]
    /// without a device object (I13).
    pub fn destroyed(&mut self) -> Result<(), MrError> {
        match self.step {
            Step::Idle | Step::Spent | Step::Stale | Step::Recovering => {}
            Step::Absent => return Err(MrError::InvalidState),
            _ => return Err(MrError::Busy),
        }
        self.step = Step::Absent;
        self.fields.object = NO_OBJECT;
        self.role = Role::Request;
        Ok(())
    }

    /// Whether no peer can reach what was mapped, so that the memory may be handed up, unmapped or reused.
    ///
    /// # Errors
    /// [`MrError::NotFenced`] while one might (I10, I12, I14).
    pub const fn check_fenced(&self) -> Result<(), MrError> {
        if self.is_live() { Err(MrError::NotFenced) } else { Ok(()) }
    }

    const fn invalidation_in_flight(&self, generation: u32) -> bool {
        match self.step {
            Step::Invalidating => generation == self.generation(),
            Step::IdlePending | Step::Owned | Step::Mapped | Step::Registering => self.is_pending(generation),
            _ => false,
        }
    }

    const fn is_stale_of(&self, generation: u32) -> bool {
        matches!(self.step, Step::Stale) && generation == self.generation()
    }

    const fn become_stale_if(&mut self, concerned: bool, cause: Cause) -> Result<(), MrError> {
        if !concerned {
            return Err(MrError::StaleCompletion);
        }
        if !matches!(self.step, Step::Stale) {
            self.become_stale(cause);
        }
        Ok(())
    }

    const fn become_stale(&mut self, cause: Cause) {
        self.step = Step::Stale;
        self.cause = cause;
        self.pending = None;
    }
}
