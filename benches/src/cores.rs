//! What programs on two cores need: threads that are where they are said to be, and begin together.

use std::sync::Barrier;
use std::thread;

/// Runs `work` on cores 0 to `cores` - 1, a pinned thread each, which all begin when all are there. Returns what they
/// returned, by core.
///
/// # Errors
/// A text, where a core cannot be had or a thread ends before its work.
pub fn on_each<R: Send>(cores: usize, work: impl Fn(usize, &Barrier) -> R + Sync) -> Result<Vec<R>, String> {
    let barrier = Barrier::new(cores);
    let pinned = |core| {
        let found = core_affinity::set_for_current(core_affinity::CoreId { id: core });
        // Also where it failed: the others wait at the barrier.
        let result = work(core, &barrier);
        if found {
            Ok(result)
        } else {
            Err(format!("core {core} cannot be had; the program needs cores 0 to {}", cores - 1))
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || pinned(core))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?).collect()
    })
}
