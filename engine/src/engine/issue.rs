//! The one way of a request into the chain: from pieces that were gathered to work requests, for requests of every shape, at once or
//! after they waited.
//!
//! What is rare is a branch here, and what cannot go now is said to the caller, who has it wait and calls this again. What may fail
//! comes first, and nothing counts before all of it stands: what fails on the way gives everything back.

use super::{
    Engine, SubmitError,
    pieces::{Memory, Opener, Room, Taken},
    refusal::Hindrance,
    stage::message_token,
};
use crate::{
    connection::Connection,
    elements::Elements,
    gather::Segment,
    messages::Messages,
    protocol::{Announcement, Protocol},
    provider::Port,
    reach::{Reach, locate},
    request::{Kind, Request, RequestHandle},
    sending::Asks,
    trace::TracePoint,
};
use frwr_mempool::{
    device_memory::LINE,
    mutant,
    slab::{Handle, Table},
};

/// Where a request's slot comes from. Known to the compiler wherever it is said.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seat {
    /// The next free one.
    New,
    /// It waited in this one.
    Waited(Handle),
}

/// What a request sends. Known to the compiler wherever it is said.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    /// This message.
    Message(&'a [u8]),
    /// The message of so many bytes that stands in its slot's buffer.
    Kept(u32),
    /// None: its registration is waited for.
    Nothing,
}

/// A request, but for its pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issue<'a> {
    pub(super) payload: Payload<'a>,
    /// Memory of the caller that follows the message in its SEND.
    pub(super) inline: &'a [Segment],
    /// Its message has a reply, for which a receive is kept.
    pub(super) answered: bool,
    pub(super) invited: bool,
    pub(super) iova_cookie: u32,
    pub(super) cookie: u64,
}

impl<P: Port> Engine<P> {
    /// Takes a request into the chain of a ready connection in which nothing stands in its way.
    ///
    /// # Errors
    /// [`Hindrance`]; nothing is left behind, and all MRs are idle again. A slot that it waited in is still its own.
    #[inline(always)]
    pub(super) fn issue<M: Memory>(
        &mut self,
        index: usize,
        seat: Seat,
        issue: Issue<'_>,
        memory: M,
        protocol: &mut impl Protocol,
    ) -> Result<Handle, Hindrance> {
        let making = &self.making;
        let Some(connection) = self.connections.get_mut(index) else { return Err(Hindrance::Wait) };
        let sends = !matches!(issue.payload, Payload::Nothing);
        // At most MAX_MRS_PER_REQUEST.
        let entries = making.entries(sends, memory.count() as u32);
        // S4: the peer's receives, or the queue's entries, are not looked at.
        let may_send = !sends || connection.credits.may_send(issue.answered) || mutant!(S4_receives);
        if !(may_send && (connection.sending.queue().can_reserve(entries) || mutant!(S4_entries))) {
            connection.idle.put_back(memory.taken());
            return Err(Hindrance::Wait);
        }
        let vacant = match seat {
            Seat::Waited(_) => None,
            Seat::New => self.requests.vacant(),
        };
        let slot = match (&vacant, seat) {
            (Some(vacant), _) => vacant.index(),
            (None, Seat::Waited(handle)) => handle.index(),
            (None, Seat::New) => {
                self.counters.request_without_slot();
                connection.idle.put_back(memory.taken());
                return Err(Hindrance::NoSlot);
            }
        };
        let inline = match issue.inline {
            [] => 0,
            segments => match place_inline(&connection.reach, segments, &mut self.elements) {
                Ok(elements) => elements,
                Err(hindrance) => {
                    connection.idle.put_back(memory.taken());
                    return Err(hindrance);
                }
            },
        };
        let works = memory.count() + usize::from(sends);
        let Connection { key: name, posted, message_lkey, reach, idle, sending, credits, .. } = &mut *connection;
        let room = Room { reach, idle, elements: &mut self.elements, limits: &self.gather };
        let Some(taken) = memory.take(room) else {
            return Err(Hindrance::Gather);
        };
        // What was just seen to be free bounds the chain.
        let entries = if mutant!(S4_taken) { making.entries(sends, 0) } else { entries };
        let Some(mut staging) = sending.stage(works, entries) else { return Err(Hindrance::Gather) };
        credits.take(sends, issue.answered);
        let last = staging.last_position();
        let made = || {
            let kind = Kind::of(sends, issue.answered, inline > 0);
            let standing = if kind == Kind::Usual { *posted } else { posted.of(kind) };
            let mut request = Request::posted(issue.cookie, standing, issue.invited, last);
            taken.each(|piece| request.add_mr(piece.descriptor));
            request
        };
        let handle = match (vacant, seat) {
            (Some(vacant), _) => vacant.insert(made),
            (None, Seat::Waited(handle)) => {
                self.requests.renew(handle, made);
                handle
            }
            (None, Seat::New) => return Err(Hindrance::NoSlot),
        };
        let (places, first_keys) = staging.places();
        let opener = Opener {
            pool: &mut self.pool,
            connection: *name,
            owner: slot,
            iova: &self.iova,
            iova_cookie: issue.iova_cookie,
            key_mask: making.key_mask,
            first_keys,
        };
        let Some(grants) = taken.open(opener, places) else { return Err(self.undo(seat, handle)) };
        let length = match issue.payload {
            // At most message_bytes, which is 32 bit.
            Payload::Message(message) => message.len() as u32,
            Payload::Kept(length) => length,
            Payload::Nothing => 0,
        };
        taken.each(|piece| staging.registers(piece.access, piece.run.bytes, piece.run.elements));
        self.elements.stage_lists(memory.listed(taken));
        if sends {
            let elements = match inline {
                0 => self.elements.message(slot, length, *message_lkey),
                _ => self.elements.gathered_message(slot, length, *message_lkey, inline),
            };
            staging.put_message(message_token(handle), elements);
            let slots_are_short = self.requests.are_short();
            staging.message(Asks { awaited: inline > 0 || !issue.answered, slots_are_short });
        } else {
            staging.standalone(slot);
        }
        let keys = taken.keys();
        let announced = Announcement::new(RequestHandle(handle), issue.cookie, grants.as_ref(), keys.as_ref());
        if !write_message(&mut self.messages, slot, issue.payload, &announced, protocol) {
            return Err(self.unannounced(index, seat, handle));
        }
        self.counters.request();
        connection.mark_dirty(&mut self.dirty);
        Ok(handle)
    }

