//! What a reactor counts. The owner writes plain integers; [`crate::publish`] copies them out.

use core::time::Duration;

use crate::clock::Now;
use crate::core_set::CpuId;
use crate::inbox::CoreIndex;
use crate::long::LongIterations;

/// The longest of its kind, and when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Longest {
    /// How long it was.
    pub duration: Duration,
    /// When it began, on the reactor's clock.
    pub at: Duration,
}

impl Longest {
    /// From its length and its begin in ticks.
    pub(crate) fn of_ticks((duration, at): (u64, u64), now: &Now) -> Self {
        if duration == 0 {
            return Self::default();
        }
        let at = Duration::from_nanos(now.with_ticks(at).nanoseconds());
        Self { duration: Duration::from_nanos(now.span(duration)), at }
    }

    #[inline]
    pub(crate) fn observe(&mut self, duration: Duration, at: Duration) {
        if duration > self.duration {
            *self = Self { duration, at };
        }
    }
}

/// What one reactor did since it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Statistics {
    /// Which reactor.
    pub core: CoreIndex,
    /// The CPU it is pinned to; `None` is unpinned.
    pub cpu: Option<CpuId>,
    /// Time of these figures.
    pub at: Duration,
    /// Iterations begun.
    pub iterations: u64,
    /// Iterations that found work or messages.
    pub busy_iterations: u64,
    /// Time of iterations that found something.
    pub busy: Duration,
    /// Time of iterations that found nothing.
    pub idle: Duration,
    /// Time asleep; in neither of the two above.
    pub asleep: Duration,
    /// How often it slept, and was woken since, or it is asleep.
    pub sleeps: u64,
    /// Work units of all pollers, removed ones included.
    pub work: u64,
    /// Messages received.
    pub messages: u64,
    /// Sends of this reactor that found a lane full.
    pub would_blocks: u64,
    /// The longest iteration, measured from its timestamp to that of the next.
    pub longest_iteration: Longest,
    /// Iterations that took longer than [`crate::LONG_ITERATION`], whoever took the time: pollers, or what the core did meanwhile.
    pub long_iterations: u64,
    /// The same by cause and length.
    pub long: LongIterations,
    /// Those of them that took longer than [`crate::Options::stall_threshold`].
    pub stalls: u64,
    /// Per poller, in the order of registration.
    pub pollers: Vec<PollerStatistics>,
}

impl Statistics {
    /// Busy share of the time, 0 to 1; 0 before the first iteration ended. Time asleep counts as not busy.
    #[must_use]
    pub fn busy_share(&self) -> f64 {
        self.share(self.busy)
    }

    /// Share of the time that it slept, 0 to 1; 0 before the first iteration ended.
    #[must_use]
    pub fn asleep_share(&self) -> f64 {
        self.share(self.asleep)
    }

    fn share(&self, part: Duration) -> f64 {
        let all = (self.busy + self.idle + self.asleep).as_secs_f64();
        if all > 0.0 { part.as_secs_f64() / all } else { 0.0 }
    }
}

/// What one poller did since it was added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PollerStatistics {
    /// Its name.
    pub name: &'static str,
    /// How often it was polled.
    pub polls: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
    /// Work units it reported.
    pub work: u64,
    /// The longest iteration in which it found work; other pollers may have had their share.
    pub longest_iteration: Longest,
    /// Iterations longer than [`crate::LONG_ITERATION`] in which it found work, whatever else took their time.
    pub long_iterations: u64,
    /// Time spent in it; zero unless [`crate::Options::time_pollers`] is on.
    pub time: Duration,
    /// Its longest poll; zero unless [`crate::Options::time_pollers`] is on.
    pub longest_poll: Longest,
}

/// Counters of the loop itself; times in ticks of its clock while it counts, in nanoseconds where they are shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoopCounters {
    pub(crate) at: u64,
    pub(crate) iterations: u64,
    pub(crate) busy_iterations: u64,
    pub(crate) busy: u64,
    pub(crate) idle: u64,
    pub(crate) asleep: u64,
    pub(crate) sleeps: u64,
    pub(crate) work: u64,
    pub(crate) messages: u64,
    pub(crate) would_blocks: u64,
    pub(crate) longest: u64,
    pub(crate) longest_at: u64,
}

impl LoopCounters {
    /// The same in nanoseconds.
    pub(crate) fn in_nanoseconds(self, now: &Now) -> Self {
        Self {
            at: now.with_ticks(self.at).nanoseconds(),
            busy: now.span(self.busy),
            idle: now.span(self.idle),
            asleep: now.span(self.asleep),
            longest: now.span(self.longest),
            longest_at: if self.longest == 0 { 0 } else { now.with_ticks(self.longest_at).nanoseconds() },
            ..self
        }
    }

    pub(crate) fn with(
        self,
        core: CoreIndex,
        cpu: Option<CpuId>,
        pollers: Vec<PollerStatistics>,
        (long, stalls): (LongIterations, u64),
    ) -> Statistics {
        let (duration, at) = (Duration::from_nanos(self.longest), Duration::from_nanos(self.longest_at));
        Statistics {
            core,
            cpu,
            at: Duration::from_nanos(self.at),
            iterations: self.iterations,
            busy_iterations: self.busy_iterations,
            busy: Duration::from_nanos(self.busy),
            idle: Duration::from_nanos(self.idle),
            asleep: Duration::from_nanos(self.asleep),
            sleeps: self.sleeps,
            work: self.work,
            messages: self.messages,
            would_blocks: self.would_blocks,
            longest_iteration: Longest { duration, at },
            long_iterations: long.total(),
            long,
            stalls,
            pollers,
        }
    }
}
