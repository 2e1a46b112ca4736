//! Clocks.

use std::time::Duration;

use frwr_reactor::{Clock, VirtualClock};

#[test]
fn real_clocks_run_forward() {
    for clock in [Clock::calibrated(), Clock::system()] {
        let start = clock.now();
        let mut last = start;
        while last < start + Duration::from_micros(100) {
            let now = clock.now();
            assert!(now >= last, "{}", clock.name());
            last = now;
        }
    }
}

#[test]
fn clones_share_the_start() {
    let clock = Clock::calibrated();
    let clone = clock.clone();
    let (first, second, third) = (clock.now(), clone.now(), clock.now());
    assert!(first <= second && second <= third);
}

#[test]
fn virtual_clock_moves_only_by_hand() {
    let hand = VirtualClock::new();
    let clock = Clock::from(&hand);
    assert_eq!((clock.now(), clock.name()), (Duration::ZERO, "virtual"));
    hand.advance(Duration::from_secs(5));
    assert_eq!((clock.now(), clock.clone().now()), (Duration::from_secs(5), Duration::from_secs(5)));
    hand.set(Duration::from_nanos(1));
    assert_eq!(clock.now(), Duration::from_nanos(1));
    hand.set(Duration::MAX);
    hand.advance(Duration::MAX);
    assert_eq!(clock.now(), Duration::from_nanos(u64::MAX), "it stops at the end of time");
}
