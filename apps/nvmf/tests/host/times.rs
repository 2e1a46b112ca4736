//! When the host does what is due: a caller that sleeps until `poll_at` and polls at that very time finds it done, and nothing is
//! told to be due that is not.

use core::time::Duration;
use frwr_nvmf::host::{HostFailure, HostOptions};
use frwr_nvmf::wire::{
    Command, ControllerConfiguration, ControllerStatus, Property, RejectPrivateData, RejectStatus, ShutdownStatus,
    Status,
};
use frwr_support::nvmf_harness::host_options;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Scripted};
use std::{cell::Cell, rc::Rc};
use zerocopy::IntoBytes;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
/// What every step of the harness adds to the time.
const STEP: Duration = Duration::from_micros(1);
/// Deadlines are looked at no more often.
const LOOK: Duration = Duration::from_millis(10);
/// Steps in which what was sent is answered.
const ROUND: usize = 20;

fn is_keep_alive(asked: &Asked) -> bool {
    asked.command == Command::KeepAlive
}

fn is_status_question(asked: &Asked) -> bool {
    matches!(asked.command, Command::PropertyGet(get) if get.property == Property::Status)
}

fn is_shutdown(asked: &Asked) -> bool {
    let shutdown = u64::from(ControllerConfiguration::NORMAL_SHUTDOWN.0);
    matches!(asked.command, Command::PropertySet(set) if set.value == shutdown)
}

/// Without Keep Alives, which are due all the time.
fn quiet(options: HostOptions) -> HostOptions {
    options.keep_alive(Duration::ZERO)
}

/// A switch that a controller's rule and the test share.
fn switch() -> (Rc<Cell<bool>>, Rc<Cell<bool>>) {
    let ours = Rc::new(Cell::new(false));
    (Rc::clone(&ours), ours)
}

/// A session whose controller answers no flush; time passes with the steps alone.
fn mute(options: HostOptions) -> Scripted {
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        controller.rule = Box::new(|asked| matches!(asked.command, Command::Flush { .. }).then_some(Answer::Silence));
    });
    scripted.tick = MILLISECOND;
    // It has looked at its deadlines.
    scripted.steps(200);
    scripted.tick = Duration::ZERO;
    scripted
}

/// One step at a time.
fn step_at(scripted: &mut Scripted, at: Duration) {
    scripted.lone.now = at - STEP;
    scripted.tick = Duration::ZERO;
    scripted.step();
}

/// Sleeps until the host wants to be polled, and polls it then; returns when that was.
fn sleep(scripted: &mut Scripted) -> Duration {
    scripted.steps(ROUND);
    let at = scripted.lone.host.poll_at().expect("it waits for something");
    assert!(at > scripted.lone.now, "it can sleep until {at:?}");
    step_at(scripted, at);
    at
}

/// Ends the session, and waits until the host pauses; returns when it heard of the end.
fn lose(scripted: &mut Scripted) -> Duration {
    let failures = scripted.lone.host.statistics().failures;
    scripted.controller.hang_up();
    scripted.tick = Duration::ZERO;
    scripted.until("lost", |scripted| scripted.lone.host.statistics().failures > failures);
    let lost = scripted.lone.now;
    scripted.until("it pauses", |scripted| scripted.lone.host.poll_at().is_some_and(|at| at > scripted.lone.now));
    lost
}

#[test]
fn an_idle_host_without_keep_alives_need_not_be_polled() {
    let scripted = mute(quiet(host_options()));
    assert_eq!(scripted.lone.host.poll_at(), None);
}

#[test]
fn commands_that_may_take_for_ever_need_no_poll_and_are_not_aborted() {
    let mut scripted = mute(quiet(host_options().command_timeout(Duration::ZERO)));
    scripted.lone.host.flush_namespace(1).unwrap();
    scripted.steps(ROUND);
    assert!(scripted.lone.host.poll_at().is_none_or(|at| at == Duration::MAX));
    scripted.tick = MILLISECOND;
    scripted.steps(40_000);
    assert_eq!((scripted.lone.host.statistics().aborts, scripted.lone.host.statistics().failures), (0, 0));
}

#[test]
fn a_command_is_aborted_at_its_time_whenever_it_was_submitted() {
    let options = quiet(host_options().command_timeout(20 * SECOND).step_timeout(7 * SECOND));
    for idle in [0, 5, 15, 19, 25, 100] {
        let mut scripted = mute(options.clone());
        assert_eq!(scripted.lone.host.poll_at(), None);
        scripted.lone.now += idle * SECOND;
        scripted.steps(ROUND);
        scripted.lone.host.flush_namespace(1).unwrap();
        let submitted = scripted.lone.now;
        while scripted.lone.host.statistics().aborts == 0 {
            sleep(&mut scripted);
        }
        let aborted = scripted.lone.now;
        assert!((Duration::ZERO..=LOOK).contains(&(aborted - submitted - options.command_timeout)), "{idle} s");
        while scripted.lone.host.statistics().failures == 0 {
            sleep(&mut scripted);
        }
        assert!((Duration::ZERO..=LOOK).contains(&(scripted.lone.now - aborted - options.step_timeout)), "{idle} s");
    }
}

