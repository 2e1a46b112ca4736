//! The null port with any number of queue pairs: as [`NullPort`](crate::null_device::NullPort), whose one queue pair needs no looking up.
//! A queue pair that is to end gives its receives back when its drain marker is posted.

use frwr_engine::provider::{
    Chain, Completion, CompletionBatch, CompletionQueue, Failure, Operation, Port, PortId, PostError, QueuePairId,
    ReceiveRequest, SharedReceiveQueueId, Success, Token, TokenKind,
};
use std::collections::VecDeque;

/// In place of a key: the receive is flushed. No key has all its bits set, since they begin with an object's number.
const FLUSHED: u32 = u32::MAX;

/// Positions in queues, of which those of receives are each queue pair's own.
pub struct NullQueuePairs {
    remote_invalidation: bool,
    receives: Vec<VecDeque<Token>>,
    /// The queue pair of each SEND that was not answered yet, and the key in front of it.
    sent: VecDeque<(QueuePairId, u32)>,
    signalled: VecDeque<(QueuePairId, Token)>,
}

impl NullQueuePairs {
    /// A port of queue pairs 1 to `count`. With `remote_invalidation` each answer invalidates the last key in front of its SEND.
    #[must_use]
    pub fn new(count: usize, remote_invalidation: bool) -> Self {
        Self {
            remote_invalidation,
            receives: vec![VecDeque::new(); count + 1],
            sent: VecDeque::new(),
            signalled: VecDeque::new(),
        }
    }
}

impl Port for NullQueuePairs {
    fn id(&self) -> PortId {
        PortId(0)
    }

    #[inline(always)]
    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        let mut key = 0;
        for request in chain.requests {
            match request.operation {
                Operation::Register(fields) => key = fields.key,
                Operation::Send { .. } => self.sent.push_back((queue_pair, key)),
                _ => {}
            }
            if request.signalled {
                self.signalled.push_back((queue_pair, request.token));
                if request.token.is(TokenKind::Drain) {
                    self.flush(queue_pair);
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        self.receives[queue_pair.0 as usize].extend(receives.iter().map(|receive| receive.token));
        Ok(())
    }

    fn post_shared_receives(&mut self, _: SharedReceiveQueueId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        self.post_receives(QueuePairId(0), receives)
    }

    #[inline(always)]
    fn may_have_completions(&self, queue: CompletionQueue) -> bool {
        match queue {
            CompletionQueue::Send => !self.signalled.is_empty(),
            CompletionQueue::Receive => !self.sent.is_empty(),
        }
    }

    #[inline(always)]
    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        let before = batch.len();
        while !batch.is_full() {
            let completion = match queue {
                CompletionQueue::Send => self.signalled.pop_front().map(|(queue_pair, token)| Completion {
                    token,
                    queue_pair,
                    result: Ok(Success::default()),
                }),
                CompletionQueue::Receive => self.answer(),
            };
            let Some(completion) = completion else { break };
            batch.push(completion);
        }
        batch.len() - before
    }
}

impl NullQueuePairs {
    /// A drain marker was the last thing to be sent: it is answered by all receives of its queue pair.
    #[cold]
    fn flush(&mut self, queue_pair: QueuePairId) {
        self.sent.pop_back();
        let receives = self.receives.get(queue_pair.0 as usize).map_or(0, VecDeque::len);
        self.sent.extend((0..receives).map(|_| (queue_pair, FLUSHED)));
    }

    #[inline(always)]
    fn answer(&mut self) -> Option<Completion> {
        let &(queue_pair, key) = self.sent.front()?;
        let token = self.receives[queue_pair.0 as usize].pop_front()?;
        self.sent.pop_front();
        let invalidated = (self.remote_invalidation && key != 0).then_some(key);
        let result = if key == FLUSHED { Err(Failure::FLUSHED) } else { Ok(Success { bytes: 16, invalidated }) };
        Some(Completion { token, queue_pair, result })
    }
}
