//! Between an engine and Control: full lanes, ends of either, connect requests without an answer, listeners.

use core::time::Duration;
use frwr_engine::{
    AddMemoryError, ConnectionOptions, Control, EngineOptions, MAX_INCOMING, MemoryAccess, OnPostError,
    OpenEngineError, OpenError, RemoveMemoryError,
    provider::{
        AsyncEvent, CommandError, ConnectionEvent, ConnectionParameters, Device, DeviceEvent, Errno, IncomingId,
        ListenerId, PostRefusal, PrivateData, TokenKind,
        fault::CommandKind,
        soft::{SoftFabric, SoftOptions, SoftProfile},
    },
};
use frwr_mempool::{PagePolicy, Region, RegionOptions};
use frwr_support::engine_harness::{
    self, PROFILES, Pair, Setup, Side, Watch, Watched, WatchedDevice, post_refusals, scripted::*,
};

/// Steps during which the host's engine finds no room in its lane whenever it is polled.
fn steps_with_full_lane(test: &mut Scripted, steps: u32) {
    for _ in 0..steps {
        test.steps(1);
        test.pair.host.fill_lane();
    }
}

#[test]
fn f31_a_full_lane_to_control_delays_opening_and_loses_nothing() {
    for profile in PROFILES {
        let mut test = Scripted::unconnected(profile, EngineOptions::default());
        let options = ConnectionOptions::default().peer_receives(32);
        let address = engine_harness::ADDRESS.parse().unwrap();
        test.host.connection = Some(test.pair.host.engine.connect(address, b"hello", &options).unwrap());
        for _ in 0..20 {
            // Control has taken the engine's messages: what it says now meets a lane that is full again.
            test.pair.host.control.poll();
            test.pair.host.fill_lane();
            let now = test.now;
            let side = &mut test.pair.host;
            side.engine.poll(now, &mut side.protocol);
            test.pair.host.control.poll();
            test.pair.target.step(now);
        }
        test.until("connected", |pair| pair.host.is_ready() && pair.target.is_ready());
        test.round_trip(1);
    }
}

/// Request 1's invalidation will be refused: its MR's destruction is its fence.
fn refused_fence(profile: &str) -> Scripted {
    let mut test = Scripted::policy(profile, OnPostError::DeregisterAndContinue);
    test.submit(1, 1, false);
    let (name, _) = test.command();
    test.refuse(0);
    test.reply(name, None);
    test
}

#[test]
fn s72_s84_f31_a_destruction_that_control_had_no_room_for_is_asked_for_again() {
    for profile in PROFILES {
        let mut test = refused_fence(profile);
        for _ in 0..50 {
            test.pair.host.control.poll();
            test.pair.host.fill_lane();
            let now = test.now;
            let side = &mut test.pair.host;
            side.engine.poll(now, &mut side.protocol);
            side.engine.flush();
            test.pair.target.step(now);
        }
        assert!(test.host.engine.poll_at().is_some(), "it wants to be polled");
        test.until("ended", |pair| pair.host.ended.len() == 1);
        assert_eq!((test.status(1), test.open_bytes()), (Some("replied"), 0), "{profile}");
        test.round_trip(2);
    }
}

/// A destruction comes back from Control alone, which wakes nobody.
#[test]
fn s72_s84_who_waits_for_a_destruction_wants_to_be_polled() {
    for profile in PROFILES {
        let mut test = refused_fence(profile);
        let now = test.now;
        // Control sleeps.
        for _ in 0..50 {
            let Pair { host, target, .. } = &mut test.pair;
            host.engine.poll(now, &mut host.protocol);
            host.engine.flush();
            target.step(now);
        }
        assert_eq!(test.host.engine.poll_at(), Some(now), "{profile}");
        test.until("ended", |pair| pair.host.ended.len() == 1);
        assert_eq!((test.status(1), test.host.engine.poll_at()), (Some("replied"), None), "{profile}");
    }
}

