//! Lists of free indices over one array: an owner side without atomics, and a return side for other cores.
//!
//! A fresh [`Freelist`] has all its indices *handed out*. [`Freelist::push`] puts an index on a [`List`], [`Freelist::pop`]
//! hands it out again. Any number of lists share the array, since an index is on one list at most: a connection takes a
//! list at its start and gives it up at its end, by [`Freelist::append`] to another one or by popping it empty.
//!
//! An index that is pushed while it is on a list is a double free; it is refused, whichever list it is on. The check is
//! exact for as long as the index has not been handed out again; after that, the generation in a
//! [`Handle`](crate::slab::Handle) is what tells the old holder from the new one.

mod returns;

use core::sync::atomic;

pub use returns::Returner;

use crate::primitive::Arc;
use returns::Shared;

/// The link of an index that is handed out, which is on no list.
const HANDED_OUT: u32 = u32::MAX;
/// The link of a list's last index.
const END: u32 = u32::MAX - 1;
/// Indices of the largest freelist; a larger wish is cut to it. 2^30 indices take 13 GiB: more is a mistake.
pub const MAX_CAPACITY: u32 = 1 << 30;
const _: () = assert!(MAX_CAPACITY < END);

/// Indices per step of the bulk loops, which the compiler keeps rolled otherwise.
const UNROLLED: usize = 8;

/// Indices taken from the return side at once, into a buffer on the stack: a usual batch.
const DRAINED_AT_ONCE: usize = 32;

/// Why an index was not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// The index is free already.
    #[error("index {index} is freed twice; it stays free once")]
    DoubleFree {
        /// The index.
        index: u32,
    },
    /// The freelist has no such index.
    #[error("index {index} is not of this freelist; give it back to the one it came from")]
    Foreign {
        /// The index.
        index: u32,
    },
    /// The list was made by another freelist.
    #[error("the list is of another freelist; use the one that made it")]
    ForeignList,
    /// More indices are on their way back than there are: some were returned twice.
    #[error("more than {limit} returns wait to be drained; some index was returned twice, or the owner does not drain")]
    ReturnsFull {
        /// Returns that can wait.
        limit: usize,
    },
}

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
    len: u32,
    order: Order,
    freelist: u32,
}

impl List {
    /// Indices on the list.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no index on the list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves everything into a list of the same kind.
    fn take(&mut self) -> Self {
        let empty = Self { head: END, tail: END, len: 0, ..*self };
        core::mem::replace(self, empty)
    }

    /// Which index comes next.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order
    }
}

/// Returns that the owner refused at its drains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedReturns {
    /// How many, since the start.
    pub count: u64,
    /// Why the last one was refused.
    pub last: Option<FreeError>,
}

/// The array under all lists of one core. One thread at a time.
#[derive(Debug)]
pub struct Freelist {
    /// One link per index: [`HANDED_OUT`], or the next index of its list, or [`END`].
    links: Box<[u32]>,
    /// Tells this freelist's lists from those of others.
    name: u32,
    shared: Arc<Shared>,
    /// Next position of the return side's ring to drain.
    drained: usize,
    refused: RefusedReturns,
}

