//! As many at a time as there are processors.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Does something for each of these, with its number.
pub(crate) fn for_each<T: Sync>(all: &[T], each: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(one) = all.get(at) else { break };
                    each(at, one);
                }
            });
        }
    });
}
