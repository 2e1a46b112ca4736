//! Lanes of both kinds: against a plain queue, closing, and every value dropped once.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::thread;

use frwr_mempool::Full;
use frwr_mempool::lane::{self, MAX_CAPACITY};
use proptest::prelude::*;

/// Counts how often it is dropped.
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn capacities_are_rounded_up_to_a_power_of_two() {
    for (wanted, got) in [(0, 1), (1, 1), (3, 4), (64, 64), (65, 128)] {
        assert_eq!(lane::bounded::<u8>(wanted).0.capacity(), got);
        let (mut records, _receiver) = lane::records::<u8>(wanted);
        assert_eq!((0..=got).take_while(|_| records.push_with(|_| ())).count(), got);
    }
    if !cfg!(miri) {
        // A million slots.
        assert_eq!(lane::bounded::<u8>(usize::MAX).1.capacity(), MAX_CAPACITY);
    }
}

#[test]
fn a_full_lane_hands_the_value_back() {
    let (mut sender, mut receiver) = lane::bounded(1);
    sender.push("first").unwrap();
    assert_eq!(sender.push("second"), Err(Full("second")));
    assert_eq!(receiver.pop(), Some("first"));
    assert_eq!(receiver.pop(), None);
    sender.push("third").unwrap();
    assert_eq!(receiver.pop(), Some("third"));
}

