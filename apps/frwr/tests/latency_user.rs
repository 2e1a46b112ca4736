//! `frwr latency` as somebody uses it who has read its documentation and nothing else: figures are those of what was asked for, no
//! result is lost without a word, and what makes no sense is refused.

use serde_json::Value;
use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    process::{Child, Command, Output, Stdio},
};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frwr"));
    command.arg("latency").args(["--cores", "unpinned", "--warm-up", "0"]).args(arguments);
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    told(command(arguments).output().unwrap())
}

fn told(output: Output) -> (Option<i32>, String, String) {
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), out, without_progress(&err))
}

/// On a machine that does something else too any run may last so long that it has lines of progress.
fn without_progress(err: &str) -> String {
    err.split_inclusive('\n').filter(|line| !line.contains(" requests/s")).collect()
}

fn measured(arguments: &[&str]) -> Value {
    let (code, out, err) = run(&[&["--json"], arguments].concat());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{arguments:?}: {out}");
    serde_json::from_str(&out).unwrap()
}

fn real(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name} is no number in {report}"))
}

/// The software NIC of the server moves data when its core polls. Where client and server share a core, what the client writes and reads
/// waits for the next poll of the server, and for nothing else: a server that pauses would put its pauses into each figure.
#[test]
fn one_core_for_both_ends_measures_the_software_nic_and_no_pauses() {
    for operation in ["write", "read"] {
        let report = measured(&["--op", operation, "--iterations", "2000"]);
        assert!(real(&report, "empty_poll_share") < 0.9, "{operation}: {report}");
    }
}

/// Ten requests at twenty a second take half of a second, the tenth of a second behind the last included.
#[test]
fn requests_per_second_are_never_more_than_the_rate() {
    for cores in ["unpinned", "unpinned:4"] {
        let report = measured(&["--cores", cores, "--rate", "20", "--iterations", "10"]);
        let (rate, seconds) = (real(&report, "requests_per_second"), real(&report, "seconds"));
        assert!(rate <= 20.0 && seconds >= 0.5, "{cores}: {rate} in {seconds} s");
        let timed = measured(&["--cores", cores, "--rate", "20", "--runtime", "0.5"]);
        assert!(real(&timed, "requests_per_second") <= 20.0, "{cores}: {timed}");
    }
}

/// All requests are measured, so that none was missed; but they were not what was meant to be measured.
#[test]
fn a_rate_that_is_not_kept_is_told_where_requests_are_counted_too() {
    let of = |report: &Value| report["warnings"].to_string().contains("the rate was not kept");
    let report = measured(&["--rate", "100000000", "--iterations", "20000"]);
    assert_eq!((report["requests"].as_u64(), report["rate_missed"].as_u64()), (Some(20_000), Some(0)));
    assert!(real(&report, "rate_late") > 0.0 && of(&report), "{report}");
    let report = measured(&["--rate", "1000", "--iterations", "10", "--depth", "64"]);
    assert!(real(&report, "rate_late") == 0.0 && !of(&report), "{report}");
}

/// Zeros would look like figures.
#[test]
fn a_core_without_requests_has_no_latencies() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("a.csv").display().to_string();
    let arguments = ["--cores", "unpinned:4", "--iterations", "1", "--csv", &csv];
    let (code, out, _) = run(&arguments);
    let idle = out.lines().find(|line| line.starts_with("    -             0 ")).unwrap_or_else(|| panic!("{out}"));
    let fields: Vec<_> = idle.split_whitespace().collect();
    assert_eq!((code, &fields[4..7]), (Some(0), &["-", "-", "-"][..]), "{out}");
    let table = fs::read_to_string(&csv).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|column| *column == name).unwrap();
    let (requests, first, last) = (column("requests"), column("minimum_us"), column("maximum_us"));
    let idle = rows.iter().find(|row| row[requests] == "0").unwrap();
    assert!(idle[first..=last].iter().all(|field| field.is_empty()), "{table}");
    let (_, json, _) = run(&[&arguments[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&json).unwrap();
    assert!(report["per_core"][1]["latency_us"]["maximum"].is_null(), "{report}");
}

/// Whoever has the file has no report beside it.
#[test]
fn the_table_of_figures_has_what_the_report_has() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("a.csv").display().to_string();
    let arguments = ["--iterations", "500", "--size", "8192", "--peer", "read", "--rate", "100000", "--csv", &csv];
    let report = measured(&arguments);
    let table = fs::read_to_string(&csv).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    let field = |name: &str| rows[1][rows[0].iter().position(|column| *column == name).unwrap()];
    for (name, digits) in [("mib_per_second", 1), ("seconds", 6), ("rate_missed", 0), ("rate_late", 0), ("warm_up", 0)]
    {
        assert_eq!(field(name), format!("{:.digits$}", real(&report, name)), "{name} in {table}");
    }
    assert_eq!(field("peer"), "read", "{table}");
}

