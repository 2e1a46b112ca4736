//! What is changed.

use super::{Client, HOST, SUBSYSTEM, Target};
use serde_json::{Value, json};

fn changed(changed: bool) -> Result<Value, Value> {
    Ok(json!({ "changed": changed }))
}

#[test]
fn who_is_not_on_the_list_is_turned_away_until_he_is() {
    let target = Target::start(2);
    let mut client = target.client();
    let allow = |hosts: Value| json!({ "subsystem": SUBSYSTEM, "hosts": hosts });
    let other = json!(["nqn.2026-11.invalid.frwr:other"]);
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
fn what_cannot_be_is_told_with_limit_value_and_remedy_and_changes_nothing() {
    let target = Target::start(1);
    let mut client = target.client();
    let subsystems = |client: &mut Client| client.ask("subsystems")["subsystems"].take();
    let before = subsystems(&mut client);
    for (method, parameters, says) in [
        ("set_ana_state", json!({ "subsystem": "nqn.2026-11.x:y", "state": "change" }), "subsystems"),
        ("set_ana_state", json!({ "subsystem": SUBSYSTEM, "state": "best" }), "best"),
        ("set_ana_state", json!({ "subsystem": 7, "state": "change" }), "invalid type"),
        ("set_namespace_active", json!({ "subsystem": SUBSYSTEM, "namespace": 2, "active": true }), "from 1 to 1"),
        ("set_namespace_active", json!({ "subsystem": SUBSYSTEM, "namespace": -1, "active": true }), "-1"),
        ("set_allowed_hosts", json!({ "subsystem": SUBSYSTEM }), "hosts"),
        ("set_allowed_hosts", json!({ "subsystem": SUBSYSTEM, "hosts": ["x"] }), "\"x\""),
        ("set_allowed_hosts", json!({ "subsystem": SUBSYSTEM, "hosts": vec!["nqn.x"; 1025] }), "1024"),
        ("set_log_level", json!({ "level": "frwr=loud" }), "loud"),
        ("status", json!({ "all": true }), "all"),
    ] {
        let error = client.call(method, parameters).unwrap_err();
        let message = error["message"].as_str().unwrap();
        assert!(error["code"] == -32602 && message.contains(says), "{method}: {error}");
    }
    assert_eq!(subsystems(&mut client), before);
    target.end();
}
