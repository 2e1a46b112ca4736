//! How the host opens, stops and fails: what it leaves alone, what it waits for, and what it says of it.

use core::time::Duration;
use frwr_engine::{ConnectionId, ConnectionOptions};
use frwr_nvmf::host::{HostFailure, HostOptions, IoError};
use frwr_nvmf::wire::{
    AcceptPrivateData, AnaState, Command, ControllerConfiguration, IdentifyController, RejectPrivateData, RejectStatus,
    RequestPrivateData, Status, log_page,
};
use frwr_support::nvmf_harness::host_options;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Scripted};
use std::{cell::Cell, rc::Rc};
use zerocopy::IntoBytes;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn is_shutdown(asked: &Asked) -> bool {
    let shutdown = u64::from(ControllerConfiguration::NORMAL_SHUTDOWN.0);
    matches!(asked.command, Command::PropertySet(set) if set.value == shutdown)
}

fn is_connect(queue: u16) -> impl Fn(&Asked) -> bool {
    move |asked| matches!(asked.command, Command::Connect(connect) if connect.queue_id == queue)
}

fn is_abort(asked: &Asked) -> bool {
    matches!(asked.command, Command::Abort(_))
}

fn is_read(asked: &Asked) -> bool {
    matches!(asked.command, Command::Read(_))
}

fn quiet(options: HostOptions) -> HostOptions {
    options.keep_alive(Duration::ZERO)
}

/// A switch that a controller's rule and the test share.
fn switch<T: Copy + 'static>(value: T) -> (Rc<Cell<T>>, Rc<Cell<T>>) {
    let ours = Rc::new(Cell::new(value));
    (Rc::clone(&ours), ours)
}

/// A connection of somebody else over the host's engine, as tools open them.
fn another(scripted: &mut Scripted) -> ConnectionId {
    let private_data = RequestPrivateData::new(0, 32);
    let options = ConnectionOptions::default().peer_receives(1);
    let address = host_options().address;
    scripted.lone.host.engine_mut().connect(address, private_data.as_bytes(), &options).unwrap()
}

/// The host stops without a word of failure; the controller hears no command more.
fn stops_at_once(scripted: &mut Scripted, what: &str) {
    let asked = scripted.controller.asked.len();
    scripted.lone.host.shut_down();
    scripted.until(what, |scripted| scripted.lone.host.is_stopped());
    assert_eq!((scripted.lone.host.failure(), scripted.lone.host.last_failure()), (None, None), "{what}");
    assert_eq!(scripted.controller.asked.len(), asked, "{what}");
}

#[test]
fn a_host_that_is_stopped_while_it_connects_or_is_brought_up_waits_for_nothing() {
    let mut connecting = Scripted::new("reg_mr", host_options(), |_| {});
    connecting.lone.step();
    assert!(connecting.lone.host.connections()[0].is_some());
    connecting.lone.host.shut_down();
    // Its controller does not even see the request.
    for _ in 0..1000 {
        connecting.lone.step();
    }
    assert!(connecting.lone.host.is_stopped());
    assert_eq!(connecting.lone.host.statistics().failures, 0);
    for commands in 1..10 {
        let mut scripted = Scripted::new("reg_mr", quiet(host_options()), |controller| {
            let mut answered = 0;
            controller.rule = Box::new(move |_| {
                answered += 1;
                (answered == commands).then_some(Answer::Silence)
            });
        });
        scripted.until("asked", |scripted| scripted.controller.asked.len() == commands);
        scripted.steps(20);
        stops_at_once(&mut scripted, &format!("command {commands} is not answered"));
    }
}

#[test]
fn a_host_whose_engine_has_no_connection_left_waits_for_one() {
    let mut scripted = Scripted::new("reg_mr", host_options(), |_| {});
    let others: Vec<ConnectionId> = (0..host_options().engine().connections).map(|_| another(&mut scripted)).collect();
    for _ in 0..100 {
        scripted.lone.step();
    }
    assert_eq!(scripted.lone.host.connections()[0], None);
    others.into_iter().for_each(|other| scripted.lone.host.engine_mut().disconnect(other));
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    assert_eq!(scripted.lone.host.statistics().failures, 0);
    scripted.finish();
}

