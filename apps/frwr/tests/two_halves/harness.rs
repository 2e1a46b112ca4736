//! A target on a thread of its own, and hosts of it.

use super::network::Network;
use clap::Parser as _;
use frwr::report::Report as _;
use frwr::runner::{LoadConfig, RunReport, ServeConfig, ServeReport, load, serve};
use frwr::{CommandLine, Error, Task};
use frwr_engine::provider::soft::{SoftDevice, SoftOptions};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::thread::JoinHandle;

/// No multiple of any block size.
pub(crate) const FILE_BYTES: usize = 300_001;

pub(crate) const ADDRESS: &str = "127.0.0.1:4420";

pub(crate) const PROFILES: [&str; 5] = ["reg_mr", "window", "umr", "umr:fixed-key", "rxe"];

/// A path in a folder of its own, which is deleted at the end: tests run beside each other and may use the same names.
pub(crate) struct Temporary(
    pub(crate) PathBuf,
    #[expect(dead_code, reason = "it is deleted when dropped")] tempfile::TempDir,
);

impl Temporary {
    pub(crate) fn path(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self(folder.path().join(name), folder)
    }

    pub(crate) fn data(name: &str, seed: usize) -> Self {
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at * at / 7 + seed) as u8).collect();
        let path = Self::path(name);
        fs::write(&path.0, bytes).unwrap();
        path
    }

    pub(crate) fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(&self.0).unwrap()
    }

    pub(crate) fn digest(&self) -> String {
        Sha256::digest(self.bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(crate) fn task(half: &str, arguments: &[&str]) -> Task {
    // Cores that share a processor stall, and lines are counted here.
    let fixed = ["frwr", half, "--device", "test", "--pages", "plain", "--stall-threshold", "0"];
    let cores: &[&str] = if arguments.contains(&"--cores") { &[] } else { &["--cores", "unpinned"] };
    let line = CommandLine::try_parse_from([&fixed[..], cores, arguments].concat());
    line.unwrap_or_else(|error| panic!("{error}")).task.unwrap()
}

pub(crate) fn serve_config(arguments: &[&str]) -> ServeConfig {
    let all = [&["--listen", ADDRESS], arguments].concat();
    let Task::Serve(arguments) = task("serve", &all) else { panic!("not serve") };
    ServeConfig::new(arguments).unwrap()
}

pub(crate) fn load_config(arguments: &[&str]) -> LoadConfig {
    let runtime: &[&str] = if arguments.contains(&"--runtime") { &[] } else { &["--runtime", "0"] };
    let all = [&["--connect", ADDRESS], runtime, arguments].concat();
    let Task::Load(arguments) = task("load", &all) else { panic!("not load") };
    LoadConfig::new(arguments).unwrap()
}

/// A target that serves on a thread of its own.
pub(crate) struct Target {
    pub(crate) network: Network,
    pub(crate) profile: &'static str,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) lines: mpsc::Receiver<String>,
    pub(crate) thread: JoinHandle<Result<ServeReport, Error>>,
}

impl Target {
    pub(crate) fn start(profile: &'static str, arguments: &[&str]) -> Self {
        let target = Self::begin(Network::new(), profile, arguments);
        assert!(target.lines.recv().unwrap().contains("SHA-256"));
        // A slow start is told once a second.
        let listening = target.lines.iter().find(|line| !line.contains(" s  starting "));
        let listening = listening.expect("a target that serves says so");
        assert!(listening.starts_with("listening on 127.0.0.1:4420, namespace "), "{listening}");
        target
    }

    pub(crate) fn begin(network: Network, profile: &'static str, arguments: &[&str]) -> Self {
        Self::begin_with(network, profile, serve_config(arguments))
    }

    pub(crate) fn begin_with(network: Network, profile: &'static str, config: ServeConfig) -> Self {
        let device = network.device(SoftOptions::new(profile.parse().unwrap()));
        Self::begin_on(network, device, profile, config)
    }

    pub(crate) fn begin_on(network: Network, device: SoftDevice, profile: &'static str, config: ServeConfig) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, lines) = mpsc::channel();
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                serve(vec![device], &config, &stop, &mut |line| {
                    let _ = sender.send(line.to_owned());
                })
            }
        });
        Self { network, profile, stop, lines, thread }
    }

    pub(crate) fn load(&self, arguments: &[&str]) -> Result<RunReport, Error> {
        load_on(&self.network, self.profile, arguments)
    }

    pub(crate) fn end(self) -> ServeReport {
        self.stop.store(true, Relaxed);
        let report = self.thread.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
        assert!(report.passed(), "{}", report.table());
        report
    }
}

pub(crate) fn load_on(network: &Network, profile: &str, arguments: &[&str]) -> Result<RunReport, Error> {
    let device = network.device(SoftOptions::new(profile.parse().unwrap()));
    load(device, &load_config(arguments), &AtomicBool::new(false), &mut |_| {})
}

pub(crate) fn verified(report: Result<RunReport, Error>) -> RunReport {
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.passed() && report.verified, "{}", report.table());
    report
}
