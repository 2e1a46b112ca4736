//! The MRs of one core: descriptors in hugepages, and free lists per connection over one array.
//!
//! Every connection owns the run of `per_connection` descriptors at `index * per_connection`. A descriptor is free
//! (on its connection's idle list), absent (without a device object, on its absent list), or in use; Control gives the
//! descriptors of destroyed objects back through the freelist's return side.

use crate::mr::Mr;
use frwr_mempool::{
    Region,
    freelist::{Freelist, List, Order, Returner},
    region::CarveError,
    slab::Table,
};

/// All MR descriptors of one core.
pub(crate) struct Pool {
    mrs: Table<Mr>,
    free: Freelist,
    returned: List,
    per_connection: u32,
    depth: u32,
    /// Keys of each descriptor's object that the device accepted and that die with it alone; unknown to an MR's state, which tells of
    /// the latest one or two.
    doomed_keys: Box<[u64]>,
    /// Time of the last registration of each descriptor's current full key: for the shortest time of reuse.
    key_times: KeyTimes,
}

/// When each low byte of each descriptor's key was last registered. One entry per descriptor: the time at which its key
/// last began a round of 256.
#[derive(Debug)]
struct KeyTimes {
    round_began_ns: Box<[u64]>,
    shortest_ns: Option<u64>,
}

impl Pool {
    pub(crate) fn new(
        region: &mut Region,
        connections: u32,
        per_connection: u32,
        depth: u32,
    ) -> Result<Self, CarveError> {
        let capacity = connections * per_connection;
        // Fits, by `Plan`. Each descriptor's place is the one of its number (`Elements::of_mr`).
        let mrs = Table::new_in(region, capacity as usize, |number| Mr::numbered(number as u32, number as u32))?;
        let free = Freelist::new(capacity);
        let returned = free.list(Order::FirstInFirstOut);
        let key_times = KeyTimes { round_began_ns: vec![0; capacity as usize].into(), shortest_ns: None };
        let doomed_keys = vec![0; capacity as usize].into();
        Ok(Self { mrs, free, returned, per_connection, depth, doomed_keys, key_times })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(connections: u32, per_connection: u32) -> Option<usize> {
        Table::<Mr>::bytes_needed(connections.checked_mul(per_connection)? as usize)
    }

    /// An empty list for the descriptors of this pool.
    pub(crate) fn list(&mut self, order: Order) -> List {
        self.free.list(order)
    }

    /// Puts all descriptors of a connection on its absent list; called once per connection, at the start.
    pub(crate) fn fill_absent(&mut self, connection: u16, absent: &mut List) {
        for descriptor in self.of(connection) {
            self.put(absent, descriptor);
        }
    }

    /// The handle that Control gives descriptors back with.
    pub(crate) fn returner(&self) -> Returner {
        self.free.returner()
    }

    /// The descriptors of a connection.
    pub(crate) fn of(&self, connection: u16) -> core::ops::Range<u32> {
        let first = u32::from(connection) * self.per_connection;
        first..first + self.per_connection
    }

    /// Descriptors of all connections.
    pub(crate) fn len(&self) -> usize {
        self.mrs.len()
    }

    /// The connection that owns a descriptor.
    pub(crate) fn connection_of(&self, descriptor: u32) -> u16 {
        // One core has at most u16::MAX connections, so the quotient fits.
        (descriptor / self.per_connection) as u16
    }

    /// Entries of an MR object's list: pages or ranges, as the device counts.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    #[inline]
    pub(crate) fn get(&self, descriptor: u32) -> Option<&Mr> {
        self.mrs.get(descriptor as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, descriptor: u32) -> Option<&mut Mr> {
        self.mrs.get_mut(descriptor as usize)
    }

    /// Takes a descriptor from a list.
    #[inline]
    pub(crate) fn pop(&mut self, list: &mut List) -> Option<u32> {
        self.free.pop(list)
    }

    /// Puts a descriptor on a list. A second put of the same one is refused by the freelist, and a defect of ours.
    #[inline]
    pub(crate) fn put(&mut self, list: &mut List, descriptor: u32) {
        let put = self.free.push(list, descriptor);
        debug_assert!(put.is_ok(), "descriptor {descriptor} is on two lists: {put:?}");
    }

    /// Takes the next descriptor that Control gave back.
    pub(crate) fn next_returned(&mut self) -> Option<u32> {
        if self.returned.is_empty() {
            self.free.drain_returns(&mut self.returned);
        }
        self.free.pop(&mut self.returned)
    }

    /// Notes that a descriptor's keys begin a round at `now_ns`: the bits that change ([`crate::mr::tag_mask`]) are all zero. Keys of one
    /// object advance by one, so a full key comes back when these do, and with every registration where none changes.
    #[cold]
    pub(crate) fn note_round(&mut self, descriptor: u32, now_ns: u64) {
        let times = &mut self.key_times;
        let began = core::mem::replace(&mut times.round_began_ns[descriptor as usize], now_ns.max(1));
        if began != 0 {
            let passed = now_ns.saturating_sub(began);
            times.shortest_ns = Some(times.shortest_ns.map_or(passed, |shortest| shortest.min(passed)));
        }
    }

    /// So many more keys of a descriptor's object die with it.
    #[cold]
    pub(crate) fn doom_keys(&mut self, descriptor: u32, keys: u64) {
        self.doomed_keys[descriptor as usize] += keys;
    }

    /// A descriptor's object is gone: how many keys were to die with it.
    pub(crate) fn take_doomed_keys(&mut self, descriptor: u32) -> u64 {
        core::mem::take(&mut self.doomed_keys[descriptor as usize])
    }

    /// A new object took the descriptor's place: its keys are new.
    pub(crate) fn forget_keys(&mut self, descriptor: u32) {
        self.key_times.round_began_ns[descriptor as usize] = 0;
    }

    /// Shortest time between two registrations under one full key; `None` where no key came twice.
    pub(crate) fn shortest_key_reuse_ns(&self) -> Option<u64> {
        self.key_times.shortest_ns
    }
}
