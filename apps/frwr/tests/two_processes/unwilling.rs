//! A discovery service that keeps no session with who asks it.

use super::Machine;
use core::time::Duration;
use frwr_engine::provider::soft::SoftFabric;
use frwr_nvmf::wire::{Command, DiscoveryEntry, DiscoveryHeader, IdentifyController, Nqn, Status};
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller, part};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use zerocopy::IntoBytes;

pub(crate) const SERVICE: &str = "127.0.0.1:8009";
/// What passes for it between two steps.
const TICK: Duration = Duration::from_micros(1);

/// What it does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwilling {
    /// It takes no Keep Alive Timeout.
    Stay,
    /// It has no event for changes.
    Tell,
    /// It has all that is asked for, and ends each session when its log page was read.
    Last,
}

impl Unwilling {
    pub(crate) const ALL: [Self; 3] = [Self::Stay, Self::Tell, Self::Last];
}

/// One in a thread of its own.
pub(crate) struct Service {
    listed: Arc<Mutex<Vec<&'static str>>>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Service {
    /// Lists the first path alone.
    pub(crate) fn start(machine: &Machine, unwilling: Unwilling) -> Self {
        let (listed, ends) = (Arc::new(Mutex::new(vec!["127.0.0.1:4420"])), Arc::new(AtomicBool::new(false)));
        let (begun, begins) = std::sync::mpsc::channel();
        let (of_thread, until, directory) = (Arc::clone(&listed), Arc::clone(&ends), machine.path("frwr"));
        let thread = thread::spawn(move || {
            let mut controller = controller(&directory, unwilling, of_thread);
            begun.send(()).unwrap();
            let (mut now, mut read) = (Duration::ZERO, 0);
            while !until.load(Ordering::Relaxed) {
                now += TICK;
                controller.step(now);
                // Whoever waits for an event has read all.
                let reads = controller.count(|asked| asked.command == Command::AsynchronousEventRequest);
                if unwilling == Unwilling::Last && reads > read {
                    read = reads;
                    controller.hang_up();
                }
                thread::yield_now();
            }
        });
        begins.recv().unwrap();
        Self { listed, ends, thread }
    }

    /// It lists these from now on.
    pub(crate) fn lists(&self, addresses: &[&'static str]) {
        *self.listed.lock().unwrap() = addresses.to_vec();
    }

    pub(crate) fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn controller(directory: &Path, unwilling: Unwilling, listed: Arc<Mutex<Vec<&'static str>>>) -> Controller {
    let fabric = SoftFabric::between_processes(directory).unwrap();
    let mut controller = Controller::at(&fabric, "reg_mr", SERVICE.parse().unwrap());
    if unwilling == Unwilling::Last {
        controller.identify.events = IdentifyController::DISCOVERY_EVENTS.into();
    }
    controller.rule = Box::new(move |asked: &Asked| match asked.command {
        Command::Connect(connect) if unwilling == Unwilling::Stay && connect.keep_alive_timeout > 0 => {
            Some(Answer::Status(Status::CONNECT_INVALID_PARAMETERS, 0))
        }
        Command::GetLogPage(_) => part(&page(&listed.lock().unwrap()), asked),
        _ => None,
    });
    controller
}

/// The log page: paths to the file of `frwr serve`.
fn page(listed: &[&str]) -> Vec<u8> {
    let mut page = DiscoveryHeader::new(listed.len() as u64, listed.len() as u64).as_bytes().to_vec();
    let subsystem = Nqn::new("nqn.2026-11.invalid.frwr:file").unwrap();
    for address in listed {
        page.extend_from_slice(DiscoveryEntry::new(&subsystem, 1, address.parse().unwrap(), 32).as_bytes());
    }
    page
}
