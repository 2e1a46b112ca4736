//! Connections that share one receive queue: one post for all of them, grants, ends, and no buffer lost or doubled.

use core::time::Duration;
use frwr_engine::{
    ConnectionId, DisconnectCause, DomainPolicy, Engine, EngineError, EngineOptions, OpenError, ReceiveBuffers,
    ReceiveQueues, Received,
    provider::{
        Access, Capabilities, CommandError, Completion, CompletionQueue, Errno, FailureStatus,
        MAX_COMPLETIONS_PER_POLL, Port, PostRefusal, SharedReceiveQueueId, Token, TokenKind,
        fault::{CommandKind, CompletionFault, CompletionFilter},
        soft::{Interference, SoftPort, SoftProfile},
    },
};
use frwr_support::engine_harness::{PROFILES, Setup, address, post_refusals, scripted::Scripted};
use std::collections::HashMap;

/// Receives that a connection is granted.
const GRANT: u32 = 8;

/// Behind this time a queue that refused receives is asked again.
const RESTED: Duration = Duration::from_millis(1);

/// A target whose connections share `entries` receives; nobody is connected yet.
fn apart(profile: &str, connections: u16, entries: u32) -> Scripted {
    let setup = Setup::new(profile).peer_receives(GRANT).host(|host| host.connections = connections).target(|target| {
        target.connections = connections;
        target.receive_depth = GRANT;
        target.receive_queues = ReceiveQueues::Shared { entries };
    });
    let mut test = Scripted::of(setup);
    test.target.every_command = Some(Vec::new());
    test
}

/// The same with this many connections, by the names of the host.
fn connected(profile: &str, connections: u16) -> (Scripted, Vec<ConnectionId>) {
    let mut test = apart(profile, connections, 0);
    let opened = (0..connections).map(|_| open(&mut test)).collect();
    (test, opened)
}

fn open(test: &mut Scripted) -> ConnectionId {
    let ready = test.target.connections.len() + 1;
    test.connect();
    test.until("both ends", |pair| pair.target.connections.len() >= ready);
    test.host.connection.unwrap()
}

fn send(test: &mut Scripted, connection: ConnectionId, cookie: u64) {
    test.host.connection = Some(connection);
    let segment = [test.host.segment(4096 * (cookie % 64), 512)];
    test.host.submit(cookie, Access::RemoteWrite, &segment, true).unwrap();
}

fn until_received(test: &mut Scripted, count: usize) {
    test.until("commands", |pair| pair.target.every_command.as_ref().unwrap().len() >= count);
}

fn take(test: &mut Scripted) -> Vec<(ConnectionId, Received)> {
    test.target.every_command.as_mut().unwrap().drain(..).collect()
}

/// Answers what the target has, each on its own connection.
fn answer(test: &mut Scripted) {
    for (connection, received) in take(test) {
        let (name, grants) = test.target.read_command(&received);
        test.target.engine.release(received);
        test.target.connection = Some(connection);
        let key = grants.first().map(|grant| grant.key);
        let _ = test.target.try_answer(name, &grants, key);
    }
}

fn round_trip(test: &mut Scripted, connection: ConnectionId, cookie: u64) {
    send(test, connection, cookie);
    until_received(test, 1);
    answer(test);
    test.until("a round trip", |pair| pair.host.ended.iter().any(|(ended, _)| *ended == cookie));
    assert_eq!(test.status(cookie), Some("replied"));
}

fn free(test: &Scripted) -> u32 {
    test.target.engine.statistics().shared_receives_free as u32
}

/// All buffers that nobody holds are posted, and all receives but those of `open` connections can be granted.
fn assert_all_there(test: &Scripted, entries: u32, open: u32) {
    let buffers = ReceiveBuffers { posted: entries, held: 0, idle: 0 };
    assert_eq!((test.target.engine.receive_buffers(), free(test)), (buffers, entries - open * GRANT));
}

/// What was given back goes to the device in one post, whosever it was; with a queue each it is one per connection.
#[test]
fn one_post_of_receives_for_all_connections() {
    for profile in SoftProfile::ALL {
        let (mut test, connections) = connected(profile.name(), 4);
        assert_eq!(test.target.engine.statistics().receive_doorbells, 1, "{profile}: none of a connection's own");
        for (cookie, connection) in connections.iter().enumerate() {
            send(&mut test, *connection, cookie as u64);
        }
        until_received(&mut test, 4);
        let before = test.target.engine.statistics().receive_doorbells;
        answer(&mut test);
        test.steps(1);
        assert_eq!(test.target.engine.statistics().receive_doorbells - before, 1, "{profile}");
        test.until("replies", |pair| pair.host.ended.len() == 4);
        assert_all_there(&test, 4 * GRANT, 4);
    }
}

