//! Pinning the calling thread, and checking that it worked. Only threads made by this crate come here.

use std::io;

use crate::core_set::{CpuId, CpuSet};
use crate::cpu;

/// Why a thread could not be pinned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The kernel refused it.
    #[error("core {core}: the kernel refused to pin a thread there ({source}); check the cpuset of this container")]
    Refused {
        /// The core that was asked for.
        core: CpuId,
        /// errno of sched_setaffinity(2).
        source: io::Error,
    },
    /// The kernel accepted it, yet the thread is elsewhere.
    #[error(
        "core {core}: pinned, but the thread's mask is {mask} and it runs on {}; another tool moves threads",
        running.map_or_else(|| "one that the kernel does not name".to_owned(), |cpu| format!("core {cpu}"))
    )]
    NotThere {
        /// The core that was asked for.
        core: CpuId,
        /// The mask that the kernel reports.
        mask: Box<CpuSet>,
        /// Where the thread runs.
        running: Option<usize>,
    },
}

/// The affinity mask of the calling thread; empty where it cannot be read.
pub(crate) fn allowed() -> CpuSet {
    cpu::affinity().map_or_else(CpuSet::new, |mask| CpuSet::from_mask(&mask))
}

/// Those of the candidates that a thread of this process can be pinned to: a cgroup's cpuset may forbid some, which no
/// file tells reliably. A thread of its own tries, so the caller's affinity stays as it is.
pub(crate) fn permitted(candidates: &CpuSet) -> CpuSet {
    if candidates.is_empty() {
        return CpuSet::new();
    }
    let candidates = *candidates;
    let permitted = move || candidates.iter().filter(|&core| set_affinity(core)).collect();
    let thread = std::thread::Builder::new().name("frwr-cpuset".to_owned()).spawn(permitted);
    thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
}

/// Asks the kernel to pin the calling thread.
fn set_affinity(core: CpuId) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: core.get() })
}

/// Pins the calling thread to one core and verifies mask and current CPU.
pub(crate) fn pin_current_thread(core: CpuId) -> Result<(), PinError> {
    if !set_affinity(core) {
        // core_affinity drops errno, but nothing ran in between that could have changed it.
        return Err(PinError::Refused { core, source: io::Error::last_os_error() });
    }
    let (mask, running) = (allowed(), cpu::current());
    let masked = mask.len() == 1 && mask.contains(core);
    if masked && running == Some(core.get()) {
        Ok(())
    } else {
        Err(PinError::NotThere { core, mask: Box::new(mask), running })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_the_kernel_refuses_are_left_out_and_the_caller_stays_as_it_is() {
        let before = allowed();
        assert!(!before.is_empty());
        let mut candidates = before;
        let nowhere = CpuId::new(crate::CORE_LIMIT - 1).unwrap();
        assert!(candidates.insert(nowhere), "a machine with {} CPUs", crate::CORE_LIMIT);
        assert_eq!(permitted(&candidates), before);
        assert_eq!(permitted(&CpuSet::new()), CpuSet::new());
        assert_eq!(allowed(), before);
    }
}
