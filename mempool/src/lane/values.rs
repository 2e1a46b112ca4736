//! Lanes that move values.

use core::mem::MaybeUninit;

use super::Full;
use super::ring::{Consumer, Producer, Row, Slot, ring};

/// A slot that holds a value only while it is full.
struct Value<T>(MaybeUninit<T>);

impl<T> Slot for Value<T> {
    unsafe fn discard(&mut self) {
        // SAFETY: the caller's promise: the slot is full and never used again.
        unsafe { self.0.assume_init_drop() }
    }
}

/// The sending end of a lane of values. One thread at a time.
#[derive(Debug)]
pub struct Sender<T>(Producer<Value<T>>);

/// The receiving end of a lane of values. One thread at a time.
#[derive(Debug)]
pub struct Receiver<T>(Consumer<Value<T>>);

/// A lane for `capacity` values, rounded up to a power of two from 1 to [`MAX_CAPACITY`](super::MAX_CAPACITY). Allocates
/// here and nowhere later.
#[must_use]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (producer, consumer) = ring(capacity, || Value(MaybeUninit::uninit()));
    (Sender(producer), Receiver(consumer))
}

impl<T> Sender<T> {
    /// Values that the lane holds at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Values in the lane: a hint, the receiver may take some at any time.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the lane is empty: once true, it stays so until the next push.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the receiver is gone. What is pushed then is dropped with the lane.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Puts a value in.
    ///
    /// # Errors
    /// [`Full`] hands the value back.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), Full<T>> {
        if self.0.room(1) == 0 {
            return Err(Full(value));
        }
        // SAFETY: there is room, all else is published, and the closure fills the slot, which holds nothing that a write could
        // leak.
        unsafe { self.0.send(|slot| slot.write(Value(MaybeUninit::new(value)))) };
        Ok(())
    }

    /// Puts in values of `values` for as long as there are any and there is room, with one release store. Returns how
    /// many; no value is taken from `values` that has no room.
    #[inline]
    pub fn push_batch(&mut self, values: &mut impl Iterator<Item = T>) -> usize {
        let capacity = self.0.capacity();
        let room = self.0.room(values.size_hint().1.unwrap_or(capacity).clamp(1, capacity));
        // Publishes also if `values` panics: what was filled by then must not be lost.
        let mut filling = self.filling();
        let mut pushed = 0;
        while pushed < room
            && let Some(value) = values.next()
            // There is room.
            && filling.push_with(|| value)
        {
            pushed += 1;
        }
        pushed
    }

    /// Takes values one by one, which the receiver sees when what this returns is dropped: with one release store.
    #[inline]
    pub fn filling(&mut self) -> Filling<'_, T> {
        let first = self.0.tail();
        Filling { first, row: self.0.row_from(first), producer: &mut self.0 }
    }
}

impl<T: Copy> Sender<T> {
    /// Puts in the first values of a slice, as many as there is room for, with one release store. Returns how many.
    #[inline]
    pub fn push_slice(&mut self, values: &[T]) -> usize {
        // A slice that fits keeps its length, which the compiler may know.
        if self.0.room(values.len()) < values.len() {
            return self.push_some(values);
        }
        // SAFETY: there is room for as many.
        unsafe { self.fill(values) };
        values.len()
    }

    /// The same where there is not enough room.
    #[cold]
    fn push_some(&mut self, values: &[T]) -> usize {
        let count = self.0.room(values.len()).min(values.len());
        // SAFETY: there is room for as many.
        unsafe { self.fill(&values[..count]) };
        count
    }

    /// # Safety
    /// There is room for as many values.
    #[inline]
    unsafe fn fill(&mut self, values: &[T]) {
        let first = self.0.tail();
        // SAFETY: the caller's promise; the closure fills the slot by a copy, which cannot unwind.
        unsafe { self.0.fill_run(values, |slot, value| slot.write(Value(MaybeUninit::new(value)))) };
        self.0.publish(first);
    }
}

/// Values on their way into a lane ([`Sender::filling`]). Forgotten, they leak: the receiver sees none of those behind the last
/// one that was published, or gets them behind a later one.
#[derive(Debug)]
pub struct Filling<'a, T> {
    producer: &'a mut Producer<Value<T>>,
    /// Where the next ones go, which the producer knows nothing of.
    row: Row<Value<T>>,
    /// Of the first of them.
    first: usize,
}

