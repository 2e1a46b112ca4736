//! How objects come to a port and leave it: the cold half makes and destroys them, the hot half uses them, and neither
//! waits for the other. What is destroyed is first taken back from every port that has it.

use super::sys::{
    memory_region::MemoryRegion, queue_pair::QueuePair, registered::Registered,
    shared_receive_queue::SharedReceiveQueue,
};
use crate::provider::{BaseId, PortId, QueuePairId, RegistrationId, SharedReceiveQueueId};
use frwr_mempool::{
    Bell,
    lane::{Receiver, Sender},
};
use std::{collections::VecDeque, sync::Arc};

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
    AddSharedReceiveQueue(SharedReceiveQueueId, Arc<SharedReceiveQueue>),
    RemoveSharedReceiveQueue(SharedReceiveQueueId),
    AddWindow(RegistrationId, Arc<Registered>),
    RemoveWindow(RegistrationId),
}

/// What a port has let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removed {
    Base(BaseId),
    QueuePair(QueuePairId),
    SharedReceiveQueue(SharedReceiveQueueId),
    Window(RegistrationId),
}

/// What a port tells its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It has let go of this.
    Removed(Removed),
    /// A poll of one of its completion queues failed: what completed is not known any more.
    CompletionsLost,
}

/// One port, seen from the device.
pub(super) struct PortHandle {
    pub(super) id: PortId,
    /// `None` once the port was found to be gone: what it never took is dropped with the lane, and with that the last
    /// that anybody but the device held of its objects.
    lane: Option<Lane>,
    /// Its completion queues, as asynchronous events call them.
    pub(super) queues: [usize; 2],
    /// Wakes its core, which may sleep, to what it is told.
    bell: Arc<Bell>,
}

struct Lane {
    commands: Sender<PortCommand>,
    reports: Receiver<Report>,
    /// What the lane had no room for: only objects that the device refused to destroy, which nobody asked room for.
    waiting: VecDeque<PortCommand>,
}

impl PortHandle {
    pub(super) fn new(
        id: PortId,
        commands: Sender<PortCommand>,
        reports: Receiver<Report>,
        queues: [usize; 2],
        bell: Arc<Bell>,
    ) -> Self {
        Self { id, lane: Some(Lane { commands, reports, waiting: VecDeque::new() }), queues, bell }
    }

    /// Whether the port was dropped, with all that it had, and [`PortHandle::refresh`] has seen it.
    pub(super) fn is_gone(&self) -> bool {
        self.lane.is_none()
    }

    /// Forgets a port that was dropped, and hands over what had to wait. Whoever waits for reports of a port may stop
    /// once it is gone: it drops its objects before it closes the lane.
    pub(super) fn refresh(&mut self) {
        let Some(lane) = &mut self.lane else { return };
        if lane.commands.is_closed() {
            self.lane = None;
            return;
        }
        while let Some(command) = lane.waiting.pop_front() {
            if let Err(full) = lane.commands.push(command) {
                lane.waiting.push_front(full.0);
                return;
            }
            self.bell.ring();
        }
    }

    /// Whether one more command fits now.
    pub(super) fn has_room(&self) -> bool {
        let fits = |lane: &Lane| lane.waiting.is_empty() && lane.commands.len() < lane.commands.capacity();
        self.lane.as_ref().is_none_or(fits)
    }

    /// Tells the port; what a port that is gone would have got is dropped.
    pub(super) fn tell(&mut self, command: PortCommand) {
        let Some(lane) = &mut self.lane else { return };
        if !lane.waiting.is_empty() {
            lane.waiting.push_back(command);
        } else if let Err(full) = lane.commands.push(command) {
            lane.waiting.push_back(full.0);
        }
        self.bell.ring();
    }

    /// What the port says next.
    pub(super) fn next_report(&mut self) -> Option<Report> {
        self.lane.as_mut()?.reports.pop()
    }
}

/// Objects by small numbers, the lowest free one first.
pub(super) struct Table<T> {
    entries: Vec<Option<T>>,
    /// No number below is free: a connection's windows are made and destroyed by the hundred.
    first_free: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), first_free: 0 }
    }
}

impl<T> Table<T> {
    /// Puts an object in; `None` where numbers have run out.
    pub(super) fn insert(&mut self, object: T) -> Option<u32> {
        let free = self.entries.iter().skip(self.first_free).position(Option::is_none);
        let place = free.map_or(self.entries.len(), |beyond| self.first_free + beyond);
        let number = u32::try_from(place).ok()?;
        self.set(number, object);
        self.first_free = place + 1;
        Some(number)
    }

    /// Puts an object at a number.
    pub(super) fn set(&mut self, number: u32, object: T) {
        let place = number as usize;
        if place >= self.entries.len() {
            self.entries.resize_with(place + 1, || None);
        }
        self.entries[place] = Some(object);
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let removed = self.entries.get_mut(number as usize)?.take();
        self.first_free = self.first_free.min(number as usize);
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        // Numbers were checked when they were given.
        self.entries.iter().enumerate().filter_map(|(place, object)| Some((place as u32, object.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::{PortCommand, PortHandle, Removed, Report, Table};
    use crate::provider::{BaseId, PortId, RegistrationId};
    use frwr_mempool::lane;
    use std::sync::Arc;

    #[test]
    fn a_table_gives_the_lowest_free_number() {
        let mut table = Table::default();
        assert_eq!([10, 11, 12, 13].map(|value| table.insert(value)), [0, 1, 2, 3].map(Some));
        assert_eq!(
            (table.remove(2), table.remove(1), table.remove(1), table.remove(9)),
            (Some(12), Some(11), None, None)
        );
        assert_eq!([20, 21, 22].map(|value| table.insert(value)), [1, 2, 4].map(Some));
        table.set(7, 30);
        assert_eq!([40, 41, 42].map(|value| table.insert(value)), [5, 6, 8].map(Some));
        assert_eq!(table.iter().map(|(number, _)| number).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    fn remove(number: u32) -> PortCommand {
        PortCommand::RemoveBase(BaseId(number))
    }

    fn number(command: Option<PortCommand>) -> Option<u32> {
        match command? {
            PortCommand::RemoveBase(base) => Some(base.0),
            _ => None,
        }
    }

    #[test]
    fn what_finds_the_lane_full_waits_its_turn() {
        let (commands, mut taken) = lane::bounded(2);
        let (_reports, reported) = lane::bounded(2);
        let mut port = PortHandle::new(PortId(0), commands, reported, [1, 2], Arc::default());
        for at in 0..4 {
            assert_eq!(port.has_room(), at < 2);
            port.tell(remove(at));
        }
        assert_eq!(number(taken.pop()), Some(0));
        assert!(!port.has_room(), "others wait");
        port.refresh();
        assert_eq!([taken.pop(), taken.pop(), taken.pop()].map(number), [Some(1), Some(2), None]);
        port.refresh();
        assert_eq!(number(taken.pop()), Some(3));
        assert!(port.has_room());
    }

    #[test]
    fn a_port_is_gone_once_that_was_seen() {
        let (commands, taken) = lane::bounded(2);
        let (mut reports, reported) = lane::bounded(2);
        let mut port = PortHandle::new(PortId(0), commands, reported, [1, 2], Arc::default());
        assert!(reports.push(Report::Removed(Removed::Window(RegistrationId(3)))).is_ok());
        drop(taken);
        assert!(!port.is_gone());
        // Nobody will ever take it: it is dropped with the lane.
        port.tell(remove(0));
        port.refresh();
        assert!(port.is_gone() && port.has_room());
        assert_eq!(port.next_report(), None);
    }
}
