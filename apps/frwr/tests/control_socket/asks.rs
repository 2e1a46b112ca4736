//! What is asked.

use super::{ADDRESS, HOST, SUBSYSTEM, Target};
use frwr::runner::methods;
use serde_json::{Map, Value, json};
use std::process::Command;

/// A list of an answer.
fn all<'a>(answer: &'a Value, name: &str) -> &'a Vec<Value> {
    answer[name].as_array().unwrap_or_else(|| panic!("no list {name}: {answer}"))
}

#[test]
fn a_target_tells_what_it_has_and_what_its_host_does() {
    let target = Target::start(2);
    let mut client = target.client();
    assert_eq!(client.ask("version")["program"], "frwr");
    assert_eq!(client.ask("options")["listen"], json!([ADDRESS]));
    assert_eq!(all(&client.ask("hosts"), "hosts").len(), 0);
    let host = target.host("3600");
    let hosts = client.until("hosts", |answer| {
        let hosts = answer["hosts"].as_array().unwrap();
        // The admin queue and one I/O queue at least.
        hosts.first().is_some_and(|host| host["queues"].as_u64() >= Some(2))
    });
    assert_eq!(hosts["hosts"][0]["host"], HOST);
    let moved = client.until("status", |status| status["bytes_read"].as_u64() > Some(1 << 20));
    assert_eq!(
        [&moved["state"], &moved["listening"], &moved["hosts"], &moved["subsystems"], &moved["namespaces"]],
        [&json!("serving"), &json!("listening"), &json!(1), &json!(1), &json!(1)],
        "{moved}"
    );
    let cores = client.ask("cores");
    assert_eq!(all(&cores, "cores").len(), 2);
    for core in all(&cores, "cores") {
        let polls = core["pollers"][0]["polls"].as_u64();
        assert!(core["answered"] == true && core["iterations"].as_u64() > Some(0) && polls > Some(0), "{core}");
    }
    let controllers = client.call("controllers", json!({ "host": HOST })).unwrap();
    let [controller] = &all(&controllers, "controllers")[..] else { panic!("{controllers}") };
    assert_eq!((&controller["subsystem"], &controller["ready"]), (&json!(SUBSYSTEM), &json!(true)));
    let queues = client.ask("queue_pairs");
    let admin = all(&queues, "queue_pairs").iter().find(|queue| queue["queue"] == 0).unwrap();
    assert_eq!((&admin["state"], &admin["controller"]), (&json!("queue"), &controller["controller"]), "{queues}");
    let namespaces = client.call("namespaces", json!({ "subsystem": SUBSYSTEM })).unwrap();
    let [namespace] = &all(&namespaces, "namespaces")[..] else { panic!("{namespaces}") };
    assert!(namespace["namespace"] == 1 && namespace["operations"].as_u64() > Some(0), "{namespace}");
    let others = client.call("namespaces", json!({ "subsystem": "nqn.2026-11.invalid.frwr:other" })).unwrap();
    assert_eq!(all(&others, "namespaces").len(), 0);
    assert_eq!(client.ask("devices")["devices"][0]["name"], "test");
    let listeners = client.ask("listeners");
    let [listener] = &all(&listeners, "listeners")[..] else { panic!("{listeners}") };
    assert_eq!((&listener["address"], &listener["state"]), (&json!(ADDRESS), &json!("listening")));
    assert!(listener["connections"].as_u64() >= Some(2) && listener["accepted"].as_u64() >= Some(2), "{listener}");
    assert_eq!(moved["listen"], json!([ADDRESS]));
    assert_eq!(client.ask("subsystems")["subsystems"][0]["controllers"], 1);
    assert!(client.ask("keys")["alive"].is_u64() && client.ask("waits")["now"]["buffers"].is_u64());
    assert_eq!(client.ask("incidents")["count"], 0);
    host.end().unwrap();
    client.until("hosts", |answer| answer["hosts"].as_array().unwrap().is_empty());
    assert!(client.ask("status")["silent_reactors"].as_array().unwrap().is_empty());
    target.end();
}

#[test]
fn each_method_is_described_and_answers() {
    let target = Target::start(1);
    let mut client = target.client();
    let told = client.ask("methods");
    let names: Vec<_> = all(&told, "methods").iter().map(|method| method["name"].as_str().unwrap()).collect();
    assert_eq!(names, methods().map(|method| method.name).collect::<Vec<_>>());
    for method in methods().filter(|method| !method.changes) {
        client.ask(method.name);
    }
    target.end();
}

/// Each has a heading of docs/operating.md, in the same order, which names each parameter.
#[test]
fn a_parameter_of_another_kind_is_refused_by_its_name_and_value() {
    let target = Target::start(1);
    let mut client = target.client();
    for method in methods() {
        let right = |name: &str| match name {
            "namespace" => json!(77),
            "active" => json!(true),
            "state" => json!("optimized"),
            "bytes" => json!("1M"),
            "hosts" => Value::Null,
            _ => json!(SUBSYSTEM),
        };
        for wrong in method.parameters {
            let required = method.parameters.iter().filter(|one| one.required);
            let mut all: Map<_, _> = required.map(|one| (one.name.to_owned(), right(one.name))).collect();
            all.insert(wrong.name.to_owned(), json!({ "x": 1 }));
            let error = client.call(method.name, Value::Object(all)).unwrap_err();
            let message = error["message"].as_str().unwrap();
            let said = message.contains(&format!("params: {} is {{\"x\":1}}: ", wrong.name));
            assert!(error["code"] == -32602 && said && message.contains("--list"), "{}: {error}", method.name);
        }
    }
    let call = client.call("remove_namespace", json!({ "subsystem": SUBSYSTEM, "namespace": "two" }));
    assert!(call.unwrap_err()["message"].as_str().unwrap().starts_with("params: namespace is \"two\": "));
    let long = client.call("apply", json!({ "config": "", "dry_run": "x".repeat(1 << 16) })).unwrap_err();
    assert!(long["message"].as_str().unwrap().len() < 1 << 10, "{long}");
}

