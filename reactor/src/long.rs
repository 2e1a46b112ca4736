//! Iterations that took long: how many of which length, and why, as far as the core itself can know.

use core::time::Duration;

use crate::cpu::{ThreadUsage, thread_usage};
use crate::primitive::{AtomicU64, Ordering};

/// An iteration that takes more is counted as a long one (`Statistics::long_iterations`): what 99.99 % of the iterations of an isolated
/// core stay within (goal B13).
pub const LONG_ITERATION: Duration = Duration::from_micros(5);

/// Lengths that are told apart, each up to twice the one before: from 10 us to more than a second.
pub const LENGTHS: usize = 19;
const CAUSES: usize = 5;

/// What took the time of a long iteration.
///
/// The kernel's counts of a thread say that it was switched away or waited for a page, and not for how long. They are asked for after
/// long iterations alone, so that they may hold what happened in short ones since the last long one, or since the last sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Cause {
    /// The kernel gave the processor to another thread.
    Switch,
    /// Memory was not there yet.
    PageFault,
    /// Its thread waited in the kernel: for a lock, in a system call, or because it was stopped.
    Wait,
    /// None of these, and pollers found work.
    Work,
    /// None of these, and nobody found anything: an interrupt, firmware (SMI), the hypervisor, or a poller that works and says that it
    /// found nothing.
    Unknown,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; CAUSES] = [Self::Switch, Self::PageFault, Self::Wait, Self::Work, Self::Unknown];

    /// As the fields of [`LongIterations`] are called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::PageFault => "page_fault",
            Self::Wait => "wait",
            Self::Work => "work",
            Self::Unknown => "unknown",
        }
    }

    /// `usage` is of its time; `found` says whether it found something.
    fn of(usage: ThreadUsage, found: bool) -> Self {
        match usage {
            ThreadUsage { involuntary: 1.., .. } => Self::Switch,
            ThreadUsage { page_faults: 1.., .. } => Self::PageFault,
            ThreadUsage { voluntary: 1.., .. } => Self::Wait,
            _ if found => Self::Work,
            _ => Self::Unknown,
        }
    }

    /// As a word that another thread reads.
    pub(crate) fn word(self) -> u64 {
        self as u64
    }

    /// The other way; `None` for what no cause is.
    pub(crate) fn of_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.word() == word)
    }
}

/// How many iterations were as long, from [`LONG_ITERATION`] on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct Lengths([u64; LENGTHS]);

impl Lengths {
    /// The number of each length with the time up to which it reaches, shortest first; `None` is without end.
    pub fn counts(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        self.0.iter().zip(1_u32..).map(|(&count, doublings)| {
            // At most a second's order: 5 us doubled nineteen times is 2.6 s.
            let end = LONG_ITERATION.saturating_mul(1 << doublings);
            ((doublings as usize != LENGTHS).then_some(end), count)
        })
    }

    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Iterations longer than [`LONG_ITERATION`] by cause and length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LongIterations {
    /// [`Cause::Switch`].
    pub switch: Lengths,
    /// [`Cause::PageFault`].
    pub page_fault: Lengths,
    /// [`Cause::Wait`].
    pub wait: Lengths,
    /// [`Cause::Work`]; whose it was, [`crate::PollerStatistics::long_iterations`] says.
    pub work: Lengths,
    /// [`Cause::Unknown`].
    pub unknown: Lengths,
}

impl LongIterations {
    /// Those of a cause.
    #[must_use]
    pub fn of(&self, cause: Cause) -> &Lengths {
        match cause {
            Cause::Switch => &self.switch,
            Cause::PageFault => &self.page_fault,
            Cause::Wait => &self.wait,
            Cause::Work => &self.work,
            Cause::Unknown => &self.unknown,
        }
    }

    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        Cause::ALL.into_iter().fold(0, |sum, cause| sum.saturating_add(self.of(cause).total()))
    }
}

/// The counts, which the reactor alone writes, and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct LongCells([[AtomicU64; LENGTHS]; CAUSES]);

