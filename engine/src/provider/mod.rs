//! What the engine asks of a device, in two halves.
//!
//! [`Port`] is hot: one core owns it, posts chains to it and polls completions from it. [`Device`] is cold: `Control`
//! owns it and gives it commands that are system calls or firmware commands on real hardware. Nothing here knows of
//! requests, connections or policies; every type is a plain value that a wrapper can record, repeat or corrupt.

mod capabilities;
mod command;
mod failure;
pub mod fault;
pub mod record;
pub mod soft;
#[cfg(feature = "verbs")]
pub mod verbs;
mod work;

pub use capabilities::{
    BaseAddress, Capabilities, Contiguity, DeviceAttributes, KeyScope, PostModel, Quirks, SendQueueCost,
};
pub use command::{
    Answer, AsyncEvent, Command, CommandError, ConnectionEvent, ConnectionParameters, DeviceEvent, IncomingId,
    ListenerId, MAX_PRIVATE_DATA, PrivateData, QueueSizes, RejectReason, Ticket,
};
pub use failure::{Errno, Failure, FailureStatus};
pub use work::{
    Access, Chain, Completion, CompletionBatch, CompletionQueue, ElementRange, MAX_COMPLETIONS_PER_POLL, Operation,
    PostError, PostRefusal, ReceiveRequest, RegistrationFields, RemoteRange, ScatterElement, Success, Token, TokenKind,
    WorkRequest,
};

use core::task::Waker;
use frwr_mempool::{Bell, DeviceMemory};
use std::{os::fd::BorrowedFd, sync::Arc};

/// A queue pair's number, unique on its device for as long as the queue pair lives (the QPN of verbs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePairId(pub u32);

/// A shared receive queue of one port (the SRQ of verbs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedReceiveQueueId(pub u32);

/// A device object that can be registered by work request: a page-list MR, a type 2 window or an indirect mkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegistrationId(pub u32);

/// A memory registered once for local use, without any remote right (the base registration of verbs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BaseId(pub u32);

/// A protection domain of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainId(pub u32);

/// A registration of [`Port::register_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Its place among those of its port.
    pub index: u32,
    /// The key that the peer may be told; its addresses are those of the memory.
    pub key: u32,
}

/// One core's port of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u16);

/// The cold half of a device. One thread at a time calls it: the one that runs `Control`.
pub trait Device: Send {
    /// The hot half that [`Device::open_port`] hands out.
    type Port: Port;

    /// What the device can do. Constant for the device's life.
    fn capabilities(&self) -> &Capabilities;

    /// Opens a port for one core, with completion queues of at least the given numbers of entries, each above 0.
    ///
    /// # Errors
    /// [`CommandError`] when the device has no port or completion queue left.
    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<Self::Port, CommandError>;

    /// Gives the device a command. Its [`Answer`] comes out of [`Device::poll`] under the same ticket, at once or later.
    /// A refused command is handed back: the device takes no more until it has been polled.
    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command>;

    /// The next answer, connection event or asynchronous event; `None` when there is none now.
    fn poll(&mut self) -> Option<DeviceEvent>;

    /// Says what it rings behind whatever it has for [`Device::poll`] that none of its descriptors tells, as reports of
    /// its ports. Once, before it opens a port. Returns whether all that it will ever have is told by one of both:
    /// false where it has to be polled from time to time.
    fn rings(&mut self, bell: &Arc<Bell>) -> bool {
        let _ = bell;
        false
    }

    /// What becomes readable with its news, as of now: connections with other processes bring more.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Whether the system still lists this very device: one that was reset comes again by the same name, and is another. One
    /// that was removed may not have said so yet ([`AsyncEvent::DeviceFatal`]): the kernel tells one process after the other, and
    /// connections fail meanwhile. A system call, for whoever gives up and wants to say why; true where the system cannot be
    /// asked.
    fn is_present(&self) -> bool {
        true
    }
}

