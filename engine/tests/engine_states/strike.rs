//! A fault strikes a connection with a request in each state; then comes a calm in which everything ends.

use crate::state::{COOKIE, STATES};
use core::time::Duration;
use frwr_engine::{RequestHandle, provider::Port, provider::QueuePairId};
use frwr_support::engine_harness::{PROFILES, scripted::Scripted};

/// What a fault may do to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toll {
    /// It goes on, and every request ends as if nothing had been.
    Nothing,
    /// It ends, and so do its requests; the next one works.
    Connection,
    /// Either, as the fault met something or not.
    Either,
    /// The connection at most, and all that come behind it: what is left of the device is of no use.
    Port,
}

/// What was lost is not waited for any longer.
const LONGER_THAN_A_DRAIN: Duration = Duration::from_secs(6);

/// Strikes a connection with a request in each state, on every profile of the software NIC.
pub(crate) fn on_every_state(toll: Toll, strike: impl Fn(&mut Scripted)) {
    let mut ended = 0;
    for profile in PROFILES {
        for state in STATES {
            let (mut test, unanswered) = state.reached(profile);
            strike(&mut test);
            ended += u32::from(calm(&mut test, unanswered, toll, &format!("{profile}, {state:?}")));
        }
    }
    assert!(toll == Toll::Nothing || ended > 0, "it met nothing, in no state");
}

/// Everything ends: what the harness looks at in every step is that each request ends once, behind its keys. Whether the connection did
/// by itself.
fn calm(test: &mut Scripted, unanswered: Option<[u8; 8]>, toll: Toll, context: &str) -> bool {
    test.steps(4);
    if let Some(name) = unanswered.filter(|_| test.target.is_ready()) {
        // The end may be under way.
        let _ = test.target.try_answer(name, &[], None);
    }
    // Somebody who comes while it lasts: what the first leaves may be theirs too early.
    let _ = test.try_submit(COOKIE + 2, 1, false);
    settle(test);
    if toll == Toll::Port {
        test.pass(LONGER_THAN_A_DRAIN);
    }
    test.monitor.calm();
    test.target_monitor.calm();
    test.faults.clear();
    test.faults.release();
    test.target_faults.clear();
    test.target_faults.release();
    settle(test);
    let ended = test.host.disconnected > 0;
    assert!(toll != Toll::Nothing || !ended, "{context}: {:?}", test.host.causes);
    assert!(toll != Toll::Connection || ended, "{context}: the connection lives");
    if !ended {
        give_up_what_stays_open(test);
        test.until(context, |pair| {
            pair.serve(false);
            pair.host.outstanding.is_empty()
        });
        assert_eq!(test.open_bytes(), 0, "{context}");
        test.round_trip(COOKIE + 1);
        let connection = test.host.connection.unwrap();
        test.host.engine.disconnect(connection);
    }
    test.until_gone();
    let ends = test.host.ended.iter().filter(|(cookie, _)| *cookie == COOKIE).count();
    assert_eq!((ends, test.host.disconnected), (1, 1), "{context}");
    if toll != Toll::Port {
        test.reconnect_works();
    }
    for monitor in [&test.monitor, &test.target_monitor] {
        assert_eq!(monitor.violations(), Vec::<String>::new(), "{context}: promise Hold");
    }
    ended
}

/// The peer answers what it has.
pub(crate) fn settle(test: &mut Scripted) {
    for _ in 0..40 {
        test.serve(false);
        test.steps(1);
    }
}

/// A registration of its own ends when its caller says so.
fn give_up_what_stays_open(test: &mut Scripted) {
    let open: Vec<RequestHandle> = test.host.grants.drain(..).map(|(request, _)| request).collect();
    for request in open {
        // It may have been given up before.
        let _ = test.host.engine.cancel(request);
    }
}

/// The target's port and queue pair.
pub(crate) fn peer(test: &Scripted) -> (frwr_engine::provider::PortId, QueuePairId) {
    let engine = &test.target.engine;
    (engine.port().id(), engine.queue_pair(test.target.connection.unwrap()).unwrap())
}
