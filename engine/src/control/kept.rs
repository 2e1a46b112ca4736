//! What the device refused to destroy, and is asked for again.
//!
//! Whoever waits for the end of a queue pair hears of it when the device has complied, unless nothing is left that the queue
//! pair could reach.

use super::{Control, Pending, connecting::Stage};
use crate::{
    link::ToCore,
    provider::{Answer, BaseId, Command, CommandError, Device, DomainId, ListenerId},
};
use frwr_mempool::mutant;

/// Polls between two attempts at most: a system call in so many polls costs nobody anything.
const MOST_POLLS: u32 = 256;
/// The same where a connection waits: a main thread that sleeps between its polls makes five in a second.
const MOST_POLLS_WAITED_FOR: u32 = 16;

/// Something that the device keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Domain(DomainId),
    /// Of a core's memory, in a domain that is being dismantled.
    Base {
        domain: usize,
        core: usize,
        memory: u16,
        base: BaseId,
    },
    QueuePair {
        link: usize,
    },
    Listener(ListenerId),
}

/// When it is asked for again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    kept: Kept,
    polls_left: u32,
}

/// Whether something is destroyed: also where the device does not know it, or is gone with all that it had.
pub(super) fn is_gone(result: &Result<Answer, CommandError>) -> bool {
    matches!(result, Ok(_) | Err(CommandError::Unknown | CommandError::DeviceGone(_)))
}

impl<D: Device> Control<D> {
    fn keep(&mut self, kept: Kept, polls: u32) {
        self.kept.push(Retry { kept, polls_left: polls });
    }

    /// Asks for one of those whose time has come.
    pub(super) fn retry_kept(&mut self) {
        for retry in &mut self.kept {
            retry.polls_left = retry.polls_left.saturating_sub(1);
        }
        let Some(due) = self.kept.iter().position(|retry| retry.polls_left == 0) else { return };
        // Those behind it keep their order, so that all have their turn.
        match self.kept.remove(due).kept {
            Kept::Domain(domain) => {
                self.command(Command::FreeDomain { domain }, Pending::FreeDomain { domain, again: true });
            }
            Kept::Base { domain, core, memory, base } => {
                let pending = Pending::BaseGone { domain, core, memory, base, again: true };
                self.command(Command::DeregisterMemory { base }, pending);
            }
            Kept::QueuePair { link } => self.destroy_queue_pair(link),
            Kept::Listener(listener) => {
                self.command(Command::StopListening { listener }, Pending::ListenerGone { listener, again: true });
            }
        }
    }

    pub(super) fn destroy_queue_pair(&mut self, at: usize) {
        let queue_pair = self.links[at].as_ref().and_then(|link| link.queue_pair);
        if let Some(queue_pair) = queue_pair {
            self.command(Command::DestroyQueuePair { queue_pair }, Pending::Destroy { link: at });
        }
    }

    /// A queue pair is destroyed, or the device refused that. Its core, if it waits, hears the truth; if there is nothing that
    /// the queue pair could reach, the connection has ended all the same.
    pub(super) fn queue_pair_answered_its_end(&mut self, at: usize, result: &Result<Answer, CommandError>) {
        let Some(link) = self.links[at].as_mut() else { return };
        let first = link.retry_after == 0;
        // S6: a queue pair that the device kept counts as destroyed.
        if is_gone(result) || mutant!(S6_kept) {
            self.statistics.queue_pairs_kept -= u64::from(!first);
            return self.destroyed(at);
        }
        let is_waited_for = !matches!(link.stage, Stage::Left | Stage::Closing { may_work: false });
        let most = if is_waited_for { MOST_POLLS_WAITED_FOR } else { MOST_POLLS };
        link.retry_after = if first { 1 } else { (2 * link.retry_after).min(most) };
        let (core, connection, polls) = (link.core, link.connection, link.retry_after);
        self.keep(Kept::QueuePair { link: at }, polls);
        if !first {
            return;
        }
        self.statistics.queue_pairs_kept += 1;
        let Some(link) = self.links[at].as_mut() else { return };
        if link.stage == (Stage::Closing { may_work: false }) {
            link.stage = Stage::Left;
            self.tell(core, ToCore::Closed { connection });
        } else {
            self.tell(core, ToCore::QueuePairKept { connection });
        }
    }

    /// A domain is gone, or the device keeps it as long as something is in it.
    pub(super) fn domain_freed(&mut self, domain: DomainId, again: bool, result: &Result<Answer, CommandError>) {
        note(&mut self.statistics.domains_kept, again, result);
        if !is_gone(result) {
            self.keep(Kept::Domain(domain), MOST_POLLS);
        }
    }

    /// A base registration is gone, or the device keeps it; then its domain waits for it.
    pub(super) fn base_gone(&mut self, kept: Kept, again: bool, result: &Result<Answer, CommandError>) {
        let Kept::Base { domain: at, core, memory, .. } = kept else { return };
        note(&mut self.statistics.memories_kept, again, result);
        if !is_gone(result) {
            return self.keep(kept, MOST_POLLS);
        }
        if let Some(domain) = self.domains[at].as_mut() {
            domain.bases.remove(&(core, memory));
        }
        self.forget_memory(core, memory);
        self.dismantle(at);
    }

    /// A listener is gone, or the device keeps it: then its address is taken, and who connects to it is turned away.
    pub(super) fn listener_gone(&mut self, listener: ListenerId, again: bool, result: &Result<Answer, CommandError>) {
        note(&mut self.statistics.listeners_kept, again, result);
        if !is_gone(result) {
            self.keep(Kept::Listener(listener), MOST_POLLS);
        }
    }
}

/// Counts what the device keeps now, once each.
fn note(kept: &mut u64, again: bool, result: &Result<Answer, CommandError>) {
    match (again, is_gone(result)) {
        (false, false) => *kept += 1,
        (true, true) => *kept = kept.saturating_sub(1),
        _ => {}
    }
}
