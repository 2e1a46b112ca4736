//! Section 1.B through the engine: making, taking, returning and destroying MRs, and waiting for them.

use frwr_engine::{
    Descriptors, InvalidateSignalling, OnPostError, ReturnPolicy, StalePolicy, SubmitError, TracePoint,
    provider::{
        Access, CommandError, CompletionQueue, Port, PostRefusal, RegistrationId,
        fault::CommandKind,
        record::{Record, RecordedOperation},
    },
};
use frwr_support::engine_harness::{self, PROFILES, Setup, Watched, scripted::Scripted};

fn descriptors(pair: &Watched) -> Descriptors {
    pair.pair.host.engine.descriptors(pair.pair.host.connection.unwrap())
}

fn sum(descriptors: Descriptors) -> u32 {
    descriptors.free + descriptors.used + descriptors.quarantined + descriptors.absent
}

/// Objects of the registrations that the host posted.
fn objects(pair: &mut Watched) -> Vec<RegistrationId> {
    let object = |operation| match operation {
        RecordedOperation::Register { object, .. } => Some(object),
        _ => None,
    };
    pair.host.wrs().iter().filter_map(|wr| object(wr.operation)).collect()
}

fn disconnect(pair: &mut Watched) {
    let connection = pair.pair.host.connection.unwrap();
    pair.pair.host.engine.disconnect(connection);
    pair.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
}

#[test]
fn s18_s22_f10_a_device_with_room_for_two_of_eleven() {
    let setup = Setup::new("reg_mr").host(|host| (host.registrations, host.trace_records) = (11, 64));
    let mut pair = setup.device(|soft| soft.capabilities.attributes.max_registrations = 2).watched_apart();
    let mut trace = pair.pair.host.engine.trace().unwrap();
    pair.pair.connect();
    let records: Vec<_> = core::iter::from_fn(|| trace.pop()).collect();
    let failed =
        records.iter().filter(|record| record.point == TracePoint::MrAllocationFailed(CommandError::EXHAUSTED));
    assert_eq!(
        failed.map(|record| (record.mr, record.handle, record.length)).collect::<Vec<_>>(),
        [(u32::MAX, 0, 0); 9],
        "no MR is named, and nothing was made"
    );
    let created = records.iter().filter(|record| record.point == TracePoint::MrsCreated);
    assert_eq!(created.map(|record| record.length).collect::<Vec<_>>(), [2], "one record with the count");
    let statistics = pair.pair.host.engine.statistics();
    assert_eq!((statistics.mrs_allocated, statistics.mr_allocations_failed), (2, 9));
    assert_eq!(descriptors(&pair), Descriptors { free: 2, absent: 9, ..Descriptors::default() });
    for cookie in 0..20 {
        pair.request(cookie, cookie % 3, false, cookie % 2 == 0);
    }
    disconnect(&mut pair);
    let statistics = pair.pair.host.engine.statistics();
    assert_eq!(statistics.mrs_destroyed, statistics.mrs_allocated, "nothing leaks");
}

#[test]
fn s19_a_fresh_mr_is_registered_without_an_invalidation_before() {
    for profile in engine_harness::PROFILES {
        let mut pair = Setup::new(profile).watched();
        assert_eq!(descriptors(&pair), Descriptors { free: 32, ..Descriptors::default() });
        assert_eq!(pair.pair.host.engine.port().remote_bytes_open(), Some(0));
        pair.clear();
        pair.request(1, 1, false, true);
        assert_eq!(pair.host.chains(), ["RS"], "{profile}");
    }
}

#[test]
fn s20_s105_every_mr_is_destroyed_once_also_when_the_device_says_no() {
    for failing in [0, 1, 32] {
        let mut pair = Setup::new("reg_mr").watched();
        // A live MR whose object stays is open in the device's table, though no queue pair leads to it any more.
        let mrs = if failing == 0 { 3 } else { 0 };
        let segments = pair.scattered(mrs);
        pair.pair.host.submit(1, Access::RemoteWrite, &segments, true).unwrap();
        pair.steps(10);
        let used = mrs as u32;
        assert_eq!(descriptors(&pair), Descriptors { free: 32 - used, used, ..Descriptors::default() });
        // Each is tried once when the queue pair has drained, and once behind its destruction.
        let refused = if failing == 0 { 0 } else { 32 + failing };
        pair.host.faults.fail_command(CommandKind::FreeRegistration, CommandError::EXHAUSTED, refused);
        disconnect(&mut pair);
        let statistics = pair.pair.host.engine.statistics();
        assert_eq!((statistics.mrs_allocated, statistics.mrs_orphaned), (32, u64::from(failing)));
        assert_eq!(statistics.mrs_destroyed, u64::from(32 - failing));
        assert_eq!(pair.pair.host.orphaned_mrs, failing, "the caller is told");
        assert_eq!(pair.pair.host.control.statistics().frees_refused, u64::from(refused));
        assert_eq!(pair.pair.host.ended, [(1, "lost")]);
        // A deregister error is counted, no more: the descriptors are as good as new.
        pair.pair.connect();
        assert_eq!(descriptors(&pair).free, 32);
        pair.request(2, 3, false, true);
    }
}

