//! How the host brings controllers up that are slow.

use core::time::Duration;
use frwr_nvmf::host::{HostFailure, HostOptions, IoError};
use frwr_nvmf::wire::{
    AnaState, Command, ControllerCapabilities, ControllerStatus, IdentifyController, Property, ShutdownStatus, Status,
};
use frwr_support::nvmf_harness::host_options;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Scripted};
use std::{cell::Cell, rc::Rc};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn is_keep_alive(asked: &Asked) -> bool {
    asked.command == Command::KeepAlive
}

fn is_io_connect(asked: &Asked) -> bool {
    matches!(asked.command, Command::Connect(connect) if connect.queue_id > 0)
}

fn is_status_question(asked: &Asked) -> bool {
    matches!(asked.command, Command::PropertyGet(get) if get.property == Property::Status)
}

fn not_ready() -> Answer {
    Answer::Status(Status::SUCCESS, ControllerStatus::new(false, ShutdownStatus::Normal).0.into())
}

/// A switch that a controller's rule and the test share.
fn switch<T: Copy + 'static>(value: T) -> (Rc<Cell<T>>, Rc<Cell<T>>) {
    let ours = Rc::new(Cell::new(value));
    (Rc::clone(&ours), ours)
}

/// A controller that grants four I/O queues and says nothing to their Connects.
fn slow_queues(options: HostOptions) -> Scripted {
    let options = options.queues(4).queue_depth(8);
    Scripted::new("reg_mr", options, |controller| {
        controller.rule = Box::new(|asked| match asked.command {
            Command::SetFeatures(_) => Some(Answer::Status(Status::SUCCESS, 0x0003_0003)),
            Command::Connect(connect) if connect.queue_id > 0 => Some(Answer::Silence),
            _ => None,
        });
    })
}

#[test]
fn a_controller_that_is_slow_to_give_its_queues_is_kept_alive_meanwhile() {
    let options = host_options().keep_alive(2 * SECOND).step_timeout(15 * SECOND);
    let mut scripted = slow_queues(options);
    scripted.tick = MILLISECOND;
    for queue in 1..=4 {
        scripted.until("asked for a queue", |scripted| scripted.controller.count(is_io_connect) == queue);
        // Each takes longer than the Keep Alive Timeout, of which no more than that may pass in silence.
        for _ in 0..3 {
            let (before, since) = (scripted.controller.count(is_keep_alive), scripted.lone.now);
            while scripted.controller.count(is_keep_alive) == before {
                assert!(scripted.lone.now - since < 2 * SECOND, "queue {queue}: the controller has given this host up");
                scripted.step();
            }
        }
        let connect = scripted.controller.last(is_io_connect).unwrap();
        scripted.controller.answer(&connect, Answer::Status(Status::SUCCESS, 1));
    }
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    assert_eq!(scripted.lone.host.statistics().failures, 0);
    scripted.finish();
}

#[test]
fn a_keep_alive_that_is_not_answered_during_the_bring_up_ends_it() {
    let options = host_options().keep_alive(2 * SECOND).step_timeout(60 * SECOND);
    let mut scripted = slow_queues(options);
    let mut usual = core::mem::replace(&mut scripted.controller.rule, Box::new(|_| None));
    scripted.controller.rule =
        Box::new(move |asked| if is_keep_alive(asked) { Some(Answer::Silence) } else { usual(asked) });
    scripted.tick = MILLISECOND;
    scripted.until("given up", |scripted| scripted.lone.host.statistics().failures == 1);
    assert_eq!(scripted.lone.host.last_failure(), Some(HostFailure::KeepAlive { stood_still: Duration::ZERO }));
    assert_eq!(scripted.controller.count(is_keep_alive), 1);
    scripted.finish();
}

#[test]
fn keep_alives_begin_with_csts_rdy_and_end_with_the_shutdown() {
    let (held, theirs) = switch(true);
    let options = host_options().keep_alive(SECOND);
    let mut scripted = Scripted::new("reg_mr", options, |controller| {
        controller.capabilities = ControllerCapabilities::new(128, 20);
        controller.rule = Box::new(move |asked| (is_status_question(asked) && theirs.get()).then(not_ready));
    });
    scripted.tick = MILLISECOND;
    // Until then the controller takes no command but those of fabrics, and its Keep Alive Timer does not run (Base 3.9).
    scripted.steps(5000);
    assert!(scripted.controller.count(is_status_question) > 1);
    assert_eq!(scripted.controller.count(is_keep_alive), 0);
    held.set(false);
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    scripted.until("kept alive", |scripted| scripted.controller.count(is_keep_alive) == 2);
    held.set(true);
    let before = scripted.controller.count(is_status_question);
    scripted.lone.host.shut_down();
    scripted.until("asked", |scripted| scripted.controller.count(is_status_question) > before);
    let alive = scripted.controller.count(is_keep_alive);
    scripted.steps(5000);
    assert_eq!(scripted.controller.count(is_keep_alive), alive);
    held.set(false);
    scripted.finish();
}

