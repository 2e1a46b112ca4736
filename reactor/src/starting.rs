//! One thread of a reactor from its start to its end.

use core::fmt;
use core::ops::ControlFlow;
use core::time::Duration;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};

use frwr_mempool::lane::Sender;

use crate::astray::whereabouts;
use crate::core_set::CpuId;
use crate::cpu::ThreadId;
use crate::group::{Group, Member};
use crate::inbox::{CoreIndex, Outbox};
use crate::launch_error::LaunchError;
use crate::options::Options;
use crate::pin::pin_current_thread;
use crate::reactor::{Context, Reactor};
use crate::running::{Ended, Pulse, ReactorThread, RunningError, Thread};
use crate::seat::{Frame, Place, Seat};
use crate::turn::Turn;

/// Between two looks of who watches a launch.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// Who watches a launch: see [`crate::Reactors::launch_watched`].
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&[Pulse]) -> ControlFlow<()>;

/// What a thread says once it has its place.
pub(crate) struct Wired<M> {
    pub(crate) member: ReactorThread,
    /// To its inbox, from all.
    pub(crate) senders: Vec<Sender<M>>,
}

/// What a thread reports of one of its steps.
pub(crate) type Report<T, E> = mpsc::Receiver<Result<T, LaunchError<E>>>;

/// A thread that was started: it makes its inbox, gets its lanes to the others, builds its reactor, and waits for the others.
pub(crate) struct Starting<C: Context, E: fmt::Debug + fmt::Display + 'static> {
    core: CoreIndex,
    cpu: Option<CpuId>,
    member: Arc<Member>,
    /// Its number, once it has begun.
    number: Arc<OnceLock<ThreadId>>,
    thread: Thread<C>,
    pub(crate) wired: Report<Wired<C::Message>, E>,
    lanes: mpsc::SyncSender<Vec<Sender<C::Message>>>,
    pub(crate) ready: Report<(), E>,
    go: mpsc::SyncSender<()>,
}

impl<C, E> Starting<C, E>
where
    C: Context<Message: Send> + Send + 'static,
    E: fmt::Debug + fmt::Display + Send + 'static,
{
    pub(crate) fn spawn<I>(frame: &Arc<Frame>, core: CoreIndex, place: Place, init: I) -> Result<Self, LaunchError<E>>
    where
        I: FnOnce(Seat<C::Message>, Outbox<C::Message>) -> Result<Reactor<C>, E> + Send + 'static,
    {
        let (report_wired, wired) = mpsc::sync_channel(1);
        let (lanes, own_lanes) = mpsc::sync_channel(1);
        let (report_ready, ready) = mpsc::sync_channel(1);
        let (go, may_go) = mpsc::sync_channel(1);
        let (member, number) = (frame.member(core), Arc::<OnceLock<_>>::default());
        let (frame, shared, number_of_it) = (Arc::clone(frame), Arc::clone(&member), Arc::clone(&number));
        let body = move || {
            let turn = shared.turn();
            turn.set_setting_up();
            // Set by nobody else.
            let _ = number_of_it.set(ThreadId::current());
            let (seat, senders) = done(&report_wired, caught(core, || take_place(&frame, core, place)))?;
            let (group, options) = (Arc::clone(&seat.group), seat.options);
            let member =
                ReactorThread { cpu: place.cpu, thread: ThreadId::current(), published: Arc::clone(&seat.published) };
            // Whose turn it is then the launcher says, with what is waited for.
            turn.set_asleep();
            report_wired.send(Ok(Wired { member, senders })).ok()?;
            // The launcher drops its ends if another reactor failed.
            let outbox = frame.outbox(core, own_lanes.recv().ok()?);
            let build = || init(seat, outbox).map_err(|error| LaunchError::Init { core, error });
            let reactor = done(&report_ready, caught(core, build))?;
            turn.set_asleep();
            report_ready.send(Ok(())).ok()?;
            may_go.recv().ok()?;
            Some(run(reactor, place.cpu, &group, options))
        };
        let thread = std::thread::Builder::new().name(format!("frwr-reactor-{core}"));
        let thread = thread.spawn(body).map_err(|source| LaunchError::Thread { core, source })?;
        Ok(Self { core, cpu: place.cpu, member, number, thread, wired, lanes, ready, go })
    }
}

impl<C: Context, E: fmt::Debug + fmt::Display + 'static> Starting<C, E> {
    fn pulse(&self) -> Pulse {
        let number = self.number.get();
        // Before it has begun it has no turn.
        let turn = number.map_or(Turn::SettingUp, |_| self.member.turn().get(|_| None));
        let (thread, ended) = (number.map_or(0, |number| number.get()), self.thread.is_finished());
        Pulse { core: self.core, cpu: self.cpu, thread, iterations: 0, busy_iterations: 0, turn, probed: false, ended }
    }

    /// The sending ends of the lanes to all, for a thread that waits for them: it goes on.
    pub(crate) fn give_lanes(&self, lanes: Vec<Sender<C::Message>>) {
        self.member.turn().set_setting_up();
        // Fails only if the thread is gone, which its next report tells.
        let _ = self.lanes.send(lanes);
    }

    /// All are set up: it runs.
    pub(crate) fn release(self) -> Thread<C> {
        self.member.turn().set(None);
        // As above; its join will tell.
        let _ = self.go.send(());
        self.thread
    }

    /// What it waits for will not come: it ends.
    fn let_go(&mut self) {
        (self.lanes, self.go) = (mpsc::sync_channel(1).0, mpsc::sync_channel(1).0);
    }
}

