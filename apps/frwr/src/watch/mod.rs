//! What happens to a program's cores while it runs, as far as the kernel tells: who else is on them, what a quota takes of them, and
//! who moves threads away from them. It costs the cores nothing: files below `/proc` and `/sys` are read, by the main thread.

mod lookout;
mod neighbours;
mod patrol;

pub(crate) use lookout::Lookout;
pub use neighbours::{BusyTimes, pinned_reactors};
pub(crate) use patrol::Patrol;

use crate::check::{Shortcoming, quota_below};
use frwr_mempool::limits::{Limits, Throttling};
use frwr_reactor::{CpuId, CpuSet, Topology};
use std::path::Path;

/// A sibling that is busy for more than this share of the time has cost something.
const BUSY_SIBLING: f64 = 0.05;

/// This machine with the CPUs that carry reactors of other processes known to be occupied: who names no cores gets others.
#[must_use]
pub fn with_neighbours(topology: Topology) -> Topology {
    let occupied: CpuSet = pinned_reactors(Path::new("/")).into_iter().map(|(_, cpu)| cpu).collect();
    topology.with_occupied(&occupied)
}

/// What was there before the cores of this process began.
#[derive(Clone, Debug)]
pub struct Watch {
    limits: Limits,
    throttling: Throttling,
    busy: BusyTimes,
    /// Other processes' reactors.
    reactors: Vec<(u32, CpuId)>,
}

impl Watch {
    /// Looks around; to be called before reactors are launched.
    #[must_use]
    pub fn begin() -> Self {
        let (root, limits) = (Path::new("/"), Limits::of_process());
        let throttling = limits.throttling();
        Self { limits, throttling, busy: BusyTimes::read(root), reactors: pinned_reactors(root) }
    }

    /// On a machine where nothing was to be seen, for tests.
    #[cfg(test)]
    pub(crate) fn quiet() -> Self {
        let limits = Limits::read(Path::new("/nonexistent"));
        Self { limits, throttling: Throttling::default(), busy: BusyTimes::default(), reactors: Vec::new() }
    }

    /// What there is to say of these cores before anything has run on them: reactors of others, and a quota that stops ours.
    #[must_use]
    pub fn at_start(&self, cpus: &[Option<CpuId>]) -> Vec<Shortcoming> {
        let quota = self.limits.cpu_quota().and_then(|quota| quota_below(&quota, cpus.len()));
        neighbours_of(cpus, &self.reactors).into_iter().chain(quota).collect()
    }

    /// What happened to them meanwhile: hardware threads beside ours that worked, reactors of others that came, and a quota that was used up.
    #[must_use]
    pub fn meanwhile(&self, topology: &Topology, cpus: &[Option<CpuId>]) -> Vec<Shortcoming> {
        let root = Path::new("/");
        let mut all = busy_siblings(topology, cpus, &self.busy, &BusyTimes::read(root));
        all.extend(newcomers(cpus, &self.reactors, &pinned_reactors(root)));
        all.extend(throttled(self.limits.throttling().since(&self.throttling)));
        all
    }
}

fn shortcoming(name: &'static str, text: String, remedy: &str) -> Shortcoming {
    Shortcoming { name, text, remedy: remedy.to_owned() }
}

/// What a quota has taken.
fn throttled(Throttling { periods, throttled, time }: Throttling) -> Option<Shortcoming> {
    (throttled > 0).then(|| {
        let text = format!(
            "the cgroup's CPU quota was used up in {throttled} of {periods} periods, and its threads stood still for {:.2} s together",
            time.as_secs_f64()
        );
        shortcoming("throttled", text, "raise the quota, or leave it out and pin by a cpuset; `frwr check` shows it")
    })
}

/// Reactors of other processes on our cores that were not there before.
fn newcomers(cpus: &[Option<CpuId>], before: &[(u32, CpuId)], after: &[(u32, CpuId)]) -> Vec<Shortcoming> {
    let came: Vec<_> = after.iter().copied().filter(|reactor| !before.contains(reactor)).collect();
    neighbours_of(cpus, &came)
}