#[test]
fn s22_s24_the_first_fill_is_small_and_the_pool_grows_on_demand() {
    let mut pair = Setup::new("reg_mr").host(|host| host.first_fill = 1).watched();
    assert_eq!(descriptors(&pair), Descriptors { free: 1, absent: 31, ..Descriptors::default() });
    for cookie in 0..8 {
        pair.pair.host.submit(cookie, Access::RemoteWrite, &[pair.pair.host.segment(8, 64)], true).unwrap();
    }
    assert_eq!(pair.pair.host.engine.statistics().requests_waited, 7, "they wait, the caller does not");
    pair.until("ended", |pair| {
        pair.serve(true);
        pair.host.ended.len() == 8
    });
    let statistics = pair.pair.host.engine.statistics();
    assert!(statistics.mrs_allocated > 1 && statistics.mrs_allocated <= 32, "{}", statistics.mrs_allocated);
    assert_eq!((statistics.disconnects, sum(descriptors(&pair))), (0, 32));
}

#[test]
fn s24_i28_a_device_without_mrs_is_asked_again_and_the_connection_stays() {
    let mut pair = Setup::new("reg_mr").host(|host| (host.registrations, host.first_fill) = (4, 1)).watched();
    pair.host.faults.fail_command(CommandKind::AllocateRegistration, CommandError::EXHAUSTED, 5);
    let segments = pair.scattered(3);
    pair.pair.host.submit(1, Access::RemoteWrite, &segments, true).unwrap();
    pair.steps(50);
    assert!(pair.pair.host.is_ready());
    assert_eq!(descriptors(&pair), Descriptors { free: 1, absent: 3, ..Descriptors::default() });
    // The device is left alone for a while (1 ms, here 1000 steps), then asked again.
    assert_eq!(pair.pair.host.engine.statistics().mr_allocations_failed, 3);
    pair.until("ended", |pair| {
        pair.serve(true);
        pair.host.ended.len() == 1
    });
    assert_eq!(pair.pair.host.engine.statistics().mr_allocations_failed, 5);
    assert_eq!(pair.pair.host.ended, [(1, "replied")]);
}

#[test]
fn s23_the_mr_used_last_is_taken_first_unless_keys_are_fixed() {
    for (profile, distinct) in [("reg_mr", 1), ("window", 1), ("umr", 1), ("rxe", 1), ("umr:fixed-key", 8)] {
        let mut pair = Setup::new(profile).host(|host| host.registrations = 8).watched();
        pair.clear();
        for cookie in 0..8 {
            pair.request(cookie, 1, false, true);
        }
        let mut objects = objects(&mut pair);
        objects.sort_unstable();
        objects.dedup();
        assert_eq!(objects.len(), distinct, "{profile}: a fixed key repeats as late as it can");
    }
}

#[test]
fn s25_i31_waiting_requests_hold_nothing_and_are_admitted_in_order() {
    let mut pair = Setup::new("reg_mr").host(|host| host.registrations = 4).watched();
    for (cookie, mrs) in [(1, 3), (2, 3), (3, 1), (4, 0)] {
        let segments = pair.scattered(mrs);
        pair.pair.host.submit(cookie, Access::RemoteWrite, &segments, true).unwrap();
    }
    // All or none: the second leaves the one free MR alone, and nobody overtakes it.
    assert_eq!(descriptors(&pair), Descriptors { free: 1, used: 3, ..Descriptors::default() });
    let statistics = pair.pair.host.engine.statistics();
    assert_eq!((statistics.requests, statistics.requests_waited), (1, 3));
    let mut arrived = Vec::new();
    pair.until("ended", |pair| {
        while let Some((name, grants)) = pair.target.take_command() {
            arrived.push(u64::from_le_bytes(name));
            pair.target.answer(name, &grants, grants.first().map(|grant| grant.key));
        }
        pair.host.ended.len() == 4
    });
    assert_eq!(arrived, [1, 2, 3, 4]);
    assert_eq!(descriptors(&pair).free, 4);
}

