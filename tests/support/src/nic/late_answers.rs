//! What the peer answered comes late: replies arrive before the sends that they answer have completed, and those may be sent again
//! meanwhile (fault 9).

use super::{Harm, NicFault};
use frwr_engine::provider::{QueuePairId, soft::Interference};

/// Progress steps: from a step to longer than many requests take.
const STEPS: [u64; 3] = [3, 50, 1000];

pub(super) const FAULT: NicFault = NicFault {
    name: "late answers",
    ends_connections: false,
    port: Harm::None,
    strike: |victim, random| {
        if let Some(queue_pair) = victim.some_queue_pair(random) {
            victim.interfere(LateAnswers { queue_pair, steps: random.of(&STEPS) });
        }
    },
};

struct LateAnswers {
    queue_pair: QueuePairId,
    steps: u64,
}

impl Interference for LateAnswers {
    fn holds_answers(&mut self, queue_pair: QueuePairId) -> bool {
        let holds = queue_pair == self.queue_pair && self.steps > 0;
        self.steps -= u64::from(holds);
        holds
    }

    fn is_over(&self) -> bool {
        self.steps == 0
    }
}
