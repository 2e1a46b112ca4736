//! A transfer from its admission on: its work requests go into the chain, its last one's completion ends it, its event frees its slot.

use super::{Engine, MAX_ADMITTED_PER_POLL, TransferError, issue::message_element};
use crate::{
    connection::Connection,
    event::{ConnectionId, Event, TransferStatus},
    gather::Segment,
    options::MAX_TRANSFER_OPERATIONS,
    provider::{ElementRange, Operation, Port, RemoteRange, Token, TokenKind, WorkRequest},
    transfer::{Kind, Phase, RemoteSegment, Transfer},
    waits::WaitCause,
};
use frwr_mempool::mutant;
use frwr_mempool::slab::Handle;

impl<P: Port> Engine<P> {
    /// The usual transfer, of one piece to a range of the same length, which has not to wait: all that [`Engine::stage_transfer`] and
    /// [`Engine::take_transfer`] do, with one look-up of each thing. `reply` is the message of one that responds. `None`: it takes the
    /// long way.
    #[inline(always)]
    pub(super) fn transfer_at_once(
        &mut self,
        id: ConnectionId,
        cookie: u64,
        kind: Kind,
        local: &Segment,
        remote: &RemoteSegment,
        reply: &[u8],
    ) -> Option<Result<(), TransferError>> {
        let replies = matches!(kind, Kind::Respond { .. });
        let connection = self.connections.get_mut(usize::from(id.index))?;
        if !connection.takes_at_once(id) || !connection.waiting_transfers.is_empty() || self.plan.transfer_slots == 0 {
            return None;
        }
        let vacant = self.transfers.vacant()?;
        let reach = connection.reach(local.memory);
        let element = match local.resolve(reach.start, reach.bytes, reach.base, reach.lkey) {
            Ok(resolved) => resolved.element,
            Err(error) => return Some(Err(error.into())),
        };
        if (replies && connection.peer_receives == 0 && !mutant!(S4_response_at_once))
            || !connection
                .send_queue
                .reserve((1 + u32::from(replies && !mutant!(S4_reply_entry))) * self.making.cost.message)
        {
            return None;
        }
        // The reply stands behind its data.
        let position = connection.send_queue.next_position() + u64::from(replies);
        let (handle, _) = vacant.insert(|| Transfer::posted(cookie, id.index, kind, position));
        let elements = self.plan.transfer_element(handle.index());
        self.elements[elements as usize] = element;
        connection.chain_data(kind, handle, elements, core::slice::from_ref(remote), self.making.every);
        if let Kind::Respond { length, invalidate } = kind {
            connection.peer_receives -= 1;
            // The slot's buffer has message_bytes bytes.
            let _ = self.messages.write(self.plan.reply_offset(handle.index()), reply);
            let local = message_element(
                &mut self.elements,
                self.plan.reply_element(handle.index()),
                length,
                connection.bases[0].lkey,
            );
            let pressure = self.transfers.len() >= self.plan.transfers_held;
            connection.chain_reply(handle, Operation::Send { local, invalidate }, 1, self.making.every, pressure);
        }
        self.statistics.transfers += 1;
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(id.index);
        }
        Some(Ok(()))
    }

    /// Admits a staged transfer, or has it wait behind those that do.
    ///
    /// # Errors
    /// [`TransferError::NoPeerReceives`]: it would wait for ever; its slot is free again.
    pub(super) fn take_transfer(&mut self, handle: Handle) -> Result<(), TransferError> {
        let Some(index) = self.transfers.get(handle).map(|transfer| usize::from(transfer.connection)) else {
            return Ok(());
        };
        // Mutant: a transfer passes those that wait.
        let first = self.connections[index].waiting_transfers.is_empty() || mutant!(transfers_pass);
        if first && self.admit_transfer(handle) { Ok(()) } else { self.have_transfer_wait(index, handle, first) }
    }

    #[cold]
    fn have_transfer_wait(&mut self, index: usize, handle: Handle, first: bool) -> Result<(), TransferError> {
        let cause = self.transfer_waits_for(handle);
        if cause == WaitCause::PeerReceives && self.connections[index].lacks_peer_receives() {
            self.transfers.remove(handle);
            return Err(TransferError::NoPeerReceives);
        }
        self.statistics.transfer_waits.add(if first { cause } else { WaitCause::Order }, 1);
        self.connections[index].waiting_transfers.push_back(handle.index());
        if !mutant!(K11_transfer) {
            self.ask_attention();
        }
        Ok(())
    }

    /// Reserves what a staged transfer needs, and puts its work requests into the chain. False where it has to wait.
    fn admit_transfer(&mut self, handle: Handle) -> bool {
        let Some(transfer) = self.transfers.get(handle) else { return true };
        let (index, replies) = (transfer.connection, matches!(transfer.kind, Kind::Respond { .. }));
        let entries = (u32::from(transfer.operations) + u32::from(replies)) * self.making.cost.message;
        let connection = &mut self.connections[usize::from(index)];
        // Without a receive of the peer it is not entries that it waits for, and requests may have those.
        let may_send = !replies || connection.peer_receives > 0 || mutant!(S4_response);
        let reserved = may_send && connection.send_queue.reserve(entries);
        // Mutant: requests pass a transfer that waits for entries, for ever.
        connection.await_entries(may_send && !reserved && !mutant!(transfer_starves));
        if !reserved {
            return false;
        }
        connection.peer_receives -= u64::from(replies);
        self.stage_invalidations_first(usize::from(index));
        self.chain_transfer(handle);
        self.statistics.transfers += 1;
        self.mark_dirty(index);
        true
    }

    /// Puts the work requests of a transfer into the chain.
    #[inline]
    fn chain_transfer(&mut self, handle: Handle) {
        let (used, slot) = (self.transfers.len(), handle.index());
        let Some(transfer) = self.transfers.get_mut(handle) else { return };
        let connection = &mut self.connections[usize::from(transfer.connection)];
        let first = slot as usize * MAX_TRANSFER_OPERATIONS;
        let ranges = self.remote_segments.get(first..first + usize::from(transfer.operations));
        // The table is made for all slots.
        let ranges = ranges.unwrap_or_default();
        let elements = self.plan.transfer_element(slot);
        let probes = transfer.phase == Phase::WaitingToProbe;
        transfer.phase = Phase::Posted;
        if probes {
            transfer.position = connection.chain_probe(handle, elements);
            return;
        }
        transfer.position = connection.chain_data(transfer.kind, handle, elements, ranges, self.making.every);
        if let Kind::Respond { length, invalidate } = transfer.kind {
            let local =
                message_element(&mut self.elements, self.plan.reply_element(slot), length, connection.bases[0].lkey);
            let pressure = used >= self.plan.transfers_held && !mutant!(transfers_held_unasked);
            let (operation, data) = (Operation::Send { local, invalidate }, u32::from(transfer.operations));
            transfer.position = connection.chain_reply(handle, operation, data, self.making.every, pressure);
        }
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
        // K20: what was told is told once more.
        if transfer.phase == Phase::Ended && !mutant!(K20_transfer) {
            return;
        }
        let status = if mutant!(lost_transfer_told_done) { TransferStatus::Done } else { TransferStatus::Lost };
        self.events.push_back(transfer.event(status));
        if !mutant!(S10_transfer) {
            self.transfers.remove(handle);
        }
    }
}

