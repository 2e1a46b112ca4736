//! The hot half: posts chains, polls completions.

use super::admit::{Guard, Limits, Objects, Taker, has_uneven_lists};
use super::completion_queues::CompletionQueues;
use super::errno::{command_error, errno};
use super::publish::{LANE_ENTRIES, PortCommand, Removed, Report};
use super::sys::{
    batch::{SendMemory, Sink},
    builder::Builder,
    completion_queue::no_completion,
    data::{PostedData, RegisteredMemory},
    memory_region::MemoryRegion,
    queue_pair::QueuePair,
    registered::Registered,
    shared_receive_queue::SharedReceiveQueue,
};
use crate::provider::{
    Access, Chain, CommandError, Completion, CompletionBatch, CompletionQueue as Which, Failure, FailureStatus,
    MAX_COMPLETIONS_PER_POLL, Port, PortId, PostError, PostRefusal, QueuePairId, ReceiveRequest, RegistrationFields,
    RemoteMemory, RemoteRange, ScatterElement, SharedReceiveQueueId, Success, Token, WorkRequest,
};
use core::task::Waker;
use frwr_mempool::lane::{Receiver, Sender};
use frwr_mempool::{Bell, DeviceMemory};
use ibverbs_sys::{ibv_wc, ibv_wc_flags, ibv_wc_opcode};
use std::{collections::VecDeque, io, os::fd::BorrowedFd, sync::Arc};

/// Commands taken by one poll: each may allocate.
const COMMANDS_PER_POLL: usize = 64;

/// The hot half of a device. Dropping it destroys, in the right order, what only it still holds.
pub struct VerbsPort {
    id: PortId,
    /// In front of the queue pairs: windows go first.
    objects: Objects<Registered, MemoryRegion>,
    /// What the messages of its queue pairs may come from.
    registered: RegisteredMemory,
    /// Sorted by number. A port has few, and looks one up per post.
    queue_pairs: Vec<Arc<QueuePair>>,
    /// One as a rule; behind the queue pairs, which use them.
    shared_receive_queues: Vec<(SharedReceiveQueueId, Arc<SharedReceiveQueue>)>,
    invalidate_flags: u32,
    miscounts_lists: bool,
    queues: CompletionQueues,
    /// Rung behind commands.
    bell: Arc<Bell>,
    /// Rung behind reports.
    device_bell: Arc<Bell>,
    memory: SendMemory,
    completions: Box<[ibv_wc; MAX_COMPLETIONS_PER_POLL]>,
    commands: Receiver<PortCommand>,
    reports: Sender<Report>,
    /// What the device is to be told as soon as there is room: of each object once, and of lost completions once in a row.
    unreported: VecDeque<Report>,
    /// What was registered by a system call on this core, by its index.
    remote_memories: Vec<Option<MemoryRegion>>,
}

impl core::fmt::Debug for VerbsPort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("VerbsPort").field("id", &self.id).field("queue_pairs", &self.queue_pairs.len()).finish()
    }
}

/// What a port is made of.
pub(super) struct Parts {
    pub(super) id: PortId,
    pub(super) queues: CompletionQueues,
    pub(super) bell: Arc<Bell>,
    /// Rung behind reports.
    pub(super) device_bell: Arc<Bell>,
    /// Work requests of the longest chain: as many as the send completion queue holds.
    pub(super) longest_chain: usize,
    /// What the device would not see.
    pub(super) guard: Guard,
    /// Remote invalidation is flagged with the wrong bit.
    pub(super) flag_misplaced: bool,
    /// The builder gets the length of uneven lists wrong.
    pub(super) miscounts_lists: bool,
    pub(super) commands: Receiver<PortCommand>,
    pub(super) reports: Sender<Report>,
}

