//! What the kernel says about a mapping, for start-up checks and for tests.

use core::ffi::c_void;
use core::ptr::NonNull;
use std::fs;

use super::error::Errno;
use super::mapping::base_page_size;

/// Pages whose node is asked for, evenly spread over the region: enough to see a misplaced region, and one system call.
const PAGES_SAMPLED: usize = 512;

/// What the kernel says about the pages of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageReport {
    /// Bytes per page, as the kernel manages the mapping (`KernelPageSize` of /proc/self/smaps; the smallest one found).
    pub kernel_page_size: usize,
    /// Bytes that transparent hugepages back (`AnonHugePages`).
    pub transparent_bytes: usize,
    /// Which NUMA nodes the sampled pages are on, with the number of pages on each; `None` if the kernel does not say.
    pub nodes: Option<Vec<(u32, usize)>>,
    /// Sampled pages that are not in memory; 0 in a region that was populated.
    pub absent: usize,
}

impl PageReport {
    /// Whether every sampled page is in memory and on `node`. `None` if the kernel does not say.
    #[must_use]
    pub fn all_on(&self, node: u32) -> Option<bool> {
        let nodes = self.nodes.as_ref()?;
        Some(self.absent == 0 && nodes.iter().all(|(found, _)| *found == node))
    }
}

/// Why there is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// /proc/self/smaps cannot be read.
    #[error("/proc/self/smaps cannot be read: {0}; mount /proc")]
    NoSmaps(Errno),
    /// /proc/self/smaps does not list the region.
    #[error("/proc/self/smaps does not list the region at {address:#x}")]
    NotListed {
        /// Where the region starts.
        address: usize,
    },
}

/// What smaps says about the mappings that a range touches.
#[derive(Debug, PartialEq, Eq)]
struct Listing {
    kernel_page_size: usize,
    transparent_bytes: usize,
}

pub(super) fn page_report(base: NonNull<u8>, len: usize) -> Result<PageReport, ReportError> {
    let smaps = fs::read_to_string("/proc/self/smaps").map_err(|error| ReportError::NoSmaps(error.into()))?;
    let address = base.as_ptr().addr();
    let listing = parse_smaps(&smaps, address, len).ok_or(ReportError::NotListed { address })?;
    let statuses = page_statuses(base, len);
    let mut nodes: Vec<(u32, usize)> = Vec::new();
    let mut absent = 0;
    for status in statuses.iter().flatten() {
        // A negative status is an errno: the page is not there.
        let Ok(node) = u32::try_from(*status) else {
            absent += 1;
            continue;
        };
        match nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, pages)) => *pages += 1,
            None => nodes.push((node, 1)),
        }
    }
    let Listing { kernel_page_size, transparent_bytes } = listing;
    Ok(PageReport { kernel_page_size, transparent_bytes, nodes: statuses.map(|_| nodes), absent })
}

/// Reads the mappings that touch `len` bytes from `address`. Neighbours that the kernel has merged in are counted too,
/// so transparent bytes are bounded by `len`.
fn parse_smaps(smaps: &str, address: usize, len: usize) -> Option<Listing> {
    let end = address.checked_add(len)?;
    let mut inside = false;
    let mut page_size: Option<usize> = None;
    let mut transparent_bytes: usize = 0;
    for line in smaps.lines() {
        if let Some((from, to)) = parse_range(line) {
            inside = from < end && address < to;
        } else if inside && let Some(bytes) = parse_field(line, "KernelPageSize:") {
            page_size = Some(page_size.map_or(bytes, |smallest| smallest.min(bytes)));
        } else if inside && let Some(bytes) = parse_field(line, "AnonHugePages:") {
            transparent_bytes = transparent_bytes.saturating_add(bytes);
        }
    }
    Some(Listing { kernel_page_size: page_size?, transparent_bytes: transparent_bytes.min(len) })
}

/// The range of a mapping's first line: `7f0000000000-7f0000200000 rw-p ...`.
fn parse_range(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split(' ').next()?.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}

/// The bytes of a line such as `KernelPageSize:     2048 kB`.
fn parse_field(line: &str, name: &str) -> Option<usize> {
    let kibibytes: usize = line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The node of each sampled page, or a negative errno; `None` if the kernel does not say.
fn page_statuses(base: NonNull<u8>, len: usize) -> Option<Vec<i32>> {
    let page_size = base_page_size();
    let stride = (len / page_size).div_ceil(PAGES_SAMPLED).max(1) * page_size;
    let pages: Vec<*mut c_void> =
        (0..len).step_by(stride).map(|offset| base.as_ptr().wrapping_add(offset).cast()).collect();
    let mut statuses = vec![0_i32; pages.len()];
    // SAFETY: both arrays have `pages.len()` entries; without a list of nodes the call moves nothing and only reports.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0_i32,
            pages.len(),
            pages.as_ptr(),
            core::ptr::null::<i32>(),
            statuses.as_mut_ptr(),
            0_i32,
        )
    };
    (result == 0).then_some(statuses)
}

#[cfg(test)]
mod tests {
    use super::{Listing, parse_smaps};

    const SMAPS: &str = "\
00001000-00003000 rw-p 00000000 00:00 0 \n\
KernelPageSize:        4 kB\n\
AnonHugePages:         0 kB\n\
00200000-00600000 rw-p 00000000 00:0f 1 /anon_hugepage (deleted)\n\
KernelPageSize:     2048 kB\n\
AnonHugePages:      4096 kB\n";

    #[test]
    fn smaps_of_the_range_only() {
        let huge = Listing { kernel_page_size: 2 << 20, transparent_bytes: 1 << 20 };
        assert_eq!(parse_smaps(SMAPS, 0x20_0000, 1 << 20), Some(huge));
        let plain = Listing { kernel_page_size: 4096, transparent_bytes: 0 };
        assert_eq!(parse_smaps(SMAPS, 0x1000, 1), Some(plain));
        assert_eq!(parse_smaps(SMAPS, 0x3000, 1), None);
    }
}
