//! How many of everything one engine has, and where it lies: computed once, from options and capabilities.

use crate::{
    chain::reserved_entries,
    chores::Chores,
    connection::{Connection, ConnectionLimits},
    elements::{ElementCounts, Elements, SharedCounts},
    events::{EventCounts, Events},
    fixed_list::FixedList,
    gather::GatherError,
    link::MAX_INCOMING,
    messages::Messages,
    options::{
        EngineOptions, InvalidateOrder, MAX_MEMORIES, MAX_MRS_PER_REQUEST, MAX_TRANSFER_ELEMENTS,
        MAX_TRANSFER_OPERATIONS, OnPostError, ReceiveQueues, ReturnPolicy, SPARE_REPLY_RECEIVES,
    },
    parked::Parked,
    pool::Pool,
    provider::{
        Capabilities, Contiguity, DeviceAttributes, KeyScope, MAX_COMPLETIONS_PER_POLL, QueueSizes, SendQueueCost,
        Token,
    },
    receive::{ENDED, Receives},
    requests::Requests,
    signal::{SINGLE, Signaller, held_slots_limit},
    sizing::{self, SizingError},
    transfers::Transfers,
    wait_queues::WaitLinks,
};
use frwr_mempool::{region::BLOCK_GRANULE, slab::Table};

/// Slots per request that may be in flight: one half may be kept by Hold alone while the other half works, so that
/// sparse signalling never starves a requester (docs/architecture.md, Signalling).
pub const SLOTS_PER_REQUEST: u32 = 2;

/// Connections of one core at most, whose numbers leave room for those that name none.
const MAX_CONNECTIONS: u16 = 4096;
const _: () = assert!(MAX_CONNECTIONS <= ENDED, "of a shared receive it is known that its taker has ended");

/// MRs of one connection at most.
const MAX_REGISTRATIONS: u32 = 65536;

/// Unsignalled messages in a row, however many may be in flight: with the one that asks behind them as many as the usual queue
/// is deep. A completion costs some 40 instructions, so that longer runs save about one per message.
const MOST_UNSIGNALLED_MESSAGES: u32 = 31;

/// Largest message: a command capsule with 128 KiB in the capsule. More belongs into registered memory.
pub const MAX_MESSAGE_BYTES: u32 = 128 * 1024 + 64;

/// Bytes of the region in front of an engine's tables and behind them that nobody uses. A core walks some tables in strides of a page,
/// and its processor fetches what would come next, beyond the table's end as well: if that were another core's, each walk would take
/// lines away that the other one writes, and bring two engines down to 1.6 times one (A21). Between two engines are two of these, 32
/// pages; two threads that only walked so disturbed each other up to 16 pages apart, at 24 hardly, at 32 no more (AMD Zen 5).
pub(crate) const GUARD_BYTES: usize = 64 << 10;
const _: () = assert!(2 * GUARD_BYTES >= 32 * 4096, "as far as processors were seen to fetch ahead");

/// Elements of lists and of messages with segments behind them that there are for each request at a time, beside all of
/// one connection: few requests have more than one segment, and few connections have something for the same flush.
const SHARED_ELEMENTS: u32 = 2;

/// Requests of one connection at the same time at most, and transfers.
const MAX_DEPTH: u32 = 16384;

/// Segments of one request at most.
const MAX_SEGMENTS: u32 = 4096;

const _: () = {
    const fn shared(of_one: u64, longest: u32) -> u64 {
        of_one * longest as u64 + SHARED_ELEMENTS as u64 * (Token::MAX_INDEX as u64)
    }
    let (all, slots) = (Token::MAX_INDEX as u64, SLOTS_PER_REQUEST as u64 * MAX_DEPTH as u64);
    let transfers = slots * MAX_CONNECTIONS as u64 * (MAX_TRANSFER_ELEMENTS as u64 + 1);
    let gathered = slots * MAX_SEND_ELEMENTS as u64 + slots * MAX_CONNECTIONS as u64;
    let every =
        all + slots * MAX_CONNECTIONS as u64 + transfers + shared(MAX_REGISTRATIONS as u64, MAX_SEGMENTS) + gathered;
    assert!(every <= u32::MAX as u64, "scatter elements are numbered by 32 bit, whatever the options");
};

/// Events of a connection beside those of its slots: connected, disconnected, a registration's grant, and to spare.
const EVENTS_PER_CONNECTION: usize = 8;

