//! An NVMe-oF target, of one core or of several (see [`MAX_CORES`]): it listens, and serves namespaces to hosts over `frwr-engine`.
//!
//! Poll-style, with time as an argument: it never reads a clock, never blocks, and once it was made allocates for nothing but changes. A
//! command that finds no place in the storage or no transfer slot waits in order, one that finds no data buffer in order with those
//! of its namespace; nothing is dropped.

mod addresses;
mod admission;
mod advance;
mod authenticate;
mod authentication;
mod breach;
mod carry;
mod change;
mod changes;
mod clock;
mod close;
mod commands;
mod connect;
mod controllers;
mod drain;
mod ending;
mod firsts;
mod fuse;
mod identifiers;
mod incident;
mod inventory;
mod late;
mod listen;
mod listeners;
mod lobby;
mod media;
mod notice;
mod opcodes;
mod options;
mod pending;
#[cfg(feature = "reactor")]
mod poller;
mod receive;
mod refusal;
mod reservation;
mod session;
mod shutdown;
mod spread;
mod statistics;
mod subsystem;
mod turn;
mod work;

pub use addresses::{ElsewhereListener, MAX_LISTENERS};
pub use change::{ChangeError, ChangeEvent, ChangeId, HeldUp, MAX_DRAINS, NewNamespace, Refused};
pub use incident::{Breach, Fault, Incident, MAX_INCIDENTS};
pub use inventory::{
    AnaGroupState, CommandErrors, CommandLatencies, ControllerState, DrainState, Inventory, NamespaceState, QueuePhase,
    QueueState, SubsystemState, WaitingNow,
};
pub use listeners::ListenerState;
pub use media::{CommandKind, LATENCIES, Latencies};
pub use options::{
    ADMIN_QUEUE_ENTRIES, HOME_CORE, IDS_PER_CONTROLLER, MAX_BUFFER_BYTES, MAX_CONNECTIONS, MAX_CONTROLLER_ID,
    MAX_CORES, MAX_DATA_BLOCKS, MAX_IN_CAPSULE_BYTES, MAX_IO_QUEUES, MAX_NAMESPACES, MAX_QUEUE_ENTRIES, MAX_SUBSYSTEMS,
    MAX_TARGETS, MAX_TOTAL_NAMESPACES, MIN_BUFFER_BYTES, OptionError, TargetOptions, UNPROVEN_CONNECTIONS,
};
#[cfg(feature = "reactor")]
pub use poller::{TargetContext, TargetPoller};
pub use refusal::{Offered, Refusal, Rejection};
pub use reservation::{MAX_REGISTRANTS, ReservationFileError, ReservationMedium, ReservationWriter, Reservations};
pub use spread::{TargetMessage, place_queues};
pub use statistics::{TargetListening, TargetStatistics};
pub use subsystem::{AllowedHosts, DEFAULT_ANA_GROUP, MAX_ANA_GROUPS, Subsystem};

use crate::storage::{AttachError, Storage};
use authentication::Authentications;
use clock::Clock;
use commands::Commands;
use controllers::Controllers;
use ending::Ending;
use firsts::Firsts;
use frwr_engine::provider::Port;
use frwr_engine::{AddMemoryError, Engine, MemoryAccess, OpenError};
use frwr_mempool::DeviceMemory;
use late::Late;
use lobby::Lobby;
use media::{Buffers, Media, Pool};
use pending::Pending;
use reservation::Seat;
use session::Sessions;
use spread::Spread;
use subsystem::Subsystems;

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
    #[error("{0} namespaces: must be {MAX_NAMESPACES} at most; choose another number")]
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
    /// A subsystem.
    #[error("subsystem {subsystem}: {source}")]
    Subsystem {
        /// Its number, from 0.
        subsystem: usize,
        /// Why.
        source: ChangeError,
    },
    /// The engine did not take the buffer memory.
    #[error(transparent)]
    Memory(#[from] AddMemoryError),
}

