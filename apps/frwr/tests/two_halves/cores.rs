//! Loads and targets on several cores.

use super::network::Network;
use super::{ADDRESS, FILE_BYTES, Target, Temporary, load_config, task, verified};
use clap::Parser as _;
use frwr::report::Report as _;
use frwr::runner::{LoadConfig, RunReport, ServeConfig, load, serve};
use frwr::{CommandLine, Task};
use frwr_engine::provider::soft::SoftOptions;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;

/// Runtimes in seconds that are tried until other cores have joined the load and done their share: beside other work they may need longer
/// to get there than a short load takes.
const RUNTIMES: [&str; 5] = ["1", "2", "4", "8", "16"];

/// A load of so many queues, each of which did a part of it.
#[track_caller]
fn shared(target: &Target, queues: usize, arguments: &[&str]) -> RunReport {
    let mut last = None;
    for runtime in RUNTIMES {
        let report = verified(target.load(&[arguments, &["--runtime", runtime]].concat()));
        let all_worked = report.cores.iter().all(|core| core.idle || core.requests > 0);
        if report.queues == queues && all_worked {
            return report;
        }
        last = Some(report);
    }
    panic!("not {queues} queues with work on each: {}", last.map(|report| report.table()).unwrap_or_default());
}

#[test]
fn the_load_of_one_host_runs_on_two_cores() {
    let (served, moved, output) =
        (Temporary::data("old", 1), Temporary::data("cores", 9), Temporary::path("cores-out"));
    // Not all profiles: spinning threads are dear on a shared machine.
    for profile in ["reg_mr", "rxe"] {
        let target = Target::start(profile, &["--namespace", served.text(), "--io-queues", "2"]);
        let two = ["--cores", "unpinned:2", "--file", moved.text(), "--output", output.text()];
        let report = shared(&target, 2, &two);
        assert_eq!(report.sha256.clone(), Some(moved.digest()), "{profile}");
        assert!(output.bytes() == moved.bytes(), "{profile}");
        let [first, second] = report.cores.as_slice() else { panic!("{:?}", report.cores) };
        assert!(!second.idle && first.requests > 0 && second.requests > 0, "{profile}: {}", report.table());
        assert_eq!(first.requests + second.requests, report.latency.len(), "{profile}");
        assert!(report.session.requests >= report.latency.len() && report.json()["cores"][1]["requests"] != 0);
        assert!(report.table().contains("queue depth 32 on each core"), "{}", report.table());
        target.end();
    }
}

#[test]
fn two_cores_read_what_is_there_and_hold_it_against_the_first_copy() {
    let file = Temporary::data("read-cores", 2);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let (bytes, digest) = (FILE_BYTES.to_string(), file.digest());
    let exact = ["--cores", "unpinned:2", "--bytes", &bytes, "--expect-sha256", &digest];
    let report = shared(&target, 2, &exact);
    assert!(report.cores.iter().all(|core| core.requests > 0), "{}", report.table());
    // Without a load there is nothing to share.
    let report = verified(target.load(&exact));
    assert_eq!((report.cores[0].requests, report.cores[1].requests), (74, 0));
    assert_eq!(target.end().target.writes, 0);
}

#[test]
fn a_core_without_a_queue_says_so_and_the_others_do_its_share() {
    let file = Temporary::data("short", 3);
    let target = Target::start("reg_mr", &["--namespace", file.text(), "--io-queues", "2"]);
    // Two queues per core are more than the target grants: two cores get one each.
    let report = shared(&target, 2, &["--cores", "unpinned:3", "--queues", "2", "--file", file.text()]);
    let idle: Vec<bool> = report.cores.iter().map(|core| core.idle).collect();
    assert_eq!((idle, report.queues, report.cores[2].requests), (vec![false, false, true], 2, 0));
    assert!(report.table().contains("granted 2 I/O queue(s): 1 core(s) had none"), "{}", report.table());
    target.end();
}

/// A load on two cores, and another target in the place of the first in the middle of it. `stops`: it is interrupted once
/// the second target serves.
fn load_over_two_targets(name: &str, second: &[&str], stops: bool) -> RunReport {
    let file = Temporary::data(name, 5);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let (network, stop) = (target.network.clone(), AtomicBool::new(false));
    let device = network.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let config = load_config(&["--cores", "unpinned:2", "--runtime", "3600", "--reconnects", "100"]);
    let (loading, began) = mpsc::channel();
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            load(device, &config, &stop, &mut |line| {
                let _ = loading.send(line.contains("mixed load"));
            })
        });
        assert!(began.iter().any(|loading| loading));
        target.end();
        let target = Target::begin(network.clone(), "reg_mr", &[&["--namespace", file.text()], second].concat());
        assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
        if stops {
            // Somebody uses it.
            assert!(target.lines.iter().any(|line| line.contains("serving")));
            stop.store(true, Relaxed);
        }
        let report = load.join().unwrap().unwrap();
        target.end();
        report
    })
}

