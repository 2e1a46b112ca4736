//! Cancelling while the peer may still invalidate: a LOCAL_INV behind the peer's back could be the second invalidation of a
//! key. That takes rxe's host down; other devices refuse it.

use crate::harness::subject::on_all;
use crate::rig::Rig;
use frwr_engine::{CancelError, DisconnectCause};

fn crashes(rig: &Rig) -> bool {
    rig.host.engine.capabilities().quirks.crashes_on_double_invalidate
}

/// Where a second invalidation crashes, the only end of a request that the peer may invalidate is the end of its connection: its MRs are
/// destroyed.
#[test]
fn i05_s75_what_the_peer_may_invalidate_is_destroyed_and_never_invalidated_where_that_crashes() {
    on_all(|subject| {
        if !crashes(&Rig::new(subject)) {
            return;
        }
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

/// Elsewhere it is fenced by LOCAL_INV like any other, and a peer that leaves the key alone finds the connection as it was.
#[test]
fn s64_s75_what_the_peer_was_invited_to_invalidate_is_fenced_where_that_is_safe() {
    on_all(|subject| {
        let mut rig = Rig::new(subject);
        if crashes(&rig) {
            return;
        }
        let request = rig.submit(1, true);
        let (name, _) = rig.command();
        rig.host.engine.cancel(request).unwrap();
        assert_eq!(rig.host.engine.cancel(request), Err(CancelError::Ended), "{subject}");
        rig.pair.until("cancelled", |pair| !pair.host.ended.is_empty());
        assert_eq!((rig.status(1), rig.posted().invalidations), (Some("cancelled"), 1), "{subject}");
        rig.target.answer(name, &[], None);
        rig.round_trip(2);
        assert_eq!(rig.host.disconnected, 0, "{subject}");
        rig.finish();
    });
}

/// The peer's invalidation in front of ours, behind it, and at any time in between: the request ends once, as cancelled unless its reply
/// was in before, with its key dead; the connection ends where both killed the key, and works again.
#[test]
fn i05_s75_a_key_that_both_sides_kill_ends_its_connection_and_the_request_once() {
    on_all(|subject| {
        // Steps that the target takes with its reply before the host cancels, and that the host takes with its LOCAL_INV before it replies.
        for (replies_for, cancels_for) in
            [(0, 0), (1, 0), (2, 0), (3, 0), (5, 0), (0, 1), (0, 2), (0, 3), (0, 5), (0, 20)]
        {
            let context = format!("{subject}, reply {replies_for}, cancel {cancels_for}");
            let mut rig = Rig::new(subject);
            if crashes(&rig) || !rig.host.engine.capabilities().remote_invalidation {
                return;
            }
            let request = rig.submit(1, true);
            let (name, grants) = rig.command();
            let key = Some(grants[0].key);
            let now = rig.pair.now;
            if cancels_for == 0 {
                rig.target.answer(name, &[], key);
                for _ in 0..replies_for {
                    rig.pair.target.step(now);
                }
            }
            let cancelled = rig.host.engine.cancel(request);
            assert_eq!(cancelled, Ok(()), "{context}: the reply was not polled");
            rig.host.engine.flush();
            for _ in 0..cancels_for {
                rig.pair.host.step(now);
                rig.pair.target.step(now);
            }
            if cancels_for > 0 {
                let _ = rig.target.try_answer(name, &[], key);
            }
            rig.pair
                .until("both gone", |pair| pair.host.engine.is_disconnected() && pair.target.engine.is_disconnected());
            assert_eq!(rig.status(1), Some("cancelled"), "{context}");
            assert_eq!(rig.host.ended.len(), 1, "{context}");
            assert!(
                matches!(rig.host.causes[..], [DisconnectCause::WorkRequest(_) | DisconnectCause::ForeignInvalidation]),
                "{context}: {:?}",
                rig.host.causes
            );
            rig.connect();
            rig.round_trip(2);
            rig.finish();
        }
    });
}
