//! Everything that stands for a host: its devices, what was made on them, and the one lock around it.

use crate::{
    Carried, FakeOptions,
    channels::{ChannelRecord, Notification},
    connection_manager::ConnectionManager,
    nic::{News, Nic},
    queue_pair::{QueuePair, Sent, State},
    raw::{Signal, WorkCompletion},
    refusals::Refusals,
};
use frwr_engine::provider::{
    AsyncEvent, BaseId, Completion, CompletionQueue, DomainId, QueuePairId, RegistrationId, ScatterElement,
    SharedReceiveQueueId, Token, soft::SoftFabric,
};
use ibverbs_sys::{ibv_wc_flags, ibv_wc_opcode};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::Ipv4Addr,
    sync::{LazyLock, Mutex, PoisonError},
};

/// Steps until two queue pairs that are being joined never will be.
const PATIENCE: usize = 100_000;

/// A device that programs find in the list.
#[derive(Debug)]
pub(crate) struct FakeRecord {
    pub(crate) options: FakeOptions,
    /// Address of its `struct ibv_device`.
    pub(crate) raw: usize,
    /// Address of the context that librdmacm has of it.
    pub(crate) manager_context: usize,
    pub(crate) address: Ipv4Addr,
    /// Contexts in the order in which they were opened.
    pub(crate) opened: Vec<usize>,
    /// What no program may do, told when the device goes.
    pub(crate) violations: Vec<String>,
    /// Completions that are still shown until one cannot be read; `None` where all can.
    pub(crate) readable: Option<u32>,
    pub(crate) carried: Carried,
}

/// Memory registered by ibv_reg_mr(3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionRecord {
    pub(crate) base: BaseId,
    pub(crate) lkey: u32,
    pub(crate) can_bind: bool,
    pub(crate) zero_based: bool,
    /// Address of its domain's structure.
    pub(crate) domain: usize,
    pub(crate) start: usize,
    pub(crate) length: usize,
}

/// A window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectRecord {
    pub(crate) object: RegistrationId,
    pub(crate) key: u32,
}

/// An indirect key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MkeyRecord {
    pub(crate) object: RegistrationId,
    /// As of its last list.
    pub(crate) key: u32,
    pub(crate) entries: u16,
    pub(crate) updates_tags: bool,
    pub(crate) remote_invalidation: bool,
    /// A list was posted to it, and no invalidation since.
    pub(crate) live: bool,
}

/// An entry of a completion queue, and the entries of its send queue that come free with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub(crate) completion: WorkCompletion,
    pub(crate) frees: u32,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedRecord {
    pub(crate) queue: SharedReceiveQueueId,
    pub(crate) last_token: u64,
    /// What was posted and has not completed, with its `wr_id`.
    pub(crate) receives: HashMap<Token, u64>,
}

/// A protection domain and a thread domain together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParentRecord {
    /// Address of the protection domain.
    pub(crate) domain: usize,
    /// Address of the thread domain; 0 for none.
    pub(crate) thread: usize,
    pub(crate) queue_pairs: u32,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct QueueRecord {
    pub(crate) capacity: usize,
    pub(crate) entries: VecDeque<Queued>,
    pub(crate) overran: bool,
    pub(crate) notification: Notification,
}

/// An asynchronous event that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Event type and number of the queue pair.
    OfQueuePair(u32, u32),
    /// Address of the completion queue.
    OfCompletionQueue(usize),
}

/// An open device.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: String,
    pub(crate) nic: Nic,
    pub(crate) domains: HashMap<usize, DomainId>,
    /// Thread domains by address, with what is in them.
    pub(crate) threads: HashMap<usize, u32>,
    pub(crate) parents: HashMap<usize, ParentRecord>,
    pub(crate) regions: HashMap<usize, RegionRecord>,
    /// By the number in their structures.
    pub(crate) windows: HashMap<u32, ObjectRecord>,
    /// By the addresses of their structures.
    pub(crate) mkeys: HashMap<usize, MkeyRecord>,
    pub(crate) queues: HashMap<usize, QueueRecord>,
    /// Completion channels, by the addresses of their structures.
    pub(crate) channels: HashMap<usize, ChannelRecord>,
    pub(crate) shared: HashMap<usize, SharedRecord>,
    pub(crate) by_soft: HashMap<QueuePairId, u32>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) signal: Signal,
    pub(crate) refusals: Refusals,
}

