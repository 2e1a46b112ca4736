//! The target, on a reactor of its own, for the whole run.

use super::{
    HOSTS, audit,
    ledger::{BLOCK, BLOCKS},
};
use frwr_engine::{
    control::Control,
    provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort},
};
use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
use frwr_nvmf::{
    controller::{Target, TargetListening, TargetOptions},
    storage::MemoryStorage,
    wire::Nqn,
};
use frwr_reactor::{Clock, Context, Now, Placement, Poller, PollerError, Reactors, Seat, Sleep, Source};
use std::sync::mpsc;

/// Where it listens in its network.
pub(super) const ADDRESS: &str = "127.0.0.1:4420";
/// Data buffers beside the least.
const BUSY_BUFFERS: u32 = 8;
/// Operations of the storage at a time.
const STORAGE_DEPTH: usize = 64;
/// Times that the target is asked whether everybody has gone: it answers in each iteration, so this is minutes.
const PATIENCE: u64 = 10_000_000;

/// The subsystem's name.
pub(super) fn subsystem() -> Result<Nqn, String> {
    Nqn::new("nqn.2026-11.invalid.frwr:soak").map_err(|error| error.to_string())
}

/// Memory of ordinary pages.
pub(super) fn region(bytes: usize) -> Result<Region, String> {
    let options = RegionOptions::new(bytes).pages(PagePolicy::Exactly(PageSize::Plain));
    Region::map(&options).map_err(|error| error.to_string())
}

/// The same as a whole.
pub(super) fn memory(bytes: usize) -> Result<DeviceMemory, String> {
    let block = region(bytes)?.carve(bytes, BLOCK).map_err(|error| error.to_string())?;
    Ok(block.into_device_memory())
}

/// What the target is asked by other threads.
pub(super) enum Order {
    /// Drop every connection.
    Drop,
    /// Say how it stands: whether it listens, whether anybody is there, and if nobody is, what is left.
    Report(mpsc::Sender<Standing>),
}

/// Its answer.
pub(super) struct Standing {
    listens: bool,
    empty: bool,
    described: String,
    left: Result<(), String>,
}

struct TargetCore {
    control: Control<SoftDevice>,
    target: Target<SoftPort, MemoryStorage>,
    orders: mpsc::Receiver<Order>,
}

impl Context for TargetCore {
    type Message = ();

    fn message(&mut self, _from: Source, (): (), _now: &Now) {}
}

impl TargetCore {
    fn new(fabric: &SoftFabric, profile: &str, orders: mpsc::Receiver<Order>) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let address = ADDRESS.parse().map_err(|_| ADDRESS)?;
        let hosts = HOSTS as u16;
        let options = TargetOptions::new(address, subsystem()?)
            .controllers(2 * hosts)
            .returning_controllers(hosts)
            .io_queues(2)
            .queue_entries(40)
            .buffer_bytes(32 << 10)
            .in_capsule_bytes(4096)
            .data_blocks(4);
        let device = fabric.device(SoftOptions::new(profile.parse().map_err(|_| profile.to_owned())?));
        let mut control = Control::new(device);
        let builder = control.open_engine(options.engine()).map_err(|error| text(&error))?;
        let mut engine_region = region(builder.region_bytes())?;
        let engine = builder.build(&mut engine_region).map_err(|error| text(&error))?;
        let medium = memory(HOSTS * BLOCKS as usize * BLOCK)?;
        let storage = MemoryStorage::new(medium, BLOCK as u32, STORAGE_DEPTH).map_err(|error| text(&error))?;
        let buffers = memory(options.buffer_memory_bytes(BUSY_BUFFERS))?;
        let mut target = Target::new(engine, vec![storage], buffers, options).map_err(|error| text(&error))?;
        target.listen().map_err(|error| text(&error))?;
        Ok(Self { control, target, orders })
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Drop => {
                let connections: Vec<_> = self.target.engine().connections().collect();
                connections.into_iter().for_each(|connection| self.target.engine_mut().disconnect(connection));
            }
            // Who asked may have gone.
            Order::Report(answer) => drop(answer.send(self.standing())),
        }
    }

    fn standing(&self) -> Standing {
        let (statistics, control) = (self.target.statistics(), self.control.statistics());
        let empty = self.target.is_drained() && statistics.queues == 0 && statistics.orphans == 0;
        Standing {
            listens: statistics.listening == TargetListening::Listens,
            empty: empty && self.target.engine().is_idle() && self.control.is_idle(),
            described: format!("{statistics:?} {control:?} {:?}", self.target.engine().statistics()),
            left: self.left(),
        }
    }

    fn left(&self) -> Result<(), String> {
        audit::at_rest("the target", self.target.engine())?;
        let statistics = self.target.statistics();
        let used = (statistics.commands_in_flight, statistics.slots_used, statistics.buffers - statistics.buffers_free);
        if used != (0, 0, 0) || statistics.protocol_errors > 0 {
            return Err(format!("the target has commands, slots or buffers of nobody, or saw errors: {statistics:?}"));
        }
        let kept = self.control.statistics();
        if (kept.queue_pairs_kept, kept.domains_kept, kept.memories_kept) != (0, 0, 0) {
            return Err(format!("the target's Control keeps objects: {kept:?}"));
        }
        let monitor = self.control.device().monitor();
        if monitor.crashed() || monitor.stalled_destroys() > 0 || monitor.messages_without_receive() > 0 {
            return Err("the target's device was misused".to_owned());
        }
        Ok(())
    }
}

