//! What goes wrong in a storm. One file is one kind of fault; this one lists them. What goes wrong inside a NIC is
//! [`frwr_support::nic`]'s.

mod clock_jump;
mod duplicates;
mod failing_command;
mod foreign_key;
mod garbage;
mod held_completions;
mod kept_object;
mod partial_post;
mod refused_receives;
mod release;
mod removal;
mod sleep;
mod unfounded_event;
mod uninvited_invalidation;

use super::{party::Party, world::World};
use frwr_engine::provider::QueuePairId;
use frwr_support::{
    Random,
    nic::{Harm, NIC_FAULTS, NicFault},
};
use std::sync::LazyLock;

/// A kind of fault.
pub(super) struct Fault {
    /// Its name, for tables and totals.
    pub(super) name: &'static str,
    /// Connections may end because of it.
    pub(super) ends_connections: bool,
    /// Requests may find fewer MRs than they need because of it.
    pub(super) takes_objects: bool,
    /// Makes it happen.
    pub(super) strike: Strike,
}

/// How it happens.
pub(super) enum Strike {
    World(fn(&mut World<'_>, &mut Random)),
    Nic(&'static NicFault),
}

/// All of them.
pub(super) static FAULTS: LazyLock<Vec<Fault>> = LazyLock::new(|| {
    let own = [
        clock_jump::FAULT,
        duplicates::FAULT,
        failing_command::FAULT,
        foreign_key::FAULT,
        garbage::FAULT,
        held_completions::FAULT,
        kept_object::FAULT,
        partial_post::FAULT,
        refused_receives::FAULT,
        release::FAULT,
        removal::FAULT,
        sleep::FAULT,
        uninvited_invalidation::FAULT,
        unfounded_event::FAULT,
    ];
    let inside = NIC_FAULTS.iter().map(|fault| Fault {
        name: fault.name,
        ends_connections: fault.ends_connections,
        takes_objects: false,
        strike: Strike::Nic(fault),
    });
    own.into_iter().chain(inside).collect()
});

impl Strike {
    pub(super) fn strike(&self, world: &mut World<'_>, random: &mut Random) {
        match self {
            Self::World(strike) => strike(world, random),
            Self::Nic(fault) => {
                // Either is the sender of messages that the other has no receive for.
                let rxe = world.host.is_rxe();
                let party = some_party(world, random);
                let queue_pairs = party.queue_pairs();
                match fault.port {
                    Harm::None => {}
                    Harm::MayOverrun => party.may_overrun = true,
                    // Seldom, or nothing else would be seen of a seed.
                    Harm::Ends if !random.one_in(ENDS_ONE_IN) => return,
                    Harm::Ends => party.lost = true,
                }
                (fault.strike)(party.victim(&queue_pairs, rxe), random);
            }
        }
    }
}

/// How seldom what could end a side for good does so.
const ENDS_ONE_IN: u64 = 8;

/// The side that is struck, mostly the host.
fn some_party<'a>(world: &'a mut World<'_>, random: &mut Random) -> &'a mut Party {
    if random.one_in(4) { &mut world.target } else { &mut world.host }
}

/// One of its queue pairs, or one that it does not have.
fn some_queue_pair(party: &Party, random: &mut Random) -> QueuePairId {
    let all = party.queue_pairs();
    if all.is_empty() { QueuePairId(1) } else { random.of(&all) }
}
