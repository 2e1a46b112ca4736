//! Connections one after the other.

use crate::harness::subject::on_all;
use crate::rig::Rig;

/// Each with one request; now and then it is still in flight at the end. `until_gone` counts the objects that are left.
#[test]
fn s94_s110_f32_a_thousand_connections_leave_nothing_behind() {
    on_all(|subject| {
        let mut rig = Rig::with(subject, |setup| {
            (setup.host.queue_depth, setup.host.registrations) = (4, 4);
            (setup.target.transfer_depth, setup.peer_receives) = (4, 4);
        });
        let before = rig.host.control.device().live().clone();
        for cycle in 0..1000 {
            if cycle % 10 == 9 {
                rig.submit(cycle, true);
            } else {
                rig.round_trip(cycle);
            }
            rig.disconnect();
            rig.host.events.clear();
            rig.target.events.clear();
            rig.host.ended.clear();
            rig.host.gone.clear();
            rig.target.gone.clear();
            rig.host.protocol.names.clear();
            rig.connect();
        }
        assert_eq!((rig.host.disconnected, rig.host.engine.statistics().connections), (1000, 1001));
        let after = rig.host.control.device().live();
        let count = |live: &crate::harness::any::Live| {
            (live.registrations.len(), live.queue_pairs.len(), live.bases.len(), live.domains.len())
        };
        assert_eq!(count(after), count(&before), "{subject}");
        rig.round_trip(2000);
        rig.finish();
    });
}
