//! Completions stay in their queue for a while, of sends or of receives, with the send queue entries that they free (fault 11).

use super::{Harm, NicFault};
use frwr_engine::provider::{CompletionQueue, soft::Interference};

const POLLS: [u64; 3] = [2, 20, 500];

pub(super) const FAULT: NicFault = NicFault {
    name: "late completions",
    ends_connections: false,
    port: Harm::MayOverrun,
    strike: |victim, random| {
        let queue = random.of(&[CompletionQueue::Send, CompletionQueue::Send, CompletionQueue::Receive]);
        victim.interfere(LateCompletions { queue, polls: random.of(&POLLS) });
    },
};

struct LateCompletions {
    queue: CompletionQueue,
    polls: u64,
}

impl Interference for LateCompletions {
    fn holds_completions(&mut self, queue: CompletionQueue) -> bool {
        let holds = queue == self.queue && self.polls > 0;
        self.polls -= u64::from(holds);
        holds
    }

    fn is_over(&self) -> bool {
        self.polls == 0
    }
}
