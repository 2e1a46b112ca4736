//! What the host asks its device for, and what it does where the device has less.

use core::time::Duration;
use frwr_engine::SubmitError;
use frwr_engine::provider::soft::{SoftDevice, SoftPort};
use frwr_engine::provider::{Capabilities, Command, CommandError, ConnectionParameters, Device, DeviceEvent, Ticket};
use frwr_nvmf::host::{HostCompletion, HostOptions, IoError};
use frwr_support::nvmf_harness::host_options;
use frwr_support::nvmf_harness::scripted::Scripted;
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

/// A host over such a device, whose connections' parameters and objects for keys `told` tells and bounds.
fn scripted(options: HostOptions) -> (Scripted<Scarce>, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::new(Told::default()));
    let heard = Arc::clone(&told);
    let scarce = |device| Scarce { device, told: heard, refused: VecDeque::new() };
    let mut scripted = Scripted::over("window", scarce, options.engine(), options, |_| {});
    scripted.tick = TICK;
    (scripted, told)
}

#[test]
fn a_host_asks_for_no_reads_of_its_own_and_for_all_that_it_was_told_beside_them() {
    for initiator_depth in [0, 1, 16] {
        let parameters =
            ConnectionParameters::default().responder_resources(7).initiator_depth(initiator_depth).retry_count(3);
        let (mut pair, told) = scripted(host_options().parameters(parameters));
        pair.until("ready", |pair| pair.lone.host.is_ready());
        let asked = told.lock().unwrap().parameters.clone();
        assert_eq!(asked, [parameters.initiator_depth(0); 2]);
    }
}

#[test]
fn a_request_for_which_the_device_never_has_enough_objects_is_given_back() {
    let (mut pair, told) = scripted(host_options().queue_depth(2));
    pair.until("the I/O queue is opened", |pair| pair.lone.host.connections()[1].is_some());
    // One, which its Connect needs.
    told.lock().unwrap().objects = Some(1);
    pair.until("ready", |pair| pair.lone.host.is_ready());
    let segments = [pair.segment(0, 1), pair.segment(2, 1)];
    // Two keys, and so two objects.
    for cookie in 0..5 {
        pair.lone.host.write(0, &segments, cookie).unwrap();
        let result = Err(IoError::Submit(SubmitError::TooManyRegistrations));
        assert_eq!(pair.ended(), HostCompletion { cookie, result });
    }
    for cookie in 5..10 {
        pair.lone.host.write(0, &segments[..1], cookie).unwrap();
        assert_eq!(pair.ended(), HostCompletion { cookie, result: Ok(()) });
    }
    assert_eq!((pair.lone.host.statistics().outstanding, pair.lone.host.statistics().failures), (0, 0));
}
