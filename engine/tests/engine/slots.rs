//! Ends of requests that nobody answered, and what is left of them: a slot is held as long as the device may read its message and no
//! longer, each end is counted once, and it is told as what it is (promises Hold and Exactly once; I34, S75, S122, S135).

use frwr_engine::{
    Chunk, EngineOptions, OnPostError, RequestHandle,
    provider::{Access, Completion, CompletionQueue, FailureStatus, Success, TokenKind},
    signal::SignalPolicy,
};
use frwr_support::engine_harness::{PROFILES, scripted::*};

/// Opens 512 bytes without a message.
fn open(test: &mut Scripted, cookie: u64) -> RequestHandle {
    let segment = test.host.segment(4096 * cookie, 512);
    let host = &mut test.pair.host;
    let chunk = Chunk { access: Access::RemoteRead, segments: &[segment] };
    let open = host.engine.register_now(host.connection.unwrap(), &chunk, cookie, &mut host.protocol).unwrap();
    host.outstanding.insert(cookie, 512);
    open
}

/// Slots in use, and those of them that only Hold keeps.
fn slots(test: &Scripted) -> (u64, u64) {
    let statistics = test.host.engine.statistics();
    (statistics.request_slots_used, statistics.slots_held)
}

/// Its message asked for no completion, and nothing stands behind it.
#[test]
fn s75_a_cancelled_request_without_memory_holds_its_slot_until_its_message_was_read() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        let first = test.submit(1, 0, false);
        test.command();
        test.steps(20);
        test.host.engine.cancel(first).unwrap();
        test.until("cancelled", |pair| pair.host.ended == [(1, "cancelled")]);
        assert_eq!(slots(&test), (1, 1), "{profile}: the device may read the message again");
        let second = test.submit(2, 0, false);
        assert_ne!(first.index(), second.index(), "{profile}");
        let (name, _) = test.command();
        test.reply(name, None);
        // A fence asks for a completion, which stands behind all messages.
        test.submit(3, 1, false);
        let (name, _) = test.command();
        test.reply(name, None);
        test.until("ended", |pair| pair.host.ended.len() == 3);
        test.steps(5);
        assert_eq!(slots(&test), (0, 0), "{profile}");
    }
}

/// A core whose engine is idle may sleep: not while a reply may come. What only Hold keeps wakes nobody.
#[test]
fn s75_an_engine_is_idle_when_none_of_its_requests_is_in_flight() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        assert!(test.host.engine.is_idle(), "{profile}: nothing was asked for");
        test.submit(1, 1, false);
        let (name, _) = test.command();
        test.steps(20);
        assert!(!test.host.engine.is_idle(), "{profile}: the reply may come");
        test.reply(name, None);
        test.until("ended", |pair| pair.host.ended.len() == 1);
        test.steps(5);
        assert!(test.host.engine.is_idle(), "{profile}: it came");
        let second = test.submit(2, 0, false);
        test.command();
        test.steps(20);
        assert!(!test.host.engine.is_idle(), "{profile}: a request without memory is one too");
        test.host.engine.cancel(second).unwrap();
        test.until("cancelled", |pair| pair.host.ended.len() == 2);
        test.steps(5);
        assert_eq!((slots(&test), test.host.engine.is_idle()), ((1, 1), true), "{profile}");
    }
}

/// A completion tells of its own message and of those in front of it: each frees one slot here, in every place of the ring (S67).
#[test]
fn s67_each_completion_frees_the_slots_up_to_its_own_and_no_other() {
    // More than a word of positions has bits.
    const REQUESTS: u64 = 100;
    let every = EngineOptions::default().signal(SignalPolicy::KernelBudget { batch: 0 });
    for step in [1, 3] {
        let mut test = Scripted::with("reg_mr", every.clone());
        test.hold(TokenKind::Message);
        let mut messages = Vec::new();
        for cookie in 0..REQUESTS {
            test.submit(cookie, 0, false);
            let (name, _) = test.command();
            test.reply(name, None);
            test.until("ended", |pair| pair.host.ended.len() as u64 == cookie + 1);
            messages.extend(test.posted().iter().map(|wr| wr.token).filter(|token| token.is(TokenKind::Message)));
        }
        assert_eq!((messages.len() as u64, slots(&test)), (REQUESTS, (REQUESTS, REQUESTS)));
        let queue_pair = test.queue_pair();
        for at in (0..messages.len()).skip(step - 1).step_by(step) {
            let completion = Completion { token: messages[at], queue_pair, result: Ok(Success::default()) };
            test.inject(CompletionQueue::Send, completion);
            test.steps(2);
            let left = REQUESTS - 1 - at as u64;
            assert_eq!(slots(&test), (left, left), "behind message {at}, by {step}");
        }
    }
}

