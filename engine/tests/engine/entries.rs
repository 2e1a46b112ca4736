//! Transfers and what holds the send queue for as long as a peer likes: open registrations, and requests without an answer. A
//! transfer waits for the device and never for a peer, which may be waiting for that very transfer.

use frwr_engine::{
    Chunk, EngineOptions, MAX_TRANSFER_OPERATIONS, RemoteSegment, SubmitError, WriteRequest,
    mr::Grant,
    provider::{Access, CompletionQueue, RemoteRange, SendQueueCost},
    signal::SignalPolicy,
};
use frwr_support::engine_harness::{PROFILES, Setup, scripted::Scripted};

/// Bytes of each WRITE.
const EACH: u64 = 8;

/// What the host holds open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Registrations,
    Requests,
}

/// What one work request of each kind takes of the send queue.
const COSTS: [(u32, u32, u32); 3] = [(1, 1, 1), (3, 2, 1), (4, 1, 2)];

/// A pair whose target may be sent much, on a device with so many send queue entries.
fn pair(profile: &str, cost: (u32, u32, u32), most_entries: u32, host: EngineOptions) -> Scripted {
    let mut test = Scripted::of(setup(profile, cost, most_entries, host));
    test.connect();
    test
}

fn setup(profile: &str, cost: (u32, u32, u32), most_entries: u32, host: EngineOptions) -> Setup {
    let mut setup = Setup::new(profile).peer_receives(64).target(|target| target.receive_depth = 64);
    setup.host = host.receive_depth(64);
    let (register, invalidate, message) = cost;
    let device = &mut setup.host_device.capabilities;
    device.attributes.max_qp_wr = most_entries;
    device.send_queue_cost = SendQueueCost { register, invalidate, message };
    setup
}

/// A key of the target's that the host may write under.
fn opened(test: &mut Scripted) -> Grant {
    let segment = test.target.segment(8192, 512);
    let target = &mut test.pair.target;
    let chunk = Chunk { access: Access::RemoteReadWrite, segments: &[segment] };
    target.engine.register_now(target.connection.unwrap(), &chunk, 1, &mut target.protocol).unwrap();
    target.outstanding.insert(1, 512);
    test.until("registered", |pair| !pair.target.grants.is_empty());
    test.target.grants[0].1
}

fn register(test: &mut Scripted, cookie: u64) -> Result<(), SubmitError> {
    let segment = test.host.segment(256, 512);
    let host = &mut test.pair.host;
    let chunk = Chunk { access: Access::RemoteRead, segments: &[segment] };
    host.engine.register_now(host.connection.unwrap(), &chunk, cookie, &mut host.protocol)?;
    host.outstanding.insert(cookie, 512);
    Ok(())
}

/// Opens keys, which nobody closes, until one has to wait or there is no slot for it. Returns how many.
fn hold(test: &mut Scripted, holds: Holds) -> u64 {
    for cookie in 100.. {
        let waited = test.host.engine.statistics().requests_waited;
        let taken = match holds {
            Holds::Requests => test.try_submit(cookie, 1, false).map(drop),
            Holds::Registrations => register(test, cookie),
        };
        // Everything that is on its way arrives.
        test.steps(20);
        if taken == Err(SubmitError::NoSlot) || test.host.engine.statistics().requests_waited > waited {
            return cookie - 100;
        }
        taken.unwrap();
    }
    unreachable!()
}

/// A WRITE to so many ranges.
fn write(test: &mut Scripted, grant: Grant, ranges: u64, cookie: u64) {
    let remote: Vec<_> = (0..ranges)
        .map(|at| RemoteSegment {
            remote: RemoteRange { address: grant.address + EACH * at, key: grant.key },
            length: EACH as u32,
        })
        .collect();
    let host = &mut test.pair.host;
    let local = [host.segment(262_144, (EACH * ranges) as u32)];
    host.engine.write(host.connection.unwrap(), &WriteRequest { local: &local, remote: &remote, cookie }).unwrap();
}

