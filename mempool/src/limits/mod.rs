//! What this process may use of its machine: memory and processor time of its control groups, and the limits of its resources.
//!
//! The kernel keeps a process to these limits by killing it, or by letting it stand still, both without a word. Whoever needs
//! memory or time asks here first. All of it is cold: files below `/proc` and `/sys` are read. What cannot be read is no limit, never an
//! error: containers hide parts of both.

mod cgroup;
mod populating;

use cgroup::{Groups, Version};
use core::fmt;
use core::time::Duration;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use populating::{Reservation, reserve};

/// Where version one has no limit it says the largest number of bytes in whole pages, which depends on their size.
const NO_LIMIT: u64 = 1 << 62;
/// Microseconds of a period unless a group says otherwise (cpu.cfs_period_us, cpu.max).
const USUAL_PERIOD: u64 = 100_000;

/// A limit of getrlimit(2), as `/proc/self/limits` names it. The soft one counts: it is what the kernel keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// `RLIMIT_MEMLOCK`, in bytes.
    LockedMemory,
    /// `RLIMIT_FSIZE`, in bytes.
    FileSize,
    /// `RLIMIT_STACK`, in bytes.
    Stack,
}

impl Resource {
    fn line(self) -> &'static str {
        match self {
            Self::LockedMemory => "Max locked memory",
            Self::FileSize => "Max file size",
            Self::Stack => "Max stack size",
        }
    }
}

/// What a bound on memory is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// Of a control group: its limit in bytes, and the folder that says so.
    Group {
        /// Its limit in bytes.
        limit: u64,
        /// Where it stands.
        folder: PathBuf,
    },
    /// Of the machine: `MemAvailable`.
    Machine,
}

/// Memory that may still be populated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRoom {
    /// Bytes; of a group also those of files that the kernel can drop.
    pub bytes: u64,
    /// What bounds it.
    pub bound: MemoryBound,
}

impl fmt::Display for MemoryRoom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = Mebibytes(self.bytes);
        match &self.bound {
            MemoryBound::Group { limit, folder } => {
                write!(formatter, "{free} left of the {} of cgroup {}", Mebibytes(*limit), folder.display())
            }
            MemoryBound::Machine => write!(formatter, "{free} available on this machine"),
        }
    }
}

/// Bytes as people read them.
#[derive(Clone, Copy)]
struct Mebibytes(u64);

impl fmt::Display for Mebibytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} MiB", self.0 >> 20)
    }
}

/// Processor time that a control group may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// Time of all its threads together in each period.
    pub quota: Duration,
    /// How long a period is.
    pub period: Duration,
    /// The group's folder.
    pub folder: PathBuf,
}

impl CpuQuota {
    /// How many cores can be busy all the time.
    #[must_use]
    pub fn cores(&self) -> f64 {
        self.quota.as_secs_f64() / self.period.as_secs_f64()
    }
}

/// How often control groups of this process, or above it, were made to stand still; since they are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which one of them wanted time.
    pub periods: u64,
    /// Those of them in which its quota was used up.
    pub throttled: u64,
    /// How long its threads stood still, all together.
    pub time: Duration,
}

impl Throttling {
    /// What came since.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(before.periods),
            throttled: self.throttled.saturating_sub(before.throttled),
            time: self.time.saturating_sub(before.time),
        }
    }
}

/// The limits of this process, or of one whose `proc` and `sys` lie below another folder.
#[derive(Clone, Debug)]
pub struct Limits {
    root: PathBuf,
    memory: Option<Groups>,
    cpu: Option<Groups>,
}

impl Limits {
    /// Those of this process. Its groups are looked up once: a process that is moved has to ask anew.
    #[must_use]
    pub fn of_process() -> Self {
        Self::read(Path::new("/"))
    }

