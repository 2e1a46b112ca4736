//! One target over several cores. Each core has a [`Target`] of its own, with an engine, buffers, slots and storages; the I/O
//! queues of a controller are spread over them.
//!
//! Core 0 is the home: it has all admin queues, and so the controllers. The others are members and have I/O queues only. A
//! member keeps a copy of each controller that has queues on it, with what commands of I/O queues need to know, so that no
//! command asks another core. Targets know no threads: whoever runs them carries their messages
//! ([`Target::next_message`], [`Target::deliver`]), in order and without loss.
//!
//! Nothing that waits to be carried can grow without bound. A connection has one Connect at a time, which is answered before the
//! next one is asked for, Aborts are limited, and changes come one at a time: these wait in line, in room that was made at the start. Everything else is a
//! state that is told when the line is empty, in its newest form. Here is what a core knows of the others; what it does with
//! their messages is in [`carry`](super::carry).
//!
//! [`Target`]: super::Target
//! [`Target::next_message`]: super::Target::next_message
//! [`Target::deliver`]: super::Target::deliver

mod home;
mod member;
pub(super) mod message;
mod placement;

pub use message::TargetMessage;
pub use placement::place_queues;

use super::media::Counters;
use super::options::{HOME_CORE, TargetOptions};
use super::work::FailedCommand;
use frwr_engine::ConnectionId;
pub(super) use home::{Guest, Home};
pub(super) use member::Member;
pub(super) use message::{Claim, ControllerName, Direction, Order, Settings, ToHome, ToMember};

/// A core's part.
#[derive(Debug)]
pub(super) enum Spread {
    /// It owns the controllers.
    Home(Home),
    /// It owns I/O queues only.
    Member(Box<Member>),
}

impl Spread {
    pub(super) fn new(options: &TargetOptions) -> Self {
        if options.core == HOME_CORE {
            Self::Home(Home::new(options))
        } else {
            Self::Member(Box::new(Member::new(options)))
        }
    }

    pub(super) fn is_member(&self) -> bool {
        matches!(self, Self::Member(_))
    }

    /// What the home core knows of its members.
    pub(super) fn home(&self) -> Option<&Home> {
        if let Self::Home(home) = self { Some(home) } else { None }
    }

    pub(super) fn home_mut(&mut self) -> Option<&mut Home> {
        if let Self::Home(home) = self { Some(home) } else { None }
    }

    pub(super) fn member_mut(&mut self) -> Option<&mut Member> {
        if let Self::Member(member) = self { Some(member) } else { None }
    }

    /// A bit for each member.
    pub(super) fn all_members(&self) -> u64 {
        self.home().map_or(0, Home::all_members)
    }

    /// Something changed that members have to know; what, is noted where it lies.
    pub(super) fn tell_members(&mut self) {
        if let Some(home) = self.home_mut() {
            home.tell_members();
        }
    }

    /// Nothing of the controller that had this place before is left on a member.
    pub(super) fn is_quiet(&self, place: usize) -> bool {
        self.home().is_none_or(|home| home.is_quiet(place))
    }

    /// A controller has I/O queues on members.
    pub(super) fn has_queues(&self, place: usize) -> bool {
        self.home().is_some_and(|home| home.has_queues(place))
    }

    /// The member that has a queue of a controller.
    pub(super) fn member_of(&self, place: usize, queue_id: u16) -> Option<usize> {
        self.home()?.member_of(place, queue_id)
    }

    /// Commands of the controller may be executed somewhere by settings older than this version.
    pub(super) fn is_any_behind(&self, place: usize, version: u32) -> bool {
        self.home().is_some_and(|home| home.is_any_behind(place, version))
    }

    /// A controller has ended or was reset: so have its queues on members.
    pub(super) fn end_queues(&mut self, name: ControllerName) {
        if let Some(home) = self.home_mut() {
            home.end_queues(name);
        }
    }

    /// A queue is no part of its controller any more; the home core knows.
    pub(super) fn unseat(&mut self, connection: ConnectionId) {
        if let Some(member) = self.member_mut() {
            member.unseat(connection);
        }
    }

    /// A queue has ended here; the home core is told.
    pub(super) fn queue_ended(&mut self, connection: ConnectionId) {
        if let Some(member) = self.member_mut() {
            member.queue_ended(connection);
        }
    }

    /// A command failed: where the controller lives elsewhere, its error log does as well. False where it lives here.
    pub(super) fn note_elsewhere(&mut self, place: usize, failed: &FailedCommand) -> bool {
        let member = self.member_mut();
        let is_elsewhere = member.is_some();
        if let Some(member) = member {
            member.note(place, failed);
        }
        is_elsewhere
    }

    /// What all cores have done for hosts, of which this one has done `own`.
    pub(super) fn counted(&self, own: Counters) -> Counters {
        self.home().map_or(own, |home| home.counted(own))
    }
}
