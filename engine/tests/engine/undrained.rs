//! Queue pairs that are destroyed without having drained: until then the device may still read and write what their work
//! requests name, so nothing of it is handed back (promise Hold).

use core::time::Duration;
use frwr_engine::{
    EngineOptions, ReceiveQueues,
    provider::{
        Chain, CommandError, CompletionQueue, Port, QueuePairId, TokenKind,
        fault::{CommandKind, CompletionFault, CompletionFilter},
    },
};
use frwr_support::engine_harness::{PROFILES, Setup, scripted::*};

/// Longer than the drain time-out.
const OVERDUE: Duration = Duration::from_secs(6);

/// From one poll to the next where it is to pass: no standstill.
const TICK: Duration = Duration::from_millis(50);

/// Steps of one side within which everything has come to its end.
const PATIENCE: u32 = 1000;

/// Why a queue pair does not drain.
#[derive(Clone, Copy, Debug)]
enum Stuck {
    /// Completions of this kind do not come.
    Held(TokenKind),
    /// The marker behind everything else is refused.
    MarkerRefused,
}

/// Whether the host's device still has a queue pair: it takes an empty post then.
fn exists(test: &mut Scripted, queue_pair: QueuePairId) -> bool {
    test.pair.host.engine.port_mut().post(queue_pair, Chain { requests: &[], elements: &[] }).is_ok()
}

#[test]
fn s95_hold_nothing_of_an_undrained_queue_pair_is_given_back_while_it_exists() {
    for profile in PROFILES {
        for stuck in [Stuck::Held(TokenKind::Drain), Stuck::Held(TokenKind::Receive), Stuck::MarkerRefused] {
            let mut test = Scripted::new(profile);
            test.submit(1, 2, true);
            test.submit(2, 0, false);
            test.until("commands", |pair| pair.target.commands.len() == 2);
            let queue_pair = test.queue_pair();
            match stuck {
                Stuck::Held(kind) => test.hold(kind),
                Stuck::MarkerRefused => test.refuse(0),
            }
            let connection = test.host.connection.unwrap();
            let (before, posted) = (test.host.engine.statistics(), test.host.engine.receive_buffers().posted);
            test.host.engine.disconnect(connection);
            test.steps(50);
            let mut destroyed = false;
            for _ in 0..PATIENCE {
                test.now += TICK;
                let now = test.now;
                test.pair.host.step(now);
                if !exists(&mut test, queue_pair) {
                    destroyed = true;
                    break;
                }
                let statistics = test.host.engine.statistics();
                assert!(test.host.ended.is_empty(), "{profile} {stuck:?}: {:?}", test.host.ended);
                assert_eq!(statistics.request_slots_used, before.request_slots_used, "{profile} {stuck:?}");
                if matches!(stuck, Stuck::Held(TokenKind::Receive)) {
                    assert_eq!(test.host.engine.receive_buffers().posted, posted, "{profile}");
                }
            }
            assert!(destroyed, "{profile} {stuck:?}");
            test.until_gone();
            assert_eq!((test.status(1), test.status(2)), (Some("lost"), Some("lost")));
            assert_eq!(test.host.disconnected, 1);
            let last = test.host.events.last().unwrap();
            assert!(last.starts_with("Disconnected"), "{last}: everything was reported before");
            assert_eq!(test.monitor.stalled_destroys(), 0, "MRs go before their queue pair");
            test.reconnect_works();
        }
    }
}

/// A reply says that the data is there. That nobody changes it any more only a fence says, and none that was given up with its queue pair.
#[test]
fn s80_d06_a_fence_that_was_given_up_with_its_queue_pair_is_none() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 1, false);
        let (name, _) = test.command();
        test.hold(TokenKind::Invalidate);
        test.hold(TokenKind::Drain);
        test.reply(name, None);
        test.until("an invalidation", |pair| pair.host.engine.statistics().local_inv_needed == 1);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        for _ in 0..PATIENCE {
            test.now += TICK;
            let now = test.now;
            test.pair.host.step(now);
            if test.host.disconnected == 1 {
                break;
            }
        }
        assert_eq!(test.host.engine.statistics().drain_timeouts, 1, "{profile}");
        assert_eq!(test.status(1), Some("lost"), "{profile}");
        test.until_gone();
        test.reconnect_works();
    }
}

