//! A namespace in a file or on a block device: by io_uring, or by a worker thread where io_uring is refused, so that no
//! reactor ever waits for a disk. Either moves bytes straight between the medium and the target's buffers.

mod below;
mod health;
mod identity;
mod layout;
mod lock;
mod medium;
mod next_order;
mod ring;
#[allow(unsafe_code, reason = "what the kernel is given: entries of io_uring, and addresses of buffers")]
mod sys;
mod task;
mod thread;

pub use below::Below;
pub use identity::FileIdentity;
pub use medium::{FileError, FileMedium, FileNote, FileOptions, MediumKind};
pub use ring::RingStorage;
pub use thread::ThreadStorage;

/// Operations that one storage holds at most: what a ring of io_uring takes, 32768, is far above what a disk uses.
pub const MAX_STORAGE_DEPTH: usize = 4096;

/// Who carries out a medium's operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// io_uring where it is to be had, else a worker thread.
    #[default]
    Auto,
    /// io_uring, or an error.
    Ring,
    /// A worker thread.
    Thread,
}
