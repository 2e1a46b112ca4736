//! `frwr latency` in two processes.

use super::Machine;
use super::program::passed;

const SERVER: [&str; 3] = ["latency", "--listen", "127.0.0.1:49200"];
const CLIENT: [&str; 2] = ["latency", "127.0.0.1:49200"];

#[test]
fn every_operation_is_measured_between_two_processes() {
    let machine = Machine::new();
    let server = machine.start(&SERVER);
    server.says("listening on 127.0.0.1:49200");
    for operation in ["request", "register", "send", "pingpong", "write", "read"] {
        let words = ["--op", operation, "--iterations", "200", "--warm-up", "0", "--size", "8192"];
        let report = passed(machine.start(&[&CLIENT[..], &words].concat()).ended());
        assert_eq!((&report["device"], &report["requests"]), (&"soft:reg_mr".into(), &200.into()), "{report}");
    }
    let served = passed(server.stop());
    assert_eq!(served["clients"], 6, "{served}");
}

#[test]
fn a_server_that_is_killed_ends_the_measurement_and_the_next_one_serves() {
    let machine = Machine::new();
    let mut server = machine.start(&SERVER);
    server.says("listening on");
    let client = machine.start(&[&CLIENT[..], &["--runtime", "3600", "--warm-up", "0"]].concat());
    server.says("client");
    server.kill();
    let (code, error) = client.ended();
    assert_eq!((code, &error["error"]), (Some(1), &"peer_gone".into()), "{error}");
    let server = machine.start(&SERVER);
    server.says("listening on");
    // One that is killed in the middle of it keeps nobody from being served.
    let mut client = machine.start(&[&CLIENT[..], &["--runtime", "3600"]].concat());
    server.says("client");
    client.kill();
    passed(machine.start(&[&CLIENT[..], &["--iterations", "50"]].concat()).ended());
    passed(server.stop());
}

#[test]
fn a_client_whose_server_stands_still_ends_when_it_is_told_to() {
    let machine = Machine::new();
    let server = machine.start(&SERVER);
    server.says("listening on");
    let client = machine.start(&[&CLIENT[..], &["--runtime", "36000", "--warm-up", "0"]].concat());
    // Requests are on their way.
    client.says("requests/s");
    server.stands_still();
    let (code, error) = client.stop();
    assert_eq!((code, &error["error"]), (Some(1), &"timeout".into()), "{error}");
    let text = error["message"].as_str().unwrap();
    assert!(text.contains("requests had not ended 5 s after the run was told to end, and were given up"), "{text}");
    server.signal("CONT");
    passed(server.stop());
}

#[test]
fn a_server_that_is_not_there_is_told_with_the_remedy() {
    let machine = Machine::new();
    let (code, error) = machine.start(&CLIENT).ended();
    assert_eq!((code, &error["error"]), (Some(1), &"unreachable".into()), "{error}");
    let text = error["message"].as_str().unwrap();
    assert!(text.contains(machine.path("frwr").to_str().unwrap()) && text.contains("--device soft"), "{text}");
}
