//! Iterations that take too long, as the main thread sees and tells them: while they last, by asking each core for a sign from time to
//! time, and when they are over, by what the core says of them then. A core that is not asked, or answers, pays nothing for it.

use super::{
    thread_facts::{FactsSince, ThreadFacts},
    watchdog::Place,
};
use core::time::Duration;
use frwr_reactor::{Cause, Clock, CoreIndex, Pulse, Running, Stall, Turn};
use std::{collections::VecDeque, path::Path};

/// Lines in a minute: who has read as many knows enough.
const LINES_PER_MINUTE: usize = 5;
const MINUTE: Duration = Duration::from_secs(60);
/// How often is looked where no core has had anything to do for a while, and how often what the kernel has counted is read: some files for
/// each core.
const SLOW_PERIOD: Duration = Duration::from_millis(100);
/// How often is looked where all sleep: one that wakes and stalls is named within a second.
const QUIET_PERIOD: Duration = Duration::from_millis(500);
/// For how long: who has just come asks again.
const CALM_AFTER: Duration = Duration::from_secs(1);
/// What has stood for so long the watchdog has told of, and tells when it goes on.
const LEFT_TO_WATCHDOG: Duration = Duration::from_secs(1);

/// The cores, as they can be asked.
pub(super) trait Cores {
    /// Time now, since an epoch of the caller's.
    fn now(&self) -> Duration;
    /// As [`frwr_reactor::Running::pulses`].
    fn pulses(&self) -> Vec<Pulse>;
    /// As [`frwr_reactor::Running::probe`].
    fn probe(&self, core: CoreIndex);
    /// As [`frwr_reactor::Running::last_stall`].
    fn last_stall(&self, core: CoreIndex) -> Option<Stall>;
    /// What the kernel says of a thread.
    fn facts(&self, pulse: &Pulse) -> ThreadFacts {
        ThreadFacts::read(Path::new("/"), pulse.thread, pulse.cpu)
    }
}

/// Cores that run.
pub(super) struct Seen<'a, M, C> {
    pub(super) threads: &'a Running<M, C>,
    pub(super) clock: &'a Clock,
    /// The epoch.
    pub(super) began: Duration,
}

impl<M, C> Cores for Seen<'_, M, C> {
    fn now(&self) -> Duration {
        self.clock.now().saturating_sub(self.began)
    }

    fn pulses(&self) -> Vec<Pulse> {
        self.threads.pulses().collect()
    }

    fn probe(&self, core: CoreIndex) {
        self.threads.probe(core);
    }

    fn last_stall(&self, core: CoreIndex) -> Option<Stall> {
        self.threads.last_stall(core)
    }
}

/// Looks at cores from time to time, and tells of those that stall.
#[derive(Debug)]
pub(super) struct StallWatch {
    threshold: Option<Duration>,
    cores: Vec<Watched>,
    next_look: Duration,
    /// When a core was last seen that had found work, or stalled.
    stirred: Duration,
    pace: Pace,
    budget: Budget,
}

/// How often it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// A core has found work, or stalled.
    Alert,
    /// None has for a while.
    Calm,
    /// All sleep.
    Quiet,
}

/// One of them.
#[derive(Debug, Default)]
struct Watched {
    /// When it was asked for the sign that it has not given yet.
    asked: Option<Duration>,
    /// Whose turn it was when the stall was told of that lasts.
    told: Option<Turn>,
    /// Stalls that it has told of.
    over: u64,
    /// Iterations that had found work.
    busy: u64,
    /// What the kernel had counted when it was last seen to go on, and when that was.
    before: Option<(ThreadFacts, Duration)>,
}

impl StallWatch {
    /// Tells of iterations beyond a threshold, if there is one.
    pub(super) fn new(threshold: Option<Duration>) -> Self {
        let (cores, budget) = (Vec::new(), Budget::default());
        Self { threshold, cores, next_look: Duration::ZERO, stirred: Duration::ZERO, pace: Pace::Alert, budget }
    }

    /// When it looks next, if it ever does.
    pub(super) fn due(&self) -> Option<Duration> {
        self.threshold.map(|_| self.next_look)
    }

    fn period(&self, threshold: Duration) -> Duration {
        match self.pace {
            Pace::Alert => threshold.min(SLOW_PERIOD),
            Pace::Calm => SLOW_PERIOD,
            Pace::Quiet => QUIET_PERIOD,
        }
    }