impl LongCells {
    /// Counts one of so many nanoseconds.
    pub(crate) fn count(&self, cause: Cause, nanoseconds: u64) {
        let cell = self.0.get(cause as usize).and_then(|lengths| lengths.get(length(nanoseconds)));
        if let Some(cell) = cell {
            // One writer: a load and a store are enough.
            cell.store(cell.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> LongIterations {
        let [switch, page_fault, wait, work, unknown] = &self.0;
        let [switch, page_fault, wait, work, unknown] = [switch, page_fault, wait, work, unknown].map(|cells| {
            Lengths(core::array::from_fn(|at| cells.get(at).map_or(0, |cell| cell.load(Ordering::Relaxed))))
        });
        LongIterations { switch, page_fault, wait, work, unknown }
    }
}

/// Which of the lengths it is.
fn length(nanoseconds: u64) -> usize {
    let times = nanoseconds / LONG_ITERATION.as_nanos() as u64;
    (times.max(1).ilog2() as usize).min(LENGTHS - 1)
}

/// Between two questions about iterations that are no stalls, in nanoseconds: a core in its steady state asks nothing of the system but
/// these four in a second, also on a machine where most iterations are long.
const BETWEEN_QUESTIONS: u64 = 250_000_000;

/// Finds out why iterations took long: what the kernel has counted of the thread since the last question.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    /// `None` where nobody asks: time is not the machine's.
    known: Option<ThreadUsage>,
    /// When the next question may be asked that can wait.
    next: u64,
}

impl Inquiry {
    /// Starts counting, on the thread that runs the reactor: one system call.
    pub(crate) fn begin(&mut self) {
        self.known = thread_usage();
    }

    /// The reactor has slept, which is no wait of the iterations that follow: counts anew, by one system call beside those of the sleep.
    pub(crate) fn slept(&mut self) {
        if self.known.is_some() {
            self.begin();
        }
    }

    /// Whether a question can be asked now, in nanoseconds of the reactor's clock, that is about no stall.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now.saturating_add(BETWEEN_QUESTIONS);
        }
        is_due
    }

    /// What was counted since; nothing where nobody asks, or `worthwhile` says that the answer costs more than it is worth.
    pub(crate) fn ask(&mut self, worthwhile: bool) -> ThreadUsage {
        let Some(known) = self.known.as_mut().filter(|_| worthwhile) else { return ThreadUsage::default() };
        thread_usage().map_or_else(ThreadUsage::default, |usage| {
            let since = usage.since(*known);
            *known = usage;
            since
        })
    }
}

/// The cause of an iteration that found something, or did not.
pub(crate) fn cause(usage: ThreadUsage, found: bool) -> Cause {
    Cause::of(usage, found)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Cause, LENGTHS, LONG_ITERATION, Lengths, LongCells, cause, length};
    use crate::cpu::ThreadUsage;
    use core::time::Duration;

    #[test]
    fn lengths_double_and_the_last_has_no_end() {
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        for (at, (end, _)) in Lengths::default().counts().enumerate() {
            let Some(end) = end else {
                assert_eq!((at, length(u64::MAX)), (LENGTHS - 1, at));
                return;
            };
            assert_eq!(end, LONG_ITERATION * (2 << at));
            assert_eq!((length(nanoseconds(end) - 1), length(nanoseconds(end))), (at, at + 1));
        }
        panic!("the last one has an end");
    }

    #[test]
    fn what_the_kernel_counted_is_the_cause_before_work_is() {
        let none = ThreadUsage::default();
        for (usage, of_work, of_nothing) in [
            (none, Cause::Work, Cause::Unknown),
            (ThreadUsage { voluntary: 1, ..none }, Cause::Wait, Cause::Wait),
            (ThreadUsage { voluntary: 2, page_faults: 1, ..none }, Cause::PageFault, Cause::PageFault),
            (ThreadUsage { voluntary: 2, page_faults: 1, involuntary: 9 }, Cause::Switch, Cause::Switch),
        ] {
            assert_eq!((cause(usage, true), cause(usage, false)), (of_work, of_nothing), "{usage:?}");
        }
    }

    #[test]
    fn each_is_counted_where_it_belongs() {
        let cells = LongCells::default();
        for (nth, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(Cause::of_word(cause.word()), Some(cause));
            (0..=nth).for_each(|_| cells.count(cause, 12_000));
        }
        let read = cells.read();
        assert_eq!((read.total(), Cause::of_word(Cause::ALL.len() as u64)), (15, None));
        for (nth, cause) in (1..).zip(Cause::ALL) {
            let second = read.of(cause).counts().nth(1);
            assert_eq!(second, Some((Some(Duration::from_micros(20)), nth)), "{cause:?}");
        }
    }
}