#[test]
fn s97_f31_disconnecting_with_a_full_lane_ends_once() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 2, true);
        test.pair.host.fill_lane();
        let connection = test.host.connection.unwrap();
        test.pair.host.engine.disconnect(connection);
        steps_with_full_lane(&mut test, 20);
        test.until_gone();
        assert_eq!((test.host.disconnected, test.status(1)), (1, Some("lost")));
        // Control has taken the last of what filled the lane.
        test.steps(2);
        test.reconnect_works();
    }
}

#[test]
fn s72_s75_i11_a_refused_invalidation_of_a_registration_in_flight_ends_the_connection() {
    for profile in PROFILES {
        let mut test = Scripted::policy(profile, OnPostError::DeregisterAndContinue);
        // Nothing proves that the registration ran: its message has not completed yet, and no reply came.
        let request = test.submit(1, 1, false);
        test.host.engine.flush();
        test.pair.host.engine.cancel(request).unwrap();
        test.refuse(0);
        test.until_gone();
        assert_eq!((test.status(1), test.host.disconnected), (Some("cancelled"), 1), "{profile}");
        test.reconnect_works();
    }
}

#[test]
fn i11_d07_a_reply_is_no_proof_that_a_registration_ran() {
    for profile in PROFILES {
        let mut test = Scripted::policy(profile, OnPostError::DeregisterAndContinue);
        // A peer answers what it guesses; to the host the message of the request is not sent yet.
        test.submit(1, 0, false);
        test.command();
        test.hold(TokenKind::Message);
        test.submit(2, 1, false);
        test.steps(1);
        test.reply(2u64.to_le_bytes(), None);
        test.refuse(0);
        test.until("refused", |pair| pair.host.engine.statistics().posts_refused == 1);
        assert_eq!(test.host.engine.statistics().keys_destroyed_live, 0, "{profile}: not on a queue pair that works");
        test.until_gone();
        assert_eq!(post_refusals(&test.host.causes), [(PostRefusal::Invalid, Errno::EINVAL)], "{profile}");
        assert_eq!((test.status(2), test.host.disconnected), (Some("lost"), 1), "{profile}");
        test.reconnect_works();
    }
}

#[test]
fn s72_s75_a_refused_invalidation_behind_a_finished_registration_costs_one_mr() {
    for profile in PROFILES {
        let options = EngineOptions::default()
            .on_post_error(OnPostError::DeregisterAndContinue)
            .signal(frwr_engine::signal::SignalPolicy::SendsOnly { batch: 0 });
        let mut test = Scripted::with(profile, options);
        let request = test.submit(1, 1, false);
        test.command();
        test.steps(20);
        test.pair.host.engine.cancel(request).unwrap();
        test.refuse(0);
        test.until("ended", |pair| pair.host.ended.len() == 1);
        assert_eq!((test.status(1), test.host.disconnected), (Some("cancelled"), 0), "{profile}");
        assert_eq!(test.open_bytes(), 0);
        test.round_trip(2);
    }
}

/// Receives that the latest connection of a side began with, as it was told.
fn receives<D: Device>(side: &Side<D>) -> u32 {
    let told = side.events.iter().rev().find(|event| event.starts_with("Connected")).unwrap();
    let number = told.split("receives: ").nth(1).unwrap();
    number.trim_end_matches([' ', '}']).parse().unwrap()
}

