//! Why a measurement could not begin or go on. Every message names the limit, the value and the remedy, in one line.

use super::parameters::{DecodeError, Excess, PROTOCOL_VERSION, Quantity, Refusal, SIZE_GRAIN};
use crate::runner::RunError;
use frwr_engine::{DisconnectCause, OpenError, OpenFailure, SubmitError, TransferError, provider::CommandError};
use std::net::SocketAddr;

/// Exit code of a run that failed.
const FAILED: u8 = 1;
/// Exit code of wrong arguments.
const USAGE: u8 = 2;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum LatencyError {
    /// Devices, cores, memory: as for the other runs.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A number out of its limits.
    #[error("{}", excess(.0))]
    Excess(Excess),
    /// Arguments that do not go together.
    #[error("{flag} {why}")]
    Combination {
        /// Which option.
        flag: &'static str,
        /// What it does not go with, and the remedy.
        why: String,
    },
    /// A client's option on a server.
    #[error(
        "{option} is the client's to decide, and without HOST this is the server, which does what clients ask for; leave it out, or name \
         HOST, or --one-process for both"
    )]
    OfClient {
        /// Which.
        option: String,
    },
    /// No address of that name.
    #[error(
        "{host} cannot be the server ({reason}); name an IP address, or a host that resolves to one, as HOST or HOST:PORT"
    )]
    Host {
        /// What was given.
        host: String,
        /// Why.
        reason: String,
    },
    /// The device's own address is not known.
    #[error(
        "device {device} has no IPv4 address to listen at; set one on its network interface, or give --listen ADDRESS"
    )]
    NoAddress {
        /// Which.
        device: String,
    },
    /// A file of results cannot be written.
    #[error("{flag}: {path} cannot be written ({source}); name a file in a writable folder")]
    File {
        /// Which option.
        flag: &'static str,
        /// Where.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The curve cannot be drawn: a defect of this program.
    #[error("--svg: the curve cannot be drawn: {0}")]
    Plot(String),
    /// The measurement ended.
    #[error("{peer}: {failure}")]
    Failed {
        /// The peer's address.
        peer: SocketAddr,
        /// Why.
        failure: Failure,
    },
}

