//! Transfers stand in their connection's chain from their admission on, among its requests: what becomes of them where those leave
//! it, and where the connection ends first.

use core::time::Duration;
use frwr_engine::{
    Chunk, Event, FetchRequest, MAX_TRANSFER_OPERATIONS, MemoryId, OnPostError, RemoteSegment, Segment, TransferError,
    WriteRequest,
    mr::Grant,
    provider::{Access, RemoteRange, TokenKind},
    signal::SignalPolicy,
};
use frwr_support::engine_harness::{PROFILES, Setup, Side, WatchedDevice, scripted::Scripted};

/// Bytes of each WRITE.
const EACH: u32 = 512;
/// More than the send queue has entries, so that its ring begins again.
const ROUNDS: u64 = 300;

/// A pair whose host has transfers as well as requests.
fn pair(profile: &str) -> Scripted {
    let mut test = Scripted::of(Setup::new(profile).host(|host| host.transfer_depth = 8));
    test.connect();
    test.posted();
    test
}

/// A key of the target's that the host may write under, for two WRITEs.
fn opened(test: &mut Scripted) -> Grant {
    let segment = test.target.segment(8192, 2 * EACH);
    let target = &mut test.pair.target;
    let chunk = Chunk { access: Access::RemoteReadWrite, segments: &[segment] };
    let connection = target.connection.unwrap();
    target.engine.register_now(connection, &chunk, 1, &mut target.protocol).unwrap();
    target.outstanding.insert(1, u64::from(2 * EACH));
    test.until("registered", |pair| !pair.target.grants.is_empty());
    test.target.grants[0].1
}

/// The host writes its half of a pattern.
fn write(test: &mut Scripted, grant: Grant, half: u64, cookie: u64) {
    let host = &mut test.pair.host;
    let offset = half * u64::from(EACH);
    let remote = RemoteRange { address: grant.address + offset, key: grant.key };
    let remote = [RemoteSegment { remote, length: EACH }];
    let local = [host.segment(262_144 + offset, EACH)];
    let connection = host.connection.unwrap();
    host.engine.write(connection, &WriteRequest { local: &local, remote: &remote, cookie }).unwrap();
}

/// The host writes a few bytes by so many operations.
fn write_by(test: &mut Scripted, grant: Grant, operations: usize, cookie: u64) {
    let remote: Vec<_> = (0..operations as u64)
        .map(|at| RemoteSegment { remote: RemoteRange { address: grant.address + 8 * at, key: grant.key }, length: 8 })
        .collect();
    let local = [test.host.segment(262_144, 8 * operations as u32)];
    let host = &mut test.pair.host;
    let connection = host.connection.unwrap();
    host.engine.write(connection, &WriteRequest { local: &local, remote: &remote, cookie }).unwrap();
}

/// How often the host was told so of a WRITE.
fn told(events: &[String], cookie: u64, how: &str) -> usize {
    let written = format!("Written {{ cookie: {cookie}, status: {how} }}");
    events.iter().filter(|event| **event == written).count()
}

#[test]
fn s75_writes_behind_cancelled_requests_move_up_in_the_chain_and_are_told() {
    for profile in PROFILES {
        let mut test = pair(profile);
        let grant = opened(&mut test);
        for round in 0..ROUNDS {
            let pattern = [round as u8; 2 * EACH as usize];
            test.host.data.write(262_144, &pattern).unwrap();
            let requests = [0, 1].map(|half| {
                let request = test.submit(2 * round + half, 1, false);
                write(&mut test, grant, half, 2 * round + half);
                request
            });
            for request in requests {
                test.host.engine.cancel(request).unwrap();
            }
            let done = |events: &[String]| [0, 1].map(|half| told(events, 2 * round + half, "Done")) == [1, 1];
            test.until("written", |pair| done(&pair.host.events));
            assert_eq!(test.chains(), ["PP*"], "{profile}: the WRITEs and nothing else");
            let mut found = [0; 2 * EACH as usize];
            test.target.data.read(8192, &mut found).unwrap();
            assert_eq!(found, pattern, "{profile} {round}");
        }
    }
}

