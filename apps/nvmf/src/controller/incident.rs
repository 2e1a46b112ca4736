//! What peers did wrong: a bounded list of records, for whoever may print them.

use super::Target;
use super::connect::Names;
use super::refusal::{Offered, Printable, Refusal, Rejection};
use super::session::Connecting;
use crate::stood_still::StoodStill;
use crate::storage::Storage;
use crate::wire::{
    self, Command, DataPointer, KeyedDataBlock, Nqn, QueueKind, SGL_DESCRIPTOR_BYTES, Status, SubmissionQueueEntry,
};
use core::fmt;
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, DisconnectCause};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Incidents kept until they are taken: more than a poll iteration brings unless somebody floods the target, and then they
/// are all alike. What has no room is counted.
pub const MAX_INCIDENTS: usize = 64;

/// Something that a peer did, and that no correct one does, or that a storage that hangs does to a peer; it cost the peer a command, its
/// connection, or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incident {
    /// Where the peer is, if the device knows.
    pub peer: Option<SocketAddr>,
    /// Who it said to be by Connect.
    pub host: Option<Nqn>,
    /// The subsystem that its Connect named, where that was refused.
    pub subsystem: Option<Nqn>,
    /// What there is where there is no such subsystem.
    pub offered: Option<Offered>,
    /// The queue that the connect request named; `None` where it named none.
    pub queue_id: Option<u16>,
    /// What was wrong.
    pub fault: Fault,
}

impl Incident {
    /// Of a peer of which nothing else is known.
    #[must_use]
    pub const fn new(peer: Option<SocketAddr>, fault: Fault) -> Self {
        Self { peer, host: None, subsystem: None, offered: None, queue_id: None, fault }
    }
}

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A connect request was rejected.
    Rejected(Rejection),
    /// A Connect was refused.
    ConnectRefused(Refusal),
    /// The connection, or a controller that was not enabled, was ended for somebody else to have its place.
    MadeRoom {
        /// So long after it was accepted.
        after: Duration,
        /// A Connect had made it a queue.
        is_queue: bool,
    },
    /// A host that asked for no keep alive was silent, and so was its device; the controller was ended.
    Unanswered {
        /// Silence behind which the device was asked.
        silence: Duration,
        /// How long that had for its answer.
        probe: Duration,
    },
    /// A message is shorter than a command; the connection was ended.
    ShortCapsule {
        /// Its bytes.
        bytes: u32,
    },
    /// More commands than the queue has entries; the connection was ended.
    Overrun {
        /// Entries of the queue.
        entries: u16,
    },
    /// A command has the identifier of one that was not answered yet; the connection was ended, because no answer could
    /// say which of the two it is for.
    CommandIdentifier {
        /// The identifier.
        command_id: u16,
    },
    /// The engine did not take a transfer that the peer described; the connection was ended.
    Transfer,
    /// No Connect made the connection a queue in time; it was ended.
    Silent {
        /// The time.
        limit: Duration,
    },
    /// Nothing was heard for the Keep Alive Timeout; the controller was ended.
    KeepAlive {
        /// The time-out.
        limit: Duration,
        /// How long nobody polled the core of its admin queue since it was connected. That does not count.
        stood_still: Duration,
    },
    /// A command was refused for what its host knows not to do.
    Refused {
        /// Its opcode.
        opcode: u8,
        /// As the host was told.
        status: Status,
        /// Why.
        breach: Breach,
    },
    /// The connection failed.
    Connection {
        /// How.
        cause: DisconnectCause,
    },
    /// A Connect is held back, because a storage has commands of a former session of its host. That is not the host's fault, but
    /// what it knows of it is that nobody answers.
    Held {
        /// For so long since this was told last.
        limit: Duration,
    },
    /// The peer ended the connection while commands were in flight.
    Vanished {
        /// Commands.
        commands: u16,
    },
}

