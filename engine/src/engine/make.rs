//! An engine is made: everything that it will ever need is carved out of its region, or allocated.

use super::{Engine, stage::Making};
use crate::{
    chores::Chores,
    connection::Connection,
    counters::Counters,
    elements::Elements,
    events::Events,
    fixed_list::FixedList,
    gather::{GatherRules, Limits},
    link::{CoreLink, MemoryAccess},
    memories::Memories,
    messages::Messages,
    mr::IovaRule,
    options::{EngineOptions, MAX_MRS_PER_REQUEST},
    parked::Parked,
    plan::{EngineError, GUARD_BYTES, Plan},
    polls::Polls,
    pool::Pool,
    provider::{Capabilities, Port},
    receive::Receives,
    requests::Requests,
    sending::Rules,
    shared_receives::SharedReceives,
    transfers::Transfers,
    wait_queues::WaitLinks,
    watched_clock::WatchedClock,
};
use frwr_mempool::{Region, freelist::Order, region::CarveError, slab::Table};

impl<P: Port> Engine<P> {
    /// An engine on `port`, with its slabs, tables and messages carved from `region`, on lines and pages that no other core's data shares.
    /// Allocates everything else that it will need.
    ///
    /// # Errors
    /// [`EngineError`] when an option is out of range, the device too small or the region too small.
    pub fn new(
        port: P,
        mut link: CoreLink,
        region: &mut Region,
        options: EngineOptions,
        capabilities: &Capabilities,
    ) -> Result<Self, EngineError> {
        let plan = Plan::new(&options, capabilities)?;
        let gather = Limits::of(GatherRules {
            contiguity: capabilities.contiguity,
            depth: plan.mr_depth,
            max_bytes: capabilities.max_registration_bytes,
        })?;
        // Nobody ever uses these bytes, here and behind the last table.
        drop(region.carve(GUARD_BYTES, 1)?);
        let requests = Requests::new_in(region, plan.request_slots)?;
        let transfers = Transfers::new_in(region, plan.transfer_slots, plan.transfers_held)?;
        let mut pool = Pool::new(region, plan.connections, plan.registrations, plan.mr_depth)?;
        let own = region.carve(plan.message_area(), 64)?.into_device_memory();
        let messages =
            Messages::new_in(region, own.clone(), plan.message_bytes, plan.request_slots, plan.reply_offset())?;
        let receives = Receives::new_in(
            region,
            own.clone(),
            plan.receive_offset(),
            plan.message_bytes,
            plan.receive_depth,
            plan.receive_buffers,
            plan.shares_receives,
        )?;
        let shared = plan.shares_receives.then(|| SharedReceives::new(plan.receive_buffers, plan.connections));
        let connections = connections(region, &plan, &options, capabilities, &mut pool)?;
        link.hand_over(pool.returner());
        let elements = Elements::new_in(region, plan.elements(), &messages)?;
        let mut engine = Self {
            gather,
            iova: IovaRule::of(options.iova, capabilities.base_address),
            port,
            link,
            capabilities: *capabilities,
            making: Making::new(capabilities),
            polls: Polls::NONE,
            memories: Memories::new(plan.memories),
            messages,
            requests,
            parked: Parked::new_in(region, plan.request_slots, plan.parked_segments())?,
            wait_links: WaitLinks::new_in(region, plan.request_slots, plan.transfer_slots)?,
            transfers,
            pool,
            receives,
            shared,
            connections,
            dirty: FixedList::new_in(region, plan.connections as usize, 0)?,
            elements,
            events: Events::new_in(region, plan.events())?,
            chores: Chores::new_in(region, plan.connections as usize, plan.shares_receives)?,
            counters: Counters::default(),
            draining: WatchedClock::new(WatchedClock::STANDSTILL),
            resolved: Vec::with_capacity(options.max_segments as usize + MAX_MRS_PER_REQUEST),
            trace: None,
            options,
            plan,
        };
        drop(region.carve(GUARD_BYTES, 1)?);
        // Memory 0 is the engine's own.
        let _ = engine.add_memory(own, MemoryAccess::ReadWrite);
        Ok(engine)
    }
}

/// All connections, vacant, with what they own in front of them.
fn connections(
    region: &mut Region,
    plan: &Plan,
    options: &EngineOptions,
    capabilities: &Capabilities,
    pool: &mut Pool,
) -> Result<Table<Connection>, CarveError> {
    // Fixed keys repeat at once: the longest way round the pool keeps a late access from meeting a new grant (U10).
    // Otherwise the MR used last has the warmest descriptor (S23).
    let order = if capabilities.rotating_key_bits == 0 { Order::FirstInFirstOut } else { Order::LastInFirstOut };
    let limits = plan.connection_limits(capabilities.send_queue_cost);
    let rules = Rules::new(options, capabilities);
    let mut vacant = |index| {
        let mut absent = pool.list(Order::FirstInFirstOut);
        pool.fill_absent(index, &mut absent);
        let signaller = plan.signaller(options, plan.sizes.send);
        Connection::new_in(region, index, limits, rules, signaller, order, absent)
    };
    let made = (0..options.connections).map(&mut vacant).collect::<Result<_, _>>()?;
    Table::of(region, made)
}
