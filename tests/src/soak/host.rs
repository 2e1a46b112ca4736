//! A host with its device, its Control and its memory.

use super::{
    host_core::SHORT_KEEP_ALIVE,
    ledger::{DATA_BYTES, Ledger},
    plan::{End, Plan},
    target::{ADDRESS, memory, region, subsystem},
};
use core::time::Duration;
use frwr_engine::{
    MemoryAccess,
    control::Control,
    gather::MemoryId,
    provider::{
        fault::{FaultHandle, Faulty, FaultyPort},
        soft::{SoftDevice, SoftFabric, SoftMonitor, SoftOptions, SoftPort},
    },
};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::{
    host::{Host, HostOptions},
    wire::Nqn,
};

/// Pauses before a host comes back: a target that drops everybody is back at once.
const BACK_OFF: Duration = Duration::from_millis(1);
/// Nothing is asked twice by the clock: a thread may be kept from its core for as long as this on a busy machine.
const GENEROUS: Duration = Duration::from_secs(30);

/// All of one host but what drives it.
pub(super) struct Side {
    /// Before Control: it is dropped first, and Control sees it go.
    pub(super) host: Option<Host<FaultyPort<SoftPort>>>,
    pub(super) control: Control<Faulty<SoftDevice>>,
    pub(super) monitor: SoftMonitor,
    pub(super) faults: FaultHandle,
    pub(super) data: DeviceMemory,
    pub(super) data_id: MemoryId,
}

impl Side {
    /// The host of a plan, which begins to connect.
    ///
    /// # Errors
    /// What cannot be made.
    pub(super) fn new(fabric: &SoftFabric, number: usize, plan: &Plan) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let options = options(number, plan)?;
        let profile = plan.profile.parse().map_err(|_| plan.profile.to_owned())?;
        let device = fabric.device(SoftOptions::new(profile));
        let monitor = device.monitor();
        let (device, faults) = Faulty::new(device);
        let mut control = Control::new(device);
        let builder = control.open_engine(options.engine()).map_err(|error| text(&error))?;
        let mut engine_region = region(builder.region_bytes())?;
        let mut engine = builder.build(&mut engine_region).map_err(|error| text(&error))?;
        let data = memory(DATA_BYTES)?;
        let data_id = engine.add_memory(data.clone(), MemoryAccess::ReadWrite).map_err(|error| text(&error))?;
        let own = memory(options.memory_bytes())?;
        let mut host = Host::new(engine, own, options).map_err(|error| text(&error))?;
        host.start();
        Ok(Self { host: Some(host), control, monitor, faults, data, data_id })
    }

    /// The host, while its engine is there.
    pub(super) fn host(&mut self) -> Result<&mut Host<FaultyPort<SoftPort>>, String> {
        self.host.as_mut().ok_or_else(|| "the host's engine is gone".to_owned())
    }

    /// Sessions so far.
    pub(super) fn sessions(&self) -> u64 {
        self.host.as_ref().map_or(0, |host| host.statistics().sessions)
    }

    /// Where it stands, for messages.
    pub(super) fn describe(&self) -> String {
        let Some(host) = &self.host else { return format!("{:?}", self.control.statistics()) };
        let said = (host.statistics(), host.last_failure(), host.failure());
        format!("{said:?} {:?} {:?}", self.control.statistics(), host.engine().statistics())
    }

    /// One iteration, but for its flush.
    ///
    /// # Errors
    /// The host gave up, or a request ended as it must not.
    pub(super) fn poll(&mut self, now: Duration, ledger: &mut Ledger, is_stopping: bool) -> Result<u32, String> {
        let mut work = self.control.poll();
        let Some(host) = &mut self.host else { return Ok(work) };
        work += host.poll(now);
        while let Some(completion) = host.next_completion() {
            ledger.completed(completion, &self.data, is_stopping)?;
        }
        host.failure().map_or(Ok(work), |failure| Err(format!("the host gave up: {failure}")))
    }
}

fn options(number: usize, plan: &Plan) -> Result<HostOptions, String> {
    let address = ADDRESS.parse().map_err(|_| ADDRESS)?;
    let name = Nqn::new(&format!("nqn.2026-11.invalid.frwr:host-{number}")).map_err(|error| error.to_string())?;
    Ok(HostOptions::new(address, subsystem()?, name)
        .queues(plan.queues)
        .queue_depth(plan.queue_depth)
        .remote_invalidation(plan.remote_invalidation)
        .in_capsule_data(plan.in_capsule_data)
        .data_blocks(plan.data_blocks)
        .keep_alive(if plan.end == End::StoodStill { SHORT_KEEP_ALIVE } else { GENEROUS })
        .command_timeout(GENEROUS)
        // A host whose sessions end as often as this must neither give up nor fail what it has.
        .command_retries(None)
        .max_attempts(u32::MAX)
        .controller_loss_timeout(Duration::ZERO)
        .first_back_off(BACK_OFF)
        .longest_back_off(BACK_OFF))
}
