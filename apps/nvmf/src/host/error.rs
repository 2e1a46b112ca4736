//! Why a request was not taken, and why one failed.

use super::options::MAX_SEGMENTS;
use crate::wire::{AnaState, Status};
use frwr_engine::SubmitError;

/// Why a request was not taken; the caller keeps everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// All request slots are in use.
    #[error("all requests of the host are outstanding; poll, take completions and try again")]
    QueueFull,
    /// The namespace is not known yet, or the host stops or has given up.
    #[error("the host has no session; start it and poll until it is ready")]
    NotReady,
    /// Segments.
    #[error("{0} segments: a request has 1 to {MAX_SEGMENTS}; split it")]
    Segments(usize),
    /// Not a whole number of blocks, or more than a request takes.
    #[error("{bytes} bytes: must be a multiple of the block size and at most {limit}; split the request")]
    Length {
        /// Bytes of all segments.
        bytes: u64,
        /// The limit.
        limit: u32,
    },
    /// Not inside the namespace.
    #[error("the blocks are outside of the namespace; look at Host::geometry")]
    OutOfRange,
    /// More blocks than the controller compares and writes at a time (ACWU, NACWU).
    #[error("{blocks} blocks: the controller compares and writes {limit} at a time; split what they hold")]
    CompareAndWrite {
        /// Blocks asked for.
        blocks: u32,
        /// The limit.
        limit: u32,
    },
    /// What is expected is not as long as what is written.
    #[error("{expected} bytes are expected and {written} written; give as many of both")]
    Halves {
        /// Bytes that are expected.
        expected: u64,
        /// Bytes that are written.
        written: u64,
    },
    /// The controller has no such command (ONCS).
    #[error("the controller does not have the command {0}")]
    Unsupported(&'static str),
    /// Ranges of a deallocation.
    #[error("{0} ranges: a deallocation has 1 to 256; split it")]
    Ranges(usize),
    /// All bounce buffers are in use.
    #[error("all bounce buffers are in use; try again after a completion, or give the host more memory")]
    NoBounceBuffer,
}

/// Why a host does not prove itself once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReauthenticateError {
    /// There is no session, or it ends. The next one begins with a proof.
    #[error("the host has no session to prove itself in once more; poll until it is ready")]
    NoSession,
    /// Neither side has asked for a proof when the session began.
    #[error(
        "the session was not authenticated: neither did the controller ask for a proof of this host, nor has that a key of the \
         controller's; give one of them its key, and connect again"
    )]
    NotAuthenticated,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The controller said so.
    #[error("the controller answered {0}")]
    Status(Status),
    /// The engine cannot open the segments.
    #[error("the segments cannot be opened: {0}")]
    Submit(SubmitError),
    /// The segments take several keys inside one block, and the host was given no memory for bounce buffers as large as a
    /// block; or those of a compare and write take more than a command may have, or than a connection has for both
    /// ([`EngineOptions::registrations`](frwr_engine::EngineOptions::registrations)).
    #[error(
        "the data lies in more ranges of memory than there are keys for, and cannot be cut or bounced; give the host more \
         memory, or lay it out in fewer ranges"
    )]
    TooManyKeys,
    /// It was not answered within `command_timeout`, and the controller aborted it then.
    #[error("the command was not answered within command_timeout, and was aborted")]
    TimedOut,
    /// The caller aborted it.
    #[error("the request was aborted; what it has done is not known")]
    Aborted,
    /// The namespace cannot be reached through this controller, for longer than `inaccessible_timeout` or for ever.
    #[error("the namespace cannot be reached through this controller (ANA state {0:?})")]
    Inaccessible(AnaState),
    /// Its sessions ended with it in flight, more often than `command_retries` lets it be sent again, or the device refused to post
    /// it. Other requests go on.
    #[error(
        "the command was sent {attempts} times and never answered: its session ended each time, or the device refused it; it may \
         have been executed; look at what the target says of it, or raise command_retries"
    )]
    Unanswered {
        /// How often it was sent.
        attempts: u32,
    },
    /// Its session ended, or the way to the namespace is closed, and it is for [`super::Paths`] to say where it goes. No host of a caller's
    /// says so.
    #[error("the request was given back by its path")]
    GivenBack {
        /// The controller may still execute it: it was in flight when the session ended.
        in_flight: bool,
    },
    /// A compare and write whose session ended before it was answered, and which is not sent again: it would find its own blocks, and
    /// look like one that was too late. Its controller is over: nothing of it is executed any more.
    #[error(
        "the session ended before the compare and write was answered, so that it may have been executed; read the blocks to find out"
    )]
    Undecided,
    /// No path to the namespace serves, for longer than `path_timeout` or for ever.
    #[error("no path to the namespace serves; look at why each of them does not, or raise path_timeout")]
    NoPath,
    /// The host has given up, or was stopped; the command may have been executed.
    #[error("the host has no session any more; the command may have been executed")]
    Abandoned,
}
