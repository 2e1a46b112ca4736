//! The faults; their numbers are those of `docs/faults.md`.

use crate::interferences::{FailedWork, Keeping, Kept, Overrun};
use crate::state::COOKIE;
use crate::strike::{Toll, on_every_state, peer, settle};
use core::time::Duration;
use frwr_engine::provider::{
    AsyncEvent, Completion, CompletionQueue, DeviceEvent, FailureStatus, PostRefusal, QueuePairId, Success, Token,
    TokenKind,
    fault::{CompletionFault, CompletionFilter},
};
use frwr_support::engine_harness::scripted::Scripted;

/// Steps in which a sender gives up that hears nothing, or nothing but that no receive is there.
const FOR_GOOD: u32 = 100_000;

/// Times that the peer settles until then: both kinds of retries are some hundred steps.
const EXHAUSTING: u32 = 14;

/// Lets a sender use its retries up.
fn exhaust(test: &mut Scripted) {
    for _ in 0..EXHAUSTING {
        settle(test);
    }
}

/// Its time is over. Where it has ended, or must not be given up, that is said.
fn give_up(test: &mut Scripted) {
    let request = test.host.protocol.names[&COOKIE];
    let _ = test.host.engine.cancel(request);
    test.faults.release();
}

/// The `passing`-th work request from now on fails inside the device.
fn fails(test: &Scripted, passing: u32, status: FailureStatus) {
    let fault = FailedWork { queue_pair: test.queue_pair(), passing, failure: Some(status.into()) };
    test.monitor.interfere(test.watch.port, Box::new(fault));
}

#[test]
fn fault01_fault02_fault07_the_next_work_requests_fail_in_the_device() {
    let statuses = [FailureStatus::Bind, FailureStatus::RemoteAccess];
    for (passing, status) in (0..4).zip(statuses.into_iter().cycle()) {
        on_every_state(Toll::Either, |test| fails(test, passing, status));
    }
}

#[test]
fn fault05_fault06_everything_is_flushed_from_now_on() {
    on_every_state(Toll::Either, |test| test.faults.fail_from_now(test.queue_pair(), FailureStatus::Flushed));
}

#[test]
fn fault03_fault04_the_next_post_is_taken_in_part() {
    let reasons = [PostRefusal::Invalid, PostRefusal::QueueFull, PostRefusal::NotReady];
    for (accepted, reason) in (0..4).zip(reasons.into_iter().cycle()) {
        on_every_state(Toll::Either, |test| test.faults.refuse_post(test.queue_pair(), accepted, reason));
    }
}

#[test]
fn fault03_the_next_receives_are_refused() {
    on_every_state(Toll::Either, |test| test.faults.refuse_receives(test.queue_pair(), 0, PostRefusal::NotReady));
}

#[test]
fn fault09_fault11_completions_come_late() {
    for kind in [TokenKind::Register, TokenKind::Message, TokenKind::Invalidate, TokenKind::Receive] {
        on_every_state(Toll::Nothing, |test| test.hold(kind));
    }
}

#[test]
fn fault10_completions_come_twice() {
    on_every_state(Toll::Nothing, |test| {
        test.faults.on_all_completions(CompletionFilter::default(), CompletionFault::Duplicate);
        test.faults.release();
    });
}

#[test]
fn fault12_completions_of_nothing_and_of_former_queue_pairs_come() {
    on_every_state(Toll::Nothing, |test| {
        for kind in [TokenKind::Register, TokenKind::Message, TokenKind::Invalidate, TokenKind::Receive] {
            for index in 0..8 {
                let result = Err(FailureStatus::Flushed.into());
                let token = Token::new(kind, index, 1);
                let completion = Completion { token, queue_pair: QueuePairId(0xDEAD), result };
                test.inject(CompletionQueue::Send, completion);
            }
        }
    });
}

#[test]
fn fault13_a_completion_queue_overruns() {
    for queue in [CompletionQueue::Send, CompletionQueue::Receive] {
        on_every_state(Toll::Port, |test| {
            test.monitor.interfere(test.watch.port, Box::new(Overrun(Some(queue))));
            test.faults.release();
        });
    }
}

#[test]
fn fault17_fault18_a_reply_names_a_key_that_is_not_the_requests() {
    on_every_state(Toll::Either, |test| {
        let success = Success { bytes: 12, invalidated: Some(0x1234_5678) };
        let filter = CompletionFilter::kind(TokenKind::Receive);
        test.faults.on_completions(filter, CompletionFault::Succeed(success), 1);
    });
}

