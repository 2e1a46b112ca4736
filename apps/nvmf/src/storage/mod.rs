//! What a namespace keeps its blocks in: asynchronous from the start, so that memory, files, block devices and a simulated
//! disk with delays stand behind the target in the same way.

mod any;
mod compare_and_write;
mod file;
mod flushes;
mod medium_fault;
mod memory;
mod nbd;
mod percent;
mod rbd;

pub use any::AnyStorage;
pub(crate) use compare_and_write::are_equal;
pub use compare_and_write::{
    Changing, Comparing, MAX_COMPARE_AND_WRITE_BYTES, MAX_RANGE_LOCK_WAYS, MAX_RANGE_LOCKS, RangeLocks, TooManyWays,
};
pub use file::{
    Backing, Below, FileError, FileIdentity, FileMedium, FileNote, FileOptions, MAX_STORAGE_DEPTH, MediumKind,
    RingStorage, ThreadStorage,
};
pub use medium_fault::MediumFault;
pub use memory::{MemoryStorage, MemoryStorageError};
pub use nbd::{
    MAX_NBD_CONNECTIONS, NbdAddress, NbdBreach, NbdError, NbdMedium, NbdOptions, NbdRefusal, NbdStorage, NbdUriError,
    is_nbd_uri,
};

pub use rbd::{
    RbdError, RbdLibraryError, RbdLock, RbdLockFrom, RbdLockTaken, RbdLook, RbdMedium, RbdNameError, RbdOptions,
    RbdStorage, is_rbd_name, rbd_version,
};

use arrayvec::ArrayVec;
use core::{task::Waker, time::Duration};
use frwr_mempool::DeviceMemory;
use std::{collections::VecDeque, os::fd::BorrowedFd};

/// Completions taken by one call of [`Storage::poll`]: the budget of one stage of a poll iteration, as
/// [`frwr_engine::provider::MAX_COMPLETIONS_PER_POLL`].
pub const MAX_COMPLETIONS_PER_POLL: usize = frwr_engine::provider::MAX_COMPLETIONS_PER_POLL;

/// What [`Storage::poll`] fills.
pub type CompletionBatch = ArrayVec<Completion, MAX_COMPLETIONS_PER_POLL>;

/// Block sizes that a namespace may have: 512 bytes is the least that NVM allows (LBADS of 9).
pub const MIN_BLOCK_BYTES: u32 = 512;
/// 64 KiB: the largest block that still leaves several per data buffer.
pub const MAX_BLOCK_BYTES: u32 = 64 << 10;

/// Chosen by whoever submits an operation; comes back with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

/// Size of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    blocks: u64,
    block_bytes: u32,
}

/// A namespace that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// Not a power of two, too small or too large.
    #[error("block size {0}: must be a power of two from {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}; choose one of these")]
    BlockBytes(u32),
    /// More bytes than 64 bits can count, or no block at all.
    #[error("{0} blocks: a namespace has at least one, and fewer than 2^64 bytes; choose another size")]
    Blocks(u64),
}

impl Geometry {
    /// Checks a size.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn new(blocks: u64, block_bytes: u32) -> Result<Self, GeometryError> {
        if !block_bytes.is_power_of_two() || !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&block_bytes) {
            return Err(GeometryError::BlockBytes(block_bytes));
        }
        if blocks == 0 || blocks.checked_mul(block_bytes.into()).is_none() {
            return Err(GeometryError::Blocks(blocks));
        }
        Ok(Self { blocks, block_bytes })
    }

    /// Bytes of the namespace.
    pub(crate) const fn bytes(self) -> u64 {
        // They fit (`Geometry::new`).
        self.blocks * self.block_bytes as u64
    }

    /// Blocks of the namespace, at least 1.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        self.blocks
    }

    /// Bytes per block, a power of two.
    #[must_use]
    pub const fn block_bytes(self) -> u32 {
        self.block_bytes
    }

    /// Byte offset and bytes of a run of blocks.
    ///
    /// # Errors
    /// [`StorageError::LbaOutOfRange`] where it does not lie in the namespace.
    pub fn extent(self, lba: u64, blocks: u32) -> Result<(u64, u64), StorageError> {
        let end = lba.checked_add(blocks.into()).ok_or(StorageError::LbaOutOfRange)?;
        if end > self.blocks {
            return Err(StorageError::LbaOutOfRange);
        }
        // `end` blocks fit into 64 bits, and so do its parts.
        let bytes = u64::from(self.block_bytes);
        Ok((lba * bytes, u64::from(blocks) * bytes))
    }
}

