//! What every party of a simulation runs on: memory, a device with its script, its Control, and engines over its ports.

use super::nic::{Network, Nic, NicPort};
use frwr_engine::{
    Engine, EngineOptions,
    control::Control,
    provider::{
        Device, Port, PortId,
        fault::{FaultHandle, Faulty, FaultyPort},
        soft::{SoftMonitor, SoftOptions},
    },
};
use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// A device with what it can be made to do wrong.
pub(super) type SimulatedDevice = Faulty<Nic>;
/// Its ports, which know what was done with them.
pub(super) type SimulatedPort = FaultyPort<NicPort>;

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

/// A device of somebody's, with its Control.
pub(super) struct Side {
    /// Its cold half.
    pub(super) control: Control<SimulatedDevice>,
    /// What it is made to do wrong at its edge.
    pub(super) faults: FaultHandle,
    /// Into a software NIC.
    pub(super) monitor: Option<SoftMonitor>,
    overrun: Arc<AtomicBool>,
    /// It hangs where a message meets no receive.
    pub(super) hangs_without_receive: bool,
}

impl Side {
    /// A device on a network.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn new(network: &Network, options: SoftOptions) -> Result<Self, String> {
        let hangs_without_receive = options.profile == frwr_engine::provider::soft::SoftProfile::Rxe;
        let device = network.device(options)?;
        let (monitor, overrun) = (device.monitor(), device.overrun());
        let (device, faults) = Faulty::new(device);
        Ok(Self { control: Control::new(device), faults, monitor, overrun, hangs_without_receive })
    }

    /// A completion queue of the device overran: its program has to begin anew.
    pub(super) fn has_overrun(&self) -> bool {
        self.overrun.load(Relaxed)
    }

    /// An engine over a port of its own, as a core has it.
    ///
    /// # Errors
    /// Why these options cannot be.
    pub(super) fn engine(&mut self, options: &EngineOptions) -> Result<Engine<SimulatedPort>, String> {
        let capabilities = *self.control.device().capabilities();
        let text = |error: frwr_engine::EngineError| error.to_string();
        let bytes = Engine::<SimulatedPort>::region_bytes(options, &capabilities).map_err(text)?;
        let mut region = region(bytes)?;
        let (send, receive) = Engine::<SimulatedPort>::completion_entries(options, &capabilities).map_err(text)?;
        let (port, link) = self.control.open_core(send, receive).map_err(|error| error.to_string())?;
        Engine::new(port, link, &mut region, options.clone(), &capabilities).map_err(text)
    }

    /// Faults of the device end; what was kept back comes.
    pub(super) fn calm(&self) {
        self.faults.clear();
        self.faults.release();
        if let Some(monitor) = &self.monitor {
            monitor.calm();
        }
    }

    /// What no program may have done.
    ///
    /// # Errors
    /// The first of it.
    pub(super) fn check(&self) -> Result<(), String> {
        let Some(monitor) = &self.monitor else { return Ok(()) };
        if monitor.crashed() {
            return Err("the device's host crashed".to_owned());
        }
        if monitor.stalled_destroys() > 0 {
            return Err("a queue pair was destroyed with a live registration".to_owned());
        }
        monitor.violations().into_iter().next().map_or(Ok(()), Err)
    }
}

/// What an engine's port knows of what was done with it.
pub(super) fn port_of(engine: &Engine<SimulatedPort>) -> &NicPort {
    engine.port().inner()
}

/// The port's name.
pub(super) fn port_id(engine: &Engine<SimulatedPort>) -> PortId {
    engine.port().id()
}
