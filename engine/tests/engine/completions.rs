//! Section 1.K: what a completion is believed, and what not.

use frwr_engine::{
    EngineOptions, InvalidateSignalling,
    provider::{
        Completion, CompletionQueue, FailureStatus, QueuePairId, Success, Token, TokenKind,
        fault::{CompletionFault, CompletionFilter},
        soft::SoftOptions,
    },
    signal::SignalPolicy,
};
use frwr_support::engine_harness::{PROFILES, Setup, TOKEN_KINDS, scripted::*};

#[test]
fn s113_i17_garbage_beside_token_and_status_changes_nothing() {
    for profile in PROFILES {
        let mut test =
            Scripted::with(profile, EngineOptions::default().invalidate_signalling(InvalidateSignalling::Every));
        let garbage = Success { bytes: u32::MAX, invalidated: Some(0x8000_0101) };
        let filter = CompletionFilter { queue: Some(CompletionQueue::Send), ..CompletionFilter::default() };
        test.faults.on_all_completions(filter, CompletionFault::Succeed(garbage));
        for cookie in 0..30 {
            test.submit(cookie, cookie % 4, false);
            test.until("ended", |pair| {
                pair.serve(false);
                pair.host.outstanding.is_empty()
            });
        }
        let statistics = test.host.engine.statistics();
        assert_eq!((test.host.disconnected, statistics.foreign_invalidations), (0, 0), "{profile}");
        assert_eq!(statistics.remote_invalidations, 0);
    }
}

#[test]
fn s113_s115_i16_tokens_of_nothing_are_dropped_and_counted() {
    let mut test = Scripted::new("reg_mr");
    test.submit(1, 3, false);
    let (name, _) = test.command();
    let queue_pair = test.queue_pair();
    let mut count = 0;
    for queue in [CompletionQueue::Send, CompletionQueue::Receive] {
        for kind in TOKEN_KINDS {
            for index in [0, 1, 31, 77, Token::MAX_INDEX] {
                for (generation, queue_pair) in [(0xFFFF_FFF0, queue_pair), (1, QueuePairId(0xDEAD))] {
                    for result in [Ok(Success::default()), Err(FailureStatus::Flushed.into())] {
                        let token = Token::new(kind, index, generation);
                        test.inject(queue, Completion { token, queue_pair, result });
                        count += 1;
                    }
                }
            }
        }
    }
    test.steps(20);
    assert_eq!(test.host.engine.statistics().stale_completions, count);
    assert_eq!((test.host.ended.len(), test.host.disconnected), (0, 0));
    test.reply(name, None);
    test.until("ended", |pair| pair.host.ended.len() == 1);
    assert_eq!(test.status(1), Some("replied"));
}

/// What one poll brings of one queue pair is retired together; what repeats an earlier completion of it, or stands in front of one, is
/// stale all the same.
#[test]
fn s67_s113_completions_that_one_poll_brings_twice_retire_once() {
    let every = EngineOptions::default().signal(SignalPolicy::KernelBudget { batch: 0 });
    let mut test = Scripted::with("reg_mr", every);
    test.hold(TokenKind::Message);
    for cookie in 0..4 {
        test.submit(cookie, 1, false);
    }
    test.host.engine.flush();
    let messages: Vec<_> =
        test.posted().iter().map(|wr| wr.token).filter(|token| token.is(TokenKind::Message)).collect();
    assert_eq!(messages.len(), 4);
    let queue_pair = test.queue_pair();
    for at in [0, 0, 2, 1, 3, 3] {
        let completion = Completion { token: messages[at], queue_pair, result: Ok(Success::default()) };
        test.inject(CompletionQueue::Send, completion);
    }
    test.steps(1);
    assert_eq!(test.host.engine.statistics().stale_completions, 3);
    for _ in 0..4 {
        let (name, _) = test.command();
        test.reply(name, None);
    }
    test.until("ended", |pair| pair.host.ended.len() == 4);
    assert!(test.host.ended.iter().all(|(_, status)| *status == "replied"));
    let after = test.host.engine.statistics();
    assert_eq!((after.slots_held, after.request_slots_used, after.stale_completions), (0, 0, 3));
}

#[test]
fn s115_f07_flushes_of_registration_and_invalidation_of_one_mr_are_told_apart() {
    for profile in PROFILES {
        let mut soft = SoftOptions::new(profile.parse().unwrap());
        soft.starts_at_doorbell = false;
        let mut test = Scripted::on(soft, EngineOptions::default());
        test.connect();
        test.watch.clear();
        let before = test.descriptors();
        let request = test.submit(1, 1, false);
        test.host.engine.flush();
        // Given up while its registration is not executed yet: both work requests stand in the queue and are flushed.
        test.host.engine.cancel(request).unwrap();
        test.host.engine.flush();
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.until_gone();
        let flushed: Vec<_> = test
            .watch
            .completions(CompletionQueue::Send)
            .iter()
            .filter(|completion| completion.result.is_err_and(|failure| failure.is_flush()))
            .map(|completion| completion.token.kind())
            .collect();
        assert_eq!(
            flushed,
            [TokenKind::Register, TokenKind::Message, TokenKind::Invalidate, TokenKind::Drain],
            "{profile}"
        );
        assert_eq!(test.host.engine.statistics().stale_completions, 0, "each was attributed");
        assert_eq!(test.host.ended, [(1, "cancelled")]);
        assert_eq!(test.descriptors()[3], before[0]);
        test.reconnect_works();
    }
}

