//! All parties of a simulation, what steps them, and what is checked after every step.

use super::{
    Outcome,
    disk::{Behaviour, Disk},
    faults::{Fault, strike},
    ledger::{Kind, Ledger, Pending},
    nic::{Devices, Network},
    party::{SimulatedDevice, SimulatedPort, Watch, memory, party},
    random::{Random, TraceHash},
    scenario::Scenario,
};
use core::{fmt::Write as _, time::Duration};
use frwr_apps::{
    host::{ADMIN_DATA_BYTES, Host},
    nvmf::AnaState,
    target::{Target, TargetListening},
};
use frwr_engine::{
    Engine, ReceiveQueues,
    control::Control,
    gather::{MemoryId, Segment},
    provider::{Contiguity, Port},
};
use std::{cell::RefCell, rc::Rc};

/// Rounds in which the target has to begin to listen.
const ROUNDS_TO_LISTEN: u64 = 1_000;
/// Rounds in which everything has to end when faults have stopped: back-offs, time-outs and drains pass in the long ticks of
/// idle rounds.
const ROUNDS_TO_END: u64 = 100_000;
/// Rounds without work after which time passes in long ticks: more than the largest transfer takes on the slowest wire, whose
/// packets are no work that a poll would report.
const IDLE_ROUNDS: u64 = 400;
/// Time between rounds while there is work.
const SHORT_TICK: Duration = Duration::from_micros(2);
/// Time between idle rounds.
const LONG_TICK: Duration = Duration::from_millis(10);
/// Bytes of a write pad.
const PAD_BYTES: u64 = 4;

/// A disk's behaviour, in the hands of the disk and of the simulation.
type SharedBehaviour = Rc<RefCell<Behaviour>>;

/// Who can step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Host,
    Target,
    HostControl,
    TargetControl,
}

const EVERYBODY: [Who; 4] = [Who::Host, Who::Target, Who::HostControl, Who::TargetControl];

/// A host, a target and their devices, on one thread.
pub(super) struct World {
    scenario: Scenario,
    /// Chance of everything but the disk.
    pub(super) random: Random,
    /// Virtual time.
    pub(super) now: Duration,
    /// Steps that each party still sleeps.
    pub(super) stalled: [u64; 4],
    /// The host.
    pub(super) host: Host<SimulatedPort>,
    /// Its device.
    pub(super) host_watch: Watch,
    host_control: Control<SimulatedDevice>,
    /// The target.
    pub(super) target: Target<SimulatedPort, Disk>,
    /// Its device.
    pub(super) target_watch: Watch,
    target_control: Control<SimulatedDevice>,
    disk: SharedBehaviour,
    ledger: Ledger,
    data: MemoryId,
    descriptors: Vec<u32>,
    trace: TraceHash,
    /// Faults that no script counts.
    struck: u64,
    network: Network,
}