/// A picture is shown without its report.
#[test]
fn a_curve_says_that_its_times_count_from_when_requests_were_meant_to_begin() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("a.svg").display().to_string();
    for (rate, told) in [(&["--rate", "5000"][..], true), (&[], false)] {
        measured(&[&["--iterations", "50", "--svg", &svg], rate].concat());
        let drawing = fs::read_to_string(&svg).unwrap();
        assert_eq!(drawing.contains("50 requests, 5000/s meant to begin"), told, "{drawing}");
    }
}

/// Whoever writes a script looks the names up.
#[test]
fn every_field_of_the_results_is_documented() {
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/latency.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("a.csv").display().to_string();
    let report = measured(&["--iterations", "50", "--csv", &csv]);
    let objects = [&report, &report["per_core"][0], &report["latency_us"], &report["shortcomings"][0]];
    let fields = objects.iter().flat_map(|object| object.as_object().unwrap().keys().cloned());
    let head = fs::read_to_string(&csv).unwrap().lines().next().unwrap().to_owned();
    let columns: Vec<String> = head.split(',').map(str::to_owned).collect();
    for name in fields.chain(columns) {
        assert!(document.contains(&format!("`{name}`")), "{name} is nowhere in docs/latency.md");
    }
}

/// A run of some milliseconds did not take 0 s.
#[test]
fn short_runs_say_how_long_they_were() {
    let (_, out, _) = run(&["--iterations", "50"]);
    let line = out.lines().nth(1).unwrap();
    let seconds = line.rsplit_once("; ").unwrap().1.split_once(" s after 0 s of warm-up").unwrap().0;
    assert!(seconds.parse::<f64>().unwrap() > 0.0, "{line}");
    // Of several sizes all of it, and the warm-up of each.
    let (_, out, _) = run(&["--size", "8,64", "--runtime", "0.1"]);
    let line = out.lines().nth(1).unwrap();
    let seconds = line.rsplit_once("; ").unwrap().1.split_once(" s in all, each after 0 s of warm-up").unwrap().0;
    assert!(seconds.parse::<f64>().unwrap() >= 0.19, "{line}");
}

/// What is wrong has a name that scripts can look for, and a remedy, as in frwr check.
#[test]
fn warnings_have_names_and_remedies_for_programs() {
    let report = measured(&["--iterations", "50"]);
    let named = report["shortcomings"].as_array().unwrap();
    let unpinned = named.iter().find(|found| found["name"] == "unpinned").unwrap_or_else(|| panic!("{report}"));
    assert!(unpinned["remedy"].as_str().unwrap().contains("--cores 0,1"), "{unpinned}");
    let texts: Vec<_> = named.iter().map(|found| found["text"].clone()).collect();
    assert_eq!(report["warnings"], Value::from(texts));
}