    /// Looks if it is time to, and says what there is to say.
    pub(super) fn look(&mut self, cores: &impl Cores, say: &mut dyn FnMut(&str)) {
        let (Some(threshold), now) = (self.threshold, cores.now()) else { return };
        if now < self.next_look {
            return;
        }
        let pulses = cores.pulses();
        self.cores.resize_with(pulses.len().max(self.cores.len()), Watched::default);
        let mut asleep = true;
        for (watched, pulse) in self.cores.iter_mut().zip(&pulses) {
            asleep &= rests(pulse);
            if watched.stirs(pulse, cores) {
                self.stirred = now;
            }
            watched.look(pulse, now, threshold, cores, &mut self.budget, say);
        }
        self.pace = match now.saturating_sub(self.stirred) >= CALM_AFTER {
            _ if asleep => Pace::Quiet,
            true => Pace::Calm,
            false => Pace::Alert,
        };
        self.next_look = now.saturating_add(self.period(threshold));
    }

    /// What was not told of.
    pub(super) fn finish(&mut self, say: &mut dyn FnMut(&str)) {
        if let Some(more) = self.budget.left_out() {
            say(&format!("stalls: {more}"));
        }
    }
}

/// It is not there to give a sign, or has not begun.
fn rests(pulse: &Pulse) -> bool {
    pulse.ended || pulse.iterations == 0 || matches!(pulse.turn, Turn::Asleep | Turn::SettingUp)
}

impl Watched {
    /// It has found work since the last look, or tells of a stall, or one lasts.
    fn stirs(&mut self, pulse: &Pulse, cores: &impl Cores) -> bool {
        let worked = core::mem::replace(&mut self.busy, pulse.busy_iterations) != pulse.busy_iterations;
        let stalled = cores.last_stall(pulse.core).is_some_and(|stall| stall.number > self.over);
        worked || stalled || self.told.is_some()
    }

    fn look(
        &mut self,
        pulse: &Pulse,
        now: Duration,
        threshold: Duration,
        cores: &impl Cores,
        budget: &mut Budget,
        say: &mut dyn FnMut(&str),
    ) {
        if let Some(stall) = cores.last_stall(pulse.core).filter(|stall| stall.number > self.over) {
            self.is_over(pulse, stall, now, cores, budget, say);
        }
        if rests(pulse) {
            (self.asked, self.told) = (None, None);
        } else if pulse.probed {
            // Since it was asked no iteration has begun; of one that was asked before it slept, since this look.
            let stood = now.saturating_sub(*self.asked.get_or_insert(now));
            if stood >= threshold && self.told.is_none() {
                self.tell_while_it_lasts(pulse, stood, now, cores, budget, say);
            }
        } else {
            self.told = None;
            self.note(pulse, now, cores);
            cores.probe(pulse.core);
            self.asked = Some(cores.now());
        }
    }

    /// It goes on: what the kernel has counted until now.
    fn note(&mut self, pulse: &Pulse, now: Duration, cores: &impl Cores) {
        if self.before.is_none_or(|(_, at)| now.saturating_sub(at) >= SLOW_PERIOD) {
            self.before = Some((cores.facts(pulse), now));
        }
    }

    fn facts(&self, pulse: &Pulse, now: Duration, cores: &impl Cores) -> Option<FactsSince> {
        let (before, at) = self.before?;
        Some(cores.facts(pulse).since(before, now.saturating_sub(at)))
    }

    fn tell_while_it_lasts(
        &mut self,
        pulse: &Pulse,
        stood: Duration,
        now: Duration,
        cores: &impl Cores,
        budget: &mut Budget,
        say: &mut dyn FnMut(&str),
    ) {
        self.told = Some(pulse.turn);
        let Some(more) = budget.line(now) else { return };
        let facts = self.facts(pulse, now, cores);
        let state = facts.and_then(|facts| Some(format!("; its thread {} {}", pulse.thread, facts.state()?)));
        let place = Place(pulse.core, pulse.cpu);
        say(&format!(
            "{place} stalls: no iteration for {} so far, in {}{}{}{more}",
            milliseconds(stood),
            pulse.turn,
            state.unwrap_or_default(),
            facts.map(|facts| format!("; {facts}")).unwrap_or_default(),
        ));
    }

