//! `serve` and `load` against each other: all of them but the opening of a real device, over the software NIC.

use clap::Parser as _;
use core::time::Duration;
use frwr::report::Report as _;
use frwr::runner::{
    Compared, DiscoverConfig, LoadConfig, RunReport, ServeConfig, ServeReport, discover, discovered_json,
    discovered_table, load, serve,
};
use frwr::signals::Asked;
use frwr::{CommandLine, Error, Task};
use frwr_engine::provider::{
    AsyncEvent, CommandError, DeviceEvent,
    fault::{CommandKind, FaultHandle, Faulty},
    soft::{SoftDevice, SoftFabric, SoftOptions},
};
use frwr_nvmf::host::HostOptions;
use frwr_nvmf::wire::{Nqn, SerialNumber};
use frwr_support::nvmf_harness::LoneHost;
use sha2::{Digest, Sha256};
use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
};

/// No multiple of any block size.
const FILE_BYTES: usize = 300_001;
const ADDRESS: &str = "127.0.0.1:4420";
const PROFILES: [&str; 5] = ["reg_mr", "window", "umr", "umr:fixed-key", "rxe"];

/// A path in a folder of its own, which is deleted at the end: tests run beside each other and may use the same names.
struct Temporary(PathBuf, #[expect(dead_code, reason = "it is deleted when dropped")] tempfile::TempDir);

impl Temporary {
    fn path(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self(folder.path().join(name), folder)
    }

    fn data(name: &str, seed: usize) -> Self {
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at * at / 7 + seed) as u8).collect();
        let path = Self::path(name);
        fs::write(&path.0, bytes).unwrap();
        path
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.0).unwrap()
    }

    fn digest(&self) -> String {
        Sha256::digest(self.bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn task(half: &str, arguments: &[&str]) -> Task {
    let fixed = ["frwr", half, "--device", "test", "--pages", "plain"];
    let cores: &[&str] = if arguments.contains(&"--cores") { &[] } else { &["--cores", "unpinned"] };
    let line = CommandLine::try_parse_from([&fixed[..], cores, arguments].concat());
    line.unwrap_or_else(|error| panic!("{error}")).task.unwrap()
}

fn serve_config(arguments: &[&str]) -> ServeConfig {
    let all = [&["--listen", ADDRESS], arguments].concat();
    let Task::Serve(arguments) = task("serve", &all) else { panic!("not serve") };
    ServeConfig::new(arguments).unwrap()
}

fn load_config(arguments: &[&str]) -> LoadConfig {
    let runtime: &[&str] = if arguments.contains(&"--runtime") { &[] } else { &["--runtime", "0"] };
    let all = [&["--connect", ADDRESS], runtime, arguments].concat();
    let Task::Load(arguments) = task("load", &all) else { panic!("not load") };
    LoadConfig::new(arguments).unwrap()
}

/// A target that serves on a thread of its own.
struct Target {
    fabric: SoftFabric,
    profile: &'static str,
    stop: Arc<AtomicBool>,
    lines: mpsc::Receiver<String>,
    thread: JoinHandle<Result<ServeReport, Error>>,
}

impl Target {
    fn start(profile: &'static str, arguments: &[&str]) -> Self {
        let target = Self::begin(SoftFabric::new(), profile, arguments);
        assert!(target.lines.recv().unwrap().contains("SHA-256"));
        // A slow start is told once a second.
        let listening = target.lines.iter().find(|line| !line.contains(" s  starting "));
        let listening = listening.expect("a target that serves says so");
        assert!(listening.starts_with("listening on 127.0.0.1:4420, namespace "), "{listening}");
        target
    }

    fn begin(fabric: SoftFabric, profile: &'static str, arguments: &[&str]) -> Self {
        Self::begin_with(fabric, profile, serve_config(arguments))
    }

    fn begin_with(fabric: SoftFabric, profile: &'static str, config: ServeConfig) -> Self {
        let device = fabric.device(SoftOptions::new(profile.parse().unwrap()));
        Self::begin_on(fabric, device, profile, config)
    }

    fn begin_on(fabric: SoftFabric, device: SoftDevice, profile: &'static str, config: ServeConfig) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, lines) = mpsc::channel();
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                serve(device, &config, &stop, &mut |line| {
                    let _ = sender.send(line.to_owned());
                })
            }
        });
        Self { fabric, profile, stop, lines, thread }
    }

    fn load(&self, arguments: &[&str]) -> Result<RunReport, Error> {
        load_on(&self.fabric, self.profile, arguments)
    }

    fn end(self) -> ServeReport {
        self.stop.store(true, Relaxed);
        let report = self.thread.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
        assert!(report.passed(), "{}", report.table());
        report
    }
}

