//! Lifetimes that end at the same time as something else: a request that has ended and was not told yet, a message that is given up with its
//! queue pair, a response that came back flushed, a registration behind which a post was cut off.

use core::time::Duration;
use frwr_engine::{
    OnPostError,
    provider::{
        Access, CommandError, CompletionQueue, FailureStatus, Port, PostRefusal, TokenKind,
        fault::{CommandKind, CompletionFault, CompletionFilter},
        soft::SoftOptions,
    },
};
use frwr_support::engine_harness::{PROFILES, Setup, scripted::Scripted, ways::*};

/// From one poll to the next where time is to pass: no standstill.
const TICK: Duration = Duration::from_millis(50);
/// Longer than the drain time-out.
const OVERDUE: Duration = Duration::from_secs(6);
/// Steps within which everything has come to its end.
const PATIENCE: u32 = 1000;

/// The host's engine and Control go on, and nobody takes events.
fn poll_untold(test: &mut Scripted) {
    let (now, host) = (test.pair.now, &mut test.pair.host);
    host.control.poll();
    host.engine.poll(now, &mut host.protocol);
    host.engine.flush();
    host.control.poll();
}

/// A request without memory was answered, and its end is not told yet.
fn ended_untold(test: &mut Scripted, cookie: u64) {
    test.submit(cookie, 0, false);
    let (name, _) = test.command();
    let ended = test.host.engine.statistics().requests_ended;
    test.reply(name, None);
    for _ in 0..PATIENCE {
        let now = test.pair.now;
        test.pair.target.step(now);
        poll_untold(test);
        if test.host.engine.statistics().requests_ended > ended {
            return;
        }
    }
    panic!("no reply came");
}

fn take_events(test: &mut Scripted) {
    let host = &mut test.pair.host;
    while let Some(event) = host.engine.next_event() {
        host.event(event);
    }
}

/// What has ended has ended, also where its caller hears of it when the connection is gone.
#[test]
fn k20_a_request_that_ended_is_told_once_whenever_its_event_is_taken() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        ended_untold(&mut test, 1);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        for _ in 0..PATIENCE {
            let now = test.pair.now;
            test.pair.target.step(now);
            poll_untold(&mut test);
            if test.host.engine.is_disconnected() {
                break;
            }
        }
        take_events(&mut test);
        assert_eq!((test.status(1), test.host.ended.len()), (Some("replied"), 1), "{profile}");
        assert_eq!(test.host.engine.statistics().requests_ended, 1, "{profile}");
        test.until_gone();
        test.reconnect_works();
    }
}

/// The device may read a message again until its queue pair is destroyed, whoever has given up waiting for that.
#[test]
fn k10_a_slot_is_held_as_long_as_a_queue_pair_that_did_not_drain_exists() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        // No completion has passed its message.
        test.hold(TokenKind::Message);
        test.hold(TokenKind::Drain);
        ended_untold(&mut test, 1);
        let (connection, queue_pair) = (test.host.connection.unwrap(), test.queue_pair());
        test.host.engine.disconnect(connection);
        for _ in 0..PATIENCE {
            test.now += TICK;
            poll_untold(&mut test);
            if test.host.engine.statistics().drain_timeouts == 1 {
                break;
            }
        }
        take_events(&mut test);
        assert_eq!((test.status(1), test.host.disconnected), (Some("replied"), 0), "{profile}");
        let chain = frwr_engine::provider::Chain { requests: &[], elements: &[] };
        assert!(test.pair.host.engine.port_mut().post(queue_pair, chain).is_ok(), "{profile}: it is there");
        let statistics = test.host.engine.statistics();
        assert_eq!((statistics.request_slots_used, statistics.slots_held), (1, 1), "{profile}");
        test.until_gone();
        test.reconnect_works();
    }
}