/// What to do. Buffers are offsets in the memory given to [`Storage::attach`]; they belong to the storage from
/// [`Storage::submit`] until the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Blocks to buffer.
    Read {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
        /// Offset of the buffer.
        buffer: usize,
    },
    /// Buffer to blocks.
    Write {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
        /// Offset of the buffer.
        buffer: usize,
    },
    /// Everything written by operations that completed before this one was submitted, on whichever
    /// way to the medium, becomes durable.
    Flush,
    /// The blocks read as zeros from now on.
    WriteZeroes {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
        /// The medium may give their space back (DEAC, NVM Command Set 3.3.8).
        deallocate: bool,
    },
    /// What the blocks hold is not needed any more (Dataset Management). A hint: they read as zeros, or as before.
    Deallocate {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
    },
    /// Writes the blocks if they hold what is expected, and else changes nothing and fails with
    /// [`StorageError::Miscompare`]: one operation, between whose two halves nothing else changes any of the blocks.
    CompareAndWrite {
        /// First block.
        lba: u64,
        /// Number of blocks, at most [`Features::compare_and_write`].
        blocks: u32,
        /// Offset of a buffer of three times as many bytes: what is expected, what is written then, and room for the
        /// storage.
        buffer: usize,
    },
}

impl Operation {
    /// First block and number of blocks that it is about; `None` for [`Operation::Flush`].
    #[must_use]
    pub const fn blocks(self) -> Option<(u64, u32)> {
        match self {
            Self::Read { lba, blocks, .. }
            | Self::Write { lba, blocks, .. }
            | Self::WriteZeroes { lba, blocks, .. }
            | Self::Deallocate { lba, blocks }
            | Self::CompareAndWrite { lba, blocks, .. } => Some((lba, blocks)),
            Self::Flush => None,
        }
    }

    /// It changes blocks.
    #[must_use]
    pub const fn changes(self) -> bool {
        !matches!(self, Self::Read { .. } | Self::Flush)
    }
}

frwr_mempool::options! {
    /// What a storage can do beside reading, writing and flushing; constant.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Features {
        /// [`Operation::WriteZeroes`].
        pub write_zeroes: bool,
        /// [`Operation::Deallocate`].
        pub deallocate: bool,
        /// Nothing that changes blocks; the rest fails with [`StorageError::ReadOnly`].
        pub read_only: bool,
        /// It has no volatile cache: what has completed is as durable as it gets, and [`Operation::Flush`] has nothing to do.
        pub write_through: bool,
        /// Others than this process may serve the same blocks at the same time: what a target keeps of its hosts, as reservations are, would
        /// not hold for theirs.
        pub shared: bool,
        /// Blocks of one [`Operation::CompareAndWrite`] at most; 0 where it has none. Only who excludes all others that may
        /// change the medium can offer it.
        pub compare_and_write: u32,
    }
}

impl Features {
    /// Something that was written through it may be lost unless it is flushed.
    #[must_use]
    pub const fn is_cached(self) -> bool {
        !self.read_only && !self.write_through
    }
}

frwr_mempool::statistics! {
    /// What a storage has done since it was made. Zero where it does not count.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct StorageStatistics {
        /// Operations taken.
        pub submitted: u64,
        /// Operations completed, the failed ones included.
        pub completed: u64,
        /// Operations failed.
        pub failed: u64,
        /// Operations taken back.
        pub cancelled: u64,
        /// Calls of [`Storage::flush`] that found something to start.
        pub flushes: u64,
        /// System calls made for them: io_uring_enter, or waking the worker.
        pub system_calls: u64,
        /// Parts of operations that had to be started once more: short transfers, and what the kernel had no room for.
        pub restarts: u64,
        /// Why the kernel takes no operations any more: the errno of io_uring_enter. 0 where it does.
        pub broken: i32 => First,
        /// What is wrong with the medium until it is opened again; the same on all cores.
        pub fault: Option<MediumFault> => First,
    }
}

