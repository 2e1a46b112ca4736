//! An NVMe-oF host for one core: it brings a controller up, keeps it, and reads and writes one namespace of it. Hosts on
//! other cores may follow it, with I/O queues of their own in the same controller.
//!
//! Poll-style, with time as an argument: it never reads a clock, never blocks and never allocates once it was made. When a
//! connection ends, commands that were not answered wait here; the host reconnects, with growing pauses, and submits each
//! of them once more on the new connection.

mod ana;
mod attachment;
mod bounce;
mod bring_up;
mod chores;
mod commands;
mod context;
mod cut;
mod discovery;
mod error;
mod failure;
mod follower;
mod followers;
mod identify;
mod io;
mod limits;
mod options;
mod parts;
mod path;
mod queues;
mod recourse;
mod request;
mod requests;
mod retries;
mod session;
mod statistics;
mod submit;
mod time;
mod timeouts;
mod transport;

pub use attachment::{Attachment, FollowerOrder, FollowerReport};
pub use discovery::{Discovered, MAX_DISCOVERED};
pub use error::{IoError, RequestError};
pub use failure::HostFailure;
pub use options::{HostOptions, MAX_DATA_BLOCKS, MAX_FOLLOWERS, MAX_QUEUE_DEPTH, MAX_QUEUES, MAX_SEGMENTS};
pub use request::MAX_REQUEST_BYTES;
pub use requests::HostCompletion;
pub use statistics::HostStatistics;

use crate::storage::Geometry;
use crate::wire::{AnaState, IDENTIFY_BYTES, SerialNumber};
use ana::Ana;
use arrayvec::ArrayVec;
use bounce::Bounce;
use bring_up::Step;
use chores::Chores;
use context::Context;
use core::time::Duration;
use discovery::DiscoveryRead;
use follower::Following;
use followers::Followers;
use frwr_engine::gather::MemoryId;
use frwr_engine::provider::Port;
use frwr_engine::{AddMemoryError, ConnectionId, Engine};
use frwr_mempool::DeviceMemory;
use identify::Identity;
use io::Io;
use limits::Limits;
use options::Admin;
use path::Path;
use queues::{QueueOf, Queues};
use time::Time;
use transport::Transport;

/// Bytes of device memory that a host needs for the data of its admin commands.
pub const ADMIN_DATA_BYTES: usize = IDENTIFY_BYTES;

/// Events handled by one poll: bounds an iteration.
const MAX_EVENTS_PER_POLL: usize = 256;

/// Active namespaces that are remembered, for tools.
const MAX_ACTIVE: usize = 64;

/// Why a host cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The queue depth.
    #[error("queue depth {0}: must be from 1 to {MAX_QUEUE_DEPTH} over all queues; choose a value inside")]
    QueueDepth(u16),
    /// The number of queues.
    #[error("{0} I/O queues: must be from 1 to {MAX_QUEUES}; choose a value inside")]
    Queues(u16),
    /// Keys of one command.
    #[error("data_blocks is {0}: must be from 1 to {MAX_DATA_BLOCKS}; choose a value inside")]
    DataBlocks(u8),
    /// The number of followers.
    #[error("{0} followers: a host has at most {MAX_FOLLOWERS}; use fewer cores")]
    Followers(u16),
    /// The discovery service has no I/O queues to be shared (Base 3.1.2.3).
    #[error("{0} followers of a discovery controller, which has no I/O queues: must be 0; use one core")]
    DiscoveryFollowers(u16),
    /// The memory for admin data is too small.
    #[error("{0} bytes for admin data: {ADMIN_DATA_BYTES} are needed; give a larger block")]
    AdminData(usize),
    /// The engine did not take the memory.
    #[error(transparent)]
    Memory(#[from] AddMemoryError),
}

/// What the host is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing, until it is started.
    Stopped,
    /// A follower: it waits for a session.
    Detached,
    /// It waits for the next attempt.
    BackOff { until: Duration },
    /// A connection is to be opened, or is being opened. The deadline is of watched time, here and below.
    Opening { queue: QueueOf, deadline: Duration },
    /// A command of the bring-up is to be sent at a time of the caller's, or was sent.
    Bringing { step: Step, at: Duration, deadline: Duration },
    /// Reads and writes go to the controller.
    Ready,
    /// All connections are to end.
    Closing { then: After },
    /// It has given up.
    Failed(HostFailure),
}

