//! Which core carries which reactor.

use core::fmt;
use core::str::FromStr;

use crate::core_set::{CORE_LIMIT, CpuId, CpuIdError, CpuSet};
use crate::seat::MAX_REACTORS;
use crate::topology::Topology;

/// Cores as a user lists them: `0,2-3`. Order is kept: the first carries reactor 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreList(Vec<CpuId>);

/// What is wrong with a core list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreListError {
    /// Nothing was listed.
    #[error("the core list is empty; name at least one core, for example \"0\" or \"0,2-3\"")]
    Empty,
    /// A part is no number and no range.
    #[error("\"{part}\" is neither a core number nor a range; write for example \"0,2-3\"")]
    NotANumber {
        /// The part as written.
        part: String,
    },
    /// A range ends before it begins.
    #[error("range \"{part}\" ends before it begins; write the smaller core first")]
    Reversed {
        /// The part as written.
        part: String,
    },
    /// A number is too large.
    #[error("\"{part}\": {source}")]
    OutOfRange {
        /// The part as written.
        part: String,
        /// The number and the limit.
        source: CpuIdError,
    },
    /// One core is listed twice.
    #[error("core {core} is listed twice (\"{part}\"): one core carries one reactor; remove one of them")]
    Twice {
        /// The core.
        core: CpuId,
        /// The part that repeats it.
        part: String,
    },
    /// More cores than reactors can be.
    #[error("more than {MAX_REACTORS} cores are listed; a process runs at most {MAX_REACTORS} reactors")]
    TooMany,
}

impl CoreList {
    /// The cores in the order of the list.
    #[must_use]
    pub fn cores(&self) -> &[CpuId] {
        &self.0
    }
}

impl FromStr for CoreList {
    type Err = CoreListError;

    fn from_str(text: &str) -> Result<Self, CoreListError> {
        if text.trim().is_empty() {
            return Err(CoreListError::Empty);
        }
        let (mut seen, mut cores) = (CpuSet::new(), Vec::new());
        for part in text.split(',').map(str::trim) {
            let (first, last) = parse_part(part)?;
            for number in first..=last {
                let core =
                    CpuId::new(number).map_err(|source| CoreListError::OutOfRange { part: part.to_owned(), source })?;
                if !seen.insert(core) {
                    return Err(CoreListError::Twice { core, part: part.to_owned() });
                }
                if cores.len() == MAX_REACTORS {
                    return Err(CoreListError::TooMany);
                }
                cores.push(core);
            }
        }
        Ok(Self(cores))
    }
}

fn parse_part(part: &str) -> Result<(usize, usize), CoreListError> {
    let number = |text: &str| match text.trim() {
        // parse() takes a sign; a core number has none.
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty() => {
            Ok(digits.parse().unwrap_or(usize::MAX))
        }
        _ => Err(CoreListError::NotANumber { part: part.to_owned() }),
    };
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(CoreListError::Reversed { part: part.to_owned() });
    }
    if last >= CORE_LIMIT {
        return Err(CoreListError::OutOfRange { part: part.to_owned(), source: CpuIdError(last) });
    }
    Ok((first, last))
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, core) in self.0.iter().enumerate() {
            write!(f, "{}{core}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Where reactors go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Exactly these cores, one reactor each, in this order.
    Cores(Vec<CpuId>),
    /// This many reactors, each on a physical core of its own: those that nobody else's reactor occupies first, isolated ones of them
    /// before others, then by number.
    Spread {
        /// Number of reactors.
        reactors: usize,
    },
    /// This many reactors on threads that the kernel may move: for CI and machines with one core. Reports say so.
    Unpinned {
        /// Number of reactors.
        reactors: usize,
    },
}

/// Why a placement does not fit the machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// No reactor was asked for.
    #[error("no core was named; at least one reactor is needed")]
    Empty,
    /// Too many reactors.
    #[error("{wanted} reactors were asked for; a process runs at most {MAX_REACTORS}")]
    TooMany {
        /// How many.
        wanted: usize,
    },
    /// The core is not there.
    #[error("core {core} is not online; online cores of this machine: {online}")]
    Offline {
        /// The core.
        core: CpuId,
        /// What is online.
        online: Box<CpuSet>,
    },
    /// The process may not run there.
    #[error("core {core} is outside this process's affinity mask {allowed}; choose one of those, or widen the cpuset")]
    NotAllowed {
        /// The core.
        core: CpuId,
        /// Where it may run.
        allowed: Box<CpuSet>,
    },
    /// One core for two reactors.
    #[error("core {core} was given to two reactors; two busy loops on one core starve each other: name another core")]
    Twice {
        /// The core.
        core: CpuId,
    },
    /// Two hardware threads of one physical core.
    #[error("cores {one} and {other} are hardware threads of one physical core; choose another, or allow SMT siblings")]
    Siblings {
        /// The core that was listed first.
        one: CpuId,
        /// The other.
        other: CpuId,
    },
    /// The machine is too small for a spread.
    #[error(
        "{wanted} reactors need {wanted} physical cores; this process may use {available}: ask for fewer, allow SMT siblings, or run unpinned"
    )]
    TooFewCores {
        /// How many reactors.
        wanted: usize,
        /// How many physical cores.
        available: usize,
    },
}

