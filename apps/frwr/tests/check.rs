//! `frwr check` by its arguments and outputs.

use clap::Parser as _;
use frwr::check::{
    FileAccess, Finding, FindingOutcome, HugePages, Machine, Output, RdmaDevice, SelfTest, run, shortcomings,
};
use frwr::{CommandLine, Task, mistaken};
use frwr_reactor::{CpuSet, Topology};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

const FIRST_EXAMPLE: &str = "sizing --page-list-len 65535 --max-sge-rd 30 --max-sge 30 --max-qp-wr 32768 --sg-gaps \
                             --requests 128 --page-size 4096";

fn check(line: &str, machine: impl FnOnce() -> Machine) -> Output {
    check_with(line, machine, |_| SelfTest::NotBuilt)
}

fn check_with(line: &str, machine: impl FnOnce() -> Machine, self_test: impl FnMut(&str) -> SelfTest) -> Output {
    let line: Vec<OsString> =
        ["frwr", "check"].into_iter().chain(line.split_whitespace()).map(OsString::from).collect();
    match CommandLine::try_parse_from(&line) {
        Ok(CommandLine { task: Some(Task::Check(arguments)), .. }) => run(&arguments, machine, self_test),
        Ok(other) => panic!("{other:?}"),
        Err(error) => mistaken(&line, error),
    }
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
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(root)
    }

    fn machine(&self, allowed: &str) -> Machine {
        let allowed = CpuSet::parse_kernel_list(allowed).unwrap();
        Machine::read(self.0.path(), Topology::read(&self.0.path().join("sys"), allowed))
    }
}

