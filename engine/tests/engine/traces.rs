//! Every trace point, and the lives of keys as a trace tells them (1.L): each is registered, told, killed and dead, in that order and
//! once, whatever ends it; and every failure carries status, vendor code or errno as the device said it.

use frwr_engine::{
    Access, DisconnectCause, OnPostError, PadFailure, ReturnPolicy, TracePoint, TraceRecord,
    provider::{
        CommandError, Errno, Failure, FailureStatus, PostError, PostRefusal, TokenKind,
        fault::{CommandKind, CompletionFault, CompletionFilter},
        soft::vendor_code,
    },
};
use frwr_mempool::lane::Receiver;
use frwr_support::engine_harness::{PROFILES, Setup, scripted::*};
use std::collections::HashMap;

fn traced(setup: Setup) -> (Scripted, Receiver<TraceRecord>) {
    let mut test = Scripted::of(setup.host(|host| host.trace_records = 1 << 14));
    let receiver = test.host.engine.trace().unwrap();
    (test, receiver)
}

fn connected(setup: Setup) -> (Scripted, Receiver<TraceRecord>) {
    let (mut test, receiver) = traced(setup);
    test.connect();
    (test, receiver)
}

fn take(receiver: &mut Receiver<TraceRecord>) -> Vec<TraceRecord> {
    core::iter::from_fn(|| receiver.pop()).collect()
}

fn points(records: &[TraceRecord]) -> Vec<TracePoint> {
    records.iter().map(|record| record.point).collect()
}

fn is_registered(point: &TracePoint) -> bool {
    matches!(point, TracePoint::MrRegister { .. })
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Registered,
    Told,
    Killed,
}

/// Follows every key through the records. Returns how many lives there were, and how many of them were never told.
fn lives(records: &[TraceRecord]) -> (u64, u64) {
    let (mut alive, mut begun, mut untold) = (HashMap::new(), 0, 0);
    for record in records {
        let key = record.handle;
        let now = alive.get(&key).copied();
        let next = match record.point {
            TracePoint::MrRegister { told } => {
                assert_eq!(now, None, "{record:?}: its last life has not ended");
                begun += 1;
                untold += u64::from(!told);
                if told { Life::Told } else { Life::Registered }
            }
            TracePoint::KeyTold => {
                assert_eq!(now, Some(Life::Registered), "{record:?}");
                untold -= 1;
                Life::Told
            }
            TracePoint::MrLocalInvalidate | TracePoint::KeyDoomed => {
                assert!(now.is_some(), "{record:?}: what is killed lives");
                Life::Killed
            }
            TracePoint::MrRemoteInvalidate => {
                assert_eq!(now, Some(Life::Told), "{record:?}");
                alive.remove(&key);
                continue;
            }
            TracePoint::LocalInvalidateDone | TracePoint::KeyDestroyed | TracePoint::KeyOrphaned => {
                assert_eq!(now, Some(Life::Killed), "{record:?}");
                alive.remove(&key);
                continue;
            }
            _ => continue,
        };
        assert!(record.length > 0 && record.access.is_some() && record.mr != u32::MAX, "{record:?}");
        alive.insert(key, next);
    }
    assert_eq!(alive, HashMap::new(), "all of them ended");
    (begun, untold)
}

/// Requests of every kind, some under way when the connection ends.
fn work(test: &mut Scripted) {
    for cookie in 0..12 {
        test.submit(cookie, cookie % 4, cookie % 2 == 0);
        let (name, grants) = test.command();
        let invalidated = grants.first().filter(|_| cookie % 2 == 0).map(|grant| grant.key);
        test.reply(name, invalidated);
        test.until("ended", |pair| pair.host.ended.len() as u64 == cookie + 1);
    }
    test.submit(100, 3, false);
    test.command();
    test.submit(101, 1, true);
    test.command();
}

#[test]
fn s123_every_key_has_one_life_after_the_other_under_every_policy() {
    for profile in PROFILES {
        for return_policy in [ReturnPolicy::OnInvalidateCompleted, ReturnPolicy::OnInvalidatePosted] {
            for write_pad in [false, true] {
                let setup = Setup::new(profile).host(|host| {
                    (host.return_policy, host.write_pad, host.registrations) = (return_policy, write_pad, 4);
                });
                let (mut test, mut receiver) = connected(setup);
                work(&mut test);
                let connection = test.host.connection.unwrap();
                test.host.engine.disconnect(connection);
                test.until_gone();
                let statistics = test.host.engine.statistics();
                let records = take(&mut receiver);
                let (begun, untold) = lives(&records);
                assert_eq!((begun, untold), (statistics.registrations, 0), "{profile} {return_policy:?} {write_pad}");
                assert_eq!(statistics.trace_records_dropped, 0);
                // Killed in three ways.
                let found = points(&records);
                for point in [TracePoint::MrLocalInvalidate, TracePoint::MrRemoteInvalidate, TracePoint::KeyDoomed] {
                    assert!(found.contains(&point), "{profile}: {point:?}");
                }
                assert!(found.contains(&TracePoint::KeyDestroyed));
            }
        }
    }
}

