//! What each command does. Connection management is in `connection_manager`.

use super::{
    device::{Base, QueuePairRecord, Retiring, SharedReceiveQueueRecord, VerbsDevice, WindowRecord},
    errno::{command_error, errno},
    publish::{PortCommand, Removed},
    sys::{
        memory_region::MemoryRegion, protection_domain::ProtectionDomain, queue_pair::QueuePair,
        registered::Registered, shared_receive_queue::SharedReceiveQueue, thread_domain::QueuePairDomain,
    },
    system,
};
use crate::provider::{
    Answer, BaseId, Command, CommandError, Device as _, DomainId, PortId, QueuePairId, QueueSizes, RegistrationId,
    SharedReceiveQueueId, Ticket,
};
use frwr_mempool::DeviceMemory;
use ibverbs_sys::{ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state};
use std::{io, sync::Arc};

type Outcome = Result<Answer, CommandError>;

impl VerbsDevice {
    /// Does a command or begins with it; an error is its answer.
    pub(super) fn execute(&mut self, ticket: Ticket, command: Command) -> Result<(), CommandError> {
        let answer = match command {
            Command::AllocateDomain => self.allocate_domain()?,
            Command::FreeDomain { domain } => self.free_domain(domain)?,
            Command::RegisterMemory { domain, memory, local_write } => {
                self.register_memory(domain, memory, local_write)?
            }
            Command::DeregisterMemory { base } => return self.retire_base(ticket, base),
            Command::CreateQueuePair { port, domain, sizes, shared_receives } => {
                self.create_queue_pair(port, domain, sizes, shared_receives)?
            }
            Command::CreateSharedReceiveQueue { port, domain, entries } => {
                self.create_shared_receive_queue(port, domain, entries)?
            }
            Command::DestroySharedReceiveQueue { queue } => return self.retire_shared_receive_queue(ticket, queue),
            Command::FailQueuePair { queue_pair } => self.fail_queue_pair(queue_pair)?,
            Command::DestroyQueuePair { queue_pair } => return self.retire_queue_pair(ticket, queue_pair),
            Command::AllocateRegistration { port, domain, queue_pair, depth } => {
                self.allocate_window(port, domain, queue_pair, depth)?
            }
            Command::FreeRegistration { object } => return self.retire_window(ticket, object),
            Command::Listen { address } => self.listen(address)?,
            Command::StopListening { listener } => self.stop_listening(listener)?,
            Command::Connect { queue_pair, address, private_data, parameters } => {
                self.connect(queue_pair, address, private_data, parameters)?
            }
            Command::Accept { incoming, queue_pair, private_data, parameters } => {
                self.accept(incoming, queue_pair, &private_data, parameters)?
            }
            Command::Reject { incoming, private_data } => self.reject(incoming, &private_data)?,
            Command::Disconnect { queue_pair } => self.disconnect(queue_pair)?,
        };
        self.answer(ticket, Ok(answer));
        Ok(())
    }

    fn domain(&self, domain: DomainId) -> Result<Arc<ProtectionDomain>, CommandError> {
        self.domains.get(domain.0).cloned().ok_or(CommandError::Unknown)
    }

    fn allocate_domain(&mut self) -> Outcome {
        let domain = ProtectionDomain::new(&self.context).map_err(|error| command_error(&error))?;
        let number = self.domains.insert(Arc::new(domain)).ok_or(CommandError::EXHAUSTED)?;
        Ok(Answer::Domain(DomainId(number)))
    }

    fn free_domain(&mut self, domain: DomainId) -> Outcome {
        let found = self.domains.get(domain.0).ok_or(CommandError::Unknown)?;
        // What lives in it keeps it alive.
        if Arc::strong_count(found) > 1 {
            return Err(CommandError::BUSY);
        }
        self.domains.remove(domain.0);
        Ok(Answer::Done)
    }

    fn register_memory(&mut self, domain: DomainId, memory: DeviceMemory, local_write: bool) -> Outcome {
        if memory.is_empty() {
            return Err(CommandError::INVALID);
        }
        let bytes = memory.len() as u64;
        let region = MemoryRegion::new(&self.domain(domain)?, memory, local_write, self.keys);
        let region = region.map_err(|error| not_registered(&error, bytes, system::locked_memory_limit()))?;
        let (lkey, region) = (region.lkey(), Arc::new(region));
        let base = Base { domain, region: Arc::clone(&region), leaving: false };
        let base = BaseId(self.bases.insert(base).ok_or(CommandError::EXHAUSTED)?);
        self.tell_all(|| PortCommand::AddBase(base, Arc::clone(&region)));
        Ok(Answer::Base { base, lkey })
    }

