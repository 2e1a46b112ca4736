//! Sections 1.F and 1.G: invalidation on a reply and on giving a request up; nothing ends before its keys are dead.

use core::time::Duration;
use frwr_engine::signal::SignalPolicy;
use frwr_engine::{
    CancelError, CancelNowError, DisconnectCause, EngineOptions, InvalidateSignalling, OnPostError, RequestHandle,
    ResponseRequest,
    provider::{
        Access, Completion, CompletionQueue, Failure, FailureStatus, Success, Token, TokenKind,
        fault::{CompletionFault, CompletionFilter},
        soft::vendor_code,
    },
};
use frwr_support::engine_harness::{PROFILES, scripted::*};

/// More than an engine of the default options keeps.
const EVENTS: usize = 4000;

fn every() -> EngineOptions {
    EngineOptions::default().invalidate_signalling(InvalidateSignalling::Every)
}

/// The polled-synchronous cancel, with Control polled by the clock; a thousand iterations are a deadline.
fn cancel_now(test: &mut Scripted, request: RequestHandle) -> Result<(), CancelNowError> {
    let host = &mut test.pair.host;
    let mut now = test.pair.now;
    let deadline = now + Duration::from_millis(1);
    let clock = || {
        host.control.poll();
        now += Duration::from_micros(1);
        now
    };
    let result = host.engine.cancel_now(request, deadline, clock, &mut host.protocol);
    test.pair.now = now;
    result
}

/// The first `ok` invalidation completions pass (twice), the rest are held.
fn hold_after(test: &Scripted, ok: u32) {
    let filter = CompletionFilter::kind(TokenKind::Invalidate);
    test.faults.on_completions(filter, CompletionFault::Duplicate, ok);
    test.faults.on_all_completions(filter, CompletionFault::Hold);
}

#[test]
fn s64_nothing_registered_is_cancelled_without_a_post_and_nothing_twice() {
    let mut test = Scripted::new("reg_mr");
    let request = test.submit(1, 0, false);
    test.command();
    test.watch.clear();
    assert_eq!(cancel_now(&mut test, request), Ok(()));
    assert!(test.chains().is_empty());
    assert_eq!(cancel_now(&mut test, request), Err(CancelNowError::Refused(CancelError::Ended)));
    test.steps(5);
    assert_eq!(test.host.ended, [(1, "cancelled")]);
    assert_eq!(cancel_now(&mut test, request), Err(CancelNowError::Refused(CancelError::Ended)), "the handle is dead");
}

#[test]
fn s64_s67_a_caller_that_took_no_events_is_told_so_and_not_that_time_is_over() {
    let mut test = Scripted::new("reg_mr");
    let request = test.submit(1, 2, false);
    test.command();
    let foreign = Token::new(TokenKind::Foreign, 0, 0);
    let completion = Completion { token: foreign, queue_pair: test.queue_pair(), result: Ok(Success::default()) };
    for _ in 0..EVENTS {
        test.inject(CompletionQueue::Send, completion);
    }
    let now = test.pair.now;
    let host = &mut test.pair.host;
    // Polls go on to return work, since events wait; they take no more completions once half of that room is used.
    for _ in 0..EVENTS {
        assert_ne!(host.engine.poll(now, &mut host.protocol), 0, "events wait");
    }
    assert_eq!(cancel_now(&mut test, request), Err(CancelNowError::EventsWaiting));
    assert_eq!(test.pair.now, now, "at once");
    test.until("ended", |pair| pair.host.ended.len() == 1);
    assert_eq!((test.status(1), test.open_bytes()), (Some("cancelled"), 0));
}

