//! What the host asks its device for, and what it does where the device has less.

use core::time::Duration;
use frwr_engine::SubmitError;
use frwr_engine::control::Control;
use frwr_engine::gather::Segment;
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_engine::provider::{Capabilities, Command, CommandError, ConnectionParameters, Device, DeviceEvent, Ticket};
use frwr_nvmf::host::{Host, HostCompletion, HostOptions, IoError};
use frwr_support::nvmf_harness::scripted::Controller;
use frwr_support::nvmf_harness::{BLOCK, engine_of, host_options, memory};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

/// What passes between two steps.
const TICK: Duration = Duration::from_millis(1);

/// What a test says of a device, and hears of it.
#[derive(Default)]
struct Told {
    /// Of all connections that were asked for.
    parameters: Vec<ConnectionParameters>,
    /// Objects for keys that are left, if there is an end to them.
    objects: Option<u32>,
}

struct Scarce {
    device: SoftDevice,
    told: Arc<Mutex<Told>>,
    refused: VecDeque<Ticket>,
}

impl Device for Scarce {
    type Port = SoftPort;

    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<SoftPort, CommandError> {
        self.device.open_port(send_entries, receive_entries)
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        let mut told = self.told.lock().unwrap();
        match &command {
            Command::Connect { parameters, .. } => told.parameters.push(*parameters),
            Command::AllocateRegistration { .. } if told.objects == Some(0) => {
                self.refused.push_back(ticket);
                return Ok(());
            }
            Command::AllocateRegistration { .. } => told.objects = told.objects.map(|left| left - 1),
            _ => {}
        }
        self.device.submit(ticket, command)
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        let refused = self.refused.pop_front();
        let answer = |ticket| DeviceEvent::Answered { ticket, result: Err(CommandError::BUSY) };
        refused.map(answer).or_else(|| self.device.poll())
    }
}

struct Pair {
    host: Host<SoftPort>,
    control: Control<Scarce>,
    controller: Controller,
    told: Arc<Mutex<Told>>,
    now: Duration,
}

impl Pair {
    fn new(options: HostOptions) -> Self {
        let (fabric, told) = (SoftFabric::new(), Arc::new(Mutex::new(Told::default())));
        let controller = Controller::new(&fabric, "window");
        let device = fabric.device(SoftOptions::new("window".parse().unwrap()));
        let mut control = Control::new(Scarce { device, told: Arc::clone(&told), refused: VecDeque::new() });
        let engine = engine_of(&mut control, options.engine());
        let mut host = Host::new(engine, memory(options.memory_bytes()), options).unwrap();
        host.start();
        Self { host, control, controller, told, now: Duration::ZERO }
    }

    fn step(&mut self) {
        self.now += TICK;
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

    fn ended(&mut self) -> HostCompletion {
        let mut ended = None;
        self.until("ended", |pair| {
            ended = pair.host.next_completion();
            ended.is_some()
        });
        ended.unwrap()
    }
}

#[test]
fn a_host_asks_for_no_reads_of_its_own_and_for_all_that_it_was_told_beside_them() {
    for initiator_depth in [0, 1, 16] {
        let parameters = ConnectionParameters {
            responder_resources: 7,
            initiator_depth,
            retry_count: 3,
            ..ConnectionParameters::default()
        };
        let mut pair = Pair::new(HostOptions { parameters, ..host_options() });
        pair.until("ready", |pair| pair.host.is_ready());
        let asked = pair.told.lock().unwrap().parameters.clone();
        assert_eq!(asked, [ConnectionParameters { initiator_depth: 0, ..parameters }; 2]);
    }
}

#[test]
fn a_request_for_which_the_device_never_has_enough_objects_is_given_back() {
    let mut pair = Pair::new(HostOptions { queue_depth: 2, ..host_options() });
    let memory_id = pair.host.engine_mut().add_memory(memory(1 << 20)).unwrap();
    pair.until("the I/O queue is opened", |pair| pair.host.connections()[1].is_some());
    // One, which its Connect needs.
    pair.told.lock().unwrap().objects = Some(1);
    pair.until("ready", |pair| pair.host.is_ready());
    let segment = |block: u64| Segment { memory: memory_id, offset: block * u64::from(BLOCK), length: BLOCK };
    // Two keys, and so two objects.
    for cookie in 0..5 {
        pair.host.write(0, &[segment(0), segment(2)], cookie).unwrap();
        let result = Err(IoError::Submit(SubmitError::TooManyRegistrations));
        assert_eq!(pair.ended(), HostCompletion { cookie, result });
    }
    for cookie in 5..10 {
        pair.host.write(0, &[segment(0)], cookie).unwrap();
        assert_eq!(pair.ended(), HostCompletion { cookie, result: Ok(()) });
    }
    assert_eq!((pair.host.statistics().outstanding, pair.host.statistics().failures), (0, 0));
}
