//! Devices that refuse to destroy what they have: nothing that a queue pair may still reach is handed back, nothing is told that
//! is not true, and what was refused is asked for again (promises Hold and Fence, S95, S105, I11, fault 33).

use core::time::Duration;
use frwr_engine::{
    ConnectionId, EngineOptions, OnPostError, ReceiveQueues,
    provider::{Chain, CommandError, Port, QueuePairId, TokenKind, fault::CommandKind},
};
use frwr_support::engine_harness::{PROFILES, Setup, address, scripted::*};

/// Longer than the drain time-out.
const OVERDUE: Duration = Duration::from_secs(6);

/// From one poll to the next where it is to pass: no standstill.
const TICK: Duration = Duration::from_millis(50);

/// More refusals than any test waits for.
const FOR_EVER: u32 = u32::MAX;

/// Steps in which the device is asked several times, whatever the pause in between.
const MANY: u32 = 1000;

/// Whether the host's device still has a queue pair: it takes an empty post then.
fn exists(test: &mut Scripted, queue_pair: QueuePairId) -> bool {
    test.pair.host.engine.port_mut().post(queue_pair, Chain { requests: &[], elements: &[] }).is_ok()
}

fn kept_events(test: &Scripted) -> usize {
    test.host.events.iter().filter(|event| event.starts_with("QueuePairKept")).count()
}

fn queue_pairs_kept(test: &Scripted) -> u64 {
    test.host.control.statistics().queue_pairs_kept
}

fn is_told(test: &Scripted, connection: ConnectionId) -> bool {
    test.host.gone.contains(&connection)
}

#[test]
fn s95_hold_nothing_is_given_back_while_the_device_keeps_an_undrained_queue_pair() {
    for profile in PROFILES {
        for stuck in [Some(TokenKind::Drain), Some(TokenKind::Receive), None] {
            let mut test = Scripted::new(profile);
            test.submit(1, 2, true);
            test.submit(2, 0, false);
            test.until("commands", |pair| pair.target.commands.len() == 2);
            let queue_pair = test.queue_pair();
            match stuck {
                Some(kind) => test.hold(kind),
                None => test.refuse(0),
            }
            test.faults.fail_command(CommandKind::DestroyQueuePair, CommandError::BUSY, FOR_EVER);
            let connection = test.host.connection.unwrap();
            let slots = test.host.engine.statistics().request_slots_used;
            test.host.engine.disconnect(connection);
            test.steps(50);
            test.pass(OVERDUE);
            let posted = test.host.engine.receive_buffers().posted;
            for _ in 0..MANY {
                test.steps(1);
                assert!(test.host.ended.is_empty() && !is_told(&test, connection), "{profile} {stuck:?}");
            }
            assert!(exists(&mut test, queue_pair), "the script keeps it");
            assert_eq!((kept_events(&test), queue_pairs_kept(&test)), (1, 1), "{profile} {stuck:?}: told once");
            assert_eq!(test.host.engine.statistics().request_slots_used, slots, "{profile} {stuck:?}");
            assert_eq!(test.host.engine.receive_buffers().posted, posted, "{profile} {stuck:?}");
            assert_eq!(test.open_bytes(), 0, "{profile} {stuck:?}: keys are dead before");
            let asked = test.control_failures();
            assert!((8..u64::from(MANY) / 5).contains(&asked), "{profile} {stuck:?}: asked {asked} times");

            // The device thinks better of it.
            test.faults.clear();
            test.until("the end", |pair| pair.host.gone.contains(&connection));
            assert!(!exists(&mut test, queue_pair));
            assert_eq!((test.status(1), test.status(2)), (Some("lost"), Some("lost")), "{profile} {stuck:?}");
            let last = test.host.events.last().unwrap();
            assert!(last.starts_with("Disconnected"), "{last}: everything was reported before");
            assert_eq!((test.host.disconnected, queue_pairs_kept(&test)), (1, 0), "{profile} {stuck:?}");
            test.until_gone();
            test.reconnect_works();
        }
    }
}

#[test]
fn s96_other_connections_go_on_beside_a_queue_pair_that_is_kept() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 1, true);
        test.command();
        let (first, slots) = (test.host.connection.unwrap(), test.host.engine.receive_buffers());
        test.refuse(0);
        test.faults.fail_command(CommandKind::DestroyQueuePair, CommandError::BUSY, FOR_EVER);
        test.host.engine.disconnect(first);
        test.until("kept", |pair| pair.host.control.statistics().queue_pairs_kept == 1);
        test.until("the target's end", |pair| pair.target.engine.is_disconnected());
        test.connect();
        for cookie in 2..10 {
            test.round_trip(cookie);
        }
        assert!(!is_told(&test, first) && test.status(1).is_none(), "{profile}");
        let options = frwr_engine::ConnectionOptions::default().peer_receives(32);
        assert!(test.host.engine.connect(address(), b"", &options).is_err(), "{profile}: its place is not free");
        test.faults.clear();
        test.until("the end", |pair| pair.host.gone.contains(&first));
        assert_eq!(test.status(1), Some("lost"), "{profile}");
        test.round_trip(10);
        let buffers = test.host.engine.receive_buffers();
        let sum = |of: frwr_engine::ReceiveBuffers| of.posted + of.held + of.idle;
        assert_eq!(sum(buffers), sum(slots), "{profile}: Conservation");
    }
}