/// The same of fences: the completion of an invalidation ends its own request, and none whose key may be alive (S67, promise Fence).
#[test]
fn s67_each_fence_ends_its_own_request_and_those_in_front() {
    const REQUESTS: u64 = 100;
    let options = EngineOptions::default().queue_depth(128).registrations(128);
    for step in [1, 3] {
        let mut test = Scripted::with("reg_mr", options.clone());
        test.hold(TokenKind::Invalidate);
        let mut fences = Vec::new();
        for cookie in 0..REQUESTS {
            test.submit(cookie, 1, false);
            let (name, _) = test.command();
            test.reply(name, None);
            test.until("posted", |pair| pair.host.engine.statistics().local_inv_chains == cookie + 1);
            fences.extend(test.posted().iter().map(|wr| wr.token).filter(|token| token.is(TokenKind::Invalidate)));
        }
        assert_eq!((fences.len() as u64, test.host.ended.len()), (REQUESTS, 0));
        let queue_pair = test.queue_pair();
        for at in (0..fences.len()).skip(step - 1).step_by(step) {
            let completion = Completion { token: fences[at], queue_pair, result: Ok(Success::default()) };
            test.inject(CompletionQueue::Send, completion);
            test.steps(2);
            let ended: Vec<u64> = test.host.ended.iter().map(|(cookie, _)| *cookie).collect();
            assert_eq!(ended, (0..=at as u64).collect::<Vec<_>>(), "behind fence {at}, by {step}");
            let statistics = test.host.engine.statistics();
            assert_eq!((statistics.local_invalidations, statistics.requests_ended), (at as u64 + 1, at as u64 + 1));
        }
    }
}

/// A fence tells of nothing behind it: messages whose requests have ended keep their slots, in the next word of positions too.
#[test]
fn s67_a_fence_frees_no_slot_of_a_message_behind_it() {
    const REQUESTS: u64 = 100;
    let mut test = Scripted::new("reg_mr");
    test.hold(TokenKind::Invalidate);
    test.hold(TokenKind::Message);
    test.submit(0, 1, false);
    let (name, _) = test.command();
    test.reply(name, None);
    test.until("posted", |pair| pair.host.engine.statistics().local_inv_chains == 1);
    let fence = test.posted().iter().map(|wr| wr.token).find(|token| token.is(TokenKind::Invalidate)).unwrap();
    for cookie in 1..=REQUESTS {
        test.submit(cookie, 0, false);
        let (name, _) = test.command();
        test.reply(name, None);
        test.until("ended", |pair| pair.host.ended.len() as u64 == cookie);
    }
    assert_eq!(slots(&test), (REQUESTS + 1, REQUESTS));
    let completion = Completion { token: fence, queue_pair: test.queue_pair(), result: Ok(Success::default()) };
    test.inject(CompletionQueue::Send, completion);
    test.steps(2);
    assert_eq!((test.status(0), slots(&test)), (Some("replied"), (REQUESTS, REQUESTS)));
}

/// An object whose invalidation was refused is destroyed, and ends the request that it was of, whoever else waits for a fence (S84, D7).
#[test]
fn s84_the_destruction_of_an_object_ends_its_own_request_alone() {
    for profile in PROFILES {
        for refused in [1u64, 2] {
            let mut test = Scripted::policy(profile, OnPostError::DeregisterAndContinue);
            let names = [1, 2].map(|cookie| {
                test.submit(cookie, 1, false);
                test.command().0
            });
            let (refused_name, other_name) = (names[refused as usize - 1], names[2 - refused as usize]);
            test.hold(TokenKind::Invalidate);
            test.reply(other_name, None);
            test.until("posted", |pair| pair.host.engine.statistics().local_inv_chains == 1);
            test.refuse(0);
            test.reply(refused_name, None);
            test.until("ended", |pair| !pair.host.ended.is_empty());
            test.steps(50);
            assert_eq!(test.host.ended, [(refused, "replied")], "{profile}");
            test.faults.clear();
            test.faults.release();
            test.until("both have ended", |pair| pair.host.ended.len() == 2);
            assert_eq!((test.host.disconnected, test.open_bytes()), (0, 0), "{profile}");
        }
    }
}

