//! One mapping, made by a ladder of page kinds and carved into blocks that never overlap.
//!
//! The ladder: hugepages of the system's default size (by the crate hugepage-rs), hugepages of an explicit size, ordinary pages
//! with advice to use transparent hugepages, and plain pages where the user allows them. Where the default is not 2 MiB, the
//! larger pages that the length is a multiple of come first. A region never falls silently: [`Region::kind`]
//! says which rung it got, and [`Region::failed_rungs`] why those above it failed. Pages are bound to the NUMA node
//! and populated before the region is handed out, so that no page fault, and no SIGBUS of an exhausted pool, is left for
//! the data path.

mod error;
mod mapping;
mod owned;
mod pool;
mod report;

use core::any::Any;
use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

pub use error::{Attempt, CarveError, Errno, RegionError, RungError};
pub(crate) use mapping::Mapping;
pub use owned::OwnedMemory;
pub use report::{PageReport, ReportError};

use crate::device_memory::{DeviceMemory, WORD};

/// Bytes of a mebibyte.
const MEBIBYTE: usize = 1 << 20;
/// Bytes of a gibibyte.
const GIBIBYTE: usize = 1 << 30;

/// The next block starts at a multiple of this many bytes, so that two blocks never share a cache line: 64 on x86-64 and on
/// most aarch64 cores. Also what keeps a word of [`DeviceMemory`] from reaching into a neighbour.
pub const BLOCK_GRANULE: usize = 64;
const _: () = assert!(BLOCK_GRANULE.is_power_of_two() && BLOCK_GRANULE.is_multiple_of(WORD));

/// The pages that one rung of the ladder uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageSize {
    /// Hugepages of 2 MiB, by explicit request.
    TwoMebibytes,
    /// Hugepages of 1 GiB, by explicit request.
    OneGibibyte,
    /// Hugepages of whatever size the system has as its default (`Hugepagesize` of /proc/meminfo).
    SystemDefault,
    /// Ordinary pages that the kernel is advised to merge into transparent hugepages.
    Transparent,
    /// Ordinary pages.
    Plain,
}

impl fmt::Display for PageSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TwoMebibytes => "hugepages 2 MiB",
            Self::OneGibibyte => "hugepages 1 GiB",
            Self::SystemDefault => "hugepages of the default size",
            Self::Transparent => "transparent hugepages",
            Self::Plain => "plain pages",
        })
    }
}

/// Which rungs may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PagePolicy {
    /// From the top: 1 GiB (only for lengths that are a multiple of it), system default, 2 MiB, transparent, and plain if
    /// allowed. A system default other than 2 MiB comes behind it where it is smaller, or larger and the length no multiple of it.
    Ladder {
        /// Whether plain pages are better than none.
        allow_plain: bool,
    },
    /// This rung or none.
    Exactly(PageSize),
}

crate::options! {
    /// What region to map.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RegionOptions {
        /// Bytes wanted, at least 1; rounded up to whole pages. Transparent hugepages larger than 2 MiB, as where ordinary pages have 16 or
        /// 64 KiB, are the exception: it is rounded up to 2 MiB, and what follows the last whole one is ordinary pages.
        pub bytes: usize,
        /// Which pages.
        pub pages: PagePolicy,
        /// The NUMA node all pages shall be on: the one of the NIC. `None`: wherever the mapping thread runs.
        pub node: Option<u32>,
    }
}

impl RegionOptions {
    /// `bytes` by the ladder, without plain pages, on whatever node.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { bytes, pages: PagePolicy::Ladder { allow_plain: false }, node: None }
    }
}

/// Which rung of the ladder a region stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// Hugepages of an explicit size.
    Huge {
        /// Bytes per page.
        page_size: usize,
    },
    /// Hugepages of the system's default size.
    HugeDefault {
        /// Bytes per page.
        page_size: usize,
    },
    /// Ordinary pages, with advice. [`Region::page_report`] tells how much of it the kernel followed.
    Transparent,
    /// Ordinary pages.
    Plain,
    /// Memory of somebody else.
    Foreign,
}

impl fmt::Display for RegionKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Huge { page_size } => write!(formatter, "hugepages {}", Size(page_size)),
            Self::HugeDefault { page_size } => write!(formatter, "hugepages {}, default", Size(page_size)),
            Self::Transparent => formatter.write_str("transparent hugepages"),
            Self::Plain => formatter.write_str("plain pages"),
            Self::Foreign => formatter.write_str("foreign memory"),
        }
    }
}

/// A page size with its unit.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes.is_multiple_of(GIBIBYTE) => write!(formatter, "{} GiB", bytes / GIBIBYTE),
            bytes if bytes.is_multiple_of(MEBIBYTE) => write!(formatter, "{} MiB", bytes / MEBIBYTE),
            bytes => write!(formatter, "{} KiB", bytes / 1024),
        }
    }
}

/// One range of memory, to be carved into blocks. It stays mapped for as long as the region or any of its blocks lives.
///
/// Mapped regions are zeroed. One thread carves at a time; the region may move to another.
pub struct Region {
    mapping: Arc<Mapping>,
    base: NonNull<u8>,
    len: usize,
    /// Offset of the first byte that no block has. Never decreases: this is what keeps blocks apart.
    carved: usize,
    kind: RegionKind,
    node: Option<u32>,
    failed: Vec<Attempt>,
}