    fn tell_all(&mut self, command: impl Fn() -> PortCommand) {
        for port in &mut self.ports {
            port.tell(command());
        }
    }

    fn retire_base(&mut self, ticket: Ticket, base: BaseId) -> Result<(), CommandError> {
        let record = self.bases.get_mut(base.0).ok_or(CommandError::Unknown)?;
        if core::mem::replace(&mut record.leaving, true) {
            return Err(CommandError::BUSY);
        }
        self.tell_all(|| PortCommand::RemoveBase(base));
        let awaited = self.ports.iter().filter(|port| !port.is_gone()).map(|port| port.id).collect();
        self.retire(ticket, Removed::Base(base), awaited);
        Ok(())
    }

    fn retire(&mut self, ticket: Ticket, object: Removed, awaited: Vec<PortId>) {
        self.retiring.push(Retiring { ticket, object, awaited });
        self.finish_retiring();
    }

    pub(super) fn destroy_base(&mut self, base: BaseId) -> Outcome {
        let Base { domain, region, .. } = self.bases.remove(base.0).ok_or(CommandError::Unknown)?;
        // No port has it any more.
        let (region, answer) = match Arc::try_unwrap(region).map(MemoryRegion::destroy) {
            Ok(Ok(())) => return Ok(Answer::Done),
            // `EINVAL`: a window is bound to it. It goes on as before.
            Ok(Err((region, error))) => (Arc::new(region), self.refusal(&error)),
            Err(region) => (region, CommandError::BUSY),
        };
        self.tell_all(|| PortCommand::AddBase(base, Arc::clone(&region)));
        self.bases.set(base.0, Base { domain, region, leaving: false });
        Err(answer)
    }

    /// Why something was not destroyed, or a queue pair not moved to the error state. `EIO` is said of a device that is gone and by
    /// one that works badly, which keeps its objects.
    fn refusal(&self, error: &io::Error) -> CommandError {
        match command_error(error) {
            gone @ CommandError::DeviceGone(_) if !self.is_present() => gone,
            other => CommandError::Busy(other.errno()),
        }
    }

    fn create_queue_pair(
        &mut self,
        port: PortId,
        domain: DomainId,
        sizes: QueueSizes,
        shared_receives: Option<SharedReceiveQueueId>,
    ) -> Outcome {
        let domain = self.domain(domain)?;
        let limits = self.capabilities().attributes;
        let fits = |size: u32| size > 0 && size <= limits.max_qp_wr;
        let receives_fit = shared_receives.is_some() || fits(sizes.receive);
        if !fits(sizes.send) || !receives_fit || sizes.max_send_sge > limits.max_send_sge {
            return Err(CommandError::INVALID);
        }
        let shared = shared_receives.map(|queue| self.shared_receive_queue(port, queue)).transpose()?;
        let place = self.places.get(usize::from(port.0)).ok_or(CommandError::Unknown)?;
        let made = QueuePairDomain::new(&domain, place.thread.as_ref()).and_then(|domain| {
            QueuePair::new(domain, &place.send, &place.receive, sizes, shared, self.send_interface())
        });
        let queue_pair = made.and_then(|made| made.initialise(self.options.port).map(|()| made));
        let queue_pair = Arc::new(queue_pair.map_err(|error| command_error(&error))?);
        let (id, sizes) = (queue_pair.id(), queue_pair.sizes());
        self.port(port).ok_or(CommandError::DEVICE_GONE)?.tell(PortCommand::AddQueuePair(Arc::clone(&queue_pair)));
        let record = QueuePairRecord { port, queue_pair, windows: Vec::new(), leaving: false };
        self.queue_pairs.insert(id, record);
        Ok(Answer::QueuePair { queue_pair: id, sizes })
    }

    fn create_shared_receive_queue(&mut self, port: PortId, domain: DomainId, entries: u32) -> Outcome {
        let domain = self.domain(domain)?;
        if entries == 0 || entries > self.capabilities().attributes.max_srq_wr {
            return Err(CommandError::INVALID);
        }
        if self.port(port).is_none() {
            return Err(CommandError::DEVICE_GONE);
        }
        let queue = SharedReceiveQueue::new(&domain, entries).map_err(|error| command_error(&error))?;
        let (entries, queue) = (queue.entries(), Arc::new(queue));
        let record = SharedReceiveQueueRecord { port, queue: Arc::clone(&queue), leaving: false };
        let number = self.shared_receive_queues.insert(record).ok_or(CommandError::EXHAUSTED)?;
        let id = SharedReceiveQueueId(number);
        if let Some(port) = self.port(port) {
            port.tell(PortCommand::AddSharedReceiveQueue(id, queue));
        }
        Ok(Answer::SharedReceiveQueue { queue: id, entries })
    }

