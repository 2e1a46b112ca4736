//! The file to move: read whole, with errors that say what a person can do.

use super::job_plan::Source;
use crate::Error;
use frwr_mempool::limits::Limits;
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

/// Largest file or namespace: the job keeps it up to three times, as it was, as the namespace and as it came back.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;

/// How often the bytes of a file are in memory: as it was, as it came back, and as the namespace where that is in this process.
const FILE_COPIES: u64 = 3;

/// Refuses what would be more than the memory that is left: the kernel ends a process that takes it all the same, without a word.
///
/// # Errors
/// More is wanted than there is.
pub(super) fn enough_memory(wanted: u64) -> Result<(), Error> {
    match Limits::of_process().memory() {
        Some(room) if room.bytes < wanted => {
            let mebibytes = wanted.div_ceil(1 << 20);
            Err(Error::failed(
                "memory",
                format!(
                    "copies in memory take {mebibytes} MiB, {room}: this process would be ended by SIGKILL; choose a smaller file or \
                     --bytes, or raise the limit"
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// A file's bytes and their SHA-256.
pub(super) struct LoadedFile {
    pub(super) bytes: Arc<[u8]>,
    pub(super) digest: [u8; 32],
}

impl LoadedFile {
    /// It as what is to be moved.
    pub(super) fn source(&self) -> Source {
        Source::File { bytes: Arc::clone(&self.bytes), digest: self.digest }
    }
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, is no file, or has no size that can be moved.
pub(super) fn load(path: &Path) -> Result<LoadedFile, Error> {
    let unreadable = |source: io::Error| {
        let text = format!(
            "{path:?} cannot be read ({source}); name a readable file of 1 byte to {MAX_FILE_BYTES} bytes, or a command: \
             `frwr --help` lists them"
        );
        Error::failed("file_unreadable", text)
    };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "folder" } else { "device, pipe or socket" };
        let text = format!("{path:?} is a {kind}, not a regular file; name a file of 1 byte to {MAX_FILE_BYTES} bytes");
        return Err(Error::usage("not_a_file", text));
    }
    enough_memory(metadata.len().min(MAX_FILE_BYTES).saturating_mul(FILE_COPIES))?;
    // One byte more than allowed shows a file that grows while it is read, and bounds what is read.
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let length = metadata.len().max(bytes.len() as u64);
    if bytes.is_empty() || length > MAX_FILE_BYTES {
        let text = format!("{path:?} has {length} bytes: must have 1 to {MAX_FILE_BYTES}; name another file");
        return Err(Error::usage("file_size", text));
    }
    let digest = Sha256::digest(&bytes).into();
    Ok(LoadedFile { bytes: bytes.into(), digest })
}

/// A digest, or another name of bytes, as people compare it.
pub(super) fn hex<const BYTES: usize>(digest: &[u8; BYTES]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
