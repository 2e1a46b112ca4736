//! What the kernel says of this machine, from sysfs and procfs. What cannot be read is unknown, never an error:
//! containers hide parts of both.

use super::rdma::{RdmaDevice, RdmaSystem, has_library, read_devices, read_system};
use frwr_mempool::limits::{CpuQuota, Limits, MemoryRoom, Resource};
use frwr_reactor::{CpuId, CpuSet, Topology};
use std::{collections::BTreeMap, fs, path::Path};

/// Hugepages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// KiB per page.
    pub size_kib: u64,
    /// Pages that are reserved.
    pub total: u64,
    /// Pages of those that are neither in use nor promised to a mapping.
    pub free: u64,
    /// Pages that the kernel may add when they are wanted (`nr_overcommit_hugepages`).
    pub may_come: u64,
}

impl HugePages {
    /// KiB that a mapping can have of them.
    pub(super) fn available_kib(&self) -> u64 {
        self.free.saturating_add(self.may_come).saturating_mul(self.size_kib)
    }
}

/// What is known of the processor's time stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeStampCounter {
    /// Nothing: /proc is hidden.
    #[default]
    Unknown,
    /// There is none, as on aarch64.
    Absent,
    /// Its rate changes with the state of the core.
    Varying,
    /// It ticks at one rate in every state of every core.
    Invariant,
}

/// What time can be read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The clock source that the kernel uses.
    pub source: Option<String>,
    /// The counter that reactors read.
    pub counter: TimeStampCounter,
    /// Frequency governors in use, and the CPUs of each.
    pub governors: BTreeMap<String, Vec<CpuId>>,
    /// Whether cores may run faster than their nominal frequency; `None` where nobody says.
    pub turbo: Option<bool>,
    /// The command that ends that, where something has said so.
    pub turbo_off: Option<&'static str>,
}

/// What a machine offers.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its cores.
    pub topology: Topology,
    /// NUMA nodes, ascending.
    pub nodes: Vec<u32>,
    /// By size, ascending.
    pub hugepages: Vec<HugePages>,
    /// Soft limit of locked memory in bytes; `u64::MAX` for none, `None` where it cannot be read.
    pub locked_memory: Option<u64>,
    /// This process may lock more than that, as root may (CAP_IPC_LOCK); false where nobody says.
    pub may_lock_more: bool,
    /// Memory that may be populated now; `None` where nobody says.
    pub memory: Option<MemoryRoom>,
    /// The strictest quota of processor time of this process's control groups.
    pub cpu_quota: Option<CpuQuota>,
    /// By name.
    pub rdma_devices: Vec<RdmaDevice>,
    /// What these need besides.
    pub rdma: RdmaSystem,
    /// Its clock.
    pub clock: Clock,
    /// CPUs without the scheduler's tick while one thread runs there (`nohz_full`).
    pub nohz_full: CpuSet,
    /// A hypervisor is below; false where nobody says.
    pub virtual_machine: bool,
    /// NBD servers that are installed. Namespaces on those of other machines need none.
    pub nbd_servers: Vec<&'static str>,
    /// Ceph's libraries that are missing, by Debian's packages: images of a Ceph cluster need them.
    pub missing_ceph: Vec<&'static str>,
}

/// Servers that frwr was tried with.
const NBD_SERVERS: [&str; 2] = ["nbdkit", "qemu-nbd"];
/// What images of a Ceph cluster are reached by, and Debian's package of each.
const CEPH_LIBRARIES: [(&str, &str); 2] = [("librados.so.2", "librados2"), ("librbd.so.1", "librbd1")];

impl Machine {
    /// This machine, as the calling thread may use it.
    #[must_use]
    pub fn this() -> Self {
        Self::read(Path::new("/"), Topology::of_machine())
    }

