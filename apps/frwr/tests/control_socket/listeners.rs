//! Where hosts connect, and how that changes.

use super::metrics::scraped;
use super::{ADDRESS, FILE_BYTES, Target, task};
use frwr::Task;
use frwr::runner::{ServeConfig, serve};
use frwr_engine::provider::soft::SoftOptions;
use serde_json::{Value, json};
use std::sync::atomic::AtomicBool;

const OTHER: &str = "127.0.0.2:4421";
const SECOND: &str = "nqn.2026-11.invalid.frwr:second";

fn changed(changed: bool) -> Result<Value, Value> {
    Ok(json!({ "changed": changed, "complete": true }))
}

#[test]
fn a_listener_comes_is_used_and_goes_and_its_host_stays() {
    let target = Target::start(2);
    let mut client = target.client();
    let of = |address: &str| json!({ "address": address });
    assert_eq!(client.call("add_listener", of(OTHER)), changed(true));
    assert_eq!(client.call("add_listener", of(OTHER)), changed(false));
    assert_eq!(client.ask("status")["listen"], json!([ADDRESS, OTHER]));
    let host = target.host_of(FILE_BYTES, "3600", &["--connect", OTHER]);
    let listeners = client.until("listeners", |answer| answer["listeners"][1]["connections"].as_u64() >= Some(2));
    assert_eq!(
        (&listeners["listeners"][0]["connections"], &listeners["listeners"][1]["port_id"]),
        (&json!(0), &json!(2))
    );
    let told = scraped(target.metrics);
    let labels = format!("{{address=\"{OTHER}\"}}");
    assert_eq!(told[&format!("frwr_listener_up{labels}")], 1.0);
    assert!(
        told[&format!("frwr_listener_connections{labels}")] >= 2.0
            && told[&format!("frwr_listener_accepted_total{labels}")] >= 2.0
    );
    assert_eq!(client.call("remove_listener", of(OTHER)), changed(true));
    assert_eq!(client.ask("status")["listen"], json!([ADDRESS]));
    let bytes = client.ask("status")["bytes_read"].as_u64();
    client.until("status", |status| status["bytes_read"].as_u64() > bytes);
    assert!(target.host_of(FILE_BYTES, "0", &["--connect", OTHER]).thread.join().unwrap().is_err());
    assert_eq!(host.end().unwrap().reconnects(), 0);
    assert!(target.host("0").thread.join().unwrap().is_ok());
    let report = frwr::report::Report::json(&target.end());
    assert_eq!(report["listen"], json!([ADDRESS]));
}

/// The second host is there and at work.
fn serves_second(hosts: &Value) -> bool {
    let serves = |host: &Value| host["host"] == SECOND && host["commands"].as_u64() > Some(100);
    hosts["hosts"].as_array().unwrap().iter().any(serves)
}

#[test]
fn who_came_by_a_listener_that_is_drained_leaves_it() {
    let target = Target::start(2);
    let mut client = target.client();
    assert_eq!(client.call("add_listener", json!({ "address": OTHER })), changed(true));
    let (stays, host) =
        (target.host("3600"), target.host_of(FILE_BYTES, "3600", &["--connect", OTHER, "--host-nqn", SECOND]));
    client.until("hosts", serves_second);
    assert_eq!(client.call("remove_listener", json!({ "address": OTHER, "drain": true })), changed(true));
    let hosts = client.ask("hosts");
    assert_eq!(hosts["hosts"].as_array().unwrap().len(), 1, "{hosts}");
    // It comes back by the listener that there is again.
    assert_eq!(client.call("add_listener", json!({ "address": OTHER })), changed(true));
    client.until("hosts", serves_second);
    assert!(host.end().unwrap().reconnects() > 0);
    assert_eq!(stays.end().unwrap().reconnects(), 0);
    target.end();
}

#[test]
fn what_cannot_be_listened_at_is_refused_by_name() {
    let target = Target::start(1);
    let mut client = target.client();
    for (method, address, code, parts) in [
        ("add_listener", "nowhere", -32602, ["address", "an IP address and a port"]),
        ("add_listener", "224.0.0.1:4420", -32602, ["address", "multicast"]),
        ("remove_listener", OTHER, -32004, ["does not listen at 127.0.0.2:4421", "nothing was changed"]),
    ] {
        let refused = client.call(method, json!({ "address": address })).unwrap_err();
        let message = refused["message"].as_str().unwrap();
        assert!(refused["code"] == code && parts.iter().all(|part| message.contains(part)), "{refused}");
    }
    // Another target of this network has the address.
    let file = target.file();
    let arguments =
        ["--listen", OTHER, "--namespace", file.to_str().unwrap(), "--control", "none", "--cores", "unpinned"];
    let Task::Serve(arguments) = task("serve", &arguments) else { panic!("not serve") };
    let (config, stop) = (ServeConfig::new(arguments).unwrap(), AtomicBool::new(false));
    let device = target.fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
    std::thread::scope(|scope| {
        let (sender, lines) = std::sync::mpsc::channel();
        let (config, stop) = (&config, &stop);
        scope.spawn(move || serve(vec![device], config, stop, &mut |line| drop(sender.send(line.to_owned()))));
        assert!(lines.iter().any(|line| line.starts_with("listening on")));
        let refused = client.call("add_listener", json!({ "address": OTHER })).unwrap_err();
        let message = refused["message"].as_str().unwrap();
        assert!(refused["code"] == -32004 && message.contains("EADDRINUSE"), "{refused}");
        assert!(message.contains("nothing was changed"), "{refused}");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(client.call("add_listener", json!({ "address": OTHER })), changed(true));
    target.end();
}
