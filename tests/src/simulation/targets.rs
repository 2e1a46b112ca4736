//! A target program, over one core or several, which share a device and its disks.

use super::{
    disk::{Disk, SharedMedium},
    effects::Effects,
    nic::Network,
    paper::Paper,
    party::{Side, SimulatedPort, memory},
    scenario::Scenario,
};
use core::time::Duration;
use frwr_nvmf::controller::{
    HOME_CORE, ReservationWriter, Reservations, Target, TargetListening, TargetMessage, TargetStatistics, place_queues,
};
use frwr_nvmf::storage::{Comparing, RangeLocks};
use frwr_support::Random;
use std::collections::VecDeque;
use std::sync::Arc;

/// One core of a target program.
pub(super) struct Core {
    pub(super) target: Target<SimulatedPort, Comparing<Disk>>,
    /// What others have told it.
    heard: VecDeque<(u16, TargetMessage)>,
    /// What found no room.
    kept: Option<(u16, TargetMessage)>,
    counted: TargetStatistics,
}

/// A target program.
pub(super) struct TargetSide {
    pub(super) side: Side,
    /// The first is the home.
    pub(super) cores: Vec<Core>,
    /// Of the file of its reservations, where there is one.
    pub(super) writer: Option<ReservationWriter<Paper>>,
}

impl TargetSide {
    /// A program that is to listen. `paper`: where its reservations are kept, if they are.
    ///
    /// # Errors
    /// What cannot be made, or that it finds no file of reservations that was written.
    pub(super) fn new(
        network: &Network,
        scenario: &Scenario,
        medium: &SharedMedium,
        paper: Option<&Paper>,
        random: &mut Random,
    ) -> Result<Self, String> {
        let mut side = Side::new(network, scenario.target_device)?;
        side.control.place_connections(place_queues(usize::from(HOME_CORE)));
        let (mut cores, locks) = (Vec::new(), Arc::new(RangeLocks::new()));
        let (reservations, writer) = match paper {
            Some(paper) => paper.open().map(|(reservations, writer)| (reservations, Some(writer)))?,
            None => (Reservations::new(), None),
        };
        for core in 0..scenario.target.cores {
            let options = scenario.target.on_core(core);
            let sizes = options.engine();
            let engine = side.engine(
                &scenario
                    .target_engine
                    .clone()
                    .connections(sizes.connections)
                    .transfers_held(sizes.transfers_held)
                    .receive_depth(sizes.receive_depth),
            )?;
            let disk = Disk::new(medium.clone(), scenario.disk_depth, random.part());
            let buffers = memory(options.buffer_memory_bytes(scenario.busy_buffers))?;
            let disk = Comparing::new(disk, &locks).map_err(|error| error.to_string())?;
            let mut target = Target::new(engine, vec![disk], buffers, options).map_err(|error| error.to_string())?;
            if scenario.reserves {
                target.reserve_by(&reservations);
            }
            cores.push(Core { target, heard: VecDeque::new(), kept: None, counted: TargetStatistics::default() });
        }
        for core in &mut cores {
            core.target.listen().map_err(|error| error.to_string())?;
        }
        Ok(Self { side, cores, writer })
    }

    /// Its program is gone.
    pub(super) fn dies(&mut self) {
        self.cores.clear();
        self.writer = None;
    }

    /// All cores listen.
    pub(super) fn listens(&self) -> bool {
        self.cores.iter().all(|core| core.target.statistics().listening == TargetListening::Listens)
    }

    /// Connections of all its cores.
    pub(super) fn connections(&self) -> usize {
        self.cores.iter().map(|core| core.target.engine().connections().count()).sum()
    }

    /// One core steps.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn step(&mut self, index: usize, now: Duration, explained: Effects, lane: usize) -> Result<u32, String> {
        let core = &mut self.cores[index];
        while let Some((from, message)) = core.heard.pop_front() {
            core.target.deliver(from, message);
        }
        let work = core.target.poll(now);
        core.target.flush();
        core.explain(explained)?;
        self.tell(index, lane);
        Ok(work)
    }

    fn tell(&mut self, from: usize, lane: usize) {
        while let Some((to, message)) = {
            let core = &mut self.cores[from];
            core.kept.take().or_else(|| core.target.next_message())
        } {
            let heard = &mut self.cores[usize::from(to)].heard;
            if heard.len() >= lane {
                self.cores[from].kept = Some((to, message));
                return;
            }
            heard.push_back((from as u16, message));
        }
    }

    /// Nothing is in hand.
    pub(super) fn is_drained(&self) -> bool {
        self.cores.iter().all(|core| core.target.is_drained() && core.heard.is_empty() && core.kept.is_none())
    }

    /// Counters of all cores.
    pub(super) fn statistics(&self) -> TargetStatistics {
        let mut cores = self.cores.iter().map(|core| core.target.statistics());
        let first = cores.next().unwrap_or_default();
        cores.fold(first, |sum, core| sum + core)
    }
}

impl Core {
    /// Nothing has happened that no fault explains.
    fn explain(&mut self, explained: Effects) -> Result<(), String> {
        let now = self.target.statistics();
        let then = core::mem::replace(&mut self.counted, now);
        for (what, before, after, needed) in [
            ("a Keep Alive Timer expired", then.keep_alive_expirations, now.keep_alive_expirations, Effects::SILENCE),
            ("a connection never became a queue", then.connect_timeouts, now.connect_timeouts, Effects::ENDS),
            ("a host is gone without a word", then.silent_hosts, now.silent_hosts, Effects::SILENCE),
            ("a host breaks the protocol", then.protocol_errors, now.protocol_errors, Effects::BREACHES),
            ("the medium failed", then.media_errors, now.media_errors, Effects::ERRORS),
            ("what was written could not be kept", then.failed_commits, now.failed_commits, Effects::ERRORS),
        ] {
            if before != after && !explained.contains(needed) {
                return Err(format!("target: {what}, and no fault explains it: {now:?}"));
            }
        }
        Ok(())
    }
}