#[test]
fn s116_work_requests_and_elements_are_the_engines_again_when_the_post_returns() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        // All chains of an iteration pass through one buffer; here the next flush overwrites it before the device has
        // executed the first.
        for cookie in 1..=8 {
            test.submit(cookie, 1, true);
            test.host.engine.flush();
        }
        test.until("ended", |pair| {
            pair.serve(true);
            pair.host.outstanding.is_empty()
        });
        assert!(test.host.ended.iter().all(|(_, status)| *status == "replied"), "{profile}");
    }
}

#[test]
fn fault02_fault05_a_registration_that_fails_costs_its_connection_and_its_mr_is_not_reused() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 1, true);
        let (_, grants) = test.command();
        assert_eq!(grants.len(), 1);
        // Every completion from here on is a flush: what stood before it is of unknown state.
        test.faults.fail_from_now(test.queue_pair(), FailureStatus::Bind);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        test.until_gone();
        assert_eq!(test.host.engine.statistics().keys_destroyed_live, 1, "{profile}: poisoned, destroyed");
        assert_eq!(test.status(1), Some("lost"));
        test.reconnect_works();
    }
}

#[test]
fn fault01_fault07_a_queue_pair_error_at_each_position_of_a_chain() {
    for profile in PROFILES {
        for kind in
            [TokenKind::Register, TokenKind::Message, TokenKind::Invalidate, TokenKind::Receive, TokenKind::Drain]
        {
            for count in 0..4 {
                let mut test = Scripted::new(profile);
                let all = test.descriptors().iter().sum();
                test.submit(1, count, false);
                test.submit(2, 3, true);
                let filter = CompletionFilter::kind(kind);
                test.faults.on_all_completions(filter, CompletionFault::Fail(FailureStatus::Flushed.into()));
                for steps in 0..count * 2 {
                    test.serve(steps % 2 == 0);
                    test.steps(1);
                }
                let connection = test.host.connection.unwrap();
                test.host.engine.disconnect(connection);
                test.until_gone();
                assert_eq!(test.host.ended.len(), 2, "{profile} {kind:?} {count}");
                assert_eq!(test.descriptors(), [0, 0, 0, all]);
                test.reconnect_works();
            }
        }
    }
}

#[test]
fn fault24_one_mr_goes_through_all_its_keys_many_times() {
    for profile in PROFILES {
        let mut test = Scripted::with(profile, EngineOptions::default().registrations(1));
        let mut last = None;
        for cookie in 0..600 {
            test.submit(cookie, 1, cookie % 2 == 0);
            let (name, grants) = test.command();
            let key = grants[0].key;
            if profile != "umr:fixed-key" {
                assert_ne!(last, Some(key), "{profile}: no key twice in a row");
            }
            assert!(last.is_none_or(|last: u32| last >> 8 == key >> 8), "the index never changes");
            last = Some(key);
            test.reply(name, (cookie % 2 == 0).then_some(key));
            test.until("ended", |pair| pair.host.outstanding.is_empty());
            test.watch.clear();
            test.host.ended.clear();
        }
        assert!(test.host.engine.statistics().shortest_key_reuse_ns.is_some(), "{profile}: seen to come round");
        assert_eq!(test.host.disconnected, 0);
    }
}

#[test]
fn fault03_receives_that_are_refused_end_the_connection_and_none_is_lost() {
    for accepted in 0..2 {
        let mut test = Scripted::of(Setup::new("reg_mr"));
        test.connect();
        test.round_trip(1);
        test.submit(2, 0, false);
        test.submit(3, 0, false);
        test.until("commands", |pair| pair.target.commands.len() == 2);
        let reason = frwr_engine::provider::PostRefusal::NotReady;
        test.faults.refuse_receives(test.queue_pair(), accepted, reason);
        test.serve(false);
        test.until_gone();
        assert_eq!(test.host.disconnected, 1);
        test.reconnect_works();
        for cookie in 10..100 {
            test.round_trip(cookie);
        }
    }
}

#[test]
fn a_poll_that_returns_nothing_leaves_nothing_to_tell_or_to_post() {
    let mut test = Scripted::new("reg_mr");
    test.steps(20);
    let now = test.pair.now;
    let foreign = Token::new(TokenKind::Foreign, 0, 0);
    let completion = Completion { token: foreign, queue_pair: test.queue_pair(), result: Ok(Success::default()) };
    let host = &mut test.pair.host;
    let before = host.engine.statistics();
    assert_eq!(host.engine.poll(now, &mut host.protocol), 0);
    let after = host.engine.statistics();
    assert_eq!((after.polls - before.polls, after.empty_polls - before.empty_polls), (1, 1));
    test.inject(CompletionQueue::Send, completion);
    let host = &mut test.pair.host;
    for _ in 0..3 {
        assert_ne!(host.engine.poll(now, &mut host.protocol), 0, "an event waits");
    }
    assert!(host.engine.next_event().is_some());
    assert_eq!(host.engine.poll(now, &mut host.protocol), 0, "it was taken");
    test.submit(1, 2, false);
    let host = &mut test.pair.host;
    for _ in 0..3 {
        assert_ne!(host.engine.poll(now, &mut host.protocol), 0, "a request is not posted yet");
    }
    assert_eq!(host.engine.flush(), 1);
    let statistics = host.engine.statistics();
    assert_eq!(statistics.polls - after.polls, 7);
    assert_eq!(statistics.empty_polls - after.empty_polls, 1);
}
