//! Row A4: the round trip of a message between two cores, beside that of a cache line each way, which is the floor.
//!
//! Whoever waits tells the processor so between two looks (`spin_loop`, PAUSE on x86-64). Without it the waiting thread runs ahead
//! with loads of a line that the other core is about to write, which it has to take back then; and where both are
//! threads of one core, it takes the other's share of that as well.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use crossbeam_utils::CachePadded;
use frwr_mempool::lane;

use crate::{arguments::unknown, cores::on_each};

/// Messages that each lane holds, as in the peer.
const CAPACITY: usize = 256;
/// Blocks that the iterations are cut into: the fastest one counts, because what disturbs comes and goes.
const BLOCKS: u64 = 20;

/// One core's ends: sends a message, or waits for the other's.
trait Ends: Send {
    fn send(&mut self, message: u64);
    fn receive(&mut self) -> u64;
}

/// Two words on lines of their own: each core writes one and reads the other's.
struct Lines<'a> {
    written: &'a AtomicU64,
    read: &'a AtomicU64,
    seen: u64,
}

impl Ends for Lines<'_> {
    #[inline]
    fn send(&mut self, message: u64) {
        self.written.store(message, Ordering::Release);
    }

    #[inline]
    fn receive(&mut self) -> u64 {
        loop {
            let now = self.read.load(Ordering::Acquire);
            if now != self.seen {
                self.seen = now;
                return now;
            }
            spin_loop();
        }
    }
}

impl Ends for (lane::Sender<u64>, lane::Receiver<u64>) {
    #[inline]
    fn send(&mut self, message: u64) {
        while self.0.push(message).is_err() {}
    }

    #[inline]
    fn receive(&mut self) -> u64 {
        loop {
            if let Some(message) = self.1.pop() {
                return message;
            }
            spin_loop();
        }
    }
}

/// Nanoseconds of a round trip between cores 0 and 1, by "raw" lines or by our "lane": the fastest block's.
///
/// # Errors
/// A text: a name that is neither, too few iterations for the blocks, or a core that cannot be had.
pub fn run(by: &str, iterations: u64) -> Result<f64, String> {
    let block = iterations / BLOCKS;
    if block == 0 {
        return Err(format!("at least {BLOCKS} iterations are needed"));
    }
    match by {
        "raw" => {
            let lines = [const { CachePadded::new(AtomicU64::new(0)) }; 2];
            let ends = |written: usize| Lines { written: &lines[written], read: &lines[1 - written], seen: 0 };
            measured(block, ends(0), ends(1))
        }
        "lane" => {
            let ((there, from), (back, answers)) = (lane::bounded(CAPACITY), lane::bounded(CAPACITY));
            measured(block, (there, answers), (back, from))
        }
        _ => Err(unknown(by, "raw, lane")),
    }
}

fn measured(block: u64, first: impl Ends, second: impl Ends) -> Result<f64, String> {
    let (first, second) = (Mutex::new(first), Mutex::new(second));
    let least = on_each(2, |core, barrier| {
        barrier.wait();
        if core == 0 {
            first.lock().map(|mut ends| ping(block, &mut *ends)).ok()
        } else {
            second.lock().map(|mut ends| pong(block, &mut *ends)).ok()
        }
    })?;
    least.into_iter().flatten().next().ok_or_else(|| "nothing was measured".to_owned())
}

fn ping(block: u64, ends: &mut impl Ends) -> f64 {
    let (mut least, mut message) = (f64::MAX, 0);
    for _ in 0..BLOCKS {
        let began = Instant::now();
        for _ in 0..block {
            message += 1;
            ends.send(message);
            while ends.receive() != message {}
        }
        least = least.min(began.elapsed().as_secs_f64() * 1e9 / block as f64);
    }
    least
}

fn pong(block: u64, ends: &mut impl Ends) -> f64 {
    for _ in 0..BLOCKS * block {
        let message = ends.receive();
        ends.send(message);
    }
    f64::MAX
}
