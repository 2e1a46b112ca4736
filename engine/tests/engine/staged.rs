//! Work requests stand in their connection's chain from their request's submission on: what becomes of them where they are not
//! posted after all, and where invalidations stand.

use frwr_engine::{
    CancelError, Chunk, EngineOptions, InvalidateOrder, OnPostError,
    provider::{Access, Errno, PostRefusal},
};
use frwr_support::engine_harness::scripted::Scripted;
use frwr_support::engine_harness::{PROFILES, Setup, post_refusals};

/// MRs of the requests below, and what their work requests look like.
const REQUESTS: [(u64, &str); 5] = [(1, "RS"), (2, "RRS"), (0, "S"), (1, "RS"), (3, "RRRS")];

/// Segments with gaps between them: as many MRs as a request may have, where a device has no lists.
const MOST_MRS: u64 = 16;

#[test]
fn s75_s85_a_request_cancelled_before_the_flush_leaves_the_chain_and_all_others_are_posted() {
    for profile in PROFILES {
        for cancelled in 0..REQUESTS.len() {
            let mut test = Scripted::new(profile);
            let free = test.descriptors();
            // The ring ends at different places below.
            for cookie in 0..cancelled as u64 {
                test.round_trip(100 + cookie);
            }
            test.posted();
            let requests: Vec<_> =
                REQUESTS.iter().zip(0..).map(|((mrs, _), cookie)| test.submit(cookie, *mrs, false)).collect();
            test.host.engine.cancel(requests[cancelled]).unwrap();
            assert_eq!(test.host.engine.cancel(requests[cancelled]), Err(CancelError::Ended));
            test.steps(1);
            let others = REQUESTS.iter().enumerate().filter(|(at, _)| *at != cancelled);
            let expected: String = others.map(|(_, (_, letters))| *letters).collect();
            // What asks for a completion is the engine's business.
            assert_eq!(test.chains().concat().replace('*', ""), expected, "{profile} {cancelled}");
            assert_eq!(test.status(cancelled as u64), Some("cancelled"));
            test.until("all ended", |pair| {
                pair.serve(false);
                REQUESTS.iter().zip(0..).all(|(_, cookie)| pair.host.ended.iter().any(|(ended, _)| *ended == cookie))
            });
            let replied = (0..REQUESTS.len() as u64).filter(|cookie| test.status(*cookie) == Some("replied")).count();
            assert_eq!(replied, REQUESTS.len() - 1);
            assert_eq!((test.open_bytes(), test.descriptors()), (0, free), "{profile} {cancelled}");
            for cookie in 200..210 {
                test.round_trip(cookie);
            }
        }
    }
}

#[test]
fn i31_cancelling_the_message_that_asks_leaves_those_behind_it_a_completion() {
    for profile in ["window", "rxe"] {
        let mut test = Scripted::new(profile);
        // With more of them the queue gets so full that the second one waits, and asks.
        for round in 0..70 {
            let cancelled = test.submit(2 * round, 1, true);
            test.submit(2 * round + 1, 1, true);
            test.host.engine.cancel(cancelled).unwrap();
            test.until("a reply", |pair| {
                pair.serve(true);
                pair.host.ended.len() as u64 == 2 * (round + 1)
            });
        }
        // It needs much of the send queue, which nothing behind it can free.
        let segments: Vec<_> = (0..MOST_MRS).map(|at| test.host.segment(at * 4096 + 256, 512)).collect();
        let chunk = Chunk { access: Access::RemoteWrite, segments: &segments };
        test.host.submit_chunks(1000, &[chunk], false).unwrap();
        test.until("the largest request", |pair| {
            pair.serve(false);
            pair.host.ended.iter().any(|(ended, _)| *ended == 1000)
        });
        assert_eq!(test.status(1000), Some("replied"), "{profile}");
    }
}

#[test]
fn i20_a_key_does_not_follow_itself_however_many_were_burnt_unused() {
    for profile in PROFILES {
        let mut test = Scripted::with(profile, EngineOptions::default().registrations(1));
        let rotates = test.host.engine.capabilities().rotating_key_bits > 0;
        let mut last = None;
        for burnt in [254, 255, 256, 510, 511] {
            for at in 0..burnt {
                let request = test.submit(1000 * burnt + at, 1, true);
                test.host.engine.cancel(request).unwrap();
                let now = test.pair.now;
                test.host.step(now);
            }
            test.submit(burnt, 1, true);
            let (name, grants) = test.command();
            assert_eq!(last == Some(grants[0].key), last.is_some() && !rotates, "{profile} after {burnt}");
            last = Some(grants[0].key);
            test.reply(name, None);
            test.until("a reply", |pair| pair.host.ended.last() == Some(&(burnt, "replied")));
        }
    }
}

#[test]
fn s75_all_requests_of_a_chain_may_be_cancelled_and_nothing_is_posted() {
    let mut test = Scripted::new("rxe");
    let free = test.descriptors();
    let requests: Vec<_> = REQUESTS.iter().zip(0..).map(|((mrs, _), cookie)| test.submit(cookie, *mrs, true)).collect();
    for request in requests.into_iter().rev() {
        test.host.engine.cancel(request).unwrap();
    }
    test.steps(3);
    assert_eq!(test.posted(), vec![]);
    assert!(
        test.host.ended.len() == REQUESTS.len() && test.host.ended.iter().all(|(_, status)| *status == "cancelled")
    );
    assert_eq!(test.descriptors(), free);
    let statistics = test.host.engine.statistics();
    assert_eq!((statistics.request_slots_used, statistics.registrations), (0, 0));
    test.round_trip(9);
}

