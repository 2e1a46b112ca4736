//! A target over exports of NBD servers: of nbdkit, which dies under load and comes back, and of one that is slow.

use super::Machine;
use super::program::{passed, verified};
use frwr_support::changes::Ctl;
use frwr_support::storage_harness::{
    foreign::{Foreign, NBDKIT_FILE},
    nbd::{Action, Export, Server, WRITE},
};
use std::{path::Path, sync::mpsc};

#[test]
fn a_load_is_verified_over_nbdkit_that_is_killed_and_started_again() {
    let slow = ["--filter=delay", "rdelay=1ms", "wdelay=1ms"];
    let Some(mut nbdkit) = Foreign::nbdkit(NBDKIT_FILE, &slow) else { return };
    let machine = Machine::new();
    let uri = format!("nbd+unix:///?socket={}&x-connections=2&x-write-through=1", nbdkit.socket().display());
    let target = machine.serve(&["--namespace", &uri]);
    let file = machine.file("file");
    let host = machine.load(&["--file", &file, "--runtime", "3600"]);
    host.says("mixed load");
    for _ in 0..3 {
        nbdkit.kill();
        target.says("its server is gone");
        assert!(nbdkit.restart());
        target.says("connected again");
        // It goes on.
        host.says("mixed load");
    }
    let report = verified(host.stop());
    assert_eq!((&report["reconnects"], &report["resubmitted"]), (&0.into(), &0.into()), "{report}");
    let served = passed(target.stop());
    let namespace = &served["namespaces"][0];
    assert_eq!((&namespace["fault"], &namespace["failed"]), (&serde_json::Value::Null, &0.into()), "{served}");
    assert!(namespace["restarts"].as_u64().unwrap() > 0, "{served}");
}

#[test]
fn what_an_export_had_not_flushed_when_its_server_died_is_told() {
    let Some(mut nbdkit) = Foreign::nbdkit(NBDKIT_FILE, &[]) else { return };
    let machine = Machine::new();
    let uri = format!("nbd+unix:///?socket={}", nbdkit.socket().display());
    let target = machine.serve(&["--namespace", &uri]);
    let file = machine.file("file");
    let host = machine.load(&["--file", &file, "--runtime", "3600"]);
    host.says("mixed load");
    nbdkit.kill();
    assert!(nbdkit.restart());
    let line = target.says("between writes that it had acknowledged and their flush");
    assert!(line.contains("x-write-through=1"), "{line}");
    // The kernel still had what it wrote, so that nothing is wrong with it.
    verified(host.stop());
    let (code, served) = target.stop();
    assert_eq!(code, Some(1), "{served}");
    assert!(served["namespaces"][0]["fault"].as_str().unwrap().contains("flush"), "{served}");
}

/// A server that is a part of the test.
#[test]
fn a_core_sleeps_while_a_server_holds_a_request_and_the_host_has_its_answer() {
    let server = Server::new(Export::new(256));
    let ((has_it, held), (go, waits)) = (mpsc::channel(), mpsc::channel::<()>());
    server.script(move |seen| {
        if seen.command == WRITE {
            // Of what comes once the test has seen enough nobody hears.
            let _ = has_it.send(());
            let _ = waits.recv();
        }
        Action::Do
    });
    let (machine, uri) = (Machine::new(), server.options().to_string());
    let socket = machine.path("control");
    let control = ["--control", socket.to_str().unwrap()];
    let target = machine.serve(&[&["--namespace", &uri, "--idle", "sleep:0"][..], &control].concat());
    let mut ctl = Ctl::open(Path::new(env!("CARGO_BIN_EXE_frwr")), &socket).unwrap();
    let file = machine.file("file");
    let mut host = machine.load(&["--file", &file, "--runtime", "0"]);
    while held.try_recv().is_err() {
        assert!(host.runs(), "{:?}", host.last_words());
    }
    assert_eq!(ctl.list("cores").unwrap()[0]["may_sleep"], true);
    let mut sleeps = || ctl.list("cores").unwrap()[0]["sleeps"].as_u64().unwrap();
    let before = sleeps();
    while sleeps() < before + 10 {}
    drop(go);
    verified(host.ended());
    passed(target.stop());
}
