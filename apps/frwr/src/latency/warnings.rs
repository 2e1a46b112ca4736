//! What ruins a measurement, as far as this machine tells.

use crate::{
    check::{Machine, Shortcoming},
    failures,
    runner::{Depth, MemoryReport},
    watch::Watch,
};
use frwr_engine::Statistics;
use frwr_reactor::{CpuId, Topology};

/// What the machine is like, and what is to be said of the cores before they begin.
pub(super) fn about_cores(
    machine: &Machine,
    cpus: &[Option<CpuId>],
    device: Option<&str>,
    watch: &Watch,
) -> Vec<Shortcoming> {
    let mut all = Vec::new();
    if cpus.iter().any(Option::is_none) {
        all.push(shortcoming(
            "unpinned",
            "the reactors are not pinned: the kernel moves them while they measure".to_owned(),
            "name cores: `--cores 0,1`",
        ));
    }
    let ours: Vec<CpuId> = cpus.iter().copied().flatten().collect();
    all.extend(governor(machine, &ours));
    all.extend(turbo(machine));
    all.extend(isolation(machine, &ours));
    all.extend(node(machine, &ours, device));
    all.extend(shared_cores(&machine.topology, &ours));
    all.extend(watch.at_start(cpus));
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

/// The device's queues are too short for the depth.
pub(super) fn about_depth(depth: Depth) -> Option<Shortcoming> {
    let text = depth.line("--depth", "requests of a connection")?;
    let remedy = format!("lower --depth to {}, or have more --connections", depth.effective);
    Some(Shortcoming { name: "send_queue", text, remedy })
}

/// What did not work on the way to the figures.
pub(super) fn about_failures(engines: &Statistics) -> Vec<Shortcoming> {
    let remedy = "see what `frwr check --device` says of the device, and its messages in the kernel's log";
    failures::lines(engines).into_iter().map(|text| shortcoming("failures", text, remedy)).collect()
}

fn shortcoming(name: &'static str, text: String, remedy: &str) -> Shortcoming {
    Shortcoming { name, text, remedy: remedy.to_owned() }
}

fn list(cpus: impl IntoIterator<Item = CpuId>) -> String {
    cpus.into_iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
}

/// Of our cores; of all where ours may be any of them.
fn governor(machine: &Machine, ours: &[CpuId]) -> Option<Shortcoming> {
    let is_ours = |cpu: &&CpuId| ours.is_empty() || ours.contains(cpu);
    let (mut names, mut cpus) = (Vec::new(), Vec::new());
    for (name, of_name) in machine.clock.governors.iter().filter(|(name, _)| *name != "performance") {
        let found: Vec<CpuId> = of_name.iter().filter(is_ours).copied().collect();
        if !found.is_empty() {
            names.push(name.as_str());
            cpus.extend(found);
        }
    }
    cpus.sort_unstable();
    (!names.is_empty()).then(|| {
        let (which, cpus) = (if cpus.len() == 1 { "core" } else { "cores" }, list(cpus));
        let governors = names.join(", ");
        let text =
            format!("{which} {cpus}: frequency governor {governors}: the frequency changes under the measurement");
        shortcoming("governor", text, &format!("`sudo cpupower -c {cpus} frequency-set -g performance`"))
    })
}

fn turbo(machine: &Machine) -> Option<Shortcoming> {
    (machine.clock.turbo == Some(true)).then(|| {
        let text = "turbo is on: the cores' frequency depends on what the others do".to_owned();
        let remedy = machine.clock.turbo_off.map_or_else(String::new, |command| format!("`{command}`"));
        shortcoming("turbo", text, &remedy)
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
    // Linux keeps a core for everything else, whatever it is told.
    let takes_all = ours.len() > 1 && machine.topology.online().iter().all(|cpu| ours.contains(&cpu));
    let isolable: Vec<CpuId> = ours.iter().copied().skip(usize::from(takes_all)).collect();
    let cpus = list(isolable);
    let boot = format!("boot with `isolcpus={cpus} nohz_full={cpus} rcu_nocbs={cpus}`");
    let remedy = match (takes_all, ours) {
        (true, _) => format!("leave a core to everything else, as `--cores {cpus}` does, and {boot}"),
        (false, [only]) if machine.topology.online().iter().all(|cpu| cpu == *only) => {
            "measure on a machine with a core for everything else".to_owned()
        }
        _ => boot,
    };
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

#[cfg(test)]
mod tests {
    use super::about_memory;
    use crate::{
        check::{Machine, Shortcoming},
        watch::Watch,
    };
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

    fn about_cores(machine: &Machine, cpus: &[Option<CpuId>], device: Option<&str>) -> Vec<Shortcoming> {
        super::about_cores(machine, cpus, device, &Watch::quiet())
    }

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

    /// A machine all of whose cores are isolated does not boot so.
    #[test]
    fn a_core_is_left_to_everything_else() {
        let tree = Tree::new(&[(&format!("{CPU}/online"), "0-1\n")]);
        let remedy = |cpus: &[usize]| {
            let cpus: Vec<_> = cpus.iter().map(|&number| Some(cpu(number))).collect();
            let found = about_cores(&tree.machine(), &cpus, None);
            found.into_iter().find(|found| found.name == "isolation").unwrap().remedy
        };
        assert_eq!(remedy(&[1]), "boot with `isolcpus=1 nohz_full=1 rcu_nocbs=1`");
        let all = remedy(&[0, 1]);
        assert!(
            all.starts_with("leave a core to everything else, as `--cores 1` does, and boot with `isolcpus=1 "),
            "{all}"
        );
        let tree = Tree::new(&[(&format!("{CPU}/online"), "0\n")]);
        let found = about_cores(&tree.machine(), &[Some(cpu(0))], None);
        assert!(found[0].remedy.starts_with("measure on a machine"), "{found:?}");
    }

    /// Of cores that do something else nobody needs to know.
    #[test]
    fn the_governor_of_our_cores_counts() {
        let tree = Tree::new(&[
            (&format!("{CPU}/online"), "0-3\n"),
            (&format!("{CPU}/isolated"), "2-3\n"),
            (&format!("{CPU}/nohz_full"), "2-3\n"),
            (&format!("{CPU}/cpu0/cpufreq/scaling_governor"), "schedutil\n"),
            (&format!("{CPU}/cpu1/cpufreq/scaling_governor"), "powersave\n"),
            (&format!("{CPU}/cpu2/cpufreq/scaling_governor"), "performance\n"),
            (&format!("{CPU}/cpu3/cpufreq/scaling_governor"), "performance\n"),
        ]);
        assert_eq!(names(&tree.machine(), &[2, 3], None), Vec::<&str>::new());
        let found = about_cores(&tree.machine(), &[Some(cpu(1)), Some(cpu(3))], None);
        assert!(found[0].text.starts_with("core 1: frequency governor powersave"), "{found:?}");
        assert_eq!(found[0].remedy, "`sudo cpupower -c 1 frequency-set -g performance`");
    }

    /// What is typed as it stands has to work: one of both files is there.
    #[test]
    fn turbo_is_switched_off_where_it_was_read() {
        for (file, off, remedy) in [
            ("intel_pstate/no_turbo", "0", "`echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo`"),
            ("cpufreq/boost", "1", "`echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost`"),
        ] {
            let tree = Tree::new(&[(&format!("{CPU}/online"), "0-3\n"), (&format!("{CPU}/{file}"), off)]);
            let found = about_cores(&tree.machine(), &[None], None);
            let turbo = found.iter().find(|found| found.name == "turbo").unwrap_or_else(|| panic!("{found:?}"));
            assert_eq!(turbo.remedy, remedy);
        }
    }

    #[test]
    fn memory_of_the_best_kind_needs_no_word() {
        assert!(about_memory(core::iter::empty()).is_none());
    }
}
