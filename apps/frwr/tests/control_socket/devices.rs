//! Several devices in one process: the same namespaces and hosts on each, listeners of each, and one of them fails.

use super::{Client, FILE_BYTES, Host, SUBSYSTEM};
use clap::Parser as _;
use frwr::report::Report as _;
use frwr::runner::{Devices, DiscoverConfig, LoadConfig, ServeConfig, ServeReport, discover, load, serve};
use frwr::{CommandLine, Error, Task};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftMonitor, SoftOptions};
use frwr_support::storage_harness::nbd::{Action, Export, READ, Server};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

const A: &str = "127.0.0.1:4420";
const B: &str = "127.0.0.2:4420";
const C: &str = "127.0.0.3:4421";

fn task(words: &[&str]) -> Task {
    let line = CommandLine::try_parse_from([&["frwr"], words].concat());
    line.unwrap_or_else(|error| panic!("{error}")).task.unwrap()
}

/// A target on the devices "a" and "b".
struct Two {
    fabric: SoftFabric,
    folder: tempfile::TempDir,
    monitors: [SoftMonitor; 2],
    stop: Arc<AtomicBool>,
    lines: mpsc::Receiver<String>,
    thread: JoinHandle<Result<ServeReport, Error>>,
}

fn device(fabric: &SoftFabric, profile: &str) -> SoftDevice {
    fabric.device(SoftOptions::new(profile.parse().unwrap()))
}

impl Two {
    fn start(cores: usize, also: &[&str]) -> Self {
        let (fabric, folder) = (SoftFabric::new(), tempfile::tempdir().unwrap());
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (file, socket) = (path("file"), path("socket"));
        fs::write(&file, (0..FILE_BYTES).map(|at| (at * at / 7) as u8).collect::<Vec<_>>()).unwrap();
        let (cores, a, b) = (format!("unpinned:{cores}"), format!("a/{A}"), format!("b/{B}"));
        let fixed = ["serve", "--device", "a", "--device", "b", "--listen", &a, "--listen", &b, "--namespace", &file];
        let more = ["--control", &socket, "--cores", &cores, "--io-queues", "4", "--pages", "plain"];
        let Task::Serve(arguments) = task(&[&fixed[..], &more, also].concat()) else { panic!("not serve") };
        let config = ServeConfig::new(arguments).unwrap();
        let devices = vec![device(&fabric, "reg_mr"), device(&fabric, "window")];
        let monitors = [devices[0].monitor(), devices[1].monitor()];
        let (stop, (sender, lines)) = (Arc::<AtomicBool>::default(), mpsc::channel());
        let later = fabric.clone();
        let devices = Devices::new(devices, Box::new(move |_| Ok(device(&later, "reg_mr"))));
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                serve(devices, &config, &stop, &mut |line| {
                    let _ = sender.send(line.to_owned());
                })
            }
        });
        let listening = lines.iter().find(|line| line.starts_with("listening on")).unwrap();
        assert!(listening.starts_with(&format!("listening on {a}, {b}, ")), "{listening}");
        Self { fabric, folder, monitors, stop, lines, thread }
    }

    fn client(&self) -> Client {
        Client { stream: BufReader::new(UnixStream::connect(self.folder.path().join("socket")).unwrap()) }
    }

    /// A host at an address, which verifies what it reads.
    fn host(&self, address: &str, also: &[&str]) -> Host {
        let (device, bytes) = (device(&self.fabric, "reg_mr"), FILE_BYTES.to_string());
        let fixed = ["load", "--device", "test", "--connect", address, "--cores", "unpinned", "--pages", "plain"];
        let size: &[&str] = if also.contains(&"--bytes") { &[] } else { &["--bytes", &bytes] };
        let Task::Load(arguments) = task(&[&fixed[..], size, also].concat()) else { panic!("not load") };
        let (config, stop) = (LoadConfig::new(arguments).unwrap(), Arc::<AtomicBool>::default());
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || load(device, &config, &stop, &mut |_| {})
        });
        Host { stop, thread }
    }

    /// What a host hears at an address: PORTIDs and addresses of the subsystem.
    fn listed(&self, address: &str) -> Vec<(u16, String)> {
        let words = ["discover", "--device", "test", "--connect", address];
        let Task::Discover(arguments) = task(&words) else { panic!("not discover") };
        let (config, stop) = (DiscoverConfig::new(arguments).unwrap(), AtomicBool::new(false));
        let found = discover(device(&self.fabric, "reg_mr"), &config, &stop, &mut |_| {}).unwrap();
        let at = |entry: &Value| {
            let text = |name: &str| entry[name].as_str().unwrap().to_owned();
            (entry["port"].as_u64().unwrap() as u16, format!("{}:{}", text("address"), text("service")))
        };
        frwr::runner::discovered_json(&found)["entries"].as_array().unwrap().iter().map(at).collect()
    }

    fn end(self) -> ServeReport {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Nothing was wrong, nothing of a host is left, and so many cores are told of.
    fn ends_well(self, cores: usize) {
        let report = self.end();
        assert!(report.passed(), "{}", report.table());
        assert_eq!(report.json()["left"]["queues"], 0);
        assert_eq!(report.json()["cores"].as_array().unwrap().len(), cores);
    }
}