#[test]
fn what_comes_of_connections_of_others_is_not_taken_for_the_host_s_own() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |_| {});
    // Too little for the host.
    scripted.controller.accepts_with = AcceptPrivateData::new(1).as_bytes().to_vec();
    scripted.controller.hang_up();
    scripted.until("it pauses", |scripted| {
        let at = scripted.lone.host.poll_at();
        scripted.lone.host.statistics().failures == 1 && at.is_some_and(|at| at > scripted.lone.now)
    });
    let until = scripted.lone.host.poll_at().unwrap();
    let other = another(&mut scripted);
    for _ in 0..20 {
        scripted.lone.step();
    }
    for _ in 0..20 {
        scripted.controller.step(scripted.lone.now);
    }
    scripted.controller.accepts_with = AcceptPrivateData::new(128).as_bytes().to_vec();
    // It begins to connect, and hears then that the other one is accepted.
    scripted.lone.now = until;
    scripted.lone.host.poll(until);
    let is_ready = |scripted: &Scripted| scripted.lone.host.engine().is_ready(other);
    assert!(scripted.lone.host.connections()[0].is_some() && !is_ready(&scripted));
    for _ in 0..20 {
        scripted.lone.step();
    }
    assert!(is_ready(&scripted));
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    assert_eq!(scripted.lone.host.statistics().failures, 1);
    scripted.lone.host.engine_mut().disconnect(other);
    scripted.finish();
}

#[test]
fn a_shutdown_waits_for_every_command_of_the_admin_queue() {
    let is_keep_alive = |asked: &Asked| asked.command == Command::KeepAlive;
    let is_event = |asked: &Asked| asked.command == Command::AsynchronousEventRequest;
    let is_log = |asked: &Asked| matches!(asked.command, Command::GetLogPage(_));
    let held: [fn(&Asked) -> bool; 3] = [is_keep_alive, is_abort, is_log];
    for (which, is_held) in held.into_iter().enumerate() {
        let options = host_options().keep_alive(SECOND);
        let mut scripted = Scripted::ready("reg_mr", options, |controller| {
            controller.identify.events = IdentifyController::NAMESPACE_EVENTS.into();
            controller.rule = Box::new(move |asked| (is_held(asked) || is_read(asked)).then_some(Answer::Silence));
        });
        scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
        scripted.lone.host.flush();
        scripted.until("events are waited for", |scripted| scripted.controller.count(is_event) == 1);
        scripted.lone.host.abort(1);
        let event = scripted.controller.last(is_event).unwrap();
        scripted.controller.answer(&event, Answer::Status(Status::SUCCESS, 2));
        scripted.tick = MILLISECOND;
        scripted.until("held", |scripted| scripted.controller.count(is_held) == 1);
        let read = scripted.controller.last(is_read).unwrap();
        scripted.controller.answer(&read, Answer::Status(Status::COMMAND_ABORT_REQUESTED, 0));
        scripted.until("ended", |scripted| !scripted.completions.is_empty());
        scripted.lone.host.shut_down();
        scripted.steps(100);
        assert_eq!(scripted.controller.count(is_shutdown), 0, "{which}");
        let last = scripted.controller.last(is_held).unwrap();
        scripted.controller.answer(&last, Answer::Status(Status::SUCCESS, 1));
        scripted.finish();
        assert_eq!(
            (scripted.controller.count(is_shutdown), scripted.lone.host.statistics().failures),
            (1, 0),
            "{which}"
        );
    }
}

#[test]
fn a_shutdown_that_is_refused_for_ever_stops_the_host_all_the_same() {
    let status = Status::INVALID_FIELD.do_not_retry();
    let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
        controller.rule = Box::new(move |asked| is_shutdown(asked).then_some(Answer::Status(status, 0)));
    });
    scripted.finish();
    let step = "shutdown notification";
    assert_eq!(scripted.lone.host.last_failure(), Some(HostFailure::Command { step, status }));
    assert_eq!(scripted.lone.host.failure(), None);
}

