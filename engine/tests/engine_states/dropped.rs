//! Fault 36: a panic passes through a poll, and the engine is dropped with a request in each state.

use crate::state::STATES;
use frwr_engine::{
    EngineOptions,
    provider::soft::{SoftFabric, SoftOptions},
};
use frwr_support::engine_harness::{PROFILES, Side, Watch, WatchedDevice, scripted::Scripted};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Steps in which a peer hears of an end.
const STEPS: u64 = 2000;

/// Something that stands where the host stood.
fn bystander() -> Side<WatchedDevice> {
    let device = SoftFabric::new().device(SoftOptions::new("reg_mr".parse().unwrap()));
    Side::new(Watch::over(device).0, EngineOptions::default())
}

/// The host's engine goes, and its Control does what is left to do.
fn drop_engine(test: &mut Scripted, context: &str) {
    let Side { mut control, engine, .. } = core::mem::replace(&mut test.pair.host, bystander());
    drop(engine);
    for _ in 0..STEPS {
        test.pair.now += core::time::Duration::from_micros(1);
        control.poll();
        let now = test.pair.now;
        test.pair.target.step(now);
    }
    assert_eq!(test.target.disconnected, 1, "{context}: the peer hears of it");
    assert_eq!(control.statistics().commands_failed, 0, "{context}: everything was destroyed, and once");
}

#[test]
fn fault36_an_engine_is_dropped_with_a_request_in_each_state() {
    for profile in PROFILES {
        for state in STATES {
            let (mut test, _) = state.reached(profile);
            drop_engine(&mut test, &format!("{profile}, {state:?}"));
        }
    }
}

#[test]
fn fault36_a_protocol_that_panics_unwinds_through_the_engine_which_can_be_dropped() {
    for profile in PROFILES {
        for state in STATES {
            let context = format!("{profile}, {state:?}");
            let (mut test, unanswered) = state.reached(profile);
            test.host.protocol.panics = true;
            // While keys are announced, and while a reply is read.
            let announced = catch_unwind(AssertUnwindSafe(|| test.try_submit(1000, 1, false).map(|_| ())));
            assert!(announced.is_err() || state.waits(), "{context}: announced without the protocol");
            test.faults.release();
            if let Some(name) = unanswered {
                test.reply(name, None);
            }
            let _ = catch_unwind(AssertUnwindSafe(|| test.steps(20)));
            drop_engine(&mut test, &context);
        }
    }
}