/// The first step of a new thread: it pins itself, and then makes its seat and the lanes to it, in its own memory.
fn take_place<M, E: fmt::Debug + fmt::Display + 'static>(
    frame: &Frame,
    core: CoreIndex,
    place: Place,
) -> Result<Seated<M>, LaunchError<E>> {
    if let Some(cpu) = place.cpu {
        pin_current_thread(cpu).map_err(|source| LaunchError::Pin { core, source })?;
    }
    let (senders, inbox) = frame.lanes();
    Ok((frame.seat(core, place, inbox), senders))
}

/// A seat, and the sending ends of the lanes to it.
type Seated<M> = (Seat<M>, Vec<Sender<M>>);

/// A step of a new thread, whose panic is an error.
fn caught<T, E: fmt::Debug + fmt::Display + 'static>(
    core: CoreIndex,
    step: impl FnOnce() -> Result<T, LaunchError<E>>,
) -> Result<T, LaunchError<E>> {
    let panicked = |panic: Box<dyn Any + Send>| LaunchError::Panicked { core, message: panic_text(panic.as_ref()) };
    catch_unwind(AssertUnwindSafe(step)).map_err(panicked)?
}

/// What a step brought; an error goes to the launcher.
fn done<T, R, E: fmt::Debug + fmt::Display + 'static>(
    report: &mpsc::SyncSender<Result<R, LaunchError<E>>>,
    step: Result<T, LaunchError<E>>,
) -> Option<T> {
    // A launcher that is gone needs no error.
    step.map_err(|error| report.send(Err(error))).ok()
}

/// The next report of one of these threads; `None` if it ended without.
fn next_report<C: Context, T, E: fmt::Debug + fmt::Display + 'static>(
    starting: &[Starting<C, E>],
    report: &Report<T, E>,
    watch: Watch<'_>,
) -> Result<Option<Result<T, LaunchError<E>>>, LaunchError<E>> {
    loop {
        match report.recv_timeout(LOOK_PERIOD) {
            Ok(report) => return Ok(Some(report)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                let pulses: Vec<_> = starting.iter().map(Starting::pulse).collect();
                if watch(&pulses).is_break() {
                    return Err(LaunchError::GivenUp);
                }
            }
        }
    }
}

/// What all threads report of a step, or the first error. Waits for all of them in either case, unless `watch` gives them up.
pub(crate) fn of_all<C: Context, T, E: fmt::Debug + fmt::Display + 'static>(
    starting: &[Starting<C, E>],
    watch: Watch<'_>,
    report: impl Fn(&Starting<C, E>) -> &Report<T, E>,
) -> Result<Vec<T>, LaunchError<E>> {
    let mut reports = Vec::with_capacity(starting.len());
    for one in starting {
        let lost = || LaunchError::Panicked { core: one.core, message: "its thread ended early".to_owned() };
        reports.push(next_report(starting, report(one), watch)?.unwrap_or_else(|| Err(lost())));
    }
    reports.into_iter().collect()
}

/// Ends threads that were started: without what they wait for they return, and what they built is gone when this returns, unless
/// they are given up.
pub(crate) fn end<C: Context, E: fmt::Debug + fmt::Display + 'static>(
    mut starting: Vec<Starting<C, E>>,
    watch: Watch<'_>,
    error: LaunchError<E>,
) -> LaunchError<E> {
    if matches!(error, LaunchError::GivenUp) {
        return error;
    }
    starting.iter_mut().for_each(Starting::let_go);
    for one in &starting {
        // A thread's last report stands open until all that it built is gone.
        loop {
            match next_report(&starting, &one.ready, watch) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(given_up) => return given_up,
            }
        }
    }
    for one in starting {
        let _ = one.thread.join();
    }
    error
}

/// Runs the reactor to its end; a panic ends here.
fn run<C: Context>(mut reactor: Reactor<C>, cpu: Option<CpuId>, group: &Group, options: Options) -> Ended<C> {
    let core = reactor.core();
    let panicked = |poller, panic: Box<dyn Any + Send>| {
        let message = panic_text(panic.as_ref());
        RunningError::Panicked { core, cpu, poller, message }
    };
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| reactor.run())) else {
        // It drops pollers, and messages that are left.
        let ended = catch_unwind(AssertUnwindSafe(|| reactor.finish())).map_err(|panic| panicked(None, panic));
        return ended.map(|mut finished| {
            // Figures are of the CPU that made them.
            finished.report.statistics.cpu = cpu.map(whereabouts);
            finished
        });
    };
    let error = panicked(reactor.running_poller(), panic);
    // What others gathered still leaves, and they need not wait for this one. Flushing and dropping may panic again.
    let _ = catch_unwind(AssertUnwindSafe(|| reactor.flush_after_panic()));
    group.set_drained(core.index(), true);
    group.request_shutdown(options.panic_grace);
    let _ = catch_unwind(AssertUnwindSafe(|| drop(reactor)));
    Err(error)
}

/// The text of a panic, if it has one.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no text").to_owned()
}
