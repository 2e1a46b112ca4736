//! A wrapper over any provider that does on command what devices do rarely: refuse posts, hold, drop, repeat or replace
//! completions, fail commands (goals.md, section 8).
//!
//! For tests only: the script is behind a lock that every call takes.

use super::{
    Capabilities, Chain, Command, CommandError, Completion, CompletionBatch, CompletionQueue, Device, DeviceEvent,
    FailureStatus, Port, PortId, PostError, PostModel, PostRefusal, QueuePairId, ReceiveRequest, Success, Ticket,
    TokenKind,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A kind of [`Command`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the command of the same name")]
pub enum CommandKind {
    AllocateDomain,
    FreeDomain,
    RegisterMemory,
    DeregisterMemory,
    CreateQueuePair,
    FailQueuePair,
    DestroyQueuePair,
    AllocateRegistration,
    FreeRegistration,
    Listen,
    StopListening,
    Connect,
    Accept,
    Reject,
    Disconnect,
}

impl CommandKind {
    /// The kind of a command.
    #[must_use]
    pub const fn of(command: &Command) -> Self {
        match command {
            Command::AllocateDomain => Self::AllocateDomain,
            Command::FreeDomain { .. } => Self::FreeDomain,
            Command::RegisterMemory { .. } => Self::RegisterMemory,
            Command::DeregisterMemory { .. } => Self::DeregisterMemory,
            Command::CreateQueuePair { .. } => Self::CreateQueuePair,
            Command::FailQueuePair { .. } => Self::FailQueuePair,
            Command::DestroyQueuePair { .. } => Self::DestroyQueuePair,
            Command::AllocateRegistration { .. } => Self::AllocateRegistration,
            Command::FreeRegistration { .. } => Self::FreeRegistration,
            Command::Listen { .. } => Self::Listen,
            Command::StopListening { .. } => Self::StopListening,
            Command::Connect { .. } => Self::Connect,
            Command::Accept { .. } => Self::Accept,
            Command::Reject { .. } => Self::Reject,
            Command::Disconnect { .. } => Self::Disconnect,
        }
    }
}

/// Which completions a fault is for; `None` fits all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompletionFilter {
    /// Of this completion queue.
    pub queue: Option<CompletionQueue>,
    /// Of this queue pair.
    pub queue_pair: Option<QueuePairId>,
    /// Of work requests of this kind.
    pub kind: Option<TokenKind>,
}

impl CompletionFilter {
    /// Fits completions of one queue pair.
    #[must_use]
    pub const fn queue_pair(queue_pair: QueuePairId) -> Self {
        Self { queue: None, queue_pair: Some(queue_pair), kind: None }
    }

    /// Fits completions of one kind of work request.
    #[must_use]
    pub const fn kind(kind: TokenKind) -> Self {
        Self { queue: None, queue_pair: None, kind: Some(kind) }
    }

    fn fits(&self, queue: CompletionQueue, completion: &Completion) -> bool {
        self.queue.is_none_or(|wanted| wanted == queue)
            && self.queue_pair.is_none_or(|wanted| wanted == completion.queue_pair)
            && self.kind.is_none_or(|wanted| wanted == completion.token.kind())
    }
}

/// What happens to a completion. Of a failed one there is nothing to corrupt but its status (I17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionFault {
    /// It is kept back, in order, until [`FaultHandle::release`].
    Hold,
    /// It is lost.
    Drop,
    /// It comes twice.
    Duplicate,
    /// It fails with this status.
    Fail(FailureStatus),
    /// It succeeds and says this.
    Succeed(Success),
}