/// What an RDMA READ of a former connection brings must not meet what its caller does with the memory next.
#[test]
fn hold_memory_that_is_told_to_be_lost_is_written_by_nobody() {
    let mut test = Scripted::of(Setup::new("reg_mr"));
    test.connect();
    let connection = test.target_fetches();
    // The queue pair cannot be moved to the error state, so that the READ goes on; the peer is slow, and is told nothing.
    test.target_faults.fail_command(CommandKind::FailQueuePair, CommandError::BUSY, 1);
    test.target_faults.fail_command(CommandKind::Disconnect, CommandError::BUSY, 1);
    let target = &mut test.pair.target;
    target.engine.disconnect(connection);
    let mut now = test.pair.now;
    for step in 0..PATIENCE {
        // The first ten polls find nothing, then time passes.
        now += if step < 10 { Duration::from_micros(1) } else { TICK };
        target.step(now);
        if target.fetched > 0 {
            break;
        }
    }
    assert_eq!(target.fetched, 1, "told to be lost");
    assert!(
        target.events.iter().any(|event| event.contains("Fetched") && event.contains("Lost")),
        "{:?}",
        target.events
    );
    test.pair.now = now;
    test.nobody_writes_what_was_fetched(now);
}

/// Its work goes on, and a marker behind that would be a message of no bytes to the peer.
#[test]
fn s95_a_queue_pair_that_could_not_be_failed_sends_its_peer_nothing() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 1, true);
        test.command();
        test.watch.clear();
        test.faults.fail_command(CommandKind::FailQueuePair, CommandError::BUSY, 1);
        test.faults.fail_command(CommandKind::Disconnect, CommandError::BUSY, 1);
        let (connection, now) = (test.host.connection.unwrap(), test.now);
        test.host.engine.disconnect(connection);
        test.until("the end", |pair| pair.host.gone.contains(&connection));
        assert!(test.now < now + OVERDUE, "{profile}: nothing is waited for");
        assert_eq!((test.chains(), test.status(1)), (vec![], Some("lost")), "{profile}");
        let statistics = test.target.engine.statistics();
        assert_eq!(statistics.bad_reply_count, 0, "{profile}");
        test.reconnect_works();
    }
}

/// The time-out is the drain's: a Control that needs long to move the queue pair to the error state takes nothing from it. Else every
/// end beside a slow command would count as undrained, and its shared receives as lost for ever.
#[test]
fn s95_the_time_out_of_a_drain_begins_with_the_error_state() {
    for profile in PROFILES {
        let setup = Setup::new(profile).host(|host| host.receive_queues = ReceiveQueues::Shared { entries: 0 });
        let mut test = Scripted::of(setup);
        test.connect();
        test.submit(1, 1, true);
        test.until("a command", |pair| !pair.target.commands.is_empty());
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        let long = test.now + 3 * OVERDUE;
        while test.now < long {
            // The core goes on, Control is elsewhere.
            test.now += TICK;
            let (now, host) = (test.now, &mut test.pair.host);
            host.engine.poll(now, &mut host.protocol);
            host.engine.flush();
        }
        test.until_gone();
        let statistics = test.host.engine.statistics();
        assert_eq!((statistics.drain_timeouts, statistics.shared_receives_withdrawn), (0, 0), "{profile}");
        test.reconnect_works();
    }
}

/// What a former connection waited for comes to no other: where slots run short on the next one, a message asks again.
#[test]
fn a_completion_that_went_with_its_connection_is_not_awaited_on_the_next() {
    const SLOTS: u64 = 32;
    let change = |host: &mut EngineOptions| (host.connections, host.queue_depth) = (1, SLOTS as u32);
    let mut test = Scripted::of(Setup::new("reg_mr").host(change));
    let messages = |test: &mut Scripted, cookies: core::ops::Range<u64>| {
        for cookie in cookies {
            test.submit(cookie, 0, false);
            test.until("a reply", |pair| {
                pair.serve(false);
                pair.host.ended.iter().any(|(ended, _)| *ended == cookie)
            });
        }
    };
    test.connect();
    // Slots are short, so a message asks; what it asked for is lost, with all that is flushed behind it.
    let everything = CompletionFilter { queue: Some(CompletionQueue::Send), ..CompletionFilter::default() };
    test.faults.on_all_completions(everything, CompletionFault::Drop);
    messages(&mut test, 0..SLOTS * 3 / 4);
    assert!(test.posted().iter().any(|posted| posted.signalled), "a completion is awaited");
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    test.steps(20);
    test.pass(OVERDUE);
    test.until_gone();
    test.faults.clear();
    test.connect();
    messages(&mut test, 100..100 + SLOTS * 3 / 4);
    test.steps(20);
    let held = test.host.engine.statistics().slots_held;
    assert!(held <= SLOTS / 2, "{held} of {SLOTS} slots are held, and no completion was asked for");
}

frwr_support::asleep! {
    s95_hold_nothing_of_an_undrained_queue_pair_is_given_back_while_it_exists,
    s80_d06_a_fence_that_was_given_up_with_its_queue_pair_is_none,
    hold_memory_that_is_told_to_be_lost_is_written_by_nobody,
    s95_a_queue_pair_that_could_not_be_failed_sends_its_peer_nothing,
    s95_the_time_out_of_a_drain_begins_with_the_error_state,
}
