//! Devices whose send queues are too short for what is asked for: it works, and is said once, with what comes of it.

use clap::Parser as _;
use frwr::report::Report as _;
use frwr::runner::{LoadConfig, RunReport, ServeConfig, ServeReport, load, serve};
use frwr::{CommandLine, Task};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions};
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

const ADDRESS: &str = "127.0.0.1:4420";

fn task(half: &str, arguments: &[&str]) -> Task {
    let fixed = ["frwr", half, "--device", "test", "--cores", "unpinned", "--pages", "plain"];
    CommandLine::try_parse_from([&fixed[..], arguments].concat()).unwrap().task.unwrap()
}

fn device(fabric: &SoftFabric, entries: u32) -> SoftDevice {
    let mut options = SoftOptions::new("reg_mr".parse().unwrap());
    options.capabilities.attributes.max_qp_wr = entries;
    fabric.device(options)
}

/// A file through both halves at a queue depth, each over a device whose queues have so many entries; reports and lines.
fn moved(depth: &str, [of_target, of_host]: [u32; 2]) -> ((ServeReport, Vec<String>), (RunReport, Vec<String>)) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 100_000]).unwrap();
    let name = file.to_str().unwrap();
    let Task::Serve(arguments) = task("serve", &["--listen", ADDRESS, "--namespace", name, "--queue-depth", depth])
    else {
        panic!("not serve")
    };
    let served = ServeConfig::new(arguments).unwrap();
    let all = ["--connect", ADDRESS, "--file", name, "--runtime", "0", "--queue-depth", depth];
    let Task::Load(arguments) = task("load", &all) else { panic!("not load") };
    let loaded = LoadConfig::new(arguments).unwrap();

    let (fabric, stop) = (SoftFabric::new(), Arc::new(AtomicBool::new(false)));
    let (sender, lines) = mpsc::channel();
    let target = thread::spawn({
        let (device, stop) = (device(&fabric, of_target), Arc::clone(&stop));
        move || {
            serve(vec![device], &served, &stop, &mut |line| {
                let _ = sender.send(line.to_owned());
            })
        }
    });
    let mut of_serve = Vec::new();
    while !of_serve.last().is_some_and(|line: &String| line.starts_with("listening on")) {
        of_serve.push(lines.recv().unwrap());
    }
    let mut of_load = Vec::new();
    let report =
        load(device(&fabric, of_host), &loaded, &AtomicBool::new(false), &mut |line| of_load.push(line.to_owned()));
    stop.store(true, Relaxed);
    let served = target.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    ((served, of_serve), (report.unwrap_or_else(|error| panic!("{error}")), of_load))
}

fn said(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|line| line.contains("max_qp_wr")).collect()
}

#[test]
fn queues_that_are_long_enough_are_no_news() {
    let ((serve, of_serve), (load, of_load)) = moved("32", [4096, 4096]);
    assert!(said(&of_serve).is_empty() && said(&of_load).is_empty());
    for json in [serve.json(), load.json()] {
        assert_eq!((&json["queue_depth"], &json["effective_queue_depth"]), (&32.into(), &32.into()));
    }
}

#[test]
fn a_depth_that_queues_are_too_short_for_is_said_and_works() {
    // Receives and the largest request fit, all that is asked for does not.
    let ((serve, of_serve), (load, of_load)) = moved("48", [56, 60]);
    assert!(load.passed() && serve.passed(), "{}", load.table());
    for (lines, json, entries) in [(of_serve, serve.json(), 56), (of_load, load.json(), 60)] {
        let [line] = said(&lines)[..] else { panic!("one line: {lines:?}") };
        let effective = json["effective_queue_depth"].as_u64().unwrap();
        assert!(effective > 0 && effective < 48, "{json}");
        for part in ["--queue-depth 48".to_owned(), format!(": {effective} "), format!("{entries} entries")] {
            assert!(line.contains(&part), "{line} lacks {part}");
        }
        assert_eq!(json["queue_depth"], 48);
    }
}
