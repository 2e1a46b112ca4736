//! Section 1.M: memory opened without a message, step by step as the OFED paper has it.

use frwr_engine::{
    CancelError, Chunk, DisconnectCause, EngineOptions, FetchRequest, OnPostError, RemoteSegment, RequestHandle,
    SubmitError, TransferError, WriteRequest,
    gather::Segment,
    mr::Grant,
    provider::{Access, Completion, CompletionQueue, FailureStatus, RemoteRange, TokenKind, record::RecordedOperation},
};
use frwr_support::engine_harness::{self, PROFILES, Setup, scripted::*};

fn open(test: &mut Scripted, cookie: u64, access: Access, segments: &[Segment]) -> Result<RequestHandle, SubmitError> {
    let host = &mut test.pair.host;
    let connection = host.connection.unwrap();
    let chunk = Chunk { access, segments };
    let handle = host.engine.register_now(connection, &chunk, cookie, &mut host.protocol)?;
    host.outstanding.insert(cookie, segments.iter().map(|segment| u64::from(segment.length)).sum());
    Ok(handle)
}

fn opened(test: &mut Scripted, cookie: u64, access: Access, segment: Segment) -> (RequestHandle, Grant) {
    let count = test.host.grants.len();
    open(test, cookie, access, &[segment]).unwrap();
    test.until("registered", |pair| pair.host.grants.len() > count);
    *test.host.grants.last().unwrap()
}

/// The target reads under a grant; true if it got the data, false if it was refused and the connection is gone.
fn reads(test: &mut Scripted, grant: Grant) -> bool {
    let target = &mut test.pair.target;
    let remote = RemoteSegment { remote: RemoteRange { address: grant.address, key: grant.key }, length: grant.length };
    let local = target.segment(262_144, grant.length);
    let request = FetchRequest { local: &[local], remote: &[remote], cookie: 5 };
    target.engine.fetch(target.connection.unwrap(), &request).unwrap();
    let before = target.fetched;
    test.until("fetched", |pair| pair.target.fetched > before);
    test.target.events.iter().rev().find(|event| event.contains("Fetched")).unwrap().contains("Done")
}

#[test]
fn s131_i27_nothing_is_registered_before_both_sides_are_connected() {
    let mut test = Scripted::unconnected("reg_mr", EngineOptions::default());
    let options = frwr_engine::ConnectionOptions::default();
    let connection = test.pair.host.engine.connect(engine_harness::address(), b"", &options).unwrap();
    test.host.connection = Some(connection);
    let segment = test.host.segment(0, 64);
    while !test.host.is_ready() {
        assert_eq!(open(&mut test, 1, Access::RemoteRead, &[segment]), Err(SubmitError::NotConnected));
        test.steps(1);
    }
    opened(&mut test, 1, Access::RemoteRead, segment);
}

#[test]
fn s126_s127_s129_s130_s132_the_work_request_field_by_field() {
    let mut test = Scripted::new("reg_mr");
    // 4096 bytes at offset 16 of a page touch two pages (S130).
    let segment = test.host.segment(8192 + 16, 4096);
    let (_, grant) = opened(&mut test, 1, Access::RemoteReadWrite, segment);
    let posted = test.posted();
    assert_eq!(posted.len(), 1, "alone, without a SEND");
    assert!(posted[0].signalled);
    assert_eq!((posted[0].token.kind(), posted[0].length), (TokenKind::Register, 4096));
    let RecordedOperation::Register { key, access, iova, elements, .. } = posted[0].operation else { panic!() };
    assert_eq!((key, access, iova, elements), (grant.key, Access::RemoteReadWrite, grant.address, 1));
    assert_eq!(grant.length, 4096);
    assert_eq!(grant.address % 4096, 16, "the unmasked address");
    // All of it is reachable, its last byte too.
    let pattern: Vec<u8> = (0..4096u32).map(|at| at as u8 ^ 0x5A).collect();
    test.host.data.write(8192 + 16, &pattern).unwrap();
    assert!(reads(&mut test, grant));
    let mut read = vec![0; 4096];
    test.target.data.read(262_144, &mut read).unwrap();
    assert_eq!(read, pattern, "S134");
}