// SAFETY: the region owns every byte of its range that it has not given to a block; the pointer is not tied to a thread.
unsafe impl Send for Region {}

impl Region {
    /// Maps a region by the ladder, on the calling thread. Cold: system calls, and as long as zeroing the memory takes.
    ///
    /// # Errors
    /// [`RegionError`], with the reason of every rung that was tried.
    pub fn map(options: &RegionOptions) -> Result<Self, RegionError> {
        let RegionOptions { bytes, pages, node } = *options;
        if bytes == 0 {
            return Err(RegionError::NoBytes);
        }
        if let Some(node) = node
            && !pool::node_exists(node)
        {
            return Err(RegionError::UnknownNode { node });
        }
        // Nothing to bind to, and no system call that could.
        let node = node.filter(|_| pool::has_nodes());
        let mut failed = Vec::new();
        for rung in rungs(pages, bytes).into_iter().flatten() {
            match mapping::try_rung(rung, bytes, node) {
                Ok(mapping::Mapped { mapping, base, len, kind }) => {
                    return Ok(Self { mapping, base, len, carved: 0, kind, node, failed });
                }
                Err(reason) => failed.push(Attempt { pages: rung, reason }),
            }
        }
        Err(RegionError::NoRung { bytes, attempts: failed })
    }

    /// A region over memory that belongs to somebody else, kept alive by `keep_alive`. Bytes before the first and after
    /// the last multiple of 8 are left out.
    ///
    /// # Safety
    /// Until `keep_alive` is dropped for the last time, the `len` bytes from `pointer` are mapped, initialised, readable
    /// and writable, and nobody holds a Rust reference to them or accesses them from this process other than through
    /// this region. A device may access those that become [`DeviceMemory`].
    #[must_use]
    pub unsafe fn from_foreign(pointer: NonNull<u8>, len: usize, keep_alive: Arc<dyn Any + Send + Sync>) -> Self {
        let skip = pointer.as_ptr().align_offset(WORD).min(len);
        let len = (len - skip) / WORD * WORD;
        // SAFETY: `skip` is at most the length of the caller's range.
        let base = unsafe { pointer.add(skip) };
        let mapping = mapping::foreign(keep_alive);
        Self { mapping, base, len, carved: 0, kind: RegionKind::Foreign, node: None, failed: Vec::new() }
    }

    /// A region over memory that the program has already and gives away: a `Vec<u8>`, a `Box<[u8]>`, a `memmap2::MmapMut`. It is freed with
    /// the last part of the region. Bytes before the first and after the last multiple of 8 are left out; blocks of pages want some
    /// more, since a vector begins anywhere.
    #[must_use]
    pub fn from_owned(memory: impl Into<OwnedMemory>) -> Self {
        let OwnedMemory { pointer, len, owner } = memory.into();
        // SAFETY: all kinds are initialised, readable and writable where they are until the owner is dropped, and only it knew of them.
        unsafe { Self::from_foreign(pointer, len, owner) }
    }

    /// Which rung of the ladder the region stands on.
    #[must_use]
    pub fn kind(&self) -> RegionKind {
        self.kind
    }

    /// The rungs that were tried before and why they failed, in order.
    #[must_use]
    pub fn failed_rungs(&self) -> &[Attempt] {
        &self.failed
    }

    /// Bytes of the region: whole pages, at least as many as asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no byte, which only foreign memory can.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that no block has, before alignment.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.len - self.carved
    }

    /// The NUMA node the region was bound to, if any; `None` on a kernel without NUMA. [`Region::page_report`] tells where the pages are.
    #[must_use]
    pub fn node(&self) -> Option<u32> {
        self.node
    }

    /// The address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// What the kernel says about the pages. Cold: reads files under /proc.
    ///
    /// # Errors
    /// [`ReportError`] when the kernel does not say.
    pub fn page_report(&self) -> Result<PageReport, ReportError> {
        report::page_report(self.base, self.len)
    }

    /// Takes the next `bytes` bytes at a multiple of `align` (and of 8). No other block ever has any of them, and the
    /// next block starts on a cache line of its own.
    ///
    /// # Errors
    /// [`CarveError`] when the alignment is no power of two, or too few bytes are left; the region is unchanged.
    pub fn carve(&mut self, bytes: usize, align: usize) -> Result<Block, CarveError> {
        if !align.is_power_of_two() {
            return Err(CarveError::BadAlignment { align });
        }
        let too_few = CarveError::TooFewBytes { bytes, align, remaining: self.remaining() };
        let origin = self.base.as_ptr().addr();
        let free = origin + self.carved;
        let start = free.checked_next_multiple_of(align.max(WORD)).ok_or(too_few)? - origin;
        let end = start.checked_add(bytes).filter(|end| *end <= self.len).ok_or(too_few)?;
        // `len` is a multiple of 8, so the last word of the block is inside the region even if the next line is not.
        self.carved = ((origin + end).next_multiple_of(BLOCK_GRANULE) - origin).min(self.len);
        // SAFETY: `start` is at most `len`, so the result is inside the mapping or one past its end.
        let base = unsafe { self.base.add(start) };
        Ok(Block { mapping: Arc::clone(&self.mapping), base, len: bytes })
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, carved, kind, node, failed, .. } = self;
        formatter
            .debug_struct("Region")
            .field("len", len)
            .field("carved", carved)
            .field("kind", kind)
            .field("node", node)
            .field("failed", failed)
            .finish_non_exhaustive()
    }
}

