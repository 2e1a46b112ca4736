//! `frwr-check` by its arguments and outputs.

use frwr_apps::check::{HugePages, Machine, Output, run, shortcomings};
use frwr_reactor::{CpuSet, Topology};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

const FIRST_EXAMPLE: &str = "sizing --page-list-len 65535 --max-sge-rd 30 --max-sge 30 --max-qp-wr 32768 --sg-gaps \
                             --requests 128 --page-size 4096";

fn check(line: &str, machine: impl FnOnce() -> Machine) -> Output {
    run(["frwr-check"].into_iter().chain(line.split_whitespace()).map(OsString::from), machine)
}

fn without_machine(line: &str) -> Output {
    check(line, || unreachable!("sizing and wrong arguments need no machine"))
}

fn one_json_line(output: &Output) -> Value {
    assert_eq!(output.stdout.matches('\n').count(), 1, "{}", output.stdout);
    assert!(output.stdout.ends_with('\n'));
    serde_json::from_str(&output.stdout).unwrap()
}

/// A tree of files that is deleted at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("frwr-check-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(root)
    }

    fn machine(&self, allowed: &str) -> Machine {
        let allowed = CpuSet::parse_kernel_list(allowed).unwrap();
        Machine::read(&self.0, Topology::read(&self.0.join("sys"), allowed))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn good_machine(name: &str) -> Tree {
    Tree::new(
        name,
        &[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "128\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "0\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("sys/class/infiniband/mlx5_0/device/numa_node", "0\n"),
            ("proc/self/limits", "Limit  Soft  Hard  Units\nMax locked memory         unlimited  unlimited  bytes\n"),
            ("proc/cpuinfo", "processor : 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\n"),
        ],
    )
}

#[test]
fn e01_sizing_prints_the_first_worked_example() {
    let output = without_machine(&format!("{FIRST_EXAMPLE} --json"));
    assert_eq!((output.exit_code, output.stderr.as_str()), (0, ""));
    let expected = serde_json::json!({
        "max_send_wr": 2977, "max_recv_wr": 168, "max_requests": 128, "mr_depth": 30,
        "work_requests_per_request": 23, "max_rdma_segments": 11, "mr_type": "sg_gaps",
    });
    assert_eq!(one_json_line(&output), expected);
    assert_eq!(without_machine(&format!("--json {FIRST_EXAMPLE}")), output);
}

#[test]
fn sizing_prints_text_without_json() {
    let output = without_machine(FIRST_EXAMPLE);
    assert_eq!(output.exit_code, 0);
    assert_eq!(output.stdout.lines().count(), 7);
    assert!(output.stdout.contains("max_send_wr") && output.stdout.contains("2977"), "{}", output.stdout);
}

#[test]
fn page_lists_without_gaps_are_mem_reg() {
    let output = without_machine(&format!("{} --json", FIRST_EXAMPLE.replace("--sg-gaps", "")));
    assert_eq!(one_json_line(&output)["mr_type"], "mem_reg");
}

#[test]
fn impossible_devices_have_distinct_names_and_exit_with_1() {
    let mut names = Vec::new();
    for line in [
        format!("{FIRST_EXAMPLE} --no-memory-extensions"),
        FIRST_EXAMPLE.replace("65535", "0"),
        FIRST_EXAMPLE.replace("--max-sge 30", "--max-sge 2"),
        FIRST_EXAMPLE.replace("32768", "33"),
        FIRST_EXAMPLE.replace("32768", "51"),
    ] {
        let output = without_machine(&format!("{line} --json"));
        assert_eq!(output.exit_code, 1, "{line}");
        let error = one_json_line(&output)["error"].as_str().unwrap().to_owned();
        assert!(!names.contains(&error), "{error} twice");
        names.push(error);
        let text = without_machine(&line);
        assert_eq!((text.exit_code, text.stdout.as_str()), (1, ""));
        assert!(text.stderr.starts_with("error: "));
    }
}

#[test]
fn wrong_arguments_name_limit_value_and_remedy_in_the_first_line() {
    for (line, value, limit) in [
        (FIRST_EXAMPLE.replace("128", "0"), "'0'", "1 to 16384"),
        (FIRST_EXAMPLE.replace("4096", "5000"), "'5000'", "power of two"),
        (FIRST_EXAMPLE.replace("32768", "many"), "'many'", "4294967295"),
        (FIRST_EXAMPLE.replace("--max-sge 30", ""), "--max-sge", "--help"),
        ("--jsno".to_owned(), "--jsno", "--help"),
        ("sizzling".to_owned(), "sizzling", "--help"),
    ] {
        let output = without_machine(&line);
        assert_eq!((output.exit_code, output.stdout.as_str()), (2, ""), "{line}");
        let first = output.stderr.lines().next().unwrap();
        assert!(first.contains(value) && first.contains(limit), "{first}");
        let output = without_machine(&format!("{line} --json"));
        assert_eq!((output.exit_code, &one_json_line(&output)["error"]), (2, &Value::from("usage")));
    }
}

#[test]
fn help_is_no_error() {
    let output = without_machine("--help");
    assert_eq!((output.exit_code, output.stderr.as_str()), (0, ""));
    assert!(output.stdout.contains("sizing"));
}

#[test]
fn a_good_machine_lacks_nothing() {
    let tree = good_machine("good");
    let machine = tree.machine("0-1");
    assert_eq!(shortcomings(&machine), []);
    assert_eq!(machine.hugepages[0], HugePages { size_kib: 2048, total: 128, free: 100 });
    let text = check("", || tree.machine("0-1"));
    assert!(text.stdout.contains("Nothing falls short") && text.stdout.lines().count() <= 24, "{}", text.stdout);
    assert!(text.stdout.contains("2 isolated (2-3)") && text.stdout.contains("2 MiB: 100 of 128 free"));
    let json = one_json_line(&check("--json", || tree.machine("0-1")));
    assert_eq!(json["cores"]["isolated"], serde_json::json!([2, 3]));
    assert_eq!(json["rdma_devices"][0]["active_ports"], 1);
    assert_eq!((&json["invariant_tsc"], &json["locked_memory_unlimited"]), (&Value::from(true), &Value::from(true)));
}

#[test]
fn an_empty_machine_falls_short_with_remedies() {
    let machine = Machine::read(
        Path::new("/nonexistent"),
        Topology::read(Path::new("/nonexistent"), CpuSet::parse_kernel_list("0").unwrap()),
    );
    let short = shortcomings(&machine);
    let names: Vec<&str> = short.iter().map(|short| short.name).collect();
    assert_eq!(names, ["cores", "hugepages", "isolation", "rdma_devices"]);
    assert!(short.iter().all(|short| !short.remedy.is_empty()));
}

#[test]
fn low_limits_and_slow_clocks_fall_short() {
    let tree = good_machine("low");
    let write = |path: &str, text: &str| fs::write(tree.0.join(path), text).unwrap();
    write("proc/self/limits", "Max locked memory         8388608  8388608  bytes\n");
    write("proc/cpuinfo", "flags : fpu tsc constant_tsc\n");
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    let short = shortcomings(&tree.machine("0-1"));
    let names: Vec<&str> = short.iter().map(|short| short.name).collect();
    assert_eq!(names, ["locked_memory", "rdma_ports", "clock", "governor"]);
    assert!(short[0].text.contains("8192 KiB"));
}

#[test]
fn this_machine_is_read_without_errors() {
    let output = check("--json", Machine::this);
    assert_eq!(output.exit_code, 0);
    assert!(!one_json_line(&output)["cores"]["allowed"].as_array().unwrap().is_empty());
}