/// A target, or one core's part of it: one core owns it, with all queues that arrive there.
pub struct Target<P: Port, S: Storage> {
    engine: Engine<P>,
    options: TargetOptions,
    clock: Clock,
    /// Who waits to be let in, whose connections there are, and what they became.
    lobby: Lobby,
    sessions: Sessions,
    authentications: Authentications,
    controllers: Controllers,
    late: Late,
    /// What there is for hosts.
    subsystems: Subsystems,
    /// What they ask for, and what is asked of storages for it.
    commands: Commands,
    /// Those of them that wait for the second one of their fused pair.
    firsts: Firsts,
    pool: Pool,
    media: Media<S>,
    /// This core's part in what all cores know of reservations; `None` where there are none.
    reservations: Option<Seat>,
    /// What of all that other cores have.
    spread: Spread,
    /// Changes that are not over.
    pending: Pending<S>,
    ending: Ending,
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
        let (subsystems, media) = serve(subsystems, &buffers, &options)?;
        let id = engine.add_memory(buffers.clone(), MemoryAccess::ReadWrite)?;
        let mut buffers = Buffers::new(buffers, id, options.buffer_bytes, options.admin_buffers(), media.most());
        buffers.share(media.most(), |place| media.is_taken(place));
        let wanted = options.least_buffers();
        if buffers.available() < wanted as usize {
            return Err(TargetError::Buffers { got: buffers.available(), wanted });
        }
        let slots = options.command_slots();
        Ok(Self {
            engine,
            clock: Clock::new(),
            lobby: Lobby::new(&options),
            sessions: Sessions::new(&options),
            authentications: Authentications::new(options.connections()),
            controllers: Controllers::new(&options),
            late: Late::new(options.places()),
            subsystems,
            commands: Commands::new(slots),
            firsts: Firsts::new(options.connections()),
            pool: Pool::new(buffers, slots),
            pending: Pending::new(media.most()),
            media,
            reservations: None,
            spread: Spread::new(&options),
            ending: Ending::new(),
            options,
        })
    }

    /// Starts to listen at all of its addresses. Whether it worked is said by [`TargetStatistics::listening`], of each by
    /// [`Target::listeners`].
    ///
    /// # Errors
    /// As [`Engine::listen`].
    pub fn listen(&mut self) -> Result<(), OpenError> {
        for address in self.sessions.listeners().addresses() {
            self.engine.listen(address)?;
            self.sessions.listeners_mut().asked(address);
        }
        Ok(())
    }

    /// Counters, by value.
    #[must_use]
    pub fn statistics(&self) -> TargetStatistics {
        let (sessions, controllers) = (self.sessions.statistics(), self.controllers.statistics());
        let (commands, pool, media) = (self.commands.statistics(), self.pool.statistics(), self.media.statistics());
        TargetStatistics {
            listening: self.sessions.listeners().listening(),
            orphans: self.late.orphans().into(),
            ..sessions + controllers + commands + pool + media + self.authentications.statistics()
        }
    }

    /// Where it listens, and what became of that on this core.
    pub fn listeners(&self) -> impl Iterator<Item = ListenerState> {
        self.sessions.listeners().states()
    }

    /// The oldest incident that was not taken yet. At most [`MAX_INCIDENTS`] are kept.
    pub fn next_incident(&mut self) -> Option<Incident> {
        self.sessions.next_incident()
    }

    /// What its namespaces keep their blocks in: in the order of subsystems and identifiers, and where some have gone, those that came
    /// next in their places.
    pub fn namespaces(&self) -> impl Iterator<Item = &S> {
        self.media.storages()
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
}

/// The subsystems, and the storages of all their namespaces, attached to the buffers.
fn serve<S: Storage>(
    subsystems: Vec<Subsystem<S>>,
    buffers: &DeviceMemory,
    options: &TargetOptions,
) -> Result<(Subsystems, Media<S>), TargetError> {
    if subsystems.is_empty() || subsystems.len() > MAX_SUBSYSTEMS {
        return Err(TargetError::Subsystems(subsystems.len()));
    }
    let all: usize = subsystems.iter().map(|subsystem| subsystem.namespaces.len()).sum();
    let most = (options.namespaces as usize).max(all);
    let mut served = Subsystems::new(options, subsystems.len());
    let (mut media, buffer_bytes) = (Media::new(most, options.corrupt_reads), options.buffer_bytes);
    for (number, Subsystem { name, hosts, serial, namespaces, ana_states }) in subsystems.into_iter().enumerate() {
        if namespaces.len() > MAX_NAMESPACES {
            return Err(TargetError::Namespaces(namespaces.len()));
        }
        let highest = namespaces.iter().map(|namespace| namespace.identifier as usize).max().unwrap_or_default();
        let at =
            served.add(name, hosts, serial, (highest.min(MAX_NAMESPACES), true)).map_err(|source| match source {
                ChangeError::SubsystemName => TargetError::SubsystemName(number),
                source => TargetError::Subsystem { subsystem: number, source },
            })?;
        let wrong = |source| TargetError::Subsystem { subsystem: number, source };
        for new in namespaces {
            let nguid = served.check_at_start(at, &new).map_err(wrong)?;
            let NewNamespace { identifier, ana_group, active, storage, .. } = new;
            let (namespace, block_bytes) = (identifier as usize, storage.geometry().block_bytes());
            if block_bytes > buffer_bytes {
                return Err(TargetError::BlockBytes { namespace, block_bytes, buffer_bytes });
            }
            let place = media.attach(storage, buffers).map_err(|refused| match refused.error {
                ChangeError::Attach(source) => TargetError::Attach { namespace, source },
                source => wrong(source),
            })?;
            served.list_at_start(at, identifier, nguid, (place, ana_group, active));
        }
        for (group, state) in ana_states {
            served.set_ana(at, Some(group), state, 0).map_err(wrong)?;
        }
    }
    Ok((served, media))
}
