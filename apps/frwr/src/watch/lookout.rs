//! What is said of the cores of a program that goes on, from before its reactors begin until they have ended.

use super::{Patrol, Watch};
use crate::check::Shortcoming;
use core::time::Duration;
use frwr_reactor::{Astray, CpuId, Topology};

/// Looks around before reactors are launched, says what is wrong once they have their cores, looks after them, and sums up.
#[derive(Clone, Debug)]
pub(crate) struct Lookout {
    watch: Watch,
    patrol: Patrol,
    topology: Topology,
    cpus: Vec<Option<CpuId>>,
    found: Vec<Shortcoming>,
}

impl Lookout {
    /// To be called before the launch.
    pub(crate) fn begin(topology: &Topology) -> Self {
        let (watch, topology) = (Watch::begin(), topology.clone());
        Self { watch, patrol: Patrol::default(), topology, cpus: Vec::new(), found: Vec::new() }
    }

    /// The reactors have these cores.
    pub(crate) fn placed(&mut self, cpus: impl Iterator<Item = Option<CpuId>>, say: &mut dyn FnMut(&str)) {
        self.cpus = cpus.collect();
        self.found = self.watch.at_start(&self.cpus);
        tell(&self.found, say);
    }

    /// As [`Patrol::due`].
    pub(crate) fn due(&self) -> Option<Duration> {
        Some(self.patrol.due())
    }

    /// As [`Patrol::pass`].
    pub(crate) fn pass(&mut self, now: Duration, look: impl FnOnce() -> Vec<Astray>, say: &mut dyn FnMut(&str)) {
        self.patrol.pass(now, look, say);
    }

    /// All that was found, for the report; what happened meanwhile is said here, but for what was said when it happened.
    pub(crate) fn end(mut self, say: &mut dyn FnMut(&str)) -> Vec<Shortcoming> {
        let meanwhile = self.watch.meanwhile(&self.topology, &self.cpus);
        tell(&meanwhile, say);
        self.found.extend(meanwhile);
        self.found.extend(self.patrol.shortcomings());
        self.found
    }
}

fn tell(found: &[Shortcoming], say: &mut dyn FnMut(&str)) {
    found.iter().for_each(|found| say(&format!("warning: {}; {}", found.text, found.remedy)));
}
