//! An NVMe-oF host for one core: it brings a controller up, keeps it, and reads and writes one namespace of it. Hosts on
//! other cores may follow it, with I/O queues of their own in the same controller.
//!
//! Poll-style, with time as an argument: it never reads a clock, never blocks and never allocates once it was made. When a
//! connection ends, commands that were not answered wait here; the host reconnects, with growing pauses, and submits each
//! of them once more on the new connection.

mod aborts;
mod admin_data;
mod ana;
mod attachment;
mod authentication;
mod bounce;
mod bring_up;
mod chores;
mod commands;
mod context;
mod cores;
mod cut;
mod delays;
mod discovery;
mod error;
mod failure;
mod followers;
mod following;
mod fused;
mod io;
mod keep_alive;
mod limits;
mod namespace;
mod options;
mod parts;
mod path;
mod paths;
mod questions;
mod queues;
mod reconnect;
mod recourse;
mod renewal;
mod request;
mod requests;
mod reservations;
mod reserve;
mod retries;
mod role;
mod session;
mod statistics;
mod step;
mod submit;
mod time;
mod timeouts;
mod transport;

pub use attachment::{Attachment, FollowerOrder, FollowerReport};
pub use discovery::{Discovered, MAX_DISCOVERED};
pub use error::{IoError, ReauthenticateError, RequestError};
pub use failure::HostFailure;
pub use options::{
    ADMIN_DATA_BYTES, HostError, HostOptions, MAX_DATA_BLOCKS, MAX_FOLLOWERS, MAX_QUEUE_DEPTH, MAX_QUEUES, MAX_SEGMENTS,
};
pub use paths::{
    MAX_PATHS, PathChange, PathPolicy, PathRefusal, PathState, PathStatistics, Paths, PathsError, PathsOptions,
};
pub use requests::{HostCompletion, MAX_REQUEST_BYTES};
pub use reservations::report_bytes;
pub use reserve::Reserve;
pub use statistics::HostStatistics;

use crate::authentication::Authenticator;
use admin_data::AdminData;
use bounce::Bounce;
use bring_up::Found;
use commands::Reply;
use context::Context;
use core::time::Duration;
use followers::{Followers, ToAbort};
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, DisconnectCause, Engine, Event, MemoryAccess, RequestStatus};
use frwr_mempool::DeviceMemory;
use io::Io;
use options::AdminSlot;
use parts::Abortion;
use queues::Queues;
use role::Role;
use session::{After, Session, Turn};
use std::net::SocketAddr;
use std::sync::Arc;
use time::Time;
use timeouts::Late;
use transport::{Answer, Transport, Unanswered};

/// Events handled by one poll: bounds an iteration.
const MAX_EVENTS_PER_POLL: usize = 256;

/// A host. One core owns it.
///
/// It hands on what one of its parts has to know of another: none of them holds another one, and each is changed by its own
/// file alone.
pub struct Host<P: Port> {
    context: Context<P>,
    session: Session,
    io: Io,
    role: Role,
}

impl<P: Port> Host<P> {
    /// A host over an engine made with [`HostOptions::engine`]. `admin_data` holds
    /// [`ADMIN_DATA_BYTES`] at least; what is beyond, up to [`HostOptions::memory_bytes`], is for bounce buffers. Memory that
    /// reads and writes use is declared to [`Host::engine_mut`] before [`Host::start`].
    ///
    /// # Errors
    /// [`HostError`].
    pub fn new(engine: Engine<P>, admin_data: DeviceMemory, options: HostOptions) -> Result<Self, HostError> {
        options.check()?;
        let followers = Followers::new(options.followers, options.io_commands());
        Self::with_role(engine, admin_data, options, Role::Leads(followers))
    }

