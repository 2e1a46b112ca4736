//! Requests that wait: what is kept of them, for how long, and how they go on.

use super::{
    Chunk, Engine, MAX_ADMITTED_PER_POLL, Submission, SubmitError,
    issue::{Issue, Payload, Seat},
    pieces::{Gathering, Pieces, Room},
    refusal::Hindrance,
    resolve::resolve,
};
use crate::{
    connection::Connection,
    event::RequestStatus,
    options::MAX_MRS_PER_REQUEST,
    parked::Admission,
    plan::MAX_SEND_ELEMENTS,
    protocol::Protocol,
    provider::Port,
    reach::locate,
    request::{Kind, Request, RequestHandle},
    trace::TracePoint,
    waits::WaitCause,
};
use arrayvec::ArrayVec;
use frwr_mempool::{mutant, slab::Handle};

impl<P: Port> Engine<P> {
    /// Has a request wait. `answered`: its message has a reply. `first`: of its connection's, so that it waits for something itself, and not for its turn alone. One without
    /// a message is of one piece.
    ///
    /// # Errors
    /// [`SubmitError`]: it cannot be, or would wait for ever; nothing is left behind.
    pub(super) fn park(
        &mut self,
        index: usize,
        submission: &Submission<'_>,
        answered: bool,
        first: bool,
    ) -> Result<RequestHandle, SubmitError> {
        let (sends, inline) = (!submission.message.is_empty(), !submission.inline.is_empty());
        self.check_numbers(submission)?;
        let pieces = self.count_pieces(index, submission.chunks)?;
        if pieces > if sends { self.plan.max_mrs } else { 1 } {
            return Err(SubmitError::TooManyRegistrations);
        }
        // K17: what finds no room fails, instead of waiting.
        if mutant!(K17_admission) {
            return Err(SubmitError::NoSlot);
        }
        if sends {
            self.may_wait(index, answered)?;
        }
        let standing = self.connections[index].posted.of(Kind::of(sends, answered, inline));
        let request = Request::waiting(submission.cookie, standing, submission.invite_invalidation);
        let Some(handle) = self.requests.vacant().map(|vacant| vacant.insert(|| request)) else {
            self.counters.request_without_slot();
            return Err(SubmitError::NoSlot);
        };
        if let Err(error) = self.keep(index, handle, submission, pieces) {
            self.requests.discard(handle);
            return Err(error);
        }
        let cause = if first { self.request_waits_for(handle) } else { WaitCause::Order };
        if cause == WaitCause::Registrations {
            self.lack_mrs(index, pieces);
        }
        self.counters.request_waits(cause);
        let links = &mut self.wait_links;
        self.connections[index].wait(|waiting| waiting.push_request(links, handle.index()));
        // K11: nobody looks at who waits.
        if !mutant!(K11_request) {
            self.chores.ask_attention(index);
        }
        Ok(RequestHandle(handle))
    }

