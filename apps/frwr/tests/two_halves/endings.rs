//! What goes wrong ends a run with one line that says why.

use super::network::Network;
use super::{ADDRESS, Target, Temporary, load_config, serve_config, verified};
use clap::Parser as _;
use frwr::report::Report as _;
use frwr::runner::{DiscoverConfig, discover, load, serve};
use frwr::{CommandLine, Error, Task};
use frwr_engine::provider::fault::{CommandKind, FaultHandle, Faulty};
use frwr_engine::provider::soft::{SoftDevice, SoftOptions};
use frwr_engine::provider::{AsyncEvent, CommandError, DeviceEvent};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;

#[test]
fn a_file_that_somebody_makes_shorter_is_told_with_both_sizes_and_fails_the_run() {
    for backing in ["ring", "thread"] {
        let (served, moved) = (Temporary::path(&format!("cut-{backing}")), Temporary::data("behind", 5));
        fs::write(&served.0, vec![0xab; 400 << 10]).unwrap();
        let namespace = ["--namespace", served.text(), "--backing", backing, "--block-size", "4096"];
        let target = Target::begin(Network::new(), "reg_mr", &namespace);
        assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
        verified(target.load(&["--file", moved.text()]));
        fs::File::options().write(true).open(&served.0).unwrap().set_len(200 << 10).unwrap();
        let told = target.lines.iter().find(|line| line.contains("shorter")).unwrap();
        assert!(["204800 bytes", "409600", "started again"].iter().all(|part| told.contains(part)), "{told}");
        target.stop.store(true, Relaxed);
        let report = target.thread.join().unwrap().unwrap();
        assert!(!report.passed() && report.target.failed_commits > 0, "{}", report.table());
        assert!(report.table().contains("it became shorter: 204800 bytes"), "{}", report.table());
        assert_eq!(report.json()["namespaces"][0]["shrunk_to"], 204_800);
    }
}

#[test]
fn wrong_digests_and_unsuitable_namespaces_are_told() {
    let (file, output) = (Temporary::data("wrong", 6), Temporary::path("wrong-out"));
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let report = target.load(&["--expect-sha256", &"0".repeat(64)]).unwrap();
    assert!(!report.passed() && report.caught.unwrap().contains("SHA-256"));
    for (arguments, parts) in [
        (&["--block-size", "512"][..], ["--block-size is 512", "4096"]),
        (&["--bytes", "303105"], ["--bytes is 303105", "303104"]),
        (&["--queue-depth", "129"], ["queue depth 129", "128"]),
    ] {
        let told = match target.load(&[arguments, &["--output", output.text()]].concat()) {
            Err(error) => error.to_string(),
            Ok(report) => panic!("{arguments:?}: {}", report.table()),
        };
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        assert!(!output.0.exists(), "nothing was read");
    }
    target.end();
}

#[test]
fn a_target_that_is_not_there_ends_the_run_with_one_line() {
    let network = Network::new();
    for (reconnects, attempts) in [("0", 1), ("2", 3)] {
        let config = load_config(&["--reconnects", reconnects]);
        let device = network.device(SoftOptions::new("reg_mr".parse().unwrap()));
        let Err(error) = load(device, &config, &AtomicBool::new(false), &mut |_| {}) else { panic!("connected") };
        assert_eq!((error.name(), error.exit_code()), ("no_session", 1));
        let line = error.to_string();
        assert!(line.contains(ADDRESS) && line.contains(&format!("{attempts} attempt")), "{line}");
        assert!(line.contains("--reconnects") && !line.contains('\n'), "{line}");
    }
}

#[test]
fn a_target_that_goes_away_in_mid_load_ends_the_run() {
    let file = Temporary::data("away", 7);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let config = load_config(&["--runtime", "3600", "--reconnects", "2"]);
    let device = target.network.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let (sender, lines) = mpsc::channel();
    let host = thread::spawn(move || {
        load(device, &config, &AtomicBool::new(false), &mut |line| {
            let _ = sender.send(line.to_owned());
        })
    });
    let loading = |line: &String| line.contains("load");
    assert!(lines.iter().any(|line| loading(&line)));
    target.end();
    let report = host.join().unwrap().unwrap();
    let caught = report.caught.clone().unwrap();
    assert!(!report.passed() && caught.contains("gave up"), "{caught}");
    let table = report.table();
    assert!(report.keys_accounted() && table.contains("the target said 1 time(s) that it shuts down"), "{table}");
}

#[test]
fn a_host_is_interrupted_before_and_behind_its_first_session() {
    let network = Network::new();
    let device = || network.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let stopped = AtomicBool::new(true);
    let report = load(device(), &load_config(&[]), &stopped, &mut |_| {}).unwrap();
    assert!(report.interrupted && report.passed() && !report.verified);
    // Two results, or a file and a result, in one.
    for option in ["--file", "--output"] {
        let both = Temporary::data("both", 1);
        fs::write(&both.0, "data").unwrap();
        let config = load_config(&[option, both.text(), "--trace", both.text()]);
        let Err(error) = load(device(), &config, &stopped, &mut |_| {}) else { panic!("it would be overwritten") };
        assert_eq!((error.name(), error.exit_code()), ("trace_file", 2));
        assert!(error.to_string().contains(option), "{error}");
        assert_eq!(fs::read_to_string(&both.0).unwrap(), "data");
    }
    // Rates and latencies of no request would look like figures.
    let (table, json) = (report.table(), report.json());
    assert!(
        table.contains("nothing was measured") && table.contains("interrupted before the first request"),
        "{table}"
    );
    assert!(!table.contains("p99.9") && !table.contains("IOPS") && !table.contains("per request"), "{table}");
    for name in ["min", "mean", "p50", "p99", "p999", "max"] {
        assert_eq!(json["latency_us"].get(name), Some(&serde_json::Value::Null), "{name} in {json}");
    }
    let file = Temporary::data("interrupted", 8);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let stop = AtomicBool::new(false);
    let device = target.network.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let report = load(device, &load_config(&["--runtime", "3600"]), &stop, &mut |line| {
        stop.store(line.contains("load"), Relaxed);
    })
    .unwrap();
    assert!(report.interrupted && report.passed() && report.verified, "{}", report.table());
    target.end();
}

