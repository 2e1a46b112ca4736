//! Lists of indices, linked through one array that the freelist owns.

use super::{Batch, FreeError, batch::BATCH_CAPACITY};
use crate::mutant;

/// The link of an index that is handed out, which is on no list.
pub(super) const HANDED_OUT: u32 = u32::MAX;
/// The link of a list's last index.
pub(super) const END: u32 = u32::MAX - 1;

/// Indices per step of the bulk loops, which the compiler keeps rolled otherwise.
const UNROLLED: usize = 8;

/// Which index a list hands out next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The one freed last: it is the likeliest to be in the cache.
    LastInFirstOut,
    /// The one freed first: the longest time until its reuse.
    FirstInFirstOut,
}

/// One list of free indices. It belongs to the freelist that made it, and is passed to each of its calls.
///
/// Dropping a list that is not empty loses its indices for as long as the freelist lives.
#[derive(Debug)]
pub struct List {
    /// First index, or [`END`].
    head: u32,
    /// Last index, where the order is first in, first out; meaningless in an empty list.
    tail: u32,
    order: Order,
    freelist: u32,
    /// Indices of batches that came back, not linked: the next batch is taken from the end of them, by a copy. Only where
    /// the order is [`Order::LastInFirstOut`].
    stash: [u32; BATCH_CAPACITY],
    stashed: usize,
}

