//! A host and a target on one reactor, over the software NIC, with a load that keeps the queue full.

use core::{convert::Infallible, time::Duration};
use frwr_engine::{
    Engine, EngineOptions, MemoryAccess,
    control::Control,
    gather::{MemoryId, Segment},
    provider::{
        Device, Port,
        soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort, SoftProfile},
    },
};
use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
use frwr_nvmf::{
    controller::{Target, TargetOptions},
    host::{ADMIN_DATA_BYTES, Host, HostOptions},
    storage::MemoryStorage,
    wire::Nqn,
};
use frwr_reactor::{Clock, Context, Now, Options, Poller, Reactor, Schedule, Sleep, Source, VirtualClock, Wiring};
use std::net::SocketAddr;

/// Whatever kept a part from being made.
type AnyError = Box<dyn std::error::Error>;

/// The target's subsystem.
pub const SUBSYSTEM: &str = "nqn.2026-11.invalid.frwr:block";
/// Bytes per block.
const BLOCK_BYTES: u32 = 4096;
/// Blocks of the namespace.
const BLOCKS: u64 = 1024;
/// Where the target listens.
const PORT: u16 = 4420;
/// Steps in which the host has to become ready.
const STEPS_TO_READY: u32 = 100_000;
/// Virtual time between two steps.
const TICK: Duration = Duration::from_micros(1);

/// What the reactor carries.
pub struct Carried<P: Port> {
    /// The host.
    pub host: Host<P>,
    /// The target.
    pub target: Target<SoftPort, MemoryStorage>,
    /// Requests that ended with success.
    pub succeeded: u64,
    /// Requests that did not.
    pub failed: u64,
    /// Whether requests that ended are followed by others.
    pub refill: bool,
    /// Whether every third request writes. Of such a one the target fetches the data before it replies: one iteration more.
    pub writes: bool,
    data: MemoryId,
    idle: Vec<u64>,
    next: u64,
}

impl<P: Port> Context for Carried<P> {
    type Message = Infallible;

    fn message(&mut self, _: Source, message: Infallible, _: &Now) {
        match message {}
    }
}

impl<P: Port> Carried<P> {
    fn poll_host(&mut self, now: Duration) -> u32 {
        let mut work = self.host.poll(now);
        while let Some(completion) = self.host.next_completion() {
            self.succeeded += u64::from(completion.result.is_ok());
            self.failed += u64::from(completion.result.is_err());
            self.idle.push(completion.cookie);
            work += 1;
        }
        while self.refill
            && self.host.is_ready()
            && let Some(slot) = self.idle.pop()
        {
            let (lba, length) = (self.next % BLOCKS, BLOCK_BYTES);
            let segments = [Segment { memory: self.data, offset: slot * u64::from(BLOCK_BYTES), length }];
            let write = self.writes && self.next.is_multiple_of(3);
            let taken =
                if write { self.host.write(lba, &segments, slot) } else { self.host.read(lba, &segments, slot) };
            if taken.is_err() {
                self.idle.push(slot);
                break;
            }
            self.next += 1;
            work += 1;
        }
        work
    }
}

struct HostPoller;

impl<P: Port> Poller<Carried<P>> for HostPoller {
    fn poll(&mut self, carried: &mut Carried<P>, now: &Now) -> u32 {
        carried.poll_host(now.time())
    }

    fn flush(&mut self, carried: &mut Carried<P>, _: &Now) {
        carried.host.flush();
    }

    fn sleep_until(&self, _: &Carried<P>) -> Sleep {
        Sleep::Busy
    }
}

struct TargetPoller;

impl<P: Port> Poller<Carried<P>> for TargetPoller {
    fn poll(&mut self, carried: &mut Carried<P>, now: &Now) -> u32 {
        let work = carried.target.poll(now.time());
        // As the reactor application does: the host polls next, and what it waits for goes out first.
        carried.target.flush();
        work
    }

    fn flush(&mut self, carried: &mut Carried<P>, _: &Now) {
        carried.target.flush();
    }

    fn sleep_until(&self, _: &Carried<P>) -> Sleep {
        Sleep::Busy
    }
}

/// The reactor, the Controls beside it, and its clock.
pub struct Stepped<D: Device> {
    /// The reactor.
    pub reactor: Reactor<Carried<D::Port>>,
    clock: VirtualClock,
    host_control: Control<D>,
    target_control: Control<SoftDevice>,
    fabric: SoftFabric,
}

