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

/// What `frwr ctl` is answered, or is told instead.
fn ctl_or_not(machine: &Machine, words: &[&str]) -> Result<String, String> {
    let socket = machine.path("socket");
    let mut command = Command::new(env!("CARGO_BIN_EXE_frwr"));
    let ctl = command.args(["ctl", "--control", socket.to_str().unwrap()]).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if ctl.status.success() { Ok(text(ctl.stdout)) } else { Err(text(ctl.stderr)) }
}

fn ctl(machine: &Machine, words: &[&str]) -> String {
    ctl_or_not(machine, words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
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

#[test]
fn a_device_comes_and_goes_under_a_host_of_another_process() {
    for idle in ["spin", "sleep"] {
        let machine = Machine::new();
        let (file, socket) = (machine.file("file"), machine.path("socket").display().to_string());
        let target =
            machine.serve(&["--namespace", &file, "--control", &socket, "--idle", idle, "--backing", "thread"]);
        let verifies = ["--rw", "randread", "--bytes", "294912", "--runtime", "36000"];
        let stays = load(&machine, A, &verifies);
        // An address that another process has, at the same place.
        let other = machine.start(&["serve", "--listen", B, "--namespace", &file, "--control", "none"]);
        other.says("listening on");
        let listen = format!("listen={B}");
        let taken = ctl_or_not(&machine, &["add_device", "device=soft:window@b", &listen]).unwrap_err();
        for part in ["soft:window@b cannot listen at 127.0.0.2:4420", "nothing was changed", "ip address"] {
            assert!(taken.contains(part), "{taken}");
        }
        passed(other.stop());
        assert_eq!(listed(&machine, A), [A]);
        ctl(&machine, &["add_device", "device=soft:window@b", &listen]);
        assert_eq!(listed(&machine, B), [B, A]);
        let short = ["--rw", "randread", "--bytes", "294912", "--runtime", "1"];
        assert_eq!(passed(load(&machine, B, &short).ended())["reconnects"], 0);
        let saved = machine.path("saved.toml");
        ctl(&machine, &["save", saved.to_str().unwrap()]);
        let text = fs::read_to_string(&saved).unwrap();
        assert!(text.contains("device = [\"soft\", \"soft:window@b\"]"), "{text}");
        let goes = load(&machine, B, &[&verifies[..], &["--reconnects", "1"]].concat());
        goes.says("s ");
        ctl(&machine, &["remove_device", "device=soft:window@b"]);
        assert_ne!(goes.ended().0, Some(0), "it was told");
        assert_eq!(listed(&machine, A), [A]);
        // The file has it come again.
        ctl(&machine, &["apply", saved.to_str().unwrap()]);
        assert_eq!(passed(load(&machine, B, &short).ended())["reconnects"], 0);
        assert_eq!(passed(stays.stop())["reconnects"], 0);
        let served = passed(target.stop());
        assert_eq!(served["device"], "soft:reg_mr, soft:window@b", "{served}");
        assert_eq!(served["left"]["queues"], 0, "{served}");
        assert_eq!(machine.left(), Vec::<String>::new());
    }
}
