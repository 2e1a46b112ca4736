//! Both sides, what steps them, a storm and its calm.

use super::{
    acts::OPENED_BYTES,
    faults::FAULTS,
    flight::{Flight, PLACE_BYTES, PLACES},
    jobs::{Job, SLOT_BYTES, SLOTS},
    party::Party,
    scenario::{Scenario, TARGET_RECEIVES},
};
use core::time::Duration;
use frwr_engine::{
    ConnectionId, ConnectionOptions, Grant, Received, RequestHandle, TraceRecord, provider::soft::SoftFabric,
};
use frwr_mempool::lane;
use frwr_support::{Random, Run};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// Steps behind which what has not happened will not.
pub(super) const PATIENCE: u32 = 40_000;
/// Of them those in which time passes slowly, for what waits for packets; behind them what waits for the clock.
const SHORT_TICKS: u32 = 2_000;
const SHORT_TICK: Duration = Duration::from_micros(2);
pub(super) const LONG_TICK: Duration = Duration::from_millis(1);
/// Steps in which whatever is on its way arrives.
const STEPS_TO_HEAR: u32 = 100;
/// Steps in which listening begins.
const STEPS_TO_LISTEN: u32 = 8;
/// One step in so many goes on with giving each side's memory another name.
const RENAMED_ONE_IN: u64 = 12;
/// Where memory stands that the host opens by `register_now`, and what it transfers from and to: behind the places.
pub(super) const STANDALONE_AT: usize = PLACES * PLACE_BYTES;
pub(super) const STANDALONES: usize = 16;
pub(super) const TRANSFERS_AT: usize = STANDALONE_AT + STANDALONES * 4096;
const HOST_BYTES: usize = TRANSFERS_AT + OPENED_BYTES;
/// Where the target has what it opens for the host's transfers: behind its slots.
pub(super) const OPENED_AT: usize = SLOTS * SLOT_BYTES;
const TARGET_BYTES: usize = OPENED_AT + OPENED_BYTES;

/// Where the target listens.
pub(super) fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 4420))
}

/// A transfer of the host's that was not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    Fetch,
    Write,
    Respond,
}

/// Both sides of a simulation.
pub(super) struct World<'a> {
    pub(super) run: &'a Run,
    pub(super) random: Random,
    pub(super) scenario: Scenario,
    pub(super) now: Duration,
    pub(super) host: Party,
    pub(super) target: Party,
    pub(super) cookie: u64,
    pub(super) flights: BTreeMap<u64, Flight>,
    /// What the memory of each place's last request was when that ended.
    pub(super) rests: Vec<Option<(Flight, u64)>>,
    /// The last request was refused, and the host has found no work since.
    pub(super) refused: bool,
    pub(super) busy_places: [bool; PLACES],
    /// Transfers of the host that were not told.
    pub(super) transfers: BTreeMap<u64, Transfer>,
    /// Commands that the target saw; none comes twice.
    pub(super) seen: BTreeSet<u64>,
    pub(super) jobs: BTreeMap<u64, Job>,
    pub(super) free_slots: Vec<usize>,
    /// Commands that found no slot, oldest first: they are taken up when there is one.
    pub(super) unserved: VecDeque<(ConnectionId, Received)>,
    /// The target's connection of each of the host's.
    pub(super) pairs: BTreeMap<ConnectionId, ConnectionId>,
    /// The host's name for a connection that is being opened, by what it said.
    pub(super) opening: BTreeMap<u64, ConnectionId>,
    pub(super) opened: u64,
    /// Connections that were told to be gone, of host and target.
    pub(super) gone: [BTreeSet<ConnectionId>; 2],
    /// Keys that `register_now` of the host opened.
    pub(super) standalones: Vec<(u64, RequestHandle, Grant)>,
    /// What the target opened for the host, by its connection.
    pub(super) granted: BTreeMap<ConnectionId, Option<Grant>>,
    pub(super) target_requests: BTreeMap<u64, ConnectionId>,
    /// Replies to nobody that were sent.
    pub(super) strays: u64,
    /// What the target does wrong with its next reply.
    pub(super) rude: Option<super::answers::Rudeness>,
    /// Something happened because of which connections may end.
    pub(super) may_end: Option<&'static str>,
    /// Something happened because of which requests may find too few MRs.
    pub(super) may_lack: bool,
    pub(super) calm: bool,
    pub(super) looked: usize,
    /// When memories have other names: apart, so that seeds draw what they drew without.
    renames: Random,
    trace: Option<lane::Receiver<TraceRecord>>,
}

