//! A message meets no receive for a while, though there is one: receiver not ready, transient or until retries are over (fault 30).

use super::{Harm, NicFault};
use frwr_engine::provider::{QueuePairId, soft::Interference};

/// Progress steps: from one answer to more than a sender with few retries bears.
const STEPS: [u64; 3] = [1, 70, 600];

pub(super) const FAULT: NicFault = NicFault {
    name: "hidden receives",
    ends_connections: true,
    port: Harm::None,
    strike: |victim, random| {
        if let Some(queue_pair) = victim.some_queue_pair(random).filter(|_| !victim.hangs_without_receive) {
            victim.interfere(HiddenReceives { queue_pair, steps: random.of(&STEPS) });
        }
    },
};

struct HiddenReceives {
    queue_pair: QueuePairId,
    steps: u64,
}

impl Interference for HiddenReceives {
    fn hides_receives(&mut self, queue_pair: QueuePairId) -> bool {
        let hides = queue_pair == self.queue_pair && self.steps > 0;
        self.steps -= u64::from(hides);
        hides
    }

    fn is_over(&self) -> bool {
        self.steps == 0
    }
}
