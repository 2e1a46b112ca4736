//! A request from the caller's segments to mapped MRs.

use super::{Engine, MAX_ADMITTED_PER_POLL};
use crate::{
    event::{ConnectionId, Event, RequestStatus},
    gather::{self, GatherError, Segment},
    mr::{self, Grant, Mapping},
    options::{MAX_CHUNKS, MAX_MRS_PER_REQUEST},
    protocol::Protocol,
    provider::{Access, Port, ScatterElement},
    request::{Phase, Request, RequestHandle, WaitingChunk},
    trace::TracePoint,
};
use arrayvec::ArrayVec;
use frwr_mempool::slab::Handle;

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

/// Why a request was not taken. The caller keeps everything; the first three are worth another try after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// All request slots are in use.
    #[error("all request slots of this core are in use; poll, take events and try again")]
    NoSlot,
    /// The connection is not ready, ends, or is a former one (I24, I27).
    #[error("the connection is not ready for requests")]
    NotConnected,
    /// The message is longer than the engine's message buffers, or empty.
    #[error("a message has 1 byte up to the engine's message_bytes")]
    MessageLength,
    /// Too many chunks, segments or inline segments.
    #[error("the request has more chunks or segments than the engine's options allow")]
    TooManySegments,
    /// The segments need more MRs than a request may have, or than its connection will ever have (S43).
    #[error(
        "the segments need more MRs than one request may have: 16, what its connection has, what its send queue holds"
    )]
    TooManyRegistrations,
    /// A segment is empty, out of its memory's bounds, or its memory was declared after the connection opened (I18).
    #[error("a segment is not acceptable: {0}")]
    Segment(#[from] GatherError),
    /// A memory is not registered on this connection.
    #[error("a segment's memory is unknown, or was declared after the connection was opened")]
    UnknownMemory,
    /// The message had no room for the keys; everything was undone (S85, S87).
    #[error("the message has no room for the keys")]
    Unannounced,
}

impl<P: Port> Engine<P> {
    /// Takes a request: its memory is opened to the peer, its message sent, and its end reported by
    /// [`Event::Completed`] when every key of it is dead. Nothing is posted before [`Engine::flush`]. A request that finds
    /// too few MRs, send queue entries or receives waits in order.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing is left behind.
    pub fn submit(
        &mut self,
        connection: ConnectionId,
        submission: &Submission<'_>,
        protocol: &mut impl Protocol,
    ) -> Result<RequestHandle, SubmitError> {
        let index = self.index_of(connection).ok_or(SubmitError::NotConnected)?;
        if !self.connections[index].is_ready() {
            return Err(SubmitError::NotConnected);
        }
        if submission.message.is_empty() || submission.message.len() > self.plan.message_bytes as usize {
            return Err(SubmitError::MessageLength);
        }
        let mut request = Request::new(connection.index, submission.cookie);
        request.iova_cookie = submission.iova_cookie;
        // At most message_bytes, which is 32 bit.
        request.message_length = submission.message.len() as u32;
        request.invited = submission.invite_invalidation;
        let handle = self.stage(request, submission)?;
        let offset = self.plan.request_offset(handle.index());
        // The slot's message buffer has message_bytes bytes.
        let _ = self.memories[0].write(offset, submission.message);
        let first = self.connections[index].waiting_requests.is_empty();
        match if first { self.admit(handle, protocol) } else { Ok(false) } {
            Ok(true) => return Ok(RequestHandle(handle)),
            Ok(false) => {}
            Err(error) => {
                self.requests.remove(handle);
                return Err(error);
            }
        }
        self.connections[index].waiting_requests.push_back(handle.index());
        self.statistics.requests_waited += 1;
        Ok(RequestHandle(handle))
    }

