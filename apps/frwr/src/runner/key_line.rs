//! One line of `--trace-keys`: an object of JSON, whose members docs/traces.md explains.

use super::trace::Origin;
use frwr_engine::{
    Access, DisconnectCause, PadFailure, TracePoint, TraceRecord,
    provider::{CommandError, Errno, Failure, PostError},
};
use serde_json::Value;
use std::io::{self, Write as _};

/// Writes what a record says; nothing where it is about no key, no failure and no end.
pub(super) fn write(out: &mut Vec<u8>, origin: &Origin, record: &TraceRecord) -> io::Result<()> {
    let mut line = Line { out, origin, record };
    match record.point {
        TracePoint::MrRegister { told } => {
            line.of_key("registered", None)?;
            if told { line.of_key("told", None) } else { Ok(()) }
        }
        TracePoint::KeyTold => line.of_key("told", None),
        TracePoint::MrLocalInvalidate => line.of_key("killed", Some("local_inv")),
        TracePoint::LocalInvalidateDone => line.of_key("dead", Some("local_inv")),
        TracePoint::KeyDoomed => line.of_key("killed", Some("destruction")),
        TracePoint::KeyDestroyed => line.of_key("dead", Some("destruction")),
        TracePoint::MrRemoteInvalidate => {
            line.of_key("killed", Some("peer"))?;
            line.of_key("dead", Some("peer"))
        }
        TracePoint::KeyOrphaned => line.of_key("orphaned", None),
        TracePoint::PeerKeyRead => line.of_peers_key("peer_key_read"),
        TracePoint::PeerKeyWritten => line.of_peers_key("peer_key_written"),
        TracePoint::PeerKeyInvalidated => line.of_peers_key("peer_key_killed"),
        TracePoint::RegisterFailed(failure) => {
            line.failed("registration", true, Numbers::of_failure(failure), &failure.to_string())
        }
        TracePoint::LocalInvalidateFailed(failure) => {
            line.failed("local_inv", true, Numbers::of_failure(failure), &failure.to_string())
        }
        TracePoint::MrDestroyFailed(error) => {
            line.failed("destruction", true, Numbers::of_command(error), &error.to_string())
        }
        TracePoint::MrAllocationFailed(error) => {
            line.failed("allocation", false, Numbers::of_command(error), &error.to_string())
        }
        TracePoint::PadFailed(failure) => line.failed("pad", false, Numbers::of_pad(failure), &failure.to_string()),
        TracePoint::PostSendRefused(error) => line.failed("post", false, Numbers::of_post(error), &error.to_string()),
        TracePoint::PostReceivesRefused(error) => {
            line.failed("post_receives", false, Numbers::of_post(error), &error.to_string())
        }
        TracePoint::NoMrs => line.failed("no_mrs", false, Numbers::NONE, "a request waits for MRs"),
        TracePoint::MarshalFailed => {
            line.failed("announcement", false, Numbers::NONE, "the message had no room for the keys")
        }
        TracePoint::Disconnect(cause) => line.disconnected(cause),
        TracePoint::MrMapped
        | TracePoint::MrReset
        | TracePoint::PostSend
        | TracePoint::MrsCreated
        | TracePoint::MrDestroyed => Ok(()),
    }
}

/// What a failure is told by, beside words.
#[derive(Clone, Copy)]
struct Numbers {
    status: Option<Failure>,
    errno: Option<Errno>,
}

impl Numbers {
    const NONE: Self = Self { status: None, errno: None };

    fn of_failure(failure: Failure) -> Self {
        Self { status: Some(failure), errno: None }
    }

    fn of_command(error: CommandError) -> Self {
        Self { status: None, errno: Some(error.errno()) }
    }

    fn of_post(error: PostError) -> Self {
        Self { status: None, errno: Some(error.errno) }
    }

    fn of_pad(failure: PadFailure) -> Self {
        match failure {
            PadFailure::PostRefused(error) => Self::of_post(error),
            PadFailure::NoMr | PadFailure::NoMemory => Self::NONE,
        }
    }
}

struct Line<'a> {
    out: &'a mut Vec<u8>,
    origin: &'a Origin,
    record: &'a TraceRecord,
}

impl Line<'_> {
    fn begin(&mut self, event: &str) -> io::Result<()> {
        let Origin { side, reactor, cpu, base_ns } = self.origin;
        let TraceRecord { time_ns, connection, .. } = self.record;
        let time_ns = base_ns + time_ns;
        write!(self.out, r#"{{"time_ns":{time_ns},"core":"#)?;
        match cpu {
            Some(cpu) => write!(self.out, "{cpu}")?,
            None => write!(self.out, "null")?,
        }
        write!(self.out, r#","reactor":{reactor},"side":"{side}","connection":{connection},"event":"{event}""#)
    }

    fn key(&mut self) -> io::Result<()> {
        let TraceRecord { mr, owner, handle, length, offset, access, .. } = *self.record;
        write!(self.out, r#","key":"{handle:#010x}","mr":{mr},"request":"#)?;
        // The pad belongs to none.
        if owner == u32::MAX {
            write!(self.out, "null")?
        } else {
            write!(self.out, "{owner}")?
        }
        write!(self.out, r#","address":"{offset:#x}","bytes":{length}"#)?;
        let right = match access {
            Some(Access::RemoteRead) => "read",
            Some(Access::RemoteWrite) => "write",
            Some(Access::RemoteReadWrite) => "read_write",
            None => return Ok(()),
        };
        write!(self.out, r#","right":"{right}""#)
    }

    fn of_key(&mut self, event: &str, by: Option<&str>) -> io::Result<()> {
        self.begin(event)?;
        if let Some(by) = by {
            write!(self.out, r#","by":"{by}""#)?;
        }
        self.key()?;
        writeln!(self.out, "}}")
    }

    fn of_peers_key(&mut self, event: &str) -> io::Result<()> {
        self.begin(event)?;
        let TraceRecord { handle, length, .. } = self.record;
        writeln!(self.out, r#","key":"{handle:#010x}","bytes":{length}}}"#)
    }

    fn numbers(&mut self, Numbers { status, errno }: Numbers, text: &str) -> io::Result<()> {
        if let Some(Failure { status, vendor_code }) = status {
            write!(self.out, r#","status":{},"vendor_code":{vendor_code}"#, status.number())?;
        }
        if let Some(Errno(errno)) = errno {
            write!(self.out, r#","errno":{errno}"#)?;
        }
        writeln!(self.out, r#","text":{}}}"#, Value::from(text))
    }

    fn failed(&mut self, what: &str, has_key: bool, numbers: Numbers, text: &str) -> io::Result<()> {
        self.begin("failed")?;
        write!(self.out, r#","what":"{what}""#)?;
        if has_key {
            self.key()?;
        }
        self.numbers(numbers, text)
    }

    fn disconnected(&mut self, cause: DisconnectCause) -> io::Result<()> {
        let numbers = match cause {
            DisconnectCause::WorkRequest(failure) => Numbers::of_failure(failure),
            DisconnectCause::PostRefused(error) => Numbers::of_post(error),
            _ => Numbers::NONE,
        };
        self.begin("disconnected")?;
        self.numbers(numbers, &cause.to_string())
    }
}
