//! The slots of all requests of one engine, and how many of them only Hold keeps.

use crate::{
    request::{Phase, Request},
    signal::held_slots_limit,
};
use core::mem::ManuallyDrop;
use frwr_mempool::{
    Region, mutant,
    region::CarveError,
    slab::{Handle, Slab, Vacant},
};

/// See the module.
pub(crate) struct Requests {
    /// Of numbers alone: that they are never dropped saves looking what there is to drop.
    slots: Slab<ManuallyDrop<Request>>,
    /// Slots that were left and are not free.
    held: u32,
    /// With so many of them a message asks for a completion.
    held_limit: u32,
    /// There are so many, which each request asks.
    are_short: bool,
}

impl Requests {
    pub(crate) fn new_in(region: &mut Region, slots: u32) -> Result<Self, CarveError> {
        Ok(Self { slots: Slab::new_in(region, slots)?, held: 0, held_limit: held_slots_limit(slots), are_short: false })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(slots: u32) -> Option<usize> {
        Slab::<ManuallyDrop<Request>>::bytes_needed(slots)
    }

    /// The next free slot.
    #[inline(always)]
    pub(crate) fn vacant(&mut self) -> Option<Vacancy<'_>> {
        self.slots.vacant().map(Vacancy)
    }

    #[inline(always)]
    pub(crate) fn get(&self, request: Handle) -> Option<&Request> {
        self.slots.get(request).map(|request| &**request)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, request: Handle) -> Option<&mut Request> {
        self.slots.get_mut(request).map(|request| &mut **request)
    }

    /// The request in a slot, and its name.
    #[inline(always)]
    pub(crate) fn at(&self, slot: u32) -> Option<(Handle, &Request)> {
        self.slots.at(slot).map(|(handle, request)| (handle, &**request))
    }

    /// The request in a slot, and its name.
    #[inline(always)]
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<(Handle, &mut Request)> {
        self.slots.at_mut(slot).map(|(handle, request)| (handle, &mut **request))
    }

    /// The name of the request in a slot.
    pub(crate) fn handle_at(&self, slot: u32) -> Option<Handle> {
        self.slots.handle_at(slot)
    }

    /// Makes one in place of another, which waited.
    #[inline(always)]
    pub(crate) fn renew(&mut self, request: Handle, make: impl FnOnce() -> Request) {
        if let Some(found) = self.get_mut(request) {
            *found = make();
        }
    }

    /// The event of the one in this slot was taken. `is_kept` says of its connection and the position of its message whether the device
    /// may still read that: until it is told ([`Requests::release`]) the slot is not free.
    #[inline(always)]
    pub(crate) fn leave(&mut self, slot: u32, is_kept: impl FnOnce(usize, u64) -> bool) {
        let Some((_, request)) = self.at_mut(slot) else { return };
        if is_kept(request.connection(), request.message_position()) {
            request.hold();
            self.hold(1);
        } else {
            self.slots.discard_at(slot);
        }
    }

    /// The device cannot read the message any more of the one in this slot, which was left.
    #[inline(always)]
    pub(crate) fn release(&mut self, slot: u32) {
        self.hold(-1);
        // Mutant: a slot that only Hold kept is lost.
        if !mutant!(S10_held) {
            self.slots.discard_at(slot);
        }
    }

    /// Nobody hears of this one any more, of which the device never did.
    pub(crate) fn discard(&mut self, request: Handle) {
        let _ = self.slots.remove(request);
    }

    /// So many slots are kept only by Hold that a message is to ask for a completion, unless one is coming anyway.
    #[inline(always)]
    pub(crate) fn are_short(&self) -> bool {
        self.are_short && !mutant!(held_slots_unasked)
    }

    /// So many more slots are kept only by Hold, or fewer.
    #[inline(always)]
    fn hold(&mut self, more: i32) {
        self.held = self.held.wrapping_add_signed(more);
        self.are_short = self.held >= self.held_limit;
    }

    /// Slots in use.
    pub(crate) fn len(&self) -> u32 {
        self.slots.len()
    }

    /// Slots that only Hold keeps.
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    /// The end of each is known and about to be reported, or was.
    pub(crate) fn have_ended(&self) -> bool {
        self.slots.iter().all(|(_, request)| request.has_ended())
    }

    /// The slot of the request that waits for the end of this MR's key. A walk over all of them.
    pub(crate) fn fencing(&self, descriptor: u32) -> Option<u32> {
        let waits = |request: &Request| request.phase() == Phase::Fencing && request.mrs().contains(&descriptor);
        self.slots.iter().find(|(_, request)| waits(request)).map(|(handle, _)| handle.index())
    }
}

/// A free slot, which stays free unless a request is put there.
pub(crate) struct Vacancy<'a>(Vacant<'a, ManuallyDrop<Request>>);

impl Vacancy<'_> {
    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        self.0.index()
    }

    /// Puts there what `make` returns, made in its place.
    #[inline(always)]
    pub(crate) fn insert(self, make: impl FnOnce() -> Request) -> Handle {
        self.0.insert(|| ManuallyDrop::new(make())).0
    }
}
