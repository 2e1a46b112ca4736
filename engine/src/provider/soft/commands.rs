//! What each command does on the cold side.

use super::bases::Base;
use super::device::{Effect, QueuePairRecord, SharedReceiveQueueRecord, SoftDevice, base_index};
use super::link::Link;
use super::port::PortCommand;
use super::queue_pair::QueuePair;
use super::receive_queue::{ReceiveQueue, SharedReceiveQueue};
use super::registration::Registration;
use crate::provider::{
    Answer, BaseId, Command, CommandError, Contiguity, DomainId, PortId, QueuePairId, QueueSizes, RegistrationId,
    SharedReceiveQueueId, Ticket,
};
use frwr_mempool::DeviceMemory;

impl SoftDevice {
    /// Starts a command; an error is its answer.
    pub(super) fn execute(&mut self, ticket: Ticket, command: Command) -> Result<(), CommandError> {
        match command {
            Command::AllocateDomain => {
                let domain = DomainId(self.names.count());
                self.domains.insert(domain, 0);
                self.answer(ticket, Ok(Answer::Domain(domain)));
            }
            Command::FreeDomain { domain } => {
                let users = self.domains.get(&domain).ok_or(CommandError::Unknown)?;
                if *users > 0 {
                    return Err(CommandError::BUSY);
                }
                self.domains.remove(&domain);
                self.answer(ticket, Ok(Answer::Done));
            }
            Command::RegisterMemory { domain, memory, local_write } => {
                self.register_memory(ticket, domain, memory, local_write)?;
            }
            Command::DeregisterMemory { base } => {
                let index = base_index(base);
                let base = self.bases.get_mut(&index).ok_or(CommandError::Unknown)?;
                if core::mem::replace(&mut base.retiring, true) {
                    return Err(CommandError::BUSY);
                }
                self.tell_all(Some(ticket), Effect::BaseRetired(index), || PortCommand::RetireBase(index));
            }
            Command::CreateQueuePair { port, domain, sizes, shared_receives } => {
                self.create_queue_pair(ticket, port, domain, sizes, shared_receives)?;
            }
            Command::CreateSharedReceiveQueue { port, domain, entries } => {
                self.create_shared_receive_queue(ticket, port, domain, entries)?;
            }
            Command::DestroySharedReceiveQueue { queue } => self.destroy_shared_receive_queue(ticket, queue)?,
            Command::FailQueuePair { queue_pair } => {
                let port = self.queue_pair_record(queue_pair)?.port;
                self.tell(port, Some(ticket), Effect::Answer(Answer::Done), PortCommand::Fail(queue_pair));
            }
            Command::DestroyQueuePair { queue_pair } => {
                let port = self.queue_pair_record(queue_pair)?.port;
                let effect = Effect::QueuePairRemoved(queue_pair);
                self.tell(port, Some(ticket), effect, PortCommand::RemoveQueuePair(queue_pair));
            }
            Command::AllocateRegistration { port, domain, queue_pair, depth } => {
                self.allocate_registration(ticket, port, domain, queue_pair, depth)?;
            }
            Command::FreeRegistration { object } => {
                let (port, _) = *self.registrations.get(&object).ok_or(CommandError::Unknown)?;
                let effect = Effect::RegistrationRemoved(object);
                self.tell(port, Some(ticket), effect, PortCommand::RemoveRegistration(object));
            }
            Command::Listen { address } => self.listen(ticket, address)?,
            Command::StopListening { listener } => self.stop_listening(ticket, listener)?,
            Command::Connect { queue_pair, address, private_data, parameters } => {
                self.connect(ticket, queue_pair, address, private_data, parameters)?;
            }
            Command::Accept { incoming, queue_pair, private_data, parameters } => {
                self.accept(ticket, incoming, queue_pair, private_data, parameters)?;
            }
            Command::Reject { incoming, private_data } => self.reject(ticket, incoming, private_data)?,
            Command::Disconnect { queue_pair } => self.disconnect(ticket, queue_pair)?,
        }
        Ok(())
    }

