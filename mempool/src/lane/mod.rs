//! Bounded queues with one producer and one consumer, each on a core of its own.
//!
//! Two kinds: [`bounded`] moves values through; the slots of [`records`] stay initialised, so that large records are
//! filled and read in place. Both never wait: a full lane says so and hands the value back, an empty one gives `None`.
//! A batch costs one release store, and each end looks at the other's cache line only when it runs out of what it knows.
//!
//! Either end may move to another thread; dropping one closes the lane. What is left in it is dropped once, when both are
//! gone.

mod records;
mod ring;
mod values;

pub use crate::full::Full;
pub use records::{RecordReceiver, RecordSender, records};
pub use ring::MAX_CAPACITY;
pub use values::{Receiver, Sender, bounded};
