//! Row A5: a message is sent and received on one core, by our lane and by queues that do the same.

use core::hint::black_box;
use std::sync::mpsc;

use crossbeam_queue::{ArrayQueue, SegQueue};
use frwr_mempool::lane;

use crate::arguments::unknown;

/// Messages per batch.
const BATCH: usize = 32;
/// Messages that each queue holds.
const CAPACITY: usize = 256;

/// A queue with both ends in one hand. Messages are pointer-sized, as in rte_ring.
trait Queue {
    /// Sends a message; whether it was taken.
    fn send(&mut self, message: u64) -> bool;
    /// Receives the oldest message.
    fn receive(&mut self) -> Option<u64>;
    /// Sends messages; how many were taken.
    fn send_batch(&mut self, messages: &[u64; BATCH]) -> usize {
        messages.iter().take_while(|message| self.send(**message)).count()
    }
    /// Receives messages; how many there were.
    fn receive_batch(&mut self, into: &mut [u64; BATCH]) -> usize {
        into.iter_mut().map_while(|slot| self.receive().map(|message| *slot = message)).count()
    }
}

struct Ours(lane::Sender<u64>, lane::Receiver<u64>);

impl Queue for Ours {
    #[inline]
    fn send(&mut self, message: u64) -> bool {
        self.0.push(message).is_ok()
    }

    #[inline]
    fn receive(&mut self) -> Option<u64> {
        self.1.pop()
    }

    #[inline]
    fn send_batch(&mut self, messages: &[u64; BATCH]) -> usize {
        self.0.push_slice(messages)
    }

    #[inline]
    fn receive_batch(&mut self, into: &mut [u64; BATCH]) -> usize {
        self.1.pop_slice(into)
    }
}

struct Rtrb(rtrb::Producer<u64>, rtrb::Consumer<u64>);

impl Queue for Rtrb {
    #[inline]
    fn send(&mut self, message: u64) -> bool {
        self.0.push(message).is_ok()
    }

    #[inline]
    fn receive(&mut self) -> Option<u64> {
        self.1.pop().ok()
    }

    #[inline]
    fn send_batch(&mut self, messages: &[u64; BATCH]) -> usize {
        let Ok(mut chunk) = self.0.write_chunk(BATCH) else { return 0 };
        let (first, second) = chunk.as_mut_slices();
        let (left, right) = messages.split_at(first.len());
        first.copy_from_slice(left);
        second.copy_from_slice(right);
        chunk.commit_all();
        BATCH
    }

    #[inline]
    fn receive_batch(&mut self, into: &mut [u64; BATCH]) -> usize {
        let Ok(chunk) = self.1.read_chunk(BATCH) else { return 0 };
        let (first, second) = chunk.as_slices();
        let (left, right) = into.split_at_mut(first.len());
        left.copy_from_slice(first);
        right.copy_from_slice(second);
        chunk.commit_all();
        BATCH
    }
}

impl Queue for ArrayQueue<u64> {
    #[inline]
    fn send(&mut self, message: u64) -> bool {
        self.push(message).is_ok()
    }

    #[inline]
    fn receive(&mut self) -> Option<u64> {
        self.pop()
    }
}

impl Queue for SegQueue<u64> {
    #[inline]
    fn send(&mut self, message: u64) -> bool {
        self.push(message);
        true
    }

    #[inline]
    fn receive(&mut self) -> Option<u64> {
        self.pop()
    }
}

struct Channel(mpsc::SyncSender<u64>, mpsc::Receiver<u64>);

impl Queue for Channel {
    #[inline]
    fn send(&mut self, message: u64) -> bool {
        self.0.try_send(message).is_ok()
    }

    #[inline]
    fn receive(&mut self) -> Option<u64> {
        self.1.try_recv().ok()
    }
}

/// Sends and receives by the queue of this name, alone ("one") or in batches ("batch"). Returns the messages of an iteration.
///
/// # Errors
/// A text that names them, for other names; and where messages are lost.
pub fn run(size: &str, queue: &str, iterations: u64) -> Result<usize, String> {
    match queue {
        "frwr" => {
            let (sender, receiver) = lane::bounded(CAPACITY);
            exchange(size, Ours(sender, receiver), iterations)
        }
        "rtrb" => {
            let (producer, consumer) = rtrb::RingBuffer::new(CAPACITY);
            exchange(size, Rtrb(producer, consumer), iterations)
        }
        "array-queue" => exchange(size, ArrayQueue::new(CAPACITY), iterations),
        "seg-queue" => exchange(size, SegQueue::new(), iterations),
        "channel" => {
            let (sender, receiver) = mpsc::sync_channel(CAPACITY);
            exchange(size, Channel(sender, receiver), iterations)
        }
        _ => Err(unknown(queue, "frwr, rtrb, array-queue, seg-queue, channel")),
    }
}

fn exchange(size: &str, queue: impl Queue, iterations: u64) -> Result<usize, String> {
    let (arrived, messages) = match size {
        "one" => (one(queue, iterations), 1),
        "batch" => (batch(queue, iterations), BATCH),
        _ => return Err(unknown(size, "one, batch")),
    };
    if arrived { Ok(messages) } else { Err("a message was lost".to_owned()) }
}

// Each loop is a function of its own, so that its queue stays in registers as it would in a program that does nothing else.
#[inline(never)]
fn one(mut queue: impl Queue, iterations: u64) -> bool {
    (0..iterations).all(|iteration| {
        let message = black_box(iteration);
        queue.send(message) && queue.receive() == Some(message)
    })
}

#[inline(never)]
fn batch(mut queue: impl Queue, iterations: u64) -> bool {
    let mut batches = ([7; BATCH], [0; BATCH]);
    (0..iterations).all(|_| {
        let (sent, into) = black_box(&mut batches);
        queue.send_batch(sent) == BATCH && queue.receive_batch(into) == BATCH
    })
}
