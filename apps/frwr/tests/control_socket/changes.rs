//! What is changed.

use super::{Client, FILE_BYTES, HOST, SUBSYSTEM, Target};
use serde_json::{Value, json};
use std::fs::OpenOptions;

const OTHER: &str = "nqn.2026-11.invalid.frwr:other";

fn changed(changed: bool) -> Result<Value, Value> {
    Ok(json!({ "changed": changed, "complete": true }))
}

/// A file says it so, and hosts do not see it for a moment.
#[test]
fn a_namespace_is_added_that_is_not_active() {
    let target = Target::start(2);
    let mut client = target.client();
    let new = json!({ "subsystem": SUBSYSTEM, "namespace": 2, "memory": 65536, "active": false });
    assert_eq!(client.call("add_namespace", new).unwrap()["changed"], true);
    assert_eq!(client.ask("namespaces")["namespaces"][1]["active"], false);
    let config = client.ask("save");
    assert!(config.as_str().unwrap().contains("active = false"), "{config}");
    let config = config.as_str().unwrap().replace("active = false", "").replace("nsid = 2", "nsid = 3\nactive = false");
    let told = client.call("apply", json!({ "config": config })).unwrap();
    let changes = [
        "+ namespace 3 of nqn.2026-11.invalid.frwr:file: memory, inactive",
        "- namespace 2 of nqn.2026-11.invalid.frwr:file: memory",
    ];
    assert_eq!(told["changes"], json!(changes), "{told}");
    target.end();
}

#[test]
fn who_is_not_on_the_list_is_turned_away_until_he_is() {
    let target = Target::start(2);
    let mut client = target.client();
    let allow = |hosts: Value| json!({ "subsystem": SUBSYSTEM, "hosts": hosts });
    let other = json!([OTHER]);
    assert_eq!(client.call("set_allowed_hosts", allow(other.clone())), changed(true));
    assert_eq!(client.call("set_allowed_hosts", allow(other.clone())), changed(false));
    assert_eq!(client.ask("subsystems")["subsystems"][0]["allowed_hosts"], other);
    let refused = target.host("0").thread.join().unwrap().unwrap_err().to_string();
    assert!(refused.contains("host"), "{refused}");
    let told = client.until("incidents", |answer| answer["count"].as_u64() > Some(0));
    assert_eq!(told["incidents"][0]["host"], HOST, "{told}");
    assert_eq!(client.call("set_allowed_hosts", allow(json!(null))), changed(true));
    assert!(target.host("0").thread.join().unwrap().is_ok());
    target.end();
}

#[test]
fn a_namespace_that_is_taken_away_is_there_again_when_it_is_given_back() {
    let target = Target::start(1);
    let mut client = target.client();
    let set = |active: bool| json!({ "subsystem": SUBSYSTEM, "namespace": 1, "active": active });
    assert_eq!(client.call("set_namespace_active", set(false)), changed(true));
    assert_eq!(client.ask("namespaces")["namespaces"][0]["active"], false);
    assert!(target.host("0").thread.join().unwrap().is_err());
    assert_eq!(client.call("set_namespace_active", set(true)), changed(true));
    assert!(target.host("0").thread.join().unwrap().is_ok());
    target.end();
}

#[test]
fn a_host_that_is_drained_leaves_and_comes_again_when_it_may() {
    let target = Target::start(2);
    let (mut client, host) = (target.client(), target.host("3600"));
    client.until("status", |status| status["bytes_read"].as_u64() > Some(0));
    assert_eq!(client.call("resume", json!({ "host": HOST })), changed(false));
    assert_eq!(client.call("drain", json!({ "host": HOST })), changed(true));
    assert_eq!(client.call("drain", json!({ "host": HOST })), changed(false));
    assert_eq!(client.ask("hosts")["drained"], json!([{ "host": HOST, "complete": true }]));
    // To let all come again takes back what was said of all.
    assert_eq!(client.call("resume", json!({})), changed(false));
    let controllers = client.call("controllers", json!({ "host": HOST })).unwrap();
    assert!(controllers["controllers"].as_array().unwrap().is_empty(), "{controllers}");
    let bytes = client.ask("status")["bytes_read"].clone();
    assert_eq!(client.call("resume", json!({ "host": HOST })), changed(true));
    client.until("status", |status| status["bytes_read"].as_u64() > bytes.as_u64());
    assert_eq!(client.ask("hosts")["drained"], json!([]));
    // It lost nothing, and what it read was what it had been.
    assert!(host.end().unwrap().reconnects() > 0);
    target.end();
}

