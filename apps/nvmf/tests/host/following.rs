//! A host that follows another one's session: what it leaves to the other to judge, what it counts by itself, and when it has to be
//! polled.

use core::time::Duration;
use frwr_engine::control::Control;
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_nvmf::host::{FollowerOrder, Host, HostCompletion, HostFailure, HostOptions, IoError};
use frwr_nvmf::wire::{AnaState, Command, RejectPrivateData, RejectStatus, Status};
use frwr_support::nvmf_harness::scripted::{Answer, Controller};
use frwr_support::nvmf_harness::spread::Spread;
use frwr_support::nvmf_harness::{self, LoneHost, engine_of, host_options, memory, subsystem};
use zerocopy::IntoBytes;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn quiet(options: HostOptions) -> HostOptions {
    options.keep_alive(Duration::ZERO).queue_depth(8)
}

fn two(options: HostOptions, queues: u16) -> Spread {
    let target = nvmf_harness::target_options().io_queues(queues);
    Spread::ready("reg_mr", 1, quiet(options), target)
}

/// A host and one that follows it, each over a device of its own, and a controller that does what a test says.
struct Followed {
    lone: LoneHost,
    follower: Host<SoftPort>,
    control: Control<SoftDevice>,
    controller: Controller,
}

impl Followed {
    fn new(options: HostOptions) -> Self {
        let (fabric, options) = (SoftFabric::new(), options.followers(1));
        let mut controller = Controller::new(&fabric, "reg_mr");
        controller.rule = Box::new(|asked| {
            let is_asked = matches!(asked.command, Command::SetFeatures(_));
            is_asked.then_some(Answer::Status(Status::SUCCESS, 0x0001_0001))
        });
        let lone = LoneHost::new(&fabric, "reg_mr", options.clone());
        let mut control = Control::new(fabric.device(SoftOptions::new("reg_mr".parse().unwrap())));
        let engine = engine_of(&mut control, options.engine());
        let mut follower = Host::follower(engine, memory(options.memory_bytes()), options).unwrap();
        follower.start();
        Self { lone, follower, control, controller }
    }

    fn step(&mut self) {
        self.lone.now += MILLISECOND / 10;
        self.lone.step();
        self.control.poll();
        self.follower.poll(self.lone.now);
        self.follower.flush();
        self.control.poll();
        while let Some((_, order)) = self.lone.host.next_order() {
            self.follower.follow(order);
        }
        while let Some(report) = self.follower.next_report() {
            self.lone.host.heard(0, report);
        }
        self.controller.step(self.lone.now);
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..50_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("never {what}: {:?} {:?}", self.lone.host.statistics(), self.follower.statistics());
    }
}

/// The other host had a session, so that it is away for a while; the follower never had one.
#[test]
fn a_follower_whose_queue_is_rejected_does_not_give_up_while_the_other_host_goes_on() {
    let mut followed = Followed::new(quiet(host_options()));
    followed.until("the first is ready", |followed| followed.lone.host.is_ready());
    let rejection = RejectPrivateData::new(RejectStatus::InvalidQueueId).as_bytes().to_vec();
    followed.controller.rejects_with = Some(rejection);
    followed.until("rejected", |followed| followed.follower.statistics().failures == 1);
    let rejected = HostFailure::Rejected(RejectStatus::InvalidQueueId);
    assert_eq!((followed.follower.last_failure(), followed.follower.failure()), (Some(rejected), None));
    followed.until("the first is rejected", |followed| followed.lone.host.statistics().failures == 2);
    assert_eq!((followed.lone.host.failure(), followed.follower.failure()), (None, None));
    followed.controller.rejects_with = None;
    followed.until("both are ready", |followed| followed.lone.host.is_ready() && followed.follower.is_ready());
}

#[test]
fn a_follower_need_be_polled_for_a_path_that_is_closed_only_while_something_waits_for_it() {
    let options = host_options().inaccessible_timeout(20 * SECOND);
    for is_refused in [false, true] {
        let mut spread = two(options.clone(), 2);
        spread.tick = MILLISECOND;
        for _ in 0..100 {
            spread.step();
        }
        assert_eq!(spread.members[1].host.poll_at(), None);
        spread.target.set_ana_state(&subsystem(), None, AnaState::Inaccessible).unwrap();
        let closed = spread.now;
        let read = |spread: &mut Spread| {
            let segment = [spread.members[1].segment(0, 1)];
            spread.members[1].host.read(0, &segment, 0).unwrap();
        };
        if is_refused {
            // Its request is what finds out.
            read(&mut spread);
        }
        spread.until("known", |spread| spread.members[1].host.ana_state() == AnaState::Inaccessible);
        let known = spread.now;
        for _ in 0..100 {
            spread.step();
        }
        if !is_refused {
            assert_eq!(spread.members[1].host.poll_at(), None);
            read(&mut spread);
        }
        let at = spread.members[1].host.poll_at().expect("somebody waits");
        let bounds = closed + 20 * SECOND..known + 20 * SECOND + 20 * MILLISECOND;
        assert!(bounds.contains(&at), "{is_refused}: {:?}", at - closed);
        spread.target.set_ana_state(&subsystem(), None, AnaState::Optimized).unwrap();
        assert_eq!(spread.completed(1, 1)[0].result, Ok(()));
        spread.finish();
    }
}