#[test]
fn the_page_for_people_has_all_methods() {
    let page = include_str!("../../../../docs/operating.md");
    let sections: Vec<_> = page.split("\n### `").skip(1).collect();
    let names: Vec<_> = sections.iter().map(|section| section.split('`').next().unwrap()).collect();
    assert_eq!(names, methods().map(|method| method.name).collect::<Vec<_>>());
    for (section, method) in sections.iter().zip(methods()) {
        for parameter in method.parameters {
            assert!(section.contains(&format!("`{}`", parameter.name)), "{}: {}", method.name, parameter.name);
        }
    }
}

#[test]
fn the_program_asks_and_is_told() {
    let target = Target::start(1);
    let socket = target.socket();
    let ctl = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frwr"));
        let output = command.args(["ctl", "--control"]).arg(&socket).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, told, _) = ctl(&["status"]);
    let status: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &status["listening"]), (Some(0), &json!("listening")));
    assert_eq!(ctl(&["--json", "version"]).1.lines().count(), 1);
    let (code, _, told) = ctl(&["statsu"]);
    assert!(code == Some(2) && told.contains("no method \"statsu\"") && told.contains("(-32601)"), "{told}");
    let (code, _, told) = ctl(&["namespaces", "subsytem=x"]);
    assert!(code == Some(2) && told.contains("subsytem") && told.contains("(-32602)"), "{told}");
    let subsystem = format!("subsystem={SUBSYSTEM}");
    assert_eq!(ctl(&["set_ana_state", &subsystem, "state=non_optimized"]).0, Some(0));
    let (code, list, _) = ctl(&["--list"]);
    assert!(code == Some(0) && methods().all(|method| list.contains(method.name)));
    assert_eq!(ctl(&["stop"]).0, Some(0));
    assert!(!target.thread.join().unwrap().unwrap().served.device.is_empty(), "it ended by itself");
    let (code, _, told) = ctl(&["status"]);
    assert!(code == Some(1) && told.contains("does not answer"), "{told}");
}

#[test]
fn top_tells_the_last_interval_to_who_has_no_terminal() {
    let target = Target::start(2);
    let host = target.host("3600");
    target.client().until("status", |status| status["bytes_read"].as_u64() > Some(1 << 20));
    let socket = target.socket();
    let top = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frwr"));
        let output = command.args(["top", "--once", "--control"]).arg(&socket).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let told: Value = serde_json::from_str(&top(&["--json"])).unwrap();
    let (cores, namespace, host_row) = (all(&told, "cores"), &told["namespaces"][0], &told["hosts"][0]);
    assert_eq!(cores.len(), 2, "{told}");
    let share = |core: &Value| core["busy_share"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share));
    assert!(cores.iter().all(share), "{told}");
    assert!(cores.iter().all(|core| core["sleeps_per_second"].is_null()), "they poll on: {told}");
    assert!(cores.iter().any(|core| core["iops"].as_f64() > Some(0.0)), "{told}");
    assert!(namespace["iops"].as_f64() > Some(0.0) && namespace["mib_per_second"].as_f64() > Some(0.0), "{told}");
    let percentiles = ["p50_seconds", "p99_seconds"].map(|name| namespace[name].as_f64());
    assert!(percentiles[0].is_some() && percentiles[0] <= percentiles[1].or(Some(f64::INFINITY)), "{told}");
    assert!(namespace["errors_per_second"] == 0.0 && cores.iter().all(|core| core["stalls"].is_u64()), "{told}");
    assert!(host_row["host"] == HOST && host_row["iops"].as_f64() > Some(0.0), "{told}");
    let table = top(&[]);
    assert!(["busy", "namespace", HOST, SUBSYSTEM].iter().all(|part| table.contains(part)), "{table}");
    host.end().unwrap();
    target.end();
}

/// What a core has published was so before the next question was asked.
#[test]
fn times_of_cores_and_of_answers_count_from_one_start() {
    let target = Target::start(2);
    let mut client = target.client();
    let first = client.ask("cores");
    let next = client.ask("cores");
    for core in all(&first, "cores") {
        assert!(core["at_seconds"].as_f64().unwrap() <= next["at_seconds"].as_f64().unwrap(), "{core}: {next}");
    }
    target.end();
}

/// Where not all are alike, who looks for the one that he set finds it.
#[test]
fn an_ana_group_without_namespaces_is_told_where_it_has_a_state_of_its_own() {
    let target = Target::start(1);
    let mut client = target.client();
    let groups = |answer: Value| answer["subsystems"][0]["ana_groups"].clone();
    let usual = json!([{ "group": 1, "state": "optimized", "namespaces": 1 }]);
    assert_eq!(groups(client.ask("subsystems")), usual);
    let set = |group: Value, state: &str| json!({ "subsystem": SUBSYSTEM, "group": group, "state": state });
    client.call("set_ana_state", set(json!(7), "inaccessible")).unwrap();
    let seventh = json!({ "group": 7, "state": "inaccessible", "namespaces": 0 });
    assert_eq!(groups(client.ask("subsystems")), json!([usual[0], seventh]));
    client.call("set_ana_state", set(Value::Null, "optimized")).unwrap();
    assert_eq!(groups(client.ask("subsystems")), usual);
    target.end();
}
