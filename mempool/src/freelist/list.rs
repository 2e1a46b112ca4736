//! Lists of indices, linked through one array that the freelist owns.

use super::{Batch, FreeError, batch::BATCH_CAPACITY};

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
    /// Last index; meaningless in an empty list.
    tail: u32,
    /// Indices that are linked.
    linked: u32,
    order: Order,
    freelist: u32,
    /// Indices of batches that came back, not linked: the next batch is taken from the end of them, by a copy. Only where
    /// the order is [`Order::LastInFirstOut`].
    stash: [u32; BATCH_CAPACITY],
    stashed: usize,
}

impl List {
    /// Indices on the list.
    #[must_use]
    pub fn len(&self) -> u32 {
        // At most a batch of them is stashed.
        self.linked + self.stashed as u32
    }

    /// Whether there is no index on the list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which index comes next.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order
    }

    /// An empty list of the freelist with this name.
    pub(super) fn new(order: Order, freelist: u32) -> Self {
        Self { head: END, tail: END, linked: 0, order, freelist, stash: [0; BATCH_CAPACITY], stashed: 0 }
    }

    /// The name of the freelist that made the list.
    #[inline]
    pub(super) fn freelist(&self) -> u32 {
        self.freelist
    }

    /// Puts a handed-out index on the list.
    #[inline]
    pub(super) fn push(&mut self, links: &mut [u32], index: u32) -> Result<(), FreeError> {
        let link = links.get_mut(index as usize).ok_or(FreeError::Foreign { index })?;
        if *link != HANDED_OUT {
            return Err(FreeError::DoubleFree { index });
        }
        match self.order {
            Order::LastInFirstOut => {
                *link = self.head;
                if self.head == END {
                    self.tail = index;
                }
                self.head = index;
            }
            Order::FirstInFirstOut => {
                *link = END;
                self.link_after_tail(links, index);
                self.tail = index;
            }
        }
        self.linked += 1;
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
        // At most as many as the freelist has.
        self.linked += pushed as u32;
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
        if self.head == END
            && let Some(first) = indices.first()
        {
            self.tail = *first;
        }
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
        self.linked -= 1;
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
        // At most `self.linked`.
        self.linked -= taken as u32;
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
        if into.len() > self.linked as usize && self.stashed != 0 {
            self.unstash(links);
        }
        let count = into.len().min(self.linked as usize);
        let (into, _) = into.split_at_mut(count);
        let mut head = self.head;
        let mut take = |slot: &mut u32| {
            // Always inside, because the list is as long as `count`; said so that the compiler stops at once if not.
            let Some(link) = links.get_mut(head as usize) else { return false };
            *slot = core::mem::replace(&mut head, core::mem::replace(link, HANDED_OUT));
            true
        };
        let (unrolled, rest) = into.as_chunks_mut::<UNROLLED>();
        let _all = unrolled.iter_mut().all(|slots| slots.iter_mut().all(&mut take)) && rest.iter_mut().all(take);
        self.head = head;
        // At most `self.linked`.
        self.linked -= count as u32;
        count
    }

    /// Moves all indices of `from` behind those of this list.
    pub(super) fn append(&mut self, links: &mut [u32], from: &mut Self) {
        from.unstash(links);
        if from.head == END {
            return;
        }
        self.link_after_tail(links, from.head);
        self.tail = from.tail;
        self.linked += from.linked;
        *from = Self::new(from.order, from.freelist);
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

/// The link of an index, if that is handed out.
#[inline]
fn handed_out(links: &mut [u32], index: u32) -> Option<&mut u32> {
    links.get_mut(index as usize).filter(|link| **link == HANDED_OUT)
}