/// A core whose engine is idle may sleep: not while a transfer's completion may come.
#[test]
fn an_engine_is_idle_when_none_of_its_transfers_is_in_flight() {
    for profile in PROFILES {
        let mut test = pair(profile);
        let grant = opened(&mut test);
        assert!(test.host.engine.is_idle(), "{profile}: nothing was asked for");
        test.hold(TokenKind::Transfer);
        write(&mut test, grant, 0, 1);
        test.steps(20);
        assert_eq!(told(&test.host.events, 1, "Done"), 0, "{profile}");
        assert!(!test.host.engine.is_idle(), "{profile}: its completion may come");
        test.faults.clear();
        test.faults.release();
        test.until("written", |pair| told(&pair.host.events, 1, "Done") == 1);
        test.steps(5);
        assert!(test.host.engine.is_idle(), "{profile}: it came");
    }
}

/// A responder says of how many transfers it can do without knowing that they are over; without that it is a quarter of all. Those of one
/// flush end together in any case.
#[test]
fn replies_ask_for_their_completion_from_as_many_transfers_on_as_the_responder_says() {
    let told = |transfers_held| {
        let mut test = Scripted::of(Setup::new("reg_mr").target(|target| target.transfers_held = transfers_held));
        test.connect();
        let before = test.target.engine.statistics().send_completions;
        for cookie in 0..16 {
            test.submit(cookie, 0, false);
        }
        test.until("arrived", |pair| pair.target.commands.len() == 16);
        test.pair.serve(false);
        test.until("answered", |pair| pair.host.ended.len() == 16);
        test.target.engine.statistics().send_completions - before
    };
    assert_eq!([1, 2, 5, 16, u32::MAX].map(told), [16, 15, 12, 1, 1]);
}

/// A peer's device answers for it, whatever its program does: one that is not there answers nothing, and no key is looked at.
#[test]
fn a_probe_is_told_when_the_peers_device_has_answered_and_not_before() {
    for profile in PROFILES {
        let mut test = pair(profile);
        let connection = test.host.connection.unwrap();
        test.host.engine.probe(connection, 9).unwrap();
        // The host's half of an iteration: what the peer's device has to do is not done.
        let now = test.pair.now;
        for _ in 0..50 {
            test.pair.host.step(now);
        }
        assert_eq!(told(&test.host.events, 9, "Done"), 0, "{profile}: nobody polled the peer's device");
        test.until("answered", |pair| told(&pair.host.events, 9, "Done") == 1);
        assert_eq!(test.chains(), ["P*"], "{profile}");
        assert!(test.host.is_ready() && test.target.is_ready(), "{profile}");
        // With more of them than the connection has slots, and with a request among them.
        let taken =
            (20..60).take_while(|cookie| test.pair.host.engine.probe(connection, *cookie).is_ok()).count() as u64;
        assert_eq!(test.pair.host.engine.probe(connection, 99), Err(TransferError::NoSlot), "{profile}");
        test.until("all", |pair| (20..20 + taken).all(|cookie| told(&pair.host.events, cookie, "Done") == 1));
        test.round_trip(1);
        test.host.engine.probe(connection, 10).unwrap();
        test.host.engine.disconnect(connection);
        test.until_gone();
        assert_eq!(told(&test.host.events, 10, "Lost"), 1, "{profile}");
        assert_eq!(test.host.engine.probe(connection, 11), Err(TransferError::NotConnected), "{profile}");
        test.reconnect_works();
    }
}

