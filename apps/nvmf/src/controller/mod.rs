//! An NVMe-oF target, of one core or of several (see [`MAX_CORES`]): it listens, and serves namespaces to hosts over `frwr-engine`.
//!
//! Poll-style, with time as an argument: it never reads a clock, never blocks and never allocates once it was made. A
//! command that finds no place in the storage or no transfer slot waits in order, one that finds no data buffer in order with those
//! of its namespace; nothing is dropped.

mod admin;
mod admission;
mod blocks;
mod buffers;
mod command;
mod commit;
mod connect;
mod controllers;
mod ending;
mod event;
mod features;
mod identifiers;
mod identify;
mod incident;
mod io;
mod late;
mod log;
mod medium;
mod options;
#[cfg(feature = "reactor")]
mod poller;
mod receive;
mod refusal;
mod session;
mod silence;
mod spread;
mod statistics;
mod subsystem;
mod table;
mod waiting;

pub use admin::NamespaceError;
pub use incident::{Breach, Fault, Incident, MAX_INCIDENTS};
pub use options::{
    ADMIN_QUEUE_ENTRIES, MAX_BUFFER_BYTES, MAX_CONNECTIONS, MAX_DATA_BLOCKS, MAX_IN_CAPSULE_BYTES, MAX_IO_QUEUES,
    MAX_QUEUE_ENTRIES, MIN_BUFFER_BYTES, OptionError, TargetOptions, UNPROVEN_CONNECTIONS,
};
#[cfg(feature = "reactor")]
pub use poller::{TargetContext, TargetPoller};
pub use refusal::{Offered, Refusal, Rejection};
pub use spread::{HOME_CORE, MAX_CORES, TargetMessage, place_queues};
pub use statistics::{TargetListening, TargetStatistics};
pub use subsystem::{AllowedHosts, Subsystem};

use crate::storage::{AttachError, CompletionBatch, Storage};
use crate::wire::{AnaState, DISCOVERY_SUBSYSTEM};
use admission::Lobby;
use buffers::Buffers;
use command::{Slots, Work};
use commit::Commits;
use controllers::{Controller, Identifiers};
use core::time::Duration;
use ending::Ending;
use frwr_engine::provider::Port;
use frwr_engine::{
    AddMemoryError, AnnounceError, Announcement, ConnectionId, Engine, Event, Message, OpenError, Protocol,
    TransferStatus, WatchedClock,
};
use frwr_mempool::DeviceMemory;
use identifiers::IdentifiersInUse;
use incident::Incidents;
use late::Place;
use session::{Ends, Queue};
use silence::Watch;
use spread::Spread;
use std::collections::VecDeque;
use subsystem::{Namespace, Served};
use waiting::Waiting;

/// Namespaces of one subsystem: identifiers 1 to this. One Identify list, and one list of changed ones, holds 1024.
pub const MAX_NAMESPACES: usize = 1024;

/// Subsystems of one target: their entries, and the header, are a discovery log of 64 KiB, which hosts read as a whole.
pub const MAX_SUBSYSTEMS: usize = 63;

/// Events handled by one poll: each costs at most one more transfer, so that an iteration stays bounded.
const MAX_EVENTS_PER_POLL: usize = 256;

/// Aborts that may look for their command in one iteration, since each looks at every slot of the core. As many as one
/// controller's Abort Command Limit: correct hosts time out now and then. Others are told that nothing was aborted.
const MAX_ABORT_SEARCHES: u8 = spread::MAX_ABORTS;

/// Why a target cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// An option.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The buffer memory.
    #[error("the buffer memory holds {got} buffers, {wanted} are needed; give TargetOptions::buffer_memory_bytes")]
    Buffers {
        /// Buffers that fit.
        got: usize,
        /// [`TargetOptions::least_buffers`].
        wanted: u32,
    },
    /// The subsystems.
    #[error("{0} subsystems: must be from 1 to {MAX_SUBSYSTEMS}; choose another number")]
    Subsystems(usize),
    /// Two subsystems of one name, or one of the discovery service's.
    #[error("subsystem {0} cannot have its name: another one has it; choose a name for each")]
    SubsystemName(usize),
    /// The namespaces of a subsystem.
    #[error("{0} namespaces: must be from 1 to {MAX_NAMESPACES}; choose another number")]
    Namespaces(usize),
    /// A namespace's block does not fit into a data buffer.
    #[error("namespace {namespace} has blocks of {block_bytes} bytes, a buffer has {buffer_bytes}; raise buffer_bytes")]
    BlockBytes {
        /// Its identifier.
        namespace: usize,
        /// Bytes of its blocks.
        block_bytes: u32,
        /// Bytes of a buffer.
        buffer_bytes: u32,
    },
    /// A namespace cannot transfer to the buffer memory.
    #[error("namespace {namespace}: {source}")]
    Attach {
        /// Its identifier.
        namespace: usize,
        /// Why.
        source: AttachError,
    },
    /// The engine did not take the buffer memory.
    #[error(transparent)]
    Memory(#[from] AddMemoryError),
}