/// Reactors of other processes on our cores.
fn neighbours_of(cpus: &[Option<CpuId>], others: &[(u32, CpuId)]) -> Vec<Shortcoming> {
    let on_ours = others.iter().filter(|(_, cpu)| cpus.contains(&Some(*cpu)));
    let say = |(process, cpu): &(u32, CpuId)| {
        let text = format!("process {process} has a reactor on core {cpu} too: they take turns, milliseconds each");
        shortcoming("second_instance", text, "give each instance cores of its own (`--cores`)")
    };
    on_ours.map(say).collect()
}

fn busy_siblings(
    topology: &Topology,
    cpus: &[Option<CpuId>],
    before: &BusyTimes,
    after: &BusyTimes,
) -> Vec<Shortcoming> {
    let ours: Vec<CpuId> = cpus.iter().copied().flatten().collect();
    let mut all = Vec::new();
    for &cpu in &ours {
        let Some(core) = topology.core(cpu) else { continue };
        for sibling in core.siblings.iter().filter(|sibling| !ours.contains(sibling)) {
            let busy = after.busy_share_since(before, sibling);
            if let Some(busy) = busy.filter(|busy| *busy > BUSY_SIBLING) {
                let text = format!(
                    "core {sibling}, the other hardware thread of core {cpu}, was busy for {:.0} % of the run",
                    100.0 * busy
                );
                all.push(shortcoming("smt_busy", text, "keep it free (isolcpus, `taskset`), or boot with `nosmt`"));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{BusyTimes, Throttling, busy_siblings, neighbours_of, newcomers, throttled};
    use core::time::Duration;
    use frwr_reactor::{CpuId, CpuSet, Topology};
    use std::fs;

    fn cpu(number: usize) -> CpuId {
        CpuId::new(number).unwrap()
    }

    #[test]
    fn who_comes_later_is_told_as_well_and_once() {
        let ours = [Some(cpu(0)), Some(cpu(1)), None];
        let (early, late) = ((77, cpu(0)), (78, cpu(1)));
        assert_eq!(newcomers(&ours, &[early], &[early]), []);
        let found = newcomers(&ours, &[early], &[early, late, (79, cpu(3))]);
        assert!(found.len() == 1 && found[0].text.contains("process 78 has a reactor on core 1 too"), "{found:?}");
    }

    #[test]
    fn who_else_is_there_is_told() {
        let ours = [Some(cpu(0)), None, Some(cpu(1))];
        assert_eq!(neighbours_of(&ours, &[(77, cpu(2))]).len(), 0);
        let found = neighbours_of(&ours, &[(77, cpu(1))]);
        assert!(found[0].text.contains("process 77") && found[0].text.contains("core 1"), "{found:?}");
    }

    #[test]
    fn a_sibling_that_works_is_told_with_its_share() {
        let tree = tempfile::tempdir().unwrap();
        for name in ["cpu0", "cpu1"] {
            let folder = tree.path().join("devices/system/cpu").join(name).join("topology");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("thread_siblings_list"), "0-1\n").unwrap();
        }
        let topology = Topology::read(tree.path(), CpuSet::parse_kernel_list("0-1").unwrap());
        let before = BusyTimes::parse("cpu  0 0 0 0\ncpu0 10 0 0 90 0\ncpu1 0 0 0 100 0\n");
        let after = BusyTimes::parse("cpu  0 0 0 0\ncpu0 110 0 0 90 0\ncpu1 40 0 0 160 0\n");
        let found = busy_siblings(&topology, &[Some(cpu(0))], &before, &after);
        assert!(found.len() == 1 && found[0].text.contains("core 1") && found[0].text.contains("40 %"), "{found:?}");
        assert!(busy_siblings(&topology, &[Some(cpu(0))], &before, &before).is_empty());
    }

    #[test]
    fn a_quota_that_was_used_up_is_told_with_its_periods() {
        assert_eq!(throttled(Throttling { periods: 9, ..Throttling::default() }), None);
        let found = throttled(Throttling { periods: 76, throttled: 70, time: Duration::from_millis(5602) }).unwrap();
        assert!(found.text.contains("70 of 76 periods") && found.text.contains("5.60 s"), "{found:?}");
    }
}