impl VerbsPort {
    pub(super) fn new(parts: Parts) -> Self {
        let right = ibv_wc_flags::IBV_WC_WITH_INV.0;
        // rxe sets the kernel's bit, which is this one in user space.
        let also = if parts.flag_misplaced { ibv_wc_flags::IBV_WC_IP_CSUM_OK.0 } else { 0 };
        Self {
            id: parts.id,
            objects: Objects::new(parts.guard),
            registered: RegisteredMemory::default(),
            queue_pairs: Vec::new(),
            shared_receive_queues: Vec::new(),
            invalidate_flags: right | also,
            miscounts_lists: parts.miscounts_lists,
            queues: parts.queues,
            bell: parts.bell,
            device_bell: parts.device_bell,
            memory: SendMemory::new(parts.longest_chain.max(1)),
            completions: Box::new([no_completion(); MAX_COMPLETIONS_PER_POLL]),
            commands: parts.commands,
            reports: parts.reports,
            unreported: VecDeque::new(),
            remote_memories: Vec::new(),
        }
    }

    /// Also where there is no room for reports: what stands behind may have been told to whoever posts next.
    #[cold]
    fn take_commands(&mut self, at_most: usize) {
        for _ in 0..at_most {
            let Some(command) = self.commands.pop() else { break };
            if let Some(removed) = self.execute(command) {
                self.unreported.push_back(Report::Removed(removed));
            }
        }
        self.report();
    }

    /// A poll failed: the device ends all connections of this port, since what their work requests did is not known.
    #[cold]
    fn lose_completions(&mut self) {
        if self.unreported.back() != Some(&Report::CompletionsLost) {
            self.unreported.push_back(Report::CompletionsLost);
        }
        self.report();
    }

    /// Tells the device what there is room for.
    #[cold]
    fn report(&mut self) {
        while let Some(&report) = self.unreported.front() {
            if self.reports.push(report).is_err() {
                break;
            }
            self.unreported.pop_front();
            self.device_bell.ring();
        }
    }

    /// What a post may name was put into the lane before its maker was told, so it is in there or was taken.
    fn catch_up(&mut self) {
        if !self.commands.is_empty() {
            self.take_commands(LANE_ENTRIES);
        }
    }

    fn execute(&mut self, command: PortCommand) -> Option<Removed> {
        match command {
            PortCommand::AddBase(base, region) => {
                self.registered.add(&region);
                self.objects.add_base(base, region);
            }
            PortCommand::RemoveBase(base) => {
                if let Some(region) = self.objects.remove_base(base) {
                    self.registered.remove(&region);
                }
                return Some(Removed::Base(base));
            }
            PortCommand::AddQueuePair(queue_pair) => {
                let place = self.queue_pairs.partition_point(|known| known.id() < queue_pair.id());
                self.queue_pairs.insert(place, queue_pair);
            }
            PortCommand::RemoveQueuePair(id, windows) => {
                for window in windows {
                    self.objects.remove_window(window);
                }
                self.queue_pairs.retain(|known| known.id() != id);
                return Some(Removed::QueuePair(id));
            }
            PortCommand::AddSharedReceiveQueue(id, queue) => self.shared_receive_queues.push((id, queue)),
            PortCommand::RemoveSharedReceiveQueue(id) => {
                self.shared_receive_queues.retain(|(known, _)| *known != id);
                return Some(Removed::SharedReceiveQueue(id));
            }
            PortCommand::AddWindow(object, window) => {
                let (key, lists) = (window.key(), window.lists());
                self.objects.add_window(object, window, key, lists);
            }
            PortCommand::RemoveWindow(object) => {
                self.objects.remove_window(object);
                return Some(Removed::Window(object));
            }
        }
        None
    }
}

/// Work requests as they are admitted, on their way into the device's list or builder.
struct Filling<'a, 's, S> {
    sink: &'s mut S,
    data: PostedData<'a>,
}