/// The target's half of the protocol: it sends no requests, so everything that arrives is a command.
#[derive(Debug)]
struct Commands;

impl Protocol for Commands {
    fn announce(&mut self, _message: &mut [u8], _: &Announcement<'_>) -> Result<(), AnnounceError> {
        Err(AnnounceError)
    }

    const CLASSIFIED_BYTES: usize = 0;

    fn classify(&mut self, _connection: ConnectionId, _prefix: &[u8], _length: u32) -> Message {
        Message::Command
    }
}

/// A target, or one core's part of it: one core owns it, with all queues that arrive there.
pub struct Target<P: Port, S: Storage> {
    engine: Engine<P>,
    options: TargetOptions,
    now: Duration,
    /// By which peers' deadlines pass, and its time in this poll.
    clock: WatchedClock,
    watched: Duration,
    subsystems: Vec<Served>,
    /// Of all subsystems, one behind the other.
    namespaces: Vec<Namespace<S>>,
    buffers: Buffers,
    slots: Slots,
    /// By connection index.
    queues: Vec<Option<Queue>>,
    /// Command identifiers in use, by connection index.
    in_use: Vec<IdentifiersInUse>,
    incidents: Incidents,
    controllers: Vec<Option<Controller>>,
    /// By place in the table of controllers.
    places: Vec<Place>,
    identifiers: Identifiers,
    /// GENCTR of the discovery log.
    discovery_generation: u64,
    spread: Spread,
    /// Commands that wait for data buffers.
    waiting: Waiting,
    /// Commands that found no transfer slot or no place in the storage, or wait for what other cores are told; tried again
    /// by every poll, in order.
    stalled: VecDeque<u32>,
    reads_until_corruption: u64,
    /// Aborts that may still look for their command until the next poll.
    abort_searches: u8,
    lobby: Lobby,
    watch: Watch,
    /// When a connection has to have become a queue, in watched time.
    next_connect_check: Option<Duration>,
    /// Commands of ended connections that the storage still has.
    orphans: u32,
    commits: Commits,
    ending: Ending,
    statistics: TargetStatistics,
    /// Room for storage completions of one poll.
    completions: CompletionBatch,
}

