//! The second half of an MR's life: invalidation, failure, recovery, the end.

use super::{Cause, ConnectionKey, Mr, MrError, NO_OBJECT, ReturnPolicy, Role, Standing, Step};
use crate::provider::Operation;
use core::num::NonZeroU32;
use frwr_mempool::mutant;

impl Mr {
    /// The invalidation enters a chain: Registering or Valid to Invalidating, or to IdlePending where the policy allows
    /// it (S65, D2, D10). Returns the request slot that it belongs to. A Registering MR may be invalidated because its registration is ahead in the same queue.
    ///
    /// # Errors
    /// [`MrError::Denied`] for the pad (I26); [`MrError::AlreadyInvalid`] (I5); [`MrError::InvalidState`] where no key
    /// can be valid, and for a Stale MR, which an invalidation never repairs (I4); [`MrError::StaleKey`] (I6).
    #[inline(always)]
    pub fn invalidate_posted(&mut self, key: u32, policy: ReturnPolicy) -> Result<(u32, Operation), MrError> {
        self.check_request_role()?;
        match self.step {
            Step::Registering | Step::Valid => {}
            Step::Invalidating | Step::IdlePending | Step::Spent => return Err(MrError::AlreadyInvalid),
            _ => return Err(MrError::InvalidState),
        }
        if key != self.key {
            return Err(MrError::StaleKey);
        }
        if policy == ReturnPolicy::OnInvalidateCompleted {
            (self.step, self.pending) = (Step::Invalidating, None);
        } else {
            // No generation is 0.
            (self.step, self.pending) = (Step::IdlePending, NonZeroU32::new(self.generation()));
        }
        Ok((self.owner, Operation::Invalidate { object: self.object, key: self.key }))
    }

    /// A completion shows that the invalidation of `generation` took effect, its own or a later one of the same queue:
    /// Invalidating or IdlePending to Idle. Returns the request slot that held it until now; `None` with the early return, where it
    /// was free before, and one that was taken since stays with its new owner (D2).
    ///
    /// # Errors
    /// [`MrError::StaleCompletion`] when no such invalidation is in flight, among others because a later one of the same
    /// MR has replaced it (I16).
    #[inline(always)]
    pub fn invalidated(&mut self, generation: u32) -> Result<Option<u32>, MrError> {
        // F7: the completion of an earlier use counts for this one.
        if self.step == Step::Invalidating && (generation == self.generation() || mutant!(F7_invalidated)) {
            // It has no earlier one in flight.
            self.step = Step::Spent;
            return Ok(Some(self.owner));
        }
        match self.step {
            // Another key may have been burnt since: that one was never valid.
            Step::IdlePending if self.is_pending(generation) => {
                self.step = if self.key as u8 == self.device_tag { Step::Spent } else { Step::Idle };
            }
            Step::Mapped | Step::Registering if self.is_pending(generation) => {}
            _ => return Err(MrError::StaleCompletion),
        }
        self.pending = None;
        Ok(None)
    }

    /// The reply of the request in slot `owner` said that the peer invalidated `key`: Registering or Valid to Idle
    /// (S58).
    ///
    /// # Errors
    /// [`MrError::Denied`] for the pad (I26); [`MrError::ProtocolError`] when that request does not hold that key on that
    /// connection, or the key is not valid (I25).
    #[inline(always)]
    pub fn remotely_invalidated(
        &mut self,
        owner: u32,
        connection: impl Into<Standing>,
        key: u32,
    ) -> Result<(), MrError> {
        let registering = connection.into();
        // K14: any key that the peer names is the request's.
        let key = if mutant!(K14_reply) { self.key } else { key };
        // K15: a key of another request may be invalidated.
        let is_its = self.owner == owner || mutant!(K15_owner);
        // The pad is no request's.
        if !(key == self.key && is_its && (self.standing() == registering || self.is_valid_on(registering))) {
            return Err(if self.is_pad() { MrError::Denied } else { MrError::ProtocolError });
        }
        self.step = Step::Spent;
        self.pending = None;
        Ok(())
    }

    /// The same of a key that is known to be valid. A call, so that the usual one, of which nobody heard before its reply, is compared as
    /// one number.
    #[inline(never)]
    fn is_valid_on(&self, registering: Standing) -> bool {
        // K15: one whose registration was never posted may be invalidated.
        registering == self.connection.into()
            && (self.step == Step::Valid || (mutant!(K15_unregistered) && self.step == Step::Mapped))
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
            Step::IdlePending | Step::Mapped => self.is_pending(generation),
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
            Step::Mapped if self.pending.is_some() => Cause::FlushedInvalidate,
            Step::Idle | Step::Spent | Step::Mapped => Cause::UnusedAtDisconnect,
        };
        self.check_connection(connection)?;
        self.become_stale(cause);
        Ok(())
    }

    /// The repair begins: Stale to Recovering; the object is about to be destroyed, and a new one
    /// made (S103, D8).
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
        self.object = NO_OBJECT;
        self.role = Role::Request;
        Ok(())
    }

    const fn invalidation_in_flight(&self, generation: u32) -> bool {
        match self.step {
            Step::Invalidating => generation == self.generation(),
            Step::IdlePending | Step::Mapped | Step::Registering => self.is_pending(generation),
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
