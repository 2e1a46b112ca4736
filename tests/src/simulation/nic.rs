//! The devices of a simulation: software NICs, or the verbs provider as it is shipped over devices that are not there.

use frwr_engine::provider::{
    Capabilities, Chain, Command, CommandError, CompletionBatch, CompletionQueue, Device, DeviceEvent, Port, PortId,
    PostError, QueuePairId, ReceiveRequest, SharedReceiveQueueId, Ticket,
    soft::{SoftDevice, SoftFabric, SoftMonitor, SoftOptions, SoftPort},
};
#[cfg(feature = "verbs")]
use frwr_engine::provider::{
    soft::SoftProfile,
    verbs::{PostInterface, Registration, VerbsDevice, VerbsOptions, VerbsPort},
};
#[cfg(feature = "verbs")]
use frwr_fake::{FakeContext, FakeDevice, FakeLists, FakeOptions};
use std::net::IpAddr;

/// What a simulation runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// The software NIC, any profile.
    Soft,
    /// Windows and lists through the verbs provider: the profile of a seed says which.
    #[cfg(feature = "verbs")]
    Fake,
}

/// Where the two devices of a simulation reach each other.
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
            Self::Soft(fabric) => Ok(Nic::Soft(fabric.device(options))),
            #[cfg(feature = "verbs")]
            Self::Fake { device: fake, post } => {
                let mut options = VerbsOptions::new(fake.name());
                (options.post, options.self_test, options.registration) = (*post, false, Registration::Automatic);
                let device = VerbsDevice::open_with(frwr_fake::library(), &options);
                let context = fake.newest_context().ok_or("it is not open")?;
                Ok(Nic::Fake(Box::new(device.map_err(|error| error.to_string())?), context))
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

/// One device.
#[allow(clippy::large_enum_variant, reason = "there are two of them")]
pub(super) enum Nic {
    Soft(SoftDevice),
    #[cfg(feature = "verbs")]
    Fake(Box<VerbsDevice>, FakeContext),
}

/// One port.
#[allow(clippy::large_enum_variant, reason = "there are two of them")]
pub(super) enum NicPort {
    Soft(SoftPort),
    #[cfg(feature = "verbs")]
    Fake(Box<VerbsPort>, FakeContext),
}

impl Nic {
    /// A view into a software NIC.
    pub(super) fn monitor(&self) -> Option<SoftMonitor> {
        match self {
            Self::Soft(device) => Some(device.monitor()),
            #[cfg(feature = "verbs")]
            Self::Fake(..) => None,
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
        each!(Nic, self, device => device.capabilities())
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<NicPort, CommandError> {
        match self {
            Self::Soft(device) => device.open_port(send_entries, receive_entries).map(NicPort::Soft),
            #[cfg(feature = "verbs")]
            Self::Fake(device, context) => {
                let port = device.open_port(send_entries, receive_entries)?;
                Ok(NicPort::Fake(Box::new(port), *context))
            }
        }
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        each!(Nic, self, device => device.submit(ticket, command))
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        each!(Nic, self, device => device.poll())
    }
}

impl Port for NicPort {
    fn id(&self) -> PortId {
        each!(NicPort, self, port => port.id())
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        each!(NicPort, self, port => port.post(queue_pair, chain))
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        each!(NicPort, self, port => port.post_receives(queue_pair, receives))
    }

    fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        each!(NicPort, self, port => port.post_shared_receives(queue, receives))
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        each!(NicPort, self, port => port.poll(queue, batch))
    }

    fn remote_bytes_open(&self) -> Option<u64> {
        match self {
            Self::Soft(port) => port.remote_bytes_open(),
            #[cfg(feature = "verbs")]
            Self::Fake(_, context) => Some(context.remote_bytes()),
        }
    }
}