/// The hot half of a device. One core owns it; no other thread ever calls it.
pub trait Port {
    /// Which port this is.
    fn id(&self) -> PortId;

    /// Posts a chain to a queue pair's send queue and rings its doorbell once.
    ///
    /// # Errors
    /// [`PostError`] says how many work requests, counted from the front, were accepted all the same. Devices with
    /// [`PostModel::AllOrNothing`] always say zero.
    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError>;

    /// Posts receives to a queue pair's receive queue.
    ///
    /// # Errors
    /// As [`Port::post`], but a prefix is accepted on every device.
    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError>;

    /// Posts receives to a shared receive queue. Its queue pairs take them in order, whichever receives first; the
    /// completion says which one it was.
    ///
    /// # Errors
    /// As [`Port::post_receives`].
    fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError>;

    /// Takes completions from one of the port's two completion queues until `batch` is full or the queue is empty.
    /// Returns how many were taken. Software devices make their progress in here and in `post`, a bounded amount per call.
    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize;

    /// Whether [`Port::poll`] may find something in a completion queue, or has anything else to do; false only where it has
    /// not. A core that waits looks here first, so that looking costs it no call and no room for a batch. True where a look
    /// costs as much as a poll: ibv_poll_cq(3) is both.
    #[inline(always)]
    fn may_have_completions(&self, queue: CompletionQueue) -> bool {
        let _ = queue;
        true
    }

    /// Says how the core that owns it is woken where it sleeps ([`Port::arm`]). Once, before its device listens or connects.
    fn wakes(&mut self, waker: &Waker) {
        let _ = waker;
    }

    /// What becomes readable where an armed port has news, for devices that have a descriptor and call no waker. It is to be waited for
    /// edge-triggered: whatever has to be read of it is read by [`Port::arm`]. Constant.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The core wants to sleep: from now on whatever arrives wakes it, once. To be called again before each sleep, and both completion
    /// queues to be polled behind it, which finds what came before; if they are empty, it may sleep. False where something has to be
    /// polled for, as work of a device that makes its progress in polls, or where the device cannot wake anybody.
    fn arm(&mut self) -> bool {
        false
    }

    /// Behind [`Port::arm`] and the polls that followed it: nothing is left that only another poll would find, as a completion of one
    /// queue that came while the other one was polled.
    fn rests(&self) -> bool {
        true
    }

    /// A poll iteration begins: for wrappers that say what happened in which. Devices need not know.
    fn begin_iteration(&mut self, iteration: u64) {
        let _ = iteration;
    }

    /// Bytes of this port's memory that a peer could reach now, from the device's own key table, or `None` where the
    /// device cannot be asked (least privilege: a key lives no longer than its request).
    fn remote_bytes_open(&self) -> Option<u64> {
        None
    }

    /// Registers memory with a remote right by a system call (ibv_reg_mr(3)), in the protection domain of a queue pair: what
    /// programs do per request that do not register by work request. Blocks for as long as the kernel takes; the engine
    /// never calls it, measurements that compare do. Its key is the caller's to let die, and dies with the port.
    ///
    /// # Errors
    /// [`CommandError`]; [`CommandError::INVALID`] on devices that have no such call, as the software NIC.
    fn register_memory(
        &mut self,
        queue_pair: QueuePairId,
        memory: &DeviceMemory,
        access: Access,
    ) -> Result<RemoteMemory, CommandError> {
        let _ = (queue_pair, memory, access);
        Err(CommandError::INVALID)
    }

    /// Takes such a registration back by a system call (ibv_dereg_mr(3)): its key is dead when this returns.
    ///
    /// # Errors
    /// [`CommandError::Unknown`]; [`CommandError::BUSY`] where the device refuses, and the key then stays until the port goes.
    fn deregister_memory(&mut self, memory: RemoteMemory) -> Result<(), CommandError> {
        let _ = memory;
        Err(CommandError::Unknown)
    }
}