#[test]
fn fault21_the_device_makes_no_object_any_more() {
    use frwr_engine::provider::{CommandError, fault::CommandKind};
    on_every_state(Toll::Nothing, |test| {
        test.faults.fail_command(CommandKind::AllocateRegistration, CommandError::EXHAUSTED, u32::MAX);
    });
}

#[test]
fn fault28_either_core_stands_still_for_long() {
    for host_stands in [true, false] {
        on_every_state(Toll::Nothing, |test| {
            for _ in 0..20 {
                test.pair.now += Duration::from_secs(1);
                let now = test.pair.now;
                if host_stands { test.pair.target.step(now) } else { test.pair.host.step(now) }
            }
        });
    }
}

#[test]
fn fault30_messages_meet_no_receive_for_a_while_or_until_retries_are_over() {
    for (steps, toll) in [(3, Toll::Nothing), (FOR_GOOD, Toll::Either)] {
        on_every_state(toll, |test| {
            let (port, queue_pair) = peer(test);
            test.target_monitor.interfere(port, Box::new(Keeping { what: Kept::Receives, queue_pair, steps }));
            if steps == FOR_GOOD {
                exhaust(test);
            }
        });
    }
}

#[test]
fn fault31_fault32_either_side_or_both_disconnect() {
    for by in 0..3 {
        on_every_state(Toll::Connection, |test| {
            let (host, target) = (test.host.connection.unwrap(), test.target.connection.unwrap());
            if by != 1 {
                test.host.engine.disconnect(host);
            }
            if by != 0 {
                test.target.engine.disconnect(target);
            }
        });
    }
}

#[test]
fn fault33_the_device_of_either_side_is_taken_out_of_the_machine() {
    for of_host in [true, false] {
        on_every_state(Toll::Port, |test| {
            let monitor = if of_host { &test.monitor } else { &test.target_monitor };
            monitor.remove_device();
        });
    }
}

#[test]
fn fault34_the_device_tells_events_in_front_of_completions_and_behind_them() {
    for first in [true, false] {
        for device in [true, false] {
            on_every_state(Toll::Connection, |test| {
                if !first {
                    test.steps(2);
                }
                let event =
                    if device { AsyncEvent::DeviceFatal } else { AsyncEvent::QueuePairFatal(test.queue_pair()) };
                test.faults.inject_event(DeviceEvent::Async(event));
            });
        }
    }
}

#[test]
fn fault35_the_request_is_given_up_beside_whatever_comes() {
    for moment in 0..3 {
        on_every_state(Toll::Either, |test| {
            test.steps(moment);
            give_up(test);
        });
        on_every_state(Toll::Connection, |test| {
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.steps(moment);
            give_up(test);
        });
    }
}

#[test]
fn fault37_a_second_disconnect_comes_at_every_moment_of_the_first() {
    for moment in [0, 1, 2, 4] {
        on_every_state(Toll::Connection, |test| {
            let connection = test.host.connection.unwrap();
            test.host.engine.disconnect(connection);
            test.steps(moment);
            test.host.engine.disconnect(connection);
        });
    }
}

#[test]
fn fault39_the_wire_is_cut_for_a_while_or_for_good() {
    for (what, steps, toll) in [
        (Kept::Wire, 3, Toll::Nothing),
        (Kept::Wire, FOR_GOOD, Toll::Either),
        (Kept::Answers, 3, Toll::Nothing),
        // Who is there is waited for.
        (Kept::Answers, FOR_GOOD, Toll::Nothing),
    ] {
        on_every_state(toll, |test| {
            let fault = Keeping { what, queue_pair: test.queue_pair(), steps };
            test.monitor.interfere(test.watch.port, Box::new(fault));
            if steps == FOR_GOOD {
                exhaust(test);
            }
        });
    }
}

#[test]
fn fault40_the_clock_jumps_both_ways() {
    for jump in [Duration::from_secs(5), Duration::from_secs(86_400), Duration::from_secs(1 << 40)] {
        on_every_state(Toll::Nothing, |test| {
            let before = test.pair.now;
            test.pair.now += jump;
            test.steps(3);
            test.pair.now = before;
            test.steps(3);
        });
    }
}

frwr_support::asleep! {
    fault05_fault06_everything_is_flushed_from_now_on,
    fault13_a_completion_queue_overruns,
    fault31_fault32_either_side_or_both_disconnect,
    fault33_the_device_of_either_side_is_taken_out_of_the_machine,
    fault37_a_second_disconnect_comes_at_every_moment_of_the_first,
}
