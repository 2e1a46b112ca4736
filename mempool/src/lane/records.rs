//! Lanes whose slots stay initialised: records are filled and read in place, and never moved.

use super::ring::{Consumer, Producer, Slot, ring};

/// A slot that always holds a record.
struct Record<T>(T);

impl<T> Slot for Record<T> {
    unsafe fn discard(&mut self) {
        // The record is dropped with the slot, full or empty.
    }
}

/// The sending end of a lane of records. One thread at a time.
#[derive(Debug)]
pub struct RecordSender<T>(Producer<Record<T>>);

/// The receiving end of a lane of records. One thread at a time.
#[derive(Debug)]
pub struct RecordReceiver<T>(Consumer<Record<T>>);

/// A lane of `capacity` records, rounded up to a power of two from 1 to [`MAX_CAPACITY`](super::MAX_CAPACITY). All records
/// are made here and dropped when both ends are gone.
#[must_use]
pub fn records<T: Default>(capacity: usize) -> (RecordSender<T>, RecordReceiver<T>) {
    let (producer, consumer) = ring(capacity, || Record(T::default()));
    (RecordSender(producer), RecordReceiver(consumer))
}

impl<T> RecordSender<T> {
    /// Fills the next empty record, which still holds what was left in it a round ago. Returns false if there is none;
    /// `fill` is not called then. If `fill` panics, the record counts as empty.
    #[inline]
    #[must_use = "a full lane takes no record"]
    pub fn push_with(&mut self, fill: impl FnOnce(&mut T)) -> bool {
        if self.0.room(1) == 0 {
            return false;
        }
        let first = self.0.tail();
        // SAFETY: there is room; the slot is the producer's alone until it is published, and always initialised.
        unsafe { self.0.fill(|slot| fill(&mut (*slot).0)) };
        self.0.publish(first);
        true
    }
}

impl<T> RecordReceiver<T> {
    /// Whether no record is full, at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the sender is gone. Records may be left: the lane is finished when it is closed, and *then* empty.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Reads the oldest full record, which counts as empty afterwards. `None` if there is none; `take` is not called
    /// then. If `take` panics, the record stays full.
    #[inline]
    pub fn pop_with<R>(&mut self, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        let result = self.peek_with(take)?;
        // SAFETY: `peek_with` found a full slot; a record needs no emptying.
        unsafe { self.0.step() };
        self.0.publish();
        Some(result)
    }

    /// Reads the oldest full record, which stays. `None` if there is none; `look` is not called then.
    #[inline]
    pub fn peek_with<R>(&mut self, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !self.0.has_one() {
            return None;
        }
        // SAFETY: the slot is full and ours until it is published, and always initialised.
        Some(unsafe { self.0.peek(|slot| look(&mut (*slot).0)) })
    }
}