#[test]
fn s25_a_waiting_request_can_be_given_up_and_what_waits_behind_goes_on() {
    let setup = Setup::new("reg_mr").host(|host| host.registrations = 3);
    let mut pair = setup.device(|soft| soft.capabilities.attributes.max_registrations = 2).watched();
    let (three, one) = (pair.scattered(3), pair.scattered(1));
    let too_large = pair.pair.host.submit(1, Access::RemoteWrite, &three, true).unwrap();
    pair.pair.host.submit(2, Access::RemoteWrite, &one, true).unwrap();
    pair.steps(100);
    assert!(pair.pair.host.ended.is_empty() && pair.pair.host.is_ready());
    pair.pair.host.engine.cancel(too_large).unwrap();
    pair.until("ended", |pair| {
        pair.serve(true);
        pair.host.ended.len() == 2
    });
    assert_eq!(pair.pair.host.ended, [(1, "cancelled"), (2, "replied")]);
}

#[test]
fn s24_s43_a_request_that_needs_more_mrs_than_the_device_makes_ends_and_the_others_go_on() {
    for write_pad in [false, true] {
        let setup = Setup::new("reg_mr").host(|host| (host.registrations, host.write_pad) = (4, write_pad));
        let objects = 2 + u32::from(write_pad);
        let mut pair = setup.device(|soft| soft.capabilities.attributes.max_registrations = objects).watched();
        let (three, two) = (pair.scattered(3), pair.scattered(2));
        pair.pair.host.submit(1, Access::RemoteWrite, &three, true).unwrap();
        pair.pair.host.submit(2, Access::RemoteWrite, &two, true).unwrap();
        pair.steps(3000);
        assert!(pair.pair.host.ended.is_empty(), "the device may have objects again");
        for _ in 0..200 {
            pair.pair.now += core::time::Duration::from_millis(1);
            pair.steps(2);
            pair.serve(true);
        }
        pair.until("ended", |pair| {
            pair.serve(true);
            pair.host.ended.len() == 2
        });
        assert_eq!(pair.pair.host.ended, [(1, "too few registrations"), (2, "replied")]);
        // Nobody waits so long again, until the device has made some.
        pair.pair.host.submit(3, Access::RemoteWrite, &three, true).unwrap();
        pair.request(4, 2, false, true);
        assert_eq!(pair.pair.host.ended[2], (3, "too few registrations"));
        assert!(pair.pair.host.is_ready());
    }
}

/// Of a device that makes no more: what needs as many MRs as its connection has waits for them, however many descriptors have none.
#[test]
fn s24_s43_a_request_that_needs_all_mrs_there_are_waits_for_those_in_use() {
    for write_pad in [false, true] {
        let setup = Setup::new("reg_mr").host(|host| (host.registrations, host.write_pad) = (8, write_pad));
        let objects = 2 + u32::from(write_pad);
        let mut pair = setup.device(|soft| soft.capabilities.attributes.max_registrations = objects).watched();
        let (three, two) = (pair.scattered(3), pair.scattered(2));
        pair.pair.host.submit(1, Access::RemoteWrite, &three, true).unwrap();
        for _ in 0..200 {
            pair.pair.now += core::time::Duration::from_millis(1);
            pair.steps(2);
        }
        assert_eq!(pair.pair.host.ended, [(1, "too few registrations")], "with a pad: {write_pad}");
        for cookie in [2, 3] {
            pair.pair.host.submit(cookie, Access::RemoteWrite, &two, true).unwrap();
        }
        for _ in 0..200 {
            pair.pair.now += core::time::Duration::from_millis(1);
            pair.steps(2);
        }
        assert_eq!(pair.pair.host.ended.len(), 1, "with a pad: {write_pad}");
        pair.until("ended", |pair| {
            pair.serve(true);
            pair.host.ended.len() == 3
        });
        assert_eq!(pair.pair.host.ended[1..], [(2, "replied"), (3, "replied")]);
    }
}

#[test]
fn s27_s107_i28_i29_teardown_while_the_pool_fills() {
    for steps in 0..12 {
        let setup = Setup::new("reg_mr").host(|host| (host.first_fill, host.registrations) = (1, 64));
        let mut pair = setup.watched();
        for cookie in 0..32 {
            pair.pair.host.submit(cookie, Access::RemoteWrite, &[pair.pair.host.segment(8, 64)], true).unwrap();
        }
        pair.steps(steps);
        let connection = pair.pair.host.connection.unwrap();
        disconnect(&mut pair);
        let all = pair.pair.host.engine.descriptors(connection);
        assert_eq!(all, Descriptors { absent: 64, ..Descriptors::default() }, "after {steps} steps");
        let statistics = pair.pair.host.engine.statistics();
        assert_eq!(statistics.mrs_allocated, statistics.mrs_destroyed);
        assert_eq!(pair.pair.host.ended.len(), 32);
        pair.pair.connect();
        pair.request(100, 1, false, true);
    }
}

