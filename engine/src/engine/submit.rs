//! A request from the caller's segments to mapped MRs.

use super::{
    Engine, MAX_ADMITTED_PER_POLL,
    at_once::Covered,
    resolve::{copy_elements, locate, resolve},
};
use crate::{
    event::{ConnectionId, RequestStatus},
    gather::{GatherError, Segment},
    mr::{self, Grant, Mapping},
    options::{MAX_CHUNKS, MAX_MRS_PER_REQUEST},
    protocol::Protocol,
    provider::{Access, Port},
    request::{Kind, Request, RequestHandle, WaitingChunk},
    trace::TracePoint,
    waits::WaitCause,
};
use arrayvec::ArrayVec;
use core::mem::ManuallyDrop;
use frwr_mempool::mutant;
use frwr_mempool::slab::Handle;

/// Grants of one request.
type Grants = ArrayVec<Grant, MAX_MRS_PER_REQUEST>;

/// Segments that one SEND carries beside its message: the elements of the largest SEND, less one (S2).
pub(super) const MAX_INLINE_SEGMENTS: usize = 18;

/// Memory that a request opens to the peer with one right.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// What the peer may do (S32).
    pub access: Access,
    /// Where the memory is.
    pub segments: &'a [Segment],
}

/// A request to submit.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// The message as far as it is known without keys; [`Protocol::announce`] completes it.
    pub message: &'a [u8],
    /// Memory whose bytes follow the message in the same SEND, straight out of the caller's memory. The request then
    /// ends only when the device is done with it as well (S51).
    pub inline: &'a [Segment],
    /// Memory that the request opens to the peer; may be empty.
    pub chunks: &'a [Chunk<'a>],
    /// The message asks the peer to invalidate one of the keys with its reply.
    pub invite_invalidation: bool,
    /// Goes into the base address where the device lets us choose it, such as an XID (S36).
    pub iova_cookie: u32,
    /// Comes back with the request's end.
    pub cookie: u64,
}

/// What keys cover of a list of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Bytes from the front of the list.
    pub bytes: u32,
    /// Keys that they take.
    pub keys: u32,
}

/// Why a request was not taken. The caller keeps everything. [`SubmitError::NoSlot`] is worth another try after a poll,
/// [`SubmitError::NotConnected`] after [`crate::Event::Connected`], [`SubmitError::NoPeerReceives`] after
/// [`crate::Event::Received`], all others never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// All request slots are in use.
    #[error("all request slots of this core are in use; poll, take events and try again")]
    NoSlot,
    /// The connection is not ready, ends, or is a former one (I24, I27).
    #[error("the connection is not ready for requests")]
    NotConnected,
    /// The peer has no receive for a message, and no reply is due that would bring one: what may be sent unasked
    /// ([`ConnectionOptions::peer_receives`](crate::ConnectionOptions::peer_receives), 0 by default) was not said, or is used up by
    /// responses that nobody asked for. Only a message that the peer sends unasked could change that; behind one, submit again.
    #[error(
        "the peer has no receive for the message, and no reply is due that would bring one; say in ConnectionOptions::peer_receives how \
         many messages may be sent unasked, or submit when the peer has sent something"
    )]
    NoPeerReceives,
    /// No receive of the connection is for replies: all are granted to the peer.
    #[error(
        "all receives of the connection are granted to its peer, none is for a reply; raise EngineOptions::queue_depth or receive_depth, \
         or lower ConnectionOptions::granted_receives"
    )]
    NoReplyReceives,
    /// The message is longer than the engine's message buffers, or empty.
    #[error("a message has 1 byte up to the engine's message_bytes")]
    MessageLength,
    /// Too many chunks, segments or inline segments.
    #[error(
        "the request has more than {MAX_CHUNKS} chunks, more segments than EngineOptions::max_segments, or more inline segments than \
         one SEND of the device has elements beside its message ({MAX_INLINE_SEGMENTS} at most); raise max_segments, or split it"
    )]
    TooManySegments,
    /// The segments need more MRs than a request may have, or than its connection will ever have (S43).
    #[error(
        "the segments need more MRs than one request may have: 16, what its connection has, what its send queue holds"
    )]
    TooManyRegistrations,
    /// A segment is empty, or out of its memory's bounds (I18).
    #[error("a segment is not acceptable: {0}")]
    Segment(#[from] GatherError),
    /// A memory is not registered on this connection: it is unknown, or was declared after the connection was opened.
    #[error("a segment's memory is unknown, or was declared after the connection was opened")]
    UnknownMemory,
    /// The message had no room for the keys; everything was undone (S85, S87).
    #[error("the message has no room for the keys")]
    Unannounced,
}

