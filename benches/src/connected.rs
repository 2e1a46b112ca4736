//! A device whose queue pairs are connected as soon as that is asked for, with nobody at the other end: for a library that
//! completes what is posted by itself.

use frwr_engine::provider::{
    Answer, Capabilities, Command, CommandError, ConnectionEvent, Device, DeviceEvent, PrivateData, Ticket,
};
use std::collections::VecDeque;

/// The device that does everything else.
pub struct ConnectedAtOnce<D> {
    device: D,
    events: VecDeque<DeviceEvent>,
}

impl<D> ConnectedAtOnce<D> {
    /// Wraps a device.
    pub fn new(device: D) -> Self {
        Self { device, events: VecDeque::new() }
    }
}

impl<D: Device> Device for ConnectedAtOnce<D> {
    type Port = D::Port;

    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<Self::Port, CommandError> {
        self.device.open_port(send_entries, receive_entries)
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        let Command::Connect { queue_pair, .. } = command else { return self.device.submit(ticket, command) };
        let event = ConnectionEvent::Established { queue_pair, private_data: PrivateData::new() };
        self.events.push_back(DeviceEvent::Answered { ticket, result: Ok(Answer::Done) });
        self.events.push_back(DeviceEvent::Connection(event));
        Ok(())
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        self.events.pop_front().or_else(|| self.device.poll())
    }
}