/// A device may take its time to make an object: nothing of a connection ends before all that was asked for is there, and destroyed.
#[test]
fn s27_s105_an_object_that_is_made_late_goes_with_its_connection() {
    for profile in PROFILES {
        let mut test = Scripted::of(Setup::new(profile).host(|host| (host.first_fill, host.registrations) = (1, 8)));
        test.connect();
        test.faults.hold_answers(CommandKind::AllocateRegistration);
        for cookie in 1..=4 {
            test.submit(cookie, 1, true);
        }
        test.steps(20);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.steps(100);
        assert_eq!(test.host.disconnected, 0, "{profile}: something is still being made for it");
        test.faults.release_answers();
        test.until_gone();
        let all = test.host.engine.descriptors(connection);
        assert_eq!(all, Descriptors { absent: all.absent, ..Descriptors::default() }, "{profile}");
        let made = test.faults.succeeded(CommandKind::AllocateRegistration);
        assert_eq!(made, test.faults.succeeded(CommandKind::FreeRegistration), "{profile}");
        assert!(made > 1, "{profile}");
        test.reconnect_works();
    }
}

#[test]
fn the_slab_of_requests_says_when_it_is_full() {
    let mut pair = Setup::new("reg_mr").host(|host| (host.connections, host.queue_depth) = (1, 4)).watched();
    let segment = pair.pair.host.segment(0, 64);
    for cookie in 0..8 {
        pair.pair.host.submit(cookie, Access::RemoteWrite, &[segment], true).unwrap();
    }
    let refused = pair.pair.host.submit(8, Access::RemoteWrite, &[segment], true);
    assert_eq!(refused, Err(SubmitError::NoSlot));
    assert_eq!(pair.pair.host.engine.statistics().request_slots_used, 8);
    pair.until("ended", |pair| {
        pair.serve(true);
        pair.host.ended.len() == 8
    });
    pair.request(9, 1, false, true);
}

#[test]
fn s104_d02_d03_with_the_early_return_the_mr_is_taken_again_but_its_request_waits() {
    let policy = ReturnPolicy::OnInvalidatePosted;
    let mut pair = Setup::new("reg_mr").host(|host| (host.return_policy, host.registrations) = (policy, 1)).watched();
    pair.clear();
    pair.host.faults.hold(CompletionQueue::Send);
    let segment = pair.pair.host.segment(0, 64);
    for cookie in 1..=2 {
        pair.pair.host.submit(cookie, Access::RemoteWrite, &[segment], false).unwrap();
    }
    pair.until("both sent", |pair| {
        pair.serve(false);
        pair.host.engine.statistics().registrations == 2
    });
    pair.steps(20);
    assert!(pair.pair.host.ended.is_empty(), "no completion, no end");
    let chains = pair.host.chains().concat();
    assert!(chains.starts_with("RSL*RS"), "{chains}: the queue orders the two uses");
    pair.host.faults.release();
    pair.until("ended", |pair| {
        pair.serve(false);
        pair.host.ended.len() == 2
    });
    assert_eq!(pair.pair.host.ended, [(1, "replied"), (2, "replied")]);
    assert_eq!(descriptors(&pair), Descriptors { free: 1, ..Descriptors::default() });
}

#[test]
fn d02_by_default_an_mr_returns_when_its_invalidation_completed() {
    let mut pair = Setup::new("reg_mr").host(|host| host.registrations = 1).watched();
    pair.host.faults.hold(CompletionQueue::Send);
    let segment = pair.pair.host.segment(0, 64);
    for cookie in 1..=2 {
        pair.pair.host.submit(cookie, Access::RemoteWrite, &[segment], false).unwrap();
    }
    pair.until("invalidating", |pair| {
        pair.serve(false);
        pair.host.engine.statistics().local_inv_needed == 1
    });
    pair.steps(50);
    assert_eq!(pair.pair.host.engine.statistics().registrations, 1);
    assert_eq!(descriptors(&pair).free, 0);
}

#[test]
fn d04_s66_the_last_or_every_invalidation_asks_for_a_completion() {
    for (signalling, chain) in [(InvalidateSignalling::LastOfChain, "LLL*"), (InvalidateSignalling::Every, "L*L*L*")] {
        let mut pair = Setup::new("reg_mr").host(|host| host.invalidate_signalling = signalling).watched();
        pair.clear();
        pair.request(1, 3, false, false);
        assert_eq!(pair.host.chains(), ["RRRS", chain]);
    }
}