#[test]
fn receives_that_the_caller_holds_are_missing_only_where_no_other_place_is_left_and_come_back() {
    const DEPTH: u32 = 8;
    const HELD: u32 = 3;
    let mut test = Scripted::of(Setup::new("reg_mr").target(|target| target.receive_depth = DEPTH));
    test.target.every_command = Some(Vec::new());
    test.target.granted_receives = Some(DEPTH);
    let mut held = Vec::new();
    for (round, posted) in [DEPTH, DEPTH, DEPTH - HELD, DEPTH - HELD].into_iter().enumerate() {
        test.connect();
        test.until("both ends", |pair| pair.target.connections.len() > round);
        assert_eq!(receives(&test.target), posted, "round {round}");
        assert_eq!(test.target.engine.receive_buffers().posted, posted);
        for cookie in 0..u64::from(HELD) {
            test.submit(10 * round as u64 + cookie, 0, false);
        }
        test.until("commands", |pair| pair.target.every_command.as_ref().unwrap().len() == HELD as usize);
        let commands: Vec<_> = test.target.every_command.as_mut().unwrap().drain(..).collect();
        for (at, (_, received)) in commands.into_iter().enumerate() {
            // What is held of the first two rounds stays; later ones give it back.
            if round < 2 {
                held.push((10 * round as u64 + at as u64, received));
            } else {
                test.target.engine.release(received);
            }
        }
        if round < 3 {
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.until_gone();
        }
    }
    for (cookie, received) in held {
        assert_eq!(test.target.read_command(&received).0, cookie.to_le_bytes(), "it is readable all the time");
        test.target.engine.release(received);
    }
    test.steps(2);
    assert_eq!(test.target.engine.receive_buffers().posted, DEPTH, "those of the same place joined the connection");
}

/// Whatever a caller gives back when nobody has the place of its connection, the next one there has all its receives.
#[test]
fn receives_that_come_back_between_two_connections_are_there_for_the_next() {
    const DEPTH: u32 = 8;
    for profile in PROFILES {
        let change = |target: &mut EngineOptions| (target.connections, target.receive_depth) = (1, DEPTH);
        let mut test = Scripted::of(Setup::new(profile).target(change));
        test.target.every_command = Some(Vec::new());
        test.connect();
        for cookie in 0..3 {
            test.submit(cookie, 0, false);
        }
        test.until("commands", |pair| pair.target.every_command.as_ref().unwrap().len() == 3);
        let held: Vec<_> = test.target.every_command.as_mut().unwrap().drain(..).collect();
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.until_gone();
        held.into_iter().for_each(|(_, received)| test.target.engine.release(received));
        test.connect();
        test.steps(2);
        let buffers = test.target.engine.receive_buffers();
        assert_eq!((buffers.posted, buffers.held), (DEPTH, 0), "{profile}");
        let refused = test.target.engine.statistics().posts_refused;
        assert_eq!(refused, 0, "{profile}: nothing was posted to a queue pair that had gone");
    }
}

#[test]
fn u26_the_last_reply_on_an_idle_connection_ends_under_every_policy() {
    use frwr_engine::signal::SignalPolicy;
    let policies = [
        SignalPolicy::Sparse,
        SignalPolicy::KernelBudget { batch: 16 },
        SignalPolicy::SendsOnly { batch: 16 },
        SignalPolicy::GlobalCounter { max_send_wr: 64 },
    ];
    for profile in PROFILES {
        for signal in policies {
            let mut test = Scripted::of(Setup::new(profile).target(|target| target.signal = signal));
            test.connect();
            for count in 1..=5 {
                for cookie in 0..count {
                    test.submit(100 * count + cookie, 1, true);
                }
                test.until("replied", |pair| {
                    pair.serve(true);
                    pair.host.outstanding.is_empty()
                });
                test.until("idle", |pair| pair.target.engine.is_idle());
            }
            assert_eq!(test.target.responded, 15, "{profile} {signal:?}");
            assert!(test.host.engine.is_idle());
        }
    }
}

/// Something in a connection's domain outlives it, a registration that Control does not know of: the domain goes behind it, not
/// with the device.
#[test]
fn a_domain_that_the_device_keeps_is_freed_when_it_can_be() {
    // One domain per connection.
    for profile in ["reg_mr", "umr"] {
        let mut test = Scripted::new(profile);
        test.faults.fail_command(CommandKind::FreeDomain, CommandError::BUSY, 3);
        let connection = test.host.connection.unwrap();
        test.pair.host.engine.disconnect(connection);
        test.until_gone();
        test.steps(10);
        assert_eq!((test.faults.faults(), test.host.control.statistics().domains_kept), (1, 1), "{profile}");
        test.until("the domain is freed", |pair| pair.host.control.statistics().domains_kept == 0);
        assert_eq!(test.faults.faults(), 3, "{profile}: asked until it was granted");
        assert_eq!(test.host.control.statistics().commands_failed, 3, "{profile}");
        test.reconnect_works();
    }
}