/// A placement that was checked against a machine: one entry per reactor; `None` is unpinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seats(Vec<Option<CpuId>>);

impl Seats {
    /// The core of each reactor; `None` is unpinned.
    #[must_use]
    pub fn cores(&self) -> &[Option<CpuId>] {
        &self.0
    }
}

impl Placement {
    /// Checks the placement against the machine.
    pub fn resolve(&self, topology: &Topology, allow_siblings: bool) -> Result<Seats, PlacementError> {
        let wanted = match self {
            Self::Cores(cores) => cores.len(),
            Self::Spread { reactors } | Self::Unpinned { reactors } => *reactors,
        };
        match wanted {
            0 => return Err(PlacementError::Empty),
            1..=MAX_REACTORS => {}
            _ => return Err(PlacementError::TooMany { wanted }),
        }
        let seats = match self {
            Self::Unpinned { .. } => vec![None; wanted],
            Self::Spread { .. } => spread(topology, wanted, allow_siblings)?,
            Self::Cores(cores) => check(topology, cores, allow_siblings)?,
        };
        Ok(Seats(seats))
    }
}

impl From<CoreList> for Placement {
    fn from(list: CoreList) -> Self {
        Self::Cores(list.0)
    }
}

fn check(topology: &Topology, cores: &[CpuId], allow_siblings: bool) -> Result<Vec<Option<CpuId>>, PlacementError> {
    for (place, &core) in cores.iter().enumerate() {
        if !topology.online().contains(core) {
            return Err(PlacementError::Offline { core, online: Box::new(*topology.online()) });
        }
        if !topology.may_pin(core) {
            return Err(PlacementError::NotAllowed { core, allowed: Box::new(*topology.allowed()) });
        }
        let earlier = cores.iter().take(place);
        if earlier.clone().any(|&other| other == core) {
            return Err(PlacementError::Twice { core });
        }
        if let Some(&one) = earlier.clone().find(|&&other| !allow_siblings && topology.are_siblings(other, core)) {
            return Err(PlacementError::Siblings { one, other: core });
        }
    }
    Ok(cores.iter().copied().map(Some).collect())
}

fn spread(topology: &Topology, wanted: usize, allow_siblings: bool) -> Result<Vec<Option<CpuId>>, PlacementError> {
    let mut candidates: Vec<CpuId> = topology.online().iter().filter(|&core| topology.may_pin(core)).collect();
    candidates.sort_by_key(|&core| (topology.occupied().contains(core), !topology.isolated().contains(core), core));
    // Whole physical cores first; their second hardware threads only if those may be used at all.
    let (mut chosen, mut second): (Vec<CpuId>, Vec<CpuId>) = (Vec::new(), Vec::new());
    let mut taken = CpuSet::new();
    for core in candidates {
        if taken.contains(core) {
            second.push(core);
            continue;
        }
        chosen.push(core);
        if let Some(core) = topology.core(core) {
            taken.extend(&core.siblings);
        }
    }
    if allow_siblings {
        chosen.append(&mut second);
    }
    if chosen.len() < wanted {
        return Err(PlacementError::TooFewCores { wanted, available: chosen.len() });
    }
    Ok(chosen.into_iter().take(wanted).map(Some).collect())
}