fn load_on(fabric: &SoftFabric, profile: &str, arguments: &[&str]) -> Result<RunReport, Error> {
    let device = fabric.device(SoftOptions::new(profile.parse().unwrap()));
    load(device, &load_config(arguments), &AtomicBool::new(false), &mut |_| {})
}

fn verified(report: Result<RunReport, Error>) -> RunReport {
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.passed() && report.verified, "{}", report.table());
    report
}

/// Somebody who asks for a report now and then, and in the end for an end.
#[derive(Default)]
struct Curious {
    report: AtomicBool,
    stop: AtomicBool,
}

impl Asked for Curious {
    fn to_stop(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn to_report(&self) -> bool {
        self.report.swap(false, Relaxed)
    }
}

#[test]
fn a_target_tells_its_present_state_and_goes_on() {
    let file = Temporary::data("present", 1);
    let arguments = ["--namespace", file.text(), "--json", "--cores", "unpinned:2", "--io-queues", "2"];
    let (fabric, asked, config) = (SoftFabric::new(), Arc::new(Curious::default()), serve_config(&arguments));
    let device = fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let (sender, lines) = mpsc::channel();
    let thread = thread::spawn({
        let asked = Arc::clone(&asked);
        move || {
            serve(device, &config, &asked, &mut |line| {
                let _ = sender.send(line.to_owned());
            })
        }
    });
    assert!(lines.iter().any(|line| line.starts_with("listening on")));
    let present = || {
        asked.report.store(true, Relaxed);
        let line = lines.iter().find(|line| line.starts_with('{')).unwrap();
        let report: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&report["present"], report["silent_reactors"].as_array().unwrap().len()),
            (&true.into(), 0),
            "{line}"
        );
        assert_eq!(report["cores"].as_array().unwrap().len(), 2, "{line}");
        report
    };
    assert_eq!(present()["reads"], 0);
    verified(load_on(&fabric, "reg_mr", &["--bytes", &FILE_BYTES.to_string()]));
    let behind = present();
    let (reads, bytes) = (behind["reads"].as_u64().unwrap(), behind["bytes_read"].as_u64().unwrap());
    assert!(reads > 0 && bytes >= FILE_BYTES as u64, "{behind}");
    asked.stop.store(true, Relaxed);
    let report = thread.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.target.reads, report.target.bytes_read), (reads, bytes), "the same, as nothing was read since");
}

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
        let fabric = SoftFabric::new();
        let config = serve_config(&["--namespace", served.text()]);
        let target = Target::begin_on(fabric.clone(), fabric.device(options), profile, config);
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
    let fabric = SoftFabric::new();
    let device = fabric.device(SoftOptions::new("window".parse().unwrap()).without_registrations());
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
            SoftFabric::new(),
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
fn a_file_that_somebody_makes_shorter_is_told_with_both_sizes_and_fails_the_run() {
    for backing in ["ring", "thread"] {
        let (served, moved) = (Temporary::path(&format!("cut-{backing}")), Temporary::data("behind", 5));
        fs::write(&served.0, vec![0xab; 400 << 10]).unwrap();
        let namespace = ["--namespace", served.text(), "--backing", backing, "--block-size", "4096"];
        let target = Target::begin(SoftFabric::new(), "reg_mr", &namespace);
        assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
        verified(target.load(&["--file", moved.text()]));
        fs::File::options().write(true).open(&served.0).unwrap().set_len(200 << 10).unwrap();
        let told = target.lines.iter().find(|line| line.contains("shorter")).unwrap();
        assert!(["204800 bytes", "409600", "started again"].iter().all(|part| told.contains(part)), "{told}");
        target.stop.store(true, Relaxed);
        let report = target.thread.join().unwrap().unwrap();
        assert!(!report.passed() && report.target.failed_commits > 0, "{}", report.table());
        assert!(report.table().contains("it became shorter: 204800 bytes"), "{}", report.table());
        assert_eq!(report.json()["namespaces"][0]["shrunk_to"], 204_800);
    }
}

