//! A bell between who sleeps and who has something for him: it is rung only when it is armed.

use core::task::Waker;
use std::sync::OnceLock;

use crate::primitive::{AtomicBool, Ordering, fence};

/// Wakes somebody who looks at what others write (a lane, a queue), and sleeps where there is nothing.
///
/// Who sleeps arms it, looks once more at everything that others may have written, and sleeps then. Who writes rings it behind that:
/// either the second look finds what was written, or the ring finds the bell armed. It is one owner's; any thread rings.
#[derive(Debug, Default)]
pub struct Bell {
    armed: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Bell {
    /// Says how its owner is woken, the first time that it is called. Before, it wakes nobody.
    pub fn wakes(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Somebody may sleep on it some day: who is never woken needs no ring.
    #[must_use]
    pub fn has_waker(&self) -> bool {
        self.waker.get().is_some()
    }

    /// Its owner sleeps next, and looks at everything once more before.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Release);
        // Pairs with the one in `ring`.
        fence(Ordering::SeqCst);
    }

    /// Something was written for its owner: wakes him, if he armed it, once.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed)
            && self.armed.swap(false, Ordering::AcqRel)
            && let Some(waker) = self.waker.get()
        {
            waker.wake_by_ref();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Bell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Counts(AtomicU32);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_wakes_once_for_each_time_that_it_is_armed() {
        let (bell, counts) = (Bell::default(), Arc::<Counts>::default());
        bell.arm();
        bell.ring();
        assert!(!bell.has_waker());
        bell.wakes(&Waker::from(Arc::clone(&counts)));
        bell.wakes(Waker::noop());
        assert!(bell.has_waker());
        bell.ring();
        assert_eq!(counts.0.load(Ordering::Relaxed), 0, "nobody armed it since");
        for woken in 1..=2 {
            bell.arm();
            for _ in 0..3 {
                bell.ring();
            }
            assert_eq!(counts.0.load(Ordering::Relaxed), woken);
        }
    }
}
