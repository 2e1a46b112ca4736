//! `frwr serve --config` and its command line: what is understood, and what is refused with line and key.

use clap::Parser as _;
use frwr::options::Pages;
use frwr::runner::{
    DhChapDigest, DhChapGroup, MediumConfig, NamespaceConfig, ServeArguments, ServeConfig, SubsystemConfig,
};
use frwr::{CommandLine, Error, Task};
use frwr_nvmf::controller::AllowedHosts;
use frwr_nvmf::storage::{Backing, MediumKind};
use frwr_nvmf::wire::AnaState;
use frwr_support::storage_harness::disks::{LoopDevice, skipped};
use serde_json::Value;
use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

/// A configuration that is deleted at the end.
struct Written(tempfile::TempPath);

impl Written {
    fn new(text: &str) -> Self {
        let path = tempfile::Builder::new().suffix(".toml").tempfile().unwrap().into_temp_path();
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

fn serve(arguments: &[&str]) -> Result<ServeConfig, Error> {
    let line = CommandLine::try_parse_from([&["frwr", "serve"], arguments].concat()).unwrap();
    let Some(Task::Serve(arguments)) = line.task else { panic!("not serve") };
    ServeConfig::new(arguments)
}

fn parsed(text: &str) -> Result<ServeConfig, Error> {
    serve(&["--config", Written::new(text).text()])
}

#[test]
fn what_hosts_prove_themselves_with_is_a_list_of_names_and_never_empty() {
    let with = |key: &str| parsed(&SMALLEST.replacen("\n[[", &format!("\n{key}\n[["), 1));
    let target = with("").unwrap().arguments.target;
    assert_eq!((target.dhchap_digests.len(), target.dhchap_dhgroups.len()), (3, 6));
    assert_eq!(target.dhchap_dhgroups[0], DhChapGroup::Ffdhe3072);
    for (key, said) in [
        ("dhchap_dhgroups = []", "dhchap_dhgroups names none: must be one at least"),
        ("dhchap_digests = []", "dhchap_digests names none: must be one at least"),
        ("dhchap_dhgroups = [\"ffdhe1024\"]", "ffdhe1024"),
        ("dhchap_digests = \"sha256\"", "dhchap_digests"),
    ] {
        let error = with(key).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let line = ["--device", "rxe0", "--listen", "10.0.0.1:4420", "--namespace", "x"];
    let arguments = [&line[..], &["--dhchap-dhgroups", "null,ffdhe2048", "--dhchap-digests", "sha384"]].concat();
    let target = serve(&arguments).unwrap().arguments.target;
    assert_eq!(target.dhchap_dhgroups, [DhChapGroup::Null, DhChapGroup::Ffdhe2048]);
    assert_eq!(target.dhchap_digests, [DhChapDigest::Sha384]);
}

const TOP: &str = "device = \"rxe0\"\nlisten = \"10.0.0.1:4420\"\n";
const SMALLEST: &str = r#"device = "rxe0"
listen = "10.0.0.1:4420"
[[subsystem]]
nqn = "nqn.2014-08.org.nvmexpress:disk"
[[subsystem.namespace]]
memory = "1M"
"#;

#[test]
fn everything_has_a_key() {
    let config = parsed(
        r#"
device = "mlx5_0"
ib_port = 2
gid_index = 3
mtu = 1024
traffic_class = 104
ack_timeout = 14
inline_size = 0
thread_domains = false
retry_count = 6
rnr_retry_count = 5
listen = ["[fe80::1%lo]:4420", "10.0.0.1:4421"]
cores = "3"
pages = "plain"
queue_depth = 64
hosts = 4
in_capsule = 8192
io_queues = 2
data_blocks = 3
shared_receives = 162
max_transfer = "1M"
max_silence = 30
spare_namespaces = 3
dhchap_digests = ["sha512", "sha256"]
dhchap_dhgroups = ["ffdhe4096"]
remote_invalidate = false
runtime = 60
controller_ids = "1001-2000"
first_port_id = 33
other_gateway = ["1/10.0.0.9:4420", "2/[fd00::9]:4420"]

[[subsystem]]
nqn = "nqn.2014-08.org.nvmexpress:one"
allowed_hosts = ["nqn.2014-08.org.nvmexpress:host"]
serial = "S1"
[[subsystem.namespace]]
memory = "64M"
[[subsystem.namespace]]
memory = 8192
read_only = true

[[subsystem]]
nqn = "nqn.2014-08.org.nvmexpress:two"
ana_states = { 2 = "non_optimized" }
[[subsystem.namespace]]
load = "/etc/hostname"
block_size = 512
[[subsystem.namespace]]
file = "/srv/disk"
direct = false
[[subsystem.namespace]]
device = "/dev/sdb"
backing = "ring"
ana_group = 2
"#,
    )
    .unwrap();
    let ServeArguments { device, target, gateway, memory, invalidation, .. } = &config.arguments;
    assert_eq!((&device.device[..], device.ib_port, device.gid_index), (&["mlx5_0".to_owned()][..], 2, Some(3)));
    assert_eq!((device.mtu, device.traffic_class), (Some(1024), Some(104)));
    assert_eq!((device.ack_timeout, device.retry_count), (Some(14), 6));
    assert_eq!((device.inline_size, device.thread_domains), (Some(0), false));
    let listen = ["[fe80::1%1]:4420", "10.0.0.1:4421"].map(|text| text.parse().unwrap());
    assert_eq!((device.rnr_retry_count, &target.listen[..]), (5, &listen[..]));
    assert_eq!((target.queue_depth, target.hosts, target.in_capsule), (64, 4, 8192));
    assert_eq!((target.io_queues, target.data_blocks, target.shared_receives.0), (2, 3, Some(162)));
    assert_eq!((target.max_transfer, target.max_silence, target.spare_namespaces), (1 << 20, 30, 3));
    assert_eq!((invalidation.remote_invalidate, target.runtime), (false, Some(60)));
    assert_eq!(target.dhchap_digests, [DhChapDigest::Sha512, DhChapDigest::Sha256]);
    assert_eq!(target.dhchap_dhgroups, [DhChapGroup::Ffdhe4096]);
    assert_eq!((memory.pages, device.cores.as_deref()), (Pages::Plain, Some("3")));
    assert_eq!((gateway.controller_ids.first, gateway.controller_ids.last, gateway.first_port_id), (1001, 2000, 33));
    let others: Vec<_> = gateway.other_gateway.iter().map(ToString::to_string).collect();
    assert_eq!(others, ["1/10.0.0.9:4420", "2/[fd00::9]:4420"]);
    let [one, two] = config.subsystems.as_slice() else { panic!("{:?}", config.subsystems) };
    let SubsystemConfig { allowed_hosts: AllowedHosts::Listed(hosts), serial: Some(serial), namespaces, .. } = one
    else {
        panic!("{one:?}")
    };
    assert_eq!((hosts[0].as_str(), serial.as_str()), ("nqn.2014-08.org.nvmexpress:host", "S1"));
    let memory = |bytes, read_only| NamespaceConfig {
        medium: MediumConfig::Memory { bytes },
        block_bytes: 4096,
        read_only,
        ana_group: 1,
    };
    let configs: Vec<_> = namespaces.iter().map(|namespace| namespace.config.clone()).collect();
    assert_eq!(configs, [memory(64 << 20, false), memory(8192, true)]);
    assert_eq!((two.allowed_hosts.clone(), two.serial), (AllowedHosts::Any, None));
    assert!(one.ana.but.is_empty() && one.ana.all == AnaState::Optimized);
    assert_eq!(two.ana.but.iter().collect::<Vec<_>>(), [(&2, &AnaState::NonOptimized)]);
    let stored = |path: &str, kind, backing, direct| NamespaceConfig {
        medium: MediumConfig::Stored { path: path.into(), kind, backing, direct },
        block_bytes: 4096,
        read_only: false,
        ana_group: if path == "/dev/sdb" { 2 } else { 1 },
    };
    let loaded = NamespaceConfig {
        medium: MediumConfig::Loaded { path: "/etc/hostname".into() },
        block_bytes: 512,
        read_only: false,
        ana_group: 1,
    };
    assert_eq!(two.namespaces[0].config, loaded);
    assert_eq!(two.namespaces[1].config, stored("/srv/disk", MediumKind::File, Backing::Auto, false));
    assert_eq!(two.namespaces[2].config, stored("/dev/sdb", MediumKind::Device, Backing::Ring, true));
}

#[test]
fn what_is_left_out_is_as_on_the_command_line() {
    let file = parsed(SMALLEST).unwrap();
    let line = serve(&["--device", "rxe0", "--listen", "10.0.0.1:4420", "--namespace", "/etc/hostname"]).unwrap();
    // But for what it offers.
    let understood = |config: &ServeConfig| {
        let mut understood = config.describe();
        understood.as_object_mut().unwrap().remove("subsystem").unwrap();
        understood
    };
    assert_eq!(understood(&file), understood(&line));
    let (file, line) = (file.arguments, line.arguments);
    assert_eq!((&file.device, &file.target), (&line.device, &line.target));
    assert_eq!((file.target.max_transfer, file.target.max_silence), (128 << 10, 300));
}

/// What is wrong is said before anything is opened or locked.
#[test]
fn the_command_line_refuses_what_a_file_may_not_say() {
    let base = ["--device", "rxe0", "--listen", "10.0.0.1:4420", "--namespace", "/nonexistent"];
    for (more, parts) in [
        (["--in-capsule", "100", "--hosts", "1"], ["--in-capsule is 100", "multiple of 16"]),
        (["--in-capsule", "16", "--data-blocks", "2"], ["--data-blocks is 2", "32 bytes"]),
        (["--hosts", "256", "--io-queues", "15"], ["--io-queues is 15", "4096 at most"]),
        (["--max-transfer", "96K", "--hosts", "1"], ["--max-transfer is 98304", "power of two from 65536 to 8388608"]),
        (["--max-transfer", "16M", "--hosts", "1"], ["--max-transfer is 16777216", "such as 128K or 1M"]),
        (["--max-transfer", "4096", "--hosts", "1"], ["--max-transfer is 4096", "from 65536"]),
        (["--max-silence", "86401", "--hosts", "1"], ["--max-silence is 86401", "0 to 86400"]),
        (["--subsystem", "disk", "--hosts", "1"], ["--subsystem is \"disk\"", "starts with `nqn.`"]),
        (["--allow-host", "me", "--hosts", "1"], ["--allow-host is \"me\"", "starts with `nqn.`"]),
        (
            ["--subsystem", "nqn.2014-08.org.nvmexpress.discovery", "--hosts", "1"],
            ["--subsystem is \"nqn.2014-08.org.nvmexpress.discovery\"", "discovery service"],
        ),
    ] {
        let error = serve(&[&base[..], &more[..]].concat()).unwrap_err();
        let message = error.to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(error.exit_code(), 2, "{message}");
    }
    serve(&[&base[..], &["--hosts", "256", "--io-queues", "14"]].concat()).unwrap();
    // A receive for each command that one host may have: of 32 on its admin queue, and of its I/O queues on the core that has most.
    let shared = ["--queue-depth", "32", "--hosts", "2", "--io-queues", "2", "--shared-receives"];
    let with = |more: &[&str]| serve(&[&base[..], &shared[..], more].concat());
    let error = with(&["70"]).unwrap_err();
    let said = "--shared-receives is 70: the queues that one host has on a core need 98, 32 for its admin queue and 33 for each of 2; \
                raise it, or lower the number of I/O queues or the queue depth";
    assert_eq!((error.to_string().as_str(), error.exit_code()), (said, 2));
    assert!(with(&["97"]).is_err() && with(&["64", "--cores", "unpinned:2"]).is_err());
    with(&["98"]).unwrap();
    with(&["65", "--cores", "unpinned:2"]).unwrap();
}

#[test]
fn the_command_line_keeps_files_in_memory_unless_it_says_otherwise() {
    let base = ["--device", "rxe0", "--listen", "10.0.0.1:4420", "--namespace", "/srv/disk", "--block-size", "512"];
    let medium = |more: &[&str]| serve(&[&base[..], more].concat()).unwrap().subsystems[0].namespaces[0].config.clone();
    let loaded = MediumConfig::Loaded { path: "/srv/disk".into() };
    assert_eq!(
        medium(&[]),
        NamespaceConfig { medium: loaded.clone(), block_bytes: 512, read_only: false, ana_group: 1 }
    );
    assert_eq!(medium(&["--backing", "memory"]).medium, loaded);
    for (name, backing) in [("auto", Backing::Auto), ("ring", Backing::Ring), ("thread", Backing::Thread)] {
        let (path, kind) = (PathBuf::from("/srv/disk"), MediumKind::Any);
        let stored = MediumConfig::Stored { path, kind, backing, direct: true };
        assert_eq!(medium(&["--backing", name]).medium, stored);
    }
}

/// Text, line, and parts of the message.
type Refusal<'a> = (String, usize, &'a [&'a str]);

#[test]
fn mistakes_are_refused_with_line_and_key() {
    let namespace = |lines: &str| {
        format!("{TOP}[[subsystem]]\nnqn = \"nqn.2014-08.org.nvmexpress:disk\"\n[[subsystem.namespace]]\n{lines}")
    };
    let top = |line: &str| SMALLEST.replacen("[[subsystem]]", &format!("{line}\n[[subsystem]]"), 1);
    let refusals: &[Refusal<'_>] = &[
        ("listen = \"10.0.0.1:4420\"".to_owned(), 1, &["missing field `device`"]),
        (TOP.to_owned(), 1, &["subsystem: there are 0", "1 to 63", "add"]),
        (top("devices = 3"), 3, &["unknown field `devices`", "`device`"]),
        (top("a.b = 1"), 3, &["a.b: unknown field `a.b`", "`device`"]),
        (top("listening . port.of = 1"), 3, &["listening . port.of: unknown field"]),
        (top("[limits]\nhosts = 3"), 3, &["limits: unknown field `limits`"]),
        (SMALLEST.replace("memory", "size.most"), 6, &["size.most: unknown field `size`", "`memory`"]),
        (top("queue_depth = \"many\""), 3, &["queue_depth: invalid type", "a whole number from 0"]),
        (top("queue_depth = 1025"), 3, &["queue_depth is 1025", "1 to 1024", "choose"]),
        (top("hosts = 0"), 3, &["hosts is 0", "1 to 256"]),
        (top("hosts = 70000"), 3, &["hosts: invalid value", "70000"]),
        (top("mtu = 1500"), 3, &["mtu is 1500", "1024", "leave it out"]),
        (top("ib_port = 0"), 3, &["ib_port is 0", "1 to 255"]),
        (top("retry_count = 8"), 3, &["retry_count is 8", "0 to 7"]),
        (top("cores = \"unpinned:65\""), 3, &["cores names 65 cores", "64"]),
        (top("pages = \"huge\""), 3, &["pages is \"huge\"", "auto", "2M"]),
        (top("in_capsule = 100"), 3, &["in_capsule is 100", "multiple of 16"]),
        (top("in_capsule = 65552"), 3, &["in_capsule is 65552", "65536"]),
        (top("io_queues = 17"), 3, &["io_queues is 17", "1 to 16"]),
        (top("data_blocks = 0"), 3, &["data_blocks is 0", "1 to"]),
        (top("data_blocks = 4\nin_capsule = 48"), 3, &["data_blocks is 4", "64 bytes", "48", "raise that"]),
        (top("hosts = 256\nio_queues = 15"), 4, &["io_queues is 15", "256 hosts", "4152", "4096 at most", "lower"]),
        (top("shared_receives = 547"), 3, &["shared_receives is 547", "need 548", "129 for each of 4", "raise it"]),
        (top("shared_receives = 65537"), 3, &["shared_receives is 65537", "1 to 65536"]),
        (top("max_transfer = 100000"), 3, &["max_transfer is 100000", "power of two from 65536 to 8388608"]),
        (top("max_transfer = \"1X\""), 3, &["max_transfer: must be a number of bytes", "64M"]),
        (top("max_silence = 86401"), 3, &["max_silence is 86401", "0 to 86400"]),
        (top("spare_namespaces = 1025"), 3, &["spare_namespaces is 1025", "0 to 1024"]),
        (top("controller_ids = 7"), 3, &["controller_ids: invalid type", "a string"]),
        (top("controller_ids = \"many\""), 3, &["controller_ids is \"many\"", "1 to 65519", "1-32759"]),
        (top("controller_ids = \"0-9\""), 3, &["the first of controller_ids is 0", "1 to 65519", "choose"]),
        (top("controller_ids = \"9-65520\""), 3, &["the last of controller_ids is 65520", "9 to 65519", "choose"]),
        (top("controller_ids = \"9-8\""), 3, &["the last of controller_ids is 8", "9 to 65519", "choose"]),
        (top("controller_ids = \"9-43\""), 3, &["controller_ids is 9-43", "need 36", "widen it", "--hosts"]),
        (top("first_port_id = 0"), 3, &["first_port_id is 0", "1 to 65408"]),
        (top("first_port_id = 65409"), 3, &["first_port_id is 65409", "1 to 65408"]),
        (top("other_gateway = 17"), 3, &["other_gateway: must be a PORTID and an address", "17/10.0.0.2:4420"]),
        (top("other_gateway = \"10.0.0.2:4420\""), 3, &["other_gateway is \"10.0.0.2:4420\"", "PORTID", "frwr ctl"]),
        (
            top("other_gateway = \"x/10.0.0.2:4420\""),
            3,
            &["other_gateway is", "PORTID must be a whole number", "65535"],
        ),
        (top("other_gateway = \"17/b:4420\""), 3, &["other_gateway is", "must be an IP address and a port"]),
        (top("other_gateway = \"0/10.0.0.2:4420\""), 3, &["PORTID of other_gateway is 0", "1 to 65535"]),
        (top("other_gateway = \"17/0.0.0.0:4420\""), 3, &["other_gateway is 0.0.0.0:4420", "names no machine"]),
        (
            top("other_gateway = \"16/10.0.0.2:4420\""),
            3,
            &["other_gateway is 16/10.0.0.2:4420", "from 1 to 16 are of this one's own", "--first-port-id"],
        ),
        (
            top("other_gateway = \"17/10.0.0.1:4420\""),
            3,
            &["other_gateway is 17/10.0.0.1:4420", "itself", "leave it out"],
        ),
        (
            top("other_gateway = [\"17/10.0.0.2:4420\", \"18/10.0.0.2:4420\"]"),
            3,
            &["other_gateway has 10.0.0.2:4420 twice", "once"],
        ),
        (
            top("other_gateway = [\"17/10.0.0.2:4420\", \"17/10.0.0.3:4420\"]"),
            3,
            &["other_gateway has PORTID 17 twice", "its own"],
        ),
        (
            top(&format!("other_gateway = [{}]", "\"17/10.0.0.2:4420\", ".repeat(17))),
            3,
            &["other_gateway is given 17 times", "16 times at most", "leave some out"],
        ),
        (
            SMALLEST.replace("nqn.2014-08.org.nvmexpress:disk", "nqn.2014-08.org.nvmexpress.discovery"),
            4,
            &["nqn is \"nqn.2014-08.org.nvmexpress.discovery\"", "discovery service", "choose another"],
        ),
        (top("shared_receives = \"off\""), 3, &["shared_receives: invalid type"]),
        (top("runtime = 86401"), 3, &["runtime is 86401", "86400"]),
        (SMALLEST.replace("10.0.0.1:4420", "nowhere"), 2, &["listen", "an IP address and a port", "10.0.0.1:4420"]),
        (SMALLEST.replace("\"10.0.0.1:4420\"", "4420"), 2, &["listen: must be an IP address and a port", "or a list"]),
        (SMALLEST.replace("\"10.0.0.1:4420\"", "[]"), 1, &["missing field `listen`"]),
        (
            SMALLEST.replace("\"10.0.0.1:4420\"", "[\"10.0.0.1:4420\", \"10.0.0.1:4420\"]"),
            2,
            &["listen has 10.0.0.1:4420 twice", "name it once"],
        ),
        (
            SMALLEST.replace("\"10.0.0.1:4420\"", &format!("[{}]", "\"10.0.0.1:1\",".repeat(17))),
            2,
            &["listen is given 17 times", "16 times at most", "leave some out"],
        ),
        (SMALLEST.replace("10.0.0.1", "224.0.0.1"), 2, &["listen is 224.0.0.1:4420", "multicast"]),
        (SMALLEST.replace("10.0.0.1", "255.255.255.255"), 2, &["listen is", "broadcast"]),
        (SMALLEST.replace("10.0.0.1", "[fe80::1]"), 2, &["listen is", "link-local", "[fe80::1%eth0]"]),
        (SMALLEST.replace("10.0.0.1", "[fe80::1%nowhere0]"), 2, &["listen", "\"nowhere0\"", "`ip link`"]),
        (format!("hosts = -3\n{SMALLEST}"), 1, &["hosts", "`-3`", "a whole number from 0 to 65535", "docs/config.md"]),
        (format!("queue_depth = 1.5\n{SMALLEST}"), 1, &["queue_depth", "`1.5`", "a whole number", "docs/config.md"]),
        (
            format!("hosts = 99999999999999999999\n{SMALLEST}"),
            1,
            &["hosts", "`99999999999999999999`, expected a whole"],
        ),
        (SMALLEST.replace(":4420", ":0"), 2, &["listen is 10.0.0.1:0", "65535"]),
        (format!("cores = \"2-3\"\nidle = \"sleep:9@1,3\"\n{SMALLEST}"), 2, &["idle", "core 1", "2,3; name"]),
        (format!("idle = \"sleep@3\"\n{SMALLEST}"), 1, &["idle", "sleep@3", "leave @ out"]),
        (format!("idle = \"sleep@x\"\n{SMALLEST}"), 1, &["idle", "sleep@x", "behind @"]),
        (SMALLEST.replace("rxe0", "soft:none"), 1, &["device is \"soft:none\"", "PROFILE must be"]),
        (format!("mtu = 1024\n{}", SMALLEST.replace("rxe0", "soft")), 1, &["mtu is of an RDMA device's port", "soft"]),
        (SMALLEST.replace("nqn.2014-08.org.nvmexpress:disk", "disk"), 4, &["nqn: \"disk\""]),
        (format!("{SMALLEST}{}", SMALLEST.replace(TOP, "")), 7, &["nqn: another subsystem"]),
        (SMALLEST.replace("memory", "size"), 6, &["unknown field `size`", "`memory`"]),
        (namespace(""), 5, &["exactly one of memory, load, file, device, nbd and rbd"]),
        (namespace("memory = 1\nfile = \"f\""), 5, &["exactly one of"]),
        (namespace("memory = \"1X\""), 6, &["memory: must be", "64M"]),
        (namespace("memory = true"), 6, &["memory: must be", "64M"]),
        (namespace("memory = 8192\nana_group = 129"), 7, &["ana_group is 129", "1 to 128"]),
        (
            SMALLEST.replace("[[subsystem.n", "ana_states = { 0 = \"change\" }\n[[subsystem.n"),
            5,
            &["ana_states: group \"0\"", "1 to 128"],
        ),
        (
            SMALLEST.replace("[[subsystem.n", "ana_states = { 1 = \"best\" }\n[[subsystem.n"),
            5,
            &["ana_states", "best", "optimized"],
        ),
        (namespace("memory = 100"), 6, &["memory is 100", "4096 to"]),
        (namespace("memory = \"1M\"\nnsid = 0"), 7, &["nsid is 0", "1 to 1024"]),
        (
            namespace("memory = \"1M\"\nnsid = 1024\n[[subsystem.namespace]]\nmemory = \"1M\""),
            8,
            &["nsid is 1025", "1 to 1024"],
        ),
        (
            namespace("memory = \"1M\"\nnsid = 2\n[[subsystem.namespace]]\nmemory = \"1M\"\nnsid = 2"),
            10,
            &["nsid: is 2", "another namespace"],
        ),
        (namespace("memory = \"1M\"\nnguid = \"12\""), 7, &["nguid is \"12\"", "32 hexadecimal digits"]),
        (
            namespace(&format!(
                "memory = \"1M\"\nnguid = \"{0}\"\n[[subsystem.namespace]]\nmemory = \"1M\"\nnguid = \"{0}\"",
                "0123456789abcdef".repeat(2)
            )),
            10,
            &["nguid: another namespace", "take both for one"],
        ),
        (namespace("memory = \"1M\"\nbytes = 4095"), 7, &["bytes is 4095", "4096"]),
        (namespace("memory = \"1M\"\nactive = 1"), 7, &["active: invalid type", "boolean"]),
        (
            SMALLEST.replace("[[subsystem]]\n", "[[subsystem]]\nana_state = \"best\"\n"),
            4,
            &["ana_state: unknown variant `best`", "`inaccessible`"],
        ),
        (namespace("file = \"f\"\nblock_size = 1000"), 7, &["block_size is 1000", "power of two", "512 to 65536"]),
        (namespace("memory = \"1M\"\nbacking = \"ring\""), 7, &["backing", "file and device"]),
        (namespace("file = \"f\"\nbacking = \"disk\""), 7, &["backing: unknown variant `disk`", "`ring`"]),
        (namespace("nbd = \"http://a/\""), 6, &["nbd", "no NBD URI", "nbd://HOST:PORT/EXPORT"]),
        (namespace("nbd = \"nbds://a/\""), 6, &["nbd", "TLS", "not there"]),
        (namespace("nbd = \"nbd://a/?x-connections=99\""), 6, &["x-connections is \"99\"", "1 to 16"]),
        (namespace("nbd = \"nbd://a/\"\nfile = \"f\""), 5, &["exactly one of"]),
        (namespace("nbd = \"nbd://a/\"\ndirect = true"), 7, &["direct", "file and device"]),
        (namespace("nbd = \"nbd://a/\"\nbytes = 4096"), 7, &["bytes", "one size for ever", "leave it out"]),
        (
            namespace("nbd = \"nbd://a/\"\n[[subsystem.namespace]]\nnbd = \"nbd://a:10809?x-patience=1\""),
            8,
            &["nbd: \"nbd://a:10809/\" is the medium of another", "read_only for both"],
        ),
        (namespace("rbd = \"pool/image\""), 6, &["rbd", "names no image", "rbd:POOL/IMAGE"]),
        (namespace("rbd = \"rbd:a/b?user=x\""), 6, &["\"user\" is not known", "conf, id, keyring and exclusive"]),
        (namespace("rbd = \"rbd:a/b\"\nbacking = \"ring\""), 7, &["backing", "file and device"]),
        (
            namespace("rbd = \"rbd:a/b\"\n[[subsystem.namespace]]\nrbd = \"rbd:a/b?id=x\""),
            8,
            &["rbd: \"rbd:a/b\" is the medium of another", "read_only for both"],
        ),
        (
            namespace("rbd = \"rbd:a/b?exclusive=1\"\n[[subsystem.namespace]]\nmemory = \"1M\""),
            7,
            &["ana_group is 1", "a group of its own"],
        ),
        (
            namespace("rbd = \"rbd:a/b?exclusive=1\"").replacen("nqn =", "ana_state = \"inaccessible\"\nnqn =", 1),
            4,
            &["ana_state", "group 1 follows the lock", "ana_states"],
        ),
        (namespace("file = \"f\"\ndirect = 1"), 7, &["direct: invalid type", "boolean"]),
        (
            SMALLEST.replace("[[subsystem]]\n", "[[subsystem]]\nserial = \"a serial number that is too long\"\n"),
            4,
            &["serial", "20"],
        ),
        (
            format!("{SMALLEST}{}", SMALLEST.replace(TOP, "").replace(":disk", ":other"))
                .replace("[[subsystem.", "serial = \"S\"\n[[subsystem."),
            10,
            &["serial: another subsystem"],
        ),
        (
            SMALLEST.replace("[[subsystem]]\n", "[[subsystem]]\nallowed_hosts = [\"me\"]\n"),
            4,
            &["allowed_hosts: \"me\""],
        ),
        ("device = ".to_owned(), 1, &["device"]),
    ];
    for (text, line, parts) in refusals {
        let written = Written::new(text);
        let error = serve(&["--config", written.text()]).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("{}:{line}: ", written.text())), "{message}\n{text}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}\n{text}");
        assert!(!message.contains('\n'), "{message}");
        assert_eq!((error.exit_code(), error.name()), (2, "config"), "{message}");
    }
    let missing = serve(&["--config", "/nonexistent.toml"]).unwrap_err();
    assert_eq!((missing.exit_code(), missing.name()), (1, "config_file"));
}

/// What a file says no option says beside it, and options that no file has are looked at as without one (docs/config.md).
#[test]
fn options_beside_a_file_are_those_that_it_does_not_have() {
    let written = Written::new(&SMALLEST.replacen("[[subsystem]]", "runtime = 60\n[[subsystem]]", 1));
    let beside = |more: &[&'static str]| [&["frwr", "serve", "--config", written.text()], more].concat();
    for more in [&["--hosts", "3"][..], &["--device", "rxe1"], &["--namespace", "f"], &["--no-remote-invalidate"]] {
        let error = CommandLine::try_parse_from(beside(more)).unwrap_err().to_string();
        assert!(error.contains("--config") && error.contains(more[0]) && error.contains("cannot be used"), "{error}");
    }
    let config = |more: &[&'static str]| serve(&beside(more)[2..]);
    assert_eq!(config(&["--json", "-v"]).unwrap().arguments.target.runtime, Some(60));
    assert_eq!(config(&["--runtime", "5"]).unwrap().arguments.target.runtime, Some(5));
    let error = config(&["--registration", "lists"]).unwrap_err();
    assert_eq!((error.name(), error.exit_code()), ("target_registration", 2), "{error}");
    assert!(error.to_string().contains("leave it out, it is for load"), "{error}");
}

/// Namespaces as they stand in a file, each with a key of its own line.
fn with_namespaces(namespaces: &[String]) -> String {
    let tables: String = namespaces.iter().map(|table| format!("[[subsystem.namespace]]\n{table}\n")).collect();
    format!("{TOP}[[subsystem]]\nnqn = \"nqn.2014-08.org.nvmexpress:disk\"\n{tables}")
}

#[test]
fn a_medium_that_is_written_is_served_once_by_whatever_paths() {
    let folder = tempfile::tempdir().unwrap();
    let [file, other, hard, soft, absent] =
        ["file", "other", "hard", "soft", "absent"].map(|name| folder.path().join(name).display().to_string());
    fs::write(&file, "a").unwrap();
    fs::write(&other, "a").unwrap();
    fs::hard_link(&file, &hard).unwrap();
    std::os::unix::fs::symlink(&file, &soft).unwrap();
    let dots = format!("{}/../{}/absent", folder.path().display(), folder.path().file_name().unwrap().display());
    let written = |path: &str| format!("file = {path:?}");
    let read = |path: &str| format!("file = {path:?}\nread_only = true");
    for (one, same) in [(&file, &file), (&file, &hard), (&soft, &file), (&hard, &soft), (&absent, &dots)] {
        for [first, second] in [[written(one), written(same)], [read(one), written(same)], [written(one), read(same)]] {
            let text = with_namespaces(&[first.clone(), written(&other), second]);
            let error = parsed(&text).unwrap_err().to_string();
            let line = 1 + text[..text.rfind("file = ").unwrap()].lines().count();
            for part in [&format!(":{line}: file: "), one, same, "another namespace", "read_only"] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
        parsed(&with_namespaces(&[read(one), read(same)])).unwrap();
        // What is read into memory once is another matter.
        parsed(&with_namespaces(&[written(one), format!("load = {same:?}")])).unwrap();
    }
    parsed(&with_namespaces(&[written(&file), written(&other)])).unwrap();
    // The socket of a server is a path, too.
    let here = std::env::current_dir().unwrap();
    let exports = ["socket", &format!("{}/socket", here.display())];
    let exports = exports.map(|socket| format!("nbd = \"nbd+unix:///disk?socket={socket}\""));
    assert!(parsed(&with_namespaces(&exports)).unwrap_err().to_string().contains("the medium of another namespace"));
    // In another subsystem as well.
    let text = with_namespaces(&[written(&file)]);
    let second = text[TOP.len()..].replace(":disk", ":other").replace(&file, &hard);
    assert!(parsed(&format!("{text}{second}")).unwrap_err().to_string().contains("one medium"));
}

#[test]
fn a_block_device_is_not_served_for_reading_beside_itself_for_writing() {
    let Some(device) = LoopDevice::new(1 << 20, &[]) else { return skipped("no loop device can be made here") };
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link").display().to_string();
    std::os::unix::fs::symlink(device.path(), &link).unwrap();
    let of = |key: &str, path: &str, read_only: bool| format!("{key} = {path:?}\nread_only = {read_only}");
    let file = device.file().unwrap().to_str().unwrap();
    for (read_only, also) in [(true, false), (false, true), (false, false)] {
        let written = of("device", device.path(), read_only);
        // By another name, and the file that it is in.
        for other in [of("device", &link, also), of("file", file, also)] {
            let error = parsed(&with_namespaces(&[written.clone(), other])).unwrap_err().to_string();
            assert!(error.contains("one medium") && error.contains(device.path()), "{error}");
        }
    }
    parsed(&with_namespaces(&[of("device", device.path(), true), of("device", &link, true)])).unwrap();
}

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frwr")).args(arguments).output().unwrap()
}

#[test]
fn check_config_prints_what_was_understood() {
    let written = Written::new(SMALLEST);
    let output = program(&["serve", "--config", written.text(), "--check-config", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["device"], &value["queue_depth"]), (&"rxe0".into(), &128.into()));
    let namespace = &value["subsystem"][0]["namespace"][0];
    assert_eq!((&namespace["memory"], &namespace["block_size"]), (&(1 << 20).into(), &4096.into()));
    let output = program(&["serve", "--config", written.text(), "--check-config"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("\"nqn\": \"nqn.2014-08.org.nvmexpress:disk\""));
    // Without a file too.
    let line = ["serve", "--device", "rxe0", "--listen", "10.0.0.1:4420", "--namespace", "f", "--check-config"];
    let output = program(&line);
    assert!(String::from_utf8(output.stdout).unwrap().contains("\"load\": \"f\""));
}

/// As `serve --config <(...)` and `... | serve --config /dev/stdin` have it: a pipe has no size.
#[test]
fn a_configuration_may_come_through_a_pipe_and_ends_in_time() {
    let through = |text: &str| {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_frwr"))
            .args(["serve", "--config", "/dev/stdin", "--check-config", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // What is too long is not read to its end.
        let _ = serve.stdin.take().unwrap().write_all(text.as_bytes());
        serve.wait_with_output().unwrap()
    };
    let output = through(SMALLEST);
    assert!(output.status.success(), "{output:?}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["device"], "rxe0");
    let longest = format!("{SMALLEST}#{}", " ".repeat((1 << 20) - SMALLEST.len() - 1));
    assert!(through(&longest).status.success());
    for (text, name, part) in [
        (format!("{longest} "), "config_file", "1048576"),
        (String::new(), "out_of_range", "the size of --config is 0"),
    ] {
        let output = through(&text);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["error"], name, "{value}");
        assert!(value.to_string().contains(part), "{value}");
    }
}

#[test]
fn a_file_and_options_that_it_replaces_do_not_mix() {
    let written = Written::new(SMALLEST);
    for option in [&["--device", "rxe0"], &["--queue-depth", "3"], &["--namespace", "f"], &["--block-size", "512"]] {
        let output = program(&[&["serve", "--config", written.text()], &option[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{option:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("--config"), "{option:?}");
    }
    let config = serve(&["--config", written.text(), "--runtime", "3", "--json"]).unwrap();
    assert_eq!((config.arguments.target.runtime, config.arguments.output.json), (Some(3), true));
}

#[test]
fn an_export_of_an_nbd_server_is_a_namespace_on_the_command_line_and_in_a_file() {
    let command_line = |more: &[&str]| {
        let these =
            ["--device", "soft", "--listen", "10.0.0.1:4420", "--namespace", "nbd://[fd00::1]/a%20b?x-patience=5"];
        let config = serve(&[&these, more].concat());
        config.map(|config| config.subsystems[0].namespaces[0].clone())
    };
    let written = parsed(&with_namespaces(&["nbd = \"nbd://[fd00::1]:10809/a%20b?x-patience=5\"".to_owned()])).unwrap();
    assert_eq!(command_line(&[]).unwrap(), written.subsystems[0].namespaces[0]);
    let error = command_line(&["--backing", "auto"]).unwrap_err().to_string();
    assert!(error.contains("--backing") && error.contains("leave it out"), "{error}");
    // An image of Ceph likewise, whose snapshot is another one's to read.
    let name = ["--device", "soft", "--listen", "10.0.0.1:4420", "--namespace", "rbd:pool/image?id=a"];
    let named = serve(&name).unwrap().subsystems[0].namespaces[0].clone();
    let images = ["rbd:pool/image?id=a", "rbd:pool/image@then"].map(|name| format!("rbd = \"{name}\""));
    assert_eq!(named, parsed(&with_namespaces(&images)).unwrap().subsystems[0].namespaces[0]);
    // For reading only it may be served twice.
    let twice = ["nbd = \"nbd://a/b\"\nread_only = true"; 2].map(str::to_owned);
    parsed(&with_namespaces(&twice)).unwrap();
}

fn words(devices: &[&'static str], listen: &[&'static str]) -> Vec<&'static str> {
    let devices = devices.iter().flat_map(|device| ["--device", device]);
    let listen = listen.iter().flat_map(|address| ["--listen", address]);
    devices.chain(listen).chain(["--namespace", "/etc/hostname"]).collect()
}

#[test]
fn several_devices_are_served_each_with_its_addresses() {
    let several = words(&["soft@a", "soft:window@b"], &["soft@a/10.0.0.1:4420", "soft:window@b/10.0.0.2:4420"]);
    let several = serve(&several).unwrap();
    let described = several.describe();
    assert_eq!(described["device"], serde_json::json!(["soft@a", "soft:window@b"]));
    assert_eq!(described["listen"], serde_json::json!(["soft@a/10.0.0.1:4420", "soft:window@b/10.0.0.2:4420"]));
    let file = SMALLEST.replace("\"rxe0\"", "[\"mlx5_0\", \"mlx5_1\"]");
    let file = file.replace("\"10.0.0.1:4420\"", "[\"mlx5_1/10.0.1.1:4420\", \"mlx5_0/[fd00::1]:4420\"]");
    let listen = parsed(&file).unwrap().arguments.target.listen;
    assert_eq!(
        listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["mlx5_1/10.0.1.1:4420", "mlx5_0/[fd00::1]:4420"]
    );
    // A software NIC is called as reports call it, too.
    let alias = words(&["soft@a", "soft:window@b"], &["soft:reg_mr@a/10.0.0.1:4420", "soft:window@b/10.0.0.2:4420"]);
    assert_eq!(serve(&alias).unwrap().describe()["listen"], described["listen"]);
    // With one nothing has to be said of it, and what is said is as before.
    for listen in ["10.0.0.1:4420", "rxe0/10.0.0.1:4420"] {
        let one = serve(&words(&["rxe0"], &[listen])).unwrap().describe();
        assert_eq!((&one["device"], &one["listen"]), (&"rxe0".into(), &serde_json::json!(["10.0.0.1:4420"])));
    }
}

#[test]
fn reservations_are_not_kept_by_one_of_several_gateways() {
    let gateway = format!("first_port_id = 17\n{SMALLEST}");
    assert!(parsed(&gateway).is_ok());
    let config = parsed(&format!("reservations = \"/tmp/none\"\n{SMALLEST}")).unwrap();
    assert_eq!(config.arguments.target.reservations, Some(PathBuf::from("/tmp/none")));
    let refused = parsed(&format!("reservations = \"/tmp/none\"\n{gateway}")).unwrap_err().to_string();
    assert!(refused.contains("--reservations") || refused.contains("reservations:"), "{refused}");
    assert!(refused.contains("other_gateway") || refused.contains("--other-gateway"), "{refused}");
}

#[test]
fn devices_that_cannot_be_served_together_are_refused() {
    let nine = ["d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"];
    let many: Vec<String> = (1..=17).map(|port| format!("a/10.0.0.1:{port}")).collect();
    let many: Vec<&'static str> = many.into_iter().map(|text| &*text.leak()).chain(["b/10.0.0.2:1"]).collect();
    for (devices, listen, parts) in [
        (
            &["a", "b"][..],
            &["10.0.0.1:4420", "b/10.0.0.2:4420"][..],
            &["several devices", "DEVICE/10.0.0.1:4420", "a, b"][..],
        ),
        (&["a", "b"], &["a/10.0.0.1:4420", "c/10.0.0.2:4420"], &["c/10.0.0.2:4420", "no --device", "a, b"]),
        (&["a"], &["c/10.0.0.2:4420"], &["c/10.0.0.2:4420", "no --device", "one of a"]),
        (&["a", "b"], &["a/10.0.0.1:4420"], &["no time for b", "b/10.0.0.1:4420"]),
        (&["a", "b"], &["a/10.0.0.1:4420", "b/10.0.0.1:4420"], &["10.0.0.1:4420 twice", "name it once"]),
        (&["a", "b"], &many, &["17 times for a", "16 times at most"]),
        (&["a", "b", "a"], &["a/10.0.0.1:4420"], &["--device has a twice", "name each device once"]),
        (&["soft", "soft:reg_mr"], &["soft/10.0.0.1:4420"], &["--device has soft:reg_mr twice", "soft@a"]),
        (&["soft", "rxe0"], &["soft/10.0.0.1:4420"], &["soft and rxe0", "not served together", "serve twice"]),
        (&["soft@", "soft@b"], &["soft@b/10.0.0.1:4420"], &["soft@", "1 to 32 letters"]),
        (&["soft@a b"], &["10.0.0.1:4420"], &["soft@a b", "1 to 32 letters"]),
        (&nine, &["d0/10.0.0.1:4420"], &["given 9 times", "8 times at most"]),
        (&["a", ""], &["a/10.0.0.1:4420"], &["--device is empty"]),
    ] {
        let error = serve(&words(devices, listen)).unwrap_err();
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)) && !text.contains('\n'), "{devices:?}: {text}");
        assert_eq!(error.exit_code(), 2, "{text}");
    }
    // Who connects does so by one.
    let twice = ["frwr", "load", "--device", "a", "--device", "b", "--connect", "10.0.0.1:4420"];
    assert!(CommandLine::try_parse_from(twice).unwrap_err().to_string().contains("--device"));
    for (value, part) in [("3", "must be the name of a device"), ("[\"a\", 3]", "must be the name of a device")] {
        let error = parsed(&SMALLEST.replace("\"rxe0\"", value)).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("device"), "{error}");
    }
}
