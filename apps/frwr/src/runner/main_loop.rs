//! The main thread while the cores work: Control, signals, the trace, a line per second.

use super::{
    connect_all::Following,
    cores::Threads,
    idle::{Awaited, Idle},
    incident_log::IncidentLog,
    live_line::{LiveLine, Reading, name},
    load_watch::LoadWatch,
    media_watch::MediaWatch,
    operator::{Operator, Surroundings},
    path_log::PathLog,
    places::Places,
    progress::{Doing, IoCounters, Progress},
    refusals::Refusals,
    served::Served,
    stalls::{Seen, StallWatch},
    trace::Trace,
    watchdog::{GRACE, Verdict, Watchdog, left_standing},
};
use crate::{Error, job::Phase, service::Service, signals::Asked, watch::Lookout};
use core::{mem, time::Duration};
use frwr_engine::provider::Port;
use frwr_reactor::{Clock, Finished, Running, RunningError};

/// How often a trace is looked at: its ring is bounded.
pub(crate) const TRACE_PERIOD: Duration = Duration::from_millis(1);
/// How often is looked whether reactors that shall end have ended, which nobody tells.
const END_PERIOD: Duration = Duration::from_millis(10);
/// Longest wait of a target: that a core found a storage out of order rings nobody, and is told as late.
const LONGEST_WAIT: Duration = Duration::from_millis(550);
/// The same where a job or a load runs: an interval that has ended, or a path that has changed, rings nobody, and its line is as late.
/// Each wait costs two system calls over a device that has descriptors.
pub(crate) const LONGEST_WAIT_OF_JOB: Duration = Duration::from_millis(200);
/// What is due within this time of each other is one wake-up, where the first of it is as far off: periods that drift apart
/// go on together from then on.
const SLACK: Duration = Duration::from_millis(50);

/// Said once.
pub(crate) const GIVEN_UP: &str = "nothing will come of a run that needs a core which stands still: it is ended";
/// Said once.
const BROKEN_STORAGE: &str = "a namespace is out of order: the kernel refuses its io_uring for good, and commands to it \
                              fail; restart, with the backing `thread` if it happens again";

/// What has lines of its own where its intervals are looked at.
const LOADING: Doing = Doing::Job(Phase::Load);

/// What the main thread serves.
pub(super) struct MainLoop<'a, T: Port, H: Port> {
    /// Of a run whose devices stay as they are.
    pub(super) controls: Vec<&'a mut dyn Served>,
    /// Those of a target that serves, with what its cores tell of its peers.
    pub(super) places: &'a mut Places,
    pub(super) threads: &'a Threads<T, H>,
    pub(super) progress: &'a Progress,
    /// What the target's namespaces live in.
    pub(super) media: &'a mut MediaWatch,
    /// What happens to its cores.
    pub(super) lookout: &'a mut Lookout,
    /// What tells of those that stall.
    pub(super) stalls: StallWatch,
    /// What is written of cores that are traced.
    pub(super) traces: &'a mut [Trace],
    /// What looks at the intervals of a load.
    pub(super) load: Option<&'a mut LoadWatch>,
    /// What is said of a load's paths.
    pub(super) paths: PathLog,
    /// Who hears of others.
    pub(super) following: Option<&'a mut Following<H>>,
    /// Who answers and does what somebody asks for, where it serves: then it goes on without a core that stands still for good, and
    /// without a device that fails while another one is left. Without, a line is told.
    pub(super) operator: Option<&'a mut Operator>,
    /// What to say once the target listens.
    pub(super) listening: Option<String>,
    /// When to stop without being told.
    pub(super) stop_at: Option<Duration>,
    /// Whom a program that serves tells that it does.
    pub(super) service: Option<Service>,
}