impl Context {
    /// These bytes as an element that a queue pair of this domain may name, if they are registered there.
    pub(crate) fn registered(&self, domain: usize, start: usize, length: usize) -> Option<ScatterElement> {
        let holds = |region: &&RegionRecord| {
            let inside = start.checked_sub(region.start).is_some_and(|offset| offset + length <= region.length);
            region.domain == domain && inside
        };
        let region = self.regions.values().find(holds)?;
        Some(ScatterElement { address: start as u64, length: length as u32, lkey: region.lkey })
    }
}

/// The host.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) devices: BTreeMap<String, FakeRecord>,
    pub(crate) contexts: HashMap<usize, Context>,
    /// By number, of all devices.
    pub(crate) queue_pairs: HashMap<u32, QueuePair>,
    pub(crate) manager: ConnectionManager,
    /// One network for all devices.
    pub(crate) fabric: SoftFabric,
    last_number: u32,
}

/// Runs `what` with the whole host: one call at a time.
pub(crate) fn with<T>(what: impl FnOnce(&mut World) -> T) -> T {
    static WORLD: LazyLock<Mutex<World>> = LazyLock::new(Mutex::default);
    what(&mut WORLD.lock().unwrap_or_else(PoisonError::into_inner))
}

impl World {
    /// A number that nothing else has.
    pub(crate) fn number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// Notes what no program may do.
    pub(crate) fn violation(&mut self, context: usize, what: impl Into<String>) {
        let device = self.contexts.get(&context).map(|context| context.device.clone());
        let what = what.into();
        eprintln!("fake: violation: {what}");
        if let Some(record) = device.and_then(|device| self.devices.get_mut(&device)) {
            record.violations.push(what);
        }
    }

    /// Everything of a device moves on by one step, as hardware does whoever looks.
    pub(crate) fn step_device(&mut self, context: usize) {
        let Some(context) = self.contexts.get(&context) else { return };
        let opened = self.devices.get(&context.device).map(|record| record.opened.clone());
        for context in opened.unwrap_or_default() {
            self.step(context);
        }
    }

    fn step(&mut self, context: usize) {
        if let Some(found) = self.contexts.get_mut(&context) {
            found.nic.step();
        }
        self.take_news(context);
    }

    /// Tells what a NIC did.
    pub(crate) fn take_news(&mut self, address: usize) {
        let Self { contexts, queue_pairs, .. } = self;
        let Some(context) = contexts.get_mut(&address) else { return };
        while let Some(news) = context.nic.next_news() {
            match news {
                News::Completion(queue, completion) => {
                    let number = context.by_soft.get(&completion.queue_pair);
                    if let Some(queue_pair) = number.and_then(|number| queue_pairs.get_mut(number)) {
                        context.complete(queue_pair, queue, &completion);
                    }
                }
                News::Async(event) => context.raise(event),
                News::Asked { incoming, number } => {
                    if let Some(queue_pair) = queue_pairs.get(&number) {
                        context.nic.accept(incoming, queue_pair.soft, queue_pair.parameters);
                    }
                }
                News::Joined(soft) => {
                    let number = context.by_soft.get(&soft);
                    if let Some(queue_pair) = number.and_then(|number| queue_pairs.get_mut(number)) {
                        queue_pair.joined = true;
                    }
                }
            }
        }
    }

    /// Joins a queue pair to its peer once both can send.
    pub(crate) fn join(&mut self, number: u32) {
        let Some(here) = self.queue_pairs.get(&number) else { return };
        let Some(there) = self.queue_pairs.get(&here.destination) else { return };
        let ready = [here, there].iter().all(|end| end.state == State::ReadyToSend && !end.joined);
        if !ready || there.destination != number {
            return;
        }
        let (other, soft, parameters) = (here.destination, here.soft, here.parameters);
        let (here, there) = (here.context, there.context);
        let Some(address) = self.contexts.get(&there).map(|context| context.nic.address()) else { return };
        let begun = self.contexts.get_mut(&here).map(|context| context.nic.join(soft, address, other, parameters));
        let joined = |world: &Self, number| world.queue_pairs.get(&number).is_some_and(|end: &QueuePair| end.joined);
        for _ in 0..PATIENCE {
            if joined(self, number) && joined(self, other) {
                self.post_waiting(number);
                self.post_waiting(other);
                return;
            }
            self.step(here);
            self.step(there);
        }
        self.violation(here, format!("queue pairs {number} and {other} could not be joined: {begun:?}"));
    }
}

