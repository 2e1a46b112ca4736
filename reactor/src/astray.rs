//! Reactors whose threads no longer run where they were pinned: a write to a cpuset moves threads, whatever they were pinned to.

use crate::core_set::{CpuId, CpuSet};
use crate::cpu::{ThreadId, affinity, affinity_of, current, pin_thread};
use crate::inbox::CoreIndex;
use std::fs;

/// A reactor that may run elsewhere than on its CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Astray {
    /// Which reactor.
    pub core: CoreIndex,
    /// The CPU that it was pinned to.
    pub pinned: CpuId,
    /// Where it might run when that was seen.
    pub allowed: CpuSet,
    /// Where it ran then, if the kernel said so.
    pub running: Option<CpuId>,
    /// It is on its CPU again: the kernel took the pinning this time.
    pub pinned_again: bool,
}

/// Looks where a thread may run, and pins it again where that is not its CPU alone. Of any thread, at no cost to the one that
/// is looked at unless it is moved.
pub(crate) fn look(core: CoreIndex, thread: ThreadId, pinned: CpuId) -> Option<Astray> {
    // A thread that has ended has no mask.
    let allowed = CpuSet::from_mask(&affinity_of(thread)?);
    if is_alone(&allowed, pinned) {
        return None;
    }
    let running = running_on(thread);
    let pinned_again = pin_thread(thread, pinned.get());
    Some(Astray { core, pinned, allowed, running, pinned_again })
}

/// The CPU of the calling thread, which was pinned to one: another where it was moved meanwhile.
pub(crate) fn whereabouts(pinned: CpuId) -> CpuId {
    let is_there = affinity().is_none_or(|mask| is_alone(&CpuSet::from_mask(&mask), pinned));
    let elsewhere = || current().and_then(|cpu| CpuId::new(cpu).ok());
    if is_there { pinned } else { elsewhere().unwrap_or(pinned) }
}

fn is_alone(mask: &CpuSet, cpu: CpuId) -> bool {
    mask.len() == 1 && mask.contains(cpu)
}

/// The CPU that a thread ran on last: field 39 of its stat file (proc_pid_stat(5)).
fn running_on(thread: ThreadId) -> Option<CpuId> {
    let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.get())).ok()?;
    cpu_in(&stat)
}

fn cpu_in(stat: &str) -> Option<CpuId> {
    /// Counted from the third field, the first one behind the name, which may have any character in it.
    const PROCESSOR: usize = 39 - 3;
    let (_, fields) = stat.rsplit_once(')')?;
    CpuId::new(fields.split_whitespace().nth(PROCESSOR)?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_found_behind_any_name() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("77 (frwr) re) actor-0) {}\n", fields.join(" "));
        assert_eq!(cpu_in(&stat), CpuId::new(39).ok());
        assert_eq!((cpu_in("77 (x) R 1"), cpu_in("")), (None, None));
    }

    /// What a write to the cpuset does to a thread, done to it by another thread.
    #[test]
    fn a_thread_that_was_moved_is_told_and_pinned_again() {
        let allowed = CpuSet::from_mask(&affinity().unwrap());
        let all: Vec<CpuId> = allowed.iter().collect();
        let &[home, ref others @ ..] = all.as_slice() else { panic!("no CPU is allowed") };
        std::thread::scope(|scope| {
            let moved = scope.spawn(move || {
                let thread = ThreadId::current();
                assert!(pin_thread(thread, home.get()));
                assert_eq!((look(CoreIndex(3), thread, home), whereabouts(home)), (None, home));
                let Some(&other) = others.first() else {
                    return eprintln!("SKIPPED: one CPU is allowed, nobody can be moved");
                };
                assert!(pin_thread(thread, other.get()));
                assert_eq!(whereabouts(home), other);
                let astray = look(CoreIndex(3), thread, home).unwrap();
                assert_eq!((astray.core, astray.pinned, astray.running), (CoreIndex(3), home, Some(other)));
                assert!(astray.pinned_again && astray.allowed.contains(other) && astray.allowed.len() == 1);
                assert_eq!((look(CoreIndex(3), thread, home), whereabouts(home)), (None, home));
                // Where it may not go back it stays where it is.
                let nowhere = CpuId::new(crate::CORE_LIMIT - 1).unwrap();
                assert!(!look(CoreIndex(3), thread, nowhere).unwrap().pinned_again);
            });
            moved.join().unwrap();
        });
    }
}
