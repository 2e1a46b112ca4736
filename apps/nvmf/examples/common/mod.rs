//! What the examples share: a target and a host of one thread, on two software NICs of one network in place of real ones.
#![allow(dead_code, reason = "every example uses its own part")]
#![allow(unreachable_pub, reason = "a module of programs, not of a library")]

use core::time::Duration;
use frwr_nvmf::frwr_engine::{
    Engine, EngineOptions, MemoryAccess,
    control::Control,
    gather::{MemoryId, Segment},
    provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort, SoftProfile},
};
use frwr_nvmf::frwr_mempool::{DeviceMemory, PagePolicy, Region, RegionOptions};
use frwr_nvmf::{
    controller::{Target, TargetOptions},
    host::{ADMIN_DATA_BYTES, Host, HostOptions},
    storage::Storage,
    wire::Nqn,
};

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Bytes per block.
pub const BLOCK: usize = 4096;
/// Blocks that the examples write and read back.
pub const BLOCKS: usize = 64;
/// What one side lives in: engine, buffers, data.
pub const REGION_BYTES: usize = 32 << 20;
/// Data buffers of the target that are busy at a time.
const BUSY: u32 = 8;
/// Blocks are pages, for devices with page lists.
pub const PAGE: usize = 4096;
/// Steps until something is taken to hang: thousands of times what is needed.
const HANG_GUARD: u32 = 10_000_000;

/// Memory of one side.
pub fn region() -> Result<Region, Error> {
    let pages = PagePolicy::Ladder { allow_plain: true };
    Ok(Region::map(&RegionOptions::new(REGION_BYTES).pages(pages))?)
}

/// A NIC on the network, the control that sets things up on it, and an engine for one core.
fn open(
    fabric: &SoftFabric,
    options: EngineOptions,
    region: &mut Region,
) -> Result<(Control<SoftDevice>, Engine<SoftPort>), Error> {
    let mut control = Control::new(fabric.device(SoftOptions::new(SoftProfile::RegMr)));
    let engine = control.open_engine(options)?.build(region)?;
    Ok((control, engine))
}

/// The subsystem of all examples.
pub fn subsystem() -> Result<Nqn, Error> {
    Ok(Nqn::new("nqn.2026-11.invalid.frwr:example")?)
}

/// A target of one namespace.
pub struct TargetSide<S: Storage> {
    pub control: Control<SoftDevice>,
    pub target: Target<SoftPort, S>,
}

impl<S: Storage> TargetSide<S> {
    pub fn new(fabric: &SoftFabric, region: &mut Region, namespace: S) -> Result<Self, Error> {
        let options = TargetOptions::new("127.0.0.1:4420".parse()?, subsystem()?);
        let (control, engine) = open(fabric, options.engine(), region)?;
        let buffers = region.carve(options.buffer_memory_bytes(BUSY), PAGE)?.into_device_memory();
        let mut target = Target::new(engine, vec![namespace], buffers, options)?;
        target.listen()?;
        Ok(Self { control, target })
    }

    /// One iteration of its poll loop.
    pub fn step(&mut self, now: Duration) {
        self.control.poll();
        self.target.poll(now);
        self.target.flush();
    }
}

/// A host, and memory for data.
pub struct HostSide {
    pub control: Control<SoftDevice>,
    pub host: Host<SoftPort>,
    pub data: DeviceMemory,
    pub data_id: MemoryId,
}

impl HostSide {
    pub fn new(fabric: &SoftFabric, region: &mut Region) -> Result<Self, Error> {
        let name = Nqn::new("nqn.2026-11.invalid.frwr:example-host")?;
        let options = HostOptions::new("127.0.0.1:4420".parse()?, subsystem()?, name);
        let (control, mut engine) = open(fabric, options.engine(), region)?;
        let data = region.carve(2 * BLOCKS * BLOCK, PAGE)?.into_device_memory();
        let data_id = engine.add_memory(data.clone(), MemoryAccess::ReadWrite)?;
        let admin = region.carve(ADMIN_DATA_BYTES, PAGE)?.into_device_memory();
        Ok(Self { control, host: Host::new(engine, admin, options)?, data, data_id })
    }

    /// One iteration of its poll loop.
    pub fn step(&mut self, now: Duration) {
        self.control.poll();
        self.host.poll(now);
        self.host.flush();
    }

    /// Block `index` of the data memory.
    pub fn block(&self, index: usize) -> Segment {
        segment(self.data_id, index)
    }
}

/// Block `index` of a memory.
pub fn segment(memory: MemoryId, index: usize) -> Segment {
    Segment { memory, offset: (index * BLOCK) as u64, length: BLOCK as u32 }
}

/// What block `lba` is to hold.
pub fn pattern(lba: usize) -> Vec<u8> {
    (0..BLOCK).map(|at| (at / 7 + 31 * lba + 1) as u8).collect()
}

/// Steps the host, and whatever there is beyond it, until something holds; time passes by the step.
pub fn until(
    far: &mut dyn FnMut(Duration),
    host: &mut HostSide,
    now: &mut Duration,
    mut done: impl FnMut(&mut HostSide) -> bool,
) -> Result<(), Error> {
    for _ in 0..HANG_GUARD {
        if done(host) {
            return Ok(());
        }
        *now += Duration::from_micros(1);
        host.step(*now);
        far(*now);
    }
    Err(format!("it hangs; host: {:?}", host.host.statistics()).into())
}

/// [`write_and_read_back`], and then the end of both sides.
pub fn both_to_the_end<S: Storage>(target: &mut TargetSide<S>, host: &mut HostSide) -> Result<(), Error> {
    let mut now = Duration::ZERO;
    write_and_read_back(&mut |now| target.step(now), host, &mut now)?;
    host.host.shut_down();
    until(&mut |now| target.step(now), host, &mut now, |host| host.host.is_stopped())?;
    target.target.end(now);
    for _ in 0..HANG_GUARD {
        if target.target.is_drained() {
            return Ok(());
        }
        now += Duration::from_micros(1);
        target.step(now);
        host.step(now);
    }
    Err("the target hangs".into())
}

/// Writes a pattern to every block, reads all back into other memory, and compares.
pub fn write_and_read_back(
    far: &mut dyn FnMut(Duration),
    host: &mut HostSide,
    now: &mut Duration,
) -> Result<(), Error> {
    host.host.start();
    until(far, host, now, |host| host.host.is_ready())?;
    for write in [true, false] {
        let (mut next, mut ended, mut failed) = (0, 0, None);
        until(far, host, now, |host| {
            while next < BLOCKS && host.host.free_requests() > 0 {
                let (lba, cookie) = (next as u64, next as u64);
                let taken = if write {
                    host.data.write(next * BLOCK, &pattern(next)).is_ok()
                        && host.host.write(lba, &[host.block(next)], cookie).is_ok()
                } else {
                    host.host.read(lba, &[host.block(BLOCKS + next)], cookie).is_ok()
                };
                if !taken {
                    break;
                }
                next += 1;
            }
            while let Some(completion) = host.host.next_completion() {
                failed = completion.result.err().or(failed);
                ended += 1;
            }
            ended == BLOCKS
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
    }
    for lba in 0..BLOCKS {
        let mut bytes = vec![0; BLOCK];
        host.data.read((BLOCKS + lba) * BLOCK, &mut bytes)?;
        if bytes != pattern(lba) {
            return Err(format!("block {lba} came back with other bytes").into());
        }
    }
    Ok(())
}