/// When Keep Alives are sent (Base 3.9).
#[derive(Clone, Copy, Debug, Default)]
struct KeepAlive {
    /// When the next one is due, by the caller's time, since the controller's timer runs on whatever happens here; `None` while that
    /// does not run.
    at: Option<Duration>,
    /// When the one in flight has to be answered, in watched time.
    answer_by: Duration,
}

/// What follows when all connections have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Retry,
    Stop,
    Fail(HostFailure),
}

/// A host. One core owns it.
pub struct Host<P: Port> {
    context: Context<P>,
    state: State,
    queues: Queues,
    limits: Limits,
    /// I/O queues granted, over all cores.
    granted: u16,
    followers: Followers,
    /// Where it follows another host.
    following: Option<Following>,
    geometry: Option<Geometry>,
    identity: Identity,
    io: Io,
    /// The session ends because a queue of another core did.
    ends_elsewhere: bool,
    admin_data: DeviceMemory,
    admin_data_id: MemoryId,
    ana: Ana,
    chores: Chores,
    keep_alive: KeepAlive,
    active_namespaces: ArrayVec<u32, MAX_ACTIVE>,
    discovered: Vec<Discovered>,
    discovery: DiscoveryRead,
    /// When the controller was lost, in watched time.
    lost_at: Option<Duration>,
    /// Attempts that failed since the last success.
    attempts: u32,
    /// When all queues of the session came up.
    settled_at: Option<Duration>,
    /// Attempts that failed, and sessions that ended soon, in a row.
    hasty: u32,
    stopping: bool,
    last_failure: Option<HostFailure>,
    statistics: HostStatistics,
}

impl<P: Port> Host<P> {
    /// A host over an engine made with [`HostOptions::engine`]. `admin_data` holds
    /// [`ADMIN_DATA_BYTES`] at least; what is beyond, up to [`HostOptions::memory_bytes`], is for bounce buffers. Memory that
    /// reads and writes use is declared to [`Host::engine_mut`] before [`Host::start`].
    ///
    /// # Errors
    /// [`HostError`].
    pub fn new(mut engine: Engine<P>, admin_data: DeviceMemory, options: HostOptions) -> Result<Self, HostError> {
        let depth = options.queue_depth;
        if options.queues == 0 || options.queues > MAX_QUEUES {
            return Err(HostError::Queues(options.queues));
        }
        if options.followers > MAX_FOLLOWERS {
            return Err(HostError::Followers(options.followers));
        }
        if options.followers > 0 && options.is_discovery() {
            return Err(HostError::DiscoveryFollowers(options.followers));
        }
        if depth == 0 || depth > MAX_QUEUE_DEPTH / options.queues {
            return Err(HostError::QueueDepth(depth));
        }
        if !(1..=MAX_DATA_BLOCKS).contains(&options.data_blocks) {
            return Err(HostError::DataBlocks(options.data_blocks));
        }
        let commands = options.io_commands();
        if admin_data.len() < ADMIN_DATA_BYTES {
            return Err(HostError::AdminData(admin_data.len()));
        }
        let admin_data_id = engine.add_memory(admin_data.clone())?;
        let (bytes, count) = (options.bounce_bytes, options.bounce_buffers);
        let bounce = Bounce::new(admin_data.clone(), admin_data_id, ADMIN_DATA_BYTES, bytes, count);
        Ok(Self {
            state: State::Stopped,
            queues: Queues::new(options.queues),
            limits: Limits::default(),
            granted: 0,
            followers: Followers::new(options.followers, options.io_commands()),
            following: None,
            geometry: None,
            identity: Identity::default(),
            io: Io::new(commands, options.command_retries, bounce),
            ends_elsewhere: false,
            admin_data,
            admin_data_id,
            ana: Ana::default(),
            chores: Chores::default(),
            keep_alive: KeepAlive::default(),
            active_namespaces: ArrayVec::new(),
            discovered: Vec::with_capacity(if options.is_discovery() { MAX_DISCOVERED } else { 0 }),
            discovery: DiscoveryRead::default(),
            lost_at: None,
            attempts: 0,
            settled_at: None,
            hasty: 0,
            stopping: false,
            last_failure: None,
            statistics: HostStatistics::default(),
            context: Context { transport: Transport::new(engine, options.commands()), time: Time::new(), options },
        })
    }

