//! A target and a host on one software fabric, stepped by hand on one thread.

pub mod cached;
pub mod gated;
pub mod gateways;
pub mod raw;
pub mod reservations;
pub mod scripted;
pub mod spread;

use core::time::Duration;
use frwr_engine::control::Control;
use frwr_engine::gather::{MemoryId, Segment};
use frwr_engine::provider::Device;
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_engine::{Engine, EngineOptions, MemoryAccess};
use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
use frwr_nvmf::controller::{Subsystem, Target, TargetListening, TargetOptions};
use frwr_nvmf::host::{Host, HostCompletion, HostError, HostOptions};
use frwr_nvmf::storage::{MemoryStorage, Storage};
use frwr_nvmf::wire::Nqn;

/// All profiles of the software NIC.
pub const PROFILES: [&str; 5] = ["reg_mr", "window", "umr", "umr:fixed-key", "rxe"];
/// Bytes per block of the namespace.
pub const BLOCK: u32 = 4096;
/// Blocks of the namespace.
pub const BLOCKS: u64 = 256;
/// Data memory of the host.
pub const DATA_BYTES: usize = 1 << 20;

pub fn memory(bytes: usize) -> DeviceMemory {
    let mut region = Region::map(&RegionOptions::new(bytes).pages(PagePolicy::Exactly(PageSize::Plain))).unwrap();
    region.carve(bytes, 4096).unwrap().into_device_memory()
}

fn engine(device: SoftDevice, options: EngineOptions) -> (Control<SoftDevice>, Engine<SoftPort>) {
    let mut control = Control::new(device);
    let engine = engine_of(&mut control, options);
    (control, engine)
}

/// One more core of a device.
pub fn engine_of<D: Device>(control: &mut Control<D>, options: EngineOptions) -> Engine<D::Port> {
    let capabilities = *control.device().capabilities();
    let bytes = Engine::<D::Port>::region_bytes(&options, &capabilities).unwrap();
    let pages = PagePolicy::Exactly(PageSize::Plain);
    let mut region = Region::map(&RegionOptions::new(bytes).pages(pages)).unwrap();
    let (send, receive) = Engine::<D::Port>::completion_entries(&options, &capabilities).unwrap();
    let (port, link) = control.open_core(send, receive).unwrap();
    Engine::new(port, link, &mut region, options, &capabilities).unwrap()
}

pub fn subsystem() -> Nqn {
    Nqn::new("nqn.2014-08.org.nvmexpress:frwr").unwrap()
}

pub fn host_options() -> HostOptions {
    let host = Nqn::new("nqn.2014-08.org.nvmexpress:host").unwrap();
    HostOptions::new("127.0.0.1:4420".parse().unwrap(), subsystem(), host)
}

pub fn target_options() -> TargetOptions {
    TargetOptions::new("127.0.0.1:4420".parse().unwrap(), subsystem()).queue_entries(40).buffer_bytes(32 << 10)
}

fn device(fabric: &SoftFabric, profile: &str) -> SoftDevice {
    fabric.device(SoftOptions::new(profile.parse().unwrap()))
}

/// A host without a target of its own, over whatever device a test has.
pub struct LoneHost<D: Device = SoftDevice> {
    pub host: Host<D::Port>,
    control: Control<D>,
    pub now: Duration,
}

impl LoneHost {
    pub fn new(fabric: &SoftFabric, profile: &str, options: HostOptions) -> Self {
        let engine = options.engine();
        Self::over(device(fabric, profile), engine, options)
    }
}

impl<D: Device> LoneHost<D> {
    /// `engine`: what the host says ([`HostOptions::engine`]), and what a test wants otherwise.
    pub fn over(device: D, engine: EngineOptions, options: HostOptions) -> Self {
        let mut control = Control::new(device);
        let engine = engine_of(&mut control, engine);
        let mut host = Host::new(engine, memory(options.memory_bytes()), options).unwrap();
        host.start();
        Self { host, control, now: Duration::ZERO }
    }

    pub fn step(&mut self) {
        self.now += Duration::from_micros(1);
        self.control.poll();
        self.host.poll(self.now);
        self.host.flush();
        self.control.poll();
    }

    /// Polls, beside threads that serve it, until something holds.
    pub fn until(&mut self, mut done: impl FnMut(&Host<D::Port>) -> bool) {
        while !done(&self.host) {
            assert_eq!(self.host.failure(), None);
            self.step();
            std::thread::yield_now();
        }
    }

    pub fn finish(&mut self) {
        self.host.shut_down();
        self.until(|host| host.is_stopped());
    }
}

/// A target that is to listen.
fn target<S: Storage>(
    fabric: &SoftFabric,
    profile: &str,
    options: TargetOptions,
    subsystems: Vec<Subsystem<S>>,
    busy: u32,
) -> (Control<SoftDevice>, Target<SoftPort, S>) {
    let (control, engine) = engine(device(fabric, profile), options.engine());
    let buffers = memory(options.buffer_memory_bytes(busy));
    let mut target = Target::with_subsystems(engine, subsystems, buffers, options).unwrap();
    target.listen().unwrap();
    (control, target)
}

/// The subsystem of [`target_options`], with a namespace of zeros.
fn zeros() -> Vec<Subsystem<MemoryStorage>> {
    let namespace = MemoryStorage::new(memory(BLOCKS as usize * BLOCK as usize), BLOCK, 64).unwrap();
    vec![Subsystem::new(subsystem(), vec![namespace])]
}

