//! A wrapper over any provider that counts and records what is posted and what completes.
//!
//! Counters are always on: one relaxed store each, by the core that owns the port. Records go through a lane of fixed
//! size to whoever holds the port's [`Tap`]; where nobody drains it, records are dropped and counted, and nothing waits.

mod event;

pub use event::{Record, RecordedOperation};

use super::{
    Access, Capabilities, Chain, Command, CommandError, CompletionBatch, CompletionQueue, Device, DeviceEvent,
    Operation, Port, PortId, PostError, QueuePairId, ReceiveRequest, RemoteMemory, SharedReceiveQueueId, Ticket,
    WorkRequest,
};
use core::task::Waker;
use frwr_mempool::lane::{self, Receiver, Sender};
use frwr_mempool::{Bell, DeviceMemory};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        frwr_mempool::statistics! {
            /// What a port did since it was opened.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[cfg_attr(feature = "serde", derive(serde::Serialize))]
            pub struct Counters {
                $($(#[$doc])* pub $name: u64,)*
            }
        }

        /// The same, written by the core that owns the port and read by anybody.
        #[derive(Debug, Default)]
        struct Live {
            $($name: AtomicU64,)*
            iteration: AtomicU64,
        }

        impl Live {
            fn snapshot(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Calls of `post` of which the device accepted at least one work request: one doorbell each.
    doorbells,
    /// Pairs of iteration and queue pair with accepted work. Equals `doorbells` where each queue pair gets one per
    /// iteration.
    pairs,
    /// Calls of `post` that were refused wholly or in part.
    refused_posts,
    /// Registrations accepted.
    registers,
    /// Local invalidations accepted.
    invalidates,
    /// SENDs accepted, with or without invalidation.
    sends,
    /// Those of them with invalidation.
    sends_with_invalidate,
    /// RDMA READs accepted.
    reads,
    /// RDMA WRITEs accepted.
    writes,
    /// Accepted work requests that ask for a completion.
    signalled,
    /// Completions taken from the send completion queue.
    send_completions,
    /// Completions taken from the receive completion queue.
    receive_completions,
    /// Those of both that failed.
    failures,
    /// Calls of `post_receives` and `post_shared_receives` of which the device accepted at least one receive.
    receive_doorbells,
    /// Receives accepted.
    receives,
    /// Records that found the lane full.
    dropped_records,
}

/// Adds to a counter that only the calling core writes.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// Queue pairs that post in one iteration before the port has to allocate once.
const POSTING_QUEUE_PAIRS: usize = 256;

/// The outside end of a recorded port. One thread drains it, which may be the port's own.
#[derive(Debug)]
pub struct Tap {
    records: Receiver<Record>,
    live: Arc<Live>,
}

impl Tap {
    /// The oldest record that was not taken yet.
    pub fn pop(&mut self) -> Option<Record> {
        self.records.pop()
    }

    /// What the port did so far. Counters are read one by one while the port may be counting.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.live.snapshot()
    }

    /// Says that a new iteration begins; meant for whoever steps the port, on the same thread.
    pub fn mark_iteration(&self, iteration: u64) {
        self.live.iteration.store(iteration, Ordering::Relaxed);
    }
}

/// Where the taps of ports that were opened wait to be fetched. Cheap to clone; any thread.
#[derive(Clone, Debug, Default)]
pub struct Taps(Arc<Mutex<BTreeMap<PortId, Tap>>>);

impl Taps {
    /// The tap of a port; once.
    #[must_use]
    pub fn take(&self, port: PortId) -> Option<Tap> {
        self.lock().remove(&port)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PortId, Tap>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device whose ports record.
#[derive(Debug)]
pub struct Recorded<D> {
    device: D,
    capacity: usize,
    taps: Taps,
}

impl<D: Device> Recorded<D> {
    /// Wraps a device; the lane of each port holds `capacity` records.
    #[must_use]
    pub fn new(device: D, capacity: usize) -> (Self, Taps) {
        let taps = Taps::default();
        (Self { device, capacity, taps: taps.clone() }, taps)
    }

    /// The device inside.
    #[must_use]
    pub const fn inner(&self) -> &D {
        &self.device
    }
}

impl<D: Device> Device for Recorded<D> {
    type Port = RecordedPort<D::Port>;

    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<Self::Port, CommandError> {
        let (port, tap) = RecordedPort::new(self.device.open_port(send_entries, receive_entries)?, self.capacity);
        self.taps.lock().insert(port.id(), tap);
        Ok(port)
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        self.device.submit(ticket, command)
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        self.device.poll()
    }

    fn rings(&mut self, bell: &Arc<Bell>) -> bool {
        self.device.rings(bell)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.device.descriptors()
    }

    fn is_present(&self) -> bool {
        self.device.is_present()
    }
}

/// A port that records.
#[derive(Debug)]
pub struct RecordedPort<P> {
    port: P,
    records: Sender<Record>,
    live: Arc<Live>,
    /// Queue pairs with accepted work in iteration `posted_in`, sorted; grows to the most that any iteration had.
    posted: Vec<QueuePairId>,
    posted_in: u64,
}

impl<P: Port> RecordedPort<P> {
    /// Wraps a port; the lane holds `capacity` records.
    #[must_use]
    pub fn new(port: P, capacity: usize) -> (Self, Tap) {
        let (sender, receiver) = lane::bounded(capacity);
        let live = Arc::new(Live::default());
        let tap = Tap { records: receiver, live: Arc::clone(&live) };
        (Self { port, records: sender, live, posted: Vec::with_capacity(POSTING_QUEUE_PAIRS), posted_in: 0 }, tap)
    }

    /// What the port did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.live.snapshot()
    }

    /// Says that a new iteration begins.
    pub fn mark_iteration(&mut self, iteration: u64) {
        self.live.iteration.store(iteration, Ordering::Relaxed);
    }

    /// The port inside.
    pub const fn inner(&mut self) -> &mut P {
        &mut self.port
    }

    fn record(&mut self, record: Record) {
        if self.records.push(record).is_err() {
            add(&self.live.dropped_records, 1);
        }
    }

    fn iteration(&self) -> u64 {
        self.live.iteration.load(Ordering::Relaxed)
    }

    fn count_doorbell(&mut self, queue_pair: QueuePairId) {
        add(&self.live.doorbells, 1);
        let iteration = self.iteration();
        if self.posted_in != iteration {
            self.posted_in = iteration;
            self.posted.clear();
        }
        let Err(place) = self.posted.binary_search(&queue_pair) else { return };
        self.posted.insert(place, queue_pair);
        add(&self.live.pairs, 1);
    }

    fn count_receives(&self, taken: usize) {
        add(&self.live.receives, taken as u64);
        add(&self.live.receive_doorbells, u64::from(taken > 0));
    }

    fn count_request(&self, request: &WorkRequest) {
        let live = &self.live;
        let counter = match request.operation {
            Operation::Register(_) => &live.registers,
            Operation::Invalidate { .. } => &live.invalidates,
            Operation::Send { .. } => &live.sends,
            Operation::Read { .. } => &live.reads,
            Operation::Write { .. } => &live.writes,
        };
        add(counter, 1);
        add(&live.signalled, u64::from(request.signalled));
        if matches!(request.operation, Operation::Send { invalidate: Some(_), .. }) {
            add(&live.sends_with_invalidate, 1);
        }
    }
}

/// What a record says of an operation, and its bytes.
fn describe(operation: &Operation, chain: Chain<'_>) -> (RecordedOperation, u64) {
    let bytes = |range| chain.elements_of(range).iter().map(|element| u64::from(element.length)).sum();
    match *operation {
        Operation::Register(fields) => {
            let recorded = RecordedOperation::Register {
                object: fields.object,
                key: fields.key,
                access: fields.access,
                iova: fields.iova,
                elements: fields.elements.count,
            };
            (recorded, u64::from(fields.length))
        }
        Operation::Invalidate { object, key } => (RecordedOperation::Invalidate { object, key }, 0),
        Operation::Send { local, invalidate } => (RecordedOperation::Send { invalidate }, bytes(local)),
        Operation::Read { local, remote } => (RecordedOperation::Read { key: remote.key }, bytes(local)),
        Operation::Write { local, remote } => (RecordedOperation::Write { key: remote.key }, bytes(local)),
    }
}

impl<P: Port> Port for RecordedPort<P> {
    fn id(&self) -> PortId {
        self.port.id()
    }

    fn wakes(&mut self, waker: &Waker) {
        self.port.wakes(waker);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.port.arm()
    }

    fn rests(&self) -> bool {
        self.port.rests()
    }

    fn begin_iteration(&mut self, iteration: u64) {
        self.mark_iteration(iteration);
        self.port.begin_iteration(iteration);
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        let result = self.port.post(queue_pair, chain);
        let taken = result.map_or_else(|error| error.accepted, |()| chain.requests.len());
        let iteration = self.iteration();
        for (index, request) in chain.requests.iter().enumerate() {
            let accepted = index < taken;
            if accepted {
                self.count_request(request);
            }
            let WorkRequest { token, signalled, fence, .. } = *request;
            let (operation, length) = describe(&request.operation, chain);
            self.record(Record::Posted { iteration, queue_pair, token, signalled, fence, accepted, length, operation });
        }
        if taken > 0 {
            self.count_doorbell(queue_pair);
        }
        if let Err(PostError { accepted, reason, errno }) = result {
            add(&self.live.refused_posts, 1);
            self.record(Record::Refused { iteration, queue_pair, accepted: accepted as u32, reason, errno });
        }
        result
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        let result = self.port.post_receives(queue_pair, receives);
        let taken = result.map_or_else(|error| error.accepted, |()| receives.len());
        let iteration = self.iteration();
        for (index, receive) in receives.iter().enumerate() {
            self.record(Record::Receive { iteration, queue_pair, token: receive.token, accepted: index < taken });
        }
        self.count_receives(taken);
        result
    }

    fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        let result = self.port.post_shared_receives(queue, receives);
        let taken = result.map_or_else(|error| error.accepted, |()| receives.len());
        let iteration = self.iteration();
        for (index, receive) in receives.iter().enumerate() {
            self.record(Record::SharedReceive { iteration, queue, token: receive.token, accepted: index < taken });
        }
        self.count_receives(taken);
        result
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        let before = batch.len();
        let taken = self.port.poll(queue, batch);
        let iteration = self.iteration();
        let counter = match queue {
            CompletionQueue::Send => &self.live.send_completions,
            CompletionQueue::Receive => &self.live.receive_completions,
        };
        add(counter, taken as u64);
        for completion in batch.iter().skip(before) {
            add(&self.live.failures, u64::from(completion.result.is_err()));
            let record = Record::Completed { iteration, queue, completion: *completion };
            if self.records.push(record).is_err() {
                add(&self.live.dropped_records, 1);
            }
        }
        taken
    }

    fn may_have_completions(&self, queue: CompletionQueue) -> bool {
        self.port.may_have_completions(queue)
    }

    fn remote_bytes_open(&self) -> Option<u64> {
        self.port.remote_bytes_open()
    }

    fn register_memory(
        &mut self,
        queue_pair: QueuePairId,
        memory: &DeviceMemory,
        access: Access,
    ) -> Result<RemoteMemory, CommandError> {
        self.port.register_memory(queue_pair, memory, access)
    }

    fn deregister_memory(&mut self, memory: RemoteMemory) -> Result<(), CommandError> {
        self.port.deregister_memory(memory)
    }
}