    pub(super) fn queue_pair_record(&mut self, id: QueuePairId) -> Result<&mut QueuePairRecord, CommandError> {
        self.queue_pairs.get_mut(&id).ok_or(CommandError::Unknown)
    }

    fn register_memory(
        &mut self,
        ticket: Ticket,
        domain: DomainId,
        memory: DeviceMemory,
        local_write: bool,
    ) -> Result<(), CommandError> {
        self.live_domain(domain)?;
        if memory.is_empty() {
            return Err(CommandError::INVALID);
        }
        let lkey = self.names.base().ok_or(CommandError::EXHAUSTED)?;
        let base = Base { lkey, domain, memory, local_write, covers: 0, retiring: false };
        let index = super::bases::index_of(lkey);
        self.count_in(domain);
        self.bases.insert(index, base.clone());
        let answer = Answer::Base { base: BaseId(index), lkey };
        self.tell_all(Some(ticket), Effect::Answer(answer), || PortCommand::AddBase(base.clone()));
        Ok(())
    }

    fn create_queue_pair(
        &mut self,
        ticket: Ticket,
        port: PortId,
        domain: DomainId,
        sizes: QueueSizes,
        shared_receives: Option<SharedReceiveQueueId>,
    ) -> Result<(), CommandError> {
        self.live_domain(domain)?;
        self.live_port(port)?;
        let limits = self.options.capabilities.attributes;
        let fits = |size: u32| size > 0 && size <= limits.max_qp_wr;
        let receives_fit = shared_receives.is_some() || fits(sizes.receive);
        if !fits(sizes.send) || !receives_fit || sizes.max_send_sge > limits.max_send_sge {
            return Err(CommandError::INVALID);
        }
        let receives = self.receive_queue(port, sizes.receive, shared_receives)?;
        let id = self.names.queue_pair().ok_or(CommandError::EXHAUSTED)?;
        self.count_in(domain);
        if let Some(record) = shared_receives.and_then(|queue| self.shared_receive_queues.get_mut(&queue)) {
            record.users += 1;
        }
        self.queue_pairs.insert(id, QueuePairRecord { port, domain, shared_receives, link: Link::Unconnected });
        // One element may be asked for by a message; a window's list is merged, but may name several.
        let list = match self.options.capabilities.contiguity {
            Contiguity::SingleRange => limits.max_send_sge,
            Contiguity::PageList { .. } | Contiguity::Gaps { .. } => limits.max_fast_reg_page_list_len,
        };
        let stride = sizes.max_send_sge.max(list).max(1);
        let queue_pair = Box::new(QueuePair::new(id, domain, sizes, stride, receives));
        let effect = Effect::Answer(Answer::QueuePair { queue_pair: id, sizes });
        self.tell(port, Some(ticket), effect, PortCommand::AddQueuePair(queue_pair));
        Ok(())
    }

    /// Where a queue pair of a port is to take its receives from.
    fn receive_queue(
        &self,
        port: PortId,
        entries: u32,
        shared: Option<SharedReceiveQueueId>,
    ) -> Result<ReceiveQueue, CommandError> {
        let Some(queue) = shared else { return Ok(ReceiveQueue::own(entries)) };
        let record = self.shared_receive_queues.get(&queue).ok_or(CommandError::Unknown)?;
        if record.port == port { Ok(ReceiveQueue::shared(queue)) } else { Err(CommandError::INVALID) }
    }

    fn create_shared_receive_queue(
        &mut self,
        ticket: Ticket,
        port: PortId,
        domain: DomainId,
        entries: u32,
    ) -> Result<(), CommandError> {
        self.live_domain(domain)?;
        self.live_port(port)?;
        let limits = self.options.capabilities.attributes;
        if self.shared_receive_queues.len() >= limits.max_srq as usize {
            return Err(CommandError::EXHAUSTED);
        }
        if entries == 0 || entries > limits.max_srq_wr {
            return Err(CommandError::INVALID);
        }
        let queue = SharedReceiveQueueId(self.names.count());
        self.count_in(domain);
        self.shared_receive_queues.insert(queue, SharedReceiveQueueRecord { port, domain, users: 0 });
        let made = Box::new(SharedReceiveQueue::new(queue, domain, entries));
        let effect = Effect::Answer(Answer::SharedReceiveQueue { queue, entries });
        self.tell(port, Some(ticket), effect, PortCommand::AddSharedReceiveQueue(made));
        Ok(())
    }

