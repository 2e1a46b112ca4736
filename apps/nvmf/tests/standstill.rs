//! Deadlines where somebody stands still: time in which nobody polled is nobody's silence, what has arrived is read first, whatever stands in
//! front of it, and who is silent indeed is ended all the same.

use core::cell::Cell;
use core::time::Duration;
use frwr_engine::provider::{Completion, CompletionBatch, CompletionQueue, FailureStatus, Port, QueuePairId, Token};
use frwr_nvmf::host::{HostFailure, HostOptions};
use frwr_nvmf::storage::MemoryStorage;
use frwr_nvmf::wire::{self, AnaState, Command, Status, feature};
use frwr_support::nvmf_harness;
use frwr_support::nvmf_harness::raw::{Raw, connect, connect_data};
use frwr_support::nvmf_harness::scripted::{Answer, Scripted};
use frwr_support::nvmf_harness::{Pair, host_options, target_options};
use std::rc::Rc;

const SECOND: Duration = Duration::from_secs(1);
const TENTH: Duration = Duration::from_millis(100);
/// Completions in front: around what one poll takes, and many polls' worth.
const IN_FRONT: [u16; 5] = [63, 64, 65, 200, 1000];

/// Just below a time-out, at it, just above it, and far above it.
fn stops(timeout: Duration) -> [Duration; 5] {
    [timeout - TENTH, timeout, timeout + TENTH, 12 * timeout, 3600 * SECOND]
}

fn deep(depth: u16, options: HostOptions) -> Pair {
    let host = options.queue_depth(depth);
    let mut pair = Pair::with("reg_mr", host, target_options().queue_entries((depth + 1).max(32)));
    pair.bring_up();
    pair
}

/// As many flushes as there are places, posted by the host.
fn flushes(pair: &mut Pair, count: u16) {
    for cookie in 0..u64::from(count) {
        pair.host.flush_namespace(cookie).unwrap();
    }
    pair.host.flush();
}

/// All that was asked for was done, once, in the one session.
fn assert_kept(pair: &mut Pair, count: u16, what: &str) {
    pair.until("completed", |pair| pair.completions.len() >= count.into());
    assert!(pair.completions.iter().all(|completion| completion.result == Ok(())), "{what}");
    pair.tick = TENTH / 2;
    let end = pair.now + 6 * SECOND;
    while pair.now < end {
        pair.step();
    }
    let (host, target) = (pair.host.statistics(), pair.target.statistics());
    assert_eq!((host.sessions, host.failures, host.resubmitted), (1, 0, 0), "{what}: {:?}", pair.host.last_failure());
    assert_eq!((target.keep_alive_expirations, target.incidents), (0, 0), "{what}");
    pair.tick = Duration::from_micros(1);
    pair.finish();
}

#[test]
fn a_keep_alive_that_came_while_the_target_stood_still_is_read_first() {
    for count in IN_FRONT {
        // The largest takes its time to be made.
        let lengths = [27 * TENTH, 40 * TENTH, 49 * TENTH];
        for &stop in &lengths[..if count > 200 { 1 } else { 3 }] {
            let mut pair = deep(count, host_options().keep_alive(5 * SECOND));
            pair.tick = TENTH / 2;
            let due = pair.now + 24 * TENTH;
            while pair.now < due {
                pair.step();
            }
            let begin = pair.now;
            flushes(&mut pair, count);
            // The host goes on, and says in time that it is alive; the target reads nothing of it.
            while pair.now < begin + stop {
                pair.now += pair.tick;
                pair.step_host();
            }
            assert_eq!(pair.host.statistics().keep_alives, 1);
            pair.tick = Duration::from_micros(1);
            assert_kept(&mut pair, count, &format!("{count} in front, {stop:?}"));
        }
    }
}

/// Nobody stands still here: the deadline passes while what came in time is still unread.
#[test]
fn answers_that_came_just_before_a_deadline_are_read_before_it_is_judged() {
    for count in IN_FRONT {
        let mut pair = deep(count, host_options().keep_alive(Duration::ZERO));
        flushes(&mut pair, count);
        // The host polls, and is not answered.
        let last = pair.now + host_options().command_timeout - TENTH / 2;
        while pair.now < last {
            pair.now += TENTH / 4;
            pair.step_host();
        }
        answer_all(&mut pair, count);
        pair.now += TENTH * 9 / 10;
        pair.step_host();
        assert_eq!(pair.host.statistics().aborts, 0, "{count} in front");
        assert_kept(&mut pair, count, &format!("{count} in front"));
        assert_eq!(pair.host.statistics().aborts, 0, "{count} in front");
    }
}