/// Opens 512 bytes for each cookie, all in front of the next flush.
fn open_all(test: &mut Scripted, cookies: core::ops::RangeInclusive<u64>) -> Vec<RequestHandle> {
    let open = |cookie| {
        let segment = test.host.segment(4096 * cookie, 512);
        open(test, cookie, Access::RemoteRead, &[segment]).unwrap()
    };
    cookies.map(open).collect()
}

/// A12: one completion tells of all registrations of a chain. Where a refused post may cut it, each completes.
#[test]
fn s133_registrations_of_one_flush_share_a_completion() {
    for profile in PROFILES {
        for (policy, expected) in
            [(OnPostError::Disconnect, ["RRRR*"]), (OnPostError::DeregisterAndContinue, ["R*R*R*R*"])]
        {
            let mut test = Scripted::policy(profile, policy);
            let before = test.host.engine.statistics();
            let handles = open_all(&mut test, 1..=4);
            test.until("registered", |pair| pair.host.grants.len() == 4);
            assert_eq!(test.chains(), expected, "{profile} {policy:?}");
            let after = test.host.engine.statistics();
            let completions = expected[0].matches('*').count() as u64;
            assert_eq!(after.send_completions - before.send_completions, completions, "{profile} {policy:?}");
            assert_eq!(after.doorbells - before.doorbells, 1);
            let granted: Vec<RequestHandle> = test.host.grants.iter().map(|(handle, _)| *handle).collect();
            assert_eq!(granted, handles, "in the order in which they were asked for");
            for (_, grant) in test.host.grants.clone() {
                assert!(reads(&mut test, grant));
            }
        }
    }
}

/// The last one asks although a request's message stands behind it, whose own completion may never be asked for.
#[test]
fn s133_the_last_registration_without_a_message_asks() {
    let mut test = Scripted::new("reg_mr");
    open_all(&mut test, 1..=2);
    test.submit(3, 1, true);
    open_all(&mut test, 4..=4);
    test.submit(5, 1, true);
    test.until("registered", |pair| pair.host.grants.len() == 3);
    assert_eq!(test.chains(), ["RRRSR*RS"]);
}

/// What is cancelled before the flush takes no completion along that others count on.
#[test]
fn s75_a_registration_that_is_taken_back_leaves_the_completion_to_those_in_front() {
    let mut test = Scripted::new("reg_mr");
    let handles = open_all(&mut test, 1..=3);
    test.host.engine.cancel(handles[2]).unwrap();
    test.until("registered", |pair| pair.host.grants.len() == 2);
    assert_eq!((test.chains(), test.status(3)), (vec!["RR*".to_owned()], Some("cancelled")));
    // All of them: nothing is posted, and nothing is owed.
    for handle in open_all(&mut test, 4..=5) {
        test.host.engine.cancel(handle).unwrap();
    }
    test.steps(10);
    assert_eq!((test.chains(), test.host.grants.len()), (vec![], 2));
    open_all(&mut test, 6..=6);
    test.until("registered", |pair| pair.host.grants.len() == 3);
}

/// S139: a failure vouches for none of a chain, wherever in it it stands.
#[test]
fn s139_a_failure_among_registrations_of_one_flush_grants_none() {
    for failing in 0..3 {
        let mut test = Scripted::new("reg_mr");
        test.hold(TokenKind::Register);
        open_all(&mut test, 1..=3);
        test.steps(20);
        let posted = test.posted();
        let (token, queue_pair) = (posted[failing].token, test.queue_pair());
        let result = Err(FailureStatus::Bind.into());
        test.inject(CompletionQueue::Send, Completion { token, queue_pair, result });
        test.steps(5);
        test.faults.clear();
        test.faults.release();
        test.until_gone();
        assert!(
            test.host.grants.is_empty(),
            "nothing vouches for those in front of a failure, nor for those behind it"
        );
        assert_eq!([1, 2, 3].map(|cookie| test.status(cookie)), [Some("lost"); 3]);
        assert_eq!(test.host.causes, [DisconnectCause::WorkRequest(FailureStatus::Bind.into())]);
        assert_eq!(test.open_bytes(), 0);
        test.reconnect_works();
    }
}