#[test]
fn a_queue_that_is_accepted_with_fewer_receives_than_it_needs_is_not_used() {
    let depth = host_options().queue_depth;
    let admin = "an admin queue of 32 entries, which every controller has to take";
    let too_deep = |limit| HostFailure::QueueDepth { wanted: depth, limit };
    let accept = |receives| AcceptPrivateData::new(receives).as_bytes().to_vec();
    let of_another_format = [&[1, 0][..], &accept(128)[2..]].concat();
    let foreign = HostFailure::Unsupported("record format 0 of private data");
    // What the admin queue is accepted with, what the I/O queue is, and what comes of it.
    for (of_admin, of_io, expected) in [
        (accept(32), accept(depth + 1), None),
        (accept(31), accept(128), Some(HostFailure::Unsupported(admin))),
        (accept(128), accept(depth), Some(too_deep(u32::from(depth) - 1))),
        (accept(128), accept(0), Some(too_deep(0))),
        (of_another_format.clone(), accept(128), Some(foreign)),
        (accept(128), of_another_format.clone(), Some(foreign)),
        (accept(128), accept(128)[..8].to_vec(), Some(foreign)),
    ] {
        let mut scripted = Scripted::new("reg_mr", host_options(), |controller| controller.accepts_with = of_admin);
        scripted.until("asked or given up", |scripted| {
            scripted.controller.count(is_connect(0)) == 1 || scripted.lone.host.failure().is_some()
        });
        scripted.controller.accepts_with = of_io;
        scripted
            .until("one of both", |scripted| scripted.lone.host.is_ready() || scripted.lone.host.failure().is_some());
        assert_eq!(scripted.lone.host.failure(), expected);
    }
}

#[test]
fn a_controller_that_rejects_connections_is_tried_again_behind_the_first_session_and_not_before() {
    let rejection = RejectPrivateData::new(RejectStatus::InvalidQueueId).as_bytes().to_vec();
    let mut scripted = Scripted::new("reg_mr", host_options(), |controller| {
        controller.rejects_with = Some(rejection.clone());
    });
    let rejected = HostFailure::Rejected(RejectStatus::InvalidQueueId);
    scripted.until("given up", |scripted| scripted.lone.host.failure() == Some(rejected));
    let mut scripted = Scripted::ready("reg_mr", host_options(), |_| {});
    scripted.controller.rejects_with = Some(rejection);
    scripted.controller.hang_up();
    scripted.tick = MILLISECOND;
    scripted.until("rejected", |scripted| scripted.lone.host.statistics().failures == 4);
    assert_eq!((scripted.lone.host.failure(), scripted.lone.host.last_failure()), (None, Some(rejected)));
    scripted.controller.rejects_with = None;
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    scripted.finish();
}

#[test]
fn what_stood_still_is_told_as_far_as_it_was_in_this_attempt() {
    let (silent, theirs) = switch(false);
    let options = quiet(host_options().step_timeout(5 * SECOND));
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        controller.rule = Box::new(move |asked| {
            let is_asked = matches!(asked.command, Command::Connect(_));
            (is_asked && theirs.get()).then_some(Answer::Silence)
        });
    });
    scripted.tick = MILLISECOND;
    scripted.steps(200);
    scripted.lone.now += 600 * SECOND;
    scripted.steps(200);
    silent.set(true);
    scripted.controller.hang_up();
    scripted.until("asked again", |scripted| scripted.controller.count(is_connect(0)) == 2);
    scripted.lone.now += 60 * SECOND;
    scripted.steps(200);
    let connect = scripted.controller.last(is_connect(0)).unwrap();
    scripted.controller.answer(&connect, Answer::Status(Status::SUCCESS, 1));
    scripted.until("given up", |scripted| scripted.lone.host.statistics().failures == 2);
    let failure = scripted.lone.host.last_failure();
    let Some(HostFailure::Timeout { what, stood_still }) = failure else { panic!("{failure:?}") };
    assert_eq!(what, "Connect of an I/O queue");
    assert!((59 * SECOND..=60 * SECOND).contains(&stood_still), "{stood_still:?}");
    // Nobody stands still in the attempt behind it.
    scripted.until("asked again", |scripted| scripted.controller.count(is_connect(0)) == 3);
    scripted.until("given up", |scripted| scripted.lone.host.statistics().failures == 3);
    let (what, stood_still) = ("Connect of the admin queue", Duration::ZERO);
    assert_eq!(scripted.lone.host.last_failure(), Some(HostFailure::Timeout { what, stood_still }));
    silent.set(false);
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    scripted.finish();
}

