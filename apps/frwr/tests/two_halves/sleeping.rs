//! Cores that sleep where nothing is to do: what they are asked for meanwhile wakes them, and is done as ever.

use super::{Target, Temporary, network::Network, verified};
use core::time::Duration;
use frwr::runner::ServeReport;
use frwr_reactor::{Placement, Topology};
use frwr_support::storage_harness::disks::skipped;
use std::fs;

/// How long cores polled in vain before they slept says nothing here: they sleep at once.
const SLEEPS: [&str; 2] = ["--idle", "sleep:0"];

fn slept(report: &ServeReport) {
    assert!(report.cores.iter().all(|core| core.reactor.asleep > Duration::ZERO), "{:?}", report.cores);
}

#[test]
fn a_target_that_sleeps_serves_whoever_comes() {
    for profile in ["reg_mr", "window", "umr", "rxe"] {
        let file = Temporary::data("asleep", 1);
        let target = Target::start(profile, &[&["--namespace", file.text()][..], &SLEEPS].concat());
        for depth in ["1", "32"] {
            let arguments = ["--file", file.text(), "--queue-depth", depth];
            // A host that polls on, and one that sleeps while it waits.
            verified(target.load(&arguments));
            verified(target.load(&[&arguments[..], &SLEEPS].concat()));
        }
        slept(&target.end());
    }
}

/// What its disk has done wakes it.
#[test]
fn a_target_over_files_sleeps() {
    let moved = Temporary::data("moved-asleep", 1);
    for backing in ["auto", "thread"] {
        let served = Temporary::path(&format!("served-asleep-{backing}"));
        fs::write(&served.0, vec![0; 400 << 10]).unwrap();
        let namespace = ["--namespace", served.text(), "--backing", backing];
        let target = Target::begin(Network::new(), "reg_mr", &[&namespace[..], &SLEEPS].concat());
        assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
        for depth in ["1", "32"] {
            let arguments = ["--file", moved.text(), "--queue-depth", depth];
            verified(target.load(&arguments));
            verified(target.load(&[&arguments[..], &SLEEPS].concat()));
        }
        slept(&target.end());
    }
}

#[test]
fn cores_that_share_hosts_wake_each_other() {
    let file = Temporary::data("asleep-cores", 1);
    let cores = ["--cores", "unpinned:2"];
    let target = Target::start("reg_mr", &[&["--namespace", file.text()][..], &cores, &SLEEPS].concat());
    let arguments = [&["--file", file.text(), "--queues", "2"][..], &cores, &SLEEPS].concat();
    verified(target.load(&arguments));
    slept(&target.end());
}

/// A target on two physical cores, of which one sleeps.
#[test]
fn some_cores_sleep_and_others_poll_on() {
    let machine = Topology::of_machine();
    let Ok(seats) = (Placement::Spread { reactors: 2 }).resolve(&machine, false) else {
        return skipped("two cores of their own: this machine has one physical core");
    };
    let cpus: Vec<_> = seats.cores().iter().flatten().map(ToString::to_string).collect();
    let file = Temporary::data("asleep-one", 1);
    let (cores, idle) = (cpus.join(","), format!("sleep:0@{}", cpus[1]));
    let target = Target::start("reg_mr", &["--namespace", file.text(), "--cores", &cores, "--idle", &idle]);
    verified(target.load(&["--file", file.text(), "--queues", "2", "--cores", "unpinned:2"]));
    let report = target.end();
    let [awake, asleep] = report.cores.as_slice() else { panic!("{:?}", report.cores) };
    assert_eq!((awake.reactor.sleeps, awake.reactor.asleep), (0, Duration::ZERO));
    assert!(asleep.reactor.sleeps > 0 && asleep.reactor.asleep > Duration::ZERO, "{asleep:?}");
}
