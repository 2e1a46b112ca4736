//! A port whose completions are told beforehand: storms of failures, of completions that name nothing, and full budgets of good
//! ones (goal A22).

use frwr_engine::provider::{
    Chain, Completion, CompletionBatch, CompletionQueue, Failure, FailureStatus, Operation, Port, PortId, PostError,
    PostRefusal, QueuePairId, ReceiveRequest, SharedReceiveQueueId, Success, Token, TokenKind,
};
use std::collections::VecDeque;

/// Room for what one queue pair has posted, above every queue depth that is measured.
const POSTED: usize = 1024;

/// What one queue pair was given.
struct QueuePair {
    requests: VecDeque<(Token, bool)>,
    receives: VecDeque<Token>,
    /// Keys in front of SENDs that were not answered yet.
    sent: VecDeque<u32>,
}

/// The port.
pub struct StormPort {
    queue_pairs: Vec<QueuePair>,
    send: VecDeque<Completion>,
    receive: VecDeque<Completion>,
}

impl StormPort {
    /// A port of so many queue pairs, numbered from 1.
    #[must_use]
    pub fn new(queue_pairs: usize) -> Self {
        let queue = || QueuePair {
            requests: VecDeque::with_capacity(POSTED),
            receives: VecDeque::with_capacity(POSTED),
            sent: VecDeque::with_capacity(POSTED),
        };
        Self {
            queue_pairs: (0..queue_pairs).map(|_| queue()).collect(),
            send: VecDeque::with_capacity(2 * POSTED),
            receive: VecDeque::with_capacity(2 * POSTED),
        }
    }

    fn of(&mut self, queue_pair: QueuePairId) -> Option<&mut QueuePair> {
        self.queue_pairs.get_mut(queue_pair.0.wrapping_sub(1) as usize)
    }

    /// Everything posted to a queue pair comes back: the first work request has failed, all else is flushed.
    pub fn fail(&mut self, queue_pair: QueuePairId) {
        let Some(QueuePair { requests, receives, .. }) = self.of(queue_pair) else { return };
        let (requests, receives) = (core::mem::take(requests), core::mem::take(receives));
        let mut failure = Failure::from(FailureStatus::RetryExceeded);
        for (token, _) in requests {
            self.send.push_back(Completion { token, queue_pair, result: Err(failure) });
            failure = Failure::FLUSHED;
        }
        for token in receives {
            self.receive.push_back(Completion { token, queue_pair, result: Err(failure) });
        }
    }

    /// All that was posted to a queue pair succeeds, and each message is answered; the answer invalidates its key.
    pub fn answer(&mut self, queue_pair: QueuePairId) {
        while let Some(QueuePair { requests, receives, sent }) = self.of(queue_pair) {
            if let Some((token, signalled)) = requests.pop_front() {
                if signalled {
                    self.send.push_back(Completion { token, queue_pair, result: Ok(Success::default()) });
                }
            } else if let (Some(key), Some(token)) = (sent.pop_front(), receives.pop_front()) {
                let success = Success { bytes: 16, invalidated: (key != 0).then_some(key) };
                self.receive.push_back(Completion { token, queue_pair, result: Ok(success) });
            } else {
                return;
            }
        }
    }

    /// Completions that name work requests of former uses of the same objects, as many on either queue.
    pub fn stale(&mut self, queue_pair: QueuePairId, count: u32) {
        for at in 0..count {
            let kind = [TokenKind::Register, TokenKind::Invalidate, TokenKind::Message][at as usize % 3];
            let result = if at % 2 == 0 { Err(Failure::FLUSHED) } else { Ok(Success::default()) };
            let token = Token::new(kind, at, u32::MAX);
            self.send.push_back(Completion { token, queue_pair, result });
            let token = Token::new(TokenKind::Receive, at, u32::MAX);
            self.receive.push_back(Completion { token, queue_pair, result });
        }
    }
}

impl Port for StormPort {
    fn id(&self) -> PortId {
        PortId(0)
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        let Some(queue) = self.of(queue_pair) else {
            return Err(PostError::new(0, PostRefusal::NotReady));
        };
        let mut key = 0;
        for request in chain.requests {
            match request.operation {
                Operation::Register(fields) => key = fields.key,
                Operation::Send { .. } => queue.sent.push_back(key),
                _ => {}
            }
            queue.requests.push_back((request.token, request.signalled));
        }
        Ok(())
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        let Some(queue) = self.of(queue_pair) else {
            return Err(PostError::new(0, PostRefusal::NotReady));
        };
        queue.receives.extend(receives.iter().map(|receive| receive.token));
        Ok(())
    }

    fn post_shared_receives(&mut self, _: SharedReceiveQueueId, _: &[ReceiveRequest]) -> Result<(), PostError> {
        Err(PostError::new(0, PostRefusal::NotReady))
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        let from = match queue {
            CompletionQueue::Send => &mut self.send,
            CompletionQueue::Receive => &mut self.receive,
        };
        let count = batch.remaining_capacity().min(from.len());
        batch.extend(from.drain(..count));
        count
    }
}
