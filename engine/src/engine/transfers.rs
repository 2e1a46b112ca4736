//! A transfer: cut into RDMA operations in the places of its slot, admitted into the chain at once or behind those that wait; its last work
//! request's completion ends it, its event frees its slot.

use super::{Engine, MAX_ADMITTED_PER_POLL, TransferError, stage::Making};
use crate::{
    connection::Connection,
    elements::{Elements, TransferElements},
    event::{ConnectionId, Event, TransferStatus},
    gather::Segment,
    options::MAX_TRANSFER_ELEMENTS,
    plan::Plan,
    provider::{ElementRange, Operation, Port, ScatterElement, Token, TokenKind},
    reach::{Misplaced, locate},
    transfer::{Kind, Places, RdmaOperation, RdmaOperations, RemoteSegment, Transfer, cut, cut_piece},
    waits::WaitCause,
};
use frwr_mempool::mutant;
use frwr_mempool::slab::Handle;

/// Both sides of a transfer, which have as many bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data<'a> {
    pub(super) local: &'a [Segment],
    pub(super) remote: &'a [RemoteSegment],
}

impl<P: Port> Engine<P> {
    /// Takes a transfer: into the chain at once, or behind those that wait. `reply` is the message of one that responds.
    #[inline(always)]
    pub(super) fn transfer(
        &mut self,
        id: ConnectionId,
        cookie: u64,
        kind: Kind,
        data: Data<'_>,
        reply: &[u8],
    ) -> Result<(), TransferError> {
        match (data.local, data.remote) {
            ([local], [remote]) if local.length == remote.length => {
                self.begin_transfer(id, cookie, kind, Whole { local, remote }, reply)
            }
            (local, remote) => self.transfer_lists(id, cookie, kind, local, remote, reply),
        }
    }

    /// Both sides by themselves, which are in registers then where there is one piece and one range.
    #[inline(never)]
    fn transfer_lists(
        &mut self,
        id: ConnectionId,
        cookie: u64,
        kind: Kind,
        local: &[Segment],
        remote: &[RemoteSegment],
        reply: &[u8],
    ) -> Result<(), TransferError> {
        self.begin_transfer(id, cookie, kind, Data { local, remote }, reply)
    }

    /// A transfer of no bytes.
    #[inline(never)]
    pub(super) fn transfer_nothing(&mut self, id: ConnectionId, cookie: u64) -> Result<(), TransferError> {
        self.begin_transfer(id, cookie, Kind::Write, Nothing, &[])
    }

    #[inline(always)]
    fn begin_transfer(
        &mut self,
        id: ConnectionId,
        cookie: u64,
        kind: Kind,
        data: impl Cut,
        reply: &[u8],
    ) -> Result<(), TransferError> {
        let index = usize::from(id.index);
        let mut connection = self.connections.get_mut(index).ok_or(TransferError::NotConnected)?;
        if !connection.takes_at_once(id) {
            self.prepare_transfer(id)?;
            connection = self.connections.get_mut(index).ok_or(TransferError::NotConnected)?;
        }
        let pressure = self.transfers.are_short(1);
        let with_room = self.transfers.vacant().and_then(|(vacant, operations)| {
            let room = Room::of(vacant.index(), &mut self.elements, operations)?;
            Some((vacant, room))
        });
        let Some((vacant, mut room)) = with_room else {
            self.counters.transfer_without_slot();
            return Err(TransferError::NoSlot);
        };
        let operations = data.cut(connection, kind, &self.plan, &mut room.places)?;
        if !reply.is_empty() {
            // The slot's buffer has message_bytes bytes, which is 32 bit.
            self.messages.write_reply(vacant.index(), reply);
            (room.reply.length, room.reply.lkey) = (reply.len() as u32, connection.message_lkey);
        }
        let asked = Asked { making: &self.making, kind, operations, pressure };
        // Mutant: a transfer passes those that wait.
        let first = connection.waiting().transfers() == 0 || mutant!(transfers_pass);
        // At most MAX_TRANSFER_OPERATIONS.
        let waiting = Transfer::waiting(cookie, id.index, kind, operations as u8);
        if first && let Some(position) = connection.reserve_transfer(asked) {
            let (handle, _) = vacant.insert(|| waiting.posted(position));
            connection.stage_transfer(handle, asked, &room.places);
            self.counters.transfer();
            connection.mark_dirty(&mut self.dirty);
            return Ok(());
        }
        let (handle, _) = vacant.insert(|| waiting);
        self.have_transfer_wait(index, handle, first)
    }

