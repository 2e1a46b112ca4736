//! What the kernel says about this machine's cores, read from sysfs.

use std::fs;
use std::path::Path;

use crate::core_set::{CORE_LIMIT, CpuId, CpuSet};

/// One CPU of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// The kernel's number.
    pub id: CpuId,
    /// NUMA node, if the kernel says.
    pub node: Option<u32>,
    /// Package (socket), if the kernel says.
    pub package: Option<u32>,
    /// The hardware threads of the same physical core, itself included.
    pub siblings: CpuSet,
}

/// The cores of the machine at the time of reading. Missing sysfs files leave the fields unknown, never an error:
/// containers hide parts of sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    online: CpuSet,
    isolated: CpuSet,
    allowed: CpuSet,
    occupied: CpuSet,
    cores: Vec<Core>,
}

impl Topology {
    /// Reads the machine's own sysfs and the affinity mask of the calling thread. Call it before any thread is pinned:
    /// a pinned thread, and what it spawns, sees itself alone. Isolated CPUs that a container's cpuset keeps from this
    /// process are left out: sysfs lists those of the whole machine.
    #[must_use]
    pub fn of_machine() -> Self {
        let mut topology = Self::read(Path::new("/sys"), crate::pin::allowed());
        let outside: CpuSet = topology.isolated.iter().filter(|&cpu| !topology.allowed.contains(cpu)).collect();
        let permitted = crate::pin::permitted(&outside);
        topology.isolated =
            topology.isolated.iter().filter(|&cpu| topology.allowed.contains(cpu) || permitted.contains(cpu)).collect();
        topology
    }

    /// Reads the tree below `root` (`/sys` on a real machine); `allowed` is the affinity mask of the caller.
    /// Where the list of online CPUs cannot be read, the allowed ones are taken as online.
    #[must_use]
    pub fn read(root: &Path, allowed: CpuSet) -> Self {
        let cpus = root.join("devices/system/cpu");
        let online = read_list(&cpus.join("online")).filter(|set| !set.is_empty()).unwrap_or(allowed);
        let isolated = read_list(&cpus.join("isolated")).unwrap_or_default();
        let nodes = read_nodes(&root.join("devices/system/node"));
        let cores = online.iter().map(|id| read_core(&cpus, id, &nodes)).collect();
        Self { online, isolated, allowed, occupied: CpuSet::new(), cores }
    }

    /// With these CPUs, and the other hardware threads of their cores, known to have a busy loop of somebody else's on them: a
    /// [`Placement::Spread`](crate::Placement::Spread) takes them last. Who names them gets them all the same.
    #[must_use]
    pub fn with_occupied(mut self, occupied: &CpuSet) -> Self {
        self.occupied = *occupied;
        for core in self.cores.iter().filter(|core| occupied.contains(core.id)) {
            self.occupied.extend(&core.siblings);
        }
        self
    }

    /// CPUs that carry somebody else's busy loop, as far as [`Self::with_occupied`] was told.
    #[must_use]
    pub fn occupied(&self) -> &CpuSet {
        &self.occupied
    }

    /// CPUs that are online.
    #[must_use]
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// CPUs kept free of other work by `isolcpus`; they are not in the affinity mask of ordinary threads.
    #[must_use]
    pub fn isolated(&self) -> &CpuSet {
        &self.isolated
    }

    /// The affinity mask of the thread that read the topology.
    #[must_use]
    pub fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// Whether a thread of ours may be pinned there: allowed, or isolated (the kernel lets a thread pin itself there
    /// although its inherited mask leaves it out).
    #[must_use]
    pub fn may_pin(&self, id: CpuId) -> bool {
        self.allowed.contains(id) || self.isolated.contains(id)
    }

    /// All online cores, ascending.
    #[must_use]
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// One core; `None` if it is not online.
    #[must_use]
    pub fn core(&self, id: CpuId) -> Option<&Core> {
        self.cores.binary_search_by_key(&id, |core| core.id).ok().and_then(|found| self.cores.get(found))
    }

    /// NUMA node of a core; `None` if unknown.
    #[must_use]
    pub fn node_of(&self, id: CpuId) -> Option<u32> {
        self.core(id).and_then(|core| core.node)
    }

    /// Whether both are hardware threads of one physical core.
    #[must_use]
    pub fn are_siblings(&self, one: CpuId, other: CpuId) -> bool {
        one != other && self.core(one).is_some_and(|core| core.siblings.contains(other))
    }
}

fn read_core(cpus: &Path, id: CpuId, nodes: &[(u32, CpuSet)]) -> Core {
    let topology = cpus.join(format!("cpu{id}/topology"));
    let mut siblings = read_list(&topology.join("thread_siblings_list")).unwrap_or_default();
    siblings.insert(id);
    Core {
        id,
        node: nodes.iter().find(|(_, set)| set.contains(id)).map(|&(node, _)| node),
        package: read_number(&topology.join("physical_package_id")),
        siblings,
    }
}

fn read_nodes(directory: &Path) -> Vec<(u32, CpuSet)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut nodes: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let node = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            Some((node, read_list(&entry.path().join("cpulist"))?))
        })
        .take(CORE_LIMIT)
        .collect();
    nodes.sort_unstable_by_key(|&(node, _)| node);
    nodes
}

fn read_list(path: &Path) -> Option<CpuSet> {
    CpuSet::parse_kernel_list(&fs::read_to_string(path).ok()?)
}

/// The kernel writes -1 where it does not know: that is no number here.
fn read_number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