/// A18: one completion tells of all RDMA WRITEs of a chain, and a failure of any of them of none.
#[test]
fn writes_of_one_flush_share_a_completion() {
    for fails in [false, true] {
        let mut test = Scripted::new("reg_mr");
        let segment = test.host.segment(8192, 4096);
        let (_, grant) = opened(&mut test, 1, Access::RemoteReadWrite, segment);
        let pattern: Vec<u8> = (0..4096u32).map(|at| at as u8 ^ 0x5A).collect();
        let target = &mut test.pair.target;
        target.data.write(262_144, &pattern).unwrap();
        let before = target.engine.statistics();
        for part in 0..4 {
            // The last one goes beyond what was granted.
            let beyond = if fails && part == 3 { 1 } else { 0 };
            let remote = RemoteRange { address: grant.address + 1024 * part + beyond, key: grant.key };
            let local = target.segment(262_144 + 1024 * part, 1024);
            let remote = [RemoteSegment { remote, length: 1024 }];
            let request = WriteRequest { local: &[local], remote: &remote, cookie: part };
            target.engine.write(target.connection.unwrap(), &request).unwrap();
        }
        let told = |events: &[String], how: &str| {
            events.iter().filter(|event| event.contains("Written") && event.contains(how)).count()
        };
        let how = if fails { "Lost" } else { "Done" };
        test.until("written", |pair| told(&pair.target.events, how) == 4);
        let after = test.target.engine.statistics();
        assert_eq!((after.doorbells - before.doorbells, after.work_requests - before.work_requests), (1, 4));
        if !fails {
            assert_eq!(after.send_completions - before.send_completions, 1);
            let mut read = vec![0; 4096];
            test.host.data.read(8192, &mut read).unwrap();
            assert_eq!(read, pattern);
        }
    }
}

/// As many as there are slots for, which is more than the send queue of one connection takes: the rest waits, and is posted without
/// anybody asking.
#[test]
fn writes_and_fetches_beyond_the_send_queue_wait_and_are_done() {
    const EACH: u32 = 64;
    for writes in [true, false] {
        let mut test = Scripted::of(Setup::new("reg_mr").target(|target| target.connections = 8));
        test.connect();
        let segment = test.host.segment(8192, EACH);
        let (_, grant) = opened(&mut test, 1, Access::RemoteReadWrite, segment);
        let target = &mut test.pair.target;
        let (local, connection) = (target.segment(262_144, EACH), target.connection.unwrap());
        let before = target.engine.statistics();
        let remote = [RemoteSegment { remote: RemoteRange { address: grant.address, key: grant.key }, length: EACH }];
        let mut begun = 0;
        loop {
            let begins = if writes {
                target.engine.write(connection, &WriteRequest { local: &[local], remote: &remote, cookie: begun })
            } else {
                target.engine.fetch(connection, &FetchRequest { local: &[local], remote: &remote, cookie: begun })
            };
            match begins {
                Ok(()) => begun += 1,
                Err(error) => break assert_eq!(error, TransferError::NoSlot),
            }
        }
        let admitted = target.engine.statistics().transfers - before.transfers;
        assert!(admitted < begun, "{admitted} of {begun} found room at once: some have to wait in this test");
        let kind = if writes { "Written" } else { "Fetched" };
        let done = |event: &&String| event.contains(kind) && event.contains("Done");
        test.until("done", |pair| pair.target.events.iter().filter(done).count() as u64 == begun);
    }
}