#[test]
fn keep_alives_that_are_answered_do_not_answer_an_abort() {
    let options = host_options().keep_alive(SECOND).step_timeout(3 * SECOND);
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        controller.rule = Box::new(|asked| (is_read(asked) || is_abort(asked)).then_some(Answer::Silence));
    });
    scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
    scripted.lone.host.flush();
    assert_eq!(scripted.lone.host.abort(1), 1);
    scripted.until("aborted", |scripted| scripted.controller.count(is_abort) == 1);
    let begin = scripted.lone.now;
    let read = scripted.controller.last(is_read).unwrap();
    scripted.controller.answer(&read, Answer::Status(Status::COMMAND_ABORT_REQUESTED, 0));
    scripted.tick = MILLISECOND;
    scripted.until("given up", |scripted| scripted.lone.host.statistics().failures == 1);
    let (what, stood_still) = ("an Abort", Duration::ZERO);
    assert_eq!(scripted.lone.host.last_failure(), Some(HostFailure::Timeout { what, stood_still }));
    assert!((6 * SECOND..7 * SECOND).contains(&(scripted.lone.now - begin)));
    assert!(scripted.lone.host.statistics().keep_alives > 5);
    scripted.finish();
}

#[test]
fn what_abort_answers_and_keep_alives_say_is_no_event() {
    let options = host_options().keep_alive(SECOND);
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        controller.identify.events = IdentifyController::NAMESPACE_EVENTS.into();
        let mut reads = 0;
        controller.rule = Box::new(move |asked| match asked.command {
            Command::Read(_) => {
                reads += 1;
                (reads == 1).then_some(Answer::Silence)
            }
            // As an event would say that the namespace has changed.
            Command::KeepAlive | Command::Abort(_) => Some(Answer::Status(Status::SUCCESS, 2)),
            _ => None,
        });
    });
    scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
    scripted.lone.host.flush();
    assert_eq!(scripted.lone.host.abort(1), 1);
    scripted.tick = MILLISECOND;
    scripted.steps(3000);
    let statistics = scripted.lone.host.statistics();
    assert!(statistics.keep_alives > 3 && statistics.aborts == 1, "{statistics:?}");
    assert_eq!((statistics.namespace_events, statistics.other_events, statistics.failures), (0, 0, 0));
    assert_eq!(scripted.controller.count(|asked| matches!(asked.command, Command::GetLogPage(_))), 0);
}

#[test]
fn a_command_that_waits_for_the_next_session_is_given_up_at_once() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
        controller.rule = Box::new(|asked| is_read(asked).then_some(Answer::Silence));
    });
    scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
    scripted.until("asked", |scripted| scripted.controller.count(is_read) == 1);
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| scripted.lone.host.statistics().lost == 1);
    assert_eq!(scripted.lone.host.abort(1), 1);
    let ended = scripted.lone.host.next_completion().expect("there is nothing to wait for");
    assert_eq!((ended.cookie, ended.result), (1, Err(IoError::Aborted)));
    scripted.tick = MILLISECOND;
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    scripted.steps(20);
    assert_eq!((scripted.controller.count(is_read), scripted.completions.len()), (1, 0));
    scripted.finish();
}

/// Its Abort was of a session that is over.
#[test]
fn a_command_that_waits_for_its_path_is_not_too_late_for_an_abort_of_the_session_before() {
    let (state, theirs) = switch(AnaState::Optimized);
    let options = quiet(host_options().command_timeout(SECOND).step_timeout(2 * SECOND));
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        controller.identify.multi_path = IdentifyController::REPORTS_ANA;
        controller.namespace.ana_group = 1.into();
        controller.rule = Box::new(move |asked| match asked.command {
            Command::Read(_) if asked.session == 1 => Some(Answer::Silence),
            Command::GetLogPage(get) if get.page == log_page::ANA => {
                let mut page = vec![0; 48];
                (page[8], page[16], page[32]) = (1, 1, theirs.get() as u8);
                Some(Answer::Data(page))
            }
            _ => None,
        });
    });
    scripted.lone.host.read(0, &[scripted.segment(0, 1)], 1).unwrap();
    scripted.tick = MILLISECOND;
    scripted.until("aborted", |scripted| scripted.controller.count(is_abort) == 1);
    state.set(AnaState::Inaccessible);
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| scripted.lone.host.statistics().failures == 1);
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    scripted.steps(5000);
    assert_eq!((scripted.lone.host.statistics().failures, scripted.completions.len()), (1, 0));
    state.set(AnaState::Optimized);
    scripted.until("ended", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions[0].result, Ok(()));
    scripted.finish();
}
