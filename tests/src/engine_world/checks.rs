//! What holds after every step, and what is left at the end.

use super::{
    flight::{Flight, PLACES},
    party::Party,
    world::World,
};
use frwr_engine::{Access, ReceiveQueues, ReturnPolicy, provider::Port, provider::soft::OpenKey};

/// Bytes of a write pad.
const PAD_BYTES: u64 = 4;

/// Whether a range of addresses lies in a part of a chunk, and the key has just that right.
fn is_opened_by(key: &OpenKey, base: u64, flight: &Flight) -> bool {
    flight.chunks.iter().any(|chunk| {
        let within = |&(address, length): &(u64, u64)| {
            let start = address.wrapping_sub(base);
            // Ranges of one chunk that touch are one piece for the device.
            let first = chunk.ranges.first().map_or(0, |range| range.0 as u64);
            let last = chunk.ranges.last().map_or(0, |range| (range.0 + range.1) as u64);
            start >= first && start + length <= last
        };
        key.access == chunk.access && key.ranges.iter().all(within)
    })
}

impl World<'_> {
    /// What must hold at any time.
    pub(super) fn look(&mut self) {
        for (name, party) in [("host", &mut self.host), ("target", &mut self.target)] {
            let overran = party.monitor.overran() && !party.lost;
            assert!(!overran || party.may_overrun, "{name}: a completion queue overran, and nothing explains it");
            if overran {
                party.lost = true;
                self.may_end.get_or_insert("a completion queue overran");
            }
            let violations = party.monitor.violations();
            assert!(violations.is_empty(), "{name}: {violations:?}");
            assert!(!party.monitor.crashed(), "{name}: a key was invalidated twice");
        }
        self.check_open_keys();
        self.looked += 1;
        self.check_rest(self.looked % PLACES);
        let statistics = self.host.engine.statistics();
        // With the early return an MR may take several keys with it, of which two count.
        let exact = self.scenario.host.return_policy != ReturnPolicy::OnInvalidatePosted;
        let open = self.host.engine.port().remote_bytes_open().unwrap_or(0);
        assert!(!exact || statistics.keys_live() > 0 || open == 0, "{open} bytes are open, and no key is live");
        let _ = self.host.engine.poll_at();
        self.check_descriptors();
    }

    /// Every key that the device has open is one of a request in flight, for its bytes and with its right.
    fn check_open_keys(&self) {
        if self.host.engine.statistics().mrs_orphaned > 0 {
            return;
        }
        let base = self.host.data.address();
        for key in self.host.open_keys() {
            let bytes: u64 = key.ranges.iter().map(|(_, length)| length).sum();
            let is_pad = self.scenario.host.write_pad && bytes == PAD_BYTES && key.access == Access::RemoteWrite;
            let owned = is_pad || self.flights.values().any(|flight| is_opened_by(&key, base, flight));
            assert!(owned, "{key:x?} is open, and no request in flight opened it");
        }
    }

    /// When a request's end is told, none of its keys is alive (promise Fence).
    pub(super) fn check_dead(&self, cookie: u64, flight: &Flight) {
        if self.host.engine.statistics().mrs_orphaned > 0 {
            return;
        }
        let base = self.host.data.address();
        for key in self.host.open_keys() {
            let others = self.flights.values().any(|other| is_opened_by(&key, base, other));
            let alive = is_opened_by(&key, base, flight) && !others;
            assert!(!alive, "request {cookie} ended, and its key {:#x} is alive", key.key);
        }
    }

    /// Nobody wrote to the memory of a request that ended.
    pub(super) fn check_rest(&self, place: usize) {
        if let Some((flight, digest)) = &self.rests[place] {
            let same = flight.digest(&self.host.data) == *digest;
            assert!(same, "somebody wrote to the memory of a request that had ended: {flight:?}");
        }
    }

    /// No MR descriptor is lost.
    fn check_descriptors(&self) {
        let registrations = self.scenario.host.registrations;
        if registrations == 0 {
            return;
        }
        let all = registrations + u32::from(self.scenario.host.write_pad);
        for connection in self.host.engine.connections() {
            let count = self.host.engine.descriptors(connection);
            let sum = count.free + count.used + count.quarantined + count.absent;
            assert_eq!(sum, all, "{connection:?}: {count:?}");
        }
    }

    pub(super) fn check_nothing_left(&mut self) {
        (0..PLACES).for_each(|place| self.check_rest(place));
        let statistics = self.host.engine.statistics();
        assert_eq!((statistics.request_slots_used, statistics.slots_held), (0, 0), "slots are left: {statistics:?}");
        let dead = statistics.local_invalidations + statistics.remote_invalidations + statistics.keys_destroyed_live;
        let exact = self.scenario.host.return_policy != ReturnPolicy::OnInvalidatePosted;
        // An object that the device kept has its last key, live or not.
        let lives = statistics.registrations.saturating_sub(dead);
        let ends = lives <= statistics.mrs_orphaned && dead <= statistics.registrations;
        assert!(!exact || ends || self.host.lost, "every key died in one way: {statistics:?}");
        let gone = statistics.mrs_destroyed + statistics.mrs_orphaned;
        assert_eq!(statistics.mrs_allocated, gone, "MR objects: {statistics:?}");
        assert_eq!(self.gone[0].len() as u64, self.opened, "one end per connection");
        check_receives("host", &self.host);
        check_receives("target", &self.target);
        let target = self.target.engine.statistics();
        assert_eq!((target.request_slots_used, target.slots_held), (0, 0), "the target's slots are left: {target:?}");
        if statistics.mrs_orphaned == 0 {
            let open = self.host.engine.port().remote_bytes_open();
            assert_eq!(open, Some(0), "no key survives its connection");
            // An object that the device kept is tried again behind its queue pair.
            let kept = self.host.control.statistics().frees_refused > 0;
            let stalled = self.host.monitor.stalled_destroys();
            assert!(kept || stalled == 0, "{stalled} queue pairs were destroyed with a live key");
        }
        self.run.note_text(statistics);
        self.run.note_text(target);
    }
}

/// Receive buffers are with nobody, and every shared one is free.
fn check_receives(name: &str, party: &Party) {
    let (buffers, statistics) = (party.engine.receive_buffers(), party.engine.statistics());
    assert_eq!(buffers.held, 0, "{name}: receives are left with the caller");
    let shared = statistics.shared_receives_free + statistics.shared_receives_withdrawn;
    // A device that is gone takes none back.
    if party.options.receive_queues != ReceiveQueues::PerConnection && shared > 0 && !party.lost {
        let all = u64::from(buffers.posted + buffers.idle);
        assert_eq!(shared, all, "{name}: shared receives are missing: {statistics:?}");
    }
}
