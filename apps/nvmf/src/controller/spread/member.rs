//! A member: it asks the home core about Connects, and keeps copies of the controllers that have queues here.

use super::super::Target;
use super::super::command::{Phase, Reply, Work};
use super::super::connect::{Names, Seating};
use super::super::controllers::{Controller, ERROR_LOG_ENTRIES, FailedCommand, Purpose};
use super::super::io::Step;
use super::super::late::Place as LatePlace;
use super::super::options::TargetOptions;
use super::super::refusal::Refusal;
use super::super::session::{Connecting, Queue};
use super::home::MAX_ABORTS;
use super::{Claim, ControllerName, Counters, Settings, ToHome, ToMember};
use crate::storage::Storage;
use crate::wire::ConnectData;
use arrayvec::ArrayVec;
use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Port;
use std::collections::VecDeque;

/// How often the home core is told what was counted: what hosts read in a log page may be as old.
const REPORT_PERIOD: Duration = Duration::from_millis(10);
/// How often it is told that a host is alive: far below the second that Keep Alive Timeouts count in.
const HEARD_PERIOD: Duration = Duration::from_millis(100);

/// What a member knows.
#[derive(Debug)]
pub(in super::super) struct Member {
    /// Bounded: a connection has the end of its former queue and one question in it, and Aborts are limited.
    outbox: VecDeque<ToHome>,
    /// By connection index.
    seats: Vec<Seat>,
    /// By place in the home core's table of controllers.
    places: Vec<Place>,
    /// Something in `places` was not told.
    untold: bool,
    /// What the home core was told last.
    counters: Counters,
    next_report: Duration,
    /// The next place to be looked at for a report; all of them where none is under way.
    report: usize,
}

/// A connection's place in what the home core knows.
#[derive(Clone, Copy, Debug)]
enum Seat {
    Free,
    /// The home core was asked, for a command with this cookie. The connection may have ended since.
    Asked {
        connection: ConnectionId,
        cookie: u64,
    },
    /// It is a queue, as far as the home core knows.
    Taken,
}

/// A place in the table of controllers, and what is to be told of it.
#[derive(Clone, Debug, Default)]
struct Place {
    /// The controller that `failed` is about.
    id: u16,
    /// For the error log, which keeps no more.
    failed: ArrayVec<FailedCommand, ERROR_LOG_ENTRIES>,
    /// Failed before those.
    skipped: u64,
    /// The version of the settings that commands are executed by, until that is told.
    applied: Option<u32>,
    /// `EndQueues` that were not answered.
    ends_owed: u32,
    /// When the host was last heard of, as told.
    heard: Duration,
}

impl Member {
    pub(super) fn new(options: &TargetOptions) -> Self {
        let (seats, places) = (usize::from(options.connections()), usize::from(options.places()));
        Self {
            outbox: VecDeque::with_capacity(2 * seats + usize::from(MAX_ABORTS) * places),
            seats: vec![Seat::Free; seats],
            places: vec![Place::default(); places],
            untold: false,
            counters: Counters::default(),
            next_report: Duration::ZERO,
            report: usize::MAX,
        }
    }

    fn set_seat(&mut self, connection: ConnectionId, seat: Seat) {
        if let Some(place) = self.seats.get_mut(usize::from(connection.index)) {
            *place = seat;
        }
    }