    /// Takes a slot and notes what is to be mapped, after everything about it was checked.
    pub(super) fn stage(&mut self, mut request: Request, submission: &Submission<'_>) -> Result<Handle, SubmitError> {
        let connection = request.connection;
        let segments = submission.chunks.iter().map(|chunk| chunk.segments.len()).sum::<usize>();
        let inline_room = self.plan.message_elements as usize - 1;
        if submission.chunks.len() > MAX_CHUNKS
            || segments > self.options.max_segments as usize
            || submission.inline.len() > inline_room
        {
            return Err(SubmitError::TooManySegments);
        }
        let mut pieces = 0;
        for chunk in submission.chunks {
            self.resolve(connection, chunk.segments)?;
            pieces += gather::count_pieces(self.rules, &self.scratch.resolved)?;
            // max_segments is 32 bit and was compared above; a chunk's share of it fits 16 bits (4096 at most).
            request.chunks.push(WaitingChunk { access: chunk.access, segments: chunk.segments.len() as u16 });
        }
        if pieces > self.plan.max_mrs as usize {
            return Err(SubmitError::TooManyRegistrations);
        }
        self.resolve_inline(connection, submission.inline)?;
        request.awaits_message = !submission.inline.is_empty();
        request.inline_segments = submission.inline.len() as u8;
        let handle = self.requests.insert(request).map_err(|_| SubmitError::NoSlot)?;
        let first = handle.index() as usize * self.options.max_segments as usize;
        let kept = submission.chunks.iter().flat_map(|chunk| chunk.segments);
        for (place, segment) in self.waiting_segments[first..].iter_mut().zip(kept) {
            *place = *segment;
        }
        let element = self.plan.request_element(handle.index()) as usize + 1;
        for (place, resolved) in self.elements[element..].iter_mut().zip(&self.scratch.resolved) {
            *place = resolved.element;
        }
        Ok(handle)
    }

    fn resolve_inline(&mut self, connection: u16, inline: &[Segment]) -> Result<(), SubmitError> {
        if inline.is_empty() {
            self.scratch.resolved.clear();
            return Ok(());
        }
        self.resolve(connection, inline)?;
        // A cut segment would take elements that the slot does not have.
        if self.scratch.resolved.len() == inline.len() { Ok(()) } else { Err(SubmitError::TooManySegments) }
    }

    /// Fills the scratch list with the addresses of segments, cut where one registration ends.
    pub(super) fn resolve(&mut self, connection: u16, segments: &[Segment]) -> Result<(), SubmitError> {
        self.scratch.resolved.clear();
        let connection = &self.connections[usize::from(connection)];
        for segment in segments {
            let memory = self.memories.get(usize::from(segment.memory.0)).ok_or(SubmitError::UnknownMemory)?;
            let key = connection.base(segment.memory).ok_or(SubmitError::UnknownMemory)?;
            let base = key.base.ok_or(SubmitError::UnknownMemory)?;
            let whole = segment.resolve(memory.address(), memory.len() as u64, base, key.lkey)?;
            let mut rest = Some(whole);
            while let Some(part) = rest {
                let (front, behind) = gather::cut(self.rules, part)?;
                if self.scratch.resolved.len() == self.scratch.resolved.capacity() {
                    return Err(SubmitError::TooManyRegistrations);
                }
                self.scratch.resolved.push(front);
                rest = behind;
            }
        }
        Ok(())
    }

    /// Gives a staged request its MRs, entries and receives, all or none. False where it has to wait.
    ///
    /// # Errors
    /// [`SubmitError::Unannounced`]: everything but the slot was given back.
    pub(super) fn admit(&mut self, handle: Handle, protocol: &mut impl Protocol) -> Result<bool, SubmitError> {
        let Some(request) = self.requests.get(handle) else { return Ok(false) };
        let index = usize::from(request.connection);
        let (standalone, message) = (request.standalone, u32::from(!request.standalone));
        let chunks = request.chunks.clone();
        let pieces = self.pieces_of(handle, &chunks);
        let cost = self.capabilities.send_queue_cost;
        let connection = &mut self.connections[index];
        let own_receives = connection.receives_posted + connection.receives.len() as u32;
        let receives = standalone || (connection.peer_receives > 0 && own_receives > connection.awaiting_reply);
        if !receives || connection.idle.len() < pieces {
            if connection.idle.len() < pieces {
                self.record(TracePoint::NoMrs, index as u16, None, pieces);
                self.request_refill(index);
            }
            return Ok(false);
        }
        if !connection.send_queue.reserve(message * cost.message + pieces * (cost.register + cost.invalidate)) {
            return Ok(false);
        }
        let mut grants: ArrayVec<Grant, MAX_MRS_PER_REQUEST> = ArrayVec::new();
        let mut mapped = self.map_chunks(handle, &chunks, &mut grants);
        if mapped && !standalone {
            mapped = self.announce(handle, protocol, &grants);
        }
        if !mapped {
            self.reset(handle, message * cost.message + pieces * (cost.register + cost.invalidate));
            return Err(SubmitError::Unannounced);
        }
        self.queue(handle, pieces * cost.invalidate);
        Ok(true)
    }