#[test]
fn a_configuration_serves_several_namespaces_to_whom_it_names() {
    let (stored, config) = (Temporary::data("several", 3), Temporary::path("several.toml"));
    let text = format!(
        "device = \"test\"\nlisten = \"{ADDRESS}\"\ncores = \"unpinned\"\npages = \"plain\"\n[[subsystem]]\n\
         nqn = \"nqn.2026-11.invalid.frwr:file\"\nallowed_hosts = [\"nqn.2026-11.invalid.frwr:host\"]\n\
         [[subsystem.namespace]]\nfile = \"{}\"\nblock_size = 512\nread_only = true\n\
         [[subsystem.namespace]]\nmemory = \"1M\"\n[[subsystem.namespace]]\nload = \"{0}\"\nread_only = true\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.invalid.frwr:other\"\nallowed_hosts = []\n\
         [[subsystem.namespace]]\nmemory = \"1M\"\n",
        stored.text()
    );
    fs::write(&config.0, text).unwrap();
    let line = CommandLine::try_parse_from(["frwr", "serve", "--config", config.text()]).unwrap();
    let Some(Task::Serve(arguments)) = line.task else { panic!("not serve") };
    let target = Target::begin_with(SoftFabric::new(), "reg_mr", ServeConfig::new(arguments).unwrap());
    let listening = target.lines.iter().find(|line| line.starts_with("listening on")).unwrap();
    assert!(listening.contains("585 blocks of 512 bytes; namespace memory, 256 blocks of 4096 bytes"), "{listening}");
    // The first namespace is what is loaded; whole blocks of the file are in it.
    let report = verified(target.load(&["--block-size", "512"]));
    let whole = 585 * 512;
    let digest: String = Sha256::digest(&stored.bytes()[..whole]).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((report.file_bytes, report.sha256), (whole as u64, Some(digest)));
    let report = target.end();
    assert_eq!((report.served.namespaces.len(), report.storages.len()), (4, 4));
    assert!(report.storages[0].completed >= 585 && report.storages[1..].iter().all(|storage| storage.completed == 0));
    assert!(
        report.served.namespaces[0].read_only && report.json()["namespaces"][2]["sha256"] == stored.digest().as_str()
    );
}

#[test]
fn serial_numbers_are_as_the_configuration_says_or_follow_from_the_name() {
    let name = |number| format!("nqn.2026-11.invalid.frwr:disk{number}");
    let subsystem = |number, line: &str| {
        format!("[[subsystem]]\nnqn = \"{}\"\n{line}[[subsystem.namespace]]\nmemory = \"1M\"\n", name(number))
    };
    let config = Temporary::path("serial.toml");
    let top = format!("device = \"test\"\nlisten = \"{ADDRESS}\"\ncores = \"unpinned\"\npages = \"plain\"\n");
    fs::write(&config.0, top + &subsystem(1, "serial = \"S 123\"\n") + &subsystem(2, "")).unwrap();
    let line = CommandLine::try_parse_from(["frwr", "serve", "--config", config.text()]).unwrap();
    let Some(Task::Serve(arguments)) = line.task else { panic!("not serve") };
    let target = Target::begin_with(SoftFabric::new(), "reg_mr", ServeConfig::new(arguments).unwrap());
    assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
    let own = SerialNumber::of_subsystem(&Nqn::new(&name(2)).unwrap());
    for (number, serial) in [(1, "S 123"), (2, own.as_str())] {
        let (subsystem, host) = (Nqn::new(&name(number)).unwrap(), Nqn::new("nqn.host").unwrap());
        let options = HostOptions::new(ADDRESS.parse().unwrap(), subsystem, host);
        let mut lone = LoneHost::new(&target.fabric, "reg_mr", options);
        lone.until(|host| host.is_ready());
        assert_eq!(lone.host.serial_number().unwrap().as_str(), serial);
        lone.finish();
    }
    target.end();
}

#[test]
fn hosts_hear_of_a_shutdown_before_their_connections_end() {
    let file = Temporary::data("news", 3);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let name = Nqn::new("nqn.2026-11.invalid.frwr:file").unwrap();
    let options = HostOptions::new(ADDRESS.parse().unwrap(), name, Nqn::new("nqn.host").unwrap());
    let mut lone = LoneHost::new(&target.fabric, "reg_mr", options);
    lone.until(|host| host.is_ready());
    // A Keep Alive behind the event request: when it is answered, the request waits at the target.
    lone.now += Duration::from_secs(15);
    lone.until(|host| host.statistics().keep_alives == 1);
    lone.host.flush_namespace(1).unwrap();
    lone.until(|host| host.statistics().succeeded == 1);
    target.stop.store(true, Relaxed);
    lone.until(|host| host.statistics().failures > 0);
    assert_eq!(lone.host.statistics().shutdown_events, 1);
    target.end();
}

