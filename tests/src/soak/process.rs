//! What this process has of the system.

use std::fs;

/// Looks until a thread that was joined is gone from the list, which the kernel does a moment later.
const LOOKS: u32 = 100_000;

/// Memory, file descriptors, threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Bytes that are allocated.
    pub(super) live: usize,
    /// Pages.
    pub(super) resident: u64,
    pub(super) descriptors: usize,
    pub(super) threads: usize,
}

impl Usage {
    /// As it is now.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub(super) fn read() -> Result<Self, String> {
        let statm = fs::read_to_string("/proc/self/statm").map_err(|error| format!("/proc/self/statm: {error}"))?;
        let resident = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        Ok(Self {
            live: frwr_allocations::live_bytes(),
            resident: resident.ok_or_else(|| format!("/proc/self/statm: {statm}"))?,
            descriptors: entries("/proc/self/fd")?,
            threads: entries("/proc/self/task")?,
        })
    }
}

fn entries(folder: &str) -> Result<usize, String> {
    fs::read_dir(folder).map(Iterator::count).map_err(|error| format!("{folder}: {error}"))
}

/// As many descriptors and threads as before.
///
/// # Errors
/// How many more or fewer.
pub(super) fn same_as(before: Usage) -> Result<(), String> {
    let mut now = before;
    for _ in 0..LOOKS {
        now = Usage::read()?;
        if (now.descriptors, now.threads) == (before.descriptors, before.threads) {
            return Ok(());
        }
        std::thread::yield_now();
    }
    Err(format!("left behind by hosts that are gone: {now:?}, before them {before:?}"))
}