/// The first command of somebody who comes from perftest, or from fio.
#[test]
fn flags_of_perftest_are_told_by_what_they_are_called_here() {
    let hints: &[(&[&str], &[&str])] = &[
        (&["-l", "16"], &["-l is --ranges here", "--rounds one"]),
        (&["-b"], &["-b is not there"]),
        (&["-U"], &["-U is not there", "--hgrm"]),
        (&["--rate_limit=5"], &["--rate_limit is --rate here", "requests"]),
        (&["--bs", "4k"], &["--bs is --size here"]),
        (&["--iodepth", "32"], &["--iodepth is --depth here"]),
        // A whole command is told at once: what follows a flag with a value is the value, whatever it looks like.
        (
            &["-d", "mlx5_0", "-l", "-5", "-bF", "--bs=4k", "10.0.0.1"],
            &["-l is --ranges here", "-b is not there", "--bs is --size here"],
        ),
    ];
    for (arguments, parts) in hints {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str(), err.matches('\n').count()), (Some(2), "", 1), "{arguments:?}: {err}");
        assert!(parts.iter().all(|part| err.contains(part)), "{arguments:?}: {err}");
        assert!(err.contains("`frwr latency --help`") && !err.contains("as a value"), "{arguments:?}: {err}");
    }
    // What nobody knows is told as before, and what is ours as well.
    for (argument, part) in [("--no-such", "'--no-such'"), ("-Z", "'-Z'"), ("--warm_up", "'--warm-up'")] {
        let (code, _, err) = run(&[argument]);
        assert_eq!((code, err.matches('\n').count()), (Some(2), 1), "{err}");
        assert!(err.contains(part) && !err.contains("as a value") && !err.contains(" here"), "{err}");
    }
}

/// Those that mean the same are taken: a whole line of `ib_write_lat` or `ib_write_bw` runs as it stands, but for its program's name.
#[test]
fn flags_of_perftest_that_mean_the_same_are_taken() {
    let report = measured(&["-s", "64", "-n", "40", "-t", "4", "-q", "2", "-d", "soft", "-R", "-F", "--report_gbits"]);
    assert_eq!((&report["size"], &report["requests"], &report["depth"]), (&64.into(), &40.into(), &4.into()));
    assert_eq!(report["connections"], 2);
    let report = measured(&["-s4096", "-D", "0.1", "--op", "write", "-N", "-z", "--cpu_util", "--use_hugepages"]);
    assert!(report["requests"].as_u64().unwrap() > 0 && report["size"] == 4096, "{report}");
    let gigabits = report["mib_per_second"].as_f64().unwrap() * 8.388_608e-3;
    assert!((report["gbit_per_second"].as_f64().unwrap() / gigabits - 1.0).abs() < 1e-9, "{report}");
    for spelled in [["--iters=7", "--msg-size=16"], ["--iters=7", "--tx-depth=2"], ["--iters=7", "--qp=2"]] {
        assert_eq!(measured(&spelled)["requests"], 7, "{spelled:?}");
    }
    // What is of a port of a device is refused on the software NIC by its own name, whatever it was called.
    for (flag, name) in [
        ("-x3", "--gid-index"),
        ("-i2", "--ib-port"),
        ("-m1024", "--mtu"),
        ("-I64", "--inline-size"),
        ("-T104", "--traffic-class"),
        ("-u14", "--ack-timeout"),
    ] {
        let (code, _, err) = run(&[flag]);
        assert!(code == Some(2) && err.contains(name), "{flag}: {err}");
    }
    // A port is said once, or the same twice.
    let device = ["-d", "no_such_device", "-p", "18515"];
    let (code, _, err) = run(&[&device[..], &["10.0.0.1:18516"]].concat());
    assert!(code == Some(2) && err.contains("--port") && err.contains("18516"), "{err}");
    for host in ["10.0.0.1:18515", "10.0.0.1"] {
        let (code, _, err) = run(&[&device[..], &[host]].concat());
        assert!(code == Some(1) && !err.contains("--port"), "{err}");
    }
    let (code, _, err) = run(&["-a", "-s", "64"]);
    assert!(code == Some(2) && err.contains("--all") && err.contains("--size"), "{err}");
}

