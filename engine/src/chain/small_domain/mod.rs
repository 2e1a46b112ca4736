//! All that can happen to a small send queue, in every order: what is reserved, staged, posted, refused, completed and given up, with
//! each policy's decision which work request asks for a completion.
//!
//! Exhaustive enumeration in plain tests, as of MRs (`mr::small_domain`). The queue is that of the engine, and so is who
//! decides ([`Signaller`]); around them stands what the engine does with both ([`queue`]), and beside them a list of what is in the
//! queue, as an outsider counts it.

mod places;
mod queue;

use super::SendQueue;
use crate::provider::SendQueueCost;
use crate::signal::SignalPolicy::{self, *};
use frwr_mempool::{PagePolicy, Region, RegionOptions};
use queue::{Kept, Queue, Shape, every_act};
use std::collections::HashSet;

/// Entries of requests and transfers beside those that the least queue has: none, so that everything asks; and a few, so that some need
/// not.
const SPARE_ENTRIES: [u32; 3] = [0, 1, 3];
/// Steps of the longest order where costs and policies are few.
const STEPS: u32 = 6;
/// Of the longest order where there are many of them.
const STEPS_OF_MANY: u32 = 5;

fn costs() -> impl Iterator<Item = SendQueueCost> {
    (0..27).map(|at| SendQueueCost { register: 1 + at / 9, invalidate: 1 + at / 3 % 3, message: 1 + at % 3 })
}

fn policies() -> Vec<SignalPolicy> {
    let mut policies = vec![Sparse];
    for batch in [0, 1, 2, 3, 100] {
        policies.extend([KernelBudget { batch }, SendsOnly { batch }]);
    }
    policies.extend([0, 8, 10, 100].map(|max_send_wr| GlobalCounter { max_send_wr }));
    policies
}

/// Walks every order of so many steps, each state once, and returns how many states there are.
fn walk(shape: Shape, steps: u32) -> usize {
    let options = RegionOptions::new(1 << 16).pages(PagePolicy::Ladder { allow_plain: true });
    let mut region = Region::map(&options).expect("a few pages");
    let mut send_queue = SendQueue::new_in(&mut region, shape.entries(), shape.cost).expect("it fits");
    let first = Queue::open(&mut send_queue, shape);
    let mut found = HashSet::from([first.name(&send_queue)]);
    let mut layer = vec![(first, Kept::of(&send_queue))];
    for _ in 0..steps {
        let mut next = Vec::new();
        for (before, kept) in &layer {
            for act in every_act() {
                let mut after = before.clone();
                kept.restore(&mut send_queue);
                if after.act(&mut send_queue, act).is_none() {
                    continue;
                }
                after.check(&send_queue, act);
                if found.insert(after.name(&send_queue)) {
                    next.push((after, Kept::of(&send_queue)));
                }
            }
        }
        layer = next;
    }
    found.len()
}

fn walk_all(shapes: impl Iterator<Item = Shape>, steps: u32) {
    let (mut queues, mut states) = (0, 0);
    for shape in shapes {
        queues += 1;
        states += walk(shape, steps);
    }
    println!("{queues} queues, {states} states, {steps} steps");
    assert!(states > 100 * queues, "the walks ended early");
}

/// Credits are conserved and never more than the queue, every entry is retired once and in order, whoever waits is told once, and no
/// unsignalled run leaves too little for the next request or transfer: for all costs, sizes and keys.
#[test]
fn i31_no_small_queue_loses_credits_or_gets_stuck_whatever_work_requests_cost() {
    let shapes = costs().flat_map(|cost| {
        SPARE_ENTRIES.map(move |spare| Shape { cost, spare, keys: 1, policy: Sparse, goes_on: false })
    });
    walk_all(shapes, STEPS_OF_MANY);
}

/// The same for every policy, and where a refused post does not end the connection.
#[test]
fn i31_no_small_queue_loses_credits_or_gets_stuck_whatever_the_policy() {
    let cost = SendQueueCost { register: 1, invalidate: 1, message: 1 };
    let shapes = policies().into_iter().flat_map(|policy| {
        let spares = [0, 3].into_iter().flat_map(|spare| [false, true].map(|goes_on| (spare, goes_on)));
        spares.map(move |(spare, goes_on)| Shape { cost, spare, keys: 2, policy, goes_on })
    });
    walk_all(shapes, STEPS_OF_MANY);
}

/// Longer orders, in which the ring comes round.
#[test]
fn i31_no_small_queue_loses_credits_or_gets_stuck_in_the_long_run() {
    for cost in [[1, 1, 1], [3, 2, 1]] {
        let [register, invalidate, message] = cost;
        let cost = SendQueueCost { register, invalidate, message };
        walk_all([0, 3].into_iter().map(|spare| Shape { cost, spare, keys: 2, policy: Sparse, goes_on: false }), STEPS);
    }
}
