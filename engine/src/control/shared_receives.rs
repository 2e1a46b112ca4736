//! The shared receive queue of a core: made in front of its first queue pair, in the domain that connections share, and
//! kept for the core's life.

use super::{Control, Pending, connecting::Stage};
use crate::{
    event::OpenFailure,
    link::ToCore,
    provider::{Answer, Command, CommandError, Device, PrivateData, QueuePairId, SharedReceiveQueueId},
};

/// How far a core's shared receive queue has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SharedReceiveQueue {
    /// No connection has asked for it, or the device made none.
    #[default]
    Absent,
    Asked {
        entries: u32,
    },
    Made(SharedReceiveQueueId),
}

impl<D: Device> Control<D> {
    /// The queue of a core; asks the device for what is missing.
    pub(super) fn prepare_shared_receives(&mut self, core: usize, entries: u32) -> Option<SharedReceiveQueueId> {
        match self.cores[core].shared_receives {
            SharedReceiveQueue::Made(queue) => return Some(queue),
            SharedReceiveQueue::Asked { .. } => return None,
            SharedReceiveQueue::Absent => {}
        }
        let domain = self.domain_for(false);
        if self.prepare_domain(domain, core)
            && let Some(domain) = self.domains[domain].as_ref().and_then(|domain| domain.id)
        {
            let port = self.cores[core].port;
            self.cores[core].shared_receives = SharedReceiveQueue::Asked { entries };
            let create = Command::CreateSharedReceiveQueue { port, domain, entries };
            self.command(create, Pending::SharedReceiveQueue { core });
        }
        None
    }

    pub(super) fn shared_receives_answered(&mut self, core: usize, result: Result<Answer, CommandError>) {
        let SharedReceiveQueue::Asked { entries } = self.cores[core].shared_receives else { return };
        let made = match (result, self.shared) {
            (Ok(Answer::SharedReceiveQueue { queue, .. }), Some(domain)) => Ok((queue, domain)),
            (Err(error), _) => Err(error),
            (Ok(_), _) => Err(CommandError::INVALID),
        };
        self.cores[core].shared_receives =
            made.map_or_else(|_| Default::default(), |(queue, _)| SharedReceiveQueue::Made(queue));
        if let Ok((queue, domain)) = made {
            // The engine's own memory is its first.
            let lkey = self.bases_of(domain, core).next().map_or(0, |(_, key)| key.lkey);
            self.tell(core, ToCore::SharedReceives { queue, lkey });
        }
        for at in 0..self.links.len() {
            let waits = self.links[at].as_ref().is_some_and(|link| link.core == core && link.stage == Stage::Domain);
            match made {
                Ok(_) if waits => self.advance(at),
                Err(error) if waits => {
                    self.abort(at, OpenFailure::SharedReceives { entries, error }, PrivateData::new())
                }
                _ => {}
            }
        }
    }

    /// A queue pair in the error state takes no more shared receives.
    pub(super) fn last_receive_reached(&mut self, queue_pair: QueuePairId) {
        let link = self.find_queue_pair(queue_pair).and_then(|at| self.links[at].as_ref());
        if let Some((core, connection)) = link.map(|link| (link.core, link.connection)) {
            self.tell(core, ToCore::LastReceive { connection });
        }
    }
}