/// A row for each power of two; sizes that a key of this device does not cover are left out, and that is told.
#[test]
fn all_sizes_are_those_that_a_key_covers() {
    let (code, out, err) =
        run(&["-a", "-n", "3", "--warm-up", "0", "--cores", "unpinned", "--pages", "plain", "--json"]);
    assert_eq!(code, Some(0), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let sizes: Vec<u64> =
        report["measurements"].as_array().unwrap().iter().map(|one| one["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, (3..=20).map(|power| 1 << power).collect::<Vec<u64>>(), "page lists reach 1 MiB");
    for left_out in [2_u64 << 20, 4 << 20, 8 << 20] {
        assert!(err.contains(&format!("{left_out} bytes are left out")), "{err}");
    }
}

#[test]
fn a_size_that_does_not_suit_is_told_the_nearest_ones() {
    for (size, parts) in [
        ("9", &["--size is 9", "multiple of 8 from 8 to 67108864", "choose 8 or 16"][..]),
        ("1000001", &["choose 1000000 or 1000008"]),
        ("4", &["choose one of those"]),
        ("67108863", &["choose 67108856 or 67108864"]),
        ("67108872", &["from 8 to 67108864", "choose one of those"]),
    ] {
        let (code, _, err) = run(&["--size", size]);
        assert!(code == Some(2) && parts.iter().all(|part| err.contains(part)), "{size}: {err}");
    }
    let (_, _, err) = run(&["--size", "4096", "--segments", "3"]);
    assert!(err.contains("multiple of 24") && err.contains("choose 4080 or 4104"), "{err}");
}

/// As fio and dd write them.
#[test]
fn units_of_sizes_may_be_small_letters() {
    assert_eq!(measured(&["--iterations", "50", "--size", "4k"])["size"], 4096);
}

/// A full disk behind standard output costs the report, so that it must not look like success; a reader that has seen enough costs nothing.
#[test]
fn a_report_that_cannot_be_printed_is_told_and_fails() {
    for json in [&[][..], &["--json"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let arguments = [&["--iterations", "50"], json].concat();
        let (code, _, err) = told(command(&arguments).stdout(full).stderr(Stdio::piped()).output().unwrap());
        assert_eq!((code, err.matches('\n').count()), (Some(1), 1), "{err}");
        assert!(err.starts_with("error: standard output cannot be written (No space left on device"), "{err}");
    }
    let mut child = command(&["--iterations", "50"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let (code, _, err) = told(child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""));
}

/// What would be ignored is refused: whoever writes it believes that it is measured.
#[test]
fn options_that_would_do_nothing_are_refused() {
    let refusals: &[(&[&str], &[&str])] = &[
        (&["--op", "write", "--invalidate", "local"], &["--invalidate local", "--op request", "leave it out"]),
        (&["--op", "send", "--invalidate", "local"], &["--invalidate local", "--op request"]),
        (&["--key", "static", "--invalidate", "local"], &["--invalidate local", "--key request"]),
        (&["--op", "write", "--peer", "read"], &["--peer read", "--op request"]),
        (&["--op", "register", "--peer", "read"], &["--peer read", "--op request"]),
        (&["--op", "send", "--segments", "4"], &["--segments", "one piece"]),
        (&["--gid-index", "77"], &["--gid-index", "RDMA device", "leave it out"]),
        (&["--ib-port", "9"], &["--ib-port", "RDMA device"]),
        (&["--mtu", "300"], &["--mtu", "RDMA device"]),
        (&["--inline-size", "0"], &["--inline-size", "RDMA device"]),
        (&["--no-thread-domains"], &["--no-thread-domains", "RDMA device"]),
        (&["--traffic-class", "1"], &["--traffic-class", "RDMA device"]),
        (&["--device", "soft:window", "--ack-timeout", "40"], &["--ack-timeout", "soft:window"]),
        (&["10.0.0.1", "--device", "rxe0", "--listen", "10.0.0.2"], &["--listen", "HOST"]),
        (&["--device", ""], &["--device is empty", "frwr check"]),
    ];
    for (arguments, parts) in refusals {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str(), err.matches('\n').count()), (Some(2), "", 1), "{arguments:?}: {err}");
        assert!(parts.iter().all(|part| err.contains(part)), "{arguments:?}: {err}");
    }
    // What it says is what happens anyhow.
    measured(&["--op", "register", "--invalidate", "local", "--iterations", "50"]);
    measured(&["--op", "write", "--peer", "write", "--iterations", "50"]);
}

/// Whoever types the client's options on the server as well, or forgets HOST, would wait for results that never come.
#[test]
fn a_server_refuses_what_the_client_decides() {
    let options: &[&[&str]] = &[
        &["--op", "request"],
        &["--key", "static"],
        &["--invalidate", "local"],
        &["--peer", "read"],
        &["--size", "4096"],
        &["--depth", "8"],
        &["--segments", "2"],
        &["--ranges", "2"],
        &["--batch", "2"],
        &["--connections", "2"],
        &["--runtime", "10"],
        &["--iterations", "10"],
        &["--warm-up", "1"],
        &["--rate", "1000"],
        &["--rounds", "one"],
        &["--csv", "/nonexistent/a"],
        &["--hgrm", "/nonexistent/a"],
        &["--svg", "/nonexistent/a"],
    ];
    let server = ["--device", "rxe0", "--cores", "unpinned"];
    for option in options {
        let output =
            Command::new(env!("CARGO_BIN_EXE_frwr")).arg("latency").args(server).args(*option).output().unwrap();
        let (code, out, err) = told(output);
        assert_eq!((code, out.as_str(), err.matches('\n').count()), (Some(2), "", 1), "{option:?}: {err}");
        assert!(err.starts_with(&format!("error: {} is the client's to decide", option[0])), "{err}");
        assert!(err.contains("this is the server") && err.contains("name HOST"), "{err}");
    }
}

/// The line names what may be chosen, and not what a number of the program can hold.
#[test]
fn numbers_that_are_none_are_told_the_limits_of_their_option() {
    let refusals: &[(&[&str], &str)] = &[
        (&["--iterations", "0"], "from 1 to 18446744073709551615"),
        (&["--iterations", "99999999999999999999"], "from 1 to 18446744073709551615"),
        (&["--iterations", "-5"], "'--iterations <N>': must be a whole number from 1"),
        (&["--depth", "-1"], "'--depth <N>': must be a whole number from 1 to 1024"),
        (&["--depth", "1.5"], "from 1 to 1024"),
        (&["--depth", "99999999999"], "from 1 to 1024"),
        (&["--segments", "256"], "from 1 to 16"),
        (&["--op", "write", "--ranges", "256"], "from 1 to 16"),
        (&["--op", "register", "--batch", "70000"], "from 1 to 256"),
        (&["--connections", "70000"], "from 1 to 64"),
        (&["--rate", "1e6"], "from 1 to 1000000000"),
        (&["--warm-up", "-1"], "must be 0 to 86400 seconds"),
        (&["--size", "-8"], "must be a number of bytes"),
    ];
    for (arguments, part) in refusals {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str(), err.matches('\n').count()), (Some(2), "", 1), "{arguments:?}: {err}");
        assert!(err.contains(part), "{arguments:?}: {err}");
    }
}

/// Sizes of which a device cannot make an engine are within the program's own limits: the line names options that a person can change.
#[test]
fn what_a_device_cannot_do_is_told_in_options_of_the_command_line() {
    let lower = "lower --size, --depth or --connections";
    for (operation, arguments, lacks, lower) in [
        ("request", &["--size", "67108864"][..], "segments", lower),
        ("request", &["--depth", "1024", "--connections", "64"], "completion queue entries", lower),
        ("register", &["--batch", "256"], "queue_depth", "lower --size, --depth, --connections or --batch"),
    ] {
        let depth: &[&str] = if operation == "register" { &["--depth", "1024"] } else { &[] };
        let fixed = [&["--op", operation, "--iterations", "50"], depth].concat();
        let (code, out, err) = run(&[&fixed[..], arguments].concat());
        assert_eq!((code, out.as_str(), err.matches('\n').count()), (Some(1), "", 1), "{err}");
        assert!(err.contains(&arguments.join(" ")) && err.contains(lacks), "{err}");
        assert!(err.contains("more than soft:reg_mr can do") && err.trim_end().ends_with(lower), "{err}");
    }
}

/// What may be lower is what was asked for.
#[test]
fn what_a_key_does_not_reach_is_told_with_its_bytes_and_pieces() {
    let lists = "or use --registration lists, whose keys cover pieces, where the device has them";
    for (arguments, told) in [
        (&["--size", "2097152"][..], "this device cannot open 2097152 bytes with one key; lower --size".to_owned()),
        (
            &["--op", "register", "--segments", "2", "--size", "64"],
            format!("this device cannot open 64 bytes in 2 pieces with one key; lower --size or --segments, {lists}"),
        ),
        (
            &["--op", "write", "--size", "65536", "--depth", "32"],
            "the server's device cannot open 2097152 bytes with one key; lower --depth or --size".to_owned(),
        ),
    ] {
        let (code, out, err) = run(&[&["--iterations", "50"], arguments].concat());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}: {err}");
        assert_eq!(err, format!("error: 127.0.0.1:49200: {told}\n"), "{arguments:?}");
    }
    measured(&["--iterations", "50", "--op", "register", "--segments", "2", "--size", "64", "--registration", "lists"]);
}

