//! Any provider behind one type, so that no test is generic. Counts what is alive and what was posted.

use super::pace::now;
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftMonitor, SoftOptions, SoftPort};
#[cfg(feature = "verbs")]
use frwr_engine::provider::verbs::{VerbsDevice, VerbsPort};
use frwr_engine::provider::{
    Answer, BaseId, Capabilities, Chain, Command, CommandError, CompletionBatch, CompletionQueue, Device, DeviceEvent,
    DomainId, ListenerId, Operation, Port, PortId, PostError, QueuePairId, ReceiveRequest, RegistrationId,
    SharedReceiveQueueId, Ticket,
};
#[cfg(feature = "verbs")]
use frwr_fake::{FakeContext, FakeDevice};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Dropping a device is a matter of milliseconds; a queue pair destroyed under a live window takes 50 s. Whatever is
/// longer than this is that, or as bad.
const STALL: Duration = Duration::from_secs(30);

enum Inner {
    Soft(SoftDevice),
    #[cfg(feature = "verbs")]
    Verbs(VerbsDevice),
}

enum InnerPort {
    Soft(Box<SoftPort>),
    #[cfg(feature = "verbs")]
    Verbs(Box<VerbsPort>),
}

/// Runs an expression on whatever device or port it is.
macro_rules! each {
    ($kind:ident, $inner:expr, $found:ident => $what:expr) => {
        match $inner.expect("there until it is dropped") {
            $kind::Soft($found) => $what,
            #[cfg(feature = "verbs")]
            $kind::Verbs($found) => $what,
        }
    };
}

/// What was made and not destroyed yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    pub registrations: BTreeSet<RegistrationId>,
    pub queue_pairs: BTreeSet<QueuePairId>,
    pub shared_receive_queues: BTreeSet<SharedReceiveQueueId>,
    pub bases: BTreeSet<BaseId>,
    pub domains: BTreeSet<DomainId>,
    pub listeners: BTreeSet<ListenerId>,
}

impl Live {
    fn is_made(&mut self, answer: Answer) {
        match answer {
            Answer::Done => {}
            Answer::Domain(domain) => drop(self.domains.insert(domain)),
            Answer::Base { base, .. } => drop(self.bases.insert(base)),
            Answer::QueuePair { queue_pair, .. } => drop(self.queue_pairs.insert(queue_pair)),
            Answer::SharedReceiveQueue { queue, .. } => drop(self.shared_receive_queues.insert(queue)),
            Answer::Registration { object, .. } => drop(self.registrations.insert(object)),
            Answer::Listener(listener) => drop(self.listeners.insert(listener)),
        }
    }

    fn is_destroyed(&mut self, command: &Command) {
        match command {
            Command::FreeDomain { domain } => drop(self.domains.remove(domain)),
            Command::DeregisterMemory { base } => drop(self.bases.remove(base)),
            Command::DestroyQueuePair { queue_pair } => drop(self.queue_pairs.remove(queue_pair)),
            Command::DestroySharedReceiveQueue { queue } => drop(self.shared_receive_queues.remove(queue)),
            Command::FreeRegistration { object } => drop(self.registrations.remove(object)),
            Command::StopListening { listener } => drop(self.listeners.remove(listener)),
            _ => {}
        }
    }
}

/// Any device.
pub struct AnyDevice {
    inner: Option<Inner>,
    #[cfg(feature = "verbs")]
    fake: Option<(Arc<FakeDevice>, FakeContext)>,
    /// Commands that destroy something, until they are answered.
    destroying: HashMap<Ticket, Command>,
    live: Live,
    local_writes: Vec<bool>,
    /// Where a device of several processes finds the others: there for as long as one of them is.
    rendezvous: Option<Arc<TempDir>>,
}

impl AnyDevice {
    pub fn soft(device: SoftDevice) -> Self {
        Self::of(Inner::Soft(device))
    }

    /// One that reaches those of other networks by this directory.
    pub fn between_processes(rendezvous: &Arc<TempDir>, options: SoftOptions) -> Self {
        // The directory itself is closed to others by whoever makes it.
        let directory = rendezvous.path().join("nics");
        let fabric = SoftFabric::between_processes(&directory).unwrap_or_else(|error| panic!("{error}"));
        let mut made = Self::soft(fabric.device(options));
        made.rendezvous = Some(Arc::clone(rendezvous));
        made
    }

    #[cfg(feature = "verbs")]
    pub fn verbs(device: VerbsDevice) -> Self {
        Self::of(Inner::Verbs(device))
    }

    /// The one that was opened last of a device that is not there.
    #[cfg(feature = "verbs")]
    pub fn over_fake(device: VerbsDevice, fake: Arc<FakeDevice>) -> Self {
        let context = fake.newest_context().expect("it was just opened");
        let mut made = Self::verbs(device);
        made.fake = Some((fake, context));
        made
    }

    fn of(inner: Inner) -> Self {
        Self {
            inner: Some(inner),
            #[cfg(feature = "verbs")]
            fake: None,
            destroying: HashMap::new(),
            live: Live::default(),
            local_writes: Vec::new(),
            rendezvous: None,
        }
    }

