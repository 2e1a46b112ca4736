//! An NVMe-oF host for one core: it brings a controller up, keeps it, and reads and writes one namespace of it.
//!
//! Poll-style, with time as an argument: it never reads a clock, never blocks and never allocates once it was made. When a
//! connection ends, commands that were not answered wait here; the host reconnects, with growing pauses, and submits each
//! of them once more on the new connection.

mod bring_up;
mod commands;
mod failure;
mod io;
mod options;
mod session;
mod statistics;

pub use failure::HostFailure;
pub use io::{HostCompletion, IoError, RequestError};
pub use options::{HostOptions, MAX_QUEUE_DEPTH, MAX_SEGMENTS};
pub use statistics::HostStatistics;

use crate::nvmf::{ControllerCapabilities, IDENTIFY_BYTES};
use crate::storage::Geometry;
use bring_up::Step;
use commands::Commands;
use core::time::Duration;
use frwr_engine::gather::MemoryId;
use frwr_engine::provider::Port;
use frwr_engine::{AddMemoryError, ConnectionId, Engine};
use frwr_mempool::DeviceMemory;
use io::Request;
use std::collections::VecDeque;

/// Bytes of device memory that a host needs for the data of its admin commands.
pub const ADMIN_DATA_BYTES: usize = IDENTIFY_BYTES;

/// Events handled by one poll: bounds an iteration.
const MAX_EVENTS_PER_POLL: usize = 256;

/// Why a host cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The queue depth.
    #[error("queue depth {0}: must be from 1 to {MAX_QUEUE_DEPTH}; choose a value inside")]
    QueueDepth(u16),
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
    /// It waits for the next attempt.
    BackOff { until: Duration },
    /// A connection is to be opened, or is being opened.
    Opening { queue: Opened, deadline: Duration },
    /// A command of the bring-up is to be sent, or was sent.
    Bringing { step: Step, deadline: Duration },
    /// Reads and writes go to the controller.
    Ready { keep_alive_at: Option<Duration>, keep_alive_sent: Duration },
    /// All connections are to end.
    Closing { then: After },
    /// It has given up.
    Failed(HostFailure),
}

/// Which queue's connection is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    Admin,
    Io,
}

/// What follows when all connections have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Retry,
    Stop,
    Fail(HostFailure),
}

/// What is known of the controller of this session.
#[derive(Clone, Copy, Debug, Default)]
struct Controller {
    id: u16,
    capabilities: ControllerCapabilities,
    in_capsule_bytes: u64,
    max_transfer: Option<u64>,
}

/// Connections that are open or being opened.
#[derive(Clone, Copy, Debug, Default)]
struct Connections {
    admin: Option<ConnectionId>,
    io: Option<ConnectionId>,
}

/// A host. One core owns it.
pub struct Host<P: Port> {
    engine: Engine<P>,
    options: HostOptions,
    now: Duration,
    state: State,
    connections: Connections,
    controller: Controller,
    geometry: Option<Geometry>,
    commands: Commands,
    /// By command slot.
    requests: Vec<Option<Request>>,
    free: Vec<u16>,
    /// Slots of requests that are to be submitted, in order.
    queued: VecDeque<u16>,
    completions: VecDeque<HostCompletion>,
    admin_data: DeviceMemory,
    admin_data_id: MemoryId,
    /// When a read, write or flush was answered last, or submitted while none was outstanding.
    answered_at: Duration,
    /// Attempts that failed since the last success.
    attempts: u32,
    stopping: bool,
    last_failure: Option<HostFailure>,
    statistics: HostStatistics,
}