impl<P: Port, S: Storage> Target<P, S> {
    /// A target over an engine made with [`TargetOptions::engine`], with the one subsystem of the options, which any host may
    /// use. `buffers` is the memory of its data buffers; `namespaces` get the identifiers 1, 2 and so on.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn new(
        engine: Engine<P>,
        namespaces: Vec<S>,
        buffers: DeviceMemory,
        options: TargetOptions,
    ) -> Result<Self, TargetError> {
        let subsystem = Subsystem::new(options.subsystem, namespaces);
        Self::with_subsystems(engine, vec![subsystem], buffers, options)
    }

    /// The same with any subsystems; that of the options is not looked at.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn with_subsystems(
        mut engine: Engine<P>,
        subsystems: Vec<Subsystem<S>>,
        buffers: DeviceMemory,
        mut options: TargetOptions,
    ) -> Result<Self, TargetError> {
        options.check()?;
        options.remote_invalidation &= engine.capabilities().send_with_invalidate;
        let (subsystems, namespaces) = serve(subsystems, &buffers, options.buffer_bytes)?;
        let id = engine.add_memory(buffers.clone())?;
        let buffers = Buffers::new(buffers, id, options.buffer_bytes, options.admin_buffers(), namespaces.len());
        let wanted = options.least_buffers();
        if buffers.available() < wanted as usize {
            return Err(TargetError::Buffers { got: buffers.available(), wanted });
        }
        let slots = options.command_slots();
        let waiting = Waiting::new(slots, buffers.parts());
        Ok(Self {
            engine,
            now: Duration::ZERO,
            clock: WatchedClock::new(WatchedClock::STANDSTILL),
            watched: Duration::ZERO,
            subsystems,
            namespaces,
            buffers,
            slots: Slots::new(slots),
            queues: (0..options.connections()).map(|_| None).collect(),
            in_use: (0..options.connections()).map(|_| IdentifiersInUse::new()).collect(),
            incidents: Incidents::default(),
            controllers: (0..options.places()).map(|_| None).collect(),
            places: (0..options.places()).map(|_| Place::default()).collect(),
            identifiers: Identifiers::default(),
            discovery_generation: 1,
            spread: Spread::new(&options),
            waiting,
            stalled: VecDeque::with_capacity(slots as usize),
            reads_until_corruption: options.corrupt_reads.map_or(0, core::num::NonZeroU64::get),
            abort_searches: MAX_ABORT_SEARCHES,
            orphans: 0,
            commits: Commits::default(),
            ending: Ending::No,
            lobby: Lobby::new(&options),
            watch: Watch::default(),
            next_connect_check: None,
            statistics: TargetStatistics::default(),
            completions: CompletionBatch::new(),
            options,
        })
    }

    /// Starts to listen. Whether it worked is said by [`TargetStatistics::listening`].
    ///
    /// # Errors
    /// As [`Engine::listen`].
    pub fn listen(&mut self) -> Result<(), OpenError> {
        self.engine.listen(self.options.address)?;
        self.statistics.listening = TargetListening::Asked;
        Ok(())
    }

    /// One iteration: completions, commands, storage. Returns the work done; 0 for an empty poll. `now` must not go back; time in which
    /// nobody polled counts against no peer ([`WatchedClock`]).
    pub fn poll(&mut self, now: Duration) -> u32 {
        self.now = now.max(self.now);
        let looks = self.clock.is_due(self.now);
        self.watched = self.clock.watched(self.now);
        self.abort_searches = MAX_ABORT_SEARCHES;
        let read = self.engine.poll(self.now, &mut Commands);
        let mut work = read;
        for _ in 0..MAX_EVENTS_PER_POLL {
            match self.engine.next_event() {
                // What every command has. The others are larger, and not moved for them.
                Some(Event::Received { connection, received }) => self.received(connection, received),
                Some(Event::Responded { cookie, .. }) => self.responded(cookie),
                Some(event) => self.event(event),
                None => break,
            }
            work += 1;
        }
        if !self.commits.is_idle() {
            self.advance_commits();
        }
        // What this poll found starts now, so that storage without delay answers in the same iteration.
        self.start_storage();
        work += self.poll_storage();
        self.serve_waiting();
        if looks {
            self.expire(read);
        }
        if !self.lobby.is_empty() {
            self.serve_lobby();
        }
        if self.ending != Ending::No {
            self.advance_end(work);
        }
        work
    }

    /// Ends what has been silent for too long, unless a word of it may be among what was not read yet. `read`: the engine's work in this poll.
    #[cold]
    fn expire(&mut self, read: u32) {
        if self.clock.judges(self.engine.may_have_unread(read), self.engine.polls_of_full_queues()) {
            self.expire_controllers();
            self.expire_connections();
            self.watch_silent_hosts();
        }
    }

    /// Starts the iteration's storage operations and posts its transfers; to be called at the end of every iteration.
    pub fn flush(&mut self) {
        self.start_storage();
        self.engine.flush();
    }

    fn start_storage(&mut self) {
        for namespace in &mut self.namespaces {
            namespace.storage.flush();
        }
    }

    /// Ends all connections at once, and brings what was written to the media; whoever connects again is served. [`Target::end`] is the end
    /// in order. Poll until [`Target::is_drained`]; what could not be
    /// written is in [`TargetStatistics::failed_commits`].
    pub fn shut_down(&mut self) {
        self.lobby.clear();
        self.commit_at_end();
        for queue in self.queues.iter().flatten() {
            self.engine.disconnect(queue.connection);
        }
    }

    /// Takes no further connections; those that are open stay. False where that has to be tried again.
    pub fn stop_listening(&mut self) -> bool {
        self.lobby.clear();
        // Without Control nobody listens.
        matches!(self.engine.stop_listening(self.options.address), Ok(()) | Err(OpenError::NoControl))
    }

    /// No connection is open and no command in flight; behind [`Target::end`] and [`Target::shut_down`] all that was answered is on its
    /// medium, too, as far as that could be done.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let ended = matches!(self.ending, Ending::No | Ending::Closing { stopped_listening: true });
        ended && self.engine.is_disconnected() && self.slots.used() == 0 && self.is_committed()
    }

    /// Counters, by value.
    #[must_use]
    pub fn statistics(&self) -> TargetStatistics {
        TargetStatistics {
            commands_in_flight: self.queues.iter().flatten().map(|queue| u64::from(queue.outstanding)).sum(),
            orphans: self.orphans.into(),
            slots_used: self.slots.used() as u64,
            buffers: self.buffers.count() as u64,
            buffers_free: self.buffers.available() as u64,
            queues: self.queues.iter().flatten().filter(|queue| queue.association.is_some()).count() as u64,
            ..self.statistics
        }
    }

    /// What its namespaces keep their blocks in, in the order of subsystems and identifiers.
    pub fn namespaces(&self) -> impl Iterator<Item = &S> {
        self.namespaces.iter().map(|namespace| &namespace.storage)
    }

    /// Its engine.
    #[must_use]
    pub fn engine(&self) -> &Engine<P> {
        &self.engine
    }

    /// Its engine, for tools. Events taken from it are lost to the target.
    #[must_use]
    pub fn engine_mut(&mut self) -> &mut Engine<P> {
        &mut self.engine
    }

    /// An event that is not of every command.
    #[inline(never)]
    fn event(&mut self, event: Event) {
        match event {
            Event::Listening { state, .. } => self.statistics.listening = self.statistics.listening.then(state),
            Event::Incoming { incoming, peer, local, private_data } => {
                self.incoming(incoming, Ends { peer, local }, &private_data);
            }
            Event::Connected { connection, .. } => {
                if let Some(queue) = self.queue_mut(connection) {
                    queue.established = true;
                }
            }
            // Its end is told when the device has complied.
            Event::QueuePairKept { connection } => {
                if let Some(queue) = self.queue_mut(connection) {
                    queue.kept = true;
                }
            }
            Event::OpenFailed { connection, .. } => self.close_queue(connection),
            Event::Disconnected { connection, cause, .. } => {
                self.note_end(connection, cause);
                self.close_queue(connection);
            }
            Event::Fetched { cookie, status } => self.fetched(cookie, status == TransferStatus::Done),
            Event::Written { cookie, status } => self.probed(cookie, status),
            // It submits no requests, and shares its completion queues with nobody.
            _ => {}
        }
    }
}

