//! All of FRWR for one core: `submit`, `poll`, `flush`.
//!
//! [`Engine`] owns a port, the slots of requests and transfers, and the MRs. Its rooms, in the order of a request: `builder` and `make`
//! (what it is made of), `memory` (that is declared), `submit` (a request as its caller says it, with `refusal`), `pieces` (its memory, gathered into idle MRs, by `run` and `resolve`), `issue`
//! (the one way into the chain), `parking` (those that wait), `stage` (the chain), `flush` (posts), `complete` (polls), `received` (what
//! a message means), `retire` (what was sent), `fence` (keys that are to die), `life` and `opening` (connections), `supply` (their MR
//! objects), `standalone` (`register_now` and cancelling), `send` (messages without a reply), `credits`, `respond` and `transfers` (the
//! responder's half, as its caller says it, and its one way into the chain), `told` (events), `release` (messages that were read),
//! `waiting` (for what), `withdrawal` (memory that is removed), `inspect` (what is asked about it), `tracing`.

mod builder;
mod complete;
mod credits;
mod fence;
mod flush;
mod inspect;
mod issue;
mod life;
mod make;
mod memory;
mod opening;
mod parking;
mod pieces;
mod received;
mod refusal;
mod release;
mod resolve;
mod respond;
mod retire;
mod run;
mod send;
mod stage;
mod standalone;
mod submit;
mod supply;
mod told;
mod tracing;
mod transfers;
mod waiting;
mod withdrawal;

pub use builder::{EngineBuilder, OpenEngineError};
pub use credits::CreditError;
pub use inspect::{Descriptors, ReceiveBuffers};
pub use memory::AddMemoryError;
pub use opening::OpenError;
pub use refusal::SubmitError;
pub use respond::{FetchRequest, ResponseRequest, TransferError, WriteRequest};
pub use send::SendRequest;
pub use standalone::{CancelError, CancelNowError};
pub use submit::{Chunk, Coverage, Submission};
pub use withdrawal::RemoveMemoryError;

use crate::{
    chores::Chores,
    connection::Connection,
    counters::Counters,
    elements::Elements,
    event::ConnectionId,
    events::Events,
    fixed_list::FixedList,
    gather::{Limits, Resolved},
    link::CoreLink,
    memories::Memories,
    messages::Messages,
    mr::IovaRule,
    options::EngineOptions,
    parked::Parked,
    plan::{EngineError, Plan},
    polls::Polls,
    pool::Pool,
    provider::{Capabilities, Port},
    receive::Receives,
    requests::Requests,
    shared_receives::SharedReceives,
    trace::Tracer,
    transfers::Transfers,
    wait_queues::WaitLinks,
    watched_clock::WatchedClock,
};
use frwr_mempool::mutant;
use frwr_mempool::slab::Table;
use stage::Making;

/// Control messages taken in one poll iteration: enough to open a connection at once, little beside a batch of
/// completions.
const MAX_CONTROL_MESSAGES_PER_POLL: usize = 32;

/// Waiting requests and transfers admitted per connection in one poll iteration.
const MAX_ADMITTED_PER_POLL: usize = 64;

/// FRWR for one core, over the port `P`. Not shared: its owner's core alone calls it.
///
/// It may be dropped at any time, also with work in flight: [`crate::control::Control`] notices, stops its listeners, tells
/// its peers and moves its queue pairs to the error state. Their device objects, and the memory under them, then stay with the
/// device until that is dropped. Control has to outlive the connections of its engines: without it none can open or end.
pub struct Engine<P: Port> {
    port: P,
    link: CoreLink,
    options: EngineOptions,
    plan: Plan,
    capabilities: Capabilities,
    making: Making,
    gather: Limits,
    iova: IovaRule,
    polls: Polls,
    memories: Memories,
    messages: Messages,
    requests: Requests,
    /// What is kept of those that wait.
    parked: Parked,
    /// Who waits behind whom.
    wait_links: WaitLinks,
    transfers: Transfers,
    pool: Pool,
    receives: Receives,
    /// What there is to know of them where all connections share them.
    shared: Option<SharedReceives>,
    connections: Table<Connection>,
    /// Connections with work for the next flush, each at most once.
    dirty: FixedList<u16>,
    elements: Elements,
    events: Events,
    /// What each poll has to look at beside completions.
    chores: Chores,
    counters: Counters,
    /// By which drain time-outs pass; looked at while a connection opens or ends.
    draining: WatchedClock,
    /// Addresses of a chunk that is being gathered, which the next one overwrites: here so that nothing is allocated after start-up.
    resolved: Vec<Resolved>,
    trace: Option<Box<Tracer>>,
}

impl<P: Port> Engine<P> {
    /// Bytes that [`Engine::new`] carves out of its region with these options on this device.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn region_bytes(options: &EngineOptions, capabilities: &Capabilities) -> Result<usize, EngineError> {
        Plan::new(options, capabilities).map(|plan| plan.region_bytes())
    }

    /// Entries of the send and the receive completion queue that the options can fill at worst (promise Credits).
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn completion_entries(options: &EngineOptions, capabilities: &Capabilities) -> Result<(u32, u32), EngineError> {
        let plan = Plan::new(options, capabilities)?;
        Ok((plan.sizes.send * plan.connections, plan.receive_buffers))
    }

    /// The table index of a connection that is meant by this name and not vacant (I24).
    fn index_of(&self, connection: ConnectionId) -> Option<usize> {
        let index = usize::from(connection.index);
        let found = self.connections.get(index)?;
        // S5: the name of a former connection is this one's.
        ((found.key == connection || mutant!(S5_name)) && !found.is_vacant()).then_some(index)
    }

    /// Puts a connection on the list for the next flush.
    fn mark_dirty(&mut self, connection: u16) {
        self.connections[usize::from(connection)].mark_dirty(&mut self.dirty);
    }
}
