//! Section 1.L: counters and trace points as an outsider sees them.

use frwr_engine::{
    DisconnectCause, EngineOptions, OnPostError, TracePoint, TraceRecord,
    provider::{Access, CommandError, Errno, FailureStatus, PostError, PostRefusal, TokenKind, fault::CommandKind},
};
use frwr_mempool::lane::Receiver;
use frwr_support::engine_harness::{PROFILES, Setup, scripted::*};

fn traced(profile: &str, records: usize) -> (Scripted, Receiver<TraceRecord>) {
    let setup = Setup::new(profile).host(|host| host.trace_records = records);
    let mut test = Scripted::of(setup);
    let receiver = test.host.engine.trace().unwrap();
    test.connect();
    (test, receiver)
}

fn take(receiver: &mut Receiver<TraceRecord>) -> Vec<TraceRecord> {
    core::iter::from_fn(|| receiver.pop()).collect()
}

#[test]
fn s119_s121_mrs_chains_and_bytes_are_counted_one_by_one() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 3, false);
        let (name, _) = test.command();
        test.reply(name, None);
        test.until("ended", |pair| pair.host.ended.len() == 1);
        let segment = test.host.segment(4096, 4000);
        test.host.submit(2, Access::RemoteRead, &[segment], true).unwrap();
        let (name, grants) = test.command();
        test.reply(name, Some(grants[0].key));
        test.until("ended", |pair| pair.host.ended.len() == 2);
        let statistics = test.host.engine.statistics();
        assert_eq!((statistics.local_inv_needed, statistics.local_inv_chains), (3, 1), "{profile}");
        assert_eq!((statistics.bytes_registered_write, statistics.bytes_registered_read), (3 * 512, 4000));
        assert_eq!((statistics.registrations, statistics.remote_invalidations), (4, 1));
        assert_eq!((statistics.requests, statistics.requests_ended), (2, 2));
    }
}

#[test]
fn s121_a_megabyte_in_four_mrs_counts_its_own_bytes_once() {
    let mut test = Scripted::new("window");
    let segments: Vec<_> = (0..4).map(|at| test.host.segment(at * 262_144, 262_000)).collect();
    test.host.submit(1, Access::RemoteWrite, &segments, false).unwrap();
    test.command();
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.registrations, statistics.bytes_registered_write), (4, 4 * 262_000));
}

#[test]
fn s120_s122_mr_counters_and_the_others_grow_only() {
    let mut test = Scripted::policy("reg_mr", OnPostError::DeregisterAndContinue);
    assert_eq!(test.host.engine.statistics().mrs_allocated, 32);
    test.submit(1, 1, false);
    let (name, _) = test.command();
    test.refuse(0);
    test.reply(name, None);
    test.until("ended", |pair| pair.host.ended.len() == 1);
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.mrs_destroyed, statistics.keys_destroyed_live, statistics.posts_refused), (1, 1, 1));
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.until_gone();
    test.connect();
    let statistics = test.host.engine.statistics();
    assert_eq!(statistics.mrs_allocated, 64, "cumulative, also past a disconnect");
    assert_eq!((statistics.mrs_destroyed, statistics.connections, statistics.disconnects), (32, 2, 1));
    assert_eq!((statistics.failed_marshal_count, statistics.bad_reply_count), (0, 0));
}

#[test]
fn s123_s124_the_records_of_one_request_name_its_mr_in_every_step() {
    for profile in PROFILES {
        let (mut test, mut receiver) = traced(profile, 256);
        let created = take(&mut receiver);
        assert!(created.iter().any(|record| record.point == TracePoint::MrsCreated && record.length == 32));
        test.submit(1, 1, false);
        let (name, grants) = test.command();
        test.reply(name, None);
        test.until("ended", |pair| pair.host.ended.len() == 1);
        let records = take(&mut receiver);
        let points: Vec<_> = records.iter().map(|record| record.point).collect();
        use TracePoint::{LocalInvalidateDone, MrLocalInvalidate, MrRegister, PostSend};
        let begun = [MrRegister { told: true }, PostSend];
        assert_eq!(points[..2], begun, "{profile}");
        assert_eq!(points[2..], [MrLocalInvalidate, PostSend, LocalInvalidateDone], "{profile}");
        let of_mr: Vec<_> = records.iter().filter(|record| record.mr != u32::MAX).collect();
        assert_eq!(of_mr.len(), 3);
        for record in &of_mr {
            assert_eq!((record.mr, record.handle), (of_mr[0].mr, grants[0].key), "{profile} {record:?}");
        }
        for record in &of_mr {
            assert_eq!((record.length, record.offset), (512, grants[0].address));
            assert_eq!(record.access, Some(Access::RemoteWrite));
            assert_ne!(record.owner, u32::MAX);
        }
        test.submit(2, 1, true);
        let (name, grants) = test.command();
        test.reply(name, Some(grants[0].key));
        test.until("ended", |pair| pair.host.ended.len() == 2);
        let points: Vec<_> = take(&mut receiver).iter().map(|record| record.point).collect();
        assert_eq!(points, [begun[0], begun[1], TracePoint::MrRemoteInvalidate], "{profile}");
    }
}

