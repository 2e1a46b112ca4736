//! A program that asks the discovery service what there is, again and again.

use super::{
    effects::Effects,
    nic::Network,
    party::{Side, SimulatedPort, memory, port_of},
    scenario::Scenario,
};
use core::time::Duration;
use frwr_nvmf::{
    host::{Host, HostOptions},
    wire::{DISCOVERY_SUBSYSTEM, Nqn},
};

/// A host of the discovery service.
pub(super) struct Visitor {
    pub(super) side: Side,
    host: Host<SimulatedPort>,
    subsystem: Nqn,
    /// Between two visits.
    rest: Duration,
    next: Duration,
    /// Sessions that ended without being asked to.
    failures: u64,
    pub(super) visits: u64,
}

impl Visitor {
    /// One with a device of its own.
    ///
    /// # Errors
    /// What cannot be made.
    pub(super) fn new(network: &Network, scenario: &Scenario) -> Result<Self, String> {
        let like = &scenario.hosts[0];
        let discovery = Nqn::new(DISCOVERY_SUBSYSTEM).map_err(|error| error.to_string())?;
        let options = HostOptions::new(like.options.address, discovery, like.options.host)
            .step_timeout(like.options.step_timeout)
            .longest_back_off(like.options.longest_back_off)
            .max_attempts(u32::MAX)
            .controller_loss_timeout(Duration::ZERO);
        let mut side = Side::new(network, like.device)?;
        let engine = side.engine(&options.engine())?;
        let own = memory(options.memory_bytes())?;
        let host = Host::new(engine, own, options).map_err(|error| error.to_string())?;
        let (rest, subsystem) = (scenario.patience, scenario.target.subsystem);
        Ok(Self { side, host, subsystem, rest, next: Duration::ZERO, failures: 0, visits: 0 })
    }

    /// It asks, and looks at the answer.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn step(&mut self, now: Duration, explained: Effects) -> Result<u32, String> {
        let work = self.host.poll(now) + self.host.flush();
        let failures = self.host.statistics().failures;
        if failures != self.failures && !explained.contains(Effects::ENDS) && !explained.contains(Effects::TIME_OUTS) {
            return Err(format!("a session ended, and no fault explains it: {:?}", self.host.last_failure()));
        }
        self.failures = failures;
        if self.host.is_ready() {
            let mut found = self.host.discovered().iter();
            if !found.any(|entry| entry.subsystem == self.subsystem) {
                return Err(format!("the subsystem is not among what was found: {:?}", self.host.discovered()));
            }
            self.visits += 1;
            self.next = now + self.rest;
            self.host.shut_down();
        } else if self.host.is_stopped() && now >= self.next {
            self.host.start();
        }
        Ok(work)
    }

    /// It makes no more visits.
    pub(super) fn stop(&mut self) {
        self.next = Duration::MAX;
        self.host.shut_down();
    }

    /// The last one has ended.
    pub(super) fn is_stopped(&self) -> bool {
        self.host.is_stopped()
    }

    /// The trace of what it did with its device.
    pub(super) fn trace(&self) -> u64 {
        port_of(self.host.engine()).log.trace()
    }
}
