//! Where what the host does about one trouble meets another: paths that change while commands are sent again, namespaces that move
//! to another group, followers that leave.

use core::time::Duration;
use frwr_nvmf::host::{HostCompletion, HostOptions};
use frwr_nvmf::wire::{AnaState, Command, IdentifyController, ReservationNotificationKind, Status, log_page};
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller, Scripted};
use frwr_support::nvmf_harness::spread::Spread;
use frwr_support::nvmf_harness::{host_options, target_options};
use std::{cell::Cell, rc::Rc};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
/// Reads of blocks from here on stay without an answer while the controller holds them.
const HELD: u64 = 200;

/// A switch that a controller's rule and the test share.
fn switch<T: Copy + 'static>(value: T) -> (Rc<Cell<T>>, Rc<Cell<T>>) {
    let ours = Rc::new(Cell::new(value));
    (Rc::clone(&ours), ours)
}

fn is_read(asked: &Asked) -> bool {
    matches!(asked.command, Command::Read(_))
}

fn is_held(asked: &Asked) -> bool {
    matches!(asked.command, Command::Read(range) if range.lba >= HELD)
}

fn is_ana(asked: &Asked) -> bool {
    matches!(asked.command, Command::GetLogPage(get) if get.page == log_page::ANA)
}

/// A log page that lists these groups.
fn ana_page(groups: &[(u32, AnaState)]) -> Answer {
    let mut page = vec![0; 16];
    page[8] = groups.len() as u8;
    for &(group, state) in groups {
        let mut descriptor = [0; 32];
        descriptor[..4].copy_from_slice(&group.to_le_bytes());
        descriptor[16] = state as u8;
        page.extend(descriptor);
    }
    Answer::Data(page)
}

fn reports_ana(controller: &mut Controller) {
    controller.identify.multi_path = IdentifyController::REPORTS_ANA;
    controller.identify.events = IdentifyController::ANA_EVENTS.into();
    controller.namespace.ana_group = 1.into();
}

/// Ends the session, and waits for the next one.
fn lose(scripted: &mut Scripted) {
    let failures = scripted.lone.host.statistics().failures;
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| scripted.lone.host.statistics().failures > failures);
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
}

/// A session in which two suspects are, of which one is in flight and the other waits for it.
fn with_suspects(options: HostOptions, refuses: Rc<Cell<bool>>) -> Scripted {
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        reports_ana(controller);
        controller.rule = Box::new(move |asked| match asked.command {
            Command::Read(_) if is_held(asked) => Some(Answer::Silence),
            Command::Read(_) if refuses.get() => Some(Answer::Status(Status::ANA_TRANSITION, 0)),
            _ if is_ana(asked) => Some(ana_page(&[(1, AnaState::Optimized)])),
            _ => None,
        });
    });
    scripted.tick = MILLISECOND / 10;
    for cookie in 0..2 {
        scripted.lone.host.read(HELD + cookie, &[scripted.segment(0, 1)], cookie).unwrap();
    }
    for sent in [2, 4] {
        scripted.until("sent", |scripted| scripted.controller.count(is_held) == sent);
        lose(&mut scripted);
    }
    scripted.until("one is sent again", |scripted| scripted.controller.count(is_held) == 5);
    scripted
}

#[test]
fn a_command_that_was_refused_for_its_path_does_not_wait_behind_suspects() {
    let (refuses, theirs) = switch(false);
    let mut scripted = with_suspects(host_options(), theirs);
    refuses.set(true);
    scripted.lone.host.read(0, &[scripted.segment(1, 1)], 9).unwrap();
    scripted.until("refused", |scripted| scripted.controller.count(is_read) > scripted.controller.count(is_held));
    refuses.set(false);
    // Nobody suspects it: it is answered while one suspect is in flight, and the other waits for that.
    scripted.until("answered", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions, [HostCompletion { cookie: 9, result: Ok(()) }]);
    assert_eq!(scripted.controller.count(is_held), 5);
    scripted.controller.rule = Box::new(|_| None);
    lose(&mut scripted);
    scripted.until("all ended", |scripted| scripted.completions.len() == 3);
    assert!(scripted.completions.iter().all(|ended| ended.result == Ok(())), "{:?}", scripted.completions);
    scripted.finish();
}