/// What the target keeps of its subsystems, and all their namespaces, attached to the buffers.
fn serve<S: Storage>(
    subsystems: Vec<Subsystem<S>>,
    buffers: &DeviceMemory,
    buffer_bytes: u32,
) -> Result<(Vec<Served>, Vec<Namespace<S>>), TargetError> {
    if subsystems.is_empty() || subsystems.len() > MAX_SUBSYSTEMS {
        return Err(TargetError::Subsystems(subsystems.len()));
    }
    let (mut all, mut served): (Vec<Namespace<S>>, Vec<Served>) = (Vec::new(), Vec::new());
    for (at, Subsystem { name, hosts, serial, namespaces }) in subsystems.into_iter().enumerate() {
        if name.as_str() == DISCOVERY_SUBSYSTEM || served.iter().any(|other| other.name == name) {
            return Err(TargetError::SubsystemName(at));
        }
        if namespaces.is_empty() || namespaces.len() > MAX_NAMESPACES {
            return Err(TargetError::Namespaces(namespaces.len()));
        }
        let first = all.len();
        for (index, mut storage) in namespaces.into_iter().enumerate() {
            let (namespace, block_bytes) = (index + 1, storage.geometry().block_bytes());
            if block_bytes > buffer_bytes {
                return Err(TargetError::BlockBytes { namespace, block_bytes, buffer_bytes });
            }
            storage.attach(buffers.clone()).map_err(|source| TargetError::Attach { namespace, source })?;
            all.push(Namespace::new(storage));
        }
        let (namespaces, ana) = (first..all.len(), AnaState::default());
        served.push(Served { name, hosts, serial, namespaces, ana, ana_changes: 0, untold: 0 });
    }
    Ok((served, all))
}
