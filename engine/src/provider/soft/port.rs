//! The hot half: what a core calls, and what the cold half tells it.

use super::bases::Base;
use super::keys::OpenKey;
use super::nic::{Nic, Report, SoftMonitor};
use super::profile::SoftOptions;
use super::queue_pair::{Negotiated, QueuePair};
use super::queue_pair_table::QueuePairTable;
use super::receive_queue::SharedReceiveQueue;
use super::registration::Registration;
use super::sockets::{Bridge, Bridges};
use super::wire::WireEnd;
use crate::provider::{
    AsyncEvent, Chain, CompletionBatch, CompletionQueue, Port, PortId, PostError, PostRefusal, QueuePairId,
    ReceiveRequest, RegistrationId, SharedReceiveQueueId,
};
use core::task::Waker;
use frwr_mempool::lane::{Receiver, Sender};
use frwr_mempool::{Bell, Full};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Commands taken in one call; each may allocate or free.
const COMMANDS_PER_POLL: usize = 16;

/// What a port is told, like the firmware of a device. Each is answered by a [`Report`] with its number.
pub(super) enum PortCommand {
    AddBase(Base),
    RetireBase(u32),
    RestoreBase(Base),
    RemoveBase(u32),
    AddQueuePair(Box<QueuePair>),
    Connect(QueuePairId, Box<WireEnd>, Negotiated),
    AddBridge(Box<Bridge>),
    Fail(QueuePairId),
    RemoveQueuePair(QueuePairId),
    AddSharedReceiveQueue(Box<SharedReceiveQueue>),
    RemoveSharedReceiveQueue(SharedReceiveQueueId),
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
    queue_pairs: QueuePairTable,
    bridges: Bridges,
    commands: Receiver<Numbered>,
    reports: Sender<Report>,
    sleep: Sleep,
}

/// How its core is woken.
pub(super) struct Sleep {
    /// Rung by the device behind commands.
    pub(super) bell: Arc<Bell>,
    /// The device's, rung behind reports.
    pub(super) device: Arc<Bell>,
    /// Known to the whole network: somebody has to be woken there.
    pub(super) network: Arc<AtomicBool>,
    pub(super) waker: Option<Waker>,
}

impl core::fmt::Debug for SoftPort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftPort").field("id", &self.nic.port).field("queue_pairs", &self.queue_pairs.len()).finish()
    }
}

impl SoftPort {
    pub(super) fn new(
        id: PortId,
        options: SoftOptions,
        entries: (u32, u32),
        monitor: SoftMonitor,
        commands: Receiver<Numbered>,
        reports: Sender<Report>,
        sleep: Sleep,
    ) -> Self {
        let (nic, queue_pairs) = (Nic::new(id, options, entries, monitor), QueuePairTable::default());
        Self { nic, queue_pairs, bridges: Bridges::default(), commands, reports, sleep }
    }

