//! What is given up at a deadline, and what is granted again behind it.

use super::{GRANT, apart, assert_all_there, free, open, round_trip, send, take, until_received};
use core::time::Duration;
use frwr_engine::{
    EngineOptions, ReceiveBuffers, ReceiveQueues,
    provider::{
        CommandError, Completion, CompletionQueue, FailureStatus, Port as _, Token, TokenKind,
        fault::{CommandKind, CompletionFault, CompletionFilter},
        soft::SoftProfile,
    },
};
use frwr_support::engine_harness::{Setup, scripted::Scripted};

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
        test.pass(Duration::from_secs(6));
        test.until("gone", |pair| pair.target.disconnected as usize == former + 1);
        let statistics = test.target.engine.statistics();
        let withdrawn = (statistics.drain_timeouts, statistics.shared_receives_withdrawn);
        assert_eq!(withdrawn, (1, u64::from(GRANT)), "behind {former}");
        assert_eq!(free(&test), 0, "behind {former}");
        round_trip(&mut test, second, 1);
    }
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
    test.pass(Duration::from_secs(6));
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
    a_queue_pair_that_never_says_so_keeps_its_grant,
    late_completions_of_a_drained_queue_pair_find_nothing_of_a_lost_one,
    what_a_silent_device_has_not_told_by_the_deadline_is_granted_to_nobody,
}