#[test]
fn a_request_that_is_given_up_is_aborted_by_the_next_poll_and_once() {
    let options = quiet(host_options().command_timeout(20 * SECOND).step_timeout(7 * SECOND));
    let mut scripted = mute(options);
    scripted.lone.host.flush_namespace(1).unwrap();
    scripted.steps(ROUND);
    assert_eq!(scripted.lone.host.abort(1), 1);
    assert_eq!(scripted.lone.host.poll_at(), Some(scripted.lone.now));
    scripted.lone.host.poll(scripted.lone.now);
    assert_eq!(scripted.lone.host.statistics().aborts, 1);
    // Given up once more, it has its time all the same.
    let begin = scripted.lone.now;
    assert_eq!(scripted.lone.host.abort(1), 1);
    scripted.tick = 10 * MILLISECOND;
    while scripted.lone.now < begin + 6 * SECOND {
        scripted.step();
        assert_eq!(scripted.lone.host.statistics().failures, 0);
    }
    assert_eq!(scripted.lone.host.statistics().aborts, 1);
}

#[test]
fn keep_alives_are_sent_each_half_of_their_time_and_answered_within_all_of_it() {
    let (silent, theirs) = switch();
    let options = host_options().keep_alive(4 * SECOND);
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        controller.rule = Box::new(move |asked| (is_keep_alive(asked) && theirs.get()).then_some(Answer::Silence));
    });
    let first = sleep(&mut scripted);
    for sent in 1..5 {
        assert_eq!(scripted.lone.host.statistics().keep_alives, u64::from(sent));
        assert_eq!(sleep(&mut scripted), first + sent * 2 * SECOND);
    }
    silent.set(true);
    let sent = sleep(&mut scripted);
    assert_eq!(sent, first + 10 * SECOND);
    assert_eq!((sleep(&mut scripted), scripted.lone.host.statistics().failures), (sent + 4 * SECOND, 1));
    let stood_still = Duration::ZERO;
    assert_eq!(scripted.lone.host.last_failure(), Some(HostFailure::KeepAlive { stood_still }));
    // What was answered says nothing of what the controller tells by itself.
    let statistics = scripted.lone.host.statistics();
    assert_eq!((statistics.keep_alives, statistics.other_events), (6, 0));
}

#[test]
fn a_controller_whose_next_session_is_slow_hears_no_keep_alive_of_the_last_one() {
    let (slow, theirs) = switch();
    let options = host_options().keep_alive(SECOND).step_timeout(15 * SECOND);
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        controller.rule = Box::new(move |asked| {
            let not_ready = ControllerStatus::new(false, ShutdownStatus::Normal).0.into();
            (is_status_question(asked) && theirs.get()).then_some(Answer::Status(Status::SUCCESS, not_ready))
        });
    });
    scripted.tick = MILLISECOND;
    slow.set(true);
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| scripted.lone.host.statistics().failures == 1);
    scripted.steps(5000);
    assert!(scripted.controller.count(|asked| is_status_question(asked) && asked.session == 2) > 1);
    assert_eq!(scripted.controller.count(is_keep_alive), 0);
    assert_eq!(scripted.lone.host.statistics().failures, 1);
    slow.set(false);
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    scripted.finish();
}

#[test]
fn a_controller_that_is_not_ready_yet_is_asked_again_by_the_poll_that_was_named() {
    let (slow, theirs) = switch();
    slow.set(true);
    let mut scripted = Scripted::new("reg_mr", quiet(host_options()), |controller| {
        controller.rule = Box::new(move |asked| {
            let not_ready = ControllerStatus::new(false, ShutdownStatus::Normal).0.into();
            (is_status_question(asked) && theirs.get()).then_some(Answer::Status(Status::SUCCESS, not_ready))
        });
    });
    scripted.tick = Duration::ZERO;
    for times in 1..5 {
        scripted.until("asked", |scripted| scripted.controller.count(is_status_question) == times);
        sleep(&mut scripted);
        scripted.controller.step(scripted.lone.now);
        assert_eq!(scripted.controller.count(is_status_question), times + 1);
    }
    slow.set(false);
    scripted.tick = MILLISECOND;
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    scripted.finish();
}