#[test]
fn s105_orphans_are_told_with_the_end_of_their_connection_and_the_next_works() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        // All of them when the queue pair has drained, and three once more behind its destruction.
        let mrs = test.descriptors().iter().sum::<u32>();
        test.faults.fail_command(CommandKind::FreeRegistration, CommandError::BUSY, mrs + 3);
        let connection = test.host.connection.unwrap();
        test.pair.host.engine.disconnect(connection);
        test.until_gone();
        assert_eq!(test.host.orphaned_mrs, 3, "{profile}");
        let statistics = test.host.engine.statistics();
        assert_eq!(statistics.mrs_allocated, statistics.mrs_destroyed + statistics.mrs_orphaned);
        test.reconnect_works();
        let connection = test.host.connection.unwrap();
        test.pair.host.engine.disconnect(connection);
        test.until_gone();
        assert_eq!(test.host.orphaned_mrs, 3, "each is told once");
    }
}

#[test]
fn a_flood_of_connect_requests_is_bounded_whether_the_caller_takes_events_or_not() {
    let mut test = Scripted::unconnected("reg_mr", EngineOptions::default());
    let request = |listener, incoming| {
        DeviceEvent::Connection(ConnectionEvent::Request {
            listener: ListenerId(listener),
            incoming: IncomingId(incoming),
            peer: None,
            local: None,
            private_data: PrivateData::new(),
            parameters: ConnectionParameters::default(),
        })
    };
    // The number that the device gave the listener is the one that requests are taken on.
    let mut numbers = 0..1000;
    let listener = numbers
        .find(|&listener| {
            test.target_faults.inject_event(request(listener, 999));
            test.pair.target.control.poll();
            test.target.control.statistics().incoming == 1
        })
        .unwrap();
    let flood = 10 * MAX_INCOMING as u32;
    for incoming in 1..flood {
        test.target_faults.inject_event(request(listener, 1000 + incoming));
    }
    let now = test.now;
    let target = &mut test.pair.target;
    for _ in 0..100 {
        target.control.poll();
        target.engine.poll(now, &mut target.protocol);
    }
    let statistics = target.control.statistics();
    assert_eq!(statistics.incoming, MAX_INCOMING as u64);
    assert_eq!(statistics.incoming_overflow, u64::from(flood) - MAX_INCOMING as u64);
    // Answers make room: two are accepted, which fails as these peers never were, and the others are rejected.
    test.steps(50);
    test.target_faults.inject_event(request(listener, 1));
    test.steps(10);
    assert_eq!(test.target.control.statistics().incoming, 1 + MAX_INCOMING as u64);
    test.connect();
    test.round_trip(1);
}

#[test]
fn an_engine_that_stops_listening_turns_peers_away_and_can_listen_again() {
    let mut test = Scripted::new("reg_mr");
    let address = engine_harness::ADDRESS.parse().unwrap();
    let heard = |test: &Scripted, state: &str| {
        test.target.events.iter().filter(|event| event.starts_with("Listening") && event.contains(state)).count()
    };
    test.pair.target.engine.stop_listening(address).unwrap();
    test.until("stopped", |pair| pair.target.events.iter().any(|event| event.contains("state: Stopped")));
    test.round_trip(1);
    let failed = test.host.open_failed;
    test.pair.host.engine.connect(address, b"", &ConnectionOptions::default()).unwrap();
    test.until("turned away", |pair| pair.host.open_failed > failed);
    // Stopping what does not listen says so; stopping before the device has answered stops it all the same.
    test.pair.target.engine.stop_listening(address).unwrap();
    test.pair.target.engine.listen(address).unwrap();
    test.pair.target.engine.stop_listening(address).unwrap();
    test.steps(20);
    assert_eq!((heard(&test, "Began"), heard(&test, "Stopped")), (1, 3));
    test.pair.target.engine.listen(address).unwrap();
    test.steps(20);
    assert_eq!(heard(&test, "Began"), 2);
    let connection = test.host.connection.unwrap();
    test.pair.host.engine.disconnect(connection);
    test.until_gone();
    test.reconnect_works();
}