    fn destroy_shared_receive_queue(
        &mut self,
        ticket: Ticket,
        queue: SharedReceiveQueueId,
    ) -> Result<(), CommandError> {
        let record = self.shared_receive_queues.get(&queue).ok_or(CommandError::Unknown)?;
        if record.users > 0 {
            return Err(CommandError::BUSY);
        }
        // No queue pair finds it from here on.
        let (port, effect) = (record.port, Effect::SharedReceiveQueueRemoved(record.domain));
        self.shared_receive_queues.remove(&queue);
        self.tell(port, Some(ticket), effect, PortCommand::RemoveSharedReceiveQueue(queue));
        Ok(())
    }

    fn allocate_registration(
        &mut self,
        ticket: Ticket,
        port: PortId,
        domain: DomainId,
        queue_pair: QueuePairId,
        depth: u32,
    ) -> Result<(), CommandError> {
        self.live_domain(domain)?;
        self.live_port(port)?;
        self.queue_pair_record(queue_pair)?;
        let limits = self.options.capabilities.attributes;
        if depth == 0 || depth > limits.max_fast_reg_page_list_len.max(1) {
            return Err(CommandError::INVALID);
        }
        if self.registrations.len() >= limits.max_registrations as usize {
            return Err(CommandError::EXHAUSTED);
        }
        let rotates = self.options.capabilities.rotating_key_bits > 0;
        let (object, key) = self.names.registration(rotates).ok_or(CommandError::EXHAUSTED)?;
        self.count_in(domain);
        self.registrations.insert(object, (port, domain));
        let registration = Box::new(Registration::new(object, domain, depth, key));
        let effect = Effect::Answer(Answer::Registration { object, key });
        self.tell(port, Some(ticket), effect, PortCommand::AddRegistration(registration));
        Ok(())
    }

    fn live_domain(&self, domain: DomainId) -> Result<(), CommandError> {
        if self.domains.contains_key(&domain) { Ok(()) } else { Err(CommandError::Unknown) }
    }

    fn live_port(&self, port: PortId) -> Result<(), CommandError> {
        if self.has_port(port) {
            Ok(())
        } else if self.port_exists(port) {
            Err(CommandError::DEVICE_GONE)
        } else {
            Err(CommandError::Unknown)
        }
    }

    fn count_in(&mut self, domain: DomainId) {
        if let Some(users) = self.domains.get_mut(&domain) {
            *users += 1;
        }
    }

    pub(super) fn count_out(&mut self, domain: DomainId) {
        if let Some(users) = self.domains.get_mut(&domain) {
            *users = users.saturating_sub(1);
        }
    }

    pub(super) fn forget_queue_pair(&mut self, id: QueuePairId) {
        if let Some(record) = self.queue_pairs.remove(&id) {
            self.count_out(record.domain);
            self.names.free_queue_pair(id);
            if let Some(shared) = record.shared_receives.and_then(|queue| self.shared_receive_queues.get_mut(&queue)) {
                shared.users = shared.users.saturating_sub(1);
            }
        }
    }

    pub(super) fn forget_registration(&mut self, object: RegistrationId) {
        if let Some((_, domain)) = self.registrations.remove(&object) {
            self.count_out(domain);
            self.names.free_registration(object);
        }
    }

    pub(super) fn forget_base(&mut self, index: u32) {
        if let Some(base) = self.bases.remove(&index) {
            self.count_out(base.domain);
            self.names.free_base(index);
        }
    }
}
