//! Both sides share their receives among several connections.

use crate::harness::subject::{Network, Subject, on_all};
use crate::rig::Rig;
use frwr_engine::{ConnectionId, EngineOptions, ReceiveBuffers, ReceiveQueues, provider::Device as _};

/// Receives that a connection is granted.
const GRANT: u32 = 8;
/// Connections at the same time.
const CONNECTIONS: u16 = 3;

/// A rig whose two sides share their receives, or nothing where the device cannot; one connection is open.
fn sharing(subject: Subject) -> Option<Rig> {
    if Network::new(subject).device().capabilities().attributes.max_srq == 0 {
        subject.not_run("the device has no shared receive queues");
        return None;
    }
    let share = |options: &mut EngineOptions| {
        options.connections = CONNECTIONS;
        options.receive_depth = GRANT;
        options.receive_queues = ReceiveQueues::Shared { entries: 0 };
    };
    Some(Rig::with(subject, |setup| {
        share(&mut setup.host);
        share(&mut setup.target);
        setup.host.queue_depth = GRANT;
        setup.peer_receives = GRANT;
    }))
}

/// Opens a further connection, which both sides then take for theirs.
fn open(rig: &mut Rig) -> (ConnectionId, ConnectionId) {
    rig.connect();
    (rig.host.connection.unwrap(), rig.target.connection.unwrap())
}

/// Every buffer is in its queue, and only open connections are granted any.
fn assert_all_there(rig: &mut Rig, open: u32) {
    let all = u32::from(CONNECTIONS) * GRANT;
    let there = ReceiveBuffers { posted: all, held: 0, idle: 0 };
    rig.pair.until("all receives", |pair| {
        [&pair.host, &pair.target].into_iter().all(|side| side.engine.receive_buffers() == there)
    });
    for side in [&rig.pair.host, &rig.pair.target] {
        let statistics = side.engine.statistics();
        assert_eq!(statistics.shared_receives_free, u64::from(all - open * GRANT));
        assert_eq!((statistics.drain_timeouts, statistics.shared_receives_withdrawn), (0, 0));
    }
}

#[test]
fn requests_of_several_connections_share_receives() {
    on_all(|subject| {
        let Some(mut rig) = sharing(subject) else { return };
        let mut connections = vec![(rig.host.connection.unwrap(), rig.target.connection.unwrap())];
        connections.push(open(&mut rig));
        connections.push(open(&mut rig));
        for cookie in 0..60 {
            let (host, target) = connections[cookie as usize % connections.len()];
            (rig.pair.host.connection, rig.pair.target.connection) = (Some(host), Some(target));
            rig.round_trip(cookie);
        }
        assert_all_there(&mut rig, 3);
        for (host, _) in connections {
            rig.pair.host.engine.disconnect(host);
        }
        rig.until_gone();
        assert_all_there(&mut rig, 0);
    });
}

/// Connections end with requests in flight, by either side; the next one finds all receives.
#[test]
fn ends_of_connections_leave_all_receives() {
    on_all(|subject| {
        let Some(mut rig) = sharing(subject) else { return };
        for cycle in 0..40 {
            for request in 0..1 + cycle % 4 {
                rig.submit(cycle * 10 + request, true);
            }
            if cycle % 3 == 0 {
                rig.steps(cycle as u32);
            }
            if cycle % 2 == 0 {
                rig.disconnect();
            } else {
                let connection = rig.target.connection.unwrap();
                rig.pair.target.engine.disconnect(connection);
                rig.until_gone();
            }
            assert_all_there(&mut rig, 0);
            rig.connect();
            rig.round_trip(1000 + cycle);
        }
        rig.finish();
    });
}