    /// The queue, for a queue pair of a port.
    fn shared_receive_queue(
        &self,
        port: PortId,
        queue: SharedReceiveQueueId,
    ) -> Result<Arc<SharedReceiveQueue>, CommandError> {
        let record = self.shared_receive_queues.get(queue.0).filter(|record| !record.leaving);
        let record = record.ok_or(CommandError::Unknown)?;
        if record.port == port { Ok(Arc::clone(&record.queue)) } else { Err(CommandError::INVALID) }
    }

    fn retire_shared_receive_queue(&mut self, ticket: Ticket, queue: SharedReceiveQueueId) -> Result<(), CommandError> {
        let record = self.shared_receive_queues.get_mut(queue.0).ok_or(CommandError::Unknown)?;
        let is_used = self.queue_pairs.values().any(|user| user.queue_pair.receives_from(&record.queue));
        if is_used || core::mem::replace(&mut record.leaving, true) {
            return Err(CommandError::BUSY);
        }
        let port = record.port;
        let awaited = self.tell_one(port, PortCommand::RemoveSharedReceiveQueue(queue));
        self.retire(ticket, Removed::SharedReceiveQueue(queue), awaited);
        Ok(())
    }

    pub(super) fn destroy_shared_receive_queue(&mut self, id: SharedReceiveQueueId) -> Outcome {
        let SharedReceiveQueueRecord { port, queue, .. } =
            self.shared_receive_queues.remove(id.0).ok_or(CommandError::Unknown)?;
        let (queue, answer) = match Arc::try_unwrap(queue).map(SharedReceiveQueue::destroy) {
            Ok(Ok(())) => return Ok(Answer::Done),
            Ok(Err((queue, error))) => (Arc::new(queue), self.refusal(&error)),
            Err(queue) => (queue, CommandError::BUSY),
        };
        // The device keeps it: it can be tried again.
        if let Some(port) = self.port(port) {
            port.tell(PortCommand::AddSharedReceiveQueue(id, Arc::clone(&queue)));
        }
        self.shared_receive_queues.set(id.0, SharedReceiveQueueRecord { port, queue, leaving: false });
        Err(answer)
    }

    pub(super) fn queue_pair(&self, id: QueuePairId) -> Result<Arc<QueuePair>, CommandError> {
        let record = self.queue_pairs.get(&id).filter(|record| !record.leaving);
        Ok(Arc::clone(&record.ok_or(CommandError::Unknown)?.queue_pair))
    }

    fn fail_queue_pair(&mut self, id: QueuePairId) -> Outcome {
        let mut attributes = ibv_qp_attr { qp_state: ibv_qp_state::IBV_QPS_ERR, ..ibv_qp_attr::default() };
        let failed = self.queue_pair(id)?.modify(&mut attributes, ibv_qp_attr_mask::IBV_QP_STATE);
        failed.map(|()| Answer::Done).map_err(|error| self.refusal(&error))
    }

    fn retire_queue_pair(&mut self, ticket: Ticket, id: QueuePairId) -> Result<(), CommandError> {
        let record = self.queue_pairs.get_mut(&id).ok_or(CommandError::Unknown)?;
        if core::mem::replace(&mut record.leaving, true) {
            return Err(CommandError::BUSY);
        }
        let (port, windows) = (record.port, record.windows.clone());
        // Nothing may come for it any more.
        self.connections.forget(id);
        let awaited = self.tell_one(port, PortCommand::RemoveQueuePair(id, windows));
        self.retire(ticket, Removed::QueuePair(id), awaited);
        Ok(())
    }

    /// Tells a port, and says who is to be waited for.
    fn tell_one(&mut self, port: PortId, command: PortCommand) -> Vec<PortId> {
        self.port(port).map(|found| found.tell(command)).map(|()| port).into_iter().collect()
    }

    /// Its windows go first: a queue pair that is destroyed under a bound window blocks for 50 s.
    pub(super) fn destroy_queue_pair(&mut self, id: QueuePairId) -> Outcome {
        let record = self.queue_pairs.remove(&id).ok_or(CommandError::Unknown)?;
        let mut kept = Vec::new();
        for object in record.windows {
            let Some(WindowRecord { window, .. }) = self.windows.get_mut(object.0) else { continue };
            // The number stays taken until the window's own command is answered: that may be on its way, or come when this one was.
            *window = match window.take().map(|window| Arc::try_unwrap(window).map(Registered::destroy)) {
                // The device keeps it: both commands can try again.
                Some(Ok(Err((window, _)))) => Some(Arc::new(window)),
                Some(Err(window)) => Some(window),
                Some(Ok(Ok(()))) | None => continue,
            };
            kept.push(object);
        }
        let (queue_pair, answer) = match Arc::try_unwrap(record.queue_pair).map(QueuePair::destroy) {
            Ok(Ok(())) => return Ok(Answer::Done),
            Ok(Err((queue_pair, error))) => (Arc::new(queue_pair), self.refusal(&error)),
            // No port has it, so nobody has; were there one, its holder would still use it.
            Err(queue_pair) => (queue_pair, CommandError::BUSY),
        };
        let record = QueuePairRecord { port: record.port, queue_pair, windows: kept, leaving: false };
        self.queue_pairs.insert(id, record);
        Err(answer)
    }