    /// What is in the way of a transfer on a connection that does not take a request at once: that it is not this one, or not ready.
    /// Invalidations that are due stand in front of it, where the order says so.
    #[inline(never)]
    fn prepare_transfer(&mut self, id: ConnectionId) -> Result<(), TransferError> {
        let index = usize::from(id.index);
        let is_this = |found: &Connection| found.key == id && found.is_ready();
        if !self.connections.get(index).is_some_and(is_this) {
            return Err(TransferError::NotConnected);
        }
        self.stage_invalidations_first(index);
        Ok(())
    }

    #[cold]
    fn have_transfer_wait(&mut self, index: usize, handle: Handle, first: bool) -> Result<(), TransferError> {
        let cause = self.transfer_waits_for(handle);
        if cause == WaitCause::PeerReceives && self.connections[index].credits.lack_peer_receives() {
            self.transfers.discard(handle.index());
            return Err(TransferError::NoPeerReceives);
        }
        self.counters.transfer_waits(if first { cause } else { WaitCause::Order });
        let links = &mut self.wait_links;
        self.connections[index].wait(|waiting| waiting.push_transfer(links, handle.index()));
        if !mutant!(K11_transfer) {
            self.chores.ask_attention(index);
        }
        Ok(())
    }

    /// Admits transfers that wait, in order, as far as there is room.
    pub(super) fn admit_waiting_transfers(&mut self, index: usize) -> u32 {
        let mut admitted = 0;
        while admitted < MAX_ADMITTED_PER_POLL as u32 && self.connections[index].is_ready() {
            let Some(slot) = self.connections[index].waiting().first_transfer() else { break };
            if !self.admit_waiting_transfer(index, slot) {
                break;
            }
            let links = &self.wait_links;
            self.connections[index].wait(|waiting| waiting.pop_transfer(links));
            admitted += 1;
        }
        admitted
    }

    fn admit_waiting_transfer(&mut self, index: usize, slot: u32) -> bool {
        self.stage_invalidations_first(index);
        let pressure = self.transfers.are_short(0);
        let Some((handle, transfer, operations)) = self.transfers.cut_at(slot) else { return false };
        let Some(room) = Room::of(slot, &mut self.elements, operations) else {
            return false;
        };
        let connection = &mut self.connections[index];
        let (kind, operations) = (transfer.kind(), transfer.operations());
        let asked = Asked { making: &self.making, kind, operations, pressure };
        let Some(position) = connection.reserve_transfer(asked) else { return false };
        *transfer = transfer.posted(position);
        connection.stage_transfer(handle, asked, &room.places);
        self.counters.transfer();
        self.mark_dirty(index as u16);
        true
    }

    /// All of a transfer succeeded: its slot keeps that until it is told.
    #[inline]
    pub(super) fn transfer_done(&mut self, slot: u32) {
        if self.transfers.end(slot) {
            self.events.push_transferred(slot);
        }
    }

    /// The event of a transfer that succeeded. Frees its slot.
    #[inline]
    pub(super) fn transferred(&mut self, slot: u32) -> Option<Event> {
        self.transfers.tell(slot, TransferStatus::Done)
    }

    /// The connection of a transfer has ended. What succeeded before is told as that.
    pub(super) fn lose_transfer(&mut self, slot: u32) {
        let Some(transfer) = self.transfers.at(slot) else { return };
        // K20: what was told is told once more.
        if transfer.has_ended() && !mutant!(K20_transfer) {
            return;
        }
        let status = if mutant!(lost_transfer_told_done) { TransferStatus::Done } else { TransferStatus::Lost };
        self.events.push_back(transfer.event(status));
        if !mutant!(S10_transfer) {
            self.transfers.discard(slot);
        }
    }
}

/// What a transfer asks for. Known to the compiler for the usual one, as its slot is not.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    making: &'a Making,
    kind: Kind,
    /// RDMA READs or WRITEs, which stand in the places of the slot.
    operations: usize,
    /// See `Sending::stage_reply`.
    pressure: bool,
}

/// The places of a slot.
struct Room<'a> {
    places: Places<'a>,
    /// Of the reply.
    reply: &'a mut ScatterElement,
}

impl<'a> Room<'a> {
    #[inline(always)]
    fn of(slot: u32, elements: &'a mut Elements, operations: &'a mut RdmaOperations) -> Option<Self> {
        let TransferElements { first, data, reply } = elements.of_transfer(slot)?;
        Some(Self { places: Places { first, elements: data, operations }, reply })
    }
}

