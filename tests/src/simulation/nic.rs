//! The devices of a simulation: software NICs, or the verbs provider as it is shipped over devices that are not there.

use arrayvec::ArrayVec;
use core::hash::Hash;
use frwr_engine::provider::{
    AsyncEvent, Capabilities, Chain, Command, CommandError, CompletionBatch, CompletionQueue, Device, DeviceEvent,
    Operation, Port, PortId, PostError, PostRefusal, QueuePairId, ReceiveRequest, SharedReceiveQueueId, Ticket,
    soft::{SoftDevice, SoftFabric, SoftMonitor, SoftOptions, SoftPort},
};
#[cfg(feature = "verbs")]
use frwr_engine::provider::{
    soft::SoftProfile,
    verbs::{PostInterface, Registration, VerbsDevice, VerbsOptions, VerbsPort},
};
#[cfg(feature = "verbs")]
use frwr_fake::{FakeContext, FakeDevice, FakeLists, FakeOptions};
use frwr_support::TraceHash;
use std::net::IpAddr;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// What a simulation runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// The software NIC, any profile.
    Soft,
    /// Windows and lists through the verbs provider: the profile of a seed says which.
    #[cfg(feature = "verbs")]
    Fake,
}

/// Where the devices of a simulation reach each other.
pub(super) enum Network {
    Soft(SoftFabric),
    #[cfg(feature = "verbs")]
    Fake {
        device: FakeDevice,
        post: PostInterface,
    },
}

impl Network {
    pub(super) fn new(devices: Devices, options: &SoftOptions) -> Self {
        match devices {
            Devices::Soft => {
                let _ = options;
                Self::Soft(SoftFabric::new())
            }
            #[cfg(feature = "verbs")]
            Devices::Fake => {
                let (device, post) = fake(options.profile);
                Self::Fake { device: FakeDevice::new(device), post }
            }
        }
    }

    /// Where connections go, if not to the host itself.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Soft(_) => None,
            #[cfg(feature = "verbs")]
            Self::Fake { device, .. } => Some(device.address()),
        }
    }

    pub(super) fn device(&self, options: SoftOptions) -> Result<Nic, String> {
        match self {
            Self::Soft(fabric) => Ok(Nic::new(DeviceKind::Soft(fabric.device(options)))),
            #[cfg(feature = "verbs")]
            Self::Fake { device: fake, post } => {
                let mut options = VerbsOptions::new(fake.name());
                (options.post, options.self_test, options.registration) = (*post, false, Registration::Automatic);
                let device = VerbsDevice::open_with(frwr_fake::library(), &options);
                let context = fake.newest_context().ok_or("it is not open")?;
                let device = device.map_err(|error| error.to_string())?;
                Ok(Nic::new(DeviceKind::Fake(Box::new(device), context)))
            }
        }
    }

    /// What was done that no program may do.
    pub(super) fn violations(&self) -> Vec<String> {
        match self {
            Self::Soft(_) => Vec::new(),
            #[cfg(feature = "verbs")]
            Self::Fake { device, .. } => device.violations(),
        }
    }
}

/// What stands for a profile, and how it is driven.
#[cfg(feature = "verbs")]
fn fake(profile: SoftProfile) -> (FakeOptions, PostInterface) {
    let lists = |updates_tags, remote_invalidation| {
        FakeOptions::lists(FakeLists { updates_tags, remote_invalidation, entries: 20 })
    };
    let device = match profile {
        SoftProfile::RegMr => FakeOptions::windows("mlx5"),
        SoftProfile::Window => return (FakeOptions::windows("mlx5"), PostInterface::List),
        SoftProfile::Umr { rotating_key_bits: 0 } => lists(false, true),
        SoftProfile::Umr { .. } => lists(true, true),
        SoftProfile::Rxe => lists(false, false),
    };
    (device, PostInterface::Automatic)
}

#[allow(clippy::large_enum_variant, reason = "there are few of them")]
enum DeviceKind {
    Soft(SoftDevice),
    #[cfg(feature = "verbs")]
    Fake(Box<VerbsDevice>, FakeContext),
}

/// One device.
pub(super) struct Nic {
    kind: DeviceKind,
    /// A completion queue of it overran: the port that has it is of no use any more.
    overrun: Arc<AtomicBool>,
}

#[allow(clippy::large_enum_variant, reason = "there are few of them")]
enum PortKind {
    Soft(SoftPort),
    #[cfg(feature = "verbs")]
    Fake(Box<VerbsPort>, FakeContext),
}

/// Queue pairs remembered for faults: those of two sessions.
const QUEUE_PAIRS: usize = 4;

/// What was posted to a port, and what it said: as a number for the trace, since a record of each would cost more than the request.
#[derive(Debug, Default)]
pub(super) struct PortLog {
    trace: TraceHash,
    /// Queue pairs that posted last.
    pub(super) recent: ArrayVec<QueuePairId, QUEUE_PAIRS>,
    /// The shared receive queue, once it was posted to.
    pub(super) shared_receives: Option<SharedReceiveQueueId>,
    /// A queue that the device had to refuse a post to for want of room.
    pub(super) overrun: Option<String>,
}

