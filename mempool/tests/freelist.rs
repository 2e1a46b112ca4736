//! Freelists: against sets and queues, refusal of double and foreign frees, and returns from other threads.

use std::collections::{HashSet, VecDeque};
use std::thread;

use frwr_mempool::freelist::{FreeError, Freelist, List, Order, RefusedReturns};
use frwr_mempool::lane;
use proptest::prelude::*;

const BOTH: [Order; 2] = [Order::LastInFirstOut, Order::FirstInFirstOut];

fn filled(capacity: u32, order: Order) -> (Freelist, List) {
    let mut freelist = Freelist::new(capacity);
    let mut list = freelist.list(order);
    (0..capacity).for_each(|index| freelist.push(&mut list, index).unwrap());
    (freelist, list)
}

fn popped(freelist: &mut Freelist, list: &mut List) -> Vec<u32> {
    std::iter::from_fn(|| freelist.pop(list)).collect()
}

#[test]
fn lists_keep_their_order() {
    let (mut freelist, mut list) = filled(4, Order::LastInFirstOut);
    assert_eq!(popped(&mut freelist, &mut list), [3, 2, 1, 0]);
    let (mut freelist, mut list) = filled(4, Order::FirstInFirstOut);
    assert_eq!(popped(&mut freelist, &mut list), [0, 1, 2, 3]);
}

#[test]
fn double_and_foreign_frees_are_refused_whatever_the_list() {
    for order in BOTH {
        let (mut freelist, mut list) = filled(3, order);
        let mut other = freelist.list(order);
        for index in 0..3 {
            assert_eq!(freelist.push(&mut list, index), Err(FreeError::DoubleFree { index }));
            assert_eq!(freelist.push(&mut other, index), Err(FreeError::DoubleFree { index }));
        }
        for index in [3, u32::MAX - 1, u32::MAX] {
            assert_eq!(freelist.push(&mut list, index), Err(FreeError::Foreign { index }));
            assert!(!freelist.is_handed_out(index));
        }
        assert_eq!((freelist.count(&list), freelist.count(&other)), (3, 0));
    }
}

#[test]
fn a_list_of_another_freelist_is_refused() {
    let (mut freelist, mut list) = filled(3, Order::LastInFirstOut);
    let (mut other, _) = filled(3, Order::LastInFirstOut);
    assert_eq!(other.pop(&mut list), None);
    assert_eq!(other.pop_bulk(&mut list, &mut [0]), 0);
    assert_eq!(other.push(&mut list, 0), Err(FreeError::ForeignList));
    assert_eq!(other.push_bulk(&mut list, &[0]), Err(FreeError::ForeignList));
    let mut own = other.list(Order::LastInFirstOut);
    assert_eq!(other.append(&mut own, &mut list), Err(FreeError::ForeignList));
    assert_eq!(other.drain_returns(&mut list), 0);
    assert_eq!(popped(&mut freelist, &mut list), [2, 1, 0]);
}

#[test]
fn a_list_is_given_up_by_appending_it_to_another() {
    for order in BOTH {
        let mut freelist = Freelist::new(6);
        let (mut stays, mut leaves) = (freelist.list(Order::FirstInFirstOut), freelist.list(order));
        freelist.push_bulk(&mut stays, &[0, 1]).unwrap();
        freelist.push_bulk(&mut leaves, &[2, 3]).unwrap();
        freelist.append(&mut stays, &mut leaves).unwrap();
        assert_eq!((freelist.count(&stays), freelist.count(&leaves)), (4, 0));
        freelist.push(&mut stays, 4).unwrap();
        freelist.push(&mut leaves, 5).unwrap();
        let expected = if order == Order::FirstInFirstOut { [0, 1, 2, 3, 4] } else { [0, 1, 3, 2, 4] };
        assert_eq!(popped(&mut freelist, &mut stays), expected);
        assert_eq!(popped(&mut freelist, &mut leaves), [5]);
    }
}

#[test]
fn a_bulk_stops_at_the_index_that_is_refused() {
    for order in BOTH {
        let mut freelist = Freelist::new(4);
        let mut list = freelist.list(order);
        let doubled = freelist.push_bulk(&mut list, &[1, 2, 1, 3]);
        assert_eq!((doubled, freelist.count(&list)), (Err(FreeError::DoubleFree { index: 1 }), 2));
        let foreign = freelist.push_bulk(&mut list, &[0, 9, 3]);
        assert_eq!((foreign, freelist.count(&list)), (Err(FreeError::Foreign { index: 9 }), 3));
        let first = freelist.push_bulk(&mut freelist.list(order), &[2]);
        assert_eq!(first, Err(FreeError::DoubleFree { index: 2 }));
        assert_eq!(popped(&mut freelist, &mut list).len(), 3);
        assert!((0..4).all(|index| freelist.is_handed_out(index)));
    }
}