/// What holds a connection's end back is its own queue pair, not that of the connection which had its place before.
#[test]
fn hold_a_connection_waits_for_its_own_queue_pair_alone() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.hold(TokenKind::Drain);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.steps(50);
        test.pass(OVERDUE);
        test.until_gone();
        assert_eq!(test.host.engine.statistics().drain_timeouts, 1, "{profile}");
        test.reconnect_works();
        // This one drains, and the device keeps its queue pair, which reaches nothing.
        test.faults.fail_command(CommandKind::DestroyQueuePair, CommandError::BUSY, u32::MAX);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.until_gone();
        test.faults.clear();
    }
}

/// Nobody knows whether the peer has it.
#[test]
fn k05_a_response_that_failed_is_not_told_as_sent() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 0, false);
        let (name, _) = test.command();
        let failed = CompletionFault::Fail(FailureStatus::RetryExceeded.into());
        let replies = CompletionFilter::kind(TokenKind::Reply);
        test.target_faults.on_completions(replies, failed, 1);
        test.reply(name, None);
        test.until("the end", |pair| pair.target.disconnected == 1);
        let told: Vec<_> = test.target.events.iter().filter(|event| event.starts_with("Responded")).collect();
        assert!(matches!(told.as_slice(), [event] if event.contains("Lost")), "{profile}: {told:?}");
    }
}

/// The peer waits for it, and nothing that comes later takes its place.
#[test]
fn s02_a_refused_response_ends_the_connection_where_other_refusals_do_not() {
    for profile in PROFILES {
        let setup = Setup::new(profile).target(|target| target.on_post_error = OnPostError::DeregisterAndContinue);
        let mut test = Scripted::of(setup);
        test.connect();
        test.submit(1, 0, false);
        let (name, _) = test.command();
        let connection = test.target.connection.unwrap();
        let queue_pair = test.target.engine.queue_pair(connection).unwrap();
        test.target_faults.refuse_post(queue_pair, 0, PostRefusal::Invalid);
        test.reply(name, None);
        test.until("the end", |pair| pair.target.disconnected == 1);
        let told: Vec<_> = test.target.events.iter().filter(|event| event.starts_with("Responded")).collect();
        assert!(matches!(told.as_slice(), [event] if event.contains("Lost")), "{profile}: {told:?}");
        test.until_gone();
    }
}

/// A receive is posted again and again in one place; a completion of an earlier time is none of the latest.
#[test]
fn s07_the_completion_of_a_receive_counts_for_the_time_that_it_was_posted_for() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.round_trip(1);
        let receives = test.watch.completions(CompletionQueue::Receive);
        let former = *receives.last().unwrap();
        test.steps(5);
        let before = test.host.engine.statistics().stale_completions;
        test.inject(CompletionQueue::Receive, former);
        test.steps(5);
        assert_eq!(test.host.engine.statistics().stale_completions, before + 1, "{profile}");
        assert_eq!((test.host.disconnected, test.host.commands.len()), (0, 0), "{profile}");
        for cookie in 2..40 {
            test.round_trip(cookie);
        }
    }
}

fn fencing(soft: &mut SoftOptions) {
    soft.capabilities.fence_after_registration = true;
}

/// Letters and fences of the sends among what was posted.
fn sends(test: &mut Scripted) -> Vec<bool> {
    let wrs = test.posted();
    wrs.iter().filter(|wr| wr.token.is(TokenKind::Message)).map(|wr| wr.fence).collect()
}

#[test]
fn k19_a_message_waits_for_its_registrations_on_every_way() {
    for profile in PROFILES {
        for way in WAYS {
            let mut test = way.connected(way.setup(profile).device(fencing));
            way.submit_for(&mut test, 1, Access::RemoteRead, false);
            way.admit(&mut test, 1);
            test.steps(5);
            let fences = sends(&mut test);
            assert_eq!(fences.last(), Some(&true), "{profile} {way:?}: {fences:?}");
        }
    }
}

frwr_support::asleep! {
    s02_a_refused_response_ends_the_connection_where_other_refusals_do_not,
    k05_a_response_that_failed_is_not_told_as_sent,
    k19_a_message_waits_for_its_registrations_on_every_way,
}