#[test]
fn the_discovery_service_of_serve_is_asked_by_discover() {
    let file = Temporary::data("discover", 3);
    let config = |arguments: &[&str]| {
        let fixed = ["frwr", "discover", "--device", "test", "--connect", ADDRESS];
        let line = CommandLine::try_parse_from([&fixed[..], arguments].concat()).unwrap();
        let Some(Task::Discover(arguments)) = line.task else { panic!("not discover") };
        DiscoverConfig::new(arguments).unwrap()
    };
    let (stop, mut quiet) = (AtomicBool::new(false), |line: &str| panic!("{line}"));
    let device = |fabric: &SoftFabric| fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let name = "nqn.2026-11.invalid.frwr:file";
    let allowed = ["--namespace", file.text(), "--allow-host", "nqn.friend"];
    let target = Target::start("reg_mr", &allowed);
    let found = discover(device(&target.fabric), &config(&["--host-nqn", "nqn.friend"]), &stop, &mut quiet).unwrap();
    let json = discovered_json(&found);
    let entry = &json["entries"][0];
    assert_eq!(json["entries"].as_array().unwrap().len(), 1);
    let fields = ["transport", "type", "address", "service", "subsystem"].map(|field| entry[field].as_str().unwrap());
    assert_eq!(fields, ["rdma", "nvm", "127.0.0.1", "4420", name]);
    let table = discovered_table(&found);
    assert!(table.lines().count() == 1 && table.contains(name) && table.contains("127.0.0.1"), "{table}");
    // Whom it is not for sees nothing.
    assert!(discover(device(&target.fabric), &config(&[]), &stop, &mut quiet).unwrap().is_empty());
    let fabric = target.fabric.clone();
    target.end();
    let error = discover(device(&fabric), &config(&[]), &stop, &mut quiet).unwrap_err();
    assert_eq!((error.name(), error.exit_code()), ("no_session", 1));
    assert!(error.to_string().contains(ADDRESS) && !error.to_string().contains('\n'), "{error}");
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
        let fabric = &target.fabric;
        let loads = [1, 2].map(|_| scope.spawn(|| load_on(fabric, "reg_mr", &["--runtime", "1"])));
        let digests = loads.map(|load| verified(load.join().unwrap()).sha256);
        assert_eq!(digests[0], digests[1]);
    });
    target.end();
}

#[test]
fn the_load_of_one_host_runs_on_two_cores() {
    let (served, moved, output) =
        (Temporary::data("old", 1), Temporary::data("cores", 9), Temporary::path("cores-out"));
    // Not all profiles: spinning threads are dear on a shared machine.
    for profile in ["reg_mr", "rxe"] {
        let target = Target::start(profile, &["--namespace", served.text(), "--io-queues", "2"]);
        let two = ["--cores", "unpinned:2", "--runtime", "1"];
        let report = verified(target.load(&[&two[..], &["--file", moved.text(), "--output", output.text()]].concat()));
        assert_eq!((report.sha256.clone(), report.queues), (Some(moved.digest()), 2), "{profile}");
        assert!(output.bytes() == moved.bytes(), "{profile}");
        let [first, second] = report.cores.as_slice() else { panic!("{:?}", report.cores) };
        assert!(!second.idle && first.requests > 0 && second.requests > 0, "{profile}: {}", report.table());
        assert_eq!(first.requests + second.requests, report.latency.len(), "{profile}");
        assert!(report.session.requests >= report.latency.len() && report.json()["cores"][1]["requests"] != 0);
        assert!(report.table().contains("queue depth 32 on each core"), "{}", report.table());
        target.end();
    }
}

#[test]
fn two_cores_read_what_is_there_and_hold_it_against_the_first_copy() {
    let file = Temporary::data("read-cores", 2);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let (bytes, digest) = (FILE_BYTES.to_string(), file.digest());
    let exact = ["--cores", "unpinned:2", "--bytes", &bytes, "--expect-sha256", &digest];
    let report = verified(target.load(&[&exact[..], &["--runtime", "1"]].concat()));
    assert!(report.cores.iter().all(|core| core.requests > 0), "{}", report.table());
    // Without a load there is nothing to share.
    let report = verified(target.load(&exact));
    assert_eq!((report.cores[0].requests, report.cores[1].requests), (74, 0));
    assert_eq!(target.end().target.writes, 0);
}

#[test]
fn a_core_without_a_queue_says_so_and_the_others_do_its_share() {
    let file = Temporary::data("short", 3);
    let target = Target::start("reg_mr", &["--namespace", file.text(), "--io-queues", "2"]);
    // Two queues per core are more than the target grants: two cores get one each.
    let three = ["--cores", "unpinned:3", "--queues", "2", "--runtime", "1", "--file", file.text()];
    let report = verified(target.load(&three));
    let idle: Vec<bool> = report.cores.iter().map(|core| core.idle).collect();
    assert_eq!((idle, report.queues, report.cores[2].requests), (vec![false, false, true], 2, 0));
    assert!(report.table().contains("granted 2 I/O queue(s): 1 core(s) had none"), "{}", report.table());
    target.end();
}

