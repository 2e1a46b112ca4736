//! Both halves of `frwr latency` through the verbs provider, over a device that is not there: windows, and lists as on ConnectX.
#![cfg(feature = "verbs")]

use clap::Parser as _;
use frwr::report::Report as _;
use frwr::{
    check::Machine,
    latency::{Arguments, LatencyConfig, LatencyReport, measure_both},
};
use frwr_engine::provider::verbs::{Registration, VerbsDevice, VerbsOptions};
use frwr_fake::{FakeDevice, FakeLists, FakeOptions, Refusable};
use std::sync::atomic::AtomicBool;

const REQUESTS: u64 = 200;

fn open(fake: &FakeDevice, registration: Registration) -> VerbsDevice {
    let options = VerbsOptions::new(fake.name()).registration(registration);
    VerbsDevice::open_with(frwr_fake::library(), &options).unwrap_or_else(|error| panic!("{error}"))
}

fn measured(fake: &FakeDevice, registration: Registration, arguments: &[&str]) -> LatencyReport {
    let fixed = ["frwr latency", "--device", "test", "--one-process", "--cores", "unpinned", "--pages", "plain"];
    let arguments = Arguments::try_parse_from([&fixed[..], arguments].concat());
    let config = LatencyConfig::new(arguments.unwrap_or_else(|error| panic!("{error}"))).unwrap();
    let address = format!("{}:49200", fake.address()).parse().unwrap();
    let (server, client) = (open(fake, registration), open(fake, registration));
    let (machine, stop) = (Machine::this(), AtomicBool::new(false));
    let report = measure_both(server, client, address, &config, &machine, &stop, &mut |line| panic!("{line}"));
    report.unwrap_or_else(|error| panic!("{:?}: {error}", config.parameters))
}

fn every_operation(options: FakeOptions, registration: Registration) {
    for operation in ["request", "register", "send", "write", "read", "ranges", "pingpong"] {
        let fake = FakeDevice::new(options);
        let count = REQUESTS.to_string();
        let arguments =
            ["--op", operation, "--iterations", &count, "--depth", "4", "--segments", "2", "--warm-up", "0"];
        let all = match operation {
            "ranges" => [&["--op", "write", "--ranges", "16"], &arguments[2..6], &arguments[8..]].concat(),
            "pingpong" => [&arguments[..6], &arguments[8..]].concat(),
            // One key covers a range.
            "register" | "send" => [&arguments[..6], &arguments[8..]].concat(),
            _ => arguments.to_vec(),
        };
        let report = measured(&fake, registration, &all);
        assert_eq!(report.requests(), REQUESTS, "{operation}: {}", report.table());
        assert_eq!((fake.remote_bytes(), fake.violations()), (0, Vec::new()), "{operation}");
    }
}

/// The engine makes none of them.
#[test]
fn keys_that_system_calls_make_are_told_as_such() {
    for (operation, key, told) in [
        ("register", "memory", "keys: 50 made by ibv_reg_mr, and killed by ibv_dereg_mr\n"),
        ("write", "static", "keys: 0 made (0 of memory with gaps)"),
        ("register", "request", "keys: 50 made (0 of memory with gaps), 0 killed by the server, 50 by LOCAL_INV\n"),
    ] {
        let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
        let arguments = ["--op", operation, "--key", key, "--iterations", "50", "--warm-up", "0"];
        let table = measured(&fake, Registration::Windows, &arguments).table();
        assert!(table.contains(told), "{operation} {key}: {table}");
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

/// What is said of queue pairs that the device refuses to destroy, by every program in the same words.
fn is_of_refusal(line: &str) -> bool {
    line.starts_with("the device refuses to destroy 1 queue pair(s) and is asked again; ") && !line.contains('\n')
}

/// Whichever half's device refuses: the run waits for it at its end, says so once, and its report is whole.
#[test]
fn a_queue_pair_that_a_device_refuses_to_destroy_is_told_of_once_and_waited_for() {
    /// The pauses between them grow to 16 polls of Control.
    const REFUSALS: u32 = 10;
    let machine = Machine::this();
    for of_client in [true, false] {
        let fake = FakeDevice::new(FakeOptions::windows("mlx5"));
        let count = REQUESTS.to_string();
        let arguments =
            ["frwr latency", "--device", "test", "--one-process", "--cores", "unpinned", "--pages", "plain"];
        let arguments = [&arguments[..], &["--iterations", &count, "--warm-up", "0"]].concat();
        let arguments = Arguments::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}"));
        let config = LatencyConfig::new(arguments).unwrap();
        let address = format!("{}:49200", fake.address()).parse().unwrap();
        let server = open(&fake, Registration::Windows);
        let of_server = fake.newest_context().unwrap();
        let client = open(&fake, Registration::Windows);
        let context = if of_client { fake.newest_context().unwrap() } else { of_server };
        context.refuse(Refusable::FailQueuePair, libc::EBUSY, 1);
        context.refuse(Refusable::DestroyQueuePair, libc::EBUSY, REFUSALS);
        let (mut lines, mut left) = (Vec::new(), 0);
        let report = measure_both(server, client, address, &config, &machine, &AtomicBool::new(false), &mut |line| {
            left = context.queue_pairs();
            lines.push(line.to_owned());
        });
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(report.requests(), REQUESTS, "{}", report.table());
        assert!(matches!(&lines[..], [line] if is_of_refusal(line)), "{lines:?}");
        assert_eq!((left, report.undrained), (1, Vec::new()), "it was there when that was said");
        // Had it not been waited for, its device would have been closed with it.
        assert_eq!((fake.remote_bytes(), fake.violations()), (0, Vec::new()));
    }
}