/// Why an engine cannot be made with these options on this device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The device is too small.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// The region has too little room.
    #[error("the region is too small for the engine's slabs and messages: {0}; map Engine::region_bytes() or more")]
    Region(#[from] frwr_mempool::region::CarveError),
    /// The device's capabilities say nothing that segments could be gathered by.
    #[error("the device's limits for a registration make no sense: {0}")]
    Gather(#[from] GatherError),
    /// An option is out of its range.
    #[error("{name} is {value}, but must be {range}")]
    Option {
        /// The option's name.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        range: &'static str,
    },
    /// All connections together could overrun a completion queue, which loses fences (promise Credits).
    #[error(
        "{connections} connections can fill {need} completion queue entries, but the device has {limit}; lower \
         EngineOptions::connections or queue_depth"
    )]
    CompletionQueue {
        /// Connections asked for.
        connections: u32,
        /// Entries that they can fill.
        need: u32,
        /// Entries of the device's largest completion queue.
        limit: u32,
    },
    /// The device has no shared receive queues.
    #[error("the device has no shared receive queues; use ReceiveQueues::PerConnection")]
    NoSharedReceives,
    /// The device looks shared receives up in the domain of each queue pair.
    #[error(
        "the device takes shared receives of the connection's own domain only; use DomainPolicy::Shared or \
         ReceiveQueues::PerConnection"
    )]
    SharedReceivesDomain,
    /// The device's shared receive queues are too small.
    #[error(
        "{need} shared receives are asked for, a queue of the device holds {limit}; lower ReceiveQueues::Shared, \
         EngineOptions::connections or receive_depth"
    )]
    SharedReceives {
        /// Entries asked for.
        need: u32,
        /// Entries of the device's largest shared receive queue.
        limit: u32,
    },
    /// Tables over all connections together cannot be indexed.
    #[error(
        "{need} {what} over all connections, but {limit} can be numbered; lower connections, depths or registrations"
    )]
    TooLarge {
        /// Entries of which table.
        what: &'static str,
        /// Entries asked for.
        need: u64,
        /// Largest number of them.
        limit: u64,
    },
    /// MRs that return at posting need invalidations in front of registrations (D2).
    #[error(
        "ReturnPolicy::OnInvalidatePosted needs InvalidateOrder::BeforeMessages, or a key could be reused too early"
    )]
    ReturnOrder,
}

/// Numbers and places.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) connections: u32,
    pub(crate) request_slots: u32,
    pub(crate) transfer_slots: u32,
    /// Of those, so many in use have the next reply ask for its completion.
    pub(crate) transfers_held: u32,
    /// Receives of one connection, or granted to it at most.
    pub(crate) receive_depth: u32,
    /// Those of them that are kept for replies, unless a connection is told otherwise.
    pub(crate) reply_receives: u32,
    /// Receive buffers of all connections together.
    pub(crate) receive_buffers: u32,
    /// They are posted to one queue.
    pub(crate) shares_receives: bool,
    pub(crate) registrations: u32,
    pub(crate) first_fill: u32,
    pub(crate) refill: u32,
    pub(crate) mr_depth: u32,
    /// Elements of one SEND or RDMA WRITE.
    pub(crate) message_elements: u32,
    /// The same of one RDMA READ.
    pub(crate) read_elements: u32,
    pub(crate) message_bytes: u32,
    pub(crate) sizes: QueueSizes,
    pub(crate) own_domain: bool,
    /// Segments that are kept for a request while it waits.
    pub(crate) max_segments: u32,
    pub(crate) memories: u16,
    /// MRs of one request: more would never be free, or never fit into the send queue.
    pub(crate) max_mrs: u32,
    /// Send queue entries that unsignalled work must leave: for all keys and the largest request or transfer beside them, which would
    /// wait for ever otherwise, and for as many requests of one MR as may be in flight.
    room: u32,
    /// Those that requests cannot have.
    reserved: u32,
    /// Most that one work request takes of the send queue.
    largest_cost: u32,
    /// Unsignalled messages of one connection that may stand in a row: one less than may be in flight, so that the last of as many
    /// asks for the completion of all of them and none of their slots is kept beyond its request.
    unsignalled_messages: u32,
}

