//! The wire of a queue pair is cut for a while, shorter or longer than its retries last (faults 33, 39).

use super::{Harm, NicFault};
use frwr_engine::provider::{QueuePairId, soft::Interference};

/// Steps without an answer: from a few to more than seven retries last.
const STEPS: [u64; 4] = [2, 20, 100, 400];

pub(super) const FAULT: NicFault = NicFault {
    name: "cut wire",
    ends_connections: true,
    port: Harm::None,
    strike: |victim, random| {
        if let Some(queue_pair) = victim.some_queue_pair(random) {
            victim.interfere(CutWire { queue_pair, steps: random.of(&STEPS) });
        }
    },
};

struct CutWire {
    queue_pair: QueuePairId,
    steps: u64,
}

impl Interference for CutWire {
    fn cuts_wire(&mut self, queue_pair: QueuePairId) -> bool {
        let cuts = queue_pair == self.queue_pair && self.steps > 0;
        self.steps -= u64::from(cuts);
        cuts
    }

    fn is_over(&self) -> bool {
        self.steps == 0
    }
}
