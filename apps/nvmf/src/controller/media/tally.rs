//! What became of the commands of one namespace on one core: how long those took that succeeded, and as what the others failed.
//!
//! A command takes from the iteration that found it to the one that answers it; one that is answered in the iteration that found it takes
//! as long as that iteration, which is known when the next one begins. Nobody reads a clock for it.

use crate::wire::Status;
use core::ops::AddAssign;
use core::time::Duration;

/// Lengths that are told apart: up to 1 us, and twice as long each to 1 s and more, and all that is longer. A disk that needs more has failed.
pub const LATENCIES: usize = 22;
const NANOSECONDS_PER_MICROSECOND: u64 = 1000;
/// Statuses that are told apart of each namespace. Commands of I/O queues are answered some two dozen by this target.
const STATUSES: usize = 32;

/// What a command does, as far as its latency is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandKind {
    /// Read.
    Read,
    /// Write, until it is on the medium where the host wants that.
    Write,
    /// All others of the NVM command set.
    Other,
}

impl CommandKind {
    /// Each once, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// A word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// How many commands took how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    counts: [u64; LATENCIES],
    nanoseconds: u64,
}

impl Latencies {
    /// The number of each length with the time up to which it reaches, shortest first; `None` is without end.
    pub fn counts(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        self.counts.iter().enumerate().map(|(doublings, &count)| {
            // At most a second's order: 1 us doubled twenty times.
            let end = Duration::from_micros(1 << doublings);
            ((doublings + 1 < LATENCIES).then_some(end), count)
        })
    }

    /// Commands.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// So many that took so long.
    fn add(&mut self, commands: u64, nanoseconds: u64) {
        if let Some(count) = self.counts.get_mut(length(nanoseconds)) {
            *count += commands;
        }
        self.nanoseconds = self.nanoseconds.saturating_add(nanoseconds.saturating_mul(commands));
    }
}

/// Which of the lengths it is: ends belong to what they end.
fn length(nanoseconds: u64) -> usize {
    let beyond = nanoseconds.saturating_sub(1) / NANOSECONDS_PER_MICROSECOND;
    // At most 64.
    ((u64::BITS - beyond.leading_zeros()) as usize).min(LATENCIES - 1)
}

impl AddAssign for Latencies {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
    }
}

/// Of one namespace.
#[derive(Debug)]
pub(in super::super) struct Tally {
    /// Answered in the iteration that found them, whose length is not known yet.
    recent: [u32; CommandKind::ALL.len()],
    latencies: [Latencies; CommandKind::ALL.len()],
    /// In the order in which they came; success is none.
    failures: [(Status, u64); STATUSES],
}

impl Default for Tally {
    fn default() -> Self {
        Self { recent: [0; 3], latencies: Default::default(), failures: [(Status::SUCCESS, 0); STATUSES] }
    }
}

impl Tally {
    /// A command succeeded that this iteration has found. [`Self::settle`] says how long that takes. Whether it is the first.
    #[inline(always)]
    pub(super) fn succeeded_at_once(&mut self, kind: CommandKind) -> bool {
        let is_first = self.recent == [0; CommandKind::ALL.len()];
        self.recent[kind as usize] += 1;
        is_first
    }

    /// One succeeded that was found so long ago.
    #[inline(never)]
    pub(super) fn succeeded(&mut self, kind: CommandKind, nanoseconds: u64) {
        self.latencies[kind as usize].add(1, nanoseconds);
    }

    /// The iteration before took so long.
    pub(super) fn settle(&mut self, nanoseconds: u64) {
        for (recent, latencies) in self.recent.iter_mut().zip(&mut self.latencies) {
            let commands = core::mem::take(recent);
            if commands > 0 {
                latencies.add(commands.into(), nanoseconds);
            }
        }
    }

    /// A command was answered like this.
    #[cold]
    pub(super) fn failed(&mut self, status: Status) {
        let status = status.without_flags();
        let place = self.failures.iter_mut().find(|(known, _)| [status, Status::SUCCESS].contains(known));
        if let Some((known, count)) = place {
            (*known, *count) = (status, *count + 1);
        }
    }

    /// What kinds of commands succeeded, and how long they took.
    pub(in super::super) fn latencies(&self) -> impl Iterator<Item = (CommandKind, Latencies)> + '_ {
        let all = CommandKind::ALL.into_iter().zip(self.latencies);
        all.filter(|(_, latencies)| *latencies != Latencies::default())
    }

    /// How many commands failed as what.
    pub(in super::super) fn failures(&self) -> impl Iterator<Item = (Status, u64)> + '_ {
        self.failures.iter().copied().filter(|(status, _)| !status.is_success())
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandKind, LATENCIES, Latencies, STATUSES, Tally};
    use crate::wire::Status;
    use core::time::Duration;

    /// The end of the length that has the one command.
    fn end(nanoseconds: u64) -> Option<Duration> {
        let mut one = Latencies::default();
        one.add(1, nanoseconds);
        one.counts().find(|(_, count)| *count == 1).unwrap().0
    }

    #[test]
    fn each_length_reaches_to_its_end_and_no_further() {
        let of_microseconds = |end| Some(Duration::from_micros(end));
        for (nanoseconds, wanted) in
            [(1, 1), (1000, 1), (1001, 2), (2000, 2), (2001, 4), (4000, 4), (4001, 8), (1 << 29, 1 << 20)]
        {
            assert_eq!(end(nanoseconds), of_microseconds(wanted), "{nanoseconds}");
        }
        assert_eq!((end((1 << 20) * 1000), end((1 << 20) * 1000 + 1)), (of_microseconds(1 << 20), None));
        assert_eq!((end(0), end(u64::MAX)), (of_microseconds(1), None));
        assert_eq!(Latencies::default().counts().count(), LATENCIES);
    }

    #[test]
    fn what_is_answered_at_once_took_as_long_as_its_iteration() {
        let mut tally = Tally::default();
        assert!(tally.succeeded_at_once(CommandKind::Read) && !tally.succeeded_at_once(CommandKind::Read));
        tally.succeeded(CommandKind::Write, 70_000);
        assert_eq!(tally.latencies().count(), 1);
        tally.settle(30_000);
        tally.settle(1_000_000);
        assert!(tally.succeeded_at_once(CommandKind::Other), "the first of another iteration");
        let all: Vec<_> = tally.latencies().map(|(kind, taken)| (kind, taken.count(), taken.sum())).collect();
        let sum = Duration::from_micros;
        assert_eq!(all, [(CommandKind::Read, 2, sum(60)), (CommandKind::Write, 1, sum(70))]);
    }

    #[test]
    fn sums_are_of_each_length() {
        let (mut both, mut long) = (Latencies::default(), Latencies::default());
        both.add(3, 500);
        long.add(2, 5_000_000);
        both += long;
        assert_eq!((both.count(), both.sum()), (5, Duration::from_nanos(10_001_500)));
        assert_eq!(both.counts().next(), Some((Some(Duration::from_micros(1)), 3)));
    }

    #[test]
    fn failures_are_counted_by_their_code_and_never_more_than_there_is_room_for() {
        let mut tally = Tally::default();
        for status in [Status::WRITE_FAULT, Status::LBA_OUT_OF_RANGE, Status::WRITE_FAULT.do_not_retry()] {
            tally.failed(status);
        }
        let all: Vec<_> = tally.failures().collect();
        assert_eq!(all, [(Status::WRITE_FAULT, 2), (Status::LBA_OUT_OF_RANGE, 1)]);
        (1..0x700).for_each(|code| tally.failed(Status::from_wire(code << 1)));
        assert_eq!(tally.failures().count(), STATUSES);
    }
}
