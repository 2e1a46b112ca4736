//! What a load's core has counted in each interval, on its way to the main thread. Nothing is allocated for one: a few tallies go round.

use crate::{
    Error,
    job::{Job, Phase, Tally},
};
use core::time::Duration;
use frwr_mempool::lane;

/// Tallies of a core: one that counts, one on its way, and one that comes back. Where the main thread is late with all of
/// them, an interval is longer.
const TALLIES: usize = 3;

/// What was counted since the interval before.
#[derive(Debug)]
pub(super) struct Interval {
    /// How many were over when it ended, on the clock of all cores.
    pub(super) number: u64,
    pub(super) tally: Box<Tally>,
}

/// The core's end.
#[derive(Debug)]
pub(super) struct IntervalSource {
    every: Duration,
    /// When the one ends that is counted.
    due: Option<Duration>,
    full: lane::Sender<Interval>,
    empty: lane::Receiver<Box<Tally>>,
}

/// The main thread's end.
#[derive(Debug)]
pub(super) struct IntervalSink {
    full: lane::Receiver<Interval>,
    empty: lane::Sender<Box<Tally>>,
}

/// Both ends, of intervals as long as that, which is not 0.
///
/// # Errors
/// No histogram could be made.
pub(super) fn intervals(every: Duration) -> Result<(IntervalSource, IntervalSink), Error> {
    let (full_source, full_sink) = lane::bounded(TALLIES);
    let (mut empty_sink, empty_source) = lane::bounded(TALLIES);
    for _ in 0..TALLIES {
        let tally = Tally::new().map_err(|error| Error::setup(format!("no latency histogram: {error:?}")))?;
        // There is room for all of them.
        let _ = empty_sink.push(Box::new(tally));
    }
    let source = IntervalSource { every, due: None, full: full_source, empty: empty_source };
    Ok((source, IntervalSink { full: full_sink, empty: empty_sink }))
}

impl IntervalSource {
    /// When the interval ends that is counted.
    pub(super) fn due_at(&self) -> Option<Duration> {
        self.due
    }

    /// To be called in each iteration, in front of the job's poll: an interval that ends with the load is told as well.
    pub(super) fn pass(&mut self, job: &mut Job, now: Duration) {
        let Some(counts) = job.counts_from().filter(|_| job.phase() == Phase::Load) else { return };
        let Some(due) = self.due else {
            if let Some(empty) = self.empty.pop() {
                job.exchange_interval(empty);
                self.due = Some(counts.saturating_add(self.every));
            }
            return;
        };
        if now < due {
            return;
        }
        let Some(empty) = self.empty.pop() else { return };
        // A core that stood still tells of several in one.
        let number = now.saturating_sub(counts).as_nanos() / self.every.as_nanos().max(1);
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        if let Some(tally) = job.exchange_interval(empty) {
            // As much room as there are tallies.
            let _ = self.full.push(Interval { number, tally });
        }
        let next = self.every.as_nanos().saturating_mul(u128::from(number) + 1);
        let next = Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX));
        self.due = Some(counts.saturating_add(next));
    }
}

impl IntervalSink {
    pub(super) fn pop(&mut self) -> Option<Interval> {
        self.full.pop()
    }

    /// What was read of an interval may be counted in again.
    pub(super) fn give_back(&mut self, mut tally: Box<Tally>) {
        tally.clear();
        // It came out of there.
        let _ = self.empty.push(tally);
    }
}
