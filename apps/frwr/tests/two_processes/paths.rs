//! A host with two paths: to one target at two addresses, and to two targets in front of one export.

use super::Machine;
use super::program::{Program, passed, verified};
use super::unwilling::{SERVICE, Service, Unwilling};
use frwr_support::storage_harness::foreign::{Foreign, NBDKIT_FILE};

const FIRST: &str = "127.0.0.1:4420";
const SECOND: &str = "127.0.0.1:4421";
/// Of a load on two cores that takes its paths in turns. A write that a lost path has not answered waits for twice the keep-alive.
const SPREAD: [&str; 11] = [
    "--cores",
    "unpinned:2",
    "--path-policy",
    "round-robin",
    "--pages",
    "plain",
    "--idle",
    "sleep",
    "--keep-alive",
    "5",
    "--json",
];

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

/// What `frwr ctl` has a target do.
fn ctl(machine: &Machine, words: &[&str]) {
    let socket = machine.path("control").display().to_string();
    passed(machine.start_exactly(&[&["ctl", "--json", "--control", &socket], words].concat()).ended());
}

#[test]
fn paths_come_and_go_as_the_discovery_service_lists_them_while_a_load_goes_on() {
    let machine = Machine::new();
    let (file, socket) = (machine.file("file"), machine.path("control").display().to_string());
    let target = machine.serve(&["--namespace", &file, "--control", &socket, "--hosts", "8"]);
    let load = ["load", "--device", "soft", "--connect-all", FIRST, "--file", &file, "--runtime", "3600"];
    let host = machine.start_exactly(&[&load[..], &SPREAD].concat());
    let of_each_core = |what: &str| {
        let lines = [0, 1].map(|core| format!("core {core}, path {SECOND}: {what}"));
        host.says_all(&lines.each_ref().map(String::as_str));
    };
    host.says(&format!("{FIRST} lists 1 path(s)"));
    host.says("mixed load");
    let second = format!("address={SECOND}");
    ctl(&machine, &["add_listener", &second]);
    host.says(&format!("{FIRST} lists {SECOND} now"));
    of_each_core("connected, optimized");
    host.says("mixed load");
    // Connections stay when their listener goes, and are used.
    ctl(&machine, &["remove_listener", &second]);
    host.says(&format!("{FIRST} lists {SECOND} no longer; the path is used while its connection lasts"));
    host.says("mixed load");
    ctl(&machine, &["add_listener", &second]);
    host.says(&format!("{FIRST} lists {SECOND} now"));
    // With its connections the path is gone, and no request fails.
    ctl(&machine, &["remove_listener", &second, "drain=true"]);
    host.says(&format!("{FIRST} lists {SECOND} no longer"));
    of_each_core("gone, and not tried again while it is not listed");
    host.says("mixed load");
    ctl(&machine, &["add_listener", &second]);
    host.says(&format!("{FIRST} lists {SECOND} now"));
    of_each_core("connected, optimized");
    host.says("mixed load");
    let report = verified(host.stop());
    let paths = report["load"]["paths"].as_array().unwrap();
    let of_each: Vec<_> = paths.iter().map(|path| (&path["core"], path["address"].as_str().unwrap())).collect();
    assert_eq!(of_each, [(&0.into(), FIRST), (&0.into(), SECOND), (&1.into(), FIRST), (&1.into(), SECOND)], "{report}");
    for path in paths {
        let came = if path["address"] == FIRST { 1 } else { 2 };
        assert_eq!((&path["came"], &path["state"]), (&came.into(), &"connected, optimized".into()), "{report}");
        assert!(path["requests"].as_u64().unwrap() > 10, "each was taken: {report}");
        // Nor does a write wait until its target is over: what was on its way was answered.
        assert_eq!((&path["lost"], &path["fenced"]), (&0.into(), &0.into()), "{report}");
    }
    passed(target.stop());
}