    fn with_role(
        mut engine: Engine<P>,
        memory: DeviceMemory,
        options: HostOptions,
        role: Role,
    ) -> Result<Self, HostError> {
        options.check()?;
        if memory.len() < ADMIN_DATA_BYTES {
            return Err(HostError::AdminData(memory.len()));
        }
        let id = engine.add_memory(memory.clone(), MemoryAccess::ReadWrite)?;
        let (bytes, count) = (options.bounce_bytes, options.bounce_buffers);
        let bounce = Bounce::new(memory.clone(), id, ADMIN_DATA_BYTES, bytes, count);
        Ok(Self {
            session: Session::new(Queues::new(options.queues), Found::new(&options), AdminData::new(memory, id)),
            io: Io::new(options.io_commands(), options.command_retries, bounce),
            role,
            context: Context { transport: Transport::new(engine, options.commands()), time: Time::new(), options },
        })
    }

    /// Says who proves this host to controllers that ask for it, and controllers to this host ([`Authenticator`]). To be called before it
    /// is started, and of followers too.
    pub fn authenticates(&mut self, authenticator: Arc<dyn Authenticator>) {
        self.session.authenticates(authenticator);
    }

    /// Starts to connect, or to wait for a session to follow, where it is stopped or has failed.
    pub fn start(&mut self) {
        self.session.start(&self.role, &self.context);
    }

    /// Starts to connect there, of a host that is stopped; its next sessions are there as well.
    fn start_at(&mut self, address: SocketAddr) {
        self.context.options.address = address;
        self.start();
    }