impl Plan {
    pub(crate) fn new(options: &EngineOptions, capabilities: &Capabilities) -> Result<Self, EngineError> {
        check("connections", u64::from(options.connections), 1, MAX_CONNECTIONS.into(), "1 to 4096")?;
        check("queue_depth", u64::from(options.queue_depth), 0, MAX_DEPTH.into(), "0 to 16384")?;
        check("transfer_depth", u64::from(options.transfer_depth), 0, MAX_DEPTH.into(), "0 to 16384")?;
        let most_operations = MAX_TRANSFER_OPERATIONS as u64;
        check("transfer_operations", u64::from(options.transfer_operations), 1, most_operations, "1 to 16")?;
        check("message_bytes", u64::from(options.message_bytes), 16, u64::from(MAX_MESSAGE_BYTES), "16 to 131136")?;
        check("max_segments", u64::from(options.max_segments), 1, MAX_SEGMENTS.into(), "1 to 4096")?;
        check("memories", options.memories.into(), 1, MAX_MEMORIES.into(), "1 to 1024")?;
        check("receive_depth", u64::from(options.receive_depth), 0, 32768, "0 to 32768")?;
        check("registrations", u64::from(options.registrations), 0, MAX_REGISTRATIONS.into(), "0 to 65536")?;
        if options.return_policy == ReturnPolicy::OnInvalidatePosted
            && options.invalidate_order == InvalidateOrder::AfterMessages
        {
            return Err(EngineError::ReturnOrder);
        }
        // The pad is memory of ours that peers write to.
        check("write_pad", options.write_pad.into(), 0, options.opens_keys.into(), "off where opens_keys is")?;
        let mut wishes = options.wishes;
        wishes.requests = options.queue_depth.max(1);
        wishes.pad_slot = options.write_pad;
        // Messages alone have none, for which there is no count.
        if capabilities.contiguity == Contiguity::SingleRange || !options.opens_keys {
            wishes.ranges_per_request.get_or_insert(1);
        }
        let sizing = sizing::size(&sized_attributes(options, capabilities), &wishes)?;
        let connections = u32::from(options.connections);
        let queue_depth = options.queue_depth.min(sizing.max_requests);
        let wished = match options.registrations {
            _ if !options.opens_keys => 0,
            0 => queue_depth.max(1),
            chosen => chosen,
        };
        // Twice their operations, so that all in flight may go with one completion, and a reply each.
        let transfers = options.transfer_depth * (2 * options.transfer_operations + 1);
        let cost = capabilities.send_queue_cost;
        let pad = u32::from(options.write_pad);
        let queue = SendQueueRoom {
            cost,
            reserved: reserved_entries(cost),
            transfer: if options.transfer_depth == 0 { 0 } else { (MAX_TRANSFER_OPERATIONS as u32 + 1) * cost.message },
        };
        let wished_mrs = wished.min(MAX_MRS_PER_REQUEST as u32);
        // Half of the queue may be unsignalled (I31); the other half holds the largest request. One transfer fits as a whole.
        // One more entry per request lets messages stay unsignalled where every request is in flight.
        let send = (sizing.max_send_wr + queue_depth + transfers + queue.reserved)
            .max(2 * (request_entries(cost, wished_mrs) + queue.reserved))
            .max(queue.with_keys(1 + pad));
        // As much may be unsignalled beside all keys. Never so many that completion queues would be too small by that alone.
        let with_all_keys = queue.with_keys(wished + pad).saturating_add(send / 2);
        let send = send
            .max(with_all_keys.min(capabilities.attributes.max_cqe / connections))
            .min(capabilities.attributes.max_qp_wr);
        let registrations = wished.min(queue.keys_that_fit(send, pad)?);
        let max_mrs = registrations.min(MAX_MRS_PER_REQUEST as u32);
        let receive_depth = match options.receive_depth {
            0 => sizing.max_recv_wr.max(options.transfer_depth),
            chosen => chosen,
        };
        if receive_depth > capabilities.attributes.max_qp_wr {
            let limit = capabilities.attributes.max_qp_wr;
            return Err(SizingError::ReceiveQueueExceedsLimit { need: receive_depth, limit }.into());
        }
        let receive_buffers = receive_buffers(options, capabilities, receive_depth)?;
        let need = send.saturating_mul(connections).max(receive_buffers);
        if need > capabilities.attributes.max_cqe {
            return Err(EngineError::CompletionQueue { connections, need, limit: capabilities.attributes.max_cqe });
        }
        let all_registrations = registrations + u32::from(options.write_pad);
        let transfer_slots = options.transfer_depth * SLOTS_PER_REQUEST * connections;
        let request_slots = options.queue_depth.max(1) * SLOTS_PER_REQUEST * connections;
        let message_elements = sizing.max_send_sge.clamp(1, MAX_SEND_ELEMENTS);
        let plan = Self {
            connections,
            request_slots,
            transfer_slots,
            transfers_held: held_slots_limit(transfer_slots).min(options.transfers_held),
            receive_depth,
            // Of messages without memory as many as asked for may be in flight, whatever the send queue holds.
            reply_receives: options.queue_depth + options.queue_depth.min(SPARE_REPLY_RECEIVES),
            receive_buffers,
            shares_receives: options.receive_queues != ReceiveQueues::PerConnection,
            registrations: all_registrations,
            first_fill: if options.first_fill == 0 { registrations } else { options.first_fill.min(registrations) }
                + u32::from(options.write_pad),
            refill: sizing.max_rdma_segments.max(1),
            mr_depth: sizing.mr_depth.max(1),
            message_elements,
            // One is what every device takes, also where nobody says so.
            read_elements: message_elements.min(capabilities.attributes.max_sge_rd.max(1)),
            message_bytes: options.message_bytes.next_multiple_of(64),
            sizes: QueueSizes { send, receive: receive_depth, max_send_sge: sizing.max_send_sge },
            own_domain: match options.domain {
                crate::options::DomainPolicy::ByKeyScope => capabilities.key_scope == KeyScope::ProtectionDomain,
                crate::options::DomainPolicy::Shared => false,
                crate::options::DomainPolicy::PerConnection => true,
            },
            max_segments: options.max_segments,
            memories: options.memories,
            max_mrs,
            room: (queue.with_keys(all_registrations) - queue.reserved)
                .max(queue_depth * request_entries(cost, wished.min(1))),
            reserved: queue.reserved,
            largest_cost: cost.register.max(cost.invalidate).max(cost.message).max(1),
            unsignalled_messages: options.queue_depth.saturating_sub(1).clamp(1, MOST_UNSIGNALLED_MESSAGES),
        };
        if plan.shares_receives && plan.own_domain && capabilities.quirks.shared_receives_need_one_domain {
            return Err(EngineError::SharedReceivesDomain);
        }
        plan.check_tables()?;
        Ok(plan)
    }