/// The largest numbers are what links mean by handed out and by the end of a list.
#[test]
fn a_bulk_with_a_number_that_means_something_else_stops_there() {
    for order in BOTH {
        let mut freelist = Freelist::new(4);
        let mut list = freelist.list(order);
        for (index, foreign) in [(1, u32::MAX), (2, u32::MAX - 1), (3, u32::MAX)] {
            let refused = freelist.push_bulk(&mut list, &[index, foreign, 0]);
            assert_eq!(refused, Err(FreeError::Foreign { index: foreign }));
            assert!(!freelist.is_handed_out(index) && freelist.is_handed_out(0));
        }
        let expected = if order == Order::FirstInFirstOut { [1, 2, 3] } else { [3, 2, 1] };
        assert_eq!(popped(&mut freelist, &mut list), expected);
    }
}

#[test]
fn a_refused_bulk_leaves_an_empty_list_usable() {
    let mut freelist = Freelist::new(4);
    let mut list = freelist.list(Order::LastInFirstOut);
    let mut other = freelist.list(Order::LastInFirstOut);
    assert!(freelist.push_bulk(&mut list, &[7]).is_err());
    freelist.push(&mut other, 3).unwrap();
    freelist.append(&mut list, &mut other).unwrap();
    assert_eq!(popped(&mut freelist, &mut list), [3]);
}

#[test]
fn returns_come_back_in_order_and_only_once() {
    let mut freelist = Freelist::new(5);
    let mut list = freelist.list(Order::FirstInFirstOut);
    let returner = freelist.returner();
    returner.give_back(&[]).unwrap();
    returner.give_back(&[3, 1]).unwrap();
    returner.give_back(&[4]).unwrap();
    assert_eq!(returner.give_back(&[0, 1]), Err(FreeError::DoubleFree { index: 1 }));
    assert_eq!(returner.give_back(&[2, 2]), Err(FreeError::DoubleFree { index: 2 }));
    assert_eq!(returner.give_back(&[0, 5]), Err(FreeError::Foreign { index: 5 }));
    assert_eq!(freelist.drain_returns(&mut list), 3);
    assert_eq!(freelist.drain_returns(&mut list), 0);
    assert_eq!(popped(&mut freelist, &mut list), [3, 1, 4]);
    // A refused batch gave nothing back, so its good indices still can be.
    returner.give_back(&[0, 2]).unwrap();
    assert_eq!(freelist.drain_returns(&mut list), 2);
    assert_eq!(freelist.refused_returns(), RefusedReturns::default());
}

#[test]
fn a_return_of_what_the_owner_freed_is_refused_at_the_drain() {
    let (mut freelist, mut list) = filled(2, Order::LastInFirstOut);
    freelist.returner().give_back(&[0, 1]).unwrap();
    assert_eq!((freelist.drain_returns(&mut list), freelist.count(&list)), (0, 2));
    let expected = RefusedReturns { count: 2, last: Some(FreeError::DoubleFree { index: 1 }) };
    assert_eq!(freelist.refused_returns(), expected);
    assert_eq!(popped(&mut freelist, &mut list), [1, 0]);
}

/// More returns than are taken at once, more than are left of the ring's round, and some that are refused among them.
#[test]
fn one_drain_takes_all_returns_in_order() {
    const CAPACITY: u32 = 100;
    for round in 0..5 {
        let (mut freelist, mut list) = filled(CAPACITY, Order::FirstInFirstOut);
        let returner = freelist.returner();
        let mut out = vec![0; 90];
        for _ in 0..=round {
            assert_eq!(freelist.pop_bulk(&mut list, &mut out), out.len());
            returner.give_back(&out).unwrap();
            assert_eq!(freelist.drain_returns(&mut list), out.len());
        }
        assert_eq!(freelist.pop_bulk(&mut list, &mut out), out.len());
        let (owners, others): (Vec<u32>, Vec<u32>) = out.iter().partition(|index| *index % 3 == 0);
        let mut kept = freelist.list(Order::LastInFirstOut);
        freelist.push_bulk(&mut kept, &owners).unwrap();
        returner.give_back(&out).unwrap();
        assert_eq!(freelist.drain_returns(&mut list), others.len());
        assert_eq!(freelist.refused_returns().count, owners.len() as u64);
        assert_eq!(popped(&mut freelist, &mut list)[10..], others);
    }
}

#[test]
fn a_freelist_of_nothing_is_harmless() {
    let (mut freelist, mut list) = filled(0, Order::LastInFirstOut);
    assert_eq!((freelist.pop(&mut list), freelist.drain_returns(&mut list)), (None, 0));
    assert_eq!(freelist.returner().give_back(&[0]), Err(FreeError::Foreign { index: 0 }));
}

