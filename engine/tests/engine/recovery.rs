//! Section 1.J: what happens to MRs, requests and connections when something fails.

use core::time::Duration;
use frwr_engine::{
    Chunk, DisconnectCause, EngineOptions, OnPostError, OpenError, ReturnPolicy, StalePolicy, SubmitError,
    mr::Grant,
    provider::{
        Access, AsyncEvent, CommandError, DeviceEvent, FailureStatus, Port, QueuePairId, TokenKind,
        fault::{CommandKind, CompletionFault, CompletionFilter},
        record::RecordedOperation,
    },
};
use frwr_support::engine_harness::{self, PROFILES, Setup, scripted::*};

/// One request in each phase that a request can be in: replied and held, fencing, posted, open, queued, waiting.
fn every_phase(test: &mut Scripted) {
    test.submit(1, 0, false);
    let (name, _) = test.command();
    test.reply(name, None);
    test.until("held", |pair| pair.host.ended.len() == 1);
    register(test, 2);
    test.until("open", |pair| pair.host.grants.len() == 1);
    test.hold(TokenKind::Invalidate);
    test.submit(3, 2, false);
    let (name, _) = test.command();
    test.reply(name, None);
    test.until("fencing", |pair| pair.host.engine.statistics().local_inv_needed == 2);
    test.submit(4, 2, true);
    test.until("posted", |pair| pair.target.commands.len() == 1);
    test.submit(5, 1, true);
    register(test, 6);
    for cookie in 10..44 {
        test.submit(cookie, 1, true);
    }
    assert!(test.host.engine.statistics().requests_waited > 0, "some wait for MRs");
}

fn register(test: &mut Scripted, cookie: u64) {
    let host = &mut test.pair.host;
    let segment = host.segment(524_288 + 4096 * cookie, 256);
    let chunk = Chunk { access: Access::RemoteRead, segments: &[segment] };
    host.engine.register_now(host.connection.unwrap(), &chunk, cookie, &mut host.protocol).unwrap();
    host.outstanding.insert(cookie, 256);
}

#[derive(Clone, Copy, Debug)]
enum End {
    Local,
    LocalTwice,
    Remote,
    QueuePairFatal,
    DeviceFatal,
    CompletionQueueOverrun,
    WorkRequest,
    Receive,
}

const ENDS: [End; 8] = [
    End::Local,
    End::LocalTwice,
    End::Remote,
    End::QueuePairFatal,
    End::DeviceFatal,
    End::CompletionQueueOverrun,
    End::WorkRequest,
    End::Receive,
];

fn end(test: &mut Scripted, how: End) {
    let connection = test.host.connection.unwrap();
    let queue_pair = test.queue_pair();
    let event = |event| DeviceEvent::Async(event);
    match how {
        End::Local => test.host.engine.disconnect(connection),
        End::LocalTwice => {
            test.host.engine.disconnect(connection);
            test.steps(2);
            test.host.engine.disconnect(connection);
        }
        End::Remote => {
            let connection = test.target.connection.unwrap();
            test.target.engine.disconnect(connection);
        }
        End::QueuePairFatal => test.faults.inject_event(event(AsyncEvent::QueuePairFatal(queue_pair))),
        End::DeviceFatal => test.faults.inject_event(event(AsyncEvent::DeviceFatal)),
        End::CompletionQueueOverrun => {
            let port = test.host.engine.port().id();
            test.faults.inject_event(event(AsyncEvent::CompletionQueueOverrun(port)));
        }
        End::WorkRequest => test.faults.fail_from_now(queue_pair, FailureStatus::RetryExceeded),
        End::Receive => {
            let (name, _) = test.target.take_command().unwrap();
            test.fail(TokenKind::Receive, FailureStatus::LocalLength);
            test.reply(name, None);
        }
    }
    test.faults.release();
}

