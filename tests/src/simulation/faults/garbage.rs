//! A completion of something that was never posted (faults 12, 17).

use super::{ENDS, Effects, Fault, Place};
use frwr_engine::provider::{Completion, CompletionQueue, FailureStatus, QueuePairId, Success, Token, TokenKind};

const KINDS: [TokenKind; 5] =
    [TokenKind::Receive, TokenKind::Register, TokenKind::Invalidate, TokenKind::Message, TokenKind::Drain];
/// No device has as many.
const NO_QUEUE_PAIR: QueuePairId = QueuePairId(0xDEAD);

pub(super) const FAULT: Fault = Fault {
    name: "garbage",
    strike: |world, random| {
        let Some(Place { side, port, queue_pair: Some(queue_pair), .. }) = world.some_port(random) else {
            return Effects::NONE;
        };
        let queue = random.of(&[CompletionQueue::Send, CompletionQueue::Receive]);
        let queue_pair = random.of(&[queue_pair, NO_QUEUE_PAIR]);
        let token = Token::new(random.of(&KINDS), random.below(1 << 28) as u32, 0xFFFF_0000);
        let success = Success { bytes: random.bits() as u32, invalidated: Some(random.bits() as u32) };
        let result = if random.one_in(2) { Ok(success) } else { Err(FailureStatus::Flushed.into()) };
        side.faults.inject(port, queue, Completion { token, queue_pair, result });
        ENDS() | Effects::BREACHES
    },
};