fn read(local: ElementRange, remote: RemoteRange) -> Operation {
    Operation::Read { local, remote }
}

fn write(local: ElementRange, remote: RemoteRange) -> Operation {
    Operation::Write { local, remote }
}

impl Connection {
    /// Stages an RDMA WRITE of no bytes. Returns its position.
    #[cold]
    fn chain_probe(&mut self, handle: Handle, elements: u32) -> u64 {
        let token = Token::of(TokenKind::Transfer, handle.index(), handle.generation());
        self.signaller.signalled();
        self.end_unsignalled = false;
        let (local, remote) = (ElementRange { first: elements, count: 0 }, RemoteRange { address: 0, key: 0 });
        self.chain.push(WorkRequest { token, signalled: true, fence: false, operation: write(local, remote) });
        self.send_queue.stage_operation(token, true)
    }

    /// Stages the RDMA operations of a transfer, an element and a range for each. Returns the last one's position.
    #[inline(always)]
    fn chain_data(&mut self, kind: Kind, handle: Handle, elements: u32, ranges: &[RemoteSegment], every: bool) -> u64 {
        let token = Token::of(TokenKind::Transfer, handle.index(), handle.generation());
        match kind {
            Kind::Fetch => {
                self.signaller.signalled();
                self.end_unsignalled = false;
                // Mutant: RDMA READs ask for no completion, and are counted as if they did.
                self.chain_operations(token, elements, ranges, !mutant!(fetch_unsignalled), true, read)
            }
            Kind::Write => {
                // One completion tells of all RDMA WRITEs of a chain: the flush asks for it.
                // At most MAX_TRANSFER_OPERATIONS.
                let signalled = self.signaller.reply(ranges.len() as u32, every, false);
                self.end_unsignalled = !signalled;
                self.chain_operations(token, elements, ranges, signalled, true, write)
            }
            // The reply asks, if anything does.
            Kind::Respond { .. } => self.chain_operations(token, elements, ranges, false, false, write),
        }
    }

