//! Server and client against each other, over the software NIC and in a time of their own.

use super::CLIENT_SILENCE;
use crate::{
    latency::{
        board::{Board, Step},
        client::{ClientPlan, ClientSide, Extent, Measured},
        desk::{Desk, Ending, News},
        operation::Operation,
        parameters::{ConnectData, Invalidation, KeyKind, Parameters, PeerDoes},
        plan,
        serve::crowded,
        server::{ServerPlan, ServerSide},
    },
    runner::END_TIME,
};
use clap::ValueEnum as _;
use core::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    task::Waker,
    time::Duration,
};
use frwr_engine::{
    CoreLink, Engine, EngineOptions,
    control::Control,
    provider::{
        CommandError, ConnectionParameters, Device,
        fault::{CommandKind, FaultHandle, Faulty, FaultyPort},
        soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort, SoftProfile},
    },
};
use frwr_mempool::{PagePolicy, PageSize};
use frwr_reactor::{Clock, Now, VirtualClock};
use std::{sync::Arc, task::Wake};

const PAGES: PagePolicy = PagePolicy::Exactly(PageSize::Plain);
/// From one iteration to the next.
const STEP: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_secs(50);
const RUNTIME: Duration = Duration::from_secs(400);

fn parameters(operation: Operation) -> Parameters {
    Parameters {
        operation,
        key: if operation == Operation::Register { KeyKind::Request } else { KeyKind::Static },
        invalidation: Invalidation::Local,
        peer_does: PeerDoes::Write,
        size: 4096,
        segments: 1,
        ranges: 1,
        depth: 1,
        batch: 1,
        connections: 1,
    }
}

/// How often the client's core was woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

struct Halves {
    woken: Arc<Woken>,
    time: VirtualClock,
    server: ServerSide<SoftPort>,
    client: ClientSide<FaultyPort<SoftPort>>,
    server_control: Control<SoftDevice>,
    client_control: Control<Faulty<SoftDevice>>,
    /// Of the client's device.
    faults: FaultHandle,
    desk: Desk,
    board: Board,
}

fn open<D: Device>(control: &mut Control<D>, options: &EngineOptions) -> (D::Port, CoreLink) {
    let capabilities = *control.device().capabilities();
    let (send, receive) = Engine::<D::Port>::completion_entries(options, &capabilities).unwrap();
    control.open_core(send, receive).unwrap()
}

impl Halves {
    /// The first of so many cores, which share one request per second.
    fn new(operation: Operation, cores: usize) -> Self {
        Self::with(parameters(operation), cores)
    }

    fn with(parameters: Parameters, cores: usize) -> Self {
        let (fabric, time, connections) = (SoftFabric::new(), VirtualClock::new(), parameters.connections);
        let (desk, board, woken) = (Desk::new(parameters), Board::new(1), Arc::<Woken>::default());
        let device = || fabric.device(SoftOptions::new(SoftProfile::RegMr));
        let (client_device, faults) = Faulty::new(device());
        let (mut server_control, mut client_control) = (Control::new(device()), Control::new(client_device));
        let (capabilities, address) = (*server_control.device().capabilities(), "127.0.0.1:49200".parse().unwrap());
        let server = ServerPlan {
            capacity: parameters,
            connections,
            address,
            negotiated: ConnectionParameters::default(),
            pages: PAGES,
            capabilities,
            moves_data_in_polls: true,
            silence: Some(CLIENT_SILENCE),
        };
        let client = ClientPlan {
            parameters,
            connections,
            core: 0,
            cores,
            address,
            private_data: ConnectData { parameters, client: 7 }.encode(),
            negotiated: ConnectionParameters::default(),
            extent: Extent::Time(RUNTIME),
            warm_up: WARM_UP,
            rate: Some(1),
            rounds: None,
            patient: false,
            pages: PAGES,
            capabilities,
        };
        server_control.tell_when_crowded(crowded());
        let (port, link) = open(&mut server_control, &plan::server(&parameters, connections, &capabilities));
        let server = ServerSide::new(port, link, server, None, desk.clone(), None).unwrap();
        let (port, link) = open(&mut client_control, &plan::client(&parameters, connections, &capabilities));
        let (clock, waker) = (Clock::from(&time), Waker::from(Arc::clone(&woken)));
        let client = ClientSide::new(port, link, client, None, clock, board.clone(), Some(&waker)).unwrap();
        Self { woken, time, server, client, server_control, client_control, faults, desk, board }
    }