/// The engine's own words name options that a person cannot give.
#[test]
fn what_a_device_cannot_do_is_told_in_options_of_the_command_line() {
    let (file, stop) = (Temporary::data("too-much", 1), AtomicBool::new(false));
    let device = Network::new().device(SoftOptions::new("rxe".parse().unwrap()));
    let asked = ["--namespace", file.text(), "--queue-depth", "1024", "--io-queues", "16", "--hosts", "200"];
    let error = serve(vec![device], &serve_config(&asked), &stop, &mut |_| {}).unwrap_err();
    one_line(&error, "engine", "--queue-depth 1024 --io-queues 16 --hosts 200 are more than test can do: ");
    one_line(&error, "engine", "lower --queue-depth, --io-queues or --hosts, or have more --cores");
}

/// A device that is told what to do wrong.
fn faulty(network: &Network) -> (Faulty<SoftDevice>, FaultHandle) {
    Faulty::new(network.device(SoftOptions::new("rxe".parse().unwrap())))
}

fn one_line(error: &Error, name: &str, text: &str) {
    let said = error.to_string();
    assert_eq!((error.name(), error.exit_code()), (name, 1), "{said}");
    assert!(said.contains(text) && !said.contains('\n'), "{said}");
}

#[test]
fn memory_that_a_device_does_not_register_ends_both_halves_with_the_reason() {
    let file = Temporary::data("refused", 1);
    let (network, stop) = (Network::new(), AtomicBool::new(false));
    let (device, faults) = faulty(&network);
    faults.fail_command(CommandKind::RegisterMemory, CommandError::EXHAUSTED, u32::MAX);
    // Before any host has come.
    let error = serve(vec![device], &serve_config(&["--namespace", file.text()]), &stop, &mut |_| {}).unwrap_err();
    one_line(&error, "locked_memory", "cannot register memory");

    let target = Target::start("rxe", &["--namespace", file.text()]);
    let (device, faults) = faulty(&target.network);
    faults.fail_command(CommandKind::RegisterMemory, CommandError::EXHAUSTED, u32::MAX);
    let error = load(device, &load_config(&[]), &stop, &mut |_| {}).unwrap_err();
    one_line(&error, "locked_memory", "cannot register memory");
    target.end();
}

#[test]
fn a_device_that_is_gone_ends_both_halves_with_the_reason() {
    let file = Temporary::data("gone", 1);
    let stop = AtomicBool::new(false);
    // Goes once a line of progress says this.
    let goes_at = |faults: FaultHandle, text: &'static str| {
        move |line: &str| {
            if line.contains(text) {
                faults.inject_event(DeviceEvent::Async(AsyncEvent::DeviceFatal));
            }
        }
    };
    let network = Network::new();
    let (device, faults) = faulty(&network);
    let config = serve_config(&["--namespace", file.text()]);
    let error = serve(vec![device], &config, &stop, &mut goes_at(faults, "listening on")).unwrap_err();
    one_line(&error, "device_gone", "is gone");

    let target = Target::start("rxe", &["--namespace", file.text()]);
    let (device, faults) = faulty(&target.network);
    let config = load_config(&["--runtime", "60"]);
    let error = load(device, &config, &stop, &mut goes_at(faults, "mixed load")).unwrap_err();
    one_line(&error, "device_gone", "is gone");
    target.end();
}

/// A device that goes takes its connections with it, and the kernel's word of that may come after the host gave up.
#[test]
fn a_host_that_gives_up_on_a_device_that_was_removed_says_so() {
    let file = Temporary::data("removed", 1);
    let target = Target::start("rxe", &["--namespace", file.text()]);
    let (device, faults) = faulty(&target.network);
    let config = load_config(&["--runtime", "3600", "--reconnects", "2"]);
    let (sender, lines) = mpsc::channel();
    let host = thread::spawn(move || {
        load(device, &config, &AtomicBool::new(false), &mut |line| {
            let _ = sender.send(line.to_owned());
        })
    });
    assert!(lines.iter().any(|line| line.contains("mixed load")));
    faults.remove_device();
    target.end();
    one_line(&host.join().unwrap().unwrap_err(), "device_gone", "is gone");

    // One that never had a session.
    let (device, faults) = faulty(&Network::new());
    faults.remove_device();
    let config = load_config(&["--reconnects", "1"]);
    let error = load(device, &config, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    one_line(&error, "device_gone", "is gone");

    // Who only asks what there is.
    let (device, faults) = faulty(&Network::new());
    faults.remove_device();
    let line = ["frwr", "discover", "--device", "test", "--connect", ADDRESS];
    let Some(Task::Discover(arguments)) = CommandLine::try_parse_from(line).unwrap().task else {
        panic!("not discover")
    };
    let config = DiscoverConfig::new(arguments).unwrap();
    let error = discover(device, &config, &AtomicBool::new(false), &mut |line| panic!("{line}")).unwrap_err();
    one_line(&error, "device_gone", "is gone");
}