/// Polls all of it.
struct Serve;

impl Poller<TargetCore> for Serve {
    fn poll(&mut self, core: &mut TargetCore, now: &Now) -> u32 {
        let mut work = core.control.poll() + core.target.poll(now.time());
        while let Ok(order) = core.orders.try_recv() {
            core.obey(order);
            work += 1;
        }
        core.target.flush();
        if work == 0 {
            std::thread::yield_now();
        }
        work
    }

    fn flushes(&self) -> bool {
        false
    }

    fn sleep_until(&self, _core: &TargetCore) -> Sleep {
        Sleep::Busy
    }
}

/// A core that could not be set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// Its parts.
    #[error("{0}")]
    Parts(String),
    /// Its reactor.
    #[error(transparent)]
    Poller(#[from] PollerError),
}

/// The target at work.
pub(super) struct Running {
    running: frwr_reactor::Running<(), TargetCore>,
    /// The network that it is in.
    pub(super) fabric: SoftFabric,
    /// Where orders go.
    pub(super) orders: mpsc::Sender<Order>,
}

impl Running {
    /// Starts it; it listens.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn start(seed: u64, clock: &Clock) -> Result<Self, String> {
        let (fabric, (orders, receiver)) = (SoftFabric::new(), mpsc::channel());
        let profile = ["reg_mr", "window", "umr", "rxe"][(seed % 4) as usize];
        let network = fabric.clone();
        let mut receiver = Some(receiver);
        let placement = Placement::Unpinned { reactors: 1 };
        let running = Reactors::new(placement).clock(clock.clone()).launch(|_| {
            let (network, receiver) = (network.clone(), receiver.take());
            move |seat: Seat<()>, _| {
                let receiver = receiver.ok_or_else(|| StartError::Parts("a second target".to_owned()))?;
                let mut reactor =
                    seat.reactor(TargetCore::new(&network, profile, receiver).map_err(StartError::Parts)?);
                reactor.add("serve", frwr_reactor::Schedule::Busy, Serve)?;
                Ok::<_, StartError>(reactor)
            }
        });
        let running = Self { running: running.map_err(|error| error.to_string())?, fabric, orders };
        running.until("listens", |standing| standing.listens)?;
        Ok(running)
    }

    fn until(&self, what: &str, done: impl Fn(&Standing) -> bool) -> Result<Standing, String> {
        let (sender, answers) = mpsc::channel();
        let mut described = String::new();
        for _ in 0..PATIENCE {
            let gone = |_| "the target's thread has ended".to_owned();
            self.orders.send(Order::Report(sender.clone())).map_err(gone)?;
            let standing = answers.recv().map_err(|_| "the target's thread has ended".to_owned())?;
            if done(&standing) {
                return Ok(standing);
            }
            described = standing.described;
        }
        Err(format!("the target never {what}: {described}"))
    }

    /// Everybody has gone, and nothing of them is left.
    ///
    /// # Errors
    /// What is.
    pub(super) fn is_empty(&self) -> Result<(), String> {
        self.until("became empty", |standing| standing.empty)?.left
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had panicked.
    pub(super) fn end(self) -> Result<(), String> {
        for ended in self.running.shutdown(core::time::Duration::ZERO) {
            ended.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
