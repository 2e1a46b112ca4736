//! Who is granted receives, whose they are until they are back, and no buffer lost or doubled.

use super::{GRANT, answer, apart, assert_all_there, connected, free, open, round_trip, send, take, until_received};
use frwr_engine::{
    DisconnectCause, EngineOptions, OpenError, ReceiveBuffers, ReceiveQueues,
    provider::{Access, soft::SoftProfile},
};
use frwr_support::engine_harness::{Setup, address, scripted::Scripted};
use std::collections::HashMap;

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

/// No receiver is ever not ready: a connection that would be granted more than there is is refused, until one ends.
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

/// Requesters share their receives as well: replies of all connections come out of one queue.
#[test]
fn replies_come_out_of_a_shared_queue() {
    for profile in SoftProfile::ALL {
        let sharing = |host: &mut EngineOptions| {
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

frwr_support::asleep! {
    one_post_of_receives_for_all_connections,
    receives_beyond_what_connections_could_own_come_back,
    a_connection_beyond_the_queue_is_refused,
    replies_to_cancelled_requests_keep_their_receives,
    buffers_outlive_their_connection_and_count_until_they_are_back,
    a_peer_that_exceeds_its_grant_costs_only_itself,
    ends_in_mid_work_lose_no_receive,
    replies_come_out_of_a_shared_queue,
}
