//! What devices do wrong.

use super::Swarm;
use crate::engine_harness::random::TOKEN_KINDS;
use core::time::Duration;
use frwr_engine::{
    ReceiveQueues,
    provider::{
        AsyncEvent, CommandError, Completion, CompletionQueue, DeviceEvent, FailureStatus, PortId, PostRefusal,
        QueuePairId, Success, Token, TokenKind,
        fault::{CommandKind, CompletionFault, CompletionFilter},
    },
};

impl Swarm {
    pub(super) fn fault(&mut self) {
        let on_host = self.random.below(4) > 0;
        let Self { test, random, asleep, .. } = self;
        let faults = if on_host { &test.faults } else { &test.target_faults };
        let side = if on_host { &test.pair.host } else { &test.pair.target };
        let total: u64 = self.chances.weights.iter().sum();
        if total == 0 {
            return;
        }
        let mut at = random.below(total);
        let kind = self.chances.weights.iter().position(|&weight| {
            let found = at < weight;
            at = at.saturating_sub(weight);
            found
        });
        let all: Vec<_> = side.engine.connections().filter_map(|found| side.engine.queue_pair(found)).collect();
        let queue_pair = if all.is_empty() { QueuePairId(1) } else { random.of(&all) };
        match kind.unwrap_or(0) {
            0 => faults.refuse_post(queue_pair, random.below(7) as usize, PostRefusal::Invalid),
            1 => match self.shared.filter(|_| on_host) {
                Some(queue) => faults.refuse_shared_receives(queue, random.below(3) as usize, PostRefusal::Invalid),
                None => faults.refuse_receives(queue_pair, random.below(3) as usize, PostRefusal::Invalid),
            },
            2 => {
                let kind = random.of(&TOKEN_KINDS);
                // Its grant goes to others when it is destroyed, and a receiver that is not ready hangs rxe's peer.
                let shares = self.shares[usize::from(!on_host)];
                let dies = shares && self.is_rxe && kind == TokenKind::Receive;
                let hold = if dies { CompletionFault::HoldWhileAlive } else { CompletionFault::Hold };
                faults.on_all_completions(CompletionFilter::kind(kind), hold);
            }
            3 => faults.release(),
            4 => faults.on_completions(CompletionFilter::default(), CompletionFault::Duplicate, 3),
            5 => {
                let statuses = [FailureStatus::Bind, FailureStatus::Flushed, FailureStatus::RemoteAccess];
                faults.fail_from_now(queue_pair, random.of(&statuses));
            }
            6 => {
                let queue_pair = if random.one_in(2) { queue_pair } else { QueuePairId(0xDEAD) };
                let token = Token::new(random.of(&TOKEN_KINDS), random.below(1 << 28) as u32, 0xFFFF_0000);
                let success = Success { bytes: random.next() as u32, invalidated: Some(random.next() as u32) };
                let result = if random.one_in(2) { Ok(success) } else { Err(FailureStatus::Flushed.into()) };
                let queue = random.of(&[CompletionQueue::Send, CompletionQueue::Receive]);
                faults.inject(PortId(0), queue, Completion { token, queue_pair, result });
            }
            7 => {
                let kind = random.of(&[
                    CommandKind::AllocateRegistration,
                    CommandKind::CreateQueuePair,
                    CommandKind::CreateSharedReceiveQueue,
                    CommandKind::RegisterMemory,
                    CommandKind::AllocateDomain,
                    CommandKind::FailQueuePair,
                    CommandKind::DestroyQueuePair,
                    CommandKind::Connect,
                    CommandKind::Accept,
                ]);
                faults.fail_command(kind, CommandError::EXHAUSTED, 1 + random.below(3) as u32);
            }
            8 => faults.fail_command(CommandKind::FreeRegistration, CommandError::BUSY, 1 + random.below(3) as u32),
            9 => {
                let events = [AsyncEvent::QueuePairFatal(queue_pair), AsyncEvent::QueuePairAccessError(queue_pair)];
                faults.inject_event(DeviceEvent::Async(random.of(&events)));
            }
            10 => asleep[random.below(5) as usize] = random.below(60),
            // Nothing on a port whose completions were lost can be trusted (fault 13); of shared receives nobody would know.
            11 if self.options.receive_queues == ReceiveQueues::PerConnection => {
                self.lost_completions = true;
                test.faults.on_completions(CompletionFilter::default(), CompletionFault::Drop, 1);
            }
            _ => test.pair.now += Duration::from_micros(1 << random.below(24)),
        }
    }
}
