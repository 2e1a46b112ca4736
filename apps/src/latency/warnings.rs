//! What ruins a measurement, as far as this machine tells.

use crate::{
    check::{BusyTimes, Machine, Shortcoming, pinned_reactors},
    runner::MemoryReport,
};
use frwr_reactor::{CpuId, Topology};
use std::path::Path;

/// A sibling that is busy for more than this share of the time has cost something.
const BUSY_SIBLING: f64 = 0.05;

/// What was there before the run.
#[derive(Clone, Debug)]
pub(super) struct Before(BusyTimes);

impl Before {
    pub(super) fn look(_: &Machine) -> Self {
        Self(BusyTimes::read(Path::new("/")))
    }

    /// Hardware threads beside ours that worked meanwhile.
    pub(super) fn siblings(&self, machine: &Machine, cpus: &[Option<CpuId>]) -> Vec<Shortcoming> {
        busy_siblings(&machine.topology, cpus, &self.0, &BusyTimes::read(Path::new("/")))
    }
}

/// What the machine is like, and who else is there.
pub(super) fn about_cores(machine: &Machine, cpus: &[Option<CpuId>], device: Option<&str>) -> Vec<Shortcoming> {
    let mut all = Vec::new();
    if cpus.iter().any(Option::is_none) {
        all.push(shortcoming(
            "unpinned",
            "the reactors are not pinned: the kernel moves them while they measure".to_owned(),
            "name cores: `--cores 0,1`",
        ));
    }
    let ours: Vec<CpuId> = cpus.iter().copied().flatten().collect();
    all.extend(governor(machine));
    all.extend(turbo(machine));
    all.extend(isolation(machine, &ours));
    all.extend(node(machine, &ours, device));
    all.extend(shared_cores(&machine.topology, &ours));
    all.extend(neighbours(&ours, &pinned_reactors(Path::new("/"))));
    if machine.virtual_machine {
        all.push(shortcoming(
            "virtual_machine",
            "this is a virtual machine: its host takes the processor away when it likes, and no figure shows when"
                .to_owned(),
            "measure on the host, or take ratios of runs that alternate",
        ));
    }
    all
}

/// What keeps the memory from being the best kind.
pub(super) fn about_memory<'a>(memory: impl Iterator<Item = &'a MemoryReport>) -> Option<Shortcoming> {
    let fell_short = memory.filter_map(|memory| memory.fell_short.as_ref()).next()?;
    Some(shortcoming("hugepages", fell_short.clone(), "smaller pages are more entries in the device's tables"))
}

fn shortcoming(name: &'static str, text: String, remedy: &str) -> Shortcoming {
    Shortcoming { name, text, remedy: remedy.to_owned() }
}

fn list(cpus: impl IntoIterator<Item = CpuId>) -> String {
    cpus.into_iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
}

fn governor(machine: &Machine) -> Option<Shortcoming> {
    let others: Vec<_> = machine.clock.governors.iter().filter(|name| *name != "performance").cloned().collect();
    (!others.is_empty()).then(|| {
        let text =
            format!("frequency governor {}: the cores' frequency changes under the measurement", others.join(", "));
        shortcoming("governor", text, "`sudo cpupower frequency-set -g performance`")
    })
}

fn turbo(machine: &Machine) -> Option<Shortcoming> {
    (machine.clock.turbo == Some(true)).then(|| {
        let text = "turbo is on: the cores' frequency depends on what the others do".to_owned();
        let remedy = "`echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo`, or 0 into cpufreq/boost";
        shortcoming("turbo", text, remedy)
    })
}

fn isolation(machine: &Machine, ours: &[CpuId]) -> Option<Shortcoming> {
    let outside =
        |set: &frwr_reactor::CpuSet| ours.iter().copied().filter(|cpu| !set.contains(*cpu)).collect::<Vec<_>>();
    let (isolated, quiet) = (outside(machine.topology.isolated()), outside(&machine.nohz_full));
    let text = match (isolated.is_empty(), quiet.is_empty()) {
        (true, true) => return None,
        (false, _) => format!("cores {} are not isolated: other work interrupts them", list(isolated)),
        (true, false) => format!("cores {} have the scheduler's tick: it interrupts them", list(quiet)),
    };
    let cpus = list(ours.iter().copied());
    let remedy = format!("boot with `isolcpus={cpus} nohz_full={cpus} rcu_nocbs={cpus}`");
    Some(Shortcoming { name: "isolation", text, remedy })
}

fn node(machine: &Machine, ours: &[CpuId], device: Option<&str>) -> Option<Shortcoming> {
    let name = device?;
    let wanted = machine.rdma_devices.iter().find(|device| device.name == name)?.node?;
    let far: Vec<CpuId> =
        ours.iter().copied().filter(|&cpu| machine.topology.node_of(cpu).is_some_and(|node| node != wanted)).collect();
    (!far.is_empty()).then(|| {
        let text = format!("cores {} are not on NUMA node {wanted}, where {name} is", list(far));
        let near = machine.topology.cores().iter().filter(|core| core.node == Some(wanted)).map(|core| core.id);
        Shortcoming { name: "numa_node", text, remedy: format!("`--cores` takes cores of that node: {}", list(near)) }
    })
}

