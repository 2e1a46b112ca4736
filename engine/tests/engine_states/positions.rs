//! Fault 1 and its kin, place by place: each work request of a request's life fails inside the device, on every way of a request into
//! the chain, asking for a completion or not.

use crate::interferences::FailedWork;
use frwr_engine::{
    DisconnectCause,
    provider::{Access, FailureStatus},
    signal::SignalPolicy,
};
use frwr_support::engine_harness::{PROFILES, scripted::Scripted, ways::*};

const STATUS: FailureStatus = FailureStatus::LocalOperation;
const COOKIE: u64 = 1;
/// Steps in which a request is answered, and its keys are invalidated.
const STEPS: u32 = 60;

/// A request whose `place`-th work request fails: registrations, the message, then the invalidations.
fn failing_at(way: Way, profile: &str, every: bool, place: u32) -> Scripted {
    let signal = if every { SignalPolicy::SendsOnly { batch: 0 } } else { SignalPolicy::Sparse };
    let mut setup = way.setup(profile).host(|host| host.signal = signal);
    setup.host_device.watches_buffers = true;
    let mut test = way.connected(setup);
    way.submit_for(&mut test, COOKIE, Access::RemoteWrite, false);
    if way.waits() {
        // The one in front is on its way.
        test.steps(3);
    }
    let failure = FailedWork { queue_pair: test.queue_pair(), passing: place, failure: Some(STATUS.into()) };
    test.monitor.interfere(test.watch.port, Box::new(failure));
    way.admit(&mut test, COOKIE);
    for _ in 0..STEPS {
        test.serve(false);
        test.steps(1);
    }
    test
}

#[test]
fn fault01_fault02_fault07_fault08_a_work_request_fails_at_each_place_of_a_requests_life() {
    for profile in PROFILES {
        for way in WAYS {
            for every in [true, false] {
                let message = way.mrs() as u32;
                for place in 0..=2 * message {
                    let context = format!("{profile}, {way:?}, every message asks: {every}, place {place}");
                    let mut test = failing_at(way, profile, every, place);
                    assert_eq!(test.monitor.struck(), 1, "{context}");
                    test.until_gone();
                    assert_eq!(test.status(COOKIE), Some("lost"), "{context}: no reply is a fence");
                    assert_eq!(test.host.causes, [DisconnectCause::WorkRequest(STATUS.into())], "{context}");
                    let heard = test.target.events.iter().filter(|event| event.starts_with("Received")).count();
                    let expected = usize::from(place > message) + usize::from(way.waits());
                    assert_eq!(heard, expected, "{context}: what was not executed reaches nobody");
                    test.reconnect_works();
                    assert_eq!(test.monitor.violations(), Vec::<String>::new(), "{context}: promise Hold");
                }
            }
        }
    }
}
