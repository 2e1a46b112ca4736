//! `load` as a load generator: what it does without a file, and what it tells of that.

use super::network::Network;
use super::{ADDRESS, Target, Temporary, load_config, verified};
use clap::Parser as _;
use frwr::report::Report as _;
use frwr::runner::{Compared, RunReport, ServeConfig, load};
use frwr::{CommandLine, Task};
use frwr_engine::provider::soft::SoftOptions;
use serde_json::Value;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Enough for the largest request, several times.
const LARGE: u64 = 32 << 20;
/// More than a copy in memory may have.
const HUGE: u64 = 8 << 30;

/// A file of zeros that takes no room.
fn sparse(name: &str, bytes: u64) -> Temporary {
    let file = Temporary::path(name);
    File::create(&file.0).unwrap().set_len(bytes).unwrap();
    file
}

fn serving(file: &Temporary, arguments: &[&str]) -> Target {
    let fixed = ["--namespace", file.text(), "--backing", "thread"];
    let target = Target::begin(Network::new(), "reg_mr", &[&fixed, arguments].concat());
    assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
    target
}

fn requests(report: &RunReport, kind: &str) -> u64 {
    report.json()["load"][kind]["requests"].as_u64().unwrap_or(0)
}

#[test]
fn what_a_load_has_written_is_checked_in_a_namespace_that_is_larger_than_any_copy() {
    let file = sparse("huge", HUGE);
    let target = serving(&file, &["--block-size", "4096"]);
    for (rw, reads) in [("randrw", true), ("rw", true), ("write", false)] {
        let arguments = ["--rw", rw, "--allow-overwrite", "--runtime", "60", "--io-size", "16M", "--bs", "16k"];
        let report = verified(target.load(&arguments));
        assert_eq!((report.subject.compared, report.file_bytes), (Compared::Writes, HUGE));
        let (read, written) = (requests(&report, "read"), requests(&report, "write"));
        assert_eq!((read + written, read > 0), (1024, reads), "{}", report.json());
        assert!(report.table().contains("verified: every block read that the load had written"), "{}", report.table());
    }
    // So little of it that what was written is read.
    let small = ["--rw", "randrw", "--allow-overwrite", "--size", "64K", "--offset", "1M", "--runtime", "1"];
    let report = verified(target.load(&small));
    let (read, unchecked) = (report.tally.reads().bytes, report.load.as_ref().unwrap().unchecked_bytes);
    assert!(unchecked < read, "{unchecked} of {read}");
    assert!(report.table().contains("randrw of 70 % reads"), "{}", report.table());
    target.end();
}

#[test]
fn without_verification_nothing_is_read_first_and_nothing_is_checked() {
    let file = sparse("unchecked", HUGE);
    let target = serving(&file, &["--block-size", "4096"]);
    let refusal = target.load(&["--rw", "read"]).unwrap_err().to_string();
    assert!(refusal.contains("8589934592") && refusal.contains("--no-verify"), "{refusal}");
    for rw in ["read", "randread", "randwrite"] {
        let arguments = ["--rw", rw, "--no-verify", "--allow-overwrite", "--runtime", "60", "--io-size", "8M"];
        let report = target.load(&arguments).unwrap_or_else(|error| panic!("{error}"));
        assert!(report.passed() && !report.verified, "{}", report.table());
        let json = report.json();
        assert_eq!((&json["compared_with"], &json["verified"]), (&"nothing".into(), &false.into()));
        assert_eq!(report.tally.bytes(), 8 << 20, "{json}");
        assert!(report.table().contains("nothing was verified (--no-verify)"), "{}", report.table());
    }
    target.end();
}