/// The reactors of a run that is over, or all but over.
///
/// # Errors
/// How it was driven. Where a core has not ended, it and what all the others had is left as it is, and so is to be what it may use
/// beside: see [`leave`].
pub(crate) fn ended<M, C>(
    threads: Running<M, C>,
    driven: Result<(), Error>,
) -> Result<Vec<Result<Finished<C>, RunningError>>, Error> {
    if driven.as_ref().is_err_and(Error::leaves_a_core) {
        mem::forget(threads.abandon());
        driven?;
        return Ok(Vec::new());
    }
    driven?;
    Ok(threads.join())
}

/// The same error. Where it tells of a core that has not ended the devices are not closed: that core may hold a lock of theirs, and
/// they go with the process.
pub(crate) fn leave<T>(error: Error, devices: T) -> Error {
    if error.leaves_a_core() {
        mem::forget(devices);
    }
    error
}

impl<T: Port + Send + 'static, H: Port + Send + 'static> MainLoop<'_, T, H> {
    /// Serves until all reactors have ended.
    ///
    /// # Errors
    /// What a device could not go on with, or a trace that cannot be written.
    pub(super) fn drive(mut self, asked: &dyn Asked, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let clock = Clock::system();
        let began = clock.now();
        let (mut live, mut refusals) = (LiveLine::begin(self.reading(Duration::ZERO)), Refusals::default());
        let (mut stopping, mut ending, mut told) = (false, false, false);
        let mut idle = Idle::new(&self.controls)?;
        self.progress.wakes(&idle.waker());
        self.places.wakes(&idle.waker());
        let mut trouble = None;
        let (mut log, mut watchdog) = (IncidentLog::default(), Watchdog::default());
        while !self.threads.is_finished() {
            let mut work = self.serve().unwrap_or_else(|error| {
                // Nobody takes what is recorded from now on.
                self.traces = &mut [];
                trouble.get_or_insert(error);
                0
            });
            let elapsed = clock.now().saturating_sub(began);
            self.tell_incidents(&mut log, elapsed, say);
            if trouble.is_none() {
                trouble = self.look_for_trouble(say);
                trouble = trouble.or_else(|| self.operator.as_mut()?.trouble());
            }
            if let Some(service) = &mut self.service {
                service.look(elapsed, self.threads.pulses());
            }
            self.stalls.look(&Seen { threads: self.threads, clock: &clock, began }, say);
            if watchdog.is_due(elapsed) {
                match watchdog.look(elapsed, self.threads.pulses(), say) {
                    Verdict::Alone(cores) if ending => {
                        log.finish(say);
                        return Err(left_standing(&cores));
                    }
                    Verdict::Alone(_) | Verdict::GiveUp(_) if self.operator.is_none() && !ending => {
                        ending = true;
                        say(GIVEN_UP);
                        self.threads.shutdown_handle().request(GRACE);
                    }
                    Verdict::GoOn | Verdict::GiveUp(_) | Verdict::Alone(_) => {}
                }
            }
            // It will never hear that it shall stop.
            if stopping && !ending && watchdog.sees_standstill() {
                ending = true;
                self.threads.shutdown_handle().request(GRACE);
            }
            if trouble.is_some() && !ending {
                // The reactors give up what they have, within the time for that.
                ending = true;
                self.threads.shutdown_handle().request(GRACE);
            }
            stopping |= asked.to_stop() || self.stop_at.is_some_and(|at| elapsed >= at);
            if stopping {
                self.progress.stop();
            }
            if stopping || ending {
                self.service.iter_mut().for_each(Service::stopping);
            }
            if self.progress.is_finished() && !ending {
                ending = true;
                self.threads.shutdown_handle().request(GRACE);
            }
            if self.progress.doing() == Doing::Serving
                && let Some(line) = self.listening.take()
            {
                say(&line);
                self.service.iter_mut().for_each(|service| service.ready(&line));
            }
            refusals.tell(self.queue_pairs_kept(), elapsed, say);
            if let Some(following) = &mut self.following {
                work += following.poll(&mut self.paths, say);
            }
            self.paths.tell(self.progress, say);
            self.lookout.pass(elapsed, || self.threads.astray(), say);
            self.media.tell(elapsed, say);
            if !told && self.progress.has_broken_storage() {
                told = true;
                say(BROKEN_STORAGE);
            }
            if asked.to_report() {
                match &mut self.operator {
                    Some(operator) => operator.ask_report(),
                    None => say(&self.so_far(elapsed)),
                }
            }
            if asked.to_reload()
                && let Some(operator) = &mut self.operator
            {
                operator.ask_reload();
            }
            let work = work + self.operate(say);
            if let Some(load) = &mut self.load
                && load.pass(say)
            {
                self.progress.end_load();
            }
            let doing = self.progress.doing();
            if live.is_due(elapsed)
                && let Some(line) = live.next(self.reading(elapsed), doing)
                && !(self.load.is_some() && doing == LOADING)
            {
                say(&line);
            }
            let periods = [live.due(), watchdog.due(), refusals.due(), log.due()];
            let others = self.operator.as_ref().map(|operator| operator.interests()).unwrap_or_default();
            let at_most = self.longest_wait(ending, clock.now().saturating_sub(began), periods);
            let controls = self.controls.iter_mut().map(|control| &mut **control as &mut dyn Served);
            let controls: Vec<_> = controls.chain(self.places.served()).collect();
            idle.pass(work, Awaited { controls: &controls, asked, others, at_most }, || self.progress.arm());
        }
        self.tell_incidents(&mut log, clock.now().saturating_sub(began), say);
        log.finish(say);
        self.paths.tell(self.progress, say);
        self.stalls.finish(say);
        self.media.tell(clock.now().saturating_sub(began), say);
        trouble.map_or(Ok(()), Err)
    }

    /// Until something has its time; `periods` are others of that.
    fn longest_wait(&self, ending: bool, elapsed: Duration, periods: [Option<Duration>; 4]) -> Duration {
        let traced = self.operator.as_ref().is_some_and(|operator| operator.is_traced()) || !self.traces.is_empty();
        let longest = match &self.operator {
            _ if traced => TRACE_PERIOD,
            _ if ending => END_PERIOD,
            Some(operator) => operator.period().into_iter().chain(self.media.period()).min().unwrap_or(LONGEST_WAIT),
            None => LONGEST_WAIT_OF_JOB,
        };
        let own = [
            // Once it is over it is no time that comes.
            self.stop_at.filter(|at| *at > elapsed),
            self.lookout.due(),
            self.media.due(),
            self.stalls.due(),
            self.service.as_ref().and_then(Service::due),
        ];
        wait_until(own.into_iter().chain(periods), elapsed, longest)
    }

    /// What the run cannot go on with. A device that is lost while others go on is told once.
    fn look_for_trouble(&mut self, say: &mut dyn FnMut(&str)) -> Option<Error> {
        if let Some(error) = self.controls.iter().find_map(|control| control.trouble()) {
            return Some(error);
        }
        while let Some(error) = self.places.next_loss() {
            // Before it serves it is not known to be able to.
            if self.listening.is_some() || !self.places.has_serving() {
                return Some(error);
            }
            say(&format!("warning: {error}; its hosts are gone, and the other devices go on"));
            self.operator.iter_mut().for_each(|operator| operator.device_is_gone());
        }
        None
    }

    /// Queue pairs that devices refused to destroy and still have.
    fn queue_pairs_kept(&mut self) -> u64 {
        let of_run: u64 = self.controls.iter().map(|control| control.queue_pairs_kept()).sum();
        of_run + self.places.served().map(|control| control.queue_pairs_kept()).sum::<u64>()
    }

    fn tell_incidents(&mut self, log: &mut IncidentLog, elapsed: Duration, say: &mut dyn FnMut(&str)) {
        while let Some(incident) = self.places.next_incident() {
            if let Some(operator) = &mut self.operator {
                operator.note(self.threads.clock().now(), &incident);
            }
            log.note(elapsed, incident, say);
        }
        log.tick(elapsed, say);
    }

    /// Returns the work done.
    fn serve(&mut self) -> Result<u32, Error> {
        let mut work: u32 = self.controls.iter_mut().map(|control| control.poll()).sum();
        work += self.places.served().map(|control| control.poll()).sum::<u32>();
        for trace in self.traces.iter_mut() {
            work += trace.drain()?;
        }
        Ok(work)
    }

    /// What was moved, also by devices that have left.
    fn io(&self) -> IoCounters {
        self.operator.as_ref().map_or_else(IoCounters::default, |operator| operator.former_io()) + self.progress.io()
    }

    fn reading(&self, at: Duration) -> Reading {
        Reading { at, io: self.io(), cores: self.threads.statistics() }
    }

    /// Who asks is answered. Returns the work done.
    fn operate(&mut self, say: &mut dyn FnMut(&str)) -> u32 {
        let Some(operator) = &mut self.operator else { return 0 };
        let (threads, places, media) = (self.threads, &mut *self.places, &mut *self.media);
        let mut surroundings = Surroundings {
            // What it tells stands beside times of the cores.
            now: threads.clock().now(),
            reactors: &|| threads.statistics(),
            places,
            media,
        };
        operator.turn(&mut surroundings, say)
    }

    /// What somebody is told who asks between.
    fn so_far(&self, elapsed: Duration) -> String {
        let (doing, IoCounters { commands, bytes }) = (name(self.progress.doing()), self.io());
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        format!("{:>4} s  {doing}: {commands} requests ended so far, {mebibytes:.1} MiB moved", elapsed.as_secs())
    }
}

