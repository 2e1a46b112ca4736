//! Whether the cores go on: what the main thread says of one that stands still, and when it waits for such a core no longer.

use super::thread_facts::{state, thread_state};
use crate::Error;
use core::{fmt, time::Duration};
use frwr_reactor::{CoreIndex, CpuId, Pulse, Turn};

/// Between two looks, each of which wakes the main thread: far more than the time after which a core that goes on has counted its
/// iterations for others.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// The same where all sleep, or have ended: nothing stands still, and one that wakes and does is told of half a second
/// later.
const QUIET_PERIOD: Duration = Duration::from_millis(500);
/// What a look counts at most of the time since the one before. The main thread looks more often; where it did not, it stood still
/// itself, and knows nothing of others.
const LONGEST_GAP: Duration = Duration::from_millis(400);
const _: () = assert!(LOOK_PERIOD.as_millis() < LONGEST_GAP.as_millis());
/// A core that stands still for so long is told of: far more than what else runs on its processor may take at a time.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// One that is set up for so long is told of also while it works on that: memory is zeroed and pinned in that time, some gigabytes in a
/// second.
const LONG_SET_UP: Duration = Duration::from_secs(5);
/// How often it is told of then.
const REMINDER: Duration = Duration::from_secs(10);
/// How long the cores may drain at the end: the host's own steps take at most as long.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
/// A core that stands still for so long is given up: as long as cores may drain.
const GIVEN_UP_AFTER: Duration = GRACE;

/// A core that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    core: CoreIndex,
    cpu: Option<CpuId>,
    turn: Turn,
    /// For how long, as far as somebody has looked.
    time: Duration,
}

/// As an error's reason has it.
impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} did not end: {}", Place(self.core, self.cpu), self.what())
    }
}

/// Cores that never poll again, which nobody waits for any longer.
pub(crate) fn left_standing(cores: &[Standing]) -> Error {
    let cores: Vec<_> = cores.iter().map(ToString::to_string).collect();
    Error::standing(format!(
        "{}; what it had in hand is lost, and there is no report; if it happens again, look at its thread while it stands \
         (gdb -p, /proc/PID/task/TID/stack)",
        cores.join("; ")
    ))
}

/// Where a reactor is, for people.
pub(super) struct Place(pub(super) CoreIndex, pub(super) Option<CpuId>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(reactor, Some(cpu)) => write!(f, "core {cpu} (reactor {reactor})"),
            Self(reactor, None) => write!(f, "reactor {reactor} (unpinned)"),
        }
    }
}

/// What becomes of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on.
    GoOn,
    /// These cores are given up: nothing will come of a run that needs them.
    GiveUp(Vec<Standing>),
    /// All others have ended, if they were asked to: only these are waited for.
    Alone(Vec<Standing>),
}

#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    iterations: u64,
    stood: Duration,
    /// When it is told of next, as time that it has stood.
    told_at: Duration,
}

impl Watched {
    fn is_told(&self) -> bool {
        self.told_at > TOLD_AFTER
    }
}

/// Looks at the cores of a run from time to time.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    cores: Vec<Watched>,
    last_look: Option<Duration>,
    next_look: Duration,
}

impl Watchdog {
    /// When it looks next.
    pub(crate) fn due(&self) -> Option<Duration> {
        Some(self.next_look)
    }

    /// Whether a look is due; `now` is time since an epoch of the caller's.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        now >= self.next_look
    }

    /// A core was told of that stands still.
    pub(crate) fn sees_standstill(&self) -> bool {
        self.cores.iter().any(Watched::is_told)
    }

    /// Looks, and says what there is to say.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        pulses: impl Iterator<Item = Pulse>,
        say: &mut dyn FnMut(&str),
    ) -> Verdict {
        let gap = self.last_look.map_or(Duration::ZERO, |last| now.saturating_sub(last).min(LONGEST_GAP));
        let (mut standing, mut others, mut quiet) = (Vec::new(), 0, true);
        for (at, pulse) in pulses.enumerate() {
            if self.cores.len() <= at {
                self.cores.push(Watched { told_at: TOLD_AFTER, ..Watched::default() });
            }
            quiet &= pulse.ended || pulse.turn == Turn::Asleep;
            let time = self.cores[at].observe(&pulse, gap, say);
            match time {
                Some(time) if time >= GIVEN_UP_AFTER => standing.push(Standing::of(&pulse, time)),
                _ => others += usize::from(!pulse.ended),
            }
        }
        let period = if quiet { QUIET_PERIOD } else { LOOK_PERIOD };
        (self.last_look, self.next_look) = (Some(now), now.saturating_add(period));
        match (standing.is_empty(), others) {
            (true, _) => Verdict::GoOn,
            (false, 0) => Verdict::Alone(standing),
            (false, _) => Verdict::GiveUp(standing),
        }
    }
}

impl Watched {
    /// For how long it has stood still, if it does.
    fn observe(&mut self, pulse: &Pulse, gap: Duration, say: &mut dyn FnMut(&str)) -> Option<Duration> {
        let goes_on = pulse.ended || pulse.turn == Turn::Asleep || pulse.iterations != self.iterations;
        self.iterations = pulse.iterations;
        if goes_on {
            // One that has ended does not go on, whatever was told of it before.
            if self.is_told() && !pulse.ended {
                say(&format!("{} goes on after {:.1} s", Place(pulse.core, pulse.cpu), self.stood.as_secs_f64()));
            }
            (self.stood, self.told_at) = (Duration::ZERO, TOLD_AFTER);
            return None;
        }
        self.stood += gap;
        if self.stood >= self.told_at {
            let thread = thread_state(pulse.thread);
            let works = pulse.turn == Turn::SettingUp && thread.is_some_and(|(_, letter)| matches!(letter, 'R' | 'D'));
            if !works || self.stood >= LONG_SET_UP {
                self.told_at = self.stood + REMINDER;
                say(&Standing::of(pulse, self.stood).line(thread));
            }
        }
        Some(self.stood)
    }
}