/// No receiver is ever not ready: a connection that would be granted more than there is is refused, until one ends.
/// More receives than all connections could own: every one of them comes back.
#[test]
fn receives_beyond_what_connections_could_own_come_back() {
    let mut test = apart("window", 1, 4 * GRANT);
    let connection = open(&mut test);
    for cookie in 0..u64::from(6 * GRANT) {
        round_trip(&mut test, connection, cookie);
    }
    assert_all_there(&test, 4 * GRANT, 1);
}

#[test]
fn a_connection_beyond_the_queue_is_refused() {
    let mut test = apart("window", 4, 2 * GRANT + 3);
    let first = open(&mut test);
    open(&mut test);
    let options = test.host.connection_options();
    test.host.engine.connect(address(), b"hello", &options).unwrap();
    test.until("refused", |pair| pair.host.open_failed == 1);
    assert_eq!(free(&test), 3);
    let refused = test.target.engine.connect(address(), b"", &options);
    assert_eq!(refused, Err(OpenError::Receives { wanted: GRANT, free: 3 }));
    assert!(refused.unwrap_err().to_string().contains("raise ReceiveQueues::Shared"));
    test.host.engine.disconnect(first);
    test.until("gone", |pair| pair.target.disconnected == 1);
    let third = open(&mut test);
    round_trip(&mut test, third, 1);
    assert_all_there(&test, 2 * GRANT + 3, 2);
}

/// A peer that keeps to the rules replies to what was cancelled as well: the receive of that reply is promised to nobody else.
#[test]
fn replies_to_cancelled_requests_keep_their_receives() {
    const REPLIES: u32 = 4;
    for profile in SoftProfile::ALL {
        let setup = Setup::new(profile.name())
            .peer_receives(4 * REPLIES)
            .host(|host| {
                host.connections = 1;
                host.receive_depth = REPLIES;
                host.receive_queues = ReceiveQueues::Shared { entries: 4 * REPLIES };
            })
            .target(|target| target.receive_depth = 4 * REPLIES);
        let mut test = Scripted::of(setup);
        test.target.every_command = Some(Vec::new());
        let connection = open(&mut test);
        let all = u64::from(2 * REPLIES);
        for cookie in 0..all {
            if cookie == all / 2 {
                until_received(&mut test, REPLIES as usize);
                for cancelled in 0..cookie {
                    let handle = test.host.protocol.names[&cancelled];
                    test.host.engine.cancel(handle).unwrap();
                }
                test.until("cancelled", |pair| pair.host.ended.len() == REPLIES as usize);
            }
            test.host.connection = Some(connection);
            let segment = [test.host.segment(4096 * cookie, 512)];
            test.host.submit(cookie, Access::RemoteWrite, &segment, false).unwrap();
        }
        test.steps(60);
        while test.host.ended.len() < all as usize {
            assert_eq!(test.host.disconnected, 0, "{profile}: {:?}", test.host.causes);
            // All replies that are due, at once.
            for (_, received) in take(&mut test) {
                let (name, _) = test.target.read_command(&received);
                test.target.engine.release(received);
                test.target.try_answer(name, &[], None).unwrap();
            }
            test.steps(20);
        }
        for cookie in 0..all {
            let expected = if cookie < all / 2 { "cancelled" } else { "replied" };
            assert_eq!(test.status(cookie), Some(expected), "{profile}");
        }
        test.until("late replies", |pair| pair.host.engine.statistics().bad_reply_count == u64::from(REPLIES));
        assert_eq!(test.host.engine.statistics().connections, 1, "{profile}");
        let buffers = ReceiveBuffers { posted: 4 * REPLIES, held: 0, idle: 0 };
        test.steps(4);
        assert_eq!(test.host.engine.receive_buffers(), buffers, "{profile}");
    }
}

