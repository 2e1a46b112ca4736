//! The host over a device that refuses posts, where its connections go on (`OnPostError::DeregisterAndContinue`).

use frwr_engine::OnPostError;
use frwr_engine::provider::PostRefusal;
use frwr_engine::provider::fault::{FaultHandle, Faulty};
use frwr_engine::provider::soft::SoftDevice;
use frwr_nvmf::host::{HostCompletion, IoError};
use frwr_nvmf::wire::{Command, IdentifyController, Status, log_page};
use frwr_support::nvmf_harness::host_options;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller, Scripted};

struct Refused {
    scripted: Scripted<Faulty<SoftDevice>>,
    faults: FaultHandle,
}

impl Refused {
    /// With a session.
    fn ready(prepare: impl FnOnce(&mut Controller)) -> Self {
        let (options, mut faults) = (host_options(), None);
        let engine = options.engine().on_post_error(OnPostError::DeregisterAndContinue);
        let faulty = |device| {
            let (device, handle) = Faulty::new(device);
            faults = Some(handle);
            device
        };
        let mut scripted = Scripted::over("reg_mr", faulty, engine, options, prepare);
        scripted.until("ready", |scripted| scripted.lone.host.is_ready());
        Self { scripted, faults: faults.unwrap() }
    }

    /// The next posts on the admin queue (0) or the I/O queue (1) are refused.
    fn refuse(&self, queue: usize, times: usize) {
        let host = &self.scripted.lone.host;
        let queue_pair = host.engine().queue_pair(host.connections()[queue].unwrap()).unwrap();
        (0..times).for_each(|_| self.faults.refuse_post(queue_pair, 0, PostRefusal::Invalid));
    }

    fn flushed(&mut self, cookie: u64) -> HostCompletion {
        self.scripted.lone.host.flush_namespace(cookie).unwrap();
        self.scripted.ended()
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
    assert_eq!(refused.scripted.lone.host.statistics().sessions, 1);
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
        refused.scripted.until("events are waited for", |scripted| scripted.controller.count(is_event) == 1);
        refused.scripted.controller.namespace.size = 512.into();
        let event = refused.scripted.controller.last(is_event).unwrap();
        refused.scripted.controller.answer(&event, Answer::Status(Status::SUCCESS, 2));
        if alone {
            refused.scripted.until("the list is asked for", |scripted| scripted.controller.count(is_list) == 1);
        }
        refused.refuse(0, times);
        refused.scripted.until("known", |scripted| scripted.lone.host.geometry().unwrap().blocks() == 512);
        assert_eq!(refused.scripted.controller.count(is_list), 1, "the list of what has changed, {times} refusals");
        assert_eq!(refused.scripted.controller.count(is_event), 2);
        assert_eq!(refused.scripted.lone.host.statistics().sessions, 1);
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
        refused.scripted.until("events are waited for", |scripted| scripted.controller.count(is_event) == events);
        let event = refused.scripted.controller.last(is_event).unwrap();
        refused.scripted.controller.answer(&event, Answer::Status(Status::SUCCESS, result));
        refused.scripted.until("asked for", |scripted| scripted.controller.count(is_list) == 1);
    }
    refused.refuse(0, 1);
    refused.scripted.until("events are waited for", |scripted| scripted.controller.count(is_event) == 3);
    assert_eq!(refused.faults.faults(), 1);
    refused.scripted.controller.namespace.size = 512.into();
    let list = refused.scripted.controller.last(is_list).unwrap();
    refused.scripted.controller.answer(&list, Answer::Status(Status::SUCCESS, 0));
    refused.scripted.until("known", |scripted| scripted.lone.host.geometry().unwrap().blocks() == 512);
    assert_eq!(refused.scripted.controller.count(is_list), 1);
}
