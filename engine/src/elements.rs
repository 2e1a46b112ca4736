//! The scatter elements of one engine: one table, which work requests refer to, and whose places in it are whose. Each MR has as many as
//! one request can have it cover; each request its message's, and behind that one for each segment that follows it; each transfer those of
//! its data, and the reply's.

use crate::{
    messages::Messages,
    options::MAX_TRANSFER_ELEMENTS,
    provider::{ElementRange, ScatterElement},
};
use frwr_mempool::{Region, region::CarveError, slab::Table};

/// Of a transfer: those of its data, and the reply's.
const TRANSFER_ELEMENTS: usize = MAX_TRANSFER_ELEMENTS + 1;

/// How many there are of everything that has elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementCounts {
    pub(crate) mrs: u32,
    /// Elements of an MR.
    pub(crate) per_mr: u32,
    pub(crate) requests: u32,
    /// Elements of a message.
    pub(crate) per_message: u32,
    pub(crate) transfers: u32,
}

impl ElementCounts {
    /// All elements.
    pub(crate) fn all(&self) -> u64 {
        u64::from(self.mrs) * u64::from(self.per_mr)
            + u64::from(self.requests) * u64::from(self.per_message)
            + u64::from(self.transfers) * TRANSFER_ELEMENTS as u64
    }
}

/// See the module.
pub(crate) struct Elements {
    all: Table<ScatterElement>,
    /// Of an MR.
    per_mr: usize,
    /// Of a message.
    per_message: usize,
    /// Index of the first message's.
    first_message: u32,
    /// Index of the first transfer's.
    first_transfer: u32,
}

/// Those of a transfer.
pub(crate) struct TransferElements<'a> {
    /// Index of the first of its data.
    pub(crate) first: u32,
    pub(crate) data: &'a mut [ScatterElement; MAX_TRANSFER_ELEMENTS],
    pub(crate) reply: &'a mut ScatterElement,
}

impl Elements {
    /// For counts of which all are numbered by 32 bit. Where a slot's message or reply stands, stays.
    pub(crate) fn new_in(region: &mut Region, counts: ElementCounts, messages: &Messages) -> Result<Self, CarveError> {
        let first_message = counts.mrs * counts.per_mr;
        let mut elements = Self {
            all: Table::new_in(region, counts.all() as usize, |_| ScatterElement::default())?,
            per_mr: counts.per_mr as usize,
            per_message: counts.per_message as usize,
            first_message,
            first_transfer: first_message + counts.requests * counts.per_message,
        };
        for slot in 0..counts.requests {
            let at = elements.message_at(slot);
            elements.all[at].address = messages.of_request(slot);
        }
        for slot in 0..counts.transfers {
            if let Some(places) = elements.of_transfer(slot) {
                places.reply.address = messages.of_reply(slot);
            }
        }
        Ok(elements)
    }

    /// Bytes of the region that they take.
    pub(crate) fn bytes_needed(counts: ElementCounts) -> Option<usize> {
        Table::<ScatterElement>::bytes_needed(counts.all() as usize)
    }

    /// The table.
    #[inline(always)]
    pub(crate) fn all(&self) -> &[ScatterElement] {
        &self.all
    }

    /// Those that a work request refers to.
    pub(crate) fn range(&self, range: ElementRange) -> &[ScatterElement] {
        let first = range.first as usize;
        self.all.get(first..first + range.count as usize).unwrap_or_default()
    }

    /// The first of an MR's.
    #[inline(always)]
    pub(crate) fn first_of_mr(&mut self, descriptor: u32) -> Option<&mut ScatterElement> {
        let at = self.mr_at(descriptor);
        self.all.get_mut(at)
    }

    /// All of an MR's.
    #[inline(always)]
    pub(crate) fn of_mr(&mut self, descriptor: u32) -> Option<&mut [ScatterElement]> {
        let first = self.mr_at(descriptor);
        self.all.get_mut(first..first + self.per_mr)
    }

    /// A request's message has so many bytes, in a memory with this local key.
    #[inline(always)]
    pub(crate) fn message(&mut self, slot: u32, length: u32, lkey: u32) -> ElementRange {
        let at = self.message_at(slot);
        if let Some(place) = self.all.get_mut(at) {
            (place.length, place.lkey) = (length, lkey);
        }
        ElementRange { first: at as u32, count: 1 }
    }

    /// Those of what follows a request's message in its SEND.
    #[inline(always)]
    pub(crate) fn behind_message(&mut self, slot: u32) -> &mut [ScatterElement] {
        let at = self.message_at(slot);
        self.all.get_mut(at + 1..at + self.per_message).unwrap_or_default()
    }

    /// Where so many of those stand.
    pub(crate) fn range_behind_message(&self, slot: u32, count: u32) -> ElementRange {
        ElementRange { first: self.message_at(slot) as u32 + 1, count }
    }

    /// Those of a transfer.
    #[inline(always)]
    pub(crate) fn of_transfer(&mut self, slot: u32) -> Option<TransferElements<'_>> {
        let first = self.first_transfer + slot * TRANSFER_ELEMENTS as u32;
        let [data @ .., reply] = self.all.get_mut(first as usize..)?.first_chunk_mut::<TRANSFER_ELEMENTS>()?;
        Some(TransferElements { first, data, reply })
    }

    #[inline(always)]
    fn mr_at(&self, descriptor: u32) -> usize {
        // Numbered by 32 bit.
        (descriptor * self.per_mr as u32) as usize
    }

    #[inline(always)]
    fn message_at(&self, slot: u32) -> usize {
        // Numbered by 32 bit.
        (self.first_message + slot * self.per_message as u32) as usize
    }
}
