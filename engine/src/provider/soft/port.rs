//! The hot half: one core's queue pairs, completion queues and tables.

use super::bases::Base;
use super::keys::Registration;
use super::nic::{Nic, Report, SoftMonitor};
use super::profile::SoftOptions;
use super::queue_pair::{Negotiated, QueuePair};
use super::wire::WireEnd;
use crate::provider::{
    Chain, CompletionBatch, CompletionQueue, Port, PortId, PostError, PostRefusal, QueuePairId, ReceiveRequest,
    RegistrationId,
};
use frwr_mempool::Full;
use frwr_mempool::lane::{Receiver, Sender};

/// Packets and work requests that one call of `poll` moves, over all queue pairs.
const STEP_BUDGET: u32 = 256;
/// Packets and work requests that one queue pair moves in one call, so that one cannot starve the others.
const QUEUE_PAIR_BUDGET: u32 = 64;
/// Commands taken in one call; each may allocate or free.
const COMMANDS_PER_POLL: usize = 16;
/// Low bits of a queue pair number that name its place in the table; the others tell its users apart.
pub(super) const SLOT_BITS: u32 = 16;

const _: () = assert!(QUEUE_PAIR_BUDGET <= STEP_BUDGET, "one queue pair's share is part of the whole");

/// What a port is told, like the firmware of a device. Each is answered by a [`Report`] with its number.
pub(super) enum PortCommand {
    AddBase(Base),
    RetireBase(u32),
    RestoreBase(u32),
    RemoveBase(u32),
    AddQueuePair(Box<QueuePair>),
    Connect(QueuePairId, Box<WireEnd>, Negotiated),
    Fail(QueuePairId),
    RemoveQueuePair(QueuePairId),
    AddRegistration(Box<Registration>),
    RemoveRegistration(RegistrationId),
}

/// A command with the number that its report carries.
pub(super) struct Numbered {
    pub(super) number: u64,
    pub(super) command: PortCommand,
}

/// The hot half of a software NIC. Dropping it is a core that died: its peers see a queue pair that answers no more.
pub struct SoftPort {
    nic: Nic,
    table: Vec<Option<Box<QueuePair>>>,
    /// Places in `table` that are taken.
    active: Vec<u32>,
    /// Where the next progress step begins, in `active`.
    turn: usize,
    commands: Receiver<Numbered>,
    reports: Sender<Report>,
}

impl core::fmt::Debug for SoftPort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftPort").field("id", &self.nic.port).field("queue_pairs", &self.active.len()).finish()
    }
}

/// The place of a queue pair in its port's table.
const fn slot_of(queue_pair: QueuePairId) -> usize {
    (queue_pair.0 & ((1 << SLOT_BITS) - 1)) as usize
}

/// Whether a place of the table holds this queue pair and no later one.
fn is(place: &Option<Box<QueuePair>>, id: QueuePairId) -> bool {
    place.as_ref().is_some_and(|queue_pair| queue_pair.id() == id)
}

impl SoftPort {
    pub(super) fn new(
        id: PortId,
        options: SoftOptions,
        entries: (u32, u32),
        monitor: SoftMonitor,
        commands: Receiver<Numbered>,
        reports: Sender<Report>,
    ) -> Self {
        Self {
            nic: Nic::new(id, options, entries, monitor),
            table: Vec::new(),
            active: Vec::new(),
            turn: 0,
            commands,
            reports,
        }
    }

    /// A base registration that is older than the port.
    pub(super) fn add_base(&mut self, base: Base) {
        self.nic.bases.insert(base);
    }

    fn queue_pair(&mut self, id: QueuePairId) -> Option<&mut QueuePair> {
        self.table.get_mut(slot_of(id))?.as_deref_mut().filter(|queue_pair| queue_pair.id() == id)
    }

    fn take_commands(&mut self) {
        for _ in 0..COMMANDS_PER_POLL {
            let Some(Numbered { number, command }) = self.commands.pop() else { break };
            let report = if self.execute(command) { Report::Done(number) } else { Report::Busy(number) };
            self.nic.reports.push_back(report);
        }
        while let Some(report) = self.nic.reports.pop_front() {
            if let Err(Full(report)) = self.reports.push(report) {
                self.nic.reports.push_front(report);
                break;
            }
        }
    }

