//! What moves, there and back, whatever the device, and by which keys.

use super::network::Network;
use super::{FILE_BYTES, PROFILES, Target, Temporary, load_config, load_on, serve_config, verified};
use frwr::report::Report as _;
use frwr::runner::{Compared, load};
use frwr_engine::provider::soft::SoftOptions;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::thread;

#[test]
fn a_namespace_arrives_as_the_file_that_is_served_on_every_profile() {
    let (file, output) = (Temporary::data("copy", 1), Temporary::path("copy-out"));
    let digest = file.digest();
    for (at, profile) in PROFILES.into_iter().enumerate() {
        // Every other profile with receives that all connections share.
        let shared: &[&str] = if at % 2 == 0 { &["--shared-receives", "600"] } else { &[] };
        let target = Target::start(profile, &[&["--namespace", file.text()], shared].concat());
        let bytes = FILE_BYTES.to_string();
        let exact = ["--bytes", &bytes, "--expect-sha256", &digest, "--output", output.text()];
        let report = verified(target.load(&exact));
        assert_eq!((report.sha256.as_deref(), report.subject.compared), (Some(digest.as_str()), Compared::Digest));
        assert_eq!(report.file_bytes, FILE_BYTES as u64);
        assert!(output.bytes() == file.bytes());
        // All of the namespace: the file and zeros up to a block.
        let report = verified(target.load(&["--output", output.text()]));
        assert_eq!((report.file_bytes, report.subject.compared), (303_104, Compared::Itself));
        let (whole, served) = (output.bytes(), file.bytes());
        assert!(whole[..FILE_BYTES] == served);
        assert!(whole.len() == 303_104 && whole[FILE_BYTES..].iter().all(|&byte| byte == 0));
        let report = target.end();
        let [namespace] = report.served.namespaces.as_slice() else { panic!("{:?}", report.served.namespaces) };
        assert_eq!((namespace.sha256.as_deref(), namespace.blocks), (Some(digest.as_str()), 74));
        assert_eq!((report.target.reads, report.target.writes, report.target.accepted), (148, 0, 4));
        assert!(report.json().is_object() && report.table().contains("reads"));
    }
    assert_eq!(file.digest(), digest, "the served file is never written");
}

/// A target opens no memory: it serves on a device that cannot, whose SEND_WITH_INV may not work either. Hosts then kill their keys
/// themselves.
#[test]
fn a_device_that_opens_no_keys_serves() {
    const PLAIN: &str = "responses are plain SENDs";
    for (profile, invalidates) in [("window", true), ("window", false), ("reg_mr", false), ("umr", false)] {
        let (served, moved) = (Temporary::data("keyless", 1), Temporary::data("keyless-new", 9));
        let mut options = SoftOptions::new(profile.parse().unwrap()).without_registrations();
        options.capabilities.send_with_invalidate = invalidates;
        let network = Network::new();
        let config = serve_config(&["--namespace", served.text()]);
        let target = Target::begin_on(network.clone(), network.device(options), profile, config);
        let before: Vec<String> = target.lines.iter().take_while(|line| !line.starts_with("listening on ")).collect();
        assert_eq!(before.iter().any(|line| line.contains(PLAIN)), !invalidates, "{before:?}");
        let report = verified(target.load(&["--file", moved.text(), "--runtime", "1"]));
        assert_eq!(report.sha256, Some(moved.digest()));
        let engine = report.json();
        let by_peer = engine["remote_invalidations"].as_u64().unwrap();
        assert_eq!(by_peer > 0, invalidates, "{profile}: {engine}");
        assert!(engine["local_invalidations"].as_u64().unwrap() > 0 || invalidates, "{profile}: {engine}");
        let served = target.end();
        assert_eq!(served.target.remote_invalidations > 0, invalidates, "{}", served.table());
    }
}

/// Who needs keys is refused before anything is sent.
#[test]
fn a_device_that_opens_no_keys_loads_nothing() {
    let network = Network::new();
    let device = network.device(SoftOptions::new("window".parse().unwrap()).without_registrations());
    let error = load(device, &load_config(&[]), &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("no memory management extensions"), "{error}");
}

