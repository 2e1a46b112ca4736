//! What a target is, as a file, and files that it is made to be.

use super::{ADDRESS, Client, HOST, SUBSYSTEM, Target};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

const OTHER: &str = "nqn.2026-11.invalid.frwr:other";

fn saved(client: &mut Client) -> String {
    client.ask("save").as_str().unwrap().to_owned()
}

fn apply(client: &mut Client, text: &str) -> Result<Value, Value> {
    client.call("apply", json!({ "config": text, "name": "/etc/frwr.toml" }))
}

fn shown(client: &mut Client, text: &str) -> Vec<String> {
    let mut answer = client.call("apply", json!({ "config": text, "dry_run": true })).unwrap();
    serde_json::from_value(answer["changes"].take()).unwrap()
}

/// A file of so many bytes.
fn file(target: &Target, name: &str, bytes: u64) -> PathBuf {
    let path = target.folder.path().join(name);
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

fn namespace(nsid: u32, path: &Path) -> String {
    format!("[[subsystem.namespace]]\nnsid = {nsid}\nfile = {path:?}\n")
}

#[test]
fn a_file_is_applied_while_a_host_loads_and_what_is_the_same_is_not_touched() {
    for cores in [1, 2] {
        let target = Target::start(cores);
        let (mut client, host) = (target.client(), target.host("3600"));
        client.until("status", |status| status["bytes_read"].as_u64() > Some(0));
        let before = saved(&mut client);
        assert_eq!(apply(&mut client, &before), Ok(json!({ "changed": false, "complete": true, "changes": [] })));
        let second = file(&target, "second", 256 << 10);
        let other = format!(
            "[[subsystem]]\nnqn = \"{OTHER}\"\nallowed_hosts = [\"{HOST}\"]\nana_state = \"non_optimized\"\n\
             [[subsystem.namespace]]\nnsid = 7\nactive = false\nnguid = \"{}\"\nmemory = \"1M\"\nbytes = \"64K\"\n",
            "07".repeat(16)
        );
        let after = format!("{before}{}{other}", namespace(2, &second));
        let lines = [
            format!("+ subsystem {OTHER}"),
            format!("~ ana_state of {OTHER}: optimized -> non_optimized"),
            format!("+ namespace 2 of {SUBSYSTEM}: {}", second.display()),
            format!("+ namespace 7 of {OTHER}: memory, inactive"),
        ];
        assert_eq!(shown(&mut client, &after), lines);
        assert_eq!(saved(&mut client), before, "it was shown only");
        assert_eq!(apply(&mut client, &after), Ok(json!({ "changed": true, "complete": true, "changes": lines })));
        let told = client.ask("namespaces");
        let all: Vec<_> = told["namespaces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (&one["namespace"], &one["active"], &one["blocks"]))
            .collect();
        let blocks = told["namespaces"][0]["blocks"].clone();
        assert_eq!(
            all,
            [
                (&json!(1), &json!(true), &blocks),
                (&json!(2), &json!(true), &json!(64)),
                (&json!(7), &json!(false), &json!(16))
            ]
        );
        assert_eq!(apply(&mut client, &after).unwrap()["changed"], false);
        // What it is by now says the same as the file that it was made by.
        let again = saved(&mut client);
        assert_eq!(shown(&mut client, &again), Vec::<String>::new());
        assert!(again.contains("bytes = 65536") && again.contains(&"07".repeat(16)), "{again}");
        // The file was made longer, and the namespace follows.
        fs::OpenOptions::new().write(true).open(&second).unwrap().set_len(512 << 10).unwrap();
        let grown = format!("~ size of namespace 2 of {SUBSYSTEM}: 262144 -> 524288 bytes");
        assert_eq!(apply(&mut client, &after).unwrap()["changes"], json!([grown]));
        let lines = [
            format!("- namespace 2 of {SUBSYSTEM}: {}", second.display()),
            format!("- subsystem {OTHER}, with 1 namespaces"),
        ];
        assert_eq!(apply(&mut client, &before).unwrap()["changes"], json!(lines));
        assert_eq!(saved(&mut client), before);
        let bytes = client.ask("status")["bytes_read"].clone();
        client.until("status", |status| status["bytes_read"].as_u64() > bytes.as_u64());
        assert_eq!(host.end().unwrap().reconnects(), 0, "it was not disturbed");
        target.end();
    }
}

#[test]
fn what_cannot_be_changed_while_it_serves_is_refused_whole_with_all_reasons() {
    let target = Target::start(1);
    let mut client = target.client();
    let before = saved(&mut client);
    let second = file(&target, "second", 64 << 10);
    let with_second = format!("{before}{}", namespace(2, &second));
    for (text, code, says) in [
        (
            with_second.replace("queue_depth = 128", "queue_depth = 64"),
            -32004,
            &["queue_depth is 64, and 128", "start serve anew"][..],
        ),
        (
            with_second.replace("io_queues = 2", "io_queues = 1").replace("pages = \"plain\"", "pages = \"auto\""),
            -32004,
            &["io_queues is 1", "pages is \"auto\"", "nothing was changed"],
        ),
        (
            with_second.replace("block_size = 4096", "block_size = 512"),
            -32004,
            &["namespace 1: block_size is 512", "another nsid"],
        ),
        (
            format!("{before}{}", namespace(2, Path::new("/nonexistent/file"))),
            -32004,
            &["/nonexistent/file", "cannot be had"],
        ),
        (format!("{before}{}", namespace(100, &second)), -32004, &["nsid is 100", "spare_namespaces"]),
        (format!("{before}colour = 7\n"), -32602, &["/etc/frwr.toml:", "colour"]),
        ("device = \"soft\"\n".to_owned(), -32602, &["/etc/frwr.toml:1: missing field `listen`"]),
        (String::new(), -32602, &["/etc/frwr.toml:1: missing field `device`"]),
    ] {
        let refused = apply(&mut client, &text).unwrap_err();
        let message = refused["message"].as_str().unwrap();
        assert!(refused["code"] == code && says.iter().all(|part| message.contains(part)), "{text}: {refused}");
        assert_eq!(saved(&mut client), before);
    }
    assert_eq!(client.call("apply", json!({})).unwrap_err()["code"], -32602);
    assert_eq!(client.call("save", json!({ "file": "x" })).unwrap_err()["code"], -32602);
    target.end();
}

#[test]
fn where_a_change_fails_those_before_it_stay_and_the_file_is_applied_again_when_that_is_mended() {
    let target = Target::start(2);
    let mut client = target.client();
    let before = saved(&mut client);
    // Too short for a block: known when it is opened.
    let (second, short, fourth) =
        (file(&target, "second", 65536), file(&target, "short", 10), file(&target, "fourth", 65536));
    let after = [namespace(2, &second), namespace(3, &short), namespace(4, &fourth)].concat();
    let after = format!("{before}{after}");
    let refused = apply(&mut client, &after).unwrap_err();
    let message = refused["message"].as_str().unwrap();
    assert_eq!(refused["code"], -32005, "{refused}");
    for part in
        ["stopped at", "short", "1 changes before it were made: + namespace 2", "2 were not", "apply the file again"]
    {
        assert!(message.contains(part), "{message}");
    }
    let count = |client: &mut Client| client.ask("namespaces")["namespaces"].as_array().unwrap().len();
    assert_eq!(count(&mut client), 2);
    fs::OpenOptions::new().write(true).open(&short).unwrap().set_len(65536).unwrap();
    let made = apply(&mut client, &after).unwrap();
    assert_eq!((made["changes"].as_array().unwrap().len(), count(&mut client)), (2, 4), "{made}");
    target.end();
}

/// A file in which the subsystem of the target says this as well.
fn with(before: &str, keys: &str) -> String {
    before.replace(&format!("nqn = \"{SUBSYSTEM}\"\n"), &format!("nqn = \"{SUBSYSTEM}\"\n{keys}\n"))
}

#[test]
fn ana_groups_have_the_states_of_a_file_also_where_they_have_no_namespaces() {
    for cores in [1, 2] {
        let target = Target::start(cores);
        let mut client = target.client();
        let before = saved(&mut client);
        let second = "[[subsystem.namespace]]\nnsid = 2\nmemory = \"64K\"\nana_group = 2\n";
        let states = |text: &str| format!("{}{second}", with(&before, text));
        let group = |group: u32, from: &str, to: &str| {
            format!("~ ana_state of ANA group {group} of {SUBSYSTEM}: {from} -> {to}")
        };
        for (text, lines) in [
            (
                states("ana_states = { 2 = \"inaccessible\", 7 = \"change\" }"),
                vec![
                    group(2, "optimized", "inaccessible"),
                    group(7, "optimized", "change"),
                    format!("+ namespace 2 of {SUBSYSTEM}: memory"),
                ],
            ),
            (
                states("ana_states = { 128 = \"non_optimized\" }"),
                vec![
                    group(2, "inaccessible", "optimized"),
                    group(7, "change", "optimized"),
                    group(128, "optimized", "non_optimized"),
                ],
            ),
            (
                states("ana_state = \"inaccessible\"\nana_states = { 9 = \"non_optimized\" }"),
                vec![
                    format!("~ ana_state of {SUBSYSTEM}: optimized -> inaccessible"),
                    group(9, "inaccessible", "non_optimized"),
                ],
            ),
            (
                before.clone(),
                vec![
                    format!("~ ana_state of {SUBSYSTEM}: inaccessible -> optimized"),
                    format!("- namespace 2 of {SUBSYSTEM}: memory"),
                ],
            ),
        ] {
            assert_eq!(apply(&mut client, &text).unwrap()["changes"], json!(lines), "{text}");
            assert_eq!(shown(&mut client, &text), Vec::<String>::new(), "{text}");
            // What it says of itself is no more than that.
            let again = saved(&mut client);
            assert!(again.len() < before.len() + 200, "{again}");
            assert_eq!(shown(&mut client, &again), Vec::<String>::new(), "{again}");
        }
        let set = |group: u32| json!({ "subsystem": SUBSYSTEM, "group": group, "state": "change" });
        for changed in [true, false] {
            let answer = client.call("set_ana_state", set(9)).unwrap();
            assert_eq!(answer["changed"], changed, "a group without namespaces has a state as well");
        }
        target.end();
    }
}

#[test]
fn a_target_listens_where_a_file_says() {
    let target = Target::start(2);
    let (mut client, host) = (target.client(), target.host("3600"));
    client.until("status", |status| status["bytes_read"].as_u64() > Some(0));
    let before = saved(&mut client);
    let at = |text: &str| before.replace(&format!("\"{ADDRESS}\""), text);
    let (one, two) = ("127.0.0.2:4421", "127.0.0.3:4420");
    for (text, lines) in [
        (at(&format!("\"{ADDRESS}\", \"{one}\"")), vec![format!("+ listener {one}")]),
        (
            at(&format!("\"{two}\"")),
            vec![format!("+ listener {two}"), format!("- listener {ADDRESS}"), format!("- listener {one}")],
        ),
        // What would be in its way goes first.
        (at("\"0.0.0.0:4420\""), vec![format!("- listener {two}"), "+ listener 0.0.0.0:4420".to_owned()]),
        (before.clone(), vec!["- listener 0.0.0.0:4420".to_owned(), format!("+ listener {ADDRESS}")]),
    ] {
        assert_eq!(shown(&mut client, &text), lines, "{text}");
        assert_eq!(
            apply(&mut client, &text),
            Ok(json!({ "changed": true, "complete": true, "changes": lines })),
            "{text}"
        );
        let again = saved(&mut client);
        assert_eq!(again, text, "the file says where");
        assert_eq!(shown(&mut client, &again), Vec::<String>::new());
    }
    assert_eq!(host.end().unwrap().reconnects(), 0, "who is connected stays");
    assert!(target.host("0").thread.join().unwrap().is_ok());
    target.end();
}

#[test]
fn a_target_without_subsystems_has_no_file() {
    let target = Target::start(1);
    let mut client = target.client();
    client.call("remove_subsystem", json!({ "subsystem": SUBSYSTEM })).unwrap();
    let refused = client.call("save", json!({})).unwrap_err();
    assert!(refused["code"] == -32004 && refused["message"].as_str().unwrap().contains("add_subsystem"), "{refused}");
    target.end();
}