#[test]
fn s26_two_connections_never_share_an_mr() {
    let mut pair = Setup::new("reg_mr").watched();
    pair.request(1, 3, false, false);
    let first = objects(&mut pair);
    pair.clear();
    pair.pair.connect();
    pair.until("both connected", |pair| pair.target.engine.statistics().connections == 2);
    pair.request(2, 3, false, false);
    assert!(objects(&mut pair).iter().all(|object| !first.contains(object)));
    assert_eq!(descriptors(&pair), Descriptors { free: 32, ..Descriptors::default() });
}

#[test]
fn d07_d08_s72_s103_refused_invalidations_are_fenced_by_destroying_the_mrs() {
    for stale_policy in [StalePolicy::Destroy, StalePolicy::Repair] {
        let on_post_error = OnPostError::DeregisterAndContinue;
        let setup = Setup::new("reg_mr");
        let mut pair =
            setup.host(|host| (host.on_post_error, host.stale_policy) = (on_post_error, stale_policy)).watched();
        let segments = pair.scattered(3);
        pair.pair.host.submit(1, Access::RemoteWrite, &segments, false).unwrap();
        pair.until("arrived", |pair| !pair.target.commands.is_empty());
        let queue_pair = pair.queue_pair();
        pair.host.faults.refuse_post(queue_pair, 0, PostRefusal::QueueFull);
        pair.until("ended", |pair| {
            pair.serve(false);
            pair.host.ended.len() == 1
        });
        assert_eq!(pair.pair.host.ended, [(1, "replied")], "the data is safe: no key is left");
        pair.steps(20);
        assert!(pair.pair.host.is_ready());
        let (free, absent, recovered) = match stale_policy {
            StalePolicy::Destroy => (29, 3, 0),
            StalePolicy::Repair => (32, 0, 3),
        };
        assert_eq!(descriptors(&pair), Descriptors { free, absent, ..Descriptors::default() });
        assert_eq!(pair.pair.host.engine.statistics().mrs_recovered, recovered);
        pair.request(2, 3, false, false);
    }
}

/// Shortest time, in steps, between two registrations under one full key whose low byte is zero.
fn shortest_reuse(pair: &mut Watched) -> Option<u64> {
    let mut last = std::collections::HashMap::new();
    let mut shortest = None;
    for record in pair.host.log() {
        let Record::Posted { iteration, operation: RecordedOperation::Register { key, .. }, .. } = *record else {
            continue;
        };
        if let Some(before) = last.insert(key, iteration) {
            shortest = Some(shortest.map_or(iteration - before, |known: u64| known.min(iteration - before)));
        }
    }
    shortest
}

#[test]
fn s37_u10_the_shortest_time_of_reuse_of_a_key_is_counted() {
    for (profile, requests) in [("reg_mr", 1024), ("umr:fixed-key", 8)] {
        let mut pair = Setup::new(profile).host(|host| host.registrations = 1).watched();
        pair.clear();
        assert_eq!(pair.pair.host.engine.statistics().shortest_key_reuse_ns, None);
        for cookie in 0..requests {
            pair.request(cookie, 1, false, true);
        }
        let steps = shortest_reuse(&mut pair).unwrap();
        // One step is a microsecond. Rounds of 256 are timed where they begin, so the counter may miss a little.
        let counted = pair.pair.host.engine.statistics().shortest_key_reuse_ns.unwrap();
        assert!(counted >= steps * 1000 && counted < (steps + 64) * 1000, "{profile}: {counted} ns, {steps} steps");
    }
}

frwr_support::asleep! {
    s18_s22_f10_a_device_with_room_for_two_of_eleven,
    s20_s105_every_mr_is_destroyed_once_also_when_the_device_says_no,
    s22_s24_the_first_fill_is_small_and_the_pool_grows_on_demand,
    s24_i28_a_device_without_mrs_is_asked_again_and_the_connection_stays,
    s25_i31_waiting_requests_hold_nothing_and_are_admitted_in_order,
    s25_a_waiting_request_can_be_given_up_and_what_waits_behind_goes_on,
    s27_s107_i28_i29_teardown_while_the_pool_fills,
    s104_d02_d03_with_the_early_return_the_mr_is_taken_again_but_its_request_waits,
    s26_two_connections_never_share_an_mr,
    d07_d08_s72_s103_refused_invalidations_are_fenced_by_destroying_the_mrs,
}
