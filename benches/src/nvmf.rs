//! A target and a host that are connected, of which one is then detached from the other (`detached`): what a command
//! costs each.

use crate::detached::{FarEnd, Memory};
use core::{task::Waker, time::Duration};
use frwr_engine::{
    EngineOptions, MemoryAccess,
    control::Control,
    gather::Segment,
    provider::{
        Chain, Device, Operation, Port, ScatterElement, Success,
        soft::{SoftDevice, SoftFabric, SoftOptions, SoftProfile},
    },
};
use frwr_mempool::{
    Region,
    region::{PagePolicy, RegionOptions},
};
use frwr_nvmf::{
    controller::{Target, TargetOptions},
    host::{ADMIN_DATA_BYTES, Host, HostOptions},
    storage::MemoryStorage,
    wire::{BlockRange, COMMAND_CAPSULE_BYTES, Command, DataPointer, KeyedDataBlock, Nqn, RESPONSE_CAPSULE_BYTES},
};
use std::{collections::VecDeque, error::Error};

/// Bytes of a block, and of what a command moves.
pub const BLOCK: u32 = 4096;
/// Blocks of the namespace, and of the host's memory.
pub const BLOCKS: u64 = 64;
/// What one side lives in.
const REGION_BYTES: usize = 64 << 20;
/// Data buffers of the target: more than commands at a time.
const BUFFERS: u32 = 128;
/// Commands that a host has in flight.
pub const QUEUE_DEPTH: u16 = 64;
/// Steps until both sides are taken to hang: many times what they need.
const HANG_GUARD: u32 = 1_000_000;
/// Steps without work behind which nothing is under way.
const QUIET: u32 = 100;
/// The key of a command that nobody looks at.
const KEY: u32 = 0x0707;

/// A host that sends the same commands over and over, each when one before it was answered.
#[derive(Clone, Debug)]
pub struct Commands {
    capsules: Vec<[u8; COMMAND_CAPSULE_BYTES]>,
    /// Bytes of each. Data behind a command is what lies there.
    bytes: u32,
    next: usize,
    /// Commands that were not sent yet.
    left: u64,
    due: u64,
}

impl Commands {
    /// As many, so many at a time: reads of a block, by a key that the target is to kill, or writes of one that lies in
    /// the capsule.
    ///
    /// # Errors
    /// Where a command cannot be encoded.
    pub fn new(writes: bool, batch: u16, count: u64) -> Result<Self, Box<dyn Error>> {
        let data = match writes {
            true => DataPointer::InCapsule { offset: 0, length: BLOCK },
            false => DataPointer::Keyed(KeyedDataBlock { address: 0, length: BLOCK, key: KEY, invalidate: true }),
        };
        let capsule = |id: u16| {
            let range = BlockRange { namespace: 1, lba: u64::from(id) % BLOCKS, blocks: 1, data };
            let command = if writes { Command::Write(range) } else { Command::Read(range) };
            let entry = command.encode(id).map_err(|status| format!("the command cannot be encoded: {status}"))?;
            Ok::<_, String>(zerocopy::transmute!(entry))
        };
        let capsules = (0..batch).map(capsule).collect::<Result<_, _>>()?;
        let due = u64::from(batch).min(count);
        let bytes = COMMAND_CAPSULE_BYTES as u32 + if writes { BLOCK } else { 0 };
        Ok(Self { capsules, bytes, next: 0, left: count - due, due })
    }
}

impl FarEnd for Commands {
    #[inline(always)]
    fn posted(&mut self, operation: &Operation, _: &Chain<'_>, _: &Memory) {
        if matches!(operation, Operation::Send { .. }) && self.left > 0 {
            self.left -= 1;
            self.due += 1;
        }
    }

    #[inline(always)]
    fn may_arrive(&self) -> bool {
        self.due > 0
    }

    #[inline(always)]
    fn arrive(&mut self, receive: &ScatterElement, memory: &Memory) -> Option<Success> {
        self.due = self.due.checked_sub(1)?;
        memory.write(receive.address, &self.capsules[self.next]);
        self.next = if self.next + 1 == self.capsules.len() { 0 } else { self.next + 1 };
        Some(Success { bytes: self.bytes, invalidated: None })
    }
}

/// A controller that answers each command with success, and kills its key.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Identifier and key of each command that was not answered yet.
    sent: VecDeque<([u8; 2], u32)>,
    key: u32,
}

/// Where a command has its identifier, and where a response has it (Base figures 88 and 90).
const COMMAND_ID: u64 = 2;
const RESPONSE_ID: usize = 12;

impl FarEnd for Answers {
    #[inline(always)]
    fn posted(&mut self, operation: &Operation, chain: &Chain<'_>, memory: &Memory) {
        match operation {
            Operation::Register(fields) => self.key = fields.key,
            Operation::Send { local, .. } => {
                let mut id = [0; 2];
                if let Some(message) = chain.elements_of(*local).first() {
                    memory.read(message.address + COMMAND_ID, &mut id);
                }
                self.sent.push_back((id, core::mem::take(&mut self.key)));
            }
            _ => {}
        }
    }

    #[inline(always)]
    fn may_arrive(&self) -> bool {
        !self.sent.is_empty()
    }

