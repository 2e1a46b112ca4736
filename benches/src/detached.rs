//! A device that two sides connect over as they always do, and that one of them is detached from then: from that moment
//! on its port has a far end that answers at once. So a measurement counts the side and its engine, and neither the
//! device nor the other side.

use frwr_engine::provider::{
    Capabilities, Chain, Command, CommandError, Completion, CompletionBatch, CompletionQueue, Device, DeviceEvent,
    Operation, Port, PortId, PostError, QueuePairId, ReceiveRequest, ScatterElement, SharedReceiveQueueId, Success,
    Ticket, Token,
};
use frwr_mempool::DeviceMemory;
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Who is at the other end of the last connection, once the port is detached.
pub trait FarEnd: Clone + Send {
    /// A work request was posted.
    fn posted(&mut self, operation: &Operation, chain: &Chain<'_>, memory: &Memory);

    /// A message is on its way.
    fn may_arrive(&self) -> bool;

    /// The next message arrives in this receive; `None` where there is none.
    fn arrive(&mut self, receive: &ScatterElement, memory: &Memory) -> Option<Success>;
}

/// All that was registered with the device.
#[derive(Clone, Debug, Default)]
pub struct Memory(Vec<DeviceMemory>);

impl Memory {
    /// That which the device was told of.
    #[must_use]
    pub fn new(memory: Vec<DeviceMemory>) -> Self {
        Self(memory)
    }

    /// The memory that has an address, and where in it that lies.
    #[inline(always)]
    fn at(&self, address: u64) -> Option<(&DeviceMemory, usize)> {
        self.0.iter().find_map(|memory| {
            let offset = address.wrapping_sub(memory.address());
            (offset < memory.len() as u64).then_some((memory, offset as usize))
        })
    }

    /// Reads from an address on; what lies nowhere stays as it is.
    #[inline(always)]
    pub fn read(&self, address: u64, into: &mut [u8]) {
        let _ = self.at(address).map(|(memory, offset)| memory.read(offset, into));
    }

    /// Writes from an address on, if something lies there.
    #[inline(always)]
    pub fn write(&self, address: u64, from: &[u8]) {
        let _ = self.at(address).map(|(memory, offset)| memory.write(offset, from));
    }
}

/// What device, port and whoever detaches them share.
#[derive(Clone, Debug, Default)]
pub struct Detacher {
    detached: Arc<AtomicBool>,
    memory: Arc<Mutex<Vec<DeviceMemory>>>,
}

impl Detacher {
    /// Detaches the port. Nothing may be under way.
    pub fn detach(&self) {
        self.detached.store(true, Relaxed);
    }

