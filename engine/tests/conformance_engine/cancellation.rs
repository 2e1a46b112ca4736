//! Cancelling while the peer may still invalidate: a LOCAL_INV behind the peer's back could be the second invalidation of a
//! key, which takes rxe's host down (verbs.md 5.6, trap 1).

use crate::harness::subject::on_all;
use crate::rig::Rig;
use frwr_engine::CancelError;

/// The only end of a request that the peer may invalidate is the end of its connection: its MRs are destroyed.
#[test]
fn i05_s75_what_the_peer_may_invalidate_is_destroyed_and_never_invalidated() {
    on_all(|subject| {
        for answered_after in [None, Some(0), Some(1), Some(2), Some(4), Some(8)] {
            let mut rig = Rig::new(subject);
            let request = rig.submit(1, true);
            let (name, grants) = rig.command();
            assert_eq!(rig.host.engine.cancel(request), Err(CancelError::PeerMayInvalidate), "{subject}");
            let connection = rig.host.connection.unwrap();
            if answered_after == Some(0) {
                rig.target.answer(name, &[], Some(grants[0].key));
                rig.target.engine.flush();
            }
            rig.host.engine.disconnect(connection);
            for step in 1..=8 {
                rig.steps(1);
                if answered_after == Some(step) {
                    // Refused once the target knows.
                    let _ = rig.target.try_answer(name, &[], Some(grants[0].key));
                }
            }
            rig.until_gone();
            assert_eq!(rig.posted().invalidations, 0, "{subject} {answered_after:?}");
            assert!(matches!(rig.status(1), Some("lost" | "replied")), "{:?}", rig.status(1));
            let statistics = rig.host.engine.statistics();
            assert_eq!(statistics.mrs_destroyed, statistics.mrs_allocated);
            rig.connect();
            rig.round_trip(2);
            rig.finish();
        }
    });
}

/// What no peer was invited to invalidate is fenced by LOCAL_INV, and the connection goes on.
#[test]
fn s64_s75_what_the_peer_may_not_invalidate_is_fenced_and_the_connection_lives() {
    on_all(|subject| {
        let mut rig = Rig::new(subject);
        let request = rig.submit(1, false);
        let (name, _) = rig.command();
        rig.host.engine.cancel(request).unwrap();
        rig.pair.until("cancelled", |pair| !pair.host.ended.is_empty());
        assert_eq!((rig.status(1), rig.posted().invalidations), (Some("cancelled"), 1));
        // The late answer, without an RDMA WRITE, is dropped.
        rig.target.answer(name, &[], None);
        rig.round_trip(2);
        assert_eq!(rig.host.disconnected, 0);
        rig.finish();
    });
}
