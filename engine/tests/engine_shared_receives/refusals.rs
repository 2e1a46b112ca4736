//! Devices that refuse receives or queues, or cannot have them shared.

use super::{GRANT, apart, assert_all_there, connected, open, round_trip, send, take, until_received};
use core::time::Duration;
use frwr_engine::{
    DisconnectCause, DomainPolicy, Engine, EngineError, EngineOptions, ReceiveQueues,
    provider::{
        Capabilities, CommandError, CompletionQueue, Errno, FailureStatus, PostRefusal, SharedReceiveQueueId,
        fault::{CommandKind, CompletionFault, CompletionFilter},
        soft::{SoftPort, SoftProfile},
    },
};
use frwr_support::engine_harness::{PROFILES, address, post_refusals, scripted::Scripted};

/// Behind this time a queue that refused receives is asked again.
const RESTED: Duration = Duration::from_millis(1);

/// A receive that fails ends its connection, and its buffer is used again; a completion that comes twice counts once.
#[test]
fn failed_and_doubled_receives() {
    let (mut test, connections) = connected("reg_mr", 2);
    let filter = CompletionFilter { queue: Some(CompletionQueue::Receive), ..Default::default() };
    test.target_faults.on_completions(filter, CompletionFault::Duplicate, 1);
    round_trip(&mut test, connections[1], 1);
    assert_eq!(test.target.engine.statistics().stale_completions, 1);
    test.target_faults.on_completions(filter, CompletionFault::Fail(FailureStatus::LocalLength.into()), 1);
    send(&mut test, connections[0], 2);
    test.until("ended", |pair| pair.target.disconnected == 1);
    assert_eq!(test.target.causes, [DisconnectCause::WorkRequest(FailureStatus::LocalLength.into())]);
    round_trip(&mut test, connections[1], 3);
    assert_all_there(&test, 2 * GRANT, 1);
}

/// A queue that takes no receives ends all that share it, and none is lost; a flush a millisecond later tries again.
#[test]
fn refused_receives_end_all_connections_and_none_is_lost() {
    for accepted in 0..3 {
        let (mut test, connections) = connected("reg_mr", 2);
        for cookie in 0..3 {
            send(&mut test, connections[cookie as usize % 2], cookie);
        }
        until_received(&mut test, 3);
        // Whatever the device called it.
        for queue in 0..16 {
            let queue = SharedReceiveQueueId(queue);
            test.target_faults.refuse_shared_receives(queue, accepted, PostRefusal::QueueFull);
        }
        for (_, received) in take(&mut test) {
            test.target.engine.release(received);
        }
        test.until("ended", |pair| pair.target.disconnected == 2 && pair.host.disconnected == 2);
        assert_eq!(post_refusals(&test.target.causes), [(PostRefusal::QueueFull, Errno::ENOMEM); 2]);
        test.target_faults.clear();
        test.now += RESTED;
        test.steps(2);
        assert_all_there(&test, 2 * GRANT, 0);
        let again = open(&mut test);
        round_trip(&mut test, again, 10);
    }
}

/// A core that waits for its device to take receives waits: it does not look busy, and says when it is to be called again.
#[test]
fn a_queue_that_keeps_refusing_does_not_keep_a_core_busy() {
    const REFUSALS: u32 = 20;
    let (mut test, connections) = connected("reg_mr", 1);
    send(&mut test, connections[0], 1);
    until_received(&mut test, 1);
    for queue in 0..16 {
        for _ in 0..REFUSALS {
            test.target_faults.refuse_shared_receives(SharedReceiveQueueId(queue), 0, PostRefusal::QueueFull);
        }
    }
    for (_, received) in take(&mut test) {
        test.target.engine.release(received);
    }
    test.until("ended", |pair| pair.target.engine.is_disconnected() && pair.host.engine.is_disconnected());
    let refused = |test: &Scripted| test.target.engine.statistics().posts_refused;
    let (before, now) = (refused(&test), test.now);
    let (mut busy, mut polls) = (0, 0);
    while refused(&test) < before + 5 {
        test.now += Duration::from_micros(1);
        let now = test.now;
        let target = &mut test.pair.target;
        let work = target.engine.poll(now, &mut target.protocol);
        let due = target.engine.poll_at();
        assert_eq!(work > 0, due.is_some_and(|due| due <= now), "{work} {due:?} at {now:?}");
        (busy, polls) = (busy + u32::from(work > 0), polls + 1);
        // Some callers flush always.
        target.engine.flush();
        assert!(polls < 10_000, "it gave up");
    }
    assert_eq!(busy, 5, "of {polls} polls");
    assert!(test.now - now >= 4 * RESTED - Duration::from_micros(10), "{:?}", test.now - now);
    assert!(!test.target.engine.is_idle(), "something is left to be posted");
    test.target_faults.clear();
    test.now += RESTED;
    test.steps(2);
    assert_all_there(&test, GRANT, 0);
    let again = open(&mut test);
    round_trip(&mut test, again, 10);
}

/// What the device cannot make is told, and tried again with the next connection.
#[test]
fn a_queue_that_is_not_made_is_told() {
    let mut test = apart("reg_mr", 2, 0);
    test.target_faults.fail_command(CommandKind::CreateSharedReceiveQueue, CommandError::EXHAUSTED, 1);
    let options = test.host.connection_options();
    test.host.engine.connect(address(), b"hello", &options).unwrap();
    test.until("refused", |pair| pair.target.open_failed == 1 && pair.host.open_failed == 1);
    let told = test
        .target
        .events
        .iter()
        .any(|event| event.contains("SharedReceives { entries: 16, error: Exhausted(errno 12 ENOMEM) }"));
    assert!(told, "{:?}", test.target.events);
    let connection = open(&mut test);
    round_trip(&mut test, connection, 1);
    assert_all_there(&test, 2 * GRANT, 1);
}

