//! Data of a SEND or an RDMA WRITE: fetched by the device when it executes the work request, or inline, copied into it while it is
//! posted (`IBV_SEND_INLINE`).
//!
//! The device checks the local key of what it fetches. Of what is inline nobody does, and the library reads the address that it is
//! given: so only what lies in memory that is registered, in the queue pair's own domain, goes inline. All else is left to the
//! device, which refuses it as ever.
//!
//! A work request with a fence waits for the RDMA READs in front of it, which may bring what it sends: it is fetched.

use super::{memory_region::MemoryRegion, queue_pair::QueuePair};
use crate::provider::{ScatterElement, WorkRequest};
use core::{cell::Cell, ffi::c_void};
use ibverbs_sys::ibv_send_flags;
use std::sync::Arc;

/// Where the data of a work request comes from.
#[derive(Clone, Copy)]
pub(in super::super) struct Data<'a> {
    elements: &'a [ScatterElement],
    /// It is one element, which lies in memory that is registered, and so mapped, while this lives. Only [`PostedData::data`]
    /// says so.
    inline: bool,
}

impl<'a> Data<'a> {
    /// What it consists of, wherever it is read.
    pub(super) fn elements(self) -> &'a [ScatterElement] {
        self.elements
    }

    /// What it adds to the work request's flags.
    #[inline]
    pub(super) fn flag(self) -> u32 {
        if self.inline { ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 }
    }

    /// The bytes that are inline, not more than their queue pair has room for: a library may read them as long as this lives.
    #[inline]
    pub(super) fn inline(self) -> Option<(*mut c_void, usize)> {
        let [only] = self.elements else { return None };
        let address = core::ptr::with_exposed_provenance_mut(only.address as usize);
        self.inline.then_some((address, only.length as usize))
    }
}

/// A region, with what is asked of it at hand.
struct Known {
    extent: Extent,
    /// Keeps the memory mapped.
    region: Arc<MemoryRegion>,
}

/// What local key names what addresses.
#[derive(Clone, Copy)]
struct Extent {
    lkey: u32,
    start: u64,
    bytes: u64,
}

impl Extent {
    /// One that nothing lies in.
    const NOWHERE: Self = Self { lkey: 0, start: 0, bytes: 0 };

    /// Whether an element of this local key lies in it.
    #[inline]
    fn holds(&self, element: &ScatterElement) -> bool {
        // One in front of the start is far behind the end.
        let last = self.bytes.checked_sub(element.length.into());
        last.is_some_and(|last| element.address.wrapping_sub(self.start) <= last)
    }
}

/// The base registrations that a port's messages may come from. Owned by the port; a handful for each domain.
#[derive(Default)]
pub(in super::super) struct RegisteredMemory {
    /// By their local keys, which a device gives to one region each.
    known: Vec<Known>,
    /// Where in `known` the last one was found: a queue pair has its messages in one region, and others' data in another.
    recent: Cell<usize>,
}

impl RegisteredMemory {
    /// Adds a base registration. Allocates.
    pub(in super::super) fn add(&mut self, region: &Arc<MemoryRegion>) {
        let (lkey, (start, bytes)) = (region.lkey(), region.range());
        let place = self.known.partition_point(|known| known.extent.lkey < lkey);
        let extent = Extent { lkey, start, bytes };
        self.known.insert(place, Known { extent, region: Arc::clone(region) });
    }

    /// Takes one out, of which nothing is posted any more.
    pub(in super::super) fn remove(&mut self, region: &Arc<MemoryRegion>) {
        self.known.retain(|known| !Arc::ptr_eq(&known.region, region));
    }

    /// For the work requests of one post.
    #[inline]
    pub(in super::super) fn of_post<'a>(&'a self, queue_pair: &'a QueuePair) -> PostedData<'a> {
        let recent = self.known.get(self.recent.get()).filter(|known| known.is_of(queue_pair));
        let extent = recent.map_or(Extent::NOWHERE, |known| known.extent);
        PostedData { memory: self, queue_pair, most: queue_pair.inline_bytes(), extent }
    }

    #[inline(never)]
    fn search(&self, lkey: u32) -> Option<&Known> {
        let place = self.known.binary_search_by_key(&lkey, |known| known.extent.lkey).ok()?;
        self.recent.set(place);
        self.known.get(place)
    }
}

impl Known {
    /// Whether work requests of a queue pair may name it.
    fn is_of(&self, queue_pair: &QueuePair) -> bool {
        Arc::ptr_eq(self.region.domain(), queue_pair.domain())
    }
}

/// Says of the work requests of one post how they get their data.
pub(in super::super) struct PostedData<'a> {
    memory: &'a RegisteredMemory,
    queue_pair: &'a QueuePair,
    /// Bytes that go inline at most.
    most: u32,
    /// The registration, of the queue pair's domain, that the last piece was in.
    extent: Extent,
}

impl<'a> PostedData<'a> {
    /// How a work request gets the data of these elements. Several are fetched: what is small is in one piece.
    #[inline(always)]
    pub(in super::super) fn data(&mut self, request: &WorkRequest, elements: &'a [ScatterElement]) -> Data<'a> {
        let inline = match elements {
            [only] => only.length.wrapping_sub(1) < self.most && !request.fence && self.holds(only),
            _ => false,
        };
        Data { elements, inline }
    }

    #[inline(always)]
    fn holds(&mut self, element: &ScatterElement) -> bool {
        if element.lkey == self.extent.lkey { self.extent.holds(element) } else { self.finds(element) }
    }

    #[inline(never)]
    fn finds(&mut self, element: &ScatterElement) -> bool {
        let found = self.memory.search(element.lkey).filter(|known| known.is_of(self.queue_pair));
        self.extent = found.map_or(Extent::NOWHERE, |known| known.extent);
        self.extent.holds(element)
    }
}