#[test]
fn s94_s96_s97_fault31_fault32_fault34_fault37_every_end_with_a_request_in_every_phase() {
    for profile in PROFILES {
        for how in ENDS {
            let mut test = Scripted::new(profile);
            let all = test.descriptors().iter().sum();
            every_phase(&mut test);
            end(&mut test, how);
            test.until("gone", |pair| pair.host.engine.is_disconnected());
            assert!(test.host.outstanding.is_empty(), "{profile} {how:?}: {:?}", test.host.outstanding);
            assert_eq!((test.host.disconnected, test.open_bytes()), (1, 0), "{profile} {how:?}");
            assert_eq!(test.descriptors(), [0, 0, 0, all], "no MR outlives its connection (S94)");
            let last = test.host.events.last().unwrap();
            assert!(last.starts_with("Disconnected"), "{how:?} {last}: everything was reported before (S95)");
            test.until_gone();
            assert_eq!(test.monitor.stalled_destroys(), 0, "MRs go before their queue pair");
            test.reconnect_works();
            assert_eq!(test.control_failures(), 0, "{profile} {how:?}");
        }
    }
}

#[test]
fn s94_s110_fault32_a_thousand_connections_with_requests_in_every_phase() {
    let mut test = Scripted::new("rxe");
    for cycle in 0..1000u64 {
        for at in 0..4 {
            test.submit(cycle * 4 + at, at, at == 1);
        }
        let steps = cycle % 12;
        for _ in 0..steps {
            test.serve(cycle % 2 == 0);
            test.steps(1);
        }
        let by_host = cycle % 3 > 0;
        let side = if by_host { &mut test.pair.host } else { &mut test.pair.target };
        side.engine.disconnect(side.connection.unwrap());
        test.until_gone();
        test.host.events.clear();
        test.target.events.clear();
        test.watch.clear();
        test.connect();
    }
    assert_eq!(test.host.disconnected, 1000);
    assert_eq!(test.control_failures(), 0, "every object was destroyed, in the right order");
    assert_eq!(test.monitor.stalled_destroys(), 0);
    test.round_trip(1_000_000);
}

#[test]
fn s95_s109_a_connection_is_gone_only_when_its_last_flush_is_in() {
    let mut test = Scripted::new("window");
    test.submit(1, 2, false);
    let (name, _) = test.command();
    test.hold(TokenKind::Invalidate);
    test.hold(TokenKind::Drain);
    test.reply(name, None);
    test.steps(3);
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.steps(500);
    assert_eq!((test.host.disconnected, test.host.ended.len()), (0, 0));
    assert_eq!(test.submit_now(), Err(SubmitError::NotConnected), "I27");
    test.faults.release();
    test.until_gone();
    assert_eq!(test.host.engine.statistics().drain_timeouts, 0);
}

#[test]
fn fault11_fault13_a_drain_without_completions_ends_by_its_deadline_and_late_ones_are_dropped() {
    for kind in [TokenKind::Drain, TokenKind::Receive] {
        let mut test = Scripted::new("reg_mr");
        test.submit(1, 2, true);
        test.command();
        test.hold(kind);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.steps(100);
        // One poll finds the deadline, and the completions come while the MRs are being destroyed.
        while test.host.engine.statistics().drain_timeouts == 0 {
            test.now += core::time::Duration::from_millis(1);
            test.steps(1);
        }
        assert_eq!(test.host.engine.statistics().drain_timeouts, 1);
        assert_eq!(test.host.disconnected, 0);
        test.faults.release();
        test.until_gone();
        assert_eq!(test.status(1), Some("lost"));
        test.reconnect_works();
    }
}

#[test]
fn s97_i35_a_hundred_flushes_are_one_disconnect() {
    let mut test = Scripted::with("reg_mr", EngineOptions::default().receive_depth(128));
    let target = test.target.connection.unwrap();
    test.target.engine.disconnect(target);
    test.until_gone();
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.disconnects, test.host.disconnected), (1, 1));
    assert!(statistics.causes_while_ending > 100, "counted (I35)");
}

#[test]
fn s98_each_kind_of_bad_completion_ends_the_connection() {
    for kind in [TokenKind::Register, TokenKind::Invalidate, TokenKind::Message, TokenKind::Receive] {
        // Every message asks for a completion.
        let signal = frwr_engine::signal::SignalPolicy::SendsOnly { batch: 0 };
        let mut test = Scripted::with("reg_mr", EngineOptions::default().signal(signal));
        test.fail(kind, FailureStatus::Other(99));
        register(&mut test, 1);
        for cookie in 2..40 {
            let _ = test.try_submit(cookie, u64::from(cookie < 8), false);
        }
        test.until("ended", |pair| {
            while let Some((name, _)) = pair.target.take_command() {
                let _ = pair.target.try_answer(name, &[], None);
            }
            pair.host.disconnected == 1
        });
        assert_eq!(test.host.causes, [DisconnectCause::WorkRequest(FailureStatus::Other(99).into())], "{kind:?}");
        test.until_gone();
        test.reconnect_works();
    }
}

