//! Between an engine and Control: full lanes, ends of either, connect requests without an answer, listeners.

mod engine_harness;

use engine_harness::{PROFILES, Side, scripted::*};
use frwr_engine::{
    ConnectionOptions, EngineOptions, OnPostError, OpenError,
    provider::{Device, IncomingId},
};

/// Fills the engine's lane to Control; Control refuses to reject what never was.
fn fill<D: Device>(side: &mut Side<D>) {
    for _ in 0..100_000 {
        match side.engine.reject(IncomingId(u32::MAX), b"") {
            Ok(()) => {}
            Err(OpenError::WouldBlock) => return,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the lane has no bound");
}

/// Steps during which the host's engine finds no room in its lane whenever it is polled.
fn steps_with_full_lane(test: &mut Scripted, steps: u32) {
    for _ in 0..steps {
        test.steps(1);
        fill(&mut test.pair.host);
    }
}

#[test]
fn f31_a_full_lane_to_control_delays_opening_and_loses_nothing() {
    for profile in PROFILES {
        let mut test = Scripted::unconnected(profile, EngineOptions::default());
        let options = ConnectionOptions { peer_receives: 32, ..ConnectionOptions::default() };
        let address = engine_harness::ADDRESS.parse().unwrap();
        test.host.connection = Some(test.pair.host.engine.connect(address, b"hello", &options).unwrap());
        for _ in 0..20 {
            // Control has taken the engine's messages: what it says now meets a lane that is full again.
            test.pair.host.control.poll();
            fill(&mut test.pair.host);
            let now = test.now;
            let side = &mut test.pair.host;
            side.engine.poll(now, &mut side.protocol);
            test.pair.host.control.poll();
            test.pair.target.step(now);
        }
        test.until("connected", |pair| pair.host.is_ready() && pair.target.is_ready());
        test.round_trip(1);
    }
}

#[test]
fn s72_s84_f31_a_destruction_that_control_had_no_room_for_is_asked_for_again() {
    for profile in PROFILES {
        let mut test = Scripted::policy(profile, OnPostError::DeregisterAndContinue);
        test.submit(1, 1, false);
        let (name, _) = test.command();
        test.refuse(0);
        test.reply(name, None);
        for _ in 0..50 {
            test.pair.host.control.poll();
            fill(&mut test.pair.host);
            let now = test.now;
            let side = &mut test.pair.host;
            side.engine.poll(now, &mut side.protocol);
            side.engine.flush();
            test.pair.target.step(now);
        }
        assert!(test.host.engine.poll_at().is_some(), "it wants to be polled");
        test.until("ended", |pair| pair.host.ended.len() == 1);
        assert_eq!((test.status(1), test.open_bytes()), (Some("replied"), 0), "{profile}");
        test.round_trip(2);
    }
}

#[test]
fn s97_f31_disconnecting_with_a_full_lane_ends_once() {
    for profile in PROFILES {
        let mut test = Scripted::new(profile);
        test.submit(1, 2, true);
        fill(&mut test.pair.host);
        let connection = test.host.connection.unwrap();
        test.pair.host.engine.disconnect(connection);
        steps_with_full_lane(&mut test, 20);
        test.until_gone();
        assert_eq!((test.host.disconnected, test.status(1)), (1, Some("lost")));
        // Control has taken the last of what filled the lane.
        test.steps(2);
        test.reconnect_works();
    }
}
