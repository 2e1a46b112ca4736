//! `frwr latency` as a person or a program runs it, on the software NIC: arguments in, exit code and two streams out.

mod folder;

use folder::Folder;
use serde_json::Value;
use std::{
    fs,
    process::{Command, Output, Stdio},
};

const FRWR: &str = env!("CARGO_BIN_EXE_frwr");
const PROFILES: [&str; 5] = ["soft:reg_mr", "soft:window", "soft:umr", "soft:umr:fixed-key", "soft:rxe"];

fn latency(arguments: &[&str]) -> Output {
    Command::new(FRWR).arg("latency").args(arguments).output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), without_progress(&text(&output.stderr)))
}

/// On a machine that does something else too any run may last so long that it has lines of progress.
fn without_progress(err: &str) -> String {
    err.split_inclusive('\n').filter(|line| !line.contains(" requests/s")).collect()
}

/// Who waits sees how it goes, on standard error: what goes to a file or a program has none of it.
#[test]
fn a_long_run_says_how_it_goes() {
    let output = latency(&["--cores", "unpinned", "--warm-up", "0", "--runtime", "5", "--json"]);
    let err = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = err.lines().filter(|line| line.contains(" requests/s, ")).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.ends_with(" Gbit/s")), "{err}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 1);
}

/// A curve for each size in one picture.
#[test]
fn several_sizes_are_drawn_together() {
    let folder = Folder::new();
    let svg = folder.path("sizes.svg");
    let line = ["--iterations", "300", "--warm-up", "0", "--cores", "unpinned", "--size", "64,1K", "--svg", &svg];
    assert_eq!(latency(&line).status.code(), Some(0));
    let drawing = fs::read_to_string(svg).unwrap();
    for part in ["64 bytes", "1024 bytes", "2 sizes", "600 requests", "max "] {
        assert!(drawing.contains(part), "{part}: {drawing}");
    }
    assert_eq!(drawing.matches("<circle").count(), 2, "the longest of each is marked: {drawing}");
}

/// A short run where pinning is not the point: so many requests, and what it says of them.
fn measured(requests: u64, arguments: &[&str]) -> Value {
    let count = requests.to_string();
    let cores: &[&str] = if arguments.contains(&"--cores") { &[] } else { &["--cores", "unpinned"] };
    let fixed = ["--json", "--iterations", &count, "--warm-up", "0"];
    let output = latency(&[&fixed[..], cores, arguments].concat());
    let (out, err) = texts(&output);
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{arguments:?}: {out}");
    assert!(out.ends_with('\n') && out.matches('\n').count() == 1, "{out:?}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(number(&report, "requests"), requests, "{report}");
    report
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {report}"))
}

fn real(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name} is no number in {report}"))
}