    fn allocate_window(&mut self, port: PortId, domain: DomainId, queue_pair: QueuePairId, depth: u32) -> Outcome {
        let domain = self.domain(domain)?;
        self.queue_pair(queue_pair)?;
        if depth == 0 || depth > self.capabilities().attributes.max_fast_reg_page_list_len {
            return Err(CommandError::INVALID);
        }
        if self.port(port).is_none() {
            return Err(CommandError::DEVICE_GONE);
        }
        // A device that has none left says EINVAL (rxe) or ENOMEM.
        let made = Registered::new(&domain, self.keys);
        let window = Arc::new(made.map_err(|error| CommandError::Exhausted(errno(&error)))?);
        let key = window.key();
        let record = WindowRecord { port, queue_pair, window: Some(Arc::clone(&window)), leaving: false };
        let object = RegistrationId(self.windows.insert(record).ok_or(CommandError::EXHAUSTED)?);
        if let Some(record) = self.queue_pairs.get_mut(&queue_pair) {
            record.windows.push(object);
        }
        if let Some(port) = self.port(port) {
            port.tell(PortCommand::AddWindow(object, window));
        }
        Ok(Answer::Registration { object, key })
    }

    fn retire_window(&mut self, ticket: Ticket, object: RegistrationId) -> Result<(), CommandError> {
        let record = self.windows.get_mut(object.0).ok_or(CommandError::Unknown)?;
        if core::mem::replace(&mut record.leaving, true) {
            return Err(CommandError::BUSY);
        }
        let port = record.port;
        let awaited = self.tell_one(port, PortCommand::RemoveWindow(object));
        self.retire(ticket, Removed::Window(object), awaited);
        Ok(())
    }

    pub(super) fn destroy_window(&mut self, object: RegistrationId) -> Outcome {
        let WindowRecord { port, queue_pair, window, .. } =
            self.windows.remove(object.0).ok_or(CommandError::Unknown)?;
        let Some(window) = window else { return Ok(Answer::Done) };
        let (window, answer) = match Arc::try_unwrap(window).map(Registered::destroy) {
            Ok(Ok(())) => {
                if let Some(record) = self.queue_pairs.get_mut(&queue_pair) {
                    record.windows.retain(|known| *known != object);
                }
                return Ok(Answer::Done);
            }
            Ok(Err((window, error))) => (Arc::new(window), self.refusal(&error)),
            Err(window) => (window, CommandError::BUSY),
        };
        // The device keeps it: it can be tried again.
        if let Some(port) = self.port(port) {
            port.tell(PortCommand::AddWindow(object, Arc::clone(&window)));
        }
        self.windows.set(object.0, WindowRecord { port, queue_pair, window: Some(window), leaving: false });
        Err(answer)
    }
}

/// Why memory was not registered. The kernel says `ENOMEM` for the limit of locked memory and for want of memory alike:
/// where there is a limit, that is what a person can do something about.
fn not_registered(error: &io::Error, wanted: u64, limit: Option<u64>) -> CommandError {
    match (command_error(error), limit) {
        (CommandError::Exhausted(_), Some(limit)) => CommandError::LockedMemory { wanted, limit },
        (other, _) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::not_registered;
    use crate::provider::CommandError;
    use std::io;

    #[test]
    fn a_limit_of_locked_memory_is_named() {
        let no_memory = io::Error::from_raw_os_error(libc::ENOMEM);
        let named = not_registered(&no_memory, 1 << 30, Some(8 << 20));
        assert_eq!(named, CommandError::LockedMemory { wanted: 1 << 30, limit: 8 << 20 });
        assert!(named.to_string().contains("1073741824 bytes") && named.to_string().contains("8388608 bytes"));
        assert!(named.to_string().contains("ulimit -l unlimited"));
        assert_eq!(not_registered(&no_memory, 1, None), CommandError::EXHAUSTED, "nothing limits it");
        let invalid = io::Error::from_raw_os_error(libc::EINVAL);
        assert_eq!(not_registered(&invalid, 1, Some(1)), CommandError::INVALID);
    }
}