#[derive(Clone, Copy, Debug)]
struct CompletionRule {
    filter: CompletionFilter,
    fault: CompletionFault,
    /// How often it is still used; `None` for ever.
    times: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct PostRule {
    queue_pair: QueuePairId,
    of_receives: bool,
    accepted: usize,
    reason: PostRefusal,
}

#[derive(Debug, Default)]
struct Script {
    posts: VecDeque<PostRule>,
    completions: Vec<CompletionRule>,
    commands: Vec<(CommandKind, CommandError, u32)>,
    injected: Vec<(PortId, CompletionQueue, Completion)>,
    events: VecDeque<DeviceEvent>,
    releases: u64,
    faults: u64,
}

impl Script {
    /// Takes the fault for a completion off the script.
    fn fault_of(&mut self, queue: CompletionQueue, completion: &Completion) -> Option<CompletionFault> {
        let index = self.completions.iter().position(|rule| rule.filter.fits(queue, completion))?;
        let rule = self.completions.get_mut(index)?;
        let fault = rule.fault;
        if let Some(times) = &mut rule.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.completions.remove(index);
            }
        }
        self.faults += 1;
        Some(fault)
    }

    fn post_rule(&mut self, queue_pair: QueuePairId, of_receives: bool) -> Option<PostRule> {
        let fits = |rule: &PostRule| rule.queue_pair == queue_pair && rule.of_receives == of_receives;
        let rule = self.posts.iter().position(fits).and_then(|index| self.posts.remove(index));
        self.faults += u64::from(rule.is_some());
        rule
    }

    fn command_error(&mut self, command: &Command) -> Option<CommandError> {
        let kind = CommandKind::of(command);
        let index = self.commands.iter().position(|entry| entry.0 == kind)?;
        let entry = self.commands.get_mut(index)?;
        let error = entry.1;
        entry.2 = entry.2.saturating_sub(1);
        if entry.2 == 0 {
            self.commands.remove(index);
        }
        self.faults += 1;
        Some(error)
    }
}

/// Writes the script of a faulty device and its ports. Cheap to clone; any thread.
#[derive(Clone, Debug, Default)]
pub struct FaultHandle(Arc<Mutex<Script>>);

impl FaultHandle {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next post on a queue pair is accepted up to `accepted` work requests (none on devices with
    /// [`PostModel::AllOrNothing`]). Several calls are for several posts, in order.
    pub fn refuse_post(&self, queue_pair: QueuePairId, accepted: usize, reason: PostRefusal) {
        self.script().posts.push_back(PostRule { queue_pair, of_receives: false, accepted, reason });
    }

    /// The same for the next post of receives.
    pub fn refuse_receives(&self, queue_pair: QueuePairId, accepted: usize, reason: PostRefusal) {
        self.script().posts.push_back(PostRule { queue_pair, of_receives: true, accepted, reason });
    }

    /// The next `times` completions that fit suffer a fault. Earlier rules go first.
    pub fn on_completions(&self, filter: CompletionFilter, fault: CompletionFault, times: u32) {
        if times > 0 {
            self.script().completions.push(CompletionRule { filter, fault, times: Some(times) });
        }
    }

    /// All further completions that fit suffer a fault, until [`FaultHandle::clear`].
    pub fn on_all_completions(&self, filter: CompletionFilter, fault: CompletionFault) {
        self.script().completions.push(CompletionRule { filter, fault, times: None });
    }

    /// The next completion of a queue pair fails with `status`, all later ones are flushed.
    pub fn fail_from_now(&self, queue_pair: QueuePairId, status: FailureStatus) {
        let filter = CompletionFilter::queue_pair(queue_pair);
        self.on_completions(filter, CompletionFault::Fail(status), 1);
        self.on_all_completions(filter, CompletionFault::Fail(FailureStatus::Flushed));
    }

    /// Keeps back all completions of a queue.
    pub fn hold(&self, queue: CompletionQueue) {
        let filter = CompletionFilter { queue: Some(queue), ..CompletionFilter::default() };
        self.on_all_completions(filter, CompletionFault::Hold);
    }

    /// Forgets every rule to hold, and lets out what was kept back, before anything newer.
    pub fn release(&self) {
        let mut script = self.script();
        script.completions.retain(|rule| rule.fault != CompletionFault::Hold);
        script.releases += 1;
    }

    /// Forgets every rule. What is kept back stays so until [`FaultHandle::release`].
    pub fn clear(&self) {
        let mut script = self.script();
        script.posts.clear();
        script.completions.clear();
        script.commands.clear();
    }

    /// A completion out of nowhere: with a foreign token, a stale generation, an absurd key.
    pub fn inject(&self, port: PortId, queue: CompletionQueue, completion: Completion) {
        self.script().injected.push((port, queue, completion));
    }

    /// The next `times` commands of a kind fail without reaching the device.
    pub fn fail_command(&self, kind: CommandKind, error: CommandError, times: u32) {
        if times > 0 {
            self.script().commands.push((kind, error, times));
        }
    }

    /// An event out of nowhere.
    pub fn inject_event(&self, event: DeviceEvent) {
        self.script().events.push_back(event);
    }

    /// Faults that happened so far.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.script().faults
    }
}

/// A device with a script.
#[derive(Debug)]
pub struct Faulty<D> {
    device: D,
    handle: FaultHandle,
}

impl<D: Device> Faulty<D> {
    /// Wraps a device; its ports follow the same script.
    #[must_use]
    pub fn new(device: D) -> (Self, FaultHandle) {
        let handle = FaultHandle::default();
        (Self { device, handle: handle.clone() }, handle)
    }