/// What a caller holds of an ended connection is granted to nobody until it is back.
#[test]
fn buffers_outlive_their_connection_and_count_until_they_are_back() {
    for profile in ["window", "rxe", "reg_mr"] {
        let mut test = apart(profile, 2, 2 * GRANT);
        let (first, second) = (open(&mut test), open(&mut test));
        for cookie in 0..3 {
            send(&mut test, first, cookie);
        }
        until_received(&mut test, 3);
        let held = take(&mut test);
        test.host.engine.disconnect(first);
        test.until("gone", |pair| pair.target.disconnected == 1 && pair.host.disconnected == 1);
        assert_eq!(free(&test), GRANT - 3, "{profile}");
        // They are read all the same, while others come and go.
        round_trip(&mut test, second, 10);
        for (cookie, (_, received)) in held.into_iter().enumerate() {
            assert_eq!(test.target.read_command(&received).0, (cookie as u64).to_le_bytes(), "{profile}");
            test.target.engine.release(received);
        }
        test.steps(2);
        assert_all_there(&test, 2 * GRANT, 1);
    }
}

/// A peer that sends more than it was granted ends, and costs the others nothing.
#[test]
fn a_peer_that_exceeds_its_grant_costs_only_itself() {
    let mut test = apart("reg_mr", 2, 0);
    let honest = open(&mut test);
    test.host.peer_receives = 4 * GRANT;
    let greedy = open(&mut test);
    for cookie in 0..=u64::from(GRANT) {
        send(&mut test, greedy, cookie);
    }
    test.until("ended", |pair| pair.target.disconnected == 1 && pair.host.disconnected == 1);
    assert_eq!(test.target.causes, [DisconnectCause::ReceivesExceeded]);
    for (_, received) in take(&mut test) {
        test.target.engine.release(received);
    }
    for cookie in 100..120 {
        round_trip(&mut test, honest, cookie);
    }
    assert_all_there(&test, 2 * GRANT, 1);
}

/// Either side ends, in mid work, again and again; every buffer is where it belongs.
#[test]
fn ends_in_mid_work_lose_no_receive() {
    for profile in SoftProfile::ALL {
        let (mut test, mut connections) = connected(profile.name(), 3);
        for round in 0..60_u64 {
            for (at, connection) in connections.clone().into_iter().enumerate() {
                for cookie in 0..1 + (round + at as u64) % 5 {
                    send(&mut test, connection, round * 100 + at as u64 * 10 + cookie);
                }
            }
            test.steps((round % 7) as u32);
            if round % 3 == 0 {
                answer(&mut test);
            }
            let place = (round % 3) as usize;
            let gone = test.target.disconnected + 1;
            if round % 2 == 0 {
                let connection = connections[place];
                test.host.engine.disconnect(connection);
            } else {
                let open: Vec<_> = test.target.engine.connections().collect();
                test.target.engine.disconnect(open[place]);
            }
            test.until("an end", |pair| pair.target.disconnected == gone && pair.host.disconnected == gone);
            test.until("the rest", |pair| {
                let commands: Vec<_> = pair.target.every_command.as_mut().unwrap().drain(..).collect();
                for (connection, received) in commands {
                    let (name, grants) = pair.target.read_command(&received);
                    pair.target.engine.release(received);
                    pair.target.connection = Some(connection);
                    let _ = pair.target.try_answer(name, &[], grants.first().map(|grant| grant.key));
                }
                pair.host.outstanding.is_empty()
            });
            let alive: Vec<_> = test.host.engine.connections().collect();
            connections.retain(|connection| alive.contains(connection));
            connections.push(open(&mut test));
            assert_eq!(connections.len(), 3);
            test.steps(2);
            assert_all_there(&test, 3 * GRANT, 3);
        }
        let statistics = test.target.engine.statistics();
        assert_eq!((statistics.drain_timeouts, statistics.shared_receives_withdrawn), (0, 0), "{profile}");
    }
}

