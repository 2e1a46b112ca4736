//! Model checking of everything in mempool that two cores touch. Its own build:
//!
//! `LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test --release -p frwr-mempool --test loom`

#![cfg(loom)]

use frwr_mempool::freelist::{FreeError, Freelist, List, Order};
use frwr_mempool::lane;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// What holders of indices do with what the indices stand for: loom reports two at the same time.
struct Guarded([UnsafeCell<u32>; 3]);

// SAFETY: whoever holds an index may touch its cell; that nobody else does is what the tests check.
unsafe impl Sync for Guarded {}
// SAFETY: plain numbers.
unsafe impl Send for Guarded {}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Self([UnsafeCell::new(0), UnsafeCell::new(0), UnsafeCell::new(0)]))
    }

    fn touch(&self, index: u32) -> u32 {
        self.0[index as usize].with_mut(|cell| {
            // SAFETY: the caller holds the index.
            unsafe {
                *cell += 1;
                *cell
            }
        })
    }
}

fn drain(freelist: &mut Freelist, list: &mut List, guarded: &Guarded) -> Vec<u32> {
    freelist.drain_returns(list);
    let indices: Vec<u32> = std::iter::from_fn(|| freelist.pop(list)).collect();
    for index in &indices {
        guarded.touch(*index);
    }
    indices
}