    /// Stages RDMA operations, of which the last one asks for a completion or none does. Returns the last one's position.
    #[inline(always)]
    fn chain_operations(
        &mut self,
        token: Token,
        elements: u32,
        ranges: &[RemoteSegment],
        signalled: bool,
        awaited: bool,
        operation: impl Fn(ElementRange, RemoteRange) -> Operation,
    ) -> u64 {
        let mut local = ElementRange { first: elements, count: 1 };
        if let [range] = ranges {
            self.chain.push(WorkRequest { token, signalled, fence: false, operation: operation(local, range.remote) });
            return self.send_queue.stage_operation(token, awaited);
        }
        self.chain.extend(ranges.iter().map(|range| {
            let operation = operation(local, range.remote);
            local.first += 1;
            WorkRequest { token, signalled: false, fence: false, operation }
        }));
        if let Some(last) = self.chain.last_mut().filter(|_| signalled) {
            last.signalled = true;
        }
        self.send_queue.stage_operations(token, ranges.len() as u64, awaited)
    }

    /// Stages the reply of a transfer, behind so many RDMA operations. `every`: it asks for its completion, since what stands behind it
    /// may be refused. `pressure`: so many slots are in use that it is to ask, because its data's buffers come back with its
    /// completion, and a responder must not starve for them. Returns its position.
    #[inline(always)]
    fn chain_reply(
        &mut self,
        handle: Handle,
        operation: Operation,
        operations: u32,
        every: bool,
        pressure: bool,
    ) -> u64 {
        let signalled = self.signaller.reply(operations + 1, every, pressure);
        self.end_unsignalled = !signalled && !mutant!(F5_reply_unasked);
        let token = Token::of(TokenKind::Reply, handle.index(), handle.generation());
        self.chain.push(WorkRequest { token, signalled, fence: false, operation });
        self.send_queue.stage_operation(token, true)
    }

    /// The last of a chain asks for a completion, which tells of transfers and messages in front of it: nothing may ever be posted behind
    /// it, and their end must come out all the same.
    pub(super) fn ask_for_end(&mut self) {
        self.end_unsignalled = false;
        if let Some(last) = self.chain.last_mut()
            && !last.signalled
            && !mutant!(F5_transfers_unsignalled)
        {
            last.signalled = true;
            self.signaller.signalled();
            self.relief_coming = true;
        }
    }
}