impl<P: Port> Host<P> {
    /// A host over an engine made with [`HostOptions::engine`]. `admin_data` holds [`ADMIN_DATA_BYTES`]. Memory that
    /// reads and writes use is declared to [`Host::engine_mut`] before [`Host::start`].
    ///
    /// # Errors
    /// [`HostError`].
    pub fn new(mut engine: Engine<P>, admin_data: DeviceMemory, options: HostOptions) -> Result<Self, HostError> {
        let depth = options.queue_depth;
        if depth == 0 || depth > MAX_QUEUE_DEPTH {
            return Err(HostError::QueueDepth(depth));
        }
        if admin_data.len() < ADMIN_DATA_BYTES {
            return Err(HostError::AdminData(admin_data.len()));
        }
        let admin_data_id = engine.add_memory(admin_data.clone())?;
        Ok(Self {
            engine,
            now: Duration::ZERO,
            state: State::Stopped,
            connections: Connections::default(),
            controller: Controller::default(),
            geometry: None,
            commands: Commands::new(options.commands()),
            requests: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            queued: VecDeque::with_capacity(depth.into()),
            completions: VecDeque::with_capacity(depth.into()),
            admin_data,
            admin_data_id,
            answered_at: Duration::ZERO,
            attempts: 0,
            stopping: false,
            last_failure: None,
            statistics: HostStatistics::default(),
            options,
        })
    }

    /// Starts to connect.
    pub fn start(&mut self) {
        if self.state == State::Stopped {
            self.stopping = false;
            self.attempts = 0;
            self.state = State::BackOff { until: self.now };
        }
    }

    /// One iteration: completions, the session's next step, waiting requests. Returns the work done; 0 for an empty poll.
    /// `now` must not go back.
    pub fn poll(&mut self, now: Duration) -> u32 {
        self.now = now.max(self.now);
        let mut work = self.engine.poll(self.now, &mut self.commands);
        for _ in 0..MAX_EVENTS_PER_POLL {
            let Some(event) = self.engine.next_event() else { break };
            self.event(event);
            work += 1;
        }
        self.step_session();
        self.submit_queued();
        work
    }

    /// Posts what the iteration submitted; to be called at the end of every iteration. Returns the doorbells rung.
    pub fn flush(&mut self) -> u32 {
        self.engine.flush()
    }

    /// Ends the session in order: outstanding requests first, then the controller is shut down. Poll until
    /// [`Host::is_stopped`].
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
        matches!(self.state, State::Ready { .. }) && !self.stopping
    }

    /// Not started, or all connections have ended after [`Host::shut_down`] or a failure.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped | State::Failed(_)) && self.engine.is_disconnected()
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

    /// Largest read or write in bytes; 0 before the first session.
    #[must_use]
    pub fn max_transfer_bytes(&self) -> u32 {
        self.geometry.map_or(0, |_| self.transfer_limit())
    }

    /// Requests that may be submitted now.
    #[must_use]
    pub fn free_requests(&self) -> usize {
        self.free.len()
    }

    /// Counters, by value.
    #[must_use]
    pub fn statistics(&self) -> HostStatistics {
        HostStatistics { outstanding: (self.requests.len() - self.free.len()) as u64, ..self.statistics }
    }

    /// When it has to be polled again although nothing arrives.
    #[must_use]
    pub fn poll_at(&self) -> Option<Duration> {
        let own = match self.state {
            State::BackOff { until } => Some(until),
            State::Opening { deadline, .. } | State::Bringing { deadline, .. } => Some(deadline),
            State::Ready { keep_alive_at, .. } => keep_alive_at,
            State::Closing { .. } => Some(self.now),
            State::Stopped | State::Failed(_) => None,
        };
        [own, self.unanswered_until(), self.engine.poll_at()].into_iter().flatten().min()
    }

    /// The connections of the admin and the I/O queue, while they are open or being opened; for tools.
    #[must_use]
    pub fn connections(&self) -> [Option<ConnectionId>; 2] {
        [self.connections.admin, self.connections.io]
    }

    /// Its engine.
    #[must_use]
    pub fn engine(&self) -> &Engine<P> {
        &self.engine
    }

    /// Its engine, to declare memory, and for tools. Events taken from it are lost to the host.
    #[must_use]
    pub fn engine_mut(&mut self) -> &mut Engine<P> {
        &mut self.engine
    }
}