#[test]
fn a_device_that_fails_while_a_connection_opens_ends_it_once() {
    for profile in PROFILES {
        for steps in 0..12 {
            let mut test = Scripted::unconnected(profile, EngineOptions::default());
            let options = ConnectionOptions::default().peer_receives(32);
            let address = engine_harness::ADDRESS.parse().unwrap();
            let connection = test.pair.host.engine.connect(address, b"hello", &options).unwrap();
            test.host.connection = Some(connection);
            test.steps(steps);
            test.faults.inject_event(DeviceEvent::Async(AsyncEvent::DeviceFatal));
            test.steps(60);
            let ended = test.host.disconnected + test.host.open_failed;
            assert!(ended == 1 || test.host.is_ready(), "{profile} {steps}: opened or ended, never in between");
        }
    }
}

#[test]
fn dropping_an_engine_with_work_in_flight_ends_its_connections_for_the_peers() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let segment = pair.host.segment(0, 4096);
        pair.host.submit(1, frwr_engine::provider::Access::RemoteWrite, &[segment], true).unwrap();
        pair.steps(3);
        let Pair { host, mut target, mut now, .. } = pair;
        let Side { mut control, engine, .. } = host;
        drop(engine);
        for _ in 0..20_000 {
            now += core::time::Duration::from_micros(1);
            control.poll();
            target.step(now);
        }
        assert_eq!(target.disconnected, 1, "{profile}: the peer hears of it");
        // And the other way round: what Control keeps alive goes with it.
        drop(control);
        target.step(now);
    }
}

/// An answer that is still to come is waited for: what it brings would have nobody else to destroy it.
#[test]
fn an_engine_that_is_dropped_while_it_opens_leaves_no_domain_behind() {
    let kinds = [None, Some(CommandKind::AllocateDomain), Some(CommandKind::RegisterMemory)];
    let polled = |control: &mut Control<WatchedDevice>| {
        control.poll();
    };
    // Profiles with one domain per connection.
    for (profile, slow) in ["reg_mr", "umr"].into_iter().flat_map(|profile| kinds.map(|slow| (profile, slow))) {
        for looks in 0..6 {
            let Watched { pair, host: Watch { faults, .. }, .. } = Setup::new(profile).watched_apart();
            let Side { mut control, mut engine, .. } = pair.host;
            slow.into_iter().for_each(|kind| faults.hold_answers(kind));
            engine.connect(pair.address, b"", &ConnectionOptions::default()).unwrap();
            (0..looks).for_each(|_| polled(&mut control));
            drop(engine);
            (0..50).for_each(|_| polled(&mut control));
            faults.release_answers();
            (0..50).for_each(|_| polled(&mut control));
            let domains = [CommandKind::AllocateDomain, CommandKind::FreeDomain].map(|kind| faults.succeeded(kind));
            assert_eq!(domains[0], domains[1], "{profile} {slow:?}, {looks} looks");
        }
    }
}

#[test]
fn an_engine_without_its_control_refuses_what_could_not_begin() {
    let Pair { host, address, .. } = Pair::new("reg_mr");
    let Side { control, mut engine, data, memory, .. } = host;
    drop(control);
    let options = ConnectionOptions::default();
    assert_eq!(engine.connect(address, b"", &options), Err(OpenError::NoControl));
    assert_eq!(engine.accept(IncomingId(0), b"", &options), Err(OpenError::NoControl));
    assert_eq!(engine.reject(IncomingId(0), b""), Err(OpenError::NoControl));
    assert_eq!(engine.listen(address), Err(OpenError::NoControl));
    assert_eq!(engine.stop_listening(address), Err(OpenError::NoControl));
    assert_eq!(engine.add_memory(data, MemoryAccess::ReadWrite), Err(AddMemoryError::NoControl));
    assert_eq!(engine.remove_memory(memory), Err(RemoveMemoryError::NoControl));
}