    /// Those that the files below `root` tell.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let groups = |controller| Groups::of_process(root, controller);
        Self { root: root.to_owned(), memory: groups("memory"), cpu: groups("cpu") }
    }

    /// Memory that may be populated now: the least that any group leaves, and what the machine has available. `None` where nobody says.
    #[must_use]
    pub fn memory(&self) -> Option<MemoryRoom> {
        let machine = self.machine_memory().map(|bytes| MemoryRoom { bytes, bound: MemoryBound::Machine });
        let groups = self.memory.iter().flat_map(|groups| {
            let version = groups.version;
            // A hierarchy of version one may not be one: what stands above then limits nothing.
            let mut is_limited = true;
            groups.folders.iter().map_while(move |folder| {
                let counts = is_limited;
                is_limited &= version == Version::Two || number(&folder.join("memory.use_hierarchy")) != Some(0);
                counts.then(|| memory_of(version, folder))
            })
        });
        machine.into_iter().chain(groups.flatten()).min_by_key(|room| room.bytes)
    }

    /// The strictest quota of processor time. `None` where there is none.
    #[must_use]
    pub fn cpu_quota(&self) -> Option<CpuQuota> {
        let groups = self.cpu.as_ref()?;
        let quotas = groups.folders.iter().filter_map(|folder| quota_of(groups.version, folder));
        quotas.min_by(|one, other| one.cores().total_cmp(&other.cores()))
    }

    /// How often groups were throttled so far; of several that have a quota the sum, since each stops its threads by itself.
    #[must_use]
    pub fn throttling(&self) -> Throttling {
        let Some(groups) = &self.cpu else { return Throttling::default() };
        let all = groups.folders.iter().filter_map(|folder| {
            // Of a group without a quota nothing is counted.
            quota_of(groups.version, folder)?;
            throttling_of(groups.version, &fs::read_to_string(folder.join("cpu.stat")).ok()?)
        });
        all.fold(Throttling::default(), |sum, one| Throttling {
            periods: sum.periods.saturating_add(one.periods),
            throttled: sum.throttled.saturating_add(one.throttled),
            time: sum.time.saturating_add(one.time),
        })
    }

    /// The soft limit of a resource; `u64::MAX` for none, `None` where it cannot be read.
    #[must_use]
    pub fn soft_limit(&self, resource: Resource) -> Option<u64> {
        soft_limit_in(&fs::read_to_string(self.root.join("proc/self/limits")).ok()?, resource)
    }

    /// Whether this process may lock more than [`Resource::LockedMemory`] says: it has CAP_IPC_LOCK (capabilities(7)), and that of the machine
    /// itself, since that of a user namespace counts for nothing there. False where nobody says.
    #[must_use]
    pub fn may_lock_more(&self) -> bool {
        const IPC_LOCK: u32 = 14;
        let read = |file: &str| fs::read_to_string(self.root.join(file)).unwrap_or_default();
        let (own, users) = (read("proc/self/status"), read("proc/self/uid_map"));
        let effective = own.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
        let is_initial = users.split_whitespace().eq(["0", "0", "4294967295"]);
        is_initial && effective.is_some_and(|all| all >> IPC_LOCK & 1 == 1)
    }

    fn machine_memory(&self) -> Option<u64> {
        field(&fs::read_to_string(self.root.join("proc/meminfo")).ok()?, "MemAvailable:")?.checked_mul(1024)
    }
}

/// What a group leaves; `None` where it has no limit.
fn memory_of(version: Version, folder: &Path) -> Option<MemoryRoom> {
    let (limit, used, prefix) = match version {
        // Version one counts what is below a group only in those fields.
        Version::One => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        Version::Two => ("memory.max", "memory.current", ""),
    };
    let limit = number(&folder.join(limit)).filter(|limit| *limit < NO_LIMIT)?;
    let used = number(&folder.join(used))?;
    // The kernel drops what it keeps of files before it kills.
    let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let kept = |name: &str| field(&statistics, &format!("{prefix}{name}")).unwrap_or(0);
    let droppable = kept("inactive_file").saturating_add(kept("active_file"));
    let bytes = limit.saturating_sub(used.saturating_sub(droppable));
    Some(MemoryRoom { bytes, bound: MemoryBound::Group { limit, folder: folder.to_owned() } })
}

/// A group's quota; `None` where it has none.
fn quota_of(version: Version, folder: &Path) -> Option<CpuQuota> {
    let (quota, period) = match version {
        // -1 is none, and no number here.
        Version::One => (number(&folder.join("cpu.cfs_quota_us"))?, number(&folder.join("cpu.cfs_period_us"))),
        Version::Two => {
            let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
            let mut words = text.split_whitespace();
            (words.next()?.parse().ok()?, words.next().and_then(|word| word.parse().ok()))
        }
    };
    let period = Duration::from_micros(period.filter(|period| *period > 0).unwrap_or(USUAL_PERIOD));
    Some(CpuQuota { quota: Duration::from_micros(quota), period, folder: folder.to_owned() })
}

fn throttling_of(version: Version, statistics: &str) -> Option<Throttling> {
    let of = |name: &str| field(statistics, name);
    let time = match version {
        Version::One => Duration::from_nanos(of("throttled_time")?),
        Version::Two => Duration::from_micros(of("throttled_usec")?),
    };
    Some(Throttling { periods: of("nr_periods")?, throttled: of("nr_throttled")?, time })
}

/// A file that is one number.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut words =
        text.lines().map(str::split_whitespace).find_map(|mut words| (words.next()? == name).then_some(words))?;
    words.next()?.parse().ok()
}

/// The soft limit in a line `Max ...  <soft>  <hard>  <unit>`.
fn soft_limit_in(limits: &str, resource: Resource) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(resource.line()))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}