/// Why a client's core could not go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody is there.
    #[error("no connection: {0}; start `frwr latency` without a host name there, and compare addresses and ports")]
    Unreachable(OpenFailure),
    /// The engine does not even begin.
    #[error("no connection: {0}")]
    Open(OpenError),
    /// It took too long.
    #[error("not ready after {seconds} s ({step}); see what the server says, and whether it is busy")]
    Timeout {
        /// How long.
        seconds: u64,
        /// What was waited for.
        step: &'static str,
    },
    /// The server, or the device, owes something and does not move.
    #[error(
        "nothing has come for {seconds} s, after {requests} requests; see whether the server and its machine are alive"
    )]
    Silent {
        /// How long.
        seconds: u64,
        /// Requests ended.
        requests: u64,
    },
    /// The server said no.
    #[error("{}", refused(.0))]
    Refused(Refusal),
    /// More connections than the server's cores answered in time.
    #[error(
        "{open} of {asked} connections are open after {seconds} s: each of the server's cores takes {most} connect requests at a \
         time; lower --connections or --cores here, or give the server more --cores"
    )]
    Crowded {
        /// Connections of this core that are open.
        open: usize,
        /// Connections of this core.
        asked: usize,
        /// How long they were given.
        seconds: u64,
        /// The limit.
        most: u16,
    },
    /// Somebody else listens there.
    #[error("who listens there is no server of frwr latency; start `frwr latency` there, and compare ports")]
    Foreign(DecodeError),
    /// One key of the server does not cover what is asked for.
    #[error("the server's device cannot open {bytes} bytes with one key; lower --depth or --size")]
    ServerKey {
        /// Of all requests of a connection.
        bytes: u64,
    },
    /// The server's system does not register its memory.
    #[error(
        "the server's system does not register its memory by ibv_reg_mr; raise `ulimit -l` there, or use --key static"
    )]
    ServerMemory,
    /// One key does not cover what is asked for.
    #[error("this device cannot open {bytes} bytes{} with one key; lower {remedy}", in_pieces(*pieces))]
    Key {
        /// Bytes.
        bytes: u64,
        /// Pieces that they are in.
        pieces: u8,
        /// Which options, and what else helps.
        remedy: &'static str,
    },
    /// The peer is gone.
    #[error("the peer is gone after {requests} requests: {cause}")]
    Gone {
        /// Requests ended.
        requests: u64,
        /// How the first connection ended.
        cause: DisconnectCause,
    },
    /// What should have been moved was not.
    #[error(
        "request {request} moved nothing, or the wrong bytes: {found:#x} where {wanted:#x} should be; device or path is \
         broken, do not use these figures"
    )]
    NotMoved {
        /// Its number.
        request: u64,
        /// What was found.
        found: u64,
        /// What should have been.
        wanted: u64,
    },
    /// The engine took no request.
    #[error("a request was refused: {0}")]
    Submit(#[from] SubmitError),
    /// The engine took no transfer.
    #[error("a transfer was refused: {0}")]
    Transfer(#[from] TransferError),
    /// ibv_reg_mr or ibv_dereg_mr failed.
    #[error("registering memory by a system call failed: {0}; `ulimit -l`, `rdma resource show mr`")]
    Memory(CommandError),
    /// A request ended in a way that it cannot: a defect.
    #[error("a request ended as {0}")]
    Ended(&'static str),
}

fn in_pieces(pieces: u8) -> String {
    if pieces > 1 { format!(" in {pieces} pieces") } else { String::new() }
}

fn excess(excess: &Excess) -> String {
    let Excess { what, value, least, most } = *excess;
    let name = what.name();
    if what != Quantity::Size {
        return format!("{name} is {value}: must be from {least} to {most}; choose a value inside");
    }
    // The least is the grain: sizes are multiples of it.
    let (below, above) = (value / least * least, value.div_ceil(least) * least);
    let choose = match (below >= least, above <= most) {
        _ if !(least..=most).contains(&value) => "choose one of those".to_owned(),
        (true, true) => format!("choose {below} or {above}"),
        (false, _) => format!("choose {above}"),
        (true, false) => format!("choose {below}"),
    };
    format!(
        "{name} is {value}: must be a multiple of {least} from {least} to {most} ({SIZE_GRAIN} bytes for each segment and range); {choose}"
    )
}

fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Malformed => {
            "the server cannot read what this program asks for; use the same build on both".to_owned()
        }
        Refusal::Version(theirs) => format!(
            "the server speaks version {theirs} of the protocol, this program version {PROTOCOL_VERSION}; use the same build \
             on both"
        ),
        Refusal::Excess(beyond) => format!("the server refuses: {}", excess(beyond)),
        Refusal::Busy => "the server is busy with another client; try again when that has ended".to_owned(),
        Refusal::Again => "the server did not make room in time; try again".to_owned(),
        Refusal::RemoteInvalidation => {
            "the server's device cannot invalidate keys of peers; choose --invalidate local".to_owned()
        }
        Refusal::NoKeys => {
            "the server's device opens no keys by work requests (`frwr check --device` there says why); use --key memory".to_owned()
        }
        Refusal::Crowded(most) => {
            format!(
                "each of the server's cores takes {most} connect requests at a time; lower --connections or --cores"
            )
        }
        Refusal::NoRoom => {
            "the server has too little memory, or too small a device, for what is asked, and says what is \
                            missing; lower --size, --depth or --connections"
                .to_owned()
        }
    }
}

impl LatencyError {
    /// Stable name for JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Run(error) => error.name(),
            Self::Excess(_) => "out_of_range",
            Self::Combination { .. } | Self::OfClient { .. } => "combination",
            Self::Host { .. } => "host",
            Self::NoAddress { .. } => "address",
            Self::File { .. } => "file",
            Self::Plot(_) => "plot",
            Self::Failed { failure, .. } => failure.name(),
        }
    }

    /// One key of a device does not cover what was asked for: a smaller size may do.
    pub(super) fn is_beyond_a_key(&self) -> bool {
        matches!(self, Self::Failed { failure: Failure::Key { .. } | Failure::ServerKey { .. }, .. })
    }

    /// 2 for what another command line would cure, 1 for the rest.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_code(),
            Self::Excess(_) | Self::Combination { .. } | Self::OfClient { .. } => USAGE,
            _ => FAILED,
        }
    }
}

impl Failure {
    /// Stable name for JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unreachable(_) | Self::Open(_) => "unreachable",
            Self::Timeout { .. } | Self::Silent { .. } => "timeout",
            Self::Refused(Refusal::Version(_)) => "version",
            Self::Refused(Refusal::Busy) => "busy",
            Self::Refused(Refusal::Crowded(_)) | Self::Crowded { .. } => "crowded",
            Self::Refused(_) => "refused",
            Self::Foreign(_) => "foreign_peer",
            Self::ServerKey { .. } | Self::ServerMemory | Self::Key { .. } => "key",
            Self::Gone { .. } => "peer_gone",
            Self::NotMoved { .. } => "not_moved",
            Self::Submit(_) | Self::Transfer(_) | Self::Ended(_) => "request",
            Self::Memory(_) => "register_memory",
        }
    }
}
