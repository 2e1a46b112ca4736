//! Why a measurement could not begin or go on, in words. Every line names the limit, the value and the remedy.

use super::parameters::{DecodeError, Excess, PROTOCOL_VERSION, Quantity, Refusal, SIZE_GRAIN};
use crate::error::Error;
use core::fmt::Display;
use frwr_engine::{DisconnectCause, OpenFailure, SubmitError, TransferError, provider::CommandError};

/// Arguments that do not go together: what the option does not go with, and the remedy.
pub(super) fn combination(flag: &str, why: impl Display) -> Error {
    Error::usage("combination", format!("{flag} {why}"))
}

/// A number out of its limits.
pub(super) fn excess(excess: Excess) -> Error {
    Error::usage("out_of_range", excess_text(&excess))
}

/// Nobody is there.
pub(super) fn unreachable(reason: OpenFailure) -> Error {
    let remedy = "start `frwr latency` without a host name there, and compare addresses and ports";
    Error::failed("unreachable", format!("no connection: {reason}; {remedy}"))
}

/// It took too long to do `step`.
pub(super) fn timeout(seconds: u64, step: &str) -> Error {
    let text = format!("not ready after {seconds} s ({step}); see what the server says, and whether it is busy");
    Error::failed("timeout", text)
}

/// The server, or the device, owes something and does not move, after so many requests.
pub(super) fn silent(seconds: u64, requests: u64) -> Error {
    let remedy = "see whether the server and its machine are alive";
    Error::failed("timeout", format!("nothing has come for {seconds} s, after {requests} requests; {remedy}"))
}

/// The run was told to end, and what was in flight then, after so many requests, did not.
pub(super) fn unended(seconds: u64, requests: u64) -> Error {
    let text = format!(
        "requests had not ended {seconds} s after the run was told to end, and were given up, after {requests} requests; \
         see whether the server and its machine are alive"
    );
    Error::failed("timeout", text)
}

/// Of the connections that were asked for so many are open: more than the server's cores answered in time, which take `most` each.
pub(super) fn crowded(open: usize, asked: usize, seconds: u64, most: u16) -> Error {
    let text = format!(
        "{open} of {asked} connections are open after {seconds} s: each of the server's cores takes {most} connect requests at a \
         time; lower --connections or --cores here, or give the server more --cores"
    );
    Error::failed("crowded", text)
}

/// Somebody else listens there.
pub(super) fn foreign(_: DecodeError) -> Error {
    let text = "who listens there is no server of frwr latency; start `frwr latency` there, and compare ports";
    Error::failed("foreign_peer", text)
}

/// One key of the server does not cover all requests of a connection.
pub(super) fn server_key(bytes: u32) -> Error {
    let text = format!("the server's device cannot open {bytes} bytes with one key; lower --depth or --size");
    Error::beyond_a_key(text)
}

/// The server's system does not register its memory.
pub(super) fn server_memory() -> Error {
    let text =
        "the server's system does not register its memory by ibv_reg_mr; raise `ulimit -l` there, or use --key static";
    Error::failed("key", text)
}

/// One key does not cover so many bytes in so many pieces; which options to lower, and what else helps.
pub(super) fn key(bytes: u32, pieces: u8, remedy: &str) -> Error {
    let pieces = if pieces > 1 { format!(" in {pieces} pieces") } else { String::new() };
    Error::beyond_a_key(format!("this device cannot open {bytes} bytes{pieces} with one key; lower {remedy}"))
}

/// The peer is gone, after so many requests.
pub(super) fn gone(requests: u64, cause: DisconnectCause) -> Error {
    Error::failed("peer_gone", format!("the peer is gone after {requests} requests: {cause}"))
}

/// What should have been moved was not.
pub(super) fn not_moved(request: u64, found: u64, wanted: u64) -> Error {
    let text = format!(
        "request {request} moved nothing, or the wrong bytes: {found:#x} where {wanted:#x} should be; device or path is \
         broken, do not use these figures"
    );
    Error::failed("not_moved", text)
}

/// ibv_reg_mr or ibv_dereg_mr failed.
pub(super) fn memory(error: CommandError) -> Error {
    let text = format!("registering memory by a system call failed: {error}; `ulimit -l`, `rdma resource show mr`");
    Error::failed("register_memory", text)
}

/// A request ended in a way that it cannot: a defect.
pub(super) fn ended(how: &str) -> Error {
    Error::failed("request", format!("a request ended as {how}"))
}

/// The engine took no request.
impl From<SubmitError> for Error {
    fn from(error: SubmitError) -> Self {
        Self::failed("request", format!("a request was refused: {error}"))
    }
}

/// The engine took no transfer.
impl From<TransferError> for Error {
    fn from(error: TransferError) -> Self {
        Self::failed("request", format!("a transfer was refused: {error}"))
    }
}

fn excess_text(excess: &Excess) -> String {
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

/// The server said no.
pub(super) fn refused(refusal: Refusal) -> Error {
    let (name, text) = match refusal {
        Refusal::Malformed => {
            ("refused", "the server cannot read what this program asks for; use the same build on both".to_owned())
        }
        Refusal::Version(theirs) => (
            "version",
            format!(
                "the server speaks version {theirs} of the protocol, this program version {PROTOCOL_VERSION}; use the same \
                 build on both"
            ),
        ),
        Refusal::Excess(beyond) => ("refused", format!("the server refuses: {}", excess_text(&beyond))),
        Refusal::Busy => {
            ("busy", "the server is busy with another client; try again when that has ended".to_owned())
        }
        Refusal::Again => ("refused", "the server did not make room in time; try again".to_owned()),
        Refusal::RemoteInvalidation => (
            "refused",
            "the server's device cannot invalidate keys of peers; choose --invalidate local".to_owned(),
        ),
        Refusal::NoKeys => (
            "refused",
            "the server's device opens no keys by work requests (`frwr check --device` there says why); use --key memory"
                .to_owned(),
        ),
        Refusal::Crowded(most) => (
            "crowded",
            format!("each of the server's cores takes {most} connect requests at a time; lower --connections or --cores"),
        ),
        Refusal::NoRoom => (
            "refused",
            "the server has too little memory, or too small a device, for what is asked, and says what is missing; lower \
             --size, --depth or --connections"
                .to_owned(),
        ),
    };
    Error::failed(name, text)
}
