//! What is to go wrong, and the handle that says so.

use crate::provider::{
    Answer, Command, CommandError, Completion, CompletionQueue, DeviceEvent, Failure, PortId, PostRefusal, QueuePairId,
    SharedReceiveQueueId, Success, Ticket, TokenKind,
};
use std::collections::{HashMap, HashSet, VecDeque};
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
    CreateSharedReceiveQueue,
    DestroySharedReceiveQueue,
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
            Command::CreateSharedReceiveQueue { .. } => Self::CreateSharedReceiveQueue,
            Command::DestroySharedReceiveQueue { .. } => Self::DestroySharedReceiveQueue,
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
    /// The same, but not behind the destruction of its queue pair, when it comes at last: what a queue pair took of a shared
    /// receive queue no device tells of later.
    HoldWhileAlive,
    /// It is lost.
    Drop,
    /// It comes twice.
    Duplicate,
    /// It fails like this.
    Fail(Failure),
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

impl CompletionFault {
    /// Whether a completion is kept back.
    const fn holds(self) -> bool {
        matches!(self, Self::Hold | Self::HoldWhileAlive)
    }
}

/// What is posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostTarget {
    Sends(QueuePairId),
    Receives(QueuePairId),
    SharedReceives(SharedReceiveQueueId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PostRule {
    target: PostTarget,
    pub(super) accepted: usize,
    pub(super) reason: PostRefusal,
}

#[derive(Debug, Default)]
pub(super) struct Script {
    posts: VecDeque<PostRule>,
    completions: Vec<CompletionRule>,
    commands: Vec<(CommandKind, CommandError, u32)>,
    /// Commands whose answers are kept back.
    slow: HashSet<CommandKind>,
    /// What the device has been given and has not answered.
    submitted: HashMap<Ticket, CommandKind>,
    late: VecDeque<DeviceEvent>,
    succeeded: HashMap<CommandKind, u64>,
    pub(super) injected: Vec<(PortId, CompletionQueue, Completion)>,
    pub(super) events: VecDeque<DeviceEvent>,
    pub(super) releases: u64,
    /// Queue pairs that the device was told to destroy, and did or will.
    destroyed: HashSet<QueuePairId>,
    pub(super) removed: bool,
    faults: u64,
}

impl Script {
    /// Takes the fault for a completion off the script.
    pub(super) fn fault_of(&mut self, queue: CompletionQueue, completion: &Completion) -> Option<CompletionFault> {
        let is_late = self.destroyed.contains(&completion.queue_pair);
        let applies = |rule: &CompletionRule| {
            rule.filter.fits(queue, completion) && !(is_late && rule.fault == CompletionFault::HoldWhileAlive)
        };
        let index = self.completions.iter().position(applies)?;
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

    /// Notes what the device is given, and the ends of queue pairs.
    pub(super) fn note_command(&mut self, ticket: Ticket, command: &Command) {
        self.submitted.insert(ticket, CommandKind::of(command));
        if let Command::DestroyQueuePair { queue_pair } = command {
            self.destroyed.insert(*queue_pair);
        }
    }

    /// Keeps an answer back where its kind is slow; the event otherwise.
    pub(super) fn pass(&mut self, event: DeviceEvent) -> Option<DeviceEvent> {
        if let DeviceEvent::Answered { ticket, result } = &event
            && let Some(kind) = self.submitted.remove(ticket)
        {
            *self.succeeded.entry(kind).or_default() += u64::from(result.is_ok());
            if self.slow.contains(&kind) {
                self.late.push_back(event);
                self.faults += 1;
                return None;
            }
        }
        Some(event)
    }

    /// The device made a queue pair, perhaps of a number that it has used before.
    pub(super) fn note_event(&mut self, event: &DeviceEvent) {
        if let DeviceEvent::Answered { result: Ok(Answer::QueuePair { queue_pair, .. }), .. } = event {
            self.destroyed.remove(queue_pair);
        }
    }

    /// Whether a completion that is kept back comes now: [`CompletionFault::HoldWhileAlive`].
    pub(super) fn is_over(&self, completion: &Completion) -> bool {
        self.destroyed.contains(&completion.queue_pair)
    }

    pub(super) fn post_rule(&mut self, target: PostTarget) -> Option<PostRule> {
        let fits = |rule: &PostRule| rule.target == target;
        let rule = self.posts.iter().position(fits).and_then(|index| self.posts.remove(index));
        self.faults += u64::from(rule.is_some());
        rule
    }

    pub(super) fn command_error(&mut self, command: &Command) -> Option<CommandError> {
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
    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next post on a queue pair is accepted up to `accepted` work requests (none on devices with
    /// [`PostModel::AllOrNothing`](crate::provider::PostModel::AllOrNothing)). Several calls are for several posts, in order.
    pub fn refuse_post(&self, queue_pair: QueuePairId, accepted: usize, reason: PostRefusal) {
        self.script().posts.push_back(PostRule { target: PostTarget::Sends(queue_pair), accepted, reason });
    }

    /// The same for the next post of receives.
    pub fn refuse_receives(&self, queue_pair: QueuePairId, accepted: usize, reason: PostRefusal) {
        self.script().posts.push_back(PostRule { target: PostTarget::Receives(queue_pair), accepted, reason });
    }

    /// The same for the next post to a shared receive queue.
    pub fn refuse_shared_receives(&self, queue: SharedReceiveQueueId, accepted: usize, reason: PostRefusal) {
        self.script().posts.push_back(PostRule { target: PostTarget::SharedReceives(queue), accepted, reason });
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

    /// The next completion of a queue pair fails with `failure`, all later ones are flushed.
    pub fn fail_from_now(&self, queue_pair: QueuePairId, failure: impl Into<Failure>) {
        let filter = CompletionFilter::queue_pair(queue_pair);
        self.on_completions(filter, CompletionFault::Fail(failure.into()), 1);
        self.on_all_completions(filter, CompletionFault::Fail(Failure::FLUSHED));
    }

    /// Keeps back all completions of a queue.
    pub fn hold(&self, queue: CompletionQueue) {
        let filter = CompletionFilter { queue: Some(queue), ..CompletionFilter::default() };
        self.on_all_completions(filter, CompletionFault::Hold);
    }

    /// Forgets every rule to hold, and lets out what was kept back, before anything newer.
    pub fn release(&self) {
        let mut script = self.script();
        script.completions.retain(|rule| !rule.fault.holds());
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

    /// Keeps back the answers to commands of this kind, which the device executes: it may answer as late as it likes.
    pub fn hold_answers(&self, kind: CommandKind) {
        self.script().slow.insert(kind);
    }

    /// Gives all answers that were kept back, in order, and keeps back no others.
    pub fn release_answers(&self) {
        let mut script = self.script();
        script.slow.clear();
        let late = core::mem::take(&mut script.late);
        script.events.extend(late);
    }

    /// Commands of this kind that the device itself executed with success.
    #[must_use]
    pub fn succeeded(&self, kind: CommandKind) -> u64 {
        self.script().succeeded.get(&kind).copied().unwrap_or_default()
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

    /// The system lists the device no longer. Nobody is told: that is [`FaultHandle::inject_event`]'s.
    pub fn remove_device(&self) {
        self.script().removed = true;
    }

    /// Faults that happened so far.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.script().faults
    }
}
