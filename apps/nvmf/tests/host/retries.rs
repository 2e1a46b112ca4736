//! The host and commands that end their sessions: each is sent again as often as the options say, and takes no other with it.

use core::time::Duration;
use frwr_engine::gather::Segment;
use frwr_nvmf::host::{HostCompletion, HostOptions, IoError};
use frwr_nvmf::wire::{Command, Status};
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Scripted};
use frwr_support::nvmf_harness::{BLOCK, host_options};
use std::{cell::RefCell, rc::Rc};

const MILLISECOND: Duration = Duration::from_millis(1);
/// Writes of blocks from here on end the session.
const POISONED: u64 = 200;

fn is_poisoned(asked: &Asked) -> bool {
    matches!(asked.command, Command::Write(range) if range.lba >= POISONED)
}

fn is_io(asked: &Asked) -> bool {
    asked.queue_id > 0 && !matches!(asked.command, Command::Connect(_))
}

/// A controller that looks at its commands of I/O a while after they came, and ends the session when one of them is poisoned, before
/// it has answered any other.
struct Fragile {
    scripted: Scripted,
    held: Rc<RefCell<Vec<Asked>>>,
}

impl Fragile {
    fn new(options: HostOptions) -> Self {
        // Its sessions are as short as can be.
        let options = options.longest_back_off(10 * MILLISECOND);
        let held = Rc::new(RefCell::new(Vec::new()));
        let theirs = Rc::clone(&held);
        let mut scripted = Scripted::ready("reg_mr", options, |controller| {
            controller.rule = Box::new(move |asked| {
                is_io(asked).then(|| {
                    theirs.borrow_mut().push(*asked);
                    Answer::Silence
                })
            });
        });
        scripted.tick = MILLISECOND / 10;
        Self { scripted, held }
    }

    /// What a controller makes of all that it holds.
    fn judge(&mut self) {
        let held: Vec<Asked> = self.held.borrow_mut().drain(..).collect();
        if held.iter().any(is_poisoned) {
            return self.scripted.controller.hang_up();
        }
        for asked in held {
            self.scripted.controller.answer(&asked, Answer::Status(Status::SUCCESS, 0));
        }
    }

    fn step(&mut self) {
        // As much as the host sends at a time has arrived.
        self.scripted.steps(20);
        self.judge();
    }

    /// Until as many requests have ended.
    fn ended(&mut self, count: usize) -> Vec<HostCompletion> {
        for _ in 0..3000 {
            if self.scripted.completions.len() >= count {
                return core::mem::take(&mut self.scripted.completions);
            }
            self.step();
        }
        panic!("never ended: {:?}", self.scripted.lone.host.statistics());
    }

    fn write(&mut self, lba: u64, cookie: u64) {
        let segment = [self.scripted.segment(0, 1)];
        self.scripted.lone.host.write(lba, &segment, cookie).unwrap();
    }

    fn finish(mut self) {
        self.scripted.lone.host.shut_down();
        while !self.scripted.lone.host.is_stopped() {
            self.step();
        }
        assert_eq!(self.scripted.lone.host.failure(), None);
    }
}

#[test]
fn a_command_that_ends_every_session_is_given_back_after_as_many_as_the_options_say() {
    for retries in [0, 1, 2, 5] {
        let mut fragile = Fragile::new(host_options().command_retries(Some(retries)));
        fragile.write(POISONED, 7);
        let attempts = u32::from(retries) + 1;
        let ended = fragile.ended(1);
        assert_eq!(ended, [HostCompletion { cookie: 7, result: Err(IoError::Unanswered { attempts }) }]);
        assert_eq!(fragile.scripted.controller.count(is_poisoned), attempts as usize);
        // The session behind them is like any other.
        fragile.write(0, 8);
        assert_eq!(fragile.ended(1)[0].result, Ok(()));
        assert_eq!(fragile.scripted.lone.host.statistics().sessions, u64::from(attempts) + 1);
        fragile.finish();
    }
}

#[test]
fn the_default_is_five_and_none_is_for_ever() {
    assert_eq!(host_options().command_retries, Some(5));
    let mut fragile = Fragile::new(host_options().command_retries(None));
    fragile.write(POISONED, 7);
    while fragile.scripted.controller.count(is_poisoned) < 40 {
        fragile.step();
        assert!(fragile.scripted.completions.is_empty());
    }
    fragile.finish();
}

#[test]
fn commands_that_were_in_flight_with_one_that_ends_sessions_are_executed() {
    for (retries, poisoned) in [(5, 1), (5, 3), (3, 1), (2, 1)] {
        let options = host_options().command_retries(Some(retries)).queues(2).queue_depth(16);
        let mut fragile = Fragile::new(options);
        let all = fragile.scripted.lone.host.free_requests() as u64;
        for cookie in 0..all {
            // In front of, between and behind the others.
            let lba = if cookie % 11 == 4 && cookie / 11 < poisoned { POISONED } else { 0 };
            fragile.write(lba + cookie, cookie);
        }
        let ended = fragile.ended(all as usize);
        let attempts = u32::from(retries) + 1;
        for HostCompletion { cookie, result } in ended {
            let is_poisoned = cookie % 11 == 4 && cookie / 11 < poisoned;
            let expected = if is_poisoned { Err(IoError::Unanswered { attempts }) } else { Ok(()) };
            assert_eq!(result, expected, "write {cookie}, {retries} retries, {poisoned} poisoned");
        }
        fragile.finish();
    }
}