    /// One iteration: completions, the session's next step, waiting requests. Returns the work done; 0 for an empty poll,
    /// behind which nothing is to be flushed. `now` must not go back. Time in which nobody polled counts against no
    /// controller, unless [`Host::poll_at`] allowed to sleep so long ([`frwr_engine::WatchedClock`]).
    pub fn poll(&mut self, now: Duration) -> u32 {
        self.context.time.begin(now);
        let work = self.take_events();
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

    /// Makes commands of what was asked for since, and posts what the iteration submitted; to be called at the end of every iteration.
    /// Returns the doorbells rung.
    pub fn flush(&mut self) -> u32 {
        self.submit_queued();
        self.context.transport.engine_mut().flush()
    }

    /// Ends the session in order: outstanding requests first, then the controller is shut down. Poll until
    /// [`Host::is_stopped`]. Followers have to be shut down as well: the controller is when the last of them has detached.
    pub fn shut_down(&mut self) {
        self.session.shut_down();
    }

    /// Proves this host once more on each queue of its session, beside the requests; the controller proves itself too where it has to. Where
    /// one side does not believe the other any more, the session ends and no other follows ([`HostFailure::Authentication`]). Asked again
    /// before it has begun, or while it runs, it is done once, or once more. Followers have to be asked as well.
    ///
    /// # Errors
    /// [`ReauthenticateError`].
    pub fn reauthenticate(&mut self) -> Result<(), ReauthenticateError> {
        self.session.reauthenticate()
    }

    /// Drops all connections without a word to the controller, as a crash of the network would. The host reconnects.
    pub fn drop_connections(&mut self) {
        self.session.disconnect(&mut self.context);
    }

    /// When it has to be polled again although nothing arrives. A caller may sleep until then: a host that is polled at that time was idle,
    /// one that is polled later stood still, and its peers get the time that it did.
    #[must_use]
    pub fn poll_at(&self) -> Option<Duration> {
        let (own, judged) = self.session.due(self.io.waits(), &self.role, &self.context);
        let deadline = self.io.deadline().filter(|_| self.session.is_ready());
        let judged = judged.into_iter().chain(deadline).min();
        let judged = judged.map(|deadline| self.context.time.judged_at(deadline));
        let pause = self.io.paused_until().map(|at| self.context.time.seen_at(at));
        let engine = self.context.transport.engine().poll_at();
        let at = [own, judged, pause, engine].into_iter().flatten().min();
        self.context.time.announce(at);
        at
    }

    /// The session, counted from 1; 0 before the first. A follower's is the one that it was told of last.
    #[must_use]
    pub fn session(&self) -> u64 {
        if let Role::Follows(following) = &self.role { following.session() } else { self.session.number() }
    }

    /// Takes what the engine has to tell. Returns the work done.
    fn take_events(&mut self) -> u32 {
        let read = self.context.transport.poll(self.context.time.now());
        let mut work = read;
        for _ in 0..MAX_EVENTS_PER_POLL {
            match self.context.transport.next_event() {
                // What every command has. The others are larger, and not moved for it.
                Some(Event::Completed { cookie, status, .. }) => self.completed(cookie, status),
                Some(event) => self.event(event),
                None => break,
            }
            work += 1;
        }
        let engine = self.context.transport.engine();
        self.context.time.judge(engine.may_have_unread(read), engine.polls_of_full_queues());
        work
    }

    /// What is no command's end.
    #[cold]
    fn event(&mut self, event: Event) {
        match event {
            Event::Connected { connection, private_data, .. } => {
                let connected = self.session.connected(connection, &private_data, &mut self.context);
                self.fail_if(connected);
            }
            Event::OpenFailed { connection, reason, private_data } => {
                self.disconnected(connection, HostFailure::of_open(reason, &private_data));
            }
            Event::Disconnected { connection, cause, .. } => {
                self.disconnected(connection, HostFailure::Disconnected(cause));
            }
            // `classify` calls nothing a command; if the engine did, the buffer would have to go back all the same.
            Event::Received { received, .. } => self.context.transport.engine_mut().release(received),
            // It neither listens nor transfers, and shares its completion queues with nobody; an end that waits for the
            // device is told later.
            _ => {}
        }
    }

    /// A connection is gone, or could not be opened.
    fn disconnected(&mut self, connection: ConnectionId, failure: HostFailure) {
        if !self.session.disconnected(connection) {
            return;
        }
        let by_peer = failure == HostFailure::Disconnected(DisconnectCause::Peer);
        if by_peer && self.session.is_stopping() && self.session.is_quiet(self.io.is_idle(), &self.role, &self.context)
        {
            // A controller that is told to shut down may end the session before we do: that is the end that was asked for.
            self.close(After::Stop);
        } else {
            self.fail(failure);
        }
    }

    fn completed(&mut self, cookie: u64, status: RequestStatus) {
        let Some((slot, answer)) = self.context.transport.ended(cookie, status) else { return };
        let Some(admin) = self.context.options.admin_of(slot) else { return self.io_ended(slot, answer) };
        match (admin, answer) {
            (AdminSlot::Step, Answer::Replied(reply)) => {
                let turn = self.session.step_answered(reply, &mut self.context);
                self.turn(turn);
            }
            (AdminSlot::Chore, Answer::Replied(reply)) => self.chore_answered(reply),
            (AdminSlot::Chore, _) => self.session.chore_refused(),
            (AdminSlot::Event, Answer::Replied(reply)) => self.session.event_reported(reply),
            // A step that was lost with its connection fails with it; one that the engine refused fails by its deadline. A
            // command that the controller says it could not abort has its own reply, or its deadline.
            (AdminSlot::Step | AdminSlot::KeepAlive | AdminSlot::Event | AdminSlot::Abort, _) => {}
        }
    }

    /// A command of I/O came back.
    fn io_ended(&mut self, slot: u16, answer: Answer) {
        let reply = match answer {
            Answer::Replied(reply) => reply,
            Answer::Unanswered(why) => return self.io_unanswered(slot, why),
        };
        let Some(mut path) = self.session.path() else { return };
        if let Some(state) = self.io.answered(slot, reply.status, &mut path, &mut self.context) {
            // The log page has to say what next.
            self.session.told(state, &self.context);
            self.role.refused(state);
        }
    }

    #[cold]
    fn io_unanswered(&mut self, slot: u16, why: Unanswered) {
        let over = (self.session.ends_elsewhere(), self.session.is_over());
        let Some(mut path) = self.session.path() else { return };
        match why {
            Unanswered::Refused(error) => self.io.unsent(slot, error, &mut path),
            Unanswered::Lost => self.io.lost(slot, true, &mut path, over),
            Unanswered::NotPosted => self.io.lost(slot, false, &mut path, over),
        }
    }

    fn chore_answered(&mut self, reply: Reply) {
        match self.session.chore_answered(reply, &self.context) {
            Ok(true) => self.role.update(),
            Ok(false) => {}
            Err(failure) => self.fail(failure),
        }
    }

    fn step_session(&mut self) {
        let turn = self.session.step(self.io.is_idle(), &self.role, &mut self.context);
        self.turn(turn);
    }

    fn step_keep_alive(&mut self) {
        let kept = self.session.step_keep_alive(&mut self.context);
        self.fail_if(kept);
    }

    /// Has a command aborted that takes too long.
    fn step_timeouts(&mut self) {
        if !self.session.is_ready() {
            return;
        }
        let Some(mut path) = self.session.path() else { return };
        match self.io.late(&mut path, &self.context) {
            Ok(None) => {}
            Ok(Some(late)) => self.send_abort(&late),
            Err(failure) => self.fail(failure),
        }
    }

    fn send_abort(&mut self, late: &Late) {
        let queue_id = self.session.queues().id(late.queue);
        let (sent, abortion) = match &mut self.role {
            Role::Follows(following) => (following.abort(queue_id, late.identifier), Abortion::Asked),
            Role::Leads(_) => (self.session.send_abort(queue_id, late.identifier, &mut self.context), Abortion::Sent),
        };
        self.io.asked_to_abort(late.slot, sent.then_some(abortion), &self.context);
    }

    /// What the admin queue does beside I/O, and what nobody waits for any longer.
    fn step_chores(&mut self) {
        if !self.session.is_ready() {
            return;
        }
        self.step_follower_aborts();
        if !self.role.follows() {
            let done = self.session.step_chores(&mut self.context);
            self.fail_if(done);
        }
        if !self.session.takes_commands() {
            self.io.give_back_queued();
        }
        if let Some(state) = self.session.is_unreachable(&self.context) {
            self.io.end_queued(IoError::Inaccessible(state));
        }
    }

    /// Sends the next Abort of a follower; where there is no room, the next poll tries again.
    fn step_follower_aborts(&mut self) {
        if let Role::Leads(followers) = &mut self.role
            && let Some(ToAbort { queue_id, command_id, .. }) = followers.next_abort()
            && self.session.send_abort(queue_id, command_id, &mut self.context)
        {
            followers.abort_sent();
        }
    }

    /// Hands commands to the engine while there is a session and room.
    fn submit_queued(&mut self) {
        if self.session.takes_commands()
            && let Some(mut path) = self.session.path()
        {
            self.io.submit(&mut path, &mut self.context);
        }
    }

    /// What a session has come to.
    fn turn(&mut self, turn: Result<Turn, HostFailure>) {
        match turn {
            Ok(Turn::None) => {}
            Ok(Turn::Ready) => {
                self.role.begin();
                self.settle();
            }
            Ok(Turn::Stop) => self.close(After::Stop),
            Ok(Turn::Closed(then)) => {
                self.session.closed(then, &self.role, &self.context);
                self.role.closed(matches!(then, After::Fail(_)));
                self.io.give_back_queued();
                if then != After::Retry {
                    self.io.end_queued(IoError::Abandoned);
                }
            }
            Err(failure) => self.fail(failure),
        }
    }

    /// Where all queues of all cores are up, the session is whole.
    fn settle(&mut self) {
        if self.role.is_settled() {
            self.session.settled(&self.context);
        }
    }

    fn fail_if(&mut self, result: Result<(), HostFailure>) {
        if let Err(failure) = result {
            self.fail(failure);
        }
    }

    /// Ends the session because of a failure.
    fn fail(&mut self, failure: HostFailure) {
        self.role.failed(failure);
        self.session.fail(failure, &self.role, &mut self.context);
        self.role.end();
    }

    fn close(&mut self, then: After) {
        self.session.close(then, &mut self.context);
        self.role.end();
    }
}
