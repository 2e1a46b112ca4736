//! The slots of all transfers of one engine, with what each is cut into.

use crate::{
    event::{Event, TransferStatus},
    transfer::{RdmaOperation, RdmaOperations, Transfer},
};
use frwr_mempool::{
    Region, mutant,
    region::CarveError,
    slab::{Handle, Slab, Table, Vacant},
};

/// See the module.
pub(crate) struct Transfers {
    slots: Slab<Transfer>,
    /// By slot.
    operations: Table<RdmaOperations>,
    /// With so many in use a reply asks for its completion.
    held_limit: u32,
}

impl Transfers {
    /// With `held_limit` slots in use a reply asks for its completion.
    pub(crate) fn new_in(region: &mut Region, slots: u32, held_limit: u32) -> Result<Self, CarveError> {
        Ok(Self {
            slots: Slab::new_in(region, slots)?,
            operations: Table::new_in(region, slots as usize, |_| [RdmaOperation::NOTHING; _])?,
            held_limit,
        })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(slots: u32) -> Option<usize> {
        let operations = Table::<RdmaOperations>::bytes_needed(slots as usize)?;
        Slab::<Transfer>::bytes_needed(slots)?.checked_add(operations)
    }

    /// The next free slot, and where its operations stand.
    #[inline(always)]
    pub(crate) fn vacant(&mut self) -> Option<(Vacant<'_, Transfer>, &mut RdmaOperations)> {
        let vacant = self.slots.vacant()?;
        let operations = self.operations.get_mut(vacant.index() as usize)?;
        Some((vacant, operations))
    }

    #[inline(always)]
    pub(crate) fn get(&self, transfer: Handle) -> Option<&Transfer> {
        self.slots.get(transfer)
    }

    /// The transfer in a slot.
    #[inline(always)]
    pub(crate) fn at(&self, slot: u32) -> Option<&Transfer> {
        self.slots.at(slot).map(|(_, transfer)| transfer)
    }

    /// The transfer in a slot.
    #[inline(always)]
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut Transfer> {
        self.slots.at_mut(slot).map(|(_, transfer)| transfer)
    }

    /// The name of the transfer in a slot.
    pub(crate) fn handle_at(&self, slot: u32) -> Option<Handle> {
        self.slots.handle_at(slot)
    }

    /// The transfer in a slot with its name and its operations, for who admits it.
    pub(crate) fn cut_at(&mut self, slot: u32) -> Option<(Handle, &mut Transfer, &mut RdmaOperations)> {
        let operations = self.operations.get_mut(slot as usize)?;
        let (handle, transfer) = self.slots.at_mut(slot)?;
        Some((handle, transfer, operations))
    }

    /// What the transfer in a slot is cut into.
    pub(crate) fn operations_at(&self, slot: u32) -> &[RdmaOperation] {
        let operations = || self.operations.get(slot as usize)?.get(..self.at(slot)?.operations());
        operations().unwrap_or_default()
    }

    /// All of the one in this slot succeeded: it stays until that is told. False where there is none.
    #[inline(always)]
    pub(crate) fn end(&mut self, slot: u32) -> bool {
        self.at_mut(slot).map(Transfer::end).is_some()
    }

    /// What the caller of the one in this slot is told, which is free then.
    #[inline(always)]
    pub(crate) fn tell(&mut self, slot: u32, status: TransferStatus) -> Option<Event> {
        // Read in its place: taken out as an option it would be looked at once more.
        let event = self.at(slot)?.event(status);
        self.slots.discard_at(slot);
        Some(event)
    }

    /// Its caller is told of the one in this slot otherwise: it is free.
    pub(crate) fn discard(&mut self, slot: u32) {
        self.slots.discard_at(slot);
    }

    /// With so many more in use a reply is to ask for its completion.
    #[inline(always)]
    pub(crate) fn are_short(&self, more: u32) -> bool {
        self.slots.len() + more >= self.held_limit && !mutant!(transfers_held_unasked)
    }

    /// Slots in use.
    pub(crate) fn len(&self) -> u32 {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
