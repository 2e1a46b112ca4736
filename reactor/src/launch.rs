//! Starting reactors on pinned threads.

use core::fmt;
use core::marker::PhantomData;
use core::ops::ControlFlow;
use std::sync::Arc;

use crate::clock::Clock;
use crate::inbox::{CoreIndex, Outbox};
use crate::launch_error::LaunchError;
use crate::options::Options;
use crate::placement::Placement;
use crate::reactor::{Context, Reactor};
use crate::running::{Pulse, Running};
use crate::seat::{Frame, Place, Seat, by_sender};
use crate::starting::{Starting, end, of_all};
use crate::text;
use crate::topology::Topology;

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

    /// Starts them. `prepare` is called here, once per reactor and before there is any thread, and returns what that
    /// reactor's own pinned thread calls to build context and pollers, so that memory lands on its node, as the lanes to it
    /// do. No reactor polls before all are built. A panic of `prepare` is the caller's.
    ///
    /// All have one type of context; where roles differ it is an enum. `E` is any error, a
    /// `Box<dyn Error + Send + Sync>` among them.
    ///
    /// Behind the initialisations the pages of the program and of its libraries are mapped, so that no piece of code is a page
    /// fault where a core runs it first (madvise(2), MADV_POPULATE_READ; before Linux 5.14 they are mapped as they are touched).
    ///
    /// Waits for each initialisation, however long it takes: see [`Self::launch_watched`].
    pub fn launch<C, E, I>(self, prepare: impl FnMut(CoreIndex) -> I) -> Result<Running<M, C>, LaunchError<E>>
    where
        C: Context<Message = M> + Send + 'static,
        E: fmt::Debug + fmt::Display + Send + 'static,
        I: FnOnce(Seat<M>, Outbox<M>) -> Result<Reactor<C>, E> + Send + 'static,
    {
        self.launch_watched(prepare, |_| ControlFlow::Continue(()))
    }

    /// As [`Self::launch`], and asks `watch` some twenty times a second whether it shall go on waiting, while it waits for
    /// initialisations: it is told in whose turn each reactor is, which is [`crate::Turn::SettingUp`] for those that are waited for.
    /// To pin memory takes seconds for some ten gigabytes, so that one that takes long need not stand still.
    pub fn launch_watched<C, E, I>(
        self,
        prepare: impl FnMut(CoreIndex) -> I,
        mut watch: impl FnMut(&[Pulse]) -> ControlFlow<()>,
    ) -> Result<Running<M, C>, LaunchError<E>>
    where
        C: Context<Message = M> + Send + 'static,
        E: fmt::Debug + fmt::Display + Send + 'static,
        I: FnOnce(Seat<M>, Outbox<M>) -> Result<Reactor<C>, E> + Send + 'static,
    {
        let topology = self.topology.unwrap_or_else(Topology::of_machine);
        let seats = self.placement.resolve(&topology, self.allow_siblings)?;
        let places = seats.cores().iter().map(|&cpu| Place { cpu, node: cpu.and_then(|cpu| topology.node_of(cpu)) });
        let clock = self.clock.unwrap_or_else(Clock::calibrated);
        let frame = Arc::new(Frame::new(places.len(), self.foreign, clock, self.options)?);
        // What `prepare` holds is gone with this line, too: no thread can wait for its end.
        let inits: Vec<I> = frame.cores().map(prepare).collect();
        let mut starting = Vec::with_capacity(places.len());
        for ((core, place), init) in frame.cores().zip(places).zip(inits) {
            match Starting::spawn(&frame, core, place, init) {
                Ok(started) => starting.push(started),
                Err(error) => return Err(end(starting, &mut watch, error)),
            }
        }
        let wired = match of_all(&starting, &mut watch, |one| &one.wired) {
            Ok(wired) => wired,
            Err(error) => return Err(end(starting, &mut watch, error)),
        };
        let (members, senders): (Vec<_>, Vec<_>) = wired.into_iter().map(|one| (one.member, one.senders)).unzip();
        let mut lanes = by_sender(senders).into_iter();
        for (one, lanes) in starting.iter().zip(lanes.by_ref()) {
            one.give_lanes(lanes);
        }
        let foreign = frame.foreign_outboxes(lanes);
        if let Err(error) = of_all(&starting, &mut watch, |one| &one.ready) {
            return Err(end(starting, &mut watch, error));
        }
        // Behind the initialisations, which may have loaded libraries.
        text::populate();
        Ok(Running::new(
            starting.into_iter().map(Starting::release).collect(),
            members,
            foreign,
            frame.shutdown_handle(),
            frame.clock().clone(),
        ))
    }
}