    /// Everything that a token names must be numbered by it. That all elements are, is checked by the compiler.
    fn check_tables(&self) -> Result<(), EngineError> {
        let all = |per_connection: u32| u64::from(self.connections) * u64::from(per_connection);
        let descriptors = all(self.registrations);
        let index = u64::from(Token::MAX_INDEX);
        for (what, need, limit) in [
            ("registrations", descriptors, index),
            ("request slots", u64::from(self.request_slots), index),
            ("transfer slots", u64::from(self.transfer_slots), index),
            ("receive buffers", u64::from(self.receive_buffers), index),
        ] {
            if need > limit {
                return Err(EngineError::TooLarge { what, need, limit });
            }
        }
        Ok(())
    }

    /// Entries of a send queue that requests and transfers can have.
    pub(crate) fn usable_entries(&self) -> u32 {
        self.sizes.send.saturating_sub(self.reserved)
    }

    /// The decision which work request asks for a completion, for a send queue of `entries`.
    pub(crate) fn signaller(&self, options: &EngineOptions, entries: u32) -> Signaller {
        let mut limit = unsignalled_limit(entries, self.reserved + self.room, self.largest_cost);
        if options.on_post_error == OnPostError::DeregisterAndContinue {
            // Every message behind a registration completes: where a refused post does not end the connection, an MR is destroyed
            // on a queue pair that works only once a completion has passed its registration (I11), whatever the peer does.
            limit = limit.min(SINGLE);
        }
        Signaller::with_limits(options.signal, limit, self.unsignalled_messages)
    }

    /// Bytes of messages: of requests, of replies, of receives, and the write pads.
    pub(crate) fn message_area(&self) -> usize {
        let messages = self.request_slots + self.transfer_slots + self.receive_buffers;
        messages as usize * self.message_bytes as usize + self.connections as usize * PAD_STRIDE
    }