    /// A failed command, or what failed before; ends after that, so that the log has everything when a controller ends.
    fn untold(&mut self, ended: impl Fn(usize) -> bool) -> Option<ToHome> {
        let mut left = false;
        for (at, place) in self.places.iter_mut().enumerate() {
            // There are at most 4096 controllers.
            let (number, name) = (at as u16, ControllerName { place: at as u16, id: place.id });
            if let Some(failed) = place.failed.pop_at(0) {
                let skipped = core::mem::take(&mut place.skipped);
                return Some(ToHome::Failed { name, failed, skipped });
            }
            if let Some(version) = place.applied.take() {
                return Some(ToHome::SettingsApplied { place: number, version });
            }
            if place.ends_owed > 0 {
                if ended(at) {
                    return Some(ToHome::QueuesEnded { place: number, count: core::mem::take(&mut place.ends_owed) });
                }
                left = true;
            }
        }
        self.untold = left;
        None
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    pub(super) fn next_to_home(&mut self) -> Option<ToHome> {
        let Self { spread, queues, slots, places, .. } = self;
        let member = spread.member_mut()?;
        if let Some(message) = member.outbox.pop_front() {
            return Some(message);
        }
        if member.untold {
            // Of a queue whose queue pair the device keeps nothing is awaited but what the storage has: other hosts go on.
            let has_ended =
                |queue: &Queue| queue.kept && !slots.has_storing(|connection| connection == queue.connection);
            let gone = |place| {
                let mut of_place = queues.iter().flatten().filter(|queue| queue.ended_with == Some(place));
                of_place.all(has_ended)
            };
            if let Some(message) =
                member.untold(|place| places.get(place).is_none_or(LatePlace::is_empty) && gone(place))
            {
                return Some(message);
            }
        }
        self.report()
    }

    /// What is told from time to time.
    fn report(&mut self) -> Option<ToHome> {
        let (now, counters) = (self.now, self.own_counters());
        let member = self.spread.member_mut()?;
        if now >= member.next_report {
            (member.next_report, member.report) = (now.saturating_add(REPORT_PERIOD), 0);
            if member.counters != counters {
                member.counters = counters;
                return Some(ToHome::Counted(counters));
            }
        }
        while let Some(place) = member.places.get_mut(member.report) {
            let at = member.report;
            member.report += 1;
            let Some(Some(controller)) = self.controllers.get(at) else { continue };
            let heard = controller.seen();
            if heard.saturating_sub(place.heard) >= HEARD_PERIOD {
                place.heard = heard;
                // There are at most 4096 controllers.
                return Some(ToHome::Heard { name: ControllerName { place: at as u16, id: controller.id } });
            }
        }
        None
    }

    /// Asks the home core whether a connection may become a queue. Where an earlier connection of this number still waits
    /// for its answer, so does this one.
    pub(in super::super) fn ask_home(&mut self, index: u32, connect: Seating, data: &ConnectData) -> Step {
        let cookie = self.slots.cookie(index);
        let Some(connection) = self.slots.get_mut(index).map(|slot| slot.connection) else { return Step::Drop };
        let purpose = match self.purpose(data) {
            Ok(Purpose::Io(subsystem)) => Ok(subsystem),
            Ok(Purpose::Discovery) => Err(Refusal::DiscoveryQueue),
            Err(refusal) => Err(refusal),
        };
        let subsystem = match purpose {
            Ok(subsystem) => subsystem,
            Err(refusal) => return self.connected(index, Names::of(data), Err(refusal)),
        };
        let peer = self.peer_of(connection);
        let Some(member) = self.spread.member_mut() else { return Step::Drop };
        let Some(seat) = member.seats.get_mut(usize::from(connection.index)) else { return Step::Drop };
        let Seat::Free = seat else { return Step::Stall };
        *seat = Seat::Asked { connection, cookie };
        let claim = Claim::new(connect.queue_id, data, subsystem, peer);
        member.outbox.push_back(ToHome::Judge { seat: connection.index, claim });
        self.set_phase(index, Phase::Elsewhere);
        Step::Pending
    }

    pub(super) fn deliver_to_member(&mut self, message: ToMember) {
        match message {
            ToMember::Admitted { seat, name, settings } => self.admitted(seat, name, settings),
            ToMember::Refused { seat, refusal } => self.refused_by_home(seat, refusal),
            ToMember::EndQueues { name } => self.end_queues(name),
            ToMember::Settings { name, settings } => self.apply(name, settings),
            ToMember::Abort { cookie, place, queue_id, command_id } => {
                let aborted = self.withdraw(place.into(), queue_id, command_id);
                if let Some(member) = self.spread.member_mut() {
                    member.outbox.push_back(ToHome::Aborted { cookie, place, aborted });
                }
            }
            ToMember::AnaState { subsystem, state } => {
                if let Some(served) = self.subsystems.get_mut(subsystem) {
                    served.ana = state;
                }
            }
            ToMember::NamespaceActive { namespace, active } => {
                if let Some(namespace) = self.namespaces.get_mut(namespace) {
                    namespace.active = active;
                }
            }
        }
    }

    /// Who asked, unless the connection has ended since.
    fn asked(&mut self, seat: u16) -> Option<(ConnectionId, u32)> {
        let member = self.spread.member_mut()?;
        let place = member.seats.get_mut(usize::from(seat))?;
        let Seat::Asked { connection, cookie } = core::mem::replace(place, Seat::Free) else { return None };
        let index = self.slots.index_of(cookie)?;
        self.queue_mut(connection)?.connecting = Connecting::No;
        Some((connection, index))
    }

    fn admitted(&mut self, seat: u16, name: ControllerName, settings: Settings) {
        let asked = self.asked(seat);
        let orphaned = asked.and_then(|_| self.refuse_beside_orphans(name.place.into()).err());
        let copied = asked.filter(|_| orphaned.is_none()).and_then(|(connection, index)| {
            self.copy_controller(index, name, settings)?;
            let Work::Connect(connect) = self.slots.get_mut(index)?.work else { return None };
            Some((connection, index, connect))
        });
        let Some((connection, index, connect)) = copied else {
            if let Some(member) = self.spread.member_mut() {
                member.outbox.push_back(ToHome::QueueEnded { seat });
            }
            if let Some((connection, index)) = asked {
                // Or who may connect was changed here while the home core was asked.
                self.refuse(connection, index, orphaned.unwrap_or(Refusal::NotAllowed { is_named: true }));
            }
            return;
        };
        if let Some(member) = self.spread.member_mut() {
            member.set_seat(connection, Seat::Taken);
        }
        self.seat(connection, name.place.into(), connect);
        self.set_phase(index, Phase::Reply(Reply::result(name.id.into())));
        self.advance(index);
    }

    /// A controller has its first queue here, or another one.
    fn copy_controller(&mut self, index: u32, name: ControllerName, settings: Settings) -> Option<()> {
        let data = self.connect_data(index).ok()?;
        let (purpose, now) = (self.purpose(&data).ok()?, self.watched);
        let member = self.spread.member_mut()?;
        let known = member.places.get_mut(usize::from(name.place))?;
        if known.id != name.id {
            (known.id, known.skipped) = (name.id, 0);
            known.failed.clear();
        }
        let place = self.controllers.get_mut(usize::from(name.place))?;
        let copy = match place {
            Some(copy) if copy.id == name.id => copy,
            place => place.insert(Controller::copy(name.id, &data, purpose, now)),
        };
        copy.features.write_cache = settings.write_cache;
        Some(())
    }

    fn refused_by_home(&mut self, seat: u16, refusal: Refusal) {
        if let Some((connection, index)) = self.asked(seat) {
            self.refuse(connection, index, refusal);
        }
    }

    fn refuse(&mut self, connection: ConnectionId, index: u32, refusal: Refusal) {
        let names = self.connect_data(index).map_or_else(|_| Names::default(), |data| Names::of(&data));
        let reply = self.refuse_connect(connection, names, refusal);
        self.set_phase(index, Phase::Reply(reply));
        self.advance(index);
    }

    fn end_queues(&mut self, name: ControllerName) {
        let place = usize::from(name.place);
        self.disconnect_io_queues(place);
        if let Some(copy) = self.controllers.get_mut(place) {
            *copy = None;
        }
        if let Some(member) = self.spread.member_mut()
            && let Some(known) = member.places.get_mut(place)
        {
            known.ends_owed += 1;
            member.untold = true;
        }
    }

    fn apply(&mut self, name: ControllerName, settings: Settings) {
        let place = usize::from(name.place);
        if let Some(Some(copy)) = self.controllers.get_mut(place)
            && copy.id == name.id
        {
            copy.features.write_cache = settings.write_cache;
        }
        if let Some(member) = self.spread.member_mut()
            && let Some(known) = member.places.get_mut(place)
        {
            known.applied = Some(settings.version);
            member.untold = true;
        }
    }

    /// A queue is no part of its controller any more; the home core knows.
    pub(in super::super) fn unseat(&mut self, connection: ConnectionId) {
        if let Some(member) = self.spread.member_mut() {
            member.set_seat(connection, Seat::Free);
        }
    }

    /// A queue has ended here; the home core is told.
    pub(in super::super) fn queue_ended(&mut self, connection: ConnectionId) {
        if let Some(member) = self.spread.member_mut() {
            member.set_seat(connection, Seat::Free);
            member.outbox.push_back(ToHome::QueueEnded { seat: connection.index });
        }
    }

    /// A command failed: where the controller lives elsewhere, its error log does as well. False where it lives here.
    pub(in super::super) fn note_elsewhere(&mut self, controller: usize, failed: &FailedCommand) -> bool {
        let Some(member) = self.spread.member_mut() else { return false };
        let Some(place) = member.places.get_mut(controller) else { return true };
        if place.failed.is_full() {
            place.failed.remove(0);
            place.skipped += 1;
        }
        place.failed.push(*failed);
        member.untold = true;
        true
    }
}
