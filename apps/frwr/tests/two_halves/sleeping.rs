//! Cores that sleep where nothing is to do: what they are asked for meanwhile wakes them, and is done as ever.

use super::{Target, Temporary, verified};
use core::time::Duration;
use frwr::runner::ServeReport;

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

#[test]
fn cores_that_share_hosts_wake_each_other() {
    let file = Temporary::data("asleep-cores", 1);
    let cores = ["--cores", "unpinned:2"];
    let target = Target::start("reg_mr", &[&["--namespace", file.text()][..], &cores, &SLEEPS].concat());
    let arguments = [&["--file", file.text(), "--queues", "2"][..], &cores, &SLEEPS].concat();
    verified(target.load(&arguments));
    slept(&target.end());
}
