//! All parties of a simulation, and what steps them.

use super::{
    desk::{Desk, Pending},
    disk::{Medium, SharedMedium},
    effects::Effects,
    faults,
    hosts::{HostSide, desk_bytes},
    ledger::Ledger,
    nic::{Devices, Network},
    paper::Paper,
    party::{Side, memory},
    scenario::Scenario,
    targets::TargetSide,
    visitor::Visitor,
};
use core::time::Duration;
use frwr_nvmf::controller::ReservationWriter;
use frwr_nvmf::wire::AnaState;
use frwr_support::{Random, Run};

/// Rounds in which the target has to begin to listen.
const ROUNDS_TO_LISTEN: u64 = 1_000;
/// Rounds in which the first sessions have to be there: back-offs and time-outs pass in the long ticks of idle rounds.
pub(super) const ROUNDS_TO_END: u64 = 200_000;
/// Rounds without work after which time passes in long ticks: more than the largest transfer takes on the slowest wire, whose
/// packets are no work that a poll would report. With and without requests in flight.
const IDLE_ROUNDS: (u64, u64) = (400, 40);
/// Time between rounds while there is work.
const SHORT_TICK: Duration = Duration::from_micros(2);
/// Least and most time between idle rounds: less than a clock that judges takes for a standstill.
const LONG_TICKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(90));
/// Long ticks in the longest time-out.
const TICKS_PER_TIMEOUT: u32 = 20;

/// Who can step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A core of a host.
    Host(usize, usize),
    HostControl(usize),
    /// A core of the target.
    Target(usize),
    TargetControl,
    /// Who writes the file of its reservations.
    TargetWriter,
    Visitor,
    VisitorControl,
}

impl Who {
    /// A part of that program.
    pub(super) fn is_of(self, program: Program) -> bool {
        match self {
            Self::Host(host, _) | Self::HostControl(host) => program == Program::Host(host),
            Self::Target(_) | Self::TargetControl | Self::TargetWriter => program == Program::Target,
            Self::Visitor | Self::VisitorControl => false,
        }
    }
}

/// Whose program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Host(usize),
    Target,
}

/// Somebody that steps, and its own troubles.
pub(super) struct Party {
    pub(super) who: Who,
    /// It does nothing until then.
    pub(super) asleep_until: Duration,
    /// How far its clock is ahead of everybody's.
    pub(super) ahead: Duration,
    /// How far behind.
    pub(super) behind: Duration,
}

/// Hosts, a target and their devices, on one thread.
pub(super) struct World<'a> {
    pub(super) run: &'a Run,
    pub(super) scenario: Scenario,
    /// Who steps, and when.
    pub(super) random: Random,
    /// What is asked for.
    pub(super) asks: Random,
    /// What goes wrong.
    faults: Random,
    /// Virtual time.
    pub(super) now: Duration,
    pub(super) parties: Vec<Party>,
    pub(super) hosts: Vec<HostSide>,
    pub(super) target: TargetSide,
    pub(super) visitor: Option<Visitor>,
    pub(super) medium: SharedMedium,
    /// Where the target's reservations are kept, if they are.
    pub(super) paper: Option<Paper>,
    pub(super) ledger: Ledger,
    pub(super) explained: Effects,
    /// A program begins anew at that time, on a new device.
    pub(super) anew: Option<(Program, Duration)>,
    /// The disk is well again at that time.
    pub(super) disk_well_at: Duration,
    /// What was kept back comes at that time.
    pub(super) release_at: Duration,
    pub(super) network: Network,
    /// Looks at what takes long to look at.
    pub(super) looks: u64,
    fault_starts: u64,
}

