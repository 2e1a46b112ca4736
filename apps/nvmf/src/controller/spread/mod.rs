//! One target over several cores. Each core has a [`Target`] of its own, with an engine, buffers, slots and storages; the I/O
//! queues of a controller are spread over them.
//!
//! Core 0 is the home: it has all admin queues, and so the controllers. The others are members and have I/O queues only. A
//! member keeps a copy of each controller that has queues on it, with what commands of I/O queues need to know, so that no
//! command asks another core. Targets know no threads: whoever runs them carries their messages
//! ([`Target::next_message`], [`Target::deliver`]), in order and without loss.
//!
//! Nothing that waits to be carried can grow without bound. A connection has one Connect at a time, which is answered before the
//! next one is asked for, and Aborts are limited: these wait in line, in room that was made at the start. Everything else is a
//! state that is told when the line is empty, in its newest form.

mod home;
mod member;
mod message;
mod placement;

pub use message::TargetMessage;
pub use placement::place_queues;

use super::Target;
use super::options::TargetOptions;
use crate::storage::Storage;
use frwr_engine::provider::Port;
pub(super) use home::{MAX_ABORTS, Peer};
pub(super) use member::Member;
pub(super) use message::{Claim, Counters};
use message::{ControllerName, Direction, Settings, ToHome, ToMember};

/// Cores of one target: what knows of each member has a bit for it in a word.
pub const MAX_CORES: u16 = 64;

/// The core that owns the controllers.
pub const HOME_CORE: u16 = 0;

/// A core's part.
#[derive(Debug)]
pub(super) enum Spread {
    /// It owns the controllers; the members, of which there may be none.
    Home(Vec<Peer>),
    /// It owns I/O queues only.
    Member(Box<Member>),
}

impl Spread {
    pub(super) fn new(options: &TargetOptions) -> Self {
        if options.core == HOME_CORE {
            Self::Home((1..options.cores).map(|core| Peer::new(&options.on_core(core))).collect())
        } else {
            Self::Member(Box::new(Member::new(options)))
        }
    }

    pub(super) fn is_member(&self) -> bool {
        matches!(self, Self::Member(_))
    }

    /// The members; none on a member.
    pub(super) fn peers(&self) -> &[Peer] {
        if let Self::Home(peers) = self { peers } else { &[] }
    }

    fn peers_mut(&mut self) -> &mut [Peer] {
        if let Self::Home(peers) = self { peers } else { &mut [] }
    }

    fn member_mut(&mut self) -> Option<&mut Member> {
        if let Self::Member(member) = self { Some(member) } else { None }
    }

    /// A bit for each member.
    pub(super) fn all_members(&self) -> u64 {
        // At most MAX_CORES - 1 of them.
        (1 << self.peers().len()) - 1
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    /// The next message for the target of another core, and that core's number. To be asked after every poll until there is
    /// none; a message that cannot be carried at once has to be kept, and no further one taken for that core.
    pub fn next_message(&mut self) -> Option<(u16, TargetMessage)> {
        match &self.spread {
            Spread::Home(peers) if peers.is_empty() => None,
            Spread::Home(_) => {
                let (core, message) = self.next_to_member()?;
                Some((core, TargetMessage(Direction::ToMember(message))))
            }
            Spread::Member(_) => Some((HOME_CORE, TargetMessage(Direction::ToHome(self.next_to_home()?)))),
        }
    }

    /// Takes a message that the target of core `from` gave for this one. Others than those change nothing.
    pub fn deliver(&mut self, from: u16, message: TargetMessage) {
        match (message.0, &self.spread) {
            (Direction::ToHome(message), Spread::Home(peers)) => {
                if let Some(member) = usize::from(from).checked_sub(1).filter(|member| *member < peers.len()) {
                    self.deliver_to_home(member, message);
                }
            }
            (Direction::ToMember(message), Spread::Member(_)) if from == HOME_CORE => self.deliver_to_member(message),
            _ => {}
        }
    }
}
