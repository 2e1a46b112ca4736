//! What goes wrong inside the software NIC, at a place that the test names.

use frwr_engine::provider::{CompletionQueue, Failure, QueuePairId, WorkRequest, soft::Interference};

/// A work request of a queue pair fails and is not executed.
pub(crate) struct FailedWork {
    pub(crate) queue_pair: QueuePairId,
    /// How many are executed before it.
    pub(crate) passing: u32,
    /// `None` once it happened.
    pub(crate) failure: Option<Failure>,
}

impl Interference for FailedWork {
    fn fails(&mut self, queue_pair: QueuePairId, _: &WorkRequest) -> Option<Failure> {
        if queue_pair != self.queue_pair {
            return None;
        }
        match self.passing.checked_sub(1) {
            Some(left) => {
                self.passing = left;
                None
            }
            None => self.failure.take(),
        }
    }

    fn is_over(&self) -> bool {
        self.failure.is_none()
    }
}

/// The next completion of a queue finds it full.
pub(crate) struct Overrun(pub(crate) Option<CompletionQueue>);

impl Interference for Overrun {
    fn overruns(&mut self, queue: CompletionQueue) -> bool {
        self.0.take_if(|overrun| *overrun == queue).is_some()
    }

    fn is_over(&self) -> bool {
        self.0.is_none()
    }
}

/// Steps in which something is kept, until a sender has no retry left or it is over.
#[derive(Clone, Copy)]
pub(crate) enum Kept {
    /// Nothing crosses the wire.
    Wire,
    /// What the peer answered.
    Answers,
    /// Messages find no receive.
    Receives,
}

pub(crate) struct Keeping {
    pub(crate) what: Kept,
    pub(crate) queue_pair: QueuePairId,
    pub(crate) steps: u32,
}

impl Keeping {
    fn keeps(&mut self, queue_pair: QueuePairId) -> bool {
        let keeps = queue_pair == self.queue_pair && self.steps > 0;
        self.steps -= u32::from(keeps);
        keeps
    }
}

impl Interference for Keeping {
    fn cuts_wire(&mut self, queue_pair: QueuePairId) -> bool {
        matches!(self.what, Kept::Wire) && self.keeps(queue_pair)
    }

    fn holds_answers(&mut self, queue_pair: QueuePairId) -> bool {
        matches!(self.what, Kept::Answers) && self.keeps(queue_pair)
    }

    fn hides_receives(&mut self, queue_pair: QueuePairId) -> bool {
        matches!(self.what, Kept::Receives) && self.keeps(queue_pair)
    }

    fn is_over(&self) -> bool {
        self.steps == 0
    }
}
