//! Hosts that asked for no keep alive and say nothing. Whether they are there their devices know: before a controller ends for its silence
//! its admin queue is probed by an RDMA WRITE of no bytes. A host that lives keeps its place, however long it is silent.

use super::Target;
use super::controllers::Controller;
use super::incident::Fault;
use crate::storage::Storage;
use core::time::Duration;
use frwr_engine::TransferStatus;
use frwr_engine::provider::Port;

/// How long a peer's device may take to acknowledge a probe. Devices give up after their retries, and end the connection by that:
/// eight times some seconds at most, as the connection manager sets them up.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is looked for who is silent, at most: no time-out here is told to a host.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// When silent hosts are looked for, in watched time.
#[derive(Debug, Default)]
pub(super) struct Watch {
    next_look: Duration,
    /// Somebody was refused for want of a place: shorter silence is enough for a probe, once.
    hurries: bool,
}

/// A probe's cookie: the place of the controller, and its identifier, which tells it from the one that had the place before.
fn cookie(place: usize, controller: &Controller) -> u64 {
    // There are at most 4096 places.
    (place as u64) << 16 | u64::from(controller.id)
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Probes hosts that are silent, and ends the controllers of those whose devices say nothing either.
    pub(super) fn watch_silent_hosts(&mut self) {
        let longest = self.options.max_silence;
        if self.watched < self.watch.next_look || longest.is_zero() {
            return;
        }
        let hurries = core::mem::take(&mut self.watch.hurries);
        let enough = if hurries { longest.min(self.options.connect_timeout) } else { longest };
        self.watch.next_look = self.watched.saturating_add(LOOK_PERIOD.min(longest / 4));
        for place in 0..self.controllers.len() {
            let Some(Some(controller)) = self.controllers.get_mut(place) else { continue };
            let Some(admin) = controller.admin.filter(|_| controller.may_be_silent()) else { continue };
            if controller.leaves_probe_unanswered(self.watched, PROBE_TIMEOUT) {
                controller.expire();
                self.statistics.silent_hosts += 1;
                self.disconnect_io_queues(place);
                self.note_fault(admin, Fault::Unanswered { silence: longest, probe: PROBE_TIMEOUT });
                self.engine.disconnect(admin);
            } else if controller.wants_probe(self.watched, enough) {
                let cookie = cookie(place, controller);
                // Without a slot it is tried again; of a connection that ends its end is told.
                if self.engine.probe(admin, cookie).is_ok()
                    && let Some(Some(controller)) = self.controllers.get_mut(place)
                {
                    controller.is_probed(self.watched);
                    self.statistics.probes += 1;
                }
            }
        }
    }

    /// A host finds no place: those that are silent for some seconds are probed now.
    pub(super) fn look_for_silent_hosts(&mut self) {
        (self.watch.next_look, self.watch.hurries) = (Duration::ZERO, true);
    }

    /// A probe has ended; that of a connection which ended first says nothing.
    pub(super) fn probed(&mut self, cookie: u64, status: TransferStatus) {
        let now = self.watched;
        // The halves of the cookie.
        let (place, id) = ((cookie >> 16) as usize, cookie as u16);
        if let Some(Some(controller)) = self.controllers.get_mut(place)
            && controller.id == id
            && status == TransferStatus::Done
        {
            controller.answered_probe(now);
        }
    }
}
