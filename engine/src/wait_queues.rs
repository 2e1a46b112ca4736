//! Requests and transfers of one connection that wait for room, each in order.

use std::collections::VecDeque;

/// See the module. On the heap: any request of the core may wait here, and hardly one does.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    requests: VecDeque<u32>,
    transfers: VecDeque<u32>,
    /// The first of those transfers needs more entries of the send queue than are free: requests
    /// wait behind it, or small ones would pass it for ever.
    entries_awaited: bool,
}

impl WaitQueues {
    /// For so many slots.
    pub(crate) fn new(requests: u32, transfers: u32) -> Self {
        let queue = |entries: u32| VecDeque::with_capacity(entries as usize);
        Self { requests: queue(requests), transfers: queue(transfers), entries_awaited: false }
    }

    pub(crate) fn push_request(&mut self, slot: u32) {
        self.requests.push_back(slot);
    }

    pub(crate) fn first_request(&self) -> Option<u32> {
        self.requests.front().copied()
    }

    /// The one that has so many in front of it.
    pub(crate) fn request_at(&self, at: usize) -> Option<u32> {
        self.requests.get(at).copied()
    }

    /// The first one waits no more.
    pub(crate) fn pop_request(&mut self) {
        self.requests.pop_front();
    }

    /// This one waits no more, wherever it stands.
    pub(crate) fn remove_request(&mut self, slot: u32) {
        self.requests.retain(|&waiting| waiting != slot);
    }

    /// Requests that wait.
    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn push_transfer(&mut self, slot: u32) {
        self.transfers.push_back(slot);
    }

    pub(crate) fn first_transfer(&self) -> Option<u32> {
        self.transfers.front().copied()
    }

    /// The first one waits no more.
    pub(crate) fn pop_transfer(&mut self) {
        self.transfers.pop_front();
    }

    /// All that wait, in order.
    pub(crate) fn all_transfers(&self) -> impl Iterator<Item = u32> {
        self.transfers.iter().copied()
    }

    /// Transfers that wait.
    #[inline(always)]
    pub(crate) fn transfers(&self) -> usize {
        self.transfers.len()
    }

    /// Whether the first transfer waits for entries of the send queue.
    #[inline(always)]
    pub(crate) fn awaits_entries(&self) -> bool {
        self.entries_awaited
    }

    /// Notes whether it does.
    pub(crate) fn await_entries(&mut self, awaited: bool) {
        self.entries_awaited = awaited;
    }

    /// A request would find others in front of it that wait, of its kind, or a transfer for the
    /// entries that it needs.
    pub(crate) fn stop_requests(&self) -> bool {
        self.entries_awaited || !self.requests.is_empty()
    }

    pub(crate) fn are_empty(&self) -> bool {
        self.transfers.is_empty() && self.requests.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.transfers.clear();
        self.entries_awaited = false;
    }
}