    /// Offset of the first reply: behind the messages of all requests.
    pub(crate) fn reply_offset(&self) -> usize {
        self.request_slots as usize * self.message_bytes as usize
    }

    /// Offset of the first receive buffer.
    pub(crate) fn receive_offset(&self) -> usize {
        self.reply_offset() + self.transfer_slots as usize * self.message_bytes as usize
    }

    /// Offset of a connection's write pad.
    pub(crate) fn pad_offset(&self, connection: u16) -> usize {
        self.message_area() - (usize::from(connection) + 1) * PAD_STRIDE
    }

    /// Elements of one MR: as many as it covers, and never more than a request has segments. A segment that is cut where one
    /// registration ends has one part in each.
    pub(crate) fn mr_elements(&self) -> u32 {
        self.mr_depth.min(self.max_segments)
    }

    /// Everything that has elements.
    pub(crate) fn elements(&self) -> ElementCounts {
        let slots = self.request_slots / self.connections;
        ElementCounts {
            mrs: self.connections * self.registrations,
            requests: self.request_slots,
            transfers: self.transfer_slots,
            lists: self.shared_elements(self.registrations, self.mr_elements(), self.registrations),
            gathered: self.shared_elements(slots, self.message_elements, slots / SLOTS_PER_REQUEST),
        }
    }

    /// Room for the lists of a flush. One connection may have `lists` of the longest kind, as if no other had any; for
    /// each of the others there is what so many requests at a time need of it.
    fn shared_elements(&self, lists: u32, longest: u32, requests: u32) -> SharedCounts {
        let of_one = (lists * longest).max(longest);
        let of_others = (self.connections - 1) * of_one.min(SHARED_ELEMENTS * requests);
        SharedCounts { longest, all: of_one + of_others }
    }

    /// Segments of one request that waits: of its chunks, and behind its message.
    pub(crate) fn parked_segments(&self) -> u32 {
        self.max_segments + self.message_elements - 1
    }

    /// Events that may wait: twice what one poll can add, since it takes no completions while more than half is in use. A slot of
    /// `register_now` has two events, its grant and its end; a completion that is not the engine's has one of its own. Transfers
    /// that were lost are kept as they are, like what no slot and no buffer tells.
    pub(crate) fn events(&self) -> EventCounts {
        let transfers = self.transfer_slots as usize;
        let of_slots = 2 * self.request_slots as usize + transfers + self.receive_buffers as usize;
        let foreign = 2 * MAX_COMPLETIONS_PER_POLL;
        let of_none = foreign + EVENTS_PER_CONNECTION * self.connections as usize + MAX_INCOMING;
        let most = of_slots + of_none;
        EventCounts { all: 2 * most, most, whole: 2 * of_none + transfers, most_whole: of_none }
    }

    /// Receives of one connection that no other shares.
    fn own_receives(&self) -> u32 {
        if self.shares_receives { 0 } else { self.receive_depth }
    }

    /// Most that the queues of one connection ever hold.
    pub(crate) fn connection_limits(&self, cost: SendQueueCost) -> ConnectionLimits {
        ConnectionLimits {
            receives: self.receive_depth,
            own_receives: self.own_receives(),
            registrations: self.registrations,
            send_entries: self.sizes.send,
            memories: self.memories,
            cost,
        }
    }

    /// Bytes of the region that holds it all: what [`Engine::new`](crate::Engine::new) carves, wherever the region stands. More than any
    /// region has, where that exceeds the address space.
    pub(crate) fn region_bytes(&self) -> usize {
        let connections = self.connections as usize;
        let of_connection =
            Connection::bytes_needed(self.sizes.send, self.registrations, self.own_receives(), self.memories);
        let parts = [
            // The first block starts on a line wherever the region stands.
            Some(BLOCK_GRANULE),
            Some(2 * GUARD_BYTES),
            Requests::bytes_needed(self.request_slots),
            Transfers::bytes_needed(self.transfer_slots),
            Pool::bytes_needed(self.connections, self.registrations),
            of_connection.and_then(|bytes| bytes.checked_mul(connections)),
            Table::<Connection>::bytes_needed(connections),
            FixedList::<u16>::bytes_needed(connections),
            Chores::bytes_needed(connections),
            Parked::bytes_needed(self.request_slots, self.parked_segments()),
            WaitLinks::bytes_needed(self.request_slots, self.transfer_slots),
            Elements::bytes_needed(self.elements()),
            Events::bytes_needed(self.events()),
            Receives::bytes_needed(self.receive_buffers),
            Messages::bytes_needed(self.message_bytes),
            self.message_area().checked_next_multiple_of(BLOCK_GRANULE),
        ];
        parts.into_iter().fold(0, |sum: usize, part| sum.saturating_add(part.unwrap_or(usize::MAX)))
    }
}