impl PortLog {
    /// Of all that was posted and completed so far.
    pub(super) const fn trace(&self) -> u64 {
        self.trace.value()
    }

    fn posted(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) {
        if !self.recent.contains(&queue_pair) {
            if self.recent.is_full() {
                self.recent.remove(0);
            }
            self.recent.push(queue_pair);
        }
        for request in chain.requests {
            self.trace.add(request.token.0);
            // Addresses are the system's choice, not the seed's.
            self.trace.add(match request.operation {
                Operation::Register(fields) => u64::from(fields.key) << 3,
                Operation::Invalidate { key, .. } => u64::from(key) << 3 | 1,
                Operation::Send { .. } => 2,
                Operation::Read { .. } => 3,
                Operation::Write { .. } => 4,
            });
        }
    }

    fn outcome(&mut self, what: &str, result: &Result<(), PostError>) {
        if let Err(error) = result {
            self.trace.add(error.accepted as u64);
            if error.reason == PostRefusal::QueueFull {
                self.overrun.get_or_insert_with(|| format!("{what} was overrun"));
            }
        }
    }
}

/// One port.
pub(super) struct NicPort {
    kind: PortKind,
    pub(super) log: PortLog,
}

impl NicPort {
    fn new(kind: PortKind) -> Self {
        Self { kind, log: PortLog::default() }
    }

    /// The port of a software NIC.
    pub(super) const fn soft(&self) -> Option<&SoftPort> {
        match &self.kind {
            PortKind::Soft(port) => Some(port),
            #[cfg(feature = "verbs")]
            PortKind::Fake(..) => None,
        }
    }
}

impl Nic {
    fn new(kind: DeviceKind) -> Self {
        Self { kind, overrun: Arc::default() }
    }

    /// Whether a completion queue of it overran, then and from then on.
    pub(super) fn overrun(&self) -> Arc<AtomicBool> {
        self.overrun.clone()
    }

    /// A view into a software NIC.
    pub(super) fn monitor(&self) -> Option<SoftMonitor> {
        match &self.kind {
            DeviceKind::Soft(device) => Some(device.monitor()),
            #[cfg(feature = "verbs")]
            DeviceKind::Fake(..) => None,
        }
    }
}

/// Runs an expression on whatever device or port it is.
macro_rules! each {
    ($kind:ident, $whole:expr, $found:ident => $what:expr) => {
        match $whole {
            $kind::Soft($found) => $what,
            #[cfg(feature = "verbs")]
            $kind::Fake($found, _) => $what,
        }
    };
}

impl Device for Nic {
    type Port = NicPort;

    fn capabilities(&self) -> &Capabilities {
        each!(DeviceKind, &self.kind, device => device.capabilities())
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<NicPort, CommandError> {
        match &mut self.kind {
            DeviceKind::Soft(device) => {
                let port = device.open_port(send_entries, receive_entries)?;
                Ok(NicPort::new(PortKind::Soft(port)))
            }
            #[cfg(feature = "verbs")]
            DeviceKind::Fake(device, context) => {
                let port = device.open_port(send_entries, receive_entries)?;
                Ok(NicPort::new(PortKind::Fake(Box::new(port), *context)))
            }
        }
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        each!(DeviceKind, &mut self.kind, device => device.submit(ticket, command))
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        let event = each!(DeviceKind, &mut self.kind, device => device.poll());
        if matches!(event, Some(DeviceEvent::Async(AsyncEvent::CompletionQueueOverrun(_)))) {
            self.overrun.store(true, Relaxed);
        }
        event
    }
}

impl Port for NicPort {
    fn id(&self) -> PortId {
        each!(PortKind, &self.kind, port => port.id())
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        self.log.posted(queue_pair, chain);
        let result = each!(PortKind, &mut self.kind, port => port.post(queue_pair, chain));
        self.log.outcome("a send queue", &result);
        result
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        self.log.trace.add(receives.len() as u64);
        let result = each!(PortKind, &mut self.kind, port => port.post_receives(queue_pair, receives));
        self.log.outcome("a receive queue", &result);
        result
    }

    fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        self.log.trace.add(receives.len() as u64);
        self.log.shared_receives = Some(queue);
        let result = each!(PortKind, &mut self.kind, port => port.post_shared_receives(queue, receives));
        self.log.outcome("a shared receive queue", &result);
        result
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        let first = batch.len();
        let count = each!(PortKind, &mut self.kind, port => port.poll(queue, batch));
        for completion in batch.iter().skip(first) {
            self.log.trace.add(completion.token.0);
            match &completion.result {
                Ok(success) => self.log.trace.add(u64::from(success.bytes)),
                Err(failure) => failure.hash(&mut self.log.trace),
            }
        }
        count
    }

    fn remote_bytes_open(&self) -> Option<u64> {
        match &self.kind {
            PortKind::Soft(port) => port.remote_bytes_open(),
            #[cfg(feature = "verbs")]
            PortKind::Fake(_, context) => Some(context.remote_bytes()),
        }
    }
}