/// What an RDMA READ of a former connection brings must not meet what its caller does with the memory next.
#[test]
fn hold_memory_of_a_queue_pair_that_is_kept_is_not_told_to_be_lost() {
    let mut test = Scripted::of(Setup::new("reg_mr"));
    test.connect();
    let connection = test.target_fetches();
    // The queue pair goes on with its READ, and stays; the peer is slow, and is told nothing.
    for (kind, times) in
        [(CommandKind::FailQueuePair, 1), (CommandKind::Disconnect, 1), (CommandKind::DestroyQueuePair, 5)]
    {
        test.target_faults.fail_command(kind, CommandError::BUSY, times);
    }
    let target = &mut test.pair.target;
    target.engine.disconnect(connection);
    let mut now = test.pair.now;
    let mut told_after = None;
    for step in 0..MANY {
        now += if step < 10 { Duration::from_micros(1) } else { TICK };
        target.step(now);
        if target.fetched > 0 {
            told_after = Some(target.control.statistics().commands_failed);
            break;
        }
    }
    assert_eq!(told_after, Some(7), "told when the device had complied");
    test.nobody_writes_what_was_fetched(now);
}

#[test]
fn fault33_a_drained_queue_pair_that_is_kept_reaches_nothing_and_its_connection_ends() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.round_trip(1);
        let (connection, queue_pair) = (test.host.connection.unwrap(), test.queue_pair());
        test.faults.fail_command(CommandKind::DestroyQueuePair, CommandError::BUSY, FOR_EVER);
        test.host.engine.disconnect(connection);
        test.until_gone();
        assert!(exists(&mut test, queue_pair));
        assert_eq!((kept_events(&test), queue_pairs_kept(&test)), (0, 1), "{profile}");
        test.connect();
        test.round_trip(2);
        test.faults.clear();
        test.until("destroyed", |pair| pair.host.control.statistics().queue_pairs_kept == 0);
        assert!(!exists(&mut test, queue_pair));
        assert_eq!(test.host.disconnected, 1, "{profile}: its end is told once");
        test.round_trip(3);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.until_gone();
        assert_eq!(test.host.control.statistics().domains_kept, 0, "{profile}");
    }
}

/// Where nothing proves that shared receives are not taken any more, a queue pair that could not be moved to the error state may.
#[test]
fn s95_what_could_not_be_failed_and_is_kept_has_not_ended_whatever_it_drained_to() {
    let setup = Setup::new("rxe").host(|host| host.receive_queues = ReceiveQueues::Shared { entries: 0 });
    let mut test = Scripted::of(setup);
    test.connect();
    let connection = test.host.connection.unwrap();
    for (kind, times) in
        [(CommandKind::FailQueuePair, 1), (CommandKind::Disconnect, 1), (CommandKind::DestroyQueuePair, FOR_EVER)]
    {
        test.faults.fail_command(kind, CommandError::BUSY, times);
    }
    test.host.engine.disconnect(connection);
    test.until("kept", |pair| pair.host.control.statistics().queue_pairs_kept == 1);
    test.steps(MANY);
    assert!(!is_told(&test, connection));
    assert_eq!(kept_events(&test), 1);
    let (now, poll_at) = (test.now, test.host.engine.poll_at());
    assert!(poll_at.is_some_and(|at| at > now), "who waits for the device may sleep: {poll_at:?} at {now:?}");
    test.faults.clear();
    test.until("the end", |pair| pair.host.gone.contains(&connection));
    // It was told nothing.
    let theirs = test.target.connection.unwrap();
    test.target.engine.disconnect(theirs);
    test.until_gone();
    test.reconnect_works();
}