impl<P: Port> Engine<P> {
    /// Takes a request: its memory is opened to the peer, its message sent, and its end reported by
    /// [`crate::Event::Completed`] when every key of it is dead. Nothing is posted before [`Engine::flush`]. A request that finds
    /// too few MRs, send queue entries or receives waits in order, and so does one behind a transfer that waits for entries; one that
    /// needs more MRs than the device makes ends as [`crate::RequestStatus::TooFewRegistrations`].
    ///
    /// # Errors
    /// [`SubmitError`]; nothing is left behind.
    #[inline(always)]
    pub fn submit(
        &mut self,
        connection: ConnectionId,
        submission: &Submission<'_>,
        protocol: &mut impl Protocol,
    ) -> Result<RequestHandle, SubmitError> {
        let index = usize::from(connection.index);
        let at_once = self.connections.get(index).is_some_and(|found| found.takes_at_once(connection));
        if submission.message.is_empty() || submission.message.len() > self.plan.message_bytes as usize {
            return Err(if self.takes_requests(connection) {
                SubmitError::MessageLength
            } else {
                SubmitError::NotConnected
            });
        }
        if at_once && submission.inline.is_empty() {
            let done = match submission.chunks {
                [] => self.submit_at_once(index, submission, None, protocol),
                [Chunk { access, segments: [segment] }] => {
                    let piece = Some((*access, Covered::Segment(segment)));
                    self.submit_at_once(index, submission, piece, protocol)
                }
                _ => None,
            };
            if let Some(done) = done {
                return done;
            }
        }
        if !at_once && !self.takes_requests(connection) {
            return Err(SubmitError::NotConnected);
        }
        // A copy: what is not passed on need not be in memory.
        let submission = *submission;
        let mut refused = SubmitError::NoSlot;
        let handle = self.submit_any(index, &submission, protocol, &mut refused);
        if handle.generation() == 0 { Err(refused) } else { Ok(RequestHandle(handle)) }
    }

    #[cold]
    fn takes_requests(&self, connection: ConnectionId) -> bool {
        self.connections
            .get(usize::from(connection.index))
            .is_some_and(|found| found.key == connection && found.is_ready())
    }

    /// [`Engine::submit`] of whatever it may be, on a ready connection. What it returns fits into a register, so that what its
    /// caller returns need not be in memory: a handle without a generation names nothing, and `refused` says why.
    #[inline(never)]
    fn submit_any(
        &mut self,
        index: usize,
        submission: &Submission<'_>,
        protocol: &mut impl Protocol,
        refused: &mut SubmitError,
    ) -> Handle {
        self.submit_slowly(index, submission, protocol)
            .unwrap_or_else(|error| {
                *refused = error;
                RequestHandle::from_parts(0, 0)
            })
            .0
    }

    fn submit_slowly(
        &mut self,
        index: usize,
        submission: &Submission<'_>,
        protocol: &mut impl Protocol,
    ) -> Result<RequestHandle, SubmitError> {
        if !self.connections[index].invalidations.is_empty() {
            self.stage_invalidations_first(index);
        }
        let waits = self.connections[index].requests_wait();
        if submission.inline.is_empty() && !waits && self.trace.is_none() {
            let most = self.options.max_segments as usize;
            let piece = match submission.chunks {
                [] => Some(None),
                [Chunk { access, segments: [segment] }] => Some(Some((*access, Covered::Segment(segment)))),
                [Chunk { access, segments }] if segments.len() <= most => {
                    Some(Some((*access, Covered::List(segments))))
                }
                _ => None,
            };
            if let Some(piece) = piece
                && let Some(done) = self.submit_at_once(index, submission, piece, protocol)
            {
                return done;
            }
        }
        let handle = self.stage(index as u16, submission)?;
        self.scratch.message[..submission.message.len()].copy_from_slice(submission.message);
        self.admit_or_park(index, handle, submission.chunks, protocol)?;
        Ok(RequestHandle(handle))
    }

