//! What the hosts of one controller tell each other: plain values, which their callers carry from core to core.
//!
//! One host has the admin queue; the others follow it, with I/O queues only. Its orders and their reports must arrive in the
//! order in which they were taken, each once; a lane per pair of cores is enough.

use super::failure::HostFailure;
use super::limits::Limits;
use crate::storage::Geometry;
use crate::wire::AnaState;

/// All that a follower needs to know of a session to bring its own queues up.
#[derive(Clone, Copy, Debug)]
pub struct Attachment {
    pub(super) session: u64,
    /// Its limits; `queues` are the follower's.
    pub(super) limits: Limits,
    pub(super) geometry: Geometry,
    pub(super) ana: AnaState,
    /// Identifier of the follower's first queue; the others follow.
    pub(super) first_queue: u16,
}

impl Attachment {
    /// The session, counted from 1 by the host that has the admin queue.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }

    /// I/O queues for this follower; none where the controller granted too few.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.limits.queues
    }

    /// Size of the namespace.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
}

/// From the host that has the admin queue to one follower: [`super::Host::next_order`], [`super::Host::follow`].
#[derive(Clone, Copy, Debug)]
pub enum FollowerOrder {
    /// A session is ready, or something changed in the one that the follower knows: its size, or how it can be reached.
    Attach(Attachment),
    /// The session ends.
    Detach {
        /// Which.
        session: u64,
    },
    /// The Abort of a command of the follower was sent: from now on it has to be answered.
    Aborting {
        /// In which session.
        session: u64,
        /// The queue's identifier.
        queue_id: u16,
        /// The command's identifier.
        command_id: u16,
    },
    /// There will be no other session.
    GiveUp(HostFailure),
}

/// From a follower to the host that has the admin queue: [`super::Host::next_report`], [`super::Host::heard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerReport {
    /// All its queues are up.
    Attached {
        /// In which session.
        session: u64,
    },
    /// The controller refused a command because of the path (Base 8.1.4): the ANA log page has to be read.
    Path {
        /// In which session.
        session: u64,
        /// What it said.
        state: AnaState,
    },
    /// A command took too long, and the controller is to be asked to abort it.
    Abort {
        /// In which session.
        session: u64,
        /// The queue's identifier.
        queue_id: u16,
        /// The command's identifier.
        command_id: u16,
    },
    /// A queue failed: the session has to be set up again.
    Failed {
        /// Which.
        session: u64,
        /// Why.
        failure: HostFailure,
    },
    /// No queue of it is left in the session, and all its keys of that session are dead.
    Detached {
        /// Which.
        session: u64,
    },
}
