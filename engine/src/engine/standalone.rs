//! Registrations without a message, and requests given up: `register_now`, `cancel`, and the polled-synchronous wait.

use super::{
    Chunk, Engine, Submission, SubmitError,
    issue::{Issue, Payload, Seat},
    pieces::{OneSegment, Pieces},
    refusal::Hindrance,
};
use crate::{
    connection::Phase as ConnectionPhase,
    event::{ConnectionId, Event, RequestStatus},
    mr::{Grant, Mr},
    protocol::Protocol,
    provider::{Chain, Port, PostError, WorkRequest},
    request::{Phase, Request, RequestHandle},
};
use core::time::Duration;
use frwr_mempool::{mutant, slab::Handle};

/// Why a request cannot be cancelled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CancelError {
    /// It has ended, or its end is on the way: its event tells how.
    #[error("the request has ended, or its end is on the way")]
    Ended,
    /// The peer was invited to invalidate a key and may still do so, and a second invalidation crashes the host of this device
    /// ([`Quirks::crashes_on_double_invalidate`](crate::provider::Quirks)); on no other one. Abort it in the upper protocol and await
    /// the reply, or disconnect.
    #[error(
        "the peer may still invalidate the request's key, and a second invalidation would crash this device's host; abort it in the upper \
         protocol, or disconnect"
    )]
    PeerMayInvalidate,
}

/// Why a polled wait ended without a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CancelNowError {
    /// Nothing was begun.
    #[error(transparent)]
    Refused(#[from] CancelError),
    /// The deadline passed. The request still ends by itself, by its fence or with its connection.
    #[error("the deadline passed before the keys were known to be dead")]
    Deadline,
    /// So many events wait that the engine takes no completions before some are taken. The request still ends by itself.
    #[error(
        "too many events wait for completions to be taken; take them by next_event, poll, and await the request's own event"
    )]
    EventsWaiting,
    /// The connection ended; the request ends as lost or cancelled once its keys are dead (I15).
    #[error("the connection ended; the request's event follows when its keys are dead")]
    Disconnected,
}

impl<P: Port> Engine<P> {
    /// Opens memory to the peer without a message and waits for the device to confirm: the grant comes with
    /// [`Event::Registered`] and may then travel on any channel (S126 to S133, U2). Those that one flush posts to a connection
    /// are confirmed together, by one completion, unless a refused post may cut a chain
    /// ([`OnPostError::DeregisterAndContinue`](crate::OnPostError)). It stays valid until
    /// [`Engine::cancel`], whose [`Event::Completed`] says that the key is dead. The segments must fit one MR.
    ///
    /// An open key keeps its MR and its request slot. Transfers and messages without memory go on however many are open; but a request
    /// that finds no MR waits until one is closed, and what is submitted behind it waits as well: keep MRs for requests
    /// ([`EngineOptions::registrations`](crate::EngineOptions::registrations)), or cancel before.
    ///
    /// # Errors
    /// As [`Engine::submit`]; [`SubmitError::NotConnected`] before the connection is ready (S131).
    pub fn register_now(
        &mut self,
        connection: ConnectionId,
        chunk: &Chunk<'_>,
        cookie: u64,
        protocol: &mut impl Protocol,
    ) -> Result<RequestHandle, SubmitError> {
        let index = usize::from(connection.index);
        let is_free = self.connections.get(index).is_some_and(|found| found.takes_at_once(connection));
        let waits = !is_free && self.must_wait(connection)?;
        let submission = Submission {
            message: &[],
            inline: &[],
            chunks: core::slice::from_ref(chunk),
            invite_invalidation: false,
            iova_cookie: 0,
            cookie,
        };
        let issued = if waits { Err(Hindrance::Wait) } else { self.register(index, &submission, protocol) };
        match issued {
            Ok(handle) => Ok(RequestHandle(handle)),
            Err(Hindrance::NoSlot) => Err(SubmitError::NoSlot),
            Err(Hindrance::Refused(error)) => Err(error),
            Err(_) => self.park(index, &submission, true, !waits),
        }
    }

    /// A request that is one registration alone.
    fn register(
        &mut self,
        index: usize,
        submission: &Submission<'_>,
        protocol: &mut impl Protocol,
    ) -> Result<Handle, Hindrance> {
        let issue = Issue { payload: Payload::Nothing, ..submission.issue() };
        if let [Chunk { access, segments: [segment] }] = submission.chunks {
            let memory = OneSegment { access: *access, segment };
            match self.issue(index, Seat::New, issue, memory, protocol) {
                Err(Hindrance::Gather) => {}
                issued => return issued,
            }
        }
        let mut pieces = Pieces::default();
        self.gather_submission(index, submission, 1, &mut pieces)?;
        self.issue(index, Seat::New, issue, &pieces, protocol)
    }

    /// A registration was confirmed: a standalone one is open now, and its caller learns of its grant.
    pub(super) fn registered_now(&mut self, slot: u32) {
        let Some((_, request)) = self.requests.at(slot) else { return };
        if !request.is_standalone() || request.phase() != Phase::Posted {
            return;
        }
        let (index, is_open) = (request.connection(), self.grant_of(request).is_some());
        if is_open {
            if self.trace.is_some() {
                self.record_told(index, slot);
            }
            self.events.push_registered(slot);
        }
    }

    /// What the peer may be told of a registration alone, while it is valid, or on its way.
    fn grant_of(&self, request: &Request) -> Option<Grant> {
        request.mrs().first().and_then(|&descriptor| self.pool.get(descriptor)).and_then(Mr::grant)
    }

