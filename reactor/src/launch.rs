//! Starting reactors on pinned threads.

use core::marker::PhantomData;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;

use crate::clock::Clock;
use crate::core_set::CpuId;
use crate::group::Group;
use crate::inbox::{CoreIndex, Outbox};
use crate::pin::{PinError, pin_current_thread};
use crate::placement::{Placement, PlacementError};
use crate::reactor::{Context, Reactor};
use crate::running::{Ended, Running, RunningError, Thread};
use crate::seat::{Options, Seat, Wiring, WiringError};
use crate::topology::Topology;

/// Why reactors did not start. None of them runs then: those that were ready have been taken down.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError<E: std::error::Error + 'static> {
    /// The placement does not fit the machine.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The wiring is out of its limits.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// The system gave no thread.
    #[error("reactor {core}: no thread ({source}); check the process limit (ulimit -u)")]
    Thread {
        /// Which reactor.
        core: CoreIndex,
        /// What the system said.
        source: std::io::Error,
    },
    /// The thread could not be pinned.
    #[error("reactor {core}: {source}")]
    Pin {
        /// Which reactor.
        core: CoreIndex,
        /// Why.
        source: PinError,
    },
    /// The initialisation of one reactor failed.
    #[error("reactor {core}: {source}")]
    Init {
        /// Which reactor.
        core: CoreIndex,
        /// What it returned.
        source: E,
    },
    /// The initialisation of one reactor panicked.
    #[error("reactor {core} panicked while it was set up: {message}")]
    Panicked {
        /// Which reactor.
        core: CoreIndex,
        /// What it said.
        message: String,
    },
}

/// Starts reactors: one thread each, pinned before anything is allocated on it.
#[derive(Clone, Debug)]
pub struct Reactors<M> {
    placement: Placement,
    topology: Option<Topology>,
    clock: Option<Clock>,
    options: Options,
    foreign: usize,
    allow_siblings: bool,
    message: PhantomData<fn(M)>,
}

impl<M: Send + 'static> Reactors<M> {
    /// Reactors that shall be placed so.
    #[must_use]
    pub fn new(placement: Placement) -> Self {
        let options = Options::default();
        Self {
            placement,
            topology: None,
            clock: None,
            options,
            foreign: 0,
            allow_siblings: false,
            message: PhantomData,
        }
    }

    /// The machine, if it was read already; else it is read by [`Self::launch`], with the caller's affinity mask.
    #[must_use]
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// The clock of all reactors; else [`Clock::calibrated`].
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How the reactors behave.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// How many threads that are no reactors get an outbox ([`Running::take_foreign`]).
    #[must_use]
    pub fn foreign(mut self, threads: usize) -> Self {
        self.foreign = threads;
        self
    }

    /// Accepts two reactors on hardware threads of one physical core.
    #[must_use]
    pub fn allow_siblings(mut self, allow: bool) -> Self {
        self.allow_siblings = allow;
        self
    }

    /// Starts them. `prepare` is called here, once per reactor, and returns what that reactor's own pinned thread calls
    /// to build context and pollers, so that memory lands on its node. No reactor polls before all are built.
    ///
    /// All have one type of context; where roles differ it is an enum. `E` is any error that says what it is: a
    /// `Box<dyn Error>` is none, [`std::io::Error::other`] makes one of it.
    pub fn launch<C, E, I>(self, mut prepare: impl FnMut(CoreIndex) -> I) -> Result<Running<M, C>, LaunchError<E>>
    where
        C: Context<Message = M> + Send + 'static,
        E: std::error::Error + Send + 'static,
        I: FnOnce(Seat<M>, Outbox<M>) -> Result<Reactor<C>, E> + Send + 'static,
    {
        let topology = self.topology.unwrap_or_else(Topology::of_machine);
        let seats = self.placement.resolve(&topology, self.allow_siblings)?;
        let places: Vec<_> =
            seats.cores().iter().map(|&cpu| (cpu, cpu.and_then(|cpu| topology.node_of(cpu)))).collect();
        let clock = self.clock.unwrap_or_else(Clock::calibrated);
        let wiring = Wiring::placed(&places, self.foreign, &clock, self.options)?;
        let shutdown = wiring.shutdown;
        let (mut starting, mut members) = (Vec::new(), Vec::new());
        for (seat, outbox) in wiring.seats {
            members.push((seat.cpu(), Arc::clone(&seat.published)));
            let core = seat.core();
            match Starting::spawn(seat, outbox, prepare(core), self.options) {
                Ok(started) => starting.push(started),
                Err(error) => {
                    end(starting);
                    return Err(error);
                }
            }
        }
        let threads = all_ready(starting)?;
        Ok(Running::new(threads, members, wiring.foreign, shutdown))
    }
}