impl StorageStatistics {
    /// Tells what has ended, the oldest first, while there is room, and counts it.
    pub(crate) fn hand_on(&mut self, ended: &mut VecDeque<Completion>, out: &mut CompletionBatch) {
        while !out.is_full()
            && let Some(completion) = ended.pop_front()
        {
            self.completed += 1;
            self.failed += u64::from(completion.result.is_err());
            out.push(completion);
        }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The blocks do not lie in the namespace; nothing was moved.
    #[error("the blocks are outside of the namespace")]
    LbaOutOfRange,
    /// The buffer does not lie in the attached memory; nothing was moved.
    #[error("the buffer is outside of the attached memory")]
    BufferOutOfRange,
    /// The buffer does not begin where the medium can transfer to ([`Storage::attach`]); nothing was moved.
    #[error("the buffer is not aligned as the medium wants it")]
    BufferUnaligned,
    /// The namespace is never changed.
    #[error("the namespace is read-only")]
    ReadOnly,
    /// The medium below the namespace is full.
    #[error("no space is left below the namespace")]
    NoSpace,
    /// The blocks do not hold what [`Operation::CompareAndWrite`] expects; nothing was written.
    #[error("the blocks do not hold what was expected")]
    Miscompare,
    /// Not one of its [`Features`].
    #[error("the storage has no such operation")]
    Unsupported,
    /// The medium failed.
    #[error("the medium failed")]
    Medium,
    /// Somebody made the medium shorter than the namespace. Every operation fails from then on ([`MediumFault::Shrunk`]).
    #[error("the medium has become shorter than the namespace")]
    Shrunk,
    /// The kernel takes no operations any more, and will not ([`StorageStatistics::broken`]).
    #[error("the way to the medium is broken")]
    Broken,
    /// The medium's server was away for too long, or went away too often. Whether a change was carried out is not known; whoever tries
    /// again finds out.
    #[error("the medium's server cannot be reached")]
    Unreachable,
    /// Another process serves the medium now, or may: this one does not have its lock. Nothing of it is carried out later.
    #[error("the medium's lock is not this process's")]
    NotOwner,
}

impl StorageError {
    /// The medium failed, or is not what it was: what a SMART log counts as an error of media and data integrity.
    #[must_use]
    pub const fn is_of_medium(self) -> bool {
        matches!(self, Self::Medium | Self::Shrunk)
    }
}

/// The storage holds as many operations as it can: poll, then submit again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the storage's queue is full; poll it, then submit again")]
pub struct QueueFull;

/// The memory of the buffers cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// It does not begin at a multiple of what the medium transfers.
    #[error("buffers at address {address:#x}: must begin at a multiple of {wanted} bytes; carve them so")]
    Unaligned {
        /// Where it begins.
        address: u64,
        /// What divides every good address.
        wanted: u32,
    },
    /// It has one.
    #[error("the storage has its buffers already; make another one")]
    Twice,
}

/// A storage cannot have another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// Never.
    #[error("the storage has one size for ever; remove the namespace, and add it over another storage")]
    Fixed,
    /// Its medium does not have so many blocks.
    #[error("{blocks} blocks: the medium has {limit}; make it larger first, or choose fewer")]
    Medium {
        /// Blocks asked for.
        blocks: u64,
        /// Blocks that it has.
        limit: u64,
    },
    /// No namespace can be of this size.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// As given to [`Storage::submit`].
    pub cookie: Cookie,
    /// Whether it succeeded.
    pub result: Result<(), StorageError>,
}

/// One core's way to one namespace. No method blocks, or allocates after [`Storage::attach`];
/// beside that it promises what follows, which the suite in `frwr_nvmf::conformance` (feature
/// `conformance`) shows of any storage:
///
/// * **Blocks.** Those of its [`Geometry`], which changes by [`Storage::resize`] alone, as its
///   [`Features`] never do. A run that does not lie in them is [`StorageError::LbaOutOfRange`],
///   before anything else is looked at; one of no blocks, up to their end, is nothing and succeeds.
/// * **Buffers.** One memory for good: a second one is [`AttachError::Twice`]. What does not lie in
///   it as a whole, or begins where the medium cannot transfer to, is refused, and nothing moves. A
///   buffer is the storage's from [`Storage::submit`] to the completion; only reads change one, and
///   that only.
/// * **Contents.** A read finds what was written last to each block by operations that had
///   completed. Those in flight at the same time are in no order: once all have completed each
///   block is as one of them wrote it, as a whole, and a read beside them finds bytes from before
///   or from any of them.
/// * **Zeros.** Blocks that were zeroed read as zeros; those that were deallocated as zeros or as
///   before, the same each time; blocks beside them are not touched. What is none of its features
///   is [`StorageError::Unsupported`].
/// * **Compare and write.** What is offered ([`Features::compare_and_write`]) is one step to all ways of the medium: it
///   fails with [`StorageError::Miscompare`] where the blocks are not as expected, and of those that run at the same
///   time and expect the same, one writes. It may wait until the other ways are polled and flushed. More blocks than are
///   offered are [`StorageError::Unsupported`].
/// * **Once.** Every submitted operation that is not taken back completes exactly once, failures
///   included, in any order, and only from [`Storage::poll`]; then its cookie may be used again. A
///   batch is appended to, to its end, and what had no room comes with a later one.
/// * **Room.** [`QueueFull`] is said only while it holds operations, and of what it refuses nothing
///   is left. Behind all completions there is as much room as ever.
/// * **Taking back.** What [`Storage::cancel`] says true of never happens and never completes, and
///   nothing else is taken back; what has ended, or never was, cannot be.
/// * **Waking.** Behind [`Storage::arm`] that said true, one more poll that ended nothing, and
///   [`Storage::rests`], whatever ends wakes who sleeps.
/// * **Ways.** Each core has one, at the same time. What has completed on one is read by all. A Flush may wait until
///   others that were under way beside it are polled, on whichever way, and for nothing else that another one has; one
///   that is dropped keeps nobody.
/// * **Durability.** Behind a Flush that succeeded, whatever had completed before it was submitted,
///   on any way to the medium, survives the loss of power, and with [`Features::write_through`]
///   whatever has completed. No Flush succeeds over something that an earlier one, on any way,
///   could not keep. (A write with Force Unit Access is one with a Flush behind it.)
/// * **Errors.** By their kind: [`StorageError::ReadOnly`] of a namespace that is not changed,
///   where a Flush has nothing to do and succeeds; [`StorageError::NoSpace`] of what there is no
///   room for, which concerns nothing else. What somebody took away below it is an error of the
///   medium ([`StorageError::is_of_medium`]) for good, and is never read as anything.
/// * **Size.** Which is said at [`Storage::resize`].
/// * **Figures.** [`Storage::statistics`] count what happened, or nothing.
/// * **End.** Once it is dropped neither buffers nor medium change by it: each block of a write
///   that had not completed is as before or as it was written. (Of a server that has its operations
///   [`NbdStorage`] says what that takes.)
pub trait Storage {
    /// Size of the namespace; it changes by [`Storage::resize`] alone.
    fn geometry(&self) -> Geometry;