#[test]
fn sizes_of_a_mix_go_from_one_block_to_four_mebibytes() {
    let file = sparse("mix", LARGE);
    let target = serving(&file, &["--block-size", "512"]);
    let mix = ["--rw", "randrw", "--rwmixread", "50", "--allow-overwrite", "--bssplit", "512/40:12K/30:1M/20:4M/10"];
    let report =
        verified(target.load(&[&mix[..], &["--runtime", "60", "--io-size", "64M", "--iodepth", "4"]].concat()));
    assert!(report.session.split_requests > 0, "the host cuts what is larger than the controller takes at once");
    assert_eq!(report.json()["load"]["sizes"], "512/40:12288/30:1048576/20:4194304/10");
    // No smaller than the namespace's blocks, and no larger than the range.
    for (arguments, parts) in [
        (&["--bssplit", "512:4M", "--bytes", "1M"][..], ["1048576 bytes", "4194304"]),
        (&["--bs", "4M", "--offset", "32M"], ["--offset is 33554432", "33554432 bytes"]),
    ] {
        let refusal = target.load(&[arguments, &["--no-verify", "--runtime", "1"]].concat()).unwrap_err().to_string();
        assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
    }
    target.end();
}

#[test]
fn a_load_trims_where_it_is_told_to() {
    let file = Temporary::data("trims", 3);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let arguments = ["--rw", "randtrim", "--allow-overwrite", "--runtime", "60", "--io-size", "1M"];
    let report = verified(target.load(&arguments));
    assert_eq!((report.tally.others().requests, report.tally.reads().requests), (256, 0));
    target.end();
}

#[test]
fn several_cores_share_a_rate_and_a_range() {
    let file = sparse("shared", LARGE);
    let target = serving(&file, &["--block-size", "4096", "--io-queues", "2"]);
    let arguments =
        ["--cores", "unpinned:2", "--rw", "rw", "--allow-overwrite", "--runtime", "1", "--rate-iops", "400"];
    let report = verified(target.load(&arguments));
    let load = &report.json()["load"];
    assert_eq!((&load["rate_iops"], &load["rate"]), (&400.into(), &Value::Null));
    // As many as were due, less those that a busy machine did not come to.
    let all = report.tally.requests();
    assert!((1..=400).contains(&all), "{all}");
    assert!(load["behind_us"].as_f64().is_some());
    target.end();
}

#[test]
fn what_a_file_and_a_load_of_another_kind_need_goes_together() {
    let (served, moved) = (Temporary::data("kinds", 1), Temporary::data("kinds-new", 2));
    let target = Target::start("reg_mr", &["--namespace", served.text(), "--block-size", "512"]);
    for rw in ["read", "write", "randwrite", "rw"] {
        let arguments = ["--file", moved.text(), "--rw", rw, "--bssplit", "512:8K", "--runtime", "1"];
        let report = verified(target.load(&arguments));
        assert_eq!((report.sha256.clone(), report.subject.compared), (Some(moved.digest()), Compared::File));
        assert_eq!(report.json()["load"]["rw"], rw);
    }
    target.end();
}

/// Every tenth of a second: lines, a table and curves of the same intervals.
#[test]
fn a_load_over_time_is_told_by_lines_csv_and_curves() {
    let (file, csv, svg) = (sparse("course", LARGE), Temporary::path("course.csv"), Temporary::path("course.svg"));
    let target = serving(&file, &["--block-size", "4096", "--io-queues", "2"]);
    let arguments =
        ["--rw", "randrw", "--allow-overwrite", "--runtime", "1", "--cores", "unpinned:2", "--interval", "0.1"];
    let files = ["--latency-log", csv.text(), "--svg", svg.text()];
    let config = load_config(&[&arguments[..], &files].concat());
    let device = target.network.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let mut lines = Vec::new();
    let report = verified(load(device, &config, &AtomicBool::new(false), &mut |line| lines.push(line.to_owned())));
    let told = lines.iter().filter(|line| line.contains(" s  randrw ") && line.contains("p99.9")).count();
    let text = String::from_utf8(csv.bytes()).unwrap();
    let rows: Vec<Vec<f64>> =
        text.lines().skip(1).map(|row| row.split(',').map(|field| field.parse().unwrap()).collect()).collect();
    assert!(told > 0 && told == rows.len(), "{told} lines, {text}");
    assert!(!lines.iter().any(|line| line.contains("mixed load")), "no second line of the same time: {lines:?}");
    // What is in the rows is what ended, less what ended when the last of them was over.
    let mut before = 0.0;
    let requests: f64 = rows.iter().map(|row| row[1] * (row[0] - core::mem::replace(&mut before, row[0]))).sum();
    assert!(requests > 0.0 && requests <= report.tally.requests() as f64 + 0.5, "{requests} of {text}");
    assert!(rows.iter().all(|row| (row[1] - row[9] - row[17]).abs() < 0.01), "reads and writes are all: {text}");
    let curves = String::from_utf8(svg.bytes()).unwrap();
    assert!(curves.contains("frwr load randrw on test") && curves.contains("p99.9"), "{curves}");
    target.end();
}

