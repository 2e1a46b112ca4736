//! The engine's normal path, on every profile of the software NIC.

use frwr_engine::provider::{Access, Port};
use frwr_support::engine_harness::{PROFILES, Pair};

#[test]
fn s45_s58_s61_s79_requests_end_after_their_keys_on_every_profile() {
    for profile in PROFILES {
        for invalidate in [true, false] {
            let mut pair = Pair::new(profile);
            for cookie in 0..100u64 {
                let pattern = vec![cookie as u8 + 1; 4096];
                pair.target.data.write(0, &pattern).unwrap();
                let segment = pair.host.segment(8192 + 4096 * (cookie % 4), 4096);
                pair.host.submit(cookie, Access::RemoteWrite, &[segment], true).unwrap_or_else(|e| {
                    panic!(
                        "{profile} {invalidate} {cookie} {e} {:?} {:?} {:?}",
                        pair.host.events,
                        pair.target.events,
                        pair.host.engine.statistics()
                    )
                });
                pair.until("replied", |pair| {
                    pair.serve(invalidate);
                    pair.host.ended.len() as u64 == cookie + 1
                });
                let mut read = vec![0; 4096];
                pair.host.data.read(8192 + 4096 * (cookie as usize % 4), &mut read).unwrap();
                assert_eq!(read, pattern, "{profile}");
                assert_eq!(pair.host.engine.port().remote_bytes_open(), Some(0), "{profile}: the key is dead");
            }
            assert!(pair.host.ended.iter().all(|(_, status)| *status == "replied"));
            let statistics = pair.host.engine.statistics();
            assert_eq!(statistics.registrations, 100);
            assert_eq!(statistics.remote_invalidations, if invalidate { 100 } else { 0 });
            assert_eq!(statistics.local_invalidations, if invalidate { 0 } else { 100 });
            assert_eq!(
                statistics.doorbells,
                if invalidate { 100 } else { 200 },
                "{profile}: one per request, one per fence"
            );
        }
    }
}