impl<D: Device> Stepped<D> {
    /// A host that is ready, at a queue depth; `wrap` makes the host's device of the software NIC.
    ///
    /// # Errors
    /// What cannot be made.
    pub fn new(
        profile: SoftProfile,
        queue_depth: u16,
        remote_invalidation: bool,
        wrap: impl FnOnce(SoftDevice) -> D,
    ) -> Result<Self, AnyError> {
        Self::with_target(profile, queue_depth, remote_invalidation, wrap, |_| {})
    }

    /// The same with other options of the target.
    ///
    /// # Errors
    /// What cannot be made.
    pub fn with_target(
        profile: SoftProfile,
        queue_depth: u16,
        remote_invalidation: bool,
        wrap: impl FnOnce(SoftDevice) -> D,
        change: impl FnOnce(&mut TargetOptions),
    ) -> Result<Self, AnyError> {
        let fabric = SoftFabric::new();
        let device = SoftOptions::new(profile);
        let address = SocketAddr::from(([127, 0, 0, 1], PORT));
        let subsystem = Nqn::new(SUBSYSTEM)?;
        let mut options = HostOptions::new(address, subsystem, Nqn::new("nqn.2026-11.invalid.frwr:host")?);
        (options.queue_depth, options.remote_invalidation) = (queue_depth, remote_invalidation);
        let (host_control, mut engine) = engine(wrap(fabric.device(device)), &options.engine())?;
        let data = memory(usize::from(queue_depth) * BLOCK_BYTES as usize)?;
        let id = engine.add_memory(data, MemoryAccess::ReadWrite)?;
        let mut host = Host::new(engine, memory(ADMIN_DATA_BYTES)?, options)?;
        let mut options = TargetOptions::new(address, subsystem).queue_entries(2 * queue_depth.max(32));
        change(&mut options);
        let (target_control, engine) = self::engine(fabric.device(device), &options.engine())?;
        let medium = memory(BLOCKS as usize * BLOCK_BYTES as usize)?;
        let namespace = MemoryStorage::new(medium, BLOCK_BYTES, usize::from(options.queue_entries))?;
        let buffers = memory(options.buffer_memory_bytes(options.queue_entries.into()))?;
        let mut target = Target::new(engine, vec![namespace], buffers, options)?;
        target.listen()?;
        host.start();
        let idle = (0..u64::from(queue_depth)).collect();
        let carried =
            Carried { host, target, succeeded: 0, failed: 0, refill: false, writes: true, data: id, idle, next: 0 };
        let clock = VirtualClock::new();
        let wiring = Wiring::new(1, 0, &Clock::from(&clock), Options::default())?;
        let (seat, _) = wiring.seats.into_iter().next().ok_or("no seat")?;
        let mut reactor = seat.reactor(carried);
        reactor.add("target", Schedule::Busy, TargetPoller)?;
        reactor.add("host", Schedule::Busy, HostPoller)?;
        let mut stepped = Self { reactor, clock, host_control, target_control, fabric };
        for _ in 0..STEPS_TO_READY {
            if stepped.reactor.context().host.is_ready() {
                return Ok(stepped);
            }
            stepped.controls();
            stepped.step();
        }
        Err(format!("never ready: {:?}", stepped.reactor.context().host.last_failure()).into())
    }

    /// One iteration of the reactor.
    pub fn step(&mut self) {
        self.clock.advance(TICK);
        self.reactor.step();
    }

    /// One more device on the same fabric.
    pub fn device(&self, profile: SoftProfile) -> SoftDevice {
        self.fabric.device(SoftOptions::new(profile))
    }

    /// Where the target listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], PORT))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Duration {
        Clock::from(&self.clock).now()
    }

    /// What another thread would do.
    pub fn controls(&mut self) -> u32 {
        self.host_control.poll() + self.target_control.poll()
    }
}

fn memory(bytes: usize) -> Result<DeviceMemory, AnyError> {
    Ok(region(bytes)?.carve(bytes, BLOCK_BYTES as usize)?.into_device_memory())
}

fn region(bytes: usize) -> Result<Region, AnyError> {
    Ok(Region::map(&RegionOptions::new(bytes).pages(PagePolicy::Exactly(PageSize::Plain)))?)
}

fn engine<D: Device>(device: D, options: &EngineOptions) -> Result<(Control<D>, Engine<D::Port>), AnyError> {
    let capabilities = *device.capabilities();
    let mut control = Control::new(device);
    let mut region = region(Engine::<D::Port>::region_bytes(options, &capabilities)?)?;
    let (send, receive) = Engine::<D::Port>::completion_entries(options, &capabilities)?;
    let (port, link) = control.open_core(send, receive)?;
    Ok((control, Engine::new(port, link, &mut region, options.clone(), &capabilities)?))
}
