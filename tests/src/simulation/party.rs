//! One side of a simulation: its device with script and recorder, its Control, its engine.

use super::{
    nic::{Network, Nic, NicPort},
    random::{Random, TraceHash},
};
use core::fmt::Write as _;
use frwr_engine::{
    Engine, EngineOptions,
    control::Control,
    provider::{
        Device, Port, PortId, PostRefusal, QueuePairId, SharedReceiveQueueId,
        fault::{FaultHandle, Faulty, FaultyPort},
        record::{Record, Recorded, RecordedOperation, RecordedPort, Tap},
        soft::{SoftMonitor, SoftOptions},
    },
};
use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};

/// The recorder stands behind the faults: it sees what reaches the device and what the device itself says.
pub(super) type SimulatedDevice = Faulty<Recorded<Nic>>;
/// Its ports.
pub(super) type SimulatedPort = FaultyPort<RecordedPort<NicPort>>;

/// Records kept between two steps.
const RECORDS: usize = 1 << 12;
/// Queue pairs remembered for faults: those of two sessions.
const QUEUE_PAIRS: usize = 4;

/// Memory of ordinary pages.
///
/// # Errors
/// Why the system has none.
pub(super) fn memory(bytes: usize) -> Result<DeviceMemory, String> {
    let mut region = region(bytes)?;
    region.carve(bytes, 4096).map(frwr_mempool::Block::into_device_memory).map_err(|error| error.to_string())
}

fn region(bytes: usize) -> Result<Region, String> {
    let options = RegionOptions::new(bytes).pages(PagePolicy::Exactly(PageSize::Plain));
    Region::map(&options).map_err(|error| error.to_string())
}

/// What is watched of one side's device.
pub(super) struct Watch {
    /// Its script.
    pub(super) faults: FaultHandle,
    /// Its port.
    pub(super) port: PortId,
    /// Of a software NIC.
    monitor: Option<SoftMonitor>,
    tap: Tap,
    /// Queue pairs that posted last.
    recent: Vec<QueuePairId>,
    /// The shared receive queue, once it was posted to.
    pub(super) shared_receives: Option<SharedReceiveQueueId>,
}

impl Watch {
    /// One of the queue pairs in use.
    pub(super) fn some_queue_pair(&self, random: &mut Random) -> Option<QueuePairId> {
        if self.recent.is_empty() { None } else { Some(random.of(&self.recent)) }
    }

    /// Looks at what happened since.
    ///
    /// # Errors
    /// The device crashed, or had to refuse a post for want of room.
    pub(super) fn check(&mut self, trace: &mut TraceHash) -> Result<(), String> {
        while let Some(mut record) = self.tap.pop() {
            if let Record::Posted { operation: RecordedOperation::Register { iova, .. }, .. } = &mut record {
                // Where the system put the memory is not the seed's choice; nothing but this depends on it.
                *iova = 0;
            }
            let _ = write!(trace, "{record:?}");
            match record {
                Record::Refused { reason: PostRefusal::QueueFull, queue_pair, .. } => {
                    return Err(format!("{queue_pair:?}: a queue was overrun"));
                }
                Record::Posted { queue_pair, .. } if !self.recent.contains(&queue_pair) => {
                    self.recent.push(queue_pair);
                    if self.recent.len() > QUEUE_PAIRS {
                        self.recent.remove(0);
                    }
                }
                Record::SharedReceive { queue, .. } => self.shared_receives = Some(queue),
                _ => {}
            }
        }
        if self.monitor.as_ref().is_some_and(SoftMonitor::crashed) {
            Err("the device's host crashed".to_owned())
        } else {
            Ok(())
        }
    }

    /// Queue pairs destroyed with a live registration where the imitated device stalls.
    #[must_use]
    pub(super) fn stalled_destroys(&self) -> u64 {
        self.monitor.as_ref().map_or(0, SoftMonitor::stalled_destroys)
    }

    /// Faults end; what was kept back comes.
    pub(super) fn calm(&self) {
        self.faults.clear();
        self.faults.release();
    }
}

/// Makes one side.
///
/// # Errors
/// Why these options cannot be.
pub(super) fn party(
    network: &Network,
    device: SoftOptions,
    options: &EngineOptions,
) -> Result<(Control<SimulatedDevice>, Engine<SimulatedPort>, Watch), String> {
    let device = network.device(device)?;
    let monitor = device.monitor();
    let (device, taps) = Recorded::new(device, RECORDS);
    let (device, faults) = Faulty::new(device);
    let capabilities = *device.capabilities();
    let mut control = Control::new(device);
    let text = |error: frwr_engine::EngineError| error.to_string();
    let bytes = Engine::<SimulatedPort>::region_bytes(options, &capabilities).map_err(text)?;
    let mut region = region(bytes)?;
    let (send, receive) = Engine::<SimulatedPort>::completion_entries(options, &capabilities).map_err(text)?;
    let (port, link) = control.open_core(send, receive).map_err(|error| error.to_string())?;
    let id = port.id();
    let tap = taps.take(id).ok_or("the port has no tap")?;
    let engine = Engine::new(port, link, &mut region, options.clone(), &capabilities).map_err(text)?;
    Ok((control, engine, Watch { faults, port: id, monitor, tap, recent: Vec::new(), shared_receives: None }))
}