#[test]
fn nothing_is_lost_between_the_owner_and_two_returning_threads() {
    const CAPACITY: u32 = 96;
    const HANDED_OUT: usize = if cfg!(miri) { 1000 } else { 200_000 };
    let (mut freelist, mut list) = filled(CAPACITY, Order::LastInFirstOut);
    let mut lanes = Vec::new();
    let threads: Vec<_> = (1..=2)
        .map(|batch| {
            let (sender, mut receiver) = lane::bounded::<u32>(64);
            lanes.push(sender);
            let returner = freelist.returner();
            thread::spawn(move || {
                let mut indices = Vec::new();
                loop {
                    // Closed is looked at first: what was sent before is then seen by the pop.
                    let closed = receiver.is_closed();
                    let popped = receiver.pop_batch(batch * 8, |index| indices.push(index));
                    returner.give_back(&indices).unwrap();
                    indices.clear();
                    if popped == 0 {
                        if closed {
                            return;
                        }
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut sent = 0;
    while sent < HANDED_OUT {
        freelist.drain_returns(&mut list);
        for sender in &mut lanes {
            while sender.len() < sender.capacity()
                && let Some(index) = freelist.pop(&mut list)
            {
                sender.push(index).unwrap();
                sent += 1;
            }
        }
        thread::yield_now();
    }
    drop(lanes);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    freelist.drain_returns(&mut list);
    let indices: HashSet<u32> = popped(&mut freelist, &mut list).into_iter().collect();
    assert_eq!((indices.len(), freelist.refused_returns().count), (CAPACITY as usize, 0));
}

/// A list as a queue of indices: its next one is at the front.
fn put(model: &mut VecDeque<u32>, order: Order, index: u32) {
    match order {
        Order::LastInFirstOut => model.push_front(index),
        Order::FirstInFirstOut => model.push_back(index),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lists_equal_queues_and_a_set(steps in prop::collection::vec((0..7_u8, 0..2_usize, prop::collection::vec(0..18_u32, 0..8)), 1..150)) {
        const CAPACITY: u32 = 16;
        let mut freelist = Freelist::new(CAPACITY);
        let returner = freelist.returner();
        let mut lists = BOTH.map(|order| freelist.list(order));
        let mut models = [VecDeque::new(), VecDeque::new()];
        let mut out: HashSet<u32> = (0..CAPACITY).collect();
        let mut returned: VecDeque<u32> = VecDeque::new();
        let mut refused = 0;
        for (kind, at, indices) in steps {
            let (list, model, order) = (&mut lists[at], &mut models[at], BOTH[at]);
            match kind {
                0 | 1 => {
                    // In bulk and one by one: both stop at the first index that is refused.
                    let result = if kind == 0 {
                        freelist.push_bulk(list, &indices)
                    } else {
                        indices.iter().try_for_each(|index| freelist.push(list, *index))
                    };
                    let mut expected = Ok(());
                    for &index in &indices {
                        if !out.remove(&index) {
                            let foreign = index >= CAPACITY;
                            expected = Err(if foreign { FreeError::Foreign { index } } else { FreeError::DoubleFree { index } });
                            break;
                        }
                        put(model, order, index);
                    }
                    prop_assert_eq!(result, expected);
                }
                2 => {
                    let index = freelist.pop(list);
                    prop_assert_eq!(index, model.pop_front());
                    out.extend(index);
                }
                3 => {
                    let mut into = vec![0; indices.len()];
                    let count = freelist.pop_bulk(list, &mut into);
                    let expected: Vec<u32> = model.drain(..into.len().min(model.len())).collect();
                    prop_assert_eq!(&into[..count], &expected[..]);
                    out.extend(expected);
                }
                4 => {
                    let unique: HashSet<&u32> = indices.iter().collect();
                    let good = unique.len() == indices.len() && indices.iter().all(|index| *index < CAPACITY && !returned.contains(index));
                    prop_assert_eq!(returner.give_back(&indices).is_ok(), good);
                    if good {
                        returned.extend(indices);
                    }
                }
                5 => {
                    let mut put_back = 0;
                    for index in returned.drain(..) {
                        if out.remove(&index) {
                            put(model, order, index);
                            put_back += 1;
                        } else {
                            refused += 1;
                        }
                    }
                    prop_assert_eq!(freelist.drain_returns(list), put_back);
                }
                _ => {
                    let [first, second] = &mut lists;
                    let [first_model, second_model] = &mut models;
                    let ((to, to_model), (from, from_model)) =
                        if at == 0 { ((first, first_model), (second, second_model)) } else { ((second, second_model), (first, first_model)) };
                    freelist.append(to, from).unwrap();
                    to_model.append(from_model);
                }
            }
            for (list, model) in lists.iter().zip(&models) {
                let count = model.len() as u32;
                prop_assert!(freelist.holds(list, count) && !freelist.holds(list, count + 1));
                prop_assert_eq!(list.is_empty(), model.is_empty());
            }
            prop_assert_eq!([freelist.count(&lists[0]) as usize, freelist.count(&lists[1]) as usize], [models[0].len(), models[1].len()]);
            prop_assert!((0..CAPACITY).all(|index| freelist.is_handed_out(index) == out.contains(&index)));
            prop_assert_eq!(freelist.refused_returns().count, refused);
        }
    }
}