    fn step_server(&mut self) {
        self.time.advance(STEP);
        self.server_control.poll();
        self.server.poll(&Now::at(self.time.now()));
        self.server.flush();
    }

    fn step(&mut self) {
        // The software NIC answers before the clock goes on: a time-out of either side is never its slowness.
        for _ in 0..4 {
            self.server_control.poll();
            self.server.poll(&Now::at(self.time.now()));
            self.server.flush();
            self.client_control.poll();
            self.client.poll(&Now::at(self.time.now()));
            self.client.flush();
        }
        self.step_server();
    }

    /// All but the server's core.
    fn step_without_server(&mut self, time: Duration) {
        let until = self.time.now() + time;
        while self.time.now() < until {
            self.server_control.poll();
            self.client_control.poll();
            self.client.poll(&Now::at(self.time.now()));
            self.client.flush();
            self.time.advance(STEP);
        }
    }

    fn measure(mut self) -> (Measured, Vec<News>) {
        while !self.board.all_reached(Step::Finished) && !self.board.has_failed() {
            self.step();
        }
        assert!(self.board.failure().is_none(), "{:?}", self.board.failure());
        for _ in 0..100 {
            self.step();
        }
        (self.client.measured(), self.desk.take_news().0)
    }
}

/// A run of any length that sends its server no message, or few, is not cut short, and what keeps it alive is in no figure.
#[test]
fn a_long_run_without_messages_is_served_to_its_end() {
    for &operation in Operation::value_variants() {
        for cores in [1, 20] {
            let (measured, news) = Halves::new(operation, cores).measure();
            let requests = RUNTIME.as_secs() / cores as u64;
            assert_eq!(measured.histogram.len(), requests, "{operation:?}");
            assert!(matches!(&news[..], [News::Came { .. }, News::Left { .. }]), "{operation:?}: {news:?}");
            let counters = measured.counters;
            let posted = if operation.makes_keys_alone() { 2 * requests } else { requests };
            let answers = if operation.sends_messages() { requests } else { 0 };
            let counted = (counters.work_requests, counters.doorbells, counters.receive_completions);
            assert_eq!(counted, (posted, posted, answers), "{operation:?}, one of {cores} cores");
            assert_eq!(counters.receive_doorbells, answers, "{operation:?}, one of {cores} cores");
            assert!(counters.send_completions <= posted, "{operation:?}: {counters:?}");
        }
    }
}

/// A client whose host vanishes: nothing of it is heard again, not even by its connection.
#[test]
fn a_client_that_vanishes_is_dropped() {
    for operation in [Operation::Write, Operation::Request, Operation::Pingpong] {
        let mut halves = Halves::new(operation, 1);
        let one_more = ConnectData { parameters: parameters(operation), client: 8 };
        while halves.time.now() < 2 * CLIENT_SILENCE {
            halves.step();
        }
        assert!(matches!(halves.desk.take_news().0[..], [News::Came { .. }]), "it is alive");
        let vanished = halves.time.now();
        let mut news = Vec::new();
        while news.is_empty() {
            assert!(halves.desk.admit(&one_more, None).is_err());
            halves.step_server();
            news = halves.desk.take_news().0;
        }
        let waited = halves.time.now() - vanished;
        assert!(waited > CLIENT_SILENCE * 3 / 5 && waited < CLIENT_SILENCE * 2, "{waited:?}");
        let [News::Died { cause, .. }] = &news[..] else { panic!("{news:?}") };
        assert_eq!(*cause, Ending::Silent(CLIENT_SILENCE));
        assert!(cause.to_string().starts_with("nothing has come of it for 15 s"), "{cause}");
        assert_eq!(halves.desk.admit(&one_more, None), Ok(()));
    }
}