#[test]
fn a_batch_takes_no_value_without_room() {
    let (mut sender, mut receiver) = lane::bounded(4);
    let mut values = 0..7;
    assert_eq!(sender.push_batch(&mut values), 4);
    assert_eq!(sender.push_batch(&mut values), 0);
    assert_eq!(values, 4..7);
    let mut taken = Vec::new();
    assert_eq!(receiver.pop_batch(3, |value| taken.push(value)), 3);
    assert_eq!(sender.push_batch(&mut values), 3);
    assert_eq!(receiver.pop_batch(usize::MAX, |value| taken.push(value)), 4);
    assert_eq!(taken, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(receiver.pop_batch(usize::MAX, |_| panic!("empty")), 0);
}

#[test]
fn both_ends_see_the_other_go() {
    let (mut sender, mut receiver) = lane::bounded(2);
    assert!(!sender.is_closed() && !receiver.is_closed());
    sender.push(1).unwrap();
    drop(sender);
    assert!(receiver.is_closed());
    assert_eq!((receiver.pop(), receiver.pop()), (Some(1), None));
    let (mut sender, receiver) = lane::records::<u8>(2);
    drop(receiver);
    assert!(sender.push_with(|record| *record = 1));
}

#[test]
fn what_is_left_is_dropped_once() {
    let drops = Rc::new(Cell::new(0));
    let (mut sender, mut receiver) = lane::bounded(4);
    for _ in 0..3 {
        sender.push(Counted(drops.clone())).unwrap();
    }
    drop(receiver.pop());
    assert_eq!(drops.get(), 1);
    for _ in 0..2 {
        sender.push(Counted(drops.clone())).unwrap();
    }
    drop(sender);
    assert_eq!(drops.get(), 1);
    drop(receiver);
    assert_eq!(drops.get(), 5);
}

/// Of small values, which share a word, and of large ones.
#[test]
fn what_is_filled_is_seen_together_and_a_full_lane_hands_the_value_back() {
    fn filled<T: Copy + PartialEq + std::fmt::Debug>(values: [T; 5]) {
        let (mut sender, mut receiver) = lane::bounded(4);
        sender.push(values[0]).unwrap();
        assert_eq!(receiver.pop(), Some(values[0]));
        let mut filling = sender.filling();
        for value in &values[1..] {
            assert!(filling.push_with(|| *value));
            assert!(receiver.is_empty());
        }
        assert!(!filling.push_with(|| panic!("there is no room for it")));
        drop(filling);
        assert_eq!(receiver.len(), 4);
        let mut taken = Vec::new();
        assert_eq!(receiver.pop_batch(9, |value| taken.push(value)), 4);
        assert_eq!(taken, values[1..]);
        drop(sender.filling());
        assert!(receiver.is_empty());
    }
    filled([1_u64, 2, 3, 4, 5]);
    filled([1, 2, 3, 4, 5].map(|value| [value; 100]));
}

/// By values of which several share a word, and by such as have one each.
#[test]
fn what_goes_round_keeps_its_order() {
    fn goes_round<T: Copy + Eq + core::fmt::Debug>(value: impl Fn(u64) -> T) {
        for capacity in [1, 2, 8] {
            let (mut sender, mut receiver) = lane::bounded(capacity);
            let (mut sent, mut taken) = (0, 0);
            for round in 0..50 {
                let mut filling = sender.filling();
                while sent - taken < capacity.min(1 + round % 5) as u64 && filling.push_with(|| value(sent)) {
                    sent += 1;
                }
                drop(filling);
                let mut check = |got| {
                    assert_eq!(got, value(taken));
                    taken += 1;
                };
                receiver.pop_batch(1 + round % 3, &mut check);
                receiver.pop_batch(round % 7, check);
            }
            assert!(sent > 4 * capacity as u64);
        }
    }
    goes_round(|at| at);
    goes_round(|at| [at; 100]);
}

#[test]
fn a_panic_in_a_batch_neither_loses_nor_repeats_values() {
    let drops = Rc::new(Cell::new(0));
    let (mut sender, mut receiver) = lane::bounded(8);
    let mut made = 0;
    let mut values = std::iter::from_fn(|| {
        made += 1;
        assert!(made < 4, "the fourth value cannot be made");
        Some(Counted(drops.clone()))
    });
    assert!(catch_unwind(AssertUnwindSafe(|| sender.push_batch(&mut values))).is_err());
    assert_eq!(receiver.len(), 3);
    let mut taken = 0;
    let take = |value: Counted| {
        taken += 1;
        drop(value);
        assert!(taken < 2, "the second value cannot be taken");
    };
    assert!(catch_unwind(AssertUnwindSafe(|| receiver.pop_batch(3, take))).is_err());
    assert_eq!((drops.get(), receiver.len()), (2, 1));
    drop((sender, receiver));
    assert_eq!(drops.get(), 3);
}

#[test]
fn records_stay_in_place_and_keep_what_was_left_in_them() {
    let (mut sender, mut receiver) = lane::records::<Vec<u8>>(2);
    assert_eq!(receiver.peek_with(|_| ()), None);
    for round in 0..4_u8 {
        assert!(sender.push_with(|record| record.push(round)));
        // One record at a time: rounds alternate between the two slots.
        assert_eq!(receiver.peek_with(|record| record.len()), Some(1 + usize::from(round) / 2));
        assert_eq!(receiver.pop_with(|record| record.last().copied()), Some(Some(round)));
    }
    assert!(sender.push_with(|_| ()) && sender.push_with(|_| ()));
    assert!(!sender.push_with(|_| panic!("full")));
    assert!(!receiver.is_empty());
}

#[test]
fn a_panic_in_a_record_leaves_the_lane_as_it_was() {
    let (mut sender, mut receiver) = lane::records::<u8>(2);
    assert!(catch_unwind(AssertUnwindSafe(|| sender.push_with(|_| panic!("not filled")))).is_err());
    assert!(receiver.is_empty());
    assert!(sender.push_with(|record| *record = 9));
    assert!(catch_unwind(AssertUnwindSafe(|| receiver.pop_with(|_| panic!("not taken")))).is_err());
    assert_eq!(receiver.pop_with(|record| *record), Some(9));
}

#[test]
fn everything_arrives_in_order_across_threads() {
    const VALUES: u64 = if cfg!(miri) { 200 } else { 100_000 };
    let (mut sender, mut receiver) = lane::bounded::<Box<u64>>(16);
    let (mut record_sender, mut record_receiver) = lane::records::<[u64; 4]>(16);
    let producer = thread::spawn(move || {
        let mut values = (0..VALUES).map(Box::new).peekable();
        let mut filled = 0;
        while values.peek().is_some() || filled < VALUES {
            sender.push_batch(&mut values);
            if filled < VALUES && record_sender.push_with(|record| record.fill(filled)) {
                filled += 1;
            }
            thread::yield_now();
        }
    });
    let (mut expected, mut expected_record) = (0, 0);
    while expected < VALUES || expected_record < VALUES {
        receiver.pop_batch(8, |value| {
            assert_eq!(*value, expected);
            expected += 1;
        });
        let taken = record_receiver.pop_with(|record| assert_eq!(*record, [expected_record; 4]));
        expected_record += u64::from(taken.is_some());
        thread::yield_now();
    }
    producer.join().unwrap();
    assert!(receiver.is_closed() && receiver.pop().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lane_equals_a_queue(capacity in 1..70_usize, steps in prop::collection::vec((0..6_u8, 0..48_usize), 1..200)) {
        let (mut sender, mut receiver) = lane::bounded(capacity);
        let (mut record_sender, mut record_receiver) = lane::records::<u32>(capacity);
        let limit = sender.capacity();
        let mut model = VecDeque::new();
        let mut next = 0_u32;
        for (kind, count) in steps {
            match kind {
                0 => {
                    let pushed = sender.push(next).is_ok();
                    prop_assert_eq!(pushed, model.len() < limit);
                    prop_assert_eq!(record_sender.push_with(|record| *record = next), pushed);
                    if pushed {
                        model.push_back(next);
                        next += 1;
                    }
                }
                1 | 4 => {
                    // By an iterator and from a slice: both stop where the room does.
                    let mut values = next..next + count as u32;
                    let pushed = if kind == 1 {
                        sender.push_batch(&mut values)
                    } else {
                        sender.push_slice(&values.collect::<Vec<_>>())
                    };
                    prop_assert_eq!(pushed, count.min(limit - model.len()));
                    prop_assert!(receiver.has_news() || pushed == 0, "what was sent is news");
                    for value in next..next + pushed as u32 {
                        prop_assert!(record_sender.push_with(|record| *record = value));
                        model.push_back(value);
                    }
                    next += pushed as u32;
                }
                2 => {
                    let expected = model.pop_front();
                    prop_assert_eq!(receiver.pop(), expected);
                    prop_assert_eq!(record_receiver.pop_with(|record| *record), expected);
                }
                _ => {
                    let mut taken = Vec::new();
                    if kind == 3 {
                        receiver.pop_batch(count, |value| taken.push(value));
                    } else {
                        taken = vec![0; count];
                        let popped = receiver.pop_slice(&mut taken);
                        taken.truncate(popped);
                    }
                    let expected: Vec<u32> = model.drain(..count.min(model.len())).collect();
                    for value in &expected {
                        prop_assert_eq!(record_receiver.pop_with(|record| *record), Some(*value));
                    }
                    prop_assert_eq!(taken, expected);
                }
            }
            prop_assert_eq!((receiver.is_empty(), record_receiver.is_empty()), (model.is_empty(), model.is_empty()));
            prop_assert!(!receiver.has_news() || !model.is_empty(), "no news of an empty lane");
            prop_assert_eq!((sender.len(), receiver.len()), (model.len(), model.len()));
        }
    }
}
