//! What a storage lies on, in the hands of the suite.

use crate::storage::Storage;

/// The smallest namespace that every promise has room in.
pub const LEAST_BLOCKS: u64 = 64;

/// A medium of a test's own, new and of at least [`LEAST_BLOCKS`] blocks, whatever they hold. Only
/// [`Medium::open`] is needed; whatever else a medium can do shows more promises. All calls are of
/// one thread.
pub trait Medium {
    /// One core's way to it, with what it held, which no buffers were attached to; no other way
    /// lives then. `None` where there is none (any more).
    fn open(&mut self) -> Option<Box<dyn Storage>>;

    /// Another core's way beside those that live, to be served at the same time.
    fn open_beside(&mut self) -> Option<Box<dyn Storage>> {
        None
    }

    /// As [`Medium::open`], of a namespace that hosts may not change.
    fn open_read_only(&mut self) -> Option<Box<dyn Storage>> {
        None
    }

    /// Everything that is not durable is lost, as with the power of whatever keeps it; no way lives
    /// then. False where that cannot be done.
    fn lose_power(&mut self) -> bool {
        false
    }

    /// From now on what is below keeps nothing: operations may succeed as into a cache, and flushes
    /// fail. False where that cannot be done.
    fn fail_below(&mut self) -> bool {
        false
    }

    /// What is below works again, and has forgotten what it did not keep.
    fn mend_below(&mut self) {}

    /// From now on there is no room for blocks that were never written. False where a medium cannot
    /// run full.
    fn fill_up(&mut self) -> bool {
        false
    }

    /// Somebody takes all blocks behind so many away, below ways that know nothing of it. False
    /// where that cannot be done.
    fn cut(&mut self, blocks: u64) -> bool {
        let _ = blocks;
        false
    }

    /// It has so many blocks, more than it had, which its ways may have by [`Storage::resize`] from
    /// now on. False where that cannot be done.
    fn extend(&mut self, blocks: u64) -> bool {
        let _ = blocks;
        false
    }
}

/// A medium with one way, which is opened once.
pub struct Only<S>(Option<S>);

impl<S: Storage> Only<S> {
    /// Over a storage that nobody has used.
    pub fn new(storage: S) -> Self {
        Self(Some(storage))
    }
}

impl<S: Storage + 'static> Medium for Only<S> {
    fn open(&mut self) -> Option<Box<dyn Storage>> {
        self.0.take().map(|storage| Box::new(storage) as Box<dyn Storage>)
    }
}
