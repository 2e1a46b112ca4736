//! The line that a person reads while a program runs. All its figures are of the same time: from the line before, or where there was
//! none for a while, from the last look, to now.

use super::progress::{Doing, IoCounters};
use crate::job::Phase;
use core::time::Duration;
use frwr_reactor::Statistics;

/// Between two lines.
const PERIOD: Duration = Duration::from_secs(1);

/// What the counters say at a time of the main thread's.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) at: Duration,
    pub(super) io: IoCounters,
    pub(super) cores: Vec<Statistics>,
}

/// Makes the lines.
#[derive(Debug)]
pub(super) struct LiveLine {
    last: Reading,
}

impl LiveLine {
    /// From now on.
    pub(super) fn begin(reading: Reading) -> Self {
        Self { last: reading }
    }

    /// Whether a period is over.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.due().is_some_and(|due| now >= due)
    }

    /// When the period is.
    pub(super) fn due(&self) -> Option<Duration> {
        Some(self.last.at.saturating_add(PERIOD))
    }

    /// Begins the next period, and returns what there is to say of this one: nothing of a target that nobody uses.
    pub(super) fn next(&mut self, now: Reading, doing: Doing) -> Option<String> {
        let last = core::mem::replace(&mut self.last, now);
        let moved = self.last.io.since(last.io);
        (doing != Doing::Serving || moved.commands > 0).then(|| line(&last, &self.last, doing))
    }
}

fn line(from: &Reading, to: &Reading, doing: Doing) -> String {
    let (moved, seconds) = (to.io.since(from.io), to.at.saturating_sub(from.at).as_secs_f64());
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let busy: Vec<_> = from.cores.iter().zip(&to.cores).map(|(from, to)| busy(from, to)).collect();
    format!(
        "{:>4} s  {:<13} {:>9.0} IOPS {:>9.1} MiB/s  busy {}",
        to.at.as_secs(),
        name(doing),
        rate(moved.commands),
        rate(moved.bytes) / f64::from(1 << 20),
        busy.join(" ")
    )
}

/// The busy share of the time between two readings of a core; nothing of a core that told nothing between.
fn busy(from: &Statistics, to: &Statistics) -> String {
    let passed = |time: fn(&Statistics) -> Duration| time(to).saturating_sub(time(from)).as_secs_f64();
    let busy = passed(|core| core.busy);
    let all = busy + passed(|core| core.idle) + passed(|core| core.asleep);
    if all > 0.0 { format!("{:.0}%", 100.0 * busy / all) } else { "-".to_owned() }
}

/// What the cores do, in a word or two.
pub(super) fn name(doing: Doing) -> &'static str {
    match doing {
        Doing::Connecting => "connecting",
        Doing::Job(Phase::Write) => "writing",
        Doing::Job(Phase::Flush) => "flushing",
        Doing::Job(Phase::Read) => "reading back",
        Doing::Job(Phase::Digest) => "hashing",
        Doing::Job(Phase::Load) => "mixed load",
        Doing::Job(Phase::Drain) => "draining",
        Doing::Job(Phase::Done) => "done",
        Doing::OpeningListener | Doing::CannotListen => "starting",
        Doing::Serving => "serving",
    }
}

#[cfg(test)]
mod tests {
    use super::{Doing, IoCounters, LiveLine, Reading};
    use crate::job::Phase;
    use core::time::Duration;
    use frwr_reactor::{CoreIndex, LongIterations, Longest, Statistics};

    /// Figures of a core that has been busy and idle for so long.
    fn core_figures(busy: u64, idle: u64) -> Statistics {
        Statistics {
            core: CoreIndex(0),
            cpu: None,
            at: Duration::ZERO,
            iterations: 0,
            busy_iterations: 0,
            busy: Duration::from_millis(busy),
            idle: Duration::from_millis(idle),
            asleep: Duration::ZERO,
            sleeps: 0,
            work: 0,
            messages: 0,
            would_blocks: 0,
            longest_iteration: Longest::default(),
            long_iterations: 0,
            long: LongIterations::default(),
            stalls: 0,
            pollers: Vec::new(),
        }
    }

    fn reading(at: u64, commands: u64, bytes: u64, cores: &[(u64, u64)]) -> Reading {
        let cores = cores.iter().map(|&(busy, idle)| core_figures(busy, idle)).collect();
        Reading { at: Duration::from_millis(at), io: IoCounters { commands, bytes }, cores }
    }

    #[test]
    fn all_figures_of_a_line_are_of_the_time_since_the_one_before() {
        let mut live = LiveLine::begin(reading(0, 0, 0, &[(0, 0), (0, 0)]));
        assert!(!live.is_due(Duration::from_millis(999)) && live.is_due(Duration::from_secs(1)));
        let first = live.next(reading(1000, 500, 500 << 17, &[(1000, 0), (0, 0)]), Doing::Serving).unwrap();
        assert_eq!(first, "   1 s  serving             500 IOPS      62.5 MiB/s  busy 100% -");
        // Blocks of another size, flushes that move nothing, and a core that had been busy before.
        let second = live.next(reading(2000, 600, (500 << 17) + (40 << 12), &[(1100, 900), (0, 1000)]), Doing::Serving);
        assert_eq!(second.unwrap(), "   2 s  serving             100 IOPS       0.2 MiB/s  busy 10% 0%");
    }

    /// The machine slept, or somebody stopped the process.
    #[test]
    fn after_a_pause_there_is_one_line_with_what_a_second_had() {
        let mut live = LiveLine::begin(reading(0, 0, 0, &[]));
        let line = live.next(reading(20_000, 4000, 80 << 20, &[]), Doing::Job(Phase::Load)).unwrap();
        assert_eq!(line, "  20 s  mixed load          200 IOPS       4.0 MiB/s  busy ");
        assert!(!live.is_due(Duration::from_millis(20_999)) && live.is_due(Duration::from_secs(21)));
    }

    #[test]
    fn nothing_is_said_of_a_target_that_nobody_uses_and_its_silence_counts_for_no_later_line() {
        let mut live = LiveLine::begin(reading(0, 7, 0, &[]));
        for second in 1..100 {
            assert_eq!(live.next(reading(1000 * second, 7, 0, &[]), Doing::Serving), None);
        }
        let line = live.next(reading(100_000, 107, 0, &[]), Doing::Serving).unwrap();
        assert!(line.contains("      100 IOPS       0.0 MiB/s"), "{line}");
        // A run that does not move is told of.
        assert!(live.next(reading(101_000, 107, 0, &[]), Doing::Connecting).is_some());
    }
}
