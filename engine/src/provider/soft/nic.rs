//! What all queue pairs of a port share: tables, completion queues and the way to the device's cold half.

use super::bases::BaseTable;
use super::interference::{Interferences, Tampering};
use super::keys::{InvalidateError, KeyTable};
use super::profile::{Rules, SoftOptions};
use super::receive_queue::SharedReceiveQueues;
use super::registration::Asker;
use crate::provider::{
    AsyncEvent, Completion, CompletionBatch, CompletionQueue, Failure, PortId, QueuePairId, Success, Token,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What can be seen of a software NIC from outside; cheap to clone, any thread.
#[derive(Clone, Debug, Default)]
pub struct SoftMonitor(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    crashed: AtomicBool,
    stalled_destroys: AtomicU64,
    skipped_invalidations: AtomicU64,
    messages_without_receive: AtomicU64,
    removed: AtomicBool,
    overran: AtomicBool,
    tampering: Tampering,
}

impl SoftMonitor {
    /// Somebody did what takes the imitated device's host down. The device does nothing more.
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.0.crashed.load(Ordering::Acquire)
    }

    /// Takes the device out of the machine: it does nothing more, none of its memory can be reached, whoever owns it is told by
    /// [`AsyncEvent::DeviceFatal`], and its peers hear nothing but that their connections ended.
    pub fn remove_device(&self) {
        self.0.removed.store(true, Ordering::Release);
    }

    /// Whether a completion queue of it overran: completions were lost, and no queue pair of that port works any more.
    #[must_use]
    pub fn overran(&self) -> bool {
        self.0.overran.load(Ordering::Acquire)
    }

    /// Whether it was taken out.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.0.removed.load(Ordering::Acquire)
    }

    /// The device does nothing any more.
    pub(super) fn is_gone(&self) -> bool {
        self.crashed() || self.is_removed()
    }

    pub(super) fn tampering(&self) -> &Tampering {
        &self.0.tampering
    }

    /// Queue pairs destroyed with a live registration where the imitated device blocks for 50 s.
    #[must_use]
    pub fn stalled_destroys(&self) -> u64 {
        self.0.stalled_destroys.load(Ordering::Acquire)
    }

    /// Invalidations that were told as done and were not, as [`SoftOptions::skip_invalidations`] asks.
    #[must_use]
    pub fn skipped_invalidations(&self) -> u64 {
        self.0.skipped_invalidations.load(Ordering::Acquire)
    }

    fn count_skipped_invalidation(&self) {
        self.0.skipped_invalidations.fetch_add(1, Ordering::AcqRel);
    }

    /// Messages that met no receive when they arrived here. 0 where both sides keep to what they were granted
    /// ([`ConnectionOptions`](crate::ConnectionOptions)): real devices have such a message wait, or end its connection.
    #[must_use]
    pub fn messages_without_receive(&self) -> u64 {
        self.0.messages_without_receive.load(Ordering::Acquire)
    }

    pub(super) fn count_message_without_receive(&self) {
        self.0.messages_without_receive.fetch_add(1, Ordering::AcqRel);
    }

    /// True the first time.
    pub(super) fn crash(&self) -> bool {
        !self.0.crashed.swap(true, Ordering::AcqRel)
    }

    pub(super) fn count_stalled_destroy(&self) {
        self.0.stalled_destroys.fetch_add(1, Ordering::AcqRel);
    }
}

/// A completion, and the send queue entries that come free when it is taken.
#[derive(Clone, Copy, Debug)]
struct Queued {
    completion: Completion,
    frees: u32,
}

/// A completion queue: completions are lost when it is full, and with them whoever waits for them.
#[derive(Debug)]
pub(super) struct CompletionRing {
    entries: VecDeque<Queued>,
    capacity: usize,
    /// Where completions are late: so many from the front are there all the same, since they were before the delay began.
    visible: Option<usize>,
}

