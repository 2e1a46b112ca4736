//! A request whose message has memory of the caller in it ends behind two things: its keys are dead, and the device has read the message.
//! Neither stands for the other, whichever comes first (S51, K9; promises Fence and Hold).

use frwr_engine::provider::{Access, Completion, CompletionQueue, Success, Token, TokenKind};
use frwr_support::engine_harness::{PROFILES, scripted::*};

/// Bytes behind the message.
const INLINE: u32 = 64;
/// Steps in which whatever would end has ended.
const MANY: u32 = 50;

/// A request with so many MRs and inline memory, which was answered, with no completion of its message and invalidations so far.
fn answered(profile: &str, mrs: u64) -> Scripted {
    let mut test = Scripted::new(profile);
    test.hold(TokenKind::Message);
    test.hold(TokenKind::Invalidate);
    let segments: Vec<_> = (0..mrs).map(|at| test.host.segment(65_536 + at * 8192 + 16, 512)).collect();
    let inline = [test.host.segment(0, INLINE)];
    test.host.submit_with_inline(1, Access::RemoteRead, &segments, &inline, false).unwrap();
    let (name, grants) = test.command();
    assert_eq!(grants.is_empty(), mrs == 0, "{profile}");
    test.reply(name, None);
    test.until("the reply", |pair| pair.host.engine.statistics().reply_waits_for_send == 1);
    test.steps(MANY);
    assert!(test.host.ended.is_empty(), "{profile} {mrs}: neither is there");
    test
}

/// The completion of the last work request of a kind.
fn completes(test: &mut Scripted, kind: TokenKind) {
    let token: Token = test.watch.wrs().iter().rev().map(|wr| wr.token).find(|token| token.is(kind)).unwrap();
    let completion = Completion { token, queue_pair: test.queue_pair(), result: Ok(Success::default()) };
    test.inject(CompletionQueue::Send, completion);
    test.steps(MANY);
}

#[test]
fn s51_a_message_that_was_read_is_no_fence() {
    for profile in PROFILES {
        for mrs in [1, 3] {
            let mut test = answered(profile, mrs);
            completes(&mut test, TokenKind::Message);
            assert!(test.host.ended.is_empty(), "{profile} {mrs}: its keys are alive");
            completes(&mut test, TokenKind::Invalidate);
            assert_eq!(test.host.ended, [(1, "replied")], "{profile} {mrs}");
            test.faults.clear();
            test.faults.release();
            test.steps(MANY);
            test.round_trip(2);
            assert_eq!((test.host.disconnected, test.open_bytes()), (0, 0), "{profile} {mrs}");
        }
    }
}

/// Without a key the message alone is waited for.
#[test]
fn s51_without_keys_the_end_waits_for_the_message() {
    for profile in PROFILES {
        let mut test = answered(profile, 0);
        completes(&mut test, TokenKind::Message);
        assert_eq!(test.host.ended, [(1, "replied")], "{profile}");
        test.faults.clear();
        test.faults.release();
        test.steps(MANY);
        test.round_trip(2);
    }
}

/// What one poll brings of several connections ends requests on each.
#[test]
fn s51_s67_completions_of_two_connections_in_one_poll_are_of_both() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.hold(TokenKind::Message);
        let inline = [test.host.segment(0, INLINE)];
        for cookie in 1..=2 {
            if cookie == 2 {
                test.connect();
            }
            test.host.submit_with_inline(cookie, Access::RemoteRead, &[], &inline, false).unwrap();
            let (name, _) = test.command();
            test.reply(name, None);
            test.until("the reply", |pair| pair.host.engine.statistics().reply_waits_for_send == cookie);
        }
        test.faults.clear();
        test.faults.release();
        test.until("both have ended", |pair| pair.host.ended.len() == 2);
        assert_eq!((test.status(1), test.status(2)), (Some("replied"), Some("replied")), "{profile}");
        assert_eq!(test.host.engine.statistics().slots_held, 0, "{profile}: both were read");
        test.round_trip(3);
    }
}

/// A message is read long before its request is answered: the end waits for the keys alone, and is told as that.
#[test]
fn s51_an_answer_behind_the_message_waits_for_the_keys() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.hold(TokenKind::Invalidate);
        let (segments, inline) = ([test.host.segment(65_536, 512)], [test.host.segment(0, INLINE)]);
        test.host.submit_with_inline(1, Access::RemoteRead, &segments, &inline, false).unwrap();
        let (name, _) = test.command();
        test.until("read", |pair| pair.host.engine.statistics().send_completions == 1);
        test.reply(name, None);
        test.steps(MANY);
        assert!(test.host.ended.is_empty(), "{profile}: its key is alive");
        completes(&mut test, TokenKind::Invalidate);
        assert_eq!(test.host.ended, [(1, "replied")], "{profile}");
        assert_eq!(test.host.engine.statistics().reply_waits_for_send, 0, "{profile}: it was read before");
    }
}