impl<'a> World<'a> {
    /// # Errors
    /// What cannot be made.
    pub(super) fn new(run: &'a Run) -> Result<Self, String> {
        let mut random = run.random();
        let scenario = Scenario::new(&mut random, FAULTS.len());
        run.event(|| format!("{scenario:?}"));
        let fabric = SoftFabric::new();
        let parameters = frwr_engine::provider::ConnectionParameters::default().rnr_retry_count(scenario.rnr_retries);
        let options = ConnectionOptions::default().peer_receives(scenario.peer_receives).parameters(parameters);
        let mut host = Party::new(&fabric, scenario.host_device, scenario.host.clone(), options, HOST_BYTES)?;
        let options = ConnectionOptions::default().parameters(parameters);
        let target = Party::new(&fabric, scenario.target_device, scenario.target.clone(), options, TARGET_BYTES)?;
        let trace = host.engine.trace();
        let mut world = Self {
            run,
            random,
            scenario,
            now: Duration::ZERO,
            host,
            target,
            cookie: 0,
            flights: BTreeMap::new(),
            rests: vec![None; PLACES],
            refused: false,
            busy_places: [false; PLACES],
            transfers: BTreeMap::new(),
            seen: BTreeSet::new(),
            jobs: BTreeMap::new(),
            free_slots: (0..SLOTS).rev().collect(),
            unserved: VecDeque::new(),
            pairs: BTreeMap::new(),
            opening: BTreeMap::new(),
            opened: 0,
            gone: [BTreeSet::new(), BTreeSet::new()],
            standalones: Vec::new(),
            granted: BTreeMap::new(),
            target_requests: BTreeMap::new(),
            strays: 0,
            rude: None,
            may_end: None,
            may_lack: false,
            calm: false,
            looked: 0,
            renames: run.random().part(),
            trace,
        };
        world.target.engine.listen(address()).map_err(|error| error.to_string())?;
        (0..STEPS_TO_LISTEN).for_each(|_| world.step(SHORT_TICK));
        Ok(world)
    }

    /// The phase with faults.
    pub(super) fn storm(&mut self) {
        for _ in 0..self.scenario.steps {
            for _ in 0..self.random.below(self.scenario.acts_per_step) {
                self.act();
            }
            if self.random.one_in(self.scenario.fault_one_in) {
                self.fault();
            }
            if self.renames.one_in(RENAMED_ONE_IN) {
                self.host.rename_memory();
                self.target.rename_memory();
            }
            self.answer();
            let tick = self.random.below(self.scenario.tick + 1);
            self.step(Duration::from_micros(tick));
        }
    }

    fn fault(&mut self) {
        let mut random = self.random.part();
        let Some(kind) = random.weighted(&self.scenario.fault_weights) else { return };
        let fault = &FAULTS[kind];
        if self.run.strikes(fault.name) {
            if fault.ends_connections {
                self.may_end = Some(fault.name);
            }
            self.may_lack |= fault.takes_objects;
            fault.strike.strike(self, &mut random);
        }
    }

    /// Faults stop: all work ends.
    pub(super) fn calm(&mut self) {
        self.calm = true;
        self.rude = None;
        self.host.calm();
        self.target.calm();
        self.until("all connections are ready", |world| {
            let engine = &world.host.engine;
            !world.lives() || engine.connections().all(|connection| engine.is_ready(connection))
        });
        self.close_standalones();
        self.until("all requests were answered", |world| world.flights.is_empty());
        self.until("all transfers were told", |world| world.transfers.is_empty());
        self.until("all commands were dealt with", |world| world.has_no_jobs());
        self.disconnect_all("both sides disconnect");
        self.until("everything ended", |world| {
            world.flights.is_empty() && world.transfers.is_empty() && world.has_no_jobs()
        });
        self.until("both sides are disconnected", |world| {
            world.host.engine.is_disconnected() && world.target.engine.is_disconnected()
        });
        // All of that may have been so before the calm, and what was told of it not be heard yet (seed 459); a connect request of the
        // storm may still be on its way, from somebody who is gone (seed 251036).
        (0..STEPS_TO_HEAR).for_each(|_| self.step(SHORT_TICK));
        self.until("both sides are idle", |world| {
            let engines = [&world.host.engine, &world.target.engine];
            engines.iter().all(|engine| engine.is_disconnected()) && world.host.is_idle() && world.target.is_idle()
        });
        // A device that keeps what covers a memory, or is lost, may keep that as well.
        self.until("memories were removed", |world| [&world.host, &world.target].into_iter().all(Party::has_removed));
        self.check_nothing_left();
        if self.lives() {
            self.reconnects();
        }
    }

