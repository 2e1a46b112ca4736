//! The responder's half: RDMA READs from and WRITEs to what a peer granted, and the reply behind them.

use super::{Engine, MAX_ADMITTED_PER_POLL};
use crate::{
    event::{ConnectionId, Event, TransferStatus},
    gather::{GatherError, Segment},
    options::MAX_TRANSFER_OPERATIONS,
    provider::{Port, ScatterElement},
    transfer::{CutError, Kind, Phase, RemoteSegment, Transfer, cut, cut_piece},
};
use frwr_mempool::slab::Handle;

/// RDMA READs into our memory.
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest<'a> {
    /// Where the data goes.
    pub local: &'a [Segment],
    /// Where it comes from; as many bytes.
    pub remote: &'a [RemoteSegment],
    /// Comes back with [`Event::Fetched`].
    pub cookie: u64,
}

/// RDMA WRITEs out of our memory, of which the peer is not told.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequest<'a> {
    /// Where the data comes from.
    pub local: &'a [Segment],
    /// Where it goes; as many bytes.
    pub remote: &'a [RemoteSegment],
    /// Comes back with [`Event::Written`].
    pub cookie: u64,
}

/// RDMA WRITEs out of our memory, and the reply that tells the peer of them.
#[derive(Clone, Copy, Debug)]
pub struct ResponseRequest<'a> {
    /// Where the data comes from.
    pub local: &'a [Segment],
    /// Where it goes; as many bytes.
    pub remote: &'a [RemoteSegment],
    /// The reply.
    pub message: &'a [u8],
    /// The peer's key that its device invalidates when the reply arrives (SEND_WITH_INV).
    pub invalidate: Option<u32>,
    /// Comes back with [`Event::Responded`].
    pub cookie: u64,
}

/// Why a transfer was not taken. The first is worth another try after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// All transfer slots are in use.
    #[error("all transfer slots of this core are in use; poll, take events and try again")]
    NoSlot,
    /// The connection is not ready, ends, or is a former one.
    #[error("the connection is not ready for transfers")]
    NotConnected,
    /// The reply is longer than the engine's message buffers, or empty.
    #[error("a reply has 1 byte up to the engine's message_bytes")]
    MessageLength,
    /// A local segment is empty, out of bounds, or its memory is not registered on this connection.
    #[error("a local segment is not acceptable: {0}")]
    Segment(#[from] GatherError),
    /// Local and remote ranges do not have the same number of bytes, or one is empty.
    #[error("local and remote ranges differ in length, or one is empty")]
    LengthMismatch,
    /// The ranges need more RDMA operations than a transfer may have.
    #[error("the ranges need more than {MAX_TRANSFER_OPERATIONS} RDMA operations; split the transfer")]
    TooManyOperations,
}

impl<P: Port> Engine<P> {
    /// Fetches what a peer offers by RDMA READ; ends with [`Event::Fetched`]. Posted by the next flush with room.
    ///
    /// # Errors
    /// [`TransferError`]; nothing is left behind.
    pub fn fetch(&mut self, connection: ConnectionId, request: &FetchRequest<'_>) -> Result<(), TransferError> {
        self.transfer(connection, request.cookie, Kind::Fetch, request.local, request.remote)
    }

    /// Writes data to a peer without telling it; ends with [`Event::Written`]: the peer's device has acknowledged all of it.
    /// Posted by the next flush with room. What one flush posts to a connection ends together: the device is asked for one
    /// completion behind it, not for one per WRITE.
    ///
    /// # Errors
    /// [`TransferError`]; nothing is left behind.
    pub fn write(&mut self, connection: ConnectionId, request: &WriteRequest<'_>) -> Result<(), TransferError> {
        self.transfer(connection, request.cookie, Kind::Write, request.local, request.remote)
    }

