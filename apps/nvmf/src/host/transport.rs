//! The engine, and the identifiers of the commands that it has.

use super::commands::{Capsule, Commands, Reply};
use super::error::IoError;
use crate::wire::{Command, RequestPrivateData, SubmissionQueueEntry};
use core::time::Duration;
use frwr_engine::gather::Segment;
use frwr_engine::provider::Port;
use frwr_engine::{Chunk, ConnectionId, ConnectionOptions, Engine, Event, RequestStatus, Submission, SubmitError};
use frwr_mempool::mutant;
use std::net::SocketAddr;
use zerocopy::IntoBytes;

/// What goes with a command.
pub(super) struct Outgoing<'a> {
    /// Keys that the capsule names.
    pub(super) keys: u8,
    /// The controller is asked to invalidate the key.
    pub(super) invite: bool,
    /// Data that travels in the capsule.
    pub(super) inline: &'a [Segment],
    /// Memory that the controller is to reach.
    pub(super) chunks: &'a [Chunk<'a>],
}

/// How a command that the engine had came back. Its keys are dead.
pub(super) enum Answer {
    Replied(Reply),
    Unanswered(Unanswered),
}

/// Why a command came back that has no reply.
pub(super) enum Unanswered {
    /// The engine did not send it.
    Refused(IoError),
    /// It was lost with its connection, or its answer was.
    Lost,
    /// The device refused to post it, and the connection goes on.
    NotPosted,
}

impl Unanswered {
    #[cold]
    fn of(status: &RequestStatus) -> Self {
        match status {
            RequestStatus::Unannounced => Self::Refused(IoError::TooManyKeys),
            RequestStatus::MemoryRemoved => Self::Refused(IoError::Submit(SubmitError::UnknownMemory)),
            RequestStatus::TooFewRegistrations => Self::Refused(IoError::Submit(SubmitError::TooManyRegistrations)),
            RequestStatus::PostRefused => Self::NotPosted,
            _ => Self::Lost,
        }
    }
}

/// The engine and command identifiers, of which it knows its requests by.
pub(super) struct Transport<P: Port> {
    engine: Engine<P>,
    commands: Commands,
    capsule: Capsule,
}

impl<P: Port> Transport<P> {
    /// `commands`: slots, of which each has one command at a time.
    pub(super) fn new(engine: Engine<P>, commands: u16) -> Self {
        Self { engine, commands: Commands::new(commands), capsule: Capsule::EMPTY }
    }

    /// Returns the work done.
    pub(super) fn poll(&mut self, now: Duration) -> u32 {
        self.engine.poll(now, &mut self.commands)
    }

    #[inline(always)]
    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.engine.next_event()
    }

    pub(super) fn engine(&self) -> &Engine<P> {
        &self.engine
    }

    pub(super) fn engine_mut(&mut self) -> &mut Engine<P> {
        &mut self.engine
    }

    /// Which slots have a command in flight, and its identifier.
    pub(super) fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Begins to open a connection, unless the engine cannot now.
    pub(super) fn connect(
        &mut self,
        address: SocketAddr,
        private_data: &RequestPrivateData,
        options: &ConnectionOptions,
    ) -> Option<ConnectionId> {
        self.engine.connect(address, private_data.as_bytes(), options).ok()
    }

    pub(super) fn disconnect(&mut self, connection: ConnectionId) {
        self.engine.disconnect(connection);
    }

    /// Hands a slot's next command to the engine, one that is no I/O.
    pub(super) fn ask(
        &mut self,
        connection: ConnectionId,
        slot: u16,
        command: &Command,
        chunks: &[Chunk<'_>],
    ) -> Result<(), SubmitError> {
        let mut entry = command.encode(0).map_err(|_| SubmitError::MessageLength)?;
        let outgoing = Outgoing { keys: 1, invite: false, inline: &[], chunks };
        self.submit(connection, slot, &mut entry, &outgoing)
    }

    /// Hands a slot's next command to the engine, by an entry that has no identifier yet.
    #[inline(always)]
    pub(super) fn submit(
        &mut self,
        connection: ConnectionId,
        slot: u16,
        entry: &mut SubmissionQueueEntry,
        outgoing: &Outgoing<'_>,
    ) -> Result<(), SubmitError> {
        let identifier = self.commands.next_identifier(slot);
        entry.command_id = identifier.into();
        let message = match outgoing.keys {
            0 | 1 => entry.as_bytes(),
            keys => self.capsule.listed(entry, keys).ok_or(SubmitError::MessageLength)?,
        };
        let submission = Submission {
            message,
            inline: outgoing.inline,
            chunks: outgoing.chunks,
            invite_invalidation: outgoing.invite,
            iova_cookie: identifier.into(),
            cookie: identifier.into(),
        };
        let handle = self.engine.submit(connection, &submission, &mut self.commands)?;
        self.commands.posted(slot, connection, handle);
        Ok(())
    }

    /// A command came back: its slot, and how. `None` where it is none of the latest ones. Its receive goes back.
    pub(super) fn ended(&mut self, cookie: u64, status: RequestStatus) -> Option<(u16, Answer)> {
        let ended = u16::try_from(cookie).ok().and_then(|identifier| self.commands.ended(identifier));
        match status {
            RequestStatus::Replied(received) => {
                if !mutant!(S10_host_receive) {
                    self.engine.release(received);
                }
                let (slot, reply) = ended?;
                Some((slot, reply.map_or(Answer::Unanswered(Unanswered::Lost), Answer::Replied)))
            }
            other => ended.map(|(slot, _)| (slot, Answer::Unanswered(Unanswered::of(&other)))),
        }
    }
}
