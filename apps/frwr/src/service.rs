//! A program that systemd started: it is told when the program is ready, that it ends, and that its cores go on (sd_notify(3)).
//! Where nobody asks for that (no NOTIFY_SOCKET), nothing is told.

use core::time::Duration;
use frwr_reactor::{Pulse, Turn};
use sd_notify::{NotifyState, notify, watchdog_enabled};

/// Tells of the cores are made in a period of the watchdog: one that is late, or lost, is no end yet.
const TELLS_IN_A_PERIOD: u32 = 3;

/// What is told to the manager of services.
#[derive(Debug)]
pub(crate) struct Service {
    /// Between two tells that the cores go on, where they are wanted.
    period: Option<Duration>,
    /// When the next one is due, as time since an epoch of the caller's.
    next: Duration,
    /// Iterations of each core at the one before.
    iterations: Vec<u64>,
    /// It was told that the program is ready; in front of that nothing is expected.
    is_ready: bool,
    ends: bool,
}

impl Service {
    /// As the environment says.
    pub(crate) fn of_environment() -> Self {
        Self::watched(watchdog_enabled())
    }

    /// WatchdogSec, if there is one.
    fn watched(watchdog: Option<Duration>) -> Self {
        let period = watchdog.map(|watchdog| watchdog / TELLS_IN_A_PERIOD);
        Self { period, next: Duration::ZERO, iterations: Vec::new(), is_ready: false, ends: false }
    }

    /// It does what it is there for; `status` is a line about that.
    pub(crate) fn ready(&mut self, status: &str) {
        self.is_ready = true;
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// It ends, in order. What comes behind the first call changes nothing.
    pub(crate) fn stopping(&mut self) {
        if !core::mem::replace(&mut self.ends, true) {
            tell(&[NotifyState::Stopping]);
        }
    }

    /// Tells that all goes on where that is due, and so: a core that stands still longer than WatchdogSec has the service ended, and
    /// begun again if its unit says so.
    pub(crate) fn look(&mut self, now: Duration, pulses: impl Iterator<Item = Pulse>) {
        if self.is_ready && self.is_due(now) && self.go_on(pulses) {
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// When it is told next that all goes on, where somebody wants to hear it.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.period.filter(|_| self.is_ready).map(|_| self.next)
    }

    fn is_due(&mut self, now: Duration) -> bool {
        let Some(period) = self.period.filter(|_| now >= self.next) else { return false };
        self.next = now.saturating_add(period);
        true
    }

    /// Whether each core has made an iteration since the last time that this was so, sleeps or has ended.
    fn go_on(&mut self, pulses: impl Iterator<Item = Pulse>) -> bool {
        let pulses: Vec<_> = pulses.collect();
        let moves = |(at, pulse): (usize, &Pulse)| {
            pulse.ended || pulse.turn == Turn::Asleep || self.iterations.get(at) != Some(&pulse.iterations)
        };
        let all = pulses.iter().enumerate().all(moves);
        if all {
            self.iterations = pulses.iter().map(|pulse| pulse.iterations).collect();
        }
        all
    }
}

/// Nobody is left to be told where the manager cannot be.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        tracing::debug!("the manager of services cannot be told: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::Service;
    use core::time::Duration;
    use frwr_reactor::{CoreIndex, Pulse, Turn};

    fn pulse(core: u16, iterations: u64) -> Pulse {
        Pulse {
            core: CoreIndex(core),
            cpu: None,
            thread: 0,
            iterations,
            busy_iterations: 0,
            turn: Turn::Poller("target"),
            probed: false,
            ended: false,
        }
    }

    /// Whether it is told that all goes on, at these seconds, of a watchdog of three.
    fn told(seconds: u64, pulses: impl Fn(u64) -> [Pulse; 2]) -> Vec<u64> {
        let mut service = Service::watched(Some(Duration::from_secs(3)));
        let looks = |at: &u64| service.is_due(Duration::from_secs(*at)) && service.go_on(pulses(*at).into_iter());
        (0..seconds).filter(looks).collect()
    }

    #[test]
    fn cores_that_go_on_sleep_or_have_ended_are_told_of() {
        let moving = told(5, |at| [pulse(0, at), pulse(1, at * 7)]);
        assert_eq!(moving, [0, 1, 2, 3, 4]);
        let asleep = told(3, |at| [pulse(0, at), Pulse { turn: Turn::Asleep, ..pulse(1, 7) }]);
        let ended = told(3, |at| [pulse(0, at), Pulse { ended: true, ..pulse(1, 7) }]);
        assert_eq!((asleep, ended), (vec![0, 1, 2], vec![0, 1, 2]));
    }

    #[test]
    fn one_core_that_stands_still_silences_all_until_it_goes_on() {
        let stands = |at: u64| if (2..5).contains(&at) { 2 } else { at };
        assert_eq!(told(7, |at| [pulse(0, at), pulse(1, stands(at))]), [0, 1, 2, 5, 6]);
    }

    #[test]
    fn nothing_is_told_where_nobody_asks() {
        let mut service = Service::watched(None);
        assert!((0..9).all(|at| !service.is_due(Duration::from_secs(at))));
    }
}