/// How long it is from `now` until it is time for the first of these, and for what follows it closely; `longest` at most.
fn wait_until(due: impl Iterator<Item = Option<Duration>> + Clone, now: Duration, longest: Duration) -> Duration {
    let all = due.flatten().map(|due| due.saturating_sub(now));
    let first = all.clone().min().unwrap_or(longest);
    let slack = if first >= SLACK { SLACK } else { Duration::ZERO };
    let last = all.filter(|due| *due <= first.saturating_add(slack)).max();
    last.unwrap_or(longest).min(longest)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            live_line::Reading,
            medium::{Lives, Medium},
            stalls::Cores,
        },
        Doing, IoCounters, LONGEST_WAIT, LiveLine, MediaWatch, Refusals, StallWatch, Watchdog, wait_until,
    };
    use crate::watch::Patrol;
    use core::time::Duration;
    use frwr_nvmf::{
        storage::{FileMedium, FileOptions},
        wire::Nqn,
    };
    use frwr_reactor::{CoreIndex, Pulse, Stall, Turn};

    /// All cores sleep, and nobody uses them.
    struct Asleep(Duration);

    const PULSE: Pulse = Pulse {
        core: CoreIndex(0),
        cpu: None,
        thread: 0,
        iterations: 1,
        busy_iterations: 1,
        turn: Turn::Asleep,
        probed: false,
        ended: false,
    };

    impl Cores for Asleep {
        fn now(&self) -> Duration {
            self.0
        }

        fn pulses(&self) -> Vec<Pulse> {
            vec![PULSE]
        }

        fn probe(&self, _: CoreIndex) {}

        fn last_stall(&self, _: CoreIndex) -> Option<Stall> {
            None
        }
    }

    /// What a target has to look at by itself while nothing arrives, in a minute that is told it, with looks that take
    /// a while.
    #[test]
    fn the_main_thread_of_a_target_that_sleeps_has_two_wake_ups_in_a_second() {
        const LOOK: Duration = Duration::from_micros(50);
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let (mut media, mut patrol) = (MediaWatch::default(), Patrol::default());
        let medium = FileMedium::open(&FileOptions::new(file.path())).unwrap();
        let subsystem = Nqn::new("nqn.2026-11.invalid.frwr:a").unwrap();
        media.add((subsystem, 1), "one".to_owned(), Lives::Watched(Medium::File(medium)));
        let (mut stalls, mut watchdog) = (StallWatch::new(Some(Duration::from_millis(5))), Watchdog::default());
        let reading = |at| Reading { at, io: IoCounters::default(), cores: Vec::new() };
        let (mut live, mut now, mut looks) = (LiveLine::begin(reading(Duration::ZERO)), Duration::ZERO, 0);
        let mut say = |line: &str| panic!("{line}");
        while now < Duration::from_secs(60) {
            looks += 1;
            stalls.look(&Asleep(now + LOOK), &mut say);
            if watchdog.is_due(now) {
                watchdog.look(now, [PULSE].into_iter(), &mut say);
            }
            patrol.pass(now, Vec::new, &mut say);
            media.tell(now, &mut say);
            if live.is_due(now) {
                assert_eq!(live.next(reading(now), Doing::Serving), None);
            }
            let due = [stalls.due(), watchdog.due(), Some(patrol.due()), media.due(), live.due()];
            now += LOOK;
            now += wait_until(due.into_iter(), now, LONGEST_WAIT);
        }
        assert!((100..=120).contains(&looks), "{looks}");
    }

    /// What is said while two devices keep these numbers of queue pairs, at these milliseconds.
    fn said(course: &[(u64, [u64; 2])]) -> Vec<(u64, String)> {
        let (mut refusals, mut lines) = (Refusals::default(), Vec::new());
        for &(at, kept) in course {
            let line = &mut |line: &str| lines.push((at, line.to_owned()));
            refusals.tell(kept.into_iter().sum(), Duration::from_millis(at), line);
        }
        lines
    }

    #[test]
    fn a_queue_pair_that_is_kept_is_told_of_once_however_long_that_takes() {
        let lines = said(&[(0, [0, 0]), (1, [1, 0]), (2, [1, 0]), (5000, [1, 0]), (6000, [0, 0]), (9000, [0, 0])]);
        let [(at, line)] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(*at, 1, "at once");
        assert!(line.starts_with("the device refuses to destroy 1 queue pair(s) and is asked again; "), "{line}");
        assert!(line.ends_with("ends when the device complies, and its requests with it") && !line.contains('\n'));
        assert_eq!(said(&[(0, [0, 0]), (9000, [0, 0])]), [], "nothing is said of devices that comply");
    }

    #[test]
    fn each_further_queue_pair_is_told_of_also_where_the_one_before_has_gone() {
        let lines = said(&[(0, [1, 0]), (2000, [1, 1]), (4000, [0, 1]), (6000, [0, 0]), (8000, [0, 1])]);
        let of = |count| move |(_, line): &(u64, String)| line.contains(&format!("destroy {count} queue pair(s)"));
        assert_eq!(lines.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 2000, 8000]);
        assert!(of(1)(&lines[0]) && of(2)(&lines[1]) && of(1)(&lines[2]), "{lines:?}");
    }

    #[test]
    fn many_at_a_time_are_told_of_in_a_line_each_second() {
        let course: Vec<_> = (0..3000).map(|at| (at, [at + 1, 0])).collect();
        let lines = said(&course);
        let expected = [(0, 1), (1000, 1001), (2000, 2001)];
        assert_eq!(lines.len(), expected.len(), "{lines:?}");
        for ((at, line), (when, count)) in lines.iter().zip(expected) {
            assert!(*at == when && line.contains(&format!("destroy {count} queue pair(s)")), "{at}: {line}");
        }
        assert_eq!(said(&[(0, [1, 0]), (1, [2, 0]), (2, [0, 0]), (3, [0, 0]), (2000, [0, 0])]).len(), 1, "it has gone");
    }
}
