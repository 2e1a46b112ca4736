//! Words that one thread stores together, and that others load without disturbing it.

use core::array;

use crossbeam_utils::CachePadded;

use crate::primitive::{AtomicU64, AtomicUsize, Ordering, fence, spin_loop};

/// A reader that meets a writer this often takes what it has: a writer may be preempted in the middle.
pub(crate) const READ_TRIES: usize = 1000;

pub(crate) type Words<const N: usize> = [AtomicU64; N];

/// Tells whether words that are loaded one by one were stored together: odd while they are being stored.
#[derive(Default)]
pub(crate) struct Sequence(CachePadded<AtomicUsize>);

impl Sequence {
    /// By one thread at a time; `store` stores relaxed.
    pub(crate) fn write(&self, store: impl FnOnce()) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(1), Ordering::Relaxed);
        // Whoever loads one of the words that follow sees the odd number, too.
        fence(Ordering::Release);
        store();
        self.0.store(before.wrapping_add(2), Ordering::Release);
    }

    /// What `load` loads, relaxed, and nobody stored meanwhile.
    pub(crate) fn read<T>(&self, mut load: impl FnMut() -> T) -> T {
        let mut tries = 1;
        loop {
            let before = self.0.load(Ordering::Acquire);
            let loaded = load();
            // Pairs with the one in `write`.
            fence(Ordering::Acquire);
            let alone = before.is_multiple_of(2) && before == self.0.load(Ordering::Relaxed);
            if alone || tries == READ_TRIES {
                return loaded;
            }
            tries += 1;
            spin_loop();
        }
    }
}

pub(crate) fn store<const N: usize>(words: &Words<N>, values: [u64; N]) {
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}

pub(crate) fn load<const N: usize>(words: &Words<N>) -> [u64; N] {
    array::from_fn(|index| words.get(index).map_or(0, |word| word.load(Ordering::Relaxed)))
}

#[cfg(all(test, loom))]
mod tests {
    use std::sync::Arc;

    use super::{Sequence, Words, load, store};

    /// Run by `tests/run loom`.
    #[test]
    fn loom_words_that_are_read_were_written_together() {
        loom::model(|| {
            let shared: Arc<(Sequence, Words<2>)> = Arc::default();
            let writer = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    for number in [1, 2] {
                        shared.0.write(|| store(&shared.1, [number; 2]));
                    }
                })
            };
            for _ in 0..2 {
                let [first, second] = shared.0.read(|| load(&shared.1));
                assert_eq!(first, second);
            }
            writer.join().unwrap();
        });
    }
}
