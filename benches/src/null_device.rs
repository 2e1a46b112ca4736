//! A device that completes at once and moves nothing, so that a measurement counts the engine and not the software NIC.
//!
//! Every SEND is answered by one message of the peer, as soon as it is polled. With `remote_invalidation` the answer
//! invalidates the key of the last registration in front of that SEND.

use arrayvec::ArrayVec;
use frwr_engine::provider::{
    Answer, BaseId, Capabilities, Chain, Command, CommandError, Completion, CompletionBatch, CompletionQueue,
    ConnectionEvent, Device, DeviceEvent, DomainId, Operation, Port, PortId, PostError, PostRefusal, PrivateData,
    QueuePairId, QueueSizes, ReceiveRequest, RegistrationId, SharedReceiveQueueId, Success, Ticket, Token,
    soft::SoftProfile,
};
use std::collections::VecDeque;

/// Completions and receives that can wait: above every queue depth that is measured.
const RING: usize = 4096;

/// The one queue pair.
const QUEUE_PAIR: QueuePairId = QueuePairId(1);

/// The cold half.
pub struct NullDevice {
    capabilities: Capabilities,
    remote_invalidation: bool,
    events: VecDeque<DeviceEvent>,
    objects: u32,
}

impl NullDevice {
    /// A device with the capabilities of a software NIC's profile.
    #[must_use]
    pub fn new(profile: SoftProfile, remote_invalidation: bool) -> Self {
        Self { capabilities: profile.capabilities(), remote_invalidation, events: VecDeque::new(), objects: 0 }
    }

    fn next(&mut self) -> u32 {
        self.objects += 1;
        self.objects
    }
}

impl Device for NullDevice {
    type Port = NullPort;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_port(&mut self, _: u32, _: u32) -> Result<NullPort, CommandError> {
        Ok(NullPort {
            remote_invalidation: self.remote_invalidation,
            receives: VecDeque::with_capacity(RING),
            sent: VecDeque::with_capacity(RING),
            received: VecDeque::with_capacity(RING),
        })
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        let answer = match command {
            Command::AllocateDomain => Answer::Domain(DomainId(self.next())),
            Command::RegisterMemory { .. } => {
                let base = self.next();
                Answer::Base { base: BaseId(base), lkey: base }
            }
            Command::CreateQueuePair { sizes: QueueSizes { send, receive, max_send_sge }, .. } => {
                Answer::QueuePair { queue_pair: QUEUE_PAIR, sizes: QueueSizes { send, receive, max_send_sge } }
            }
            Command::AllocateRegistration { .. } => {
                let object = self.next();
                Answer::Registration { object: RegistrationId(object), key: object << 8 }
            }
            _ => Answer::Done,
        };
        let established = matches!(command, Command::Connect { .. });
        self.events.push_back(DeviceEvent::Answered { ticket, result: Ok(answer) });
        if established {
            let event = ConnectionEvent::Established { queue_pair: QUEUE_PAIR, private_data: PrivateData::new() };
            self.events.push_back(DeviceEvent::Connection(event));
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        self.events.pop_front()
    }
}

/// The hot half: two rings.
pub struct NullPort {
    remote_invalidation: bool,
    receives: VecDeque<Token>,
    sent: VecDeque<Token>,
    received: VecDeque<(Token, Option<u32>)>,
}

impl Port for NullPort {
    fn id(&self) -> PortId {
        PortId(0)
    }

    fn post(&mut self, _: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        let mut key = None;
        for request in chain.requests {
            match request.operation {
                Operation::Register(fields) => key = Some(fields.key),
                Operation::Send { .. } => {
                    if let Some(receive) = self.receives.pop_front() {
                        self.received.push_back((receive, key.take().filter(|_| self.remote_invalidation)));
                    }
                }
                _ => {}
            }
            if request.signalled {
                self.sent.push_back(request.token);
            }
        }
        Ok(())
    }

    fn post_receives(&mut self, _: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        self.receives.extend(receives.iter().map(|receive| receive.token));
        Ok(())
    }

    fn post_shared_receives(&mut self, _: SharedReceiveQueueId, _: &[ReceiveRequest]) -> Result<(), PostError> {
        Err(PostError { accepted: 0, reason: PostRefusal::NotReady })
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        let before = batch.len();
        match queue {
            CompletionQueue::Send => fill(batch, &mut self.sent, |token| (token, Success::default())),
            CompletionQueue::Receive => {
                fill(batch, &mut self.received, |(token, invalidated)| (token, Success { bytes: 16, invalidated }))
            }
        }
        batch.len() - before
    }
}

fn fill<T>(
    batch: &mut ArrayVec<Completion, { frwr_engine::provider::MAX_COMPLETIONS_PER_POLL }>,
    from: &mut VecDeque<T>,
    what: impl Fn(T) -> (Token, Success),
) {
    while !batch.is_full() {
        let Some((token, success)) = from.pop_front().map(&what) else { return };
        batch.push(Completion { token, queue_pair: QUEUE_PAIR, result: Ok(success) });
    }
}
