//! Both halves of `frwr-latency` through the verbs provider, over a device that is not there: windows, and lists as on ConnectX.
#![cfg(feature = "verbs")]

use clap::Parser as _;
use frwr_apps::{
    check::Machine,
    latency::{Arguments, LatencyConfig, measure_both},
};
use frwr_engine::provider::verbs::{Registration, VerbsDevice, VerbsOptions};
use frwr_fake::{FakeDevice, FakeLists, FakeOptions};
use std::sync::atomic::AtomicBool;

const REQUESTS: u64 = 200;

fn open(fake: &FakeDevice, registration: Registration) -> VerbsDevice {
    let options = VerbsOptions { registration, ..VerbsOptions::new(fake.name()) };
    VerbsDevice::open_with(frwr_fake::library(), &options).unwrap_or_else(|error| panic!("{error}"))
}

fn every_operation(options: FakeOptions, registration: Registration) {
    let machine = Machine::this();
    for operation in ["request", "register", "send", "write", "read", "ranges"] {
        let fake = FakeDevice::new(options);
        let count = REQUESTS.to_string();
        let arguments =
            ["--op", operation, "--iterations", &count, "--depth", "4", "--segments", "2", "--warm-up", "0"];
        let fixed = ["frwr-latency", "--device", "test", "--one-process", "--cores", "unpinned", "--pages", "plain"];
        let all = match operation {
            "ranges" => [&fixed[..], &["--op", "write", "--ranges", "16"], &arguments[2..6], &arguments[8..]].concat(),
            // One key covers a range.
            "register" | "send" => [&fixed[..], &arguments[..6], &arguments[8..]].concat(),
            _ => [&fixed[..], &arguments].concat(),
        };
        let arguments = Arguments::try_parse_from(all).unwrap_or_else(|error| panic!("{error}"));
        let config = LatencyConfig::new(arguments).unwrap();
        let address = format!("{}:49200", fake.address()).parse().unwrap();
        let (server, client) = (open(&fake, registration), open(&fake, registration));
        let report = measure_both(server, client, address, &config, &machine, &AtomicBool::new(false));
        let report = report.unwrap_or_else(|error| panic!("{operation}: {error}"));
        assert_eq!(report.requests(), REQUESTS, "{operation}: {}", report.table());
        assert_eq!((fake.remote_bytes(), fake.violations()), (0, Vec::new()), "{operation}");
    }
}

#[test]
fn through_windows() {
    every_operation(FakeOptions::windows("mlx5"), Registration::Windows);
}

#[test]
fn through_lists() {
    for (updates_tags, remote_invalidation) in [(true, true), (false, false)] {
        let lists = FakeLists { updates_tags, remote_invalidation, entries: 20 };
        every_operation(FakeOptions::lists(lists), Registration::Lists);
    }
}