impl<'a> World<'a> {
    /// The world of a seed; the target listens, and hosts begin to connect. `reserves`: they have reservations.
    ///
    /// # Errors
    /// What cannot be made.
    pub(super) fn new(run: &'a Run, devices: Devices, reserves: bool) -> Result<Self, String> {
        let mut random = run.random();
        let mut scenario = Scenario::new(&mut random.part(), reserves)?;
        let network = Network::new(devices, &scenario.target_device);
        if let Some(address) = network.address() {
            scenario.hosts.iter_mut().for_each(|host| host.options.address.set_ip(address));
            scenario.target.addresses.iter_mut().for_each(|listens| listens.set_ip(address));
        }
        let bytes = scenario.geometry.blocks() as usize * scenario.geometry.block_bytes() as usize;
        let memories = [memory(bytes)?, memory(bytes)?];
        let medium = Medium::new(memories, scenario.geometry, scenario.features, random.part());
        let paper = scenario.persists.then(|| Paper::new(random.part()));
        let target = TargetSide::new(&network, &scenario, &medium, paper.as_ref(), &mut random.part())?;
        let hosts = scenario.hosts.iter().map(|host| host.options.host_id).collect();
        let ledger = Ledger::new(scenario.geometry, scenario.features.write_through, hosts, scenario.persists);
        let (asks, faults, random) = (random.part(), random.part(), random.part());
        let mut world = Self {
            run,
            scenario,
            random,
            asks,
            faults,
            now: Duration::ZERO,
            parties: Vec::new(),
            hosts: Vec::new(),
            target,
            visitor: None,
            medium,
            paper,
            ledger,
            explained: Effects::NONE,
            anew: None,
            disk_well_at: Duration::MAX,
            release_at: Duration::MAX,
            network,
            looks: 0,
            fault_starts: 0,
        };
        for core in 0..world.target.cores.len() {
            world.add_party(Who::Target(core));
        }
        world.add_party(Who::TargetControl);
        if world.scenario.persists {
            world.add_party(Who::TargetWriter);
        }
        world.rounds("listening", ROUNDS_TO_LISTEN, |world| Ok(world.target.listens()))?;
        for host in 0..world.scenario.hosts.len() {
            world.add_host(host)?;
        }
        if world.scenario.asks_discovery {
            world.visitor = Some(Visitor::new(&world.network, &world.scenario)?);
            world.add_party(Who::Visitor);
            world.add_party(Who::VisitorControl);
        }
        Ok(world)
    }

    fn add_party(&mut self, who: Who) {
        let (asleep_until, ahead, behind) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        self.parties.push(Party { who, asleep_until, ahead, behind });
    }

    fn add_host(&mut self, host: usize) -> Result<(), String> {
        let scenario = &self.scenario.hosts[host];
        let members = usize::from(scenario.options.followers) + 1;
        let bytes = desk_bytes(&self.scenario, scenario);
        let memories = (0..members).map(|_| memory(bytes)).collect::<Result<Vec<_>, _>>()?;
        let first = self.ledger.desks.len();
        let (side, ids) = HostSide::new(&self.network, scenario, first, &memories)?;
        for (memory, id) in memories.into_iter().zip(ids) {
            self.ledger.desks.push(Desk::new(host, memory, id, self.scenario.request_bytes as usize));
        }
        self.hosts.push(side);
        (0..members).for_each(|member| self.add_party(Who::Host(host, member)));
        self.add_party(Who::HostControl(host));
        Ok(())
    }

    /// The device of a program.
    pub(super) fn side(&self, program: Program) -> &Side {
        match program {
            Program::Host(host) => &self.hosts[host].side,
            Program::Target => &self.target.side,
        }
    }

    /// One of the programs.
    pub(super) fn some_program(&self, random: &mut Random) -> Program {
        match random.below(self.hosts.len() as u64 + 1) as usize {
            host if host < self.hosts.len() => Program::Host(host),
            _ => Program::Target,
        }
    }

    /// A program is gone, with its device, and begins anew on another one.
    fn begin_anew(&mut self, program: Program) -> Result<(), String> {
        self.run.event(|| format!("{program:?} begins anew"));
        match program {
            Program::Target => {
                let mut random = self.random.part();
                // The address is free when the former device is gone.
                self.target.dies();
                let paper = self.paper.as_ref();
                self.target = TargetSide::new(&self.network, &self.scenario, &self.medium, paper, &mut random)?;
                self.ledger.fences.begin_anew();
            }
            Program::Host(host) => {
                let first = self.hosts[host].members[0].desk;
                let count = self.hosts[host].members.len();
                (first..first + count).for_each(|desk| self.ledger.haunted(desk));
                let memories: Vec<_> =
                    (first..first + count).map(|desk| self.ledger.desks[desk].memory().clone()).collect();
                let (mut side, ids) = HostSide::new(&self.network, &self.scenario.hosts[host], first, &memories)?;
                (first..).zip(ids).for_each(|(desk, id)| self.ledger.desks[desk].id = id);
                side.is_haunted = true;
                self.hosts[host] = side;
            }
        }
        for party in &mut self.parties {
            if party.who.is_of(program) {
                (party.asleep_until, party.ahead, party.behind) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
            }
        }
        Ok(())
    }

