//! The messages between an engine on its core and `Control`, over a pair of lanes.

use crate::{
    event::Listening,
    gather::MemoryId,
    mr::ConnectionKey,
    provider::{
        BaseId, CommandError, ConnectionParameters, IncomingId, PrivateData, QueuePairId, QueueSizes, RegistrationId,
        SharedReceiveQueueId,
    },
};
use arrayvec::ArrayVec;
use core::task::Waker;
use frwr_mempool::{Bell, DeviceMemory, freelist::Returner, lane};
use std::{net::SocketAddr, sync::Arc};

/// Descriptors in one message: bounds the size of a message, not the number of MRs.
pub(crate) const DESCRIPTORS_PER_MESSAGE: usize = 32;

/// Messages that fit into a lane. A core sends at most a handful per connection and event; a full lane is retried.
pub(crate) const LINK_CAPACITY: usize = 256;

/// Connect requests that one engine was told of and has neither accepted nor rejected: further ones are rejected by
/// Control, so that peers cannot make a queue grow (the backlog of rdma_listen(3)).
pub const MAX_INCOMING: usize = 128;

/// What devices may do with a declared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAccess {
    /// Read and write it.
    ReadWrite,
    /// Read it alone; this process may write to it nevertheless. It is registered without a right to write, and what would have a peer or
    /// our own device write to it is refused ([`GatherError::ReadOnly`](crate::GatherError::ReadOnly)).
    ReadOnly,
}

impl MemoryAccess {
    /// Whether devices may write.
    #[must_use]
    pub const fn permits_write(self) -> bool {
        matches!(self, Self::ReadWrite)
    }
}

/// A memory as it was declared.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredMemory {
    pub(crate) bytes: DeviceMemory,
    pub(crate) access: MemoryAccess,
}

/// How a queue pair is to be opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenOptions {
    pub(crate) sizes: QueueSizes,
    pub(crate) parameters: ConnectionParameters,
    pub(crate) own_domain: bool,
    /// Entries of the core's shared receive queue, where it has one.
    pub(crate) shared_receives: Option<u32>,
}

/// Where a queue pair is to be connected.
#[derive(Clone, Debug)]
pub(crate) enum OpenTarget {
    Address(SocketAddr),
    Incoming(IncomingId),
}

/// A base registration as an engine uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BaseKey {
    pub(crate) base: BaseId,
    pub(crate) lkey: u32,
}

/// From a core to Control.
#[derive(Debug)]
pub(crate) enum ToControl {
    AddMemory {
        memory: MemoryId,
        declared: DeclaredMemory,
    },
    /// No connection is to have it any more; those that do may still use it.
    WithdrawMemory {
        memory: MemoryId,
    },
    /// Nothing uses a memory that was withdrawn: its base registrations are to go.
    ReleaseMemory {
        memory: MemoryId,
    },
    Listen {
        address: SocketAddr,
    },
    StopListening {
        address: SocketAddr,
    },
    Reject {
        incoming: IncomingId,
        private_data: PrivateData,
    },
    Open {
        connection: ConnectionKey,
        target: OpenTarget,
        options: OpenOptions,
        private_data: PrivateData,
    },
    /// The receives are posted: the peer may be told that we are there.
    ReceivesPosted {
        connection: ConnectionKey,
    },
    Allocate {
        connection: ConnectionKey,
        depth: u32,
        descriptors: ArrayVec<u32, DESCRIPTORS_PER_MESSAGE>,
    },
    Free {
        objects: ArrayVec<(u32, RegistrationId), DESCRIPTORS_PER_MESSAGE>,
    },
    /// Move the queue pair to the error state and tell the peer.
    Fail {
        connection: ConnectionKey,
    },
    /// Nothing more is awaited of the queue pair: destroy it.
    Close {
        connection: ConnectionKey,
        /// It may still reach what the core would hand back: the core hears of its end when the device has destroyed it, not earlier.
        may_work: bool,
    },
}

