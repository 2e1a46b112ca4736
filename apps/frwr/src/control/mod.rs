//! The control socket: JSON-RPC 2.0 over a Unix socket, as SPDK's users know it, and who asks there. It knows nothing of targets: calls
//! go to whoever polls the [`Server`], and answers come back from there.
//!
//! The server never blocks and has no thread. Whatever its clients do, it holds [`MAX_CLIENTS`] of them, of each [`frames::MAX_REQUEST_BYTES`]
//! that were not understood yet and [`MAX_ANSWER_BYTES`] that were not read, and does so much in a turn and no more.

mod connection;
mod exposition;
mod frames;
mod place;
mod rpc;
mod server;
mod web;

pub(crate) use connection::MAX_ANSWER_BYTES;
pub(crate) use place::candidates;
pub(crate) use rpc::{Call, Failure, INTERNAL, INVALID_PARAMS, METHOD_NOT_FOUND, NOT_DONE, PARTLY_DONE, TIMED_OUT};
pub(crate) use server::{Caller, MAX_CLIENTS, Server};
pub(crate) use web::{Visitor, Web};