impl<'a, S: Sink<'a>> Taker<'a, Registered, MemoryRegion> for Filling<'a, '_, S> {
    #[inline(always)]
    fn register(
        &mut self,
        request: &WorkRequest,
        fields: &RegistrationFields,
        object: &'a Registered,
        base: &'a MemoryRegion,
        elements: &'a [ScatterElement],
    ) {
        match object {
            Registered::Window(window) => self.sink.bind(request, fields, window, base),
            Registered::List(mkey) => self.sink.list(request, fields, mkey, elements),
        }
    }

    #[inline(always)]
    fn invalidate(&mut self, request: &WorkRequest, key: u32) {
        self.sink.invalidate(request, key);
    }

    #[inline(always)]
    fn send(&mut self, request: &WorkRequest, elements: &'a [ScatterElement], invalidate: Option<u32>) {
        self.sink.send(request, self.data.data(request, elements), invalidate);
    }

    #[inline(always)]
    fn read(&mut self, request: &WorkRequest, elements: &'a [ScatterElement], remote: RemoteRange) {
        self.sink.read(request, elements, remote);
    }

    #[inline(always)]
    fn write(&mut self, request: &WorkRequest, elements: &'a [ScatterElement], remote: RemoteRange) {
        self.sink.write(request, self.data.data(request, elements), remote);
    }
}

impl Objects<Registered, MemoryRegion> {
    /// `ibv_post_send`: a prefix may be taken.
    fn post_lists(
        &self,
        memory: &mut SendMemory,
        registered: &RegisteredMemory,
        queue_pair: &QueuePair,
        chain: Chain<'_>,
    ) -> Result<(), PostError> {
        let mut accepted = 0;
        for requests in chain.requests.chunks(memory.entries()) {
            let mut batch = memory.batch();
            let mut filling = Filling { sink: &mut batch, data: registered.of_post(queue_pair) };
            let admitted = self.hand_over(Chain { requests, ..chain }, limits(queue_pair), &mut filling);
            if let Err((taken, error)) = batch.post(queue_pair) {
                self.forget(&requests[taken..admitted]);
                return Err(post_error(accepted + taken, &error));
            }
            accepted += admitted;
            if admitted < requests.len() {
                return Err(PostError::new(accepted, PostRefusal::Invalid));
            }
        }
        Ok(())
    }

    /// `ibv_wr_*`: all or nothing.
    fn build(&self, registered: &RegisteredMemory, queue_pair: &QueuePair, chain: Chain<'_>) -> Result<(), PostError> {
        let mut builder = Builder::begin(queue_pair).ok_or(PostError::new(0, PostRefusal::NotReady))?;
        let mut filling = Filling { sink: &mut builder, data: registered.of_post(queue_pair) };
        let admitted = self.hand_over(chain, limits(queue_pair), &mut filling);
        let completed = if admitted < chain.requests.len() {
            drop(builder);
            Err(PostError::new(0, PostRefusal::Invalid))
        } else {
            builder.complete().map_err(|error| post_error(0, &error))
        };
        completed.inspect_err(|_| self.forget(&chain.requests[..admitted]))
    }
}

fn limits(queue_pair: &QueuePair) -> Limits {
    Limits { elements: queue_pair.sizes().max_send_sge, entries: queue_pair.max_entries() }
}

/// The place of a queue pair among a port's.
fn find(queue_pairs: &[Arc<QueuePair>], id: QueuePairId) -> Result<&QueuePair, PostError> {
    let place = queue_pairs.binary_search_by_key(&id, |known| known.id());
    let place = place.map_err(|_| PostError::new(0, PostRefusal::NotReady))?;
    Ok(&queue_pairs[place])
}

/// How the device refused a post.
fn post_error(accepted: usize, error: &io::Error) -> PostError {
    PostError { accepted, reason: reason(error), errno: errno(error) }
}

fn reason(error: &io::Error) -> PostRefusal {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOSPC) => PostRefusal::QueueFull,
        Some(libc::EIO | libc::ENODEV) => PostRefusal::DeviceGone,
        // A queue pair in the RESET state says EINVAL too; it can be told from a bad field by nothing.
        _ => PostRefusal::Invalid,
    }
}