    /// How much of the front of `segments` at most `most` keys of one request cover on this connection: what protocols need
    /// to know whose messages have room for few keys.
    ///
    /// # Errors
    /// [`SubmitError::NotConnected`], [`SubmitError::Segment`], [`SubmitError::UnknownMemory`],
    /// [`SubmitError::TooManySegments`].
    pub fn coverage(
        &mut self,
        connection: ConnectionId,
        segments: &[Segment],
        most: u32,
    ) -> Result<Coverage, SubmitError> {
        let index = self.index_of(connection).ok_or(SubmitError::NotConnected)?;
        if segments.len() > self.options.max_segments as usize {
            return Err(SubmitError::TooManySegments);
        }
        self.scratch.clear();
        let connection = &self.connections[index];
        match resolve(connection, &self.gather, segments, &mut self.scratch.resolved) {
            // What found no room stands behind all that one request can open.
            Ok(()) | Err(SubmitError::TooManyRegistrations) => {}
            Err(error) => return Err(error),
        }
        let mut coverage = Coverage { bytes: 0, keys: 0 };
        let mut rest = self.scratch.resolved.as_slice();
        while coverage.keys < most.min(self.plan.max_mrs) && !rest.is_empty() {
            let piece = self.gather.next_piece(rest)?;
            coverage.bytes = coverage.bytes.saturating_add(piece.bytes);
            coverage.keys += 1;
            rest = rest.get(piece.consumed..).unwrap_or(&[]);
        }
        self.scratch.clear();
        Ok(coverage)
    }

    /// Takes a slot for a request and resolves its chunks into the scratch list. One without a message is standalone.
    pub(super) fn stage(&mut self, connection: u16, submission: &Submission<'_>) -> Result<Handle, SubmitError> {
        let inline_room = self.plan.message_elements as usize - 1;
        if submission.chunks.len() > MAX_CHUNKS || submission.inline.len() > inline_room {
            return Err(SubmitError::TooManySegments);
        }
        if !submission.inline.is_empty() {
            self.resolve_inline(connection, submission.inline)?;
        }
        let pieces = self.resolve_chunks(connection, submission.chunks)?;
        if pieces > self.plan.max_mrs as usize {
            return Err(SubmitError::TooManyRegistrations);
        }
        let kind = match (submission.message, submission.inline) {
            ([], _) => Kind::Standalone,
            (_, []) => Kind::Usual,
            _ => Kind::Inline,
        };
        let request = Request::waiting(submission.cookie, connection, submission.invite_invalidation, kind);
        let Some(handle) = self.requests.insert_with(|| ManuallyDrop::new(request)) else {
            self.statistics.requests_without_slot += 1;
            return Err(SubmitError::NoSlot);
        };
        let Some(admission) = self.admissions.get_mut(handle.index() as usize) else { return Err(SubmitError::NoSlot) };
        admission.iova_cookie = submission.iova_cookie;
        // At most message_bytes, which is 32 bit, MAX_MRS_PER_REQUEST, and the elements of one SEND.
        admission.message_length = submission.message.len() as u32;
        (admission.pieces, admission.inline_segments) = (pieces as u8, submission.inline.len() as u8);
        admission.chunks.clear();
        if !submission.inline.is_empty() {
            let element = self.plan.request_element(handle.index()) as usize + 1;
            self.elements[element..][..self.scratch.inline.len()].copy_from_slice(&self.scratch.inline);
        }
        Ok(handle)
    }