fn is_written(events: &[String], cookie: u64) -> bool {
    events.iter().any(|event| *event == format!("Written {{ cookie: {cookie}, status: Done }}"))
}

#[test]
fn i31_a_transfer_waits_for_no_key_that_stays_open() {
    for profile in PROFILES {
        for holds in [Holds::Registrations, Holds::Requests] {
            for (cost, most_entries) in COSTS.into_iter().flat_map(|cost| [(cost, 90), (cost, 16_384)]) {
                for (queue_depth, registrations) in [(1, 0), (1, 4), (8, 100)] {
                    let host = EngineOptions::default()
                        .connections(8)
                        .queue_depth(queue_depth)
                        .registrations(registrations)
                        .transfer_depth(1);
                    let mut test = pair(profile, cost, most_entries, host);
                    let grant = opened(&mut test);
                    let held = hold(&mut test, holds);
                    let what =
                        format!("{profile}: {held} {holds:?}, {queue_depth} {registrations} {cost:?} {most_entries}");
                    assert!(held > 0, "{what}");
                    write(&mut test, grant, MAX_TRANSFER_OPERATIONS as u64, 1);
                    test.until(&what, |pair| is_written(&pair.host.events, 1));
                }
            }
        }
    }
}

/// As many keys as there are MRs can be open, and the message that has the peer close them still goes out.
#[test]
fn i31_a_message_waits_for_no_key_that_stays_open() {
    const KEYS: u64 = 100;
    for profile in PROFILES {
        for cost in COSTS {
            let host = EngineOptions::default().connections(8).queue_depth(8).registrations(KEYS as u32);
            let mut test = pair(profile, cost, 16_384, host);
            for cookie in 100..100 + KEYS {
                register(&mut test, cookie).unwrap();
                test.steps(20);
            }
            assert_eq!(test.host.grants.len() as u64, KEYS, "{profile} {cost:?}: all are open");
            test.submit(1, 0, false);
            test.command();
        }
    }
}

/// Requests without end do not keep a transfer waiting: the entries that it needs are kept for it as they come back, one by one.
#[test]
fn i31_requests_without_end_do_not_keep_a_transfer_waiting() {
    const STEPS: usize = 1000;
    for profile in PROFILES {
        let host = EngineOptions::default()
            .connections(1)
            .queue_depth(128)
            .transfer_depth(1)
            // Each message completes for itself.
            .signal(SignalPolicy::SendsOnly { batch: 0 });
        let mut setup = setup(profile, (1, 1, 1), 64, host);
        (setup.host_device.wire_packets, setup.target_device.wire_packets) = (2, 2);
        let mut test = Scripted::of(setup);
        test.connect();
        let grant = opened(&mut test);
        let mut cookies = 100..;
        let mut go_on = |test: &mut Scripted| {
            // Always more than there is room for.
            while test.host.engine.statistics().request_slots_used < 120 {
                test.submit(cookies.next().unwrap(), 0, false);
            }
            test.steps(1);
            test.serve(false);
        };
        (0..100).for_each(|_| go_on(&mut test));
        write(&mut test, grant, MAX_TRANSFER_OPERATIONS as u64, 1);
        let waits = (0..STEPS).take_while(|_| {
            go_on(&mut test);
            !is_written(&test.host.events, 1)
        });
        assert!(waits.count() < STEPS, "{profile}: it waits for ever");
    }
}

/// Keys that are opened in front of one flush are counted as those that are posted: what has no room waits, and nothing is refused.
#[test]
fn i31_keys_without_a_message_take_no_more_entries_than_there_are() {
    for profile in PROFILES {
        for cost in COSTS {
            let host = EngineOptions::default().connections(8).queue_depth(16).registrations(100);
            let mut test = pair(profile, cost, 64, host);
            let refused = (100..200).find_map(|cookie| register(&mut test, cookie).err());
            assert!(matches!(refused, None | Some(SubmitError::NoSlot)), "{profile} {cost:?}: {refused:?}");
            let statistics = test.host.engine.statistics();
            assert!(statistics.requests_waited > 0, "{profile} {cost:?}: all had room");
            test.steps(200);
            let statistics = test.host.engine.statistics();
            assert_eq!((statistics.posts_refused, statistics.disconnects), (0, 0), "{profile} {cost:?}");
        }
    }
}

