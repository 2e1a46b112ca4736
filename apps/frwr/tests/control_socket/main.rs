//! The control socket of `serve`: what it answers, what it changes, and who cannot harm it. Over the software NIC.

mod asks;
mod changes;
mod devices;
mod files;
mod hostile;
mod listeners;
mod metrics;
mod openings;
mod page;
mod promtool;
mod terminal;

use clap::Parser as _;
use frwr::runner::{LoadConfig, RunReport, ServeConfig, ServeReport, load, serve};
use frwr::{CommandLine, Error, Task};
use frwr_engine::provider::soft::{SoftFabric, SoftOptions};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

const ADDRESS: &str = "127.0.0.1:4420";
const SUBSYSTEM: &str = "nqn.2026-11.invalid.frwr:file";
const HOST: &str = "nqn.2026-11.invalid.frwr:host";
/// No multiple of any block size.
const FILE_BYTES: usize = 300_001;

fn task(half: &str, arguments: &[&str]) -> Task {
    let fixed = ["frwr", half, "--device", "test", "--pages", "plain"];
    let line = CommandLine::try_parse_from([&fixed[..], arguments].concat());
    line.unwrap_or_else(|error| panic!("{error}")).task.unwrap()
}

/// A target that serves on threads of its own, and its socket.
struct Target {
    fabric: SoftFabric,
    folder: tempfile::TempDir,
    /// Where its metrics are.
    metrics: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<ServeReport, Error>>,
}

impl Target {
    /// On so many cores.
    fn start(cores: usize) -> Self {
        Self::start_with(cores, &[])
    }

    /// The same, told more.
    fn start_with(cores: usize, also: &[&str]) -> Self {
        let (fabric, folder) = (SoftFabric::new(), tempfile::tempdir().unwrap());
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (file, socket) = (path("file"), path("socket"));
        fs::write(&file, (0..FILE_BYTES).map(|at| (at * at / 7) as u8).collect::<Vec<_>>()).unwrap();
        let (cores, queues) = (format!("unpinned:{cores}"), (2 * cores).to_string());
        let arguments = ["--listen", ADDRESS, "--namespace", &file, "--control", &socket, "--cores", &cores];
        let more = ["--io-queues", &queues, "--metrics", "127.0.0.1:0"];
        let Task::Serve(arguments) = task("serve", &[&arguments[..], &more, also].concat()) else {
            panic!("not serve")
        };
        let config = ServeConfig::new(arguments).unwrap();
        let (device, stop) = (fabric.device(SoftOptions::new("reg_mr".parse().unwrap())), Arc::default());
        let (sender, lines) = mpsc::channel();
        let thread = thread::spawn({
            let stop: Arc<AtomicBool> = Arc::clone(&stop);
            move || {
                serve(vec![device], &config, &stop, &mut |line| {
                    let _ = sender.send(line.to_owned());
                })
            }
        });
        let listening = lines.iter().find(|line| line.starts_with("listening on")).unwrap();
        let (rest, metrics) = listening.rsplit_once("; metrics http://").unwrap();
        assert!(rest.ends_with(&format!("; control socket {socket}")), "{listening}");
        let metrics = metrics.strip_suffix("/metrics").unwrap().parse().unwrap();
        Self { fabric, folder, metrics, stop, thread }
    }

    /// What its namespace holds, or lives in.
    fn file(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn client(&self) -> Client {
        Client { stream: BufReader::new(UnixStream::connect(self.socket()).unwrap()) }
    }

    /// A host that loads until it is stopped, or its seconds are over.
    fn host(&self, seconds: &str) -> Host {
        self.host_of(FILE_BYTES, seconds, &[])
    }

    /// The same of so many bytes, told more.
    fn host_of(&self, bytes: usize, seconds: &str, also: &[&str]) -> Host {
        let device = self.fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
        let bytes = bytes.to_string();
        let address = also.iter().position(|word| *word == "--connect").map_or(ADDRESS, |at| also[at + 1]);
        let also: Vec<_> = also.iter().copied().filter(|word| *word != "--connect" && *word != address).collect();
        let arguments = ["--connect", address, "--bytes", &bytes, "--runtime", seconds, "--cores", "unpinned"];
        let Task::Load(arguments) = task("load", &[&arguments[..], &also].concat()) else { panic!("not load") };
        let (config, stop) = (LoadConfig::new(arguments).unwrap(), Arc::<AtomicBool>::default());
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || load(device, &config, &stop, &mut |_| {})
        });
        Host { stop, thread }
    }

    fn end(self) -> ServeReport {
        self.stop.store(true, Relaxed);
        self.ended()
    }

    fn ended(self) -> ServeReport {
        self.thread.join().unwrap().unwrap_or_else(|error| panic!("{error}"))
    }
}

struct Host {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<RunReport, Error>>,
}

impl Host {
    fn end(self) -> Result<RunReport, Error> {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

/// Somebody who asks.
struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    fn send(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(text)
    }

    /// The next answer; `None` where there is none and the connection ended.
    fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))),
        }
    }

    fn call(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.ask_to(method, parameters);
        self.answer()
    }

    fn ask_to(&mut self, method: &str, parameters: Value) {
        let request = json!({ "jsonrpc": "2.0", "id": "x", "method": method, "params": parameters });
        self.send(request.to_string().as_bytes()).unwrap();
    }

    fn answer(&mut self) -> Result<Value, Value> {
        let mut answer = self.line().unwrap();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!("x")), "{answer}");
        if answer["error"].is_null() { Ok(answer["result"].take()) } else { Err(answer["error"].take()) }
    }

    fn ask(&mut self, method: &str) -> Value {
        self.call(method, json!({})).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Asks until the answer is as wanted: each time takes as long as the cores are asked at most.
    fn until(&mut self, method: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let answer = self.ask(method);
            if wanted(&answer) {
                return answer;
            }
        }
    }
}
