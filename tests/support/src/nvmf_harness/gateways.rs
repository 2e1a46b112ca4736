//! Several targets in front of one medium, and a host with a path to each.

use super::gated::{Gate, Gated, Switch};
use super::{BLOCK, BLOCKS, DATA_BYTES, device, engine, host_options, memory, subsystem, target};
use core::time::Duration;
use frwr_engine::MemoryAccess;
use frwr_engine::control::Control;
use frwr_engine::gather::{MemoryId, Segment};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftPort};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{NewNamespace, Subsystem, Target, TargetOptions};
use frwr_nvmf::host::{Host, HostCompletion, HostOptions, PathChange, PathState, Paths, PathsOptions};
use frwr_nvmf::storage::Comparing;
use frwr_nvmf::wire::AnaState;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Operations that each way to the medium may have.
const DEPTH: usize = 64;
/// The ANA group of the namespace.
const GROUP: u32 = 1;

/// Where a gateway listens.
fn address(gateway: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 4420 + gateway as u16))
}

/// What a gateway's process runs.
type GatewayTarget = Target<SoftPort, Comparing<Gated>>;

/// A target, or the place of one that was killed.
pub struct Gateway {
    target: Option<(Control<SoftDevice>, GatewayTarget)>,
    /// What its way to the medium does.
    pub switch: Rc<Switch>,
    /// It stands still where this is not set.
    pub polled: bool,
    nguid: [u8; 16],
    state: AnaState,
}

/// What a test wants otherwise.
pub struct Wanted {
    pub gateways: usize,
    pub host: HostOptions,
    pub paths: PathsOptions,
    /// The name of each gateway's namespace.
    pub nguids: Vec<[u8; 16]>,
    /// Blocks of each gateway's namespace.
    pub blocks: Vec<u64>,
    pub states: Vec<AnaState>,
}

impl Default for Wanted {
    fn default() -> Self {
        let states = vec![AnaState::Optimized, AnaState::NonOptimized, AnaState::NonOptimized];
        let (host, paths) = (host_options().queue_depth(8), PathsOptions::default());
        Self { gateways: 2, host, paths, nguids: vec![[7; 16]; 3], blocks: vec![BLOCKS; 3], states }
    }
}

pub struct Gateways {
    fabric: SoftFabric,
    profile: String,
    medium: DeviceMemory,
    pub gateways: Vec<Gateway>,
    host_controls: Vec<Control<SoftDevice>>,
    pub paths: Paths<SoftPort>,
    pub data: DeviceMemory,
    data_id: MemoryId,
    pub now: Duration,
    /// What passes between two steps.
    pub tick: Duration,
    pub completions: Vec<HostCompletion>,
    pub changes: Vec<PathChange>,
}

impl Gateways {
    pub fn new(profile: &str, wanted: &Wanted) -> Self {
        let fabric = SoftFabric::new();
        let medium = memory(BLOCKS as usize * BLOCK as usize);
        let (mut host_controls, mut hosts) = (Vec::new(), Vec::new());
        for gateway in 0..wanted.gateways {
            let options = wanted.host.clone().address(address(gateway));
            let (control, engine) = engine(device(&fabric, profile), options.engine());
            hosts.push(Host::new(engine, memory(options.memory_bytes()), options).unwrap());
            host_controls.push(control);
        }
        let mut paths = Paths::new(hosts, wanted.paths.clone()).unwrap();
        let data = memory(DATA_BYTES);
        let data_id = paths.add_memory(&data, MemoryAccess::ReadWrite).unwrap();
        let gateways = (0..wanted.gateways).map(|at| {
            let switch = Rc::new(Switch { gate: Gate::Open.into(), blocks: wanted.blocks[at].into(), held: 0.into() });
            Gateway { target: None, switch, polled: true, nguid: wanted.nguids[at], state: wanted.states[at] }
        });
        let mut all = Self {
            fabric,
            profile: profile.to_owned(),
            medium,
            gateways: gateways.collect(),
            host_controls,
            paths,
            data,
            data_id,
            now: Duration::ZERO,
            tick: Duration::from_micros(10),
            completions: Vec::new(),
            changes: Vec::new(),
        };
        (0..wanted.gateways).for_each(|at| all.start(at));
        all
    }

    /// All paths have a session.
    pub fn ready(profile: &str, wanted: &Wanted) -> Self {
        let mut all = Self::new(profile, wanted);
        all.paths.start();
        all.until("ready", |all| {
            (0..all.paths.count()).all(|path| matches!(all.paths.state(path), Some(PathState::Connected(_))))
        });
        all.changes.clear();
        all
    }