#[test]
fn a_load_on_two_cores_survives_a_target_that_comes_back_and_can_be_interrupted() {
    let report = load_over_two_targets("again", &[], true);
    assert!(report.interrupted && report.passed() && report.reconnects() >= 1, "{}", report.table());
}

#[test]
fn a_core_that_loses_its_queue_for_good_ends_the_run() {
    let report = load_over_two_targets("fewer", &["--io-queues", "1"], false);
    let caught = report.caught.clone().unwrap();
    assert!(!report.passed() && caught.contains("no I/O queue") && caught.contains("--cores"), "{caught}");
    assert!(report.keys_accounted() && report.undrained.is_empty(), "{}", report.table());
}

#[test]
fn two_cores_of_a_host_work_on_two_cores_of_a_target() {
    let file = Temporary::data("both", 7);
    let target = Target::start("reg_mr", &["--namespace", file.text(), "--cores", "unpinned:2"]);
    let report = shared(&target, 2, &["--cores", "unpinned:2", "--file", file.text()]);
    assert!(report.cores.iter().all(|core| core.requests > 0), "{}", report.table());
    target.end();
}

#[test]
fn a_trace_follows_one_core() {
    let Task::Load(arguments) = task("load", &["--connect", ADDRESS, "--cores", "unpinned:2", "--trace", "/tmp/trace"])
    else {
        panic!("not load")
    };
    let error = LoadConfig::new(arguments).unwrap_err();
    assert_eq!((error.name(), error.exit_code()), ("trace_cores", 2));
    assert!(error.to_string().contains("--trace follows one core"), "{error}");
}

/// Arguments of a target whose queues are spread over cores, in place of one.
fn spread(cores: &str, arguments: &[&str]) -> ServeConfig {
    let fixed = ["frwr", "serve", "--device", "test", "--pages", "plain", "--listen", ADDRESS, "--cores", cores];
    let line = CommandLine::try_parse_from([&fixed[..], arguments].concat()).unwrap();
    let Some(Task::Serve(arguments)) = line.task else { panic!("not serve") };
    ServeConfig::new(arguments).unwrap()
}

#[test]
fn queues_spread_over_the_targets_cores_serve_one_namespace() {
    let moved = Temporary::data("spread", 6);
    let bytes = FILE_BYTES.to_string();
    for (backing, cores) in [("memory", 2), ("auto", 3), ("thread", 2)] {
        let served = Temporary::path(&format!("spread-{backing}"));
        fs::write(&served.0, vec![0; 400 << 10]).unwrap();
        let config = spread(&format!("unpinned:{cores}"), &["--namespace", served.text(), "--backing", backing]);
        let target = Target::begin_with(Network::new(), "reg_mr", config);
        assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
        verified(target.load(&["--file", moved.text(), "--runtime", "1", "--queues", "4"]));
        verified(target.load(&["--file", moved.text(), "--queues", "4"]));
        verified(target.load(&["--bytes", &bytes, "--expect-sha256", &moved.digest(), "--queues", "2"]));
        let report = target.end();
        assert_eq!((report.targets.len(), report.cores.len(), report.target.accepted), (cores, cores, 5 + 5 + 3));
        assert!(report.targets.iter().all(|core| core.reads > 0 && core.writes > 0), "{}", report.table());
        assert_eq!(report.target.reads, report.targets.iter().map(|core| core.reads).sum::<u64>());
        assert_eq!(report.json()["cores"].as_array().unwrap().len(), cores);
        assert!(backing == "memory" || served.bytes()[..FILE_BYTES] == moved.bytes());
    }
}

#[test]
fn an_address_that_is_taken_ends_a_target_of_several_cores() {
    let file = Temporary::data("taken", 1);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let (device, stop) = (target.network.device(SoftOptions::new("reg_mr".parse().unwrap())), AtomicBool::new(false));
    let config = spread("unpinned:2", &["--namespace", file.text()]);
    let error = serve(vec![device], &config, &stop, &mut |_| {}).err().unwrap();
    assert!(error.name() == "listen" && error.to_string().contains("EADDRINUSE"), "{error}");
    target.end();
}

#[test]
fn more_cores_than_a_target_may_have_are_refused() {
    let line = ["frwr", "serve", "--device", "test", "--listen", ADDRESS, "--namespace", "x", "--cores"];
    let line = CommandLine::try_parse_from([&line[..], &["unpinned:65"]].concat()).unwrap();
    let Some(Task::Serve(arguments)) = line.task else { panic!("not serve") };
    let error = ServeConfig::new(arguments).unwrap_err();
    assert!(error.to_string().contains("65 cores: must be 1 to 64"), "{error}");
}