    /// Writes data to a peer and replies behind it; ends with [`Event::Responded`] when the device is done with both.
    ///
    /// # Errors
    /// [`TransferError`]; nothing is left behind.
    pub fn respond(&mut self, connection: ConnectionId, request: &ResponseRequest<'_>) -> Result<(), TransferError> {
        if request.message.is_empty() || request.message.len() > self.plan.message_bytes as usize {
            return Err(TransferError::MessageLength);
        }
        // At most message_bytes, which is 32 bit.
        let kind = Kind::Respond { length: request.message.len() as u32, invalidate: request.invalidate };
        let handle = self.stage_transfer(connection, request.cookie, kind, request.local, request.remote)?;
        let offset = self.plan.reply_offset(handle.index());
        // The slot's buffer has message_bytes bytes.
        let _ = self.messages.write(offset, request.message);
        self.take_transfer(handle);
        Ok(())
    }

    #[inline]
    fn transfer(
        &mut self,
        connection: ConnectionId,
        cookie: u64,
        kind: Kind,
        local: &[Segment],
        remote: &[RemoteSegment],
    ) -> Result<(), TransferError> {
        match (local, remote) {
            ([local], [remote]) if local.length == remote.length => {
                self.transfer_piece(connection, cookie, kind, local, remote)
            }
            ([], _) => Err(TransferError::LengthMismatch),
            _ => {
                let handle = self.stage_transfer(connection, cookie, kind, local, remote)?;
                self.take_transfer(handle);
                Ok(())
            }
        }
    }

