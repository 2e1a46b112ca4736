//! Objects that the device keeps, once or for good: what is counted of them and their keys, and that nothing is awaited behind a connection's
//! end, whatever was refused before it (S105, S120; promise Fence).

use frwr_engine::{
    EngineOptions, TracePoint,
    provider::{CommandError, CompletionQueue, fault::CommandKind},
};
use frwr_support::engine_harness::{PROFILES, scripted::*};

/// The objects of a connection, of which one is kept.
const REGISTRATIONS: u32 = 2;
/// Attempts to destroy an object of a connection that drained until it is given up: then, and behind the destruction of its queue pair.
const ATTEMPTS: u32 = 2;

fn small() -> EngineOptions {
    EngineOptions::default().registrations(REGISTRATIONS)
}

/// One key is open, and the connection ends while the device refuses so many times to destroy an object.
fn ended(test: &mut Scripted, refusals: u32) {
    test.submit(1, 1, false);
    test.command();
    test.watch.clear();
    // All objects at once, each in the first attempt, and so on.
    test.faults.fail_command(CommandKind::FreeRegistration, CommandError::BUSY, refusals);
    if refusals >= ATTEMPTS * REGISTRATIONS {
        // The key of an orphan stays open, and the harness looks at the device.
        test.host.outstanding.insert(u64::MAX, 512);
    }
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
    test.faults.clear();
}

#[test]
fn s105_nothing_is_awaited_behind_objects_that_were_kept() {
    for profile in PROFILES {
        for attempts in 0..=ATTEMPTS {
            let mut test = Scripted::with(profile, small());
            ended(&mut test, attempts * REGISTRATIONS);
            let statistics = test.host.engine.statistics();
            let orphans = if attempts == ATTEMPTS { REGISTRATIONS } else { 0 };
            assert_eq!(statistics.deregistrations_failed, u64::from(attempts * REGISTRATIONS), "{profile} {attempts}");
            assert_eq!(statistics.mrs_orphaned, u64::from(orphans), "{profile} {attempts}");
            assert_eq!(test.host.engine.poll_at(), None, "{profile} {attempts}: nobody waits for anything");
            test.connect();
            test.round_trip(2);
        }
    }
}

/// A key of an object that the device keeps for good is live, and stays it: whoever has the descriptor next does not end it.
#[test]
fn s105_s120_the_key_of_an_orphan_is_live_for_ever() {
    for profile in PROFILES {
        let mut test = Scripted::with(profile, small());
        ended(&mut test, ATTEMPTS * REGISTRATIONS);
        assert_eq!(test.host.engine.statistics().keys_live(), 1, "{profile}");
        for cookie in 2..4 {
            test.connect();
            test.round_trip(cookie);
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
            assert_eq!(test.host.engine.statistics().keys_live(), 1, "{profile} {cookie}");
        }
    }
}

/// Keys that die with their objects are dead, however often the device was asked.
#[test]
fn s120_keys_of_objects_that_were_kept_for_a_while_are_dead() {
    for profile in PROFILES {
        for attempts in 0..ATTEMPTS {
            let mut test = Scripted::with(profile, small());
            ended(&mut test, attempts * REGISTRATIONS);
            let statistics = test.host.engine.statistics();
            assert_eq!((statistics.keys_live(), statistics.keys_destroyed_live), (0, 1), "{profile} {attempts}");
        }
    }
}

/// What the device refuses while a connection ends is no further cause of its end (S97).
#[test]
fn s97_an_object_that_is_kept_is_no_cause_of_an_end_that_is_under_way() {
    for profile in PROFILES {
        for attempts in 0..ATTEMPTS {
            let mut test = Scripted::with(profile, small());
            ended(&mut test, attempts * REGISTRATIONS);
            let failures: usize = [CompletionQueue::Send, CompletionQueue::Receive]
                .map(|queue| test.watch.completions(queue).iter().filter(|found| found.result.is_err()).count())
                .iter()
                .sum();
            let causes = test.host.engine.statistics().causes_while_ending;
            assert_eq!(causes, failures as u64, "{profile} {attempts}: flushes alone");
        }
    }
}

/// Records of an object name the object: they have no bytes.
#[test]
fn s123_records_of_objects_have_no_length() {
    for refusals in [0, ATTEMPTS * REGISTRATIONS] {
        let mut test = Scripted::unconnected("reg_mr", small().trace_records(1024));
        let mut receiver = test.host.engine.trace().unwrap();
        test.connect();
        ended(&mut test, refusals);
        let records: Vec<_> = core::iter::from_fn(|| receiver.pop()).collect();
        let of_objects = |point: &TracePoint| matches!(point, TracePoint::MrDestroyed | TracePoint::MrDestroyFailed(_));
        let lengths: Vec<_> =
            records.iter().filter(|record| of_objects(&record.point)).map(|record| record.length).collect();
        assert!(lengths.len() >= REGISTRATIONS as usize && lengths.iter().all(|length| *length == 0), "{lengths:?}");
    }
}

/// A new object has new keys: those of the one that stood in its place do not count as the same.
#[test]
fn s120_no_key_comes_twice_where_its_object_is_a_new_one() {
    /// With one byte of a key that changes.
    const ROUND: u64 = 256;
    let mut test = Scripted::with("reg_mr", EngineOptions::default().registrations(1));
    for connection in 0..2 {
        for at in 0..ROUND {
            test.round_trip(connection * ROUND + at);
        }
        assert_eq!(test.host.engine.statistics().shortest_key_reuse_ns, None, "connection {connection}");
        if connection == 0 {
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.until_gone();
            test.connect();
        }
    }
    // Those of the second object come round.
    for at in 0..ROUND {
        test.round_trip(2 * ROUND + at);
    }
    assert!(test.host.engine.statistics().shortest_key_reuse_ns.is_some());
}
