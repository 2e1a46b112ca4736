//! The mapping behind a region, and the rungs of the ladder that make one.

use core::alloc::Layout;
use core::any::Any;
use core::ptr::NonNull;
use std::panic::catch_unwind;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use rustix::mm::{Advice, madvise};

use super::error::{Errno, RungError};
use super::pool::{self, Pool};
use super::{PageSize, RegionKind};
use crate::limits;

/// Bits of the node mask that is given to `mbind`: the largest number of nodes that Linux can be built for.
const NODE_MASK_BITS: usize = 1024;
const NODE_MASK_WORD_BITS: usize = u64::BITS as usize;
const _: () = assert!(NODE_MASK_BITS.is_multiple_of(NODE_MASK_WORD_BITS));

/// What the length of a transparent region is a multiple of, at most: a hugepage of machines with ordinary pages of 4 KiB, and a
/// multiple of every ordinary page.
const MOST_ROUNDED: usize = 2 * super::MEBIBYTE;

/// What has to be left once a region is populated: stacks, heap and what the kernel keeps for the process.
const SPARE: u64 = 16 << 20;
/// An entry of 8 bytes in the page tables for each page of 4096.
const BYTES_PER_TABLE_BYTE: u64 = 512;

/// Keeps the bytes of a region mapped. Nobody reaches the bytes through it.
pub(crate) struct Mapping {
    _owner: Owner,
}

/// Who gives the memory back, and how.
#[expect(dead_code, reason = "held for their Drop only")]
enum Owner {
    Mapped(MmapRaw),
    HugeDefault(HugeDefault),
    Foreign(Arc<dyn Any + Send + Sync>),
}

/// An allocation of hugepage-rs: hugepages of the system's default size.
struct HugeDefault {
    pointer: NonNull<u8>,
    layout: Layout,
}

impl HugeDefault {
    /// Zeroed bytes, `len` of them: a multiple of `page_size`, the system's default, and not 0.
    fn new(len: usize, page_size: usize) -> Result<Self, RungError> {
        // All hugepages are aligned to their size. With an alignment hugepage-rs would have a second reason to refuse, and it tells none.
        let layout = Layout::array::<u8>(len).map_err(|_| RungError::TooLarge { bytes: len, page_size })?;
        // It reads /proc/meminfo once, and panics where it cannot, now and whenever it is called again. We have just read it; what is
        // left is that the process ran out of file descriptors meanwhile.
        // SAFETY: the layout's size is not zero, as the caller promises.
        let pointer = catch_unwind(|| unsafe { hugepage_rs::alloc(layout) }).map_err(|_| RungError::NoDefaultSize)?;
        // Null is a refusal of mmap, and nothing was called since.
        let pointer = NonNull::new(pointer).ok_or_else(|| RungError::Map(Errno::last()))?;
        Ok(Self { pointer, layout })
    }
}