#[test]
fn what_stood_still_is_told_as_far_as_it_was_since_the_follower_began_to_connect() {
    let options = host_options().queues(2).step_timeout(5 * SECOND);
    let mut spread = two(options, 4);
    spread.tick = MILLISECOND;
    let pass = |spread: &mut Spread, standstill: Duration| {
        spread.now += standstill;
        for _ in 0..200 {
            spread.step();
        }
    };
    pass(&mut spread, Duration::ZERO);
    pass(&mut spread, 600 * SECOND);
    spread.members[0].host.drop_connections();
    spread.until("lost", |spread| !spread.members[1].host.is_ready());
    spread.tick = MILLISECOND / 100;
    // It stands still while its first queue comes up, and the target is silent to the second.
    spread.until("the first queue", |spread| spread.members[1].host.queues() == 1);
    spread.now += 60 * SECOND;
    spread.until("the second queue", |spread| spread.members[1].host.queues() == 2);
    spread.tick = MILLISECOND;
    while spread.members[1].host.last_failure().is_none() {
        spread.step_hosts();
    }
    let failure = spread.members[1].host.last_failure();
    let Some(HostFailure::Timeout { stood_still, .. }) = failure else { panic!("{failure:?}") };
    assert!((59 * SECOND..=60 * SECOND).contains(&stood_still), "{stood_still:?}");
    spread.until("both are ready", |spread| spread.members.iter().all(|member| member.host.is_ready()));
    spread.finish();
}

#[test]
fn an_order_about_a_command_that_nobody_asked_to_be_aborted_changes_nothing() {
    let options = host_options().step_timeout(SECOND).command_timeout(30 * SECOND);
    let mut spread = two(options, 2);
    let segment = [spread.members[1].segment(0, 1)];
    spread.members[1].host.read(0, &segment, 7).unwrap();
    let session = spread.members[1].host.session();
    for queue_id in 0..4 {
        for command_id in 0..=u16::MAX {
            let order = FollowerOrder::Aborting { session, queue_id, command_id };
            spread.members[1].host.follow(order);
        }
    }
    spread.tick = 50 * MILLISECOND;
    let begin = spread.now;
    while spread.now < begin + 20 * SECOND {
        spread.step_hosts();
        assert_eq!(spread.members[1].host.statistics().failures, 0);
    }
    assert_eq!(spread.completed(1, 1), [HostCompletion { cookie: 7, result: Ok(()) }]);
    spread.finish();
}

/// That a session ended elsewhere counts half against what was lost with that one, and with no other.
#[test]
fn a_session_that_another_core_ended_makes_no_later_one_count_less() {
    for index in [0, 1] {
        let mut spread = two(host_options().command_retries(Some(1)), 2);
        spread.tick = MILLISECOND;
        let ready = |spread: &mut Spread| spread.members.iter().all(|member| member.host.is_ready());
        spread.members[1 - index].host.drop_connections();
        spread.until("lost", |spread| !spread.members[index].host.is_ready());
        spread.until("ready", ready);
        let segment = [spread.members[index].segment(0, 1)];
        spread.members[index].host.read(0, &segment, 7).unwrap();
        spread.members[index].host.flush();
        for lost in 1..=2 {
            // The target has not seen the command.
            spread.members[index].host.drop_connections();
            while spread.members[index].host.statistics().lost < lost {
                spread.step_hosts();
            }
            spread.step_hosts();
            while lost == 1 && spread.members[index].host.statistics().resubmitted == 0 {
                spread.step_target();
                spread.step_hosts();
            }
        }
        let result = Err(IoError::Unanswered { attempts: 2 });
        assert_eq!(spread.completed(index, 1), [HostCompletion { cookie: 7, result }], "core {index}");
        spread.finish();
    }
}
