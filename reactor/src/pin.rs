//! Pinning the calling thread, and checking that it worked. Only threads made by this crate come here.

use std::io;

use crate::core_set::{CpuId, CpuSet};
use crate::cpu;

/// Why a thread could not be pinned.
#[derive(Debug, thiserror::Error)]
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
        "core {core}: pinned, but the thread's mask is {mask} and it runs on {running:?}; another tool moves threads"
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

/// The affinity mask of the calling thread; empty where it cannot be read (a kernel with more than 1024 CPUs).
pub(crate) fn allowed() -> CpuSet {
    let ids = core_affinity::get_core_ids().unwrap_or_default();
    ids.into_iter().filter_map(|core| CpuId::new(core.id).ok()).collect()
}

/// Pins the calling thread to one core and verifies mask and current CPU.
pub(crate) fn pin_current_thread(core: CpuId) -> Result<(), PinError> {
    if !core_affinity::set_for_current(core_affinity::CoreId { id: core.get() }) {
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
