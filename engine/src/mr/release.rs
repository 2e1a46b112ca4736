//! The second half of an MR's life: invalidation, failure, recovery, the end.

use super::{Cause, ConnectionKey, Mr, MrError, NO_OBJECT, ReturnPolicy, Role, State};
use crate::provider::Operation;
use core::num::NonZeroU32;

impl Mr {
    /// The invalidation enters a chain: Registering or Valid to Invalidating, or to IdlePending where the policy allows
    /// it (S65, D2, D10). A Registering MR may be invalidated because its registration is ahead in the same queue.
    ///
    /// # Errors
    /// [`MrError::Denied`] for the pad (I26); [`MrError::AlreadyInvalid`] (I5); [`MrError::InvalidState`] where no key
    /// can be valid, and for a Stale MR, which an invalidation never repairs (I4); [`MrError::StaleKey`] (I6).
    pub fn invalidate_posted(&mut self, key: u32, policy: ReturnPolicy) -> Result<Operation, MrError> {
        self.check_request_role()?;
        let (owner, registration) = match self.state {
            State::Registering { owner, registration, .. } | State::Valid { owner, registration } => {
                (owner, registration)
            }
            State::Invalidating { .. } | State::IdlePending { .. } | State::Idle { spent: true } => {
                return Err(MrError::AlreadyInvalid);
            }
            _ => return Err(MrError::InvalidState),
        };
        if key != self.key {
            return Err(MrError::StaleKey);
        }
        self.state = match (policy, NonZeroU32::new(self.generation)) {
            (ReturnPolicy::OnInvalidatePosted, Some(pending)) => State::IdlePending { pending },
            _ => State::Invalidating { owner, registration },
        };
        Ok(Operation::Invalidate { object: self.object, key })
    }

    /// A completion shows that the invalidation of `generation` took effect, its own or a later one of the same queue:
    /// Invalidating or IdlePending to Idle. An MR that was taken early stays with its new owner.
    ///
    /// # Errors
    /// [`MrError::StaleCompletion`] when no such invalidation is in flight, among others because a later one of the same
    /// MR has replaced it (I16).
    pub fn invalidated(&mut self, generation: u32) -> Result<(), MrError> {
        match &mut self.state {
            State::Invalidating { .. } if generation == self.generation => {
                self.state = State::Idle { spent: true };
            }
            State::IdlePending { pending } if pending.get() == generation => {
                self.state = State::Idle { spent: true };
            }
            State::Owned { pending, .. } | State::Mapped { pending, .. } | State::Registering { pending, .. }
                if is(*pending, generation) =>
            {
                *pending = None;
            }
            _ => return Err(MrError::StaleCompletion),
        }
        Ok(())
    }

    /// The reply of request `owner` said that the peer invalidated `key`: Registering or Valid to Idle (S58).
    ///
    /// # Errors
    /// [`MrError::Denied`] for the pad (I26); [`MrError::ProtocolError`] when that request does not hold that key on that
    /// connection, or the key is not valid (I25).
    pub fn remotely_invalidated(&mut self, owner: u32, connection: ConnectionKey, key: u32) -> Result<(), MrError> {
        self.check_request_role()?;
        match self.state {
            State::Registering { owner: holder, .. } | State::Valid { owner: holder, .. }
                if holder == owner && key == self.key && connection == self.connection =>
            {
                self.state = State::Idle { spent: true };
                Ok(())
            }
            _ => Err(MrError::ProtocolError),
        }
    }

    /// The registration of `generation` failed or was flushed; it may have taken effect all the same (verbs.md 0.6).
    /// Everything that the MR is now used for stands behind it in the same queue: to Stale (S57, D2).
    ///
    /// # Errors
    /// [`MrError::StaleCompletion`] when it belongs to another use (I16).
    pub fn register_failed(&mut self, generation: u32) -> Result<(), MrError> {
        let concerned = match self.state {
            State::Registering { pending, .. } => generation == self.generation || is(pending, generation),
            State::Invalidating { .. } | State::Stale(_) => generation == self.generation,
            State::IdlePending { pending } => pending.get() == generation,
            State::Owned { pending, .. } | State::Mapped { pending, .. } => is(pending, generation),
            _ => false,
        };
        self.become_stale_if(concerned, Cause::FlushedRegister)
    }

    /// The invalidation of `generation` failed or was flushed: to Stale, whoever has the MR by now (S74, D2, D6). For an
    /// MR that is Stale already its first cause stands.
    ///
    /// # Errors
    /// [`MrError::StaleCompletion`] when no such invalidation is in flight (I16).
    pub fn invalidate_failed(&mut self, generation: u32) -> Result<(), MrError> {
        let concerned = self.invalidation_in_flight(generation) || self.is_stale_of(generation);
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
        let cause = match self.state {
            State::Absent | State::Recovering => return Err(MrError::InvalidState),
            State::Stale(first) => first,
            State::Registering { .. } | State::Valid { .. } => Cause::ValidAtDisconnect,
            State::Invalidating { .. }
            | State::IdlePending { .. }
            | State::Owned { pending: Some(_), .. }
            | State::Mapped { pending: Some(_), .. } => Cause::FlushedInvalidate,
            State::Idle { .. } | State::Owned { .. } | State::Mapped { .. } => Cause::UnusedAtDisconnect,
        };
        self.check_connection(connection)?;
        self.state = State::Stale(cause);
        Ok(())
    }

    /// The repair begins: Stale to Recovering; the old object is destroyed and a new one made (S103, D8).
    ///
    /// # Errors
    /// [`MrError::InvalidState`] unless Stale (I30).
    pub fn begin_recovery(&mut self) -> Result<(), MrError> {
        if !matches!(self.state, State::Stale(_)) {
            return Err(MrError::InvalidState);
        }
        self.state = State::Recovering;
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
        if !matches!(self.state, State::Recovering) {
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
        match self.state {
            State::Idle { .. } | State::Stale(_) | State::Recovering => {}
            State::Absent => return Err(MrError::InvalidState),
            _ => return Err(MrError::Busy),
        }
        self.state = State::Absent;
        self.object = NO_OBJECT;
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
        match self.state {
            State::Invalidating { .. } => generation == self.generation,
            State::IdlePending { pending } => pending.get() == generation,
            State::Owned { pending, .. } | State::Mapped { pending, .. } | State::Registering { pending, .. } => {
                is(pending, generation)
            }
            _ => false,
        }
    }

    const fn is_stale_of(&self, generation: u32) -> bool {
        matches!(self.state, State::Stale(_)) && generation == self.generation
    }

    const fn become_stale_if(&mut self, concerned: bool, cause: Cause) -> Result<(), MrError> {
        if !concerned {
            return Err(MrError::StaleCompletion);
        }
        if !matches!(self.state, State::Stale(_)) {
            self.state = State::Stale(cause);
        }
        Ok(())
    }
}

const fn is(pending: Option<NonZeroU32>, generation: u32) -> bool {
    matches!(pending, Some(pending) if pending.get() == generation)
}
