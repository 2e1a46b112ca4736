//! Ends of operations on their way from threads of librbd to the core that they belong to.

use core::sync::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use frwr_mempool::Bell;

/// Of one core's way: a result and a bit for each of its slots. Any thread posts, its owner takes; nobody waits for anybody, also where one
/// is stopped in the middle of it.
#[derive(Debug)]
pub(super) struct Mailbox {
    results: Box<[AtomicI64]>,
    /// A bit for each slot whose result is there.
    ready: Box<[AtomicU64]>,
    /// Rung behind each of them.
    bell: Bell,
}

impl Mailbox {
    /// For so many slots.
    pub(super) fn new(slots: usize) -> Self {
        let results = (0..slots).map(|_| AtomicI64::new(0)).collect();
        let ready = (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { results, ready, bell: Bell::default() }
    }

    /// How many it has.
    pub(super) const fn slots(&self) -> usize {
        self.results.len()
    }

    /// The operation in a slot has ended; nobody posts for it again before it was taken.
    pub(super) fn post(&self, slot: usize, result: i64) {
        let (Some(place), Some(word)) = (self.results.get(slot), self.ready.get(slot / 64)) else { return };
        place.store(result, Relaxed);
        word.fetch_or(1 << (slot % 64), Release);
        self.bell.ring();
    }

    /// All that is there.
    pub(super) fn take(&self, mut each: impl FnMut(u32, i64)) {
        for (first, word) in (0u32..).step_by(64).zip(&self.ready) {
            if word.load(Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Acquire);
            while bits != 0 {
                let slot = first + bits.trailing_zeros();
                bits &= bits - 1;
                each(slot, self.results[slot as usize].load(Relaxed));
            }
        }
    }

    /// Its owner's.
    pub(super) const fn bell(&self) -> &Bell {
        &self.bell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_any_thread_posts_its_owner_takes_once() {
        let mailbox = Mailbox::new(200);
        let mut seen = vec![0; 200];
        std::thread::scope(|scope| {
            for from in 0..4 {
                let mailbox = &mailbox;
                scope.spawn(move || (from..200).step_by(4).for_each(|slot| mailbox.post(slot, slot as i64 * 10)));
            }
            let mut taken = 0;
            while taken < 200 {
                mailbox.take(|slot, result| {
                    assert_eq!(result, i64::from(slot) * 10);
                    (seen[slot as usize], taken) = (seen[slot as usize] + 1, taken + 1);
                });
                std::thread::yield_now();
            }
        });
        assert!(seen.iter().all(|times| *times == 1));
        mailbox.post(200, 1);
        mailbox.take(|slot, _| panic!("{slot}"));
    }
}