/// Bytes between two write pads: a cache line each, so that peers' padding never shares one.
const PAD_STRIDE: usize = 64;

/// Elements of the largest SEND: a header, and the head, pages and tail of what follows it (S2).
pub(crate) const MAX_SEND_ELEMENTS: u32 = 19;

/// Work requests that may stand in a row without a completion in a send queue of `entries`, of which each takes `largest_cost` at most:
/// half the queue, and so few that `kept` of them, what is reserved and the largest request or transfer, are free all the same.
pub(crate) fn unsignalled_limit(entries: u32, kept: u32, largest_cost: u32) -> u32 {
    let spare = (entries + 1).saturating_sub(kept);
    (entries / 2).min(spare) / largest_cost
}

/// Send queue entries of a request with its fence.
fn request_entries(cost: SendQueueCost, mrs: u32) -> u32 {
    cost.message + mrs * (cost.register + cost.invalidate)
}

/// What a send queue must have room for. A key holds the entries of its invalidation for as long as a peer likes, or the caller. All else
/// holds its entries until the device has done it. So nothing waits for entries that only a peer gives back, if the invalidations of
/// all keys stand beside the largest request or transfer: a peer may be waiting for just that.
struct SendQueueRoom {
    cost: SendQueueCost,
    /// Entries that requests and transfers cannot have.
    reserved: u32,
    /// Entries of the largest transfer; 0 where there are none.
    transfer: u32,
}

impl SendQueueRoom {
    /// Entries of the smallest queue for so many MRs.
    fn with_keys(&self, mrs: u32) -> u32 {
        let most = mrs.min(MAX_MRS_PER_REQUEST as u32);
        let beside = self.transfer.max(self.cost.message + most * self.cost.register);
        mrs.saturating_mul(self.cost.invalidate).saturating_add(beside + self.reserved)
    }

    /// The most MRs beside those of `pads` for which a queue of `send` entries has room.
    fn keys_that_fit(&self, send: u32, pads: u32) -> Result<u32, EngineError> {
        let need = self.with_keys(1 + pads);
        if send < need {
            return Err(SizingError::QueueTooSmall { have: send, need }.into());
        }
        // With more keys it never takes less.
        let (mut fit, mut most) = (1, MAX_REGISTRATIONS);
        while fit < most {
            let middle = fit + (most - fit).div_ceil(2);
            if self.with_keys(middle + pads) <= send { fit = middle } else { most = middle - 1 }
        }
        Ok(fit)
    }
}

/// What sizing looks at: of an engine that opens no keys, not whether the device has any.
fn sized_attributes(options: &EngineOptions, capabilities: &Capabilities) -> DeviceAttributes {
    let own = capabilities.attributes;
    DeviceAttributes { memory_management_extensions: own.memory_management_extensions || !options.opens_keys, ..own }
}

/// Receive buffers of all connections: a queue for each, or one for all.
fn receive_buffers(options: &EngineOptions, capabilities: &Capabilities, depth: u32) -> Result<u32, EngineError> {
    let all = depth.saturating_mul(u32::from(options.connections));
    let ReceiveQueues::Shared { entries } = options.receive_queues else { return Ok(all) };
    let limit = capabilities.attributes.max_srq_wr;
    if capabilities.attributes.max_srq == 0 || limit == 0 {
        return Err(EngineError::NoSharedReceives);
    }
    let need = if entries == 0 { all } else { entries };
    // With less not even one connection could be opened.
    check(
        "ReceiveQueues::Shared",
        u64::from(need),
        u64::from(depth),
        u64::from(u32::MAX),
        "0, or receive_depth at least",
    )?;
    if need <= limit { Ok(need) } else { Err(EngineError::SharedReceives { need, limit }) }
}

fn check(name: &'static str, value: u64, least: u64, most: u64, range: &'static str) -> Result<(), EngineError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(EngineError::Option { name, value, range }) }
}