impl Freelist {
    /// A freelist of the indices below `capacity`, at most [`MAX_CAPACITY`], all of them handed out. Allocates here and
    /// nowhere later.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        static NAMES: atomic::AtomicU32 = atomic::AtomicU32::new(0);
        let capacity = capacity.min(MAX_CAPACITY);
        Self {
            links: vec![HANDED_OUT; capacity as usize].into_boxed_slice(),
            name: NAMES.fetch_add(1, atomic::Ordering::Relaxed),
            shared: Arc::new(Shared::new(capacity)),
            drained: 0,
            refused: RefusedReturns::default(),
        }
    }

    /// Number of indices, free or handed out.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        // At most `MAX_CAPACITY`.
        self.links.len() as u32
    }

    /// A new, empty list. It costs nothing but itself.
    #[must_use]
    pub fn list(&self, order: Order) -> List {
        List { head: END, tail: END, len: 0, order, freelist: self.name }
    }

    /// Whether an index is handed out. False for one that the freelist does not have.
    #[must_use]
    pub fn is_handed_out(&self, index: u32) -> bool {
        self.links.get(index as usize) == Some(&HANDED_OUT)
    }

    /// Puts a handed-out index on a list.
    ///
    /// # Errors
    /// [`FreeError`] when the index is on a list already, or the index or the list is not of this freelist. Nothing changes.
    #[inline]
    pub fn push(&mut self, list: &mut List, index: u32) -> Result<(), FreeError> {
        self.check_list(list)?;
        put(&mut self.links, list, index)
    }

    /// Puts handed-out indices on a list, in order: the last one comes out first, or last.
    ///
    /// # Errors
    /// As [`Freelist::push`], at the first index that is refused; those before it are on the list.
    #[inline]
    pub fn push_bulk(&mut self, list: &mut List, indices: &[u32]) -> Result<(), FreeError> {
        self.check_list(list)?;
        put_all(&mut self.links, list, indices).map_err(|pushed| self.refusal(indices[pushed]))
    }

    /// Hands out the next index of a list. `None` if it is empty, or of another freelist.
    #[inline]
    pub fn pop(&mut self, list: &mut List) -> Option<u32> {
        self.check_list(list).ok()?;
        let index = list.head;
        // `END` is outside of the array.
        let link = self.links.get_mut(index as usize)?;
        list.head = core::mem::replace(link, HANDED_OUT);
        list.len -= 1;
        Some(index)
    }

    /// Hands out the next indices of a list, until it is empty or `into` is full. Returns how many.
    #[inline]
    pub fn pop_bulk(&mut self, list: &mut List, into: &mut [u32]) -> usize {
        if self.check_list(list).is_err() {
            return 0;
        }
        let count = into.len().min(list.len as usize);
        let (into, _) = into.split_at_mut(count);
        let mut head = list.head;
        let mut take = |slot: &mut u32| {
            // Always inside, because the list is as long as `count`; said so that the compiler stops at once if not.
            let Some(link) = self.links.get_mut(head as usize) else { return false };
            *slot = core::mem::replace(&mut head, core::mem::replace(link, HANDED_OUT));
            true
        };
        let (unrolled, rest) = into.as_chunks_mut::<UNROLLED>();
        let _all = unrolled.iter_mut().all(|slots| slots.iter_mut().all(&mut take)) && rest.iter_mut().all(take);
        list.head = head;
        // At most `list.len`.
        list.len -= count as u32;
        count
    }

    /// Moves all indices of `from` behind those of `to`, whatever their orders, in constant time. `from` is empty
    /// afterwards and may be used again or dropped.
    ///
    /// # Errors
    /// [`FreeError::ForeignList`] if either list is of another freelist. Nothing changes.
    pub fn append(&mut self, to: &mut List, from: &mut List) -> Result<(), FreeError> {
        self.check_list(to)?;
        self.check_list(from)?;
        if from.head == END {
            return Ok(());
        }
        link_after_tail(&mut self.links, to, from.head);
        to.tail = from.tail;
        to.len += from.len;
        from.take();
        Ok(())
    }

    /// A handle by which another core gives indices back.
    #[must_use]
    pub fn returner(&self) -> Returner {
        Returner::new(&self.shared)
    }

    /// Puts what other cores gave back since the last call on a list. Returns how many indices were put there.
    ///
    /// Looks at no more entries than the freelist has indices (rounded up to a power of two). Returns that were not handed
    /// out are refused and counted in [`Freelist::refused_returns`]. A returner that is interrupted within its call delays
    /// those after it until it goes on; nothing waits for it.
    #[inline]
    pub fn drain_returns(&mut self, list: &mut List) -> usize {
        if self.check_list(list).is_err() {
            return 0;
        }
        let (before, began) = (list.len, self.drained);
        let mut batch = [0; DRAINED_AT_ONCE];
        // Ends after one round at most: no entry is written again before it is published.
        loop {
            let taken = self.shared.take(self.drained, &mut batch);
            if taken == 0 {
                break;
            }
            self.drained = self.drained.wrapping_add(taken);
            self.put_returned(list, &batch[..taken]);
        }
        if self.drained != began {
            self.shared.publish(self.drained);
        }
        (list.len - before) as usize
    }

    /// Puts returned indices on a list, and counts those that were not handed out.
    #[inline]
    fn put_returned(&mut self, list: &mut List, mut indices: &[u32]) {
        while let Err(put) = put_all(&mut self.links, list, indices) {
            let last = Some(self.refusal(indices[put]));
            self.refused = RefusedReturns { count: self.refused.count + 1, last };
            indices = &indices[put + 1..];
        }
    }

    /// Returns that drains refused: indices that two threads returned at the same time, or that were on a list.
    #[must_use]
    pub fn refused_returns(&self) -> RefusedReturns {
        self.refused
    }

    /// Why an index that is not handed out is refused.
    #[cold]
    fn refusal(&self, index: u32) -> FreeError {
        if (index as usize) < self.links.len() { FreeError::DoubleFree { index } } else { FreeError::Foreign { index } }
    }

    #[inline]
    fn check_list(&self, list: &List) -> Result<(), FreeError> {
        if list.freelist == self.name { Ok(()) } else { Err(FreeError::ForeignList) }
    }
}