fn done() -> Result<Value, Value> {
    Ok(json!({ "changed": true, "complete": true }))
}

fn refused(result: Result<Value, Value>, code: i64, parts: &[&str]) {
    let error = result.unwrap_err();
    let message = error["message"].as_str().unwrap();
    assert!(error["code"] == code && parts.iter().all(|part| message.contains(part)), "{error}: {parts:?}");
}

fn numbers(of: &Value, list: &str, name: &str) -> Vec<u64> {
    of[list].as_array().unwrap().iter().map(|one| one[name].as_u64().unwrap()).collect()
}

#[test]
fn each_device_serves_the_same_and_lists_the_others_addresses() {
    for cores in [1, 2] {
        let target = Two::start(cores, &[]);
        let mut client = target.client();
        let hosts = [A, B].map(|address| target.host(address, &["--runtime", "3600"]));
        let both_are_there = |hosts: &Value| hosts["hosts"][0]["controllers"].as_array().map(Vec::len) == Some(2);
        client.until("hosts", both_are_there);
        let told = client.ask("devices");
        let names: Vec<_> =
            told["devices"].as_array().unwrap().iter().map(|one| (&one["name"], &one["state"])).collect();
        assert_eq!(names, [(&json!("a"), &json!("serves")), (&json!("b"), &json!("serves"))]);
        let controllers = client.ask("controllers");
        let ids: HashSet<_> = numbers(&controllers, "controllers", "controller").into_iter().collect();
        assert_eq!(ids.len(), controllers["controllers"].as_array().unwrap().len(), "{controllers}");
        let have_queues = |answer: &Value| numbers(answer, "listeners", "connections").iter().all(|count| *count >= 2);
        let listeners = client.until("listeners", have_queues);
        assert_eq!(numbers(&listeners, "listeners", "port_id"), [1, 17]);
        for (address, first, second) in [(A, (1, A), (17, B)), (B, (17, B), (1, A))] {
            assert_eq!(target.listed(address), [first, second].map(|(port, at)| (port, at.to_owned())));
        }
        // What changes does on both.
        let new = json!({ "subsystem": SUBSYSTEM, "namespace": 2, "memory": "1M" });
        assert_eq!(client.call("add_namespace", new), done());
        for address in [A, B] {
            let guest =
                target.host(address, &["--nsid", "2", "--bytes", "1048576", "--runtime", "0", "--host-nqn", "nqn.x:g"]);
            assert!(guest.thread.join().unwrap().unwrap().verified);
        }
        let of = |state: &str| json!({ "subsystem": SUBSYSTEM, "state": state });
        assert_eq!(client.call("set_ana_state", of("non_optimized")), done());
        assert_eq!(client.call("set_ana_state", of("optimized")), done());
        let half = json!({ "subsystem": SUBSYSTEM, "namespace": 2, "bytes": "512K" });
        assert_eq!(client.call("resize_namespace", half), done());
        for address in [A, B] {
            let too_long = ["--nsid", "2", "--bytes", "1048576", "--runtime", "0", "--host-nqn", "nqn.x:g"];
            assert!(target.host(address, &too_long).thread.join().unwrap().is_err());
        }
        assert_eq!(client.call("remove_namespace", json!({ "subsystem": SUBSYSTEM, "namespace": 2 })), done());
        assert_eq!(client.call("add_subsystem", json!({ "subsystem": "nqn.x:second" })), done());
        assert_eq!(target.listed(A).len(), 4);
        assert_eq!(client.call("remove_subsystem", json!({ "subsystem": "nqn.x:second" })), done());
        assert_eq!(target.listed(B).len(), 2);
        assert_eq!(client.call("drain", json!({ "host": "nqn.x:g" })), done());
        assert_eq!(client.ask("hosts")["drained"], json!([{ "host": "nqn.x:g", "complete": true }]));
        assert_eq!(client.call("resume", json!({ "host": "nqn.x:g" })), done());
        let status = client.ask("status");
        assert_eq!(
            (&status["listen"], &status["device"]),
            (&json!([format!("a/{A}"), format!("b/{B}")]), &json!("a, b"))
        );
        let cores_told = client.ask("cores");
        let pollers: Vec<_> =
            cores_told["cores"][0]["pollers"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(pollers, ["target", "target 2"]);
        let metrics = client.ask("metrics");
        for device in ["a", "b"] {
            let line = format!("frwr_device_connections_total{{device=\"{device}\"}}");
            assert!(metrics.as_str().unwrap().contains(&line), "{metrics}");
        }
        let keys = target.folder.path().join("keys");
        assert_eq!(client.call("set_key_trace", json!({ "file": keys })), done());
        client.until("key_trace", |told| told["bytes"].as_u64() > Some(100_000));
        assert_eq!(client.call("set_key_trace", json!({ "file": null })), done());
        let told = fs::read_to_string(&keys).unwrap();
        for side in ["\"target\"", "\"target 2\""] {
            assert!(told.contains(&format!("\"side\":{side}")), "nothing of {side}");
        }
        for host in hosts {
            let report = host.end().unwrap();
            assert!(report.verified && report.reconnects() == 0, "{}", report.table());
        }
        target.ends_well(cores);
    }
}

#[test]
fn other_gateways_are_listed_behind_the_devices_of_this_one_whatever_becomes_of_these() {
    const GATEWAY: (u16, &str) = (1, "10.9.9.9:4420");
    let ids = ["--controller-ids", "1001-2000", "--first-port-id", "33", "--other-gateway", "1/10.9.9.9:4420"];
    let target = Two::start(1, &ids);
    let mut client = target.client();
    let told = |all: &[(u16, &str)]| all.iter().map(|(port, at)| (*port, (*at).to_owned())).collect::<Vec<_>>();
    assert_eq!(target.listed(A), told(&[(33, A), (49, B), GATEWAY]));
    assert_eq!(target.listed(B), told(&[(49, B), (33, A), GATEWAY]));
    let hosts = [A, B].map(|address| target.host(address, &["--runtime", "3600"]));
    let both_are_there = |hosts: &Value| hosts["hosts"][0]["controllers"].as_array().map(Vec::len) == Some(2);
    client.until("hosts", both_are_there);
    let controllers = numbers(&client.ask("controllers"), "controllers", "controller");
    assert!(controllers.iter().all(|id| (1001..=2000).contains(id)), "{controllers:?}");
    hosts_read_all(&mut client);
    assert_eq!(client.call("add_listener", json!({ "address": format!("b/{C}") })), done());
    assert_eq!(target.listed(A), told(&[(33, A), (49, B), (50, C), GATEWAY]));
    // It is saved as it was asked for, and of the start alone.
    let saved = client.ask("save").as_str().unwrap().to_owned();
    let own = ["controller_ids = \"1001-2000\"", "first_port_id = 33", "other_gateway = [\"1/10.9.9.9:4420\"]"];
    assert!(own.iter().all(|part| saved.contains(part)), "{saved}");
    let wider = saved.replace("1001-2000", "1001-3000");
    let refusal = client.call("apply", json!({ "config": wider, "dry_run": true }));
    refused(refusal, -32004, &["controller_ids is \"1001-3000\"", "\"1001-2000\"", "start serve anew"]);
    for host in hosts {
        assert!(host.end().unwrap().verified);
    }
    assert!(target.end().passed());
}

#[test]
fn listeners_of_each_device_come_and_go_and_are_saved_with_it() {
    let target = Two::start(1, &[]);
    let (mut client, host) = (target.client(), target.host(B, &["--runtime", "3600"]));
    let of = |address: &str| json!({ "address": address });
    refused(
        client.call("add_listener", of(C)),
        -32602,
        &["there are several devices", "DEVICE/127.0.0.3:4421", "a, b"],
    );
    refused(client.call("add_listener", of(&format!("c/{C}"))), -32602, &["no --device is of that name", "a, b"]);
    refused(client.call("add_listener", of(&format!("a/{B}"))), -32004, &["b listens at", "nothing was changed"]);
    refused(client.call("remove_listener", of(&format!("a/{B}"))), -32004, &["does not listen at a/127.0.0.2:4420"]);
    assert_eq!(client.call("add_listener", of(&format!("b/{C}"))), done());
    // Both tell of it when that was answered.
    assert_eq!(target.listed(A), [(1, A), (17, B), (18, C)].map(|(port, at)| (port, at.to_owned())));
    assert_eq!(target.listed(C), [(17, B), (18, C), (1, A)].map(|(port, at)| (port, at.to_owned())));
    assert!(target.host(C, &["--runtime", "0"]).thread.join().unwrap().unwrap().verified);
    let before = client.ask("save").as_str().unwrap().to_owned();
    for part in ["device = [\"a\", \"b\"]", &format!("\"a/{A}\", \"b/{B}\", \"b/{C}\"")] {
        assert!(before.contains(part), "{before}");
    }
    let apply = |client: &mut Client, text: &str, dry_run: bool| {
        client.call("apply", json!({ "config": text, "dry_run": dry_run }))
    };
    assert_eq!(apply(&mut client, &before, true), Ok(json!({ "changes": [] })));
    // An address moves from one device to the other.
    let moved = before.replace(&format!("b/{C}"), &format!("a/{C}"));
    let lines = [format!("- listener b/{C}"), format!("+ listener a/{C}")];
    assert_eq!(apply(&mut client, &moved, true), Ok(json!({ "changes": lines })));
    assert_eq!(apply(&mut client, &moved, false), Ok(json!({ "changed": true, "complete": true, "changes": lines })));
    assert_eq!(target.listed(B), [(17, B), (1, A), (2, C)].map(|(port, at)| (port, at.to_owned())));
    // A listener is of a device that there is in the file.
    let alone = before.replace("[\"a\", \"b\"]", "\"a\"");
    refused(apply(&mut client, &alone, true), -32602, &["no --device is of that name"]);
    let third = before.replace("\"b\"]", "\"b\", \"soft@c\"]");
    let third = third.replace(&format!("\"b/{C}\""), &format!("\"soft@c/{C}\""));
    refused(apply(&mut client, &third, true), -32602, &["soft@c", "are not served together"]);
    // An address is of one device, which need not be named.
    assert_eq!(client.call("remove_listener", of(A)), done());
    assert_eq!(client.call("remove_listener", of(C)), done());
    assert_eq!(target.listed(B), [(17, B.to_owned())]);
    refused(client.call("save", json!({})), -32004, &["listens nowhere on a", "add_listener"]);
    let report = host.end().unwrap();
    assert!(report.verified && report.reconnects() == 0);
    assert!(target.end().passed());
}

#[test]
fn a_device_that_is_gone_takes_its_hosts_with_it_and_the_others_go_on() {
    for cores in [1, 2] {
        let target = Two::start(cores, &[]);
        let mut client = target.client();
        let stays = target.host(A, &["--runtime", "3600", "--host-nqn", "nqn.x:stays"]);
        let goes = target.host(B, &["--runtime", "3600", "--host-nqn", "nqn.x:goes", "--reconnects", "1"]);
        let hosts = |count: usize| move |answer: &Value| answer["hosts"].as_array().map(Vec::len) == Some(count);
        client.until("hosts", hosts(2));
        target.monitors[1].remove_device();
        assert!(target.lines.iter().any(|line| line.contains("is gone") && line.contains("the other devices go on")));
        client.until("hosts", hosts(1));
        let told = client.ask("devices");
        assert_eq!((&told["devices"][0]["state"], &told["devices"][1]["state"]), (&json!("serves"), &json!("gone")));
        // By an error, or by a report that says how far it came.
        assert!(!goes.thread.join().unwrap().is_ok_and(|report| report.passed()));
        // What is told by the other device leads nowhere else.
        while target.listed(A) != [(1, A.to_owned())] {}
        // Changes go on, on what is left of both.
        let new = json!({ "subsystem": SUBSYSTEM, "namespace": 2, "memory": "1M" });
        assert_eq!(client.call("add_namespace", new), done());
        assert_eq!(client.call("remove_namespace", json!({ "subsystem": SUBSYSTEM, "namespace": 2 })), done());
        assert_eq!(client.call("remove_listener", json!({ "address": B })), done());
        let bytes = client.ask("status")["bytes_read"].as_u64();
        client.until("status", |status| status["bytes_read"].as_u64() > bytes);
        let report = stays.end().unwrap();
        assert!(report.verified && report.reconnects() == 0, "{}", report.table());
        if cores == 1 {
            assert!(target.end().passed());
        } else {
            // Without any device there is nothing to go on with.
            target.monitors[0].remove_device();
            assert_eq!(target.thread.join().unwrap().unwrap_err().name(), "device_gone");
        }
    }
}

#[test]
fn as_many_devices_are_opened_as_are_named() {
    let fabric = SoftFabric::new();
    let words =
        ["serve", "--device", "a", "--device", "b", "--listen", &format!("a/{A}"), "--listen", &format!("b/{B}")];
    let more = ["--namespace", "/etc/hostname", "--control", "none"];
    let Task::Serve(arguments) = task(&[&words[..], &more].concat()) else { panic!("not serve") };
    let config = ServeConfig::new(arguments).unwrap();
    let devices = vec![device(&fabric, "reg_mr")];
    let error = serve(devices, &config, &AtomicBool::new(false), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("1 devices are open, and --device names 2"), "{error}");
}

fn names(client: &mut Client) -> Vec<String> {
    let told = client.ask("devices");
    let all = told["devices"].as_array().unwrap().iter();
    all.map(|one| format!("{} {}", one["name"].as_str().unwrap(), one["state"].as_str().unwrap())).collect()
}

fn pollers(client: &mut Client) -> Vec<Value> {
    client.ask("cores")["cores"][0]["pollers"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect()
}

fn reads_on(client: &mut Client) {
    let bytes = client.ask("status")["bytes_read"].as_u64();
    client.until("status", |status| status["bytes_read"].as_u64() > bytes);
}

/// Each host has read the file as often as it takes to verify it.
fn hosts_read_all(client: &mut Client) {
    let all =
        |queues: &Value| numbers(queues, "queue_pairs", "commands").iter().filter(|count| **count > 1000).count() >= 2;
    client.until("queue_pairs", all);
}

fn at(device: &str, listen: &str) -> Value {
    json!({ "device": device, "listen": listen })
}

fn entries(all: &[(u16, &str)]) -> Vec<(u16, String)> {
    all.iter().map(|(port, at)| (*port, (*at).to_owned())).collect()
}

const GUEST: [&str; 6] = ["--nsid", "2", "--runtime", "0", "--host-nqn", "nqn.x:g"];

#[test]
fn a_device_that_comes_serves_what_there_is_by_then_and_its_hosts_alone_are_told_when_it_goes() {
    for (cores, idle) in [(1, "spin"), (2, "sleep")] {
        let target = Two::start(cores, &["--idle", idle]);
        let (mut client, stays) =
            (target.client(), target.host(A, &["--runtime", "3600", "--host-nqn", "nqn.x:stays"]));
        client.until("hosts", |hosts| hosts["hosts"].as_array().map(Vec::len) == Some(1));
        // What has come since the start is served by it, too.
        let new = json!({ "subsystem": SUBSYSTEM, "namespace": 2, "memory": "1M" });
        assert_eq!(client.call("add_namespace", new), done());
        assert_eq!(client.call("add_subsystem", json!({ "subsystem": "nqn.x:second" })), done());
        assert_eq!(client.call("add_device", at("c", C)), done());
        assert_eq!(names(&mut client), ["a serves", "b serves", "c serves"]);
        client.until("cores", |told| {
            let pollers = told["cores"][0]["pollers"].as_array().unwrap();
            pollers.iter().map(|one| &one["name"]).eq(["target", "target 2", "target 3"])
        });
        assert_eq!(client.call("remove_subsystem", json!({ "subsystem": "nqn.x:second" })), done());
        assert_eq!(target.listed(A), entries(&[(1, A), (17, B), (33, C)]));
        assert_eq!(target.listed(C), entries(&[(33, C), (1, A), (17, B)]));
        assert!(target.host(C, &["--runtime", "0"]).thread.join().unwrap().unwrap().verified);
        let guest =
            |address, bytes| target.host(address, &[&GUEST[..], &["--bytes", bytes]].concat()).thread.join().unwrap();
        assert!(guest(C, "1048576").unwrap().verified);
        // What is changed from now on is changed there as well.
        let half = json!({ "subsystem": SUBSYSTEM, "namespace": 2, "bytes": "512K" });
        assert_eq!(client.call("resize_namespace", half), done());
        assert!(guest(C, "1048576").is_err() && guest(C, "524288").unwrap().verified);
        assert_eq!(client.call("remove_namespace", json!({ "subsystem": SUBSYSTEM, "namespace": 2 })), done());
        let status = client.ask("status");
        assert_eq!((&status["device"], &status["listen"][2]), (&json!("a, b, c"), &json!(format!("c/{C}"))));
        assert!(client.ask("metrics").as_str().unwrap().contains("frwr_device_connections_total{device=\"c\"}"));
        let goes = target.host(C, &["--runtime", "3600", "--host-nqn", "nqn.x:goes", "--reconnects", "1"]);
        client.until("hosts", |hosts| hosts["hosts"].as_array().map(Vec::len) == Some(2));
        assert_eq!(client.call("remove_device", json!({ "device": "c" })), done());
        assert!(!goes.thread.join().unwrap().is_ok_and(|report| report.passed()), "it was told");
        assert_eq!(names(&mut client), ["a serves", "b serves"]);
        assert_eq!(target.listed(B), entries(&[(17, B), (1, A)]));
        reads_on(&mut client);
        // Another one has its place later than all others.
        assert_eq!(client.call("add_device", at("d", C)), done());
        assert_eq!(target.listed(C), entries(&[(49, C), (1, A), (17, B)]));
        assert!(target.host(C, &["--runtime", "0"]).thread.join().unwrap().unwrap().verified);
        let report = stays.end().unwrap();
        assert!(report.verified && report.reconnects() == 0, "{}", report.table());
        target.ends_well(cores);
    }
}

#[test]
fn devices_of_the_start_go_as_others_do_but_for_the_last_one() {
    for cores in [1, 2] {
        let target = Two::start(cores, &[]);
        let (mut client, stays) =
            (target.client(), target.host(B, &["--runtime", "3600", "--host-nqn", "nqn.x:stays"]));
        let goes = target.host(A, &["--runtime", "3600", "--host-nqn", "nqn.x:goes", "--reconnects", "1"]);
        client.until("hosts", |hosts| hosts["hosts"].as_array().map(Vec::len) == Some(2));
        assert_eq!(client.call("remove_device", json!({ "device": "a" })), done());
        assert!(!goes.thread.join().unwrap().is_ok_and(|report| report.passed()));
        assert_eq!((names(&mut client), pollers(&mut client)), (vec!["b serves".to_owned()], vec![json!("target 2")]));
        let last = json!({ "device": "b" });
        refused(
            client.call("remove_device", last.clone()),
            -32004,
            &["no other device serves than b", "add_device", "stop"],
        );
        // Its addresses say no more which device they are of.
        assert_eq!(client.ask("status")["listen"], json!([B]));
        let new = json!({ "subsystem": SUBSYSTEM, "namespace": 2, "memory": "1M" });
        assert_eq!(client.call("add_namespace", new), done());
        assert_eq!(client.call("add_device", at("c", A)), done());
        assert!(target.host(A, &["--runtime", "0"]).thread.join().unwrap().unwrap().verified);
        let guest = target.host(A, &[&GUEST[..], &["--bytes", "1048576"]].concat());
        assert!(guest.thread.join().unwrap().unwrap().verified);
        reads_on(&mut client);
        let report = stays.end().unwrap();
        assert!(report.verified && report.reconnects() == 0, "{}", report.table());
        // What nobody uses goes at once, so that the first one has its place again some time.
        for device in ["b", "d", "e", "f", "g", "h"] {
            let listen = if device == "b" { None } else { Some(B) };
            let added = listen.map_or_else(done, |listen| client.call("add_device", at(device, listen)));
            assert_eq!(
                (added, client.call("remove_device", json!({ "device": device }))),
                (done(), done()),
                "{device}"
            );
        }
        assert_eq!(client.call("add_device", at("i", B)), done());
        assert_eq!(target.listed(B).first(), Some(&(1, B.to_owned())));
        assert_eq!(pollers(&mut client).len(), 2);
        assert!(target.host(B, &["--runtime", "0"]).thread.join().unwrap().unwrap().verified);
        assert!(target.end().passed());
    }
}

/// What is counted of all devices: each series but those of one device, poller, listener, controller or queue.
fn counted(metrics: &Value) -> HashMap<String, f64> {
    let is_sum = |line: &&str| {
        let name = line.split(['{', ' ']).next().unwrap();
        let counts = ["_total", "_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end));
        let of_one = ["frwr_device_", "frwr_poller_", "frwr_listener_", "frwr_controller_", "frwr_queue_"];
        counts && !of_one.iter().any(|begin| name.starts_with(begin))
    };
    let series = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    metrics.as_str().unwrap().lines().filter(is_sum).map(series).collect()
}

#[test]
fn what_is_counted_of_all_devices_never_goes_down_when_one_goes() {
    for (cores, idle) in [(1, "spin"), (2, "sleep")] {
        let target = Two::start(cores, &["--idle", idle]);
        let (mut client, over) = (target.client(), Arc::<AtomicBool>::default());
        let second = json!({ "subsystem": SUBSYSTEM, "namespace": 2, "memory": "1M" });
        assert_eq!(client.call("add_namespace", second.clone()), done());
        let watch = thread::spawn({
            let (mut client, over) = (target.client(), Arc::clone(&over));
            move || {
                let mut last = HashMap::<String, f64>::new();
                loop {
                    let is_last = over.load(Relaxed);
                    let now = counted(&client.ask("metrics"));
                    for (series, before) in &last {
                        assert!(now.get(series) >= Some(before), "{series}: {before}, then {:?}", now.get(series));
                    }
                    last = now;
                    if is_last {
                        return last;
                    }
                }
            }
        });
        let stays = target.host(A, &["--runtime", "3600", "--host-nqn", "nqn.x:stays"]);
        for device in ["b", "c", "d"] {
            if device != "b" {
                assert_eq!(client.call("add_device", at(device, B)), done());
            }
            let guest = target.host(B, &[&GUEST[..], &["--bytes", "1048576"]].concat());
            assert!(guest.thread.join().unwrap().unwrap().verified);
            let goes = target.host(B, &["--runtime", "3600", "--host-nqn", "nqn.x:goes", "--reconnects", "1"]);
            client.until("hosts", |hosts| {
                let all = hosts["hosts"].as_array().unwrap();
                all.iter().any(|one| one["host"] == "nqn.x:goes" && one["commands"].as_u64() > Some(100))
            });
            assert_eq!(client.call("remove_device", json!({ "device": device })), done());
            assert!(!goes.thread.join().unwrap().is_ok_and(|report| report.passed()));
        }
        assert!(stays.end().unwrap().verified);
        over.store(true, Relaxed);
        let last = watch.join().unwrap();
        let bytes = |status: &Value| status["bytes_read"].as_u64().unwrap() as f64;
        assert_eq!(bytes(&client.ask("status")), last["frwr_io_bytes_total{command=\"read\"}"]);
        // What is gone from the target is forgotten.
        let operations = |client: &mut Client| client.ask("namespaces")["namespaces"][1]["operations"].clone();
        assert!(operations(&mut client).as_u64() > Some(0), "no device that is left has had any");
        assert_eq!(client.call("remove_namespace", json!({ "subsystem": SUBSYSTEM, "namespace": 2 })), done());
        assert_eq!(client.call("add_namespace", second), done());
        assert_eq!(operations(&mut client), 0);
        let report = target.end();
        assert!(report.passed() && bytes(&report.json()) == last["frwr_io_bytes_total{command=\"read\"}"]);
    }
}

/// An export of a server of the test's, as namespace 2.
fn export(server: &Server, write_through: bool) -> Value {
    let uri = server.options().write_through(write_through).uri();
    json!({ "subsystem": SUBSYSTEM, "namespace": 2, "nbd": uri })
}

#[test]
fn one_more_device_serves_an_export_whose_server_has_nothing_to_flush() {
    let (server, target) = (Server::new(Export::new(256)), Two::start(2, &[]));
    let (mut client, second) = (target.client(), json!({ "subsystem": SUBSYSTEM, "namespace": 2 }));
    let bytes = server.disk().len().to_string();
    let guest =
        |address| target.host(address, &[&GUEST[..], &["--bytes", &bytes]].concat()).thread.join().unwrap().unwrap();
    assert_eq!(client.call("add_namespace", export(&server, false)), done());
    let remedies = &["namespace 2", "add it again", "x-write-through=1"];
    refused(client.call("add_device", at("c", C)), -32004, remedies);
    assert_eq!(client.call("remove_namespace", second.clone()), done());
    assert_eq!(client.call("add_namespace", export(&server, true)), done());
    assert!(guest(A).verified);
    assert_eq!(client.call("add_device", at("c", C)), done());
    assert!(guest(C).verified && guest(A).verified);
    assert_eq!(client.ask("namespaces")["namespaces"][1]["fault"], Value::Null);
    assert_eq!(client.call("remove_device", json!({ "device": "c" })), done());
    assert!(guest(A).verified);
    assert!(target.end().passed());
}

#[test]
fn what_holds_up_the_end_of_a_device_is_told_and_the_same_call_waits_for_it() {
    let (server, target) = (Server::new(Export::new(256)), Two::start(1, &[]));
    let ((has_it, held), (go, waits)) = (mpsc::channel(), mpsc::channel::<()>());
    server.script(move |seen| {
        if seen.command == READ {
            // Of what comes once the test has seen enough nobody hears.
            let _ = has_it.send(());
            let _ = waits.recv();
        }
        Action::Do
    });
    let mut client = target.client();
    assert_eq!(client.call("add_namespace", export(&server, false)), done());
    let third = json!({ "subsystem": SUBSYSTEM, "namespace": 3, "memory": "1M" });
    assert_eq!(client.call("add_namespace", third.clone()), done());
    let guest = target.host(B, &["--nsid", "3", "--bytes", "1048576", "--runtime", "0"]);
    assert!(guest.thread.join().unwrap().unwrap().verified);
    let bytes = server.disk().len().to_string();
    let goes = target.host(B, &["--nsid", "2", "--bytes", &bytes, "--runtime", "3600", "--reconnects", "1"]);
    held.recv().unwrap();
    let remove = json!({ "device": "b", "within_seconds": 0 });
    let told = client.call("remove_device", remove.clone()).unwrap();
    assert_eq!((&told["changed"], &told["complete"]), (&json!(true), &json!(false)), "{told}");
    let by = told["held_up_by"][0].as_str().unwrap_or_else(|| panic!("{told}"));
    assert!(by.starts_with("reactor 0: ") && by.contains(" commands") && !by.contains(" 0 commands"), "{told}");
    // Others go on, and so do changes.
    assert_eq!(names(&mut client), ["a serves", "b leaves"]);
    assert!(target.host(A, &["--runtime", "0"]).thread.join().unwrap().unwrap().verified);
    let operations = |client: &mut Client| client.ask("namespaces")["namespaces"][2]["operations"].as_u64();
    assert!(operations(&mut client) > Some(0), "by the device that leaves");
    assert_eq!(client.call("remove_namespace", json!({ "subsystem": SUBSYSTEM, "namespace": 3 })), done());
    assert_eq!(client.call("add_namespace", third), done());
    refused(client.call("add_device", at("c", C)), -32004, &["b has not left yet", "remove_device"]);
    let again = client.call("remove_device", remove.clone()).unwrap();
    assert_eq!(again["complete"], false, "{again}");
    drop(go);
    // It may have left before this call comes, which names what there is then.
    while names(&mut client) != ["a serves"] {
        match client.call("remove_device", remove.clone()) {
            Ok(told) => assert_eq!(told["changed"], true, "{told}"),
            gone => refused(gone, -32602, &["does not serve on it"]),
        }
    }
    assert!(!goes.thread.join().unwrap().is_ok_and(|report| report.passed()));
    assert_eq!(
        operations(&mut client),
        Some(0),
        "what a namespace had is forgotten with it, also where a device says it later"
    );
    target.end();
}

#[test]
fn a_device_that_cannot_come_or_go_is_refused_with_a_remedy_and_changes_nothing() {
    let target = Two::start(1, &["--controller-ids", "1001-1108"]);
    let mut client = target.client();
    let before = client.ask("listeners")["listeners"].clone();
    for (device, listen, code, parts) in [
        ("a", json!(C), -32004, &["serves on a already", "add_listener", "nothing was changed"][..]),
        ("soft@c", json!(C), -32602, &["soft@c", "software NICs and RDMA devices are not served together"]),
        ("soft@c d", json!(C), -32602, &["behind @ must be a name"]),
        ("c", json!([]), -32602, &["listen has 0 addresses", "1 to 16"]),
        ("c", json!([C, C]), -32602, &["127.0.0.3:4421 twice", "name it once"]),
        ("c", json!("127.0.0.1"), -32602, &["address"]),
        ("c", json!(format!("b/{C}")), -32602, &["b is another device", "leave it out"]),
        ("c", json!(A), -32004, &["a listens at 127.0.0.1:4420, and c shall", "remove it there first"]),
    ] {
        refused(client.call("add_device", json!({ "device": device, "listen": listen })), code, parts);
    }
    refused(client.call("remove_device", json!({ "device": "c" })), -32602, &["does not serve on it", "a, b"]);
    let keys = target.folder.path().join("keys");
    assert_eq!(client.call("set_key_trace", json!({ "file": keys })), done());
    let traced = &["keys are traced", "set_key_trace file=null", "nothing was changed"];
    refused(client.call("add_device", at("c", C)), -32004, traced);
    refused(client.call("remove_device", json!({ "device": "b" })), -32004, traced);
    assert_eq!(client.call("set_key_trace", json!({ "file": null })), done());
    assert_eq!(client.ask("listeners")["listeners"], before);
    // As many as there are identifiers for.
    assert_eq!(client.call("add_device", at("c", C)), done());
    let fourth = client.call("add_device", at("d", "127.0.0.4:4420"));
    refused(fourth, -32004, &["there are 3 devices, and may be 3", "1001-1108", "remove_device"]);
    assert!(target.end().passed());
}

#[test]
fn a_file_says_which_devices_there_are() {
    let target = Two::start(1, &[]);
    let (mut client, stays) = (target.client(), target.host(A, &["--runtime", "3600"]));
    let before = client.ask("save").as_str().unwrap().to_owned();
    let apply = |client: &mut Client, text: &str, dry_run: bool| {
        client.call("apply", json!({ "config": text, "dry_run": dry_run }))
    };
    // One comes with an address of another one, which goes.
    let other = before.replace("\"b\"]", "\"c\"]").replace(&format!("\"b/{B}\""), &format!("\"c/{B}\", \"a/{C}\""));
    let lines = ["- device b".to_owned(), format!("+ device c, at {B}"), format!("+ listener a/{C}")];
    assert_eq!(apply(&mut client, &other, true), Ok(json!({ "changes": lines })));
    assert_eq!(apply(&mut client, &other, false), Ok(json!({ "changed": true, "complete": true, "changes": lines })));
    assert_eq!(target.listed(A), entries(&[(1, A), (2, C), (33, B)]));
    let saved = client.ask("save").as_str().unwrap().to_owned();
    assert!(saved.contains("device = [\"a\", \"c\"]"), "{saved}");
    assert_eq!(apply(&mut client, &saved, true), Ok(json!({ "changes": [] })));
    // The last one that goes, goes last.
    let alone = saved.replace("[\"a\", \"c\"]", "\"a\"").replace(&format!(", \"c/{B}\""), "");
    let lines = ["- device c"];
    assert_eq!(apply(&mut client, &alone, false), Ok(json!({ "changed": true, "complete": true, "changes": lines })));
    assert_eq!(apply(&mut client, &alone, true), Ok(json!({ "changes": [] })));
    let report = stays.end().unwrap();
    assert!(report.verified && report.reconnects() == 0, "{}", report.table());
    assert!(target.end().passed());
}
