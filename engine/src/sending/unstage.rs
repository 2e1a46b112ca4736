//! What does not get to the device: a request that is cancelled, a connection that ends, and what a
//! post refused.

use super::Sending;
use crate::{
    chain::{Posted, Registered},
    provider::TokenKind,
};
use core::ops::Range;
use frwr_mempool::mutant;

impl Sending {
    /// Takes the work requests at these positions out of the chain; what stands behind them moves
    /// up. Who owns them is told what `left`, and of the others where they stand now.
    #[cold]
    pub(crate) fn unstage(
        &mut self,
        leaving: &Range<u64>,
        mut left: impl FnMut(Posted),
        mut moved: impl FnMut(Posted, u64),
    ) {
        let staged = self.queue.unstage();
        let (mut kept, mut asked) = (0, false);
        for at in 0..staged {
            let (position, posted) = self.queue.take_next(at);
            let Some(&work) = self.chain.as_slice().get(at as usize) else { break };
            if leaving.contains(&position) {
                if mutant!(unstaged_registration_posted) {
                    continue;
                }
                left(posted);
                asked |= work.signalled;
                continue;
            }
            moved(posted, self.queue.stage(posted));
            self.chain.set(kept, work);
            kept += 1;
        }
        self.chain.truncate(kept);
        self.registered = Registered::of(self.chain.as_slice());
        // Others may count on a completion that is not asked for any more: what was staged behind
        // it did not ask because it did.
        if mutant!(F5_unstaged) {
            // F5: the completion that others wait for left with the cancelled one.
        } else if asked && let Some(last) = self.chain.last_mut() {
            last.signalled = true;
            self.signaller.signalled();
        } else if asked {
            self.signaller.refused();
            self.relief_coming = false;
        }
    }

    /// Takes all out of the chain; who owns it is told what `left`. A chain that is being posted is
    /// looked at until all of it is accounted for: nothing leaves it.
    #[cold]
    pub(crate) fn unstage_all(&mut self, mut left: impl FnMut(Posted)) {
        let staged = self.queue.unstage();
        if staged == 0 {
            return;
        }
        for at in 0..staged {
            left(self.queue.take_next(at).1);
        }
        self.forget_chain();
        (self.standalone_staged, self.end_unsignalled) = (false, false);
    }

    /// Forgets what is staged: its requests are reported from their slots.
    pub(crate) fn clear(&mut self) {
        self.queue.unstage();
        self.forget_chain();
        self.end_unsignalled = false;
    }

    /// Nothing is in the chain any more.
    fn forget_chain(&mut self) {
        self.chain.clear();
        self.registered = Registered::default();
    }

    /// The device took so many of the chain. Returns their registrations.
    pub(crate) fn accept(&mut self, accepted: usize) -> Registered {
        self.queue.accept(accepted);
        let all = core::mem::take(&mut self.registered);
        match self.chain.as_slice().get(..accepted) {
            Some(taken) if accepted < self.chain.len() => Registered::of(taken),
            _ => all,
        }
    }

    /// How many work requests of the chain that was posted last the device refused, which took so many.
    pub(crate) fn refused(&self, accepted: usize) -> usize {
        self.chain.len() - accepted
    }

    /// See [`SendQueue::refused_at`](crate::chain::SendQueue::refused_at).
    pub(crate) fn refused_at(&self, at: usize) -> Posted {
        self.queue.refused_at(at)
    }

    /// One that the device refused gives its entries back.
    #[cold]
    pub(crate) fn release_refused(&mut self, posted: &Posted) {
        let entries = if mutant!(S2_tail_entries) { 0 } else { self.queue.cost_of(posted) };
        self.queue.release(entries);
    }

    /// The connection goes on behind a post of which the device took so many: what is sent next
    /// asks for the completion that was refused with the rest, and waits for registrations in front
    /// of it where messages do.
    #[cold]
    pub(crate) fn go_on_behind(&mut self, accepted: usize) {
        let refused = self.chain.as_slice().iter().skip(accepted);
        let invalidations = refused.filter(|request| request.token.kind() == TokenKind::Invalidate).count();
        if invalidations > 0 {
            self.signaller.invalidations(invalidations as u32, false);
        }
        if !mutant!(signal_refused) {
            self.signaller.refused();
        }
        if self.rules.fence && !mutant!(K19_refused) {
            self.owe_fence();
        }
    }
}
