//! What is counted and told of a connection's end: each cause behind the first, and what stood in front of a failure (I35, S97, S98).

use core::time::Duration;
use frwr_engine::{
    DisconnectCause,
    provider::{
        Completion, CompletionQueue, Failure, FailureStatus, TokenKind,
        fault::{CompletionFault, CompletionFilter},
    },
};
use frwr_support::engine_harness::{PROFILES, scripted::*};

/// Completions of failures that the host's engine saw.
fn failures(test: &mut Scripted) -> u64 {
    let failed = |test: &mut Scripted, queue| {
        test.watch.completions(queue).iter().filter(|completion| completion.result.is_err()).count() as u64
    };
    failed(test, CompletionQueue::Send) + failed(test, CompletionQueue::Receive)
}

/// Each flush is one, and each call of the caller's; the first of all is not.
#[test]
fn i35_causes_behind_the_first_are_counted_one_by_one() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 2, false);
        test.submit(2, 0, false);
        test.until("commands", |pair| pair.target.commands.len() == 2);
        let causes = |test: &Scripted| test.host.engine.statistics().causes_while_ending;
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
        assert_eq!(causes(&test), 0, "{profile}: the first");
        test.host.engine.disconnect(connection);
        test.host.engine.disconnect(connection);
        assert_eq!(causes(&test), 2, "{profile}: two that came too late");
        // The peer is not polled until the host has told: its own end is no cause then.
        for _ in 0..1000 {
            test.now += Duration::from_micros(1);
            let now = test.pair.now;
            test.pair.host.step(now);
        }
        assert_eq!(test.host.disconnected, 1, "{profile}");
        let flushed = failures(&mut test);
        assert!(flushed > 0, "{profile}: receives and the marker come back");
        assert_eq!(causes(&test), 2 + flushed, "{profile}");
        test.until_gone();
        test.reconnect_works();
    }
}

/// How the target was told of its responses, in order.
fn responded(test: &Scripted) -> Vec<&'static str> {
    let told = test.target.events.iter().filter(|event| event.starts_with("Responded"));
    told.map(|event| if event.contains("Done") { "done" } else { "lost" }).collect()
}

/// A queue completes in order: a response in front of one that failed has arrived, and what failed has not.
#[test]
fn s52_a_response_in_front_of_a_failed_one_was_sent() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 0, false);
        test.submit(2, 0, false);
        test.until("commands", |pair| pair.target.commands.len() == 2);
        let names = [1u64, 2].map(u64::to_le_bytes);
        test.target.take_command().unwrap();
        test.target.take_command().unwrap();
        // Two in one chain, of which only the last asks: its completion is the only one.
        let failed = CompletionFault::Fail(FailureStatus::RetryExceeded.into());
        test.target_faults.on_completions(CompletionFilter::kind(TokenKind::Reply), failed, 1);
        for name in names {
            test.reply(name, None);
        }
        test.until("the end", |pair| pair.target.disconnected == 1);
        assert_eq!(responded(&test), ["done", "lost"], "{profile}");
        test.until_gone();
        test.reconnect_works();
    }
}

/// Where all that is known is that something was flushed, the first flush is told, with what the device said to it.
#[test]
fn i35_of_flushes_the_first_is_the_cause() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        for cookie in [1, 2] {
            test.submit(cookie, 0, false);
        }
        test.until("commands", |pair| pair.target.commands.len() == 2);
        let queue_pair = test.queue_pair();
        let flush = |vendor_code| Failure::new(FailureStatus::Flushed, vendor_code);
        for (wr, vendor_code) in test.posted().iter().zip([7, 9]) {
            let result = Err(flush(vendor_code));
            test.inject(CompletionQueue::Send, Completion { token: wr.token, queue_pair, result });
        }
        test.until_gone();
        assert_eq!(test.host.causes, [DisconnectCause::WorkRequest(flush(7))], "{profile}");
    }
}
