//! The scatter elements of one engine: one table, which work requests refer to, and whose places in it are whose. Each
//! MR has one, each request that of its message, each transfer those of its data and the reply's. Lists that an MR
//! covers, and messages with segments behind them, take places that all share: the device has read them when their
//! chain is posted, so that each flush gives all of them back.

use crate::{
    messages::Messages,
    options::MAX_TRANSFER_ELEMENTS,
    provider::{ElementRange, ScatterElement},
};
use frwr_mempool::{Region, region::CarveError, slab::Table};

/// Of a transfer: those of its data, and the reply's.
const TRANSFER_ELEMENTS: usize = MAX_TRANSFER_ELEMENTS + 1;

/// The length of an MR's element where the MR covers a list out of several memories. No element of a list has none.
const SEVERAL_MEMORIES: u32 = 0;

/// What the element of an MR says that covers a list: where that begins, and the local key of its memory, if it is one.
#[inline(always)]
pub(crate) fn covered(list: &[ScatterElement]) -> ScatterElement {
    let Some(&first) = list.first() else { return ScatterElement::default() };
    let is_one = list.iter().all(|element| element.lkey == first.lkey);
    ScatterElement { length: if is_one { first.length } else { SEVERAL_MEMORIES }, ..first }
}

/// How many there are of everything that has elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementCounts {
    pub(crate) mrs: u32,
    pub(crate) requests: u32,
    pub(crate) transfers: u32,
    /// Of what MRs cover.
    pub(crate) lists: SharedCounts,
    /// Of messages with segments behind them.
    pub(crate) gathered: SharedCounts,
}

/// Places that all share who put something into the next flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedCounts {
    /// Elements of the longest list.
    pub(crate) longest: u32,
    /// For all lists together; the longest one finds room at least.
    pub(crate) all: u32,
}

impl ElementCounts {
    /// All elements.
    pub(crate) fn all(&self) -> u64 {
        let shared = u64::from(self.lists.all) + u64::from(self.gathered.all);
        u64::from(self.mrs) + u64::from(self.requests) + shared + u64::from(self.transfers) * TRANSFER_ELEMENTS as u64
    }
}

/// Places that are taken one list behind the other, until all are free again.
struct Shared {
    first: u32,
    /// Behind those that are taken.
    next: u32,
    /// No list begins behind this one, since the longest would not end in them.
    last: u32,
    longest: u32,
}

impl Shared {
    const fn new(first: u32, counts: SharedCounts) -> Self {
        Self { first, next: first, last: first + counts.all - counts.longest, longest: counts.longest }
    }

    /// Where the next list begins, behind so many elements of the same request. `None` where there may be no room for
    /// it before the next flush.
    #[inline(always)]
    fn vacant(&self, behind: u32) -> Option<u32> {
        let at = self.next + behind;
        (at <= self.last).then_some(at)
    }
}

/// See the module.
pub(crate) struct Elements {
    /// Those of MRs are the first, by descriptor.
    all: Table<ScatterElement>,
    /// Index of the first message's.
    first_message: u32,
    lists: Shared,
    gathered: Shared,
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
        let first_transfer = counts.mrs + counts.requests;
        let first_list = first_transfer + counts.transfers * TRANSFER_ELEMENTS as u32;
        let mut elements = Self {
            all: Table::new_in(region, counts.all() as usize, |_| ScatterElement::default())?,
            first_message: counts.mrs,
            lists: Shared::new(first_list, counts.lists),
            gathered: Shared::new(first_list + counts.lists.all, counts.gathered),
            first_transfer,
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

    /// That of an MR, whose index is the descriptor's.
    #[inline(always)]
    pub(crate) fn of_mr(&mut self, descriptor: u32) -> Option<&mut ScatterElement> {
        self.all.get_mut(descriptor as usize)
    }

    /// Whether an MR covers memory with this local key, or may.
    pub(crate) fn may_lie_in(&self, descriptor: u32, lkey: u32) -> bool {
        let covered = self.all.get(descriptor as usize);
        covered.is_some_and(|covered| covered.length == SEVERAL_MEMORIES || covered.lkey == lkey)
    }

    /// Places for the longest list that an MR can cover, and the index of the first one, behind so many elements of the
    /// same request. `None` until the next flush.
    #[inline(always)]
    pub(crate) fn vacant_list(&mut self, behind: u32) -> Option<(u32, &mut [ScatterElement])> {
        let first = self.lists.vacant(behind)?;
        let at = first as usize;
        Some((first, self.all.get_mut(at..at + self.lists.longest as usize)?))
    }

    /// The next flush has so many elements of lists more, where [`Elements::vacant_list`] said.
    #[inline(always)]
    pub(crate) fn stage_lists(&mut self, elements: u32) {
        self.lists.next += elements;
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

    /// Places for all that may follow a message in its SEND. `None` until the next flush.
    #[inline(always)]
    pub(crate) fn vacant_behind_message(&mut self) -> Option<&mut [ScatterElement]> {
        let at = self.gathered.vacant(0)? as usize;
        self.all.get_mut(at + 1..at + self.gathered.longest as usize)
    }

    /// As [`Elements::message`], with so many of those behind it, for the next flush.
    #[inline(always)]
    pub(crate) fn gathered_message(&mut self, slot: u32, length: u32, lkey: u32, behind: u32) -> ElementRange {
        let address = self.all.get(self.message_at(slot)).map_or(0, |message| message.address);
        let range = ElementRange { first: self.gathered.next, count: 1 + behind };
        if let Some(place) = self.all.get_mut(range.first as usize) {
            *place = ScatterElement { address, length, lkey };
        }
        self.gathered.next += range.count;
        range
    }

    /// All that was staged is posted, or never will be.
    #[inline(always)]
    pub(crate) fn flushed(&mut self) {
        self.lists.next = self.lists.first;
        self.gathered.next = self.gathered.first;
    }

    /// Those of a transfer.
    #[inline(always)]
    pub(crate) fn of_transfer(&mut self, slot: u32) -> Option<TransferElements<'_>> {
        let first = self.first_transfer + slot * TRANSFER_ELEMENTS as u32;
        let [data @ .., reply] = self.all.get_mut(first as usize..)?.first_chunk_mut::<TRANSFER_ELEMENTS>()?;
        Some(TransferElements { first, data, reply })
    }

    #[inline(always)]
    fn message_at(&self, slot: u32) -> usize {
        // Numbered by 32 bit.
        (self.first_message + slot) as usize
    }
}
