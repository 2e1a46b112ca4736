//! What goes wrong inside a software NIC, drawn. One file is one kind of fault; this one lists them.

mod cut_wire;
mod failed_work;
mod hidden_receives;
mod late_answers;
mod late_commands;
mod late_completions;
mod overrun;

use crate::Random;
use frwr_engine::provider::{
    PortId, QueuePairId,
    soft::{Interference, SoftMonitor},
};

/// The NIC that a fault strikes.
#[derive(Clone, Copy, Debug)]
pub struct Victim<'a> {
    /// Its monitor.
    pub monitor: &'a SoftMonitor,
    /// Its port.
    pub port: PortId,
    /// Queue pairs in use there.
    pub queue_pairs: &'a [QueuePairId],
    /// A message that meets no receive makes its sender hang for ever, as on rxe where a registration stands behind it.
    pub hangs_without_receive: bool,
}

impl Victim<'_> {
    fn some_queue_pair(&self, random: &mut Random) -> Option<QueuePairId> {
        if self.queue_pairs.is_empty() { None } else { Some(random.of(self.queue_pairs)) }
    }

    fn interfere(&self, interference: impl Interference + 'static) {
        self.monitor.interfere(self.port, Box::new(interference));
    }
}

/// What may become of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// It goes on.
    None,
    /// A completion queue that is held up long enough runs full, when queue pairs are destroyed undrained and others come:
    /// [`SoftMonitor::overran`] tells.
    MayOverrun,
    /// Nothing works on it any more, for good: its completions cannot be trusted.
    Ends,
}

/// A kind of fault.
#[derive(Clone, Copy)]
pub struct NicFault {
    /// Its name, for tables and totals.
    pub name: &'static str,
    /// What may happen because of it that does not happen by itself: connections end.
    pub ends_connections: bool,
    /// What may become of the port.
    pub port: Harm,
    /// Makes it happen.
    pub strike: fn(Victim<'_>, &mut Random),
}

/// All of them.
pub const NIC_FAULTS: &[NicFault] = &[
    cut_wire::FAULT,
    failed_work::FAULT,
    hidden_receives::FAULT,
    late_answers::FAULT,
    late_commands::FAULT,
    late_completions::FAULT,
    overrun::FAULT,
];