impl CompletionRing {
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Self { entries: VecDeque::with_capacity(capacity), capacity, visible: None }
    }

    /// What is queued from now on is late, or nothing is any more.
    pub(super) fn delay(&mut self, is_late: bool) {
        self.visible = is_late.then(|| self.visible.unwrap_or(self.entries.len()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn is_late(&self) -> bool {
        self.visible.is_some()
    }

    /// False where it is full and the completion lost.
    fn queue(&mut self, queued: Queued) -> bool {
        let has_room = self.entries.len() < self.capacity;
        if has_room {
            self.entries.push_back(queued);
        }
        has_room
    }

    /// Takes completions until `batch` is full; calls `freed` with the send queue entries that came free.
    pub(super) fn take(&mut self, batch: &mut CompletionBatch, mut freed: impl FnMut(QueuePairId, u32)) -> usize {
        let mut taken = 0;
        while !batch.is_full() && self.visible != Some(0) {
            let Some(queued) = self.entries.pop_front() else { break };
            self.visible = self.visible.map(|visible| visible - 1);
            if queued.frees > 0 {
                freed(queued.completion.queue_pair, queued.frees);
            }
            batch.push(queued.completion);
            taken += 1;
        }
        taken
    }
}

/// What a port tells the cold half.
#[derive(Clone, Copy, Debug)]
pub(super) enum Report {
    /// The command with this number was executed.
    Done(u64),
    /// The command with this number was refused: the object is in use.
    Busy(u64),
    /// An asynchronous event.
    Event(AsyncEvent),
}

/// Shared by all queue pairs of a port.
pub(super) struct Nic {
    pub(super) port: PortId,
    pub(super) options: SoftOptions,
    pub(super) rules: Rules,
    pub(super) keys: KeyTable,
    pub(super) bases: BaseTable,
    pub(super) send_completions: CompletionRing,
    pub(super) receive_completions: CompletionRing,
    pub(super) shared_receives: SharedReceiveQueues,
    /// A completion was lost: no queue pair of this port can go on (IBV_EVENT_CQ_ERR).
    pub(super) lost_completions: bool,
    /// Reports that the lane to the device had no room for yet.
    pub(super) reports: VecDeque<Report>,
    /// Queue pairs that take no more shared receives, while their completions are late: a device says so behind them (InfiniBand, Last WQE
    /// Reached).
    late_last_receives: Vec<QueuePairId>,
    pub(super) monitor: SoftMonitor,
    pub(super) interferences: Interferences,
    /// Invalidations asked for, where some are to be skipped.
    invalidations: u64,
}

/// Reports that can wait without allocation.
const REPORTS: usize = 64;

impl Nic {
    pub(super) fn new(port: PortId, options: SoftOptions, sizes: (u32, u32), monitor: SoftMonitor) -> Self {
        let rules = Rules::of(options.profile);
        Self {
            port,
            options,
            rules,
            keys: KeyTable::new(options.capabilities, rules),
            bases: BaseTable::default(),
            send_completions: CompletionRing::new(sizes.0),
            receive_completions: CompletionRing::new(sizes.1),
            shared_receives: SharedReceiveQueues::default(),
            lost_completions: false,
            reports: VecDeque::with_capacity(REPORTS),
            late_last_receives: Vec::new(),
            monitor,
            interferences: Interferences::default(),
            invalidations: 0,
        }
    }

    /// Queues a completion of a send queue; `frees` entries of it come free when it is taken.
    pub(super) fn complete_send(
        &mut self,
        queue_pair: QueuePairId,
        token: Token,
        result: Result<(), Failure>,
        frees: u32,
    ) {
        let completion = Completion { token, queue_pair, result: result.map(|()| Success::default()) };
        let overrun = self.interferences.any(&self.monitor, |one| one.overruns(CompletionQueue::Send));
        let is_queued = !overrun && self.send_completions.queue(Queued { completion, frees });
        self.note_overrun(is_queued);
    }

    /// Queues a completion of a receive queue.
    pub(super) fn complete_receive(&mut self, queue_pair: QueuePairId, token: Token, result: Result<Success, Failure>) {
        let queued = Queued { completion: Completion { token, queue_pair, result }, frees: 0 };
        let overrun = self.interferences.any(&self.monitor, |one| one.overruns(CompletionQueue::Receive));
        let is_queued = !overrun && self.receive_completions.queue(queued);
        self.note_overrun(is_queued);
    }

    fn note_overrun(&mut self, is_queued: bool) {
        if !is_queued && !self.lost_completions {
            self.lost_completions = true;
            self.monitor.0.overran.store(true, Ordering::Release);
            self.raise(AsyncEvent::CompletionQueueOverrun(self.port));
        }
    }

    pub(super) fn raise(&mut self, event: AsyncEvent) {
        self.reports.push_back(Report::Event(event));
    }

    /// A queue pair takes no more shared receives.
    pub(super) fn raise_last_receive(&mut self, queue_pair: QueuePairId) {
        if self.receive_completions.is_late() {
            self.late_last_receives.push(queue_pair);
        } else {
            self.raise(AsyncEvent::LastReceiveReached(queue_pair));
        }
    }

    /// Asks, in a poll of a completion queue, whether what completes from now on is late. Where nothing is said of last receives, those
    /// who wait for them go by the order of completions: sends are as late as receives.
    pub(super) fn delay_completions(&mut self, queue: CompletionQueue) {
        let is_late = self.interferences.any(&self.monitor, |one| one.holds_completions(queue));
        let is_ordered = self.options.capabilities.quirks.silent_about_last_receive;
        match queue {
            CompletionQueue::Receive => {
                self.receive_completions.delay(is_late);
                if is_ordered && is_late {
                    self.send_completions.delay(true);
                }
            }
            CompletionQueue::Send => {
                self.send_completions.delay(is_late || (is_ordered && self.receive_completions.is_late()));
            }
        }
        if !self.receive_completions.is_late() {
            let told = self.late_last_receives.drain(..).map(AsyncEvent::LastReceiveReached);
            self.reports.extend(told.map(Report::Event));
        }
    }

    /// Executes an invalidation. False where it is refused.
    pub(super) fn invalidate(&mut self, key: u32, asker: Asker) -> bool {
        if let Some(every) = self.options.skip_invalidations {
            self.invalidations += 1;
            if self.invalidations.is_multiple_of(every.get()) {
                self.monitor.count_skipped_invalidation();
                return true;
            }
        }
        match self.keys.invalidate(key, asker, &mut self.bases) {
            Ok(()) => true,
            Err(InvalidateError::Refused) => false,
            Err(InvalidateError::Crash) => {
                if self.monitor.crash() {
                    self.raise(AsyncEvent::DeviceFatal);
                }
                false
            }
        }
    }
}