impl Fault {
    /// A number for each kind of fault, the same for those that differ in their figures only.
    #[must_use]
    pub fn kind(&self) -> u32 {
        match self {
            // The status has 16 bits.
            Self::Rejected(rejection) => 0x1_0000 | rejection.kind(),
            Self::Refused { status, .. } => 0x2_0000 | u32::from(status.to_wire()),
            Self::Connection { cause: DisconnectCause::WorkRequest(failure) } => {
                0x3_0000 | u32::from(failure.status.number())
            }
            Self::ConnectRefused(refusal) => 0x4_0000 | refusal.kind(),
            Self::ShortCapsule { .. } => 1,
            Self::Overrun { .. } => 2,
            Self::CommandIdentifier { .. } => 3,
            Self::Transfer => 4,
            Self::Silent { .. } => 5,
            Self::KeepAlive { .. } => 6,
            Self::Connection { .. } => 7,
            Self::Vanished { .. } => 8,
            Self::Held { .. } => 9,
            Self::MadeRoom { .. } => 10,
            Self::Unanswered { .. } => 11,
        }
    }
}

/// A value that a peer chose, and what it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// Outside of its range.
    Range {
        /// What it is.
        what: &'static str,
        /// The value.
        value: u64,
        /// Lowest value.
        least: u64,
        /// Highest value.
        most: u64,
    },
    /// An amount that fits nothing the command could be.
    Amount {
        /// Of what.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// One that the target does not know or offer.
    Unknown {
        /// What it is.
        what: &'static str,
        /// The value.
        value: u64,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { what, value, least, most } if least == most => write!(f, "{what} {value}, must be {least}"),
            Self::Range { what, value, least, most } => write!(f, "{what} {value}, must be from {least} to {most}"),
            Self::Amount { what, value } => write!(f, "{what} {value}, which the command does not take"),
            Self::Unknown { what, value } => write!(f, "{what} {value:#x}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A status of NVMe means nothing where nobody speaks it.
            Self::Rejected(rejection) if !rejection.is_of_nvme() => write!(f, "connect request rejected: {rejection}"),
            Self::Rejected(rejection) => write!(f, "connect request rejected, {}: {rejection}", rejection.status()),
            Self::ConnectRefused(refusal) => {
                write!(f, "Connect refused, {}: ", refusal.answer().0)?;
                refusal.tell(None, None, f)
            }
            Self::MadeRoom { after, is_queue: false } => {
                write!(f, "connection ended to make room for others: no Connect in {after:?}")
            }
            Self::MadeRoom { after, is_queue: true } => {
                write!(f, "connection ended to make room for others: its controller was not enabled in {after:?}")
            }
            Self::Unanswered { silence, probe } => write!(
                f,
                "connection ended: nothing heard in {silence:?} without a Keep Alive Timeout, nor of the host's device in {probe:?}"
            ),
            Self::ShortCapsule { bytes } => {
                write!(f, "connection ended: a message of {bytes} bytes, a command has {}", wire::COMMAND_CAPSULE_BYTES)
            }
            Self::Overrun { entries } => {
                write!(f, "connection ended: more commands than the queue's {entries} entries")
            }
            Self::CommandIdentifier { command_id } => {
                write!(f, "connection ended: a second command with identifier {command_id:#06x}")
            }
            Self::Transfer => f.write_str("connection ended: data that cannot be transferred"),
            Self::Silent { limit } => write!(f, "connection ended: no Connect in {limit:?}"),
            Self::KeepAlive { limit, stood_still } => {
                write!(
                    f,
                    "connection ended: nothing heard in the Keep Alive Timeout of {limit:?}{}",
                    StoodStill(*stood_still)
                )
            }
            Self::Refused { opcode, status, breach } => {
                write!(f, "command with opcode {opcode:#04x} refused, {status}: {breach}")
            }
            Self::Connection { cause } => write!(f, "connection ended: {cause}"),
            Self::Held { limit } => {
                write!(
                    f,
                    "Connect held back for another {limit:?}: commands of the host's former session have not ended"
                )
            }
            Self::Vanished { commands } => {
                write!(f, "the peer ended its connection with {commands} commands in flight")
            }
        }
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "peer {peer}")?,
            None => f.write_str("a peer")?,
        }
        if let Some(host) = &self.host {
            write!(f, ", host {}", Printable(Some(host)))?;
        }
        if let Some(queue_id) = self.queue_id {
            write!(f, ", queue {queue_id}")?;
        }
        match self.fault {
            Fault::ConnectRefused(refusal) => {
                write!(f, ": Connect refused, {}: ", refusal.answer().0)?;
                refusal.tell(self.subsystem.as_ref(), self.offered.as_ref(), f)
            }
            fault => write!(f, ": {fault}"),
        }
    }
}

