//! A completion finds its queue full and is lost: every queue pair of the port fails (fault 13).

use super::{Harm, NicFault};
use frwr_engine::provider::{CompletionQueue, soft::Interference};

pub(super) const FAULT: NicFault = NicFault {
    name: "completion queue overrun",
    ends_connections: true,
    port: Harm::Ends,
    strike: |victim, random| {
        let queue = random.of(&[CompletionQueue::Send, CompletionQueue::Receive]);
        victim.interfere(Overrun { queue: Some(queue) });
    },
};

struct Overrun {
    queue: Option<CompletionQueue>,
}

impl Interference for Overrun {
    fn overruns(&mut self, queue: CompletionQueue) -> bool {
        let overruns = self.queue == Some(queue);
        if overruns {
            self.queue = None;
        }
        overruns
    }

    fn is_over(&self) -> bool {
        self.queue.is_none()
    }
}
