//! A target over an image of a Ceph cluster, whose OSD dies under load and comes back; where `tests/run ceph` has started one.

use super::Machine;
use super::program::{passed, verified};
use frwr_support::{changes::Ctl, storage_harness::ceph::Cluster};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

/// Blocks of an image that a load has room in.
pub(crate) const BLOCKS: u64 = 4096;

/// The cluster, for one test at a time.
pub(crate) fn cluster() -> Option<(Cluster, MutexGuard<'static, ()>)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let cluster = Cluster::find()?;
    Some((cluster, ALONE.lock().unwrap_or_else(PoisonError::into_inner)))
}

#[test]
fn a_load_is_verified_over_ceph_whose_osd_is_killed_and_started_again() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image_of(BLOCKS);
    let machine = Machine::new();
    let target = machine.serve(&["--namespace", &image.uri()]);
    let file = machine.file("file");
    let host = machine.load(&["--file", &file, "--runtime", "3600", "--io-timeout", "600"]);
    host.says("mixed load");
    for _ in 0..2 {
        cluster.daemon("kill-osd");
        cluster.daemon("start-osd");
        // It goes on.
        host.says("mixed load");
        host.says("mixed load");
    }
    let report = verified(host.stop());
    assert_eq!((&report["reconnects"], &report["resubmitted"]), (&0.into(), &0.into()), "{report}");
    let served = passed(target.stop());
    let namespace = &served["namespaces"][0];
    assert_eq!((&namespace["fault"], &namespace["failed"]), (&serde_json::Value::Null, &0.into()), "{served}");
    // Nobody has it any more.
    assert!(cluster.tool("rbd", &["status", &image.path()]).contains("Watchers: none"), "the image was not closed");
}

#[test]
fn a_target_over_ceph_ends_though_its_osd_is_gone_with_commands() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image_of(BLOCKS);
    let machine = Machine::new();
    let target = machine.serve(&["--namespace", &image.uri()]);
    let file = machine.file("file");
    let mut host = machine.load(&["--file", &file, "--runtime", "3600", "--io-timeout", "600"]);
    host.says("mixed load");
    cluster.daemon("kill-osd");
    host.kill();
    let (code, report) = target.stop();
    cluster.daemon("start-osd");
    assert!(code.is_some(), "killed by a signal: {report}");
}

#[test]
fn a_target_over_ceph_is_told_what_keeps_it_from_its_image() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image_of(BLOCKS);
    let machine = Machine::new();
    cluster.daemon("kill-mon");
    let uri = format!("rbd:{}?conf={}", image.path(), cluster.impatient_conf().display());
    let target = machine.start(&["serve", "--listen", "127.0.0.1:4420", "--namespace", &uri]);
    let line = target.says("monitor");
    cluster.daemon("start-mon");
    assert!(line.contains("client_mount_timeout") && line.contains(&image.path()), "{line}");
    let absent = format!("rbd:pool/absent?conf={}", cluster.conf().display());
    let target = machine.start(&["serve", "--listen", "127.0.0.1:4420", "--namespace", &absent]);
    let line = target.says("absent");
    assert!(line.contains("rbd ls POOL"), "{line}");
}

/// What only its cluster knows, and does, is waited for beside everything else.
#[test]
fn a_target_answers_while_its_cluster_does_not() {
    let Some((cluster, _alone)) = cluster() else { return };
    let image = cluster.image_of(BLOCKS);
    let machine = Machine::new();
    let socket = machine.path("control");
    let target = machine.serve(&["--namespace", &image.uri(), "--control", socket.to_str().unwrap()]);
    let ctl = || Ctl::open(Path::new(env!("CARGO_BIN_EXE_frwr")), &socket).unwrap();
    let namespace = json!({ "subsystem": "nqn.2026-11.invalid.frwr:file", "namespace": 1 });
    // What it comes to, where the target has said meanwhile what it waits for.
    let asked_meanwhile = |method: &'static str| -> Result<Value, String> {
        thread::scope(|scope| {
            let change = scope.spawn(|| ctl().ask_with(method, &namespace));
            let (mut other, mut is_told) = (ctl(), false);
            while !change.is_finished() {
                let awaited = other.ask("status").unwrap()["awaited_medium"]["medium"].take();
                is_told |= awaited.as_str().is_some_and(|medium| medium.contains(&image.path()));
            }
            assert!(is_told, "{method}: nobody was answered meanwhile");
            change.join().unwrap()
        })
    };
    cluster.daemon("kill-osd");
    let refused = asked_meanwhile("resize_namespace").unwrap_err();
    assert!(refused.contains("has not answered within 10 s") && refused.contains("nothing was changed"), "{refused}");
    let removed = asked_meanwhile("remove_namespace").unwrap();
    assert_eq!(removed["changed"], true, "{removed}");
    cluster.daemon("start-osd");
    passed(target.stop());
}