#[test]
fn s99_s100_s102_a_broken_mr_is_destroyed_and_replaced_only_when_the_pool_is_empty() {
    let options = EngineOptions::default().on_post_error(OnPostError::DeregisterAndContinue).registrations(8);
    let mut test = Scripted::with("reg_mr", options);
    test.submit(1, 3, false);
    let (name, _) = test.command();
    test.refuse(0);
    test.reply(name, None);
    test.until("ended", |pair| pair.host.ended.len() == 1);
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.mrs_destroyed, statistics.mrs_allocated, statistics.mrs_recovered), (3, 8, 0));
    assert_eq!(test.descriptors(), [5, 0, 0, 3]);
    for cookie in 2..10 {
        test.round_trip(cookie);
    }
    assert_eq!(test.host.engine.statistics().mrs_allocated, 8, "five are enough for one at a time");
    for cookie in 10..13 {
        test.submit(cookie, 2, false);
    }
    test.until("all", |pair| {
        pair.serve(false);
        pair.host.outstanding.is_empty()
    });
    assert_eq!(test.host.engine.statistics().mrs_allocated, 11, "S24");
    assert_eq!(test.descriptors(), [8, 0, 0, 0]);
}

#[test]
fn s103_s106_repair_replaces_a_broken_mr_at_once_while_others_work() {
    let options = EngineOptions::default()
        .on_post_error(OnPostError::DeregisterAndContinue)
        .stale_policy(StalePolicy::Repair)
        .registrations(4);
    for profile in PROFILES {
        let mut test = Scripted::with(profile, options.clone());
        test.submit(1, 2, false);
        let (name, grants) = test.command();
        test.refuse(0);
        test.reply(name, None);
        // The sender takes another MR meanwhile; nobody waits for the repair.
        test.until("refused", |pair| pair.host.engine.statistics().posts_refused == 1);
        test.submit(2, 2, false);
        assert_eq!(test.host.engine.statistics().requests_waited, 0, "S106");
        test.until("both", |pair| {
            pair.serve(false);
            pair.host.outstanding.is_empty() && pair.host.engine.statistics().mrs_recovered == 2
        });
        assert_eq!(test.descriptors(), [4, 0, 0, 0], "{profile}");
        // A new object has a new index in its key.
        for cookie in 3..12 {
            test.submit(cookie, 2, false);
            let (name, new) = test.command();
            let old = |grant: &Grant| grants.iter().any(|dead| dead.key >> 8 == grant.key >> 8);
            assert!(!new.iter().any(old), "{profile}");
            test.reply(name, None);
            test.until("ended", |pair| pair.host.outstanding.is_empty());
        }
    }
}

#[test]
fn s105_f09_fault21_a_repair_that_finds_no_object_shrinks_the_pool_and_nothing_else() {
    let options = EngineOptions::default()
        .on_post_error(OnPostError::DeregisterAndContinue)
        .stale_policy(StalePolicy::Repair)
        .registrations(4);
    let mut test = Scripted::with("reg_mr", options);
    test.submit(1, 1, false);
    let (name, _) = test.command();
    test.faults.fail_command(CommandKind::AllocateRegistration, CommandError::EXHAUSTED, 1);
    test.refuse(0);
    test.reply(name, None);
    test.until("refused", |pair| pair.host.engine.statistics().mr_allocations_failed == 1);
    assert_eq!(test.status(1), Some("replied"), "destroyed is fenced");
    assert_eq!(test.descriptors(), [3, 0, 0, 1], "pool - 1");
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.mrs_destroyed, statistics.mrs_recovered), (1, 0));
    test.round_trip(2);
    assert_eq!(test.control_failures(), 1, "nothing was destroyed twice (F9)");
}