impl World {
    /// The world of a seed; the target listens.
    ///
    /// # Errors
    /// What cannot be made.
    pub(super) fn new(seed: u64, devices: Devices) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let mut scenario = Scenario::new(&mut random)?;
        let network = Network::new(devices, &scenario.host_device);
        if let Some(address) = network.address() {
            scenario.host.address.set_ip(address);
            scenario.target.address.set_ip(address);
        }
        let (host_control, mut engine, host_watch) = party(&network, scenario.host_device, &scenario.host_engine)?;
        let slots = usize::from(scenario.host.queue_depth) * 2;
        let bytes = scenario.request_bytes as usize;
        let data = memory(slots * bytes)?;
        let id = engine.add_memory(data.clone()).map_err(|error| error.to_string())?;
        let admin = memory(ADMIN_DATA_BYTES)?;
        let host = Host::new(engine, admin, scenario.host.clone()).map_err(|error| error.to_string())?;
        let (target_control, engine, target_watch) = party(&network, scenario.target_device, &scenario.target_engine)?;
        let (target, disk) = target(engine, &scenario, Random::new(random.bits()))?;
        let blocks = scenario.geometry.blocks();
        let ledger = Ledger::new(data, scenario.geometry.block_bytes() as usize, bytes, blocks);
        let mut world = Self {
            scenario,
            random,
            now: Duration::ZERO,
            stalled: [0; 4],
            host,
            host_watch,
            host_control,
            target,
            target_watch,
            target_control,
            disk,
            ledger,
            data: id,
            descriptors: Vec::new(),
            trace: TraceHash::new(),
            struck: 0,
            network,
        };
        world.target.listen().map_err(|error| error.to_string())?;
        world.rounds("listening", ROUNDS_TO_LISTEN, |world| {
            Ok(world.target.statistics().listening == TargetListening::Listens)
        })?;
        world.host.start();
        Ok(world)
    }

    /// Where everything stands, for messages.
    #[must_use]
    pub(super) fn describe(&self) -> String {
        let host = (self.host.statistics(), self.host.last_failure(), self.host.failure());
        let engines = (self.host.engine().statistics(), self.target.engine().statistics());
        let controls = (self.host_control.statistics(), self.target_control.statistics());
        format!(
            "host {host:?}\ntarget {:?}\nhost's engine {:?}\ntarget's engine {:?}\ncontrols {controls:?}\n{:?}",
            self.target.statistics(),
            engines.0,
            engines.1,
            self.scenario
        )
    }

    /// What it came to.
    #[must_use]
    pub(super) fn outcome(&self) -> Outcome {
        let host = self.host.statistics();
        Outcome {
            trace: self.trace.0,
            requests: self.ledger.ended,
            sessions: host.sessions,
            resubmitted: host.resubmitted,
            faults: self.struck + self.host_watch.faults.faults() + self.target_watch.faults.faults(),
        }
    }

    /// The phase with faults.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn storm(&mut self) -> Result<(), String> {
        if !self.scenario.faults_from_start {
            self.rounds("ready for the first time", ROUNDS_TO_END, |world| Ok(world.host.is_ready()))?;
        }
        self.disk.borrow_mut().longest = self.scenario.disk_delay;
        self.disk.borrow_mut().fails_one_in = self.scenario.disk_fails_one_in;
        for _ in 0..self.scenario.steps {
            if self.scenario.fault_one_in > 0 && self.random.one_in(self.scenario.fault_one_in) {
                let fault = Fault::ALL[self.random.weighted(&self.scenario.fault_weights)];
                let none = self.scenario.fault_weights.iter().all(|&weight| weight == 0);
                if !none {
                    self.struck += u64::from(fault.is_direct());
                    self.trace.add(fault as u64);
                    strike(self, fault);
                }
            }
            self.now += Duration::from_nanos(self.random.below(self.scenario.tick));
            let who = self.random.weighted(&self.scenario.party_weights);
            if self.stalled[who] > 0 {
                self.stalled[who] -= 1;
                continue;
            }
            if who == 0 {
                self.submit()?;
            }
            self.step(EVERYBODY[who])?;
        }
        Ok(())
    }

    /// How the namespace can be reached from now on.
    pub(super) fn set_path(&mut self, state: AnaState) {
        // It is the one subsystem that there is.
        let _ = self.target.set_ana_state(&self.scenario.host.subsystem, state);
    }

    /// Faults have stopped: everything ends, every block is read once more, both sides stop, and nothing is left.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn calm(&mut self) -> Result<(), String> {
        self.host_watch.calm();
        self.target_watch.calm();
        self.set_path(AnaState::Optimized);
        self.stalled = [0; 4];
        self.disk.borrow_mut().longest = Duration::ZERO;
        self.disk.borrow_mut().fails_one_in = 0;
        self.rounds("all requests ended", ROUNDS_TO_END, |world| Ok(world.ledger.is_empty()))?;
        self.rounds("the host is ready", ROUNDS_TO_END, |world| Ok(world.host.is_ready()))?;
        let (mut next, blocks) = (0, self.scenario.geometry.blocks());
        self.rounds("every block was read again", ROUNDS_TO_END, |world| {
            while next < blocks
                && let Some((cookie, read)) = world.ledger.prepare_read(next)?
                && world.try_submit(cookie, read)
            {
                next += 1;
            }
            Ok(next == blocks && world.ledger.is_empty())
        })?;
        if self.host.is_ready() {
            self.check_open(self.host.admin_bytes_open(), "nothing else is in flight")?;
        }
        self.host.shut_down();
        self.rounds("the host stopped", ROUNDS_TO_END, |world| Ok(world.host.is_stopped()))?;
        self.target.shut_down();
        self.rounds("the target drained", ROUNDS_TO_END, |world| Ok(world.target.is_drained()))?;
        self.nothing_left()
    }

    fn nothing_left(&mut self) -> Result<(), String> {
        self.ledger.check_all_rest()?;
        for (name, engine, options) in [
            ("host", self.host.engine(), &self.scenario.host_engine),
            ("target", self.target.engine(), &self.scenario.target_engine),
        ] {
            let statistics = engine.statistics();
            let _ = write!(self.trace, "{statistics:?}");
            if !engine.is_idle() {
                return Err(format!("the {name}'s engine is not idle: {statistics:?}"));
            }
            // Requests that were lost before they got MRs ended as well.
            if statistics.requests > statistics.requests_ended {
                return Err(format!("{name}: requests that never ended: {statistics:?}"));
            }
            if (statistics.request_slots_used, statistics.slots_held) != (0, 0) {
                return Err(format!("{name}: slots are left: {statistics:?}"));
            }
            let dead =
                statistics.local_invalidations + statistics.remote_invalidations + statistics.keys_destroyed_live;
            if statistics.registrations != dead {
                return Err(format!("{name}: {} keys made, {dead} ended: {statistics:?}", statistics.registrations));
            }
            let (receives, entries) = (engine.receive_buffers(), statistics.shared_receives_free);
            if receives.held > 0 {
                return Err(format!("{name}: receives are left with the caller: {receives:?}"));
            }
            let is_shared = options.receive_queues != ReceiveQueues::PerConnection;
            if is_shared
                && (entries, statistics.shared_receives_withdrawn) != (u64::from(receives.posted + receives.idle), 0)
            {
                return Err(format!("{name}: {entries} shared receives are free of {receives:?}: {statistics:?}"));
            }
            let open = engine.port().remote_bytes_open().unwrap_or(0);
            if open > 0 {
                return Err(format!("{name}: {open} bytes are open after everything ended"));
            }
        }
        let statistics = self.host.statistics();
        let ended = statistics.succeeded + statistics.failed;
        if (statistics.requests, statistics.outstanding, self.ledger.ended) != (ended, 0, ended) {
            return Err(format!("{} requests ended for the caller, but {statistics:?}", self.ledger.ended));
        }
        let statistics = self.target.statistics();
        if (statistics.commands_in_flight, statistics.slots_used, self.disk.borrow().pending) != (0, 0, 0) {
            return Err(format!("the target is not empty: {statistics:?}"));
        }
        let violations = self.network.violations();
        if !violations.is_empty() {
            return Err(format!("what no program may do: {violations:?}"));
        }
        let stalled = self.host_watch.stalled_destroys() + self.target_watch.stalled_destroys();
        if stalled > 0 {
            return Err(format!("{stalled} queue pairs were destroyed with a live registration"));
        }
        Ok(())
    }

    fn rounds(
        &mut self,
        what: &str,
        most: u64,
        mut done: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut idle = 0;
        for _ in 0..most {
            if done(self)? {
                return Ok(());
            }
            self.now += if idle > IDLE_ROUNDS { LONG_TICK } else { SHORT_TICK };
            let mut work = 0;
            for who in EVERYBODY {
                work += self.step(who)?;
            }
            idle = if work == 0 { idle + 1 } else { 0 };
        }
        Err(format!("never: {what}; in flight: {}", self.ledger.describe()))
    }

    fn step(&mut self, who: Who) -> Result<u32, String> {
        let now = self.now;
        let work = match who {
            Who::Host => {
                let work = self.host.poll(now) + self.host.flush();
                self.completions()?;
                self.conservation()?;
                work
            }
            Who::Target => {
                let work = self.target.poll(now);
                self.target.flush();
                work
            }
            Who::HostControl => self.host_control.poll(),
            Who::TargetControl => self.target_control.poll(),
        };
        self.trace.add(who as u64);
        self.trace.add(u64::from(work));
        self.trace.add(now.as_nanos() as u64);
        self.host_watch.check(&mut self.trace).map_err(|error| format!("host: {error}"))?;
        self.target_watch.check(&mut self.trace).map_err(|error| format!("target: {error}"))?;
        if let Some(violation) = &self.disk.borrow().violation {
            return Err(violation.clone());
        }
        self.check_open(self.allowed(), "that is what requests in flight may have opened")?;
        Ok(work)
    }

    fn completions(&mut self) -> Result<(), String> {
        while let Some(completion) = self.host.next_completion() {
            self.trace.add(completion.cookie);
            self.trace.add(u64::from(completion.result.is_ok()));
            self.ledger.completed(completion, self.scenario.disk_fails_one_in > 0)?;
        }
        Ok(())
    }

    /// Bytes of the host's memory that the target may reach now.
    fn allowed(&self) -> u64 {
        // The bring-up reads Identify data, and later the host does where it was told of news.
        let admin = if self.host.is_ready() { self.host.admin_bytes_open() } else { ADMIN_DATA_BYTES as u64 };
        self.ledger.open_bytes() + admin
    }

    fn check_open(&self, requests: u64, why: &str) -> Result<(), String> {
        let pads =
            if self.scenario.host_engine.write_pad { u64::from(self.scenario.host_engine.connections) } else { 0 };
        let most = requests + pads * PAD_BYTES;
        let open = self.host.engine().port().remote_bytes_open().unwrap_or(0);
        if open > most {
            return Err(format!("{open} bytes of the host are open, at most {most} may be: {why}"));
        }
        let open = self.target.engine().port().remote_bytes_open().unwrap_or(0);
        if open > 0 { Err(format!("{open} bytes of the target are open")) } else { Ok(()) }
    }

    /// The descriptors of a connection move between free, used, stale and absent; none is lost.
    fn conservation(&mut self) -> Result<(), String> {
        for connection in self.host.connections().into_iter().flatten() {
            let count = self.host.engine().descriptors(connection);
            let sum = count.free + count.used + count.quarantined + count.absent;
            let pad = u32::from(self.scenario.host_engine.write_pad);
            let all = match self.scenario.host_engine.registrations {
                0 => None,
                registrations => Some(registrations + pad),
            };
            let first = *self.descriptors.first().unwrap_or(&sum);
            if self.descriptors.is_empty() {
                self.descriptors.push(sum);
            }
            if sum != first || all.is_some_and(|all| all != sum) {
                return Err(format!("{connection:?} has {sum} descriptors, it had {first}: {count:?}"));
            }
        }
        Ok(())
    }

    fn submit(&mut self) -> Result<(), String> {
        for _ in 0..self.random.below(4) {
            let Some((cookie, pending)) = self.ledger.prepare(&mut self.random, self.scenario.read_share)? else {
                return Ok(());
            };
            if !self.try_submit(cookie, pending) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn try_submit(&mut self, cookie: u64, pending: Pending) -> bool {
        let block = self.scenario.geometry.block_bytes();
        let offset = pending.slot as u64 * u64::from(self.scenario.request_bytes);
        let length = pending.blocks as u32 * block;
        let whole = [Segment { memory: self.data, offset, length }];
        let halves = [
            Segment { memory: self.data, offset, length: length / 2 },
            Segment { memory: self.data, offset: offset + u64::from(length / 2), length: length / 2 },
        ];
        let single_range = self.scenario.host_device.capabilities.contiguity == Contiguity::SingleRange;
        let halve = length.is_multiple_of(2 * 4096) && !single_range && offset.is_multiple_of(4096);
        let segments = if halve { halves.as_slice() } else { whole.as_slice() };
        let taken = match pending.kind {
            Kind::Read => self.host.read(pending.lba, segments, cookie),
            Kind::Write => self.host.write(pending.lba, segments, cookie),
            Kind::Flush => self.host.flush_namespace(cookie),
        };
        if taken.is_ok() {
            self.ledger.submitted(cookie, pending);
        }
        taken.is_ok()
    }
}

fn target(
    engine: Engine<SimulatedPort>,
    scenario: &Scenario,
    random: Random,
) -> Result<(Target<SimulatedPort, Disk>, SharedBehaviour), String> {
    let geometry = scenario.geometry;
    let medium = memory(geometry.blocks() as usize * geometry.block_bytes() as usize)?;
    let (disk, behaviour) = Disk::new(medium, geometry, scenario.disk_depth, random);
    let buffers = memory(scenario.target.buffer_memory_bytes(scenario.busy_buffers))?;
    let target =
        Target::new(engine, vec![disk], buffers, scenario.target.clone()).map_err(|error| error.to_string())?;
    Ok((target, behaviour))
}
