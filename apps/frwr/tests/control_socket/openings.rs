//! Namespaces whose media take their time to be opened.

use super::{Client, SUBSYSTEM, Target};
use serde_json::{Value, json};
use std::os::unix::net::{UnixListener, UnixStream};

/// More often no host has done all within the time that a server has for its first words.
const ATTEMPTS: usize = 5;

/// A server of NBD that takes connections and says nothing.
struct Silent {
    listener: UnixListener,
    uri: String,
}

impl Silent {
    fn beside(target: &Target) -> Self {
        let path = target.folder.path().join("silent");
        let uri = format!("nbd+unix:///?socket={}", path.display());
        Self { listener: UnixListener::bind(path).unwrap(), uri }
    }

    /// Somebody has a namespace of it opened; the connection that the target made.
    fn is_asked_for_by(&self, client: &mut Client) -> UnixStream {
        client.ask_to("add_namespace", namespace(2, json!({ "nbd": self.uri })));
        self.listener.accept().unwrap().0
    }
}

fn namespace(identifier: u32, mut medium: Value) -> Value {
    medium["subsystem"] = json!(SUBSYSTEM);
    medium["namespace"] = json!(identifier);
    medium
}

/// What the target says meanwhile, and that it was asked while that server kept it waiting.
fn asked_meanwhile(target: &Target, silent: &Silent) -> bool {
    let (mut client, mut other, mut next) = (target.client(), target.client(), target.client());
    let _held = silent.is_asked_for_by(&mut client);
    let before = other.ask("status");
    // A change is no reason for hosts to wait, but others stand behind it.
    next.ask_to("add_namespace", namespace(3, json!({ "memory": "64K" })));
    target.host("0").thread.join().unwrap().unwrap();
    let behind = other.ask("status");
    let refused = client.answer().unwrap_err();
    let message = refused["message"].as_str().unwrap();
    assert_eq!(refused["code"], -32004, "{refused}");
    assert!(message.contains("not opened within 10 seconds") && message.ends_with("nothing was changed"), "{refused}");
    assert_eq!(next.answer().unwrap()["changed"], true);
    let after = other.ask("status");
    assert_eq!((&after["awaited_medium"], &after["namespaces"]), (&Value::Null, &json!(2)), "{after}");
    let gone = json!({ "subsystem": SUBSYSTEM, "namespace": 3 });
    assert_eq!(client.call("remove_namespace", gone).unwrap()["complete"], true);
    [before, behind].iter().all(|status| {
        let awaited = &status["awaited_medium"];
        assert!(awaited.is_null() || status["namespaces"] == 1, "{status}");
        awaited["medium"].as_str().is_some_and(|medium| medium.contains("silent"))
    })
}

#[test]
fn while_a_server_says_nothing_the_target_answers_and_hosts_connect_and_other_changes_wait() {
    let target = Target::start(2);
    let silent = Silent::beside(&target);
    assert!((0..ATTEMPTS).any(|_| asked_meanwhile(&target, &silent)), "nobody was answered meanwhile");
    target.end();
}

#[test]
fn a_target_that_shall_end_does_not_wait_for_what_is_being_opened() {
    let target = Target::start(1);
    let (silent, mut client) = (Silent::beside(&target), target.client());
    let _held = silent.is_asked_for_by(&mut client);
    let report = target.end();
    assert_eq!(report.served.namespaces.len(), 1);
}