/// The target answers all flushes, and the host's device receives that; nobody takes its completions.
fn answer_all(pair: &mut Pair, count: u16) {
    let before = pair.target.statistics().plain_responses;
    for _ in 0..1000 {
        pair.step_target();
        pair.host.engine_mut().port_mut().poll(CompletionQueue::Receive, &mut taken());
        if pair.target.statistics().plain_responses - before == u64::from(count) {
            break;
        }
    }
    assert_eq!(pair.target.statistics().flushes, u64::from(count));
}

/// A batch without room.
fn taken() -> CompletionBatch {
    let mut batch = CompletionBatch::new();
    let result = Err(FailureStatus::Flushed.into());
    while !batch.is_full() {
        batch.push(Completion { token: Token(0), queue_pair: QueuePairId(0), result });
    }
    batch
}

#[test]
fn answers_that_came_while_the_host_stood_still_are_read_first() {
    for count in IN_FRONT {
        for &stop in &stops(host_options().command_timeout)[if count > 200 { 3 } else { 0 }..] {
            let mut pair = deep(count, host_options().keep_alive(Duration::ZERO));
            flushes(&mut pair, count);
            answer_all(&mut pair, count);
            pair.now += stop;
            let aborts = |pair: &Pair| pair.host.statistics().aborts;
            assert_kept(&mut pair, count, &format!("{count} answered, {stop:?}"));
            assert_eq!(aborts(&pair), 0, "{count} answered, {stop:?}");
        }
    }
}

#[test]
fn both_ends_may_stand_still_together_at_any_moment() {
    for (count, timeout) in [(1, 5 * SECOND), (65, 5 * SECOND), (200, host_options().command_timeout)] {
        for stop in stops(timeout) {
            let mut pair = deep(count, host_options().keep_alive(5 * SECOND));
            pair.tick = TENTH / 2;
            for _ in 0..3 {
                let until = pair.now + 24 * TENTH;
                while pair.now < until {
                    pair.step();
                }
                pair.now += stop;
            }
            pair.tick = Duration::from_micros(1);
            flushes(&mut pair, count);
            pair.now += stop;
            assert_kept(&mut pair, count, &format!("{count}, {stop:?}"));
        }
    }
}

#[test]
fn no_step_of_the_bring_up_or_the_shutdown_is_too_late_because_all_stood_still() {
    for at in (0..150).step_by(3) {
        let mut pair = Pair::new("reg_mr");
        pair.host.start();
        for _ in 0..at {
            pair.step();
        }
        pair.now += 60 * SECOND;
        pair.until("ready", |pair| pair.host.is_ready());
        pair.host.shut_down();
        for _ in 0..at {
            pair.step();
        }
        pair.now += 60 * SECOND;
        pair.until("stopped", |pair| pair.host.is_stopped());
        let (host, target) = (pair.host.statistics(), pair.target.statistics());
        assert_eq!((host.sessions, host.failures), (1, 0), "{at}: {:?}", pair.host.last_failure());
        assert_eq!((target.connect_timeouts, target.keep_alive_expirations), (0, 0), "{at}");
    }
}

#[test]
fn a_connect_that_came_while_the_target_stood_still_makes_its_queue() {
    for stop in stops(target_options().connect_timeout) {
        let mut raw = Raw::default();
        let admin = raw.open_queue(0, 32);
        raw.pass(SECOND);
        raw.now += stop;
        let response = raw.connect(admin, connect(0, 31), &connect_data(wire::DYNAMIC_CONTROLLER));
        assert!(response.status().is_success(), "{stop:?}: {}", response.status());
        raw.pass(2 * target_options().connect_timeout);
        assert_eq!((raw.target.statistics().connect_timeouts, raw.disconnected.len()), (0, 0), "{stop:?}");
    }
}

fn with_keep_alive(raw: &mut Raw<MemoryStorage>, value: u32) -> frwr_engine::ConnectionId {
    let (admin, _) = raw.controller();
    let set = wire::SetFeatures { feature: feature::KEEP_ALIVE_TIMER, save: false, namespace: 0, value };
    assert!(raw.command(admin, Command::SetFeatures(set), None).status().is_success());
    admin
}

#[test]
fn a_host_that_is_gone_is_ended_however_rarely_the_target_is_polled_and_the_line_says_what_did_not_count() {
    for period in [TENTH / 100, TENTH * 9 / 10, 2 * TENTH, SECOND, 30 * SECOND] {
        let mut raw = Raw::default();
        with_keep_alive(&mut raw, 5000);
        let (begin, mut polls) = (raw.now, 0);
        while raw.target.statistics().keep_alive_expirations == 0 {
            raw.now += period;
            raw.step();
            polls += 1;
            assert!(raw.now - begin < 6 * SECOND || polls < 70, "{period:?}");
        }
        assert!(raw.now - begin >= 5 * SECOND, "{period:?}");
        let line = raw.target.next_incident().unwrap().to_string();
        assert_eq!(line.contains("stood still for"), period > TENTH, "{line}");
    }
}