/// How both sides become RDMA operations, by a type for each shape, so that the compiler writes the one way out for each.
trait Cut {
    /// Fills the places. Returns the number of operations.
    fn cut(
        self,
        connection: &Connection,
        kind: Kind,
        plan: &Plan,
        places: &mut Places<'_>,
    ) -> Result<usize, TransferError>;
}

/// The usual: one piece goes to one range, and nothing is cut.
#[derive(Clone, Copy, Debug)]
struct Whole<'a> {
    local: &'a Segment,
    remote: &'a RemoteSegment,
}

impl Cut for Whole<'_> {
    #[inline(always)]
    fn cut(
        self,
        connection: &Connection,
        kind: Kind,
        _: &Plan,
        places: &mut Places<'_>,
    ) -> Result<usize, TransferError> {
        places.elements[0] = resolve(connection, kind, self.local)?;
        places.operations[0] =
            RdmaOperation { remote: self.remote.remote, local: ElementRange { first: places.first, count: 1 } };
        Ok(1)
    }
}

/// One operation of no bytes.
#[derive(Clone, Copy, Debug)]
struct Nothing;

impl Cut for Nothing {
    #[inline(always)]
    fn cut(self, _: &Connection, _: Kind, _: &Plan, places: &mut Places<'_>) -> Result<usize, TransferError> {
        places.operations[0] = RdmaOperation::NOTHING;
        Ok(1)
    }
}

impl Cut for Data<'_> {
    #[inline(always)]
    fn cut(
        self,
        connection: &Connection,
        kind: Kind,
        plan: &Plan,
        places: &mut Places<'_>,
    ) -> Result<usize, TransferError> {
        let most = match (kind, self.local) {
            (Kind::Fetch | Kind::Write, []) => return Err(TransferError::LengthMismatch),
            (Kind::Fetch, _) => plan.read_elements,
            (Kind::Write | Kind::Respond { .. }, _) => plan.message_elements,
        };
        let Places { first, elements, operations } = places;
        let places = Places { first: *first, elements, operations };
        if let [piece] = self.local {
            return Ok(cut_piece::<Misplaced>(resolve(connection, kind, piece)?, self.remote, places)?);
        }
        Ok(cut(self.local.iter().map(|piece| resolve(connection, kind, piece)), self.remote, most, places)?)
    }
}

#[inline(always)]
fn resolve(connection: &Connection, kind: Kind, piece: &Segment) -> Result<ScatterElement, Misplaced> {
    locate(&connection.reach, piece, kind == Kind::Fetch).map(|reach| reach.element(piece))
}

impl Connection {
    /// Reserves what a transfer needs. Returns where its last work request will stand; `None` where it has to wait.
    #[inline(always)]
    fn reserve_transfer(&mut self, asked: Asked<'_>) -> Option<u64> {
        let Asked { making, kind, operations, .. } = asked;
        let replies = matches!(kind, Kind::Respond { .. });
        // At most MAX_TRANSFER_OPERATIONS.
        let works = operations as u32 + u32::from(replies);
        let entries = if mutant!(S4_reply_entry) { operations as u32 } else { works } * making.cost.message;
        // Without a receive of the peer it is not entries that it waits for, and requests may have those.
        let may_send = !replies || self.credits.has_peer_receive() || mutant!(S4_response);
        if !(may_send && self.sending.reserve(entries)) {
            // Mutant: requests pass a transfer that waits for entries, for ever.
            self.await_entries(may_send && !mutant!(transfer_starves));
            return None;
        }
        self.await_entries(false);
        Some(self.sending.queue().next_position() + u64::from(works) - 1)
    }

    /// Puts the work requests of a transfer, for which all is reserved, into the chain.
    #[inline(always)]
    fn stage_transfer(&mut self, handle: Handle, asked: Asked<'_>, places: &Places<'_>) {
        let Asked { kind, operations: count, pressure, .. } = asked;
        let operations = places.operations.get(..count).unwrap_or_default();
        let token = Token::of(TokenKind::Transfer, handle.index(), handle.generation());
        match kind {
            Kind::Fetch => self.sending.stage_reads(token, operations),
            Kind::Write => self.sending.stage_writes(token, operations),
            Kind::Respond { invalidate } => {
                self.sending.stage_answer(token, operations);
                self.credits.take_for_response();
                let local = ElementRange { first: places.first + MAX_TRANSFER_ELEMENTS as u32, count: 1 };
                let operation = Operation::Send { local, invalidate };
                let token = Token::of(TokenKind::Reply, handle.index(), handle.generation());
                self.sending.stage_reply(token, operation, count as u32, pressure);
            }
        }
    }
}