impl List {
    /// Whether there is no index on the list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == END && self.stashed == 0
    }

    /// How many indices are on the list: walks along all of them.
    pub(super) fn count(&self, links: &[u32]) -> u32 {
        let next = |index: &u32| links.get(*index as usize).copied();
        let linked = core::iter::successors(Some(self.head), next).take(links.len() + 1);
        // The last one is the end. At most a batch of indices is stashed.
        (linked.count() - 1 + self.stashed) as u32
    }

    /// Which index comes next.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order
    }

    /// An empty list of the freelist with this name.
    pub(super) fn new(order: Order, freelist: u32) -> Self {
        Self { head: END, tail: END, order, freelist, stash: [0; BATCH_CAPACITY], stashed: 0 }
    }

    /// Whether at least so many indices are on the list: walks along as many.
    #[inline]
    pub(super) fn holds(&self, links: &[u32], wanted: u32) -> bool {
        let mut index = self.head;
        // At most a batch of them is stashed.
        for _ in 0..wanted.saturating_sub(self.stashed as u32) {
            let Some(next) = links.get(index as usize) else { return false };
            index = *next;
        }
        true
    }

    /// The name of the freelist that made the list.
    #[inline]
    pub(super) fn freelist(&self) -> u32 {
        self.freelist
    }

    /// Puts a handed-out index on the list.
    #[inline]
    pub(super) fn push(&mut self, links: &mut [u32], index: u32) -> Result<(), FreeError> {
        // K1, S1: what is on a list is put on another.
        let found = if mutant!(K1_list) { links.get_mut(index as usize) } else { handed_out(links, index) };
        let Some(link) = found else { return Err(refusal(links, index)) };
        match self.order {
            Order::LastInFirstOut => *link = core::mem::replace(&mut self.head, index),
            Order::FirstInFirstOut => {
                *link = END;
                self.link_after_tail(links, index);
                self.tail = index;
            }
        }
        Ok(())
    }

    /// Puts handed-out indices on the list, in order, or those before the first that is not handed out: then their number
    /// is the error.
    #[inline]
    pub(super) fn push_all(&mut self, links: &mut [u32], indices: &[u32]) -> Result<(), usize> {
        let pushed = match self.order {
            Order::LastInFirstOut => self.push_all_in_front(links, indices),
            Order::FirstInFirstOut => self.push_all_behind(links, indices),
        };
        if pushed == indices.len() { Ok(()) } else { Err(pushed) }
    }

    #[inline]
    fn push_all_in_front(&mut self, links: &mut [u32], indices: &[u32]) -> usize {
        let mut head = self.head;
        let pushed = count_while(indices, |index| {
            let Some(link) = handed_out(links, *index) else { return false };
            *link = core::mem::replace(&mut head, *index);
            true
        });
        self.head = head;
        pushed
    }

    #[inline]
    fn push_all_behind(&mut self, links: &mut [u32], indices: &[u32]) -> usize {
        let Some((last, others)) = indices.split_last() else { return 0 };
        let mut pushed = 0;
        // Each is linked to the one after it before that one is looked at.
        let mut link = |(index, next): (&u32, &u32)| {
            let Some(link) = handed_out(links, *index) else { return false };
            *link = *next;
            pushed += 1;
            true
        };
        let (unrolled, rest) = others.as_chunks::<UNROLLED>();
        let (unrolled_nexts, rest_nexts) = indices[1..].as_chunks::<UNROLLED>();
        let _all = unrolled.iter().zip(unrolled_nexts).all(|(indices, nexts)| indices.iter().zip(nexts).all(&mut link))
            && rest.iter().zip(rest_nexts).all(&mut link)
            && link((last, &END));
        if let Some(tail) = indices[..pushed].last() {
            if pushed < indices.len() {
                links[*tail as usize] = END;
            }
            self.link_after_tail(links, indices[0]);
            self.tail = *tail;
        }
        pushed
    }

    /// Hands out the next index.
    #[inline]
    pub(super) fn pop(&mut self, links: &mut [u32]) -> Option<u32> {
        let index = self.head;
        // `END` is outside of the array.
        let Some(link) = links.get_mut(index as usize) else { return self.pop_stashed(links) };
        self.head = core::mem::replace(link, HANDED_OUT);
        Some(index)
    }

    /// Hands out an index of the stash, where no other is left.
    #[cold]
    fn pop_stashed(&mut self, links: &mut [u32]) -> Option<u32> {
        let index = *self.stash.get(self.stashed.wrapping_sub(1))?;
        self.stashed -= 1;
        *links.get_mut(index as usize)? = HANDED_OUT;
        Some(index)
    }

    /// Links what is stashed, in front.
    #[cold]
    fn unstash(&mut self, links: &mut [u32]) {
        let (stash, stashed) = (self.stash, core::mem::take(&mut self.stashed));
        self.link_kept(links, &stash[..stashed]);
    }

    /// Links indices that were kept by a batch or the stash.
    pub(super) fn link_kept(&mut self, links: &mut [u32], indices: &[u32]) {
        for index in indices {
            if let Some(link) = links.get_mut(*index as usize) {
                *link = HANDED_OUT;
                // Cannot be refused now.
                let _ = self.push(links, *index);
            }
        }
    }

    /// Moves up to `wanted` indices into a batch, as many as that has room for: stashed ones first. Returns how many.
    #[inline]
    pub(super) fn pop_batch(&mut self, links: &[u32], into: &mut Batch, wanted: usize) -> usize {
        // The usual one: a whole batch, copied by its fixed length.
        if self.stashed == BATCH_CAPACITY && wanted >= BATCH_CAPACITY && into.is_empty() {
            into.fill(&self.stash);
            self.stashed = 0;
            return BATCH_CAPACITY;
        }
        let wanted = wanted.min(into.room());
        let kept = self.stashed.saturating_sub(wanted);
        let taken = self.stash.get(kept..self.stashed).map_or(0, |indices| into.extend(indices));
        self.stashed = kept;
        if taken == wanted { taken } else { taken + self.pop_linked(links, into, wanted - taken) }
    }

    /// The rest of it, from the links. These are left as they are: an index in a batch is not handed out.
    fn pop_linked(&mut self, links: &[u32], into: &mut Batch, wanted: usize) -> usize {
        let mut taken = 0;
        while taken < wanted
            && let Some(next) = links.get(self.head as usize)
        {
            into.extend(&[self.head]);
            self.head = *next;
            taken += 1;
        }
        taken
    }

    /// Moves all indices of a batch onto the list.
    #[inline]
    pub(super) fn push_batch(&mut self, links: &mut [u32], from: &mut Batch) {
        if let Some(full) = from.full()
            && self.order == Order::LastInFirstOut
            && self.stashed == 0
        {
            (self.stash, self.stashed) = (*full, BATCH_CAPACITY);
        } else if self.order == Order::LastInFirstOut && from.len() <= BATCH_CAPACITY - self.stashed.min(BATCH_CAPACITY)
        {
            append_copies(&mut self.stash, &mut self.stashed, from.indices());
        } else {
            self.link_kept(links, from.indices());
        }
        from.clear();
    }

    /// Hands out the next indices, until the list is empty or `into` is full. Returns how many.
    #[inline]
    pub(super) fn pop_all(&mut self, links: &mut [u32], into: &mut [u32]) -> usize {
        let taken = self.pop_all_linked(links, into);
        if taken == into.len() || self.stashed == 0 {
            return taken;
        }
        self.unstash(links);
        taken + self.pop_all_linked(links, &mut into[taken..])
    }

    #[inline]
    fn pop_all_linked(&mut self, links: &mut [u32], into: &mut [u32]) -> usize {
        let mut head = self.head;
        let taken = count_while_mut(into, |slot| {
            let Some(link) = links.get_mut(head as usize) else { return false };
            *slot = core::mem::replace(&mut head, core::mem::replace(link, HANDED_OUT));
            true
        });
        self.head = head;
        taken
    }

    /// Moves all indices of `from` behind those of this list.
    pub(super) fn append(&mut self, links: &mut [u32], from: &mut Self) {
        from.unstash(links);
        if from.head == END {
            return;
        }
        let last = from.last(links);
        self.tail = self.last(links);
        self.link_after_tail(links, from.head);
        self.tail = last;
        *from = Self::new(from.order, from.freelist);
    }

    /// The last index: walks along the list where the order is last in, first out.
    fn last(&self, links: &[u32]) -> u32 {
        let next = |index: &u32| links.get(*index as usize).copied().filter(|next| *next != END);
        match self.order {
            Order::FirstInFirstOut => self.tail,
            Order::LastInFirstOut => {
                core::iter::successors(Some(self.head), next).take(links.len()).last().unwrap_or(END)
            }
        }
    }

    /// Makes `index` follow the last index.
    #[inline]
    fn link_after_tail(&mut self, links: &mut [u32], index: u32) {
        if self.head == END {
            self.head = index;
        } else if let Some(link) = links.get_mut(self.tail as usize) {
            *link = index;
        }
    }
}