#[test]
fn s133_s139_the_grant_comes_with_the_completion_and_never_with_a_failure() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        let segment = test.host.segment(4096, 512);
        test.hold(TokenKind::Register);
        open(&mut test, 1, Access::RemoteRead, &[segment]).unwrap();
        test.steps(100);
        assert!(test.host.grants.is_empty(), "{profile}: not before its completion");
        test.faults.release();
        test.until("registered", |pair| pair.host.grants.len() == 1);
        test.fail(TokenKind::Register, FailureStatus::Bind);
        open(&mut test, 2, Access::RemoteRead, &[segment]).unwrap();
        test.until_gone();
        assert_eq!(test.host.grants.len(), 1, "no grant for a failed registration");
        assert_eq!(test.host.causes, [DisconnectCause::WorkRequest(FailureStatus::Bind.into())]);
        assert_eq!((test.status(1), test.status(2)), (Some("lost"), Some("lost")));
        test.reconnect_works();
        // A disconnect while waiting is no success either.
        test.hold(TokenKind::Register);
        let segment = test.host.segment(8192, 512);
        open(&mut test, 3, Access::RemoteRead, &[segment]).unwrap();
        test.steps(5);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.faults.clear();
        test.steps(50);
        test.faults.release();
        test.pass(core::time::Duration::from_secs(6));
        test.until_gone();
        assert_eq!((test.host.grants.len(), test.status(3)), (1, Some("lost")), "{profile}");
    }
}

#[test]
fn s134_s138_the_peer_has_the_right_it_was_given_and_no_other() {
    for profile in PROFILES {
        for (access, may_read) in
            [(Access::RemoteRead, true), (Access::RemoteWrite, false), (Access::RemoteReadWrite, true)]
        {
            let mut test = Scripted::new(profile);
            let segment = test.host.segment(4096, 512);
            let (handle, grant) = opened(&mut test, 1, access, segment);
            assert_eq!(reads(&mut test, grant), may_read, "{profile} {access:?}");
            if may_read {
                test.host.engine.cancel(handle).unwrap();
                test.until("closed", |pair| pair.host.ended.len() == 1);
                assert_eq!(test.open_bytes(), 0);
                assert!(!reads(&mut test, grant), "{profile}: the key is dead");
            }
            test.until_gone();
            test.reconnect_works();
        }
    }
}

#[test]
fn s135_s139_each_error_point_leaves_nothing() {
    for profile in PROFILES {
        for accepted in 0..2 {
            for policy in [OnPostError::Disconnect, OnPostError::DeregisterAndContinue] {
                let mut test = Scripted::policy(profile, policy);
                let before = test.descriptors();
                let segment = test.host.segment(4096, 512);
                test.refuse(accepted);
                open(&mut test, 1, Access::RemoteRead, &[segment]).unwrap();
                test.until("ended", |pair| pair.host.ended.len() + pair.host.grants.len() > 0);
                if policy == OnPostError::Disconnect {
                    test.until_gone();
                    assert_eq!(test.status(1), Some("lost"));
                    test.reconnect_works();
                } else if test.host.grants.is_empty() {
                    assert_eq!(test.status(1), Some("refused"));
                    assert_eq!((test.descriptors(), test.open_bytes()), (before, 0), "{profile}");
                    test.round_trip(2);
                }
            }
        }
        let mut test = Scripted::new(profile);
        let outside = test.host.segment(1 << 20, 1);
        assert!(matches!(open(&mut test, 1, Access::RemoteRead, &[outside]), Err(SubmitError::Segment(_))));
        assert_eq!(test.host.engine.statistics().request_slots_used, 0);
    }
}

