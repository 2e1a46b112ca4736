//! Promise Conservation over connections: whatever a connection had and however it ended, the next one in its place has all of it, and
//! nothing of what was left.

use core::time::Duration;
use frwr_engine::{
    Event, ReceiveQueues, RemoteSegment, SubmitError, TransferStatus, WriteRequest,
    provider::{Access, CommandError, FailureStatus, RemoteRange, TokenKind, fault::CommandKind},
};
use frwr_support::engine_harness::{Setup, scripted::Scripted, ways::*};

/// What bounds how many requests go at once.
#[derive(Clone, Copy, Debug)]
enum Bound {
    PeerReceives,
    OwnReceives,
    Registrations,
}

/// Requests that go at once.
const MOST: u64 = 6;

fn bounded(bound: Bound) -> Scripted {
    let setup = Setup::new("reg_mr");
    let setup = match bound {
        Bound::PeerReceives => setup.peer_receives(MOST as u32),
        Bound::OwnReceives => setup.host(|host| host.receive_depth = MOST as u32),
        Bound::Registrations => setup.host(|host| host.registrations = MOST as u32),
    };
    Way::AtOnce.connected(setup)
}

/// How many requests are admitted of many that are submitted, while nobody answers.
fn fill(test: &mut Scripted, first: u64) -> u64 {
    let before = test.host.engine.statistics().requests;
    for cookie in first..first + 4 * MOST {
        match test.try_submit(cookie, 1, false) {
            Ok(_) => {}
            Err(SubmitError::NoSlot) => break,
            Err(error) => panic!("{error}"),
        }
    }
    test.steps(20);
    test.host.engine.statistics().requests - before
}

#[derive(Clone, Copy, Debug)]
enum End {
    Local,
    Peer,
    Failure,
    RefusedPost,
    Undrained,
}

const ENDS: [End; 5] = [End::Local, End::Peer, End::Failure, End::RefusedPost, End::Undrained];

fn end(test: &mut Scripted, how: End) {
    let connection = test.host.connection.unwrap();
    match how {
        End::Local => test.host.engine.disconnect(connection),
        End::Peer => {
            let connection = test.target.connection.unwrap();
            test.target.engine.disconnect(connection);
        }
        End::Failure => test.faults.fail_from_now(test.queue_pair(), FailureStatus::RetryExceeded),
        End::RefusedPost => {
            // The last one that is open gets an answer, whose fence the device refuses.
            test.refuse(0);
            let (name, _) = test.command();
            test.reply(name, None);
        }
        End::Undrained => {
            test.hold(TokenKind::Receive);
            test.host.engine.disconnect(connection);
            test.steps(50);
            test.pass(Duration::from_secs(6));
        }
    }
    if matches!(how, End::Failure) {
        // Whatever is sent next finds out.
        let (name, _) = test.command();
        test.reply(name, None);
    }
    test.until_gone();
    test.faults.clear();
    test.faults.release();
    test.steps(20);
}

#[test]
fn i31_as_many_requests_go_at_once_on_every_connection_whatever_the_former_one_left() {
    for bound in [Bound::PeerReceives, Bound::OwnReceives, Bound::Registrations] {
        for how in ENDS {
            let mut test = bounded(bound);
            for round in 0..4 {
                let context = format!("{bound:?} {how:?} {round}");
                let first = 1000 * round;
                // Some end before the others begin, so that credit of both sides has moved.
                for cookie in 0..3 {
                    test.round_trip(first + 900 + cookie);
                }
                assert_eq!(fill(&mut test, first), MOST, "{context}");
                for _ in 0..2 {
                    let (name, _) = test.command();
                    test.reply(name, None);
                }
                test.steps(20);
                end(&mut test, how);
                let buffers = test.host.engine.receive_buffers();
                assert_eq!((buffers.posted, buffers.held), (0, 0), "{context}");
                // One whose credit nobody used.
                test.connect();
                end_alone(&mut test);
                test.connect();
            }
        }
    }
}