    /// It says that it has stalled.
    fn is_over(
        &mut self,
        pulse: &Pulse,
        stall: Stall,
        now: Duration,
        cores: &impl Cores,
        budget: &mut Budget,
        say: &mut dyn FnMut(&str),
    ) {
        // Between two looks there may have been others, which the last one hides.
        let hidden = stall.number.saturating_sub(self.over).saturating_sub(1);
        self.over = stall.number;
        budget.leave_out(hidden);
        let told = self.told.take();
        if stall.duration >= LEFT_TO_WATCHDOG {
            return;
        }
        // One that was seen while it lasted is counted already.
        let line = if told.is_some() { budget.another_line(now) } else { budget.line(now) };
        let Some(more) = line else { return };
        let turn = told.or(stall.poller.map(Turn::Poller));
        let counted = cores.facts(pulse);
        let before = self.before.replace((counted, now));
        let facts = before.map(|(before, at)| format!("; {}", counted.since(before, now.saturating_sub(at))));
        let facts = facts.unwrap_or_default();
        say(&format!(
            "{} stalled for {}{}: {}{facts}{more}",
            Place(pulse.core, pulse.cpu),
            milliseconds(stall.duration),
            turn.map(|turn| format!(", in {turn}")).unwrap_or_default(),
            in_words(stall.cause),
        ));
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn in_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Switch => "another thread had its processor",
        Cause::PageFault => "memory was not there",
        Cause::Wait => "its thread waited in the kernel, or was stopped",
        Cause::Work => "work",
        Cause::Unknown => {
            "no switch and no page fault (a poller that found nothing, an interrupt, firmware, the hypervisor)"
        }
    }
}

/// What may be said, and what was not said.
#[derive(Debug, Default)]
struct Budget {
    /// When the lines of the last minute were said.
    lines: VecDeque<Duration>,
    left_out: u64,
}

impl Budget {
    /// May a stall be told of that nobody has told of? With what is to be said of those that were not, at the end of its line.
    fn line(&mut self, now: Duration) -> Option<String> {
        let line = self.another_line(now);
        if line.is_none() {
            self.leave_out(1);
        }
        line
    }

    /// The same of one that was told of, or counted, before.
    fn another_line(&mut self, now: Duration) -> Option<String> {
        while self.lines.front().is_some_and(|said| now.saturating_sub(*said) >= MINUTE) {
            self.lines.pop_front();
        }
        if self.lines.len() >= LINES_PER_MINUTE {
            return None;
        }
        self.lines.push_back(now);
        Some(self.left_out().map(|more| format!(" ({more})")).unwrap_or_default())
    }

    fn leave_out(&mut self, stalls: u64) {
        self.left_out = self.left_out.saturating_add(stalls);
    }