    /// A gateway's process begins.
    pub fn start(&mut self, at: usize) {
        let gateway = &self.gateways[at];
        let storage = Gated::over(self.medium.clone(), BLOCK, DEPTH, &gateway.switch);
        // Of its process.
        let storage = Comparing::new(storage, &Arc::default()).unwrap();
        let mut one = Subsystem::new(subsystem(), vec![]);
        one.namespaces =
            vec![NewNamespace { identifier: 1, nguid: Some(gateway.nguid), ana_group: GROUP, active: true, storage }];
        one.ana_states = vec![(GROUP, gateway.state)];
        let options =
            TargetOptions::new(address(at), subsystem()).queue_entries(40).buffer_bytes(32 << 10).namespaces(2);
        let made = target(&self.fabric, &self.profile, options, vec![one], 8);
        self.gateways[at].target = Some(made);
        self.gateways[at].polled = true;
    }

    /// A gateway's process is gone at once, with what its way to the medium had not begun.
    pub fn kill(&mut self, at: usize) {
        self.gateways[at].target = None;
    }

    pub fn is_alive(&self, at: usize) -> bool {
        self.gateways[at].target.is_some()
    }

    pub fn target(&mut self, at: usize) -> &mut GatewayTarget {
        &mut self.gateways[at].target.as_mut().unwrap().1
    }

    pub fn set_ana(&mut self, at: usize, state: AnaState) {
        self.gateways[at].state = state;
        if self.is_alive(at) {
            self.target(at).set_ana_state(&subsystem(), Some(GROUP), state).unwrap();
        }
    }

    /// The host's side of a path ends its connections, as a network would.
    pub fn cut(&mut self, path: u16) {
        self.paths.host_mut(path).unwrap().drop_connections();
    }

    pub fn step(&mut self) {
        self.now += self.tick;
        self.host_controls.iter_mut().for_each(|control| {
            control.poll();
        });
        let work = self.paths.poll(self.now);
        assert!(work > 0 || !self.paths.hosts().any(|host| host.engine().has_pending()), "0 leaves nothing to flush");
        self.paths.flush();
        while let Some(completion) = self.paths.next_completion() {
            self.completions.push(completion);
        }
        while let Some(change) = self.paths.next_change() {
            self.changes.push(change);
        }
        for gateway in &mut self.gateways {
            if let (Some((control, target)), true) = (&mut gateway.target, gateway.polled) {
                control.poll();
                target.poll(self.now);
                target.flush();
            }
        }
    }

    /// Steps until something holds.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..100_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        let of_paths = (0..self.paths.count()).map(|path| (self.paths.state(path), self.paths.path_statistics(path)));
        panic!("never {what}; {:?} {:?}", of_paths.collect::<Vec<_>>(), self.paths.statistics());
    }

    /// Steps until a gateway's way to the medium has so many operations, which it does not begin.
    pub fn held(&mut self, at: usize, operations: usize) {
        self.until("held", |all| all.gateways[at].switch.held.get() == operations);
    }

    pub fn steps(&mut self, count: u32) {
        (0..count).for_each(|_| self.step());
    }

    /// Steps until as many requests have ended.
    pub fn completed(&mut self, count: usize) -> Vec<HostCompletion> {
        self.until("completed", |all| all.completions.len() >= count);
        std::mem::take(&mut self.completions)
    }

    pub fn segment(&self, block: u64) -> Segment {
        Segment { memory: self.data_id, offset: block * u64::from(BLOCK), length: BLOCK }
    }

    pub fn fill(&self, block: u64, byte: u8) {
        self.data.fill(block as usize * BLOCK as usize, BLOCK as usize, byte).unwrap();
    }

    /// The first byte of a block of the host's memory, of which all are the same.
    pub fn byte(&self, block: u64) -> u8 {
        all_of(&self.data, block)
    }

    /// The same of the medium.
    pub fn on_medium(&self, block: u64) -> u8 {
        all_of(&self.medium, block)
    }

    /// Shuts the host down.
    pub fn finish(&mut self) {
        self.paths.shut_down();
        self.until("stopped", |all| all.paths.is_stopped());
        assert_eq!(self.paths.outstanding(), 0);
    }
}

fn all_of(memory: &DeviceMemory, block: u64) -> u8 {
    let mut bytes = vec![0; BLOCK as usize];
    memory.read(block as usize * BLOCK as usize, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {block} is of one write");
    bytes[0]
}