#[test]
fn a_write_is_told_although_the_request_behind_it_in_the_chain_is_never_answered() {
    for profile in PROFILES {
        let mut test = pair(profile);
        let grant = opened(&mut test);
        write(&mut test, grant, 0, 5);
        test.submit(6, 1, false);
        test.until("written", |pair| told(&pair.host.events, 5, "Done") == 1);
        assert_eq!(test.chains(), ["PRS*"], "{profile}: the last of the chain asks");
        assert!(test.host.ended.is_empty());
        // A READ asks for itself.
        let host = &mut test.pair.host;
        let remote = RemoteRange { address: grant.address, key: grant.key };
        let remote = [RemoteSegment { remote, length: EACH }];
        let (local, connection) = ([host.segment(262_144, EACH)], host.connection.unwrap());
        host.engine.fetch(connection, &FetchRequest { local: &local, remote: &remote, cookie: 7 }).unwrap();
        test.submit(8, 1, false);
        test.until("fetched", |pair| pair.host.fetched == 1);
        assert_eq!(test.chains(), ["G*RS"], "{profile}");
    }
}

#[test]
fn s97_a_write_that_the_connection_ends_in_front_of_is_lost_and_touches_no_request() {
    for profile in PROFILES {
        let mut test = pair(profile);
        let grant = opened(&mut test);
        // Its slot has the number that the slot of the WRITE has, and is kept until its message retires (Hold).
        test.round_trip(1);
        assert_eq!(test.host.engine.statistics().slots_held, 1, "{profile}");
        test.posted();
        let before = test.host.engine.statistics();
        write(&mut test, grant, 0, 5);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        // The harness would see a request that ends twice.
        test.until_gone();
        let after = test.host.engine.statistics();
        assert_eq!(told(&test.host.events, 5, "Lost"), 1, "{profile}");
        assert_eq!(after.requests_ended, before.requests_ended, "{profile}");
        assert_eq!((after.slots_held, after.request_slots_used), (0, 0), "{profile}");
        test.reconnect_works();
    }
}

#[test]
fn f05_a_reply_is_told_although_the_device_refuses_what_stands_behind_it_in_the_chain() {
    // The others take a chain as a whole or not at all.
    for profile in ["reg_mr", "window", "rxe"] {
        for invalidates in [false, true] {
            for operations in [0, 1] {
                let mut test = Scripted::of(Setup::new(profile).host(|host| {
                    host.transfer_depth = 8;
                    host.on_post_error = OnPostError::DeregisterAndContinue;
                }));
                test.connect();
                let request = invalidates.then(|| test.submit(5, 1, false));
                let grant = Grant { length: EACH, ..opened(&mut test) };
                // The target did not ask, counts it and goes on.
                test.host.answer([0; 8], &[grant][..operations], None);
                match request {
                    // Its key is to die, behind the reply.
                    Some(request) => test.host.engine.cancel(request).unwrap(),
                    None => drop(test.submit(6, 1, false)),
                }
                test.refuse(operations + 1);
                test.until("a reply and an end", |pair| pair.host.responded == 1 && pair.host.ended.len() == 1);
                assert_eq!(test.host.engine.statistics().posts_refused, 1, "{profile}");
                assert_eq!((test.open_bytes(), test.host.disconnected), (0, 0), "{profile} {invalidates}");
            }
        }
    }
}

#[test]
fn a_refused_transfer_says_what_to_change() {
    for profile in PROFILES {
        let remote = [RemoteSegment { remote: RemoteRange { address: 0, key: 1 }, length: EACH }];
        // A mere requester has no transfer slots, however often it is polled.
        let mut test = Scripted::of(Setup::new(profile));
        test.connect();
        let (connection, local) = (test.host.connection.unwrap(), [test.host.segment(0, EACH)]);
        let request = FetchRequest { local: &local, remote: &remote, cookie: 1 };
        let refused = test.pair.host.engine.fetch(connection, &request).unwrap_err();
        assert_eq!(refused, TransferError::NoSlot);
        assert!(refused.to_string().contains("transfer_depth"), "{refused}");

        let mut test = pair(profile);
        let connection = test.host.connection.unwrap();
        for memory in [MemoryId(9), MemoryId(u32::MAX)] {
            let local = [Segment { memory, offset: 0, length: EACH }];
            let request = WriteRequest { local: &local, remote: &remote, cookie: 1 };
            let refused = test.pair.host.engine.write(connection, &request).unwrap_err();
            assert_eq!(refused, TransferError::UnknownMemory);
            assert!(refused.to_string().contains("await Event::MemoryRegistered"), "{refused}");
        }
    }
}

