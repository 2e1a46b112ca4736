//! One doorbell per queue pair and iteration, shown by the recorder on the port and not by the engine's own counters.

use frwr_engine::provider::{
    record::{Record, Recorded},
    soft::SoftProfile,
};
use frwr_tests::carried::Stepped;
use std::collections::BTreeSet;

const QUEUE_DEPTH: u16 = 32;
const REQUESTS: u64 = 5_000;
/// Steps in which that many requests have to end.
const STEPS: u32 = 1_000_000;
/// Requests per doorbell at this depth, at least: goal A10, 2/32 each.
const PER_DOORBELL: u64 = 16;
/// The same where every third request writes and LOCAL_INVs are ours: such a request takes three iterations, the others two, so that
/// 32 in flight are 13.7 for each iteration and its doorbell.
const PER_DOORBELL_OF_ALL_STEPS: u64 = 13;
/// Records between two looks.
const RECORDS: usize = 1 << 14;

fn batches(profile: SoftProfile, remote_invalidation: bool, writes: bool) {
    let mut taps = None;
    let wrap = |device| {
        let (device, found) = Recorded::new(device, RECORDS);
        taps = Some(found);
        device
    };
    let mut stepped = Stepped::new(profile, QUEUE_DEPTH, remote_invalidation, wrap).unwrap();
    let port = {
        use frwr_engine::provider::Port as _;
        stepped.reactor.context().host.engine().port().id()
    };
    let mut tap = taps.unwrap().take(port).unwrap();
    while tap.pop().is_some() {}
    let (before, counted) = (tap.counters(), stepped.reactor.context().host.engine().statistics());
    let carried = stepped.reactor.context_mut();
    (carried.refill, carried.writes) = (true, writes);
    let (mut pairs, mut iteration) = (BTreeSet::new(), 0);
    for _ in 0..STEPS {
        iteration += 1;
        stepped.step();
        while let Some(record) = tap.pop() {
            if let Record::Posted { queue_pair, accepted: true, .. } = record {
                pairs.insert((iteration, queue_pair));
            }
        }
        if stepped.reactor.context().succeeded >= REQUESTS {
            break;
        }
    }
    let (carried, after) = (stepped.reactor.context(), tap.counters());
    let statistics = carried.host.engine().statistics();
    assert!(carried.succeeded >= REQUESTS && carried.failed == 0, "{profile:?}: {statistics:?}");
    assert_eq!(after.dropped_records, 0);
    let doorbells = after.doorbells - before.doorbells;
    assert_eq!(doorbells, pairs.len() as u64, "{profile:?}: one doorbell per iteration and queue pair with work");
    assert_eq!(doorbells, statistics.doorbells - counted.doorbells, "{profile:?}: the engine counts the same");
    let requests = statistics.requests - counted.requests;
    let per_doorbell = if writes && !remote_invalidation { PER_DOORBELL_OF_ALL_STEPS } else { PER_DOORBELL };
    let what = format!("{profile:?}, remote invalidation {remote_invalidation}, writes {writes}");
    assert!(doorbells * per_doorbell <= requests, "{what}: {doorbells} doorbells for {requests} requests");
}

#[test]
fn a10_doorbells_are_pairs_of_iteration_and_queue_pair_and_at_most_a_sixteenth_of_requests_that_read() {
    for profile in SoftProfile::ALL {
        for remote_invalidation in [true, false] {
            batches(profile, remote_invalidation, false);
            batches(profile, remote_invalidation, true);
        }
    }
}