    /// The machine whose `sys`, `proc`, `dev`, `etc` and libraries lie below `root`.
    #[must_use]
    pub fn read(root: &Path, topology: Topology) -> Self {
        let sys = root.join("sys");
        let (clock, limits) = (read_clock(root, &topology), Limits::read(root));
        Self {
            nodes: read_nodes(&sys.join("devices/system/node"), &topology),
            hugepages: read_hugepages(&sys.join("kernel/mm/hugepages")),
            locked_memory: limits.soft_limit(Resource::LockedMemory),
            may_lock_more: limits.may_lock_more(),
            memory: limits.memory(),
            cpu_quota: limits.cpu_quota(),
            rdma_devices: read_devices(root),
            rdma: read_system(root),
            nohz_full: text(&sys.join("devices/system/cpu/nohz_full"))
                .and_then(|list| CpuSet::parse_kernel_list(&list))
                .unwrap_or_default(),
            nbd_servers: NBD_SERVERS.into_iter().filter(|name| is_installed(root, name)).collect(),
            missing_ceph: CEPH_LIBRARIES
                .into_iter()
                .filter(|(library, _)| !has_library(root, library))
                .map(|(_, package)| package)
                .collect(),
            virtual_machine: text(&root.join("proc/cpuinfo"))
                .is_some_and(|info| has_flag(&info, "hypervisor") == Some(true)),
            clock,
            topology,
        }
    }

    /// Whether two hardware threads share a physical core anywhere; `None` where nobody says which do.
    #[must_use]
    pub fn has_smt(&self) -> Option<bool> {
        let cores = self.topology.cores();
        if cores.iter().any(|core| core.siblings.len() > 1) {
            return Some(true);
        }
        cores.iter().any(|core| core.package.is_some()).then_some(false)
    }
}

/// A program in one of the folders where packages put theirs.
fn is_installed(root: &Path, name: &str) -> bool {
    ["usr/bin", "usr/sbin", "usr/local/bin"].iter().any(|folder| root.join(folder).join(name).is_file())
}

pub(crate) fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

pub(super) fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// Names of a directory's entries, sorted; none where it cannot be read.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

fn read_nodes(directory: &Path, topology: &Topology) -> Vec<u32> {
    let listed = names(directory).into_iter().filter_map(|name| name.strip_prefix("node")?.parse().ok());
    let mut nodes: Vec<u32> = listed.chain(topology.cores().iter().filter_map(|core| core.node)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn read_hugepages(directory: &Path) -> Vec<HugePages> {
    let read = |name: &String| {
        let size_kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let pool = directory.join(name);
        let pages = |file: &str| number(&pool.join(file));
        let (total, unused) = (pages("nr_hugepages")?, pages("free_hugepages")?);
        let free = unused.saturating_sub(pages("resv_hugepages").unwrap_or(0));
        let added = pages("nr_overcommit_hugepages").zip(pages("surplus_hugepages"));
        let may_come = added.map_or(0, |(allowed, there)| allowed.saturating_sub(there));
        Some(HugePages { size_kib, total, free, may_come })
    };
    let mut pools: Vec<HugePages> = names(directory).iter().filter_map(read).collect();
    pools.sort_unstable_by_key(|pool| pool.size_kib);
    pools
}

fn read_clock(root: &Path, topology: &Topology) -> Clock {
    let system = root.join("sys/devices/system");
    let mut governors: BTreeMap<String, Vec<CpuId>> = BTreeMap::new();
    for core in topology.cores() {
        if let Some(governor) = text(&system.join(format!("cpu/cpu{}/cpufreq/scaling_governor", core.id))) {
            governors.entry(governor).or_default().push(core.id);
        }
    }
    let (turbo, turbo_off) = read_turbo(&system.join("cpu")).unzip();
    Clock {
        source: text(&system.join("clocksource/clocksource0/current_clocksource")),
        counter: text(&root.join("proc/cpuinfo")).map_or(TimeStampCounter::Unknown, |info| counter(&info)),
        governors,
        turbo,
        turbo_off,
    }
}

/// Intel's driver says whether there is none, others whether there is some; with the command that switches it off.
fn read_turbo(cpus: &Path) -> Option<(bool, &'static str)> {
    let none = number(&cpus.join("intel_pstate/no_turbo")).map(|none| none == 0);
    let intel = none.map(|turbo| (turbo, "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"));
    let boost = || number(&cpus.join("cpufreq/boost")).map(|boost| boost != 0);
    intel.or_else(|| boost().map(|turbo| (turbo, "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost")))
}

/// Whether the first `flags` line of x86 has a flag; other architectures have no such line.
fn has_flag(info: &str, flag: &str) -> Option<bool> {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags"))?;
    Some(flags.split_whitespace().any(|word| word == flag))
}

fn counter(info: &str) -> TimeStampCounter {
    let has = |flag| has_flag(info, flag) == Some(true);
    match (has("tsc"), has("constant_tsc") && has("nonstop_tsc")) {
        (false, _) => TimeStampCounter::Absent,
        (true, false) => TimeStampCounter::Varying,
        (true, true) => TimeStampCounter::Invariant,
    }
}