    /// Has so many blocks from now on, of the same size ([`FileMedium::measure`] where they lie in
    /// a file). Called before hosts are told of more blocks, and when no operation reaches beyond
    /// fewer, on the core that polls it: it may not block. Blocks in front of the new end keep what
    /// they hold, and operations on them go on; those behind it are there again when it has as many
    /// as before. Who has a storage of one size leaves it out.
    ///
    /// # Errors
    /// [`ResizeError`]; nothing has changed then. A storage that takes the number that it has takes
    /// fewer.
    fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        let _ = blocks;
        Err(ResizeError::Fixed)
    }

    /// What it can do beside reading, writing and flushing. Nothing, unless it says otherwise.
    fn features(&self) -> Features {
        Features::default()
    }

    /// Names the memory that the buffers of all operations lie in. Called before the first
    /// operation, and not again once it succeeded.
    ///
    /// # Errors
    /// [`AttachError`]; the storage cannot be used then.
    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError>;

    /// Takes an operation. It need not start before [`Storage::flush`], and is checked by its
    /// completion.
    ///
    /// # Errors
    /// [`QueueFull`]; the operation was not taken.
    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull>;

    /// Takes an operation back that was submitted and not started: it is never executed, and does not complete. False where
    /// that cannot be done any more, or not at all.
    fn cancel(&mut self, _cookie: Cookie) -> bool {
        false
    }

    /// Starts all that was submitted, like a doorbell: called at the end of each poll iteration,
    /// also where nothing was.
    fn flush(&mut self);

    /// Appends completions to `out` until it is full or there are no more now; returns how many.
    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize;

    /// Says how the core that polls it is woken where it sleeps ([`Storage::arm`]). Once, on that core.
    fn wakes(&mut self, waker: &Waker) {
        let _ = waker;
    }

    /// What becomes readable when an operation ends, for storages that have a descriptor and call no waker. It is waited for edge-triggered,
    /// and nobody reads it. Constant
    /// from [`Storage::wakes`] on.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The core wants to sleep although this storage, or another one of the core, may have operations: from now on each one that ends wakes
    /// it, one waking for several being enough. It is polled once more behind this, which finds what ended before. False where it has to
    /// be polled: where it has operations and wakes nobody, and where there is something that only a poll brings on. Any that says no keeps
    /// the core awake for all, so that one that wakes nobody says yes while it has nothing.
    fn arm(&mut self) -> bool {
        false
    }

    /// Behind [`Storage::arm`] and the poll that followed it: nothing is left that only another poll brings on, as what that poll has found
    /// and could not end.
    fn rests(&self) -> bool {
        true
    }

    /// Counters, by value.
    fn statistics(&self) -> StorageStatistics {
        StorageStatistics::default()
    }
}

/// Whatever storage it is: `Box<dyn Storage>` for a target whose namespaces lie on several kinds. An operation costs an indirect call.
impl<S: Storage + ?Sized> Storage for Box<S> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        (**self).resize(blocks)
    }

    fn features(&self) -> Features {
        (**self).features()
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        (**self).attach(buffers)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        (**self).submit(cookie, operation)
    }

    fn cancel(&mut self, cookie: Cookie) -> bool {
        (**self).cancel(cookie)
    }

    fn flush(&mut self) {
        (**self).flush();
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        (**self).poll(now, out)
    }

    fn wakes(&mut self, waker: &Waker) {
        (**self).wakes(waker);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }

    fn arm(&mut self) -> bool {
        (**self).arm()
    }

    fn rests(&self) -> bool {
        (**self).rests()
    }

    fn statistics(&self) -> StorageStatistics {
        (**self).statistics()
    }
}