#[test]
fn a_file_goes_there_and_back_and_stays() {
    let (served, moved, output) = (Temporary::data("old", 1), Temporary::data("new", 9), Temporary::path("new-out"));
    let target = Target::start("window", &["--namespace", served.text()]);
    let report = verified(target.load(&["--file", moved.text(), "--runtime", "1", "--output", output.text()]));
    assert_eq!((report.subject.compared, report.subject.read_share), (Compared::File, 70));
    assert_eq!(report.sha256, Some(moved.digest()));
    assert!(output.bytes() == moved.bytes());
    // The load wrote patterns; without one the file is what the next host finds.
    verified(target.load(&["--file", moved.text()]));
    let bytes = FILE_BYTES.to_string();
    verified(target.load(&["--bytes", &bytes, "--expect-sha256", &moved.digest(), "--runtime", "1"]));
    let report = target.end();
    assert!(report.target.writes > 148 && report.target.reads > 222, "{}", report.table());
    assert_ne!(served.digest(), moved.digest());
}

#[test]
fn writes_reach_the_file_where_the_namespace_is_the_file() {
    let moved = Temporary::data("kept", 5);
    let bytes = FILE_BYTES.to_string();
    for (backing, kind) in [("ring", "io_uring"), ("thread", "worker thread")] {
        let served = Temporary::path(&format!("kept-{backing}"));
        fs::write(&served.0, vec![0; 400 << 10]).unwrap();
        let target = Target::begin(
            Network::new(),
            "reg_mr",
            &["--namespace", served.text(), "--backing", backing, "--block-size", "4096"],
        );
        let listening = target.lines.iter().find(|line| line.starts_with("listening on")).unwrap();
        assert!(listening.contains("100 blocks of 4096 bytes"), "{listening}");
        verified(target.load(&["--file", moved.text(), "--runtime", "1"]));
        verified(target.load(&["--file", moved.text()]));
        verified(target.load(&["--bytes", &bytes, "--expect-sha256", &moved.digest()]));
        let report = target.end();
        let ([namespace], [storage]) = (report.served.namespaces.as_slice(), report.storages.as_slice()) else {
            panic!()
        };
        assert_eq!((namespace.kind, namespace.sha256.clone()), (kind, None));
        assert!(served.bytes()[..FILE_BYTES] == moved.bytes(), "{backing}");
        assert_eq!((storage.submitted, storage.failed), (storage.completed, 0));
        assert!(storage.system_calls <= storage.flushes, "{storage:?}");
    }
}

#[test]
fn requests_of_several_blocks_and_small_remainders_verify() {
    let (file, output) = (Temporary::data("sizes", 3), Temporary::path("sizes-out"));
    let target = Target::start("reg_mr", &["--namespace", file.text(), "--block-size", "512"]);
    for (block, depth) in [("512", "1"), ("8192", "7"), ("65536", "128")] {
        let arguments = ["--block-size", block, "--queue-depth", depth, "--runtime", "1"];
        let report = verified(target.load(&[&arguments[..], &["--output", output.text()]].concat()));
        assert_eq!(report.file_bytes, 300_032);
        assert!(output.bytes()[..FILE_BYTES] == file.bytes());
        verified(target.load(&[&arguments[..], &["--file", file.text()]].concat()));
        // What the load wrote is gone again.
        verified(target.load(&["--file", file.text()]));
    }
    target.end();
}

#[test]
fn lists_of_pieces_are_one_command_each_where_the_target_takes_as_many() {
    let file = Temporary::data("pieces", 3);
    for (blocks, split) in [("4", false), ("1", true)] {
        let target = Target::start("window", &["--namespace", file.text(), "--data-blocks", blocks]);
        let report = verified(target.load(&["--scatter", "4", "--block-size", "16384", "--runtime", "1"]));
        assert_eq!((report.session.split_requests > 0, report.session.multi_key_commands > 0), (split, !split));
        assert_eq!(report.session.bounced_commands, 0);
        target.end();
    }
}

#[test]
fn two_hosts_read_at_the_same_time() {
    let file = Temporary::data("two", 4);
    let target = Target::start("reg_mr", &["--namespace", file.text(), "--hosts", "2"]);
    thread::scope(|scope| {
        let network = &target.network;
        let loads = [1, 2].map(|_| scope.spawn(|| load_on(network, "reg_mr", &["--runtime", "1"])));
        let digests = loads.map(|load| verified(load.join().unwrap()).sha256);
        assert_eq!(digests[0], digests[1]);
    });
    target.end();
}

#[test]
fn plain_sends_make_hosts_invalidate_by_themselves() {
    let file = Temporary::data("plain", 5);
    let target = Target::start("window", &["--namespace", file.text(), "--no-remote-invalidate"]);
    let report = verified(target.load(&[]));
    assert_eq!(report.engine.remote_invalidations, 0);
    assert!(report.engine.local_invalidations > 0);
    assert_eq!(target.end().target.remote_invalidations, 0);
}
