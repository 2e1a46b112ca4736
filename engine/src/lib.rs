//! FRWR for polled-mode user space: memory is opened to a peer by a work request that is posted in front of the message
//! that needs it, and closed by another one before the caller hears of completion.
//!
//! The engine takes completions and the time, and emits chains of work requests. It never reads a clock, never sleeps
//! and never allocates after start-up; whoever owns a poll loop calls `Engine::poll` and `Engine::flush` from it.
//!
//! * [`provider`]: the devices, [`provider::soft`] among them; what is there is made into a [`Control`], which does everything slow.
//! * [`EngineOptions`]: what one core's engine is made for. [`Control::open_engine`] makes an [`EngineBuilder`] of them, which says how
//!   much memory the engine takes, and makes it on its core.
//! * [`Engine`]: connections, requests (their memory is opened to a peer, who answers), transfers (RDMA to what a peer opened).
//! * [`Protocol`]: what the engine asks about messages. [`Event`]: what it tells.
//!
//! One turn of a loop is [`Engine::poll`], [`Engine::next_event`] until there is none, [`Engine::submit`] and the like,
//! [`Engine::flush`]:
//!
//! ```
//! use frwr_engine::{
//!     Chunk, ConnectionId, Engine, Event, Protocol, RequestHandle, RequestStatus, Submission, SubmitError,
//!     gather::Segment,
//!     provider::{Access, Port},
//! };
//!
//! /// Opens a piece of memory for one request: a peer may write there until it answers. Posted by the next flush.
//! fn ask<P: Port>(
//!     engine: &mut Engine<P>,
//!     protocol: &mut impl Protocol,
//!     peer: ConnectionId,
//!     page: Segment,
//! ) -> Result<RequestHandle, SubmitError> {
//!     let submission = Submission {
//!         message: &[0; 12], // The protocol's `announce` puts address and key there.
//!         inline: &[],
//!         chunks: &[Chunk { access: Access::RemoteWrite, segments: &[page] }],
//!         invite_invalidation: true,
//!         iova_cookie: 0,
//!         cookie: 7,
//!     };
//!     engine.submit(peer, &submission, protocol)
//! }
//!
//! fn turn<P: Port>(engine: &mut Engine<P>, protocol: &mut impl Protocol, now: core::time::Duration) {
//!     engine.poll(now, protocol);
//!     while let Some(event) = engine.next_event() {
//!         if let Event::Completed { cookie, status: RequestStatus::Replied(reply), .. } = event {
//!             // The key is dead: nobody changes the page any more.
//!             println!("request {cookie}");
//!             engine.release(reply);
//!         }
//!     }
//!     engine.flush();
//! }
//! ```
//!
//! `engine/examples/foreign_loop.rs` is such a loop with both its ends, `requester_and_responder.rs` beside it has both ends ask, with
//! all that RPC-over-RDMA needs of the engine; `apps/nvmf/examples/own_protocol.rs` does it on reactors, and
//! `docs/embedding.md` leads through both. `docs/rooms/engine.md` says which room may touch what.

// The one exception is the room of a provider that calls C.
#![cfg_attr(not(feature = "verbs"), forbid(unsafe_code))]
#![cfg_attr(feature = "verbs", deny(unsafe_code))]
#[cfg(not(target_os = "linux"))]
compile_error!("frwr runs on Linux only: pinned cores, hugepages and RDMA devices are reached through its interfaces.");

mod chain;
mod chores;
mod connection;
mod connection_set;
pub mod control;
mod counters;
mod credits;
mod elements;
mod engine;
mod event;
mod events;
mod fixed_list;
pub mod gather;
mod link;
mod memories;
mod messages;
pub mod mr;
mod objects;
mod options;
mod pad;
mod parked;
mod plan;
mod polls;
mod pool;
mod protocol;
pub mod provider;
mod reach;
mod receive;
mod receive_queue;
mod request;
mod requests;
mod sending;
mod shared_receives;
pub mod signal;
mod sizes;
pub mod sizing;
mod statistics;
mod timestamp;
mod trace;
mod transfer;
mod transfers;
mod wait_queues;
mod waits;
mod watched_clock;

pub use control::Control;
pub use engine::*;
pub use event::{
    ConnectionId, DisconnectCause, Event, Listening, OpenFailure, Received, RequestStatus, TransferStatus,
};
pub use gather::{GatherError, MemoryId, Segment};
pub use link::{CoreLink, MAX_INCOMING, MemoryAccess};
pub use mr::Grant;
pub use options::*;
pub use pad::PadFailure;
pub use plan::{EngineError, MAX_MESSAGE_BYTES, SLOTS_PER_REQUEST};
pub use protocol::{AnnounceError, Announcement, CLASSIFY_BYTES, ChunkGrants, ChunkKeys, Message, Protocol};
// What requests, transfers and events are made of.
pub use provider::{Access, IncomingId, PrivateData, RemoteRange};
pub use request::{REQUEST_SLOT_BYTES, RequestHandle};
pub use sizes::{ConnectionSizes, EngineSizes, Shortfall};
pub use statistics::Statistics;
pub use timestamp::Timestamp;
pub use trace::{TracePoint, TraceRecord};
pub use transfer::RemoteSegment;
pub use waits::{Waiting, Waits};
pub use watched_clock::WatchedClock;