#[test]
fn s105_f09_i10_an_object_that_the_device_does_not_free_is_no_fence() {
    for profile in PROFILES {
        // While the queue pair works; when it has drained, with no other or all others; and, the first of them, behind its destruction.
        for orphaned in [None, Some(false), Some(true)] {
            let mut test = Scripted::policy(profile, OnPostError::DeregisterAndContinue);
            let mrs = test.descriptors().iter().sum::<u32>();
            let times = orphaned.map_or(1, |orphaned| if orphaned { mrs + 2 } else { 2 });
            test.submit(1, 1, false);
            let (name, _) = test.command();
            test.refuse(0);
            test.faults.fail_command(CommandKind::FreeRegistration, CommandError::BUSY, times);
            test.reply(name, None);
            if orphaned != Some(true) {
                // The key is alive when the device says no: the request must not end now. The harness looks at the device.
                test.until_gone();
                assert_eq!((test.status(1), test.host.disconnected), (Some("lost"), 1), "{profile}");
                assert_eq!(test.host.causes, [DisconnectCause::Device]);
            } else {
                // Never freed: given up once the queue pair is destroyed, and counted.
                test.host.outstanding.insert(u64::MAX, 512);
                test.until("gone", |pair| pair.host.engine.is_disconnected());
                assert_eq!(test.status(1), Some("lost"));
            }
            assert_eq!(test.host.control.statistics().frees_refused, u64::from(times));
            assert_eq!(test.host.engine.statistics().mrs_orphaned, u64::from(orphaned == Some(true)));
            assert_eq!(test.host.orphaned_mrs, u32::from(orphaned == Some(true)), "only its caller is told");
            assert_eq!(
                test.host.engine.statistics().keys_live(),
                u64::from(orphaned == Some(true)),
                "nothing ended its key"
            );
            test.connect();
            test.round_trip(9);
        }
    }
}

/// A key counts as live until the device has answered that its object is destroyed: whoever reads 0 may rely on it.
#[test]
fn i10_a_key_is_live_until_the_destruction_of_its_object_is_answered() {
    for profile in PROFILES {
        let mut test = Scripted::policy(profile, OnPostError::DeregisterAndContinue);
        test.submit(1, 1, false);
        let (name, _) = test.command();
        test.steps(20);
        test.refuse(0);
        test.reply(name, None);
        let live = |test: &Scripted| test.host.engine.statistics().keys_live();
        assert_eq!(live(&test), 1, "{profile}");
        test.until("the end", |pair| {
            let open = pair.host.engine.port().remote_bytes_open().unwrap();
            let live = pair.host.engine.statistics().keys_live();
            assert!(live > 0 || open == 0, "{profile}: {open} bytes are open, and no key is live");
            !pair.host.ended.is_empty()
        });
        assert_eq!((live(&test), test.host.engine.statistics().keys_destroyed_live), (0, 1), "{profile}");
    }
}

#[test]
fn s104_i23_an_mr_returned_at_posting_is_registered_behind_its_own_invalidation() {
    for profile in PROFILES {
        let options = EngineOptions::default().return_policy(ReturnPolicy::OnInvalidatePosted).registrations(1);
        let mut test = Scripted::with(profile, options);
        test.submit(1, 1, false);
        let (name, _) = test.command();
        test.hold(TokenKind::Invalidate);
        test.reply(name, None);
        test.until("posted", |pair| pair.host.engine.statistics().local_inv_needed == 1);
        test.submit(2, 1, false);
        let (name, _) = test.command();
        assert!(test.host.ended.is_empty(), "the first waits for its fence all the same");
        let of_mr = |wr: &engine_harness::Wr| match wr.operation {
            RecordedOperation::Register { key, .. } => Some(('R', key)),
            RecordedOperation::Invalidate { key, .. } => Some(('L', key)),
            _ => None,
        };
        let posted: Vec<_> = test.posted().iter().filter_map(of_mr).collect();
        let key = posted[0].1;
        assert_eq!(posted[..2], [('R', key), ('L', key)]);
        assert_eq!((posted.len(), posted[2].0), (3, 'R'), "{profile}: and then the next registration of the same MR");
        assert_eq!(posted[2].1 >> 8, key >> 8);
        test.faults.release();
        test.reply(name, None);
        test.until("both", |pair| pair.host.ended.len() == 2);
        assert_eq!(test.host.ended, [(1, "replied"), (2, "replied")]);
    }
}

#[test]
fn s107_i28_i29_an_end_while_objects_are_being_made_waits_for_them() {
    for steps in 0..8 {
        let mut test = Scripted::with("reg_mr", EngineOptions::default().first_fill(2));
        for cookie in 0..16 {
            test.submit(cookie, 2, false);
        }
        test.steps(steps);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.until_gone();
        let statistics = test.host.engine.statistics();
        assert_eq!(statistics.mrs_allocated, statistics.mrs_destroyed, "{steps}");
        let allocated = statistics.mrs_allocated;
        test.steps(50);
        assert_eq!(
            test.host.engine.statistics().mrs_allocated,
            allocated,
            "none is made for a connection that is gone"
        );
        test.reconnect_works();
    }
}