    /// What is alive on it.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Of each memory that it was asked to register, in that order, whether it may write to it.
    pub fn local_writes(&self) -> &[bool] {
        &self.local_writes
    }

    /// The view into a device that is not there.
    #[cfg(feature = "verbs")]
    pub fn fake(&self) -> Option<FakeContext> {
        self.fake.as_ref().map(|(_, context)| *context)
    }

    /// The view into a software NIC.
    pub fn monitor(&self) -> Option<SoftMonitor> {
        match self.inner.as_ref()? {
            Inner::Soft(device) => Some(device.monitor()),
            #[cfg(feature = "verbs")]
            Inner::Verbs(_) => None,
        }
    }
}

/// Drops a half of a real device, whose last owner destroys its objects in the order that it needs.
fn drop_in_time<T>(half: &mut Option<T>) {
    let started = now();
    drop(half.take());
    let took = now() - started;
    assert!(
        took < STALL || std::thread::panicking(),
        "dropping it took {took:?}: a queue pair went under a live window"
    );
}

impl Drop for AnyDevice {
    fn drop(&mut self) {
        drop_in_time(&mut self.inner);
        #[cfg(feature = "verbs")]
        if let Some((fake, _)) = &self.fake {
            let violations = fake.violations();
            assert!(violations.is_empty() || std::thread::panicking(), "what no program may do: {violations:?}");
        }
    }
}

impl Drop for AnyPort {
    fn drop(&mut self) {
        drop_in_time(&mut self.inner);
    }
}

impl Device for AnyDevice {
    type Port = AnyPort;

    fn capabilities(&self) -> &Capabilities {
        each!(Inner, self.inner.as_ref(), device => device.capabilities())
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<AnyPort, CommandError> {
        let inner = match self.inner.as_mut().expect("there until it is dropped") {
            Inner::Soft(device) => InnerPort::Soft(Box::new(device.open_port(send_entries, receive_entries)?)),
            #[cfg(feature = "verbs")]
            Inner::Verbs(device) => InnerPort::Verbs(Box::new(device.open_port(send_entries, receive_entries)?)),
        };
        Ok(AnyPort {
            inner: Some(inner),
            #[cfg(feature = "verbs")]
            fake: self.fake.as_ref().map(|(_, context)| *context),
            posted: Posted::default(),
        })
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        let destroys = matches!(
            command,
            Command::FreeDomain { .. }
                | Command::DeregisterMemory { .. }
                | Command::DestroyQueuePair { .. }
                | Command::DestroySharedReceiveQueue { .. }
                | Command::FreeRegistration { .. }
                | Command::StopListening { .. }
        );
        if let Command::RegisterMemory { local_write, .. } = &command {
            self.local_writes.push(*local_write);
        }
        let kept = destroys.then(|| command.clone());
        each!(Inner, self.inner.as_mut(), device => device.submit(ticket, command))?;
        if let Some(command) = kept {
            self.destroying.insert(ticket, command);
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        let event = each!(Inner, self.inner.as_mut(), device => device.poll())?;
        if let DeviceEvent::Answered { ticket, result } = &event {
            let destroyed = self.destroying.remove(ticket);
            if let Ok(answer) = result {
                self.live.is_made(*answer);
                if let Some(command) = destroyed {
                    self.live.is_destroyed(&command);
                }
            }
        }
        Some(event)
    }
}

/// Work requests that a port accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    pub registrations: u64,
    pub invalidations: u64,
    pub messages: u64,
    pub transfers: u64,
}

/// A port of any device.
pub struct AnyPort {
    inner: Option<InnerPort>,
    #[cfg(feature = "verbs")]
    fake: Option<FakeContext>,
    posted: Posted,
}

impl AnyPort {
    /// What it accepted so far.
    pub fn posted(&self) -> Posted {
        self.posted
    }
}

impl Port for AnyPort {
    fn id(&self) -> PortId {
        each!(InnerPort, self.inner.as_ref(), port => port.id())
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        let result = each!(InnerPort, self.inner.as_mut(), port => port.post(queue_pair, chain));
        let accepted = result.map_or_else(|error| error.accepted, |()| chain.requests.len());
        for request in &chain.requests[..accepted] {
            match request.operation {
                Operation::Register(_) => self.posted.registrations += 1,
                Operation::Invalidate { .. } => self.posted.invalidations += 1,
                Operation::Send { .. } => self.posted.messages += 1,
                Operation::Read { .. } | Operation::Write { .. } => self.posted.transfers += 1,
            }
        }
        result
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        each!(InnerPort, self.inner.as_mut(), port => port.post_receives(queue_pair, receives))
    }

    fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        each!(InnerPort, self.inner.as_mut(), port => port.post_shared_receives(queue, receives))
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        each!(InnerPort, self.inner.as_mut(), port => port.poll(queue, batch))
    }

    fn begin_iteration(&mut self, iteration: u64) {
        each!(InnerPort, self.inner.as_mut(), port => port.begin_iteration(iteration));
    }

    fn remote_bytes_open(&self) -> Option<u64> {
        #[cfg(feature = "verbs")]
        if let Some(context) = self.fake {
            return Some(context.remote_bytes());
        }
        each!(InnerPort, self.inner.as_ref(), port => port.remote_bytes_open())
    }
}
