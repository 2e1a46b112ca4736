//! FRWR for polled-mode user space: memory is opened to a peer by a work request that is posted in front of the message
//! that needs it, and closed by another one before the caller hears of completion.
//!
//! The engine takes completions and the time, and emits chains of work requests. It never reads a clock, never sleeps
//! and never allocates after start-up; whoever owns a poll loop calls `Engine::poll` and `Engine::flush` from it.
//! `docs/design.md` says which room may touch what.

// The one exception is the room of a provider that calls C.
#![cfg_attr(not(feature = "verbs"), forbid(unsafe_code))]
#![cfg_attr(feature = "verbs", deny(unsafe_code))]
#[cfg(not(target_os = "linux"))]
compile_error!("frwr runs on Linux only: pinned cores, hugepages and RDMA devices are reached through its interfaces.");

mod chain;
mod connection;
pub mod control;
mod engine;
mod event;
mod events;
mod fixed_list;
pub mod gather;
mod link;
pub mod mr;
mod options;
mod plan;
mod pool;
mod protocol;
pub mod provider;
mod receive;
mod request;
mod shared_receives;
pub mod signal;
pub mod sizing;
mod statistics;
mod timestamp;
mod trace;
mod transfer;

pub use engine::*;
pub use event::{ConnectionId, DisconnectCause, Event, OpenFailure, Received, RequestStatus, TransferStatus};
pub use link::{CoreLink, MAX_INCOMING, MAX_MEMORIES};
pub use options::*;
pub use plan::{EngineError, MAX_MESSAGE_BYTES, SLOTS_PER_REQUEST};
pub use protocol::{AnnounceError, CLASSIFY_BYTES, Message, Protocol};
pub use request::{REQUEST_SLOT_BYTES, RequestHandle};
pub use statistics::Statistics;
pub use timestamp::Timestamp;
pub use trace::{TracePoint, TraceRecord};
pub use transfer::RemoteSegment;