/// A transfer that needs more of the send queue than comes free at once is not passed for ever by requests that need less: those
/// that come later wait behind it, and then go on in their order.
#[test]
fn a_transfer_that_waits_for_entries_is_not_starved_by_later_requests() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile).peer_receives(64).target(|target| target.receive_depth = 64).host(|host| {
            host.queue_depth = 16;
            host.registrations = 64;
            host.transfer_depth = 1;
            host.receive_depth = 64;
            // Entries come free one by one.
            host.signal = SignalPolicy::KernelBudget { batch: 0 };
        });
        setup.host_device.capabilities.attributes.max_qp_wr = 64;
        let mut test = Scripted::of(setup);
        test.connect();
        let grant = opened(&mut test);
        let waited = |test: &Scripted| test.host.engine.statistics().requests_waited;
        let mut cookie = 10;
        while waited(&test) == 0 {
            cookie += 1;
            test.submit(cookie, 1, false);
            test.steps(4);
        }
        write_by(&mut test, grant, MAX_TRANSFER_OPERATIONS, 1);
        let last_before = cookie;
        let mut answers = 0;
        while told(&test.host.events, 1, "Done") == 0 {
            // One comes back, and another one wants its place.
            let ended = test.host.ended.len();
            let (name, _) = test.command();
            test.reply(name, None);
            test.until("an end", |pair| pair.host.ended.len() > ended);
            cookie += 1;
            test.submit(cookie, 1, false);
            test.steps(20);
            answers += 1;
            assert!(answers <= MAX_TRANSFER_OPERATIONS, "{profile}: passed by {} requests", cookie - last_before);
        }
        test.until("all ends", |pair| {
            pair.serve(true);
            pair.host.outstanding.is_empty()
        });
        assert!(test.host.ended.iter().all(|(_, status)| *status == "replied"), "{profile}: {:?}", test.host.ended);
    }
}

/// However few entries a later one needs, and however many the first one leaves.
#[test]
fn transfers_go_in_their_order_also_where_a_later_one_needs_less_than_the_first_that_waits() {
    for profile in PROFILES {
        for left in 0..MAX_TRANSFER_OPERATIONS as u64 {
            let mut setup = Setup::new(profile).host(|host| host.transfer_depth = 64);
            setup.host_device.capabilities.attributes.max_qp_wr = 64;
            let mut test = Scripted::of(setup);
            test.connect();
            let grant = opened(&mut test);
            let order = |test: &Scripted| {
                let waiting = test.host.engine.waiting().transfers;
                (waiting.send_entries, waiting.order)
            };
            (0..left).for_each(|cookie| write_by(&mut test, grant, 1, cookie));
            let mut last = left;
            while order(&test) == (0, 0) {
                write_by(&mut test, grant, MAX_TRANSFER_OPERATIONS, last);
                last += 1;
            }
            write_by(&mut test, grant, 1, last);
            write_by(&mut test, grant, 2, last + 1);
            assert_eq!(order(&test), (1, 2), "{profile}, {left} in front");
            test.until("written", |pair| told(&pair.host.events, last + 1, "Done") == 1);
            let written: Vec<_> = test.host.events.iter().filter(|event| event.starts_with("Written")).collect();
            let expected: Vec<_> =
                (0..last + 2).map(|cookie| format!("Written {{ cookie: {cookie}, status: Done }}")).collect();
            assert!(written.into_iter().eq(&expected), "{profile}, {left} in front: {:?}", test.host.events);
        }
    }
}

