//! What requests and transfers wait for. Asked where one has to wait, and by who wants to know why nothing moves.

use super::Engine;
use crate::{
    provider::Port,
    transfer,
    waits::{WaitCause, Waiting, Waits},
};
use frwr_mempool::slab::Handle;

impl<P: Port> Engine<P> {
    /// What waits now, and for what. Walks over all connections: for tools, and for who wonders why nothing moves.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        let mut waiting = Waiting::default();
        for connection in self.connections.iter() {
            let requests = connection.waiting().first_request().and_then(|slot| self.requests.handle_at(slot));
            let cause = requests.map(|first| self.request_waits_for(first));
            add_queue(&mut waiting.requests, cause, connection.waiting().requests());
            let transfers = connection.waiting().first_transfer().and_then(|slot| self.transfers.handle_at(slot));
            let cause = transfers.map(|first| self.transfer_waits_for(first));
            add_queue(&mut waiting.transfers, cause, connection.waiting().transfers());
        }
        waiting
    }

    /// What the first request of its connection that waits, or would, finds too little of.
    #[cold]
    pub(super) fn request_waits_for(&self, handle: Handle) -> WaitCause {
        let Some(request) = self.requests.get(handle) else { return WaitCause::Order };
        let Some(connection) = self.connections.get(request.connection()) else {
            return WaitCause::Order;
        };
        let sends = !request.is_standalone();
        if connection.idle.len() < self.pieces_of(handle) {
            WaitCause::Registrations
        } else if sends && !connection.credits.has_peer_receive() {
            WaitCause::PeerReceives
        } else if request.awaits_reply() && !connection.credits.has_reply_receive() {
            WaitCause::ReplyReceives
        } else {
            // Those that are free may be a transfer's.
            WaitCause::SendEntries
        }
    }

    /// The same of a transfer.
    #[cold]
    pub(super) fn transfer_waits_for(&self, handle: Handle) -> WaitCause {
        let Some(transfer) = self.transfers.get(handle) else { return WaitCause::Order };
        let connection = self.connections.get(transfer.connection());
        let replies = matches!(transfer.kind(), transfer::Kind::Respond { .. });
        if replies && connection.is_some_and(|connection| !connection.credits.has_peer_receive()) {
            WaitCause::PeerReceives
        } else {
            WaitCause::SendEntries
        }
    }
}

fn add_queue(waits: &mut Waits, first: Option<WaitCause>, length: usize) {
    if let Some(cause) = first {
        waits.add(cause, 1);
        waits.add(WaitCause::Order, length as u64 - 1);
    }
}