/// A thread that was started: it reports, then waits for all the others.
struct Starting<C, E: std::error::Error + 'static> {
    core: CoreIndex,
    thread: Thread<C>,
    ready: mpsc::Receiver<Result<(), LaunchError<E>>>,
    go: mpsc::SyncSender<()>,
}

impl<C: Context + Send + 'static, E: std::error::Error + Send + 'static> Starting<C, E> {
    fn spawn<I>(
        seat: Seat<C::Message>,
        outbox: Outbox<C::Message>,
        init: I,
        options: Options,
    ) -> Result<Self, LaunchError<E>>
    where
        I: FnOnce(Seat<C::Message>, Outbox<C::Message>) -> Result<Reactor<C>, E> + Send + 'static,
    {
        let core = seat.core();
        let (report, ready) = mpsc::sync_channel(1);
        let (go, may_go) = mpsc::sync_channel(1);
        let body = move || {
            let (cpu, group) = (seat.cpu(), Arc::clone(&seat.group));
            let reactor = match build(seat, outbox, init) {
                Ok(reactor) => reactor,
                Err(error) => {
                    let _ = report.send(Err(error));
                    return None;
                }
            };
            report.send(Ok(())).ok()?;
            // The launcher drops its end if another reactor failed.
            may_go.recv().ok()?;
            Some(run(reactor, cpu, &group, options))
        };
        let thread = std::thread::Builder::new().name(format!("frwr-reactor-{core}"));
        let thread = thread.spawn(body).map_err(|source| LaunchError::Thread { core, source })?;
        Ok(Self { core, thread, ready, go })
    }
}

/// Runs on the new thread: pin first, then build.
fn build<C, E, I>(seat: Seat<C::Message>, outbox: Outbox<C::Message>, init: I) -> Result<Reactor<C>, LaunchError<E>>
where
    C: Context,
    E: std::error::Error + 'static,
    I: FnOnce(Seat<C::Message>, Outbox<C::Message>) -> Result<Reactor<C>, E>,
{
    let core = seat.core();
    if let Some(cpu) = seat.cpu() {
        pin_current_thread(cpu).map_err(|source| LaunchError::Pin { core, source })?;
    }
    match catch_unwind(AssertUnwindSafe(|| init(seat, outbox))) {
        Ok(built) => built.map_err(|source| LaunchError::Init { core, source }),
        Err(panic) => Err(LaunchError::Panicked { core, message: panic_text(panic.as_ref()) }),
    }
}

/// Waits for all threads; lets them go if all are ready, else ends them and returns the first error.
fn all_ready<C, E: std::error::Error + 'static>(
    starting: Vec<Starting<C, E>>,
) -> Result<Vec<Thread<C>>, LaunchError<E>> {
    let mut first_error = None;
    for one in &starting {
        let lost = || LaunchError::Panicked { core: one.core, message: "its thread ended early".to_owned() };
        if let Err(error) = one.ready.recv().unwrap_or_else(|_| Err(lost())) {
            first_error.get_or_insert(error);
        }
    }
    let Some(error) = first_error else {
        // A send fails only if the thread is gone, which its join will tell.
        let release = |one: Starting<C, E>| {
            let _ = one.go.send(());
            one.thread
        };
        return Ok(starting.into_iter().map(release).collect());
    };
    end(starting);
    Err(error)
}

/// Ends threads that were started: without their `go` they return, and what they built is gone when this returns.
fn end<C, E: std::error::Error + 'static>(starting: Vec<Starting<C, E>>) {
    let threads: Vec<_> = starting.into_iter().map(|one| one.thread).collect();
    for thread in threads {
        let _ = thread.join();
    }
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
        return catch_unwind(AssertUnwindSafe(|| reactor.finish())).map_err(|panic| panicked(None, panic));
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