/// Its process is stopped, or hangs: who waits at the screen hears of it soon, however long the warm-up still is, and however many
/// requests of a low rate still find a slot.
#[test]
fn a_server_that_stops_ends_the_run_in_whatever_phase() {
    for (phase, depth, stops) in [("warm-up", 1, WARM_UP / 10), ("run", 64, WARM_UP * 11 / 10)] {
        let mut halves = Halves::with(Parameters { depth, ..parameters(Operation::Send) }, 1);
        while halves.time.now() < stops {
            halves.step();
        }
        halves.step_without_server(2 * CLIENT_SILENCE);
        let failure = halves.board.failure().unwrap_or_else(|| panic!("it waits on in its {phase}"));
        assert_eq!(failure.name(), "timeout", "{phase}: {failure}");
        assert!(failure.to_string().starts_with("nothing has come for 15 s, after "), "{phase}: {failure}");
    }
}

/// Who has told it to end waits no longer than `frwr load` has him wait, in whatever phase.
#[test]
fn a_run_that_is_told_to_end_does_not_wait_for_a_server_that_has_stopped() {
    for (phase, stops) in [("warm-up", WARM_UP / 10), ("run", WARM_UP * 11 / 10)] {
        // Many slots: requests of the rate find one while the server stands still.
        let mut halves = Halves::with(Parameters { depth: 64, ..parameters(Operation::Send) }, 1);
        while halves.time.now() < stops {
            halves.step();
        }
        halves.step_without_server(2 * SECOND);
        halves.board.stop();
        halves.step_without_server(END_TIME - SECOND);
        assert!(!halves.board.has_failed(), "{phase}: {:?}", halves.board.failure());
        halves.step_without_server(2 * SECOND);
        let failure = halves.board.failure().unwrap_or_else(|| panic!("it waits on in its {phase}"));
        let told = "requests had not ended 5 s after the run was told to end, and were given up, after ";
        assert!(failure.name() == "timeout" && failure.to_string().starts_with(told), "{phase}: {failure}");
    }
}

/// Both processes are stopped, or the machine is: nobody was silent, however long it took and in whatever phase.
#[test]
fn a_standstill_of_both_sides_ends_no_run() {
    for (operation, stop) in [
        (Operation::Write, CLIENT_SILENCE + STEP),
        (Operation::Send, 60 * CLIENT_SILENCE),
        (Operation::Request, CLIENT_SILENCE),
    ] {
        for steps in [1, 10, 700] {
            let mut halves = Halves::new(operation, 1);
            for _ in 0..steps {
                halves.step();
            }
            halves.time.advance(stop);
            while !halves.board.all_reached(Step::Finished) && !halves.board.has_failed() {
                halves.step();
            }
            let failure = halves.board.failure();
            assert!(failure.is_none(), "{operation:?}, {stop:?} after {steps} steps: {failure:?}");
            for _ in 0..100 {
                halves.step();
            }
            let news = halves.desk.take_news().0;
            assert!(matches!(&news[..], [News::Came { .. }, News::Left { .. }]), "{operation:?}: {news:?}");
        }
    }
}

/// All requests have ended and are counted: that the server does not hear of its client's leave costs none of them.
#[test]
fn a_server_that_stops_when_its_client_leaves_costs_no_figures() {
    for operation in [Operation::Send, Operation::Request] {
        let mut halves = Halves::new(operation, 1);
        while !halves.board.all_reached(Step::Measured) {
            halves.server_control.poll();
            halves.server.poll(&Now::at(halves.time.now()));
            halves.server.flush();
            halves.step_without_server(STEP);
        }
        halves.step_without_server(2 * CLIENT_SILENCE);
        assert!(halves.board.failure().is_none(), "{operation:?}: {:?}", halves.board.failure());
        assert!(halves.board.all_reached(Step::Finished), "{operation:?}");
        assert_eq!(halves.client.measured().histogram.len(), RUNTIME.as_secs(), "{operation:?}");
    }
}