/// What a peer sent before it ended is told, also where that is more than a poll reads: its queue pair stays until all of it was read.
#[test]
fn the_last_messages_are_told_before_their_connection_goes() {
    const MESSAGES: u32 = 8 * MAX_COMPLETIONS_PER_POLL as u32;
    for profile in SoftProfile::ALL {
        let setup = Setup::new(profile.name()).peer_receives(MESSAGES).host(|host| host.queue_depth = MESSAGES);
        let mut setup = setup.target(|target| {
            target.receive_depth = MESSAGES;
            target.receive_queues = ReceiveQueues::Shared { entries: 0 };
        });
        (setup.host_device.wire_packets, setup.target_device.wire_packets) = (2 * MESSAGES, 2 * MESSAGES);
        let mut test = Scripted::of(setup);
        test.target.every_command = Some(Vec::new());
        let connection = open(&mut test);
        for cookie in 0..u64::from(MESSAGES) {
            test.submit(cookie, 0, false);
        }
        let now = test.now;
        // The target looks when all of it has come, and the end as well.
        (0..10).for_each(|_| test.pair.host.step(now));
        test.host.engine.disconnect(connection);
        (0..10).for_each(|_| test.pair.host.step(now));
        test.until("gone", |pair| pair.target.disconnected == 1);
        let (told, stale) = (take(&mut test).len(), test.target.engine.statistics().stale_completions);
        // The last ones were still on their way.
        assert!(
            told > 2 * MAX_COMPLETIONS_PER_POLL && stale == 0,
            "{profile}: {told} were told, {stale} came too late"
        );
    }
}

/// A queue pair is destroyed only once its last receive is known: where its device says nothing, not before the deadline,
/// and what it may have taken is granted to nobody any more; whatever the queue pair said that had its place before.
#[test]
fn a_queue_pair_that_never_says_so_keeps_its_grant() {
    for former in 0..3 {
        let mut test = apart("window", 2, 0);
        for _ in 0..former {
            let connection = open(&mut test);
            test.host.engine.disconnect(connection);
            test.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
        }
        let (_, second) = (open(&mut test), open(&mut test));
        test.target_faults.fail_command(CommandKind::FailQueuePair, CommandError::BUSY, 1);
        let ended = test.target.connections[former];
        test.target.engine.disconnect(ended);
        test.steps(500);
        assert_eq!(test.target.disconnected as usize, former);
        test.pass(core::time::Duration::from_secs(6));
        test.until("gone", |pair| pair.target.disconnected as usize == former + 1);
        let statistics = test.target.engine.statistics();
        let withdrawn = (statistics.drain_timeouts, statistics.shared_receives_withdrawn);
        assert_eq!(withdrawn, (1, u64::from(GRANT)), "behind {former}");
        assert_eq!(free(&test), 0, "behind {former}");
        round_trip(&mut test, second, 1);
    }
}

/// Completions that come after their connection: the buffers are used again, and what was given up is found.
#[test]
fn late_completions_bring_their_buffers_back() {
    let mut test = apart("window", 2, 0);
    let (first, second) = (open(&mut test), open(&mut test));
    let queue = CompletionFilter { queue: Some(CompletionQueue::Receive), ..Default::default() };
    test.target_faults.on_all_completions(queue, CompletionFault::Hold);
    for cookie in 0..3 {
        send(&mut test, first, cookie);
    }
    test.steps(50);
    test.host.engine.disconnect(first);
    test.until("gone", |pair| pair.target.disconnected == 1);
    let stale = test.target.engine.statistics().stale_completions;
    test.target_faults.release();
    test.steps(5);
    assert_eq!(test.target.engine.statistics().stale_completions - stale, 3);
    assert_all_there(&test, 2 * GRANT, 1);
    round_trip(&mut test, second, 10);
}

/// What was given up with one queue pair is not found by what comes late from another.
#[test]
fn late_completions_of_a_drained_queue_pair_find_nothing_of_a_lost_one() {
    let mut test = apart("window", 3, 0);
    let lost = open(&mut test);
    // The target cannot move its queue pair to the error state, and gives it up.
    test.target_faults.fail_command(CommandKind::FailQueuePair, CommandError::BUSY, 1);
    let ended = test.target.connections[0];
    test.target.engine.disconnect(ended);
    test.steps(500);
    test.pass(core::time::Duration::from_secs(6));
    test.until("gone", |pair| pair.target.disconnected == 1);
    let _ = lost;
    let (drained, stays) = (open(&mut test), open(&mut test));
    assert_eq!(free(&test), 0);
    let queue = CompletionFilter { queue: Some(CompletionQueue::Receive), ..Default::default() };
    test.target_faults.on_all_completions(queue, CompletionFault::Hold);
    for cookie in 0..3 {
        send(&mut test, drained, cookie);
    }
    test.steps(50);
    test.host.engine.disconnect(drained);
    test.until("gone", |pair| pair.target.disconnected == 2);
    test.target_faults.release();
    test.steps(5);
    let withdrawn = test.target.engine.statistics().shared_receives_withdrawn;
    assert_eq!((free(&test), withdrawn), (GRANT, u64::from(GRANT)));
    round_trip(&mut test, stays, 10);
}

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

