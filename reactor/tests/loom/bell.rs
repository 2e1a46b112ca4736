//! A device whose completions wake: armed, looked at once more, slept on, while completions and a message come in between.

use std::sync::Arc;

use frwr_mempool::Bell;
use frwr_reactor::{Now, Poller, Schedule, Sleep};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::{FIRST, Parts, Waits, parts};

/// A completion queue, of which only the number of its completions is there.
struct Device {
    completions: AtomicU32,
    bell: Bell,
}

/// Ends the reactors when it has seen as many completions as there are.
struct Polls {
    device: Arc<Device>,
    left: u32,
}

impl Poller<Waits> for Polls {
    fn poll(&mut self, context: &mut Waits, _: &Now) -> u32 {
        // A look costs a device nothing.
        if self.device.completions.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let found = self.device.completions.swap(0, Ordering::Acquire);
        self.left -= found;
        if self.left == 0 {
            context.messages -= 1;
            context.end();
        }
        found
    }

    fn sleep_until(&self, _: &Waits) -> Sleep {
        Sleep::Forever
    }

    fn arm(&mut self, _: &mut Waits) -> bool {
        self.device.bell.arm();
        true
    }
}

fn wakes(completions: u32, message: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let Parts { seat, mut foreign, .. } = parts();
        let device = Arc::new(Device { completions: AtomicU32::new(0), bell: Bell::default() });
        device.bell.wakes(&seat.waker());
        let polled = Polls { device: Arc::clone(&device), left: completions };
        let reactor = super::run(seat, 1 + u32::from(message), |reactor| {
            reactor.add("device", Schedule::Busy, polled).unwrap();
        });
        let completes = thread::spawn(move || {
            for _ in 0..completions {
                device.completions.fetch_add(1, Ordering::Release);
                device.bell.ring();
            }
        });
        if message {
            // Which comes first is open.
            assert_eq!(foreign.send(FIRST, 0), Ok(()));
        }
        completes.join().unwrap();
        assert_eq!(reactor.join().unwrap().statistics.work, u64::from(completions));
    });
}

#[test]
fn a_completion_wakes_whoever_falls_asleep() {
    wakes(2, false);
}

#[test]
fn neither_a_completion_nor_a_message_is_slept_over() {
    wakes(1, true);
}
