//! `frwr` and `frwr check` as a person or a program runs them: arguments in, exit code and two streams out.

use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const FRWR: &str = env!("CARGO_BIN_EXE_frwr");
const PROFILES: [&str; 5] = ["soft:reg_mr", "soft:window", "soft:umr", "soft:umr:fixed-key", "soft:rxe"];
/// No multiple of any block size.
const FILE_BYTES: usize = 200_001;

/// A path in a folder of its own, which is deleted at the end: tests run beside each other and may use the same names.
struct Temporary(PathBuf, #[expect(dead_code, reason = "it is deleted when dropped")] tempfile::TempDir);

impl Temporary {
    fn path(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self(folder.path().join(name), folder)
    }

    fn file(name: &str, bytes: &[u8]) -> Self {
        let path = Self::path(name);
        fs::write(&path.0, bytes).unwrap();
        path
    }

    /// A file to move.
    fn data(name: &str) -> Self {
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at * at / 7) as u8).collect();
        Self::file(name, &bytes)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

fn frwr(arguments: &[&str]) -> Output {
    Command::new(FRWR).args(arguments).output().unwrap()
}

/// A run of the job where pinning is not the point.
fn job(file: &Temporary, arguments: &[&str]) -> Output {
    let mut all = vec![file.text(), "--json", "--cores", "unpinned"];
    all.extend_from_slice(arguments);
    if !arguments.contains(&"--runtime") {
        all.extend_from_slice(&["--runtime", "0"]);
    }
    frwr(&all)
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// The only line on standard output.
fn one_line(output: &Output) -> Value {
    let (out, err) = texts(output);
    assert!(out.ends_with('\n') && out.matches('\n').count() == 1, "stdout {out:?}\nstderr {err}");
    assert!(!err.contains("panicked"), "{err}");
    serde_json::from_str(&out).unwrap()
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {report}"))
}

/// Every key that was made is dead, and it is known how it died.
fn keys_are_accounted(report: &Value) {
    let ends = ["local_invalidations", "remote_invalidations", "keys_destroyed_live"];
    let ended: u64 = ends.iter().map(|name| number(report, name)).sum();
    assert_eq!(number(report, "registrations"), ended, "{report}");
    assert_eq!(number(report, "remote_bytes_open"), 0, "{report}");
}

fn verified(output: &Output, what: &str) -> Value {
    let report = one_line(output);
    assert_eq!(output.status.code(), Some(0), "{what}: {report}");
    assert_eq!(report["verified"], true, "{what}: {report}");
    assert_eq!(number(&report, "file_bytes"), FILE_BYTES as u64);
    assert_eq!(number(&report, "requests"), number(&report, "requests_ended"), "{what}");
    keys_are_accounted(&report);
    report
}

#[test]
fn the_report_is_one_line_with_every_field() {
    let report = verified(&job(&Temporary::data("fields"), &[]), "defaults");
    for name in ["send_completions", "doorbells", "work_requests", "requests", "registrations"] {
        assert!(number(&report, name) > 0, "{name} in {report}");
    }
    assert_eq!(number(&report, "doorbells"), number(&report, "send_chains"));
    assert!(!report["region"].as_str().unwrap().is_empty());
    let roles: Vec<_> = report["cores"].as_array().unwrap().iter().map(|core| core["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["target", "host"]);
    let cores = report["cores"].as_array().unwrap();
    for field in ["iops", "mib_per_second", "busy_share"] {
        assert!(cores.iter().all(|core| core[field].as_f64().is_some_and(|value| value > 0.0)), "{field} in {report}");
    }
    let mean = report["latency_us"]["mean"].as_f64().unwrap();
    let latency = ["min", "p50", "p99", "p999", "max"].map(|name| report["latency_us"][name].as_f64().unwrap());
    assert!(latency[0] > 0.0 && latency.is_sorted(), "{latency:?}");
    assert!(latency[0] <= mean && mean <= latency[4], "{mean} of {latency:?}");
}

#[test]
fn every_profile_verifies_within_its_work_requests() {
    let file = Temporary::data("profiles");
    for device in PROFILES {
        for (arguments, per_request) in
            [(&["--device", device][..], 2), (&["--device", device, "--no-remote-invalidate"], 3)]
        {
            let report = verified(&job(&file, arguments), device);
            // Bring-up included: commands without data take one work request and make up for those with LOCAL_INV.
            let (requests, work_requests) = (number(&report, "requests"), number(&report, "work_requests"));
            assert!(work_requests <= per_request * requests, "{device}: {work_requests} for {requests}");
            let remote = number(&report, "remote_invalidations");
            assert_eq!(remote > 0, per_request == 2, "{device}: {report}");
        }
    }
}

#[test]
fn sizes_of_all_kinds_verify() {
    let file = Temporary::data("sizes");
    for (depth, block, share) in [("1", "512", "0"), ("1024", "65536", "100"), ("3", "4096", "50")] {
        let arguments = ["--queue-depth", depth, "--block-size", block, "--read-share", share, "--runtime", "0"];
        let report = verified(&job(&file, &arguments), block);
        assert_eq!(number(&report, "block_bytes").to_string(), block);
    }
}

#[test]
fn the_default_is_pinned_and_prints_a_table() {
    let file = Temporary::data("table");
    let output = frwr(&[file.text(), "--runtime", "1"]);
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    for part in [
        "IOPS",
        "total",
        "mean",
        "p99.9",
        "killed by the peer",
        "remote bytes open",
        "doorbells",
        "receive completions",
        "verified",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    // A line per second, and not among the results.
    assert!(err.lines().any(|line| line.trim_start().starts_with("1 s")), "{err}");
    let report = one_line(&frwr(&[file.text(), "--runtime", "0", "--json"]));
    for core in report["cores"].as_array().unwrap() {
        assert!(core["core"].is_u64(), "{core}");
    }
}

#[test]
fn fault_injections_make_the_run_fail_and_say_what_was_caught() {
    let file = Temporary::data("inject");
    for device in PROFILES {
        for inject in ["corrupt-data", "skip-invalidate"] {
            for more in [&[][..], &["--no-remote-invalidate"]] {
                let arguments = [&["--device", device, "--inject", inject], more].concat();
                let output = job(&file, &arguments);
                let report = one_line(&output);
                assert_eq!(output.status.code(), Some(1), "{arguments:?}: {report}");
                assert_eq!(report["verified"], false, "{arguments:?}: {report}");
                let cores = report["cores"].as_array().unwrap();
                assert!(cores.iter().all(|core| core["iops"].is_number()), "also where no request ended: {report}");
                let caught = report["caught"].as_str().unwrap_or_else(|| panic!("{arguments:?}: {report}"));
                let expected = if inject == "corrupt-data" { "was written" } else { "open to the peer" };
                assert!(caught.contains(expected), "{arguments:?}: {caught}");
                assert!(texts(&output).1.contains(caught), "also for people");
                assert_eq!(report["injected"]["fault"], inject);
                assert!(report["injected"]["struck"].as_u64() > Some(0), "{arguments:?}: {report}");
            }
        }
    }
}

#[test]
fn a_killed_peer_costs_no_request() {
    let file = Temporary::data("kill");
    for device in PROFILES {
        let more: &[&str] = if device == "soft:window" { &["--no-remote-invalidate"] } else { &[] };
        let arguments = [&["--device", device, "--inject", "kill-peer", "--runtime", "1"], more].concat();
        let report = verified(&job(&file, &arguments), device);
        assert!(number(&report, "reconnects") >= 1, "{device}: {report}");
        assert!(number(&report, "resubmitted") >= 1, "{device}: {report}");
        assert_eq!(report["injected"]["struck"], report["reconnects"], "{device}: {report}");
    }
}

/// What was to be shown was not: a run that is too short for its fault must not pass.
#[test]
fn a_fault_that_does_not_strike_is_no_success() {
    // One block, and a load that does not begin: some three invalidations, and nobody is killed.
    let file = Temporary::file("small", &[7; 100]);
    for fault in ["skip-invalidate", "kill-peer"] {
        let output = job(&file, &["--inject", fault]);
        let report = one_line(&output);
        assert_eq!(output.status.code(), Some(1), "{fault}: {report}");
        assert_eq!((&report["passed"], &report["caught"]), (&Value::Bool(false), &Value::Null), "{fault}: {report}");
        assert_eq!((report["injected"]["fault"].as_str(), &report["injected"]["struck"]), (Some(fault), &0.into()));
        let out = texts(&frwr(&[file.text(), "--inject", fault, "--runtime", "0", "--cores", "unpinned"])).0;
        assert!(out.contains(&format!("FAILED: the fault did not strike (--inject {fault}); ")), "{out}");
        assert!(!out.contains("verified:"), "{out}");
    }
}

#[test]
fn the_trace_holds_every_post() {
    let (file, trace) = (Temporary::data("trace"), Temporary::path("trace-out"));
    let report = verified(&job(&file, &["--trace", trace.text()]), "with trace");
    let text = fs::read_to_string(&trace.0).unwrap();
    let dropped = text.lines().last().unwrap();
    assert!(dropped.ends_with("records dropped"), "{dropped}");
    let accepted =
        text.lines().filter(|line| line.contains(" post ") && line.ends_with("accepted=true")).count() as u64;
    if dropped == "# 0 records dropped" {
        assert!(accepted >= number(&report, "work_requests"), "{accepted}");
    } else {
        assert!(accepted > 0);
    }
}

/// An argument list, the exit code, the error's name, and what its first line names.
type Refusal<'a> = (&'a [&'a str], i32, &'a str, &'a [&'a str]);

fn refused((arguments, exit_code, name, parts): Refusal<'_>) {
    let output = frwr(&[arguments, &["--json"]].concat());
    let object = one_line(&output);
    assert_eq!(output.status.code(), Some(exit_code), "{arguments:?}: {object}");
    assert_eq!(object["error"], name, "{arguments:?}: {object}");
    let plain = frwr(arguments);
    assert_eq!(plain.status.code(), Some(exit_code), "{arguments:?}");
    let (out, err) = texts(&plain);
    assert_eq!(out, "", "results only on standard output");
    let first = err.lines().next().unwrap();
    assert!(first.starts_with("error: ") && !err.contains("panicked"), "{err}");
    for part in parts {
        assert!(first.contains(part), "{arguments:?}: {part:?} in {first:?}");
        assert!(object["message"].as_str().unwrap().contains(part), "{object}");
    }
}

#[test]
fn wrong_arguments_name_limit_value_and_remedy() {
    let file = Temporary::data("wrong");
    let f = file.text();
    let refusals: &[Refusal<'_>] = &[
        (&[f, "--wrong"], 2, "usage", &["--wrong", "frwr --help"]),
        (&[f, "again"], 2, "usage", &["again"]),
        (&[f, "--runtime"], 2, "usage", &["--runtime"]),
        (&[f, "--runtime", "x"], 2, "usage", &["--runtime", "'x'"]),
        (&[f, "--runtime", "-1"], 2, "usage", &["-1"]),
        (&[f, "--runtime", "86401"], 2, "out_of_range", &["--runtime is 86401", "86400", "choose"]),
        (&[f, "--queue-depth", "0"], 2, "out_of_range", &["--queue-depth is 0", "1 to 1024", "choose"]),
        (&[f, "--queue-depth", "1025"], 2, "out_of_range", &["--queue-depth is 1025", "1024"]),
        (&[f, "--read-share", "101"], 2, "out_of_range", &["--read-share is 101", "0 to 100"]),
        (&[f, "--read-share", "1000"], 2, "usage", &["--read-share", "1000"]),
        (&[f, "--block-size", "0"], 2, "block_size", &["--block-size is 0", "power of two", "512 to 65536"]),
        (&[f, "--block-size", "4095"], 2, "block_size", &["--block-size is 4095", "power of two", "4096"]),
        (&[f, "--block-size", "131072"], 2, "block_size", &["131072", "65536"]),
        (&[f, "--device", "mlx5_0"], 2, "unknown_device", &["mlx5_0", "soft:PROFILE", "serve", "load"]),
        (&[f, "--device", "soft:"], 2, "unknown_device", &["soft:", "reg_mr"]),
        (&[f, "--inject", "nothing"], 2, "usage", &["nothing", "kill-peer"]),
        (&[f, "--pages", "3M"], 2, "usage", &["3M", "2M"]),
        (&[f, "--cores", ""], 2, "core_list", &["--cores"]),
        (&[f, "--cores", "a"], 2, "core_list", &["--cores", "\"a\"", "write"]),
        (&[f, "--cores", "unpinned:2"], 2, "core_list", &["unpinned:2", "\"0,2-3\", or `unpinned`"]),
        (&[f, "--cores", "3-2"], 2, "core_list", &["3-2", "write"]),
        (&[f, "--cores", "0,0"], 2, "core_list", &["core 0", "twice", "remove"]),
        (&[f, "--cores", "999"], 2, "core_offline", &["core 999", "online cores"]),
        (&[f, "--cores", "0-2"], 2, "core_count", &["3 cores", "1 or 2", "name two"]),
        (&[f, "--idle", "sleep@a"], 2, "usage", &["--idle", "behind @", "\"a\""]),
        (&[f, "--idle", "sleep@0"], 2, "idle_cores", &["--idle sleep@0", "--cores does not", "leave @"]),
        (&[f, "--idle", "sleep@0-1", "--cores", "0"], 2, "idle_cores", &["sleep@0-1", "core 1", "--cores 0;"]),
    ];
    refusals.iter().for_each(|refusal| refused(*refusal));
}

/// An option, its value, and what is accepted.
type WrongNumber<'a> = (&'a str, &'a str, &'a str);

/// The line names what may be written, and not what a number of the program can hold.
#[test]
fn numbers_that_are_none_are_told_the_limits_of_their_option() {
    let file = Temporary::data("numbers");
    let f = file.text();
    let serve = ["serve", "--device", "rxe0", "--listen", "127.0.0.1:4420", "--namespace", f];
    let load = ["load", "--device", "rxe0", "--connect", "127.0.0.1:4420"];
    let block = "must be a power of two from 512 to 65536 bytes, of `load` to 4194304, such as 512 or 4K";
    let of_each: &[(&[&str], &[WrongNumber<'_>])] = &[
        (
            &[f],
            &[
                ("--seed", "X", "must be a whole number from 0 to 18446744073709551615"),
                ("--seed", "-1", "from 0 to 18446744073709551615"),
                ("--seed", "18446744073709551616", "from 0 to 18446744073709551615"),
                ("--block-size", "X", block),
                ("--block-size", "4KB", block),
                ("--block-size", "4G", block),
                ("--block-size", "-512", block),
            ],
        ),
        (
            &serve,
            &[
                ("--hosts", "100000", "from 1 to 256"),
                ("--queue-depth", "x", "from 1 to 1024"),
                ("--io-queues", "x", "from 1 to 16"),
                ("--in-capsule", "x", "from 0 to "),
                ("--data-blocks", "256", "from 1 to "),
                ("--shared-receives", "on", "must be off, or a whole number up to 65536"),
                ("--runtime", "1.5", "from 0 to 86400"),
            ],
        ),
        (
            &load,
            &[
                ("--block-size", "x", block),
                ("--nsid", "4294967296", "from 1 to 4294967294"),
                ("--queues", "x", "from 1 to "),
                ("--scatter", "256", "from 1 to "),
                ("--bytes", "1X", "must be a whole number of bytes, such as 4096, 64K or 10G"),
                ("--offset", "-1", "must be a whole number of bytes"),
                ("--rw", "randomly", "[possible values: read, write, trim, randread, randwrite, randtrim, rw, randrw]"),
                ("--bssplit", "4K/60", "has percentages of 60 in all: must be 100"),
                ("--rate-iops", "x", "from 1 to 1000000000"),
                ("--rate", "fast", "such as 4096, 64K or 10G"),
                ("--ramp-time", "0.5", "from 0 to 86400"),
                ("--io-size", "x", "must be a whole number of bytes"),
                ("--interval", "often", "must be a number of seconds from 0.1 to 3600"),
                ("--steadystate", "iops", "such as iops:0.3%"),
                ("--steadystate-duration", "x", "from 1 to 86400"),
                ("--reconnects", "x", "from 0 to 100"),
                ("--io-timeout", "0.5", "from 1 to 3600"),
                ("--io-retries", "x", "from 0 to 100"),
                ("--gid-index", "256", "from 0 to 255"),
                ("--ib-port", "x", "from 1 to 255"),
                ("--mtu", "jumbo", "must be 256, 512, 1024, 2048 or 4096"),
                ("--traffic-class", "0x20", "from 0 to 255"),
                ("--ack-timeout", "x", "from 0 to 31"),
                ("--inline-size", "x", "from 0 to 1024"),
                ("--retry-count", "x", "from 0 to 7"),
                ("--rnr-retry-count", "x", "from 0 to 7"),
            ],
        ),
    ];
    for (fixed, wrong) in of_each {
        for (option, value, limits) in *wrong {
            let named = format!("'{value}' for '{option} <");
            refused((&[fixed, &[*option, *value][..]].concat(), 2, "usage", &[&named, limits]));
        }
    }
    let report = verified(&job(&file, &["--block-size", "4K"]), "a unit");
    assert_eq!(number(&report, "block_bytes"), 4096);
}

#[test]
fn wrong_arguments_of_the_halves_name_limit_value_and_remedy() {
    let file = Temporary::data("halves");
    let serve = ["serve", "--device", "rxe0", "--listen", "127.0.0.1:4420", "--namespace", file.text()];
    let load = ["load", "--device", "rxe0", "--connect", "127.0.0.1:4420"];
    let of_both: &[Refusal<'_>] = &[
        (&["--wrong"], 2, "usage", &["--wrong", "--help"]),
        (&["--ib-port", "0"], 2, "out_of_range", &["--ib-port is 0", "1 to 255", "choose"]),
        (&["--mtu", "1500"], 2, "mtu", &["--mtu is 1500", "1024", "leave it out"]),
        (&["--traffic-class", "256"], 2, "usage", &["--traffic-class", "256", "255"]),
        (&["--gid-index", "256"], 2, "usage", &["--gid-index", "256", "255"]),
        (&["--ack-timeout", "32"], 2, "out_of_range", &["--ack-timeout is 32", "0 to 31"]),
        (&["--inline-size", "1025"], 2, "out_of_range", &["--inline-size is 1025", "0 to 1024"]),
        (&["--retry-count", "8"], 2, "out_of_range", &["--retry-count is 8", "0 to 7"]),
        (&["--rnr-retry-count", "8"], 2, "out_of_range", &["--rnr-retry-count is 8", "0 to 7"]),
        (&["--cores", "unpinned:300"], 2, "core_count", &["300 cores", "1 to", "as many"]),
        (&["--queue-depth", "1025"], 2, "out_of_range", &["--queue-depth is 1025", "1024"]),
        (&["--block-size", "4095"], 2, "block_size", &["4095", "power of two"]),
    ];
    let of_serve: &[Refusal<'_>] = &[
        (&["--hosts", "-1"], 2, "usage", &["'-1'", "from 1 to 256", "`frwr serve --help`"]),
        (&["--hosts", "0"], 2, "out_of_range", &["--hosts is 0", "1 to 256"]),
        (&["--runtime", "86401"], 2, "out_of_range", &["--runtime is 86401", "86400"]),
        (&["--registration", "lists"], 2, "target_registration", &["opens no memory", "leave it out"]),
        (&["--registration", "windows"], 2, "target_registration", &["--registration", "for load"]),
        (&["--device", "rxe0"], 2, "devices", &["--device has rxe0 twice", "name each device once"]),
    ];
    let of_load: &[Refusal<'_>] = &[
        (&["--device", "soft"], 2, "usage", &["--device", "multiple times"]),
        (&["--reconnects", "-1"], 2, "usage", &["'-1'", "from 0 to 100", "`frwr load --help`"]),
        (&["--reconnects", "101"], 2, "out_of_range", &["--reconnects is 101", "100"]),
        (&["--io-retries", "101"], 2, "out_of_range", &["--io-retries is 101", "0 to 100"]),
        (&["--io-timeout", "0"], 2, "out_of_range", &["--io-timeout is 0", "1 to 3600"]),
        (&["--path-timeout", "0"], 2, "out_of_range", &["--path-timeout is 0", "1 to 3600"]),
        (&["--quiesce-margin", "3601"], 2, "out_of_range", &["--quiesce-margin is 3601", "0 to 3600"]),
        (&["--storage-fences", "--addresses-move"], 2, "usage", &["--storage-fences", "--addresses-move"]),
        (&["--keep-alive", "3601"], 2, "out_of_range", &["--keep-alive is 3601", "0 to 3600"]),
        (&["--connect", "127.0.0.1:4420"], 2, "paths", &["127.0.0.1:4420 twice", "name it once"]),
        (&["--connect-all", "127.0.0.1:8009"], 2, "usage", &["--connect", "--connect-all", "cannot be used with"]),
        (&["--connect", "127.0.0.1:1", "--trace", "/tmp/t"], 2, "trace_paths", &["--trace", "leave --trace out"]),
        (
            &["--connect", "[::1]:1,[::1]:2,[::1]:3,[::1]:4,[::1]:5,[::1]:6,[::1]:7,[::1]:8"],
            2,
            "paths",
            &["9", "1 to 8"],
        ),
        (&["--bytes", "0"], 2, "out_of_range", &["--bytes is 0", "1 to"]),
        (&["--expect-sha256", "12"], 2, "expected_digest", &["\"12\"", "64", "sha256sum"]),
        (&["--read-share", "70"], 2, "read_share", &["--read-share is 70", "100", "--file"]),
        (&["--file", "f", "--bytes", "1"], 2, "usage", &["--file", "--bytes"]),
        (&["--bytes", "2G"], 2, "out_of_range", &["--bytes is 2147483648", "1 to 1073741824"]),
        (&["--rw", "randwrite"], 2, "overwrite", &["--rw is randwrite", "--allow-overwrite", "randread"]),
        (&["--rw", "trim", "--no-verify"], 2, "overwrite", &["--rw is trim", "--allow-overwrite"]),
        (
            &["--rw", "write", "--allow-overwrite", "--rwmixread", "50"],
            2,
            "read_share",
            &["--read-share is 50", "must be 0", "randrw"],
        ),
        (&["--rw", "rw", "--allow-overwrite", "--runtime", "0"], 2, "out_of_range", &["--runtime is 0", "1 or more"]),
        (
            &["--rw", "rw", "--allow-overwrite", "--output", "f"],
            2,
            "reads_whole",
            &["--output", "--rw rw", "leave one of them out"],
        ),
        (&["--no-verify", "--file", "f"], 2, "usage", &["--no-verify", "--file"]),
        (&["--bs", "8k", "--bssplit", "4k"], 2, "usage", &["--bssplit", "--block-size"]),
        (&["--rate", "1M", "--rate-iops", "100"], 2, "usage", &["--rate", "--rate-iops"]),
        (&["--interval", "0.01"], 2, "out_of_range", &["--interval is 0.01", "0.1 to 3600"]),
        (&["--steadystate", "iops:1%"], 2, "usage", &["--steadystate-duration"]),
        (
            &["--steadystate", "iops:1%", "--steadystate-duration", "10"],
            2,
            "steadystate",
            &["looks at 10 s", "--runtime is 5", "raise --runtime"],
        ),
        (&["--nsid", "1,2"], 2, "namespaces", &["--nsid names 2 namespaces", "--no-verify", "--rw"]),
        (&["--nsid", "3,1,3", "--no-verify"], 2, "namespaces", &["names 3 twice", "once"]),
        (&["--nsid", "1,0", "--no-verify"], 2, "out_of_range", &["--nsid is 0", "1 to 4294967294"]),
        (
            &["--nsid", "1,2", "--no-verify", "--trace-keys", "t"],
            2,
            "trace_namespaces",
            &["--trace-keys follows one namespace", "name one"],
        ),
        (&["--rate", "0"], 2, "out_of_range", &["--rate is 0", "1 to"]),
        (&["--offset", "1024"], 2, "offset", &["--offset is 1024", "multiple of 4096"]),
        (&["--bs", "8M"], 2, "block_size", &["--block-size is 8388608", "4194304"]),
    ];
    for (half, own) in [(&serve[..], of_serve), (&load, of_load)] {
        for (more, exit_code, name, parts) in of_both.iter().chain(own) {
            refused((&[half, more].concat(), *exit_code, name, parts));
        }
    }
    let others: &[Refusal<'_>] = &[
        (&["serve"], 2, "usage", &["--device", "--listen", "--namespace"]),
        (&["load"], 2, "usage", &["--device", "--connect"]),
        (&["load", "--device", "rxe0", "--connect", "nowhere"], 2, "usage", &["nowhere", "--connect"]),
        (&["load", "--device", "rxe0", "--connect", "10.0.0.1"], 2, "usage", &["such as 10.0.0.1:4420"]),
        (
            &["serve", "--device", "rxe0", "--namespace", "f", "--listen", "4420"],
            2,
            "usage",
            &["such as 10.0.0.1:4420"],
        ),
        (&["discover", "--connect", "10.0.0.1:1"], 2, "usage", &["--device", "`frwr discover --help`"]),
        (&["load", "--device", "rxe0", "--connect", "10.0.0.1:0"], 2, "address", &["--connect is 10.0.0.1:0", "65535"]),
        (&["discover", "--device", "rxe0", "--connect", "10.0.0.1:0"], 2, "address", &["--connect is", "65535"]),
        (
            &["load", "--device", "rxe0", "--connect", "[fe80::1]:1"],
            2,
            "address",
            &["link-local", "[fe80::1%eth0]:4420"],
        ),
        (&["load", "--device", "rxe0", "--connect", "0.0.0.0:1"], 2, "address", &["names no machine"]),
        (&["discover", "--device", "rxe0", "--connect", "[ff02::1%lo]:1"], 2, "address", &["multicast"]),
        (
            &["load", "--device", "rxe0", "--connect", "[fe80::1%nowhere0]:1"],
            2,
            "usage",
            &["\"nowhere0\"", "`ip link`"],
        ),
        (&["load", "--device", "rxe0", "--connect", "[fd00::1%lo]:1"], 2, "usage", &["fd00::1 is no link-local"]),
        (
            &["serve", "--device", "rxe0", "--namespace", "f", "--listen", "239.0.0.1:4420"],
            2,
            "address",
            &["--listen is 239.0.0.1:4420", "multicast"],
        ),
        (&["load", "--device", "soft:", "--connect", "10.0.0.1:1"], 2, "soft_device", &["\"soft:\"", "reg_mr"]),
        (&["load", "--device", "", "--connect", "10.0.0.1:1"], 2, "no_device", &["soft", "frwr check"]),
        (
            &["load", "--device", "soft:rxe", "--mtu", "1024", "--connect", "10.0.0.1:1"],
            2,
            "soft_device",
            &["--mtu", "soft:rxe", "leave it out"],
        ),
    ];
    others.iter().for_each(|refusal| refused(*refusal));
    if !cfg!(feature = "verbs") {
        for half in [&serve[..], &load] {
            refused((half, 1, "no_rdma_support", &["without RDMA devices", "--features verbs"]));
        }
    }
}

#[test]
fn a_file_may_be_named_as_half_of_the_job() {
    let folder = Temporary::path("names");
    fs::create_dir(&folder.0).unwrap();
    for name in ["serve", "load", "help"] {
        fs::write(folder.0.join(name), b"some bytes").unwrap();
        let path = if name == "help" { name.to_owned() } else { format!("./{name}") };
        let arguments = [path.as_str(), "--json", "--cores", "unpinned", "--runtime", "0"];
        let report = one_line(&Command::new(FRWR).args(arguments).current_dir(&folder.0).output().unwrap());
        assert_eq!((&report["passed"], &report["file_bytes"]), (&Value::from(true), &Value::from(10)), "{report}");
    }
    fs::remove_dir_all(&folder.0).unwrap();
}

#[test]
fn wrong_files_name_path_and_remedy() {
    let (empty, missing, file) =
        (Temporary::file("empty", &[]), Temporary::path("missing"), Temporary::data("for-trace"));
    let folder = std::env::temp_dir();
    let refusals: &[Refusal<'_>] = &[
        (&[missing.text()], 1, "file_unreadable", &[missing.text(), "name a readable file"]),
        // Nobody can read this one, not even root.
        (&["/proc/self/mem"], 1, "file_unreadable", &["/proc/self/mem", "name a readable file"]),
        (&[folder.to_str().unwrap()], 2, "not_a_file", &["folder", "name a file"]),
        (&["/dev/null"], 2, "not_a_file", &["/dev/null", "device", "name a file"]),
        (&[empty.text()], 2, "file_size", &["0 bytes", "1 to", "name another file"]),
        (&[file.text(), "--trace", "/nonexistent/trace"], 1, "trace_file", &["/nonexistent/trace", "name a file"]),
        (
            &[file.text(), "--trace", "/dev/full", "--runtime", "0", "--stall-threshold", "0"],
            1,
            "trace_file",
            &["/dev/full", "name a file"],
        ),
    ];
    refusals.iter().for_each(|refusal| refused(*refusal));
}

#[test]
fn forced_pages_are_had_or_refused_with_the_command_that_reserves_them() {
    let file = Temporary::data("pages");
    for (pages, folder) in [("2M", "hugepages-2048kB"), ("1G", "hugepages-1048576kB")] {
        let free = Path::new("/sys/kernel/mm/hugepages").join(folder).join("free_hugepages");
        let free = fs::read_to_string(free).ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
        if free == 0 {
            let arguments: &[&str] = &[file.text(), "--pages", pages, "--runtime", "0", "--cores", "unpinned"];
            refused((arguments, 1, "memory", &["wanted", "hugepages"]));
        } else {
            // Somebody else may take them meanwhile.
            let output = job(&file, &["--pages", pages]);
            let report = one_line(&output);
            assert!(
                report["region"].as_str().is_some_and(|kind| kind.contains("hugepages")) || report["error"] == "memory"
            );
        }
    }
    let report = verified(&job(&file, &["--pages", "plain"]), "plain pages");
    assert!(!report["region"].as_str().unwrap().contains("huge"), "{report}");
}

#[test]
fn signals_end_it_cleanly_with_what_there_is_so_far() {
    let file = Temporary::data("signals");
    for signal in ["INT", "TERM"] {
        let mut child = Command::new(FRWR)
            .args([file.text(), "--json", "--runtime", "3600", "--cores", "unpinned", "--stall-threshold", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut progress = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        progress.read_line(&mut line).unwrap();
        assert!(line.contains("IOPS"), "{line}");
        // A builtin of every shell; programs of that name are not everywhere.
        let kill = Command::new("sh").args(["-c", &format!("kill -{signal} {}", child.id())]).status().unwrap();
        assert!(kill.success());
        let mut rest = String::new();
        progress.read_to_string(&mut rest).unwrap();
        let output = child.wait_with_output().unwrap();
        let report = one_line(&output);
        assert_eq!(output.status.code(), Some(0), "{signal}: {report}{rest}");
        assert_eq!((&report["interrupted"], &report["caught"]), (&Value::Bool(true), &Value::Null), "{report}");
        assert_eq!(number(&report, "requests"), number(&report, "requests_ended"));
        assert!(number(&report, "requests") > 0);
        keys_are_accounted(&report);
    }
}

#[test]
fn help_and_version_are_results() {
    for flag in [
        &["--help"][..],
        &["--version"],
        &["serve", "--help"],
        &["load", "--help"],
        &["discover", "--help"],
        &["check", "--help"],
        &["check", "--version"],
        &["check", "sizing", "--help"],
    ] {
        let output = Command::new(FRWR).args(flag).output().unwrap();
        let (out, err) = texts(&output);
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{flag:?}");
        assert!(!out.is_empty());
    }
}

/// What is said beside the report, by the level that is asked for; a report says the same at any.
#[test]
fn what_is_said_goes_by_levels() {
    let file = Temporary::data("levels");
    let run = |levels: &str, more: &[&str]| {
        // Cores that share a processor stall.
        let job = [file.text(), "--json", "--cores", "unpinned", "--runtime", "0", "--stall-threshold", "0"];
        let arguments = [&job[..], more].concat();
        let output = Command::new(FRWR).env("RUST_LOG", levels).args(arguments).output().unwrap();
        (output.status.code(), one_line(&output), texts(&output).1)
    };
    let understood = "understood: CommandLine { task: None";
    for (levels, more, begins) in [
        ("off", &[][..], ""),
        ("error", &[], ""),
        ("", &[], ""),
        ("frwr=debug", &[], understood),
        ("other=debug", &[], ""),
    ] {
        let (code, report, said) = run(levels, more);
        assert_eq!((code, said.starts_with(begins), said.is_empty()), (Some(0), true, begins.is_empty()), "{said}");
        keys_are_accounted(&report);
    }
    // Also where the variable says otherwise; each line begins with its time and level.
    for flag in ["-v", "--verbose"] {
        let (code, _, said) = run("off", &[flag]);
        let first = said.lines().next().unwrap();
        let (time, line) = first.split_once(' ').unwrap();
        assert_eq!((code, time.ends_with('Z')), (Some(0), true), "{said}");
        assert_eq!(
            line.trim_start().strip_prefix("DEBUG ").map(|line| line.starts_with(understood)),
            Some(true),
            "{line}"
        );
    }
    let (code, object, _) = run("loud=louder", &[]);
    assert_eq!((code, &object["error"]), (Some(2), &Value::from("levels")), "{object}");
    assert!(object["message"].as_str().unwrap().contains("name error, warn, info, debug, trace or off"), "{object}");
}

fn check(line: &str) -> (Option<i32>, Value) {
    let output = Command::new(FRWR).arg("check").args(line.split_whitespace()).arg("--json").output().unwrap();
    (output.status.code(), one_line(&output))
}

#[test]
fn e01_sizing_prints_the_first_example() {
    let device = "sizing --page-list-len 65535 --max-sge-rd 30 --max-sge 30 --max-qp-wr 32768 --sg-gaps --requests 128 \
                  --page-size 4096";
    let (exit_code, sizing) = check(device);
    assert_eq!(exit_code, Some(0), "{sizing}");
    for (name, value) in [
        ("max_send_wr", 2977),
        ("max_recv_wr", 168),
        ("max_requests", 128),
        ("mr_depth", 30),
        ("work_requests_per_request", 23),
        ("max_rdma_segments", 11),
    ] {
        assert_eq!(number(&sizing, name), value, "{name}");
    }
    assert_eq!(sizing["mr_type"], "sg_gaps");
    assert_eq!(check(&device.replace(" --sg-gaps", "")).1["mr_type"], "mem_reg");
    let (exit_code, refusal) = check(&format!("{device} --no-memory-extensions"));
    assert_eq!(exit_code, Some(1));
    assert!(refusal["error"].is_string(), "{refusal}");
}

#[test]
fn check_shows_the_machine() {
    let (exit_code, machine) = check("");
    assert_eq!(exit_code, Some(0));
    assert!(machine.is_object());
    assert_eq!(check("--wrong").0, Some(2));
}

/// A line break in a name of a file is no line break of a report or an error.
#[test]
fn what_a_file_is_called_stays_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two\nlines\u{1b}[31m");
    std::fs::write(&path, [7; 512]).unwrap();
    let run = |json: &[&str], path: &std::path::Path| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_frwr"));
        command.args(["--runtime", "0", "--cores", "unpinned"]).args(json).arg(path).output().unwrap()
    };
    let table = String::from_utf8(run(&[], &path).stdout).unwrap();
    assert!(table.contains("two\\nlines\\u{1b}[31m on soft:reg_mr: 512 bytes"), "{table}");
    let json = run(&["--json"], &path).stdout;
    let report: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(report["file"], path.to_str().unwrap());
    let missing = String::from_utf8(run(&[], &folder.path().join("no\nfile")).stderr).unwrap();
    assert!(missing.lines().count() == 1 && missing.contains("no\\nfile"), "{missing}");
}
