//! The normal path: data in both directions, keys invalidated by either side.

use crate::harness::subject::on_all;
use crate::rig::Rig;

#[test]
fn s45_s58_s61_s79_data_goes_both_ways_and_either_side_invalidates() {
    on_all(|subject| {
        for invalidate in [true, false] {
            let mut rig = Rig::new(subject);
            for cookie in 0..50 {
                rig.submit_echo(cookie, true);
                let mut patience = rig.pace.patience();
                while rig.host.ended.len() as u64 <= cookie && patience.is_left() {
                    rig.serve_echo(invalidate);
                    rig.steps(1);
                }
                assert_eq!(rig.status(cookie), Some("replied"), "{subject}");
                rig.assert_echoed(cookie);
            }
            let statistics = rig.host.engine.statistics();
            let remote = if invalidate && subject.invalidates_remotely() { 50 } else { 0 };
            assert_eq!(statistics.remote_invalidations, remote);
            assert_eq!(statistics.local_invalidations, statistics.registrations - remote);
            assert_eq!(rig.posted().invalidations, statistics.local_invalidations);
            assert_eq!(rig.host.engine.statistics().stale_completions, 0);
            rig.finish();
        }
    });
}

/// Many at a time, answered in order; none waits for another's memory.
#[test]
fn s45_requests_overlap_up_to_the_queue_depth() {
    on_all(|subject| {
        let mut rig = Rig::new(subject);
        for cookie in 0..32 {
            rig.submit(cookie, cookie % 3 == 0);
        }
        rig.pair.until("all", |pair| {
            pair.serve(true);
            pair.host.ended.len() == 32
        });
        assert!(rig.host.ended.iter().all(|(_, status)| *status == "replied"));
        rig.finish();
    });
}
