//! The file of reservations that survive: one process's at a time, and never guessed at.

use super::Machine;
use super::program::passed;
use frwr_support::storage_harness::nbd::{Export, Server};
use std::fs;

const LISTEN: [&str; 3] = ["serve", "--listen", "127.0.0.1:4420"];

#[test]
fn a_file_of_reservations_is_one_processs_until_that_is_gone() {
    let machine = Machine::new();
    let (file, kept) = (machine.file("file"), machine.path("reservations").display().to_string());
    let words = ["--namespace", &file, "--reservations", &kept];
    let mut target = machine.serve(&words);
    let elsewhere = ["serve", "--listen", "127.0.0.1:4421"];
    let line = machine.start(&[&elsewhere[..], &words].concat()).says("--reservations");
    assert!(line.contains(&kept) && line.contains("another process"), "{line}");
    target.kill();
    passed(machine.serve(&words).stop());
    fs::write(&kept, "something else\n").unwrap();
    let line = machine.start(&[&LISTEN[..], &words].concat()).says("--reservations");
    assert!(line.contains(&format!("{kept}, line 1")), "{line}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "something else\n");
}

#[test]
fn a_namespace_that_another_gateway_may_serve_has_none_and_is_named() {
    let (machine, server) = (Machine::new(), Server::new(Export::new(256)));
    let (uri, kept) = (server.options().to_string(), machine.path("reservations").display().to_string());
    let target = machine.start(&[&LISTEN[..], &["--namespace", &uri, "--reservations", &kept]].concat());
    let line = target.says("has no reservations");
    assert!(line.contains("namespace 1 of ") && line.contains(&uri), "{line}");
    target.says("listening");
    passed(target.stop());
}