/// The write pad and the marker of a drain have entries of their own, whatever they take: full queues are not overrun.
#[test]
fn s92_a_full_send_queue_has_room_for_the_write_pad() {
    const WRITES: u64 = 100;
    for profile in PROFILES {
        for cost in COSTS {
            let host = EngineOptions::default()
                .queue_depth(1)
                .transfer_depth(100)
                .write_pad(true)
                // Nothing asks for a completion that would tell of the pad.
                .signal(SignalPolicy::Sparse);
            let mut test = pair(profile, cost, 16_384, host);
            let grant = opened(&mut test);
            // More than there is room for, in front of the next flush.
            for cookie in 1..=WRITES {
                write(&mut test, grant, 4, cookie);
            }
            for cookie in 1..=WRITES {
                test.until("written", |pair| is_written(&pair.host.events, cookie));
            }
            assert_eq!(test.host.engine.statistics().posts_refused, 0, "{profile} {cost:?}");
        }
    }
}

/// A transfer that waits when its connection ends is lost with it. Nobody waits behind it on the next one: neither a request, nor a transfer.
#[test]
fn who_waited_for_entries_of_a_former_connection_is_in_nobodys_way() {
    for profile in PROFILES {
        let host = EngineOptions::default().connections(1).queue_depth(8).transfer_depth(8);
        let mut test = pair(profile, (1, 1, 1), 64, host);
        let grant = opened(&mut test);
        test.faults.hold(CompletionQueue::Send);
        let waiting = |test: &Scripted| test.host.engine.waiting().transfers.send_entries;
        let waits = (1..16).find(|&cookie| {
            write(&mut test, grant, MAX_TRANSFER_OPERATIONS as u64, cookie);
            test.steps(20);
            waiting(&test) > 0
        });
        let waits = waits.unwrap();
        // More than one slot, so that the next transfer takes none of the first that waited.
        (1..3).for_each(|more| write(&mut test, grant, 1, waits + more));
        assert_eq!(test.host.engine.waiting().transfers.order, 2, "{profile}");
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.faults.release();
        test.until_gone();
        let lost = format!("Written {{ cookie: {waits}, status: Lost }}");
        assert!(test.host.events.contains(&lost), "{profile}: {:?}", test.host.events);
        test.connect();
        assert_eq!(waiting(&test), 0, "{profile}");
        test.round_trip(100);
        test.target.grants.clear();
        let grant = opened(&mut test);
        write(&mut test, grant, 1, 101);
        test.until("written", |pair| is_written(&pair.host.events, 101));
    }
}

/// Requests that wait behind a transfer wait until it went, also where all that was in its way was given up meanwhile.
#[test]
fn a_request_does_not_pass_a_transfer_whose_entries_have_come_free() {
    for profile in PROFILES {
        let host = EngineOptions::default().connections(1).queue_depth(64).transfer_depth(1);
        let mut test = pair(profile, (1, 1, 1), 64, host);
        let grant = opened(&mut test);
        test.posted();
        let before = test.host.engine.statistics().requests_waited;
        let mut requests = Vec::new();
        while test.host.engine.statistics().requests_waited == before {
            requests.push(test.submit(100 + requests.len() as u64, 0, false));
        }
        write(&mut test, grant, MAX_TRANSFER_OPERATIONS as u64, 1);
        assert_eq!(test.host.engine.waiting().transfers.send_entries, 1, "{profile}");
        for request in requests {
            test.host.engine.cancel(request).unwrap();
        }
        test.submit(99, 0, false);
        test.until("both", |pair| is_written(&pair.host.events, 1) && !pair.target.commands.is_empty());
        let posted: String = test.posted().iter().map(|wr| wr.letter().replace('*', "")).collect();
        assert_eq!(posted, format!("{}S", "P".repeat(MAX_TRANSFER_OPERATIONS)), "{profile}");
    }
}
