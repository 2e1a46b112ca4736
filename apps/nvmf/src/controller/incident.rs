//! What peers did wrong: a bounded list of records, for whoever may print them.

use super::refusal::{Offered, Printable, Refusal, Rejection};
use crate::authentication::AuthenticationFailure;
use crate::stood_still::StoodStill;
use crate::wire::{self, Nqn, Status};
use core::fmt;
use core::time::Duration;
use frwr_engine::DisconnectCause;
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
    /// The host did not prove itself, or does not believe this controller; the connection was ended.
    Authentication(AuthenticationFailure),
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
    /// A Connect is held back, because its host has another session here and the host's device has not said yet whether that lives.
    HeldByFormer {
        /// For so long since this was told last.
        limit: Duration,
    },
    /// The host came again, and its device did not say that this session lives; the controller was ended.
    Left {
        /// How long that had for its answer.
        probe: Duration,
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
            Self::Authentication(failure) => 0x5_0000 | failure.kind(),
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
            Self::HeldByFormer { .. } => 12,
            Self::Left { .. } => 13,
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
            Self::Authentication(failure) => write!(f, "authentication failed, connection ended: {failure}"),
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
            Self::HeldByFormer { limit } => {
                write!(
                    f,
                    "Connect held back for another {limit:?}: its host has another session here, and the host's device has not \
                     said yet that it lives"
                )
            }
            Self::Left { probe } => {
                write!(
                    f,
                    "connection ended: its host came again, and the host's device has not said in {probe:?} that this session lives"
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
pub(super) struct Incidents {
    kept: VecDeque<Incident>,
    noted: u64,
    /// Of these, those that nobody took in time.
    dropped: u64,
}

impl Default for Incidents {
    fn default() -> Self {
        Self { kept: VecDeque::with_capacity(MAX_INCIDENTS), noted: 0, dropped: 0 }
    }
}

impl Incidents {
    /// The oldest one.
    pub(super) fn next(&mut self) -> Option<Incident> {
        self.kept.pop_front()
    }

    #[cold]
    pub(super) fn note(&mut self, incident: Incident) {
        self.noted += 1;
        if self.kept.len() < MAX_INCIDENTS {
            self.kept.push_back(incident);
        } else {
            self.dropped += 1;
        }
    }

    /// All that were noted, and those of them that nobody took in time.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.noted, self.dropped)
    }
}