/// A measurement may have taken an hour: what cannot go to one file still goes to the others and to standard output.
#[test]
fn a_file_that_cannot_be_written_costs_no_figures() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("a.csv");
    let files = ["--iterations", "50", "--svg", "/dev/full", "--hgrm", "/dev/full", "--csv", csv.to_str().unwrap()];
    let (code, out, err) = run(&files);
    assert_eq!((code, err.matches('\n').count()), (Some(1), 1), "{err}");
    assert!(err.starts_with("error: --hgrm: /dev/full cannot be written") && out.contains("t_typical"), "{err}{out}");
    assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 3);
    let (code, out, _) = run(&[&["--json"], &files[..]].concat());
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, report["error"].as_str(), report["requests"].as_u64()), (Some(1), Some("file"), Some(50)));
    assert!(report["message"].as_str().unwrap().contains("/dev/full"), "{report}");
}

/// Waits until a program has its handlers for SIGINT and SIGTERM: in front of that a signal would end it.
fn has_its_handlers(child: &Child) {
    let script = format!("until grep -q '^SigCgt:.*[4-7c-f]...$' /proc/{}/status; do :; done", child.id());
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// timeout(1) signals the program and then its group: to whom the program belongs.
#[test]
fn a_signal_that_comes_twice_costs_no_figures() {
    let mut asked = command(&["--json", "--runtime", "3600"]);
    let child = asked.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    has_its_handlers(&child);
    // Both wait for it then, and come one behind the other.
    for name in ["-STOP", "-INT", "-TERM", "-CONT"] {
        signal(&child, name);
    }
    let (code, out, err) = told(child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["interrupted"], true, "{report}");
}

/// Whoever reads no further from its pipe holds it up for ever.
#[test]
fn a_program_that_waits_is_ended_by_another_signal() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut at_once = OpenOptions::new();
    at_once.custom_flags(libc::O_NONBLOCK);
    let _reader = at_once.clone().read(true).open(&pipe).unwrap();
    let mut filler = at_once.write(true).open(&pipe).unwrap();
    while filler.write(&[0; 4096]).is_ok() {}
    let full = OpenOptions::new().write(true).open(&pipe).unwrap();
    let mut child = command(&["--iterations", "50"]).stdout(full).spawn().unwrap();
    has_its_handlers(&child);
    let ended = loop {
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        signal(&child, "-INT");
    };
    assert_eq!(ended.code(), Some(130));
}

