//! The steps of a connection's life. Who takes them is `engine/opening` and `engine/life`; what
//! each changes stands here.

use super::{Connection, Ending, Opening, Phase};
use crate::{
    event::DisconnectCause,
    provider::{PrivateData, QueuePairId},
    reach::Reach,
};
use core::time::Duration;
use frwr_mempool::mutant;

impl Connection {
    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    pub(crate) fn is_vacant(&self) -> bool {
        matches!(self.phase, Phase::Vacant)
    }

    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. })
    }

    /// Control is to make its queue pair. Its peer offers so many receives, and is to be granted
    /// `to_grant`, if the caller said how many; `shared` receives are for its use. `accepts`: it
    /// answers a connect request.
    pub(crate) fn begin(&mut self, peer_receives: u32, to_grant: Option<u32>, shared: u32, accepts: bool) {
        self.phase = Phase::Opening(Opening::QueuePair { doomed: false });
        self.was_ready = false;
        self.credits.begin(peer_receives, to_grant);
        self.sending.begin();
        self.reach.fill(Reach::NONE);
        self.receive_queue.begin(shared, accepts);
        self.objects.begin();
    }

    /// The caller gave it up before it had a queue pair.
    pub(crate) fn doom(&mut self) {
        self.phase = Phase::Opening(Opening::QueuePair { doomed: true });
    }

    /// Its queue pair is made, and may receive. Whether the caller gave it up before.
    pub(crate) fn queue_pair_made(&mut self, queue_pair: QueuePairId) -> bool {
        self.queue_pair = queue_pair;
        let doomed = self.phase == Phase::Opening(Opening::QueuePair { doomed: true });
        self.phase = Phase::Opening(Opening::Handshake { told: false });
        doomed
    }

    /// Its receives are posted, and Control is still to be told of them.
    pub(crate) fn is_to_be_handed_on(&self) -> bool {
        self.phase == Phase::Opening(Opening::Handshake { told: false })
    }

    /// Control goes on to the connection manager, if it was `told` to.
    pub(crate) fn handed_on(&mut self, told: bool) {
        self.receive_queue.handed_on(told);
        self.phase = Phase::Opening(Opening::Handshake { told });
    }

    /// Connected: its first MRs are to be made. False where it is not one that waits for that.
    pub(crate) fn establish(&mut self, private_data: PrivateData) -> bool {
        if !matches!(self.phase, Phase::Opening(Opening::Handshake { .. })) {
            return false;
        }
        self.phase = Phase::Opening(Opening::Filling { private_data });
        self.receive_queue.established();
        true
    }

    /// It takes requests from here on.
    pub(crate) fn become_ready(&mut self) {
        (self.phase, self.was_ready) = (Phase::Ready, true);
        self.note_usual();
    }

    /// It was ready, so that its caller heard of it.
    pub(crate) fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Its end begins: Control is to move its queue pair to the error state. The time of its drain
    /// begins with that.
    pub(crate) fn end(&mut self, cause: DisconnectCause) {
        let step = Ending::Fail { told: false };
        self.phase = Phase::Ending { step, cause, deadline: Duration::MAX, holds_back: false };
        self.note_usual();
    }

    /// Notes another cause of an end that has begun: a flush is a consequence, and what comes to
    /// light behind it may be the reason. False where none has begun.
    pub(crate) fn ends_also_by(&mut self, cause: DisconnectCause) -> bool {
        let Phase::Ending { cause: known, .. } = &mut self.phase else { return false };
        if !mutant!(cause_of_flush_stays)
            && matches!(known, DisconnectCause::WorkRequest(failure) if failure.is_flush())
            && matches!(cause, DisconnectCause::WorkRequest(_))
        {
            *known = cause;
        }
        true
    }

    /// Its queue pair is in the error state: it has so long to drain. False where that was not
    /// waited for.
    pub(crate) fn drain_by(&mut self, time: Duration) -> bool {
        let Phase::Ending { step: Ending::Fail { .. }, deadline, .. } = &mut self.phase else { return false };
        *deadline = time;
        true
    }

    /// Its end is at this step.
    pub(crate) fn set_step(&mut self, to: Ending) {
        if let Phase::Ending { step, .. } = &mut self.phase {
            *step = to;
        }
    }

    /// What the queue pair may reach is handed back only behind its destruction.
    pub(crate) fn hold_back(&mut self, needed: bool) {
        if let Phase::Ending { holds_back, .. } = &mut self.phase {
            *holds_back |= needed;
        }
    }

    /// Whether it is.
    pub(crate) fn holds_back(&self) -> bool {
        matches!(self.phase, Phase::Ending { holds_back: true, .. })
    }

    /// Its end waits for a queue pair that the device refused to destroy.
    pub(crate) fn queue_pair_kept(&mut self) {
        self.is_kept = true;
    }

    /// Whether it does.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// It is gone, which the caller is about to be told: another connection in its place has
    /// another name (I24).
    pub(crate) fn vacate(&mut self) {
        self.phase = Phase::Vacant;
        self.end_is_untold = true;
        self.is_kept = false;
        // Mutant: the next connection has the name of this one.
        self.key.epoch = self.key.epoch.wrapping_add(u16::from(!mutant!(S5_epoch)) as _);
        self.registering = self.key.into();
        if !mutant!(F8_pad_kept) {
            self.pad = None;
        }
        self.clear_queues();
    }

    /// The caller was told of its end.
    pub(crate) fn end_told(&mut self) {
        self.end_is_untold = false;
    }

    /// Another connection may take its place: it is vacant, and its caller keeps nothing of it by
    /// its index.
    pub(crate) fn is_free(&self) -> bool {
        self.is_vacant() && (!self.end_is_untold || mutant!(S5_index_untold))
    }

    /// What its queue pair receives into a shared buffer is for somebody, and within its grant.
    pub(crate) fn takes_shared_receives(&self) -> bool {
        let is_over = matches!(
            self.phase,
            Phase::Vacant | Phase::Ending { step: Ending::Destroy | Ending::Close { .. } | Ending::Sweep, .. }
        );
        self.receive_queue.has_posted() && !is_over
    }
}
