//! What an engine has of everything on its device, which may be less than its options ask for.

use crate::{
    options::{EngineOptions, MAX_MRS_PER_REQUEST, MAX_TRANSFER_OPERATIONS},
    plan::{EngineError, Plan},
    provider::{Capabilities, SendQueueCost},
};

/// Numbers of one connection of an engine, as its device's limits leave them. From [`EngineBuilder::sizes`](crate::EngineBuilder::sizes)
/// or [`Engine::sizes`](crate::Engine::sizes). The device may make a queue pair that is smaller still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineSizes {
    /// Requests with one key each that can be in flight: at most [`EngineOptions::queue_depth`], fewer where there are fewer
    /// registrations. Further ones wait inside the engine.
    pub requests: u32,
    /// MRs beside the write pad's: at most [`EngineOptions::registrations`], fewer where the send queue has no room for the
    /// invalidations of all beside the largest request or transfer.
    pub registrations: u32,
    /// Keys of one request at most: [`MAX_MRS_PER_REQUEST`], or all registrations where those are fewer.
    pub keys_per_request: u32,
    /// Elements that one key covers at most: pages or ranges, as the device counts.
    pub elements_per_key: u32,
    /// Transfers of one RDMA operation and a reply that can be in flight: at most [`EngineOptions::transfer_depth`], fewer where the send
    /// queue has no room for more. Further ones wait inside the engine.
    pub transfers: u32,
    /// Entries of the send queue.
    pub send_entries: u32,
    /// Of these, what requests and transfers can have: all but those of the drain's marker and the write pad.
    pub usable_entries: u32,
    /// Receives that are posted, or granted of shared ones.
    pub receive_entries: u32,
    /// Bytes of the largest message, sent or received.
    pub message_bytes: u32,
    /// Segments of the largest request, over all its chunks.
    pub segments_per_request: u32,
    /// Segments that one SEND carries behind its message.
    pub inline_segments: u32,
    /// RDMA READs or WRITEs of one transfer.
    pub operations_per_transfer: u32,
}

/// What one connection has in effect, as [`Engine::connection_sizes`](crate::Engine::connection_sizes) finds it: less than
/// [`EngineSizes`] where the device granted less, and what stands at this moment of that which changes. What is not here is of all
/// connections of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionSizes {
    /// Entries of the send queue.
    pub send_entries: u32,
    /// Of these, what requests and transfers can have.
    pub usable_entries: u32,
    /// MRs that there are now, beside the write pad's: in use by requests, or free.
    pub registrations: u32,
    /// Receives that the peer offers for what we send unasked, used or not: [`ConnectionOptions::peer_receives`], or what
    /// [`Engine::set_peer_receives`] said last.
    ///
    /// [`ConnectionOptions::peer_receives`]: crate::ConnectionOptions::peer_receives
    /// [`Engine::set_peer_receives`]: crate::Engine::set_peer_receives
    pub peer_receives: u32,
    /// Receives of the peer that the next messages may use, those for responses among them; 0 also where more are in use than it offers.
    pub free_peer_receives: u64,
    /// Receives that the peer is granted.
    pub granted_receives: u32,
    /// Receives for replies, in use or not: so many requests can await one.
    pub reply_receives: u32,
    /// Of these, those that nobody uses.
    pub free_reply_receives: u32,
}

impl EngineSizes {
    /// Of an engine with these options on such a device, whether it is made or not.
    ///
    /// # Errors
    /// As [`Engine::new`](crate::Engine::new).
    pub fn of(options: &EngineOptions, capabilities: &Capabilities) -> Result<Self, EngineError> {
        Plan::new(options, capabilities).map(|plan| Self::of_plan(&plan, options, capabilities.send_queue_cost))
    }

    pub(crate) fn of_plan(plan: &Plan, options: &EngineOptions, cost: SendQueueCost) -> Self {
        let registrations = plan.registrations - u32::from(options.write_pad);
        let of_transfer = 2 * cost.message.max(1);
        Self {
            requests: options.queue_depth.min(registrations),
            registrations,
            keys_per_request: plan.max_mrs.min(MAX_MRS_PER_REQUEST as u32),
            elements_per_key: plan.mr_depth,
            transfers: options.transfer_depth.min(plan.usable_entries() / of_transfer),
            send_entries: plan.sizes.send,
            usable_entries: plan.usable_entries(),
            receive_entries: plan.receive_depth,
            message_bytes: plan.message_bytes,
            segments_per_request: plan.max_segments,
            inline_segments: plan.message_elements - 1,
            operations_per_transfer: MAX_TRANSFER_OPERATIONS as u32,
        }
    }

    /// What is lower than asked for, since the device's send queues are too short.
    pub fn shortfalls(&self, options: &EngineOptions) -> impl Iterator<Item = Shortfall> + use<> {
        let registrations = if options.registrations == 0 { options.queue_depth } else { options.registrations };
        let send_entries = self.send_entries;
        [
            ("requests", options.queue_depth.min(registrations), self.requests),
            ("registrations", registrations, self.registrations),
            ("transfers", options.transfer_depth, self.transfers),
        ]
        .into_iter()
        .filter(|(_, asked, effective)| effective < asked)
        .map(move |(what, asked, effective)| Shortfall { what, asked, effective, send_entries })
    }
}

/// Something of which there is less than the options ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// What: requests, registrations or transfers of one connection.
    pub what: &'static str,
    /// How many the options ask for.
    pub asked: u32,
    /// How many there are.
    pub effective: u32,
    /// Entries of a send queue, the reason.
    pub send_entries: u32,
}

impl core::fmt::Display for Shortfall {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { what, asked, effective, send_entries } = self;
        write!(
            f,
            "{effective} {what} of a connection are in flight at most where {asked} are asked for, the others wait: a send queue of \
             this device has {send_entries} entries"
        )
    }
}