/// Copies indices behind the first `len` ones of an array, as many as there is room for, and counts them there. Returns how
/// many.
#[inline]
pub(super) fn append_copies(array: &mut [u32; BATCH_CAPACITY], len: &mut usize, indices: &[u32]) -> usize {
    let Some(room) = array.get_mut(*len..) else { return 0 };
    let count = indices.len().min(room.len());
    room[..count].copy_from_slice(&indices[..count]);
    *len += count;
    count
}

/// How many items come before the first that `accept` does not accept.
#[inline]
pub(super) fn count_while<T>(items: &[T], mut accept: impl FnMut(&T) -> bool) -> usize {
    let (unrolled, rest) = items.as_chunks::<UNROLLED>();
    for (before, items) in unrolled.iter().enumerate() {
        for (at, item) in items.iter().enumerate() {
            if !accept(item) {
                return before * UNROLLED + at;
            }
        }
    }
    let before = items.len() - rest.len();
    rest.iter().position(|item| !accept(item)).map_or(items.len(), |at| before + at)
}

/// The same for items that are written.
#[inline]
fn count_while_mut<T>(items: &mut [T], mut accept: impl FnMut(&mut T) -> bool) -> usize {
    let len = items.len();
    let (unrolled, rest) = items.as_chunks_mut::<UNROLLED>();
    let before = len - rest.len();
    for (chunk, items) in unrolled.iter_mut().enumerate() {
        for (at, item) in items.iter_mut().enumerate() {
            if !accept(item) {
                return chunk * UNROLLED + at;
            }
        }
    }
    rest.iter_mut().position(|item| !accept(item)).map_or(len, |at| before + at)
}

/// Why an index that is not handed out is refused.
#[cold]
pub(super) fn refusal(links: &[u32], index: u32) -> FreeError {
    if (index as usize) < links.len() { FreeError::DoubleFree { index } } else { FreeError::Foreign { index } }
}

/// The link of an index, if that is handed out.
#[inline]
fn handed_out(links: &mut [u32], index: u32) -> Option<&mut u32> {
    links.get_mut(index as usize).filter(|link| **link == HANDED_OUT)
}