#[test]
fn s65_s66_one_chain_of_invalidations_and_one_post_for_1_2_and_11_mrs() {
    for (options, marks) in [(EngineOptions::default(), ["L", "L*"]), (every(), ["L*", "L*"])] {
        let mut test = Scripted::with("reg_mr", options);
        for count in [1u64, 2, 11] {
            let segments: Vec<_> = (0..count).map(|at| test.host.segment(at * 8192 + 16, 64)).collect();
            let request = test.host.submit(count, Access::RemoteRead, &segments, false).unwrap();
            test.command();
            test.watch.clear();
            assert_eq!(cancel_now(&mut test, request), Ok(()));
            let expected = marks[0].repeat(count as usize - 1) + marks[1];
            assert_eq!(test.chains(), [expected]);
        }
        let statistics = test.host.engine.statistics();
        assert_eq!((statistics.local_inv_needed, statistics.local_inv_chains), (14, 3));
    }
}

#[test]
fn s67_s77_s114_the_last_completion_ends_the_request_not_an_earlier_one() {
    for cancel in [true, false] {
        for count in [1u32, 3] {
            let mut test = Scripted::with("window", every());
            let request = test.submit(1, u64::from(count), false);
            let (name, _) = test.command();
            hold_after(&test, count - 1);
            if cancel {
                test.host.engine.cancel(request).unwrap();
            } else {
                test.reply(name, None);
            }
            test.steps(100);
            assert!(test.host.ended.is_empty(), "{count} {cancel}");
            assert_eq!(test.host.engine.statistics().local_invalidations, u64::from(count - 1));
            test.faults.release();
            test.until("ended", |pair| pair.host.ended.len() == 1);
            assert_eq!(test.status(1), Some(if cancel { "cancelled" } else { "replied" }));
        }
    }
}

#[test]
fn s68_s71_s72_f05_i15_a_refused_invalidation_never_hangs_the_waiting_caller() {
    for profile in PROFILES {
        for policy in [OnPostError::Disconnect, OnPostError::DeregisterAndContinue] {
            for accepted in 0..3 {
                // Every message is signalled, so that it is known before the refusal that the registrations ran (I11).
                let signal = SignalPolicy::SendsOnly { batch: 0 };
                let options = EngineOptions::default().on_post_error(policy).signal(signal);
                let mut test = Scripted::with(profile, options);
                let request = test.submit(1, 3, false);
                test.command();
                test.until("sent", |pair| pair.host.engine.statistics().send_completions > 0);
                test.refuse(accepted);
                let result = cancel_now(&mut test, request);
                if policy == OnPostError::Disconnect {
                    assert_eq!(result, Err(CancelNowError::Disconnected), "{profile} {accepted}");
                    test.until_gone();
                    assert_eq!((test.status(1), test.host.disconnected), (Some("cancelled"), 1));
                    test.reconnect_works();
                } else {
                    assert_eq!(result, Ok(()), "{profile} {accepted}");
                    assert_eq!(test.open_bytes(), 0);
                    test.round_trip(2);
                    assert_eq!(test.host.disconnected, 0);
                }
            }
        }
    }
}

#[test]
fn s69_s78_the_mrs_are_free_when_the_caller_hears_of_the_end() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        let before = test.descriptors();
        let request = test.submit(1, 3, false);
        test.command();
        assert_eq!(cancel_now(&mut test, request), Ok(()));
        assert_eq!(test.descriptors(), before, "{profile}: woken, and free already");
        test.submit(2, 2, false);
        let (name, _) = test.command();
        test.reply(name, None);
        test.until("ended", |pair| pair.host.ended.len() == 2);
        assert_eq!(test.descriptors(), before, "{profile}");
    }
}