fn good_machine() -> Tree {
    Tree::new(&[
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
        ("sys/class/infiniband/mlx5_0/fw_ver", "16.35.2000\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth0\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3", "RoCE v2\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3", "eth0\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/4", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
        ("sys/class/misc/rdma_cm/dev", "10:58\n"),
        ("dev/infiniband/uverbs0", ""),
        ("dev/infiniband/rdma_cm", ""),
        ("usr/lib64/libibverbs.so.1", ""),
        // As the linker's cache has it: names between zeros.
        ("etc/ld.so.cache", "\0librdmacm.so.1\0/opt/lib/librdmacm.so.1\0"),
        ("proc/self/limits", "Limit  Soft  Hard  Units\nMax locked memory         unlimited  unlimited  bytes\n"),
        ("proc/cpuinfo", "processor : 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\n"),
    ])
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
        (FIRST_EXAMPLE.replace("32768", "-1"), "'-1'", "4294967295"),
        (FIRST_EXAMPLE.replace("--max-sge 30", ""), "--max-sge", "--help"),
        ("--jsno".to_owned(), "--jsno", "--help"),
        ("sizzling".to_owned(), "sizzling", "--help"),
    ] {
        let output = without_machine(&line);
        assert_eq!((output.exit_code, output.stdout.as_str()), (2, ""), "{line}");
        let first = output.stderr.lines().next().unwrap();
        assert!(first.contains(value) && first.contains(limit), "{first}");
        // The help that lists the options in question.
        let program = if line.starts_with("sizing ") { "`frwr check sizing --help`" } else { "`frwr check --help`" };
        assert!(first.contains(program), "{first}");
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
    let tree = good_machine();
    let machine = tree.machine("0-1");
    assert_eq!(shortcomings(&machine), []);
    assert_eq!(machine.hugepages[0], HugePages { size_kib: 2048, total: 128, free: 100, may_come: 0 });
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
    let tree = good_machine();
    let write = |path: &str, text: &str| fs::write(tree.0.path().join(path), text).unwrap();
    write("proc/self/limits", "Max locked memory         8388608  8388608  bytes\n");
    write("proc/cpuinfo", "flags : fpu tsc constant_tsc\n");
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    let short = shortcomings(&tree.machine("0-1"));
    let names: Vec<&str> = short.iter().map(|short| short.name).collect();
    assert_eq!(names, ["locked_memory", "rdma_ports", "clock", "governor"]);
    assert!(short[0].text.contains("8192 KiB"));
}

/// Of the own group and of those above it, of both versions; what is left of memory, and how many cores there is time for.
#[test]
fn limits_of_control_groups_fall_short_by_their_names() {
    let tree = good_machine();
    let write = |path: &str, text: &str| {
        let path = tree.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let names = || shortcomings(&tree.machine("0-1")).iter().map(|short| short.name).collect::<Vec<_>>();
    write("proc/meminfo", "MemAvailable: 8388608 kB\n");
    write("proc/self/cgroup", "0::/pod/box\n");
    write("proc/self/mountinfo", "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    assert_eq!(names(), Vec::<&str>::new());
    let text = check("", || tree.machine("0-1")).stdout;
    assert!(text.contains("8192 MiB available on this machine") && text.contains("CPU quota      none"), "{text}");
    write("sys/fs/cgroup/pod/cpu.max", "20000 100000\n");
    write("sys/fs/cgroup/pod/box/memory.max", "104857600\n");
    write("sys/fs/cgroup/pod/box/memory.current", "4194304\n");
    assert_eq!(names(), ["cpu_quota", "memory"]);
    let text = check("", || tree.machine("0-1")).stdout;
    for part in
        ["0.20 cores: 20ms of every 100ms, by cgroup", "96 MiB left of the 100 MiB of cgroup", "pod/box", "cpu.max"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = one_json_line(&check("--json", || tree.machine("0-1")));
    assert_eq!((&json["memory"]["bytes"], &json["memory"]["limit"]), (&(96 << 20).into(), &(100 << 20).into()));
    assert_eq!((&json["cpu_quota"]["quota_us"], &json["cpu_quota"]["period_us"]), (&20_000.into(), &100_000.into()));
    write("sys/fs/cgroup/pod/cpu.max", "200000 100000\n");
    assert_eq!(names(), ["memory"], "time for two reactors");
    write("proc/self/cgroup", "9:memory:/pod\n8:cpu,cpuacct:/pod\n0::/\n");
    write(
        "proc/self/mountinfo",
        "1 0 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n2 0 0:2 / /cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
    );
    assert_eq!(names(), Vec::<&str>::new());
    write("cpu/pod/cpu.cfs_quota_us", "150000\n");
    write("cpu/pod/cpu.cfs_period_us", "100000\n");
    write("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "104857600\n");
    write("sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "0\n");
    assert_eq!(names(), ["cpu_quota", "memory"]);
}

/// What is hidden is not told as absent.
#[test]
fn what_cannot_be_read_is_unknown() {
    let tree = Tree::new(&[]);
    let text = check("", || tree.machine("0-1")).stdout;
    for part in ["SMT            unknown", "memory         unknown", "TSC unknown", "locked memory  unknown"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let tree = Tree::new(&[("proc/cpuinfo", "Features : fp asimd\n")]);
    assert!(check("", || tree.machine("0-1")).stdout.contains("no TSC"));
}

/// Typed as it stands, a remedy reserves what is missing, and takes nothing from whoever has pages already. What the kernel does not show
/// cannot be written to.
#[test]
fn the_remedy_for_hugepages_adds_to_what_there_is() {
    let tree = good_machine();
    let pool = "sys/kernel/mm/hugepages/hugepages-2048kB";
    for (total, free, command) in [
        ("0", "0", "`echo 64 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`"),
        ("64", "10", "`echo 118 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`"),
        ("1000", "63", "`echo 1001 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`"),
    ] {
        fs::write(tree.0.path().join(pool).join("nr_hugepages"), total).unwrap();
        fs::write(tree.0.path().join(pool).join("free_hugepages"), free).unwrap();
        let short = shortcomings(&tree.machine("0-1"));
        assert_eq!((short[0].name, short[0].remedy.as_str()), ("hugepages", command));
    }
    fs::remove_dir_all(tree.0.path().join("sys/kernel/mm/hugepages")).unwrap();
    let short = shortcomings(&tree.machine("0-1"));
    assert!(short[0].name == "hugepages" && !short[0].remedy.contains("tee"), "{short:?}");
    assert!(short[0].remedy.contains("on its host") && short[0].text.contains("no hugepages of 2 MiB"), "{short:?}");
}

/// Pages that are promised are no more to be had than used ones, and those that the kernel may add are: a region goes by both.
#[test]
fn hugepages_that_are_promised_do_not_count_and_those_that_may_come_do() {
    let tree = good_machine();
    let pool = tree.0.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
    // Free, promised, allowed and there beyond the pool; what is missing of 64.
    for (free, promised, allowed, there, reserve) in [
        (100, 37, 0, 0, Some(129)),
        (100, 36, 0, 0, None),
        (9, 9, 100, 40, Some(132)),
        (20, 10, 54, 0, None),
        (64, 0, 1, 9, None),
    ] {
        for (file, pages) in [
            ("free_hugepages", free),
            ("resv_hugepages", promised),
            ("nr_overcommit_hugepages", allowed),
            ("surplus_hugepages", there),
        ] {
            fs::write(pool.join(file), pages.to_string()).unwrap();
        }
        let machine = tree.machine("0-1");
        let short = shortcomings(&machine);
        let told = short.iter().find(|short| short.name == "hugepages").map(|short| short.remedy.clone());
        let wanted = reserve.map(|pages: u64| {
            format!("`echo {pages} | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`")
        });
        assert_eq!(told, wanted, "{:?}", machine.hugepages);
    }
    fs::write(pool.join("nr_overcommit_hugepages"), "15").unwrap();
    let text = check("", || tree.machine("0-1"));
    assert!(text.stdout.contains("2 MiB: 64 of 128 free, 6 more may come"), "{}", text.stdout);
    let json = one_json_line(&check("--json", || tree.machine("0-1")));
    assert_eq!((&json["hugepages"][0]["free"], &json["hugepages"][0]["may_come"]), (&Value::from(64), &Value::from(6)));
}

/// Root is not told of a limit that does not hold for it; root of a user namespace is.
#[test]
fn who_may_lock_more_than_its_limit_lacks_nothing() {
    let tree = good_machine();
    let write = |path: &str, text: &str| fs::write(tree.0.path().join(path), text).unwrap();
    write("proc/self/limits", "Max locked memory         8388608  8388608  bytes\n");
    for (effective, users, lacks) in [
        ("000001ffffffffff", "         0          0 4294967295\n", false),
        ("000001ffffffbfff", "         0          0 4294967295\n", true),
        ("000001ffffffffff", "         0       1000          1\n", true),
        ("no number", "", true),
    ] {
        write("proc/self/status", &format!("Name:\tfrwr\nCapPrm:\t0000000000000000\nCapEff:\t{effective}\n"));
        write("proc/self/uid_map", users);
        let output = check("", || tree.machine("0-1")).stdout;
        assert_eq!(output.contains("8192 KiB may be locked"), lacks, "{effective}: {output}");
        assert_eq!(output.contains("locked memory  8 MiB, and more by CAP_IPC_LOCK"), !lacks, "{effective}: {output}");
    }
}

/// `modprobe` loads what is there.
#[test]
fn soft_roce_is_advised_where_its_module_is() {
    let tree = good_machine();
    let write = |path: &str, text: &str| {
        fs::create_dir_all(tree.0.path().join(path).parent().unwrap()).unwrap();
        fs::write(tree.0.path().join(path), text).unwrap();
    };
    fs::remove_dir_all(tree.0.path().join("sys/class/infiniband")).unwrap();
    let remedy = || {
        let short = shortcomings(&tree.machine("0-1"));
        assert_eq!(short.len(), 1, "{short:?}");
        short[0].remedy.clone()
    };
    let command = "`sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev <interface>`";
    assert_eq!(remedy(), format!("where the kernel has the module rdma_rxe, in a container on its host: {command}"));
    write("proc/sys/kernel/osrelease", "6.8.0-31-generic\n");
    let list = "lib/modules/6.8.0-31-generic/modules.dep";
    write(list, "kernel/drivers/infiniband/core/ib_core.ko.zst:\n");
    assert!(remedy().starts_with("install the kernel's module rdma_rxe (Ubuntu: "), "{}", remedy());
    write(list, "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.zst: kernel/net/ipv6/ip6_udp_tunnel.ko.zst\n");
    assert_eq!(remedy(), command);
}

#[test]
fn a_device_by_its_name_alone_is_told_its_option() {
    let output = without_machine("mlx5_0");
    assert_eq!((output.exit_code, output.stderr.matches('\n').count()), (2, 1));
    assert!(output.stderr.contains("`frwr check --device mlx5_0`"), "{}", output.stderr);
}

#[test]
fn this_machine_is_read_without_errors() {
    let output = check_with("--json", Machine::this, frwr::check::self_test);
    assert_eq!(output.exit_code, 0);
    assert!(!one_json_line(&output)["cores"]["allowed"].as_array().unwrap().is_empty());
}

/// The good machine with soft RoCE on it.
fn with_rxe() -> Tree {
    let tree = good_machine();
    for (path, text) in [
        ("sys/class/infiniband/rxe0/parent", "eth1\n"),
        ("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n"),
        ("sys/class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n"),
        ("sys/class/infiniband/rxe0/ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a00:0002\n"),
        ("sys/class/infiniband/rxe0/ports/1/gid_attrs/types/0", "RoCE v2\n"),
        ("sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth1\n"),
        ("sys/class/infiniband_verbs/uverbs1/ibdev", "rxe0\n"),
        ("dev/infiniband/uverbs1", ""),
        ("etc/libibverbs.d/rxe.driver", "driver rxe\n"),
        ("etc/libibverbs.d/mlx5.driver", "driver mlx5\n"),
    ] {
        let path = tree.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    std::os::unix::fs::symlink("/nowhere/mlx5_core", tree.0.path().join("sys/class/infiniband/mlx5_0/device/driver"))
        .unwrap();
    tree
}

fn device<'a>(machine: &'a Machine, name: &str) -> &'a RdmaDevice {
    machine.rdma_devices.iter().find(|device| device.name == name).unwrap()
}

#[test]
fn rdma_devices_are_read_from_sysfs() {
    let tree = with_rxe();
    let machine = tree.machine("0-1");
    assert_eq!(shortcomings(&machine), []);
    let mlx5 = device(&machine, "mlx5_0");
    assert_eq!((mlx5.driver.as_deref(), mlx5.firmware.as_deref()), (Some("mlx5_core"), Some("16.35.2000")));
    assert_eq!((mlx5.node, mlx5.ports.len(), mlx5.active_ports()), (Some(0), 1, 1));
    let port = &mlx5.ports[0];
    assert_eq!((port.number, port.interface(), port.gids.len()), (1, Some("eth0"), 2));
    let gid = port.routable_gid().unwrap();
    assert_eq!((gid.index, gid.ipv4()), (3, Some("10.0.0.1".parse().unwrap())));
    let rxe = device(&machine, "rxe0");
    assert_eq!((rxe.driver.as_deref(), rxe.firmware.as_deref(), rxe.node), (Some("rdma_rxe"), None, None));
    let file = rxe.verbs_file.as_ref().unwrap();
    assert!(file.path.ends_with("dev/infiniband/uverbs1") && file.access == FileAccess::Granted);
    assert!(rxe.provider_library.as_ref().is_some_and(|library| library.installed));
}

/// The auxiliary bus names drivers by their module.
#[test]
fn a_scalable_function_of_a_connectx_is_one() {
    let tree = with_rxe();
    let link = tree.0.path().join("sys/class/infiniband/mlx5_0/device/driver");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/nowhere/mlx5_core.sf", &link).unwrap();
    let machine = tree.machine("0-1");
    let mlx5 = device(&machine, "mlx5_0");
    assert_eq!(mlx5.driver.as_deref(), Some("mlx5_core"));
    assert!(mlx5.provider_library.as_ref().is_some_and(|library| library.installed));
}

#[test]
fn both_outputs_show_every_device() {
    let tree = with_rxe();
    let text = check("", || tree.machine("0-1")).stdout;
    for part in [
        "mlx5_0 (1 of 1 ports active), rxe0",
        "driver rdma_rxe, firmware unknown, no NUMA node",
        "ACTIVE, Ethernet, eth0, 2 GID(s), RoCE v2 with 10.0.0.1 at index 3",
        "--features verbs",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json = one_json_line(&check("--json", || tree.machine("0-1")));
    let rxe = &json["rdma_devices"][1];
    assert_eq!((&rxe["name"], &rxe["driver"], &rxe["ports"]), (&"rxe0".into(), &"rdma_rxe".into(), &1.into()));
    assert_eq!(rxe["port_list"][0]["gids"][0]["ipv4"], "10.0.0.2");
    assert_eq!(rxe["self_test"]["state"], "not_built");
    assert_eq!((&json["rdma"]["libibverbs"], &json["rdma"]["rdma_cm"]["access"]), (&true.into(), &"granted".into()));
}

fn findings() -> SelfTest {
    let finding = |name: &str, outcome, text: &str| Finding { name: name.to_owned(), outcome, text: text.to_owned() };
    SelfTest::Ran(vec![
        finding("bind_window", FindingOutcome::Passed, "windows are bound by work request"),
        finding("bounds", FindingOutcome::Deviates, "only those of the base registration are enforced"),
        finding("invalidate", FindingOutcome::Failed, "the key lives on"),
    ])
}

#[test]
fn one_device_is_shown_with_every_finding() {
    let tree = with_rxe();
    let mut asked = Vec::new();
    let output = check_with(
        "--device rxe0",
        || tree.machine("0-1"),
        |name| {
            asked.push(name.to_owned());
            findings()
        },
    );
    assert_eq!((output.exit_code, asked), (0, vec!["rxe0".to_owned()]));
    for part in [
        "uverbs1 (can be opened)",
        "GID 0",
        "RoCE v2, ::ffff:10.0.0.2, eth1",
        "1 passed, 1 deviates, 1 failed",
        "bounds: only those of the base registration are enforced",
        "rxe0 failed the self-test: invalidate",
        "rxe0 deviates from the specification: bounds",
        "remedy: `frwr check --device rxe0`",
    ] {
        assert!(output.stdout.contains(part), "{part} in {}", output.stdout);
    }
    assert!(!output.stdout.contains("mlx5_0"));
    let json = one_json_line(&check_with("--device rxe0 --json", || tree.machine("0-1"), |_| findings()));
    let second = &json["self_test"]["findings"][1];
    assert_eq!((&second["name"], &second["outcome"]), (&"bounds".into(), &"deviates".into()));
    let names = json["shortcomings"].as_array().unwrap().iter().map(|short| short["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["rdma_self_test", "rdma_deviates"]);
}

/// Whatever deviates falls short, also where nothing failed; and where nothing does, nothing falls short.
#[test]
fn a_device_that_deviates_falls_short() {
    let tree = with_rxe();
    let SelfTest::Ran(all) = findings() else { panic!() };
    for (outcome, falls) in [(FindingOutcome::Passed, false), (FindingOutcome::Deviates, true)] {
        let found: Vec<Finding> = all.iter().filter(|finding| finding.outcome == outcome).cloned().collect();
        for line in ["--device rxe0", ""] {
            let text = check_with(line, || tree.machine("0-1"), |_| SelfTest::Ran(found.clone())).stdout;
            assert_eq!(text.contains("rxe0 deviates from the specification: bounds"), falls, "{text}");
            assert_eq!(text.contains("Nothing falls short."), !falls, "{text}");
        }
    }
}

#[test]
fn a_virtual_function_is_shown_as_one() {
    let tree = with_rxe();
    let shown = || check_with("--device mlx5_0", || tree.machine("0-1"), |_| SelfTest::NotRun).stdout;
    assert!(!shown().contains("virtual function"), "{}", shown());
    let device = tree.0.path().join("sys/class/infiniband/mlx5_0/device");
    fs::create_dir_all(device.join("physfn")).unwrap();
    assert!(shown().contains("driver mlx5_core, a virtual function"), "{}", shown());
    let json = check_with("--device mlx5_0 --json", || tree.machine("0-1"), |_| SelfTest::NotRun);
    assert_eq!(one_json_line(&json)["virtual_function"], true);
}

#[test]
fn a_device_that_was_opened_proves_its_libraries() {
    let tree = with_rxe();
    for path in ["usr/lib64/libibverbs.so.1", "etc/ld.so.cache", "etc/libibverbs.d/rxe.driver"] {
        fs::remove_file(tree.0.path().join(path)).unwrap();
    }
    assert_eq!(shortcomings(&tree.machine("0-1")).len(), 3);
    let text = check_with("", || tree.machine("0-1"), |_| SelfTest::Ran(Vec::new())).stdout;
    assert!(text.contains("Nothing falls short"), "{text}");
}

#[test]
fn unknown_devices_are_told_with_those_that_there_are() {
    let tree = with_rxe();
    let output = check("--device mlx4_0", || tree.machine("0-1"));
    assert_eq!((output.exit_code, output.stdout.as_str()), (1, ""));
    assert!(
        ["mlx4_0", "mlx5_0, rxe0", "rdma link"].iter().all(|part| output.stderr.contains(part)),
        "{}",
        output.stderr
    );
    let output = check("--device mlx4_0 --json", || tree.machine("0-1"));
    assert_eq!(one_json_line(&output)["error"], "unknown_device");
    let output = without_machine(&format!("--device rxe0 {FIRST_EXAMPLE}"));
    assert_eq!(output.exit_code, 2);
}

/// The other programs take it: whoever tries it here first is not told that it is missing.
#[test]
fn the_software_nic_needs_no_check() {
    for device in ["soft", "soft:window"] {
        let output = without_machine(&format!("--device {device}"));
        assert_eq!((output.exit_code, output.stdout.as_str(), output.stderr.matches('\n').count()), (2, "", 1));
        let parts = [&format!("--device is {device:?}"), "needs no check", &format!("frwr latency --device {device}`")];
        assert!(parts.iter().all(|part| output.stderr.contains(*part)), "{}", output.stderr);
        let output = without_machine(&format!("--device {device} --json"));
        assert_eq!((output.exit_code, &one_json_line(&output)["error"]), (2, &Value::from("soft_device")));
    }
}

#[test]
fn what_rdma_devices_lack_is_told_with_its_remedy() {
    let lacks: [(&str, &[&str], &str, &str); 7] = [
        ("modules", &["sys/class/infiniband_verbs", "sys/class/misc"], "rdma_verbs_module", "modprobe ib_uverbs"),
        ("verbs-file", &["dev/infiniband/uverbs1"], "rdma_verbs_file", "--device=/dev/infiniband"),
        ("cm-file", &["dev/infiniband/rdma_cm"], "rdma_cm_file", "--device=/dev/infiniband"),
        ("verbs-library", &["usr/lib64/libibverbs.so.1"], "rdma_verbs_library", "libibverbs1"),
        ("cm-library", &["etc/ld.so.cache"], "rdma_cm_library", "librdmacm1"),
        ("provider", &["etc/libibverbs.d/rxe.driver"], "rdma_provider", "ibverbs-providers"),
        ("gid", &["sys/class/infiniband/rxe0/ports/1/gids"], "rdma_gid", "ip link set"),
    ];
    for (name, paths, shortcoming, remedy) in lacks {
        let tree = with_rxe();
        for path in paths {
            let path = tree.0.path().join(path);
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        let short = shortcomings(&tree.machine("0-1"));
        assert_eq!(short[0].name, shortcoming, "{short:?}");
        assert!(short[0].remedy.contains(remedy), "{short:?}");
        let expected = if name == "modules" { &["rdma_verbs_module", "rdma_cm_module"][..] } else { &[shortcoming] };
        assert_eq!(short.iter().map(|short| short.name).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn ports_without_an_ipv4_gid_and_devices_that_cannot_be_opened_fall_short() {
    let tree = with_rxe();
    let gid = tree.0.path().join("sys/class/infiniband/rxe0/ports/1/gids/0");
    fs::write(&gid, "fe80:0000:0000:0000:5054:00ff:fe12:3456\n").unwrap();
    let short = shortcomings(&tree.machine("0-1"));
    assert_eq!((short.len(), short[0].name), (1, "rdma_gid"));
    assert!(short[0].remedy.contains("ip address add") && short[0].remedy.contains("dev eth1"), "{short:?}");
    // On InfiniBand every GID will do.
    fs::write(tree.0.path().join("sys/class/infiniband/rxe0/ports/1/link_layer"), "InfiniBand\n").unwrap();
    assert_eq!(shortcomings(&tree.machine("0-1")), []);
    let refused = |name: &str| SelfTest::NotOpened(format!("{name} said no"));
    let text = check_with("", || tree.machine("0-1"), refused).stdout;
    assert!(text.contains("rxe0 cannot be opened: rxe0 said no"), "{text}");
    assert!(text.contains("mlx5_0 cannot be opened: mlx5_0 said no"), "{text}");
}

#[test]
fn device_files_without_permission_fall_short() {
    use std::os::unix::fs::PermissionsExt as _;
    let tree = with_rxe();
    let path = tree.0.path().join("dev/infiniband/uverbs1");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_ok() {
        // Permission bits do not bind root; a folder cannot be opened for writing by anybody.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
    }
    let short = shortcomings(&tree.machine("0-1"));
    assert_eq!((short.len(), short[0].name), (1, "rdma_verbs_file"));
    assert!(short[0].text.contains("may not be opened") && short[0].remedy.contains("chmod"), "{short:?}");
}