/// A poll of a side and its Control; what the engine has to tell is not asked for.
fn poll_silently(side: &mut Side<WatchedDevice>, now: Duration) {
    side.control.poll();
    side.engine.poll(now, &mut side.protocol);
}

/// Its data and its reply are one response. Who hears of that one and uses its slot again is not told of the next before that is posted.
#[test]
fn a_response_is_told_once_however_soon_its_slot_is_used_again() {
    for profile in PROFILES {
        for ranges in [1, 3] {
            let mut test = Scripted::new(profile);
            for cookie in [1, 2] {
                test.submit(cookie, ranges, false);
            }
            test.until("commands", |pair| pair.target.commands.len() == 2);
            let [first, second] = [0; 2].map(|_| test.target.take_command().unwrap());
            test.target.answer(first.0, &first.1, None);
            test.target.engine.flush();
            let told = (0..1000).find_map(|_| {
                let now = test.pair.now;
                test.pair.host.step(now);
                poll_silently(&mut test.pair.target, now);
                test.target.engine.next_event()
            });
            assert!(matches!(told, Some(Event::Responded { .. })), "{profile} {told:?}");
            test.target.answer(second.0, &second.1, None);
            let told = test.target.engine.next_event();
            assert!(told.is_none(), "{profile} {ranges}: {told:?} of what is not posted");
            test.until("both are answered", |pair| pair.host.ended.len() == 2 && pair.target.responded == 1);
        }
    }
}

/// A host whose caller took the end of a request when its queue pair was given up already: so nobody knew whether the device had read the
/// message, and its slot was kept for that. The queue pair is gone, and another one there.
fn reconnected_behind_a_held_slot(profile: &str) -> Scripted {
    let mut setup = Setup::new(profile).host(|host| host.transfer_depth = 2);
    // The places of a short queue come round soon.
    setup.host_device.capabilities.attributes.max_qp_wr = 64;
    let mut test = Scripted::of(setup);
    test.connect();
    test.submit(1, 0, false);
    let (name, _) = test.command();
    test.reply(name, None);
    while test.host.engine.receive_buffers().held == 0 {
        let now = test.pair.now;
        test.pair.target.step(now);
        poll_silently(&mut test.pair.host, now);
    }
    test.hold(TokenKind::Drain);
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    while test.host.engine.statistics().drain_timeouts == 0 {
        test.pair.now += Duration::from_millis(50);
        let now = test.pair.now;
        poll_silently(&mut test.pair.host, now);
    }
    let ended = test.host.engine.next_event().unwrap();
    test.host.event(ended);
    assert_eq!((test.status(1), test.host.engine.statistics().slots_held), (Some("replied"), 1), "{profile}");
    test.until_gone();
    test.faults.clear();
    test.faults.release();
    test.connect();
    test
}

#[test]
fn a_place_that_was_waited_for_in_a_former_queue_pair_is_none_of_the_next() {
    const OPERATIONS: usize = MAX_TRANSFER_OPERATIONS - 1;
    for profile in PROFILES {
        let mut test = reconnected_behind_a_held_slot(profile);
        let grant = opened(&mut test);
        write_by(&mut test, grant, OPERATIONS, 0);
        for cookie in 0..20 {
            test.host.engine.flush();
            let told = (0..1000).find_map(|_| {
                let now = test.pair.now;
                test.pair.target.step(now);
                poll_silently(&mut test.pair.host, now);
                test.host.engine.next_event()
            });
            assert!(matches!(told, Some(Event::Written { cookie: told, .. }) if told == cookie), "{profile} {told:?}");
            write_by(&mut test, grant, OPERATIONS, cookie + 1);
            let told = test.host.engine.next_event();
            assert!(told.is_none(), "{profile} {cookie}: {told:?} of what is not posted");
        }
    }
}
