//! One thread of a reactor from its start to its end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;

use frwr_mempool::lane::Sender;

use crate::astray::whereabouts;
use crate::core_set::CpuId;
use crate::cpu::ThreadId;
use crate::group::Group;
use crate::inbox::{CoreIndex, Outbox};
use crate::launch::LaunchError;
use crate::pin::pin_current_thread;
use crate::reactor::{Context, Reactor};
use crate::running::{Ended, ReactorThread, RunningError, Thread};
use crate::seat::{Frame, Options, Place, Seat};

/// What a thread says once it has its place.
pub(crate) struct Wired<M> {
    pub(crate) member: ReactorThread,
    /// To its inbox, from all.
    pub(crate) senders: Vec<Sender<M>>,
}

/// What a thread reports of one of its steps.
pub(crate) type Report<T, E> = mpsc::Receiver<Result<T, LaunchError<E>>>;

/// A thread that was started: it makes its inbox, gets its lanes to the others, builds its reactor, and waits for the others.
pub(crate) struct Starting<C: Context, E: std::error::Error + 'static> {
    core: CoreIndex,
    pub(crate) thread: Thread<C>,
    pub(crate) wired: Report<Wired<C::Message>, E>,
    pub(crate) lanes: mpsc::SyncSender<Vec<Sender<C::Message>>>,
    pub(crate) ready: Report<(), E>,
    pub(crate) go: mpsc::SyncSender<()>,
}

impl<C, E> Starting<C, E>
where
    C: Context<Message: Send> + Send + 'static,
    E: std::error::Error + Send + 'static,
{
    pub(crate) fn spawn<I>(frame: &Arc<Frame>, core: CoreIndex, place: Place, init: I) -> Result<Self, LaunchError<E>>
    where
        I: FnOnce(Seat<C::Message>, Outbox<C::Message>) -> Result<Reactor<C>, E> + Send + 'static,
    {
        let (report_wired, wired) = mpsc::sync_channel(1);
        let (lanes, own_lanes) = mpsc::sync_channel(1);
        let (report_ready, ready) = mpsc::sync_channel(1);
        let (go, may_go) = mpsc::sync_channel(1);
        let frame = Arc::clone(frame);
        let body = move || {
            let (seat, senders) = done(&report_wired, caught(core, || take_place(&frame, core, place)))?;
            let (group, options) = (Arc::clone(&seat.group), seat.options);
            let member =
                ReactorThread { cpu: place.cpu, thread: ThreadId::current(), published: Arc::clone(&seat.published) };
            report_wired.send(Ok(Wired { member, senders })).ok()?;
            // The launcher drops its ends if another reactor failed.
            let outbox = frame.outbox(core, own_lanes.recv().ok()?);
            let build = || init(seat, outbox).map_err(|source| LaunchError::Init { core, source });
            let reactor = done(&report_ready, caught(core, build))?;
            report_ready.send(Ok(())).ok()?;
            may_go.recv().ok()?;
            Some(run(reactor, place.cpu, &group, options))
        };
        let thread = std::thread::Builder::new().name(format!("frwr-reactor-{core}"));
        let thread = thread.spawn(body).map_err(|source| LaunchError::Thread { core, source })?;
        Ok(Self { core, thread, wired, lanes, ready, go })
    }
}

/// The first step of a new thread: it pins itself, and then makes its seat and the lanes to it, in its own memory.
fn take_place<M, E: std::error::Error + 'static>(
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
fn caught<T, E: std::error::Error + 'static>(
    core: CoreIndex,
    step: impl FnOnce() -> Result<T, LaunchError<E>>,
) -> Result<T, LaunchError<E>> {
    let panicked = |panic: Box<dyn Any + Send>| LaunchError::Panicked { core, message: panic_text(panic.as_ref()) };
    catch_unwind(AssertUnwindSafe(step)).map_err(panicked)?
}

/// What a step brought; an error goes to the launcher.
fn done<T, R, E: std::error::Error + 'static>(
    report: &mpsc::SyncSender<Result<R, LaunchError<E>>>,
    step: Result<T, LaunchError<E>>,
) -> Option<T> {
    // A launcher that is gone needs no error.
    step.map_err(|error| report.send(Err(error))).ok()
}

/// What all threads report of a step, or the first error. Waits for all of them in either case.
pub(crate) fn of_all<C: Context, T, E: std::error::Error + 'static>(
    starting: &[Starting<C, E>],
    report: impl Fn(&Starting<C, E>) -> &Report<T, E>,
) -> Result<Vec<T>, LaunchError<E>> {
    let lost = |core| LaunchError::Panicked { core, message: "its thread ended early".to_owned() };
    let reports: Vec<_> =
        starting.iter().map(|one| report(one).recv().unwrap_or_else(|_| Err(lost(one.core)))).collect();
    reports.into_iter().collect()
}

/// Ends threads that were started: without what they wait for they return, and what they built is gone when this returns.
pub(crate) fn end<C: Context, E: std::error::Error + 'static>(
    starting: Vec<Starting<C, E>>,
    error: LaunchError<E>,
) -> LaunchError<E> {
    let threads: Vec<_> = starting.into_iter().map(|one| one.thread).collect();
    for thread in threads {
        let _ = thread.join();
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