/// The late replies that a connection kept receives for are none of the next one's.
#[test]
fn s75_i31_receives_kept_for_cancelled_requests_end_with_their_connection() {
    let mut test = bounded(Bound::OwnReceives);
    let requests: Vec<_> = (0..MOST).map(|cookie| test.submit(cookie, 1, false)).collect();
    test.until("commands", |pair| pair.target.commands.len() as u64 == MOST);
    for request in requests {
        test.host.engine.cancel(request).unwrap();
    }
    test.until("cancelled", |pair| pair.host.ended.len() as u64 == MOST);
    end(&mut test, End::Local);
    test.connect();
    assert_eq!(fill(&mut test, 100), MOST);
    let before = test.host.engine.statistics().requests;
    test.reply(77u64.to_le_bytes(), None);
    test.until("counted", |pair| pair.host.engine.statistics().bad_reply_count == 1);
    test.steps(20);
    assert_eq!(test.host.engine.statistics().requests, before, "a reply to nobody frees nobody's receive");
}

/// Who is told of MRs that the device kept hears of those of his own connection.
#[test]
fn s105_orphans_are_told_of_their_own_connection_alone() {
    let mut test = Scripted::new("reg_mr");
    test.submit(1, 1, false);
    test.command();
    let mrs: u32 = test.descriptors().iter().sum();
    test.faults.fail_command(CommandKind::FreeRegistration, CommandError::BUSY, mrs + 1);
    test.host.outstanding.insert(u64::MAX, 512);
    end_alone(&mut test);
    assert_eq!((test.host.orphaned_mrs, test.host.engine.statistics().mrs_orphaned), (1, 1));
    test.connect();
    test.round_trip(2);
    end_alone(&mut test);
    assert_eq!((test.host.orphaned_mrs, test.host.engine.statistics().mrs_orphaned), (1, 1), "none of the second");
}

fn end_alone(test: &mut Scripted) {
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
}

/// Shared receives that a queue pair took with it are withdrawn once, and what is granted to others is what is left.
#[test]
fn s95_shared_receives_are_withdrawn_with_the_connection_that_lost_them_and_no_other() {
    let shared = ReceiveQueues::Shared { entries: 64 };
    let setup = Setup::new("reg_mr").host(|host| (host.receive_queues, host.receive_depth) = (shared, 16));
    let mut test = Way::AtOnce.connected(setup);
    let free = test.host.engine.statistics().shared_receives_free;
    test.submit(1, 1, false);
    test.command();
    // Without the news that it takes no more receives a drain ends by its deadline.
    test.hold(TokenKind::Drain);
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.steps(50);
    test.pass(Duration::from_secs(6));
    test.until("gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
    let lost = test.host.engine.statistics().shared_receives_withdrawn;
    test.faults.clear();
    test.faults.release();
    for round in 0..3 {
        test.connect();
        test.round_trip(10 + round);
        end(&mut test, End::Local);
        let statistics = test.host.engine.statistics();
        assert!(statistics.shared_receives_withdrawn <= lost, "round {round}");
        assert_eq!(statistics.shared_receives_free + statistics.shared_receives_withdrawn, free + 16, "round {round}");
    }
}

/// What was done is told as that, once, although its connection has ended by the time that anybody asks.
#[test]
fn s52_a_transfer_that_was_done_is_told_so_whatever_became_of_its_connection() {
    let mut test = Scripted::new("reg_mr");
    let segments = [test.host.segment(0, 256)];
    test.host.submit(1, Access::RemoteWrite, &segments, false).unwrap();
    let (_, grants) = test.command();
    let target = &mut test.pair.target;
    let connection = target.connection.unwrap();
    let range = RemoteRange { address: grants[0].address, key: grants[0].key };
    let remote = [RemoteSegment { remote: range, length: 256 }];
    let local = [target.segment(0, 256)];
    target.engine.write(connection, &WriteRequest { local: &local, remote: &remote, cookie: 5 }).unwrap();
    // The target's caller takes no events.
    let step = |test: &mut Scripted| {
        test.pair.now += Duration::from_micros(1);
        let now = test.pair.now;
        test.pair.host.step(now);
        let target = &mut test.pair.target;
        target.control.poll();
        target.engine.poll(now, &mut target.protocol);
        target.engine.flush();
    };
    (0..50).for_each(|_| step(&mut test));
    test.target.engine.disconnect(connection);
    (0..500).for_each(|_| step(&mut test));
    assert!(test.target.engine.is_disconnected());
    let told: Vec<_> = core::iter::from_fn(|| test.pair.target.engine.next_event()).collect();
    let is_done = |event: &Event| matches!(event, Event::Written { cookie: 5, status: TransferStatus::Done });
    let (first, last) = (told.first().map(is_done), told.last());
    assert!(first == Some(true) && matches!(last, Some(Event::Disconnected { .. })), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
}
