//! A namespace in a file whose file system does not answer for a while.

use super::Machine;
use super::program::{Program, passed, verified};
use frwr_support::{changes::Ctl, storage_harness::hanging::HangingDisk};
use serde_json::{Value, json};
use std::{fs, path::Path, thread};

/// Of the namespace that is served at the start, and of the one whose file system hangs.
const WELL: &str = "nqn.2026-11.invalid.frwr:file";
const HANGS: &str = "nqn.2026-11.invalid.frwr:hangs";
/// Of each medium at first.
const BYTES: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// A host of a subsystem's one namespace.
fn load(machine: &Machine, subsystem: &str, more: &[&str]) -> Program {
    let bytes = BYTES.to_string();
    machine.load(&[&["--subsystem", subsystem, "--bytes", &bytes, "--idle", "sleep"][..], more].concat())
}

/// What the target says of that.
fn namespace(ctl: &mut Ctl, subsystem: &str) -> Value {
    let all = ctl.ask("namespaces").unwrap();
    let found = all["namespaces"].as_array().unwrap().iter().find(|one| one["subsystem"] == subsystem);
    found.unwrap_or_else(|| panic!("no {subsystem}: {all}")).clone()
}

/// Commands to it are answered.
fn goes_on(ctl: &mut Ctl, host: &mut Program, subsystem: &str) {
    let completed = |ctl: &mut Ctl| namespace(ctl, subsystem)["completed"].as_u64().unwrap();
    let before = completed(ctl);
    while completed(ctl) == before {
        assert!(host.runs(), "{:?}", host.last_words());
    }
}

fn a_resize_is_kept_waiting(backing: &str) {
    let machine = Machine::new();
    let (file, socket) = (machine.zeros("file", BYTES), machine.path("control"));
    let control = ["--control", socket.to_str().unwrap(), "--idle", "sleep"];
    let target = machine.serve(&[&["--namespace", &file, "--backing", backing][..], &control].concat());
    // Dropped before the target: who waits for an answer of the kernel's cannot be killed.
    let Some(disk) = HangingDisk::mount(BYTES as usize) else { return };
    let path = disk.path().display().to_string();
    let open = || Ctl::open(Path::new(env!("CARGO_BIN_EXE_frwr")), &socket).unwrap();
    let (mut ctl, mut resizing, mut behind) = (open(), open(), open());
    ctl.ask_with("add_subsystem", &json!({ "subsystem": HANGS })).unwrap();
    let added = json!({ "subsystem": HANGS, "namespace": 1, "file": path, "backing": backing });
    ctl.ask_with("add_namespace", &added).unwrap();
    let mut beside = load(&machine, WELL, &["--rw", "randread", "--runtime", "36000"]);
    let mut there = load(&machine, HANGS, &["--rw", "randrw", "--allow-overwrite", "--runtime", "36000"]);
    goes_on(&mut ctl, &mut beside, WELL);
    goes_on(&mut ctl, &mut there, HANGS);
    disk.set_length(2 * BYTES as usize);
    disk.hang();
    let resize = json!({ "subsystem": HANGS, "namespace": 1 });
    let (late, next) = thread::scope(|scope| {
        let late = scope.spawn(|| resizing.ask_with("resize_namespace", &resize));
        let mut awaited = Value::Null;
        while awaited.is_null() {
            assert!(!late.is_finished(), "it did not wait");
            awaited = ctl.ask("status").unwrap()["awaited_medium"].take();
        }
        assert!(awaited["medium"].as_str().is_some_and(|medium| medium.contains(&path)), "{awaited}");
        // It stands in line.
        let memory = json!({ "subsystem": WELL, "namespace": 2, "memory": "64K" });
        let next = scope.spawn(move || behind.ask_with("add_namespace", &memory));
        // Hosts of others are served, who comes is let in, and who asks is answered.
        goes_on(&mut ctl, &mut beside, WELL);
        passed(load(&machine, WELL, &["--rw", "randread", "--runtime", "1"]).ended());
        assert!(ctl.ask("save").unwrap().as_str().is_some_and(|text| text.contains(&path)));
        (late.join().unwrap(), next.join().unwrap())
    });
    let late = late.unwrap_err();
    for part in ["-32003", &path, "has not answered in 20 s; nothing was changed"] {
        assert!(late.contains(part), "{late}");
    }
    // Who stood behind it has had its turn, and so has the next one.
    assert_eq!(next.unwrap()["changed"], true);
    let removed = ctl.ask_with("remove_namespace", &json!({ "subsystem": WELL, "namespace": 2 })).unwrap();
    assert_eq!(removed["complete"], true, "{removed}");
    assert_eq!(namespace(&mut ctl, HANGS)["blocks"], BYTES / BLOCK);
    goes_on(&mut ctl, &mut beside, WELL);
    disk.go_on();
    goes_on(&mut ctl, &mut there, HANGS);
    let longer = ctl.ask_with("resize_namespace", &resize).unwrap();
    assert_eq!((&longer["changed"], &longer["complete"]), (&json!(true), &json!(true)), "{longer}");
    let now = namespace(&mut ctl, HANGS);
    assert_eq!((&now["blocks"], &now["failed"], &now["broken"]), (&json!(2 * BYTES / BLOCK), &json!(0), &Value::Null));
    for host in [beside, there] {
        let report = verified(host.stop());
        assert_eq!((&report["reconnects"], &report["resubmitted"]), (&json!(0), &json!(0)), "{report}");
    }
    let served = passed(target.stop());
    assert_eq!(served["left"]["queues"], 0, "{served}");
}

#[test]
fn a_resize_that_a_file_system_keeps_waiting_ends_and_nobody_else_waits() {
    a_resize_is_kept_waiting("auto");
}

#[test]
fn neither_do_others_wait_where_a_worker_thread_serves_the_file() {
    a_resize_is_kept_waiting("thread");
}

/// What lies below a path was found when it was opened, so that its file system is asked nothing when the next file comes.
#[test]
fn a_file_comes_while_the_file_system_of_another_one_hangs() {
    let machine = Machine::new();
    let (file, more, socket) = (machine.zeros("file", BYTES), machine.zeros("more", BYTES), machine.path("control"));
    let control = ["--control", socket.to_str().unwrap(), "--idle", "sleep"];
    let target = machine.serve(&[&["--namespace", &file, "--backing", "auto"][..], &control].concat());
    let Some(disk) = HangingDisk::mount(BYTES as usize) else { return };
    let mut ctl = Ctl::open(Path::new(env!("CARGO_BIN_EXE_frwr")), &socket).unwrap();
    let mut add = |number: u32, path: &Path| {
        let namespace = json!({ "subsystem": WELL, "namespace": number, "file": path, "backing": "auto" });
        ctl.ask_with("add_namespace", &namespace)
    };
    assert_eq!(add(2, &disk.path()).unwrap()["changed"], true);
    disk.hang();
    assert_eq!(add(3, Path::new(&more)).unwrap()["changed"], true);
    // Files that are served are found again by other paths all the same: those of the start, and those that came.
    for (at, served) in [&file, &more].into_iter().enumerate() {
        let link = machine.path(&format!("link{at}"));
        fs::hard_link(served, &link).unwrap();
        let refused = add(4, &link).unwrap_err();
        assert!(refused.contains("are one medium") && refused.contains(served.as_str()), "{refused}");
    }
    disk.go_on();
    // So is the one that hung.
    let refused = add(4, &disk.path()).unwrap_err();
    assert!(refused.contains("is the medium of another namespace"), "{refused}");
    passed(target.stop());
}
