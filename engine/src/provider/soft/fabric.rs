//! The network that software NICs of one process share: who listens where, and the connection manager's messages.

use super::queue_pair::Negotiated;
use super::sockets::{Rendezvous, RendezvousError};
use super::wire::WireEnd;
use crate::provider::{ConnectionParameters, ListenerId, PrivateData, QueuePairId, RejectReason};
use frwr_mempool::Bell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device on the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DeviceNumber(pub(super) u32);

/// A queue pair of some device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) device: DeviceNumber,
    pub(super) queue_pair: QueuePairId,
}

/// Messages that a device may leave unread before no more connect requests are brought to it. All other messages are
/// about connections that it has itself agreed to.
const MAX_UNREAD: usize = 1024;

/// Why a connect request was not brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// Nobody listens there.
    NoListener,
    /// Whoever listens there reads too slowly.
    Overloaded,
}

/// What connection managers say to each other.
pub(super) enum Message {
    /// Somebody wants to connect.
    Request {
        listener: ListenerId,
        /// As they called it.
        address: SocketAddr,
        from: Remote,
        /// Where that is.
        peer: Option<IpAddr>,
        private_data: PrivateData,
        parameters: ConnectionParameters,
    },
    /// The request was accepted: here is your end of the wire.
    Accepted {
        queue_pair: QueuePairId,
        peer: Remote,
        wire: Box<WireEnd>,
        negotiated: Negotiated,
        private_data: PrivateData,
    },
    /// The active side is ready to use the connection.
    Ready { queue_pair: QueuePairId },
    /// The request was refused.
    Rejected { queue_pair: QueuePairId, reason: RejectReason, private_data: PrivateData },
    /// Nobody is there any more to answer the request.
    Unreachable { queue_pair: QueuePairId },
    /// The peer ended the connection.
    Disconnected { queue_pair: QueuePairId },
}

/// What a device has not read yet.
#[derive(Default)]
struct Inbox {
    messages: VecDeque<Message>,
    /// Rung behind each of them, where somebody may wait for one.
    bell: Option<Arc<Bell>>,
}

impl Inbox {
    fn put(&mut self, message: Message) {
        self.messages.push_back(message);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }
}

#[derive(Default)]
struct State {
    next_device: u32,
    listeners: HashMap<SocketAddr, (DeviceNumber, ListenerId)>,
    inboxes: HashMap<DeviceNumber, Inbox>,
    /// Where those of other processes are found.
    rendezvous: Option<Rendezvous>,
}

impl State {
    fn bring(&mut self, to: DeviceNumber, request: Message) -> Result<(), Unasked> {
        let inbox = self.inboxes.get_mut(&to).ok_or(Unasked::NoListener)?;
        if inbox.messages.len() >= MAX_UNREAD {
            return Err(Unasked::Overloaded);
        }
        inbox.put(request);
        Ok(())
    }
}

/// A network of software NICs: of this process, or of several. Cheap to clone; any thread. Only cold halves use it, under a lock.
#[derive(Clone, Default)]
pub struct SoftFabric {
    state: Arc<Mutex<State>>,
    /// A port of it may sleep: wires that are made from now on have bells.
    sleeps: Arc<AtomicBool>,
}

impl core::fmt::Debug for SoftFabric {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftFabric").field("devices", &self.state().inboxes.len()).finish()
    }
}

impl SoftFabric {
    /// An empty network.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty network whose devices reach those of other processes of the same user, too, on networks that name the same
    /// directory ([`runtime_directory`](super::runtime_directory) is the usual one): an address that a device listens at is a socket
    /// in it. A process that dies is a device that does: its peers' connections end.
    ///
    /// # Errors
    /// [`RendezvousError`]: the directory is made where it is not there, is the user's own and closed to others.
    pub fn between_processes(directory: &Path) -> Result<Self, RendezvousError> {
        let rendezvous = Some(Rendezvous::new(directory)?);
        let state = Arc::new(Mutex::new(State { rendezvous, ..State::default() }));
        Ok(Self { state, sleeps: Arc::default() })
    }

    pub(super) fn rendezvous(&self) -> Option<Rendezvous> {
        self.state().rendezvous.clone()
    }

    /// Where ports say that they may sleep.
    pub(super) fn sleeps(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.sleeps)
    }

    /// Whether one of them may.
    pub(super) fn may_sleep(&self) -> bool {
        self.sleeps.load(Ordering::Acquire)
    }

    /// A number for a new device, and an inbox.
    pub(super) fn join(&self) -> DeviceNumber {
        let mut state = self.state();
        let number = DeviceNumber(state.next_device);
        state.next_device += 1;
        state.inboxes.insert(number, Inbox::default());
        number
    }

    /// What is said to a device from now on rings this.
    pub(super) fn rings(&self, device: DeviceNumber, bell: &Arc<Bell>) {
        if let Some(inbox) = self.state().inboxes.get_mut(&device) {
            inbox.bell = Some(Arc::clone(bell));
        }
    }

    /// Every change to the state is a single insertion or removal, so that it is whole even after a panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False where the address is taken.
    pub(super) fn listen(&self, address: SocketAddr, device: DeviceNumber, listener: ListenerId) -> bool {
        let mut state = self.state();
        let is_free = !state.listeners.contains_key(&address);
        if is_free {
            state.listeners.insert(address, (device, listener));
        }
        is_free
    }

    pub(super) fn stop_listening(&self, device: DeviceNumber, listener: ListenerId) {
        self.state().listeners.retain(|_, entry| *entry != (device, listener));
    }

    /// Brings a connect request to whoever listens at an address, or at all of its family.
    pub(super) fn ask(
        &self,
        address: SocketAddr,
        from: Remote,
        peer: Option<IpAddr>,
        private_data: PrivateData,
        parameters: ConnectionParameters,
    ) -> Result<(), Unasked> {
        let mut state = self.state();
        let all = match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let found = state.listeners.get(&address).or(state.listeners.get(&SocketAddr::new(all, address.port())));
        let (device, listener) = *found.ok_or(Unasked::NoListener)?;
        state.bring(device, Message::Request { listener, address, from, peer, private_data, parameters })
    }

    /// Brings a connect request to a device.
    pub(super) fn bring(&self, to: DeviceNumber, request: Message) -> Result<(), Unasked> {
        self.state().bring(to, request)
    }

    /// Hands the message back where the device is gone.
    pub(super) fn send(&self, to: DeviceNumber, message: Message) -> Result<(), Message> {
        match self.state().inboxes.get_mut(&to) {
            Some(inbox) => {
                inbox.put(message);
                Ok(())
            }
            None => Err(message),
        }
    }

    pub(super) fn receive(&self, device: DeviceNumber) -> Option<Message> {
        self.state().inboxes.get_mut(&device)?.messages.pop_front()
    }

    /// Removes a device; hands out what it had not read.
    pub(super) fn remove(&self, device: DeviceNumber) -> VecDeque<Message> {
        let mut state = self.state();
        state.listeners.retain(|_, entry| entry.0 != device);
        state.inboxes.remove(&device).unwrap_or_default().messages
    }
}