#[test]
fn subsystems_come_and_go_and_namespaces_go_for_good() {
    let target = Target::start(2);
    let mut client = target.client();
    let add = json!({ "subsystem": OTHER, "hosts": [HOST], "serial": "S1" });
    assert_eq!(client.call("add_subsystem", add.clone()), changed(true));
    let told = client.ask("subsystems");
    let other = &told["subsystems"][1];
    assert_eq!(
        (&other["nqn"], &other["serial"], &other["allowed_hosts"], &other["namespaces"]),
        (&json!(OTHER), &json!("S1"), &json!([HOST]), &json!(0)),
        "{told}"
    );
    let refused = client.call("add_subsystem", add).unwrap_err();
    let message = refused["message"].as_str().unwrap();
    assert!(refused["code"] == -32004 && message.ends_with("nothing was changed"), "{refused}");
    assert_eq!(client.call("remove_subsystem", json!({ "subsystem": OTHER })), changed(true));
    assert_eq!(client.ask("subsystems")["subsystems"].as_array().unwrap().len(), 1);
    let first = json!({ "subsystem": SUBSYSTEM, "namespace": 1 });
    assert_eq!(client.call("remove_namespace", first.clone()), changed(true));
    assert!(client.ask("namespaces")["namespaces"].as_array().unwrap().is_empty());
    assert_eq!(client.call("remove_namespace", first).unwrap_err()["code"], -32602);
    // What it was started with is in its report all the same.
    assert_eq!(target.end().served.namespaces.len(), 1);
}

/// A namespace that is added to the one that there is.
fn another(identifier: u32, medium: Value) -> Value {
    let mut all = json!({ "subsystem": SUBSYSTEM, "namespace": identifier });
    let medium = medium.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(medium);
    all
}

#[test]
fn a_namespace_comes_while_a_host_loads_and_is_used_on_all_cores_and_goes_again() {
    const BYTES: usize = 256 << 10;
    for cores in [1, 2] {
        let target = Target::start(cores);
        let path = target.folder.path().join("second");
        let lock = || OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        lock().set_len(BYTES as u64).unwrap();
        let (mut client, first) = (target.client(), target.host("3600"));
        client.until("status", |status| status["bytes_read"].as_u64() > Some(0));
        assert!(target.host_of(BYTES, "0", &["--nsid", "2"]).thread.join().unwrap().is_err());
        assert_eq!(client.call("add_namespace", another(2, json!({ "file": path }))), changed(true));
        assert_eq!(client.call("add_namespace", another(3, json!({ "memory": "256K" }))), changed(true));
        let loaded = json!({ "load": target.file(), "read_only": true, "nguid": "0123456789abcdef0123456789ABCDEF" });
        assert_eq!(client.call("add_namespace", another(4, loaded)), changed(true));
        let told = client.ask("namespaces");
        let of = |at: usize, key: &str| told["namespaces"][at][key].clone();
        assert_eq!((of(1, "medium"), of(1, "active")), (json!(path), json!(true)), "{told}");
        assert_eq!((of(2, "kind"), of(3, "read_only")), (json!("memory"), json!(true)), "{told}");
        for nsid in ["2", "3"] {
            let writes = ["--nsid", nsid, "--rw", "randrw", "--allow-overwrite"];
            let written = target.host_of(BYTES, "1", &writes).thread.join().unwrap();
            assert!(written.is_ok(), "{written:?}");
        }
        assert!(target.host_of(FILE_BYTES, "0", &["--nsid", "4"]).thread.join().unwrap().is_ok());
        for identifier in [2, 3] {
            let gone = json!({ "subsystem": SUBSYSTEM, "namespace": identifier });
            assert_eq!(client.call("remove_namespace", gone), changed(true));
        }
        // Its file is closed, and may be served anew, smaller.
        lock().set_len(BYTES as u64 / 2).unwrap();
        assert_eq!(client.call("add_namespace", another(2, json!({ "file": path, "direct": false }))), changed(true));
        assert_eq!(bytes_of(&mut client, 2), Some(BYTES as u64 / 2));
        assert_eq!(first.end().unwrap().reconnects(), 0, "it was not disturbed");
        target.end();
    }
}