#[test]
fn u02_a_key_without_a_message_is_told_when_its_caller_has_it() {
    let (mut test, mut receiver) = connected(Setup::new("window"));
    take(&mut receiver);
    let host = &mut test.pair.host;
    let segment = host.segment(0, 512);
    let chunk = frwr_engine::Chunk { access: Access::RemoteWrite, segments: &[segment] };
    let connection = host.connection.unwrap();
    let request = host.engine.register_now(connection, &chunk, 1, &mut host.protocol).unwrap();
    test.until("registered", |pair| pair.host.grants.len() == 1);
    let found = points(&take(&mut receiver));
    assert!(found.contains(&TracePoint::MrRegister { told: false }), "no message: {found:?}");
    assert_eq!(found.last(), Some(&TracePoint::KeyTold), "behind its completion: {found:?}");
    test.host.engine.cancel(request).unwrap();
    test.until("ended", |pair| pair.host.ended.len() == 1);
    let found = points(&take(&mut receiver));
    assert!(found.contains(&TracePoint::LocalInvalidateDone), "{found:?}");
}

#[test]
fn what_a_peer_does_with_a_key_is_told_by_the_peers_own_trace() {
    let setup = Setup::new("window").target(|target| target.trace_records = 1 << 10);
    let mut test = Scripted::of(setup);
    let mut receiver = test.target.engine.trace().unwrap();
    test.connect();
    test.submit(1, 1, true);
    let (name, grants) = test.command();
    test.target.answer(name, &grants, Some(grants[0].key));
    test.until("ended", |pair| pair.host.ended.len() == 1);
    let used: Vec<_> = take(&mut receiver)
        .into_iter()
        .filter(|record| record.handle == grants[0].key)
        .map(|record| (record.point, record.length))
        .collect();
    assert_eq!(used, [(TracePoint::PeerKeyWritten, 512), (TracePoint::PeerKeyInvalidated, 0)]);
    test.target_fetches();
    test.steps(5);
    let read = take(&mut receiver).into_iter().find(|record| record.point == TracePoint::PeerKeyRead);
    assert_eq!(read.map(|record| record.length), Some(512));
}

#[test]
fn s124_failed_work_requests_carry_status_and_vendor_code_into_record_and_cause() {
    for (kind, status) in
        [(TokenKind::Register, FailureStatus::Bind), (TokenKind::Invalidate, FailureStatus::Other(77))]
    {
        let (mut test, mut receiver) = connected(Setup::new("window"));
        let failure = Failure::new(status, 0x1234_5678);
        test.faults.on_completions(CompletionFilter::kind(kind), CompletionFault::Fail(failure), 1);
        let connection = test.host.connection.unwrap();
        // A registration has a completion of its own where it fails, or has no message.
        if kind == TokenKind::Register {
            let host = &mut test.pair.host;
            let chunk = frwr_engine::Chunk { access: Access::RemoteRead, segments: &[host.segment(0, 512)] };
            host.engine.register_now(connection, &chunk, 1, &mut host.protocol).unwrap();
        } else {
            test.submit(1, 1, false);
            let (name, _) = test.command();
            test.reply(name, None);
        }
        test.until_gone();
        let records = take(&mut receiver);
        let failed = match kind {
            TokenKind::Register => TracePoint::RegisterFailed(failure),
            _ => TracePoint::LocalInvalidateFailed(failure),
        };
        let record = records.iter().find(|record| record.point == failed).expect("a record");
        assert!(record.handle != 0 && record.length == 512, "{record:?}: with its key");
        let cause = DisconnectCause::WorkRequest(failure);
        assert_eq!(test.host.causes, [cause]);
        assert!(points(&records).contains(&TracePoint::Disconnect(cause)));
        lives(&records);
    }
}

