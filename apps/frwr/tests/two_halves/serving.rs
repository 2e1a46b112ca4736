//! What a target offers, to whom, and what it tells of itself.

use super::network::Network;
use super::{ADDRESS, FILE_BYTES, Target, Temporary, load_config, load_on, serve_config, verified};
use clap::Parser as _;
use core::time::Duration;
use frwr::report::Report as _;
use frwr::runner::{DiscoverConfig, ServeConfig, discover, discovered_json, discovered_table, load, serve};
use frwr::signals::Asked;
use frwr::{CommandLine, Task};
use frwr_engine::provider::soft::SoftOptions;
use frwr_nvmf::host::HostOptions;
use frwr_nvmf::wire::{Nqn, SerialNumber};
use frwr_support::nvmf_harness::LoneHost;
use sha2::{Digest, Sha256};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;

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
    let (network, asked, config) = (Network::new(), Arc::new(Curious::default()), serve_config(&arguments));
    let device = network.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let (sender, lines) = mpsc::channel();
    let thread = thread::spawn({
        let asked = Arc::clone(&asked);
        move || {
            serve(vec![device], &config, &asked, &mut |line| {
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
    verified(load_on(&network, "reg_mr", &["--bytes", &FILE_BYTES.to_string()]));
    let behind = present();
    let (reads, bytes) = (behind["reads"].as_u64().unwrap(), behind["bytes_read"].as_u64().unwrap());
    assert!(reads > 0 && bytes >= FILE_BYTES as u64, "{behind}");
    asked.stop.store(true, Relaxed);
    let report = thread.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.target.reads, report.target.bytes_read), (reads, bytes), "the same, as nothing was read since");
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
    let target = Target::begin_with(Network::new(), "reg_mr", ServeConfig::new(arguments).unwrap());
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
    let target = Target::begin_with(Network::new(), "reg_mr", ServeConfig::new(arguments).unwrap());
    assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
    let own = SerialNumber::of_subsystem(&Nqn::new(&name(2)).unwrap());
    for (number, serial) in [(1, "S 123"), (2, own.as_str())] {
        let (subsystem, host) = (Nqn::new(&name(number)).unwrap(), Nqn::new("nqn.host").unwrap());
        let options = HostOptions::new(ADDRESS.parse().unwrap(), subsystem, host);
        let mut lone = lone_host(&target, options);
        lone.until(|host| host.is_ready());
        assert_eq!(lone.host.serial_number().unwrap().as_str(), serial);
        lone.finish();
    }
    target.end();
}

/// A host on no core of its own.
fn lone_host(target: &Target, options: HostOptions) -> LoneHost {
    let device = target.network.device(SoftOptions::new("reg_mr".parse().unwrap()));
    LoneHost::over(device, options.engine(), options)
}

#[test]
fn hosts_hear_of_a_shutdown_before_their_connections_end() {
    let file = Temporary::data("news", 3);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    let name = Nqn::new("nqn.2026-11.invalid.frwr:file").unwrap();
    let options = HostOptions::new(ADDRESS.parse().unwrap(), name, Nqn::new("nqn.host").unwrap());
    let mut lone = lone_host(&target, options);
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
    let device = |network: &Network| network.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let name = "nqn.2026-11.invalid.frwr:file";
    let allowed = ["--namespace", file.text(), "--allow-host", "nqn.friend"];
    let target = Target::start("reg_mr", &allowed);
    let found = discover(device(&target.network), &config(&["--host-nqn", "nqn.friend"]), &stop, &mut quiet).unwrap();
    let json = discovered_json(&found);
    let entry = &json["entries"][0];
    assert_eq!(json["entries"].as_array().unwrap().len(), 1);
    let fields = ["transport", "type", "address", "service", "subsystem"].map(|field| entry[field].as_str().unwrap());
    assert_eq!(fields, ["rdma", "nvm", "127.0.0.1", "4420", name]);
    let table = discovered_table(&found);
    assert!(table.lines().count() == 1 && table.contains(name) && table.contains("127.0.0.1"), "{table}");
    // Whom it is not for sees nothing.
    assert!(discover(device(&target.network), &config(&[]), &stop, &mut quiet).unwrap().is_empty());
    let network = target.network.clone();
    target.end();
    let error = discover(device(&network), &config(&[]), &stop, &mut quiet).unwrap_err();
    assert_eq!((error.name(), error.exit_code()), ("no_session", 1));
    assert!(error.to_string().contains(ADDRESS) && !error.to_string().contains('\n'), "{error}");
}

#[test]
fn an_address_that_is_taken_is_told() {
    let file = Temporary::data("taken", 2);
    let target = Target::start("reg_mr", &["--namespace", file.text()]);
    // One network: the second finds the first one's address in use.
    let second = Target::begin(target.network.clone(), "reg_mr", &["--namespace", file.text()]);
    let Err(error) = second.thread.join().unwrap() else { panic!("two listen at one address") };
    assert_eq!((error.name(), error.exit_code()), ("listen", 1));
    target.end();
}

#[test]
fn a_file_that_is_served_is_not_served_again() {
    let file = Temporary::path("once");
    fs::write(&file.0, vec![0; 64 << 10]).unwrap();
    let arguments = ["--namespace", file.text(), "--backing", "auto"];
    let target = Target::begin(Network::new(), "reg_mr", &arguments);
    assert!(target.lines.iter().any(|line| line.starts_with("listening on")));
    let second = Target::begin(Network::new(), "reg_mr", &arguments);
    let error = second.thread.join().unwrap().unwrap_err();
    assert!(error.to_string().contains(file.text()) && error.to_string().contains("locked"), "{error}");
    assert_eq!(error.exit_code(), 1);
    target.end();
    let third = Target::begin(Network::new(), "reg_mr", &arguments);
    assert!(third.lines.iter().any(|line| line.starts_with("listening on")));
    third.end();
}

#[test]
fn a_target_ends_by_itself_when_its_time_is_over() {
    let file = Temporary::data("time", 2);
    let target = Target::begin(Network::new(), "reg_mr", &["--namespace", file.text(), "--runtime", "0"]);
    let report = target.thread.join().unwrap().unwrap();
    assert!(report.passed());
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
        let device = target.network.device(SoftOptions::new("reg_mr".parse().unwrap()));
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
    let device = target.network.device(SoftOptions::new("reg_mr".parse().unwrap()));
    let found = discover(device, &DiscoverConfig::new(arguments).unwrap(), &AtomicBool::new(false), &mut |_| {});
    assert_eq!(found.unwrap().len(), 1);
    stop.store(true, Relaxed);
    assert!(first.join().unwrap().unwrap().passed());
    let report = target.end();
    assert!(report.target.incidents > 0 && report.target.made_room == 0, "{}", report.table());
}