#[test]
fn s70_s75_s79_f12_i10_i12_i14_a_peer_that_keeps_writing_is_cut_off_before_the_end() {
    for profile in PROFILES {
        for cancel in [true, false] {
            let mut test = Scripted::new(profile);
            let request = test.submit(1, 1, false);
            let (name, grants) = test.command();
            let place = 65536 + 256;
            if cancel {
                assert_eq!(cancel_now(&mut test, request), Ok(()));
            } else {
                test.reply(name, None);
            }
            test.until("ended", |pair| pair.host.ended.len() == 1);
            test.host.data.write(place, &[7; 512]).unwrap();
            test.target.data.write(0, &[9; 512]).unwrap();
            // The probe: an RDMA WRITE under the dead key.
            test.submit(2, 0, false);
            let (name, _) = test.command();
            test.target.answer(name, &grants, None);
            test.until("the probe's end", |pair| pair.target.disconnected == 1);
            let mut seen = [0; 512];
            test.host.data.read(place, &mut seen).unwrap();
            assert_eq!(seen, [7; 512], "{profile}: the caller's again");
            let refused =
                DisconnectCause::WorkRequest(Failure::new(FailureStatus::RemoteAccess, vendor_code::WRITE_REFUSED));
            assert_eq!(test.target.causes, [refused], "{profile}: the cause, not one of its flushes");
            test.until_gone();
            test.reconnect_works();
        }
    }
}

#[test]
fn s74_s80_s81_fault06_fault08_a_failed_invalidation_is_no_fence_and_no_reply() {
    for profile in PROFILES {
        for status in [FailureStatus::Flushed, FailureStatus::LocalProtection] {
            for cancel in [true, false] {
                let mut test = Scripted::new(profile);
                let all = test.descriptors().iter().sum();
                let request = test.submit(1, 2, false);
                let (name, _) = test.command();
                test.fail(TokenKind::Invalidate, status);
                if cancel {
                    test.host.engine.cancel(request).unwrap();
                } else {
                    test.reply(name, None);
                }
                test.until_gone();
                assert_eq!(test.status(1), Some(if cancel { "cancelled" } else { "lost" }), "to be sent again");
                assert_eq!(test.host.causes, [DisconnectCause::WorkRequest(status.into())]);
                assert_eq!(test.descriptors(), [0, 0, 0, all], "destroyed, none reused");
                test.reconnect_works();
            }
        }
    }
}

#[test]
fn s82_f17_a_flush_behind_the_first_invalidation_frees_the_first_mr_only() {
    let mut test = Scripted::with("reg_mr", every());
    let before = test.descriptors();
    test.submit(1, 3, false);
    let (name, _) = test.command();
    let filter = CompletionFilter::kind(TokenKind::Invalidate);
    test.faults.on_completions(filter, CompletionFault::Duplicate, 1);
    test.faults.on_completions(filter, CompletionFault::Fail(FailureStatus::Flushed.into()), 2);
    test.reply(name, None);
    test.until("the failure", |pair| pair.host.engine.statistics().disconnects == 1);
    assert_eq!(test.host.engine.statistics().local_invalidations, 1);
    assert_eq!(test.descriptors(), [before[0] - 2, 0, 2, 0], "one free, two of which nobody knows");
    test.until_gone();
    assert_eq!(test.status(1), Some("lost"));
    assert_eq!(test.descriptors()[3], before[0], "nothing leaks");
}

#[test]
fn s76_invalidations_have_their_place_in_the_send_queue_before_the_request_is_sent() {
    for profile in PROFILES {
        let mut test = Scripted::with(profile, EngineOptions::default().registrations(96));
        let mut requests = Vec::new();
        for cookie in 0..64 {
            requests.push(test.submit(cookie, 3, false));
        }
        test.steps(3);
        for request in requests {
            test.host.engine.cancel(request).unwrap();
        }
        test.until("cancelled", |pair| pair.host.outstanding.is_empty());
        // The device checks: a chain that does not fit is refused.
        assert_eq!(test.host.engine.statistics().posts_refused, 0, "{profile}");
        assert_eq!(test.host.disconnected, 0);
    }
}

#[test]
fn s83_s84_f06_a_refused_fence_detaches_the_reply_and_ends_the_connection_once() {
    let mut test = Scripted::new("reg_mr");
    let all = test.descriptors().iter().sum();
    test.submit(1, 3, true);
    let (name, _) = test.command();
    test.refuse(0);
    test.reply(name, None);
    test.until_gone();
    assert_eq!((test.status(1), test.host.disconnected), (Some("lost"), 1));
    assert_eq!(test.descriptors(), [0, 0, 0, all]);
    assert_eq!(test.host.engine.statistics().keys_destroyed_live, 3);
}

