//! What moves between two processes.

use super::Machine;
use super::program::{passed, verified};
use std::fs;

#[test]
fn a_file_goes_there_and_back_and_nothing_is_left_behind() {
    let machine = Machine::new();
    let file = machine.file("file");
    // Both poll on, as where nothing is said.
    let target = machine.serve(&["--namespace", &file, "--idle", "spin"]);
    let copy = machine.path("copy");
    let listed = passed(machine.start(&["discover", "--connect", "127.0.0.1:4420"]).ended());
    assert_eq!(listed["entries"][0]["service"], "4420", "{listed}");
    let bytes = fs::read(&file).unwrap();
    let length = bytes.len().to_string();
    let read = ["--output", copy.to_str().unwrap(), "--bytes", &length, "--runtime", "0", "--idle", "spin"];
    verified(machine.load(&read).ended());
    assert!(fs::read(&copy).unwrap() == bytes, "the copy is another file");
    let report = verified(machine.load(&["--file", &file, "--runtime", "1", "--idle", "spin"]).ended());
    assert_eq!(report["reconnects"], 0, "{report}");
    let served = passed(target.stop());
    assert_eq!(served["device"], "soft:reg_mr", "{served}");
    assert_eq!(machine.left(), Vec::<String>::new());
}

/// Each side's memory and keys are its own.
#[test]
fn both_sides_may_have_any_profile() {
    let machine = Machine::new();
    let file = machine.file("file");
    for (target, host) in [("soft:window", "soft:umr"), ("soft:rxe", "soft:reg_mr"), ("soft:umr:fixed-key", "soft:rxe")]
    {
        let serving = machine.serve(&["--namespace", &file, "--device", target]);
        verified(machine.load(&["--file", &file, "--runtime", "0", "--device", host]).ended());
        passed(serving.stop());
    }
}

#[test]
fn several_cores_of_several_hosts_are_served_by_several_cores() {
    let machine = Machine::new();
    let file = machine.file("file");
    let queues = ["--namespace", &file, "--io-queues", "2"];
    let target = machine.start_exactly(
        &[
            &["serve", "--device", "soft", "--listen", "0.0.0.0:4420", "--pages", "plain", "--json"],
            &queues[..],
            &["--cores", "unpinned:2"],
        ]
        .concat(),
    );
    target.says("listening on 0.0.0.0:4420");
    let load = ["load", "--device", "soft", "--connect", "127.0.0.1:4420", "--pages", "plain", "--json"];
    let more = ["--cores", "unpinned:2", "--runtime", "1"];
    let host = || machine.start_exactly(&[&load[..], &more].concat());
    let hosts = [host(), host()];
    hosts.into_iter().for_each(|host| drop(verified(host.ended())));
    passed(target.stop());
}

#[test]
fn a_target_is_reached_at_each_of_its_addresses() {
    let machine = Machine::new();
    let file = machine.file("file");
    let target = machine.serve(&["--listen", "127.0.0.2:4421", "--namespace", &file]);
    let listed = passed(machine.start(&["discover", "--connect", "127.0.0.2:4421"]).ended());
    let at = |entry: &serde_json::Value| format!("{}:{} {}", entry["address"], entry["service"], entry["port"]);
    let all: Vec<_> = listed["entries"].as_array().unwrap().iter().map(at).collect();
    assert_eq!(all, ["\"127.0.0.1\":\"4420\" 1", "\"127.0.0.2\":\"4421\" 2"]);
    for address in ["127.0.0.1:4420", "127.0.0.2:4421"] {
        verified(machine.start(&["load", "--connect", address, "--file", &file, "--runtime", "0"]).ended());
    }
    let served = passed(target.stop());
    assert_eq!(served["listen"], serde_json::json!(["127.0.0.1:4420", "127.0.0.2:4421"]), "{served}");
    assert_eq!(machine.left(), Vec::<String>::new());
}

#[test]
fn an_address_that_another_program_has_is_told() {
    let machine = Machine::new();
    let file = machine.file("file");
    let target = machine.serve(&["--namespace", &file]);
    let (code, error) = machine.start(&["serve", "--listen", "127.0.0.1:4420", "--namespace", &file]).ended();
    let text = error["message"].as_str().unwrap();
    assert_eq!((code, &error["error"]), (Some(1), &"listen".into()), "{error}");
    assert!(text.contains("EADDRINUSE") && text.contains(machine.path("frwr").to_str().unwrap()), "{text}");
    passed(target.stop());
}
