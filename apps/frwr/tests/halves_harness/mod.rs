//! A file through `serve` and `load`, both in this process.

use clap::Parser as _;
use frwr::report::Report as _;
use frwr::runner::{LoadConfig, ServeConfig, load, serve};
use frwr::{CommandLine, Task};
use frwr_engine::provider::verbs::VerbsDevice;
use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

/// No multiple of any block size.
const FILE_BYTES: usize = 100_001;

/// A half's task by its arguments.
pub(crate) fn task(half: &str, arguments: &[&str]) -> Task {
    // Cores that share a processor stall, and lines are counted here.
    let fixed = ["frwr", half, "--device", "test", "--cores", "unpinned", "--pages", "plain", "--stall-threshold", "0"];
    let line = CommandLine::try_parse_from([&fixed[..], arguments].concat());
    line.unwrap_or_else(|error| panic!("{error}")).task.unwrap()
}

/// A file in a folder of its own, which is deleted at the end.
pub(crate) struct Temporary(PathBuf, #[expect(dead_code, reason = "it is deleted when dropped")] tempfile::TempDir);

impl Temporary {
    pub(crate) fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, (0..FILE_BYTES).map(|at| (at * at / 7) as u8).collect::<Vec<_>>()).unwrap();
        Self(path, folder)
    }

    pub(crate) fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

/// Writes a file to a namespace at an address, reads it back, and loads for a second; both ends are verified. Returns how often the
/// host connected again, and what it said.
pub(crate) fn move_a_file(name: &str, address: &str, target: VerbsDevice, host: VerbsDevice) -> (u64, Vec<String>) {
    let file = Temporary::new(name);
    let Task::Serve(arguments) = task("serve", &["--listen", address, "--namespace", file.text()]) else { panic!() };
    let served = ServeConfig::new(arguments).unwrap();
    let moved = ["--connect", address, "--file", file.text(), "--runtime", "1"];
    let Task::Load(arguments) = task("load", &moved) else { panic!() };
    let loaded = LoadConfig::new(arguments).unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let (sender, lines) = mpsc::channel();
    let target = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            serve(vec![target], &served, &stop, &mut |line| {
                let _ = sender.send(line.to_owned());
            })
        }
    });
    assert!(lines.iter().any(|line| line.starts_with("listening on")));
    let mut said = Vec::new();
    let loaded = load(host, &loaded, &AtomicBool::new(false), &mut |line| said.push(line.to_owned()));
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    assert!(loaded.passed() && loaded.verified, "{}", loaded.table());
    stop.store(true, Relaxed);
    let report = target.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    assert!(report.passed(), "{}", report.table());
    (loaded.reconnects(), said)
}
