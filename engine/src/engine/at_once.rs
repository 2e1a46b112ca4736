//! The usual request: at most one registration, nothing inline, nothing that it has to wait for.
//!
//! What `stage`, `reserve`, `map_chunks` and `announce` do for all others, with one look-up of each thing. What may fail comes first,
//! and what is worked out is used up before the next thing is: registers are few.

use super::{
    Engine, Submission, SubmitError,
    resolve::locate_whole,
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
use frwr_mempool::mutant;
use frwr_mempool::{
    DeviceMemory,
    device_memory::{DeviceTable, LINE},
    slab::Handle,
};

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
        // S4: the peer's receives, or the queue's entries, are not looked at here.
        let may_send = connection.may_send() || mutant!(S4_receives_at_once);
        let has_room = connection.send_queue.can_reserve(entries) || mutant!(S4_at_once);
        if !may_send || !has_room {
            return None;
        }
        let located = match piece {
            Some((_, Covered::Segment(segment))) => Some(locate_whole(connection, segment)?),
            _ => None,
        };
        let Some(vacant) = self.requests.vacant() else {
            self.statistics.requests_without_slot += 1;
            return Some(Err(SubmitError::NoSlot));
        };
        let slot = vacant.index();
        // At most message_bytes, which is 32 bit.
        let length = submission.message.len() as u32;
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
            let Connection {
                key: name,
                posted,
                bases,
                idle,
                chain,
                signaller,
                registered,
                send_queue,
                relief_coming,
                ..
            } = &mut *connection;
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
                iova: self.iova.apply(run.address, if mutant!(cookie_at_once) { 0 } else { submission.iova_cookie }),
                key_mask: making.key_mask,
            };
            let first_keys = &mut registered.first_keys;
            let Ok((opened, key)) = mr.open_in_chain(*name, &opening, registration, first_keys) else {
                idle.put_back(descriptor);
                return None;
            };
            let position = send_queue.next_position();
            // The message stands behind its registration.
            let (handle, _) = vacant.insert(|| usual(*posted, submission, position + 1, Some(descriptor)));
            let token = message_token(handle);
            // Mutant: the place of the message is that of its registration.
            send_queue.stage_pair(position, opened, if mutant!(F7_pair) { opened } else { token });
            let elements = message_element(&mut self.elements, self.plan.request_element(slot), length, bases[0].lkey);
            // K19: the message overtakes its registration.
            *send = message_request(token, elements, false, making.fence && !mutant!(K19_at_once));
            registered.add(access, run.bytes, run.elements);
            let pressure = making.slots_are_short(self.held, *relief_coming);
            // Both are unsignalled as they are made.
            if !signaller.skips_single(pressure) {
                if signaller.counts_by_policy() {
                    (registration.signalled, send.signalled) = signaller.single_by_policy(pressure);
                    *relief_coming |= send.signalled;
                } else {
                    signaller.signalled();
                    (send.signalled, *relief_coming) = (true, true);
                }
            }
            chain.filled(2);
            let grant = Grant { key, address: opening.iova, length: run.bytes };
            let done = announce(
                &self.messages,
                &self.request_messages,
                slot,
                submission.message,
                &mut self.scratch.message,
                &grant,
                protocol,
            );
            (handle, done)
        } else {
            let position = connection.send_queue.next_position();
            let (handle, _) = vacant.insert(|| usual(connection.posted, submission, position, None));
            let token = message_token(handle);
            let pressure = making.slots_are_short(self.held, connection.relief_coming);
            let signalled = connection.signaller.message(1, false, pressure);
            connection.relief_coming |= signalled;
            let lkey = connection.bases[0].lkey;
            let elements = message_element(&mut self.elements, self.plan.request_element(slot), length, lkey);
            connection.chain.push(message_request(token, elements, signalled, false));
            connection.send_queue.stage_message(token);
            (handle, write_message(&self.messages, &self.request_messages, slot, submission.message))
        };
        // The same once more: so many values are at hand meanwhile.
        connection.send_queue.take(if piece.is_some() && !mutant!(S4_taken) {
            making.single
        } else {
            making.cost.message
        });
        let (handle, true) = written else { return Some(Err(self.undo(written.0))) };
        self.statistics.requests += 1;
        if account(connection) {
            self.dirty.push(index as u16);
        }
        Some(Ok(RequestHandle(handle)))
    }

    /// A request whose message could not be completed.
    #[cold]
    pub(super) fn undo(&mut self, handle: Handle) -> SubmitError {
        if !mutant!(unannounced_stays_staged) {
            self.unstage(handle);
        }
        let pieces = self.requests.get(handle).map_or(0, |request| request.mrs.len() as u32);
        self.reset(handle, pieces);
        self.requests.remove(handle);
        SubmitError::Unannounced
    }

    /// Accounts for a message that stands in its slot's buffer and in the chain.
    pub(super) fn account_message(&mut self, index: usize, slot: u32, length: u32) {
        let connection = &mut self.connections[index];
        message_element(&mut self.elements, self.plan.request_element(slot), length, connection.bases[0].lkey);
        if account(connection) {
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

/// The element of a message of so many bytes, made in its place in the table; its address stands there from the start.
#[inline(always)]
pub(super) fn message_element(elements: &mut [ScatterElement], at: u32, length: u32, lkey: u32) -> ElementRange {
    if let Some(place) = elements.get_mut(at as usize) {
        (place.length, place.lkey) = (length, lkey);
    }
    ElementRange { first: at, count: 1 }
}

/// Accounts for a message that the next flush posts. True where its connection had no work before.
#[inline(always)]
fn account(connection: &mut Connection) -> bool {
    // S4: the peer's receive, or ours, is used without being counted.
    connection.peer_receives -= u64::from(!mutant!(S4_peer_receive));
    connection.reply_receives -= u32::from(!mutant!(S4_reply_receive));
    !core::mem::replace(&mut connection.dirty, true)
}

/// Puts a message where the device reads it. False where it has no room.
#[inline]
fn write_message(memory: &DeviceMemory, messages: &DeviceTable, slot: u32, message: &[u8]) -> bool {
    match message.first_chunk::<LINE>() {
        // The usual size, known to the compiler.
        Some(line) if message.len() == LINE => messages.write_line(slot, line),
        _ => write_whole(memory, messages, slot, message),
    }
}

/// The same of any length up to `message_bytes`, which the slot's entry has.
fn write_whole(memory: &DeviceMemory, messages: &DeviceTable, slot: u32, message: &[u8]) -> bool {
    // The table lies in the memory.
    let offset = messages.address(slot) - memory.address();
    memory.write(offset as usize, message).is_ok()
}

/// Completes a message with its grant, in memory that no peer reaches, and puts it where the device reads it.
#[inline(always)]
fn announce(
    memory: &DeviceMemory,
    messages: &DeviceTable,
    slot: u32,
    message: &[u8],
    scratch: &mut [u8],
    grant: &Grant,
    protocol: &mut impl Protocol,
) -> bool {
    if let Some(line) = message.first_chunk::<LINE>()
        && message.len() == LINE
    {
        let mut line = *line;
        return protocol.announce(&mut line, core::slice::from_ref(grant)).is_ok() && messages.write_line(slot, &line);
    }
    // As long as the longest message.
    let Some(scratch) = scratch.get_mut(..message.len()) else { return false };
    scratch.copy_from_slice(message);
    protocol.announce(scratch, core::slice::from_ref(grant)).is_ok() && write_whole(memory, messages, slot, scratch)
}
