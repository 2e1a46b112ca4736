//! When the main thread waits, and for how long: only where nothing was found, and behind one more look at everything.

use super::{
    alarm::{Alarm, Woken},
    served::Served,
};
use crate::{Error, signals::Asked};
use core::{task::Waker, time::Duration};
use rustix::event::{PollFd, PollFlags};

/// First wait behind something that was found: more of it is close, and some of what cores say rings nobody.
const FIRST_WAIT: Duration = Duration::from_micros(200);
/// Longest wait where something is told of neither by a descriptor nor by a ring, as by a device that is only polled:
/// forty wake-ups in a second are some half percent of a core.
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// What the main thread looks for.
pub(crate) struct Awaited<'a, 'c> {
    /// Whom cores ask for something slow.
    pub(crate) controls: &'a [&'c mut dyn Served],
    /// Signals.
    pub(crate) asked: &'a dyn Asked,
    /// Who else says something, as the control socket's clients.
    pub(crate) others: Vec<PollFd<'a>>,
    /// Until the next thing that has its time.
    pub(crate) at_most: Duration,
}

/// Where the main thread waits when there is nothing to do.
#[derive(Debug)]
pub(crate) struct Idle {
    alarm: Alarm,
    pace: Pace,
}

impl Idle {
    /// Of a main thread that serves these.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new(controls: &[&mut dyn Served]) -> Result<Self, Error> {
        let alarm = Alarm::new()?;
        controls.iter().for_each(|control| control.wakes(&alarm.waker()));
        Ok(Self { alarm, pace: Pace::new() })
    }

    /// Rung by whoever else has something for it.
    pub(crate) fn waker(&self) -> Waker {
        self.alarm.waker()
    }

    /// Behind a look at everything that found so much work. Waits, unless something was found, or may have come since:
    /// `arm` has all that ring do so from now on.
    pub(crate) fn pass(&mut self, work: u32, awaited: Awaited<'_, '_>, arm: impl FnOnce()) {
        let Awaited { controls, asked, mut others, at_most } = awaited;
        match self.pace.next(work, at_most) {
            Next::Look => {}
            Next::Arm => {
                arm();
                let mut all_tell = asked.descriptor().is_some();
                controls.iter().for_each(|control| all_tell &= control.arm());
                self.pace.armed(all_tell);
            }
            Next::Wait { time, by_time } => {
                let of_devices = controls.iter().flat_map(|control| control.descriptors());
                others.extend(of_devices.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)));
                if by_time {
                    others.clear();
                }
                self.pace.waited(self.alarm.wait(asked.descriptor(), others, time));
            }
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Look again: there may be more.
    Look,
    /// Have all that ring do so from now on, and look once more.
    Arm,
    /// Wait for so long at most.
    Wait {
        time: Duration,
        /// And for no descriptors of others.
        by_time: bool,
    },
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Looking,
    Armed {
        /// All that may come rings, or has a descriptor.
        all: bool,
    },
}

/// Decides between looking and waiting.
#[derive(Debug)]
struct Pace {
    state: State,
    /// The next wait. Each is twice as long as the one before.
    wait: Duration,
    /// A descriptor was ready, and nothing has come of it yet: such a one, as a listener where no file is left, would
    /// end each wait.
    in_vain: bool,
}

impl Pace {
    const fn new() -> Self {
        Self { state: State::Looking, wait: FIRST_WAIT, in_vain: false }
    }

    fn next(&mut self, work: u32, at_most: Duration) -> Next {
        if work > 0 {
            *self = Self::new();
            return Next::Look;
        }
        let State::Armed { all } = self.state else { return Next::Arm };
        let longest = if all && !self.in_vain { at_most } else { at_most.min(LONGEST_PAUSE) };
        let time = self.wait.min(longest);
        self.wait = time.saturating_mul(2).max(self.wait);
        Next::Wait { time, by_time: self.in_vain }
    }

