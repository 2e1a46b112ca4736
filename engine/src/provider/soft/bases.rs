//! One port's copy of the table of base registrations.

use crate::provider::{DomainId, ScatterElement};
use frwr_mempool::DeviceMemory;

/// Memory registered once for local use.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) lkey: u32,
    pub(super) domain: DomainId,
    pub(super) memory: DeviceMemory,
    pub(super) local_write: bool,
    /// Live registrations of this port that cover part of it (I33).
    pub(super) covers: u32,
    /// A deregistration is under way: nothing new may cover it.
    pub(super) retiring: bool,
}

impl Base {
    /// The address of a byte of the memory.
    pub(super) fn address_of(&self, offset: u64) -> u64 {
        self.memory.address() + offset
    }

    /// Where a range of addresses lies in the memory; `None` where it does not.
    pub(super) fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        let offset = address.checked_sub(self.memory.address())?;
        let end = offset.checked_add(length)?;
        (end <= self.memory.len() as u64).then_some(offset)
    }
}

/// Index bits of a key: everything above the rotating byte.
pub(super) const fn index_of(key: u32) -> u32 {
    key >> 8
}

/// Base registrations by the index in their local key.
#[derive(Debug, Default)]
pub(super) struct BaseTable {
    entries: Vec<Option<Base>>,
}

impl BaseTable {
    pub(super) fn insert(&mut self, base: Base) {
        let index = index_of(base.lkey) as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some(base);
    }

    pub(super) fn remove(&mut self, index: u32) {
        if let Some(slot) = self.entries.get_mut(index as usize) {
            *slot = None;
        }
    }

    pub(super) fn get(&self, index: u32) -> Option<&Base> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Base> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// First half of a deregistration: false where a registration still covers part of it.
    pub(super) fn retire(&mut self, index: u32) -> bool {
        self.get_mut(index).is_none_or(|base| {
            base.retiring = base.covers == 0;
            base.retiring
        })
    }

    /// Takes back [`BaseTable::retire`].
    pub(super) fn restore(&mut self, base: Base) {
        match self.get_mut(index_of(base.lkey)) {
            Some(known) => known.retiring = false,
            None => self.insert(base),
        }
    }

    /// The memory and offset behind a local element, if its key, domain, bounds and right are good.
    pub(super) fn resolve(&self, element: &ScatterElement, domain: DomainId, write: bool) -> Option<(&Base, u64)> {
        let base = self.get(index_of(element.lkey))?;
        let allowed = base.lkey == element.lkey && base.domain == domain && (base.local_write || !write);
        let offset = base.offset_of(element.address, u64::from(element.length))?;
        allowed.then_some((base, offset))
    }
}

/// A position in a list of elements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    element: usize,
    within: u32,
}

/// A local protection error: key, domain, bounds or right of an element is not good (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unprotected;

impl BaseTable {
    /// Walks `length` bytes of a list of elements from `cursor` and hands each piece to `copy` with its place.
    fn walk(
        &self,
        elements: &[ScatterElement],
        cursor: &mut Cursor,
        domain: DomainId,
        write: bool,
        length: usize,
        mut copy: impl FnMut(&DeviceMemory, usize, core::ops::Range<usize>) -> bool,
    ) -> Result<(), Unprotected> {
        let mut done = 0;
        while done < length {
            let element = elements.get(cursor.element).ok_or(Unprotected)?;
            let left = element.length.saturating_sub(cursor.within) as usize;
            if left == 0 {
                *cursor = Cursor { element: cursor.element + 1, within: 0 };
                continue;
            }
            let piece = left.min(length - done);
            let (base, offset) = self.resolve(element, domain, write).ok_or(Unprotected)?;
            let offset = (offset + u64::from(cursor.within)) as usize;
            if !copy(&base.memory, offset, done..done + piece) {
                return Err(Unprotected);
            }
            cursor.within += piece as u32;
            done += piece;
        }
        Ok(())
    }

    /// Copies from local elements into a packet.
    pub(super) fn gather(
        &self,
        elements: &[ScatterElement],
        cursor: &mut Cursor,
        domain: DomainId,
        into: &mut [u8],
    ) -> Result<(), Unprotected> {
        let length = into.len();
        self.walk(elements, cursor, domain, false, length, |memory, offset, range| {
            memory.read(offset, &mut into[range]).is_ok()
        })
    }

    /// Copies from a packet to local elements.
    pub(super) fn scatter(
        &self,
        elements: &[ScatterElement],
        cursor: &mut Cursor,
        domain: DomainId,
        from: &[u8],
    ) -> Result<(), Unprotected> {
        self.walk(elements, cursor, domain, true, from.len(), |memory, offset, range| {
            memory.write(offset, &from[range]).is_ok()
        })
    }
}