fn completion(raw: &ibv_wc, invalidate_flags: u32) -> Completion {
    let result = match raw.error() {
        Some((status, vendor_code)) => Err(Failure::new(FailureStatus::of_number(status), vendor_code)),
        None => Ok(success(raw, invalidate_flags)),
    };
    Completion { token: Token(raw.wr_id()), queue_pair: QueuePairId(raw.qp_num), result }
}

fn success(raw: &ibv_wc, invalidate_flags: u32) -> Success {
    if raw.opcode() != ibv_wc_opcode::IBV_WC_RECV {
        return Success::default();
    }
    let is_invalidated = raw.wc_flags.0 & invalidate_flags != 0;
    // In host order, unlike immediate data.
    let invalidated = is_invalidated.then_some(raw.imm_data);
    Success { bytes: u32::try_from(raw.len()).unwrap_or(u32::MAX), invalidated }
}

impl Port for VerbsPort {
    fn id(&self) -> PortId {
        self.id
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        self.catch_up();
        let queue_pair = find(&self.queue_pairs, queue_pair)?;
        // Both interfaces may take turns on a queue pair (ibv_wr_post(3)).
        if queue_pair.has_builder() && !(self.miscounts_lists && has_uneven_lists(chain)) {
            self.objects.build(&self.registered, queue_pair, chain)
        } else {
            self.objects.post_lists(&mut self.memory, &self.registered, queue_pair, chain)
        }
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        self.catch_up();
        let posted = find(&self.queue_pairs, queue_pair)?.post_receives(receives);
        posted.map_err(|(accepted, error)| post_error(accepted, &error))
    }

    fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        self.catch_up();
        let found = self.shared_receive_queues.iter().find(|(id, _)| *id == queue);
        let (_, queue) = found.ok_or(PostError::new(0, PostRefusal::NotReady))?;
        queue.post(receives).map_err(|(accepted, error)| post_error(accepted, &error))
    }

    fn poll(&mut self, queue: Which, batch: &mut CompletionBatch) -> usize {
        if !self.commands.is_empty() {
            self.take_commands(COMMANDS_PER_POLL);
        }
        if !self.unreported.is_empty() {
            self.report();
        }
        let Self { objects, queues, completions, .. } = self;
        let queue = queues.of(queue);
        let room = batch.remaining_capacity().min(completions.len());
        let Some(room) = completions.get_mut(..room).filter(|room| !room.is_empty()) else { return 0 };
        let Ok(taken) = queue.poll(room) else {
            self.lose_completions();
            return 0;
        };
        for raw in taken {
            let completion = completion(raw, self.invalidate_flags);
            if let Ok(Success { invalidated: Some(key), .. }) = completion.result {
                objects.invalidated(key);
            }
            batch.push(completion);
        }
        taken.len()
    }

    fn wakes(&mut self, waker: &Waker) {
        self.bell.wakes(waker);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.queues.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.bell.arm();
        self.queues.arm()
    }

    /// Nobody rings when there is room for reports again, nor for what one poll left of many commands.
    fn rests(&self) -> bool {
        self.unreported.is_empty() && self.commands.is_empty()
    }

    fn register_memory(
        &mut self,
        queue_pair: QueuePairId,
        memory: &DeviceMemory,
        access: Access,
    ) -> Result<RemoteMemory, CommandError> {
        if memory.is_empty() {
            return Err(CommandError::INVALID);
        }
        self.catch_up();
        let found = self.queue_pairs.binary_search_by_key(&queue_pair, |known| known.id());
        let queue_pair = found.ok().and_then(|at| self.queue_pairs.get(at)).ok_or(CommandError::Unknown)?;
        let region = MemoryRegion::remote(queue_pair.domain(), memory.clone(), access);
        let region = region.map_err(|error| command_error(&error))?;
        let key = region.rkey();
        let vacant = self.remote_memories.iter().position(Option::is_none);
        let place = vacant.unwrap_or_else(|| {
            self.remote_memories.push(None);
            self.remote_memories.len() - 1
        });
        let index = u32::try_from(place).map_err(|_| CommandError::EXHAUSTED)?;
        self.remote_memories[place] = Some(region);
        Ok(RemoteMemory { index, key })
    }

    fn deregister_memory(&mut self, memory: RemoteMemory) -> Result<(), CommandError> {
        let place = self.remote_memories.get_mut(memory.index as usize).ok_or(CommandError::Unknown)?;
        let region = place.take_if(|region| region.rkey() == memory.key).ok_or(CommandError::Unknown)?;
        region.destroy().map_err(|(region, error)| {
            *place = Some(region);
            CommandError::Busy(errno(&error))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{completion, no_completion, post_error, reason};
    use crate::provider::{Errno, Failure, FailureStatus, PostError, PostRefusal};
    use ibverbs_sys::{ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status};
    use std::io;

    #[test]
    fn a_refused_post_has_a_reason() {
        for (code, expected) in [
            (libc::ENOMEM, PostRefusal::QueueFull),
            (libc::ENOSPC, PostRefusal::QueueFull),
            (libc::EIO, PostRefusal::DeviceGone),
            (libc::ENODEV, PostRefusal::DeviceGone),
            (libc::EINVAL, PostRefusal::Invalid),
            (libc::EOPNOTSUPP, PostRefusal::Invalid),
        ] {
            assert_eq!(reason(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
        assert_eq!(reason(&io::ErrorKind::Other.into()), PostRefusal::Invalid);
        for code in [libc::ENOMEM, libc::ENOSPC, libc::EPERM, libc::ENODEV, 133] {
            let PostError { accepted, errno, .. } = post_error(3, &io::Error::from_raw_os_error(code));
            assert_eq!((accepted, errno), (3, Errno(code)), "the number goes on as it came");
        }
    }

    /// A completion as a library writes it: the members that are private in Rust are written through the C layout.
    fn raw(status: ibv_wc_status::Type, opcode: ibv_wc_opcode::Type, flags: ibv_wc_flags) -> ibv_wc {
        crate::provider::verbs::sys::completion_queue::test_completion(status, opcode, flags)
    }

    #[test]
    fn only_a_receive_names_a_key_and_only_where_it_is_flagged() {
        use ibv_wc_opcode::{IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND};
        let (right, kernel) = (ibv_wc_flags::IBV_WC_WITH_INV, ibv_wc_flags::IBV_WC_IP_CSUM_OK);
        let good = ibv_wc_status::IBV_WC_SUCCESS;
        for (opcode, flags, accepted, key) in [
            (IBV_WC_RECV, right, right.0, Some(0x1234)),
            (IBV_WC_RECV, kernel, right.0, None),
            (IBV_WC_RECV, kernel, right.0 | kernel.0, Some(0x1234)),
            (IBV_WC_RECV, ibv_wc_flags(0), right.0 | kernel.0, None),
            (IBV_WC_SEND, right, right.0, None),
            (IBV_WC_RECV_RDMA_WITH_IMM, right, right.0, None),
        ] {
            let seen = completion(&raw(good, opcode, flags), accepted);
            assert_eq!(seen.result.map(|success| success.invalidated), Ok(key), "{opcode} {flags:?}");
        }
        // Of a failed one only token, queue pair, status and vendor code count.
        let failed = completion(&raw(ibv_wc_status::IBV_WC_REM_ACCESS_ERR, IBV_WC_RECV, right), right.0);
        assert_eq!(
            (failed.token.0, failed.queue_pair.0, failed.result),
            (77, 17, Err(Failure::new(FailureStatus::RemoteAccess, 0x88)))
        );
        assert_eq!(no_completion().wr_id(), 0);
    }
}
