//! How long a host's core waits for requests in flight when its load is over, or was told to end. All times are those in which it
//! polled.

use super::end_time::{CLOSE_TIME, END_TIME};
use core::time::Duration;

/// Said of requests that have taken longer.
const REMEDY: &str = "and were given up: the namespace cannot be reached, or its target does not answer; `frwr ctl hosts`, `subsystems` and \
                      `waits` of the target say more";

/// Until when it waits where it is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndOfWait {
    /// It was told to end.
    Told,
    /// The load is over, and its requests may take so long.
    Over(Duration),
}

/// What it waits for at the end.
#[derive(Debug)]
pub(super) struct HostEnd {
    /// As long as any request of the load may take: one that ends later would have been given up in the middle of it as well.
    drain_time: Duration,
    told_at: Option<Duration>,
    over_at: Option<Duration>,
    gave_up_at: Option<Duration>,
}

impl HostEnd {
    /// Of a load whose requests may take so long.
    pub(super) fn new(drain_time: Duration) -> Self {
        Self { drain_time, told_at: None, over_at: None, gave_up_at: None }
    }

    /// It was told to end.
    pub(super) fn told(&mut self, now: Duration) {
        self.told_at.get_or_insert(now);
    }

    /// The load is over: no more requests begin.
    pub(super) fn over(&mut self, now: Duration) {
        self.over_at.get_or_insert(now);
    }

    /// Until when requests in flight are waited for, where it is ending.
    pub(super) fn of_wait(&self) -> Option<EndOfWait> {
        let over = || self.over_at.map(|_| EndOfWait::Over(self.drain_time));
        self.told_at.map(|_| EndOfWait::Told).or_else(over)
    }

    /// Why requests in flight are waited for no longer.
    pub(super) fn gives_up(&mut self, now: Duration) -> Option<String> {
        let has_passed = |since: Option<Duration>, time| since.is_some_and(|since| now >= since.saturating_add(time));
        let since = if has_passed(self.told_at, END_TIME) {
            format!("{} s after the run was told to end", END_TIME.as_secs())
        } else if has_passed(self.over_at, self.drain_time) {
            format!("{} s after the load was over, which is as long as one may take", self.drain_time.as_secs())
        } else {
            return None;
        };
        self.gave_up_at.get_or_insert(now);
        Some(format!("requests had not ended {since}, {REMEDY}"))
    }

    /// Its session is waited for no longer either.
    pub(super) fn drops(&self, now: Duration) -> bool {
        let told = self.told_at.map(|at| at.saturating_add(END_TIME));
        told.into_iter().chain(self.gave_up_at).any(|at| now >= at.saturating_add(CLOSE_TIME))
    }
}

#[cfg(test)]
mod tests {
    use super::HostEnd;
    use core::time::Duration;

    const DRAIN_TIME: Duration = Duration::from_secs(30);

    /// At which seconds it gives its requests up, and its session, and what it says of those.
    fn ended(told: Option<u64>, over: Option<u64>) -> Option<(u64, u64, String)> {
        let (mut end, mut said) = (HostEnd::new(DRAIN_TIME), None);
        for second in 0..100 {
            let now = Duration::from_secs(second);
            told.filter(|at| second >= *at).into_iter().for_each(|_| end.told(now));
            over.filter(|at| second >= *at).into_iter().for_each(|_| end.over(now));
            match &said {
                None => said = end.gives_up(now).map(|reason| (second, reason)),
                Some((at, reason)) if end.drops(now) => return Some((*at, second, reason.clone())),
                Some(_) => {}
            }
        }
        None
    }

    #[test]
    fn requests_are_waited_for_as_long_as_one_may_take_and_no_longer_than_who_has_told_it_to_end_waits() {
        for (told, over, expected) in [
            (None, None, None),
            (None, Some(10), Some((40, 41, "requests had not ended 30 s after the load was over"))),
            (Some(10), None, Some((15, 16, "requests had not ended 5 s after the run was told to end"))),
            // What somebody says behind the end counts as well.
            (Some(20), Some(10), Some((25, 26, "requests had not ended 5 s after the run was told to end"))),
            (Some(38), Some(10), Some((40, 41, "requests had not ended 30 s after the load was over"))),
        ] {
            let ended = ended(told, over);
            let same = match (&ended, expected) {
                (Some((at, dropped, reason)), Some((since, then, text))) => {
                    (*at, *dropped) == (since, then) && reason.starts_with(text)
                }
                (ended, expected) => ended.is_none() && expected.is_none(),
            };
            assert!(same, "told at {told:?}, over at {over:?}: {ended:?}");
        }
    }
}
