//! Receives that complete late: what a peer sent before it ended is told, and its buffers come back.

use super::{GRANT, apart, assert_all_there, free, open, round_trip, send, take, until_received};
use frwr_engine::{
    ReceiveQueues,
    provider::{
        CompletionQueue, MAX_COMPLETIONS_PER_POLL, Port as _,
        fault::{CompletionFault, CompletionFilter},
        soft::{Interference, SoftProfile},
    },
};
use frwr_support::engine_harness::{Setup, scripted::Scripted};

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

frwr_support::asleep! {
    late_completions_bring_their_buffers_back,
    what_a_silent_device_tells_late_is_there_before_it_is_granted_again,
    messages_that_complete_late_are_told_before_their_connection_goes,
}
