//! What a job has somebody do, and what can be wrong with it.

use super::Mismatch;

/// How far the job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Writing the file, block by block.
    Write,
    /// Making it durable.
    Flush,
    /// Reading it back in random order.
    Read,
    /// Checking its digest.
    Digest,
    /// Load: mixed, or reads only where the content was found.
    Load,
    /// No more to submit; waiting for what is in flight.
    Drain,
    /// Everything ended.
    Done,
}

/// What to submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read a block into the slot's buffer.
    Read,
    /// Write a block out of the slot's buffer.
    Write,
    /// Deallocate; no buffer.
    Trim,
    /// Flush; no buffer.
    Flush,
}

/// One request of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// Its first unit, counted from the beginning of the namespace.
    pub lba: u64,
    /// How much from there on: a multiple of the unit, but that the last one may be short.
    pub bytes: u32,
    /// Which slot; [`Layout::pieces`](super::Layout::pieces) says where its buffer lies in the job's memory. Comes back with the
    /// completion.
    pub slot: u32,
}

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Caught {
    /// A block is not what was written.
    #[error(
        "block {lba}: byte {} is {:#x}, but {:#x} was written or read before", mismatch.offset, mismatch.found, mismatch.expected
    )]
    Block {
        /// Which.
        lba: u64,
        /// Where.
        mismatch: Mismatch,
    },
    /// The file that came back is not the one that was written, or that was expected.
    #[error("what was read has another SHA-256 than what was written or expected")]
    Digest,
    /// A request failed.
    #[error("a request for block {lba} failed")]
    Failed {
        /// Which block.
        lba: u64,
    },
}
