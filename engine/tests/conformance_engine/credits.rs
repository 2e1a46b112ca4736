//! Receiver-not-ready never happens: on rxe it would hang the queue pair.

use crate::harness::subject::{Subject, on_all};
use crate::rig::Rig;

/// Requests until `count` more have ended, as many at a time as the engine takes. The first RNR NAK would end the
/// connection, since no retry is allowed.
fn at_the_limit(subject: Subject, credits: u32, count: u64) {
    let mut rig = Rig::with(subject, |setup| {
        (setup.peer_receives, setup.target.receive_depth) = (credits, credits);
        setup.parameters.rnr_retry_count = 0;
    });
    let (mut next, mut ended, mut steps) = (0, 0, 0u64);
    let mut patience = rig.pace.patience();
    while ended < count {
        assert!(patience.is_left(), "{ended} of {count} on {subject} with {credits} credits");
        while next < count && next - ended < 32 {
            rig.submit(next, next.is_multiple_of(2));
            next += 1;
        }
        // Commands pile up at the target now and then, so that the credits are used up.
        if steps % 8 > 4 {
            rig.serve(next % 3 > 0);
        }
        rig.steps(1);
        steps += 1;
        if !rig.host.ended.is_empty() {
            patience = rig.pace.patience();
        }
        ended += rig.host.ended.len() as u64;
        assert!(rig.host.ended.drain(..).all(|(_, status)| status == "replied"));
        rig.host.events.clear();
        rig.target.events.clear();
        rig.host.protocol.names.retain(|cookie, _| *cookie + 100 > next);
    }
    let gone = (rig.host.disconnected, rig.target.disconnected);
    assert_eq!(gone, (0, 0), "{:?} {:?}", rig.host.causes, rig.target.causes);
    rig.finish();
}

#[test]
fn i31_f30_ten_thousand_requests_never_meet_a_peer_without_a_receive() {
    on_all(|subject| {
        at_the_limit(subject, 32, 9000);
        at_the_limit(subject, 2, 1000);
    });
}
