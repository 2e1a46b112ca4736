//! A host with two paths: to one target at two addresses, and to two targets in front of one export.

use super::Machine;
use super::program::{Program, passed, verified};
use frwr_support::storage_harness::foreign::{Foreign, NBDKIT_FILE};

const FIRST: &str = "127.0.0.1:4420";
const SECOND: &str = "127.0.0.1:4421";

#[test]
fn two_addresses_of_a_target_are_two_paths_that_take_turns() {
    let machine = Machine::new();
    let file = machine.file("file");
    let target = machine.serve(&["--listen", SECOND, "--namespace", &file]);
    let turns = ["--connect", SECOND, "--path-policy", "round-robin", "--file", &file, "--runtime", "1"];
    let report = verified(machine.load(&turns).ended());
    let paths = report["load"]["paths"].as_array().unwrap();
    assert_eq!((&paths[0]["address"], &paths[1]["address"]), (&FIRST.into(), &SECOND.into()), "{report}");
    let requests = |path: usize| paths[path]["requests"].as_u64().unwrap();
    // One of them may have had a session before the other.
    assert!(requests(0).min(requests(1)) > 100, "they took turns: {report}");
    assert_eq!((&report["reconnects"], &paths[1]["state"]), (&0.into(), &"connected, optimized".into()), "{report}");
    passed(target.stop());
}

#[test]
fn the_paths_of_a_load_are_those_that_a_discovery_service_lists() {
    let machine = Machine::new();
    let file = machine.file("file");
    let target = machine.serve(&["--listen", SECOND, "--namespace", &file]);
    let asks = ["load", "--connect-all", FIRST];
    let host = machine.start(&[&asks[..], &["--file", &file, "--runtime", "1"]].concat());
    let line = host.says(&format!("{FIRST} lists 2 path(s) to nqn.2026-11.invalid.frwr:file: "));
    assert!(line.contains(FIRST) && line.contains(SECOND), "{line}");
    let report = verified(host.ended());
    let paths = report["load"]["paths"].as_array().unwrap();
    let mut addresses: Vec<_> = paths.iter().map(|path| path["address"].as_str().unwrap()).collect();
    addresses.sort_unstable();
    assert_eq!(addresses, [FIRST, SECOND], "{report}");
    let (code, report) =
        machine.start(&[&asks[..], &["--subsystem", "nqn.2026-11.invalid.frwr:other"]].concat()).ended();
    assert_eq!((code, &report["error"]), (Some(1), &"connect_all".into()), "{report}");
    let text = report["message"].as_str().unwrap();
    assert!(text.contains("it lists nqn.2026-11.invalid.frwr:file") && text.contains("--subsystem"), "{text}");
    passed(target.stop());
    let (code, report) = machine.start(&asks).ended();
    assert_eq!((code, &report["error"]), (Some(1), &"no_session".into()), "{report}");
}

#[test]
fn each_of_several_cores_has_its_own_way_by_each_path() {
    let machine = Machine::new();
    let file = machine.file("file");
    let target = machine.serve(&["--listen", SECOND, "--namespace", &file]);
    let load = ["load", "--device", "soft", "--connect", FIRST, "--connect", SECOND, "--file", &file, "--runtime", "1"];
    let more = ["--cores", "unpinned:2", "--path-policy", "round-robin", "--pages", "plain", "--json"];
    let report = verified(machine.start_exactly(&[&load[..], &more].concat()).ended());
    let paths = report["load"]["paths"].as_array().unwrap();
    let of_each: Vec<_> = paths.iter().map(|path| (&path["core"], path["address"].as_str().unwrap())).collect();
    assert_eq!(of_each, [(&0.into(), FIRST), (&0.into(), SECOND), (&1.into(), FIRST), (&1.into(), SECOND)], "{report}");
    for path in paths {
        assert!(path["requests"].as_u64().unwrap() > 10, "each was taken: {report}");
    }
    assert_eq!(report["reconnects"], 0, "{report}");
    passed(target.stop());
}

#[test]
fn with_no_path_at_all_the_run_ends_with_the_remedy() {
    let machine = Machine::new();
    let (code, report) = machine.load(&["--connect", SECOND, "--reconnects", "1"]).ended();
    assert_eq!(code, Some(1), "{report}");
    assert!(report["error"].as_str().is_some_and(|name| !name.is_empty()), "{report}");
}

/// One of two gateways; the namespaces of both have one name, which follows from that of the subsystem.
fn gateway(machine: &Machine, address: &str, uri: &str) -> Program {
    let target = machine.start(&["serve", "--listen", address, "--namespace", uri]);
    target.says(&format!("listening on {address}"));
    target
}

#[test]
fn each_of_two_gateways_is_killed_and_comes_back_under_a_verified_load() {
    let Some(nbdkit) = Foreign::nbdkit(NBDKIT_FILE, &["--filter=delay", "rdelay=1ms", "wdelay=1ms"]) else { return };
    let machine = Machine::new();
    let uri = format!("nbd+unix:///?socket={}&x-write-through=1", nbdkit.socket().display());
    let addresses = [FIRST, SECOND];
    let mut gateways = addresses.map(|address| gateway(&machine, address, &uri));
    let file = machine.file("file");
    let host = machine.load(&["--connect", SECOND, "--file", &file, "--runtime", "3600", "--keep-alive", "1"]);
    host.says("mixed load");
    for round in 0..4 {
        let at = round % 2;
        gateways[at].kill();
        host.says(&format!("path {}: lost", addresses[at]));
        // In the first rounds the other one has it all, and what the lost one may still execute waits for its silence.
        if round < 2 {
            host.says("mixed load");
        }
        gateways[at] = gateway(&machine, addresses[at], &uri);
        host.says(&format!("path {}: connected, optimized", addresses[at]));
        host.says("mixed load");
    }
    let report = verified(host.stop());
    let paths = report["load"]["paths"].as_array().unwrap();
    for path in paths {
        // More where a busy machine keeps a gateway from its processor for longer than the Keep Alive Timeout.
        let counted = |name: &str| path[name].as_u64().unwrap();
        assert!(counted("came") >= 3 && counted("came") == counted("went") + 1, "{report}");
    }
    assert!(paths.iter().any(|path| path["sent_again"].as_u64().unwrap() > 0), "{report}");
    for target in gateways {
        passed(target.stop());
    }
}