    /// Admits a staged request at once, or has it wait behind those that wait already.
    ///
    /// # Errors
    /// [`SubmitError::Unannounced`], or that it would wait for ever; the slot is free again.
    pub(super) fn admit_or_park(
        &mut self,
        index: usize,
        handle: Handle,
        chunks: &[Chunk<'_>],
        protocol: &mut impl Protocol,
    ) -> Result<(), SubmitError> {
        let first = self.connections[index].waiting_requests.is_empty() && self.connections[index].admits_requests();
        if first && self.reserve(handle) {
            return self.open_memory(handle, protocol).inspect_err(|_| {
                self.requests.remove(handle);
            });
        }
        if mutant!(K17_admission) {
            // K17: what finds no room fails, instead of waiting.
            self.requests.remove(handle);
            return Err(SubmitError::NoSlot);
        }
        if let Err(error) = self.may_wait(index, handle) {
            self.requests.remove(handle);
            return Err(error);
        }
        self.park(handle, chunks);
        let cause = if first { self.request_waits_for(handle) } else { WaitCause::Order };
        self.statistics.requests_waited += 1;
        self.statistics.request_waits.add(cause, 1);
        self.connections[index].waiting_requests.push_back(handle.index());
        self.connections[index].note_usual();
        // K11: nobody looks at who waits.
        if !mutant!(K11_request) {
            self.ask_attention();
        }
        Ok(())
    }

    /// Whether something is bound to come that lets a request go.
    fn may_wait(&self, index: usize, handle: Handle) -> Result<(), SubmitError> {
        let connection = &self.connections[index];
        if self.requests.get(handle).is_none_or(|request| request.is_standalone()) {
            Ok(())
        } else if connection.all_reply_receives == 0 && !self.is_held_over(index) {
            Err(SubmitError::NoReplyReceives)
        } else if connection.lacks_peer_receives() {
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
    fn park(&mut self, handle: Handle, chunks: &[Chunk<'_>]) {
        let Some(admission) = self.admissions.get_mut(handle.index() as usize) else { return };
        let message = &self.scratch.message[..admission.message_length as usize];
        // The slot's message buffer has message_bytes bytes.
        let _ = self.messages.write(self.plan.request_offset(handle.index()), message);
        for chunk in chunks {
            // At most max_segments, which is 4096 at most.
            // Mutant: a request that waited opens its memory with more rights than it asked for.
            let access = if mutant!(waited_rights) { Access::RemoteReadWrite } else { chunk.access };
            admission.chunks.push(WaitingChunk { access, segments: chunk.segments.len() as u16 });
        }
        let first = handle.index() as usize * self.options.max_segments as usize;
        let kept = chunks.iter().flat_map(|chunk| chunk.segments);
        for (place, segment) in self.waiting_segments[first..].iter_mut().zip(kept) {
            *place = *segment;
        }
    }

    /// Brings a parked request back into the scratch lists.
    fn unpark(&mut self, handle: Handle) {
        let (Some(request), Some(admission)) =
            (self.requests.get(handle), self.admissions.get(handle.index() as usize))
        else {
            return;
        };
        let message = &mut self.scratch.message[..admission.message_length as usize];
        let _ = self.messages.read(self.plan.request_offset(handle.index()), message);
        let mut first = handle.index() as usize * self.options.max_segments as usize;
        self.scratch.clear();
        let connection = &self.connections[usize::from(request.standing.connection)];
        for chunk in &admission.chunks {
            let segments = &self.waiting_segments[first..first + usize::from(chunk.segments)];
            first += segments.len();
            // They were resolved once, on this very connection.
            let resolved = resolve(connection, &self.gather, segments, &mut self.scratch.resolved);
            debug_assert!(resolved.is_ok(), "{resolved:?}");
            self.scratch.end_chunk(chunk.access);
        }
    }

    /// Fills the scratch list of what follows the message in its SEND.
    fn resolve_inline(&mut self, connection: u16, inline: &[Segment]) -> Result<(), SubmitError> {
        let connection = &self.connections[usize::from(connection)];
        self.scratch.inline.clear();
        for segment in inline {
            // Sent, not registered: its length is no matter of what a registration covers.
            let located = locate(connection, segment)?;
            self.scratch.inline.try_push(located.element).map_err(|_| SubmitError::TooManySegments)?;
        }
        Ok(())
    }

    /// Fills the scratch lists with the addresses of all chunks; returns how many MRs they take.
    fn resolve_chunks(&mut self, connection: u16, chunks: &[Chunk<'_>]) -> Result<usize, SubmitError> {
        let connection = &self.connections[usize::from(connection)];
        self.scratch.clear();
        let (mut pieces, mut segments) = (0, 0);
        for chunk in chunks {
            segments += chunk.segments.len();
            if segments > self.options.max_segments as usize {
                return Err(SubmitError::TooManySegments);
            }
            let first = self.scratch.resolved.len();
            resolve(connection, &self.gather, chunk.segments, &mut self.scratch.resolved)?;
            pieces += match &self.scratch.resolved[first..] {
                // Cut to what one registration covers.
                [_] => 1,
                many => self.gather.count_pieces(many)?,
            };
            self.scratch.end_chunk(chunk.access);
        }
        Ok(pieces)
    }

    /// Reserves MRs, send queue entries and receives for a staged request: all of it, or nothing and it has to wait.
    #[inline]
    pub(super) fn reserve(&mut self, handle: Handle) -> bool {
        let Some(request) = self.requests.get(handle) else { return false };
        let (index, standalone) = (usize::from(request.standing.connection), request.is_standalone());
        let pieces = self.pieces_of(handle);
        let entries = self.entries(pieces, standalone);
        let connection = &mut self.connections[index];
        if connection.idle.len() < pieces {
            if !mutant!(K12_refill) {
                self.lack_mrs(index, pieces);
            }
            return false;
        }
        (standalone || connection.may_send() || mutant!(S4_receives)) && connection.send_queue.reserve(entries)
    }

    /// MRs that the chunks of a staged request take.
    pub(super) fn pieces_of(&self, handle: Handle) -> u32 {
        self.admissions.get(handle.index() as usize).map_or(0, |admission| admission.pieces.into())
    }

    #[cold]
    fn lack_mrs(&mut self, index: usize, pieces: u32) {
        self.record(TracePoint::NoMrs, index as u16, None, pieces);
        self.request_refill(index);
    }

    /// Send queue entries of a request: its message, and a registration and an invalidation for each MR.
    pub(super) fn entries(&self, pieces: u32, standalone: bool) -> u32 {
        let cost = self.capabilities.send_queue_cost;
        // S4, K6: the invalidation, or the registration, is not reserved for.
        let invalidate = if mutant!(S4_invalidation) { 0 } else { cost.invalidate };
        let register = if mutant!(K6_entries) { 0 } else { cost.register };
        u32::from(!standalone) * cost.message + pieces * (register + invalidate)
    }

    /// Maps the memory of a request that everything was reserved for, has its message name the keys, and queues it.
    ///
    /// # Errors
    /// [`SubmitError::Unannounced`]: everything but the slot was given back.
    fn open_memory(&mut self, handle: Handle, protocol: &mut impl Protocol) -> Result<(), SubmitError> {
        let mut grants: Grants = ArrayVec::new();
        if self.map_chunks(handle, &mut grants) && self.announce(handle, protocol, &grants) {
            self.statistics.requests += 1;
            return Ok(());
        }
        if !mutant!(K2_unannounced) {
            self.reset(handle, self.pieces_of(handle));
        }
        Err(SubmitError::Unannounced)
    }

    /// Takes and maps one MR after the other (S25, S28, S43). Each joins the request before it is mapped, so that a
    /// failure is cleaned up by the reset like everything else (S23).
    fn map_chunks(&mut self, handle: Handle, grants: &mut Grants) -> bool {
        let Some(request) = self.requests.get_mut(handle) else { return false };
        let connection = &mut self.connections[usize::from(request.standing.connection)];
        let bits = self.capabilities.rotating_key_bits;
        let cookie = self.admissions.get(handle.index() as usize).map_or(0, |admission| admission.iova_cookie);
        let mut at = 0;
        for chunk in &self.scratch.chunks {
            while at < chunk.end {
                let rest = &self.scratch.resolved[at..chunk.end];
                let Ok(piece) = self.gather.next_piece(rest) else { return false };
                let Some(descriptor) = connection.idle.pop() else { return false };
                request.mrs.push(descriptor);
                let depth = self.pool.depth() as usize;
                let Some(mr) = self.pool.get_mut(descriptor) else { return false };
                let table = mr.first_element() as usize;
                let room = table..table + depth;
                let elements = copy_elements(&mut self.elements[room], &rest[..piece.consumed]);
                let address = rest[0].element.address;
                let mapping = Mapping {
                    bytes: piece.bytes,
                    address,
                    base: rest[0].base,
                    // F11: the elements that were given, where the device merges them into fewer.
                    elements: if mutant!(F11) { piece.entries } else { elements },
                    access: chunk.access,
                    iova: self.iova.apply(address, if mutant!(waited_cookie) { 0 } else { cookie }),
                    rotating_key_bits: bits,
                };
                let Ok(grant) = mr.open(handle.index(), connection.key, &mapping) else { return false };
                grants.push(grant);
                // K8: both counts of a piece are taken for one.
                at += if mutant!(K8) { piece.entries as usize } else { piece.consumed };
            }
        }
        self.record_mapped(handle);
        true
    }

    fn record_mapped(&mut self, handle: Handle) {
        if self.trace.is_none() {
            return;
        }
        let Some((index, mrs)) =
            self.requests.get(handle).map(|request| (request.standing.connection, request.mrs.clone()))
        else {
            return;
        };
        for descriptor in mrs {
            self.record(TracePoint::MrMapped, index, Some(descriptor), 0);
        }
    }

    /// The base address that the peer is told (D13, U11).
    pub(super) fn base_address(&self, address: u64, cookie: u32) -> u64 {
        self.iova.apply(address, cookie)
    }

    /// Completes the message in the scratch buffer, puts it where the device reads it, and has the next flush post it.
    fn announce(&mut self, handle: Handle, protocol: &mut impl Protocol, grants: &[Grant]) -> bool {
        let Some(request) = self.requests.get_mut(handle) else { return false };
        let (index, standalone) = (request.standing.connection, request.is_standalone());
        let length = self.admissions.get(handle.index() as usize).map_or(0, |admission| admission.message_length);
        if !standalone {
            let message = &mut self.scratch.message[..length as usize];
            let offset = self.plan.request_offset(handle.index());
            let named = grants.is_empty() || protocol.announce(message, grants).is_ok();
            if !named || self.messages.write(offset, message).is_err() {
                return false;
            }
        }
        if !self.stage_request(usize::from(index), handle) {
            self.unstage(handle);
            return false;
        }
        if standalone {
            self.mark_dirty(index);
        } else {
            self.account_message(usize::from(index), handle.index(), length);
        }
        true
    }

    /// Undoes an admission that failed: nothing was posted, so nothing has to be (S85 to S87).
    pub(super) fn reset(&mut self, handle: Handle, pieces: u32) {
        let Some(request) = self.requests.get_mut(handle) else { return };
        let mrs = core::mem::take(&mut request.mrs);
        let (index, standalone) = (usize::from(request.standing.connection), request.is_standalone());
        let entries = self.entries(pieces, standalone);
        self.connections[index].send_queue.release(if mutant!(S2_marshal_entries) { 0 } else { entries });
        self.statistics.failed_marshal_count += 1;
        self.record(TracePoint::MarshalFailed, index as u16, None, 0);
        for descriptor in mrs {
            self.give_back_unused(index, descriptor);
        }
    }

    /// An MR that the device never heard of goes back to its free list (S85).
    pub(super) fn give_back_unused(&mut self, index: usize, descriptor: u32) {
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        if mr.give_back().is_ok() || matches!(mr.state(), mr::State::Idle { .. } | mr::State::IdlePending { .. }) {
            if !mutant!(K2_reset) {
                self.connections[index].idle.push(descriptor);
            }
            self.record(TracePoint::MrReset, index as u16, Some(descriptor), 0);
        }
    }

    /// Admits what waits, in order, as far as there is room.
    pub(super) fn admit_waiting(&mut self, index: usize, protocol: &mut impl Protocol) -> u32 {
        let mut admitted = 0;
        while admitted < MAX_ADMITTED_PER_POLL as u32 && self.connections[index].admits_requests() {
            let Some(&slot) = self.connections[index].waiting_requests.front() else { break };
            let Some(handle) = self.requests.handle_at(slot) else { break };
            let pieces = self.admissions.get(slot as usize).map_or(0, |admission| admission.pieces.into());
            if self.reserve(handle) {
                self.unpark(handle);
                if self.open_memory(handle, protocol).is_err() {
                    self.end_unposted(handle, RequestStatus::Unannounced);
                }
            } else if self.never_has(index, pieces) || mutant!(K17_waiting) {
                self.end_unposted(handle, RequestStatus::TooFewRegistrations);
            } else {
                break;
            }
            self.connections[index].waiting_requests.pop_front();
            admitted += 1;
        }
        self.connections[index].note_usual();
        admitted
    }

    fn end_unposted(&mut self, handle: Handle, outcome: RequestStatus) {
        if let Some(request) = self.requests.get_mut(handle) {
            request.outcome = outcome;
        }
        self.end_request(handle);
    }
}