#[test]
fn a_command_that_was_lost_once_does_not_wait_behind_suspects() {
    let (_, theirs) = switch(false);
    let mut scripted = with_suspects(host_options(), theirs);
    // In flight with the suspect when the session ends.
    let submissions = scripted.lone.host.statistics().submissions;
    scripted.lone.host.read(0, &[scripted.segment(1, 1)], 9).unwrap();
    scripted.lone.host.flush();
    assert_eq!(scripted.lone.host.statistics().submissions, submissions + 1);
    lose(&mut scripted);
    scripted.until("answered", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions, [HostCompletion { cookie: 9, result: Ok(()) }]);
    scripted.lone.host.abort(0);
    scripted.lone.host.abort(1);
    scripted.controller.rule = Box::new(|_| None);
    lose(&mut scripted);
    scripted.until("all ended", |scripted| scripted.completions.len() == 3);
    scripted.finish();
}

#[test]
fn a_path_that_is_back_is_waited_for_anew_when_it_goes_again() {
    let patience = 5 * SECOND;
    let options = host_options().inaccessible_timeout(patience).keep_alive(Duration::ZERO);
    let (refuses, theirs) = switch(true);
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        reports_ana(controller);
        controller.rule = Box::new(move |asked| match asked.command {
            Command::Read(_) if theirs.get() => Some(Answer::Status(Status::ANA_TRANSITION, 0)),
            Command::Read(_) => Some(Answer::Silence),
            _ if is_ana(asked) => Some(ana_page(&[(1, AnaState::Optimized)])),
            _ => None,
        });
    });
    scripted.tick = MILLISECOND;
    scripted.lone.host.read(HELD, &[scripted.segment(0, 1)], 7).unwrap();
    scripted.until("refused", |scripted| scripted.controller.count(is_read) == 1);
    refuses.set(false);
    scripted.until("taken", |scripted| scripted.controller.count(is_read) > 1);
    scripted.steps(20);
    let taken = scripted.controller.count(is_read);
    // It is being executed for longer than a path may be away, and lost then.
    scripted.steps(2 * patience.as_millis() as usize);
    refuses.set(true);
    lose(&mut scripted);
    scripted.until("refused again", |scripted| scripted.controller.count(is_read) > taken);
    scripted.controller.rule = Box::new(|asked| is_ana(asked).then(|| ana_page(&[(1, AnaState::Optimized)])));
    scripted.until("ended", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions, [HostCompletion { cookie: 7, result: Ok(()) }]);
    scripted.finish();
}

#[test]
fn a_namespace_that_moved_to_another_group_goes_by_that_group() {
    let (groups, theirs) = switch([(1, AnaState::Optimized), (2, AnaState::Optimized)]);
    let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
        reports_ana(controller);
        controller.rule = Box::new(move |asked| is_ana(asked).then(|| ana_page(&theirs.get())));
    });
    scripted.tick = MILLISECOND;
    let is_event = |asked: &Asked| asked.command == Command::AsynchronousEventRequest;
    // A controller tells of another ANAGRPID as of a change of states (Base figure 149).
    for (events, group) in [(1, 2), (2, 1)] {
        scripted.until("events are waited for", |scripted| scripted.controller.count(is_event) == events);
        scripted.controller.namespace.ana_group = group.into();
        let state = |of| (of, if of == group { AnaState::NonOptimized } else { AnaState::Inaccessible });
        groups.set([state(1), state(2)]);
        let event = scripted.controller.last(is_event).unwrap();
        scripted.controller.answer(&event, Answer::Status(Status::SUCCESS, 0x302));
        scripted.until("asked again", |scripted| scripted.controller.count(is_event) == events + 1);
        scripted.steps(100);
        assert_eq!(scripted.lone.host.ana_state(), AnaState::NonOptimized, "group {group}");
    }
    scripted.finish();
}

#[test]
fn news_of_states_from_a_controller_that_reports_none_hold_nothing_up() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
        controller.identify.events = IdentifyController::NAMESPACE_EVENTS.into();
        controller.rule = Box::new(|asked| is_ana(asked).then(|| ana_page(&[(0, AnaState::Inaccessible)])));
    });
    let is_event = |asked: &Asked| asked.command == Command::AsynchronousEventRequest;
    scripted.until("events are waited for", |scripted| scripted.controller.count(is_event) == 1);
    let event = scripted.controller.last(is_event).unwrap();
    scripted.controller.answer(&event, Answer::Status(Status::SUCCESS, 0x302));
    scripted.until("asked again", |scripted| scripted.controller.count(is_event) == 2);
    scripted.steps(100);
    scripted.lone.host.read(0, &[scripted.segment(0, 1)], 7).unwrap();
    scripted.until("answered", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.lone.host.ana_state(), AnaState::Optimized);
    scripted.finish();
}

/// What the page of reservation notifications says: the kind, and how many there are beside it.
fn notification(kind: u8, available: u8) -> Answer {
    let mut page = vec![0; 64];
    (page[0], page[8], page[9], page[12]) = (1, kind, available, 1);
    Answer::Data(page)
}

