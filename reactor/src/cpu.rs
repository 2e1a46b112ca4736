//! The only unsafe code of this crate: questions to the processor and the kernel, and that it maps pages.
//! What rustix asks soundly it asks; decision 140 says why the rest is asked here.
#![allow(unsafe_code, reason = "the one room of this crate where docs/architecture.md allows it")]

use core::ops::Range;

use rustix::mm::{Advice, madvise};
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The CPU that runs the calling thread now, or `None` where the kernel does not say.
pub(crate) fn current() -> Option<usize> {
    // SAFETY: sched_getcpu takes no argument and touches no memory of ours; a failure is a negative number.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).ok()
}

/// CPUs that an affinity mask is read for: the most that Linux can be built for (`NR_CPUS` of x86-64). The kernel refuses
/// a buffer that is too small for the CPUs it counts with, as `cpu_set_t` with its 1024 is on the largest machines.
const MASK_CPUS: usize = 8192;
const MASK_WORDS: usize = MASK_CPUS / u64::BITS as usize;

/// A thread, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadId(Pid);

impl ThreadId {
    /// The calling thread, for others.
    pub(crate) fn current() -> Self {
        Self(gettid())
    }

    /// The number.
    pub(crate) fn get(self) -> i32 {
        self.0.as_raw_pid()
    }
}

/// The affinity mask of the calling thread, bit by bit from CPU 0; `None` where the kernel does not say.
pub(crate) fn affinity() -> Option<[u64; MASK_WORDS]> {
    mask_of(None)
}

/// The same of any thread of this process.
pub(crate) fn affinity_of(thread: ThreadId) -> Option<[u64; MASK_WORDS]> {
    mask_of(Some(thread.0))
}

/// Of the calling thread where none is named.
fn mask_of(thread: Option<Pid>) -> Option<[u64; MASK_WORDS]> {
    let mut mask = [0_u64; MASK_WORDS];
    // SAFETY: the kernel writes at most the size that it is told; its words are as long as ours on 64-bit machines.
    let result = unsafe { libc::sched_getaffinity(Pid::as_raw(thread), size_of_val(&mask), mask.as_mut_ptr().cast()) };
    (result == 0).then_some(mask)
}

/// Pins a thread of this process to one CPU; false where the kernel refuses it.
pub(crate) fn pin_thread(thread: ThreadId, cpu: usize) -> bool {
    const _: () =
        assert!(crate::CORE_LIMIT <= CpuSet::MAX_CPU, "the mask has a bit for every core that a reactor may have");
    let mut mask = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return false;
    }
    mask.set(cpu);
    sched_setaffinity(Some(thread.0), &mask).is_ok()
}

/// What the kernel counts of a thread, or of its process, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadUsage {
    /// Those that memory answered and those that waited for a disk.
    pub(crate) page_faults: u64,
    /// How often the kernel gave its processor to another one.
    pub(crate) involuntary: u64,
    /// How often it waited for something in the kernel.
    pub(crate) voluntary: u64,
}

impl ThreadUsage {
    /// What was counted since an earlier reading.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            page_faults: self.page_faults.saturating_sub(before.page_faults),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
        }
    }
}

/// Of the calling thread, in one system call; `None` where the kernel does not say.
pub(crate) fn thread_usage() -> Option<ThreadUsage> {
    usage(libc::RUSAGE_THREAD)
}

/// Page faults so far of the calling thread, or of the whole process; `None` where the kernel does not say.
pub(crate) fn page_faults(whole_process: bool) -> Option<u64> {
    let who = if whole_process { libc::RUSAGE_SELF } else { libc::RUSAGE_THREAD };
    Some(usage(who)?.page_faults)
}

fn usage(who: i32) -> Option<ThreadUsage> {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage writes one rusage at most; all zeroes are a valid one, since it has numbers only.
    let usage = unsafe { (libc::getrusage(who, usage.as_mut_ptr()) == 0).then(|| usage.assume_init()) }?;
    let count = |count| u64::try_from(count).unwrap_or(0);
    Some(ThreadUsage {
        page_faults: count(usage.ru_minflt) + count(usage.ru_majflt),
        involuntary: count(usage.ru_nivcsw),
        voluntary: count(usage.ru_nvcsw),
    })
}

/// Has pages mapped that would otherwise be mapped when they are read first; false where the kernel does not.
pub(crate) fn populate(pages: Range<usize>) -> bool {
    let begin = core::ptr::with_exposed_provenance_mut(pages.start);
    // SAFETY: MADV_POPULATE_READ changes no byte and no right; what is not mapped it refuses.
    unsafe { madvise(begin, pages.len(), Advice::LinuxPopulateRead) }.is_ok()
}

/// clock_gettime(CLOCK_MONOTONIC) in nanoseconds.
#[inline]
pub(crate) fn monotonic() -> u64 {
    // Linux has this clock always, so that it does not fail.
    let time = clock_gettime(ClockId::Monotonic);
    // Neither is negative, and 64 bits of nanoseconds are 584 years.
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Whether the time stamp counter ticks at one rate in every power state on all cores.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_invariant_ticks() -> bool {
    use core::arch::x86_64::__cpuid;
    /// Leaf that names the highest extended leaf.
    const HIGHEST_EXTENDED: u32 = 0x8000_0000;
    /// Advanced power management information; bit 8 of EDX is the invariant counter.
    const POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    #[allow(unused_unsafe, reason = "__cpuid became a safe function after the oldest supported compiler")]
    // SAFETY: every x86_64 processor has CPUID, and the leaf is read only if the processor has it.
    unsafe {
        __cpuid(HIGHEST_EXTENDED).eax >= POWER_MANAGEMENT && __cpuid(POWER_MANAGEMENT).edx & INVARIANT != 0
    }
}

/// Reads the time stamp counter. Not ordered against other instructions: a poll loop does not need that.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: RDTSC exists on every x86_64 processor and has no memory operand.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// No counter is used on this architecture: the clock falls back to clock_gettime.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn has_invariant_ticks() -> bool {
    false
}

/// Never called where [`has_invariant_ticks`] is false.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn ticks() -> u64 {
    0
}