    /// The event of a registration that was confirmed; `None` where its key died before the caller asked for it: its end is all that is
    /// told then.
    pub(super) fn registered_event(&self, slot: u32) -> Option<Event> {
        let (handle, request) = self.requests.at(slot)?;
        let grant = self.grant_of(request)?;
        Some(Event::Registered { request: RequestHandle(handle), cookie: request.cookie(), grant })
    }

    /// Gives a request up: its keys are invalidated, then it ends as cancelled, whatever the peer does meanwhile (S75). A reply
    /// that still comes is counted and dropped, if [`Protocol::classify`] calls it one
    /// ([`Message::Reply`](crate::Message::Reply)); until then the receive for it is kept, and so is the peer's for the message.
    ///
    /// The peer is not told. If it reads or writes the memory afterwards, its device's access is refused, and the connection ends
    /// as after every failed access; so it does where the reply invalidates the key, whether that comes first or the invalidation
    /// of ours: of two, the second is refused, and of a key that the peer killed nobody can tell whose it was. The request ends as cancelled
    /// all the same, when its keys are dead. To give up what a peer may be working on, and keep the connection, abort it
    /// in the upper protocol and await the reply.
    ///
    /// # Errors
    /// [`CancelError`]; the request goes on.
    pub fn cancel(&mut self, request: RequestHandle) -> Result<(), CancelError> {
        let handle = request.0;
        let found = self.requests.get(handle).ok_or(CancelError::Ended)?;
        if self.is_staged(handle.index(), found) {
            self.unstage(handle);
        }
        let found = self.requests.get_mut(handle).ok_or(CancelError::Ended)?;
        let index = found.connection();
        match found.phase() {
            // K20: what is being fenced is cancelled as well.
            Phase::Fencing if mutant!(K20_cancel) => {}
            Phase::Ended | Phase::Held | Phase::Fencing => return Err(CancelError::Ended),
            // Whoever kills the key second is refused by other devices, and the connection ends. Without memory there is none.
            Phase::Posted
                if found.is_invited()
                    && !found.mrs().is_empty()
                    && self.capabilities.quirks.crashes_on_double_invalidate =>
            {
                return Err(CancelError::PeerMayInvalidate);
            }
            // Its completion is on the way.
            Phase::Posted if found.is_one_way() => return Err(CancelError::Ended),
            Phase::Posted if found.is_standalone() => {
                // The registration is valid, or on the way: the invalidation stands behind it in the same queue.
            }
            // Its message is on the way, and the peer may reply: that takes a receive, which nobody else is promised.
            Phase::Posted => self.connections[index].credits.abandon_reply(),
            Phase::Waiting => {
                found.ends_as(RequestStatus::Cancelled);
                found.fence();
                self.wait_no_more(index, handle.index());
                self.end_if_fenced(handle);
                return Ok(());
            }
            Phase::Queued => {
                self.cancel_queued(request);
                return Ok(());
            }
        }
        found.ends_as(RequestStatus::Cancelled);
        // On a connection that ends nothing is posted any more; the destruction of its MRs is the fence.
        self.fence(handle);
        // K13: told when the invalidations are queued, not when the keys are dead.
        if mutant!(K13_cancel) {
            self.end_request(handle);
        }
        Ok(())
    }

    /// Nothing was posted: everything goes back as after a failed marshal (S85).
    fn cancel_queued(&mut self, request: RequestHandle) {
        let handle = request.0;
        let Some(found) = self.requests.get_mut(handle) else { return };
        found.ends_as(RequestStatus::Cancelled);
        found.fence();
        // K2: what was mapped and never posted is not given back.
        if !mutant!(K2_cancelled) {
            self.take_back(handle);
        }
        self.end_if_fenced(handle);
    }

    /// Cancels a request and polls until its keys are dead: for callers that must have the memory back before they
    /// return (S64, S67, D5). Flushes as well. Other events are kept for [`Engine::next_event`], so call it with few of them
    /// waiting ([`CancelNowError::EventsWaiting`]); re-entrancy is impossible since the engine is borrowed throughout.
    ///
    /// # Errors
    /// [`CancelNowError`]. It never waits for what cannot come (S68, I15).
    pub fn cancel_now(
        &mut self,
        request: RequestHandle,
        deadline: Duration,
        mut clock: impl FnMut() -> Duration,
        protocol: &mut impl Protocol,
    ) -> Result<(), CancelNowError> {
        let connection = self.requests.get(request.0).map(|found| found.connection());
        let index = connection.ok_or(CancelError::Ended)?;
        self.cancel(request)?;
        loop {
            self.flush();
            let ended = self.requests.get(request.0).is_none_or(|found| found.has_ended());
            if ended {
                return Ok(());
            }
            if matches!(self.connections[index].phase(), ConnectionPhase::Ending { .. } | ConnectionPhase::Vacant) {
                return Err(CancelNowError::Disconnected);
            }
            // Polls would find nothing from here on.
            if self.events.is_half_full() {
                return Err(CancelNowError::EventsWaiting);
            }
            let now = clock();
            if now >= deadline {
                return Err(CancelNowError::Deadline);
            }
            self.poll(now, protocol);
        }
    }

    /// Posts the write pad's registration, alone and unsignalled (S90). True if the device took it.
    pub(super) fn post_pad(&mut self, index: usize, registration: WorkRequest) -> Result<(), PostError> {
        let queue_pair = self.connections[index].queue_pair;
        let chain = Chain { requests: core::slice::from_ref(&registration), elements: self.elements.all() };
        self.counters.chain_posted();
        if let Err(error) = self.port.post(queue_pair, chain) {
            self.note_refused(index, error);
            // What the device took runs, whatever it says besides.
            if error.accepted == 0 {
                return Err(error);
            }
        }
        self.counters.pad_registered();
        self.connections[index].sending.pad_posted(registration.token);
        Ok(())
    }
}