impl Drop for HugeDefault {
    /// Gives the pages back to their pool. hugepage-rs does not look at what munmap says, which refuses no whole pages of a mapping.
    fn drop(&mut self) {
        // SAFETY: the pointer came from `hugepage_rs::alloc` with this layout, and is freed once, here.
        unsafe { hugepage_rs::dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

// SAFETY: the pointer is only used to unmap, which any thread may do.
unsafe impl Send for HugeDefault {}
// SAFETY: a shared reference gives no access to anything.
unsafe impl Sync for HugeDefault {}

/// Bytes that a rung gave.
pub(super) struct Mapped {
    pub(super) mapping: Arc<Mapping>,
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
    pub(super) kind: RegionKind,
}

/// Memory of somebody else.
pub(super) fn foreign(keep_alive: Arc<dyn Any + Send + Sync>) -> Arc<Mapping> {
    Arc::new(Mapping { _owner: Owner::Foreign(keep_alive) })
}

/// Tries one rung: map without populating, bind to the node, then populate.
///
/// In this order, because populating at `mmap` time would place the pages before the binding.
pub(super) fn try_rung(pages: PageSize, bytes: usize, node: Option<u32>) -> Result<Mapped, RungError> {
    let mapped = match pages {
        PageSize::TwoMebibytes | PageSize::OneGibibyte => map_huge(pages, bytes, node)?,
        PageSize::SystemDefault => map_huge_default(bytes, node)?,
        PageSize::Transparent => map_transparent(bytes)?,
        PageSize::Plain => map_plain(bytes)?,
    };
    if let Some(node) = node {
        bind(&mapped, node)?;
    }
    // A child that shares these pages would make the parent's next write copy them away from under the device.
    advise(&mapped, Advice::LinuxDontFork).map_err(|errno| RungError::Advise { advice: "MADV_DONTFORK", errno })?;
    // Hugepages of a pool are there; what the others need may not be, and the kernel would end the process by SIGKILL then.
    let _reserved = match pages {
        PageSize::TwoMebibytes | PageSize::OneGibibyte | PageSize::SystemDefault => None,
        PageSize::Transparent | PageSize::Plain => Some(reserve(mapped.len as u64)?),
    };
    // Unlike touching the pages, this reports a pool or node that has run dry instead of raising SIGBUS.
    advise(&mapped, Advice::LinuxPopulateWrite).map_err(populate_error)?;
    Ok(mapped)
}

/// Memory for `wanted` bytes and what comes with them.
fn reserve(wanted: u64) -> Result<limits::Reservation, RungError> {
    let with_tables = wanted.saturating_add(wanted / BYTES_PER_TABLE_BYTE);
    limits::reserve(with_tables.saturating_add(SPARE)).map_err(|room| RungError::TooLittleMemory { wanted, room })
}

fn populate_error(errno: Errno) -> RungError {
    if errno == Errno(libc::EINVAL) {
        return RungError::Advise { advice: "MADV_POPULATE_WRITE", errno };
    }
    RungError::Populate { errno }
}

fn map_huge(pages: PageSize, bytes: usize, node: Option<u32>) -> Result<Mapped, RungError> {
    let page_size = if pages == PageSize::OneGibibyte { super::GIBIBYTE } else { 2 * super::MEBIBYTE };
    let len = round_up(bytes, page_size)?;
    check_pool(page_size, len, node)?;
    let bits = page_size.trailing_zeros() as u8;
    // The length is a multiple of the page size: the kernel would map any other, and then silently fail to unmap it.
    let map = MmapOptions::new().len(len).huge(Some(bits)).map_anon().map_err(|error| RungError::Map(error.into()))?;
    mapped(map.into(), len, len, RegionKind::Huge { page_size })
}

fn map_huge_default(bytes: usize, node: Option<u32>) -> Result<Mapped, RungError> {
    let page_size = pool::default_page_size()?;
    let len = round_up(bytes, page_size)?;
    check_pool(page_size, len, node)?;
    let pages = HugeDefault::new(len, page_size)?;
    let base = pages.pointer;
    let mapping = Arc::new(Mapping { _owner: Owner::HugeDefault(pages) });
    Ok(Mapped { mapping, base, len, kind: RegionKind::HugeDefault { page_size } })
}

fn map_transparent(bytes: usize) -> Result<Mapped, RungError> {
    let page_size = pool::transparent_page_size()?;
    let len = transparent_len(bytes, page_size)?;
    // One page more, so that an aligned range lies inside wherever the kernel puts it. The rest is never populated.
    let padded = len.checked_add(page_size).ok_or(RungError::TooLarge { bytes, page_size })?;
    let map = MmapOptions::new().len(padded).map_anon().map_err(|error| RungError::Map(error.into()))?;
    let mapped = mapped(map.into(), len, page_size, RegionKind::Transparent)?;
    advise(&mapped, Advice::LinuxHugepage).map_err(|errno| RungError::Advise { advice: "MADV_HUGEPAGE", errno })?;
    Ok(mapped)
}

/// The length of a region of at least `bytes` bytes where a transparent hugepage has `page_size`: whole ones where they are small,
/// else as many as fit, with ordinary pages behind them. Rounding up is populating and pinning: where ordinary pages have
/// 64 KiB a transparent one has 512 MiB, and a small region would take as much.
fn transparent_len(bytes: usize, page_size: usize) -> Result<usize, RungError> {
    let len = round_up(bytes, page_size.min(MOST_ROUNDED))?;
    if len < page_size { Err(RungError::SmallerThanPage { bytes, page_size }) } else { Ok(len) }
}

fn map_plain(bytes: usize) -> Result<Mapped, RungError> {
    let len = round_up(bytes, base_page_size())?;
    let map = MmapOptions::new().len(len).map_anon().map_err(|error| RungError::Map(error.into()))?;
    mapped(map.into(), len, 1, RegionKind::Plain)
}

/// The `len` bytes of `map` from its first multiple of `align` on. `map` is longer than `len` by `align`, or aligned.
fn mapped(map: MmapRaw, len: usize, align: usize, kind: RegionKind) -> Result<Mapped, RungError> {
    let start = map.as_mut_ptr();
    let skip = if kind == RegionKind::Transparent { start.align_offset(align) } else { 0 };
    let base = NonNull::new(start.wrapping_add(skip)).ok_or(RungError::Map(Errno(libc::EFAULT)))?;
    Ok(Mapped { mapping: Arc::new(Mapping { _owner: Owner::Mapped(map) }), base, len, kind })
}

fn check_pool(page_size: usize, len: usize, node: Option<u32>) -> Result<(), RungError> {
    Pool::new(page_size, node).check((len / page_size) as u64)
}

fn round_up(bytes: usize, page_size: usize) -> Result<usize, RungError> {
    bytes
        .checked_next_multiple_of(page_size)
        .filter(|len| isize::try_from(*len).is_ok())
        .ok_or(RungError::TooLarge { bytes, page_size })
}

/// Bytes of an ordinary page.
pub(super) fn base_page_size() -> usize {
    /// What every machine that Linux runs on can do, should the system not say.
    const SMALLEST_PAGE: usize = 4096;
    Some(rustix::param::page_size()).filter(|size| size.is_power_of_two()).unwrap_or(SMALLEST_PAGE)
}

fn bind(mapped: &Mapped, node: u32) -> Result<(), RungError> {
    let mut mask = [0_u64; NODE_MASK_BITS / NODE_MASK_WORD_BITS];
    let position = node as usize;
    let Some(word) = mask.get_mut(position / NODE_MASK_WORD_BITS) else {
        return Err(RungError::Bind { node, errno: Errno(libc::EINVAL) });
    };
    *word |= 1 << (position % NODE_MASK_WORD_BITS);
    // The kernel reads one bit less than it is told.
    let bits = NODE_MASK_BITS + 1;
    // The system call takes the mode as a long, unlike the function of mbind(2).
    let mode = libc::c_long::from(libc::MPOL_BIND);
    // SAFETY: the range is this mapping's; the mask has `NODE_MASK_BITS` bits, all that the kernel reads.
    let result =
        unsafe { libc::syscall(libc::SYS_mbind, mapped.base.as_ptr(), mapped.len, mode, mask.as_ptr(), bits, 0_u32) };
    if result == 0 {
        return Ok(());
    }
    let errno = Errno::last();
    if nobody_binds(errno) && pool::is_only_node(node) { Ok(()) } else { Err(RungError::Bind { node, errno }) }
}

/// Whether the call was refused whatever it asks for: containers forbid it by default, and what stands in for a kernel (QEMU's
/// emulation of one architecture's programs on another) may not have it. Where all memory is on the node, nothing is lost by that.
fn nobody_binds(errno: Errno) -> bool {
    matches!(errno, Errno(libc::EPERM | libc::ENOSYS))
}

fn advise(mapped: &Mapped, advice: Advice) -> Result<(), Errno> {
    // SAFETY: the range is this mapping's, nobody else has it yet, and none of the advices in use discards its bytes.
    let done = unsafe { madvise(mapped.base.as_ptr().cast(), mapped.len, advice) };
    done.map_err(|errno| Errno(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::{Errno, RungError, nobody_binds, transparent_len};

    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;

    #[test]
    fn a_transparent_region_takes_few_bytes_more_than_asked_for_whatever_the_hugepage() {
        // By ordinary pages of 4 KiB, of 16 KiB and of 64 KiB.
        let cases = [
            (2 * MIB, 1, Some(2 * MIB)),
            (2 * MIB, 5 * MIB, Some(6 * MIB)),
            (2 * MIB, 6 * MIB, Some(6 * MIB)),
            (32 * MIB, 1, None),
            (32 * MIB, 30 * MIB, None),
            (32 * MIB, 30 * MIB + 1, Some(32 * MIB)),
            (32 * MIB, 33 * MIB, Some(34 * MIB)),
            (512 * MIB, 4 * KIB, None),
            (512 * MIB, 512 * MIB, Some(512 * MIB)),
            (512 * MIB, 513 * MIB, Some(514 * MIB)),
            // None is smaller; a kernel that says so is still believed.
            (64 * KIB, 65 * KIB, Some(128 * KIB)),
        ];
        for (page_size, bytes, expected) in cases {
            let expected = expected.ok_or(RungError::SmallerThanPage { bytes, page_size });
            assert_eq!(transparent_len(bytes, page_size), expected, "{bytes} bytes in pages of {page_size}");
        }
        let too_large = transparent_len(usize::MAX, 512 * MIB);
        assert!(matches!(too_large, Err(RungError::TooLarge { bytes: usize::MAX, .. })), "{too_large:?}");
        let refusal = transparent_len(MIB, 512 * MIB).unwrap_err().to_string();
        assert!(refusal.contains("1048576 bytes") && refusal.contains("536870912"), "{refusal}");
    }

    #[test]
    fn a_call_that_nobody_may_make_is_told_from_one_that_fails() {
        assert!([libc::EPERM, libc::ENOSYS].map(Errno).into_iter().all(nobody_binds));
        assert!(![libc::EINVAL, libc::EIO, libc::ENOMEM, libc::EFAULT].map(Errno).into_iter().any(nobody_binds));
    }
}