/// What else wakes it is quiet: the next request is a second away.
#[test]
fn a_client_that_sleeps_hears_at_once_that_it_shall_end() {
    let mut halves = Halves::new(Operation::Send, 1);
    while halves.client.sleeps_until().is_none() {
        halves.step();
    }
    let counts = |halves: &Halves| halves.woken.0.load(Relaxed);
    assert!(halves.client.arm());
    let before = counts(&halves);
    halves.board.stop();
    halves.board.stop();
    assert_eq!(counts(&halves), before + 1);
    while !halves.board.all_reached(Step::Finished) {
        halves.step();
    }
}

/// Several times the rate that the server keeps up with: the last request has waited for most of the run, and its figure says so.
#[test]
fn a_request_that_waited_for_minutes_is_told_in_full() {
    let mut halves = Halves::new(Operation::Send, 1);
    while !halves.board.all_reached(Step::Ready) {
        halves.step();
    }
    while !halves.board.all_reached(Step::Measured) {
        halves.step_without_server(Duration::from_secs(10));
        halves.step();
        assert!(!halves.board.has_failed(), "{:?}", halves.board.failure());
    }
    let (measured, _) = halves.measure();
    let longest = Duration::from_nanos(measured.histogram.max());
    assert!(longest > RUNTIME / 3 && longest < RUNTIME * 11 / 10, "{longest:?}");
    assert_eq!(measured.missed + measured.histogram.len(), RUNTIME.as_secs());
}

/// More connections than a core of the server is asked about at a time: they are opened by and by, or the client says why not.
#[test]
fn a_crowd_of_connections_is_let_in_by_and_by() {
    let many = Parameters { connections: 200, size: 8, ..parameters(Operation::Request) };
    // The server's core answers nobody for a while.
    let mut halves = Halves::with(many, 1);
    halves.step_without_server(Duration::from_secs(3));
    assert!(halves.server_control.statistics().incoming_overflow > 0, "all at once");
    while !halves.board.all_reached(Step::Ready) {
        assert!(halves.board.failure().is_none(), "{:?}", halves.board.failure());
        halves.step();
    }

    // It never does.
    let mut halves = Halves::with(many, 1);
    halves.step_without_server(Duration::from_secs(30));
    let failure = halves.board.failure().unwrap();
    let line = failure.to_string();
    assert_eq!(failure.name(), "crowded", "{line}");
    assert!(
        line.contains("0 of 200 ") && line.contains(" 128 connect requests") && line.contains("--connections"),
        "{line}"
    );
    assert!(!line.contains('\n'), "{line}");
}

/// What was measured is not lost to a device that takes its time: the main thread says what is waited for.
#[test]
fn a_client_waits_longer_for_a_queue_pair_that_its_device_keeps_than_for_a_server() {
    let mut halves = Halves::new(Operation::Write, 1);
    for (kind, times) in [(CommandKind::FailQueuePair, 1), (CommandKind::DestroyQueuePair, u32::MAX)] {
        halves.faults.fail_command(kind, CommandError::BUSY, times);
    }
    while halves.client_control.statistics().queue_pairs_kept == 0 {
        halves.step();
    }
    let until = halves.time.now() + 4 * CLIENT_SILENCE;
    while halves.time.now() < until {
        halves.step();
        assert!(!halves.board.has_failed(), "{:?}", halves.board.failure());
        assert!(!halves.board.all_reached(Step::Finished) && !halves.client.is_drained(), "its end is not told");
    }
    halves.faults.clear();
    let (measured, news) = halves.measure();
    assert!(!measured.histogram.is_empty() && !measured.interrupted);
    assert!(matches!(news[..], [News::Came { .. }, News::Left { .. }]), "the server has heard of nothing: {news:?}");
}
