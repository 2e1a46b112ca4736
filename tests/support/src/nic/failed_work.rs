//! A work request fails and is not executed, wherever it stands in its chain (faults 1, 2, 5 to 8).

use super::{Harm, NicFault};
use frwr_engine::provider::{Failure, FailureStatus, QueuePairId, WorkRequest, soft::Interference};

/// Work requests of a queue pair that pass before one fails: longer than a chain of many keys.
const PASSING: u64 = 12;
const STATUSES: [FailureStatus; 4] =
    [FailureStatus::Bind, FailureStatus::LocalOperation, FailureStatus::RemoteAccess, FailureStatus::RetryExceeded];

pub(super) const FAULT: NicFault = NicFault {
    name: "failed work",
    ends_connections: true,
    port: Harm::None,
    strike: |victim, random| {
        if let Some(queue_pair) = victim.some_queue_pair(random) {
            let failure = random.of(&STATUSES).into();
            victim.interfere(FailedWork { queue_pair, passing: Some(random.below(PASSING)), failure });
        }
    },
};

struct FailedWork {
    queue_pair: QueuePairId,
    /// `None` once it struck.
    passing: Option<u64>,
    failure: Failure,
}

impl Interference for FailedWork {
    fn fails(&mut self, queue_pair: QueuePairId, _: &WorkRequest) -> Option<Failure> {
        let passing = self.passing.as_mut().filter(|_| queue_pair == self.queue_pair)?;
        if *passing > 0 {
            *passing -= 1;
            return None;
        }
        self.passing = None;
        Some(self.failure)
    }

    fn is_over(&self) -> bool {
        self.passing.is_none()
    }
}