/// A load on two cores, and another target in the place of the first in the middle of it. `stops`: it is interrupted once
/// the second target serves.
fn load_over_two_targets(name: &str, second: &[&str], stops: bool) -> RunReport {
    let file = Temporary::data(name, 5);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let (fabric, stop) = (target.fabric.clone(), AtomicBool::new(false));
    let device = fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let config = load_config(&["--cores", "unpinned:2", "--runtime", "3600", "--reconnects", "100"]);
    let (loading, began) = mpsc::channel();
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            load(device, &config, &stop, &mut |line| {
                let _ = loading.send(line.contains("mixed load"));
            })
        });
        assert!(began.iter().any(|loading| loading));
        target.end();
        let target = Target::begin(fabric.clone(), "reg_mr", &[&["--namespace", file.text()], second].concat());
        assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
        if stops {
            // Somebody uses it.
            assert!(target.lines.iter().any(|line| line.contains("serving")));
            stop.store(true, Relaxed);
        }
        let report = load.join().unwrap().unwrap();
        target.end();
        report
    })
}

#[test]
fn a_load_on_two_cores_survives_a_target_that_comes_back_and_can_be_interrupted() {
    let report = load_over_two_targets("again", &[], true);
    assert!(report.interrupted && report.passed() && report.reconnects() >= 1, "{}", report.table());
}

#[test]
fn a_core_that_loses_its_queue_for_good_ends_the_run() {
    let report = load_over_two_targets("fewer", &["--io-queues", "1"], false);
    let caught = report.caught.clone().unwrap();
    assert!(!report.passed() && caught.contains("no I/O queue") && caught.contains("--cores"), "{caught}");
    assert!(report.keys_accounted() && report.undrained.is_empty(), "{}", report.table());
}

#[test]
fn two_cores_of_a_host_work_on_two_cores_of_a_target() {
    let file = Temporary::data("both", 7);
    let target = Target::start("reg_mr", &["--namespace", file.text(), "--cores", "unpinned:2"]);
    let report = verified(target.load(&["--cores", "unpinned:2", "--runtime", "1", "--file", file.text()]));
    assert_eq!(report.queues, 2);
    assert!(report.cores.iter().all(|core| core.requests > 0), "{}", report.table());
    target.end();
}