    /// The phase with faults.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn storm(&mut self) -> Result<(), String> {
        self.medium.borrow_mut().longest = self.scenario.disk_delay;
        if !self.scenario.faults_from_start {
            self.rounds("ready for the first time", ROUNDS_TO_END, |world| {
                Ok(world.hosts.iter().all(HostSide::is_ready))
            })?;
        }
        let weights = self.scenario.party_weights.clone();
        for _ in 0..self.scenario.steps {
            self.fault()?;
            let time = Duration::from_nanos(self.random.below(self.scenario.tick));
            self.pass(time)?;
            let party = self.random.weighted(&weights).unwrap_or(0);
            if self.parties[party].asleep_until > self.now {
                continue;
            }
            if let Who::Host(host, member) = self.parties[party].who {
                self.submit(host, member)?;
            }
            self.step(party)?;
        }
        Ok(())
    }

    fn fault(&mut self) -> Result<(), String> {
        if self.scenario.is_faultless() || !self.faults.one_in(self.scenario.fault_one_in) {
            return Ok(());
        }
        let Some(chosen) = self.faults.weighted(&self.scenario.fault_weights) else { return Ok(()) };
        let (fault, mut random) = (&faults::FAULTS[chosen], self.faults.part());
        if self.run.strikes(fault.name()) {
            self.fault_starts += 1;
            let effects = fault.strike(self, &mut random);
            self.explained |= effects;
        }
        Ok(())
    }

    /// Time passes, and what was to happen by then does.
    fn pass(&mut self, time: Duration) -> Result<(), String> {
        self.now += time;
        if let Some((program, _)) = self.anew.take_if(|(_, at)| *at <= self.now) {
            self.begin_anew(program)?;
        }
        if self.disk_well_at <= self.now {
            self.disk_well_at = Duration::MAX;
            self.calm_disks();
            self.medium.borrow_mut().longest = self.scenario.disk_delay;
        }
        if self.release_at <= self.now {
            self.release_at = Duration::MAX;
            self.hosts.iter().for_each(|host| host.side.faults.release());
            self.target.side.faults.release();
        }
        Ok(())
    }

    /// Disks behave from now on.
    fn calm_disks(&mut self) {
        self.medium.borrow_mut().calm();
        self.paper.iter().for_each(|paper| paper.fails(0));
    }

    /// The target's machine loses its power, and starts again; false where it cannot.
    pub(super) fn cut_power(&mut self) -> bool {
        let Some(monitor) = self.target.side.monitor.clone().filter(|_| self.anew.is_none()) else { return false };
        monitor.remove_device();
        // With the program go the operations that the disk had not begun.
        self.target.dies();
        self.medium.borrow_mut().lose_power();
        self.paper.iter().for_each(Paper::lose_power);
        self.ledger.lost_power();
        self.anew = Some((Program::Target, self.now));
        true
    }

    /// A port whose completion queue overran is of no use any more: its program begins anew.
    ///
    /// # Errors
    /// No fault explains it.
    pub(super) fn replace_overrun(&mut self, program: Program) -> Result<(), String> {
        if !self.side(program).has_overrun() || self.anew.is_some() {
            return Ok(());
        }
        if !self.explained.contains(Effects::OVERRUNS) {
            return Err("a completion queue overran, and no fault explains it".to_owned());
        }
        self.anew = Some((program, self.now + self.scenario.patience));
        self.explained |= Effects::ENDS | Effects::TIME_OUTS | Effects::SILENCE | Effects::BREACHES;
        Ok(())
    }

    /// How the namespace can be reached from now on.
    pub(super) fn set_path(&mut self, state: AnaState) {
        // It is the one subsystem that there is.
        let _ = self.target.cores[0].target.set_ana_state(&self.scenario.target.subsystem, None, state);
    }

    /// Everything that goes wrong ends.
    pub(super) fn end_faults(&mut self) -> Result<(), String> {
        // A host that never returns stays away for as long as its target takes to find out.
        let frozen = self.anew.take_if(|(program, at)| {
            *at == Duration::MAX && matches!(program, Program::Host(host) if self.scenario.hosts[*host].keeps_alive())
        });
        if let Some((program, _)) = self.anew.take() {
            self.begin_anew(program)?;
        }
        self.hosts.iter().for_each(|host| host.side.calm());
        self.target.side.calm();
        self.set_path(AnaState::Optimized);
        self.calm_disks();
        self.paper.iter().for_each(|paper| paper.ends_after(u64::MAX));
        // No clock goes back: those that are behind wait until they are not.
        let ahead = self.parties.iter().map(|party| party.ahead).max().unwrap_or_default();
        self.now += ahead;
        for party in &mut self.parties {
            let is_frozen = frozen.is_some() && party.asleep_until == Duration::MAX;
            party.asleep_until = if is_frozen { Duration::MAX } else { Duration::ZERO };
            (party.ahead, party.behind) = (Duration::ZERO, Duration::ZERO);
        }
        (self.disk_well_at, self.release_at) = (Duration::MAX, Duration::MAX);
        match frozen {
            Some((program, _)) => self.end_frozen(program),
            None => Ok(()),
        }
    }

    /// The target has nobody but those who live; then the program begins anew.
    fn end_frozen(&mut self, program: Program) -> Result<(), String> {
        self.rounds("the target ended the sessions of a host that never returned", ROUNDS_TO_END, |world| {
            let live = || world.hosts.iter().enumerate().filter(|(host, _)| program != Program::Host(*host));
            let visits = world.visitor.as_ref().is_some_and(|visitor| !visitor.is_stopped());
            let all: usize = live().map(|(_, host)| host.connections()).sum();
            Ok(!visits && live().all(|(_, host)| host.is_ready()) && world.target.connections() == all)
        })?;
        self.begin_anew(program)
    }

    /// Everybody steps in turn until something is done.
    ///
    /// # Errors
    /// What was wrong, or that it is never done.
    pub(super) fn rounds(
        &mut self,
        what: &str,
        most: u64,
        mut done: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut idle = 0;
        let long = (self.scenario.longest_timeout() / TICKS_PER_TIMEOUT).clamp(LONG_TICKS.0, LONG_TICKS.1);
        for _ in 0..most {
            if done(self)? {
                return Ok(());
            }
            let patience = if self.ledger.is_empty() { IDLE_ROUNDS.1 } else { IDLE_ROUNDS.0 };
            self.pass(if idle > patience { long } else { SHORT_TICK })?;
            let mut work = 0;
            for party in 0..self.parties.len() {
                if self.parties[party].asleep_until <= self.now {
                    work += self.step(party)?;
                }
            }
            idle = if work == 0 { idle + 1 } else { 0 };
        }
        let in_flight: Vec<_> = self.ledger.desks.iter().map(Desk::describe).collect();
        Err(format!("never: {what}; in flight: {in_flight:?}"))
    }

    fn step(&mut self, index: usize) -> Result<u32, String> {
        let party = &self.parties[index];
        let now = (self.now + party.ahead).saturating_sub(party.behind);
        let (explained, lane) = (self.explained, self.scenario.lane);
        let work = match party.who {
            Who::Host(host, member) => {
                self.ledger.failures = self.medium.borrow().failures;
                let side = &mut self.hosts[host];
                let work = side.step(member, now, &mut self.ledger, explained, lane);
                let work = work.map_err(|error| format!("host {host}, core {member}: {error}"))?;
                if side.is_haunted && side.members[0].host.statistics().sessions > 0 {
                    side.is_haunted = false;
                    let members = side.members.iter().map(|member| member.desk);
                    for desk in members {
                        self.ledger.exorcise(desk)?;
                    }
                }
                self.medium.borrow_mut().shut_out = self.ledger.shut_out();
                self.check_host(host, member)?;
                work
            }
            Who::HostControl(host) => self.hosts[host].side.control.poll(),
            Who::Target(core) => {
                let work = self.target.step(core, now, explained, lane)?;
                self.check_target(core)?;
                work
            }
            Who::TargetControl => self.target.side.control.poll(),
            // Nobody is told of what the power has ended.
            Who::TargetWriter if self.anew.is_some() && self.paper.as_ref().is_some_and(Paper::is_ending) => 0,
            Who::TargetWriter => {
                let work = self.target.writer.as_mut().is_some_and(ReservationWriter::step);
                if self.paper.as_ref().is_some_and(Paper::has_ended) {
                    self.cut_power();
                }
                u32::from(work)
            }
            Who::Visitor => self.visitor.as_mut().map_or(Ok(0), |visitor| {
                self.run.note(visitor.trace());
                visitor.step(now, explained).map_err(|error| format!("discovery: {error}"))
            })?,
            Who::VisitorControl => self.visitor.as_mut().map_or(0, |visitor| visitor.side.control.poll()),
        };
        self.run.note((index as u64) << 32 | u64::from(work));
        self.run.note(now.as_nanos() as u64);
        Ok(work)
    }

    fn submit(&mut self, host: usize, member: usize) -> Result<(), String> {
        for _ in 0..self.asks.below(self.scenario.burst + 1) {
            if !self.run.takes_requests() || self.hosts[host].members[member].host.free_requests() == 0 {
                return Ok(());
            }
            match self.submit_shared(host, member)? {
                Some(true) => continue,
                Some(false) => return Ok(()),
                None => {}
            }
            let side = &mut self.hosts[host].members[member];
            let prepared = self.ledger.prepare(side.desk, &mut self.asks, &self.scenario.work)?;
            let Some((cookie, pending)) = prepared else { continue };
            if !side.try_submit(&mut self.ledger, cookie, pending) {
                return Ok(());
            }
            self.submitted((host, member), cookie, &pending);
        }
        Ok(())
    }

    /// A request was taken.
    pub(super) fn submitted(&self, (host, member): (usize, usize), cookie: u64, pending: &Pending) {
        self.run.submitted();
        self.run.note(cookie);
        self.run.event(|| format!("host {host}, core {member}: {pending:?}"));
    }
}
