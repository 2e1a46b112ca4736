//! Requests and transfers of one connection that wait for room, each in order.

use frwr_mempool::{Region, region::CarveError, slab::Table};

/// Behind the last one that waits stands none.
const NONE: u32 = u32::MAX;

/// The slot behind each that waits, for all connections of one core: a slot waits on one of them at most.
pub(crate) struct WaitLinks {
    requests: Links,
    transfers: Links,
}

impl WaitLinks {
    /// For so many slots.
    pub(crate) fn new_in(region: &mut Region, requests: u32, transfers: u32) -> Result<Self, CarveError> {
        Ok(Self { requests: Links::new_in(region, requests)?, transfers: Links::new_in(region, transfers)? })
    }

    /// Bytes of the region that they take.
    pub(crate) fn bytes_needed(requests: u32, transfers: u32) -> Option<usize> {
        let of = |slots: u32| Table::<u32>::bytes_needed(slots as usize);
        of(requests)?.checked_add(of(transfers)?)
    }

    /// The request that waits behind this one.
    pub(crate) fn request_behind(&self, slot: u32) -> Option<u32> {
        Some(self.requests.behind(slot)).filter(|&next| next != NONE)
    }
}

/// Those of requests, or of transfers.
struct Links(Table<u32>);

impl Links {
    fn new_in(region: &mut Region, slots: u32) -> Result<Self, CarveError> {
        Table::new_in(region, slots as usize, |_| NONE).map(Self)
    }

    fn behind(&self, slot: u32) -> u32 {
        self.0.get(slot as usize).copied().unwrap_or(NONE)
    }

    fn link(&mut self, slot: u32, next: u32) {
        if let Some(link) = self.0.get_mut(slot as usize) {
            *link = next;
        }
    }
}

/// Slots in the order in which they began to wait.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
    len: u32,
}

impl Queue {
    const EMPTY: Self = Self { first: NONE, last: NONE, len: 0 };

    fn push(&mut self, links: &mut Links, slot: u32) {
        links.link(slot, NONE);
        if self.len == 0 {
            self.first = slot;
        } else {
            links.link(self.last, slot);
        }
        self.last = slot;
        self.len += 1;
    }

    fn first(&self) -> Option<u32> {
        (self.len > 0).then_some(self.first)
    }

    fn pop(&mut self, links: &Links) {
        if self.len > 0 {
            self.first = links.behind(self.first);
            self.len -= 1;
        }
    }

    fn iter(&self, links: &Links) -> impl Iterator<Item = u32> {
        let behind = |slot: &u32| Some(links.behind(*slot));
        core::iter::successors(self.first(), behind).take(self.len as usize)
    }

    /// A walk along those in front of it.
    fn remove(&mut self, links: &mut Links, slot: u32) {
        if self.first() == Some(slot) {
            return self.pop(links);
        }
        let Some(before) = self.iter(links).find(|&before| links.behind(before) == slot) else { return };
        links.link(before, links.behind(slot));
        if self.last == slot {
            self.last = before;
        }
        self.len -= 1;
    }
}

/// See the module. Any request of the core may wait here, so that where each stands is kept once for all connections.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    requests: Queue,
    transfers: Queue,
    /// The first of those transfers needs more entries of the send queue than are free: requests
    /// wait behind it, or small ones would pass it for ever.
    entries_awaited: bool,
}

impl WaitQueues {
    /// Nothing waits.
    pub(crate) const fn new() -> Self {
        Self { requests: Queue::EMPTY, transfers: Queue::EMPTY, entries_awaited: false }
    }

    pub(crate) fn push_request(&mut self, links: &mut WaitLinks, slot: u32) {
        self.requests.push(&mut links.requests, slot);
    }

    pub(crate) fn first_request(&self) -> Option<u32> {
        self.requests.first()
    }

    /// This one waits no more, wherever it stands: at once where that is in front.
    pub(crate) fn remove_request(&mut self, links: &mut WaitLinks, slot: u32) {
        self.requests.remove(&mut links.requests, slot);
    }

    /// Requests that wait.
    pub(crate) fn requests(&self) -> usize {
        self.requests.len as usize
    }

    pub(crate) fn push_transfer(&mut self, links: &mut WaitLinks, slot: u32) {
        self.transfers.push(&mut links.transfers, slot);
    }

    pub(crate) fn first_transfer(&self) -> Option<u32> {
        self.transfers.first()
    }

    /// The first one waits no more.
    pub(crate) fn pop_transfer(&mut self, links: &WaitLinks) {
        self.transfers.pop(&links.transfers);
    }

    /// All that wait, in order.
    pub(crate) fn all_transfers(&self, links: &WaitLinks) -> impl Iterator<Item = u32> {
        self.transfers.iter(&links.transfers)
    }

    /// Transfers that wait.
    #[inline(always)]
    pub(crate) fn transfers(&self) -> usize {
        self.transfers.len as usize
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
        self.entries_awaited || self.requests.len > 0
    }

    pub(crate) fn are_empty(&self) -> bool {
        self.transfers.len == 0 && self.requests.len == 0
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::{WaitLinks, WaitQueues};
    use frwr_mempool::{PagePolicy, Region, RegionOptions};

    fn waiting(queues: &WaitQueues, links: &WaitLinks) -> Vec<u32> {
        let requests = core::iter::successors(queues.first_request(), |slot| links.request_behind(*slot));
        requests.take(queues.requests()).collect()
    }

    /// Slots of several connections wait beside each other, in order of each.
    #[test]
    fn whoever_leaves_the_others_keep_their_order() {
        let plain = RegionOptions::new(1 << 16).pages(PagePolicy::Ladder { allow_plain: true });
        let mut links = WaitLinks::new_in(&mut Region::map(&plain).unwrap(), 8, 4).unwrap();
        for leaves in [5, 1, 3, 7] {
            let (mut one, mut other) = (WaitQueues::new(), WaitQueues::new());
            for (slot, of_other) in [(5, 4), (1, 0), (3, 2)] {
                one.push_request(&mut links, slot);
                other.push_request(&mut links, of_other);
            }
            one.push_request(&mut links, 7);
            one.remove_request(&mut links, leaves);
            // One that does not wait.
            one.remove_request(&mut links, leaves);
            one.push_request(&mut links, 6);
            let mut left = vec![5, 1, 3, 7, 6];
            left.retain(|slot| *slot != leaves);
            assert_eq!(waiting(&one, &links), left);
            assert_eq!(waiting(&other, &links), [4, 0, 2]);
            for slot in left {
                assert_eq!(one.first_request(), Some(slot));
                one.remove_request(&mut links, slot);
            }
            assert!(one.are_empty() && !one.stop_requests());
        }
    }
}
