//! What falls short on a machine, and what helps.

use super::{Machine, TimeStampCounter, rdma_advice};
use frwr_mempool::limits::CpuQuota;

/// Cores for a target and a host that do not share one.
const WANTED_CORES: usize = 2;
/// KiB of a hugepage that a region takes first.
const HUGEPAGE_KIB: u64 = 2048;
/// Hugepages that the program takes with its defaults, and as many to spare.
const WANTED_HUGEPAGES: u64 = 64;
/// Bytes that a device must be able to pin: the hugepages above.
const WANTED_LOCKED_BYTES: u64 = WANTED_HUGEPAGES * HUGEPAGE_KIB * 1024;

/// Bytes of memory that the program takes with its defaults where there are no hugepages, and as many to spare.
const WANTED_MEMORY_BYTES: u64 = 2 * WANTED_LOCKED_BYTES;

/// Something that falls short. Nothing of it keeps frwr from running on its software NIC.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Shortcoming {
    /// Stable name for JSON.
    pub name: &'static str,
    /// What is there and what is wanted.
    pub text: String,
    /// What helps.
    pub remedy: String,
}

/// Looks at one thing.
type Check = fn(&Machine) -> Option<Shortcoming>;

/// All that falls short, most important first.
#[must_use]
pub fn shortcomings(machine: &Machine) -> Vec<Shortcoming> {
    let before: [Check; 6] = [cores, cpu_quota, memory, hugepages, isolation, locked_memory];
    let after: [Check; 3] = [clock, governor, smt];
    let of = |checks: &[Check]| checks.iter().filter_map(|check| check(machine)).collect::<Vec<_>>();
    [of(&before), rdma_advice::shortcomings(machine), of(&after)].concat()
}

fn cores(machine: &Machine) -> Option<Shortcoming> {
    let allowed = machine.topology.allowed().len();
    (allowed < WANTED_CORES).then(|| Shortcoming {
        name: "cores",
        text: format!("{allowed} core allowed, {WANTED_CORES} wanted: one reactor will carry host and target"),
        remedy: "widen the affinity (`taskset -c`, `docker --cpuset-cpus`, the cgroup's cpuset.cpus)".to_owned(),
    })
}

fn cpu_quota(machine: &Machine) -> Option<Shortcoming> {
    quota_below(machine.cpu_quota.as_ref()?, WANTED_CORES)
}

/// A quota that stops so many reactors, each of which is busy all the time.
pub(crate) fn quota_below(quota: &CpuQuota, reactors: usize) -> Option<Shortcoming> {
    let (cores, period) = (quota.cores(), quota.period);
    (cores < reactors as f64).then(|| Shortcoming {
        name: "cpu_quota",
        text: format!(
            "cgroup {} may use {cores:.2} cores, and {reactors} reactor{} never rest{}: all stand still at the end of every {period:?}",
            quota.folder.display(),
            if reactors == 1 { "" } else { "s" },
            if reactors == 1 { "s" } else { "" },
        ),
        remedy: "raise the quota (cpu.max, cpu.cfs_quota_us, `docker --cpus`, a pod's limits.cpu), or leave it out and pin by a cpuset"
            .to_owned(),
    })
}

fn memory(machine: &Machine) -> Option<Shortcoming> {
    let room = machine.memory.as_ref().filter(|room| room.bytes < WANTED_MEMORY_BYTES)?;
    Some(Shortcoming {
        name: "memory",
        text: format!("{room}, {} MiB wanted: what asks for more is refused", WANTED_MEMORY_BYTES >> 20),
        remedy: "end what else uses memory, or raise the limit (memory.max, memory.limit_in_bytes, `docker --memory`)"
            .to_owned(),
    })
}

fn hugepages(machine: &Machine) -> Option<Shortcoming> {
    let wanted_kib = WANTED_HUGEPAGES * HUGEPAGE_KIB;
    let available_kib = machine.hugepages.iter().fold(0, |sum: u64, pool| sum.saturating_add(pool.available_kib()));
    let missing = wanted_kib.checked_sub(available_kib).filter(|missing| *missing > 0)?.div_ceil(HUGEPAGE_KIB);
    let Some(pool) = machine.hugepages.iter().find(|pool| pool.size_kib == HUGEPAGE_KIB) else {
        return Some(Shortcoming {
            name: "hugepages",
            text: "no hugepages of 2 MiB are to be seen: regions will use smaller pages".to_owned(),
            remedy: "let the kernel have them (CONFIG_HUGETLBFS); for a container reserve them on its host, and let it see /sys".to_owned(),
        });
    };
    // As many more: what others have reserved stays theirs.
    let reserve = pool.total.saturating_add(missing);
    Some(Shortcoming {
        name: "hugepages",
        text: format!(
            "{} MiB of hugepages free, {} MiB wanted: regions will use smaller pages",
            available_kib >> 10,
            wanted_kib >> 10
        ),
        remedy: format!("`echo {reserve} | sudo tee /sys/kernel/mm/hugepages/hugepages-{HUGEPAGE_KIB}kB/nr_hugepages`"),
    })
}

fn isolation(machine: &Machine) -> Option<Shortcoming> {
    machine.topology.isolated().is_empty().then(|| Shortcoming {
        name: "isolation",
        text: "no core is isolated: other work will interrupt the reactors".to_owned(),
        remedy: "boot with `isolcpus=<cores> nohz_full=<cores> rcu_nocbs=<cores>`".to_owned(),
    })
}

fn locked_memory(machine: &Machine) -> Option<Shortcoming> {
    let limit = machine.locked_memory.filter(|_| !machine.may_lock_more)?;
    (limit < WANTED_LOCKED_BYTES).then(|| Shortcoming {
        name: "locked_memory",
        text: format!(
            "{} KiB may be locked, {} KiB wanted: RDMA devices will refuse to register more",
            limit >> 10,
            WANTED_LOCKED_BYTES >> 10
        ),
        remedy: "`ulimit -l unlimited`, or LimitMEMLOCK=infinity in the service".to_owned(),
    })
}

fn clock(machine: &Machine) -> Option<Shortcoming> {
    (machine.clock.counter == TimeStampCounter::Varying).then(|| Shortcoming {
        name: "clock",
        text: "the TSC is not invariant: time comes from clock_gettime, some 20 ns per iteration".to_owned(),
        remedy: "in a virtual machine, let the hypervisor pass the invariant TSC (`-cpu host,+invtsc`)".to_owned(),
    })
}

fn governor(machine: &Machine) -> Option<Shortcoming> {
    let others: Vec<&str> =
        machine.clock.governors.keys().map(String::as_str).filter(|name| *name != "performance").collect();
    (!others.is_empty()).then(|| Shortcoming {
        name: "governor",
        text: format!("frequency governor {}: latencies will vary", others.join(", ")),
        remedy: "`sudo cpupower frequency-set -g performance`".to_owned(),
    })
}

fn smt(machine: &Machine) -> Option<Shortcoming> {
    (machine.has_smt() == Some(true)).then(|| Shortcoming {
        name: "smt",
        text: "hardware threads share cores: two reactors on one core halve each other".to_owned(),
        remedy: "give `--cores` one thread per core (`lscpu -e` lists them), or boot with `nosmt`".to_owned(),
    })
}
