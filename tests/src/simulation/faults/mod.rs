//! What goes wrong while a simulation is in its first phase. One file is one kind of fault; this one lists them. What goes
//! wrong inside a NIC is [`frwr_support::nic`]'s.

mod behind;
mod clock_jump;
mod cut_port;
mod dropped_connections;
mod duplicate;
mod event;
mod failed_completion;
mod failing_disk;
mod foreign_key;
mod frozen;
mod garbage;
mod given_up;
mod held_completions;
mod nic;
mod partial_post;
mod path;
mod power_cut;
mod refused_command;
mod refused_receives;
mod removed_device;
mod slow_disk;
mod stall;

use super::{
    effects::Effects,
    party::{Side, SimulatedPort, port_id, port_of},
    world::{Program, World},
};
use core::time::Duration;
use frwr_engine::{
    Engine,
    provider::{PortId, QueuePairId},
};
use frwr_support::{
    Random,
    nic::{NIC_FAULTS, NicFault},
};

/// A kind of fault.
#[derive(Clone, Copy)]
pub(super) struct Fault {
    /// For tables and totals.
    pub(super) name: &'static str,
    /// Makes it happen; what may follow from it that never happens by itself.
    pub(super) strike: fn(&mut World<'_>, &mut Random) -> Effects,
}

/// A kind of fault, wherever it strikes.
#[derive(Clone, Copy)]
pub(super) enum Drawn {
    /// Inside a NIC.
    Inside(NicFault),
    /// Anywhere else.
    Outside(Fault),
}

impl Drawn {
    /// For tables and totals.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Inside(fault) => fault.name,
            Self::Outside(fault) => fault.name,
        }
    }

    /// Makes it happen; what may follow from it that never happens by itself.
    pub(super) fn strike(&self, world: &mut World<'_>, random: &mut Random) -> Effects {
        match self {
            Self::Inside(fault) => nic::strike(fault, world, random),
            Self::Outside(fault) => (fault.strike)(world, random),
        }
    }
}

/// All of them: those inside a NIC come first.
pub(super) const FAULTS: [Drawn; NIC_FAULTS.len() + OUTSIDE.len()] = {
    let mut all = [Drawn::Outside(OUTSIDE[0]); NIC_FAULTS.len() + OUTSIDE.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = match at.checked_sub(NIC_FAULTS.len()) {
            None => Drawn::Inside(NIC_FAULTS[at]),
            Some(outside) => Drawn::Outside(OUTSIDE[outside]),
        };
        at += 1;
    }
    all
};

const OUTSIDE: &[Fault] = &[
    behind::FAULT,
    clock_jump::FAULT,
    cut_port::FAULT,
    dropped_connections::FAULT,
    duplicate::FAULT,
    event::FAULT,
    failed_completion::FAULT,
    failing_disk::FAULT,
    foreign_key::FAULT,
    frozen::FAULT,
    garbage::FAULT,
    given_up::FAULT,
    held_completions::FAULT,
    partial_post::FAULT,
    path::FAULT,
    power_cut::FAULT,
    refused_command::FAULT,
    refused_receives::FAULT,
    removed_device::FAULT,
    slow_disk::FAULT,
    stall::FAULT,
];

/// What any end of a session may bring, wherever it is seen first.
const ENDS: fn() -> Effects = || Effects::ENDS | Effects::TIME_OUTS | Effects::SILENCE;

impl World<'_> {
    /// A time: from shorter than anybody would notice to longer than every time-out. And whether it may be too long for somebody.
    fn spell(&self, random: &mut Random) -> (Duration, bool) {
        let longest = self.scenario.longest_timeout();
        let time = match random.below(4) {
            0 => self.scenario.patience / (1 << random.below(8)) as u32,
            1 => self.scenario.shortest_timeout() / (2 + random.below(3) as u32),
            2 => longest / (1 + random.below(4) as u32),
            _ => longest * (1 + random.below(3) as u32),
        };
        (time, self.is_long(time))
    }

    /// Somebody may see a time-out pass where nothing happens for so long.
    fn is_long(&self, time: Duration) -> bool {
        time + self.scenario.patience >= self.scenario.shortest_timeout()
    }

    fn engine_of(&self, program: Program, random: &mut Random) -> Option<&Engine<SimulatedPort>> {
        match program {
            Program::Host(host) => {
                let members = &self.hosts[host].members;
                Some(members[random.below(members.len() as u64) as usize].host.engine())
            }
            Program::Target => {
                let core = random.below(self.target.cores.len() as u64) as usize;
                self.target.cores.get(core).map(|core| core.target.engine())
            }
        }
    }

    /// Some core's port, with its device and one of the queue pairs that it uses.
    fn some_port(&self, random: &mut Random) -> Option<Place<'_>> {
        let program = self.some_program(random);
        let engine = self.engine_of(program, random)?;
        let recent = &port_of(engine).log.recent;
        let queue_pair = if recent.is_empty() { None } else { Some(random.of(recent)) };
        Some(Place { side: self.side(program), engine, port: port_id(engine), queue_pair })
    }
}

/// Where a fault strikes.
struct Place<'a> {
    side: &'a Side,
    engine: &'a Engine<SimulatedPort>,
    port: PortId,
    /// One that was used lately.
    queue_pair: Option<QueuePairId>,
}