#[test]
fn s105_i11_mrs_that_are_refused_before_their_queue_pair_is_destroyed_are_no_orphans() {
    for profile in PROFILES {
        for drains in [true, false] {
            let mut test = Scripted::policy(profile, OnPostError::Disconnect);
            test.submit(1, 2, true);
            test.command();
            if !drains {
                test.refuse(0);
            }
            let mrs = test.descriptors().iter().sum::<u32>();
            test.faults.fail_command(CommandKind::FreeRegistration, CommandError::BUSY, mrs);
            test.faults.fail_command(CommandKind::DestroyQueuePair, CommandError::BUSY, 20);
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.until("kept", |pair| pair.host.control.statistics().queue_pairs_kept == 1);
            assert!(test.host.ended.is_empty(), "{profile}: its keys are alive, as far as the device says");
            // The harness looks into the device's table when the request ends.
            test.until_gone();
            let statistics = test.host.engine.statistics();
            assert_eq!((test.host.orphaned_mrs, statistics.mrs_orphaned), (0, 0), "{profile} {drains}");
            assert_eq!(statistics.mrs_destroyed, statistics.mrs_allocated, "{profile} {drains}");
            assert_eq!(test.status(1), Some("lost"));
            test.reconnect_works();
        }
    }
}

#[test]
fn fault33_a_connection_that_does_not_open_waits_for_its_queue_pair_as_well() {
    for profile in PROFILES {
        let mut test = Scripted::unconnected(profile, EngineOptions::default());
        test.faults.fail_command(CommandKind::DestroyQueuePair, CommandError::BUSY, FOR_EVER);
        let nobody = "127.0.0.1:9".parse().unwrap();
        let options = frwr_engine::ConnectionOptions::default();
        test.host.engine.connect(nobody, b"", &options).unwrap();
        test.until("kept", |pair| pair.host.control.statistics().queue_pairs_kept == 1);
        test.steps(MANY);
        assert_eq!((test.host.open_failed, kept_events(&test)), (0, 1), "{profile}");
        test.faults.clear();
        test.until("failed", |pair| pair.host.open_failed == 1);
        assert!(test.host.engine.is_disconnected());
        test.connect();
        test.round_trip(1);
    }
}

/// A device that has no more connections is not an address where nobody listens.
#[test]
fn fault33_what_the_device_has_none_left_of_is_told_as_that() {
    for (error, told) in [(CommandError::EXHAUSTED, "Exhausted"), (CommandError::ADDRESS, "Unreachable")] {
        let mut test = Scripted::unconnected("reg_mr", EngineOptions::default());
        test.faults.fail_command(CommandKind::Connect, error, 1);
        test.host.engine.connect(address(), b"", &frwr_engine::ConnectionOptions::default()).unwrap();
        test.until("failed", |pair| pair.host.open_failed == 1);
        assert!(test.host.events.last().unwrap().contains(told), "{error}: {:?}", test.host.events.last());
        test.connect();
        test.round_trip(1);
    }
}

#[test]
fn memory_and_listeners_that_the_device_keeps_are_asked_for_again() {
    // One domain per connection, which goes with its two base registrations.
    for profile in ["reg_mr", "umr"] {
        let mut test = Scripted::new(profile);
        test.faults.fail_command(CommandKind::DeregisterMemory, CommandError::BUSY, 3);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.until_gone();
        test.steps(10);
        let statistics = test.host.control.statistics();
        assert_eq!((statistics.memories_kept, statistics.domains_kept), (2, 0), "{profile}: the domain waits");
        test.until("deregistered", |pair| pair.host.control.statistics().memories_kept == 0);
        test.reconnect_works();
        assert_eq!(test.control_failures(), 3, "{profile}: the domain is freed at the first attempt");

        test.target_faults.fail_command(CommandKind::StopListening, CommandError::BUSY, 2);
        test.target.engine.stop_listening(address()).unwrap();
        test.steps(10);
        assert_eq!(test.target.control.statistics().listeners_kept, 1, "{profile}");
        test.until("not listening", |pair| pair.target.control.statistics().listeners_kept == 0);
        test.target.engine.listen(address()).unwrap();
        test.steps(10);
        assert!(
            test.target.events.last().unwrap().contains("state: Began"),
            "{profile}: {:?}",
            test.target.events.last()
        );
    }
}

frwr_support::asleep! {
    s95_hold_nothing_is_given_back_while_the_device_keeps_an_undrained_queue_pair,
    s96_other_connections_go_on_beside_a_queue_pair_that_is_kept,
    hold_memory_of_a_queue_pair_that_is_kept_is_not_told_to_be_lost,
    fault33_a_drained_queue_pair_that_is_kept_reaches_nothing_and_its_connection_ends,
    s95_what_could_not_be_failed_and_is_kept_has_not_ended_whatever_it_drained_to,
    s105_i11_mrs_that_are_refused_before_their_queue_pair_is_destroyed_are_no_orphans,
    fault33_a_connection_that_does_not_open_waits_for_its_queue_pair_as_well,
    fault33_what_the_device_has_none_left_of_is_told_as_that,
    memory_and_listeners_that_the_device_keeps_are_asked_for_again,
}