    /// Starts to connect, or to wait for a session to follow.
    pub fn start(&mut self) {
        if self.state == State::Stopped {
            self.stopping = false;
            (self.attempts, self.hasty, self.settled_at) = (0, 0, None);
            // What was lost or closed when it was stopped has not been waited for since.
            self.lost_at = None;
            self.ana.unknown();
            self.state = match self.following {
                Some(_) => State::Detached,
                None => State::BackOff { until: self.context.time.now() },
            };
        }
    }

    /// One iteration: completions, the session's next step, waiting requests. Returns the work done; 0 for an empty poll, behind which
    /// nothing is to be flushed. `now` must not go back. Time in which nobody polled counts against no controller, unless
    /// [`Host::poll_at`] allowed to sleep so long ([`WatchedClock`]).
    pub fn poll(&mut self, now: Duration) -> u32 {
        self.context.time.begin(now);
        let read = self.context.transport.poll(self.context.time.now());
        let mut work = read;
        for _ in 0..MAX_EVENTS_PER_POLL {
            let Some(event) = self.context.transport.next_event() else { break };
            self.event(event);
            work += 1;
        }
        let engine = self.context.transport.engine();
        self.context.time.judge(engine.may_have_unread(read), engine.polls_of_full_queues());
        self.step_session();
        self.step_keep_alive();
        self.step_timeouts();
        self.step_chores();
        if self.context.time.looks() {
            self.io.end_pauses(self.context.time.now());
        }
        self.submit_queued();
        // A keep-alive that fell due is submitted by the clock, and has to be flushed all the same.
        if work == 0 { u32::from(self.context.transport.engine().has_pending()) } else { work }
    }

    /// Posts what the iteration submitted; to be called at the end of every iteration. Returns the doorbells rung.
    pub fn flush(&mut self) -> u32 {
        self.context.transport.engine_mut().flush()
    }

    /// Ends the session in order: outstanding requests first, then the controller is shut down. Poll until
    /// [`Host::is_stopped`]. Followers have to be shut down as well: the controller is when the last of them has detached.
    pub fn shut_down(&mut self) {
        self.stopping = true;
    }

    /// Drops all connections without a word to the controller, as a crash of the network would. The host reconnects.
    pub fn drop_connections(&mut self) {
        self.disconnect_all();
    }