    fn left_out(&mut self) -> Option<String> {
        let left_out = core::mem::take(&mut self.left_out);
        (left_out > 0)
            .then(|| format!("{left_out} more were not told of: at most {LINES_PER_MINUTE} lines are said in a minute"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Cores, LINES_PER_MINUTE, QUIET_PERIOD, SLOW_PERIOD, Seen, StallWatch, ThreadFacts};
    use core::{cell::RefCell, convert::Infallible, time::Duration};
    use frwr_reactor::{
        Cause, Clock, Context, CoreIndex, CpuId, Now, Outbox, Placement, Pulse, Reactors, Schedule, Seat, Source,
        Stall, Turn, poll_fn,
    };

    const THRESHOLD: Duration = Duration::from_millis(5);

    /// A core that stands still at times, of which the test says so.
    struct World {
        now: Duration,
        stands: bool,
        turn: Turn,
        ended: bool,
        /// Iterations that found work.
        busy: u64,
        probed: RefCell<bool>,
        stall: Option<Stall>,
    }

    impl World {
        fn new() -> Self {
            let (now, turn) = (Duration::ZERO, Turn::Poller("target"));
            Self { now, stands: false, turn, ended: false, busy: 1, probed: RefCell::new(false), stall: None }
        }

        /// One that is over, of which so many were before.
        fn stalled(&mut self, number: u64, milliseconds: u64, poller: Option<&'static str>) {
            let duration = Duration::from_millis(milliseconds);
            let (cause, counts) = (Cause::Switch, (0, 1, 0));
            let (page_faults, involuntary_switches, voluntary_switches) = counts;
            let began = self.now.saturating_sub(duration);
            self.stall = Some(Stall {
                number,
                began,
                duration,
                cause,
                poller,
                page_faults,
                involuntary_switches,
                voluntary_switches,
            });
        }
    }

    impl Cores for World {
        fn now(&self) -> Duration {
            self.now
        }

        fn pulses(&self) -> Vec<Pulse> {
            if !self.stands {
                self.probed.replace(false);
            }
            let (probed, turn, ended) = (*self.probed.borrow(), self.turn, self.ended);
            let (core, cpu, busy_iterations) = (CoreIndex(1), CpuId::new(4).ok(), self.busy);
            vec![Pulse { core, cpu, thread: 77, iterations: 1, busy_iterations, turn, probed, ended }]
        }

        fn probe(&self, _: CoreIndex) {
            self.probed.replace(true);
        }

        fn last_stall(&self, _: CoreIndex) -> Option<Stall> {
            self.stall
        }

        fn facts(&self, _: &Pulse) -> ThreadFacts {
            ThreadFacts::default()
        }
    }

    /// Until the next look, behind one.
    fn period(watch: &StallWatch) -> Duration {
        watch.period(THRESHOLD)
    }

    /// Looks each millisecond until then, in milliseconds.
    fn look(watch: &mut StallWatch, world: &mut World, until: u64) -> Vec<(u64, String)> {
        let mut said = Vec::new();
        while world.now < Duration::from_millis(until) {
            world.now += Duration::from_millis(1);
            let at = world.now.as_millis() as u64;
            watch.look(world, &mut |line| said.push((at, line.to_owned())));
        }
        said
    }

    #[test]
    fn a_stall_is_told_of_once_while_it_lasts_and_with_its_length_when_it_is_over() {
        let (mut watch, mut world) = (StallWatch::new(Some(THRESHOLD)), World::new());
        assert_eq!(look(&mut watch, &mut world, 200), []);
        world.stands = true;
        let said = look(&mut watch, &mut world, 230);
        let [(at, line)] = &said[..] else { panic!("{said:?}") };
        assert!(*at <= 200 + 2 * THRESHOLD.as_millis() as u64 + 1, "after two looks at most: {said:?}");
        assert!(
            line.starts_with("core 4 (reactor 1) stalls: no iteration for 5.0 ms so far, in poller target;"),
            "{line}"
        );
        assert!(line.contains("; in the last ") && line.contains(" stolen from that"), "{line}");
        world.stands = false;
        world.stalled(1, 30, None);
        let said = look(&mut watch, &mut world, 400);
        let [(_, line)] = &said[..] else { panic!("{said:?}") };
        let told =
            "core 4 (reactor 1) stalled for 30.0 ms, in poller target: another thread had its processor; in the last ";
        assert!(line.starts_with(told), "{line}");
    }

    #[test]
    fn one_that_nobody_saw_is_told_of_when_it_is_over() {
        for (poller, whose) in [(Some("host"), ", in poller host"), (None, "")] {
            let (mut watch, mut world) = (StallWatch::new(Some(THRESHOLD)), World::new());
            look(&mut watch, &mut world, 100);
            world.stalled(1, 6, poller);
            let said = look(&mut watch, &mut world, 200);
            let [(_, line)] = &said[..] else { panic!("{said:?}") };
            assert!(line.starts_with(&format!("core 4 (reactor 1) stalled for 6.0 ms{whose}: ")), "{line}");
            // The next one is told with what the kernel counted since, however soon it comes.
            world.stalled(2, 6, poller);
            let next = look(&mut watch, &mut world, 210);
            assert!(next.len() == 1 && next[0].1.contains("; in the last "), "{next:?}");
        }
    }

    #[test]
    fn five_lines_are_said_in_a_minute_and_what_is_left_out_is_counted() {
        let (mut watch, mut world) = (StallWatch::new(Some(THRESHOLD)), World::new());
        let mut lines = 0;
        for number in 1..=20 {
            world.stalled(number, 6, None);
            lines += look(&mut watch, &mut world, number * 1000).len();
        }
        assert_eq!(lines, LINES_PER_MINUTE);
        // Two more at once, of which the first is hidden, when there is room again.
        look(&mut watch, &mut world, 100_000);
        world.stalled(22, 6, None);
        let said = look(&mut watch, &mut world, 101_000);
        let [(_, line)] = &said[..] else { panic!("{said:?}") };
        assert!(line.contains(" (16 more were not told of: "), "{line}");
        watch.finish(&mut |line| panic!("{line}"));
        for number in 23..=28 {
            world.stalled(number, 6, None);
            look(&mut watch, &mut world, 101_000 + number * 10);
        }
        let mut said = Vec::new();
        watch.finish(&mut |line| said.push(line.to_owned()));
        assert!(said.len() == 1 && said[0].starts_with("stalls: 2 more "), "{said:?}");
    }

    #[test]
    fn a_core_that_sleeps_or_has_ended_is_left_alone_and_looked_at_rarely() {
        let (mut watch, mut world) = (StallWatch::new(Some(THRESHOLD)), World::new());
        look(&mut watch, &mut world, 100);
        assert_eq!(period(&watch), THRESHOLD);
        (world.turn, world.stands) = (Turn::Asleep, true);
        assert_eq!((look(&mut watch, &mut world, 2000), period(&watch)), (vec![], QUIET_PERIOD));
        (world.turn, world.ended) = (Turn::Loop, true);
        assert_eq!((look(&mut watch, &mut world, 4000), period(&watch)), (vec![], QUIET_PERIOD));
        (world.turn, world.ended) = (Turn::Loop, false);
        assert_eq!(look(&mut watch, &mut world, 5000).len(), 1, "it is awake again, and stands still");
    }

    /// A look is a wake-up of the main thread, and a full iteration of each core.
    #[test]
    fn cores_that_have_nothing_to_do_are_looked_at_rarely_and_told_of_all_the_same() {
        let (mut watch, mut world) = (StallWatch::new(Some(THRESHOLD)), World::new());
        look(&mut watch, &mut world, 500);
        assert_eq!(period(&watch), THRESHOLD);
        look(&mut watch, &mut world, 2000);
        assert_eq!(period(&watch), SLOW_PERIOD);
        world.stands = true;
        let (at, _) = look(&mut watch, &mut world, 2500)[0];
        assert!(at <= 2000 + 2 * SLOW_PERIOD.as_millis() as u64 + 1, "within two looks: {at}");
        assert_eq!(period(&watch), THRESHOLD, "while it stands");
        world.stands = false;
        look(&mut watch, &mut world, 5000);
        assert_eq!(period(&watch), SLOW_PERIOD);
        world.busy += 1;
        look(&mut watch, &mut world, 5101);
        assert_eq!(period(&watch), THRESHOLD);
        look(&mut watch, &mut world, 7000);
        world.stalled(1, 6, None);
        assert_eq!(look(&mut watch, &mut world, 7101).len(), 1);
        assert_eq!(period(&watch), THRESHOLD, "another one is told of while it lasts");
    }

    #[test]
    fn nobody_is_told_of_where_there_is_no_threshold_and_what_takes_a_second_is_the_watchdogs() {
        let (mut watch, mut world) = (StallWatch::new(None), World::new());
        world.stalled(1, 600, None);
        assert_eq!((look(&mut watch, &mut world, 1000), watch.due()), (vec![], None));
        let mut watch = StallWatch::new(Some(THRESHOLD));
        world.stalled(2, 1000, None);
        assert_eq!(look(&mut watch, &mut world, 2000), []);
    }

    struct Nothing;

    impl Context for Nothing {
        type Message = ();

        fn message(&mut self, _: Source, (): (), _: &Now) {}
    }

    /// A poller that is busy for 30 ms from time to time, beside one that is not.
    #[test]
    fn a_poller_that_is_busy_for_long_is_named_while_it_is() {
        const BUSY: Duration = Duration::from_millis(30);
        let clock = Clock::system();
        let slow = {
            let (clock, mut next) = (clock.clone(), Duration::ZERO);
            move |_: &mut Nothing, _: &Now| {
                let began = clock.now();
                if began >= next {
                    while clock.now() < began + BUSY {}
                    next = clock.now() + BUSY;
                }
                0
            }
        };
        let init = |_: CoreIndex| {
            let slow = slow.clone();
            move |seat: Seat<()>, _: Outbox<()>| {
                let mut reactor = seat.reactor(Nothing);
                reactor.add("quick", Schedule::Busy, poll_fn(|_: &mut Nothing, _: &Now| 0)).unwrap();
                reactor.add("slow", Schedule::Busy, poll_fn(slow)).unwrap();
                Ok::<_, Infallible>(reactor)
            }
        };
        let running = Reactors::<()>::new(Placement::Unpinned { reactors: 1 }).launch(init).unwrap();
        let (mut watch, cores) =
            (StallWatch::new(Some(THRESHOLD)), Seen { threads: &running, clock: &clock, began: Duration::ZERO });
        let mut named = false;
        while !named {
            // What else it says is of a machine that is not quiet.
            watch.look(&cores, &mut |line| {
                named |= line.starts_with("reactor 0 (unpinned) stalls: no iteration for ")
                    && line.contains(" so far, in poller slow; its thread ");
            });
            // Nobody reads these: the next one is not kept back.
            watch.budget = super::Budget::default();
            std::thread::yield_now();
        }
        assert!(running.shutdown(Duration::ZERO).into_iter().all(|ended| ended.is_ok()));
    }
}