    fn memory(&self) -> Memory {
        Memory(self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// A device whose port can be detached from it.
pub struct Detachable<D, F> {
    device: D,
    far: F,
    detacher: Detacher,
}

impl<D, F> Detachable<D, F> {
    /// Wraps a device.
    pub fn new(device: D, far: F) -> (Self, Detacher) {
        let detacher = Detacher::default();
        (Self { device, far, detacher: detacher.clone() }, detacher)
    }
}

impl<D: Device, F: FarEnd> Device for Detachable<D, F> {
    type Port = DetachablePort<D::Port, F>;

    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<Self::Port, CommandError> {
        let port = self.device.open_port(send_entries, receive_entries)?;
        Ok(DetachablePort {
            id: port.id(),
            attached: Some(Attached { port, detacher: self.detacher.clone(), queue_pairs: Vec::new() }),
            far: self.far.clone(),
            memory: Memory::default(),
            receives: VecDeque::new(),
            signalled: VecDeque::new(),
            queue_pair: QueuePairId(0),
        })
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        if let Command::RegisterMemory { memory, .. } = &command {
            self.detacher.memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory.clone());
        }
        self.device.submit(ticket, command)
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        self.device.poll()
    }
}

/// The device's port, as long as there is one.
struct Attached<P> {
    port: P,
    detacher: Detacher,
    /// In the order in which they first posted receives, with those that have not come back.
    queue_pairs: Vec<(QueuePairId, VecDeque<ReceiveRequest>)>,
}

impl<P> Attached<P> {
    fn posted(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) {
        match self.queue_pairs.iter_mut().find(|(known, _)| *known == queue_pair) {
            Some((_, posted)) => posted.extend(receives),
            None => self.queue_pairs.push((queue_pair, receives.iter().copied().collect())),
        }
    }

    fn came_back(&mut self, completions: &[Completion]) {
        for completion in completions {
            if let Some((_, posted)) = self.queue_pairs.iter_mut().find(|(known, _)| *known == completion.queue_pair) {
                posted.retain(|receive| receive.token != completion.token);
            }
        }
    }
}

/// A port of a device, and later of the last queue pair that was made and its far end.
pub struct DetachablePort<P, F> {
    id: PortId,
    attached: Option<Attached<P>>,
    far: F,
    memory: Memory,
    receives: VecDeque<ReceiveRequest>,
    signalled: VecDeque<Token>,
    queue_pair: QueuePairId,
}

impl<P: Port, F: FarEnd> DetachablePort<P, F> {
    /// One that was never attached, for loops without an engine.
    #[must_use]
    pub fn detached(far: F, memory: Memory) -> Self {
        let (receives, signalled) = (VecDeque::new(), VecDeque::new());
        Self { id: PortId(0), attached: None, far, memory, receives, signalled, queue_pair: QueuePairId(1) }
    }

    #[inline(always)]
    fn attached(&mut self) -> Option<&mut Attached<P>> {
        if self.attached.is_some() { self.still_attached() } else { None }
    }

    #[cold]
    #[inline(never)]
    fn still_attached(&mut self) -> Option<&mut Attached<P>> {
        let over = self.attached.take_if(|attached| attached.detacher.detached.load(Relaxed));
        if let Some(Attached { detacher, mut queue_pairs, .. }) = over {
            self.memory = detacher.memory();
            (self.queue_pair, self.receives) = queue_pairs.pop().unwrap_or((QueuePairId(0), VecDeque::new()));
        }
        self.attached.as_mut()
    }

    #[inline(always)]
    fn arrive(&mut self) -> Option<Completion> {
        let receive = self.receives.front()?;
        let success = self.far.arrive(&receive.element, &self.memory)?;
        let (token, queue_pair) = (receive.token, self.queue_pair);
        self.receives.pop_front();
        Some(Completion { token, queue_pair, result: Ok(success) })
    }
}

impl<P: Port, F: FarEnd> Port for DetachablePort<P, F> {
    fn id(&self) -> PortId {
        self.id
    }

    #[inline(always)]
    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        if let Some(attached) = self.attached() {
            return attached.port.post(queue_pair, chain);
        }
        for request in chain.requests {
            self.far.posted(&request.operation, &chain, &self.memory);
            if request.signalled {
                self.signalled.push_back(request.token);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        if let Some(attached) = self.attached() {
            attached.port.post_receives(queue_pair, receives)?;
            attached.posted(queue_pair, receives);
            return Ok(());
        }
        self.receives.extend(receives);
        Ok(())
    }

    fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        match self.attached() {
            Some(attached) => attached.port.post_shared_receives(queue, receives),
            None => Ok(()),
        }
    }

    #[inline(always)]
    fn may_have_completions(&self, queue: CompletionQueue) -> bool {
        match (&self.attached, queue) {
            (Some(attached), _) => {
                attached.port.may_have_completions(queue) || attached.detacher.detached.load(Relaxed)
            }
            (None, CompletionQueue::Send) => !self.signalled.is_empty(),
            (None, CompletionQueue::Receive) => self.far.may_arrive(),
        }
    }

    #[inline(always)]
    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        let before = batch.len();
        if let Some(attached) = self.attached() {
            let count = attached.port.poll(queue, batch);
            if queue == CompletionQueue::Receive {
                attached.came_back(&batch[before..]);
            }
            return count;
        }
        while !batch.is_full() {
            let completion = match queue {
                CompletionQueue::Send => self.signalled.pop_front().map(|token| Completion {
                    token,
                    queue_pair: self.queue_pair,
                    result: Ok(Success::default()),
                }),
                CompletionQueue::Receive => self.arrive(),
            };
            let Some(completion) = completion else { break };
            batch.push(completion);
        }
        batch.len() - before
    }

    fn begin_iteration(&mut self, iteration: u64) {
        if let Some(attached) = self.attached() {
            attached.port.begin_iteration(iteration);
        }
    }
}
