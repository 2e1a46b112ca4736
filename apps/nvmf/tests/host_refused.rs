//! The host over a device that refuses posts, where its connections go on (`OnPostError::DeregisterAndContinue`).

use core::time::Duration;
use frwr_engine::control::Control;
use frwr_engine::provider::PostRefusal;
use frwr_engine::provider::fault::{FaultHandle, Faulty, FaultyPort};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_engine::{EngineOptions, OnPostError};
use frwr_nvmf::host::{Host, HostCompletion, IoError};
use frwr_nvmf::wire::{Command, IdentifyController, Status, log_page};
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller};
use frwr_support::nvmf_harness::{engine_of, host_options, memory};

struct Refused {
    host: Host<FaultyPort<SoftPort>>,
    control: Control<Faulty<SoftDevice>>,
    faults: FaultHandle,
    controller: Controller,
    now: Duration,
}

impl Refused {
    /// With a session.
    fn ready(prepare: impl FnOnce(&mut Controller)) -> Self {
        let fabric = SoftFabric::new();
        let mut controller = Controller::new(&fabric, "reg_mr");
        prepare(&mut controller);
        let (device, faults) = Faulty::new(fabric.device(SoftOptions::new("reg_mr".parse().unwrap())));
        let (mut control, options) = (Control::new(device), host_options());
        let engine = EngineOptions { on_post_error: OnPostError::DeregisterAndContinue, ..options.engine() };
        let engine = engine_of(&mut control, engine);
        let mut host = Host::new(engine, memory(options.memory_bytes()), options).unwrap();
        host.start();
        let mut refused = Self { host, control, faults, controller, now: Duration::ZERO };
        refused.until("ready", |refused| refused.host.is_ready());
        refused
    }

    fn step(&mut self) {
        self.now += Duration::from_micros(1);
        self.control.poll();
        self.host.poll(self.now);
        self.host.flush();
        self.control.poll();
        self.controller.step(self.now);
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..50_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("never {what}: {:?} {:?}", self.host.statistics(), self.host.last_failure());
    }

    /// The next posts on the admin queue (0) or the I/O queue (1) are refused.
    fn refuse(&self, queue: usize, times: usize) {
        let connection = self.host.connections()[queue].unwrap();
        let queue_pair = self.host.engine().queue_pair(connection).unwrap();
        (0..times).for_each(|_| self.faults.refuse_post(queue_pair, 0, PostRefusal::Invalid));
    }

    fn flushed(&mut self, cookie: u64) -> HostCompletion {
        self.host.flush_namespace(cookie).unwrap();
        let mut ended = None;
        self.until("ended", |refused| {
            ended = refused.host.next_completion();
            ended.is_some()
        });
        ended.unwrap()
    }
}

#[test]
fn a_command_that_the_device_always_refuses_is_given_back() {
    let mut refused = Refused::ready(|_| {});
    refused.refuse(1, 5);
    assert_eq!(refused.flushed(1), HostCompletion { cookie: 1, result: Ok(()) });
    refused.refuse(1, 100);
    assert_eq!(refused.flushed(2), HostCompletion { cookie: 2, result: Err(IoError::Unanswered { attempts: 6 }) });
    refused.faults.clear();
    assert_eq!(refused.flushed(3), HostCompletion { cookie: 3, result: Ok(()) });
    assert_eq!(refused.host.statistics().sessions, 1);
}

#[test]
fn what_an_event_asks_to_be_read_is_read_although_the_device_refused_to_ask_for_it() {
    let is_event = |asked: &Asked| asked.command == Command::AsynchronousEventRequest;
    let is_list =
        |asked: &Asked| matches!(asked.command, Command::GetLogPage(get) if get.page == log_page::CHANGED_NAMESPACES);
    // With the next Asynchronous Event Request, or alone, when the list has been read.
    for (times, alone) in (1..5).flat_map(|times| [(times, false), (times, true)]) {
        let mut refused =
            Refused::ready(|controller| controller.identify.events = IdentifyController::NAMESPACE_EVENTS.into());
        refused.until("events are waited for", |refused| refused.controller.count(is_event) == 1);
        refused.controller.namespace.size = 512.into();
        let event = refused.controller.last(is_event).unwrap();
        refused.controller.answer(&event, Answer::Status(Status::SUCCESS, 2));
        if alone {
            refused.until("the list is asked for", |refused| refused.controller.count(is_list) == 1);
        }
        refused.refuse(0, times);
        refused.until("known", |refused| refused.host.geometry().unwrap().blocks() == 512);
        assert_eq!(refused.controller.count(is_list), 1, "the list of what has changed, {times} refusals");
        assert_eq!(refused.controller.count(is_event), 2);
        assert_eq!(refused.host.statistics().sessions, 1);
    }
}

#[test]
fn what_is_being_read_is_not_read_again_because_another_command_was_refused() {
    let is_event = |asked: &Asked| asked.command == Command::AsynchronousEventRequest;
    let is_list = |asked: &Asked| matches!(asked.command, Command::GetLogPage(_));
    let mut refused = Refused::ready(|controller| {
        controller.identify.events = IdentifyController::NAMESPACE_EVENTS.into();
        controller.rule = Box::new(move |asked| is_list(asked).then_some(Answer::Silence));
    });
    // A namespace has changed, and then something that asks for nothing to be read.
    for (events, result) in [(1, 2), (2, 0x102)] {
        refused.until("events are waited for", |refused| refused.controller.count(is_event) == events);
        let event = refused.controller.last(is_event).unwrap();
        refused.controller.answer(&event, Answer::Status(Status::SUCCESS, result));
        refused.until("asked for", |refused| refused.controller.count(is_list) == 1);
    }
    refused.refuse(0, 1);
    refused.until("events are waited for", |refused| refused.controller.count(is_event) == 3);
    assert_eq!(refused.faults.faults(), 1);
    refused.controller.namespace.size = 512.into();
    let list = refused.controller.last(is_list).unwrap();
    refused.controller.answer(&list, Answer::Status(Status::SUCCESS, 0));
    refused.until("known", |refused| refused.host.geometry().unwrap().blocks() == 512);
    assert_eq!(refused.controller.count(is_list), 1);
}
