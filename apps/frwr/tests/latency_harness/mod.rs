//! A server on a thread, and peers below it: engines that are stepped by hand.

use clap::Parser as _;
use frwr::{
    check::Machine,
    latency::{Arguments, LatencyConfig, LatencyServerReport, serve},
};
use frwr_engine::{
    AnnounceError, Announcement, Chunk, ConnectionId, Engine, EngineOptions, Event, Listening, MemoryAccess, Message,
    Protocol, Submission,
    control::Control,
    gather::{MemoryId, Segment},
    mr::Grant,
    provider::{
        Access, Device,
        soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort},
    },
};
use frwr_mempool::{PagePolicy, PageSize, Region, RegionOptions};
use frwr_reactor::Clock;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

pub(crate) const ADDRESS: &str = "127.0.0.1:49200";

pub(crate) fn device(fabric: &SoftFabric, profile: &str) -> SoftDevice {
    fabric.device(SoftOptions::new(profile.parse().unwrap()))
}

/// This machine is asked once for all.
pub(crate) fn machine() -> Machine {
    Machine::this()
}

pub(crate) fn config(arguments: &[&str]) -> LatencyConfig {
    let cores: &[&str] = if arguments.contains(&"--cores") { &[] } else { &["--cores", "unpinned"] };
    let fixed = ["frwr latency", "--device", "test", "--pages", "plain"];
    let arguments = Arguments::try_parse_from([&fixed[..], cores, arguments].concat());
    LatencyConfig::new(arguments.unwrap_or_else(|error| panic!("{error}"))).unwrap()
}

/// A server on a thread of its own.
pub(crate) struct Server {
    pub(crate) fabric: SoftFabric,
    stop: Arc<AtomicBool>,
    lines: mpsc::Receiver<String>,
    seen: std::cell::RefCell<Vec<String>>,
    opened: Arc<AtomicUsize>,
    thread: JoinHandle<LatencyServerReport>,
}

impl Server {
    pub(crate) fn start(profile: &'static str, arguments: &[&str]) -> Self {
        Self::with(profile, config(arguments))
    }

    /// One that drops clients which are silent for so long.
    pub(crate) fn bearing(profile: &'static str, silence: Duration) -> Self {
        let mut config = config(&[]);
        config.client_silence = silence;
        Self::with(profile, config)
    }

    fn with(profile: &'static str, config: LatencyConfig) -> Self {
        Self::on(SoftOptions::new(profile.parse().unwrap()), config)
    }

    /// One on a device like this.
    pub(crate) fn on(options: SoftOptions, config: LatencyConfig) -> Self {
        let fabric = SoftFabric::new();
        let (stop, (sender, lines)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
        let opened = Arc::new(AtomicUsize::new(0));
        let thread = thread::spawn({
            let counted = Arc::clone(&opened);
            let (fabric, stop) = (fabric.clone(), Arc::clone(&stop));
            move || {
                let mut open = || {
                    counted.fetch_add(1, Relaxed);
                    Ok(fabric.device(options))
                };
                let address = ADDRESS.parse().unwrap();
                let report = serve(&mut open, address, &config, &machine(), &stop, &mut |line| {
                    let _ = sender.send(line.to_owned());
                });
                report.unwrap_or_else(|error| panic!("{error}"))
            }
        });
        assert!(lines.recv().unwrap().starts_with("listening on 127.0.0.1:49200"));
        Self { fabric, stop, lines, seen: Vec::new().into(), opened, thread }
    }

    /// Waits for a line with this in it, beyond those seen before.
    pub(crate) fn wait_for(&self, part: &str) {
        loop {
            let line = self.lines.recv().unwrap();
            let found = line.contains(part);
            self.seen.borrow_mut().push(line);
            if found {
                return;
            }
        }
    }

    /// How often it has opened its device: once, and once more each time that it makes room.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Relaxed)
    }

    /// What it said of clients, and what it did.
    pub(crate) fn end(self) -> (Vec<String>, LatencyServerReport) {
        self.stop.store(true, Relaxed);
        let report = self.thread.join().unwrap();
        let mut lines = self.seen.into_inner();
        lines.extend(self.lines.iter());
        lines.retain(|line| !line.starts_with("warning: "));
        (lines, report)
    }
}

/// It takes every message for a command.
struct Any;

impl Protocol for Any {
    fn announce(&mut self, _: &mut [u8], _: &Announcement<'_>) -> Result<(), AnnounceError> {
        Ok(())
    }

    fn classify(&mut self, _: ConnectionId, _: &[u8], _: u32) -> Message {
        Message::Command
    }
}

/// An engine that is stepped by hand.
pub(crate) struct Raw {
    control: Control<SoftDevice>,
    pub(crate) engine: Engine<SoftPort>,
    clock: Clock,
    /// A page of its own.
    pub(crate) memory: MemoryId,
    _region: Region,
}

impl Raw {
    pub(crate) fn new(fabric: &SoftFabric, receives: u32) -> Self {
        Self::build(fabric, receives, 1)
    }

    pub(crate) fn with_connections(fabric: &SoftFabric, connections: u16) -> Self {
        Self::build(fabric, 1, connections)
    }

    fn build(fabric: &SoftFabric, receives: u32, connections: u16) -> Self {
        let mut control = Control::new(device(fabric, "reg_mr"));
        let options = EngineOptions::default()
            .connections(connections)
            .queue_depth(4)
            .transfer_depth(8)
            .receive_depth(receives.max(8))
            .message_bytes(320);
        let capabilities = *control.device().capabilities();
        let bytes = Engine::<SoftPort>::region_bytes(&options, &capabilities).unwrap() + (64 << 10);
        let plain = PagePolicy::Exactly(PageSize::Plain);
        let mut region = Region::map(&RegionOptions::new(bytes).pages(plain)).unwrap();
        let (send, receive) = Engine::<SoftPort>::completion_entries(&options, &capabilities).unwrap();
        let (port, link) = control.open_core(send, receive).unwrap();
        let mut engine = Engine::new(port, link, &mut region, options, &capabilities).unwrap();
        let memory =
            engine.add_memory(region.carve(4096, 4096).unwrap().into_device_memory(), MemoryAccess::ReadWrite).unwrap();
        Self { control, engine, clock: Clock::system(), memory, _region: region }
    }

    pub(crate) fn listen(&mut self) {
        self.engine.listen(ADDRESS.parse().unwrap()).unwrap();
        while !matches!(self.event(), Event::Listening { state: Listening::Began, .. }) {}
    }

    pub(crate) fn turn(&mut self) {
        self.control.poll();
        self.engine.poll(self.clock.now(), &mut Any);
        self.engine.flush();
        thread::yield_now();
    }

    /// Opens its page to the peer.
    pub(crate) fn open_page(&mut self, connection: ConnectionId) -> Grant {
        let segment = Segment { memory: self.memory, offset: 0, length: 4096 };
        let chunk = Chunk { access: Access::RemoteReadWrite, segments: &[segment] };
        self.engine.register_now(connection, &chunk, 0, &mut Any).unwrap();
        loop {
            if let Event::Registered { grant, .. } = self.event() {
                return grant;
            }
        }
    }

    pub(crate) fn submit(&mut self, connection: ConnectionId, submission: &Submission<'_>) {
        self.engine.submit(connection, submission, &mut Any).unwrap();
    }

    /// What happens in one turn, if anything does.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let event = self.engine.next_event();
        if event.is_none() {
            self.turn();
        }
        event
    }

    /// What happens next.
    pub(crate) fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.next() {
                return event;
            }
        }
    }
}
