//! `--trace-keys` of every program: each key in the file has one life after the other, as many as the report has keys.

mod folder;
#[allow(dead_code, reason = "peers that are stepped by hand are of other tests")]
mod latency_harness;

use clap::Parser as _;
use folder::Folder;
use frwr::report::Report as _;
use frwr::{
    CommandLine, Task,
    latency::measure,
    runner::{LoadConfig, ServeConfig, load, serve},
};
use frwr_engine::provider::{
    CommandError, Errno, Failure, FailureStatus, TokenKind,
    fault::{CommandKind, CompletionFault, CompletionFilter, Faulty},
    soft::SoftFabric,
};
use latency_harness::{Server, config, device, machine};
use serde_json::Value;
use std::{
    collections::HashMap,
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

/// The program with what it is told to do.
const JOB: &[&str] = &[env!("CARGO_BIN_EXE_frwr")];
const LATENCY: &[&str] = &[env!("CARGO_BIN_EXE_frwr"), "latency"];

fn task(half: &str, arguments: &[&str]) -> Task {
    let fixed = ["frwr", half, "--device", "test", "--pages", "plain"];
    let cores: &[&str] = if arguments.contains(&"--cores") { &[] } else { &["--cores", "unpinned"] };
    CommandLine::parse_from([&fixed[..], cores, arguments].concat()).task.unwrap()
}

fn serve_config(arguments: &[&str]) -> ServeConfig {
    let Task::Serve(arguments) = task("serve", arguments) else { panic!() };
    ServeConfig::new(arguments).unwrap()
}

fn load_config(arguments: &[&str]) -> LoadConfig {
    let Task::Load(arguments) = task("load", arguments) else { panic!() };
    LoadConfig::new(arguments).unwrap()
}

/// A trace as its reader has it.
struct Trace(Vec<Value>);

impl Trace {
    fn read(path: &str) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let end = lines.pop().expect("a last line");
        assert_eq!((&end["event"], &end["records_lost"]), (&"end".into(), &0.into()), "{end}");
        Self(lines)
    }

    fn count(&self, side: &str, event: &str) -> u64 {
        self.0.iter().filter(|line| line["side"] == side && line["event"] == event).count() as u64
    }

    /// Follows every key of a side. Returns how many lives there were.
    fn lives(&self, side: &str) -> u64 {
        let (mut alive, mut begun, mut last) = (HashMap::<(u64, String), &str>::new(), 0, HashMap::<u64, u64>::new());
        for line in self.0.iter().filter(|line| line["side"] == side) {
            let (time, reactor) = (line["time_ns"].as_u64().unwrap(), line["reactor"].as_u64().unwrap());
            assert!(last.insert(reactor, time).is_none_or(|last| last <= time), "{line}: in order");
            let Some(key) = line["key"].as_str() else { continue };
            let place = (reactor, key.to_owned());
            let stands = alive.get(&place).copied();
            let next = match (line["event"].as_str().unwrap(), stands) {
                ("registered", None) => {
                    begun += 1;
                    "registered"
                }
                ("told", Some("registered")) => "told",
                // What was registered and not told goes with its connection.
                ("killed", Some("registered" | "told" | "killed")) => "killed",
                ("dead", Some("killed")) => {
                    alive.remove(&place);
                    continue;
                }
                ("peer_key_read" | "peer_key_written" | "peer_key_killed", _) => continue,
                wrong => panic!("{line}: {wrong:?}"),
            };
            assert!(line["bytes"].as_u64().unwrap() > 0 && line["right"].is_string(), "{line}");
            if next == "killed" {
                assert!(["local_inv", "peer", "destruction"].contains(&line["by"].as_str().unwrap()), "{line}");
            }
            alive.insert(place, next);
        }
        assert_eq!(alive, HashMap::new(), "all of them ended");
        begun
    }
}