#[test]
fn fault09_hold_a_slot_is_not_reused_before_a_completion_passed_its_message() {
    let mut test = Scripted::new("reg_mr");
    let first = test.submit(1, 0, false);
    let (name, _) = test.command();
    test.reply(name, None);
    test.until("ended", |pair| pair.host.ended.len() == 1);
    assert_eq!(test.host.engine.statistics().slots_held, 1, "the SEND asked for no completion");
    let second = test.submit(2, 0, false);
    assert_ne!(first.index(), second.index(), "the device may still read the message");
    let (name, _) = test.command();
    test.reply(name, None);
    // A fence is signalled and stands behind both messages.
    test.round_trip(3);
    test.submit(4, 1, false);
    let (name, _) = test.command();
    test.reply(name, None);
    test.until("ended", |pair| pair.host.ended.len() == 4);
    assert_eq!(test.host.engine.statistics().slots_held, 0);
}

#[test]
fn fault09_fault14_slots_held_by_messages_never_starve_the_requester() {
    for queue_depth in [1, 2, 32] {
        let mut test = Scripted::with("window", EngineOptions::default().queue_depth(queue_depth).registrations(16));
        // Requests without MRs have no fence whose completion could pass the message.
        for cookie in 0..200 {
            test.submit(cookie, 0, false);
            test.until("ended", |pair| {
                pair.serve(false);
                pair.host.outstanding.is_empty()
            });
        }
        // The largest request fits beside what is unsignalled.
        test.submit(1000, 4, false);
        test.until("ended", |pair| {
            pair.serve(false);
            pair.host.outstanding.is_empty()
        });
    }
}

#[test]
fn s75_fault35_cancelling_at_every_instant_ends_the_request_once() {
    for profile in PROFILES {
        for steps in 0..24 {
            let mut test = Scripted::new(profile);
            let request = test.submit(1, 2, false);
            for _ in 0..steps {
                test.serve(false);
                test.steps(1);
            }
            let cancelled = test.host.engine.cancel(request);
            let again = test.host.engine.cancel(request);
            assert_eq!(again, Err(CancelError::Ended));
            test.until("ended", |pair| {
                pair.serve(false);
                pair.host.ended.len() == 1
            });
            test.pair.steps(20);
            assert_eq!(test.status(1) == Some("cancelled"), cancelled.is_ok(), "{profile} {steps}");
            assert!(test.host.ended.len() == 1 && test.open_bytes() == 0);
        }
    }
}

#[test]
fn fault20_i05_an_invited_request_is_not_invalidated_behind_the_peers_back_where_that_crashes() {
    let mut test = Scripted::new("rxe");
    let request = test.submit(1, 1, true);
    let (name, grants) = test.command();
    assert_eq!(test.host.engine.cancel(request), Err(CancelError::PeerMayInvalidate));
    test.reply(name, Some(grants[0].key));
    test.until("ended", |pair| pair.host.ended.len() == 1);
    assert_eq!(test.status(1), Some("replied"));
}