#[test]
fn a_load_ends_in_its_steady_state_and_says_where_there_was_none() {
    let file = sparse("steady", LARGE);
    let target = serving(&file, &["--block-size", "4096"]);
    let load = ["--rw", "randread", "--no-verify", "--steadystate-duration", "1", "--interval", "0.1"];
    // Ten intervals are never further from their mean than that, whatever the machine does; and never as close as that.
    for (criterion, runtime, attained) in [("iops:1000%", "3600", true), ("lat:0", "1", false)] {
        let more = ["--steadystate", criterion, "--runtime", runtime];
        let report = target.load(&[&load[..], &more].concat()).unwrap_or_else(|error| panic!("{error}"));
        assert!(report.passed() && !report.interrupted, "{}", report.table());
        let json = report.json();
        let steady = &json["load"]["steady_state"];
        assert_eq!((&steady["criterion"], &steady["attained"]), (&criterion.into(), &attained.into()));
        assert_eq!(report.table().contains("no steady state: lat:0 was not attained"), !attained);
    }
    target.end();
}

#[test]
fn several_namespaces_are_loaded_at_the_same_time() {
    const NAMESPACES: [&str; 3] = ["first", "second", "third"];
    let files = NAMESPACES.map(|name| sparse(name, LARGE));
    let tables: String =
        files.iter().map(|file| format!("[[subsystem.namespace]]\nfile = \"{}\"\n", file.text())).collect();
    let config = Temporary::path("namespaces.toml");
    let text = format!(
        "device = \"test\"\nlisten = \"{ADDRESS}\"\ncores = \"unpinned\"\npages = \"plain\"\nio_queues = 2\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.invalid.frwr:file\"\n{tables}"
    );
    std::fs::write(&config.0, text).unwrap();
    let line = ["frwr", "serve", "--config", config.text()];
    let Some(Task::Serve(arguments)) = CommandLine::try_parse_from(line).unwrap().task else { panic!("not serve") };
    let target = Target::begin_with(Network::new(), "reg_mr", ServeConfig::new(arguments).unwrap());
    assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
    let all = ["--nsid", "1,2,3", "--rw", "randrw", "--allow-overwrite", "--runtime", "60", "--io-size", "12M"];
    for cores in ["unpinned:1", "unpinned:2"] {
        let report = verified(target.load(&[&all[..], &["--cores", cores]].concat()));
        let load = report.load.as_ref().unwrap();
        let moved: Vec<_> = load.namespaces.iter().map(|namespace| (namespace.nsid, namespace.bytes)).collect();
        assert_eq!(moved, [(1, 4 << 20), (2, 4 << 20), (3, 4 << 20)], "of bytes as of a rate each has its share");
        assert_eq!((report.file_bytes, report.reconnects(), report.tally.bytes()), (3 * LARGE, 0, 12 << 20));
        assert!(report.table().contains("namespace    requests"), "{}", report.table());
    }
    // One that is not there ends the run.
    let missing = target.load(&["--nsid", "1,9", "--no-verify", "--runtime", "60", "--reconnects", "0"]);
    let told = missing.map_or_else(|error| error.to_string(), |report| report.caught.unwrap_or_default());
    assert!(told.contains("namespace"), "{told}");
    target.stop.store(true, Relaxed);
    target.thread.join().unwrap().unwrap();
}