    #[inline(always)]
    fn arrive(&mut self, receive: &ScatterElement, memory: &Memory) -> Option<Success> {
        let (id, key) = self.sent.pop_front()?;
        let mut response = [0; RESPONSE_CAPSULE_BYTES];
        [response[RESPONSE_ID], response[RESPONSE_ID + 1]] = id;
        memory.write(receive.address, &response);
        Some(Success { bytes: RESPONSE_CAPSULE_BYTES as u32, invalidated: (key != 0).then_some(key) })
    }
}

/// A target with a namespace in memory.
pub struct TargetSide<D: Device> {
    control: Control<D>,
    /// The target.
    pub target: Target<D::Port, MemoryStorage>,
    // Mapped as long as the target lives.
    _region: Region,
}

/// A host, and memory for data.
pub struct HostSide<D: Device> {
    control: Control<D>,
    /// The host.
    pub host: Host<D::Port>,
    /// A block each.
    pub segments: Vec<Segment>,
    // Mapped as long as the host lives.
    _region: Region,
}

/// A region of one side.
///
/// # Errors
/// Where the system has no such memory.
pub fn region() -> Result<Region, Box<dyn Error>> {
    Ok(Region::map(&RegionOptions::new(REGION_BYTES).pages(PagePolicy::Ladder { allow_plain: true }))?)
}

/// A NIC of a fabric.
#[must_use]
pub fn nic(fabric: &SoftFabric) -> SoftDevice {
    fabric.device(SoftOptions::new(SoftProfile::RegMr))
}

type Opened<D> = (Control<D>, frwr_engine::Engine<<D as Device>::Port>);

fn open<D: Device>(device: D, options: EngineOptions, region: &mut Region) -> Result<Opened<D>, Box<dyn Error>> {
    let mut control = Control::new(device);
    let engine = control.open_engine(options)?.build(region)?;
    Ok((control, engine))
}

fn subsystem() -> Result<Nqn, Box<dyn Error>> {
    Ok(Nqn::new("nqn.2026-11.invalid.frwr:bench")?)
}

impl<D: Device> TargetSide<D> {
    /// A target that listens, or will.
    ///
    /// # Errors
    /// What engine, target or system refuse.
    pub fn new(device: D) -> Result<Self, Box<dyn Error>> {
        Self::woken_by(device, None)
    }

    /// The same on a core that sleeps.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn woken_by(device: D, waker: Option<&Waker>) -> Result<Self, Box<dyn Error>> {
        let options = TargetOptions::new("127.0.0.1:4420".parse()?, subsystem()?).in_capsule_bytes(BLOCK);
        let mut region = region()?;
        let (control, engine) = open(device, options.engine(), &mut region)?;
        let page = BLOCK as usize;
        let medium = region.carve(BLOCKS as usize * page, page)?.into_device_memory();
        let buffers = region.carve(options.buffer_memory_bytes(BUFFERS), page)?.into_device_memory();
        let storage = MemoryStorage::new(medium, BLOCK, QUEUE_DEPTH.into())?;
        let mut target = Target::new(engine, vec![storage], buffers, options)?;
        if let Some(waker) = waker {
            target.wakes(waker)?;
        }
        target.listen()?;
        Ok(Self { control, target, _region: region })
    }

    fn step(&mut self, now: Duration) -> u32 {
        self.control.poll();
        let work = self.target.poll(now);
        self.target.flush();
        work
    }
}

impl<D: Device> HostSide<D> {
    /// A host that connects once it is stepped.
    ///
    /// # Errors
    /// What engine, host or system refuse.
    pub fn new(device: D) -> Result<Self, Box<dyn Error>> {
        Self::woken_by(device, None)
    }

    /// The same on a core that sleeps.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn woken_by(device: D, waker: Option<&Waker>) -> Result<Self, Box<dyn Error>> {
        let name = Nqn::new("nqn.2026-11.invalid.frwr:bench-host")?;
        let options = HostOptions::new("127.0.0.1:4420".parse()?, subsystem()?, name).queue_depth(QUEUE_DEPTH - 1);
        let mut region = region()?;
        let (control, mut engine) = open(device, options.engine(), &mut region)?;
        if let Some(waker) = waker {
            engine.wakes(waker);
        }
        let page = BLOCK as usize;
        let memory = engine
            .add_memory(region.carve(BLOCKS as usize * page, page)?.into_device_memory(), MemoryAccess::ReadWrite)?;
        let admin = region.carve(ADMIN_DATA_BYTES, page)?.into_device_memory();
        let mut host = Host::new(engine, admin, options)?;
        host.start();
        let segment = |at| Segment { memory, offset: at * u64::from(BLOCK), length: BLOCK };
        Ok(Self { control, host, segments: (0..BLOCKS).map(segment).collect(), _region: region })
    }

    fn step(&mut self, now: Duration) -> u32 {
        self.control.poll();
        let work = self.host.poll(now);
        self.host.flush();
        work
    }
}

/// Steps both until the host is ready and nothing is under way. Returns the time.
///
/// # Errors
/// Where that never comes.
pub fn connect<H, T>(host: &mut HostSide<H>, target: &mut TargetSide<T>) -> Result<Duration, Box<dyn Error>>
where
    H: Device,
    T: Device,
    H::Port: Port,
{
    let mut quiet = 0;
    for step in 0..HANG_GUARD {
        let now = Duration::from_micros(step.into());
        let work = host.step(now) + target.step(now);
        quiet = if work == 0 && host.host.is_ready() { quiet + 1 } else { 0 };
        if quiet > QUIET {
            return Ok(now);
        }
    }
    Err(format!("it hangs; host: {:?}, target: {:?}", host.host.statistics(), target.target.statistics()).into())
}
