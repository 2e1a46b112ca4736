//! Bounded queues with one producer and one consumer, each on a core of its own.
//!
//! Two kinds: [`bounded`] moves values through; the slots of [`records`] stay initialised, so that large records are
//! filled and read in place. Both never wait: a full lane says so and hands the value back, an empty one gives `None`.
//! A batch costs one release store, in the line of its first slot: a single message moves one cache line from core to core, as
//! a bare flag would. The sender looks at the receiver's line only when it runs out of the room that it knows of.
//!
//! Either end may move to another thread; dropping one closes the lane. What is left in it is dropped once, when both are
//! gone.
//!
//! ```
//! use frwr_mempool::lane;
//!
//! let (mut sender, mut receiver) = lane::bounded(64);
//! let worker = std::thread::spawn(move || {
//!     // A full lane gives the value back.
//!     (1..=3).filter(|value| sender.push(*value).is_ok()).count()
//! });
//! assert_eq!(worker.join().expect("it ended"), 3);
//! // Its sender is gone, and what it sent is not.
//! assert!(receiver.is_closed());
//! assert_eq!((receiver.pop(), receiver.pop(), receiver.pop(), receiver.pop()), (Some(1), Some(2), Some(3), None));
//! ```

mod records;
mod ring;
mod values;

pub use crate::full::Full;
pub use records::{RecordReceiver, RecordSender, records};
pub use ring::MAX_CAPACITY;
pub use values::{Filling, Receiver, Sender, bounded};