#[test]
fn the_software_nic_names_each_cause_by_a_vendor_code() {
    let (mut test, _receiver) = connected(Setup::new("window"));
    test.submit(1, 1, false);
    let (name, grants) = test.command();
    let mut grant = grants[0];
    grant.key ^= 1 << 9;
    test.target.answer(name, &[grant], None);
    test.until_gone();
    let told = test.target.causes.clone();
    let expected = Failure::new(FailureStatus::RemoteAccess, vendor_code::WRITE_REFUSED);
    assert_eq!(told, [DisconnectCause::WorkRequest(expected)]);
    assert_eq!(
        told[0].to_string(),
        "a work request failed: remote access error (status 10, vendor 0x61)",
        "what programs print"
    );
}

#[test]
fn s24_a_request_that_finds_too_few_mrs_leaves_a_record() {
    let setup = Setup::new("reg_mr").device(|soft| soft.capabilities.attributes.max_registrations = 2);
    let (mut test, mut receiver) = connected(setup);
    test.submit(1, 2, false);
    test.submit(2, 1, false);
    let records = take(&mut receiver);
    let lacking: Vec<_> = records.iter().filter(|record| record.point == TracePoint::NoMrs).collect();
    assert_eq!(lacking.first().map(|record| (record.length, record.mr)), Some((1, u32::MAX)), "of one MR");
}

#[test]
fn s93_every_pad_that_was_not_made_is_counted_with_its_reason() {
    let padded = || Setup::new("reg_mr").host(|host| host.write_pad = true);
    let (mut test, mut receiver) = traced(padded().device(|soft| soft.capabilities.attributes.max_registrations = 0));
    test.connect();
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.pads_failed, statistics.pad_failure), (1, Some(PadFailure::NoMr)));
    assert!(points(&take(&mut receiver)).contains(&TracePoint::PadFailed(PadFailure::NoMr)));

    let setup = padded().host(|host| host.on_post_error = OnPostError::DeregisterAndContinue);
    let queue_pair = connected(padded()).0.queue_pair();
    let (mut test, mut receiver) = traced(setup);
    test.faults.refuse_post(queue_pair, 0, PostRefusal::QueueFull);
    test.connect();
    let error = PostError::new(0, PostRefusal::QueueFull);
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.pads_failed, statistics.pad_failure), (1, Some(PadFailure::PostRefused(error))));
    assert_eq!((statistics.posts_refused, statistics.post_error), (1, Some(error)));
    let found = points(&take(&mut receiver));
    assert!(found.contains(&TracePoint::PostSendRefused(error)));
    assert!(found.contains(&TracePoint::PadFailed(PadFailure::PostRefused(error))));
    assert!(!found.iter().any(is_registered), "its key never reached the device");
}

#[test]
fn s20_s105_a_device_that_keeps_an_object_is_traced_and_counted_with_what_it_said() {
    let (mut test, mut receiver) = connected(Setup::new("reg_mr").host(|host| host.write_pad = true));
    let error = CommandError::Busy(Errno(22));
    test.faults.fail_command(CommandKind::FreeRegistration, error, 1000);
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.until("gone", |pair| pair.host.disconnected == 1);
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.deregistration_error, statistics.mrs_orphaned), (Some(error), 33));
    assert!(statistics.deregistrations_failed >= 64, "each is tried again: {}", statistics.deregistrations_failed);
    let records = take(&mut receiver);
    let found = points(&records);
    assert!(found.contains(&TracePoint::MrDestroyFailed(error)));
    assert_eq!(found.iter().filter(|point| **point == TracePoint::KeyOrphaned).count(), 1, "the pad was open");
    lives(&records);
}

#[test]
fn refused_receives_are_traced() {
    let (mut test, mut receiver) = connected(Setup::new("reg_mr"));
    let queue_pair = test.queue_pair();
    test.submit(1, 1, true);
    let (name, grants) = test.command();
    test.faults.refuse_receives(queue_pair, 0, PostRefusal::NotReady);
    test.reply(name, Some(grants[0].key));
    test.until_gone();
    let error = PostError::new(0, PostRefusal::NotReady);
    assert!(points(&take(&mut receiver)).contains(&TracePoint::PostReceivesRefused(error)));
    assert_eq!(test.host.causes, [DisconnectCause::PostRefused(error)]);
}

#[test]
fn a_marker_that_is_refused_is_counted_with_its_reason() {
    let (mut test, mut receiver) = connected(Setup::new("reg_mr"));
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    let queue_pair = test.host.engine.queue_pair(connection).unwrap();
    test.faults.refuse_post(queue_pair, 0, PostRefusal::DeviceGone);
    test.until_gone();
    let error = PostError::new(0, PostRefusal::DeviceGone);
    assert_eq!(test.host.engine.statistics().post_error, Some(error));
    assert!(points(&take(&mut receiver)).contains(&TracePoint::PostSendRefused(error)));
}