impl Standing {
    fn of(pulse: &Pulse, time: Duration) -> Self {
        Self { core: pulse.core, cpu: pulse.cpu, turn: pulse.turn, time }
    }

    /// `thread` is its number and the letter of its state.
    fn line(&self, thread: Option<(i32, char)>) -> String {
        let thread = thread.and_then(|(thread, letter)| Some(format!("; its thread {thread} {}", state(letter)?)));
        let how = if self.turn == Turn::SettingUp { "is not ready yet" } else { "stands still" };
        format!("{} {how}: {}{}", Place(self.core, self.cpu), self.what(), thread.unwrap_or_default())
    }

    fn what(&self) -> String {
        let seconds = self.time.as_secs_f64();
        match self.turn {
            Turn::SettingUp => format!("its initialisation has taken {seconds:.1} s"),
            turn => format!("no iteration for {seconds:.1} s, in {turn}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GIVEN_UP_AFTER, LONGEST_GAP, Verdict, Watchdog};
    use core::time::Duration;
    use frwr_reactor::{CoreIndex, CpuId, Pulse, Turn};

    /// The main thread looks as often as this.
    const STEP: u64 = 200;

    fn pulse(core: u16, iterations: u64) -> Pulse {
        let cpu = CpuId::new(usize::from(core) + 4).ok();
        Pulse {
            core: CoreIndex(core),
            cpu,
            thread: 0,
            iterations,
            busy_iterations: 0,
            turn: Turn::Poller("host"),
            probed: false,
            ended: false,
        }
    }

    /// What is said, and decided last, where pulses are as told at these milliseconds.
    fn looked(times: impl Iterator<Item = u64>, pulses: impl Fn(u64) -> Vec<Pulse>) -> (Vec<(u64, String)>, Verdict) {
        let (mut watchdog, mut said, mut verdict) = (Watchdog::default(), Vec::new(), Verdict::GoOn);
        for at in times {
            let now = Duration::from_millis(at);
            if watchdog.is_due(now) {
                verdict = watchdog.look(now, pulses(at).into_iter(), &mut |line| said.push((at, line.to_owned())));
            }
        }
        (said, verdict)
    }

    fn steps(end: u64) -> impl Iterator<Item = u64> {
        (0..=end).step_by(STEP as usize)
    }

    #[test]
    fn a_core_that_stands_still_is_named_while_it_stands_and_again_when_it_goes_on() {
        let stands = |at: u64| (3000..6000).contains(&at);
        let (said, verdict) =
            looked(steps(8000), |at| vec![pulse(0, at), pulse(1, if stands(at) { 3000 } else { at })]);
        let [(named, first), (_, second)] = &said[..] else { panic!("{said:?}") };
        assert!((4000..=4400).contains(named), "within two seconds, and not before one: {said:?}");
        assert_eq!(first, "core 5 (reactor 1) stands still: no iteration for 1.0 s, in poller host");
        assert!(second.starts_with("core 5 (reactor 1) goes on after 2."), "{second}");
        assert_eq!(verdict, Verdict::GoOn);
    }

    #[test]
    fn a_core_that_goes_on_sleeps_or_has_ended_does_not_stand_still() {
        let asleep = Pulse { turn: Turn::Asleep, ..pulse(1, 7) };
        let ended = Pulse { ended: true, ..pulse(2, 7) };
        let (said, verdict) = looked(steps(60_000), |at| vec![pulse(0, at), asleep, ended]);
        assert_eq!((said, verdict), (Vec::new(), Verdict::GoOn));
    }

    #[test]
    fn a_core_that_ends_after_it_stood_still_is_not_said_to_go_on() {
        let (said, verdict) = looked(steps(8000), |at| vec![pulse(0, at), Pulse { ended: at >= 3000, ..pulse(1, 7) }]);
        assert!(matches!(&said[..], [(_, line)] if line.contains(" stands still: ")), "{said:?}");
        assert_eq!(verdict, Verdict::GoOn);
    }

    /// A process that was stopped, or a machine.
    #[test]
    fn time_in_which_nobody_looked_is_no_standstill() {
        let times = [0, 100, 48_000, 48_100, 48_200].into_iter().chain([96_000, 96_100]);
        assert_eq!(looked(times, |at| vec![pulse(0, at / 48_000)]).0, []);
        assert!(LONGEST_GAP < Duration::from_secs(1));
    }

    #[test]
    fn one_that_stands_for_long_is_given_up_and_left_when_it_is_alone() {
        let long = GIVEN_UP_AFTER.as_millis() as u64 + 2 * STEP;
        let with =
            |other: Pulse, end| looked(steps(end), move |at| vec![Pulse { iterations: at, ..other }, pulse(1, 7)]);
        assert_eq!(with(pulse(0, 0), long / 2).1, Verdict::GoOn);
        let (said, verdict) = with(pulse(0, 0), long);
        assert!(said.len() == 1 && matches!(verdict, Verdict::GiveUp(_)), "it is reminded of later: {said:?}");
        let Verdict::Alone(left) = with(Pulse { ended: true, ..pulse(0, 0) }, long).1 else { panic!("it is alone") };
        let [left] = &left[..] else { panic!("{left:?}") };
        let left = left.to_string();
        assert!(left.starts_with("core 5 (reactor 1) did not end: no iteration for 10."), "{left}");
        assert!(left.ends_with(" s, in poller host"), "{left}");
        assert_eq!(with(pulse(0, 0), 25_000).0.len(), 3, "told at 1 s, 11 s and 21 s");
    }
}