fn json(program: &[&str], arguments: &[&str]) -> Value {
    let output = Command::new(program[0]).args(&program[1..]).args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {err}{out}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn the_whole_job_has_as_many_lives_as_keys() {
    let folder = Folder::new();
    let (file, keys) = (folder.path("moved"), folder.path("keys"));
    fs::write(&file, [7; 70_000]).unwrap();
    for profile in ["soft:reg_mr", "soft:window", "soft:umr:fixed-key", "soft:rxe"] {
        for way in [&[][..], &["--no-remote-invalidate"]] {
            let fixed = [&file, "--runtime", "0", "--json", "--cores", "unpinned", "--device", profile];
            let report = json(JOB, &[&fixed[..], way, &["--trace-keys", &keys]].concat());
            assert!(report["last_failure"].is_null() && report["failures"]["posts_refused"] == 0, "{report}");
            let trace = Trace::read(&keys);
            assert_eq!(trace.lives("host"), report["registrations"].as_u64().unwrap(), "{profile} {way:?}");
            let by =
                |who: &str| trace.0.iter().filter(|line| line["event"] == "dead" && line["by"] == who).count() as u64;
            let found = [by("peer"), by("local_inv"), by("destruction")].map(Value::from);
            let expected = ["remote_invalidations", "local_invalidations", "keys_destroyed_live"];
            assert_eq!(found, expected.map(|name| report[name].clone()), "{profile} {way:?}");
            // The target opens nothing, and says what it does with the keys of its host.
            assert_eq!(trace.lives("target"), 0);
            assert_eq!(trace.count("target", "peer_key_killed"), by("peer"), "{profile} {way:?}");
            assert!(trace.count("target", "peer_key_written") > 0, "{profile}: Reads");
            assert_eq!(trace.count("host", "disconnected"), 2, "an admin queue and an I/O queue");
        }
    }
}

#[test]
fn both_halves_of_the_job_tell_what_they_do_with_keys() {
    let folder = Folder::new();
    let (file, of_target, of_host) = (folder.path("moved"), folder.path("target"), folder.path("host"));
    fs::write(&file, [7; 70_000]).unwrap();
    let served = serve_config(&["--listen", "127.0.0.1:4420", "--namespace", &file, "--trace-keys", &of_target]);
    let asked = ["--connect", "127.0.0.1:4420", "--runtime", "0", "--cores", "unpinned:2", "--trace-keys", &of_host];
    let loaded = load_config(&asked);
    let (fabric, stop) = (SoftFabric::new(), Arc::new(AtomicBool::new(false)));
    let (sender, lines) = mpsc::channel();
    let target = thread::spawn({
        let (stop, device) = (Arc::clone(&stop), device(&fabric, "window"));
        move || {
            serve(vec![device], &served, &stop, &mut |line| {
                let _ = sender.send(line.to_owned());
            })
        }
    });
    assert!(lines.iter().any(|line| line.starts_with("listening on")));
    let report = load(device(&fabric, "window"), &loaded, &AtomicBool::new(false), &mut |_| {}).unwrap();
    stop.store(true, Relaxed);
    let served = target.join().unwrap().unwrap();
    let (host, target) = (Trace::read(&of_host), Trace::read(&of_target));
    assert_eq!(host.lives("host"), report.engine.registrations, "of both cores");
    let reactors: std::collections::HashSet<_> = host.0.iter().map(|line| line["reactor"].as_u64().unwrap()).collect();
    assert_eq!(reactors.len(), 2);
    assert_eq!(target.lives("target"), 0);
    assert_eq!(target.count("target", "peer_key_killed"), served.target.remote_invalidations);
    assert!(target.count("target", "disconnected") > 0);
}

/// What the device says reaches who runs the program, number by number: in the table, in JSON, and in the trace.
#[test]
fn what_fails_is_told_with_status_vendor_code_and_errno() {
    let folder = Folder::new();
    let (file, keys) = (folder.path("moved"), folder.path("keys"));
    fs::write(&file, [7; 70_000]).unwrap();
    let (fabric, stop) = (SoftFabric::new(), Arc::new(AtomicBool::new(false)));
    let served = serve_config(&["--listen", "127.0.0.1:4420", "--namespace", &file]);
    let (sender, lines) = mpsc::channel();
    let target = thread::spawn({
        let (stop, device) = (Arc::clone(&stop), device(&fabric, "window"));
        move || {
            serve(vec![device], &served, &stop, &mut |line| {
                let _ = sender.send(line.to_owned());
            })
        }
    });
    assert!(lines.iter().any(|line| line.starts_with("listening on")));
    let (host, faults) = Faulty::new(device(&fabric, "window"));
    let no_space = CommandError::Exhausted(Errno(28));
    faults.fail_command(CommandKind::AllocateRegistration, no_space, 3);
    let refused = Failure::new(FailureStatus::RemoteAccess, 0x88);
    faults.on_completions(CompletionFilter::kind(TokenKind::Receive), CompletionFault::Fail(refused), 1);
    let loaded = load_config(&["--connect", "127.0.0.1:4420", "--runtime", "0", "--trace-keys", &keys]);
    let report = load(host, &loaded, &AtomicBool::new(false), &mut |_| {}).unwrap();
    stop.store(true, Relaxed);
    target.join().unwrap().unwrap();
    assert!(report.passed(), "{}", report.table());
    let (table, json) = (report.table(), report.json());
    assert!(table.contains("MR objects: 3 of ") && table.contains("(errno 28 ENOSPC)"), "{table}");
    let why = "a work request failed: remote access error (status 10, vendor 0x88)";
    assert!(table.contains(&format!("the last session that failed: the connection ended: {why}")), "{table}");
    assert_eq!((&json["failures"]["mrs_not_made"], &json["failures"]["mr_error"]["errno"]), (&3.into(), &28.into()));
    assert!(json["last_failure"].as_str().unwrap().ends_with(why), "{json}");
    let trace = Trace::read(&keys);
    trace.lives("host");
    let found = |wanted: &[(&str, Value)]| {
        trace.0.iter().filter(|line| wanted.iter().all(|(name, value)| line[*name] == *value)).count()
    };
    assert_eq!(found(&[("what", "allocation".into()), ("errno", 28.into())]), 3);
    let of_completion = [("status", 10.into()), ("vendor_code", 0x88.into()), ("text", why.into())];
    assert_eq!(found(&[&[("event", "disconnected".into())][..], &of_completion].concat()), 1);
}

#[test]
fn a_latency_run_in_one_process_has_a_life_for_every_request() {
    let folder = Folder::new();
    let keys = folder.path("keys");
    for (way, per_request) in [
        (&["--op", "request"][..], 1),
        (&["--op", "request", "--invalidate", "local"], 1),
        (&["--op", "register"], 1),
        (&["--op", "write"], 0),
    ] {
        let fixed = ["--json", "--iterations", "50", "--warm-up", "0", "--cores", "unpinned", "--trace-keys", &keys];
        json(LATENCY, &[&fixed[..], way].concat());
        let trace = Trace::read(&keys);
        let (client, server) = (trace.lives("client"), trace.lives("server"));
        assert!(client + server >= (50 * per_request).max(1), "{way:?}: {client} {server}");
    }
}

#[test]
fn both_halves_of_a_latency_run_tell_of_keys() {
    let folder = Folder::new();
    let (of_server, of_client) = (folder.path("server"), folder.path("client"));
    let server = Server::start("window", &["--trace-keys", &of_server]);
    for operation in ["request", "write"] {
        let asked = ["10.0.0.1", "--warm-up", "0", "--iterations", "40", "--op", operation, "--trace-keys", &of_client];
        let address = latency_harness::ADDRESS.parse().unwrap();
        let stop = AtomicBool::new(false);
        let client = device(&server.fabric, "window");
        measure(client, address, &config(&asked), &machine(), &stop, &mut |line| panic!("{line}")).unwrap();
        let lives = Trace::read(&of_client).lives("client");
        assert_eq!(lives >= 40, operation == "request", "{operation}: {lives}");
    }
    server.end();
    let trace = Trace::read(&of_server);
    // It opens memory where clients go to it by RDMA WRITE.
    assert!(trace.lives("server") >= 1);
    assert!(trace.count("server", "peer_key_written") >= 40, "and writes to that of requests");
}

#[test]
fn a_trace_that_cannot_be_written_leaves_nothing_and_says_why() {
    let folder = Folder::new();
    let (file, keys) = (folder.path("moved"), folder.path("keys"));
    fs::write(&file, [7; 70_000]).unwrap();
    let fixed = [file.as_str(), "--runtime", "0", "--cores", "unpinned"];
    let run = |limit: &str, option: &str, path: &str| {
        let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$@\"");
        let shell = ["-c", &script, "sh", JOB[0]];
        let output = Command::new("sh").args(shell).args(fixed).args([option, path]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for option in ["--trace-keys", "--trace"] {
        let (code, err) = run("unlimited", option, "/dev/full");
        assert!(code == Some(1) && err.contains(&format!("{option}: \"/dev/full\" cannot be written")), "{err}");
        let (code, err) = run("8", option, &keys);
        assert!(code == Some(1) && err.contains(&format!("{option}: ")) && err.contains("cannot be written"), "{err}");
        assert!(!fs::exists(&keys).unwrap(), "{option}: what was made for it is gone");
        fs::write(&keys, "mine").unwrap();
        assert_eq!(run("8", option, &keys).0, Some(1));
        assert_eq!(fs::read_to_string(&keys).unwrap(), "", "{option}: no part of it stays");
        fs::remove_file(&keys).unwrap();
        let (code, err) = run("unlimited", option, &file);
        assert!(code == Some(2) && err.contains(&format!("{option} is")), "{err}");
    }
    let (code, err) = run("unlimited", "--trace-keys", "/nonexistent/keys");
    assert!(code == Some(1) && err.contains("name a file in a writable folder"), "{err}");
}