    /// What peers may reach now, key by key, from the device's own table; nothing of a device that was removed.
    pub fn open_keys(&self) -> impl Iterator<Item = OpenKey> + '_ {
        let gone = self.nic.monitor.is_removed();
        self.nic.keys.open(&self.nic.bases).filter(move |_| !gone)
    }

    /// A base registration that is older than the port.
    pub(super) fn add_base(&mut self, base: Base) {
        self.nic.bases.insert(base);
    }

    fn take_commands(&mut self) {
        let held = self.nic.interferences.any(&self.nic.monitor, |one| one.holds_commands());
        let most = if held { 0 } else { COMMANDS_PER_POLL };
        for _ in 0..most {
            let Some(Numbered { number, command }) = self.commands.pop() else { break };
            let report = if self.execute(command) { Report::Done(number) } else { Report::Busy(number) };
            self.nic.reports.push_back(report);
        }
        while let Some(report) = self.nic.reports.pop_front() {
            if let Err(Full(report)) = self.reports.push(report) {
                self.nic.reports.push_front(report);
                break;
            }
            self.sleep.device.ring();
        }
    }

    fn execute(&mut self, command: PortCommand) -> bool {
        match command {
            PortCommand::AddBase(base) => self.nic.bases.insert(base),
            PortCommand::RetireBase(index) => return self.nic.bases.retire(index),
            PortCommand::RestoreBase(base) => self.nic.bases.restore(base),
            PortCommand::RemoveBase(index) => self.nic.bases.remove(index),
            PortCommand::AddQueuePair(queue_pair) => self.queue_pairs.insert(queue_pair),
            PortCommand::Connect(id, wire, negotiated) => {
                let rules = &self.nic.rules;
                let Some(found) = self.queue_pairs.get(id) else { return false };
                let connected = found.connect(*wire, negotiated, rules);
                if let Some(waker) = &self.sleep.waker {
                    found.wakes(waker);
                }
                return connected;
            }
            PortCommand::AddBridge(bridge) => return self.bridges.add(bridge).is_ok(),
            PortCommand::Fail(id) => {
                if let Some(queue_pair) = self.queue_pairs.get(id) {
                    queue_pair.fail(None, &mut self.nic);
                }
            }
            PortCommand::RemoveQueuePair(id) => self.remove(id),
            PortCommand::AddSharedReceiveQueue(queue) => self.nic.shared_receives.insert(*queue),
            PortCommand::RemoveSharedReceiveQueue(id) => self.nic.shared_receives.remove(id),
            PortCommand::AddRegistration(registration) => self.nic.keys.insert(*registration),
            PortCommand::RemoveRegistration(object) => self.nic.keys.remove(object, &mut self.nic.bases),
        }
        true
    }

    /// A device that is gone answers nobody any more.
    #[cold]
    fn hang_up(&mut self) {
        self.queue_pairs.hang_up();
        self.bridges.clear();
    }

    /// What came from other processes, the progress of all queue pairs, and what goes to other processes.
    #[inline(never)]
    fn make_progress_between_processes(&mut self) {
        let Self { nic, queue_pairs, bridges, .. } = self;
        bridges.receive(|id| {
            nic.raise(AsyncEvent::QueuePairFatal(id));
            if let Some(queue_pair) = queue_pairs.get(id) {
                queue_pair.fail(None, nic);
            }
        });
        queue_pairs.make_progress(nic);
        bridges.send();
    }

    fn remove(&mut self, id: QueuePairId) {
        let stalls = self.nic.options.capabilities.quirks.free_before_queue_pair;
        if self.queue_pairs.remove(id) && stalls && self.nic.keys.is_bound(id) {
            self.nic.monitor.count_stalled_destroy();
        }
    }
}

/// A post to a port that cannot take it.
const fn refused(reason: PostRefusal) -> PostError {
    PostError::new(0, reason)
}

impl Port for SoftPort {
    fn id(&self) -> PortId {
        self.nic.port
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        if self.nic.monitor.is_gone() {
            return Err(refused(PostRefusal::DeviceGone));
        }
        self.nic.interferences.refresh(self.nic.port, &self.nic.monitor);
        let found = self.queue_pairs.get(queue_pair).ok_or(refused(PostRefusal::NotReady))?;
        let posted = found.post(chain, &self.nic);
        // What the budget of the doorbell leaves over is done in `poll`.
        if self.nic.options.starts_at_doorbell {
            found.ring(&mut self.nic);
        }
        posted
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        if self.nic.monitor.is_gone() {
            return Err(refused(PostRefusal::DeviceGone));
        }
        let found = self.queue_pairs.get(queue_pair).ok_or(refused(PostRefusal::NotReady))?;
        found.post_receives(receives)
    }

    fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        if self.nic.monitor.is_gone() {
            return Err(refused(PostRefusal::DeviceGone));
        }
        self.nic.shared_receives.post(queue, receives)
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        self.nic.interferences.refresh(self.nic.port, &self.nic.monitor);
        self.take_commands();
        if self.nic.monitor.is_gone() {
            self.hang_up();
            return 0;
        }
        if self.bridges.is_empty() {
            self.queue_pairs.make_progress(&mut self.nic);
        } else {
            self.make_progress_between_processes();
        }
        self.nic.delay_completions(queue);
        match queue {
            CompletionQueue::Receive => self.nic.receive_completions.take(batch, |_, _| {}),
            CompletionQueue::Send => self.nic.send_completions.take(batch, |id, units| {
                if let Some(queue_pair) = self.queue_pairs.get(id) {
                    queue_pair.free(units);
                }
            }),
        }
    }

    fn wakes(&mut self, waker: &Waker) {
        self.sleep.network.store(true, Ordering::Release);
        self.sleep.bell.wakes(waker);
        self.sleep.waker = Some(waker.clone());
        self.bridges.prepare();
    }

    fn rests(&self) -> bool {
        let is_empty = self.nic.send_completions.is_empty() && self.nic.receive_completions.is_empty();
        is_empty && self.queue_pairs.rest() && self.bridges.arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.bridges.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.sleep.bell.arm();
        let rests = self.nic.reports.is_empty() && self.nic.interferences.is_empty();
        rests && self.sleep.waker.is_some() && self.queue_pairs.arm() && self.bridges.arm()
    }

    fn remote_bytes_open(&self) -> Option<u64> {
        Some(if self.nic.monitor.is_removed() { 0 } else { self.nic.keys.remote_bytes() })
    }
}