/// What the connection manager or the device says of a connection that could not be opened reaches the caller by name.
#[test]
fn f31_why_a_connection_was_not_opened_is_told() {
    use frwr_engine::{
        OpenFailure,
        provider::{Errno, RejectReason, RejectReason::*},
    };
    let reasons = [
        (Stale, OpenFailure::Stale),
        (Consumer, OpenFailure::Rejected),
        (NoListener, OpenFailure::Unreachable(Errno::ECONNREFUSED)),
    ];
    let told = |test: &Scripted, failure: OpenFailure| {
        let failure = format!("reason: {failure:?}");
        test.pair.host.events.iter().any(|event| event.starts_with("OpenFailed") && event.contains(&failure))
    };
    let begin = |test: &mut Scripted| {
        let address = engine_harness::address();
        let connection = test.pair.host.engine.connect(address, b"", &ConnectionOptions::default()).unwrap();
        test.host.connection = Some(connection);
        connection
    };
    for (reason, failure) in reasons {
        let mut test = Scripted::unconnected("reg_mr", EngineOptions::default());
        let connection = begin(&mut test);
        let reject = |queue_pair, reason: RejectReason| {
            DeviceEvent::Connection(ConnectionEvent::Rejected { queue_pair, reason, private_data: PrivateData::new() })
        };
        // Only the host moves: the target never answers.
        for _ in 0..200 {
            let now = test.now;
            test.pair.host.step(now);
            if let Some(queue_pair) = test.pair.host.engine.queue_pair(connection) {
                test.faults.inject_event(reject(queue_pair, reason));
            }
        }
        assert!(told(&test, failure), "{reason:?}: {:?}", test.pair.host.events);
    }
    let mut test = Scripted::unconnected("reg_mr", EngineOptions::default());
    let (wanted, limit) = (1 << 30, 8 << 20);
    test.faults.fail_command(CommandKind::RegisterMemory, CommandError::LockedMemory { wanted, limit }, 1);
    begin(&mut test);
    test.steps(20);
    assert!(told(&test, OpenFailure::LockedMemory { wanted, limit }), "{:?}", test.pair.host.events);
}

/// The accept that the device refuses when its core has given up meanwhile: the peer hears of it all the same.
#[test]
fn a_refused_accept_is_answered_also_where_its_core_gave_up_meanwhile() {
    for profile in PROFILES {
        let mut test = Scripted::unconnected(profile, EngineOptions::default());
        test.target_faults.fail_command(CommandKind::Accept, CommandError::EXHAUSTED, 1);
        let options = test.host.connection_options();
        test.host.connection =
            Some(test.pair.host.engine.connect(engine_harness::address(), b"hello", &options).unwrap());
        let has_queue_pair = |side: &Side<WatchedDevice>| {
            let connection = side.engine.connections().next()?;
            side.engine.queue_pair(connection).filter(|queue_pair| queue_pair.0 != 0).map(|_| connection)
        };
        let connection = loop {
            test.now += Duration::from_micros(1);
            let (now, Scripted { pair, .. }) = (test.now, &mut test);
            pair.host.step(now);
            pair.target.control.poll();
            pair.target.engine.poll(now, &mut pair.target.protocol);
            while let Some(event) = pair.target.engine.next_event() {
                pair.target.event(event);
            }
            if let Some(connection) = has_queue_pair(&pair.target) {
                break connection;
            }
        };
        // Control takes both at once: that the receives are posted, and that nobody wants the connection any more.
        test.target.engine.disconnect(connection);
        test.until("told", |pair| pair.host.open_failed == 1);
    }
}