/// Elsewhere it is, at every instant of its life: staged, posted, executed, answered but not polled, ended. Whichever invalidation
/// comes first, the request ends once with its keys dead; where both come the connection ends, and the next one works.
#[test]
fn s75_i05_an_invited_request_is_cancelled_at_every_instant() {
    for profile in ["reg_mr", "window", "umr", "umr:fixed-key"] {
        let (mut ends, mut lives) = (0, 0);
        for (instant, mrs) in (0..48).flat_map(|instant| [(instant, 1), (instant, 3)]) {
            let context = format!("{profile}, instant {instant}, {mrs} MRs");
            let mut test = Scripted::new(profile);
            let request = test.submit(1, mrs, true);
            let now = test.pair.now;
            // Host and target move on by turns, so that each moment between two polls comes.
            for at in 0..instant {
                if at % 2 == 0 {
                    test.pair.host.step(now)
                } else {
                    test.pair.target.step(now)
                }
                test.serve(true);
            }
            let cancelled = test.host.engine.cancel(request);
            assert_eq!(test.host.engine.cancel(request), Err(CancelError::Ended), "{context}");
            let mut patience = 3000;
            while test.host.ended.is_empty() || patience > 2900 {
                test.serve(true);
                test.pair.steps(1);
                patience -= 1;
                assert!(patience > 0, "{context}: never ended");
            }
            assert_eq!(test.host.ended.len(), 1, "{context}");
            assert_eq!(test.status(1) == Some("cancelled"), cancelled.is_ok(), "{context}");
            assert_eq!(test.open_bytes(), 0, "{context}");
            if test.host.disconnected == 0 {
                lives += 1;
                test.round_trip(2);
            } else {
                ends += 1;
                test.until_gone();
                test.reconnect_works();
            }
        }
        assert!(ends > 0 && lives > 0, "{profile}: {ends} connections ended, {lives} lived");
    }
}

/// The reply that kills the key and the completion of the invalidation come by one poll.
#[test]
fn s75_i05_both_invalidations_in_one_poll_end_the_request_once() {
    for profile in ["reg_mr", "window", "umr", "umr:fixed-key"] {
        for waits in 1..6 {
            let mut test = Scripted::new(profile);
            let request = test.submit(1, 1, true);
            let (name, grants) = test.command();
            test.host.engine.cancel(request).unwrap();
            test.host.engine.flush();
            let _ = test.target.try_answer(name, &[], Some(grants[0].key));
            let now = test.pair.now;
            // The host's device works when it is asked for either queue; its engine looks at what came at once.
            for _ in 0..waits {
                test.pair.target.step(now);
            }
            test.until_gone();
            assert_eq!(test.host.ended, [(1, "cancelled")], "{profile} {waits}");
            assert_eq!(test.open_bytes(), 0);
            test.reconnect_works();
        }
    }
}

/// Who invites without memory has no key that could be killed behind anybody's back.
#[test]
fn s75_an_invited_request_without_memory_is_cancelled() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        let request = test.submit(1, 0, true);
        let (name, _) = test.command();
        test.steps(20);
        assert_eq!(test.host.engine.cancel(request), Ok(()), "{profile}");
        test.until("ended", |pair| pair.host.ended == [(1, "cancelled")]);
        test.reply(name, None);
        test.until("dropped", |pair| pair.host.engine.statistics().bad_reply_count == 1);
        test.round_trip(2);
        assert_eq!(test.host.disconnected, 0, "{profile}");
    }
}

#[test]
fn s75_cancelling_twice_on_a_connection_that_drains_is_refused_and_ends_once() {
    let mut test = Scripted::new("rxe");
    let requests: Vec<_> = (0..4).map(|cookie| test.submit(cookie, cookie, false)).collect();
    test.until("commands", |pair| pair.target.commands.len() == 4);
    let connection = test.host.connection.unwrap();
    test.host.engine.disconnect(connection);
    for request in requests {
        test.host.engine.cancel(request).unwrap();
        assert_eq!(test.host.engine.cancel(request), Err(CancelError::Ended));
    }
    test.until_gone();
    assert!(test.host.ended.iter().all(|(_, status)| *status == "cancelled"));
    test.reconnect_works();
}

