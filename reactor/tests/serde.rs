//! What the feature `serde` makes of statistics: their fields by their names.

use core::time::Duration;
use frwr_reactor::{CoreIndex, LongIterations, Longest, PageFaults, PollerStatistics, Statistics};
use serde_json::{json, to_value};

#[test]
fn a_reactors_statistics_have_their_fields_by_name() {
    let longest = Longest { duration: Duration::from_nanos(1_500_000_002), at: Duration::from_secs(3) };
    let poller = PollerStatistics { name: "a poller", polls: 9, longest_poll: longest, ..PollerStatistics::default() };
    let statistics = Statistics {
        core: CoreIndex(1),
        cpu: None,
        at: Duration::ZERO,
        iterations: 11,
        busy_iterations: 0,
        busy: Duration::ZERO,
        idle: Duration::ZERO,
        asleep: Duration::ZERO,
        sleeps: 0,
        work: 0,
        messages: 0,
        would_blocks: 0,
        longest_iteration: longest,
        long_iterations: 0,
        long: LongIterations::default(),
        stalls: 0,
        pollers: vec![poller],
    };
    let told = to_value(&statistics).unwrap();
    assert_eq!((&told["core"], &told["cpu"], &told["iterations"]), (&json!(1), &json!(null), &json!(11)));
    let longest = json!({"duration": {"secs": 1, "nanos": 500_000_002}, "at": {"secs": 3, "nanos": 0}});
    assert_eq!(told["longest_iteration"], longest);
    let causes = ["page_fault", "switch", "unknown", "wait", "work"];
    assert!(told["long"].as_object().unwrap().keys().eq(causes), "{told}");
    assert_eq!(told["long"]["wait"], json!(vec![0; frwr_reactor::LENGTHS]));
    let poller = &told["pollers"][0];
    assert_eq!((&poller["name"], &poller["polls"], &poller["longest_poll"]), (&json!("a poller"), &json!(9), &longest));
    assert_eq!(to_value(PageFaults { thread: 1, process: 2 }).unwrap(), json!({"thread": 1, "process": 2}));
}
