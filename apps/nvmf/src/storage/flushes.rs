//! Flushes of one medium that run at the same time, on whatever cores.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Flushes that run at the same time: the kernel tells of what was lost to one of them, and to the others that all is well. So none is
/// believed before all that began in front of its answer have theirs. As in RCU they belong to the epoch that they began in, and it goes on
/// once those of the epoch before are answered.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    epoch: AtomicU64,
    /// Of epochs that are even, and of those that are odd: there are never more than two.
    unanswered: [AtomicUsize; 2],
}

impl Flushes {
    fn of(&self, epoch: u64) -> &AtomicUsize {
        if epoch.is_multiple_of(2) { &self.unanswered[0] } else { &self.unanswered[1] }
    }

    /// One is about to be given to the medium.
    pub(super) fn begin(&self) -> Flushing {
        loop {
            let epoch = self.epoch.load(SeqCst);
            self.of(epoch).fetch_add(1, SeqCst);
            // Nobody has counted it who has gone on meanwhile.
            if self.epoch.load(SeqCst) == epoch {
                return Flushing(epoch);
            }
            self.of(epoch).fetch_sub(1, SeqCst);
        }
    }

    /// The medium has answered it, or nobody waits for that any more; what it came to is known.
    pub(super) fn end(&self, flushing: Flushing) -> Answered {
        self.of(flushing.0).fetch_sub(1, SeqCst);
        Answered(self.epoch.load(SeqCst))
    }

    /// Whether all that began in front of that answer are answered, too.
    pub(super) fn are_answered(&self, Answered(until): Answered) -> bool {
        // One step ends the epoch before, a second one this.
        for _ in 0..2 {
            let epoch = self.epoch.load(SeqCst);
            if epoch < until.saturating_add(2) && self.of(epoch + 1).load(SeqCst) == 0 {
                let _ = self.epoch.compare_exchange(epoch, epoch + 1, SeqCst, SeqCst);
            }
        }
        self.epoch.load(SeqCst) >= until.saturating_add(2)
    }
}

/// A flush that the medium has done: it is to be believed once all that ran beside it are answered ([`Flushes::are_answered`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered(u64);

/// A flush that the medium has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flushing(u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_of_many_cores_all_come_to_be_believed() {
        let flushes = Flushes::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let flushing = flushes.begin();
                        std::thread::yield_now();
                        let answered = flushes.end(flushing);
                        while !flushes.are_answered(answered) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(flushes.unanswered.map(AtomicUsize::into_inner), [0, 0]);
    }
}