    /// The message had no room for the keys: everything goes back, unposted (S23, S85 to S87).
    #[cold]
    fn unannounced(&mut self, index: usize, seat: Seat, handle: Handle) -> Hindrance {
        self.counters.request_unannounced();
        if !mutant!(unannounced_stays_staged) {
            self.unstage(handle);
        }
        // Its elements are free again behind a flush, also where nothing else is to be posted.
        self.mark_dirty(index as u16);
        self.record(TracePoint::MarshalFailed, index as u16, None, 0);
        self.undo(seat, handle)
    }

    /// A request that is not in the chain gives all back but its slot, if it waited in that.
    #[cold]
    fn undo(&mut self, seat: Seat, handle: Handle) -> Hindrance {
        self.take_back(handle);
        // One that waited is told of: it ends as unannounced.
        if matches!(seat, Seat::New) {
            self.requests.discard(handle);
        }
        Hindrance::Refused(SubmitError::Unannounced)
    }

    /// Gives back what a request has that is not in the chain (S85).
    #[cold]
    pub(super) fn take_back(&mut self, handle: Handle) {
        let Some(request) = self.requests.get_mut(handle) else { return };
        let (index, sends) = (request.connection(), !request.is_standalone());
        let (answered, one_way) = (request.awaits_reply(), request.is_one_way());
        let mrs = request.take_mrs();
        let connection = &mut self.connections[index];
        let entries = self.making.entries(sends, mrs.len() as u32);
        connection.sending.release(if mutant!(S2_marshal_entries) { 0 } else { entries });
        connection.credits.give_back(sends, answered, one_way);
        for descriptor in mrs {
            if !mutant!(K2_unannounced) {
                self.give_back_unused(index, descriptor);
            }
        }
    }

    /// An MR that the device never heard of goes back to its free list (S85).
    pub(super) fn give_back_unused(&mut self, index: usize, descriptor: u32) {
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        if mr.give_back().is_ok() {
            if !mutant!(K2_reset) {
                self.connections[index].idle.push(descriptor);
            }
            self.record(TracePoint::MrReset, index as u16, Some(descriptor), 0);
        }
    }
}

/// Notes what follows a message in its SEND: it is sent, not registered, so that its length is no matter of what a registration covers.
/// Returns its elements.
#[inline(never)]
fn place_inline(reach: &Table<Reach>, segments: &[Segment], elements: &mut Elements) -> Result<u32, Hindrance> {
    // Behind the next flush there is room.
    let places = elements.vacant_behind_message().ok_or(Hindrance::Wait)?;
    let places = places.get_mut(..segments.len()).ok_or(SubmitError::TooManySegments)?;
    for (place, segment) in places.iter_mut().zip(segments) {
        *place = locate(reach, segment, false).map_err(SubmitError::from)?.element(segment);
    }
    // No more than one SEND has elements.
    Ok(segments.len() as u32)
}

/// Completes a message with its grants and puts it where the device reads it. False where it has no room for them.
#[inline(always)]
fn write_message(
    messages: &mut Messages,
    slot: u32,
    payload: Payload<'_>,
    announced: &Announcement<'_>,
    protocol: &mut impl Protocol,
) -> bool {
    let mut complete =
        |message: &mut [u8]| announced.grants().is_empty() || protocol.announce(message, announced).is_ok();
    match payload {
        Payload::Message(message) => {
            if let Some(line) = message.first_chunk::<LINE>()
                && message.len() == LINE
            {
                let mut line = *line;
                return complete(&mut line) && messages.write_line(slot, &line);
            }
            messages.write(slot, message, complete)
        }
        Payload::Kept(length) => messages.write_kept(slot, length, complete),
        Payload::Nothing => true,
    }
}
