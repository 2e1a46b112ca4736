//! A wrapper over any provider that does on command what devices do rarely: refuse posts, hold, drop, repeat or replace
//! completions, fail commands or answer them late.
//!
//! For tests only: the script is behind a lock that every call takes. What is kept back was taken from the device, so the
//! send queue entries of held and dropped completions are free there.

mod script;

pub use script::{CommandKind, CompletionFault, CompletionFilter, FaultHandle};

use super::{
    Access, Capabilities, Chain, Command, CommandError, Completion, CompletionBatch, CompletionQueue, Device,
    DeviceEvent, Port, PortId, PostError, PostModel, QueuePairId, ReceiveRequest, RemoteMemory, SharedReceiveQueueId,
    Ticket,
};
use core::task::Waker;
use frwr_mempool::{Bell, DeviceMemory};
use script::{PostRule, PostTarget};
use std::{collections::VecDeque, os::fd::BorrowedFd, sync::Arc};

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
        script.note_command(ticket, &command);
        drop(script);
        self.device.submit(ticket, command)
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        let injected = self.handle.script().events.pop_front();
        let event = match injected {
            Some(event) => event,
            None => loop {
                let event = self.device.poll()?;
                if let Some(event) = self.handle.script().pass(event) {
                    break event;
                }
            },
        };
        self.handle.script().note_event(&event);
        Some(event)
    }

    fn rings(&mut self, bell: &Arc<Bell>) -> bool {
        self.device.rings(bell);
        // What the script has to say rings nothing.
        false
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.device.descriptors()
    }

    fn is_present(&self) -> bool {
        !self.handle.script().removed && self.device.is_present()
    }
}

/// Completions of the two queues.
#[derive(Debug)]
struct Kept<T> {
    send: VecDeque<T>,
    receive: VecDeque<T>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { send: VecDeque::new(), receive: VecDeque::new() }
    }
}

impl<T> Kept<T> {
    const fn of(&mut self, queue: CompletionQueue) -> &mut VecDeque<T> {
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
    ready: Kept<Completion>,
    /// With whether they come when their queue pair is destroyed.
    held: Kept<(Completion, bool)>,
    releases: u64,
}

impl<P: Port> FaultyPort<P> {
    /// The port inside.
    pub const fn inner(&self) -> &P {
        &self.port
    }

    fn let_out(&mut self) {
        let script = self.handle.script();
        let all = script.releases != self.releases;
        self.releases = script.releases;
        for queue in [CompletionQueue::Send, CompletionQueue::Receive] {
            let ready = self.ready.of(queue);
            self.held.of(queue).retain(|(completion, while_alive)| {
                let comes = all || (*while_alive && script.is_over(completion));
                if comes {
                    ready.push_back(*completion);
                }
                !comes
            });
        }
    }

    fn suffer(&mut self, queue: CompletionQueue, mut completion: Completion) {
        let fault = self.handle.script().fault_of(queue, &completion);
        match fault {
            Some(CompletionFault::Hold) => return self.held.of(queue).push_back((completion, false)),
            Some(CompletionFault::HoldWhileAlive) => return self.held.of(queue).push_back((completion, true)),
            Some(CompletionFault::Drop) => return,
            Some(CompletionFault::Duplicate) => self.ready.of(queue).push_back(completion),
            Some(CompletionFault::Fail(failure)) => completion.result = Err(failure),
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

    fn begin_iteration(&mut self, iteration: u64) {
        self.port.begin_iteration(iteration);
    }

    fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        let rule = self.handle.script().post_rule(PostTarget::Sends(queue_pair));
        let Some(PostRule { accepted, reason, .. }) = rule else { return self.port.post(queue_pair, chain) };
        let accepted = if self.all_or_nothing { 0 } else { accepted.min(chain.requests.len()) };
        let requests = chain.requests.get(..accepted).unwrap_or(chain.requests);
        if !requests.is_empty() {
            self.port.post(queue_pair, Chain { requests, elements: chain.elements })?;
        }
        Err(PostError::new(accepted, reason))
    }

    fn post_receives(&mut self, queue_pair: QueuePairId, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        let rule = self.handle.script().post_rule(PostTarget::Receives(queue_pair));
        let Some(PostRule { accepted, reason, .. }) = rule else {
            return self.port.post_receives(queue_pair, receives);
        };
        let accepted = accepted.min(receives.len());
        self.port.post_receives(queue_pair, receives.get(..accepted).unwrap_or(receives))?;
        Err(PostError::new(accepted, reason))
    }

    fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        let rule = self.handle.script().post_rule(PostTarget::SharedReceives(queue));
        let Some(PostRule { accepted, reason, .. }) = rule else {
            return self.port.post_shared_receives(queue, receives);
        };
        let accepted = accepted.min(receives.len());
        self.port.post_shared_receives(queue, receives.get(..accepted).unwrap_or(receives))?;
        Err(PostError::new(accepted, reason))
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

    fn wakes(&mut self, waker: &Waker) {
        self.port.wakes(waker);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.descriptor()
    }

    /// What is let out wakes nobody.
    fn arm(&mut self) -> bool {
        self.port.arm()
    }

    fn rests(&self) -> bool {
        self.ready.send.is_empty() && self.ready.receive.is_empty() && self.port.rests()
    }

    fn remote_bytes_open(&self) -> Option<u64> {
        self.port.remote_bytes_open()
    }

    fn register_memory(
        &mut self,
        queue_pair: QueuePairId,
        memory: &DeviceMemory,
        access: Access,
    ) -> Result<RemoteMemory, CommandError> {
        self.port.register_memory(queue_pair, memory, access)
    }

    fn deregister_memory(&mut self, memory: RemoteMemory) -> Result<(), CommandError> {
        self.port.deregister_memory(memory)
    }
}
