//! What the start-up self-test says of the device under test.
#![cfg(feature = "verbs")]

use frwr_engine::provider::verbs::{Outcome, PostInterface, VerbsDevice, VerbsOptions};

/// Findings in which a device is known to deviate, by driver.
const RXE_DEVIATES: [&str; 2] = ["flag of SEND_WITH_INV", "RDMA WRITE beside the window is refused"];

#[test]
fn u13_the_self_test_finds_what_is_known_of_the_device() {
    let Ok(name) = std::env::var("FRWR_CONFORMANCE_DEVICE") else {
        println!("SKIPPED: FRWR_CONFORMANCE_DEVICE names no device");
        return;
    };
    for post in [PostInterface::Automatic, PostInterface::List, PostInterface::Builder] {
        let options = VerbsOptions::new(&name).post(post);
        let device = VerbsDevice::open(&options).unwrap_or_else(|error| panic!("{error}"));
        let expected: &[&str] = if device.known().driver == "rxe" { &RXE_DEVIATES } else { &[] };
        let rows = device.findings().rows();
        for row in rows {
            println!("{}: {:?}: {}", row.name, row.outcome, row.text);
        }
        let deviates: Vec<&str> =
            rows.iter().filter(|row| row.outcome != Outcome::AsSpecified).map(|row| row.name).collect();
        assert_eq!(deviates, expected);
        assert!(rows.len() >= 12, "{} findings", rows.len());
        let builds = match post {
            PostInterface::Automatic => device.known().prefers_builder,
            PostInterface::List => false,
            PostInterface::Builder => true,
        };
        assert_eq!(device.uses_builder(), builds || device.registers_lists());
    }
}