#[test]
fn s117_s123_failures_are_recorded_with_their_status() {
    let (mut test, mut receiver) = traced("reg_mr", 1024);
    take(&mut receiver);
    test.host.protocol.refuse = true;
    let _ = test.try_submit(1, 1, false);
    test.host.protocol.refuse = false;
    let points: Vec<_> = take(&mut receiver).iter().map(|record| record.point).collect();
    assert_eq!(points, [TracePoint::MrMapped, TracePoint::MarshalFailed, TracePoint::MrReset]);
    test.submit(2, 1, false);
    let (name, _) = test.command();
    test.fail(TokenKind::Invalidate, FailureStatus::LocalProtection);
    test.reply(name, None);
    test.until_gone();
    let records = take(&mut receiver);
    let points: Vec<_> = records.iter().map(|record| record.point).collect();
    let failure = FailureStatus::LocalProtection.into();
    let ended = TracePoint::Disconnect(DisconnectCause::WorkRequest(failure));
    let failed = TracePoint::LocalInvalidateFailed(failure);
    let place = |point| points.iter().position(|other| *other == point).unwrap();
    assert!(place(failed) < place(ended));
    assert!(place(ended) < place(TracePoint::MrDestroyed), "S95");
    assert_eq!(points.iter().filter(|point| **point == TracePoint::MrDestroyed).count(), 32);
    assert_eq!(points.iter().filter(|point| **point == ended).count(), 1);
    let end = &records[place(ended)];
    assert_eq!((end.mr, end.handle, end.length, end.offset), (u32::MAX, 0, 0, 0), "it is of no MR");
    test.connect();
    take(&mut receiver);
    test.refuse(1);
    test.submit(3, 2, false);
    test.until_gone();
    let refused =
        take(&mut receiver).into_iter().find(|record| matches!(record.point, TracePoint::PostSendRefused(_))).unwrap();
    assert_eq!((refused.length, refused.mr), (1, u32::MAX), "one of three was taken");
    assert_eq!(refused.point, TracePoint::PostSendRefused(PostError::new(1, PostRefusal::Invalid)));
}

#[test]
fn s125_f10_a_failed_allocation_is_traced_without_the_object_it_never_had() {
    // Not one that the software would say.
    let error = CommandError::Exhausted(Errno(28));
    let setup = Setup::new("reg_mr").host(|host| host.trace_records = 256);
    let mut test = Scripted::of(setup);
    let mut receiver = test.host.engine.trace().unwrap();
    test.faults.fail_command(CommandKind::AllocateRegistration, error, 3);
    test.connect();
    let failed: Vec<_> = take(&mut receiver)
        .into_iter()
        .filter(|record| record.point == TracePoint::MrAllocationFailed(error))
        .collect();
    assert_eq!(failed.len(), 3);
    assert!(failed.iter().all(|record| (record.mr, record.owner, record.handle) == (u32::MAX, u32::MAX, 0)));
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.mr_allocations_failed, statistics.mr_allocation_error), (3, Some(error)));
    assert_eq!(test.host.control.statistics().command_error, Some(error));
    test.round_trip(1);
}

#[test]
fn s123_a_full_trace_drops_records_and_counts_them() {
    let (mut test, mut receiver) = traced("reg_mr", 4);
    for cookie in 0..20 {
        test.round_trip(cookie);
    }
    assert_eq!(take(&mut receiver).len(), 4);
    assert!(test.host.engine.statistics().trace_records_dropped > 50);
    let mut quiet = Scripted::with("reg_mr", EngineOptions::default());
    assert!(quiet.host.engine.trace().is_none(), "off unless asked for");
}