#[test]
fn requests_that_come_all_the_time_beside_one_that_ends_sessions_are_executed() {
    let mut fragile = Fragile::new(host_options().queue_depth(8));
    fragile.write(POISONED, u64::MAX);
    let (mut next, mut ended) = (0, Vec::new());
    while ended.len() < 300 {
        while fragile.scripted.lone.host.free_requests() > 0 {
            fragile.write(next % POISONED, next);
            next += 1;
        }
        fragile.step();
        ended.append(&mut fragile.scripted.completions);
    }
    let failed: Vec<_> = ended.iter().filter(|ended| ended.result.is_err()).collect();
    assert_eq!(failed, [&HostCompletion { cookie: u64::MAX, result: Err(IoError::Unanswered { attempts: 6 }) }]);
    fragile.finish();
}

#[test]
fn a_request_of_several_commands_ends_as_few_sessions_as_one_of_them_may() {
    let mut fragile = Fragile::new(host_options());
    // Every other block goes out by itself: one command takes one key.
    fragile.scripted.controller.identify.max_data_transfer = 1;
    fragile.scripted.controller.hang_up();
    fragile.scripted.until("lost", |scripted| scripted.lone.host.statistics().failures == 1);
    fragile.scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    assert_eq!(fragile.scripted.lone.host.max_transfer_bytes(), 2 * BLOCK);
    let segment: [Segment; 1] = [fragile.scripted.segment(0, 8)];
    fragile.scripted.lone.host.write(POISONED, &segment, 7).unwrap();
    assert_eq!(fragile.ended(1)[0].result, Err(IoError::Unanswered { attempts: 6 }));
    fragile.step();
    // Two in which all four were lost, and then one command at a time of which one was as often as it may be.
    let sessions = fragile.scripted.lone.host.statistics().sessions;
    assert!(sessions <= 2 + 2 + 4 * 4, "{sessions} sessions");
    fragile.write(0, 8);
    assert_eq!(fragile.ended(1)[0].result, Ok(()));
    fragile.finish();
}

#[test]
fn a_command_that_is_never_answered_and_cannot_be_aborted_is_given_back() {
    let second = 1000 * MILLISECOND;
    let options = host_options()
        .command_timeout(2 * second)
        .step_timeout(second)
        .keep_alive(Duration::ZERO)
        .command_retries(Some(2));
    let mut scripted = Scripted::ready("reg_mr", options, |controller| {
        controller.rule = Box::new(|asked| {
            (is_poisoned(asked) || matches!(asked.command, Command::Abort(_))).then_some(Answer::Silence)
        });
    });
    scripted.lone.host.write(POISONED, &[scripted.segment(0, 1)], 7).unwrap();
    scripted.tick = MILLISECOND;
    scripted.until("ended", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions[0].result, Err(IoError::Unanswered { attempts: 3 }));
    assert_eq!(scripted.controller.count(is_poisoned), 3);
    scripted.finish();
}

#[test]
fn a_command_that_is_suspected_holds_up_no_others_while_it_is_not_answered() {
    let mut fragile = Fragile::new(host_options());
    fragile.write(POISONED, 7);
    // Lost twice: from now on it counts as suspicious.
    while fragile.scripted.lone.host.statistics().lost < 2 {
        fragile.step();
    }
    let before = fragile.scripted.controller.count(is_poisoned);
    fragile.scripted.until("sent again", |scripted| scripted.controller.count(is_poisoned) > before);
    for cookie in 0..20 {
        fragile.write(0, cookie);
        fragile.scripted.steps(20);
        let held: Vec<Asked> = fragile.held.borrow().iter().filter(|asked| !is_poisoned(asked)).copied().collect();
        fragile.held.borrow_mut().retain(is_poisoned);
        held.iter().for_each(|asked| fragile.scripted.controller.answer(asked, Answer::Status(Status::SUCCESS, 0)));
        fragile.scripted.until("ended", |scripted| !scripted.completions.is_empty());
        assert_eq!(fragile.scripted.completions.remove(0), HostCompletion { cookie, result: Ok(()) });
    }
    fragile.finish();
}

#[test]
fn a_target_that_ends_each_session_at_once_is_asked_for_another_less_and_less_often() {
    let mut scripted = Scripted::ready("reg_mr", host_options(), |_| {});
    scripted.tick = MILLISECOND;
    // How long the host takes to come back.
    let mut lose = || {
        scripted.controller.hang_up();
        let failures = scripted.lone.host.statistics().failures;
        scripted.until("lost", |scripted| scripted.lone.host.statistics().failures > failures);
        let lost = scripted.lone.now;
        scripted.until("ready", |scripted| scripted.lone.host.is_ready());
        scripted.lone.now - lost
    };
    let HostOptions { first_back_off: first, longest_back_off: longest, .. } = host_options();
    let bring_up = 50 * MILLISECOND;
    for doublings in 0..12 {
        let (pause, took) = ((first * (1 << doublings)).min(longest), lose());
        assert!((pause..pause + bring_up).contains(&took), "{doublings}: {took:?}");
    }
    scripted.until("long enough", {
        let since = scripted.lone.now;
        move |scripted| scripted.lone.now > since + longest + bring_up
    });
    assert_eq!(scripted.lone.host.failure(), None);
    scripted.controller.hang_up();
    scripted.until("lost", |scripted| !scripted.lone.host.is_ready());
    let lost = scripted.lone.now;
    scripted.until("ready", |scripted| scripted.lone.host.is_ready());
    assert!(scripted.lone.now - lost < first + bring_up, "one that lasted is a new beginning");
    scripted.finish();
}