    fn execute(&mut self, command: PortCommand) -> bool {
        match command {
            PortCommand::AddBase(base) => self.nic.bases.insert(base),
            PortCommand::RetireBase(index) => return self.nic.bases.retire(index),
            PortCommand::RestoreBase(index) => self.nic.bases.restore(index),
            PortCommand::RemoveBase(index) => self.nic.bases.remove(index),
            PortCommand::AddQueuePair(queue_pair) => self.add(queue_pair),
            PortCommand::Connect(id, wire, negotiated) => {
                return self.queue_pair(id).is_some_and(|queue_pair| queue_pair.connect(*wire, negotiated));
            }
            PortCommand::Fail(id) => {
                if let Some(Some(queue_pair)) = self.table.get_mut(slot_of(id)).filter(|found| is(found, id)) {
                    queue_pair.fail(None, &mut self.nic);
                }
            }
            PortCommand::RemoveQueuePair(id) => self.remove(id),
            PortCommand::AddRegistration(registration) => self.nic.keys.insert(*registration),
            PortCommand::RemoveRegistration(object) => self.nic.keys.remove(object, &mut self.nic.bases),
        }
        true
    }

    fn add(&mut self, queue_pair: Box<QueuePair>) {
        let slot = slot_of(queue_pair.id());
        if self.table.len() <= slot {
            self.table.resize_with(slot + 1, || None);
        }
        self.table[slot] = Some(queue_pair);
        self.active.push(slot as u32);
    }

    fn remove(&mut self, id: QueuePairId) {
        if self.queue_pair(id).is_none() {
            return;
        }
        if self.nic.options.capabilities.quirks.free_before_queue_pair && self.nic.keys.is_bound(id) {
            self.nic.monitor.count_stalled_destroy();
        }
        self.table[slot_of(id)] = None;
        self.active.retain(|slot| *slot as usize != slot_of(id));
    }

    fn make_progress(&mut self) {
        let mut budget = STEP_BUDGET;
        let count = self.active.len();
        for _ in 0..count {
            if budget == 0 {
                break;
            }
            self.turn = if self.turn + 1 >= count { 0 } else { self.turn + 1 };
            let Some(slot) = self.active.get(self.turn) else { break };
            if let Some(Some(queue_pair)) = self.table.get_mut(*slot as usize) {
                let mut share = budget.min(QUEUE_PAIR_BUDGET);
                let before = share;
                queue_pair.step(&mut self.nic, &mut share);
                budget -= before - share;
            }
        }
    }
}

impl Port for SoftPort {
    fn id(&self) -> PortId {
        self.nic.port
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        if self.nic.monitor.crashed() {
            return Err(PostError { accepted: 0, reason: PostRefusal::DeviceGone });
        }
        match self.table.get_mut(slot_of(queue_pair)) {
            Some(Some(found)) if found.id() == queue_pair => found.post(chain, &self.nic),
            _ => Err(PostError { accepted: 0, reason: PostRefusal::NotReady }),
        }
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        if self.nic.monitor.crashed() {
            return Err(PostError { accepted: 0, reason: PostRefusal::DeviceGone });
        }
        let found = self.queue_pair(queue_pair).ok_or(PostError { accepted: 0, reason: PostRefusal::NotReady })?;
        found.post_receives(receives)
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        self.take_commands();
        if self.nic.monitor.crashed() {
            return 0;
        }
        self.make_progress();
        let table = &mut self.table;
        match queue {
            CompletionQueue::Receive => self.nic.receive_completions.take(batch, |_, _| {}),
            CompletionQueue::Send => self.nic.send_completions.take(batch, |id, units| {
                if let Some(Some(queue_pair)) = table.get_mut(slot_of(id)).filter(|place| is(place, id)) {
                    queue_pair.free(units);
                }
            }),
        }
    }

    fn remote_bytes_open(&self) -> Option<u64> {
        Some(self.nic.keys.remote_bytes())
    }
}