/// Requesters share their receives as well: replies of all connections come out of one queue.
#[test]
fn replies_come_out_of_a_shared_queue() {
    for profile in SoftProfile::ALL {
        let sharing = |host: &mut frwr_engine::EngineOptions| {
            host.connections = 3;
            host.receive_depth = GRANT;
            host.receive_queues = ReceiveQueues::Shared { entries: 0 };
        };
        let mut test = Scripted::of(Setup::new(profile.name()).host(sharing).target(|target| target.connections = 3));
        test.target.every_command = Some(Vec::new());
        let connections: Vec<_> = (0..3).map(|_| open(&mut test)).collect();
        let mut ended = HashMap::new();
        for cookie in 0..60 {
            send(&mut test, connections[cookie as usize % 3], cookie);
            ended.insert(cookie, "replied");
        }
        test.until("all", |pair| {
            let commands: Vec<_> = pair.target.every_command.as_mut().unwrap().drain(..).collect();
            for (connection, received) in commands {
                let (name, grants) = pair.target.read_command(&received);
                pair.target.engine.release(received);
                pair.target.connection = Some(connection);
                pair.target.answer(name, &grants, Some(grants[0].key));
            }
            pair.host.outstanding.is_empty()
        });
        assert_eq!(test.host.ended.iter().copied().collect::<HashMap<_, _>>(), ended, "{profile}");
        test.steps(2);
        let buffers = ReceiveBuffers { posted: 3 * GRANT, held: 0, idle: 0 };
        assert_eq!(test.host.engine.receive_buffers(), buffers, "{profile}");
    }
}

/// The reply had come, and the fence behind it was lost with the connection: nobody is told of it, and its receive is for all again.
#[test]
fn a_reply_that_is_lost_with_its_connection_brings_its_receive_back() {
    for profile in SoftProfile::ALL {
        let sharing = |host: &mut EngineOptions| {
            host.connections = 2;
            host.receive_depth = GRANT;
            host.receive_queues = ReceiveQueues::Shared { entries: 0 };
        };
        let mut test = Scripted::of(Setup::new(profile.name()).host(sharing).target(|target| target.connections = 2));
        let (ended, other) = (open(&mut test), open(&mut test));
        test.target.every_command = Some(Vec::new());
        test.faults.on_all_completions(CompletionFilter::kind(TokenKind::Invalidate), CompletionFault::Hold);
        send(&mut test, ended, 1);
        until_received(&mut test, 1);
        let (connection, received) = take(&mut test).remove(0);
        let (name, grants) = test.target.read_command(&received);
        test.target.engine.release(received);
        test.target.connection = Some(connection);
        test.target.answer(name, &grants, None);
        test.until("the reply", |pair| pair.host.engine.receive_buffers().held == 1);
        test.host.engine.disconnect(ended);
        test.pass(Duration::from_secs(6));
        test.until("gone", |pair| pair.host.disconnected == 1);
        assert_eq!(test.status(1), Some("lost"), "{profile}");
        test.faults.clear();
        test.faults.release();
        test.steps(2);
        let buffers = ReceiveBuffers { posted: 2 * GRANT, held: 0, idle: 0 };
        assert_eq!(test.host.engine.receive_buffers(), buffers, "{profile}");
        round_trip(&mut test, other, 2);
    }
}

