//! What the main thread says of incidents: a line for each, but not many of one kind in a row.

use arrayvec::ArrayVec;
use core::time::Duration;
use frwr_mempool::lane;
use frwr_nvmf::{controller::Incident, wire::Nqn};
use std::net::IpAddr;

/// How long incidents of one kind and peer are only counted after the first ones were told: long enough that a flood is a line each
/// while, and short enough that a person sees it go on.
const QUIET: Duration = Duration::from_secs(10);
/// Lines that one kind may have in that time: what goes wrong once or twice is told every time.
const BURST: u32 = 4;
/// Kinds, peers and hosts that are told apart at a time; further ones share a place.
const KINDS: usize = 64;
/// Incidents on their way to the main thread: what one core keeps for it at most.
const LANE: usize = frwr_nvmf::controller::MAX_INCIDENTS;

/// From a target's core to the main thread.
pub(super) fn lane() -> (lane::Sender<Incident>, lane::Receiver<Incident>) {
    lane::bounded(LANE)
}

/// What makes incidents alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    fault: u32,
    peer: Option<IpAddr>,
    host: Option<Nqn>,
}

/// Incidents of one kind since one was told.
#[derive(Debug)]
struct Recent {
    kind: Kind,
    until: Duration,
    told: u32,
    suppressed: u64,
    last: Incident,
}

/// Decides what is said of incidents.
#[derive(Debug, Default)]
pub(super) struct IncidentLog {
    recent: ArrayVec<Recent, KINDS>,
}

impl IncidentLog {
    /// Tells of an incident, or counts it.
    pub(super) fn note(&mut self, now: Duration, incident: Incident, say: &mut dyn FnMut(&str)) {
        let Incident { peer, host, .. } = incident;
        let kind = Kind { fault: incident.fault.kind(), peer: peer.map(|peer| peer.ip()), host };
        if let Some(recent) = self.recent.iter_mut().find(|recent| recent.kind == kind) {
            if recent.told < BURST {
                recent.told += 1;
                return say(&incident.to_string());
            }
            recent.suppressed += 1;
            recent.last = incident;
            return;
        }
        if self.recent.is_full() {
            // Too many kinds at once: the last place stands for all that have none.
            if let Some(recent) = self.recent.last_mut() {
                recent.suppressed += 1;
                recent.last = incident;
            }
            return;
        }
        say(&incident.to_string());
        self.recent.push(Recent { kind, until: now + QUIET, told: 1, suppressed: 0, last: incident });
    }

    /// When a time is over in which some were only counted.
    pub(super) fn due(&self) -> Option<Duration> {
        self.recent.iter().map(|recent| recent.until).min()
    }

    /// Tells how many were only counted, once their time is over.
    pub(super) fn tick(&mut self, now: Duration, say: &mut dyn FnMut(&str)) {
        self.tell_where(|recent| recent.until <= now, say);
    }

    /// Tells the rest.
    pub(super) fn finish(&mut self, say: &mut dyn FnMut(&str)) {
        self.tell_where(|_| true, say);
    }

    fn tell_where(&mut self, over: impl Fn(&Recent) -> bool, say: &mut dyn FnMut(&str)) {
        self.recent.retain(|recent| {
            let keep = !over(recent);
            if !keep && recent.suppressed > 0 {
                say(&format!("{} more incidents like this one were not told: {}", recent.suppressed, recent.last));
            }
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST, IncidentLog, KINDS, QUIET};
    use core::time::Duration;
    use frwr_nvmf::controller::{Fault, Incident};

    fn incident(fault: Fault, peer: u8) -> Incident {
        Incident { queue_id: Some(1), ..Incident::new(Some(([10, 0, 0, peer], 4420).into()), fault) }
    }

    fn said(log: &mut IncidentLog, now: u64, incident: Incident) -> Vec<String> {
        let mut lines = Vec::new();
        log.note(Duration::from_secs(now), incident, &mut |line| lines.push(line.to_owned()));
        lines
    }

    #[test]
    fn a_flood_is_a_few_lines_and_one_count() {
        let mut log = IncidentLog::default();
        let short = incident(Fault::ShortCapsule { bytes: 3 }, 1);
        let line = "peer 10.0.0.1:4420, queue 1: connection ended: a message of 3 bytes, a command has 64";
        for _ in 0..BURST {
            assert_eq!(said(&mut log, 0, short), [line]);
        }
        for _ in 0..300 {
            assert!(said(&mut log, 1, short).is_empty());
        }
        // Another peer, and another fault, are told.
        assert_eq!(said(&mut log, 1, incident(Fault::ShortCapsule { bytes: 3 }, 2)).len(), 1);
        assert_eq!(said(&mut log, 1, incident(Fault::Transfer, 1)).len(), 1);
        let mut lines = Vec::new();
        log.tick(QUIET, &mut |line| lines.push(line.to_owned()));
        assert_eq!(lines, [format!("300 more incidents like this one were not told: {line}")]);
        assert_eq!(said(&mut log, 10, short), [line]);
    }

    #[test]
    fn many_peers_at_once_do_not_make_many_lines() {
        let mut log = IncidentLog::default();
        let lines: usize = (0..=255).map(|peer| said(&mut log, 0, incident(Fault::Transfer, peer)).len()).sum();
        assert_eq!(lines, KINDS);
        let mut told = Vec::new();
        log.finish(&mut |line| told.push(line.to_owned()));
        assert!(told.len() == 1 && told[0].starts_with("192 more"), "{told:?}");
    }
}