#[test]
fn a_controller_is_asked_now_and_then_whether_it_is_ready_and_no_longer_than_it_may_take() {
    let (held, theirs) = switch(true);
    let options = host_options().step_timeout(SECOND).max_attempts(0);
    for comes_up in [true, false] {
        let theirs = Rc::clone(&theirs);
        held.set(true);
        let mut scripted = Scripted::new("reg_mr", options.clone(), |controller| {
            // CAP.TO is 5 s.
            controller.capabilities = ControllerCapabilities::new(128, 10);
            controller.rule = Box::new(move |asked| (is_status_question(asked) && theirs.get()).then(not_ready));
        });
        scripted.until("asked", |scripted| scripted.controller.count(is_status_question) == 1);
        let begin = scripted.lone.now;
        scripted.tick = Duration::ZERO;
        while scripted.lone.now - begin < 3 * SECOND {
            // Long enough for an answer. Then the caller sleeps until it has to poll, and that is when to ask again.
            scripted.steps(50);
            let at = scripted.lone.host.poll_at().unwrap();
            assert!((MILLISECOND / 2..SECOND / 10).contains(&at.saturating_sub(scripted.lone.now)), "{at:?}");
            scripted.lone.now = at;
        }
        let asked = scripted.controller.count(is_status_question);
        assert!((30..=3000).contains(&asked), "{asked} questions in 3 s");
        scripted.tick = MILLISECOND;
        assert_eq!(scripted.lone.host.failure(), None, "CAP.TO is not over");
        if comes_up {
            held.set(false);
            scripted.until("ready", |scripted| scripted.lone.host.is_ready());
            scripted.finish();
        } else {
            scripted.until("given up", |scripted| scripted.lone.host.failure().is_some());
            let (what, stood_still) = ("waiting for CSTS.RDY", Duration::ZERO);
            assert_eq!(scripted.lone.host.last_failure(), Some(HostFailure::Timeout { what, stood_still }));
            assert!((4 * SECOND..7 * SECOND).contains(&(scripted.lone.now - begin)));
        }
    }
}

#[test]
fn a_host_that_is_started_again_has_all_its_time_again() {
    let options =
        host_options().step_timeout(SECOND).controller_loss_timeout(5 * SECOND).inaccessible_timeout(5 * SECOND);
    let (silent, theirs) = switch(false);
    let (state, theirs_too) = switch(AnaState::Optimized);
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        controller.identify.multi_path = IdentifyController::REPORTS_ANA;
        controller.namespace.ana_group = 1.into();
        controller.rule = Box::new(move |asked| match asked.command {
            Command::Connect(_) if theirs.get() => Some(Answer::Silence),
            Command::GetLogPage(_) => {
                let mut page = vec![0; 48];
                (page[8], page[16], page[32]) = (1, 1, theirs_too.get() as u8);
                Some(Answer::Data(page))
            }
            Command::Read(_) if theirs_too.get() != AnaState::Optimized => {
                Some(Answer::Status(Status::ANA_INACCESSIBLE, 0))
            }
            _ => None,
        });
    });
    scripted.tick = MILLISECOND;
    // Its path is closed, and then it is gone, when the host is stopped.
    state.set(AnaState::Inaccessible);
    scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
    scripted.until("refused", |scripted| scripted.lone.host.ana_state() == AnaState::Inaccessible);
    silent.set(true);
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| scripted.lone.host.statistics().failures == 2);
    scripted.lone.host.shut_down();
    scripted.until("stopped", |scripted| scripted.lone.host.is_stopped());
    scripted.completions.clear();
    scripted.lone.now += 100 * SECOND;
    scripted.step();
    scripted.lone.host.start();
    scripted.until("tried", |scripted| scripted.lone.host.statistics().failures == 3);
    silent.set(false);
    scripted.until("ready", |scripted| {
        assert_eq!(scripted.lone.host.failure(), None);
        scripted.lone.host.is_ready()
    });
    let begin = scripted.lone.now;
    scripted.lone.host.read(0, &[scripted.segment(0, 1)], 2).unwrap();
    scripted.until("ended", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions[0].result, Err(IoError::Inaccessible(AnaState::Inaccessible)));
    let waited = scripted.lone.now - begin;
    assert!((4 * SECOND..8 * SECOND).contains(&waited), "{waited:?}");
    scripted.finish();
}

#[test]
fn times_that_are_for_ever_are_no_panic() {
    let for_ever = Duration::MAX;
    let options = host_options()
        .keep_alive(for_ever)
        .step_timeout(for_ever)
        .command_timeout(for_ever)
        .first_back_off(MILLISECOND)
        .longest_back_off(for_ever)
        .controller_loss_timeout(for_ever)
        .inaccessible_timeout(for_ever);
    let mut scripted = Scripted::new("reg_mr", options.clone(), |_| {});
    scripted.tick = MILLISECOND;
    for sessions in 1..=3 {
        scripted.until("ready", |scripted| scripted.lone.host.statistics().sessions == sessions);
        scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
        scripted.lone.host.flush();
        assert_eq!(scripted.lone.host.abort(1), 1);
        scripted.until("ended", |scripted| !scripted.completions.is_empty());
        scripted.completions.clear();
        scripted.controller.hang_up();
        scripted.until("lost", |scripted| scripted.lone.host.statistics().failures == sessions);
    }
    scripted.finish();
    // The first pause is one that never ends.
    let options = options.first_back_off(for_ever);
    let mut scripted = Scripted::ready("reg_mr", options, |_| {});
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| scripted.lone.host.statistics().failures == 1);
    scripted.steps(1000);
    assert_eq!(scripted.lone.host.statistics().sessions, 1);
    scripted.finish();
}

#[test]
fn a_clock_that_is_at_its_end_is_no_panic() {
    let options = host_options().command_timeout(SECOND).step_timeout(SECOND).keep_alive(SECOND);
    for now in [Duration::from_nanos(u64::MAX), Duration::MAX - SECOND] {
        let mut scripted = Scripted::ready("reg_mr", options.clone(), |_| {});
        scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
        (scripted.lone.now, scripted.tick) = (now, Duration::ZERO);
        scripted.steps(100);
        scripted.controller.hang_up();
        scripted.steps(1000);
        scripted.lone.host.shut_down();
        scripted.steps(1000);
        assert!(scripted.lone.host.poll_at().is_none_or(|at| at <= Duration::MAX));
        assert_eq!(scripted.completions.len(), 1);
    }
}