#[test]
fn a_keep_alive_behind_commands_of_another_host_is_read_before_its_host_is_judged() {
    for count in [63, 64, 65, 200] {
        // Nobody stands still, and the core does.
        for (before, stop) in
            [(5 * SECOND - TENTH / 2, TENTH * 9 / 10), (24 * TENTH, 27 * TENTH), (24 * TENTH, 60 * SECOND)]
        {
            let mut raw = Raw::with(
                target_options().io_queues(8),
                vec![MemoryStorage::new(nvmf_harness::memory(64 << 10), 512, 64).unwrap()],
            );
            let silent = with_keep_alive(&mut raw, 5000);
            let (_, controller) = raw.controller();
            let queues: Vec<_> = (1..=7).map(|queue| raw.another_queue(controller, queue)).collect();
            raw.pass(before);
            raw.responses.clear();
            for at in 0..count {
                let flush = Command::Flush { namespace: 1 }.encode(at).unwrap();
                raw.send(queues[usize::from(at) % queues.len()], flush, None);
            }
            raw.engine.flush();
            // They arrive first; nobody takes their completions.
            for _ in 0..count {
                raw.target.engine_mut().port_mut().poll(CompletionQueue::Receive, &mut taken());
            }
            raw.send(silent, Command::KeepAlive.encode(900).unwrap(), None);
            raw.engine.flush();
            raw.target.engine_mut().port_mut().poll(CompletionQueue::Receive, &mut taken());
            raw.now += stop;
            raw.until("answered", |raw| raw.responses.len() == usize::from(count) + 1);
            raw.pass(SECOND);
            let expirations = raw.target.statistics().keep_alive_expirations;
            assert_eq!((expirations, raw.disconnected.len()), (0, 0), "{count} in front, {stop:?}");
        }
    }
}

#[test]
fn a_peer_that_floods_the_queues_puts_off_nobodys_deadline() {
    let mut raw = Raw::with(
        target_options().io_queues(8),
        vec![MemoryStorage::new(nvmf_harness::memory(64 << 10), 512, 64).unwrap()],
    );
    let silent = with_keep_alive(&mut raw, 2000);
    let (_, controller) = raw.controller();
    let queues: Vec<_> = (1..=6).map(|queue| raw.another_queue(controller, queue)).collect();
    let flush = |id| Command::Flush { namespace: 1 }.encode(id).unwrap();
    let begin = raw.now;
    let (mut full, mut id) = (0, 0);
    while !raw.disconnected.contains(&silent) {
        assert!(raw.now - begin < 4 * SECOND, "{:?}", raw.target.statistics());
        for queue in &queues {
            for at in 0..30 {
                raw.send(*queue, flush(id + at), None);
            }
        }
        id = (id + 30) % 3000;
        let before = raw.target.engine().statistics().receive_completions;
        raw.responses.clear();
        let commands = queues.len() * 30;
        while raw.responses.len() < commands {
            raw.now += TENTH / 50;
            raw.step();
            full += u64::from(raw.target.engine().statistics().receive_completions - before >= 64);
        }
    }
    assert!(full > 50, "{full}");
    assert!(raw.now - begin >= 2 * SECOND);
    let statistics = raw.target.statistics();
    assert_eq!((statistics.keep_alive_expirations, raw.disconnected.len()), (1, 1));
}

/// A controller that answers no command of I/O, and no Abort.
fn mute(options: HostOptions, answers_aborts: bool) -> Scripted {
    Scripted::ready("reg_mr", options, |controller| {
        controller.rule = Box::new(move |asked| match asked.command {
            Command::Flush { .. } => Some(Answer::Silence),
            Command::Abort(_) if !answers_aborts => Some(Answer::Silence),
            _ => None,
        });
    })
}