#[test]
fn a_discovery_service_that_is_gone_changes_no_path_and_is_heard_of_when_it_is_back() {
    let machine = Machine::new();
    // What was written is there when the target is back.
    let (file, disk) = (machine.file("file"), machine.zeros("disk", 1 << 20));
    let medium = ["--namespace", &disk, "--backing", "auto"];
    let mut target = machine.serve(&medium);
    let host = machine.start(&["load", "--connect-all", FIRST, "--file", &file, "--runtime", "3600"]);
    host.says("mixed load");
    target.kill();
    host.says_all(&[&format!("{FIRST} cannot be asked for paths: "), &format!("path {FIRST}: lost: ")]);
    let target = machine.serve(&[&medium[..], &["--listen", SECOND]].concat());
    let back = [format!("{FIRST} can be asked for paths again"), format!("{FIRST} lists {SECOND} now")];
    let connected = [FIRST, SECOND].map(|address| format!("path {address}: connected, optimized"));
    host.says_all(&back.iter().chain(&connected).map(String::as_str).collect::<Vec<_>>());
    host.says("mixed load");
    let report = verified(host.stop());
    assert_eq!(report["load"]["paths"].as_array().unwrap().len(), 2, "{report}");
    passed(target.stop());
}

#[test]
fn a_service_that_is_to_keep_no_session_is_asked_once() {
    let machine = Machine::new();
    let (file, socket) = (machine.file("file"), machine.path("control").display().to_string());
    let target = machine.serve(&["--namespace", &file, "--control", &socket]);
    let asks = ["load", "--connect-all", FIRST, "--keep-alive", "0", "--file", &file, "--runtime", "3600"];
    let host = machine.start(&asks);
    host.says("mixed load");
    ctl(&machine, &["add_listener", &format!("address={SECOND}")]);
    let report = verified(host.stop());
    assert_eq!(report["load"]["paths"], serde_json::json!([]), "it is its only path: {report}");
    passed(target.stop());
}

/// A service that keeps no session is asked again: one that refuses to be asked to, one that tells of no changes, and one that hangs up
/// when it was asked.
#[test]
fn a_service_that_keeps_no_session_is_asked_again_and_again() {
    let why = ["does not tell of changes", "does not tell of changes", "keeps no session"];
    for (unwilling, why) in Unwilling::ALL.into_iter().zip(why) {
        let machine = Machine::new();
        let file = machine.file("file");
        let target = machine.serve(&["--listen", SECOND, "--namespace", &file]);
        let service = Service::start(&machine, unwilling);
        let asks = ["load", "--connect-all", SERVICE, "--subsystem", "nqn.2026-11.invalid.frwr:file"];
        let host = machine.start(&[&asks[..], &["--keep-alive", "2", "--file", &file, "--runtime", "3600"]].concat());
        host.says(&format!("{SERVICE} lists 1 path(s)"));
        host.says(&format!("{SERVICE} {why}: it is asked for paths every 2 s"));
        host.says("mixed load");
        service.lists(&[FIRST, SECOND]);
        host.says(&format!("{SERVICE} lists {SECOND} now"));
        host.says(&format!("path {SECOND}: connected, optimized"));
        service.lists(&[FIRST]);
        host.says(&format!("{SERVICE} lists {SECOND} no longer"));
        let report = verified(host.stop());
        assert_eq!(report["load"]["paths"].as_array().unwrap().len(), 2, "{unwilling:?}: {report}");
        passed(target.stop());
        service.end();
    }
}

#[test]
fn each_of_several_cores_has_its_own_way_by_each_path() {
    let machine = Machine::new();
    let file = machine.file("file");
    let target = machine.serve(&["--listen", SECOND, "--namespace", &file]);
    let load = ["load", "--device", "soft", "--connect", FIRST, "--connect", SECOND, "--file", &file, "--runtime", "1"];
    let report = verified(machine.start_exactly(&[&load[..], &SPREAD].concat()).ended());
    let paths = report["load"]["paths"].as_array().unwrap();
    let of_each: Vec<_> = paths.iter().map(|path| (&path["core"], path["address"].as_str().unwrap())).collect();
    assert_eq!(of_each, [(&0.into(), FIRST), (&0.into(), SECOND), (&1.into(), FIRST), (&1.into(), SECOND)], "{report}");
    for path in paths {
        assert!(path["requests"].as_u64().unwrap() > 10, "each was taken: {report}");
        // Nor does a write wait until its target is over: what was on its way was answered.
        assert_eq!((&path["lost"], &path["fenced"]), (&0.into(), &0.into()), "{report}");
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
