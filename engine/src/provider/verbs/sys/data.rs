//! Data of a SEND or an RDMA WRITE: fetched by the device when it executes the work request, or inline, copied into it while it is
//! posted (`IBV_SEND_INLINE`).
//!
//! The device checks the local key of what it fetches. Of what is inline nobody does, and the library reads the address that it is
//! given: so only what lies in memory that is registered, in the queue pair's own domain, goes inline. All else is left to the
//! device, which refuses it as ever.
//!
//! A work request with a fence waits for the RDMA READs in front of it, which may bring what it sends: it is fetched.

use super::{objects::MemoryRegion, queue_pair::QueuePair};
use crate::provider::{ScatterElement, WorkRequest};
use core::{cell::Cell, ffi::c_void};
use ibverbs_sys::ibv_send_flags;
use std::sync::Arc;

/// Where the data of a work request comes from.
#[derive(Clone, Copy)]
pub(in super::super) struct Data<'a> {
    elements: &'a [ScatterElement],
    /// It is one element, which lies in memory that is registered, and so mapped, while this lives. Only [`RegisteredMemory::data`]
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
    lkey: u32,
    start: u64,
    bytes: u64,
    /// Keeps the memory mapped.
    region: Arc<MemoryRegion>,
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
        let place = self.known.partition_point(|known| known.lkey < lkey);
        self.known.insert(place, Known { lkey, start, bytes, region: Arc::clone(region) });
    }

    /// Takes one out, of which nothing is posted any more.
    pub(in super::super) fn remove(&mut self, region: &Arc<MemoryRegion>) {
        self.known.retain(|known| !Arc::ptr_eq(&known.region, region));
    }

    /// How a work request of a queue pair gets the data of these elements. Several are fetched: what is small is in one piece.
    #[inline]
    pub(in super::super) fn data<'a>(
        &'a self,
        request: &WorkRequest,
        elements: &'a [ScatterElement],
        queue_pair: &QueuePair,
    ) -> Data<'a> {
        let is_short = |only: &ScatterElement| (1..=queue_pair.inline_bytes()).contains(&only.length);
        let inline = match elements {
            [only] => is_short(only) && !request.fence && self.holds(only, queue_pair),
            _ => false,
        };
        Data { elements, inline }
    }

    #[inline]
    fn find(&self, lkey: u32) -> Option<&Known> {
        let recent = self.known.get(self.recent.get());
        recent.filter(|known| known.lkey == lkey).or_else(|| self.search(lkey))
    }

    #[inline(never)]
    fn search(&self, lkey: u32) -> Option<&Known> {
        let place = self.known.binary_search_by_key(&lkey, |known| known.lkey).ok()?;
        self.recent.set(place);
        self.known.get(place)
    }

    /// Whether an element lies in a region of the queue pair's domain, by its local key.
    fn holds(&self, element: &ScatterElement, queue_pair: &QueuePair) -> bool {
        let Some(Known { start, bytes, region, .. }) = self.find(element.lkey) else { return false };
        // One in front of the start is far behind the end.
        let last = bytes.checked_sub(element.length.into());
        last.is_some_and(|last| element.address.wrapping_sub(*start) <= last)
            && Arc::ptr_eq(region.domain(), queue_pair.domain())
    }
}