    /// How many MRs chunks take.
    fn count_pieces(&mut self, index: usize, chunks: &[Chunk<'_>]) -> Result<u32, SubmitError> {
        let mut pieces = 0;
        for chunk in chunks {
            self.resolved.clear();
            let (reach, writes) = (&self.connections[index].reach, chunk.access.permits_write());
            resolve(reach, &self.gather, chunk.segments, writes, &mut self.resolved)?;
            pieces += self.gather.count_pieces(&self.resolved)?;
        }
        // At most max_segments and what cuts them up.
        Ok(pieces as u32)
    }

    /// Whether something is bound to come that lets a message go.
    fn may_wait(&self, index: usize, answered: bool) -> Result<(), SubmitError> {
        let connection = &self.connections[index];
        if answered && !connection.credits.has_replies() && !self.is_held_over(index) {
            Err(SubmitError::NoReplyReceives)
        } else if connection.credits.lack_peer_receives() {
            Err(SubmitError::NoPeerReceives)
        } else {
            Ok(())
        }
    }

    /// Whether the caller holds receives of a former connection, which will be this one's for replies.
    fn is_held_over(&self, index: usize) -> bool {
        self.shared.is_none() && self.receives.is_held_over(self.connections[index].key.index)
    }

    /// Keeps what a request that waits is made of: its message in its buffer, its segments beside its slot.
    fn keep(
        &mut self,
        index: usize,
        handle: Handle,
        submission: &Submission<'_>,
        pieces: u32,
    ) -> Result<(), SubmitError> {
        let slot = handle.index();
        for segment in submission.inline {
            locate(&self.connections[index].reach, segment, false)?;
        }
        let admission = Admission {
            iova_cookie: submission.iova_cookie,
            // At most message_bytes, which is 32 bit, MAX_MRS_PER_REQUEST, and the elements of one SEND.
            message_length: submission.message.len() as u32,
            pieces: pieces as u8,
            inline_segments: submission.inline.len() as u8,
        };
        let chunks = submission.chunks.iter().map(|chunk| (chunk.access, chunk.segments));
        if !self.parked.keep(slot, admission, chunks, submission.inline) {
            self.counters.request_without_slot();
            return Err(SubmitError::NoSlot);
        }
        // The slot's message buffer has message_bytes bytes.
        self.messages.keep(slot, submission.message);
        Ok(())
    }

    #[cold]
    fn lack_mrs(&mut self, index: usize, pieces: u32) {
        self.record(TracePoint::NoMrs, index as u16, None, pieces);
        if !mutant!(K12_refill) {
            self.request_refill(index);
        }
    }

    /// MRs that the chunks of a request that waits take.
    pub(super) fn pieces_of(&self, handle: Handle) -> u32 {
        self.parked.get(handle.index()).map_or(0, |admission| admission.pieces.into())
    }

    /// Admits what waits, in order, as far as there is room.
    pub(super) fn admit_waiting(&mut self, index: usize, protocol: &mut impl Protocol) -> u32 {
        let mut admitted = 0;
        while admitted < MAX_ADMITTED_PER_POLL as u32 && self.connections[index].admits_requests() {
            let Some(slot) = self.connections[index].waiting().first_request() else { break };
            let Some(handle) = self.requests.handle_at(slot) else { break };
            match self.issue_waiting(index, handle, protocol) {
                Ok(_) => {}
                Err(Hindrance::Refused(_)) => self.end_unposted(handle, RequestStatus::Unannounced),
                Err(_) if self.never_has(index, self.pieces_of(handle)) || mutant!(K17_waiting) => {
                    self.end_unposted(handle, RequestStatus::TooFewRegistrations);
                }
                Err(_) => break,
            }
            self.wait_no_more(index, slot);
            admitted += 1;
        }
        admitted
    }

    /// A request of a connection waits no more.
    pub(super) fn wait_no_more(&mut self, index: usize, slot: u32) {
        let links = &mut self.wait_links;
        self.connections[index].wait(|waiting| waiting.remove_request(links, slot));
        self.parked.release(slot);
    }

    /// Has a request go on that waited.
    fn issue_waiting(
        &mut self,
        index: usize,
        handle: Handle,
        protocol: &mut impl Protocol,
    ) -> Result<Handle, Hindrance> {
        let wanted = self.pieces_of(handle);
        if self.connections[index].idle.len() < wanted {
            self.lack_mrs(index, wanted);
            return Err(Hindrance::Wait);
        }
        self.stage_invalidations_first(index);
        let (Some(request), Some(admission)) = (self.requests.get(handle), self.parked.get(handle.index())) else {
            return Err(Hindrance::Wait);
        };
        // A copy, since all else changes meanwhile. No more than one SEND has elements, by `check_numbers`.
        let inline: ArrayVec<_, { MAX_SEND_ELEMENTS as usize }> = self.parked.inline(handle.index()).collect();
        let issue = Issue {
            payload: Payload::Kept(admission.message_length),
            inline: &inline,
            answered: request.awaits_reply(),
            invited: request.is_invited(),
            iova_cookie: if mutant!(waited_cookie) { 0 } else { admission.iova_cookie },
            cookie: request.cookie(),
        };
        let is_standalone = request.is_standalone();
        let mut pieces = Pieces::default();
        let Connection { reach, idle, .. } = &mut self.connections[index];
        let gathering = Gathering {
            room: Room { reach, idle, elements: &mut self.elements, limits: &self.gather },
            resolved: &mut self.resolved,
            most: MAX_MRS_PER_REQUEST,
            pieces: &mut pieces,
        };
        gathering.gather(self.parked.chunks(handle.index()))?;
        let seat = Seat::Waited(handle);
        if is_standalone {
            self.issue(index, seat, Issue { payload: Payload::Nothing, ..issue }, &pieces, protocol)
        } else {
            self.issue(index, seat, issue, &pieces, protocol)
        }
    }

    pub(super) fn end_unposted(&mut self, handle: Handle, outcome: RequestStatus) {
        if let Some(request) = self.requests.get_mut(handle) {
            request.ends_as(outcome);
        }
        self.end_request(handle);
    }
}