    fn armed(&mut self, all: bool) {
        self.state = State::Armed { all };
    }

    /// What would have rung still does where nothing has: one look more is enough, unless more than that is looked for.
    fn waited(&mut self, woken: Woken) {
        self.in_vain = woken == Woken::OthersReady;
        if woken != Woken::TimeOver || self.state != (State::Armed { all: true }) {
            self.state = State::Looking;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_WAIT, LONGEST_PAUSE, Next, Pace, Woken};
    use core::time::Duration;

    const LONG: Duration = Duration::from_millis(500);

    /// Nothing is found, and all that may come is told or not: how long it waits, for what, until that ends it.
    fn wait(pace: &mut Pace, at_most: Duration, told: bool, woken: Woken) -> (Duration, bool) {
        assert_eq!(pace.next(0, at_most), Next::Arm);
        pace.armed(told);
        let Next::Wait { time, by_time } = pace.next(0, at_most) else { panic!("it had been armed: {pace:?}") };
        pace.waited(woken);
        (time, by_time)
    }

    fn waits(at_most: Duration, told: bool) -> Vec<Duration> {
        let mut pace = Pace::new();
        (0..20).map(|_| wait(&mut pace, at_most, told, Woken::Rung).0).collect()
    }

    #[test]
    fn waits_grow_to_the_next_thing_that_has_its_time() {
        let all = waits(LONG, true);
        assert_eq!(all[..3], [1, 2, 4].map(|factor| FIRST_WAIT * factor));
        assert!(all.is_sorted() && all.last() == Some(&LONG), "{all:?}");
        assert_eq!(waits(Duration::from_millis(5), true).last(), Some(&Duration::from_millis(5)));
    }

    #[test]
    fn what_nobody_tells_of_is_looked_for_more_often() {
        assert_eq!(waits(LONG, false).last(), Some(&LONGEST_PAUSE));
    }

    #[test]
    fn what_comes_between_arming_and_the_wait_is_found_by_one_more_look() {
        let mut pace = Pace::new();
        assert_eq!(pace.next(0, LONG), Next::Arm);
        pace.armed(true);
        assert_eq!((pace.next(1, LONG), pace.next(0, LONG)), (Next::Look, Next::Arm));
    }

    #[test]
    fn behind_a_time_that_was_over_one_look_is_enough_where_all_that_may_come_is_told() {
        let mut pace = Pace::new();
        wait(&mut pace, LONG, true, Woken::TimeOver);
        for _ in 0..2 {
            assert!(matches!(pace.next(0, LONG), Next::Wait { by_time: false, .. }), "it rings as before: {pace:?}");
            pace.waited(Woken::TimeOver);
        }
        // What was found, or rang, is followed by more of it.
        assert_eq!((pace.next(1, LONG), pace.next(0, LONG)), (Next::Look, Next::Arm));
        let mut pace = Pace::new();
        wait(&mut pace, LONG, false, Woken::TimeOver);
        assert_eq!(pace.next(0, LONG), Next::Arm, "by now all may be told");
    }

    #[test]
    fn a_descriptor_that_cries_wolf_ends_every_other_wait_at_most() {
        let mut pace = Pace::new();
        for in_vain in [false, true, false, true] {
            // What rang has it armed again; behind a time that was over it is.
            if pace.next(0, LONG) == Next::Arm {
                pace.armed(true);
            }
            let Next::Wait { time, by_time } = pace.next(0, LONG) else { panic!("{pace:?}") };
            assert!(by_time == in_vain && (!in_vain || time <= LONGEST_PAUSE));
            pace.waited(if by_time { Woken::TimeOver } else { Woken::OthersReady });
        }
        // What came of it is no cry.
        pace.waited(Woken::OthersReady);
        assert_eq!(pace.next(1, LONG), Next::Look);
        assert_eq!(wait(&mut pace, LONG, true, Woken::Rung), (FIRST_WAIT, false));
    }
}