impl<T> Filling<'_, T> {
    /// Puts in what `value` makes, which is called where there is room: the value is then made in its slot. False where there is
    /// none.
    #[inline(always)]
    pub fn push_with(&mut self, value: impl FnOnce() -> T) -> bool {
        if self.row.left() == 0 {
            self.row = self.producer.row_from(self.row.position());
            if self.row.left() == 0 {
                return false;
            }
        }
        let value = value();
        // SAFETY: a slot is left, which is empty, and the producer is held; the closure fills it, and it holds nothing that
        // a write could leak. Where this is forgotten, what the producer publishes next stands behind slots that are full,
        // as any that the receiver may see.
        unsafe { self.row.step(|slot| slot.write(Value(MaybeUninit::new(value)))) };
        true
    }
}

impl<T> Drop for Filling<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.producer.filled_up_to(self.row.position());
        self.producer.publish(self.first);
    }
}

impl<T> Receiver<T> {
    /// Values that the lane holds at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Values in the lane: a hint, the sender may add some at any time. One look for each push that was not seen yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the lane is empty, at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something was sent that this end does not know of: one load of a word that only the sender writes. What it has
    /// seen and not taken is no news: where [`Receiver::pop_batch`] took as many as it was allowed to, more may be left.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.0.has_news()
    }

    /// Whether the sender is gone. Values may be left: the lane is finished when it is closed, and *then* pops `None`.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Takes the oldest value. A loop that does nothing but wait for one calls [`core::hint::spin_loop`] between two looks: where
    /// sender and receiver are cores that share a cache, a round trip then takes two thirds of the time (goal A4).
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        // SAFETY: the value is moved out of the slot, which is full.
        unsafe { self.0.receive(|slot| slot.read().0.assume_init()) }
    }

    /// Takes up to `max` values, oldest first, with one release store. Returns how many. If `take` panics, the value it
    /// was given is gone and the rest stay in the lane.
    #[inline]
    pub fn pop_batch(&mut self, max: usize, mut take: impl FnMut(T)) -> usize {
        let count = self.0.filled(max.min(self.0.capacity())).min(max);
        if count == 0 {
            return 0;
        }
        let row = self.0.row(self.0.head(), count);
        let mut rest = count - row.left();
        // Publishes also if `take` panics: what was moved out by then must not be seen again.
        let mut emptying = Emptying { consumer: &mut self.0, row };
        loop {
            while emptying.row.left() > 0 {
                // SAFETY: a slot is left, which is one of `count` that are full, and the consumer is held; its value is moved
                // out, and it is stepped over at once.
                let value = unsafe { emptying.row.step(|slot| slot.read()).0.assume_init() };
                take(value);
            }
            if rest == 0 {
                return count;
            }
            emptying.row = emptying.consumer.row(emptying.row.position(), rest);
            rest -= emptying.row.left();
        }
    }
}

impl<T: Copy> Receiver<T> {
    /// Takes the oldest values into the beginning of a slice, until that is full or the lane is empty, with one release
    /// store. Returns how many.
    #[inline]
    pub fn pop_slice(&mut self, into: &mut [T]) -> usize {
        // As in `push_slice`.
        if self.0.filled(into.len()) < into.len() {
            return self.pop_some(into);
        }
        // SAFETY: as many slots are full.
        unsafe { self.empty(into) };
        into.len()
    }

    /// The same where there are fewer values.
    #[cold]
    fn pop_some(&mut self, into: &mut [T]) -> usize {
        let count = self.0.filled(into.len()).min(into.len());
        if count > 0 {
            // SAFETY: as many slots are full.
            unsafe { self.empty(&mut into[..count]) };
        }
        count
    }

    /// # Safety
    /// As many slots are full.
    #[inline]
    unsafe fn empty(&mut self, into: &mut [T]) {
        // SAFETY: the caller's promise; the closure copies the value out, which leaves nothing to drop.
        unsafe { self.0.empty_run(into, |slot| slot.read().0.assume_init()) };
        self.0.publish();
    }
}

/// Slots that are being emptied. Those that were are the producer's when this is dropped.
struct Emptying<'a, T> {
    consumer: &'a mut Consumer<Value<T>>,
    row: Row<Value<T>>,
}

impl<T> Drop for Emptying<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.emptied_up_to(self.row.position());
    }
}
