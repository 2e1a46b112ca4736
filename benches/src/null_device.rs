//! A device that completes at once and moves nothing, so that a measurement counts the engine and not the software NIC.
//!
//! Every SEND is answered by one message of the peer, as soon as it is polled. With `remote_invalidation` the answer
//! invalidates the key of the last registration in front of that SEND.

use frwr_engine::provider::{
    Answer, BaseId, Capabilities, Chain, Command, CommandError, Completion, CompletionBatch, CompletionQueue,
    ConnectionEvent, Device, DeviceEvent, DomainId, Operation, Port, PortId, PostError, PrivateData, QueuePairId,
    QueueSizes, ReceiveRequest, RegistrationId, SharedReceiveQueueId, Success, Ticket, Token,
};
use std::collections::VecDeque;

/// Completions and receives that can wait: above every queue depth that is measured; a power of two, so that a masked
/// position needs no check.
const RING: usize = 4096;
const _: () = assert!(RING.is_power_of_two());

/// The one queue pair.
const QUEUE_PAIR: QueuePairId = QueuePairId(1);

/// The cold half, of any port that is made beforehand.
pub struct NullDevice<P> {
    capabilities: Capabilities,
    port: Option<P>,
    events: VecDeque<DeviceEvent>,
    objects: u32,
    queue_pairs: u32,
}

impl<P: Port + Send> NullDevice<P> {
    /// A device that says this of itself, with one port.
    #[must_use]
    pub fn new(capabilities: Capabilities, port: P) -> Self {
        Self { capabilities, port: Some(port), events: VecDeque::new(), objects: 0, queue_pairs: 0 }
    }

    fn next(&mut self) -> u32 {
        self.objects += 1;
        self.objects
    }
}

impl<P: Port + Send> Device for NullDevice<P> {
    type Port = P;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_port(&mut self, _: u32, _: u32) -> Result<P, CommandError> {
        self.port.take().ok_or(CommandError::EXHAUSTED)
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        let connects = if let Command::Connect { queue_pair, .. } = command { Some(queue_pair) } else { None };
        let answer = match command {
            Command::AllocateDomain => Answer::Domain(DomainId(self.next())),
            Command::RegisterMemory { .. } => {
                let base = self.next();
                Answer::Base { base: BaseId(base), lkey: base }
            }
            Command::CreateQueuePair { sizes: QueueSizes { send, receive, max_send_sge }, .. } => {
                // The first one is QUEUE_PAIR.
                self.queue_pairs += 1;
                let queue_pair = QueuePairId(self.queue_pairs);
                Answer::QueuePair { queue_pair, sizes: QueueSizes { send, receive, max_send_sge } }
            }
            Command::AllocateRegistration { .. } => {
                let object = self.next();
                Answer::Registration { object: RegistrationId(object), key: object << 8 }
            }
            Command::CreateSharedReceiveQueue { entries, .. } => {
                Answer::SharedReceiveQueue { queue: SharedReceiveQueueId(self.next()), entries }
            }
            _ => Answer::Done,
        };
        self.events.push_back(DeviceEvent::Answered { ticket, result: Ok(answer) });
        if let Some(queue_pair) = connects {
            let event = ConnectionEvent::Established { queue_pair, private_data: PrivateData::new() };
            self.events.push_back(DeviceEvent::Connection(event));
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        self.events.pop_front()
    }
}

/// The hot half: positions in three rings. It does no more than a port must, and is part of its caller.
pub struct NullPort {
    remote_invalidation: bool,
    /// Tokens of posted receives, in order; the SEND at a position is answered into the receive at that position.
    receives: Ring<Token>,
    /// The key in front of each SEND.
    keys: Ring<u32>,
    /// Tokens of work requests that asked for a completion.
    signalled: Ring<Token>,
}

/// What was written at positions that only grow, and up to where it was read.
struct Ring<T> {
    entries: Box<[T; RING]>,
    written: usize,
    read: usize,
}

impl<T: Copy> Ring<T> {
    fn new(empty: T) -> Self {
        Self { entries: Box::new([empty; RING]), written: 0, read: 0 }
    }

    #[inline(always)]
    fn write(&mut self, entry: T) {
        self.entries[self.written & (RING - 1)] = entry;
        self.written += 1;
    }
}

impl NullPort {
    /// A port of one queue pair. With `remote_invalidation` each answer invalidates the last key in front of its SEND.
    #[must_use]
    pub fn new(remote_invalidation: bool) -> Self {
        Self { remote_invalidation, receives: Ring::new(Token(0)), keys: Ring::new(0), signalled: Ring::new(Token(0)) }
    }
}

impl Port for NullPort {
    fn id(&self) -> PortId {
        PortId(0)
    }

    #[inline(always)]
    fn post(&mut self, _: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        let mut key = 0;
        for request in chain.requests {
            match request.operation {
                Operation::Register(fields) => key = fields.key,
                Operation::Send { .. } => self.keys.write(key),
                _ => {}
            }
            if request.signalled {
                self.signalled.write(request.token);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn post_receives(&mut self, _: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        for receive in receives {
            self.receives.write(receive.token);
        }
        Ok(())
    }

    #[inline(always)]
    fn post_shared_receives(&mut self, _: SharedReceiveQueueId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        self.post_receives(QUEUE_PAIR, receives)
    }

    #[inline(always)]
    fn may_have_completions(&self, queue: CompletionQueue) -> bool {
        match queue {
            CompletionQueue::Send => self.signalled.written != self.signalled.read,
            CompletionQueue::Receive => self.keys.written != self.keys.read,
        }
    }

    #[inline(always)]
    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        match queue {
            CompletionQueue::Send => {
                let count = (self.signalled.written - self.signalled.read).min(batch.remaining_capacity());
                for at in self.signalled.read..self.signalled.read + count {
                    let token = self.signalled.entries[at & (RING - 1)];
                    put(batch, token, Success::default());
                }
                self.signalled.read += count;
                count
            }
            CompletionQueue::Receive => {
                let count = (self.keys.written - self.keys.read).min(batch.remaining_capacity());
                for at in self.keys.read..self.keys.read + count {
                    let key = self.keys.entries[at & (RING - 1)];
                    let invalidated = (self.remote_invalidation && key != 0).then_some(key);
                    put(batch, self.receives.entries[at & (RING - 1)], Success { bytes: 16, invalidated });
                }
                self.keys.read += count;
                count
            }
        }
    }
}

#[inline(always)]
fn put(batch: &mut CompletionBatch, token: Token, success: Success) {
    // The caller has counted the room.
    let _ = batch.try_push(Completion { token, queue_pair: QUEUE_PAIR, result: Ok(success) });
}
