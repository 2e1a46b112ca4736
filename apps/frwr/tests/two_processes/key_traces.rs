//! Key traces of a target that serves, begun and ended by `frwr ctl` under load.

use super::Machine;
use super::program::{Program, passed, verified};
use frwr_support::changes::Ctl;
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, thread};

/// A target of two cores under load, and where it is asked.
struct Traced {
    machine: Machine,
    target: Program,
    host: Program,
}

impl Traced {
    fn new() -> Self {
        let machine = Machine::new();
        let words = Self::words(&machine);
        let target = machine.start_exactly(&words.iter().map(String::as_str).collect::<Vec<_>>());
        Self::under_load(machine, target)
    }

    fn words(machine: &Machine) -> Vec<String> {
        let (socket, file) = (machine.path("control").display().to_string(), machine.zeros("disk", 1 << 20));
        let fixed = "serve --device soft --pages plain --json --cores unpinned:2 --io-queues 4 --listen 127.0.0.1:4420";
        let more = ["--control", &socket, "--namespace", &file].map(str::to_owned);
        fixed.split(' ').map(str::to_owned).chain(more).collect()
    }

    fn under_load(machine: Machine, target: Program) -> Self {
        target.says("listening on 127.0.0.1:4420");
        let load = "load --device soft --pages plain --json --cores unpinned:2 --connect 127.0.0.1:4420 --runtime 36000 \
                    --bytes 524288 --rw randrw --block-size 16384 --rate-iops 2000 --idle sleep --allow-overwrite";
        let host = machine.start_exactly(&load.split_whitespace().collect::<Vec<_>>());
        let traced = Self { machine, target, host };
        traced.until("status", |status| status["bytes_written"].as_u64() > Some(1 << 20));
        traced
    }

    fn ctl(&self) -> Ctl {
        Ctl::open(Path::new(env!("CARGO_BIN_EXE_frwr")), &self.machine.path("control")).unwrap()
    }

    fn set(&self, file: Option<&str>) -> Result<Value, String> {
        let file = file.map(|name| self.machine.path(name).display().to_string());
        self.ctl().ask_with("set_key_trace", &json!({ "file": file }))
    }

    /// Asks until the answer is as wanted.
    fn until(&self, method: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut ctl = self.ctl();
        loop {
            let answer = ctl.ask(method).unwrap();
            if wanted(&answer) {
                return answer;
            }
        }
    }

    /// The file has so much by now.
    fn wrote(&self, bytes: u64) {
        self.until("key_trace", |trace| trace["bytes"].as_u64() > Some(bytes));
    }

    /// What is in a trace that has ended: whole lines, in the order of each core's time.
    fn read(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.machine.path(name)).unwrap();
        assert!(text.ends_with('\n'), "{name}: a record is cut");
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let end = lines.pop().unwrap();
        assert_eq!((&end["event"], end["records_lost"].is_u64()), (&json!("end"), true), "{end}");
        let mut last = [0; 2];
        for line in &lines {
            let (time, reactor) = (line["time_ns"].as_u64().unwrap(), line["reactor"].as_u64().unwrap() as usize);
            assert!(line["side"] == "target" && last[reactor] <= time, "{line}: in order");
            last[reactor] = time;
        }
        lines
    }

    /// Nobody noticed anything of it.
    fn end(self) -> (Vec<String>, Machine) {
        self.host.signal("TERM");
        verified(self.host.ended());
        self.target.signal("TERM");
        let said = self.target.last_words();
        passed(self.target.ended());
        (said, self.machine)
    }
}

#[test]
fn a_trace_is_begun_and_ended_and_begun_again_under_load() {
    let traced = Traced::new();
    assert_eq!(traced.ctl().ask("status").unwrap()["key_trace"], Value::Null);
    assert_eq!(traced.set(None).unwrap()["changed"], false, "there is none");
    let mut before = 0;
    for name in ["first", "second"] {
        let path = traced.machine.path(name).display().to_string();
        // As a person types it.
        let told = traced.ctl().change("set_key_trace", &json!({ "file": path }));
        assert!(told.is_ok_and(|told| told == json!({ "changed": true, "complete": true })));
        assert_eq!(traced.ctl().ask("status").unwrap()["key_trace"], json!(path));
        assert_eq!(traced.set(Some(name)).unwrap()["changed"], false, "it is so already");
        traced.wrote(100_000);
        assert_eq!(traced.set(None).unwrap()["changed"], true);
        let lines = traced.read(name);
        for event in ["peer_key_read", "peer_key_written"] {
            assert!(lines.iter().any(|line| line["event"] == event), "{name}: {event}");
        }
        for reactor in [0, 1] {
            assert!(lines.iter().any(|line| line["reactor"] == reactor), "{name}: {reactor}");
        }
        assert!(lines[0]["time_ns"].as_u64() >= Some(before), "times are of the same start: {}", lines[0]);
        before = lines.last().unwrap()["time_ns"].as_u64().unwrap();
        let trace = traced.ctl().ask("key_trace").unwrap();
        let bytes = fs::metadata(&path).unwrap();
        assert_eq!((&trace["file"], &trace["last"]["file"]), (&Value::Null, &json!(path)), "{trace}");
        assert_eq!(
            (&trace["last"]["bytes"], bytes.permissions().mode() & 0o777),
            (&json!(bytes.len()), 0o600),
            "{trace}"
        );
    }
    traced.end();
}