#[test]
fn an_attempt_to_connect_that_nobody_answers_ends_at_its_time() {
    let options = quiet(host_options().step_timeout(2 * SECOND));
    let mut scripted = Scripted::new("reg_mr", options, |_| {});
    scripted.lone.step();
    let end = scripted.lone.now + 2 * SECOND;
    while scripted.lone.now + 50 * MILLISECOND < end {
        scripted.lone.now += 20 * MILLISECOND;
        scripted.lone.step();
    }
    assert_eq!(scripted.lone.host.statistics().failures, 0);
    scripted.lone.now = end - STEP;
    scripted.lone.step();
    let (what, stood_still) = ("connecting", Duration::ZERO);
    assert_eq!(scripted.lone.host.last_failure(), Some(HostFailure::Timeout { what, stood_still }));
    scripted.tick = MILLISECOND;
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    scripted.finish();
}

#[test]
fn the_shutdown_is_said_by_the_poll_that_finds_nothing_outstanding() {
    let mut scripted = mute(quiet(host_options()));
    scripted.lone.host.shut_down();
    scripted.lone.step();
    for _ in 0..ROUND {
        scripted.controller.step(scripted.lone.now);
    }
    assert_eq!(scripted.controller.count(is_shutdown), 1);
    scripted.finish();
}

#[test]
fn pauses_of_commands_end_each_at_its_time() {
    let mut scripted = Scripted::ready("reg_mr", quiet(host_options()), |controller| {
        controller.identify.retry_delays = [20.into(), 0.into(), 0.into()];
        let mut refusals = vec![0x006, 0x006 | 1 << 11];
        controller.rule = Box::new(move |asked| {
            let refused = matches!(asked.command, Command::Write(_)).then(|| refusals.pop()).flatten();
            refused.map(|code| Answer::Status(Status::from_wire(code << 1), 0))
        });
    });
    let is_write = |asked: &Asked| matches!(asked.command, Command::Write(_));
    scripted.tick = Duration::ZERO;
    // The first one is to wait for two seconds, the other one for a tenth.
    for block in 0..2 {
        scripted.lone.host.write(block, &[scripted.segment(block, 1)], block).unwrap();
        scripted.until("refused", |scripted| scripted.lone.host.statistics().repeated == block + 1);
    }
    let refused = scripted.lone.now;
    for (pause, block, sent) in [(SECOND / 10, 1, 3), (2 * SECOND, 0, 4)] {
        while scripted.lone.now + 100 * STEP < refused + pause {
            sleep(&mut scripted);
        }
        scripted.controller.step(scripted.lone.now);
        let last = scripted.controller.last(is_write).map(|asked| asked.command);
        assert!(matches!(last, Some(Command::Write(range)) if range.lba == block), "{pause:?}: {last:?}");
        assert_eq!(scripted.controller.count(is_write), sent, "{pause:?}");
    }
    scripted.finish();
}

#[test]
fn a_session_that_lasted_longer_than_the_longest_pause_is_a_new_beginning_and_no_shorter_one() {
    let (first, longest) = (10 * MILLISECOND, 50 * MILLISECOND);
    let options = quiet(host_options().first_back_off(first).longest_back_off(longest));
    let mut scripted = Scripted::ready("reg_mr", options, |_| {});
    // What each session lasts, and the pause behind it.
    let short = Duration::ZERO;
    for (lasts, pause) in [(short, 1), (short, 2), (longest, 4), (longest + STEP, 1), (longest + SECOND, 1), (short, 2)]
    {
        let settled = scripted.lone.now;
        scripted.controller.hang_up();
        scripted.controller.step(settled);
        // All polls that hear of the end are at this time.
        let ended = (settled + lasts).max(settled + STEP);
        let failures = scripted.lone.host.statistics().failures;
        while scripted.lone.host.statistics().failures == failures || scripted.lone.host.poll_at() <= Some(ended) {
            step_at(&mut scripted, ended);
        }
        assert_eq!(scripted.lone.host.poll_at(), Some(ended + pause * first), "{lasts:?}");
        assert_eq!(sleep(&mut scripted), ended + pause * first);
        assert!(scripted.lone.host.connections()[0].is_some(), "it connects when its pause is over");
        scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    }
    scripted.finish();
}

#[test]
fn a_controller_is_given_up_as_lost_when_it_has_been_away_for_that_long_and_no_sooner() {
    let loss = 50 * MILLISECOND;
    for (away, expected) in [(loss - STEP, None), (loss, Some(HostFailure::ControllerLoss))] {
        let options = host_options().controller_loss_timeout(loss);
        let mut scripted = Scripted::ready("reg_mr", quiet(options), |_| {});
        scripted.tick = MILLISECOND;
        // It may have been used for longer than that.
        scripted.steps(1000);
        let lost = lose(&mut scripted);
        scripted.controller.rejects_with = Some(RejectPrivateData::new(RejectStatus::NoResources).as_bytes().to_vec());
        // The next attempt fails at this time.
        for _ in 0..200 {
            step_at(&mut scripted, lost + away);
        }
        assert_eq!(scripted.lone.host.statistics().failures, 2);
        assert_eq!(scripted.lone.host.failure(), expected, "{away:?}");
    }
}
