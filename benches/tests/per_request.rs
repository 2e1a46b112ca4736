//! Goals A10 to A12: exact counts on the null port, which need neither hardware nor valgrind.

use frwr_benches::per_request;

/// Depth of the goals.
const DEPTH: u32 = 32;

/// A whole number of rounds of that depth.
const REQUESTS: u64 = 32 * 100;

#[test]
fn a11_work_requests_per_request_are_the_floor() {
    for mrs in 1..=4 {
        for remote in [false, true] {
            let counters = per_request::run(remote, mrs, DEPTH, REQUESTS).unwrap();
            let invalidates = if remote { mrs - 1 } else { mrs };
            let each = |count: u32| u64::from(count) * REQUESTS;
            assert_eq!(
                (counters.registers, counters.sends, counters.invalidates, counters.failures),
                (each(mrs), REQUESTS, each(invalidates), 0),
                "{mrs} registrations, remote invalidation {remote}"
            );
        }
    }
}

#[test]
fn a10_doorbells_per_request_at_depth_32_and_1() {
    let doorbells = |remote, depth| per_request::run(remote, 1, depth, REQUESTS).unwrap().doorbells;
    assert_eq!(doorbells(true, DEPTH), REQUESTS / 32, "1/32 where the peer invalidates");
    assert_eq!(doorbells(false, DEPTH), 2 * REQUESTS / 32, "2/32 where the engine does");
    assert_eq!(doorbells(true, 1), REQUESTS);
    assert_eq!(doorbells(false, 1), 2 * REQUESTS);
}

#[test]
fn a12_send_completions_per_request_at_depth_32() {
    for remote in [false, true] {
        let counters = per_request::run(remote, 1, DEPTH, REQUESTS).unwrap();
        assert!(
            counters.signalled <= 2 * REQUESTS / 32 && counters.send_completions <= 2 * REQUESTS / 32,
            "remote invalidation {remote}: {counters:?}"
        );
    }
}
