//! Batches of a freelist (goals A2, A3): against a model, refusals, and the way back from other cores.

use std::collections::HashSet;

use frwr_mempool::freelist::{BATCH_CAPACITY, Batch, FreeError, Freelist, List, Order};
use proptest::prelude::*;

const BOTH: [Order; 2] = [Order::LastInFirstOut, Order::FirstInFirstOut];

fn filled(capacity: u32, order: Order) -> (Freelist, List) {
    let mut freelist = Freelist::new(capacity);
    let mut list = freelist.list(order);
    (0..capacity).for_each(|index| freelist.push(&mut list, index).unwrap());
    (freelist, list)
}

fn sorted(indices: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut sorted: Vec<u32> = indices.into_iter().collect();
    sorted.sort_unstable();
    sorted
}

#[test]
fn an_index_in_a_batch_can_only_go_back_with_it() {
    for order in BOTH {
        let (mut freelist, mut list) = filled(8, order);
        let mut batch = freelist.batch();
        assert_eq!(freelist.pop_batch(&mut list, &mut batch, 3), 3);
        for &index in batch.indices() {
            assert!(!freelist.is_handed_out(index));
            assert_eq!(freelist.push(&mut list, index), Err(FreeError::DoubleFree { index }));
            assert_eq!(freelist.push_bulk(&mut list, &[index]), Err(FreeError::DoubleFree { index }));
        }
        assert_eq!(freelist.push_batch(&mut list, &mut batch), Ok(3));
        assert_eq!((batch.len(), freelist.count(&list)), (0, 8));
        assert_eq!(sorted(std::iter::from_fn(|| freelist.pop(&mut list))), (0..8).collect::<Vec<_>>());
    }
}

#[test]
fn single_indices_leave_and_join_a_batch() {
    let (mut freelist, mut list) = filled(BATCH_CAPACITY as u32 + 1, Order::LastInFirstOut);
    let mut batch = freelist.batch();
    assert_eq!(freelist.pop_batch(&mut list, &mut batch, usize::MAX), BATCH_CAPACITY);
    let index = freelist.pop_from_batch(&mut batch).unwrap();
    assert!(freelist.is_handed_out(index) && !batch.indices().contains(&index));
    freelist.push_to_batch(&mut batch, index).unwrap();
    assert_eq!(freelist.push_to_batch(&mut batch, index), Err(FreeError::BatchFull));
    assert_eq!(freelist.pop_from_batch(&mut batch), Some(index));
    let free = batch.indices()[0];
    assert_eq!(freelist.push_to_batch(&mut batch, free), Err(FreeError::DoubleFree { index: free }));
    assert_eq!(freelist.push_to_batch(&mut batch, 1000), Err(FreeError::Foreign { index: 1000 }));
    freelist.push(&mut list, index).unwrap();
    assert_eq!(freelist.push_batch(&mut list, &mut batch), Ok(BATCH_CAPACITY - 1));
    assert_eq!(freelist.count(&list), BATCH_CAPACITY as u32 + 1);
}

#[test]
fn a_batch_of_another_freelist_is_refused() {
    let (mut freelist, mut list) = filled(4, Order::LastInFirstOut);
    let (mut other, mut others) = filled(4, Order::LastInFirstOut);
    let mut batch = freelist.batch();
    assert_eq!(other.pop_batch(&mut others, &mut batch, 1), 0);
    assert_eq!(other.pop_batch(&mut list, &mut other.batch(), 1), 0);
    assert_eq!(freelist.pop_batch(&mut list, &mut batch, 2), 2);
    assert_eq!(other.push_batch(&mut others, &mut batch), Err(FreeError::ForeignBatch));
    assert_eq!(other.returner().give_back_batch(&mut batch), Err(FreeError::ForeignBatch));
    assert_eq!(other.pop_from_batch(&mut batch), None);
    assert_eq!(other.push_to_batch(&mut batch, 0), Err(FreeError::ForeignBatch));
    assert_eq!(freelist.push_batch(&mut others, &mut batch), Err(FreeError::ForeignList));
    assert_eq!((batch.len(), other.count(&others)), (2, 4));
    assert_eq!((freelist.count(&others), freelist.holds(&others, 0)), (0, false));
}

#[test]
fn an_index_that_is_returned_alone_and_with_its_batch_becomes_free_once() {
    let (mut freelist, mut list) = filled(4, Order::LastInFirstOut);
    let returner = freelist.returner();
    let mut batch = freelist.batch();
    freelist.pop_batch(&mut list, &mut batch, 2);
    // Against the rules: who returns it is not who holds the batch. Only the owner can know.
    returner.give_back(&batch.indices()[..1]).unwrap();
    returner.give_back_batch(&mut batch).unwrap();
    assert!(batch.is_empty());
    freelist.drain_returns(&mut list);
    assert_eq!((freelist.count(&list), freelist.refused_returns().count), (4, 1));
    assert_eq!(sorted(std::iter::from_fn(|| freelist.pop(&mut list))), [0, 1, 2, 3]);
}