#[test]
fn devices_that_cannot_are_refused_when_the_engine_is_made() {
    let sized = |max_srq, max_srq_wr, entries| {
        let mut capabilities = SoftProfile::Window.capabilities();
        (capabilities.attributes.max_srq, capabilities.attributes.max_srq_wr) = (max_srq, max_srq_wr);
        let receive_queues = ReceiveQueues::Shared { entries };
        let options = EngineOptions { connections: 4, receive_depth: 10, receive_queues, ..Default::default() };
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
        let options = EngineOptions { domain, receive_queues, ..Default::default() };
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

/// A device that is silent about last receives tells of all that a queue pair took when that is destroyed, at the latest: nobody
/// is granted receives before, and who is finds as many.
#[test]
fn what_a_silent_device_tells_late_is_there_before_it_is_granted_again() {
    let mut test = apart("rxe", 2, 0);
    let (first, second) = (open(&mut test), open(&mut test));
    let queue = CompletionFilter { queue: Some(CompletionQueue::Receive), ..Default::default() };
    test.target_faults.on_all_completions(queue, CompletionFault::HoldWhileAlive);
    for cookie in 0..u64::from(GRANT) {
        send(&mut test, first, cookie);
    }
    test.steps(50);
    test.host.engine.disconnect(first);
    while test.target.disconnected == 0 {
        test.steps(1);
        let posted = test.target.engine.receive_buffers().posted;
        assert!(free(&test) + GRANT <= posted, "{} are free, and {GRANT} granted, of {posted}", free(&test));
    }
    test.target_faults.release();
    test.steps(2);
    assert_all_there(&test, 2 * GRANT, 1);
    let again = open(&mut test);
    for connection in [second, again] {
        for cookie in 0..u64::from(GRANT) {
            send(&mut test, connection, 100 * u64::from(connection.index) + cookie);
        }
    }
    until_received(&mut test, 2 * GRANT as usize);
}

/// Completions that the device is late with, until so many polls of their queue have passed.
struct Late {
    queue: CompletionQueue,
    polls: u32,
}

impl Interference for Late {
    fn holds_completions(&mut self, queue: CompletionQueue) -> bool {
        let is_late = queue == self.queue && self.polls > 0;
        self.polls -= u32::from(is_late);
        is_late
    }

    fn is_over(&self) -> bool {
        self.polls == 0
    }
}

/// A device that is late with completions says behind them that a queue pair took its last receive, or, where it says nothing, completes
/// what was sent behind them: no message is lost by that, and no receive granted twice (seed 517701).
#[test]
fn messages_that_complete_late_are_told_before_their_connection_goes() {
    for profile in SoftProfile::ALL {
        let mut test = apart(profile.name(), 2, 0);
        let (first, second) = (open(&mut test), open(&mut test));
        let port = test.target.engine.port().id();
        test.target_monitor.interfere(port, Box::new(Late { queue: CompletionQueue::Receive, polls: 300 }));
        test.steps(2);
        for cookie in 0..3 {
            send(&mut test, first, cookie);
        }
        test.steps(20);
        test.host.engine.disconnect(first);
        test.steps(200);
        assert_eq!(test.target.disconnected, 0, "{profile}: nobody knows what its queue pair took");
        test.until("gone", |pair| pair.target.disconnected == 1);
        let statistics = test.target.engine.statistics();
        let lost = (statistics.stale_completions, statistics.shared_receives_withdrawn, statistics.drain_timeouts);
        assert_eq!((take(&mut test).len(), lost), (3, (0, 0, 0)), "{profile}");
        round_trip(&mut test, second, 10);
    }
}

/// A device that is silent about last receives: where what was sent has not come back by the deadline, nobody knows what its queue pair
/// took, also where the completion queue was found empty (seed 552316).
#[test]
fn what_a_silent_device_has_not_told_by_the_deadline_is_granted_to_nobody() {
    const TAKEN: u32 = 3;
    let mut test = apart("rxe", 2, 0);
    let (first, second) = (open(&mut test), open(&mut test));
    for queue in [CompletionQueue::Receive, CompletionQueue::Send] {
        let filter = CompletionFilter { queue: Some(queue), ..Default::default() };
        test.target_faults.on_all_completions(filter, CompletionFault::Hold);
    }
    for cookie in 0..u64::from(TAKEN) {
        send(&mut test, first, cookie);
    }
    test.steps(50);
    test.host.engine.disconnect(first);
    test.steps(500);
    assert_eq!(test.target.disconnected, 0);
    test.pass(Duration::from_secs(6));
    test.until("gone", |pair| pair.target.disconnected == 1);
    let withdrawn = |test: &Scripted| test.target.engine.statistics().shared_receives_withdrawn as u32;
    assert_eq!((withdrawn(&test), free(&test)), (GRANT, 0));
    test.target_faults.release();
    test.steps(5);
    assert_eq!((withdrawn(&test), free(&test)), (GRANT - TAKEN, TAKEN), "what came late is there");
    round_trip(&mut test, second, 10);
}

/// What was sent has not come back by the deadline, but the queue pair has said that it takes no more receives: those that it did not
/// take are there, and can be granted again.
#[test]
fn receives_that_are_back_by_the_deadline_are_granted_again_whatever_was_sent() {
    // The others are silent about last receives.
    for profile in ["reg_mr", "window", "umr"] {
        let mut test = apart(profile, 2, 0);
        let (first, second) = (open(&mut test), open(&mut test));
        test.target_faults.on_all_completions(CompletionFilter::kind(TokenKind::Drain), CompletionFault::Hold);
        test.host.engine.disconnect(first);
        test.steps(500);
        assert_eq!(test.target.disconnected, 0, "{profile}");
        test.pass(Duration::from_secs(6));
        test.until("gone", |pair| pair.target.disconnected == 1);
        let statistics = test.target.engine.statistics();
        assert_eq!((statistics.drain_timeouts, statistics.shared_receives_withdrawn), (1, 0), "{profile}");
        assert_all_there(&test, 2 * GRANT, 1);
        round_trip(&mut test, second, 10);
    }
}

/// A device that is silent about last receives: all that was sent is back in the very poll in which the deadline passes, so that no poll
/// has found the completion queue empty behind that. Nobody knows what the queue pair took.
#[test]
fn what_a_silent_device_took_is_not_known_in_the_poll_that_finds_all_back_that_was_sent() {
    const TAKEN: u32 = 3;
    let mut test = apart("rxe", 2, 0);
    let (first, second) = (open(&mut test), open(&mut test));
    let receives = CompletionFilter { queue: Some(CompletionQueue::Receive), ..Default::default() };
    for filter in [receives, CompletionFilter::kind(TokenKind::Drain)] {
        test.target_faults.on_all_completions(filter, CompletionFault::Hold);
    }
    for cookie in 0..u64::from(TAKEN) {
        send(&mut test, first, cookie);
    }
    test.steps(50);
    let ended = test.target.connections[0];
    let engine = &test.target.engine;
    let (port, queue_pair) = (engine.port().id(), engine.queue_pair(ended).unwrap());
    test.host.engine.disconnect(first);
    test.until("drains", |pair| pair.target.engine.statistics().drain_markers == 1);
    let timeouts = |test: &Scripted| test.target.engine.statistics().drain_timeouts;
    // Up to the last poll in front of the deadline.
    test.pass(Duration::from_millis(4950));
    assert_eq!(timeouts(&test), 0);
    let token = Token::new(TokenKind::Drain, u32::from(ended.index), u32::from(ended.epoch));
    let result = Err(FailureStatus::Flushed.into());
    test.target_faults.inject(port, CompletionQueue::Send, Completion { token, queue_pair, result });
    test.pass(Duration::from_millis(50));
    assert_eq!(timeouts(&test), 1);
    test.until("gone", |pair| pair.target.disconnected == 1);
    let withdrawn = |test: &Scripted| test.target.engine.statistics().shared_receives_withdrawn as u32;
    assert_eq!((withdrawn(&test), free(&test)), (GRANT, 0));
    test.target_faults.release();
    test.steps(5);
    assert_eq!((withdrawn(&test), free(&test)), (GRANT - TAKEN, TAKEN), "what came late is there");
    round_trip(&mut test, second, 10);
}

frwr_support::asleep! {
    one_post_of_receives_for_all_connections,
    receives_beyond_what_connections_could_own_come_back,
    a_connection_beyond_the_queue_is_refused,
    replies_to_cancelled_requests_keep_their_receives,
    buffers_outlive_their_connection_and_count_until_they_are_back,
    a_peer_that_exceeds_its_grant_costs_only_itself,
    ends_in_mid_work_lose_no_receive,
    a_queue_pair_that_never_says_so_keeps_its_grant,
    late_completions_bring_their_buffers_back,
    late_completions_of_a_drained_queue_pair_find_nothing_of_a_lost_one,
    failed_and_doubled_receives,
    refused_receives_end_all_connections_and_none_is_lost,
    a_queue_that_keeps_refusing_does_not_keep_a_core_busy,
    a_queue_that_is_not_made_is_told,
    replies_come_out_of_a_shared_queue,
    devices_that_cannot_are_refused_when_the_engine_is_made,
    a_device_that_looks_at_the_connections_domain_shares_within_one_domain_only,
    a_connection_that_opens_while_the_queue_rests_opens_late,
    a_connection_to_a_queue_that_keeps_refusing_ends,
    what_a_silent_device_tells_late_is_there_before_it_is_granted_again,
    messages_that_complete_late_are_told_before_their_connection_goes,
    what_a_silent_device_has_not_told_by_the_deadline_is_granted_to_nobody,
}