#[test]
fn devices_that_cannot_are_refused_when_the_engine_is_made() {
    let sized = |max_srq, max_srq_wr, entries| {
        let mut capabilities = SoftProfile::Window.capabilities();
        (capabilities.attributes.max_srq, capabilities.attributes.max_srq_wr) = (max_srq, max_srq_wr);
        let receive_queues = ReceiveQueues::Shared { entries };
        let options = EngineOptions::default().connections(4).receive_depth(10).receive_queues(receive_queues);
        Engine::<SoftPort>::completion_entries(&options, &capabilities).map(|(_, receives)| receives)
    };
    assert_eq!((sized(1, 40, 0), sized(1, 40, 25)), (Ok(40), Ok(25)));
    assert_eq!(
        (sized(0, 40, 0), sized(1, 0, 0)),
        (Err(EngineError::NoSharedReceives), Err(EngineError::NoSharedReceives))
    );
    assert_eq!(sized(1, 39, 0), Err(EngineError::SharedReceives { need: 40, limit: 39 }));
    assert!(matches!(sized(1, 40, 9), Err(EngineError::Option { value: 9, .. })), "not one connection fits");
}

#[test]
fn a_device_that_looks_at_the_connections_domain_shares_within_one_domain_only() {
    fn made(capabilities: &Capabilities, domain: DomainPolicy) -> Result<(u32, u32), EngineError> {
        let receive_queues = ReceiveQueues::Shared { entries: 0 };
        let options = EngineOptions::default().domain(domain).receive_queues(receive_queues);
        Engine::<SoftPort>::completion_entries(&options, capabilities)
    }
    let mut capabilities = SoftProfile::Rxe.capabilities();
    assert!(made(&capabilities, DomainPolicy::PerConnection).is_ok());
    capabilities.quirks.shared_receives_need_one_domain = true;
    assert!(made(&capabilities, DomainPolicy::Shared).is_ok());
    assert_eq!(made(&capabilities, DomainPolicy::PerConnection), Err(EngineError::SharedReceivesDomain));
}

/// Refuses so many posts of the target's receives, whatever the device calls its queue.
fn refuse(test: &Scripted, accepted: usize, posts: u32) {
    for queue in 0..16 {
        for _ in 0..posts {
            test.target_faults.refuse_shared_receives(SharedReceiveQueueId(queue), accepted, PostRefusal::QueueFull);
        }
    }
}

/// Begins to connect.
fn begin(test: &mut Scripted) {
    let options = test.host.connection_options();
    test.host.engine.connect(address(), b"hello", &options).unwrap();
}

/// A connection that opens while the queue rests opens when its receives are there, no earlier: its peer sends at once, and a
/// receiver that is not ready hangs rxe's.
#[test]
fn a_connection_that_opens_while_the_queue_rests_opens_late() {
    for (profile, accepted) in PROFILES.into_iter().flat_map(|profile| [(profile, 0), (profile, 3)]) {
        let mut test = apart(profile, 2, 0);
        refuse(&test, accepted, 1);
        begin(&mut test);
        let posts = |test: &Scripted| test.target.engine.statistics().posts_refused;
        test.until("refused", |pair| pair.target.engine.statistics().posts_refused == 1);
        let now = test.now;
        // In the middle of the rest another one comes.
        begin(&mut test);
        for _ in 0..200 {
            test.now = now;
            test.steps(1);
        }
        assert_eq!(test.target.engine.receive_buffers().posted, accepted as u32, "{profile}");
        assert_eq!((test.host.connections.len(), test.target.connections.len()), (0, 0), "{profile}: nobody is there");
        test.now += RESTED;
        test.until("open", |pair| pair.host.connections.len() == 2 && pair.target.connections.len() == 2);
        assert_eq!((posts(&test), test.target.disconnected), (1, 0), "{profile}: none was lost by it");
        assert_all_there(&test, 2 * GRANT, 2);
        for connection in test.host.connections.clone() {
            for cookie in 0..u64::from(GRANT) {
                send(&mut test, connection, cookie);
            }
        }
        until_received(&mut test, 2 * GRANT as usize);
    }
}

/// Where the device takes none at all, nobody waits for ever.
#[test]
fn a_connection_to_a_queue_that_keeps_refusing_ends() {
    let mut test = apart("reg_mr", 2, 0);
    refuse(&test, 0, 20);
    begin(&mut test);
    test.until("refused", |pair| pair.target.engine.statistics().posts_refused == 1);
    test.steps(50);
    test.now += RESTED;
    test.until("ended", |pair| pair.target.engine.is_disconnected() && pair.host.engine.is_disconnected());
    assert_eq!(post_refusals(&test.target.causes), [(PostRefusal::QueueFull, Errno::ENOMEM)]);
}

frwr_support::asleep! {
    failed_and_doubled_receives,
    refused_receives_end_all_connections_and_none_is_lost,
    a_queue_that_keeps_refusing_does_not_keep_a_core_busy,
    a_queue_that_is_not_made_is_told,
    devices_that_cannot_are_refused_when_the_engine_is_made,
    a_device_that_looks_at_the_connections_domain_shares_within_one_domain_only,
    a_connection_that_opens_while_the_queue_rests_opens_late,
    a_connection_to_a_queue_that_keeps_refusing_ends,
}