/// There is no message that the device could read: staged, on its way, or open.
#[test]
fn s136_a_registration_without_a_message_holds_no_slot_behind_its_end() {
    for profile in PROFILES {
        for steps in [0, 1, 2, 20] {
            let mut test = Scripted::new(profile);
            let handle = open(&mut test, 1);
            test.steps(steps);
            test.host.engine.cancel(handle).unwrap();
            test.until("cancelled", |pair| pair.host.ended == [(1, "cancelled")]);
            assert_eq!(slots(&test), (0, 0), "{profile} {steps}");
        }
    }
}

/// Whichever way its end comes: by the answer alone, by the peer's invalidation, by one fence or several, by being given up.
#[test]
fn s122_each_end_is_counted_once() {
    let traced = EngineOptions::default().trace_records(256);
    for profile in PROFILES {
        for options in [EngineOptions::default(), traced.clone()] {
            let mut test = Scripted::with(profile, options);
            let mut cookie = 0;
            for mrs in [0, 1, 3] {
                for invalidates in [false, true] {
                    cookie += 1;
                    test.submit(cookie, mrs, invalidates);
                    let (name, grants) = test.command();
                    test.reply(name, grants.first().filter(|_| invalidates).map(|grant| grant.key));
                    test.until("ended", |pair| pair.host.ended.len() as u64 == cookie);
                    assert_eq!(test.host.engine.statistics().requests_ended, cookie, "{profile} {mrs} {invalidates}");
                }
                cookie += 1;
                let request = test.submit(cookie, mrs, false);
                test.command();
                test.host.engine.cancel(request).unwrap();
                test.until("cancelled", |pair| pair.host.ended.len() as u64 == cookie);
                assert_eq!(test.host.engine.statistics().requests_ended, cookie, "{profile} {mrs}");
            }
            assert_eq!((test.host.disconnected, test.open_bytes()), (0, 0), "{profile}");
        }
    }
}

/// The device refused it, and the connection ends by that: it was never open, and its caller may still give it up.
#[test]
fn s135_a_registration_whose_post_ended_the_connection_can_be_given_up() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        let handle = open(&mut test, 1);
        let message = test.submit(2, 1, false);
        test.refuse(0);
        test.host.engine.flush();
        assert_eq!(test.host.engine.statistics().posts_refused, 1, "{profile}");
        test.host.engine.cancel(handle).unwrap();
        assert!(test.host.engine.cancel(message).is_err(), "{profile}: its message is lost already");
        test.until_gone();
        assert_eq!((test.status(1), test.status(2)), (Some("cancelled"), Some("lost")), "{profile}");
        test.reconnect_works();
    }
}

/// What stands in front of a failure the device is done with: a slot that nothing else kept is free then, and not only when its
/// connection has come to its end, which may take as long as a drain.
#[test]
fn s52_a_slot_in_front_of_a_failure_is_held_no_longer() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 0, false);
        let (name, _) = test.command();
        test.reply(name, None);
        test.until("ended", |pair| pair.host.ended.len() == 1);
        test.submit(2, 0, false);
        test.command();
        assert_eq!(slots(&test), (2, 1), "{profile}: neither message has asked for a completion");
        let token = test.posted().last().unwrap().token;
        let failed = Err(FailureStatus::RetryExceeded.into());
        test.hold(TokenKind::Drain);
        test.inject(CompletionQueue::Send, Completion { token, queue_pair: test.queue_pair(), result: failed });
        test.steps(50);
        assert_eq!(slots(&test), (1, 0), "{profile}: what is left is the one that failed");
        test.faults.release();
        test.until_gone();
        assert_eq!((test.status(1), test.status(2)), (Some("replied"), Some("lost")), "{profile}");
    }
}
