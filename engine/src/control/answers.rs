//! What the device says: answers to commands, and asynchronous events.

use super::{
    Control, Pending,
    connecting::Stage,
    domain::Base,
    kept::{Kept, is_gone},
};
use crate::{
    event::{Listening, OpenFailure},
    link::{BaseKey, ToCore},
    provider::{Answer, AsyncEvent, CommandError, Device, DeviceEvent, PrivateData, Ticket},
};
use frwr_mempool::mutant;

impl<D: Device> Control<D> {
    pub(super) fn device_event(&mut self, event: DeviceEvent) {
        match event {
            DeviceEvent::Answered { ticket, result } => self.answered(ticket, result),
            DeviceEvent::Connection(event) => self.connection_event(event),
            DeviceEvent::Async(event) => self.async_event(event),
        }
    }

    fn answered(&mut self, ticket: Ticket, result: Result<Answer, CommandError>) {
        let Some(pending) = self.pending.remove(&ticket) else { return };
        if let Err(error) = result {
            self.statistics.commands_failed += 1;
            self.statistics.command_error = Some(error);
        }
        match pending {
            Pending::Nothing => {}
            Pending::Domain { domain } => self.domain_answered(domain, result),
            Pending::FreeDomain { domain, again } => self.domain_freed(domain, again, &result),
            Pending::Base { domain, core, memory } => self.base_answered(domain, core, memory, result),
            Pending::BaseGone { domain, core, memory, base, again } => {
                self.base_gone(Kept::Base { domain, core, memory, base }, again, &result);
            }
            Pending::QueuePair { link } => self.queue_pair_answered(link, result),
            Pending::SharedReceiveQueue { core } => self.shared_receives_answered(core, result),
            Pending::Connect { core, connection } => {
                if let Err(error) = result {
                    self.not_begun(core, connection, error);
                }
            }
            // A queue pair that cannot be moved to the error state may go on: its destruction is what ends its work.
            Pending::Fail { core, connection } => {
                let refused = !is_gone(&result);
                if refused && let Some(link) = self.find(core, connection).and_then(|at| self.links[at].as_mut()) {
                    link.not_failed = true;
                }
                // Mutant: a queue pair that was not failed counts as failed.
                let refused = refused && !mutant!(fail_refused_as_failed);
                self.tell(core, ToCore::Failed { connection, refused });
            }
            Pending::Destroy { link } => self.queue_pair_answered_its_end(link, &result),
            Pending::Allocate { core, connection, descriptor } => {
                let object = result.and_then(|answer| match answer {
                    Answer::Registration { object, key } => Ok((object, key)),
                    _ => Err(CommandError::INVALID),
                });
                self.tell(core, ToCore::Allocated { connection, descriptor, object });
            }
            Pending::Free { core, descriptor } => {
                if let Err(error) = result
                    && !is_gone(&result)
                    && !mutant!(F9_refused)
                {
                    self.statistics.frees_refused += 1;
                    self.tell(core, ToCore::NotFreed { descriptor, error });
                } else {
                    self.cores[core].freed.push(descriptor);
                }
            }
            Pending::Listen { address } => self.listen_answered(address, result),
            Pending::StopListening { core, address, listener } => {
                self.listener_gone(listener, false, &result);
                self.tell(core, ToCore::Listening { address, state: Listening::Stopped });
            }
            Pending::ListenerGone { listener, again } => self.listener_gone(listener, again, &result),
        }
    }

    fn domain_answered(&mut self, at: usize, result: Result<Answer, CommandError>) {
        let Some(domain) = self.domains[at].as_mut() else { return };
        if let Ok(Answer::Domain(id)) = result {
            domain.id = Some(id);
        } else {
            domain.asked = false;
        }
        self.domain_changed(at, None, result.map(|_| ()));
        if self.shared == Some(at) && result.is_ok() {
            self.prepare_listeners(at);
        }
        self.dismantle(at);
    }

    fn base_answered(&mut self, at: usize, core: usize, memory: u16, result: Result<Answer, CommandError>) {
        let Some(domain) = self.domains[at].as_mut() else { return };
        let place = domain.bases.get_mut(&(core, memory));
        match (place, result) {
            (Some(place), Ok(Answer::Base { base, lkey })) => {
                *place = Base::Made { base, lkey };
                self.tell_of_memory(at, core, memory, Ok(BaseKey { base, lkey }));
                self.release_base(at, core, memory);
                self.domain_changed(at, Some(core), Ok(()));
            }
            (Some(_), other) => {
                domain.bases.remove(&(core, memory));
                self.statistics.memories_refused += 1;
                let error = other.err().unwrap_or(CommandError::INVALID);
                self.tell_of_memory(at, core, memory, Err(error));
                // Nobody counts on one that was withdrawn.
                let made = if self.is_wanted(core, memory) { Err(error) } else { Ok(()) };
                self.domain_changed(at, Some(core), made);
                self.forget_memory(core, memory);
            }
            (None, _) => {}
        }
        self.dismantle(at);
    }

    fn queue_pair_answered(&mut self, at: usize, result: Result<Answer, CommandError>) {
        let (queue_pair, sizes) = match result {
            Ok(Answer::QueuePair { queue_pair, sizes }) => (queue_pair, sizes),
            other => {
                let error = other.err().unwrap_or(CommandError::INVALID);
                return self.abort(at, OpenFailure::NotMade(error), PrivateData::new());
            }
        };
        let Some(link) = self.links[at].as_mut() else { return };
        link.queue_pair = Some(queue_pair);
        link.stage = Stage::Receives;
        let (core, connection, domain) = (link.core, link.connection, link.domain);
        if self.cores[core].gone {
            self.fail(core, connection);
            return;
        }
        let keys: Vec<_> = self.bases_of(domain, core).collect();
        for (memory, key) in keys {
            self.tell(core, ToCore::Memory { connection, memory, made: Ok(key) });
        }
        self.tell(core, ToCore::QueuePairCreated { connection, queue_pair, sizes });
    }

    fn async_event(&mut self, event: AsyncEvent) {
        self.statistics.async_events += 1;
        match event {
            AsyncEvent::QueuePairFatal(queue_pair) | AsyncEvent::QueuePairAccessError(queue_pair) => {
                self.queue_pair_ended(queue_pair, true);
            }
            AsyncEvent::LastReceiveReached(queue_pair) => self.last_receive_reached(queue_pair),
            // Completions were lost: nothing on this port can be trusted any more (fault 13).
            AsyncEvent::CompletionQueueOverrun(_) if mutant!(overrun_ignored) => {}
            AsyncEvent::CompletionQueueOverrun(port) => self.all_ended(Some(port)),
            AsyncEvent::DeviceFatal => {
                self.statistics.device_failures += 1;
                if mutant!(S9_device_fatal) {
                    return;
                }
                self.all_ended(None);
            }
        }
    }
}