impl Context {
    fn complete(&mut self, queue_pair: &mut QueuePair, queue: CompletionQueue, completion: &Completion) {
        let mut told = WorkCompletion { qp_num: self.by_soft[&completion.queue_pair], ..WorkCompletion::default() };
        let mut frees = 0;
        let address = match queue {
            CompletionQueue::Send => {
                let Some(sent) = take_sent(queue_pair, completion, &mut frees) else { return };
                told.wr_id = sent.wr_id;
                told.opcode = sent.opcode;
                queue_pair.send_queue
            }
            CompletionQueue::Receive => {
                let Some(wr_id) = self.take_receive(queue_pair, completion.token) else { return };
                told.wr_id = wr_id;
                told.opcode = ibv_wc_opcode::IBV_WC_RECV;
                queue_pair.receive_queue
            }
        };
        match completion.result {
            Ok(success) => {
                told.byte_len = success.bytes;
                if let Some(key) = success.invalidated {
                    told.imm_data = key;
                    told.wc_flags = ibv_wc_flags::IBV_WC_WITH_INV.0;
                    self.invalidated(key);
                }
            }
            Err(failure) => {
                told.status = failure.status.number().into();
                told.vendor_err = failure.vendor_code;
                // Of a failed one only `wr_id`, `status`, `qp_num` and `vendor_err` count (ibv_poll_cq(3)).
                told.opcode = ibv_wc_opcode::IBV_WC_SEND;
            }
        }
        self.queue(address, Queued { completion: told, frees });
    }

    /// The `wr_id` of a receive that completes.
    fn take_receive(&mut self, queue_pair: &mut QueuePair, token: Token) -> Option<u64> {
        if let Some(shared) = queue_pair.shared {
            return self.shared.get_mut(&shared)?.receives.remove(&token);
        }
        let place = queue_pair.receives.iter().position(|(known, _)| *known == token)?;
        queue_pair.receives.remove(place).map(|(_, wr_id)| wr_id)
    }

    /// A key is dead, or will be before whatever is posted next.
    pub(crate) fn invalidated(&mut self, key: u32) {
        if let Some(mkey) = self.mkeys.values_mut().find(|mkey| mkey.key == key) {
            mkey.live = false;
        }
    }

    fn queue(&mut self, address: usize, queued: Queued) {
        let Some(queue) = self.queues.get_mut(&address) else { return };
        if queue.entries.len() < queue.capacity {
            queue.entries.push_back(queued);
            self.notify(address);
        } else if !core::mem::replace(&mut queue.overran, true) {
            self.tell(Event::OfCompletionQueue(address));
        }
    }

    fn tell(&mut self, event: Event) {
        self.events.push_back(event);
        self.signal.raise();
    }

    fn raise(&mut self, event: AsyncEvent) {
        let (kind, soft) = match event {
            AsyncEvent::QueuePairFatal(soft) => (ibverbs_sys::IBV_EVENT_QP_FATAL, soft),
            AsyncEvent::QueuePairAccessError(soft) => (ibverbs_sys::IBV_EVENT_QP_ACCESS_ERR, soft),
            AsyncEvent::LastReceiveReached(soft) => (ibverbs_sys::IBV_EVENT_QP_LAST_WQE_REACHED, soft),
            AsyncEvent::CompletionQueueOverrun(_) | AsyncEvent::DeviceFatal => {
                return;
            }
        };
        if let Some(number) = self.by_soft.get(&soft) {
            self.tell(Event::OfQueuePair(kind, *number));
        }
    }
}

/// The work request that a completion is of; those in front of it were executed in silence.
fn take_sent(queue_pair: &mut QueuePair, completion: &Completion, frees: &mut u32) -> Option<Sent> {
    while let Some(sent) = queue_pair.sent.pop_front() {
        *frees += 1;
        if sent.token == completion.token {
            return Some(sent);
        }
    }
    None
}
