//! How objects come to a port and leave it: the cold half makes and destroys them, the hot half uses them, and neither
//! waits for the other. What is destroyed is first taken back from every port that has it.

use super::sys::{
    objects::{MemoryRegion, Window},
    queue_pair::QueuePair,
};
use crate::provider::{BaseId, PortId, QueuePairId, RegistrationId};
use frwr_mempool::lane::{Receiver, Sender};
use std::sync::Arc;

/// Objects on their way to a port, or reports on their way back. A connection's windows are made in one burst; where the
/// lane is full the device takes no more commands until the port was polled.
pub(super) const LANE_ENTRIES: usize = 4096;

/// What a port is told.
pub(super) enum PortCommand {
    AddBase(BaseId, Arc<MemoryRegion>),
    RemoveBase(BaseId),
    AddQueuePair(Arc<QueuePair>),
    /// With the windows that are still allocated for it.
    RemoveQueuePair(QueuePairId, Vec<RegistrationId>),
    AddWindow(RegistrationId, Arc<Window>),
    RemoveWindow(RegistrationId),
}

/// What a port has let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removed {
    Base(BaseId),
    QueuePair(QueuePairId),
    Window(RegistrationId),
}

/// One port, seen from the device.
pub(super) struct PortHandle {
    pub(super) id: PortId,
    pub(super) commands: Sender<PortCommand>,
    pub(super) reports: Receiver<Removed>,
    /// Its completion queues, as asynchronous events call them.
    pub(super) queues: [usize; 2],
}

impl PortHandle {
    /// Whether the port was dropped, with all that it had.
    pub(super) fn is_gone(&self) -> bool {
        self.commands.is_closed()
    }

    /// Whether one more command fits now.
    pub(super) fn has_room(&self) -> bool {
        self.is_gone() || self.commands.len() < self.commands.capacity()
    }

    /// Tells the port; what a port that is gone would have got is dropped. The caller has asked for room.
    pub(super) fn tell(&mut self, command: PortCommand) {
        if !self.is_gone() {
            let told = self.commands.push(command);
            debug_assert!(told.is_ok(), "room was asked for");
        }
    }
}

/// Objects by small numbers, the lowest free one first.
pub(super) struct Table<T>(Vec<Option<T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Table<T> {
    /// Puts an object in; `None` where numbers have run out.
    pub(super) fn insert(&mut self, object: T) -> Option<u32> {
        let place = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        let number = u32::try_from(place).ok()?;
        self.set(number, object);
        Some(number)
    }

    /// Puts an object at a number.
    pub(super) fn set(&mut self, number: u32, object: T) {
        let place = number as usize;
        if place >= self.0.len() {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(object);
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.0.get(number as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.0.get_mut(number as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        self.0.get_mut(number as usize)?.take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        // Numbers were checked when they were given.
        self.0.iter().enumerate().filter_map(|(place, object)| Some((place as u32, object.as_ref()?)))
    }
}