/// Sends more values than there are slots, so that slots and words are used again.
fn values_arrive_in_order<T: Send + PartialEq + core::fmt::Debug + 'static>(values: u32, make: fn(u32) -> T) {
    loom::model(move || {
        let (mut sender, mut receiver) = lane::bounded::<T>(2);
        let producer = thread::spawn(move || {
            for value in 0..values {
                let mut value = make(value);
                while let Err(full) = sender.push(value) {
                    value = full.0;
                    thread::yield_now();
                }
            }
        });
        for expected in 0..values {
            let value = loop {
                match receiver.pop() {
                    Some(value) => break value,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(value, make(expected));
        }
        producer.join().unwrap();
        assert!(receiver.is_closed() && receiver.pop().is_none());
    });
}

#[test]
fn small_values_which_share_words_arrive_in_order_through_a_lane_that_wraps() {
    values_arrive_in_order(5, Box::new);
}

#[test]
fn large_values_which_share_none_arrive_in_order_through_a_lane_that_wraps() {
    values_arrive_in_order(4, |value| [value; 16]);
}

#[test]
fn batches_arrive_in_order_and_what_is_left_is_dropped_once() {
    loom::model(|| {
        let counted = std::sync::Arc::new(());
        let (mut sender, mut receiver) = lane::bounded(2);
        let values = vec![counted.clone(), counted.clone(), counted.clone()];
        let producer = thread::spawn(move || {
            let mut values = values.into_iter();
            sender.push_batch(&mut values) + sender.push_batch(&mut values)
        });
        let mut taken = Vec::new();
        receiver.pop_batch(1, |value| taken.push(value));
        receiver.pop_batch(2, |value| taken.push(value));
        if taken.len() % 2 == 0 {
            drop(receiver);
            producer.join().unwrap();
        } else {
            let pushed = producer.join().unwrap();
            receiver.pop_batch(usize::MAX, |value| taken.push(value));
            assert_eq!(taken.len(), pushed);
            drop(receiver);
        }
        assert_eq!(std::sync::Arc::strong_count(&counted), 1 + taken.len());
    });
}

#[test]
fn whoever_sees_the_sender_gone_sees_all_it_sent() {
    loom::model(|| {
        let (mut sender, mut receiver) = lane::bounded(2);
        let (mut record_sender, mut record_receiver) = lane::records::<u32>(1);
        thread::spawn(move || {
            sender.push(7).unwrap();
            assert!(record_sender.push_with(|record| *record = 8));
        });
        if receiver.is_closed() {
            assert_eq!((receiver.pop(), receiver.pop()), (Some(7), None));
        }
        if record_receiver.is_closed() {
            assert_eq!(record_receiver.pop_with(|record| *record), Some(8));
        }
    });
}

#[test]
fn whoever_sees_the_receiver_gone_comes_after_what_it_did() {
    loom::model(|| {
        let guarded = Guarded::new();
        let (sender, receiver) = lane::bounded::<u32>(1);
        let consumer = {
            let guarded = guarded.clone();
            thread::spawn(move || {
                guarded.touch(0);
                drop(receiver);
            })
        };
        if sender.is_closed() {
            assert_eq!(guarded.touch(0), 2);
        }
        consumer.join().unwrap();
    });
}

#[test]
fn records_are_filled_and_read_by_one_end_at_a_time() {
    loom::model(|| {
        let (mut sender, mut receiver) = lane::records::<[u32; 2]>(2);
        let producer = thread::spawn(move || {
            for value in 1..6 {
                while !sender.push_with(|record| *record = [value; 2]) {
                    thread::yield_now();
                }
            }
        });
        for expected in 1..6 {
            while receiver.peek_with(|record| *record).is_none() {
                thread::yield_now();
            }
            assert_eq!(receiver.pop_with(|record| core::mem::take(record)), Some([expected; 2]));
        }
        producer.join().unwrap();
    });
}

#[test]
fn two_returners_and_the_owner_hand_indices_over() {
    loom::model(|| {
        let guarded = Guarded::new();
        let mut freelist = Freelist::new(3);
        let mut list = freelist.list(Order::FirstInFirstOut);
        let threads = [&[0_u32, 1][..], &[2]].map(|indices| {
            let (guarded, returner) = (guarded.clone(), freelist.returner());
            thread::spawn(move || {
                for index in indices {
                    guarded.touch(*index);
                }
                returner.give_back(indices).unwrap();
            })
        });
        let mut indices = drain(&mut freelist, &mut list, &guarded);
        indices.extend(drain(&mut freelist, &mut list, &guarded));
        for thread in threads {
            thread.join().unwrap();
        }
        indices.extend(drain(&mut freelist, &mut list, &guarded));
        indices.sort_unstable();
        assert_eq!(indices, [0, 1, 2]);
        assert_eq!(freelist.refused_returns().count, 0);
    });
}

#[test]
fn a_batch_and_a_single_index_are_handed_over() {
    loom::model(|| {
        let guarded = Guarded::new();
        let mut freelist = Freelist::new(3);
        let mut list = freelist.list(Order::LastInFirstOut);
        (0..2).for_each(|index| freelist.push(&mut list, index).unwrap());
        let mut batch = freelist.batch();
        assert_eq!(freelist.pop_batch(&mut list, &mut batch, 2), 2);
        let threads = [
            {
                let (guarded, returner) = (guarded.clone(), freelist.returner());
                thread::spawn(move || {
                    for index in batch.indices() {
                        guarded.touch(*index);
                    }
                    returner.give_back_batch(&mut batch).unwrap();
                })
            },
            {
                let (guarded, returner) = (guarded.clone(), freelist.returner());
                thread::spawn(move || {
                    guarded.touch(2);
                    returner.give_back(&[2]).unwrap();
                })
            },
        ];
        let mut indices = drain(&mut freelist, &mut list, &guarded);
        for thread in threads {
            thread.join().unwrap();
        }
        indices.extend(drain(&mut freelist, &mut list, &guarded));
        indices.sort_unstable();
        assert_eq!(indices, [0, 1, 2]);
        assert_eq!(freelist.refused_returns().count, 0);
    });
}

#[test]
fn slices_arrive_in_order_and_are_news_until_they_are_seen() {
    loom::model(|| {
        let (mut sender, mut receiver) = lane::bounded::<u32>(2);
        let producer = thread::spawn(move || {
            let mut sent = 0;
            while sent < 3 {
                let values: Vec<u32> = (sent..3).collect();
                sent += sender.push_slice(&values) as u32;
                thread::yield_now();
            }
        });
        let mut received: Vec<u32> = Vec::new();
        while received.len() < 3 {
            if !receiver.has_news() && receiver.is_empty() {
                thread::yield_now();
                continue;
            }
            let mut into = [0; 2];
            let count = receiver.pop_slice(&mut into);
            received.extend(&into[..count]);
            if count == 0 {
                thread::yield_now();
            }
        }
        producer.join().unwrap();
        assert_eq!(received, [0_u32, 1, 2]);
    });
}

/// Whole groups of slots, which are copied as one, side by side and over the end of the lane.
#[test]
fn groups_arrive_whole_and_their_slots_are_used_again() {
    loom::model(|| {
        let (mut sender, mut receiver) = lane::bounded::<u32>(8);
        // The lane's end is between the two groups that are sent together.
        assert_eq!((sender.push_slice(&[0; 4]), receiver.pop_slice(&mut [0; 4])), (4, 4));
        let producer = thread::spawn(move || {
            let mut sent = 0;
            while sent < 12 {
                let values: Vec<u32> = (sent as u32..12).take(8).collect();
                sent += sender.push_slice(&values);
                thread::yield_now();
            }
        });
        let mut received: Vec<u32> = Vec::new();
        while received.len() < 12 {
            let mut into = [0; 8];
            let count = receiver.pop_slice(&mut into);
            received.extend(&into[..count]);
            thread::yield_now();
        }
        producer.join().unwrap();
        assert!(received.into_iter().eq(0..12));
    });
}

/// What either end counts, while the other goes on.
#[test]
fn lengths_are_never_more_than_there_was_nor_less_than_there_is() {
    loom::model(|| {
        let (mut sender, mut receiver) = lane::bounded::<u32>(2);
        let producer = thread::spawn(move || {
            assert_eq!(sender.push_batch(&mut (0..2)), 2);
            let before = sender.len();
            let pushed = usize::from(sender.push(2).is_ok());
            let after = sender.len();
            assert!(before <= 2 && after <= before + pushed, "{before} {pushed} {after}");
        });
        let mut received = 0;
        for _ in 0..3 {
            let len = receiver.len();
            assert!(len <= 3 - received);
            assert!(len == 0 || !receiver.is_empty());
            let popped = receiver.pop_batch(len, |value| {
                assert_eq!(value as usize, received);
                received += 1;
            });
            assert_eq!(popped, len, "what was counted is there");
        }
        producer.join().unwrap();
    });
}

/// What is left in a lane belongs to whoever goes last.
#[test]
fn both_ends_go_at_once_and_all_is_dropped_once() {
    loom::model(|| {
        let counted = std::sync::Arc::new(());
        let (mut sender, mut receiver) = lane::bounded(2);
        let (mut record_sender, mut record_receiver) = lane::records::<Option<std::sync::Arc<()>>>(1);
        let value = counted.clone();
        let producer = thread::spawn(move || {
            let _maybe_full = sender.push(value.clone());
            let _maybe_full = record_sender.push_with(|record| *record = Some(value));
        });
        drop(receiver.pop());
        record_receiver.pop_with(|record| drop(record.take()));
        drop((receiver, record_receiver));
        producer.join().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    });
}

/// What is given back together takes several entries, of which the next round begins in another.
#[test]
fn entries_of_several_are_used_again_over_the_end_of_the_ring() {
    loom::model(|| {
        let guarded = Guarded::new();
        let mut freelist = Freelist::new(3);
        let mut list = freelist.list(Order::FirstInFirstOut);
        let (mut sender, mut receiver) = lane::bounded::<[u32; 3]>(1);
        let borrower = {
            let (guarded, returner) = (guarded.clone(), freelist.returner());
            thread::spawn(move || {
                for _ in 0..3 {
                    let indices = loop {
                        match receiver.pop() {
                            Some(indices) => break indices,
                            None => thread::yield_now(),
                        }
                    };
                    for index in indices {
                        guarded.touch(index);
                    }
                    returner.give_back(&indices).unwrap();
                }
            })
        };
        let mut indices = [0, 1, 2];
        for round in 0..3 {
            sender.push(indices).unwrap();
            while freelist.drain_returns(&mut list) == 0 {
                thread::yield_now();
            }
            assert_eq!(freelist.pop_bulk(&mut list, &mut indices), 3);
            assert_eq!(indices.map(|index| guarded.touch(index)), [2 * round + 2; 3]);
        }
        borrower.join().unwrap();
        assert_eq!(freelist.refused_returns().count, 0);
    });
}

#[test]
fn entries_are_used_again_after_a_full_round() {
    loom::model(|| {
        let guarded = Guarded::new();
        let mut freelist = Freelist::new(1);
        let mut list = freelist.list(Order::LastInFirstOut);
        let (mut sender, mut receiver) = lane::bounded(1);
        let borrower = {
            let (guarded, returner) = (guarded.clone(), freelist.returner());
            thread::spawn(move || {
                for _ in 0..3 {
                    let index = loop {
                        match receiver.pop() {
                            Some(index) => break index,
                            None => thread::yield_now(),
                        }
                    };
                    guarded.touch(index);
                    returner.give_back(&[index]).unwrap();
                }
            })
        };
        let mut index = 0;
        for _ in 0..3 {
            guarded.touch(index);
            sender.push(index).unwrap();
            while freelist.drain_returns(&mut list) == 0 {
                thread::yield_now();
            }
            index = freelist.pop(&mut list).unwrap();
        }
        assert_eq!(guarded.touch(index), 7);
        borrower.join().unwrap();
    });
}

/// Two cores return the same index at the same time, a defect of theirs: it becomes free once, and the indices that come
/// with it are neither lost nor repeated.
#[test]
fn a_racing_double_return_frees_once_and_spoils_nobody_else() {
    loom::model(|| {
        let mut freelist = Freelist::new(3);
        let mut list = freelist.list(Order::LastInFirstOut);
        let threads = [[0_u32, 1], [1, 2]].map(|indices| {
            let returner = freelist.returner();
            thread::spawn(move || (indices, returner.give_back(&indices)))
        });
        freelist.drain_returns(&mut list);
        let mut expected = Vec::new();
        let mut accepted = 0;
        for thread in threads {
            let (indices, result) = thread.join().unwrap();
            match result {
                Ok(()) => {
                    accepted += 2;
                    expected.extend(indices);
                }
                Err(error) => assert_eq!(error, FreeError::DoubleFree { index: 1 }),
            }
        }
        freelist.drain_returns(&mut list);
        let mut indices: Vec<u32> = std::iter::from_fn(|| freelist.pop(&mut list)).collect();
        indices.sort_unstable();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(indices, expected);
        assert_eq!(freelist.refused_returns().count, accepted - indices.len() as u64);
    });
}