/// What a connection begins with does not depend on how busy Control's lane is, in whichever step of its opening: all MRs of its first
/// fill, and the write pad.
#[test]
fn s22_s90_a_full_lane_to_control_takes_nothing_from_the_first_fill() {
    for profile in PROFILES {
        for full_at in 0..12 {
            let options = EngineOptions::default().write_pad(true).registrations(40);
            let mut test = Scripted::unconnected(profile, options);
            let options = test.host.connection_options();
            let connection = test.pair.host.engine.connect(engine_harness::address(), b"hello", &options).unwrap();
            test.host.connection = Some(connection);
            for at in 0..12 {
                test.host.control.poll();
                if at == full_at {
                    test.pair.host.fill_lane();
                }
                let (now, pair) = (test.now, &mut test.pair);
                pair.host.engine.poll(now, &mut pair.host.protocol);
                pair.host.control.poll();
                pair.target.step(now);
            }
            test.until("connected", |pair| pair.host.is_ready() && pair.target.is_ready());
            assert_eq!(test.descriptors(), [40, 1, 0, 0], "{profile}, full in step {full_at}");
            assert!(test.host.engine.write_pad(connection).is_some(), "{profile}");
            test.round_trip(1);
        }
    }
}

/// An engine of one connection, whose lane to Control is full in one step of its opening.
fn full_in_step(profile: &str, registrations: u32, full_at: u32) -> Scripted {
    let mut test =
        Scripted::of(Setup::new(profile).host(|host| (host.connections, host.registrations) = (1, registrations)));
    let options = test.host.connection_options();
    test.host.connection = Some(test.pair.host.engine.connect(engine_harness::address(), b"hello", &options).unwrap());
    for at in 0..=full_at {
        test.host.control.poll();
        if at == full_at {
            test.pair.host.fill_lane();
        }
        let (now, pair) = (test.now, &mut test.pair);
        pair.host.engine.poll(now, &mut pair.host.protocol);
        if at < full_at {
            pair.host.control.poll();
        }
        pair.target.step(now);
    }
    test
}

/// Nothing but the MRs that Control could not be asked for makes the engine look after its connection.
#[test]
fn s22_a_first_fill_that_control_had_no_room_for_is_asked_for_again() {
    for profile in PROFILES {
        for registrations in [1, 2] {
            for full_at in 0..12 {
                let mut test = full_in_step(profile, registrations, full_at);
                test.until("connected", |pair| pair.host.is_ready() && pair.target.is_ready());
                assert_eq!(test.descriptors(), [registrations, 0, 0, 0], "{profile}, full in step {full_at}");
                test.round_trip(1);
            }
        }
    }
}

/// Nor is it looked after any more once it was given up: the device is asked for no MR of a connection that ends.
#[test]
fn s22_s94_mrs_that_control_had_no_room_for_are_not_made_for_a_connection_that_ends() {
    for profile in PROFILES {
        for full_at in 0..12 {
            let mut test = full_in_step(profile, 8, full_at);
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            // The device does all that it was asked for until here.
            while test.host.control.poll() > 0 {}
            let made = |test: &Scripted| test.faults.succeeded(CommandKind::AllocateRegistration);
            let before = made(&test);
            test.until_gone();
            assert_eq!(made(&test), before, "{profile}, full in step {full_at}");
        }
    }
}

/// What the options or the device do not allow opens no port.
#[test]
fn an_engine_that_cannot_be_is_refused_before_a_port_is_opened() {
    let mut control = Control::new(SoftFabric::new().device(SoftOptions::new(SoftProfile::RegMr)));
    let refused = control.open_engine(EngineOptions::default().connections(0));
    assert!(matches!(refused.err(), Some(OpenEngineError::Engine(_))));
    let builder = control.open_engine(EngineOptions::default()).unwrap();
    assert_eq!(builder.capabilities(), control.device().capabilities());
    let bytes = builder.region_bytes();
    let pages = PagePolicy::Ladder { allow_plain: true };
    let mut region = Region::map(&RegionOptions::new(bytes).pages(pages)).unwrap();
    assert!(builder.build(&mut region).unwrap().is_idle());
}