#[test]
fn fault16_fault19_a_key_dies_once_whoever_kills_it() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        for (cookie, invited, invalidates) in [(1, true, true), (2, true, false), (3, false, true), (4, false, false)] {
            test.submit(cookie, 2, invited);
            let (name, grants) = test.command();
            test.watch.clear();
            test.reply(name, invalidates.then(|| grants[0].key));
            test.until("ended", |pair| pair.host.ended.iter().any(|(ended, _)| *ended == cookie));
            let fences = if invalidates { 2 - 1 } else { 2.min(grants.len()) };
            let posted: usize = test.posted().iter().filter(|wr| wr.token.kind() == TokenKind::Invalidate).count();
            assert_eq!(posted, fences, "{profile} {cookie}");
        }
        let statistics = test.host.engine.statistics();
        assert_eq!((statistics.remote_invalidations, statistics.uninvited_invalidations), (2, 1));
        assert_eq!(test.host.disconnected, 0);
    }
}

#[test]
fn fault17_fault18_i25_foreign_and_dead_keys_end_the_connection_and_are_counted() {
    for profile in ["reg_mr", "window", "umr", "umr:fixed-key"] {
        for twice in [false, true] {
            let mut test = Scripted::new(profile);
            test.submit(1, 1, true);
            let (_, first_grants) = test.command();
            test.submit(2, 1, true);
            let (second, _) = test.command();
            // The answer to one request kills the key of the other, once or twice.
            test.reply(second, Some(first_grants[0].key));
            if twice {
                test.reply(second, None);
            }
            test.until_gone();
            let statistics = test.host.engine.statistics();
            assert_eq!((statistics.foreign_invalidations, test.host.disconnected), (1, 1), "{profile}");
            assert_eq!(test.host.causes, [DisconnectCause::ForeignInvalidation]);
            assert_eq!(test.host.ended.len(), 2);
            assert_ne!(test.status(2), Some("replied"));
            test.reconnect_works();
        }
    }
}

#[test]
fn i25_replies_that_name_nothing_in_flight_are_counted_and_dropped() {
    // A reply that names a request of another connection, a dead one or none at all.
    let mut test = Scripted::new("reg_mr");
    test.round_trip(1);
    for name in [1u64, 77, u64::MAX] {
        let message: Vec<u8> = name.to_le_bytes().into_iter().chain([0xFF; 4]).collect();
        let response = ResponseRequest { local: &[], remote: &[], message: &message, invalidate: None, cookie: 0 };
        let connection = test.target.connection.unwrap();
        test.submit(100 + name % 100, 0, false);
        test.command();
        test.target.engine.respond(connection, &response).unwrap();
    }
    test.until("counted", |pair| pair.host.engine.statistics().bad_reply_count == 3);
    assert_eq!(test.host.disconnected, 0);
}

#[test]
fn s122_a_message_that_breaks_the_protocol_is_counted_once_and_ends_the_connection() {
    let mut test = Scripted::new("reg_mr");
    // Too short for a name.
    let response = ResponseRequest { local: &[], remote: &[], message: &[0; 4], invalidate: None, cookie: 0 };
    let connection = test.target.connection.unwrap();
    test.submit(1, 0, false);
    test.command();
    test.target.engine.respond(connection, &response).unwrap();
    test.until_gone();
    assert_eq!(test.host.causes, [DisconnectCause::Protocol]);
    assert_eq!((test.status(1), test.host.engine.statistics().bad_reply_count), (Some("lost"), 1));
}

frwr_support::asleep! {
    s68_s71_s72_f05_i15_a_refused_invalidation_never_hangs_the_waiting_caller,
    s70_s75_s79_f12_i10_i12_i14_a_peer_that_keeps_writing_is_cut_off_before_the_end,
    s74_s80_s81_fault06_fault08_a_failed_invalidation_is_no_fence_and_no_reply,
    s82_f17_a_flush_behind_the_first_invalidation_frees_the_first_mr_only,
    s83_s84_f06_a_refused_fence_detaches_the_reply_and_ends_the_connection_once,
    s75_cancelling_twice_on_a_connection_that_drains_is_refused_and_ends_once,
    fault17_fault18_i25_foreign_and_dead_keys_end_the_connection_and_are_counted,
}
