//! The usual request: at most one registration, nothing inline, nothing that it has to wait for.
//!
//! What `stage`, `reserve`, `map_chunks` and `announce` do for all others, with one look-up of each thing. What may fail comes first,
//! and what is worked out is used up before the next thing is: registers are few.

use super::{
    Engine, Submission, SubmitError,
    resolve::locate,
    run::{Run, gather_run},
    stage::{message_request, message_token},
};
use crate::{
    connection::Connection,
    gather::{Resolved, Segment},
    mr::{Grant, Opening},
    protocol::Protocol,
    provider::{Access, ElementRange, Port, ScatterElement},
    request::{Request, RequestHandle, Standing},
};
use core::mem::ManuallyDrop;
use frwr_mempool::{DeviceMemory, device_memory::LINE, slab::Handle};

/// What the one registration of a request covers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Covered<'a> {
    Segment(&'a Segment),
    List(&'a [Segment]),
}

impl<P: Port> Engine<P> {
    /// A request of at most one registration that need not wait. `None`: it takes the long way.
    #[inline(always)]
    pub(super) fn submit_at_once(
        &mut self,
        index: usize,
        submission: &Submission<'_>,
        piece: Option<(Access, Covered<'_>)>,
        protocol: &mut impl Protocol,
    ) -> Option<Result<RequestHandle, SubmitError>> {
        let making = &self.making;
        let connection = self.connections.get_mut(index)?;
        let entries = if piece.is_some() { making.single } else { making.cost.message };
        if !connection.may_send() || !connection.send_queue.can_reserve(entries) {
            return None;
        }
        let mut located = None;
        if let Some((_, Covered::Segment(segment))) = piece {
            let resolved = match locate(connection, segment) {
                Ok(resolved) => resolved,
                Err(error) => return Some(Err(error)),
            };
            if !self.gather.covers(&resolved.element) {
                return None;
            }
            located = Some(resolved);
        }
        let Some(vacant) = self.requests.vacant() else { return Some(Err(SubmitError::NoSlot)) };
        let slot = vacant.index();
        // At most the slots of one core.
        let offset = self.plan.request_offset(slot);
        let elements = ElementRange { first: self.plan.request_element(slot), count: 1 };
        let written = if let Some((access, covered)) = piece {
            let descriptor = connection.idle.pop()?;
            let Some(mr) = self.pool.get_mut(descriptor) else {
                connection.idle.put_back(descriptor);
                return None;
            };
            let first = mr.first_element() as usize;
            let run = match (covered, located) {
                (Covered::List(segments), _) => {
                    let room = self.elements.get_mut(first..).unwrap_or_default();
                    let depth = (self.plan.mr_depth as usize).min(room.len());
                    gather_run(connection, &self.gather, segments, &mut room[..depth])
                }
                (_, Some(Resolved { element, base })) => {
                    if let Some(place) = self.elements.get_mut(first) {
                        *place = element;
                    }
                    Some(Run { address: element.address, bytes: element.length, base, elements: 1 })
                }
                _ => None,
            };
            let Connection { key: name, posted, idle, chain, signaller, registered, send_queue, relief_coming, .. } =
                &mut *connection;
            let (Some(run), Some([registration, send])) = (run, chain.places()) else {
                idle.put_back(descriptor);
                return None;
            };
            let opening = Opening {
                owner: slot,
                bytes: run.bytes,
                base: run.base,
                elements: run.elements,
                access,
                iova: self.iova.apply(run.address, submission.iova_cookie),
                key_mask: making.key_mask,
            };
            let Ok((opened, key)) = mr.open_in_chain(*name, &opening, registration) else {
                idle.put_back(descriptor);
                return None;
            };
            let (first_signalled, signalled) = signaller.single(making.slots_are_short(self.held, *relief_coming));
            registered.add(access, run.bytes, run.elements, key, making.key_mask);
            let position = send_queue.next_position();
            // The message stands behind its registration.
            let (handle, _) = vacant.insert(|| usual(*posted, submission, position + 1, Some(descriptor)));
            let token = message_token(handle);
            *send = message_request(token, elements, false, making.fence);
            // Both are unsignalled as they are made.
            if first_signalled {
                registration.signalled = true;
            }
            if signalled {
                send.signalled = true;
                *relief_coming = true;
            }
            chain.filled(2);
            send_queue.stage_pair(position, opened, token);
            let grant = Grant { key, address: opening.iova, length: run.bytes };
            let done =
                announce(&self.messages, offset, submission.message, &mut self.scratch.message, &grant, protocol);
            (handle, done)
        } else {
            let position = connection.send_queue.next_position();
            let (handle, _) = vacant.insert(|| usual(connection.posted, submission, position, None));
            let token = message_token(handle);
            let pressure = making.slots_are_short(self.held, connection.relief_coming);
            let signalled = connection.signaller.message(1, false, pressure);
            connection.relief_coming |= signalled;
            connection.chain.push(message_request(token, elements, signalled, false));
            connection.send_queue.stage_message(token);
            // The slot's message buffer has message_bytes bytes.
            (handle, write_message(&self.messages, offset, submission.message))
        };
        connection.send_queue.take(entries);
        let (handle, true) = written else { return Some(Err(self.undo(written.0))) };
        self.statistics.requests += 1;
        let address = self.messages.address() + offset as u64;
        // At most message_bytes, which is 32 bit.
        let length = submission.message.len() as u32;
        if account(connection, &mut self.elements, elements.first, address, length) {
            self.dirty.push(index as u16);
        }
        Some(Ok(RequestHandle(handle)))
    }

    /// A request whose message could not be completed.
    #[cold]
    pub(super) fn undo(&mut self, handle: Handle) -> SubmitError {
        self.unstage(handle);
        let pieces = self.requests.get(handle).map_or(0, |request| request.mrs.len() as u32);
        self.reset(handle, pieces);
        self.requests.remove(handle);
        SubmitError::Unannounced
    }

    /// Accounts for a message that stands in its slot's buffer and in the chain.
    pub(super) fn account_message(&mut self, index: usize, slot: u32, length: u32) {
        let address = self.messages.address() + self.plan.request_offset(slot) as u64;
        let element = self.plan.request_element(slot);
        let connection = &mut self.connections[index];
        if account(connection, &mut self.elements, element, address, length) {
            self.dirty.push(index as u16);
        }
    }
}

/// The slot of a request whose message goes into the chain at once.
#[inline(always)]
fn usual(
    posted: Standing,
    submission: &Submission<'_>,
    position: u64,
    descriptor: Option<u32>,
) -> ManuallyDrop<Request> {
    let (cookie, invited) = (submission.cookie, submission.invite_invalidation);
    ManuallyDrop::new(Request::posted(cookie, posted, invited, position, descriptor))
}

/// Accounts for a message at `address` that the next flush posts. True where its connection had no work before.
#[inline(always)]
fn account(
    connection: &mut Connection,
    elements: &mut [ScatterElement],
    element: u32,
    address: u64,
    length: u32,
) -> bool {
    if let Some(place) = elements.get_mut(element as usize) {
        *place = ScatterElement { address, length, lkey: connection.bases[0].lkey };
    }
    connection.peer_receives -= 1;
    connection.awaiting_reply += 1;
    !core::mem::replace(&mut connection.dirty, true)
}

/// Puts a message where the device reads it. False where it has no room.
#[inline]
fn write_message(messages: &DeviceMemory, offset: usize, message: &[u8]) -> bool {
    match message.first_chunk::<LINE>() {
        // The usual size, known to the compiler.
        Some(line) if message.len() == LINE => messages.write_line(offset, line),
        _ => messages.write(offset, message).is_ok(),
    }
}

/// Completes a message with its grant, in memory that no peer reaches, and puts it where the device reads it.
#[inline(always)]
fn announce(
    messages: &DeviceMemory,
    offset: usize,
    message: &[u8],
    scratch: &mut [u8],
    grant: &Grant,
    protocol: &mut impl Protocol,
) -> bool {
    if let Some(line) = message.first_chunk::<LINE>()
        && message.len() == LINE
    {
        let mut line = *line;
        return protocol.announce(&mut line, core::slice::from_ref(grant)).is_ok()
            && messages.write_line(offset, &line);
    }
    // As long as the longest message.
    let Some(scratch) = scratch.get_mut(..message.len()) else { return false };
    scratch.copy_from_slice(message);
    protocol.announce(scratch, core::slice::from_ref(grant)).is_ok() && messages.write(offset, scratch).is_ok()
}