#[test]
fn s136_the_same_mr_is_registered_again_under_the_next_key() {
    for profile in PROFILES {
        let mut test = Scripted::with(profile, EngineOptions::default().registrations(1));
        let segment = test.host.segment(4096, 512);
        let (handle, first) = opened(&mut test, 1, Access::RemoteRead, segment);
        // The second waits for the MR.
        open(&mut test, 2, Access::RemoteRead, &[segment]).unwrap();
        test.steps(20);
        assert_eq!(test.host.grants.len(), 1);
        test.host.engine.cancel(handle).unwrap();
        test.until("the second", |pair| pair.host.grants.len() == 2);
        assert_eq!(test.host.ended, [(1, "cancelled")]);
        let (_, second) = test.host.grants[1];
        assert_eq!(test.chains(), ["R*", "L*", "R*"], "{profile}");
        let step = u32::from(profile != "umr:fixed-key");
        assert_eq!(second.key, (first.key & !0xFF) | (first.key.wrapping_add(step) & 0xFF));
        assert!(reads(&mut test, second));
        if step == 1 {
            assert!(!reads(&mut test, first), "{profile}: the old key is refused");
        }
    }
}

/// A caller that takes no events meanwhile: the MR of the first one is that of the second by the time that the first is told.
#[test]
fn a_grant_that_is_told_late_is_never_another_requests() {
    for profile in PROFILES {
        let mut test = Scripted::with(profile, EngineOptions::default().registrations(1));
        let go_on = |test: &mut Scripted| {
            for _ in 0..50 {
                let (now, host) = (test.pair.now, &mut test.pair.host);
                host.engine.poll(now, &mut host.protocol);
                host.engine.flush();
                host.control.poll();
                test.pair.target.step(now);
                test.pair.target.control.poll();
            }
        };
        let segments = [test.host.segment(0, 4096), test.host.segment(8192, 512)];
        let first = open(&mut test, 1, Access::RemoteRead, &segments[..1]).unwrap();
        go_on(&mut test);
        test.host.engine.cancel(first).unwrap();
        go_on(&mut test);
        let second = open(&mut test, 2, Access::RemoteReadWrite, &segments[1..]).unwrap();
        go_on(&mut test);
        test.until("told", |pair| !pair.host.grants.is_empty() && !pair.host.ended.is_empty());
        let granted: Vec<_> = test.host.grants.iter().map(|(request, grant)| (*request, grant.length)).collect();
        assert_eq!((granted, &test.host.ended[..]), (vec![(second, 512)], &[(1, "cancelled")][..]), "{profile}");
    }
}

#[test]
fn s137_memory_that_one_mr_cannot_cover_is_refused() {
    let mut test = Scripted::new("reg_mr");
    let scattered = [test.host.segment(16, 64), test.host.segment(8192 + 16, 64)];
    assert_eq!(open(&mut test, 1, Access::RemoteRead, &scattered), Err(SubmitError::TooManyRegistrations));
    // Full pages in a row of page-aligned pieces are one list.
    let pages = [test.host.segment(0, 4096), test.host.segment(16384, 4096)];
    open(&mut test, 2, Access::RemoteRead, &pages).unwrap();
    test.until("registered", |pair| pair.host.grants.len() == 1);
    assert_eq!(test.host.grants[0].1.length, 8192);
    assert!(open(&mut test, 3, Access::RemoteRead, &[]).is_err());
}

#[test]
fn s136_s75_fault35_closing_at_every_instant_ends_once() {
    for profile in PROFILES {
        for steps in 0..8 {
            let mut test = Scripted::new(profile);
            let segment = test.host.segment(4096, 512);
            let handle = open(&mut test, 1, Access::RemoteWrite, &[segment]).unwrap();
            test.steps(steps);
            test.host.engine.cancel(handle).unwrap();
            assert_eq!(test.host.engine.cancel(handle), Err(CancelError::Ended));
            test.until("ended", |pair| pair.host.ended.len() == 1);
            assert_eq!((test.status(1), test.open_bytes()), (Some("cancelled"), 0), "{profile} {steps}");
            test.steps(10);
            assert!(test.host.grants.len() <= 1);
            test.round_trip(2);
        }
    }
}
