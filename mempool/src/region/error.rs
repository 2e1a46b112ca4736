//! Why a region could not be mapped, rung by rung, and why a block could not be carved.

use core::fmt;

use super::PageSize;
use crate::limits::MemoryRoom;

/// An `errno` of a system call, shown as the system's text for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The calling thread's last error.
    pub(super) fn last() -> Self {
        Self::from(std::io::Error::last_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EINVAL))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&std::io::Error::from_raw_os_error(self.0), formatter)
    }
}

/// Why [`Region::map`](super::Region::map) made no region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// A region of zero bytes was asked for.
    #[error("a region of 0 bytes was asked for; ask for at least 1, it is rounded up to whole pages")]
    NoBytes,
    /// The machine has no such NUMA node.
    #[error("NUMA node {node} does not exist on this machine; /sys/devices/system/node/online lists those that do")]
    UnknownNode {
        /// The node that was asked for.
        node: u32,
    },
    /// No rung of the ladder gave memory; each is listed with its reason, in the order tried.
    #[error("no memory of {bytes} bytes: {}", Listed(.attempts))]
    NoRung {
        /// Bytes asked for, before rounding.
        bytes: usize,
        /// Every rung tried.
        attempts: Vec<Attempt>,
    },
}

/// One rung that was tried and failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The rung.
    pub pages: PageSize,
    /// Why it gave no memory.
    pub reason: RungError,
}

impl fmt::Display for Attempt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.pages, self.reason)
    }
}

/// Shows attempts on one line.
struct Listed<'a>(&'a [Attempt]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, attempt) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { "; " };
            write!(formatter, "{separator}{attempt}")?;
        }
        Ok(())
    }
}

/// Why one rung of the ladder gave no memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RungError {
    /// The rounded length does not fit the address space.
    #[error("{bytes} bytes rounded up to pages of {page_size} bytes exceed the address space; ask for less")]
    TooLarge {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes per page.
        page_size: usize,
    },
    /// The kernel has no pool of such pages.
    #[error("this kernel has no hugepage pool of that size; /sys/kernel/mm/hugepages lists those it has")]
    NoPool,
    /// The system's default hugepage size cannot be found out.
    #[error(
        "the default hugepage size cannot be read from /proc/meminfo; mount /proc, and raise `ulimit -n` if it is reached"
    )]
    NoDefaultSize,
    /// The pool has too few pages that are neither in use nor promised.
    #[error("{} wanted, {free} free; reserve more with `echo {reserve} > {path}`", pages(*.wanted))]
    TooFewPages {
        /// Pages wanted.
        wanted: u64,
        /// Pages that are neither in use nor promised to another mapping.
        free: u64,
        /// Size the pool needs for this region to fit, in pages.
        reserve: u64,
        /// The file to write that size to.
        path: String,
    },
    /// The administrator has turned transparent hugepages off.
    #[error(
        "transparent hugepages are off; turn them on with `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`"
    )]
    TransparentOff,
    /// A transparent hugepage is so large here that the region would not hold one: 512 MiB where ordinary pages have 64 KiB.
    #[error(
        "{bytes} bytes are less than one transparent hugepage, which has {page_size} bytes here; reserve hugepages of \
         2 MiB, or allow plain pages"
    )]
    SmallerThanPage {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes of a transparent hugepage.
        page_size: usize,
    },
    /// `mmap` refused.
    #[error("mmap failed: {0}; check `ulimit -v`, and the cgroup's memory.max, or hugetlb.*.max of hugepages")]
    Map(Errno),
    /// `mbind` refused.
    #[error("binding to NUMA node {node} failed: {errno}; check the cpuset's mems, and CAP_SYS_NICE in a container")]
    Bind {
        /// The node asked for.
        node: u32,
        /// What `mbind` said.
        errno: Errno,
    },
    /// `madvise` refused an advice that the rung needs.
    #[error("madvise({advice}) failed: {errno}; {}", advise_remedy(*.errno))]
    Advise {
        /// The advice, by its name in madvise(2).
        advice: &'static str,
        /// What `madvise` said.
        errno: Errno,
    },
    /// Less memory is left, of the machine or of a control group, than the region and some to spare need.
    #[error(
        "{} MiB wanted, {room}: populating them would end this process by SIGKILL; ask for less, end what else uses memory, or \
         raise the limit", .wanted.div_ceil(1 << 20)
    )]
    TooLittleMemory {
        /// Bytes wanted.
        wanted: u64,
        /// What there is.
        room: MemoryRoom,
    },
    /// The pages could not be brought in: the node, the pool or the cgroup has no more.
    #[error(
        "the pages could not be populated: {errno}; check the node's free pages, and the cgroup's memory.max, or \
         hugetlb.*.max of hugepages"
    )]
    Populate {
        /// What `madvise(MADV_POPULATE_WRITE)` said: EFAULT where touching the pages would have been a SIGBUS.
        errno: Errno,
    },
}

/// What helps against a refusal of madvise: an advice that the kernel does not know is EINVAL (madvise(2)).
fn advise_remedy(errno: Errno) -> &'static str {
    match errno {
        Errno(libc::EINVAL) => "Linux 5.14 or later is needed",
        Errno(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
            "a filter of system calls refuses it: allow madvise in the container's seccomp profile"
        }
        Errno(libc::ENOMEM | libc::EAGAIN) => "the kernel has no memory for it: free some",
        _ => "the kernel's log may say more",
    }
}

/// So many pages, in words.
fn pages(count: u64) -> String {
    if count == 1 { "1 page".to_owned() } else { format!("{count} pages") }
}

/// Why [`Region::carve`](super::Region::carve) gave no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CarveError {
    /// The alignment is zero or no power of two.
    #[error("an alignment of {align} was asked for; it must be a power of two")]
    BadAlignment {
        /// The alignment asked for.
        align: usize,
    },
    /// The region has too few bytes left.
    #[error("{bytes} bytes aligned to {align} were asked for, {remaining} remain; map a larger region")]
    TooFewBytes {
        /// Bytes asked for.
        bytes: usize,
        /// The alignment asked for.
        align: usize,
        /// Bytes left, before alignment.
        remaining: usize,
    },
    /// The size of the block overflows.
    #[error("the size of a block of {count} items of {size} bytes exceeds the address space; ask for fewer")]
    Overflow {
        /// Items asked for.
        count: u32,
        /// Bytes per item.
        size: usize,
    },
}