/// From Control to a core.
#[derive(Debug)]
pub(crate) enum ToCore {
    Listening {
        address: SocketAddr,
        state: Listening,
    },
    Incoming {
        incoming: IncomingId,
        peer: Option<SocketAddr>,
        local: Option<SocketAddr>,
        private_data: PrivateData,
    },
    /// The core's shared receive queue; comes in front of the first queue pair that uses it.
    SharedReceives {
        queue: SharedReceiveQueueId,
        /// The local key of the core's messages in its domain.
        lkey: u32,
    },
    /// Behind all memories that are registered in its domain.
    QueuePairCreated {
        connection: ConnectionKey,
        queue_pair: QueuePairId,
        sizes: QueueSizes,
    },
    /// A memory is registered in the connection's domain, or the device refused that.
    Memory {
        connection: ConnectionKey,
        memory: MemoryId,
        made: Result<BaseKey, CommandError>,
    },
    /// A memory that was to be released has no base registration any more.
    MemoryRemoved {
        memory: MemoryId,
    },
    Established {
        connection: ConnectionKey,
        private_data: PrivateData,
    },
    OpenFailed {
        connection: ConnectionKey,
        reason: crate::event::OpenFailure,
        private_data: PrivateData,
    },
    Allocated {
        connection: ConnectionKey,
        descriptor: u32,
        /// The object and its key, or why the device made none.
        object: Result<(RegistrationId, u32), CommandError>,
    },
    /// The device refused to destroy the object of a descriptor.
    NotFreed {
        descriptor: u32,
        error: CommandError,
    },
    /// The peer, the connection manager or the device ended the connection.
    Ended {
        connection: ConnectionKey,
        by_device: bool,
    },
    /// The queue pair is in the error state and takes no more shared receives.
    LastReceive {
        connection: ConnectionKey,
    },
    /// The queue pair is in the error state, unless the device refused that: it may go on then.
    Failed {
        connection: ConnectionKey,
        refused: bool,
    },
    /// The device refused to destroy the queue pair, and is asked again; its end is told later.
    QueuePairKept {
        connection: ConnectionKey,
    },
    /// The queue pair is destroyed, or reaches nothing any more.
    Closed {
        connection: ConnectionKey,
    },
}

/// An engine's end.
pub struct CoreLink {
    to_control: lane::Sender<ToControl>,
    from_control: lane::Receiver<ToCore>,
    returner: lane::Sender<Returner>,
    /// Rung by Control behind what it says.
    bell: Arc<Bell>,
    /// The last to go: who hears of the end finds the lanes closed.
    control: ControlBell,
}

/// Wakes who polls Control, also when the engine goes.
struct ControlBell(Arc<Bell>);

impl Drop for ControlBell {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// Why Control was not asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotAsked {
    /// It has not taken earlier messages yet.
    Busy,
    /// It was dropped.
    Gone,
}

impl CoreLink {
    /// Tells Control. False where its lane is full: to be told again. One that is gone is told all the same.
    pub(crate) fn tell(&mut self, message: ToControl) -> bool {
        let told = self.to_control.push(message).is_ok();
        self.control.0.ring();
        told
    }

    /// The same of what has an answer: a Control that is gone would never give one.
    ///
    /// # Errors
    /// [`NotAsked`].
    pub(crate) fn ask(&mut self, message: ToControl) -> Result<(), NotAsked> {
        match self.to_control.is_closed() {
            true => Err(NotAsked::Gone),
            false if self.tell(message) => Ok(()),
            false => Err(NotAsked::Busy),
        }
    }

    /// Control may have said something since this was asked last.
    #[inline(always)]
    pub(crate) fn has_news(&self) -> bool {
        self.from_control.has_news()
    }

    /// Something that Control said was not taken.
    #[inline(always)]
    pub(crate) fn has_messages(&self) -> bool {
        !self.from_control.is_empty()
    }

    /// The next of what it said.
    pub(crate) fn next_message(&mut self) -> Option<ToCore> {
        self.from_control.pop()
    }

    /// Hands Control what it gives descriptors back with; once.
    pub(crate) fn hand_over(&mut self, returner: Returner) {
        let handed = self.returner.push(returner);
        debug_assert!(handed.is_ok(), "the lane holds one, and is empty");
        self.control.0.ring();
    }

    /// How Control wakes the core.
    pub(crate) fn wakes(&self, waker: &Waker) {
        self.bell.wakes(waker);
    }

    /// From now on what Control says wakes the core.
    pub(crate) fn arm(&self) {
        self.bell.arm();
    }
}

/// Control's end.
pub(crate) struct ControlLink {
    pub(crate) to_core: lane::Sender<ToCore>,
    pub(crate) from_core: lane::Receiver<ToControl>,
    pub(crate) returner: lane::Receiver<Returner>,
    /// The core's.
    pub(crate) bell: Arc<Bell>,
}

/// A pair of ends. The core rings `control` behind what it says.
pub(crate) fn link(control: &Arc<Bell>) -> (CoreLink, ControlLink) {
    let (to_control, from_core) = lane::bounded(LINK_CAPACITY);
    let (to_core, from_control) = lane::bounded(LINK_CAPACITY);
    let (give_returner, returner) = lane::bounded(1);
    let bell = Arc::<Bell>::default();
    let (of_core, control) = (Arc::clone(&bell), ControlBell(Arc::clone(control)));
    let core = CoreLink { to_control, from_control, returner: give_returner, bell: of_core, control };
    (core, ControlLink { to_core, from_core, returner, bell })
}