    /// The device inside.
    #[must_use]
    pub const fn inner(&self) -> &D {
        &self.device
    }
}

impl<D: Device> Device for Faulty<D> {
    type Port = FaultyPort<D::Port>;

    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<Self::Port, CommandError> {
        let port = self.device.open_port(send_entries, receive_entries)?;
        let all_or_nothing = self.capabilities().post_model == PostModel::AllOrNothing;
        Ok(FaultyPort {
            port,
            all_or_nothing,
            handle: self.handle.clone(),
            ready: Default::default(),
            held: Default::default(),
            releases: 0,
        })
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        let mut script = self.handle.script();
        if let Some(error) = script.command_error(&command) {
            script.events.push_back(DeviceEvent::Answered { ticket, result: Err(error) });
            return Ok(());
        }
        drop(script);
        self.device.submit(ticket, command)
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        let injected = self.handle.script().events.pop_front();
        injected.or_else(|| self.device.poll())
    }
}

/// Completions of the two queues.
#[derive(Debug, Default)]
struct Kept {
    send: VecDeque<Completion>,
    receive: VecDeque<Completion>,
}

impl Kept {
    const fn of(&mut self, queue: CompletionQueue) -> &mut VecDeque<Completion> {
        match queue {
            CompletionQueue::Send => &mut self.send,
            CompletionQueue::Receive => &mut self.receive,
        }
    }
}

/// A port with a script.
#[derive(Debug)]
pub struct FaultyPort<P> {
    port: P,
    all_or_nothing: bool,
    handle: FaultHandle,
    ready: Kept,
    held: Kept,
    releases: u64,
}

impl<P: Port> FaultyPort<P> {
    /// The port inside.
    pub const fn inner(&mut self) -> &mut P {
        &mut self.port
    }

    fn let_out(&mut self) {
        let releases = self.handle.script().releases;
        if releases != self.releases {
            self.releases = releases;
            for queue in [CompletionQueue::Send, CompletionQueue::Receive] {
                self.ready.of(queue).append(self.held.of(queue));
            }
        }
    }

    fn suffer(&mut self, queue: CompletionQueue, mut completion: Completion) {
        let fault = self.handle.script().fault_of(queue, &completion);
        match fault {
            Some(CompletionFault::Hold) => return self.held.of(queue).push_back(completion),
            Some(CompletionFault::Drop) => return,
            Some(CompletionFault::Duplicate) => self.ready.of(queue).push_back(completion),
            Some(CompletionFault::Fail(status)) => completion.result = Err(status),
            Some(CompletionFault::Succeed(success)) => completion.result = Ok(success),
            None => {}
        }
        self.ready.of(queue).push_back(completion);
    }
}

impl<P: Port> Port for FaultyPort<P> {
    fn id(&self) -> PortId {
        self.port.id()
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        let rule = self.handle.script().post_rule(queue_pair, false);
        let Some(PostRule { accepted, reason, .. }) = rule else { return self.port.post(queue_pair, chain) };
        let accepted = if self.all_or_nothing { 0 } else { accepted.min(chain.requests.len()) };
        let requests = chain.requests.get(..accepted).unwrap_or(chain.requests);
        if !requests.is_empty() {
            self.port.post(queue_pair, Chain { requests, elements: chain.elements })?;
        }
        Err(PostError { accepted, reason })
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        let rule = self.handle.script().post_rule(queue_pair, true);
        let Some(PostRule { accepted, reason, .. }) = rule else {
            return self.port.post_receives(queue_pair, receives);
        };
        let accepted = accepted.min(receives.len());
        self.port.post_receives(queue_pair, receives.get(..accepted).unwrap_or(receives))?;
        Err(PostError { accepted, reason })
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        self.let_out();
        let mut fresh = CompletionBatch::new();
        self.port.poll(queue, &mut fresh);
        for completion in fresh {
            self.suffer(queue, completion);
        }
        let id = self.port.id();
        let ready = self.ready.of(queue);
        for (_, _, completion) in
            self.handle.script().injected.extract_if(.., |entry| entry.0 == id && entry.1 == queue)
        {
            ready.push_back(completion);
        }
        let mut taken = 0;
        while !batch.is_full() {
            let Some(completion) = ready.pop_front() else { break };
            batch.push(completion);
            taken += 1;
        }
        taken
    }

    fn remote_bytes_open(&self) -> Option<u64> {
        self.port.remote_bytes_open()
    }
}
