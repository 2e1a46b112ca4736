//! What a job is asked for.

use super::Sizes;
use core::{num::NonZeroU64, time::Duration};
use std::sync::Arc;

/// What the namespace shall hold.
#[derive(Clone, Debug)]
pub enum Content {
    /// A file, which the job writes first.
    File {
        /// Its bytes, at least one.
        bytes: Arc<[u8]>,
        /// Their SHA-256.
        digest: [u8; 32],
    },
    /// What is there already. The job never writes, and holds every later read against its first one.
    Found {
        /// How many bytes of it, at least one.
        bytes: u64,
        /// Their SHA-256, where it is known from elsewhere.
        expected: Option<[u8; 32]>,
    },
    /// Whatever is there: the load begins at once, and knows of no byte but those that it has written.
    Range {
        /// How many bytes the load is in, at least one unit.
        bytes: u64,
    },
}

impl Content {
    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => bytes.len() as u64,
            Self::Found { bytes, .. } | Self::Range { bytes } => *bytes,
        }
    }

    /// What has to be read to know it: all of what is not just a range.
    pub(super) fn copied_bytes(&self) -> u64 {
        if matches!(self, Self::Range { .. }) { 0 } else { self.bytes() }
    }
}

/// What the job is.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// What is moved.
    pub content: Content,
    /// Which of the namespace's units is the first of it.
    pub first: u64,
    /// Bytes of the namespace's blocks: no request is shorter, and the last of a round may be as short.
    pub sector_bytes: u32,
    /// Pieces of a request's memory, with gaps between them; 1 for none.
    pub pieces: u32,
    /// Requests in flight at the same time.
    pub queue_depth: u32,
    /// The load, behind a file or what was found.
    pub load: LoadOptions,
    /// Chooses order and patterns.
    pub seed: u64,
}

/// In which order the load goes through its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressOrder {
    /// One behind the other, for each kind of operation by itself, and from the beginning again behind the last.
    Sequential,
    /// Each as likely as any other one, however often it was taken.
    Random,
}

/// What of the load is no read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes.
    Write,
    /// Deallocation (Dataset Management).
    Trim,
}

/// Which operations the load is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Reads, in percent of the requests.
    pub reads: u8,
    /// All others.
    pub change: Change,
}

/// How much is to begin in a second, on all cores together, whether or not what began before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// So many requests.
    Requests(NonZeroU64),
    /// So many bytes.
    Bytes(NonZeroU64),
}

/// What the load is.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where its requests are.
    pub order: AddressOrder,
    /// What they are.
    pub mix: Mix,
    /// How large they are.
    pub sizes: Sizes,
    /// Every block read is checked, and written so that it can be. Where content is a file or what was found, always.
    pub verify: bool,
    /// When they begin; without, as soon as there is room.
    pub rate: Option<Rate>,
    /// How long the load goes on before it is measured.
    pub ramp: Duration,
    /// How long it is measured at most.
    pub runtime: Duration,
    /// Bytes after which it ends, over all cores.
    pub bytes: Option<u64>,
    /// Which of so many loads it is that share rate and bytes, counted from 0: each is in a namespace of its own.
    pub number: u64,
    /// How many those are; at least one.
    pub loads: u64,
}
