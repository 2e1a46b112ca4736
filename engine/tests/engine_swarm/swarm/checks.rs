//! What holds at any time, and at the end.

use super::{PLACE_BYTES, PLACES, Swarm, pattern};
use frwr_engine::{
    ReturnPolicy,
    provider::{PostRefusal, record::Record},
};
use std::collections::HashMap;

impl Swarm {
    /// What must hold at any time.
    pub(super) fn look(&mut self) {
        for record in self.test.watch.log() {
            match record {
                Record::Refused { reason: PostRefusal::QueueFull, queue_pair, .. } => {
                    panic!("{queue_pair:?} was overrun")
                }
                Record::SharedReceive { queue, .. } => self.shared = Some(*queue),
                _ => {}
            }
        }
        self.test.watch.clear();
        let ended = self.test.pair.host.ended[self.ended..].to_vec();
        for (cookie, status) in ended {
            self.ended += 1;
            let Some(flight) = self.flights.remove(&cookie) else { continue };
            if status == "replied" && flight.written {
                let mut at = 0;
                for (offset, length) in &flight.ranges {
                    let mut bytes = vec![0; *length as usize];
                    self.test.host.data.read(*offset as usize, &mut bytes).unwrap();
                    assert!(
                        bytes.iter().zip(at..).all(|(byte, at)| *byte == pattern(at)),
                        "request {cookie} lacks data"
                    );
                    at += bytes.len();
                }
            }
            let orphans = self.test.host.engine.statistics().mrs_orphaned > 0;
            self.rest[flight.place] = Some(self.digest(flight.place)).filter(|_| !orphans);
        }
        if self.is_quiet() {
            // Or they would keep all MRs; but some time.
            for grant in core::mem::take(&mut self.test.pair.host.grants) {
                if self.random.one_in(8) {
                    let _ = self.test.host.engine.cancel(grant.0);
                } else {
                    self.test.pair.host.grants.push(grant);
                }
            }
        }
        // One in each step, since that reads all of it; what was written stays until the place is used again, when it is looked at too.
        self.looked += 1;
        self.check_place(self.looked % PLACES);
        let engine = &self.test.pair.host.engine;
        let (live, open) = (engine.statistics().keys_live(), self.test.open_bytes());
        // With the early return an MR may take several keys with it, of which two count.
        let exact = self.options.return_policy != ReturnPolicy::OnInvalidatePosted;
        assert!(!exact || live > 0 || open == 0, "{open} bytes are open, and no key is live");
        let _ = engine.poll_at();
        let all = if self.options.registrations == 0 { None } else { Some(self.options.registrations) };
        for connection in engine.connections() {
            let count = engine.descriptors(connection);
            let sum = count.free + count.used + count.quarantined + count.absent;
            assert!(all.is_none_or(|all| sum == all + u32::from(self.options.write_pad)), "{count:?}");
        }
    }

    /// Nobody wrote to the memory of a request that ended.
    pub(super) fn check_place(&self, place: usize) {
        if let Some(digest) = self.rest[place] {
            assert_eq!(digest, self.digest(place), "somebody wrote to memory of a request that ended");
        }
    }

    fn digest(&self, place: usize) -> u64 {
        let mut bytes = [0; PLACE_BYTES];
        self.test.host.data.read(place * PLACE_BYTES, &mut bytes).unwrap();
        bytes.chunks(8).fold(0, |hash: u64, word| {
            (hash ^ u64::from_le_bytes(word.try_into().unwrap())).wrapping_mul(0x100_0000_01B3).rotate_left(5)
        })
    }

    /// How often the host was told of the end of each of its transfers.
    pub(super) fn transfers_told(&self) -> Vec<usize> {
        let mut told = HashMap::new();
        for event in &self.test.host.events {
            let ends = ["Fetched", "Written", "Responded"].iter().any(|name| event.starts_with(name));
            if let Some(cookie) = event.split("cookie: ").nth(1).filter(|_| ends) {
                let cookie: u64 = cookie.split(',').next().unwrap().parse().unwrap();
                *told.entry(cookie).or_insert(0) += 1;
            }
        }
        self.transfers.iter().map(|cookie| told.get(cookie).copied().unwrap_or(0)).collect()
    }

    pub(super) fn nothing_left(&mut self) {
        (0..PLACES).for_each(|place| self.check_place(place));
        let statistics = self.test.host.engine.statistics();
        assert_eq!(statistics.requests_ended, self.test.host.ended.len() as u64);
        assert_eq!((statistics.request_slots_used, statistics.slots_held), (0, 0));
        let dead = statistics.local_invalidations + statistics.remote_invalidations + statistics.keys_destroyed_live;
        let exact = self.options.return_policy != ReturnPolicy::OnInvalidatePosted;
        // An object that the device kept has its last key, live or not.
        let lives = statistics.registrations.saturating_sub(dead);
        let ends = lives <= statistics.mrs_orphaned && dead <= statistics.registrations;
        assert!(!exact || ends, "every key died in one way: {statistics:?}");
        assert_eq!(statistics.mrs_allocated, statistics.mrs_destroyed + statistics.mrs_orphaned);
        assert_eq!(self.test.host.gone.len(), self.opened, "one end per connection");
        let mut withdrawn = 0;
        for side in [&self.test.pair.host, &self.test.pair.target] {
            assert!(side.engine.is_idle(), "{:?}", side.engine.statistics());
            let (buffers, statistics) = (side.engine.receive_buffers(), side.engine.statistics());
            assert_eq!(buffers.held, 0);
            withdrawn += statistics.shared_receives_withdrawn;
            if statistics.shared_receives_free + statistics.shared_receives_withdrawn > 0 {
                let all = u64::from(buffers.posted + buffers.idle);
                assert_eq!(
                    statistics.shared_receives_free + statistics.shared_receives_withdrawn,
                    all,
                    "{statistics:?}"
                );
            }
        }
        if statistics.mrs_orphaned == 0 {
            assert_eq!(self.test.open_bytes(), 0, "no key survives its connection");
            // An object that the device kept is tried again behind its queue pair.
            let kept = self.test.host.control.statistics().frees_refused > 0;
            assert!(kept || self.test.monitor.stalled_destroys() == 0);
        }
        if withdrawn == 0 {
            self.test.host.every_command = None;
            self.test.target.every_command = None;
            // A connect request of the storm may still be on its way, from somebody who is gone, and takes a place for a moment.
            self.test.steps(100);
            self.test.reconnect_works();
        }
    }
}