/// Ends of keys in the records, each with what it opened.
fn ends(records: &[TraceRecord]) -> Vec<&TraceRecord> {
    let is_end = |record: &&TraceRecord| {
        use TracePoint::{KeyDestroyed, LocalInvalidateDone, MrRemoteInvalidate};
        matches!(record.point, LocalInvalidateDone | MrRemoteInvalidate | KeyDestroyed)
    };
    records.iter().filter(is_end).collect()
}

/// Begins a trace of an engine that works.
fn begin(test: &mut Scripted) -> Receiver<TraceRecord> {
    let (sender, receiver) = frwr_mempool::lane::bounded(1 << 10);
    test.host.engine.trace_to(sender);
    receiver
}

#[test]
fn a_trace_begins_and_ends_while_keys_live_and_tells_the_end_of_each_with_what_it_opened() {
    for profile in PROFILES {
        for write_pad in [false, true] {
            let mut test = Scripted::of(Setup::new(profile).host(|host| host.write_pad = write_pad));
            test.connect();
            test.submit(0, 2, false);
            let (first, _) = test.command();
            let alive = test.host.engine.statistics().keys_live();
            assert_eq!(alive, 2 + u64::from(write_pad), "{profile}: told to the peer");
            // Not flushed yet, so that its key's life is one of the trace.
            test.submit(1, 1, true);
            let mut receiver = begin(&mut test);
            let (second, grants) = test.command();
            test.reply(first, None);
            test.reply(second, Some(grants[0].key));
            test.until("ended", |pair| pair.host.ended.len() == 2);
            let records = take(&mut receiver);
            let begun = points(&records).into_iter().filter(is_registered).count();
            let found = ends(&records);
            assert_eq!((begun, found.len()), (1, 3), "{profile} {write_pad}: {records:#?}");
            assert!(found.iter().all(|end| end.length == 512 && end.access == Some(Access::RemoteWrite)), "{found:#?}");

            assert!(test.host.engine.end_trace().is_some() && test.host.engine.end_trace().is_none());
            test.submit(2, 2, false);
            let (name, _) = test.command();
            assert_eq!((take(&mut receiver).len(), receiver.is_closed()), (0, true), "nothing is told any more");
            let mut receiver = begin(&mut test);
            test.reply(name, None);
            test.until("ended", |pair| pair.host.ended.len() == 3);
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.until_gone();
            let records = take(&mut receiver);
            assert_eq!(ends(&records).len(), 2 + usize::from(write_pad), "{profile} {write_pad}: {records:#?}");
            let statistics = test.host.engine.statistics();
            assert_eq!((statistics.keys_live(), statistics.trace_records_dropped), (0, 0));
        }
    }
}

/// Under the early return two keys of one MR may live: both end, and the second with what it opened.
#[test]
fn a_trace_that_begins_while_an_mr_has_two_keys_tells_both_ends() {
    let setup = Setup::new("reg_mr").host(|host| {
        (host.return_policy, host.registrations) = (ReturnPolicy::OnInvalidatePosted, 1);
    });
    let mut test = Scripted::of(setup);
    test.connect();
    test.hold(TokenKind::Invalidate);
    test.submit(0, 1, false);
    let (name, first) = test.command();
    test.reply(name, None);
    test.steps(5);
    test.submit(1, 1, false);
    let (_, second) = test.command();
    assert_eq!(test.host.engine.statistics().keys_live(), 2);
    let mut receiver = begin(&mut test);
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.until_gone();
    let records = take(&mut receiver);
    let told: Vec<_> = ends(&records).iter().map(|end| (end.handle, end.length)).collect();
    assert_eq!(told, [(first[0].key, 0), (second[0].key, 512)], "{records:#?}");
}

#[test]
fn a_trace_whose_receiver_is_gone_ends_by_itself() {
    let mut test = Scripted::of(Setup::new("reg_mr"));
    test.connect();
    let (sender, receiver) = frwr_mempool::lane::bounded(4);
    test.host.engine.trace_to(sender);
    drop(receiver);
    for cookie in 0..4 {
        test.submit(cookie, 1, false);
        let (name, _) = test.command();
        test.reply(name, None);
        test.until("ended", |pair| pair.host.ended.len() as u64 == cookie + 1);
    }
    assert!(test.host.engine.end_trace().is_none());
    assert_eq!(test.host.engine.statistics().trace_records_dropped, 0, "nobody missed them");
}
