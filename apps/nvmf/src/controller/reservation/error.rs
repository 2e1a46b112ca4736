//! Why a file of reservations cannot be used.

use std::io;
use std::path::PathBuf;

/// A file of reservations that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReservationFileError {
    /// It cannot be read or written.
    #[error("{}: {source}; let this process read and write it, and its folder", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{}: another process keeps its reservations there; name another file", .0.display())]
    InUse(PathBuf),
    /// It holds something else than what was written.
    #[error(
        "{}, line {line}: {reason}; restore the file, or remove it, and have all hosts register again",
        .path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong there.
        reason: &'static str,
    },
}