#[test]
fn s97_i15_a_connection_that_ends_before_the_flush_loses_what_it_had_staged_and_posts_none_of_it() {
    for profile in PROFILES {
        for cancels in [false, true] {
            let mut test = Scripted::new(profile);
            // One whose key is to die is staged in front of the next request.
            test.submit(50, 1, false);
            let (name, _) = test.command();
            test.reply(name, None);
            test.until("a reply", |pair| pair.host.engine.statistics().receive_completions == 1);
            let requests: Vec<_> =
                REQUESTS.iter().zip(0..).map(|((mrs, _), cookie)| test.submit(cookie, *mrs, true)).collect();
            test.posted();
            let before = test.host.engine.statistics();
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            if cancels {
                test.host.engine.cancel(requests[1]).unwrap();
            }
            test.until_gone();
            let after = test.host.engine.statistics();
            assert_eq!(after.registrations, before.registrations, "{profile}: nothing of it reached the device");
            let lost = |cookie| if cancels && cookie == 1 { "cancelled" } else { "lost" };
            for cookie in 0..REQUESTS.len() as u64 {
                assert_eq!(test.status(cookie), Some(lost(cookie)), "{profile} {cookie}");
            }
            let dead = after.local_invalidations + after.remote_invalidations + after.keys_destroyed_live;
            assert_eq!(dead, after.registrations, "{profile}: each key died once");
            test.reconnect_works();
        }
    }
}

#[test]
fn i25_f13_nobody_answers_a_request_that_was_not_posted() {
    let mut test = Scripted::new("rxe");
    test.submit(1, 1, false);
    let _ = test.command();
    // The next request is in the chain when a reply comes that guesses its name.
    test.submit(2, 1, false);
    test.reply(2u64.to_le_bytes(), None);
    let now = test.pair.now;
    for _ in 0..20 {
        test.pair.target.step(now);
        let host = &mut test.pair.host;
        host.engine.poll(now, &mut host.protocol);
    }
    assert!(test.status(2).is_none(), "it was not sent, so that nothing can have answered it");
    assert_eq!(test.host.engine.statistics().bad_reply_count, 1);
}

#[test]
fn i25_f13_nobody_answers_a_request_that_the_device_refused() {
    for profile in PROFILES {
        for cancels in [false, true] {
            let mut test = Scripted::new(profile);
            test.submit(1, 1, false);
            let (name, _) = test.command();
            // The reply that guesses the next request's name is in before the device refuses to send that.
            let request = test.submit(2, 0, false);
            test.reply(2u64.to_le_bytes(), None);
            test.refuse(0);
            test.host.engine.flush();
            if cancels {
                assert_eq!(test.host.engine.cancel(request), Err(CancelError::Ended), "its end is on the way");
            }
            let now = test.pair.now;
            for _ in 0..20 {
                test.pair.target.step(now);
                let host = &mut test.pair.host;
                host.engine.poll(now, &mut host.protocol);
            }
            assert_eq!(test.host.engine.statistics().bad_reply_count, 1, "{profile}");
            let _ = test.target.try_answer(name, &[], None);
            test.until_gone();
            assert_eq!(
                test.status(2),
                Some("lost"),
                "{profile}: it was not sent, so that nothing can have answered it"
            );
            assert_eq!(post_refusals(&test.host.causes), [(PostRefusal::Invalid, Errno::EINVAL)]);
            test.reconnect_works();
        }
    }
}

#[test]
fn s65_invalidations_stand_in_front_of_requests_submitted_when_they_are_due_in_one_post() {
    for (order, expected) in [(InvalidateOrder::BeforeMessages, "L*RS"), (InvalidateOrder::AfterMessages, "RSL*")] {
        for on_post_error in [OnPostError::Disconnect, OnPostError::DeregisterAndContinue] {
            let mut test = Scripted::of(Setup::new("rxe").host(|host| {
                host.invalidate_order = order;
                host.on_post_error = on_post_error;
            }));
            test.connect();
            test.submit(1, 1, false);
            let (name, _) = test.command();
            test.reply(name, None);
            let now = test.pair.now;
            for _ in 0..20 {
                test.pair.target.step(now);
                let host = &mut test.pair.host;
                host.engine.poll(now, &mut host.protocol);
            }
            test.posted();
            test.submit(2, 1, false);
            test.steps(1);
            let chains = test.chains();
            assert_eq!(chains.first().map(|chain| chain.replace("S*", "S")), Some(expected.to_owned()), "{order:?}");
        }
    }
}

frwr_support::asleep! {
    s75_s85_a_request_cancelled_before_the_flush_leaves_the_chain_and_all_others_are_posted,
    s75_all_requests_of_a_chain_may_be_cancelled_and_nothing_is_posted,
    s97_i15_a_connection_that_ends_before_the_flush_loses_what_it_had_staged_and_posts_none_of_it,
    i25_f13_nobody_answers_a_request_that_the_device_refused,
}