    /// Reads and writes go to the controller at once.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready && !self.stopping
    }

    /// Not started, or all connections have ended after [`Host::shut_down`] or a failure.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped | State::Failed(_)) && self.context.transport.engine().is_disconnected()
    }

    /// Why the host has given up.
    #[must_use]
    pub fn failure(&self) -> Option<HostFailure> {
        if let State::Failed(failure) = self.state { Some(failure) } else { None }
    }

    /// Why the last session ended or could not be set up.
    #[must_use]
    pub fn last_failure(&self) -> Option<HostFailure> {
        self.last_failure
    }

    /// Size of the namespace; `None` before the first session.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        self.geometry
    }

    /// Largest command in bytes; 0 before the first session. Longer requests are split.
    #[must_use]
    pub fn max_transfer_bytes(&self) -> u32 {
        self.geometry.map_or(0, |geometry| self.limits.transfer(geometry.block_bytes()))
    }

    /// Data blocks, and so keys, that the controller takes per command (MSDBD); 0 for no limit.
    #[must_use]
    pub fn max_data_blocks(&self) -> u8 {
        self.limits.max_data_blocks
    }

    /// Serial number of the subsystem; `None` before the first session, and where it has none.
    #[must_use]
    pub fn serial_number(&self) -> Option<SerialNumber> {
        self.limits.serial
    }

    /// I/O queues of the session.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues.open_count()
    }

    /// How the namespace can be reached, as the controller said last.
    #[must_use]
    pub fn ana_state(&self) -> AnaState {
        self.ana.state()
    }

    /// The first active namespaces of the subsystem.
    #[must_use]
    pub fn active_namespaces(&self) -> &[u32] {
        &self.active_namespaces
    }

    /// What the discovery service listed, where it was asked.
    #[must_use]
    pub fn discovered(&self) -> &[Discovered] {
        &self.discovered
    }

    /// Requests that may be submitted now: completions that nobody took yet occupy their places.
    #[must_use]
    pub fn free_requests(&self) -> usize {
        self.io.available()
    }

    /// Counters, by value.
    #[must_use]
    pub fn statistics(&self) -> HostStatistics {
        self.statistics + self.io.statistics()
    }

    /// When it has to be polled again although nothing arrives. A caller may sleep until then: a host that is polled at that time was idle,
    /// one that is polled later stood still, and its peers get the time that it did.
    #[must_use]
    pub fn poll_at(&self) -> Option<Duration> {
        let (own, judged) = match self.state {
            State::BackOff { until } => (Some(until), None),
            // What is due already is done by whatever poll comes next.
            State::Bringing { at, deadline, .. } => {
                (Some(at).filter(|at| *at > self.context.time.now()), Some(deadline))
            }
            State::Opening { deadline, .. } => (None, Some(deadline)),
            State::Closing { .. } => (Some(self.context.time.now()), None),
            State::Ready | State::Stopped | State::Detached | State::Failed(_) => (None, None),
        };
        let deadline = self.io.deadline().filter(|_| self.state == State::Ready);
        let (chores, chores_judged) = self.chores_at();
        let (keep_alive, answer) = self.keep_alive_at();
        let judged = [judged, answer, deadline, chores_judged].into_iter().flatten().min();
        let judged = judged.map(|deadline| self.context.time.judged_at(deadline));
        let pause = self.io.paused_until().map(|at| self.context.time.seen_at(at));
        let at = [own, keep_alive, chores, judged, pause, self.context.transport.engine().poll_at()]
            .into_iter()
            .flatten()
            .min();
        self.context.time.announce(at);
        at
    }

    /// The connections of the admin and the first I/O queue, while they are open or being opened; for tools.
    #[must_use]
    pub fn connections(&self) -> [Option<ConnectionId>; 2] {
        [QueueOf::Admin, QueueOf::Io(0)].map(|queue| self.queues.connection(queue))
    }

    /// Command slots of I/O.
    fn io_slots(&self) -> u16 {
        self.context.options.io_commands()
    }

    /// The session as commands of I/O see it, and they.
    fn path(&mut self) -> Option<(Path<'_>, &mut Io, &mut Context<P>)> {
        let Self { queues, limits, geometry, io, context, .. } = self;
        let (block, session) = ((*geometry)?.block_bytes(), self.statistics.sessions);
        Some((Path { queues, limits, block, session }, io, context))
    }

    /// Hands commands to the engine while there is a session and room.
    fn submit_queued(&mut self) {
        if self.state == State::Ready
            && self.ana.is_accessible()
            && let Some((mut path, io, context)) = self.path()
        {
            io.submit(&mut path, context);
        }
    }

    /// Why no request is taken now.
    fn admits(&self) -> Result<(), RequestError> {
        let over = self.stopping || self.geometry.is_none() || matches!(self.state, State::Stopped | State::Failed(_));
        if over { Err(RequestError::NotReady) } else { Ok(()) }
    }

    /// The command slot of an admin command.
    fn admin_slot(&self, command: Admin) -> u16 {
        self.io_slots() + command as u16
    }

    /// Its engine.
    #[must_use]
    pub fn engine(&self) -> &Engine<P> {
        self.context.transport.engine()
    }

    /// Its engine, to declare memory, and for tools. Events taken from it are lost to the host.
    #[must_use]
    pub fn engine_mut(&mut self) -> &mut Engine<P> {
        self.context.transport.engine_mut()
    }
}