#[test]
fn a_trace_follows_one_core() {
    let Task::Load(arguments) = task("load", &["--connect", ADDRESS, "--cores", "unpinned:2", "--trace", "/tmp/trace"])
    else {
        panic!("not load")
    };
    let error = LoadConfig::new(arguments).unwrap_err();
    assert_eq!((error.name(), error.exit_code()), ("trace_cores", 2));
    assert!(error.to_string().contains("--trace follows one core"), "{error}");
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

#[test]
fn wrong_digests_and_unsuitable_namespaces_are_told() {
    let (file, output) = (Temporary::data("wrong", 6), Temporary::path("wrong-out"));
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let report = target.load(&["--expect-sha256", &"0".repeat(64)]).unwrap();
    assert!(!report.passed() && report.caught.unwrap().contains("SHA-256"));
    for (arguments, parts) in [
        (&["--block-size", "512"][..], ["--block-size is 512", "4096"]),
        (&["--bytes", "303105"], ["--bytes is 303105", "303104"]),
        (&["--queue-depth", "129"], ["queue depth 129", "128"]),
    ] {
        let told = match target.load(&[arguments, &["--output", output.text()]].concat()) {
            Err(error) => error.to_string(),
            Ok(report) => panic!("{arguments:?}: {}", report.table()),
        };
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        assert!(!output.0.exists(), "nothing was read");
    }
    target.end();
}

#[test]
fn a_target_that_is_not_there_ends_the_run_with_one_line() {
    let fabric = SoftFabric::new();
    for (reconnects, attempts) in [("0", 1), ("2", 3)] {
        let config = load_config(&["--reconnects", reconnects]);
        let device = fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
        let Err(error) = load(device, &config, &AtomicBool::new(false), &mut |_| {}) else { panic!("connected") };
        assert_eq!((error.name(), error.exit_code()), ("no_session", 1));
        let line = error.to_string();
        assert!(line.contains(ADDRESS) && line.contains(&format!("{attempts} attempt")), "{line}");
        assert!(line.contains("--reconnects") && !line.contains('\n'), "{line}");
    }
}

#[test]
fn a_target_that_goes_away_in_mid_load_ends_the_run() {
    let file = Temporary::data("away", 7);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let config = load_config(&["--runtime", "3600", "--reconnects", "2"]);
    let device = target.fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let (sender, lines) = mpsc::channel();
    let host = thread::spawn(move || {
        load(device, &config, &AtomicBool::new(false), &mut |line| {
            let _ = sender.send(line.to_owned());
        })
    });
    let loading = |line: &String| line.contains("load");
    assert!(lines.iter().any(|line| loading(&line)));
    target.end();
    let report = host.join().unwrap().unwrap();
    let caught = report.caught.clone().unwrap();
    assert!(!report.passed() && caught.contains("gave up"), "{caught}");
    assert!(report.keys_accounted(), "{}", report.table());
}

#[test]
fn a_host_is_interrupted_before_and_behind_its_first_session() {
    let fabric = SoftFabric::new();
    let device = || fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let stopped = AtomicBool::new(true);
    let report = load(device(), &load_config(&[]), &stopped, &mut |_| {}).unwrap();
    assert!(report.interrupted && report.passed() && !report.verified);
    // Two results, or a file and a result, in one.
    for option in ["--file", "--output"] {
        let both = Temporary::data("both", 1);
        fs::write(&both.0, "data").unwrap();
        let config = load_config(&[option, both.text(), "--trace", both.text()]);
        let Err(error) = load(device(), &config, &stopped, &mut |_| {}) else { panic!("it would be overwritten") };
        assert_eq!((error.name(), error.exit_code()), ("trace_file", 2));
        assert!(error.to_string().contains(option), "{error}");
        assert_eq!(fs::read_to_string(&both.0).unwrap(), "data");
    }
    // Rates and latencies of no request would look like figures.
    let (table, json) = (report.table(), report.json());
    assert!(
        table.contains("nothing was measured") && table.contains("interrupted before the first request"),
        "{table}"
    );
    assert!(!table.contains("p99.9") && !table.contains("IOPS") && !table.contains("per request"), "{table}");
    for name in ["min", "mean", "p50", "p99", "p999", "max"] {
        assert_eq!(json["latency_us"].get(name), Some(&serde_json::Value::Null), "{name} in {json}");
    }
    let file = Temporary::data("interrupted", 8);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let stop = AtomicBool::new(false);
    let device = target.fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let report = load(device, &load_config(&["--runtime", "3600"]), &stop, &mut |line| {
        stop.store(line.contains("load"), Relaxed);
    })
    .unwrap();
    assert!(report.interrupted && report.passed() && report.verified, "{}", report.table());
    target.end();
}

#[test]
fn an_address_that_is_taken_is_told() {
    let file = Temporary::data("taken", 2);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    // One network: the second finds the first one's address in use.
    let second = Target::begin(target.fabric.clone(), "reg_mr", &["--namespace", file.text()]);
    let Err(error) = second.thread.join().unwrap() else { panic!("two listen at one address") };
    assert_eq!((error.name(), error.exit_code()), ("listen", 1));
    target.end();
}

#[test]
fn a_file_that_is_served_is_not_served_again() {
    let file = Temporary::path("once");
    fs::write(&file.0, vec![0; 64 << 10]).unwrap();
    let arguments = ["--namespace", file.text(), "--backing", "auto"];
    let target = Target::begin(SoftFabric::new(), "reg_mr", &arguments);
    assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
    let second = Target::begin(SoftFabric::new(), "reg_mr", &arguments);
    let error = second.thread.join().unwrap().unwrap_err();
    assert!(error.to_string().contains(file.text()) && error.to_string().contains("locked"), "{error}");
    assert_eq!(error.exit_code(), 1);
    target.end();
    let third = Target::begin(SoftFabric::new(), "reg_mr", &arguments);
    assert!(third.lines.iter().any(|line| line.starts_with("listening on")));
    third.end();
}

/// The engine's own words name options that a person cannot give.
#[test]
fn what_a_device_cannot_do_is_told_in_options_of_the_command_line() {
    let (file, stop) = (Temporary::data("too-much", 1), AtomicBool::new(false));
    let device = SoftFabric::new().device(SoftOptions::new("rxe".parse().unwrap()));
    let asked = ["--namespace", file.text(), "--queue-depth", "1024", "--io-queues", "16", "--hosts", "200"];
    let error = serve(device, &serve_config(&asked), &stop, &mut |_| {}).unwrap_err();
    one_line(&error, "engine", "--queue-depth 1024 --io-queues 16 --hosts 200 are more than test can do: ");
    one_line(&error, "engine", "lower --queue-depth, --io-queues or --hosts, or have more --cores");
}

#[test]
fn a_target_ends_by_itself_when_its_time_is_over() {
    let file = Temporary::data("time", 2);
    let target = Target::begin(SoftFabric::new(), "reg_mr", &["--namespace", file.text(), "--runtime", "0"]);
    let report = target.thread.join().unwrap().unwrap();
    assert!(report.passed());
}

/// A device that is told what to do wrong.
fn faulty(fabric: &SoftFabric) -> (Faulty<SoftDevice>, FaultHandle) {
    Faulty::new(fabric.device(SoftOptions::new("rxe".parse().unwrap())))
}

fn one_line(error: &Error, name: &str, text: &str) {
    let said = error.to_string();
    assert_eq!((error.name(), error.exit_code()), (name, 1), "{said}");
    assert!(said.contains(text) && !said.contains('\n'), "{said}");
}

#[test]
fn memory_that_a_device_does_not_register_ends_both_halves_with_the_reason() {
    let file = Temporary::data("refused", 1);
    let stop = AtomicBool::new(false);
    let (device, faults) = faulty(&SoftFabric::new());
    faults.fail_command(CommandKind::RegisterMemory, CommandError::EXHAUSTED, u32::MAX);
    // Before any host has come.
    let error = serve(device, &serve_config(&["--namespace", file.text()]), &stop, &mut |_| {}).unwrap_err();
    one_line(&error, "locked_memory", "cannot register memory");

    let target = Target::start("rxe", &["--namespace", file.text()]);
    let (device, faults) = faulty(&target.fabric);
    faults.fail_command(CommandKind::RegisterMemory, CommandError::EXHAUSTED, u32::MAX);
    let error = load(device, &load_config(&[]), &stop, &mut |_| {}).unwrap_err();
    one_line(&error, "locked_memory", "cannot register memory");
    target.end();
}

#[test]
fn a_device_that_is_gone_ends_both_halves_with_the_reason() {
    let file = Temporary::data("gone", 1);
    let stop = AtomicBool::new(false);
    // Goes once a line of progress says this.
    let goes_at = |faults: FaultHandle, text: &'static str| {
        move |line: &str| {
            if line.contains(text) {
                faults.inject_event(DeviceEvent::Async(AsyncEvent::DeviceFatal));
            }
        }
    };
    let (device, faults) = faulty(&SoftFabric::new());
    let config = serve_config(&["--namespace", file.text()]);
    let error = serve(device, &config, &stop, &mut goes_at(faults, "listening on")).unwrap_err();
    one_line(&error, "device_gone", "is gone");

    let target = Target::start("rxe", &["--namespace", file.text()]);
    let (device, faults) = faulty(&target.fabric);
    let config = load_config(&["--runtime", "60"]);
    let error = load(device, &config, &stop, &mut goes_at(faults, "mixed load")).unwrap_err();
    one_line(&error, "device_gone", "is gone");
    target.end();
}