    /// The usual transfer, of one piece to one range, without a reply: all that [`Engine::stage_transfer`], `cut_transfer` and
    /// `admit_transfer` do, with one look-up of each thing.
    #[inline]
    fn transfer_piece(
        &mut self,
        id: ConnectionId,
        cookie: u64,
        kind: Kind,
        local: &Segment,
        remote: &RemoteSegment,
    ) -> Result<(), TransferError> {
        let connection = self.connections.get_mut(usize::from(id.index)).ok_or(TransferError::NotConnected)?;
        if connection.key != id || !connection.is_ready() {
            return Err(TransferError::NotConnected);
        }
        let Some(vacant) = self.transfers.vacant().filter(|_| self.plan.transfer_slots > 0) else {
            return Err(TransferError::NoSlot);
        };
        let reach = connection.reach(local.memory);
        let resolved = local.resolve(reach.start, reach.bytes, reach.base, reach.lkey)?;
        let entries = self.capabilities.send_queue_cost.message;
        let admitted = connection.waiting_transfers.is_empty() && connection.send_queue.reserve(entries);
        let phase = if admitted { Phase::Queued } else { Phase::Waiting };
        let (handle, _) = vacant.insert(|| Transfer { phase, ..Transfer::new(cookie, id.index, kind, 1) });
        let slot = handle.index();
        self.elements[self.plan.transfer_element(slot) as usize] = resolved.element;
        self.remote_segments[slot as usize * MAX_TRANSFER_OPERATIONS] = *remote;
        if !admitted {
            connection.waiting_transfers.push_back(slot);
            self.ask_attention();
            return Ok(());
        }
        connection.transfers.push_back(slot);
        self.statistics.transfers += 1;
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(id.index);
        }
        Ok(())
    }

    /// A transfer of any number of pieces and ranges: both sides are cut into RDMA operations, which are noted in the elements and remote
    /// segments of a slot.
    fn stage_transfer(
        &mut self,
        id: ConnectionId,
        cookie: u64,
        kind: Kind,
        local: &[Segment],
        remote: &[RemoteSegment],
    ) -> Result<Handle, TransferError> {
        let connection = self.connections.get(usize::from(id.index)).ok_or(TransferError::NotConnected)?;
        if connection.key != id || !connection.is_ready() {
            return Err(TransferError::NotConnected);
        }
        let Some(vacant) = self.transfers.vacant().filter(|_| self.plan.transfer_slots > 0) else {
            return Err(TransferError::NoSlot);
        };
        let slot = vacant.index();
        let elements = self.elements.get_mut(self.plan.transfer_element(slot) as usize..);
        let ranges = self.remote_segments.get_mut(slot as usize * MAX_TRANSFER_OPERATIONS..);
        // Both tables are made for all slots.
        let elements = elements.and_then(<[_]>::first_chunk_mut).ok_or(TransferError::NoSlot)?;
        let ranges = ranges.and_then(<[_]>::first_chunk_mut).ok_or(TransferError::NoSlot)?;
        let resolve = |piece: &Segment| {
            let reach = connection.reach(piece.memory);
            piece.resolve(reach.start, reach.bytes, reach.base, reach.lkey).map(|resolved| resolved.element)
        };
        let operations = if let [piece] = local {
            cut_piece::<GatherError>(resolve(piece)?, remote, elements, ranges)?
        } else {
            cut(local.iter().map(resolve), remote, elements, ranges)?
        };
        // At most MAX_TRANSFER_OPERATIONS.
        let (handle, _) = vacant.insert(|| Transfer::new(cookie, id.index, kind, operations as u8));
        Ok(handle)
    }

    fn take_transfer(&mut self, handle: Handle) {
        let Some(index) = self.transfers.get(handle).map(|transfer| usize::from(transfer.connection)) else { return };
        if !self.connections[index].waiting_transfers.is_empty() || !self.admit_transfer(handle) {
            self.connections[index].waiting_transfers.push_back(handle.index());
            self.ask_attention();
        }
    }

    /// Reserves what a staged transfer needs. False where it has to wait.
    fn admit_transfer(&mut self, handle: Handle) -> bool {
        let Some(transfer) = self.transfers.get(handle) else { return true };
        let (index, replies) = (transfer.connection, matches!(transfer.kind, Kind::Respond { .. }));
        let entries = (u32::from(transfer.operations) + u32::from(replies)) * self.capabilities.send_queue_cost.message;
        let connection = &mut self.connections[usize::from(index)];
        if (replies && connection.peer_receives == 0) || !connection.send_queue.reserve(entries) {
            return false;
        }
        connection.peer_receives -= u64::from(replies);
        connection.transfers.push_back(handle.index());
        if let Kind::Respond { length, .. } = transfer.kind {
            let element = self.plan.transfer_element(handle.index()) as usize + MAX_TRANSFER_OPERATIONS;
            self.elements[element] = ScatterElement {
                address: self.messages.address() + self.plan.reply_offset(handle.index()) as u64,
                length,
                lkey: connection.bases[0].lkey,
            };
        }
        if let Some(transfer) = self.transfers.get_mut(handle) {
            transfer.phase = Phase::Queued;
        }
        self.statistics.transfers += 1;
        self.mark_dirty(index);
        true
    }

    /// Admits transfers that wait, in order, as far as there is room.
    pub(super) fn admit_waiting_transfers(&mut self, index: usize) -> u32 {
        let mut admitted = 0;
        while admitted < MAX_ADMITTED_PER_POLL as u32 && self.connections[index].is_ready() {
            let Some(&slot) = self.connections[index].waiting_transfers.front() else { break };
            let Some(handle) = self.transfers.handle_at(slot) else { break };
            if !self.admit_transfer(handle) {
                break;
            }
            self.connections[index].waiting_transfers.pop_front();
            admitted += 1;
        }
        admitted
    }

    /// All of a transfer succeeded: its slot keeps that until it is told.
    #[inline]
    pub(super) fn transfer_done(&mut self, slot: u32) {
        let Some((_, transfer)) = self.transfers.at_mut(slot) else { return };
        transfer.phase = Phase::Ended;
        self.events.push_transferred(slot);
    }

    /// The event of a transfer that succeeded. Frees its slot.
    #[inline]
    pub(super) fn transferred(&mut self, slot: u32) -> Option<Event> {
        let handle = self.transfers.handle_at(slot)?;
        self.transfers.remove(handle).map(|transfer| transfer.event(TransferStatus::Done))
    }

    /// The connection of a transfer has ended. What succeeded before is told as that.
    pub(super) fn lose_transfer(&mut self, slot: u32) {
        let Some((handle, transfer)) = self.transfers.at(slot) else { return };
        if transfer.phase == Phase::Ended {
            return;
        }
        self.events.push_back(transfer.event(TransferStatus::Lost));
        self.transfers.remove(handle);
    }
}

impl From<CutError<GatherError>> for TransferError {
    fn from(error: CutError<GatherError>) -> Self {
        match error {
            CutError::Piece(error) => error.into(),
            CutError::Length => Self::LengthMismatch,
            CutError::Operations => Self::TooManyOperations,
        }
    }
}