#[test]
fn s111_s112_a_request_is_sent_again_with_new_keys_and_once_per_connection() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 1, true);
        let (name, old) = test.command();
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.until_gone();
        assert_eq!(test.status(1), Some("lost"));
        let sends = test.posted().iter().filter(|wr| wr.token.kind() == TokenKind::Message).count();
        assert_eq!(sends, 1);
        test.host.ended.clear();
        test.connect();
        test.submit(1, 1, true);
        let (again, new) = test.command();
        assert_eq!(name, again, "the same request");
        assert_ne!(old[0].key, new[0].key, "{profile}");
        test.reply(again, Some(new[0].key));
        test.until("ended", |pair| pair.host.ended.len() == 1);
        assert_eq!(test.status(1), Some("replied"));
    }
}

#[test]
fn fault33_every_command_of_opening_fails_once_and_the_next_attempt_works() {
    use CommandKind::{AllocateDomain, AllocateRegistration, Connect, CreateQueuePair, RegisterMemory};
    for profile in PROFILES {
        for kind in [AllocateDomain, RegisterMemory, CreateQueuePair, Connect] {
            let mut test = Scripted::unconnected(profile, EngineOptions::default());
            test.faults.fail_command(kind, CommandError::EXHAUSTED, 1);
            let options = frwr_engine::ConnectionOptions::default().peer_receives(8);
            let address = engine_harness::address();
            for _ in 0..2 {
                test.host.connection = Some(test.pair.host.engine.connect(address, b"", &options).unwrap());
                // The second attempt begins while the first is being taken apart.
                test.steps(1);
            }
            test.until("the second connection", |pair| pair.host.is_ready() && pair.target.is_ready());
            assert_eq!(test.host.open_failed, 1, "{profile} {kind:?}");
            test.round_trip(1);
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.until_gone();
            test.steps(20);
            // What was half made was destroyed: nothing of it was in anybody's way.
            assert_eq!(test.control_failures(), 1, "{profile} {kind:?}");
        }
        let mut test = Scripted::unconnected(profile, EngineOptions::default());
        test.faults.fail_command(AllocateRegistration, CommandError::EXHAUSTED, 31);
        test.connect();
        assert_eq!(test.descriptors(), [1, 0, 0, 31], "fewer at once, not none (S22)");
        test.round_trip(1);
    }
}

/// What its caller has given up is over with the device's refusal, and is no wish for whoever has its place next.
#[test]
fn fault31_fault33_an_attempt_that_its_caller_and_the_device_give_up_leaves_the_next_alone() {
    for profile in PROFILES {
        for kind in [CommandKind::AllocateDomain, CommandKind::CreateQueuePair] {
            let mut test = Scripted::unconnected(profile, EngineOptions::default());
            test.faults.fail_command(kind, CommandError::EXHAUSTED, 1);
            let options = test.host.connection_options();
            let opened = test.pair.host.engine.connect(engine_harness::address(), b"", &options).unwrap();
            test.host.engine.disconnect(opened);
            test.until("given up", |pair| pair.host.engine.is_disconnected());
            assert_eq!((test.host.gone.as_slice(), test.control_failures()), (&[opened][..], 1), "{profile} {kind:?}");
            test.reconnect_works();
            assert_eq!(test.host.gone, [opened], "{profile} {kind:?}");
        }
    }
}

#[test]
fn fault21_f16_a_device_without_objects_makes_requests_wait_and_nothing_else() {
    let mut test = Scripted::unconnected("reg_mr", EngineOptions::default().registrations(4));
    test.faults.fail_command(CommandKind::AllocateRegistration, CommandError::EXHAUSTED, 100);
    test.connect();
    assert_eq!(test.descriptors(), [0, 0, 0, 4]);
    test.submit(1, 2, false);
    test.submit(2, 0, false);
    test.steps(3000);
    assert!(test.host.ended.is_empty() && test.host.disconnected == 0, "waits, in order");
    let asked = test.host.engine.statistics().mr_allocations_failed;
    assert!((4..40).contains(&asked), "asked {asked} times in 3 ms: not every poll, not never (F16)");
    test.faults.clear();
    test.until("both", |pair| {
        pair.serve(false);
        pair.host.outstanding.is_empty()
    });
    assert!(test.host.ended.iter().all(|(_, status)| *status == "replied"));
}

