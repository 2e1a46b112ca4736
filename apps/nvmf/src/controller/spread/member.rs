//! What a member has to tell the home core: it asks about Connects, and keeps copies of the controllers that have queues here.

use super::super::controllers::{Controllers, ERROR_LOG_ENTRIES};
use super::super::media::Counters;
use super::super::options::TargetOptions;
use super::super::work::{FailedCommand, MAX_ABORTS};
use super::message::{Claim, ControllerName, ToHome};
use arrayvec::ArrayVec;
use core::time::Duration;
use frwr_engine::ConnectionId;
use std::collections::VecDeque;

/// How often the home core is told what was counted: what hosts read in a log page may be as old.
const REPORT_PERIOD: Duration = Duration::from_millis(10);
/// How often it is told that a host is alive: far below the second that Keep Alive Timeouts count in.
const HEARD_PERIOD: Duration = Duration::from_millis(100);

/// What a member knows.
#[derive(Debug)]
pub(in super::super) struct Member {
    /// Bounded: a connection has the end of its former queue and one question in it, Aborts are limited, and
    /// there is one change at a time.
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
            outbox: VecDeque::with_capacity(2 * seats + usize::from(MAX_ABORTS) * places + 1),
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

    /// The next message. `has_ended`: what is owed of a place is done.
    pub(in super::super) fn next_message(
        &mut self,
        now: Duration,
        counters: Counters,
        controllers: &Controllers,
        has_ended: impl Fn(usize) -> bool,
    ) -> Option<ToHome> {
        if let Some(message) = self.outbox.pop_front() {
            return Some(message);
        }
        if self.untold
            && let Some(message) = self.untold(has_ended)
        {
            return Some(message);
        }
        self.report(now, counters, controllers)
    }

    /// What is told from time to time.
    fn report(&mut self, now: Duration, counters: Counters, controllers: &Controllers) -> Option<ToHome> {
        if now >= self.next_report {
            (self.next_report, self.report) = (now.saturating_add(REPORT_PERIOD), 0);
            if self.counters != counters {
                self.counters = counters;
                return Some(ToHome::Counted(counters));
            }
        }
        while let Some(place) = self.places.get_mut(self.report) {
            let at = self.report;
            self.report += 1;
            let Some(controller) = controllers.get(at) else { continue };
            let heard = controller.seen();
            if heard.saturating_sub(place.heard) >= HEARD_PERIOD {
                place.heard = heard;
                return Some(ToHome::Heard { name: ControllerName::new(at, controller.id()) });
            }
        }
        None
    }

    /// Asks the home core whether a connection may become a queue. False where an earlier connection of this number still waits
    /// for its answer.
    pub(in super::super) fn ask(&mut self, connection: ConnectionId, cookie: u64, claim: Claim) -> bool {
        let Some(seat @ Seat::Free) = self.seats.get_mut(usize::from(connection.index)) else { return false };
        *seat = Seat::Asked { connection, cookie };
        self.outbox.push_back(ToHome::Judge { seat: connection.index, claim });
        true
    }

    /// The home core has answered: the connection that asked, and its command.
    pub(in super::super) fn answered(&mut self, seat: u16) -> Option<(ConnectionId, u64)> {
        let place = self.seats.get_mut(usize::from(seat))?;
        let Seat::Asked { connection, cookie } = core::mem::replace(place, Seat::Free) else { return None };
        Some((connection, cookie))
    }

    /// A connection that the home core admitted is a queue.
    pub(in super::super) fn take_seat(&mut self, connection: ConnectionId) {
        self.set_seat(connection, Seat::Taken);
    }

    /// One that it admitted is none.
    pub(in super::super) fn decline_seat(&mut self, seat: u16) {
        self.outbox.push_back(ToHome::QueueEnded { seat });
    }

    pub(super) fn unseat(&mut self, connection: ConnectionId) {
        self.set_seat(connection, Seat::Free);
    }

    pub(super) fn queue_ended(&mut self, connection: ConnectionId) {
        self.set_seat(connection, Seat::Free);
        self.outbox.push_back(ToHome::QueueEnded { seat: connection.index });
    }

    /// A controller has a queue here.
    pub(in super::super) fn knows(&mut self, name: ControllerName) {
        if let Some(known) = self.places.get_mut(usize::from(name.place))
            && known.id != name.id
        {
            (known.id, known.skipped) = (name.id, 0);
            known.failed.clear();
        }
    }

    /// The queues of a controller end, of which the home core hears when they have.
    pub(in super::super) fn owe_end(&mut self, place: usize) {
        if let Some(known) = self.places.get_mut(place) {
            known.ends_owed += 1;
            self.untold = true;
        }
    }

    /// Commands that arrive from now on are executed by these settings.
    pub(in super::super) fn applied(&mut self, place: usize, version: u32) {
        if let Some(known) = self.places.get_mut(place) {
            known.applied = Some(version);
            self.untold = true;
        }
    }

    /// The answer to an Abort.
    pub(in super::super) fn aborted(&mut self, cookie: u64, place: u16, aborted: bool) {
        self.outbox.push_back(ToHome::Aborted { cookie, place, aborted });
    }

    /// The answer to a change.
    pub(in super::super) fn obeyed(&mut self, taken: bool) {
        self.outbox.push_back(ToHome::Obeyed { taken });
    }

    /// A command of a controller failed.
    pub(super) fn note(&mut self, place: usize, failed: &FailedCommand) {
        let Some(place) = self.places.get_mut(place) else { return };
        if place.failed.is_full() {
            place.failed.remove(0);
            place.skipped += 1;
        }
        place.failed.push(*failed);
        self.untold = true;
    }
}