#[derive(Clone, Debug)]
enum Step {
    Pop(usize),
    Push(usize),
    PopBatch { list: usize, batch: usize, wanted: usize },
    PushBatch { list: usize, batch: usize },
    ReturnBatch(usize),
    ReturnSingles(usize),
    Drain(usize),
    OutOfBatch(usize),
    IntoBatch(usize),
    Append(usize),
    PopBulk { list: usize, wanted: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let two = 0..2_usize;
    prop_oneof![
        two.clone().prop_map(Step::Pop),
        two.clone().prop_map(Step::Push),
        (two.clone(), two.clone(), 0..40_usize).prop_map(|(list, batch, wanted)| Step::PopBatch {
            list,
            batch,
            wanted
        }),
        (two.clone(), two.clone()).prop_map(|(list, batch)| Step::PushBatch { list, batch }),
        two.clone().prop_map(Step::ReturnBatch),
        (0..9_usize).prop_map(Step::ReturnSingles),
        two.clone().prop_map(Step::Drain),
        two.clone().prop_map(Step::OutOfBatch),
        two.clone().prop_map(Step::IntoBatch),
        two.clone().prop_map(Step::Append),
        (two, 0..80_usize).prop_map(|(list, wanted)| Step::PopBulk { list, wanted }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_index_is_in_one_place(capacity in 1..100_u32, steps in prop::collection::vec(step(), 1..200)) {
        let (mut freelist, first) = filled(capacity, Order::LastInFirstOut);
        let mut lists = [first, freelist.list(Order::FirstInFirstOut)];
        let mut batches = [freelist.batch(), freelist.batch()];
        let returner = freelist.returner();
        let (mut out, mut returned): (Vec<u32>, usize) = (Vec::new(), 0);
        for step in steps {
            match step {
                Step::Pop(list) => {
                    let before = freelist.count(&lists[list]);
                    let index = freelist.pop(&mut lists[list]);
                    prop_assert_eq!(index.is_some(), before > 0);
                    out.extend(index);
                }
                Step::Push(list) => {
                    if let Some(index) = out.pop() {
                        prop_assert_eq!(freelist.push(&mut lists[list], index), Ok(()));
                    }
                }
                Step::PopBatch { list, batch, wanted } => {
                    let (free, held) = (freelist.count(&lists[list]) as usize, batches[batch].len());
                    let taken = freelist.pop_batch(&mut lists[list], &mut batches[batch], wanted);
                    prop_assert_eq!(taken, wanted.min(free).min(BATCH_CAPACITY - held));
                }
                Step::PushBatch { list, batch } => {
                    let held = batches[batch].len();
                    prop_assert_eq!(freelist.push_batch(&mut lists[list], &mut batches[batch]), Ok(held));
                }
                Step::ReturnBatch(batch) => {
                    returned += batches[batch].len();
                    prop_assert_eq!(returner.give_back_batch(&mut batches[batch]), Ok(()));
                }
                Step::ReturnSingles(count) => {
                    let singles = out.split_off(out.len().saturating_sub(count));
                    prop_assert_eq!(returner.give_back(&singles), Ok(()));
                    returned += singles.len();
                }
                Step::Drain(list) => {
                    prop_assert_eq!(freelist.drain_returns(&mut lists[list]), returned);
                    returned = 0;
                }
                Step::OutOfBatch(batch) => out.extend(freelist.pop_from_batch(&mut batches[batch])),
                Step::IntoBatch(batch) => {
                    if batches[batch].len() < BATCH_CAPACITY && let Some(index) = out.pop() {
                        prop_assert_eq!(freelist.push_to_batch(&mut batches[batch], index), Ok(()));
                    }
                }
                Step::Append(to) => {
                    let [first, second] = &mut lists;
                    let (to, from) = if to == 0 { (first, second) } else { (second, first) };
                    freelist.append(to, from).unwrap();
                    prop_assert!(from.is_empty());
                }
                Step::PopBulk { list, wanted } => {
                    let free = freelist.count(&lists[list]) as usize;
                    let mut into = vec![0; wanted];
                    let count = freelist.pop_bulk(&mut lists[list], &mut into);
                    prop_assert_eq!(count, wanted.min(free));
                    out.extend(&into[..count]);
                }
            }
            let held: usize = batches.iter().map(Batch::len).sum();
            let free: u32 = lists.iter().map(|list| freelist.count(list)).sum();
            prop_assert_eq!(free as usize + held + out.len() + returned, capacity as usize);
            let seen: HashSet<u32> = out.iter().chain(batches.iter().flat_map(|batch| batch.indices())).copied().collect();
            prop_assert_eq!(seen.len(), out.len() + held);
            prop_assert!((0..capacity).filter(|index| freelist.is_handed_out(*index)).count() >= out.len());
        }
        let [mut first, mut second] = lists;
        for batch in &mut batches {
            freelist.push_batch(&mut first, batch).unwrap();
        }
        freelist.drain_returns(&mut second);
        out.extend(std::iter::from_fn(|| freelist.pop(&mut first)));
        out.extend(std::iter::from_fn(|| freelist.pop(&mut second)));
        prop_assert_eq!(sorted(out), (0..capacity).collect::<Vec<_>>());
        prop_assert_eq!(freelist.refused_returns().count, 0);
    }
}