/// The rungs of a policy, from the top.
fn rungs(policy: PagePolicy, bytes: usize) -> [Option<PageSize>; 5] {
    match policy {
        PagePolicy::Exactly(pages) => [Some(pages), None, None, None, None],
        PagePolicy::Ladder { allow_plain } => {
            let [first, second, third] = huge_rungs(bytes, pool::default_page_size().ok());
            [first, second, third, Some(PageSize::Transparent), allow_plain.then_some(PageSize::Plain)]
        }
    }
}

/// Hugepages, the largest first that `bytes` are a multiple of: rounding up is populating and pinning. Of two rungs of one size the
/// system's default is the first. The other stays behind it, since it comes by another way.
fn huge_rungs(bytes: usize, default_size: Option<usize>) -> [Option<PageSize>; 3] {
    const TWO_MEBIBYTES: usize = 2 * MEBIBYTE;
    let large = bytes.is_multiple_of(GIBIBYTE).then_some(PageSize::OneGibibyte);
    let (default, explicit) = (Some(PageSize::SystemDefault), Some(PageSize::TwoMebibytes));
    match default_size {
        Some(size) if size >= GIBIBYTE && bytes.is_multiple_of(size) => [default, large, explicit],
        Some(TWO_MEBIBYTES) => [large, default, explicit],
        Some(size) if size > TWO_MEBIBYTES && bytes.is_multiple_of(size) => [large, default, explicit],
        _ => [large, explicit, default],
    }
}

/// Sole owner of a range of a region. It keeps the region's memory mapped.
///
/// A block gives no access to its bytes; it is made into a [`Slab`](crate::slab::Slab) or into [`DeviceMemory`].
pub struct Block {
    mapping: Arc<Mapping>,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: no other block has any byte of the range, and the pointer is not tied to a thread.
unsafe impl Send for Block {}

impl Block {
    /// Bytes of the block.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the block has no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// The first byte. Whoever keeps the block may do with its bytes what it likes, and nobody else may.
    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.base
    }

    /// The first byte, and what keeps the bytes mapped. Whoever keeps both may do with the bytes what it likes, and nobody else may.
    pub(crate) fn into_parts(self) -> (NonNull<u8>, Arc<Mapping>) {
        (self.base, self.mapping)
    }

    /// Gives the block up to a device: from now on its bytes are only copied from and to.
    #[must_use]
    pub fn into_device_memory(self) -> DeviceMemory {
        // SAFETY: the block was the only owner of the range, a multiple of 8 starts it, and the bytes up to the next
        // multiple of 8 after it belong to no other block. They are initialised: fresh mappings are zeroed, the caller of
        // `from_foreign` has promised it, and a slab never gives its block back.
        unsafe { DeviceMemory::new(self.mapping, self.base, self.len) }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Block").field("address", &self.base).field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{GIBIBYTE, MEBIBYTE, PageSize, huge_rungs};

    #[test]
    fn the_systems_default_is_the_first_hugepage_unless_it_is_smaller_or_rounds_up() {
        use PageSize::{OneGibibyte as Large, SystemDefault as Default, TwoMebibytes as Two};
        const MIB: usize = MEBIBYTE;
        const GIB: usize = GIBIBYTE;
        let cases: [(usize, Option<usize>, &[PageSize]); 13] = [
            (1, Some(2 * MIB), &[Default, Two]),
            (3 * MIB, Some(2 * MIB), &[Default, Two]),
            (2 * GIB, Some(2 * MIB), &[Large, Default, Two]),
            // What the kernel's command line can make of x86-64.
            (3 * MIB, Some(GIB), &[Two, Default]),
            (2 * GIB, Some(GIB), &[Default, Large, Two]),
            // Ordinary pages of 16 KiB and of 64 KiB.
            (33 * MIB, Some(32 * MIB), &[Two, Default]),
            (64 * MIB, Some(32 * MIB), &[Default, Two]),
            (64 * MIB, Some(512 * MIB), &[Two, Default]),
            (512 * MIB, Some(512 * MIB), &[Default, Two]),
            (GIB, Some(512 * MIB), &[Large, Default, Two]),
            (2 * MIB, Some(64 << 10), &[Two, Default]),
            (17 * GIB, Some(16 * GIB), &[Large, Two, Default]),
            (2 * MIB, None, &[Two, Default]),
        ];
        for (bytes, default_size, expected) in cases {
            let found: Vec<_> = huge_rungs(bytes, default_size).into_iter().flatten().collect();
            assert_eq!(found, expected, "{bytes} bytes, pages of {default_size:?} by default");
        }
    }
}
