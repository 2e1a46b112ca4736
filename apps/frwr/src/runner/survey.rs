//! Asks the cores of a target what they have done and what they have, and puts their answers together.

use super::{
    orders::{Order, Orders},
    present::TargetSnapshot,
};
use core::time::Duration;
use frwr_engine::control::ControlStatistics;
use frwr_reactor::Statistics as ReactorStatistics;

/// How long cores are waited for that shall hand over their figures: one that goes on takes no time at all, however busy its processor.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Between two rounds: fifty a second cost a core nothing that a measurement shows, however many clients ask and however often.
const ROUND_PERIOD: Duration = Duration::from_millis(20);

/// What all cores had at one time.
#[derive(Clone, Debug)]
pub(super) struct Findings {
    /// When they were asked, since the main thread began.
    pub(super) at: Duration,
    /// Of each core, in their order; one that stands still has not answered.
    pub(super) cores: Vec<Found>,
    pub(super) control: ControlStatistics,
}

/// Of one core.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) snapshot: Option<TargetSnapshot>,
    pub(super) reactor: ReactorStatistics,
}

impl Findings {
    /// Cores that have answered.
    pub(super) fn answered(&self) -> impl Iterator<Item = (&TargetSnapshot, &ReactorStatistics)> {
        self.cores.iter().filter_map(|found| Some((found.snapshot.as_ref()?, &found.reactor)))
    }

    /// Reactors that have not.
    pub(super) fn silent(&self) -> Vec<u16> {
        self.cores.iter().filter(|found| found.snapshot.is_none()).map(|found| found.reactor.core.0).collect()
    }

    /// What the home core said.
    pub(super) fn home(&self) -> Option<&TargetSnapshot> {
        self.cores.first()?.snapshot.as_ref()
    }
}

/// Rounds of questions, one at a time; whoever wants to know something waits for one that begins after that.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The round that was begun last.
    round: u64,
    began: Option<Duration>,
    /// Of the round under way.
    answers: Vec<Option<TargetSnapshot>>,
    /// Somebody wants another one.
    is_wanted: bool,
    under_way: bool,
}

impl Survey {
    /// The round that whoever asks now has to wait for.
    pub(super) fn want(&mut self) -> u64 {
        self.is_wanted = true;
        self.round + 1
    }

    /// Begins a round where that is wanted and due.
    pub(super) fn begin(&mut self, now: Duration, orders: &mut Orders) {
        let is_due = self.began.is_none_or(|began| now >= began.saturating_add(ROUND_PERIOD));
        if self.under_way || !self.is_wanted || !is_due {
            return;
        }
        (self.is_wanted, self.under_way, self.began) = (false, true, Some(now));
        self.round += 1;
        self.answers = vec![None; orders.cores()];
        for core in 0..orders.cores() {
            // One that takes no orders is silent.
            orders.give(core, Order::Report { round: self.round });
        }
    }

    /// A core has answered. What came too late is no answer to the round under way.
    pub(super) fn answered(&mut self, core: usize, round: u64, snapshot: TargetSnapshot) {
        if self.under_way
            && round == self.round
            && let Some(answer) = self.answers.get_mut(core)
        {
            *answer = Some(snapshot);
        }
    }

    /// Ends the round under way when all have answered, or time is up: its number, and what was found.
    pub(super) fn end(
        &mut self,
        now: Duration,
        reactors: impl FnOnce() -> Vec<ReactorStatistics>,
        control: impl FnOnce() -> ControlStatistics,
    ) -> Option<(u64, Findings)> {
        let began = self.began.filter(|_| self.under_way)?;
        if now < began.saturating_add(ANSWER_TIME) && self.answers.iter().any(Option::is_none) {
            return None;
        }
        self.under_way = false;
        let answers = core::mem::take(&mut self.answers).into_iter();
        let cores = answers.zip(reactors()).map(|(snapshot, reactor)| Found { snapshot, reactor }).collect();
        Some((self.round, Findings { at: began, cores, control: control() }))
    }
}