    /// MRs that a staged request needs. Its segments were checked when it was staged.
    pub(super) fn pieces_of(&mut self, handle: Handle, chunks: &ArrayVec<WaitingChunk, MAX_CHUNKS>) -> u32 {
        let Some(connection) = self.requests.get(handle).map(|request| request.connection) else { return 0 };
        let mut first = handle.index() as usize * self.options.max_segments as usize;
        let mut pieces = 0;
        for chunk in chunks {
            let segments = usize::from(chunk.segments);
            if segments == 1 {
                pieces += self.resolve_waiting(connection, first, segments);
            } else {
                self.resolve_waiting(connection, first, segments);
                pieces += gather::count_pieces(self.rules, &self.scratch.resolved).unwrap_or(0) as u32;
            }
            first += segments;
        }
        pieces
    }

    /// Resolves a run of kept segments; returns how many parts they were cut into.
    fn resolve_waiting(&mut self, connection: u16, first: usize, count: usize) -> u32 {
        self.scratch.resolved.clear();
        let connection = &self.connections[usize::from(connection)];
        for segment in &self.waiting_segments[first..first + count] {
            let Some(memory) = self.memories.get(usize::from(segment.memory.0)) else { return 0 };
            let Some(key) = connection.base(segment.memory) else { return 0 };
            let Some(base) = key.base else { return 0 };
            let mut rest = segment.resolve(memory.address(), memory.len() as u64, base, key.lkey).ok();
            while let Some(part) = rest {
                let Ok((front, behind)) = gather::cut(self.rules, part) else { return 0 };
                self.scratch.resolved.push(front);
                rest = behind;
            }
        }
        self.scratch.resolved.len() as u32
    }

    /// Takes and maps one MR after the other (S25, S28, S43).
    fn map_chunks(
        &mut self,
        handle: Handle,
        chunks: &ArrayVec<WaitingChunk, MAX_CHUNKS>,
        grants: &mut ArrayVec<Grant, MAX_MRS_PER_REQUEST>,
    ) -> bool {
        let Some(connection) = self.requests.get(handle).map(|request| request.connection) else { return false };
        let mut first = handle.index() as usize * self.options.max_segments as usize;
        for chunk in chunks {
            self.resolve_waiting(connection, first, usize::from(chunk.segments));
            first += usize::from(chunk.segments);
            let mut at = 0;
            while at < self.scratch.resolved.len() {
                let Some((grant, consumed)) = self.map_piece(handle, connection, chunk.access, at) else {
                    return false;
                };
                grants.push(grant);
                at += consumed;
            }
        }
        true
    }