#[test]
fn a_namespace_that_cannot_be_added_leaves_nothing() {
    let target = Target::start_with(2, &["--backing", "auto", "--spare-namespaces", "1"]);
    let mut client = target.client();
    let file = target.folder.path().join("second");
    std::fs::write(&file, [0; 8192]).unwrap();
    for (parameters, code, says) in [
        (another(2, json!({})), -32602, "exactly one of memory, load, file, device, nbd and rbd"),
        (another(2, json!({ "memory": "64M", "file": file })), -32602, "exactly one of"),
        (another(2, json!({ "memory": "64M", "direct": true })), -32602, "direct: is for file and device only"),
        (another(2, json!({ "memory": 17, "block_size": 512 })), -32602, "memory is 17"),
        (another(2, json!({ "memory": "64M", "block_size": 1000 })), -32602, "block_size is 1000"),
        (another(2, json!({ "memory": "64M", "size": 7 })), -32602, "size"),
        (another(2, json!({ "memory": "64M", "nguid": "12" })), -32602, "32 hexadecimal digits"),
        (another(2, json!({ "file": target.folder.path().join("none") })), -32004, "none"),
        (another(2, json!({ "device": file })), -32004, "second"),
        (another(2, json!({ "file": target.file() })), -32004, "served once"),
        (another(1, json!({ "file": file })), -32004, "there is a namespace 1"),
        (another(0, json!({ "file": file })), -32004, "from 1 to 2"),
        (another(3, json!({ "file": file })), -32004, "--spare-namespaces"),
    ] {
        let refused = client.call("add_namespace", parameters).unwrap_err();
        assert!(refused["code"] == code && refused["message"].as_str().unwrap().contains(says), "{refused}");
    }
    assert_eq!(client.ask("namespaces")["namespaces"].as_array().unwrap().len(), 1);
    // What was opened for nothing was closed; and the cores, which see it last, give back what they do not take.
    let usual = json!({ "file": file, "nguid": nguid_of_the_first(&target) });
    let refused = client.call("add_namespace", another(2, usual)).unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("NGUID"), "{refused}");
    assert_eq!(client.call("add_namespace", another(2, json!({ "file": file }))), changed(true));
    let refused = client.call("add_namespace", another(1, json!({ "memory": "1M" }))).unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("namespace 1"), "{refused}");
    target.end();
}

#[test]
fn namespaces_of_a_subsystem_that_is_removed_are_gone_when_that_is_complete() {
    for cores in [1, 2] {
        let target = Target::start(cores);
        let mut client = target.client();
        let file = target.folder.path().join("second");
        std::fs::write(&file, [0; 8192]).unwrap();
        let of_other = |identifier: u32, medium: Value| {
            let mut all = another(identifier, medium);
            all["subsystem"] = json!(OTHER);
            all
        };
        assert_eq!(client.call("add_subsystem", json!({ "subsystem": OTHER })), changed(true));
        assert_eq!(client.call("add_namespace", of_other(1, json!({ "file": file }))), changed(true));
        assert_eq!(client.call("add_namespace", of_other(2, json!({ "memory": "64K" }))), changed(true));
        assert_eq!(client.call("remove_subsystem", json!({ "subsystem": OTHER })), changed(true));
        // Its file is closed, and may be served elsewhere.
        assert_eq!(client.call("add_namespace", another(2, json!({ "file": file }))), changed(true));
        // The report knows it, and none of those that are gone.
        let report = target.end();
        let names: Vec<_> = report.served.namespaces.iter().map(|one| one.name.clone()).collect();
        assert_eq!((names.len(), names[1].as_str(), report.storages.len()), (2, file.to_str().unwrap(), 2));
    }
}

