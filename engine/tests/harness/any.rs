//! Any provider behind one type, so that no test is generic. Counts what is alive and what was posted, and takes a real
//! device down in the order that it needs.

use super::pace::now;
use frwr_engine::provider::soft::{SoftDevice, SoftMonitor, SoftPort};
#[cfg(feature = "verbs")]
use frwr_engine::provider::verbs::{VerbsDevice, VerbsPort};
use frwr_engine::provider::{
    Answer, BaseId, Capabilities, Chain, Command, CommandError, CompletionBatch, CompletionQueue, Device, DeviceEvent,
    DomainId, ListenerId, Operation, Port, PortId, PostError, QueuePairId, ReceiveRequest, RegistrationId, Ticket,
};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Taking a device down is a matter of milliseconds; a queue pair destroyed under a live window takes 50 s (verbs.md
/// 5.6, trap 4). Whatever is longer than this is that, or as bad.
const STALL: Duration = Duration::from_secs(30);
/// Tickets of the commands that take a device down; others count from 1.
const FIRST_LAST_TICKET: u64 = 1 << 62;

enum Inner {
    Soft(SoftDevice),
    #[cfg(feature = "verbs")]
    Verbs(VerbsDevice),
}

enum InnerPort {
    Soft(SoftPort),
    #[cfg(feature = "verbs")]
    Verbs(VerbsPort),
}

/// Runs an expression on whatever device or port it is.
macro_rules! each {
    ($kind:ident, $inner:expr, $found:ident => $what:expr) => {
        match $inner {
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
            Answer::Registration { object, .. } => drop(self.registrations.insert(object)),
            Answer::Listener(listener) => drop(self.listeners.insert(listener)),
        }
    }

    fn is_destroyed(&mut self, command: &Command) {
        match command {
            Command::FreeDomain { domain } => drop(self.domains.remove(domain)),
            Command::DeregisterMemory { base } => drop(self.bases.remove(base)),
            Command::DestroyQueuePair { queue_pair } => drop(self.queue_pairs.remove(queue_pair)),
            Command::FreeRegistration { object } => drop(self.registrations.remove(object)),
            Command::StopListening { listener } => drop(self.listeners.remove(listener)),
            _ => {}
        }
    }

    /// The commands that destroy all of it, in the order of verbs.md 8: windows, queue pairs, bases, domains.
    fn last_commands(&self) -> Vec<Command> {
        let listeners = self.listeners.iter().map(|&listener| Command::StopListening { listener });
        let failures = self.queue_pairs.iter().map(|&queue_pair| Command::FailQueuePair { queue_pair });
        let registrations = self.registrations.iter().map(|&object| Command::FreeRegistration { object });
        let queue_pairs = self.queue_pairs.iter().map(|&queue_pair| Command::DestroyQueuePair { queue_pair });
        let bases = self.bases.iter().map(|&base| Command::DeregisterMemory { base });
        let domains = self.domains.iter().map(|&domain| Command::FreeDomain { domain });
        listeners.chain(failures).chain(registrations).chain(queue_pairs).chain(bases).chain(domains).collect()
    }
}

/// Any device.
pub struct AnyDevice {
    inner: Inner,
    /// Commands that destroy something, until they are answered.
    destroying: HashMap<Ticket, Command>,
    live: Live,
}

impl AnyDevice {
    pub fn soft(device: SoftDevice) -> Self {
        Self::of(Inner::Soft(device))
    }

    #[cfg(feature = "verbs")]
    pub fn verbs(device: VerbsDevice) -> Self {
        Self::of(Inner::Verbs(device))
    }

    fn of(inner: Inner) -> Self {
        Self { inner, destroying: HashMap::new(), live: Live::default() }
    }

    /// What is alive on it.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// The view into a software NIC.
    #[cfg_attr(not(feature = "verbs"), expect(clippy::unnecessary_wraps, reason = "real devices have none"))]
    pub fn monitor(&self) -> Option<SoftMonitor> {
        match &self.inner {
            Inner::Soft(device) => Some(device.monitor()),
            #[cfg(feature = "verbs")]
            Inner::Verbs(_) => None,
        }
    }

    /// Leaves it to the device itself what becomes of its objects when it goes. Nothing may be registered then.
    pub fn leave_behind(&mut self) {
        self.live = Live::default();
    }

    fn is_real(&self) -> bool {
        !matches!(self.inner, Inner::Soft(_))
    }

    /// Runs a command to its answer, whatever that is.
    fn run(&mut self, ticket: Ticket, command: Command, deadline: Instant) {
        if self.submit(ticket, command).is_err() {
            return;
        }
        while now() < deadline {
            match self.poll() {
                Some(DeviceEvent::Answered { ticket: answered, .. }) if answered == ticket => return,
                Some(_) => {}
                None => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for AnyDevice {
    /// Nothing that a test leaves behind may stay in the kernel, and the order matters there.
    fn drop(&mut self) {
        if !self.is_real() {
            return;
        }
        let started = now();
        for (index, command) in self.live.last_commands().into_iter().enumerate() {
            self.run(Ticket(FIRST_LAST_TICKET + index as u64), command, started + 2 * STALL);
        }
        let (took, left) = (now() - started, core::mem::take(&mut self.live));
        if !std::thread::panicking() {
            assert!(took < STALL, "taking the device down took {took:?}: a queue pair went under a live window");
            assert_eq!(left, Live::default(), "objects that the device did not destroy");
        }
    }
}

impl Device for AnyDevice {
    type Port = AnyPort;

    fn capabilities(&self) -> &Capabilities {
        each!(Inner, &self.inner, device => device.capabilities())
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<AnyPort, CommandError> {
        let inner = match &mut self.inner {
            Inner::Soft(device) => InnerPort::Soft(device.open_port(send_entries, receive_entries)?),
            #[cfg(feature = "verbs")]
            Inner::Verbs(device) => InnerPort::Verbs(device.open_port(send_entries, receive_entries)?),
        };
        Ok(AnyPort { inner, posted: Posted::default() })
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        let destroys = matches!(
            command,
            Command::FreeDomain { .. }
                | Command::DeregisterMemory { .. }
                | Command::DestroyQueuePair { .. }
                | Command::FreeRegistration { .. }
                | Command::StopListening { .. }
        );
        let kept = destroys.then(|| command.clone());
        each!(Inner, &mut self.inner, device => device.submit(ticket, command))?;
        if let Some(command) = kept {
            self.destroying.insert(ticket, command);
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        let event = each!(Inner, &mut self.inner, device => device.poll())?;
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
    inner: InnerPort,
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
        each!(InnerPort, &self.inner, port => port.id())
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        let result = each!(InnerPort, &mut self.inner, port => port.post(queue_pair, chain));
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
        each!(InnerPort, &mut self.inner, port => port.post_receives(queue_pair, receives))
    }

    fn poll(&mut self, queue: CompletionQueue, batch: &mut CompletionBatch) -> usize {
        each!(InnerPort, &mut self.inner, port => port.poll(queue, batch))
    }

    fn begin_iteration(&mut self, iteration: u64) {
        each!(InnerPort, &mut self.inner, port => port.begin_iteration(iteration));
    }

    fn remote_bytes_open(&self) -> Option<u64> {
        each!(InnerPort, &self.inner, port => port.remote_bytes_open())
    }
}