pub struct Pair<S: Storage = MemoryStorage> {
    pub host: Host<SoftPort>,
    pub target: Target<SoftPort, S>,
    host_control: Control<SoftDevice>,
    target_control: Control<SoftDevice>,
    pub now: Duration,
    /// What passes between two steps.
    pub tick: Duration,
    /// In how many of the target's steps its Control is polled: one in this many.
    pub target_control_every: u64,
    target_steps: u64,
    pub data: DeviceMemory,
    pub data_id: MemoryId,
    pub completions: Vec<HostCompletion>,
    fabric: SoftFabric,
    profile: String,
}

impl Pair {
    pub fn new(profile: &str) -> Self {
        Self::with(profile, host_options(), target_options())
    }

    pub fn with(profile: &str, host: HostOptions, target: TargetOptions) -> Self {
        Self::with_buffers(profile, host, target, 8)
    }

    /// `busy`: data buffers of the target beside the least.
    pub fn with_buffers(profile: &str, host: HostOptions, target: TargetOptions, busy: u32) -> Self {
        Self::with_subsystems(profile, host, target, zeros(), busy)
    }

    /// Why a host cannot be made.
    pub fn host_error(profile: &str, host: HostOptions) -> HostError {
        let options = host_options().engine();
        let (_control, engine) = engine(device(&SoftFabric::new(), profile), options);
        let Err(error) = Host::new(engine, memory(host.memory_bytes()), host) else { panic!("a host was made") };
        error
    }

    /// Puts another target, whose medium is zeros, in the place of this one, whose connections end.
    pub fn replace_target(&mut self, options: TargetOptions) {
        self.target.shut_down();
        assert!(self.target.stop_listening());
        self.until("drained", |pair| pair.target.is_drained() && pair.host.statistics().failures > 0);
        (self.target_control, self.target) = target(&self.fabric, &self.profile, options, zeros(), 8);
        self.tick = Duration::from_micros(100);
        self.until("listening", |pair| pair.target.statistics().listening == TargetListening::Listens);
    }
    pub fn ready(profile: &str) -> Self {
        let mut pair = Self::new(profile);
        pair.bring_up();
        pair
    }
}

impl<S: Storage> Pair<S> {
    pub fn with_subsystems(
        profile: &str,
        host: HostOptions,
        target: TargetOptions,
        subsystems: Vec<Subsystem<S>>,
        busy: u32,
    ) -> Self {
        let fabric = SoftFabric::new();
        let (host_control, mut host_engine) = engine(device(&fabric, profile), host.engine());
        let (target_control, target) = self::target(&fabric, profile, target, subsystems, busy);
        let data = memory(DATA_BYTES);
        let data_id = host_engine.add_memory(data.clone(), MemoryAccess::ReadWrite).unwrap();
        let host = Host::new(host_engine, memory(host.memory_bytes()), host).unwrap();
        let mut pair = Self {
            host,
            target,
            host_control,
            target_control,
            now: Duration::ZERO,
            tick: Duration::from_micros(1),
            target_control_every: 1,
            target_steps: 0,
            data,
            data_id,
            completions: Vec::new(),
            fabric,
            profile: profile.to_owned(),
        };
        pair.until("listening", |pair| pair.target.statistics().listening == TargetListening::Listens);
        pair
    }

    pub fn bring_up(&mut self) {
        self.host.start();
        self.until("ready", |pair| pair.host.is_ready());
    }

    pub fn step_target(&mut self) {
        self.target_steps += 1;
        if self.target_steps.is_multiple_of(self.target_control_every) {
            self.target_control.poll();
        }
        self.target.poll(self.now);
        self.target.flush();
    }

    pub fn step_host(&mut self) {
        self.host_control.poll();
        let work = self.host.poll(self.now);
        assert!(work > 0 || !self.host.engine().has_pending(), "what returns 0 leaves nothing to flush");
        self.host.flush();
        self.host_control.poll();
        while let Some(completion) = self.host.next_completion() {
            self.completions.push(completion);
        }
    }

    pub fn step(&mut self) {
        self.now += self.tick;
        self.step_host();
        self.step_target();
    }

    /// Steps until something holds.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..50_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!(
            "never {what}; host {:?} {:?} {:?}; target {:?}\nhost engine {:?}\ntarget engine {:?}",
            self.host.statistics(),
            self.host.last_failure(),
            self.host.failure(),
            self.target.statistics(),
            self.host.engine().statistics(),
            self.target.engine().statistics()
        );
    }

    /// Steps until as many requests have ended.
    pub fn completed(&mut self, count: usize) -> Vec<HostCompletion> {
        self.until("completed", |pair| pair.completions.len() >= count);
        std::mem::take(&mut self.completions)
    }

    pub fn segment(&self, block: u64, blocks: u32) -> Segment {
        Segment { memory: self.data_id, offset: block * u64::from(BLOCK), length: blocks * BLOCK }
    }

    pub fn fill(&self, block: u64, byte: u8) {
        self.data.fill(block as usize * BLOCK as usize, BLOCK as usize, byte).unwrap();
    }

    pub fn block(&self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        self.data.read(block as usize * BLOCK as usize, &mut bytes).unwrap();
        bytes
    }

    /// Shuts host and target down, and proves that nothing is left.
    pub fn finish(&mut self) {
        self.host.shut_down();
        self.until("stopped", |pair| pair.host.is_stopped());
        self.target.shut_down();
        self.until("drained", |pair| pair.target.is_drained());
        assert_eq!(self.host.failure(), None);
        assert_eq!(self.host.statistics().outstanding, 0);
        assert_eq!((self.target.statistics().commands_in_flight, self.target.statistics().slots_used), (0, 0));
    }
}