#[test]
fn of_two_clients_one_has_the_trace_and_the_other_is_told_of_it() {
    let traced = Traced::new();
    let names = ["one", "other"];
    let clients = names.map(|name| (traced.ctl(), traced.machine.path(name).display().to_string()));
    let asked =
        clients.map(|(mut ctl, path)| thread::spawn(move || ctl.ask_with("set_key_trace", &json!({ "file": path }))));
    let answers = asked.map(|asked| asked.join().unwrap());
    let has = answers.iter().position(Result::is_ok).unwrap();
    let told = answers[1 - has].as_ref().unwrap_err();
    let path = traced.machine.path(names[has]);
    assert!(told.contains("-32004") && told.contains(path.to_str().unwrap()), "{told}");
    assert!(!traced.machine.path(names[1 - has]).exists(), "it was not made");
    // It ends with the target, and is whole.
    traced.wrote(10_000);
    let file = names[has];
    let Traced { machine, host, target } = traced;
    host.signal("TERM");
    verified(host.ended());
    passed(target.stop());
    let text = fs::read_to_string(machine.path(file)).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "end");
}

#[test]
fn a_file_that_cannot_be_made_is_an_error_that_names_it() {
    let traced = Traced::new();
    fs::write(traced.machine.path("there"), "what it was").unwrap();
    for (name, reason) in [("no/folder", "No such file"), ("there", "File exists"), ("", "Is a directory")] {
        let told = traced.set(Some(name)).unwrap_err();
        let path = format!("{:?}", traced.machine.path(name).display().to_string());
        let named = told.contains("-32004") && told.contains(&path.replace('"', "\\\""));
        assert!(named && told.contains(reason) && told.contains("name one that is not there yet"), "{told}");
    }
    let told = traced.ctl().ask_with("set_key_trace", &json!({ "file": "trace" })).unwrap_err();
    assert!(told.contains("-32602") && told.contains("must begin with /"), "{told}");
    for wrong in [json!({}), json!({ "file": 1 }), json!({ "file": null, "more": 1 })] {
        let told = traced.ctl().ask_with("set_key_trace", &wrong).unwrap_err();
        assert!(told.contains("-32602"), "{told}");
    }
    assert_eq!(traced.ctl().ask("key_trace").unwrap()["file"], Value::Null);
    assert_eq!(fs::read_to_string(traced.machine.path("there")).unwrap(), "what it was");
    traced.end();
}

/// As on a disk that is full, by the limit of a process for its files.
#[test]
fn a_file_that_takes_no_more_ends_the_trace_and_nothing_else() {
    let machine = Machine::new();
    let words = Traced::words(&machine);
    // Blocks of 512 bytes or of 1024, by the shell; more than the namespace has, and than the software NIC's memory.
    let script = "trap '' XFSZ; ulimit -f 8192; exec \"$0\" \"$@\"";
    let target = machine.start_by(script, &words.iter().map(String::as_str).collect::<Vec<_>>());
    let traced = Traced::under_load(machine, target);
    assert_eq!(traced.set(Some("trace")).unwrap()["changed"], true);
    let trace = traced.until("key_trace", |trace| trace["file"].is_null());
    let failed = trace["last"]["failed"].as_str().unwrap();
    assert!(failed.contains("/trace") && failed.contains("cannot be written"), "{trace}");
    assert!(!traced.machine.path("trace").exists(), "no part of it stays");
    traced.target.says("keys are traced no longer");
    // The next one begins as the first did.
    assert_eq!(traced.set(Some("again")).unwrap()["changed"], true);
    traced.wrote(10_000);
    assert_eq!(traced.set(None).unwrap()["changed"], true);
    traced.read("again");
    traced.end();
}

/// Who named a file on the command line may end that as well.
#[test]
fn a_trace_of_the_command_line_is_ended_by_a_call() {
    let machine = Machine::new();
    let file = machine.path("keys").display().to_string();
    let words = [Traced::words(&machine), vec!["--trace-keys".to_owned(), file.clone()]].concat();
    let target = machine.start_exactly(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let traced = Traced::under_load(machine, target);
    assert_eq!(traced.ctl().ask("status").unwrap()["key_trace"], json!(file));
    traced.wrote(10_000);
    assert_eq!(traced.set(None).unwrap()["changed"], true);
    traced.read("keys");
    traced.end();
}