#[test]
fn two_results_do_not_go_to_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let [path, link] = ["results", "link"].map(|name| folder.path().join(name).display().to_string());
    fs::write(&path, "old").unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for other in [&path, &link] {
        let (code, out, err) = run(&["--iterations", "50", "--csv", &path, "--svg", other]);
        assert_eq!((code, out.as_str(), err.matches('\n').count()), (Some(2), "", 1), "{err}");
        assert!(err.starts_with("error: --svg names the file that --csv writes: "), "{err}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    }
    // Devices keep nothing that could be overwritten.
    measured(&["--iterations", "50", "--csv", "/dev/null", "--svg", "/dev/null"]);
}

/// As a shell, a service or a container may set it: threads of the program's own do not go by it.
#[test]
fn a_small_stack_ends_nothing() {
    let program = env!("CARGO_BIN_EXE_frwr");
    for arguments in [
        "latency --iterations 10 --warm-up 0 --cores unpinned --pages plain",
        concat!("--runtime 0 --cores unpinned ", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        "check",
    ] {
        for kibibytes in [64, 128, 1024] {
            let line = format!("ulimit -s {kibibytes}; exec {program} {arguments}");
            let (code, _, err) = told(Command::new("sh").args(["-c", &line]).output().unwrap());
            assert_eq!(code, Some(0), "{line}: {err}");
        }
    }
}
