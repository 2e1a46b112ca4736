//! What a load says while none of its requests ends.

use super::Machine;
use super::program::{Program, passed, verified};
use frwr_support::changes::Ctl;
use serde_json::json;
use std::path::Path;

/// Bytes of a namespace that outlives who serves it.
const DISK: u64 = 4 << 20;
const FIRST: &str = "127.0.0.1:4420";
const SECOND: &str = "127.0.0.1:4421";
/// Longer than any test: nothing that it waits for fails meanwhile.
const LONG: [&str; 8] = ["--runtime", "36000", "--reconnects", "100", "--io-timeout", "3600", "--path-timeout", "3600"];

/// A target of the file `file`, at these addresses beside the usual one, and who changes it.
fn controlled(machine: &Machine, more: &[&str]) -> (Program, Ctl) {
    let (file, socket) = (machine.file("file"), machine.path("control"));
    let control = ["--namespace", &file, "--control", socket.to_str().unwrap()];
    let target = machine.serve(&[&control, more].concat());
    (target, Ctl::open(Path::new(env!("CARGO_BIN_EXE_frwr")), &socket).unwrap())
}

fn set_ana_state(ctl: &mut Ctl, state: &str) {
    let set = json!({ "subsystem": "nqn.2026-11.invalid.frwr:file", "state": state });
    ctl.ask_with("set_ana_state", &set).unwrap();
}

#[test]
fn a_path_that_is_inaccessible_is_told_with_how_long_that_is_waited_for() {
    let machine = Machine::new();
    let (target, mut ctl) = controlled(&machine, &[]);
    let host = machine.load(&LONG);
    host.says("mixed load");
    for _ in 0..2 {
        set_ana_state(&mut ctl, "inaccessible");
        let line = host.says("requests wait");
        let expected = "connected, inaccessible: requests wait for 3600 s at most (--path-timeout), then they fail";
        assert!(line.contains(&format!("path {FIRST}: {expected}")), "{line}");
        set_ana_state(&mut ctl, "optimized");
        host.says("requests end again: none had for");
        host.says("mixed load");
    }
    verified(host.stop());
    passed(target.stop());
}

#[test]
fn the_only_path_is_waited_for_as_long_as_was_said() {
    let machine = Machine::new();
    let (target, mut ctl) = controlled(&machine, &[]);
    let host = machine.load(&["--runtime", "36000", "--path-timeout", "2"]);
    host.says("mixed load");
    set_ana_state(&mut ctl, "inaccessible");
    host.says("requests wait for 2 s at most (--path-timeout)");
    let (code, report) = host.ended();
    assert_eq!((code, &report["interrupted"]), (Some(1), &false.into()), "{report}");
    assert!(report["caught"].as_str().unwrap().contains("ANA state Inaccessible"), "{report}");
    passed(target.stop());
}

#[test]
fn several_paths_of_which_none_serves_are_told_as_one() {
    let machine = Machine::new();
    let (target, mut ctl) = controlled(&machine, &["--listen", SECOND]);
    let host = machine.load(&[&["--connect", SECOND][..], &LONG].concat());
    host.says("mixed load");
    set_ana_state(&mut ctl, "inaccessible");
    host.says("no path serves: requests wait for 3600 s at most (--path-timeout), then they fail");
    set_ana_state(&mut ctl, "optimized");
    host.says("requests end again: none had for");
    verified(host.stop());
    passed(target.stop());
}

#[test]
fn a_target_that_does_not_answer_and_one_that_is_gone_are_told() {
    let machine = Machine::new();
    let disk = machine.zeros("disk", DISK);
    let namespace = ["--namespace", &disk, "--backing", "thread"];
    let mut target = machine.serve(&namespace);
    let host = machine.load(&LONG);
    host.says("mixed load");
    target.stands_still();
    let line = host.says("no request has been answered for");
    assert!(line.contains(FIRST) && line.contains("behind 3600 s (--io-timeout)"), "{line}");
    target.signal("CONT");
    host.says("requests end again: none had for");
    host.says("mixed load");
    target.kill();
    let line = host.says("requests wait for 100 attempts that fail in a row at most (--reconnects)");
    assert!(line.contains(&format!("path {FIRST}: lost: ")), "{line}");
    let target = machine.serve(&namespace);
    host.says("requests end again: none had for");
    verified(host.stop());
    passed(target.stop());
}

/// Whoever has told it to end hears how long that takes.
#[test]
fn a_load_that_is_told_to_end_says_how_long_it_waits() {
    let machine = Machine::new();
    let (target, mut ctl) = controlled(&machine, &[]);
    let host = machine.load(&LONG);
    host.says("mixed load");
    set_ana_state(&mut ctl, "inaccessible");
    host.says("requests wait for 3600 s at most");
    host.signal("TERM");
    host.says("requests wait; the run was told to end, and waits for 5 s at most");
    let (code, report) = host.ended();
    assert_eq!((code, &report["interrupted"]), (Some(1), &true.into()), "{report}");
    passed(target.stop());
}