    /// One MR from its free list to Mapped. The MR joins the request before it is mapped, so that a failure is cleaned up
    /// by the reset like everything else (S23).
    fn map_piece(&mut self, handle: Handle, connection: u16, access: Access, at: usize) -> Option<(Grant, usize)> {
        let piece = gather::next_piece(self.rules, &self.scratch.resolved[at..]).ok()?;
        let entry = &mut self.connections[usize::from(connection)];
        let descriptor = self.pool.pop(&mut entry.idle)?;
        let request = self.requests.get_mut(handle)?;
        let (key, iova_cookie) = (entry.key, request.iova_cookie);
        request.mrs.try_push(descriptor).ok()?;
        let part = &self.scratch.resolved[at..at + piece.consumed];
        let first = part.first()?;
        let table = self.pool.first_element(descriptor) as usize;
        for (place, resolved) in self.elements[table..].iter_mut().zip(part) {
            *place = resolved.element;
        }
        let address = first.element.address;
        let mapping = Mapping {
            bytes: piece.bytes,
            address,
            base: first.base,
            elements: piece.consumed as u32,
            access,
            iova: self.base_address(address, iova_cookie),
            rotating_key_bits: self.capabilities.rotating_key_bits,
        };
        let mr = self.pool.get_mut(descriptor)?;
        mr.take(handle.index(), key).ok()?;
        let grant = mr.map(&mapping).ok()?;
        self.record(TracePoint::MrMapped, connection, Some(descriptor), piece.bytes);
        Some((grant, piece.consumed))
    }

    /// The base address that the peer is told (D13, U11).
    pub(super) fn base_address(&self, address: u64, cookie: u32) -> u64 {
        mr::iova(self.options.iova, self.capabilities.base_address, address, cookie)
    }

    fn announce(&mut self, handle: Handle, protocol: &mut impl Protocol, grants: &[Grant]) -> bool {
        let Some(request) = self.requests.get(handle) else { return false };
        let offset = self.plan.request_offset(handle.index());
        let message = &mut self.scratch.message[..request.message_length as usize];
        if grants.is_empty() {
            return true;
        }
        self.memories[0].read(offset, message).is_ok()
            && protocol.announce(message, grants).is_ok()
            && self.memories[0].write(offset, message).is_ok()
    }

    /// Undoes an admission that failed: nothing was posted, so nothing has to be (S85 to S87).
    fn reset(&mut self, handle: Handle, entries: u32) {
        let Some(request) = self.requests.get_mut(handle) else { return };
        let mrs = core::mem::take(&mut request.mrs);
        let index = usize::from(request.connection);
        self.connections[index].send_queue.release(entries);
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
            self.pool.put(&mut self.connections[index].idle, descriptor);
            self.record(TracePoint::MrReset, index as u16, Some(descriptor), 0);
        }
    }

    /// An admitted request is posted by the next flush.
    fn queue(&mut self, handle: Handle, invalidate_entries: u32) {
        let Some(request) = self.requests.get_mut(handle) else { return };
        request.phase = Phase::Queued;
        request.invalidate_entries = invalidate_entries;
        let (index, standalone) = (request.connection, request.standalone);
        let length = request.message_length;
        let element = self.plan.request_element(handle.index()) as usize;
        let connection = &mut self.connections[usize::from(index)];
        if !standalone {
            connection.peer_receives -= 1;
            connection.awaiting_reply += 1;
            self.elements[element] = ScatterElement {
                address: self.memories[0].address() + self.plan.request_offset(handle.index()) as u64,
                length,
                lkey: connection.bases[0].lkey,
            };
        }
        connection.messages.push_back(handle.index());
        self.statistics.requests += 1;
        self.mark_dirty(index);
    }

    /// Admits what waits, in order, as far as there is room.
    pub(super) fn admit_waiting(&mut self, index: usize, protocol: &mut impl Protocol) -> u32 {
        let mut admitted = 0;
        while admitted < MAX_ADMITTED_PER_POLL as u32 && self.connections[index].is_ready() {
            let Some(&slot) = self.connections[index].waiting_requests.front() else { break };
            let Some(handle) = self.requests.handle_at(slot) else { break };
            match self.admit(handle, protocol) {
                Ok(false) => break,
                Ok(true) => {}
                Err(_) => self.end_unannounced(handle),
            }
            self.connections[index].waiting_requests.pop_front();
            admitted += 1;
        }
        admitted
    }

    fn end_unannounced(&mut self, handle: Handle) {
        let Some(request) = self.requests.get_mut(handle) else { return };
        request.phase = Phase::Ended;
        request.hold.event = true;
        let cookie = request.cookie;
        self.statistics.requests_ended += 1;
        self.events.push_back(Event::Completed {
            request: RequestHandle(handle),
            cookie,
            status: RequestStatus::Unannounced,
        });
    }
}