/// Incidents that nobody has taken yet.
#[derive(Debug)]
pub(super) struct Incidents(VecDeque<Incident>);

impl Default for Incidents {
    fn default() -> Self {
        Self(VecDeque::with_capacity(MAX_INCIDENTS))
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    /// The oldest incident that was not taken yet. At most [`MAX_INCIDENTS`] are kept.
    pub fn next_incident(&mut self) -> Option<Incident> {
        self.incidents.0.pop_front()
    }

    #[cold]
    pub(super) fn note_incident(&mut self, incident: Incident) {
        self.statistics.incidents += 1;
        if self.incidents.0.len() < MAX_INCIDENTS {
            self.incidents.0.push_back(incident);
        } else {
            self.statistics.incidents_dropped += 1;
        }
    }

    /// Notes what the peer of a connection did.
    #[cold]
    pub(super) fn note_fault(&mut self, connection: ConnectionId, fault: Fault) {
        let Some(queue) = self.queue_mut(connection) else { return };
        let (host, queue_id) = (queue.host, Some(queue.asked.queue_id));
        let incident = Incident::new(queue.ends.peer, fault);
        self.note_incident(Incident { host, queue_id, ..incident });
    }

    /// Notes a Connect that waits for a storage, and for nothing else.
    #[cold]
    pub(super) fn note_held(&mut self, index: usize) {
        let Some(Some(queue)) = self.queues.get(index) else { return };
        if let Connecting::Held(Some(_)) = queue.connecting {
            self.note_fault(queue.connection, Fault::Held { limit: self.options.connect_timeout });
        }
    }

    /// The host broke the protocol: the queue cannot go on.
    #[cold]
    pub(super) fn protocol_error(&mut self, connection: ConnectionId, fault: Fault) {
        // Of messages that came in one batch the first that is wrong decides.
        let Some(queue) = self.queue_mut(connection).filter(|queue| !queue.doomed) else { return };
        queue.doomed = true;
        self.statistics.protocol_errors += 1;
        self.note_fault(connection, fault);
        self.engine.disconnect(connection);
    }

    /// Notes a connect request that is rejected.
    #[cold]
    pub(super) fn note_rejected(&mut self, peer: Option<SocketAddr>, queue_id: Option<u16>, rejection: Rejection) {
        let queue_id = queue_id.filter(|_| rejection.is_of_nvme());
        self.note_incident(Incident { queue_id, ..Incident::new(peer, Fault::Rejected(rejection)) });
    }

    /// Notes a command that was refused, where no correct host has it refused for this.
    #[cold]
    pub(super) fn note_refused(
        &mut self,
        connection: ConnectionId,
        entry: &SubmissionQueueEntry,
        length: u32,
        status: Status,
    ) {
        let breach = self.refused_for(connection, entry, length, status);
        if let Some(breach) = breach {
            self.note_fault(connection, Fault::Refused { opcode: entry.opcode, status, breach });
        }
    }

    fn refused_for(
        &mut self,
        connection: ConnectionId,
        entry: &SubmissionQueueEntry,
        length: u32,
        status: Status,
    ) -> Option<Breach> {
        let queue = self.queue_mut(connection)?;
        let (is_queue, association) = (queue.association.is_some(), queue.association);
        let kind = if queue.asked.queue_id == wire::ADMIN_QUEUE { QueueKind::Admin } else { QueueKind::Io };
        let descriptor = Descriptor::of(entry);
        let behind = u64::from(length).saturating_sub(wire::COMMAND_CAPSULE_BYTES as u64);
        let is = |other: Status| status.code() == other.code();
        let command = wire::decode(entry, kind);
        // Connect says itself why it is refused.
        if !is_queue && matches!(command, Ok(Command::Connect(_))) {
            return None;
        }
        let most = |what, value, most| Some(Breach::Range { what, value, least: 0, most });
        if !is_queue {
            return Some(Breach::Unknown { what: "before Connect, opcode", value: entry.opcode.into() });
        }
        if is(Status::SGL_DESCRIPTOR_TYPE_INVALID) {
            return Some(Breach::Unknown { what: "SGL descriptor", value: descriptor.identifier.into() });
        }
        if is(Status::SGL_OFFSET_INVALID) {
            return most("offset in the capsule", descriptor.offset, behind);
        }
        let descriptors = u64::from(descriptor.length) / SGL_DESCRIPTOR_BYTES as u64;
        if is(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS) || is(Status::INVALID_SGL_SEGMENT_DESCRIPTOR) {
            return most("SGL descriptors", descriptors, self.options.data_blocks.into());
        }
        let range = match command {
            Ok(Command::Read(range) | Command::Write(range) | Command::Compare(range)) => Some(range),
            _ => None,
        };
        let storage = range.and_then(|range| self.usable(association?.controller, range.namespace).ok());
        let bytes = range
            .zip(storage)
            .map(|(range, (_, storage))| u64::from(range.blocks) * u64::from(storage.geometry().block_bytes()));
        if is(Status::DATA_SGL_LENGTH_INVALID) {
            let value = u64::from(descriptor.length);
            let what = "bytes of data";
            return Some(match bytes {
                Some(bytes) if bytes != value => Breach::Range { what, value, least: bytes, most: bytes },
                _ if descriptor.in_capsule && value > behind => Breach::Range { what, value, least: 0, most: behind },
                _ => Breach::Amount { what, value },
            });
        }
        let limit = u64::from(self.options.buffer_bytes);
        bytes
            .filter(|bytes| is(Status::INVALID_FIELD) && *bytes > limit)
            .and_then(|bytes| most("bytes of data", bytes, limit))
    }

    /// Notes a Connect that is refused: of a host by the name that it claims, which nobody has looked at but for lists of names.
    #[cold]
    pub(super) fn note_connect_refused(&mut self, connection: ConnectionId, names: Names, refusal: Refusal) {
        let Names { host, subsystem } = names;
        let offered = subsystem.filter(|_| refusal == Refusal::NoSubsystem).and_then(|name| self.offered(&name));
        let Some(queue) = self.queue_mut(connection) else { return };
        let (peer, queue_id, fault) = (queue.ends.peer, Some(queue.asked.queue_id), Fault::ConnectRefused(refusal));
        self.note_incident(Incident { peer, host, subsystem, offered, queue_id, fault });
    }

    /// Names are compared byte by byte (Base 4.5): one that differs in case is most likely what was meant.
    fn offered(&self, name: &Nqn) -> Option<Offered> {
        let alike = self.subsystems.iter().find(|served| served.name.as_str().eq_ignore_ascii_case(name.as_str()));
        let name = alike.or(self.subsystems.first())?.name;
        // At most MAX_SUBSYSTEMS.
        Some(Offered { name, others: self.subsystems.len() as u16 - 1 })
    }

    /// Notes how a connection ended, where that was not by common consent.
    pub(super) fn note_end(&mut self, connection: ConnectionId, cause: DisconnectCause) {
        let fault = match cause {
            DisconnectCause::Local => return,
            DisconnectCause::Peer => match self.unanswered(connection) {
                0 => return,
                commands => Fault::Vanished { commands },
            },
            cause => Fault::Connection { cause },
        };
        self.note_fault(connection, fault);
    }

    /// Commands without an answer, but for event requests: those wait for ever.
    fn unanswered(&mut self, connection: ConnectionId) -> u16 {
        let Some(queue) = self.queue_mut(connection) else { return 0 };
        let (outstanding, association) = (queue.outstanding, queue.association);
        let controller = association.and_then(|association| self.controllers.get(association.controller)?.as_ref());
        let of_admin = controller.filter(|controller| controller.admin == Some(connection));
        outstanding.saturating_sub(of_admin.map_or(0, |controller| controller.events.waiting()))
    }
}

/// What a command's data pointer says, whatever it is.
struct Descriptor {
    identifier: u8,
    /// It points into the capsule, at data or at a list of data blocks.
    in_capsule: bool,
    offset: u64,
    length: u32,
}

impl Descriptor {
    fn of(entry: &SubmissionQueueEntry) -> Self {
        let identifier = entry.data[15];
        if let Some((offset, length)) = wire::last_segment(entry.data) {
            return Self { identifier, in_capsule: true, offset, length };
        }
        match DataPointer::decode(entry.data) {
            Ok(DataPointer::Keyed(KeyedDataBlock { length, .. })) => {
                Self { identifier, in_capsule: false, offset: 0, length }
            }
            Ok(DataPointer::InCapsule { offset, length }) => Self { identifier, in_capsule: true, offset, length },
            Err(_) => Self { identifier, in_capsule: false, offset: 0, length: 0 },
        }
    }
}
