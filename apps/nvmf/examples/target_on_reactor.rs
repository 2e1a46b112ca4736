//! A target on a core of its own, over a key-value store, from its start to an end that its host is told of
//! (`cargo run -p frwr-nvmf --features reactor --example target_on_reactor`; docs/embedding.md leads through it).

mod common;

use common::{BLOCK, BLOCKS, Error, HostSide, PAGE, region, subsystem, write_and_read_back};
use core::time::Duration;
use frwr_nvmf::controller::{Target, TargetContext, TargetOptions, TargetPoller};
use frwr_nvmf::frwr_engine::EngineBuilder;
use frwr_nvmf::frwr_engine::control::Control;
use frwr_nvmf::frwr_engine::provider::soft::{SoftFabric, SoftOptions, SoftPort};
use frwr_nvmf::frwr_mempool::DeviceMemory;
use frwr_nvmf::frwr_reactor::{Context, Now, Outbox, Placement, Reactor, Reactors, Schedule, Seat, Source};
use frwr_nvmf::storage::{
    AttachError, Completion, CompletionBatch, Cookie, Geometry, Operation, QueueFull, Storage, StorageError,
};
use std::{collections::BTreeMap, convert::Infallible};

/// Operations of the store at a time.
const DEPTH: usize = 64;
/// Data buffers that are busy at a time.
const BUSY: u32 = 8;
/// For connections to end: a network's time, and some.
const GRACE: Duration = Duration::from_secs(10);

/// Any storage that may go to another thread: a target may have namespaces of several kinds.
type AnyStorage = Box<dyn Storage + Send>;

/// A store of blocks by their number; what was never written is zeros.
pub(crate) struct KeyValue {
    geometry: Geometry,
    store: BTreeMap<u64, [u8; BLOCK]>,
    buffers: Option<DeviceMemory>,
    ended: Vec<Completion>,
}

impl KeyValue {
    pub(crate) fn new(blocks: usize) -> Result<Self, Error> {
        let geometry = Geometry::new(blocks as u64, BLOCK as u32)?;
        Ok(Self { geometry, store: BTreeMap::new(), buffers: None, ended: Vec::with_capacity(DEPTH) })
    }

    fn execute(&mut self, operation: Operation) -> Result<(), StorageError> {
        let Some((lba, blocks)) = operation.blocks() else { return Ok(()) };
        self.geometry.extent(lba, blocks)?;
        let (Operation::Read { buffer, .. } | Operation::Write { buffer, .. }) = operation else {
            return Err(StorageError::Unsupported);
        };
        // As a whole: nothing moves of what does not fit.
        let buffers = self.buffers.as_ref().ok_or(StorageError::BufferOutOfRange)?;
        let buffer = buffers.slice(buffer, blocks as usize * BLOCK).map_err(|_| StorageError::BufferOutOfRange)?;
        for step in 0..blocks as usize {
            let key = lba + step as u64;
            let done = if operation.changes() {
                buffer.read(step * BLOCK, self.store.entry(key).or_insert([0; BLOCK]))
            } else {
                buffer.write(step * BLOCK, self.store.get(&key).unwrap_or(&[0; BLOCK]))
            };
            done.map_err(|_| StorageError::Medium)?;
        }
        Ok(())
    }
}

impl Storage for KeyValue {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        if self.buffers.is_some() {
            return Err(AttachError::Twice);
        }
        self.buffers = Some(buffers);
        Ok(())
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.ended.len() == DEPTH {
            return Err(QueueFull);
        }
        let result = self.execute(operation);
        self.ended.push(Completion { cookie, result });
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll(&mut self, _now: Duration, out: &mut CompletionBatch) -> usize {
        let count = self.ended.len().min(out.remaining_capacity());
        out.extend(self.ended.drain(..count));
        count
    }
}

/// What the target's core has.
struct Core(Target<SoftPort, AnyStorage>);

impl Context for Core {
    type Message = Infallible;

    fn message(&mut self, _: Source, message: Infallible, _: &Now) {
        match message {}
    }
}

impl TargetContext for Core {
    type Port = SoftPort;
    type Storage = AnyStorage;

    fn target(&self) -> Option<&Target<SoftPort, AnyStorage>> {
        Some(&self.0)
    }

    fn target_mut(&mut self) -> Option<&mut Target<SoftPort, AnyStorage>> {
        Some(&mut self.0)
    }
}

/// On the core's own thread, so that its memory is near.
fn start(
    seat: Seat<Infallible>,
    builder: EngineBuilder<SoftPort>,
    options: TargetOptions,
) -> Result<Reactor<Core>, Error> {
    let mut region = region()?;
    let engine = builder.build(&mut region)?;
    let buffers = region.carve(options.buffer_memory_bytes(BUSY), PAGE)?.into_device_memory();
    let store = Box::new(KeyValue::new(BLOCKS)?) as AnyStorage;
    let mut target = Target::new(engine, vec![store], buffers, options)?;
    target.listen()?;
    let mut reactor = seat.reactor(Core(target));
    reactor.add("target", Schedule::Busy, TargetPoller)?;
    Ok(reactor)
}

pub(crate) fn main() -> Result<(), Error> {
    let fabric = SoftFabric::new();
    let mut control = Control::new(fabric.device(SoftOptions::default()));
    let options = TargetOptions::new("127.0.0.1:4420".parse()?, subsystem()?);
    let mut builder = Some(control.open_engine(options.engine())?);
    let running = Reactors::new(Placement::Unpinned { reactors: 1 }).launch(|_| {
        let (builder, options) = (builder.take(), options.clone());
        move |seat: Seat<Infallible>, _: Outbox<Infallible>| start(seat, builder.ok_or("one core only")?, options)
    })?;
    // The main thread has a host, and what both sides' Control has to do.
    let mut near = region()?;
    let mut host = HostSide::new(&fabric, &mut near)?;
    let mut now = Duration::ZERO;
    let mut far = |_| {
        if control.poll() == 0 {
            std::thread::yield_now();
        }
    };
    write_and_read_back(&mut far, &mut host, &mut now)?;
    // The end of a program: the host hears of it, and its connections end.
    running.shutdown_handle().request(GRACE);
    while !running.is_finished() {
        now += Duration::from_micros(1);
        far(now);
        host.step(now);
    }
    for ended in running.join() {
        let finished = ended?;
        if !finished.report.undrained.is_empty() {
            return Err("the target did not end".into());
        }
    }
    println!("{BLOCKS} blocks went there and back; news of the end: {}", host.host.statistics().shutdown_events);
    if host.host.statistics().shutdown_events == 1 { Ok(()) } else { Err("the host was not told of the end".into()) }
}