/// Each size is a measurement of its own, told in the order in which they were named: in one table for people, one object for programs.
#[test]
fn several_sizes_are_measured_one_after_the_other() {
    let folder = Folder::new();
    let csv = folder.path("sizes.csv");
    let usual = ["--iterations", "300", "--warm-up", "0", "--cores", "unpinned", "--size", "64,1K,8"];
    let (out, err) = texts(&latency(&[&usual[..], &["--json", "--csv", &csv]].concat()));
    assert_eq!(err, "");
    let report: Value = serde_json::from_str(&out).unwrap();
    let of_each: Vec<_> = report["measurements"].as_array().unwrap().iter().map(|one| number(one, "size")).collect();
    assert_eq!(of_each, [64, 1024, 8]);
    assert!(report["measurements"].as_array().unwrap().iter().all(|one| number(one, "requests") == 300), "{report}");
    let table = fs::read_to_string(csv).unwrap();
    assert_eq!(table.lines().filter(|line| line.contains(",all,300,")).count(), 3, "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("op,")).count(), 1, "{table}");
    let (out, _) = texts(&latency(&usual));
    let rows = |name: &str| {
        let table = out.lines().skip_while(move |line| !line.contains(name)).skip(1);
        table.take(3).map(|line| line.split_whitespace().next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((rows("#requests"), rows("requests/s ")), (of_sizes(), of_sizes()), "{out}");
}

fn of_sizes() -> Vec<String> {
    ["64", "1024", "8"].map(str::to_owned).to_vec()
}

/// Times are in the order in which they must be.
fn latencies_are_in_order(report: &Value) {
    let latency = &report["latency_us"];
    let values = ["minimum", "typical", "p99", "p99_9", "maximum"].map(|name| real(latency, name));
    assert!(values[0] > 0.0 && values.is_sorted(), "{report}");
    assert!((values[0]..=values[4]).contains(&real(latency, "average")) && real(latency, "stdev") >= 0.0, "{report}");
    assert_eq!(latency["p50"], latency["typical"]);
}

/// What ib_write_lat measures: a WRITE to the server's memory and one back by it, both seen in memory.
#[test]
fn writes_go_to_and_fro_on_every_profile() {
    for device in PROFILES {
        for (size, depth) in [("8", "1"), ("4096", "3"), ("65536", "1")] {
            let report = measured(200, &["--device", device, "--op", "pingpong", "-s", size, "-t", depth, "-q", "2"]);
            latencies_are_in_order(&report);
            assert_eq!((&report["latency_us"]["is"], &report["key"]), (&"half_round_trip".into(), &"static".into()));
            assert_eq!(real(&report, "work_requests_per_request"), 1.0, "{report}");
            assert_eq!((&report["invalidate"], number(&report, "requests_waited")), (&"none".into(), 0), "{report}");
        }
    }
    let report = measured(20, &["--op", "pingpong", "--rate", "1000"]);
    assert_eq!(
        report["latency_us"]["is"], "round_trip",
        "half of a time that began with a wait is half of something else"
    );
    for (option, value) in
        [("--segments", "2"), ("--ranges", "2"), ("--batch", "2"), ("--peer", "read"), ("--key", "request")]
    {
        let output = latency(&["--op", "pingpong", option, value]);
        let (_, err) = texts(&output);
        assert!(output.status.code() == Some(2) && err.contains(option) && err.lines().count() == 1, "{option}: {err}");
    }
}

#[test]
fn every_key_and_every_way_to_kill_it_on_every_profile() {
    for device in PROFILES {
        for (key, invalidate) in [("request", "remote"), ("request", "local"), ("static", "none")] {
            for peer in ["write", "read"] {
                let mut arguments = vec!["--device", device, "--op", "request", "--key", key, "--peer", peer];
                if invalidate != "none" {
                    arguments.extend(["--invalidate", invalidate]);
                }
                let report = measured(300, &arguments);
                latencies_are_in_order(&report);
                let what = |name: &str| report[name].as_str().unwrap().to_owned();
                let named = ["device", "op", "key", "invalidate", "peer"].map(what);
                assert_eq!(named, [device, "request", key, invalidate, peer]);
                // A11: one work request for the message, one for the key, and one more where nobody else kills it.
                let work = real(&report, "work_requests_per_request");
                let (expected, registrations) = match (key, invalidate) {
                    ("static", _) => (1.0, 0),
                    (_, "remote") => (2.0, 300),
                    _ => (3.0, 300),
                };
                assert_eq!((work, number(&report, "registrations")), (expected, registrations), "{report}");
                let killed = (number(&report, "remote_invalidations"), number(&report, "local_invalidations"));
                assert_eq!(
                    killed,
                    (if invalidate == "remote" { 300 } else { 0 }, if invalidate == "local" { 300 } else { 0 })
                );
                // A10 at depth 1: a doorbell, and one for LOCAL_INV.
                assert_eq!(real(&report, "doorbells_per_request"), if invalidate == "local" { 2.0 } else { 1.0 });
            }
        }
    }
}

#[test]
fn every_operation_counts_every_request_once() {
    for (operation, is, work) in [
        ("write", "round_trip", 1.0),
        ("read", "round_trip", 1.0),
        ("send", "half_round_trip", 1.0),
        ("register", "round_trip", 2.0),
    ] {
        for depth in ["1", "7"] {
            let report = measured(500, &["--op", operation, "--depth", depth]);
            latencies_are_in_order(&report);
            assert_eq!(
                (&report["latency_us"]["is"], real(&report, "work_requests_per_request")),
                (&Value::from(is), work)
            );
            assert_eq!(report["hardware"], Value::Null);
            for name in
                ["completions_per_poll", "work_requests_per_doorbell", "empty_poll_share", "seconds", "page_faults"]
            {
                assert!(real(&report, name) >= 0.0, "{name} of {report}");
            }
        }
    }
}

#[test]
fn sizes_pieces_depths_connections_and_cores() {
    let lists: &[&[&str]] = &[
        &["--size", "8"],
        &["--size", "262144", "--depth", "3"],
        &["--depth", "32", "--connections", "3"],
        &["--size", "65536", "--segments", "16", "--depth", "4"],
        &["--size", "65536", "--segments", "16", "--peer", "read"],
        &["--size", "3072", "--segments", "3", "--registration", "windows"],
        &["--size", "3072", "--segments", "3", "--registration", "lists"],
        &["--size", "3072", "--segments", "3", "--key", "static"],
        &["--cores", "unpinned:4", "--connections", "2", "--depth", "4"],
        &["--op", "send", "--size", "8"],
        &["--op", "send", "--size", "131072"],
        &["--op", "write", "--size", "64", "--segments", "2", "--depth", "5", "--connections", "2"],
        &["--op", "read", "--size", "65536", "--segments", "16", "--depth", "2"],
        &["--op", "write", "--size", "128", "--ranges", "16", "--depth", "2"],
        &["--op", "write", "--size", "96", "--ranges", "3", "--segments", "4", "--connections", "2"],
        &["--op", "read", "--size", "65536", "--ranges", "4", "--segments", "4", "--depth", "5"],
        &["--op", "register", "--batch", "32", "--depth", "2", "--connections", "2"],
        &["--op", "register", "--batch", "256", "--size", "1048576", "--registration", "windows"],
    ];
    for arguments in lists {
        let report = measured(203, arguments);
        latencies_are_in_order(&report);
        let cores = if arguments.contains(&"unpinned:4") { 2 } else { 1 };
        let per_core = report["per_core"].as_array().unwrap();
        let shares: u64 = per_core.iter().map(|core| number(core, "requests")).sum();
        assert_eq!((number(&report, "cores"), shares), (cores, 203), "{report}");
        for core in per_core {
            let (long, all) = (number(core, "long_iterations"), number(core, "iterations"));
            assert!(all > 0 && long <= all, "{core}");
            assert!(long == 0 || real(core, "longest_iteration_us") >= real(core, "long_iteration_us"), "{core}");
        }
    }
    // One key for all pieces where lists have gaps, one for each where a window is a range.
    for (registration, keys, lists) in [("windows", 3, 0), ("lists", 1, 100)] {
        let report = measured(100, &["--size", "3072", "--segments", "3", "--registration", registration]);
        assert_eq!(
            (number(&report, "registrations"), number(&report, "lists_registered"), &report["registration"]),
            (100 * keys, lists, &Value::from(registration))
        );
    }
}

/// An entry of a list has any length: what is in one piece takes one, however many pages it has.
#[test]
fn a_list_reaches_as_far_as_its_entries() {
    for arguments in [
        &["--size", "4194304"][..],
        &["--size", "67108864"],
        &["--size", "16777216", "--segments", "16"],
        &["--size", "65536", "--depth", "128", "--key", "static"],
        &["--op", "write", "--size", "65536", "--depth", "128"],
        &["--op", "read", "--size", "1048576", "--depth", "4", "--segments", "2"],
        &["--op", "register", "--size", "4194304", "--batch", "4"],
    ] {
        let report = measured(10, &[&["--registration", "lists"], arguments].concat());
        let keys = if report["key"] == "request" { 10 } else { 0 };
        assert_eq!(number(&report, "registrations"), keys, "{arguments:?}: {report}");
    }
}

/// B2: frwr is not to be the bottleneck in silence where a card has to fetch more than a work request's first 64 bytes.
#[test]
fn lists_that_are_dear_on_a_card_are_counted_and_warned_of() {
    for (segments, registration, told) in
        [("16", "lists", true), ("8", "lists", true), ("4", "lists", false), ("16", "windows", false)]
    {
        let arguments = ["--size", "65536", "--segments", segments, "--registration", registration];
        let report = measured(100, &arguments);
        let warnings: Vec<_> = report["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let text = format!("100 registrations are of lists with {segments} entries");
        assert_eq!(warnings.iter().any(|warning| warning.starts_with(&text)), told, "{arguments:?}: {warnings:?}");
    }
}

#[test]
fn a_batch_of_keys_shares_its_doorbells() {
    let alone = measured(640, &["--op", "register", "--registration", "windows"]);
    let together = measured(640, &["--op", "register", "--registration", "windows", "--batch", "32"]);
    assert_eq!(real(&alone, "doorbells_per_request"), 2.0);
    assert_eq!(real(&together, "doorbells_per_request"), 2.0 / 32.0);
    assert_eq!(real(&together, "work_requests_per_doorbell"), 32.0);
}

#[test]
fn deep_queues_share_doorbells() {
    let report = measured(32_000, &["--depth", "32", "--device", "soft:window"]);
    // Server and client take turns on two threads: a good part of the requests goes out together.
    assert!(real(&report, "doorbells_per_request") <= 1.0, "{report}");
    assert_eq!(real(&report, "work_requests_per_request"), 2.0);
}

#[test]
fn a_rate_is_kept_and_counted_from_when_requests_were_meant_to_begin() {
    let arguments =
        ["--json", "--cores", "unpinned", "--rate", "500", "--runtime", "0.5", "--warm-up", "0", "--depth", "64"];
    let output = latency(&arguments);
    let report: Value = serde_json::from_str(&texts(&output).0).unwrap();
    assert_eq!((output.status.code(), number(&report, "rate")), (Some(0), 500));
    // Requests are due at 0, 2, .., 498 ms: none is lost, whatever the machine does meanwhile.
    assert_eq!(number(&report, "requests") + number(&report, "rate_missed"), 250, "{report}");
    // More than any core does: what was meant to begin long ago shows it.
    let arguments = ["--json", "--cores", "unpinned", "--rate", "100000000", "--iterations", "20000", "--warm-up", "0"];
    let report: Value = serde_json::from_str(&texts(&latency(&arguments)).0).unwrap();
    let (typical, seconds) = (real(&report["latency_us"], "typical"), real(&report, "seconds"));
    assert!(typical > 0.25 * seconds * 1e6, "half of them waited for half of the run: {report}");
}

#[test]
fn results_go_to_files() {
    let folder = Folder::new();
    let [csv, hgrm, svg] = ["a.csv", "a.hgrm", "a.svg"].map(|name| folder.path(name));
    // What is there is replaced, also where it was longer.
    fs::write(&csv, vec![b'x'; 100_000]).unwrap();
    measured(2000, &["--csv", &csv, "--hgrm", &hgrm, "--svg", &svg, "--cores", "unpinned:4"]);
    let table = fs::read_to_string(csv).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 4, "a head, all cores, and two: {table}");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{table}");
    let column = rows[0].iter().position(|name| *name == "requests").unwrap();
    assert_eq!([1, 2, 3].map(|row| rows[row][column]), ["2000", "1000", "1000"]);
    let last = rows[0].len() - 13;
    assert_eq!(
        rows[0][last..].join(","),
        "rate,rounds,completions_per_poll,work_requests_per_doorbell,empty_poll_share,ranges,peer,warm_up,seconds,mib_per_second,\
         rate_missed,rate_late,gbit_per_second"
    );
    for row in &rows[1..] {
        let [per_poll, per_doorbell, empty] = [2, 3, 4].map(|at| row[last + at].parse::<f64>().unwrap());
        assert_eq!((row[last], row[last + 1]), ("", ""), "neither a rate nor rounds were asked for: {table}");
        assert_eq!(row[last + 5], "1", "{table}");
        assert!(per_poll >= 1.0 && per_doorbell >= 1.0 && (0.0..1.0).contains(&empty), "{table}");
    }
    let percentiles = fs::read_to_string(hgrm).unwrap();
    assert!(percentiles.contains("1/(1-Percentile)") && percentiles.contains("Total count    =         2000]"));
    let drawing = fs::read_to_string(svg).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"), "{drawing}");
    assert!(
        drawing.contains("99.9%") && drawing.contains("2000 requests") && drawing.contains("polyline"),
        "{drawing}"
    );
}

#[test]
fn people_get_tables() {
    let output = latency(&["--cores", "unpinned:2", "--iterations", "500", "--warm-up", "0"]);
    let (out, err) = texts(&output);
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{out}");
    for part in [
        "t_typical",
        "99.9%",
        "round trip",
        "empty polls",
        "completions/poll",
        "work requests/doorbell",
        "not a network's",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert!(out.lines().any(|line| line.starts_with("warning: the reactors are not pinned")), "{out}");
    let output = latency(&["--op", "send", "--cores", "unpinned", "--iterations", "50", "--warm-up", "0"]);
    assert!(texts(&output).0.contains("half of the round trip"));
}

/// Arguments, exit code, name of the error, and parts of its one line.
type Refusal<'a> = (&'a [&'a str], i32, &'a str, &'a [&'a str]);

fn refused((arguments, exit_code, name, parts): Refusal<'_>) {
    let output = latency(arguments);
    let (out, err) = texts(&output);
    assert_eq!((output.status.code(), out.as_str()), (Some(exit_code), ""), "{arguments:?}: {err}");
    assert!(err.starts_with("error: ") && err.matches('\n').count() == 1, "{arguments:?}: {err:?}");
    assert!(parts.iter().all(|part| err.contains(part)), "{arguments:?}: {err}");
    let output = latency(&[arguments, &["--json"]].concat());
    let report: Value = serde_json::from_str(&texts(&output).0).unwrap();
    assert_eq!((output.status.code(), report["error"].as_str()), (Some(exit_code), Some(name)), "{report}");
}

#[test]
fn wrong_arguments_are_one_line_with_a_remedy() {
    let refusals: &[Refusal<'_>] = &[
        (&["--size", "12"], 2, "out_of_range", &["--size is 12", "multiple of 8"]),
        (&["--size", "4096", "--segments", "3"], 2, "out_of_range", &["--size is 4096", "multiple of 24"]),
        (&["--size", "0"], 2, "out_of_range", &["--size is 0", "from 8"]),
        (&["--op", "send", "--size", "131080"], 2, "out_of_range", &["--size is 131080", "131072"]),
        (&["--segments", "17"], 2, "out_of_range", &["--segments is 17", "16"]),
        (&["--op", "write", "--ranges", "17"], 2, "out_of_range", &["--ranges is 17", "16"]),
        (&["--op", "read", "--ranges", "0"], 2, "out_of_range", &["--ranges is 0", "16"]),
        (
            &["--op", "write", "--ranges", "3"],
            2,
            "out_of_range",
            &["--size is 4096", "8 bytes for each segment and range"],
        ),
        (
            &["--op", "write", "--ranges", "16", "--segments", "15", "--size", "1920"],
            2,
            "out_of_range",
            &["--segments and --ranges", "is 30", "16"],
        ),
        (&["--ranges", "2"], 2, "combination", &["--ranges", "--op write", "--segments"]),
        (&["--op", "send", "--ranges", "2"], 2, "combination", &["--ranges", "--op write"]),
        (&["--depth", "0"], 2, "out_of_range", &["--depth is 0", "1024"]),
        (&["--depth", "1025"], 2, "out_of_range", &["--depth is 1025", "1024"]),
        (&["--op", "register", "--batch", "257"], 2, "out_of_range", &["--batch is 257", "256"]),
        (&["--batch", "2"], 2, "combination", &["--batch", "--op register"]),
        (&["--connections", "65"], 2, "out_of_range", &["--connections is 65", "64"]),
        (&["--size", "67108864", "--depth", "1024"], 2, "out_of_range", &["bytes of all buffers", "1073741824"]),
        (&["--rounds", "two"], 2, "usage", &["--rounds", "two"]),
        (&["--rounds", "one", "--rate", "5"], 2, "usage", &["--rate"]),
        (&["--rounds", "one", "--op", "register"], 2, "combination", &["--rounds", "register"]),
        (&["--rate", "0"], 2, "out_of_range", &["--rate is 0"]),
        (&["--runtime", "0"], 2, "combination", &["--runtime", "--iterations"]),
        (&["--runtime", "x"], 2, "usage", &["--runtime", "seconds"]),
        (&["--runtime", "1", "--iterations", "5"], 2, "usage", &["--iterations"]),
        (&["--op", "fetch"], 2, "usage", &["fetch", "register"]),
        (&["--key", "static", "--op", "register"], 2, "combination", &["--key static", "memory"]),
        (&["--key", "request", "--op", "send"], 2, "combination", &["--key request", "send"]),
        (&["--key", "memory"], 2, "combination", &["--key memory", "ibv_reg_mr", "RDMA device"]),
        (&["--invalidate", "remote", "--op", "register"], 2, "combination", &["--invalidate remote", "--op request"]),
        (&["--invalidate", "remote", "--key", "static"], 2, "combination", &["--invalidate remote"]),
        (&["--device", "soft:nothing"], 2, "combination", &["soft:nothing", "window"]),
        (&["--device", "soft:umr", "--registration", "windows"], 2, "combination", &["--registration"]),
        (&["10.9.0.1", "--device", "soft", "--listen", "10.9.0.2"], 2, "combination", &["--listen", "HOST"]),
        (&["--listen", "10.9.0.2", "--op", "read"], 2, "combination", &["--op", "--one-process"]),
        (&["10.9.0.1", "--device", "rxe0", "--one-process"], 2, "combination", &["--one-process"]),
        (&["--cores", "unpinned:3"], 2, "combination", &["--cores", "even"]),
        (&["--cores", "0,0"], 2, "core_list", &["core 0"]),
        (&["--cores", "9999"], 2, "core_list", &["9999"]),
        (&["--idle", "sleep@1", "--cores", "unpinned:2"], 2, "idle_cores", &["--idle sleep@1", "--cores does not"]),
        (&["--listen", "nowhere"], 2, "usage", &["--listen", "IP address"]),
        (&["--size", "64,5x"], 2, "usage", &["--size", "\"5x\"", "64K"]),
        (&["--size", "8,8G"], 2, "usage", &["--size", "\"8G\"", "67108864"]),
        (&["--size", "8,16", "--hgrm", "a"], 2, "combination", &["--hgrm", "one --size", "--csv"]),
        (&["--csv", "/nonexistent/a.csv"], 1, "file", &["--csv", "/nonexistent/a.csv", "writable"]),
        (&["--hgrm", "/nonexistent/a"], 1, "file", &["--hgrm", "/nonexistent/a", "writable"]),
    ];
    refusals.iter().for_each(|refusal| refused(*refusal));
    if cfg!(not(feature = "verbs")) {
        refused((&["--device", "rxe0"], 1, "no_rdma_support", &["--features verbs"]));
        refused((&["10.9.0.1", "--device", "rxe0"], 1, "no_rdma_support", &["--features verbs"]));
        refused((&["--one-process", "--device", "rxe0"], 1, "no_rdma_support", &["--features verbs"]));
    }
}

/// A18: of a round the doorbells alone differ, and RDMA WRITEs behind one doorbell share its completion.
#[test]
fn the_last_of_a_repeated_flag_holds_as_scripts_with_usual_flags_need_it() {
    let report = measured(100, &["--json", "--depth", "8", "--op", "send", "--depth", "2", "--op", "write"]);
    assert_eq!((report["op"].as_str(), number(&report, "depth")), (Some("write"), 2));
}

#[test]
fn rounds_have_one_doorbell_or_one_for_each_request() {
    for operation in ["write", "read", "send", "pingpong", "request"] {
        for (rounds, doorbells) in [("one", 1.0 / 32.0), ("each", 1.0)] {
            let report = measured(3200, &["--op", operation, "--depth", "32", "--rounds", rounds]);
            latencies_are_in_order(&report);
            assert_eq!((report["rounds"].as_str(), real(&report, "doorbells_per_request")), (Some(rounds), doorbells));
            if operation == "write" {
                assert_eq!(real(&report, "send_completions_per_request"), doorbells, "{report}");
            }
        }
    }
    assert!(measured(10, &["--op", "write"])["rounds"].is_null());
}

/// A18: one operation of many ranges is that many work requests, one event and one latency; those of a round share doorbell and completion.
#[test]
fn an_operation_of_several_ranges_is_counted_as_one() {
    for (operation, completions) in [("write", 0.5), ("read", 1.0)] {
        for (ranges, segments, work) in [("16", "1", 16.0), ("4", "4", 4.0), ("3", "4", 3.0)] {
            let size = "384";
            let arguments = ["--op", operation, "--size", size, "--ranges", ranges, "--segments", segments];
            let report = measured(640, &[&arguments[..], &["--depth", "2", "--rounds", "one"]].concat());
            latencies_are_in_order(&report);
            assert_eq!((number(&report, "ranges").to_string().as_str(), number(&report, "size")), (ranges, 384));
            assert_eq!(real(&report, "work_requests_per_request"), work, "{report}");
            assert_eq!(real(&report, "doorbells_per_request"), 0.5, "{report}");
            assert_eq!(real(&report, "send_completions_per_request"), completions, "{report}");
            let bytes = real(&report, "requests_per_second") * 384.0 / f64::from(1 << 20);
            assert!((real(&report, "mib_per_second") - bytes).abs() <= 1e-9 * bytes, "{report}");
        }
    }
    let output =
        latency(&["--op", "write", "--size", "128", "--ranges", "16", "--cores", "unpinned", "--iterations", "50"]);
    let (out, _) = texts(&output);
    assert!(
        out.contains("128 bytes to 16 ranges of the server's memory")
            && out.contains("per request: 16.000 work requests"),
        "{out}"
    );
}

#[test]
fn signals_end_it_with_what_there_is_so_far() {
    for signal in ["INT", "TERM"] {
        let child = Command::new(FRWR)
            .arg("latency")
            .args(["--json", "--runtime", "3600", "--warm-up", "0", "--cores", "unpinned"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A builtin of every shell. Before its handlers are there a signal would end it: so it is asked until it has them.
        let script = format!(
            "until grep -q '^SigCgt:.*[4-7c-f]...$' /proc/{0}/status; do :; done; kill -{signal} {0}",
            child.id()
        );
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let report: Value = serde_json::from_str(&texts(&output).0).unwrap();
        assert_eq!((output.status.code(), &report["interrupted"]), (Some(0), &Value::Bool(true)), "{signal}: {report}");
    }
}

#[test]
fn help_and_version_are_results() {
    for (flag, says) in [("--help", "frwr latency"), ("-V", "frwr-latency"), ("--version", "\ncommit: ")] {
        let output = latency(&[flag]);
        let (out, err) = texts(&output);
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{flag}");
        assert!(out.contains("frwr") && out.contains(says), "{out}");
    }
}