    fn has_no_jobs(&self) -> bool {
        self.jobs.is_empty() && self.unserved.is_empty()
    }

    /// Both ports work. One of which a completion queue overran does not, also where that came to light in the calm.
    fn lives(&self) -> bool {
        !self.host.lost && !self.target.lost
    }

    /// The owners of a port that does not work end what they have there: the device may never say anything of it again, since it has
    /// nowhere to say it (seed 10223).
    fn end_what_is_lost(&mut self) {
        if !self.lives() {
            self.disconnect_all("a port that does not work is given up");
        }
    }

    fn disconnect_all(&mut self, why: &'static str) {
        for party in [&mut self.host, &mut self.target] {
            for connection in party.engine.connections().collect::<Vec<_>>() {
                party.engine.disconnect(connection);
            }
        }
        self.may_end.get_or_insert(why);
    }

    /// One more connection, in whose place others ended: its first request succeeds (fault 32).
    fn reconnects(&mut self) {
        if self.host.engine.statistics().shared_receives_withdrawn > 0
            || self.target.engine.statistics().shared_receives_withdrawn > 0
        {
            return;
        }
        self.may_end = None;
        let connects = self.opened;
        self.until("another connection is ready", |world| {
            if world.opened == connects {
                world.connect();
            }
            let engine = &world.host.engine;
            world.opened > connects && engine.connections().any(|connection| engine.is_ready(connection))
        });
        let before = self.cookie;
        self.until("another request is taken", |world| {
            world.submit();
            world.cookie > before && !world.flights.is_empty()
        });
        self.until("another request is answered", |world| world.flights.is_empty());
    }

    pub(super) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for at in 0..PATIENCE {
            if done(self) {
                return;
            }
            self.end_what_is_lost();
            self.answer();
            self.step(if at < SHORT_TICKS { SHORT_TICK } else { LONG_TICK });
        }
        panic!("never: {what}; {}", self.describe());
    }

    fn describe(&self) -> String {
        let connections = |party: &Party| -> Vec<_> {
            let engine = &party.engine;
            engine.connections().map(|one| (one, engine.is_ready(one))).collect()
        };
        format!(
            "{:?}\ntransfers {:?}\njobs {:?}\nhost {:?} {:?}\n  waits {:?}\ntarget {:?} {:?}",
            self.flights,
            self.transfers,
            self.jobs,
            connections(&self.host),
            self.host.engine.statistics(),
            self.host.engine.waiting(),
            connections(&self.target),
            self.target.engine.statistics(),
        )
    }

    pub(super) fn step(&mut self, tick: Duration) {
        self.now += tick;
        self.step_host();
        self.step_target();
        if let Some(trace) = &mut self.trace {
            while trace.pop().is_some() {}
        }
        self.look();
    }

    fn step_host(&mut self) {
        let host = &mut self.host;
        let (control, engine, takes) =
            (awake(&mut host.control_sleeps), awake(&mut host.sleeps), awake(&mut host.taker_sleeps));
        if control {
            host.control.poll();
        }
        if engine {
            let work = host.engine.poll(self.now + host.ahead, &mut host.protocol);
            self.run.note(u64::from(work));
            self.refused &= work == 0;
            let mut told = 0;
            while takes && let Some(event) = self.host.engine.next_event() {
                self.host_event(event);
                told += 1;
            }
            let posted = self.host.engine.flush();
            assert!(work > 0 || (told, posted) == (0, 0), "a poll that found nothing leaves nothing behind");
        }
        if control {
            self.host.control.poll();
        }
    }

    fn step_target(&mut self) {
        let target = &mut self.target;
        let (control, engine) = (awake(&mut target.control_sleeps), awake(&mut target.sleeps));
        if control {
            target.control.poll();
        }
        if engine {
            let work = target.engine.poll(self.now + target.ahead, &mut target.protocol);
            self.run.note(u64::from(work));
            while let Some(event) = self.target.engine.next_event() {
                self.target_event(event);
            }
            self.target.engine.flush();
        }
        if control {
            self.target.control.poll();
        }
    }

    /// Messages that the host may send unasked are all that its target grants.
    pub(super) fn sends_all_unasked(&self) -> bool {
        self.scenario.peer_receives == TARGET_RECEIVES
    }
}

fn awake(sleeps: &mut u64) -> bool {
    let awake = *sleeps == 0;
    *sleeps = sleeps.saturating_sub(1);
    awake
}
