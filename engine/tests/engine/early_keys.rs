//! Keys of MRs that are taken again before their invalidation has completed (D2): when the connection ends, each of them is dead, and is
//! counted as that once (S120).

use frwr_engine::{
    EngineOptions, ReturnPolicy,
    provider::{Completion, CompletionQueue, FailureStatus, TokenKind},
};
use frwr_support::engine_harness::{PROFILES, scripted::*};

/// One MR had a key for each of these requests, and none of their invalidations has completed.
fn taken_again(profile: &str, requests: u64) -> Scripted {
    let early = EngineOptions::default().registrations(1).return_policy(ReturnPolicy::OnInvalidatePosted);
    let mut test = Scripted::with(profile, early);
    test.hold(TokenKind::Invalidate);
    for cookie in 1..=requests {
        test.submit(cookie, 1, false);
        let (name, _) = test.command();
        test.reply(name, None);
        test.until("posted", |pair| pair.host.engine.statistics().local_inv_chains == cookie);
    }
    test
}

#[test]
fn s120_d2_every_key_of_an_mr_that_was_taken_again_is_counted_dead_once() {
    for profile in PROFILES {
        for fails in [false, true] {
            for requests in 1..=3 {
                let mut test = taken_again(profile, requests);
                assert_eq!(test.host.engine.statistics().registrations, requests, "{profile}");
                if fails {
                    // The first of them, which vouches for nothing behind it.
                    let first = test.posted().iter().map(|wr| wr.token).find(|token| token.is(TokenKind::Invalidate));
                    let failed = Err(FailureStatus::LocalProtection.into());
                    let completion =
                        Completion { token: first.unwrap(), queue_pair: test.queue_pair(), result: failed };
                    test.inject(CompletionQueue::Send, completion);
                } else {
                    let connection = test.host.connection.unwrap();
                    test.host.engine.disconnect(connection);
                }
                test.steps(50);
                test.faults.clear();
                test.faults.release();
                test.until_gone();
                let statistics = test.host.engine.statistics();
                assert_eq!(statistics.keys_live(), 0, "{profile} {fails} {requests}");
                let dead = statistics.local_invalidations + statistics.keys_destroyed_live;
                assert_eq!(dead, statistics.registrations, "{profile} {fails} {requests}");
                test.reconnect_works();
            }
        }
    }
}

/// Nothing of what was posted completes: the device gives all of it back with the queue pair.
#[test]
fn s120_d2_keys_of_a_queue_pair_that_does_not_drain_are_counted_dead_once() {
    for profile in PROFILES {
        for requests in 1..=3 {
            let mut test = taken_again(profile, requests);
            test.hold(TokenKind::Drain);
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.steps(50);
            test.pass(core::time::Duration::from_secs(6));
            test.until_gone();
            let statistics = test.host.engine.statistics();
            let dead = (statistics.local_invalidations, statistics.keys_destroyed_live);
            assert_eq!((dead, statistics.keys_live()), ((0, requests), 0), "{profile} {requests}");
            test.reconnect_works();
        }
    }
}

/// The same where the last of them is alive when the connection ends: its request has no answer.
#[test]
fn s120_d2_a_key_that_lives_behind_one_whose_invalidation_is_on_its_way_is_counted_dead_once() {
    for profile in PROFILES {
        for drains in [false, true] {
            for before in 1..=3 {
                let mut test = taken_again(profile, before);
                test.submit(before + 1, 1, false);
                test.command();
                if !drains {
                    test.hold(TokenKind::Drain);
                }
                let connection = test.host.connection.unwrap();
                test.host.engine.disconnect(connection);
                test.steps(50);
                if drains {
                    test.faults.release();
                } else {
                    test.pass(core::time::Duration::from_secs(6));
                }
                test.until_gone();
                let statistics = test.host.engine.statistics();
                let dead = statistics.local_invalidations + statistics.keys_destroyed_live;
                assert_eq!((dead, statistics.registrations), (before + 1, before + 1), "{profile} {drains}");
                test.reconnect_works();
            }
        }
    }
}

/// A registration that failed, and whose MR was taken again behind its invalidation: its key is counted with that invalidation, and not once
/// more with the failure, whether the invalidation is flushed as well or comes back as done.
#[test]
fn s120_d2_the_key_of_a_failed_registration_is_counted_dead_once() {
    for profile in PROFILES {
        for flushed in [false, true] {
            let mut test = taken_again(profile, 1);
            test.submit(2, 1, false);
            test.command();
            let (posted, queue_pair) = (test.posted(), test.queue_pair());
            let mut fail = |kind, status: FailureStatus| {
                let token = posted.iter().map(|wr| wr.token).find(|token| token.is(kind)).unwrap();
                test.inject(CompletionQueue::Send, Completion { token, queue_pair, result: Err(status.into()) });
                test.steps(5);
            };
            fail(TokenKind::Register, FailureStatus::LocalProtection);
            if flushed {
                fail(TokenKind::Invalidate, FailureStatus::Flushed);
            }
            test.faults.release();
            test.until_gone();
            let statistics = test.host.engine.statistics();
            let dead = statistics.local_invalidations + statistics.keys_destroyed_live;
            assert_eq!((dead, statistics.registrations), (2, 2), "{profile} {flushed}");
        }
    }
}
