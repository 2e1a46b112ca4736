//! Processes that are killed, and others that come in their place.

use super::Machine;
use super::program::{passed, verified};
use frwr_support::changes::Ctl;
use serde_json::{Value, json};
use std::path::Path;

/// Bytes of a namespace that outlives who serves it.
const DISK: u64 = 4 << 20;

#[test]
fn a_host_that_is_killed_costs_its_target_a_connection() {
    let machine = Machine::new();
    let file = machine.file("file");
    let target = machine.serve(&["--namespace", &file]);
    for _ in 0..3 {
        let mut host = machine.load(&["--runtime", "3600"]);
        host.says("mixed load");
        host.kill();
    }
    // The next one finds what the others had.
    verified(machine.load(&["--runtime", "0"]).ended());
    let served = passed(target.stop());
    // Of each host an admin queue and an I/O queue.
    assert_eq!((&served["accepted"], &served["disconnects"]), (&8.into(), &8.into()), "{served}");
    assert_eq!(served["left"]["queues"], 0, "{served}");
}

#[test]
fn a_target_that_is_killed_is_waited_for_and_nothing_is_lost() {
    let machine = Machine::new();
    let disk = machine.zeros("disk", DISK);
    let namespace = ["--namespace", &disk, "--backing", "thread"];
    let mut target = machine.serve(&namespace);
    let host = machine.load(&["--runtime", "3600", "--reconnects", "100"]);
    host.says("mixed load");
    for _ in 0..3 {
        target.kill();
        assert!(!machine.left().is_empty(), "a killed process deletes nothing");
        target = machine.serve(&namespace);
        // It tells of seconds in which something moved: the host has come.
        target.says("serving");
    }
    let report = verified(host.stop());
    assert!(report["reconnects"].as_u64().unwrap() >= 3, "{report}");
    passed(target.stop());
}

/// Its sockets are full by then, and its host goes on with everything else.
#[test]
fn a_target_that_is_stopped_for_a_while_is_waited_for() {
    let machine = Machine::new();
    let file = machine.file("file");
    let target = machine.serve(&["--namespace", &file]);
    let host = machine.load(&["--runtime", "3600", "--reconnects", "100"]);
    host.says("mixed load");
    target.signal("STOP");
    // A line each second: of a core that stood still there would be others.
    host.says("mixed load");
    host.says("mixed load");
    target.signal("CONT");
    target.says("serving");
    verified(host.stop());
    passed(target.stop());
}

#[test]
fn a_target_that_is_killed_and_does_not_return_ends_the_run() {
    let machine = Machine::new();
    let file = machine.file("file");
    let mut target = machine.serve(&["--namespace", &file]);
    let host = machine.load(&["--runtime", "3600", "--reconnects", "2"]);
    host.says("mixed load");
    target.kill();
    let (code, report) = host.ended();
    assert_eq!(code, Some(1), "{report}");
    assert!(report["caught"].as_str().unwrap().contains("gave up"), "{report}");
}

#[test]
fn a_target_that_was_never_there_is_told_with_the_remedy() {
    let machine = Machine::new();
    for words in [
        &["load", "--connect", "127.0.0.1:4420", "--reconnects", "0"][..],
        &["discover", "--connect", "127.0.0.1:4420"],
    ] {
        let (code, error) = machine.start(words).ended();
        assert_eq!((code, &error["error"]), (Some(1), &"no_session".into()), "{error}");
        let text = error["message"].as_str().unwrap();
        let directory = machine.path("frwr");
        assert!([directory.to_str().unwrap(), "--device soft", "same user"].iter().all(|part| text.contains(part)));
    }
}

/// Its requests wait for a path that may come back, and so does nobody who has it end.
#[test]
fn a_load_without_a_path_ends_when_it_is_told_to() {
    let machine = Machine::new();
    let (file, socket) = (machine.file("file"), machine.path("control"));
    let target = machine.serve(&["--namespace", &file, "--control", socket.to_str().unwrap()]);
    let host = machine.load(&["--file", &file, "--runtime", "36000"]);
    let mut ctl = Ctl::open(Path::new(env!("CARGO_BIN_EXE_frwr")), &socket).unwrap();
    let moved = |status: &Value| status["bytes_read"].as_u64() > Some(1 << 20);
    while !moved(&ctl.ask("status").unwrap()) {}
    let set = json!({ "subsystem": "nqn.2026-11.invalid.frwr:file", "state": "inaccessible" });
    ctl.ask_with("set_ana_state", &set).unwrap();
    // What was on its way then has ended, and all else waits.
    host.says("mixed load            0 IOPS");
    let (code, report) = host.stop();
    let told = report["caught"].as_str().unwrap();
    assert!(code == Some(1) && told.contains("requests had not ended 5 s after the run was told to end"), "{report}");
    passed(target.stop());
}

/// Neither its requests nor its session end in order.
#[test]
fn a_load_whose_target_stands_still_ends_when_it_is_told_to() {
    let machine = Machine::new();
    let target = machine.serve(&["--namespace", &machine.file("file")]);
    let host = machine.load(&["--runtime", "36000"]);
    host.says("mixed load");
    target.signal("STOP");
    host.says("mixed load            0 IOPS");
    let (code, report) = host.stop();
    let told = report["caught"].as_str().unwrap();
    assert!(code == Some(1) && told.contains("requests had not ended 5 s after the run was told to end"), "{report}");
    // They would have been aborted once they had taken 30 s.
    assert_eq!(report["session"]["aborts"], 0, "{report}");
    target.signal("CONT");
    passed(target.stop());
}

/// As long as a request may take, and no longer: neither what it retries nor its session's steps are waited for.
#[test]
fn a_load_that_is_over_while_its_target_stands_still_ends_in_bounded_time() {
    let machine = Machine::new();
    let target = machine.serve(&["--namespace", &machine.file("file")]);
    // One that is over before the target stands still, on a machine that is busy, has seen nothing.
    let (code, report) = [4, 8, 16]
        .map(|seconds: u32| seconds.to_string())
        .iter()
        .find_map(|runtime| {
            let host = machine.load(&["--runtime", runtime, "--io-timeout", "4"]);
            host.says("mixed load");
            target.stands_still();
            let ended = host.ended();
            target.signal("CONT");
            (ended.0 != Some(0)).then_some(ended)
        })
        .expect("no load was slow enough");
    let told = report["caught"].as_str().unwrap_or_else(|| panic!("{report}"));
    assert!(code == Some(1) && told.starts_with("requests had not ended 4 s after the load was over"), "{report}");
    assert_eq!(report["interrupted"], false, "{report}");
    passed(target.stop());
}