#[test]
fn reservation_notifications_are_read_until_there_is_none_and_an_end_is_one_whatever_a_controller_says() {
    let kind = ReservationNotificationKind::ReservationReleased as u8;
    // What is left before each reading, how many readings that makes, and how many of them said something.
    for (left, reads, known) in [(3, 3, 3), (0, 1, 0), (u32::MAX, 256, 256)] {
        let mut left = left;
        let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
            controller.identify.events = IdentifyController::NAMESPACE_EVENTS.into();
            controller.rule = Box::new(move |asked| {
                let Command::GetLogPage(get) = asked.command else { return None };
                assert_eq!((get.page, get.length), (log_page::RESERVATION_NOTIFICATION, 64));
                let (before, now) = (left, left.saturating_sub(1));
                left = now;
                Some(notification(if before > 0 { kind } else { 0 }, now.min(255) as u8))
            });
        });
        let is_event = |asked: &Asked| asked.command == Command::AsynchronousEventRequest;
        let is_page = |asked: &Asked| matches!(asked.command, Command::GetLogPage(_));
        scripted.until("events are waited for", |scripted| scripted.controller.count(is_event) == 1);
        let event = scripted.controller.last(is_event).unwrap();
        scripted.controller.answer(&event, Answer::Status(Status::SUCCESS, 0x80_0006));
        scripted.until("read", |scripted| scripted.controller.count(is_page) == reads);
        scripted.steps(100);
        assert_eq!((scripted.controller.count(is_page), scripted.controller.count(is_event)), (reads, 2));
        let statistics = scripted.lone.host.statistics();
        assert_eq!((statistics.reservation_events, statistics.reservation_notifications), (1, known));
        assert_eq!((statistics.other_events, statistics.failures), (0, 0));
        scripted.finish();
    }
}

/// The controller may send the event before the answer to a reading that it is behind.
#[test]
fn an_event_that_overtakes_the_page_that_was_the_last_one_has_its_own_read() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
        controller.identify.events = IdentifyController::NAMESPACE_EVENTS.into();
        let is_page = |asked: &Asked| matches!(asked.command, Command::GetLogPage(_));
        controller.rule = Box::new(move |asked| is_page(asked).then_some(Answer::Silence));
    });
    let is_event = |asked: &Asked| asked.command == Command::AsynchronousEventRequest;
    let is_page = |asked: &Asked| matches!(asked.command, Command::GetLogPage(_));
    for events in [1, 2] {
        scripted.until("events are waited for", |scripted| scripted.controller.count(is_event) == events);
        let event = scripted.controller.last(is_event).unwrap();
        scripted.controller.answer(&event, Answer::Status(Status::SUCCESS, 0x80_0006));
        scripted.until("asked", |scripted| scripted.controller.count(is_page) == 1);
    }
    scripted.until("heard", |scripted| scripted.controller.count(is_event) == 3);
    for reads in [1, 2] {
        let page = scripted.controller.last(is_page).unwrap();
        scripted.controller.answer(&page, notification(1, 0));
        scripted.steps(100);
        assert_eq!(scripted.controller.count(is_page), 2, "behind {reads}");
    }
    assert_eq!(scripted.lone.host.statistics().reservation_notifications, 2);
    scripted.finish();
}

#[test]
fn a_follower_that_leaves_does_not_make_its_session_a_short_one() {
    let target = target_options().io_queues(2);
    let mut spread = Spread::ready("reg_mr", 1, host_options(), target);
    let HostOptions { first_back_off: first, longest_back_off: longest, .. } = host_options();
    // From one end of a session to the next session of the first host.
    let lose = |spread: &mut Spread| {
        let sessions = spread.members[0].host.statistics().sessions;
        spread.members[0].host.drop_connections();
        spread.tick = MILLISECOND;
        spread.until("lost", |spread| !spread.members[0].host.is_ready());
        let lost = spread.now;
        spread.until("ready", |spread| spread.members[0].host.statistics().sessions > sessions);
        spread.now - lost
    };
    spread.tick = MILLISECOND;
    for _ in 0..6 {
        lose(&mut spread);
        spread.until("both are ready", |spread| spread.members.iter().all(|member| member.host.is_ready()));
    }
    let settled = spread.now;
    spread.until("long enough", |spread| spread.now - settled > 2 * longest);
    spread.members[1].host.shut_down();
    spread.until("it has left", |spread| spread.members[1].host.is_stopped());
    for _ in 0..10 {
        spread.step();
    }
    let took = lose(&mut spread);
    assert!(took < first + 100 * MILLISECOND, "{took:?}");
    spread.finish();
}
