//! Since when each host may, or may not, have been let read and write.

use frwr_support::nvmf_harness::reservations::HOSTS;

/// The last time that something was possible; 0 where it never was.
type Last = [[u64; 2]; HOSTS];

/// Of each host, when each kind of access was last possible, when it was last possible that it was refused, and when its commands may
/// last have been aborted.
#[derive(Default)]
pub(super) struct Rights {
    permitted: Last,
    refused: Last,
    aborted: [u64; HOSTS],
}

impl Rights {
    /// At this time the host may be let, and may be refused.
    pub(super) fn are(&mut self, now: u64, host: usize, writes: bool, (may, may_not): (bool, bool)) {
        let of = usize::from(writes);
        for (possible, last) in [(may, &mut self.permitted), (may_not, &mut self.refused)] {
            if possible {
                // Time 0 is a time, too.
                last[host][of] = now + 1;
            }
        }
    }

    pub(super) fn were_aborted(&mut self, now: u64, of: impl Fn(usize) -> bool) {
        for host in (0..HOSTS).filter(|host| of(*host)) {
            self.aborted[host] = now + 1;
        }
    }

    pub(super) fn may_pass(&self, host: usize, writes: bool, begun: u64) -> bool {
        self.permitted[host][usize::from(writes)] > begun
    }

    pub(super) fn may_be_refused(&self, host: usize, writes: bool, begun: u64) -> bool {
        self.refused[host][usize::from(writes)] > begun
    }

    pub(super) fn may_be_aborted(&self, host: usize, begun: u64) -> bool {
        self.aborted[host] > begun
    }
}
