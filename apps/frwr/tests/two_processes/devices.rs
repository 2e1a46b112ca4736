//! Several software NICs in one process, with hosts of other processes on each.

use super::Machine;
use super::program::{Program, passed, verified};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const A: &str = "127.0.0.1:4420";
const B: &str = "127.0.0.2:4420";

fn load(machine: &Machine, address: &str, more: &[&str]) -> Program {
    machine.start(&[&["load", "--connect", address], more].concat())
}

/// What `frwr ctl` is answered.
fn ctl(machine: &Machine, words: &[&str]) -> String {
    let socket = machine.path("socket");
    let mut command = Command::new(env!("CARGO_BIN_EXE_frwr"));
    let ctl = command.args(["ctl", "--control", socket.to_str().unwrap()]).args(words).output().unwrap();
    assert!(ctl.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ctl.stderr));
    String::from_utf8(ctl.stdout).unwrap()
}

fn listed(machine: &Machine, address: &str) -> Vec<String> {
    let listed = passed(machine.start(&["discover", "--connect", address]).ended());
    let at = |entry: &Value| format!("{}:{}", entry["address"].as_str().unwrap(), entry["service"].as_str().unwrap());
    listed["entries"].as_array().unwrap().iter().map(at).collect()
}

#[test]
fn hosts_of_other_processes_use_either_device_and_a_saved_file_begins_with_both() {
    let machine = Machine::new();
    let (file, socket) = (machine.file("file"), machine.path("socket").display().to_string());
    let devices = ["serve", "--device", "soft@a", "--device", "soft:window@b"];
    let listen = ["--listen", "soft@a/127.0.0.1:4420", "--listen", "soft:window@b/127.0.0.2:4420"];
    let more = ["--namespace", &file, "--control", &socket, "--idle", "sleep", "--io-queues", "2"];
    let target = machine.start(&[&devices[..], &listen, &more].concat());
    let said = target.says("listening on");
    assert!(said.contains("listening on soft@a/127.0.0.1:4420, soft:window@b/127.0.0.2:4420"), "{said}");
    for address in [A, B] {
        assert_eq!(verified(load(&machine, address, &["--file", &file, "--runtime", "0"]).ended())["reconnects"], 0);
    }
    // Both at a time, of which each finds what it has read before.
    let both =
        [A, B].map(|address| load(&machine, address, &["--rw", "randread", "--bytes", "294912", "--runtime", "1"]));
    for host in both {
        assert_eq!(passed(host.ended())["reconnects"], 0);
    }
    assert_eq!(
        (listed(&machine, A), listed(&machine, B)),
        (vec![A.to_owned(), B.to_owned()], vec![B.to_owned(), A.to_owned()])
    );
    ctl(&machine, &["add_listener", "address=soft@a/127.0.0.3:4421"]);
    let saved = machine.path("saved.toml");
    ctl(&machine, &["save", saved.to_str().unwrap()]);
    let once = fs::read_to_string(&saved).unwrap();
    let served = passed(target.stop());
    assert_eq!(served["device"], "soft:reg_mr@a, soft:window@b", "{served}");
    let at = ["soft@a/127.0.0.1:4420", "soft@a/127.0.0.3:4421", "soft:window@b/127.0.0.2:4420"];
    assert_eq!(served["listen"], json!(at), "{served}");
    let again = machine.start_exactly(&["serve", "--config", saved.to_str().unwrap(), "--json"]);
    again.says("listening on");
    for address in [A, B, "127.0.0.3:4421"] {
        verified(load(&machine, address, &["--file", &file, "--runtime", "0"]).ended());
    }
    ctl(&machine, &["save", saved.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&saved).unwrap(), once, "it is what it was");
    passed(again.stop());
    assert_eq!(machine.left(), Vec::<String>::new());
}