#[test]
fn a_session_ends_for_a_command_only_behind_its_abort_and_its_time() {
    let timeouts = (2 * SECOND, 3 * SECOND);
    for answers_aborts in [false, true] {
        for (period, stop) in [(TENTH / 10, Duration::ZERO), (TENTH, 60 * SECOND), (SECOND, Duration::ZERO)] {
            let (command_timeout, step_timeout) = timeouts;
            let options = host_options().command_timeout(command_timeout).step_timeout(step_timeout);
            let mut scripted = mute(options, answers_aborts);
            for cookie in 0..20 {
                scripted.lone.host.flush_namespace(cookie).unwrap();
            }
            scripted.steps(10);
            let begin = scripted.lone.now;
            scripted.lone.now += stop;
            scripted.tick = period;
            let is_abort = |asked: &nvmf_harness::scripted::Asked| matches!(asked.command, Command::Abort(_));
            scripted.until("an Abort", |scripted| scripted.controller.count(is_abort) > 0);
            let asked = scripted.lone.now;
            assert!(asked - begin >= stop + command_timeout - TENTH, "{:?}", asked - begin);
            assert_eq!(scripted.lone.host.statistics().failures, 0);
            scripted.until("failed", |scripted| scripted.lone.host.statistics().failures == 1);
            assert!(scripted.lone.now - asked >= step_timeout - period, "{:?}", scripted.lone.now - asked);
            let failure = scripted.lone.host.last_failure();
            let Some(failure @ HostFailure::CommandTimeout { stood_still }) = failure else { panic!("{failure:?}") };
            assert!(failure.to_string().contains("its Abort was sent"), "{failure}");
            assert_eq!(stood_still > Duration::ZERO, period > TENTH || stop > Duration::ZERO, "{failure}");
        }
    }
}

#[test]
fn a_host_that_sleeps_until_poll_at_sees_its_deadlines_in_time() {
    let (command_timeout, step_timeout) = (20 * SECOND, 7 * SECOND);
    let options = host_options().command_timeout(command_timeout).step_timeout(step_timeout).keep_alive(Duration::ZERO);
    let mut scripted = mute(options, false);
    scripted.lone.host.flush_namespace(1).unwrap();
    scripted.steps(20);
    let begin = scripted.lone.now;
    let mut polls = 0;
    while scripted.lone.host.statistics().failures == 0 {
        let at = scripted.lone.host.poll_at().unwrap();
        scripted.lone.now = at.max(scripted.lone.now);
        scripted.step();
        polls += 1;
        assert!(polls < 100, "it sleeps");
    }
    let passed = scripted.lone.now - begin;
    // It was submitted some steps before.
    assert!(passed > command_timeout + step_timeout - TENTH / 10, "{passed:?}");
    assert!(passed < command_timeout + step_timeout + TENTH, "{passed:?}");
    let failure = scripted.lone.host.last_failure();
    assert!(matches!(failure, Some(HostFailure::CommandTimeout { .. })), "{failure:?}");
}

#[test]
fn a_host_that_oversleeps_gives_its_controller_the_time_that_it_stood_still() {
    for stop in stops(20 * SECOND) {
        let options = host_options().command_timeout(20 * SECOND);
        let mut scripted = mute(options.keep_alive(Duration::ZERO), false);
        scripted.lone.host.flush_namespace(1).unwrap();
        scripted.steps(20);
        let at = scripted.lone.host.poll_at().unwrap();
        scripted.lone.now = at + stop;
        scripted.steps(3);
        assert_eq!(scripted.lone.host.statistics().aborts, 0, "{stop:?}");
    }
}

/// The log page of one group.
fn ana_page(is_closed: bool) -> Answer {
    let mut page = vec![0; 16 + 32];
    (page[8], page[16]) = (1, 1);
    page[32] = if is_closed { AnaState::Inaccessible } else { AnaState::Optimized } as u8;
    Answer::Data(page)
}

#[test]
fn requests_that_wait_for_a_path_do_not_fail_for_time_in_which_nobody_polled() {
    let closed = Rc::new(Cell::new(true));
    for stop in stops(host_options().inaccessible_timeout) {
        let is_closed = closed.clone();
        closed.set(true);
        let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
            controller.identify.multi_path = wire::IdentifyController::REPORTS_ANA;
            (controller.identify.ana_groups, controller.identify.ana_max_group) = (1.into(), 1.into());
            controller.namespace.ana_group = 1.into();
            controller.rule = Box::new(move |asked| match asked.command {
                Command::Flush { .. } if is_closed.get() => Some(Answer::Status(Status::ANA_INACCESSIBLE, 0)),
                Command::GetLogPage(get) if get.page == wire::log_page::ANA => Some(ana_page(is_closed.get())),
                _ => None,
            });
        });
        scripted.lone.host.flush_namespace(1).unwrap();
        scripted.until("refused", |scripted| scripted.lone.host.ana_state() == AnaState::Inaccessible);
        scripted.lone.now += stop;
        closed.set(false);
        scripted.tick = TENTH / 10;
        scripted.until("ended", |scripted| !scripted.completions.is_empty());
        assert_eq!(scripted.completions[0].result, Ok(()), "{stop:?}");
    }
}