#[test]
fn fault31_giving_up_while_opening_ends_once_on_both_sides() {
    for profile in PROFILES {
        for steps in 0..14 {
            for by_target in [false, true] {
                let mut test = Scripted::unconnected(profile, EngineOptions::default());
                let options = frwr_engine::ConnectionOptions::default().peer_receives(8);
                let address = engine_harness::address();
                let opened = test.pair.host.engine.connect(address, b"", &options).unwrap();
                test.host.connection = Some(opened);
                test.steps(steps);
                let side = if by_target { &mut test.pair.target } else { &mut test.pair.host };
                let Some(connection) = side.connection else { continue };
                side.engine.disconnect(connection);
                side.engine.disconnect(connection);
                test.until("both gone", |pair| {
                    pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected()
                });
                assert_eq!(test.host.gone, [opened], "{profile} {steps} {by_target}");
                test.reconnect_works();
            }
        }
    }
}

#[test]
fn fault34_events_of_nothing_and_after_the_end_change_nothing() {
    let mut test = Scripted::new("window");
    let old = test.queue_pair();
    for event in [AsyncEvent::LastReceiveReached(old), AsyncEvent::QueuePairFatal(QueuePairId(0xDEAD))] {
        test.faults.inject_event(DeviceEvent::Async(event));
    }
    test.round_trip(1);
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.faults.inject_event(DeviceEvent::Async(AsyncEvent::QueuePairFatal(old)));
    test.until_gone();
    test.connect();
    test.faults.inject_event(DeviceEvent::Async(AsyncEvent::QueuePairFatal(old)));
    test.round_trip(2);
    assert_eq!(test.host.disconnected, 1);
}

#[test]
fn fault33_a_queue_pair_that_cannot_be_failed_or_destroyed_still_ends() {
    for kind in [CommandKind::FailQueuePair, CommandKind::DestroyQueuePair, CommandKind::Disconnect] {
        let mut test = Scripted::new("window");
        every_phase(&mut test);
        test.faults.release();
        test.faults.fail_command(kind, CommandError::BUSY, 1);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.steps(2000);
        test.pass(core::time::Duration::from_secs(6));
        test.until("gone", |pair| pair.host.engine.is_disconnected());
        assert!(test.host.outstanding.is_empty() && test.host.disconnected == 1, "{kind:?}");
        assert_eq!(test.open_bytes(), 0, "{kind:?}");
    }
}

#[test]
fn fault30_rnr_that_passes_costs_nothing_and_rnr_that_stays_ends_the_connection() {
    for passes in [true, false] {
        let setup = Setup::new("reg_mr").target(|target| target.receive_depth = 4).peer_receives(32);
        let mut test = Scripted::of(setup);
        let mut options = frwr_engine::ConnectionOptions::default().peer_receives(32);
        options.parameters.rnr_retry_count = if passes { 7 } else { 2 };
        let connection = test.pair.host.engine.connect(engine_harness::address(), b"", &options).unwrap();
        test.host.connection = Some(connection);
        test.until("connected", |pair| pair.host.is_ready() && pair.target.is_ready());
        for cookie in 0..16 {
            test.submit(cookie, 1, true);
        }
        // The target keeps its four receives in hand.
        test.steps(400);
        if passes {
            test.until("all", |pair| {
                pair.serve(true);
                pair.host.outstanding.is_empty()
            });
            assert!(test.host.ended.iter().all(|(_, status)| *status == "replied"));
        } else {
            test.until("gone", |pair| pair.host.engine.is_disconnected());
            assert!(test.host.ended.iter().all(|(_, status)| *status == "lost"));
            assert_eq!((test.host.ended.len(), test.host.disconnected), (16, 1));
        }
    }
}