/// Hosts know it by this.
fn nguid_of_the_first(_: &Target) -> String {
    let name = frwr_nvmf::wire::Nqn::new(SUBSYSTEM).unwrap();
    name.identifier(1).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that the cores say a namespace has.
fn bytes_of(client: &mut Client, identifier: u32) -> Option<u64> {
    let told = client.ask("namespaces");
    let one = told["namespaces"].as_array()?.iter().find(|one| one["namespace"] == identifier)?;
    Some(one["blocks"].as_u64()? * one["block_bytes"].as_u64()?)
}

fn resized(bytes: impl Into<Value>) -> Value {
    json!({ "subsystem": SUBSYSTEM, "namespace": 1, "bytes": bytes.into() })
}

#[test]
fn a_namespace_follows_its_file_that_is_made_longer_or_cut_while_a_host_loads() {
    const SMALL: usize = 128 << 10;
    let target = Target::start_with(2, &["--backing", "auto"]);
    let file = OpenOptions::new().write(true).open(target.file()).unwrap();
    let (mut client, host) = (target.client(), target.host_of(SMALL, "3600", &[]));
    client.until("status", |status| status["bytes_read"].as_u64() > Some(0));
    file.set_len(1 << 20).unwrap();
    let all = json!({ "subsystem": SUBSYSTEM, "namespace": 1 });
    assert_eq!(client.call("resize_namespace", all.clone()), changed(true));
    assert_eq!(bytes_of(&mut client, 1), Some(1 << 20));
    assert_eq!(client.call("resize_namespace", all.clone()), changed(false));
    assert!(target.host_of(1 << 20, "0", &[]).thread.join().unwrap().is_ok(), "its new end is there on all cores");
    // First the namespace and then the file becomes shorter, by what nobody uses.
    assert_eq!(client.call("resize_namespace", resized("512K")), changed(true));
    assert_eq!(bytes_of(&mut client, 1), Some(512 << 10));
    file.set_len(512 << 10).unwrap();
    let refused = client.call("resize_namespace", resized("1M")).unwrap_err();
    let message = refused["message"].as_str().unwrap();
    assert!(["1048576", "524288", "longer"].iter().all(|part| message.contains(part)), "{refused}");
    assert_eq!(client.call("resize_namespace", all), changed(false));
    assert!(target.host_of(1 << 20, "0", &[]).thread.join().unwrap().is_err());
    let bytes = client.ask("status")["bytes_read"].clone();
    client.until("status", |status| status["bytes_read"].as_u64() > bytes.as_u64());
    assert_eq!(client.ask("status")["faults"], 0);
    assert_eq!(host.end().unwrap().reconnects(), 0, "it was not disturbed");
    target.end();
}

/// Each is planned by what the one before has left, though both were asked for at once: whether a namespace becomes smaller, and its
/// cores have to say when nothing reaches so far any more, depends on that.
#[test]
fn two_who_change_the_same_at_once_do_so_one_after_the_other() {
    let target = Target::start(2);
    let (mut one, mut other) = (target.client(), target.client());
    for round in 0..20 {
        let all = bytes_of(&mut one, 1).unwrap();
        for (client, bytes) in [(&mut one, 64 << 10), (&mut other, 128 << 10)] {
            client.ask_to("resize_namespace", resized(bytes));
        }
        for client in [&mut one, &mut other] {
            assert_eq!(client.answer(), changed(true), "round {round}");
        }
        assert_eq!(one.call("resize_namespace", resized(all)), changed(true));
    }
    target.end();
}

#[test]
fn a_namespace_in_memory_has_a_part_of_it_or_all() {
    for cores in [1, 2] {
        let target = Target::start(cores);
        let mut client = target.client();
        let all = bytes_of(&mut client, 1).unwrap();
        assert!(all >= FILE_BYTES as u64);
        assert_eq!(client.call("resize_namespace", resized(64 << 10)), changed(true));
        assert_eq!(bytes_of(&mut client, 1), Some(64 << 10));
        assert!(target.host("0").thread.join().unwrap().is_err());
        for (bytes, says) in [
            (json!(all + 4096), format!("is {}", all + 4096)),
            (json!(null), "lives in memory".to_owned()),
            (json!(1), "is 0".to_owned()),
            (json!("1 M"), "such as \"64M\"".to_owned()),
        ] {
            let refused = client.call("resize_namespace", resized(bytes)).unwrap_err();
            let message = refused["message"].as_str().unwrap();
            assert!(refused["code"] == -32602 && message.contains(&says), "{refused}");
        }
        assert_eq!(client.call("resize_namespace", resized(all)), changed(true));
        assert!(target.host("0").thread.join().unwrap().is_ok(), "what it held it holds");
        target.end();
    }
}

#[test]
fn what_cannot_be_is_told_with_limit_value_and_remedy_and_changes_nothing() {
    let target = Target::start(1);
    let mut client = target.client();
    let subsystems = |client: &mut Client| client.ask("subsystems")["subsystems"].take();
    let before = subsystems(&mut client);
    for (method, parameters, says) in [
        ("set_ana_state", json!({ "subsystem": "nqn.2026-11.x:y", "state": "change" }), "subsystems"),
        ("set_ana_state", json!({ "subsystem": SUBSYSTEM, "state": "best" }), "best"),
        ("set_ana_state", json!({ "subsystem": 7, "state": "change" }), "params: subsystem is 7: must be a string"),
        ("set_namespace_active", json!({ "subsystem": SUBSYSTEM, "namespace": 2, "active": true }), "namespace is 2"),
        (
            "set_namespace_active",
            json!({ "subsystem": SUBSYSTEM, "namespace": -1, "active": true }),
            "params: namespace is -1: must be a whole number from 0 to 4294967295",
        ),
        ("remove_namespace", json!({ "subsystem": SUBSYSTEM, "namespace": 1, "within_seconds": 21 }), "20 at most"),
        ("set_allowed_hosts", json!({ "subsystem": SUBSYSTEM }), "hosts"),
        ("set_allowed_hosts", json!({ "subsystem": SUBSYSTEM, "hosts": ["x"] }), "\"x\""),
        ("add_subsystem", json!({ "subsystem": OTHER, "serial": "" }), "serial"),
        ("drain", json!({ "host": "x" }), "\"x\""),
        ("set_log_level", json!({ "level": "frwr=loud" }), "loud"),
        ("set_log_level", json!({ "level": "loud" }), "level is \"loud\": no level has this name"),
        ("status", json!({ "all": true }), "all"),
    ] {
        let error = client.call(method, parameters).unwrap_err();
        let message = error["message"].as_str().unwrap();
        assert!(error["code"] == -32602 && message.contains(says), "{method}: {error}");
    }
    assert_eq!(subsystems(&mut client), before);
    target.end();
}

#[test]
fn an_ana_group_is_given_a_state_of_its_own() {
    let target = Target::start(2);
    let mut client = target.client();
    let set = |group: Value, state: &str| json!({ "subsystem": SUBSYSTEM, "group": group, "state": state });
    let add = json!({ "subsystem": SUBSYSTEM, "namespace": 2, "memory": "64K", "ana_group": 2 });
    assert_eq!(client.call("add_namespace", add), changed(true));
    assert_eq!(client.call("set_ana_state", set(json!(2), "inaccessible")), changed(true));
    assert_eq!(client.call("set_ana_state", set(json!(2), "inaccessible")), changed(false));
    let told = client.ask("subsystems");
    let groups = json!([
        { "group": 1, "state": "optimized", "namespaces": 1 },
        { "group": 2, "state": "inaccessible", "namespaces": 1 },
    ]);
    assert_eq!((&told["subsystems"][0]["ana_groups"], &told["subsystems"][0]["ana_state"]), (&groups, &json!(null)));
    assert_eq!(client.ask("namespaces")["namespaces"][1]["ana_group"], 2);
    assert!(target.host("0").thread.join().unwrap().is_ok(), "namespace 1 is in another group");
    assert_eq!(client.call("set_ana_state", set(json!(null), "non_optimized")), changed(true));
    assert_eq!(client.call("set_ana_state", set(json!(null), "non_optimized")), changed(false));
    assert_eq!(client.ask("subsystems")["subsystems"][0]["ana_state"], "non_optimized");
    let refused = client.call("set_ana_state", set(json!(129), "change")).unwrap_err();
    let message = refused["message"].as_str().unwrap();
    assert!(refused["code"] == -32602 && message.contains("params: group is 129: must be from 1 to 128"), "{refused}");
    target.end();
}
