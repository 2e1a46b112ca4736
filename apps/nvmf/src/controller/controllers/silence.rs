//! Hosts that asked for no keep alive and say nothing. Whether they are there their devices know: before a controller ends for its silence
//! its admin queue is probed by an RDMA WRITE of no bytes. A host that lives keeps its place, however long it is silent.

use super::probe::PROBE_TIMEOUT;
use super::{Controller, Controllers};
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, Engine, TransferStatus};

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
    (place as u64) << 16 | u64::from(controller.id())
}

impl Controller {
    /// Probes its admin queue. False without a slot: whoever asked asks again.
    pub(super) fn send_probe<P: Port>(
        &mut self,
        admin: ConnectionId,
        place: usize,
        now: Duration,
        engine: &mut Engine<P>,
    ) -> bool {
        let sent = engine.probe(admin, cookie(place, self)).is_ok();
        if sent {
            self.probe().send(now);
        }
        sent
    }
}

impl Controllers {
    /// How long a host has to be silent to be probed now; `None` where it is not yet the time to look. `longest`: what hosts are given
    /// (zero: for ever); `hurried`: the same where somebody wants a place.
    pub(in super::super) fn begin_watch(
        &mut self,
        now: Duration,
        longest: Duration,
        hurried: Duration,
    ) -> Option<Duration> {
        if now < self.watch.next_look || longest.is_zero() {
            return None;
        }
        let hurries = core::mem::take(&mut self.watch.hurries);
        self.watch.next_look = now.saturating_add(LOOK_PERIOD.min(longest / 4));
        Some(if hurries { longest.min(hurried) } else { longest })
    }

    /// Probes the host of a place if it is silent. The admin queue of one whose device says nothing either: it is to be ended.
    pub(in super::super) fn watch<P: Port>(
        &mut self,
        place: usize,
        now: Duration,
        enough: Duration,
        engine: &mut Engine<P>,
    ) -> Option<ConnectionId> {
        let controller = self.controllers.get_mut(place)?.as_mut()?;
        let admin = controller.admin().filter(|_| controller.may_be_silent())?;
        if controller.leaves_probe_unanswered(now, PROBE_TIMEOUT) {
            controller.expire();
            self.counted.silent_hosts += 1;
            return Some(admin);
        }
        // Of a connection that ends its end is told.
        if controller.wants_probe(now, enough) {
            self.counted.probes += u64::from(controller.send_probe(admin, place, now, engine));
        }
        None
    }

    /// A host finds no place: those that are silent for some seconds are probed now.
    pub(in super::super) fn look_for_silent_hosts(&mut self) {
        (self.watch.next_look, self.watch.hurries) = (Duration::ZERO, true);
    }

    /// A probe has ended; that of a connection which ended first says nothing.
    pub(in super::super) fn probed(&mut self, cookie: u64, status: TransferStatus, now: Duration) {
        // The halves of the cookie.
        let (place, id) = ((cookie >> 16) as usize, cookie as u16);
        if let Some(controller) = self.named(place, id)
            && status == TransferStatus::Done
        {
            controller.answered_probe(now);
        }
    }
}