#[test]
fn fault06_fault12_completions_of_a_former_connection_touch_nothing_of_the_next() {
    let mut test = Scripted::new("reg_mr");
    test.submit(1, 3, false);
    let (name, _) = test.command();
    test.reply(name, None);
    test.until("ended", |pair| pair.host.ended.len() == 1);
    test.submit(2, 1, false);
    test.command();
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.until_gone();
    let queues = [frwr_engine::provider::CompletionQueue::Send, frwr_engine::provider::CompletionQueue::Receive];
    let old: Vec<_> = queues.map(|queue| (queue, test.watch.completions(queue))).into();
    test.connect();
    test.submit(3, 3, false);
    let (name, _) = test.command();
    let before = test.host.engine.statistics().stale_completions;
    let mut count = 0;
    for (queue, completions) in old {
        for completion in completions {
            test.inject(queue, completion);
            count += 1;
        }
    }
    test.steps(10);
    assert_eq!(test.host.engine.statistics().stale_completions, before + count);
    assert_eq!((test.host.ended.len(), test.host.disconnected), (2, 1));
    test.reply(name, None);
    test.until("ended", |pair| pair.host.ended.len() == 3);
    assert_eq!(test.status(3), Some("replied"));
}

#[test]
fn fault10_i16_completions_that_come_twice_are_counted_once() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.faults.on_all_completions(CompletionFilter::default(), CompletionFault::Duplicate);
        for cookie in 0..60 {
            test.submit(cookie, cookie % 4, cookie % 2 == 0);
            test.until("ended", |pair| {
                pair.serve(cookie % 4 == 2);
                pair.host.outstanding.is_empty()
            });
        }
        assert!(test.host.engine.statistics().stale_completions > 60);
        assert_eq!(test.host.disconnected, 0, "{profile}");
        assert!(test.host.ended.iter().all(|(_, status)| *status == "replied"));
    }
}

frwr_support::asleep! {
    s94_s96_s97_fault31_fault32_fault34_fault37_every_end_with_a_request_in_every_phase,
    s95_s109_a_connection_is_gone_only_when_its_last_flush_is_in,
    fault11_fault13_a_drain_without_completions_ends_by_its_deadline_and_late_ones_are_dropped,
    s97_i35_a_hundred_flushes_are_one_disconnect,
    s98_each_kind_of_bad_completion_ends_the_connection,
    s99_s100_s102_a_broken_mr_is_destroyed_and_replaced_only_when_the_pool_is_empty,
    s103_s106_repair_replaces_a_broken_mr_at_once_while_others_work,
    s105_f09_fault21_a_repair_that_finds_no_object_shrinks_the_pool_and_nothing_else,
    s105_f09_i10_an_object_that_the_device_does_not_free_is_no_fence,
    i10_a_key_is_live_until_the_destruction_of_its_object_is_answered,
    s104_i23_an_mr_returned_at_posting_is_registered_behind_its_own_invalidation,
    s107_i28_i29_an_end_while_objects_are_being_made_waits_for_them,
    s111_s112_a_request_is_sent_again_with_new_keys_and_once_per_connection,
    fault21_f16_a_device_without_objects_makes_requests_wait_and_nothing_else,
    fault31_giving_up_while_opening_ends_once_on_both_sides,
    fault34_events_of_nothing_and_after_the_end_change_nothing,
    fault33_a_queue_pair_that_cannot_be_failed_or_destroyed_still_ends,
    fault06_fault12_completions_of_a_former_connection_touch_nothing_of_the_next,
    fault10_i16_completions_that_come_twice_are_counted_once,
}

/// What a caller keeps of a connection by its index is none of the next one's: he is told of its end before the index is another's.
#[test]
fn s5_an_index_is_given_again_once_the_end_of_its_connection_was_told() {
    for profile in PROFILES {
        let mut pair = engine_harness::Setup::new(profile).host(|options| options.connections = 1).pair();
        let former = pair.host.connection.unwrap();
        let options = pair.host.connection_options();
        pair.host.engine.disconnect(former);
        while !pair.host.engine.is_disconnected() {
            pair.now += Duration::from_micros(1);
            pair.host.control.poll();
            pair.host.engine.poll(pair.now, &mut pair.host.protocol);
            pair.host.engine.flush();
            pair.target.step(pair.now);
        }
        let untold = pair.host.engine.connect(pair.address, b"", &options);
        assert_eq!(untold, Err(OpenError::NoConnection), "{profile}");
        pair.until("told", |pair| pair.host.causes.len() == 1);
        let next = pair.host.engine.connect(pair.address, b"", &options).unwrap();
        assert_eq!((next.index, next == former), (former.index, false), "{profile}");
    }
}