/// A device that goes takes its connections with it, and the kernel's word of that may come after the host gave up.
#[test]
fn a_host_that_gives_up_on_a_device_that_was_removed_says_so() {
    let file = Temporary::data("removed", 1);
    let target = Target::start("rxe", &["--namespace", file.text()]);
    let (device, faults) = faulty(&target.fabric);
    let config = load_config(&["--runtime", "3600", "--reconnects", "2"]);
    let (sender, lines) = mpsc::channel();
    let host = thread::spawn(move || {
        load(device, &config, &AtomicBool::new(false), &mut |line| {
            let _ = sender.send(line.to_owned());
        })
    });
    assert!(lines.iter().any(|line| line.contains("mixed load")));
    faults.remove_device();
    target.end();
    one_line(&host.join().unwrap().unwrap_err(), "device_gone", "is gone");

    // One that never had a session.
    let (device, faults) = faulty(&SoftFabric::new());
    faults.remove_device();
    let config = load_config(&["--reconnects", "1"]);
    let error = load(device, &config, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    one_line(&error, "device_gone", "is gone");

    // Who only asks what there is.
    let (device, faults) = faulty(&SoftFabric::new());
    faults.remove_device();
    let line = ["frwr", "discover", "--device", "test", "--connect", ADDRESS];
    let Some(Task::Discover(arguments)) = CommandLine::try_parse_from(line).unwrap().task else {
        panic!("not discover")
    };
    let config = DiscoverConfig::new(arguments).unwrap();
    let error = discover(device, &config, &AtomicBool::new(false), &mut |line| panic!("{line}")).unwrap_err();
    one_line(&error, "device_gone", "is gone");
}

/// Arguments of a target whose queues are spread over cores, in place of one.
fn spread(cores: &str, arguments: &[&str]) -> ServeConfig {
    let fixed = ["frwr", "serve", "--device", "test", "--pages", "plain", "--listen", ADDRESS, "--cores", cores];
    let line = CommandLine::try_parse_from([&fixed[..], arguments].concat()).unwrap();
    let Some(Task::Serve(arguments)) = line.task else { panic!("not serve") };
    ServeConfig::new(arguments).unwrap()
}

#[test]
fn queues_spread_over_the_targets_cores_serve_one_namespace() {
    let moved = Temporary::data("spread", 6);
    let bytes = FILE_BYTES.to_string();
    for (backing, cores) in [("memory", 2), ("auto", 3), ("thread", 2)] {
        let served = Temporary::path(&format!("spread-{backing}"));
        fs::write(&served.0, vec![0; 400 << 10]).unwrap();
        let config = spread(&format!("unpinned:{cores}"), &["--namespace", served.text(), "--backing", backing]);
        let target = Target::begin_with(SoftFabric::new(), "reg_mr", config);
        assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
        verified(target.load(&["--file", moved.text(), "--runtime", "1", "--queues", "4"]));
        verified(target.load(&["--file", moved.text(), "--queues", "4"]));
        verified(target.load(&["--bytes", &bytes, "--expect-sha256", &moved.digest(), "--queues", "2"]));
        let report = target.end();
        assert_eq!((report.targets.len(), report.cores.len(), report.target.accepted), (cores, cores, 5 + 5 + 3));
        assert!(report.targets.iter().all(|core| core.reads > 0 && core.writes > 0), "{}", report.table());
        assert_eq!(report.target.reads, report.targets.iter().map(|core| core.reads).sum::<u64>());
        assert_eq!(report.json()["cores"].as_array().unwrap().len(), cores);
        assert!(backing == "memory" || served.bytes()[..FILE_BYTES] == moved.bytes());
    }
}

#[test]
fn an_address_that_is_taken_ends_a_target_of_several_cores() {
    let file = Temporary::data("taken", 1);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let (device, stop) = (target.fabric.device(SoftOptions::new("reg_mr".parse().unwrap())), AtomicBool::new(false));
    let config = spread("unpinned:2", &["--namespace", file.text()]);
    let error = serve(device, &config, &stop, &mut |_| {}).err().unwrap();
    assert!(error.name() == "listen" && error.to_string().contains("EADDRINUSE"), "{error}");
    target.end();
}

#[test]
fn more_cores_than_a_target_may_have_are_refused() {
    let line = ["frwr", "serve", "--device", "test", "--listen", ADDRESS, "--namespace", "x", "--cores"];
    let line = CommandLine::try_parse_from([&line[..], &["unpinned:65"]].concat()).unwrap();
    let Some(Task::Serve(arguments)) = line.task else { panic!("not serve") };
    let error = ServeConfig::new(arguments).unwrap_err();
    assert!(error.to_string().contains("65 cores: must be 1 to 64"), "{error}");
}

/// As many hosts as `--hosts` says, and no more: the next one is told so, and an operator is told what to raise; the discovery service is
/// there for it all the same.
#[test]
fn a_host_more_than_there_may_be_is_told_so_and_still_finds_the_discovery_service() {
    let file = Temporary::data("hosts", 8);
    let target = Target::start("reg_mr", &["--namespace", file.text(), "--hosts", "1", "--max-transfer", "256K"]);
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, lines) = mpsc::channel();
    let first = thread::spawn({
        let device = target.fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
        let (stop, config) = (Arc::clone(&stop), load_config(&["--runtime", "3600", "--host-nqn", "nqn.first"]));
        move || {
            load(device, &config, &stop, &mut |line| {
                let _ = sender.send(line.to_owned());
            })
        }
    });
    assert!(lines.iter().any(|line| line.contains("load")));
    let error = target.load(&["--host-nqn", "nqn.second", "--reconnects", "1"]).unwrap_err().to_string();
    assert!(error.contains("Connect Controller Busy (0x181)"), "{error}");
    let said = ", host nqn.second, queue 0: Connect refused, Connect Controller Busy (0x181): the one place for hosts is taken, and 1 more \
                for those that come back; raise --hosts, or disconnect a host";
    assert!(target.lines.iter().any(|line| line.ends_with(said)));
    let line = ["frwr", "discover", "--device", "test", "--connect", ADDRESS, "--host-nqn", "nqn.second"];
    let Some(Task::Discover(arguments)) = CommandLine::try_parse_from(line).unwrap().task else {
        panic!("not discover")
    };
    let device = target.fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let found = discover(device, &DiscoverConfig::new(arguments).unwrap(), &AtomicBool::new(false), &mut |_| {});
    assert_eq!(found.unwrap().len(), 1);
    stop.store(true, Relaxed);
    assert!(first.join().unwrap().unwrap().passed());
    let report = target.end();
    assert!(report.target.incidents > 0 && report.target.made_room == 0, "{}", report.table());
}
