//! Core numbers that are known to be usable, and sets of them.

use core::fmt;

/// CPU numbers are below this: glibc's `cpu_set_t` holds 1024 bits, and core_affinity aborts the process above it.
pub const CORE_LIMIT: usize = 1024;

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = CORE_LIMIT / WORD_BITS;
const _: () = assert!(WORDS * WORD_BITS == CORE_LIMIT, "the set covers every number below the limit");
const _: () = assert!(CORE_LIMIT <= u16::MAX as usize, "a CpuId fits 16 bits");

/// The kernel's number of one CPU, below [`CORE_LIMIT`]. Whether it is online is for [`crate::Topology`] to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CpuId(u16);

/// The number is no CPU number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("core {0} is out of range: core numbers are below {CORE_LIMIT}; `lscpu -e` lists the cores of this machine")]
pub struct CpuIdError(pub usize);

impl CpuId {
    /// Checks the number against [`CORE_LIMIT`].
    pub fn new(number: usize) -> Result<Self, CpuIdError> {
        match u16::try_from(number) {
            Ok(small) if number < CORE_LIMIT => Ok(Self(small)),
            _ => Err(CpuIdError(number)),
        }
    }

    /// The kernel's number.
    #[must_use]
    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of CPUs; shown the way the kernel writes lists: `0-3,8`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    /// The CPUs whose bits are set, from CPU 0 on; those from [`CORE_LIMIT`] on are left out.
    pub(crate) fn from_mask(mask: &[u64]) -> Self {
        let mut set = Self::new();
        for (word, bits) in set.words.iter_mut().zip(mask) {
            *word = *bits;
        }
        set
    }

    /// Adds a CPU; false if it was there already.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        let (word, bit) = Self::place(cpu);
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// Whether the CPU is in the set.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        let (word, bit) = Self::place(cpu);
        self.words[word] & bit != 0
    }

    /// Adds all CPUs of another set.
    pub(crate) fn extend(&mut self, other: &Self) {
        for (word, bits) in self.words.iter_mut().zip(other.words) {
            *word |= bits;
        }
    }

    /// Number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no CPU is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        (0..CORE_LIMIT).filter_map(|number| CpuId::new(number).ok()).filter(|&cpu| self.contains(cpu))
    }

    /// Reads a list as the kernel writes it in sysfs: `0-3,8`, a newline at its end, empty for the empty set.
    /// Numbers from [`CORE_LIMIT`] on are left out, because no thread can be pinned there. `None` if it is no such list.
    #[must_use]
    pub fn parse_kernel_list(text: &str) -> Option<Self> {
        let mut set = Self::new();
        for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            if first > last {
                return None;
            }
            for cpu in (first..=last.min(CORE_LIMIT - 1)).filter_map(|number| CpuId::new(number).ok()) {
                set.insert(cpu);
            }
        }
        Some(set)
    }

    fn place(cpu: CpuId) -> (usize, u64) {
        (cpu.get() / WORD_BITS, 1 << (cpu.get() % WORD_BITS))
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::new();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut cpus = self.iter().map(CpuId::get).peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}