/// Puts a handed-out index on a list of this array's freelist.
#[inline]
fn put(links: &mut [u32], list: &mut List, index: u32) -> Result<(), FreeError> {
    let link = links.get_mut(index as usize).ok_or(FreeError::Foreign { index })?;
    if *link != HANDED_OUT {
        return Err(FreeError::DoubleFree { index });
    }
    match list.order {
        Order::LastInFirstOut => {
            *link = list.head;
            if list.head == END {
                list.tail = index;
            }
            list.head = index;
        }
        Order::FirstInFirstOut => {
            *link = END;
            link_after_tail(links, list, index);
            list.tail = index;
        }
    }
    list.len += 1;
    Ok(())
}

/// Puts handed-out indices on a list, in order, or those before the first that is not handed out: then their number is
/// the error.
#[inline]
fn put_all(links: &mut [u32], list: &mut List, indices: &[u32]) -> Result<(), usize> {
    let put = match list.order {
        Order::LastInFirstOut => put_all_in_front(links, list, indices),
        Order::FirstInFirstOut => put_all_behind(links, list, indices),
    };
    // At most as many as the freelist has.
    list.len += put as u32;
    if put == indices.len() { Ok(()) } else { Err(put) }
}

#[inline]
fn put_all_in_front(links: &mut [u32], list: &mut List, indices: &[u32]) -> usize {
    let mut head = list.head;
    let put = count_while(indices, |index| {
        let Some(link) = handed_out(links, *index) else { return false };
        *link = core::mem::replace(&mut head, *index);
        true
    });
    if list.head == END
        && let Some(first) = indices.first()
    {
        list.tail = *first;
    }
    list.head = head;
    put
}

#[inline]
fn put_all_behind(links: &mut [u32], list: &mut List, indices: &[u32]) -> usize {
    let Some((last, others)) = indices.split_last() else { return 0 };
    let mut put = 0;
    // Each is linked to the one after it before that one is looked at.
    let mut link = |(index, next): (&u32, &u32)| {
        let Some(link) = handed_out(links, *index) else { return false };
        *link = *next;
        put += 1;
        true
    };
    let (unrolled, rest) = others.as_chunks::<UNROLLED>();
    let (unrolled_nexts, rest_nexts) = indices[1..].as_chunks::<UNROLLED>();
    let _all = unrolled.iter().zip(unrolled_nexts).all(|(indices, nexts)| indices.iter().zip(nexts).all(&mut link))
        && rest.iter().zip(rest_nexts).all(&mut link)
        && link((last, &END));
    if let Some(tail) = indices[..put].last() {
        if put < indices.len() {
            links[*tail as usize] = END;
        }
        link_after_tail(links, list, indices[0]);
        list.tail = *tail;
    }
    put
}

/// How many items come before the first that `accept` does not accept.
#[inline]
fn count_while<T>(items: &[T], mut accept: impl FnMut(&T) -> bool) -> usize {
    let mut count = 0;
    let mut counted = |item| {
        let accepted = accept(item);
        count += usize::from(accepted);
        accepted
    };
    let (unrolled, rest) = items.as_chunks::<UNROLLED>();
    let _all = unrolled.iter().all(|items| items.iter().all(&mut counted)) && rest.iter().all(counted);
    count
}

/// The link of an index, if that is handed out.
#[inline]
fn handed_out(links: &mut [u32], index: u32) -> Option<&mut u32> {
    links.get_mut(index as usize).filter(|link| **link == HANDED_OUT)
}

/// Makes `index` follow the last index of `list`.
#[inline]
fn link_after_tail(links: &mut [u32], list: &mut List, index: u32) {
    if list.head == END {
        list.head = index;
    } else if let Some(link) = links.get_mut(list.tail as usize) {
        *link = index;
    }
}