/// Two of ours on one physical core.
fn shared_cores(topology: &Topology, ours: &[CpuId]) -> Option<Shortcoming> {
    let pair = ours.iter().enumerate().find_map(|(at, &one)| {
        let other = ours.iter().skip(at + 1).find(|&&other| topology.are_siblings(one, other))?;
        Some((one, *other))
    })?;
    let text =
        format!("cores {} and {} are hardware threads of one physical core: each slows the other", pair.0, pair.1);
    Some(shortcoming("smt_in_use", text, "`--cores` takes one of each core; `lscpu -e` lists them"))
}

/// Reactors of other processes on our cores.
fn neighbours(ours: &[CpuId], others: &[(u32, CpuId)]) -> Vec<Shortcoming> {
    let on_ours = others.iter().filter(|(_, cpu)| ours.contains(cpu));
    let say = |(process, cpu): &(u32, CpuId)| {
        let text = format!("process {process} has a reactor on core {cpu} too: they take turns, milliseconds each");
        shortcoming("second_instance", text, "give each instance cores of its own")
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
    use super::{about_cores, about_memory, busy_siblings, neighbours};
    use crate::check::{BusyTimes, Machine};
    use frwr_reactor::{CpuId, CpuSet, Topology};
    use std::fs;

    /// A machine made of files, which are deleted at the end.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }

        fn machine(&self) -> Machine {
            let allowed = CpuSet::parse_kernel_list("0-3").unwrap();
            Machine::read(self.0.path(), Topology::read(&self.0.path().join("sys"), allowed))
        }
    }

    const CPU: &str = "sys/devices/system/cpu";

    fn cpu(number: usize) -> CpuId {
        CpuId::new(number).unwrap()
    }

    fn names(machine: &Machine, cpus: &[usize], device: Option<&str>) -> Vec<&'static str> {
        let cpus: Vec<_> = cpus.iter().map(|&number| Some(cpu(number))).collect();
        about_cores(machine, &cpus, device).iter().map(|found| found.name).collect()
    }

    #[test]
    fn a_quiet_machine_has_no_warning() {
        let tree = Tree::new(&[
            (&format!("{CPU}/online"), "0-3\n"),
            (&format!("{CPU}/isolated"), "2-3\n"),
            (&format!("{CPU}/nohz_full"), "2-3\n"),
            (&format!("{CPU}/cpu2/cpufreq/scaling_governor"), "performance\n"),
            (&format!("{CPU}/intel_pstate/no_turbo"), "1\n"),
            ("proc/cpuinfo", "flags : fpu tsc\n"),
        ]);
        assert_eq!(names(&tree.machine(), &[2, 3], None), Vec::<&str>::new());
        assert_eq!(names(&tree.machine(), &[1, 3], None), ["isolation"]);
    }

    #[test]
    fn everything_that_falls_short_is_named() {
        let device = "sys/class/infiniband/mlx5_0";
        let tree = Tree::new(&[
            (&format!("{CPU}/online"), "0-3\n"),
            (&format!("{CPU}/cpu0/topology/thread_siblings_list"), "0-1\n"),
            (&format!("{CPU}/cpu1/topology/thread_siblings_list"), "0-1\n"),
            (&format!("{CPU}/cpu0/cpufreq/scaling_governor"), "powersave\n"),
            (&format!("{CPU}/cpufreq/boost"), "1\n"),
            ("sys/devices/system/node/node0/cpulist", "0-1\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3\n"),
            (&format!("{device}/device/numa_node"), "1\n"),
            (&format!("{device}/ports/1/state"), "4: ACTIVE\n"),
            ("proc/cpuinfo", "flags : fpu tsc hypervisor\n"),
        ]);
        let machine = tree.machine();
        let found = names(&machine, &[0, 1], Some("mlx5_0"));
        assert_eq!(found, ["governor", "turbo", "isolation", "numa_node", "smt_in_use", "virtual_machine"]);
        assert!(!names(&machine, &[2, 3], Some("mlx5_0")).contains(&"numa_node"));
        let unpinned = about_cores(&machine, &[None], None);
        assert_eq!(unpinned[0].name, "unpinned");
        for warning in about_cores(&machine, &[Some(cpu(0))], Some("mlx5_0")) {
            assert!(!warning.text.contains('\n') && !warning.remedy.is_empty(), "{warning:?}");
        }
    }

    #[test]
    fn who_else_is_there_is_told() {
        assert_eq!(neighbours(&[cpu(0), cpu(1)], &[(77, cpu(2))]).len(), 0);
        let found = neighbours(&[cpu(0), cpu(1)], &[(77, cpu(1))]);
        assert!(found[0].text.contains("process 77") && found[0].text.contains("core 1"), "{found:?}");
    }

    #[test]
    fn a_sibling_that_works_is_told_with_its_share() {
        let tree = Tree::new(&[
            (&format!("{CPU}/online"), "0-1\n"),
            (&format!("{CPU}/cpu0/topology/thread_siblings_list"), "0-1\n"),
        ]);
        let before = BusyTimes::parse("cpu  0 0 0 0\ncpu0 10 0 0 90 0\ncpu1 0 0 0 100 0\n");
        let after = BusyTimes::parse("cpu  0 0 0 0\ncpu0 110 0 0 90 0\ncpu1 40 0 0 160 0\n");
        let topology = tree.machine().topology;
        let found = busy_siblings(&topology, &[Some(cpu(0))], &before, &after);
        assert!(found.len() == 1 && found[0].text.contains("core 1") && found[0].text.contains("40 %"), "{found:?}");
        assert!(busy_siblings(&topology, &[Some(cpu(0))], &before, &before).is_empty());
        assert!(about_memory(core::iter::empty()).is_none());
    }
}
