//! Several cores at one listening address: who gets a connect request, and what happens when cores come and go.

use core::time::Duration;
use frwr_engine::{
    ConnectionId, ConnectionOptions, Engine, EngineOptions, Event, Listening, MAX_INCOMING,
    control::{Control, Placed},
    provider::{
        CommandError, Device, IncomingId,
        fault::{CommandKind, FaultHandle, Faulty, FaultyPort},
        soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort},
    },
};
use frwr_mempool::Region;
use frwr_support::engine_harness::{self, Side, address};
use std::sync::{Arc, Mutex};

/// Longer than the drain time-out.
const OVERDUE: Duration = Duration::from_secs(6);

type Port = FaultyPort<SoftPort>;

/// One core of the listening side.
struct Core {
    engine: Engine<Port>,
    /// Answers to `listen` and `stop_listening`, in order.
    listening: Vec<bool>,
    /// Connect requests, not answered where `hold` is set.
    incoming: Vec<IncomingId>,
    hold: bool,
    connected: Vec<ConnectionId>,
    disconnected: usize,
    /// Connections that wait for a queue pair which the device keeps.
    kept: usize,
    _region: Region,
}

impl Core {
    fn new(control: &mut Control<Faulty<SoftDevice>>) -> Self {
        let options = EngineOptions::default().connections(200).registrations(1);
        let capabilities = *control.device().capabilities();
        let bytes = Engine::<Port>::region_bytes(&options, &capabilities).unwrap();
        let mut region = engine_harness::region(bytes);
        let (send, receive) = Engine::<Port>::completion_entries(&options, &capabilities).unwrap();
        let (port, link) = control.open_core(send, receive).unwrap();
        let engine = Engine::new(port, link, &mut region, options, &capabilities).unwrap();
        Self {
            engine,
            listening: Vec::new(),
            incoming: Vec::new(),
            hold: false,
            connected: Vec::new(),
            disconnected: 0,
            kept: 0,
            _region: region,
        }
    }

    fn step(&mut self, now: Duration) {
        self.engine.poll(now, &mut engine_harness::Tiny::default());
        while let Some(event) = self.engine.next_event() {
            match event {
                Event::Listening { state, .. } => self.listening.push(state == Listening::Began),
                Event::Incoming { incoming, .. } => {
                    self.incoming.push(incoming);
                    if !self.hold {
                        self.engine.accept(incoming, b"", &ConnectionOptions::default()).unwrap();
                    }
                }
                Event::Connected { connection, .. } => self.connected.push(connection),
                Event::Disconnected { .. } => self.disconnected += 1,
                Event::QueuePairKept { .. } => self.kept += 1,
                _ => {}
            }
        }
        self.engine.flush();
    }
}

struct Rig {
    control: Control<Faulty<SoftDevice>>,
    /// Of the device that listens.
    faults: FaultHandle,
    cores: Vec<Option<Core>>,
    host: Side<SoftDevice>,
    now: Duration,
    _fabric: SoftFabric,
}

impl Rig {
    /// So many cores that listen.
    fn new(cores: usize) -> Self {
        let fabric = SoftFabric::new();
        let device = || fabric.device(SoftOptions::new("reg_mr".parse().unwrap()));
        let (listening, faults) = Faulty::new(device());
        let mut control = Control::new(listening);
        let cores = (0..cores).map(|_| Some(Core::new(&mut control))).collect();
        let options = EngineOptions::default().connections(300);
        let host = Side::new(device(), options);
        let mut rig = Self { control, faults, cores, host, now: Duration::ZERO, _fabric: fabric };
        for core in 0..rig.cores.len() {
            rig.core(core).engine.listen(address()).unwrap();
        }
        rig.steps(10);
        rig
    }

    fn core(&mut self, core: usize) -> &mut Core {
        self.cores[core].as_mut().unwrap()
    }

    fn steps(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now += Duration::from_micros(1);
            self.host.step(self.now);
            self.control.poll();
            self.cores.iter_mut().flatten().for_each(|core| core.step(self.now));
            self.control.poll();
        }
    }

    fn connect(&mut self, private_data: &[u8]) {
        self.host.engine.connect(address(), private_data, &ConnectionOptions::default()).unwrap();
        self.steps(40);
    }

    /// Connections that each core has had.
    fn connected(&self) -> Vec<usize> {
        self.cores.iter().map(|core| core.as_ref().map_or(0, |core| core.connected.len())).collect()
    }
}

#[test]
fn the_core_with_the_fewest_connections_gets_the_next_one() {
    let mut rig = Rig::new(3);
    assert!(rig.cores.iter().flatten().all(|core| core.listening == [true]));
    for expected in [[1, 0, 0], [1, 1, 0], [1, 1, 1], [2, 1, 1]] {
        rig.connect(b"");
        assert_eq!(rig.connected(), expected);
    }
    let gone = rig.core(1).connected[0];
    rig.core(1).engine.disconnect(gone);
    rig.steps(60);
    assert_eq!(rig.core(1).disconnected, 1);
    rig.connect(b"");
    assert_eq!(rig.connected(), [2, 2, 1], "a connection that is gone counts no more");
}

#[test]
fn a_placement_sees_address_private_data_and_what_it_has_placed() {
    let mut rig = Rig::new(2);
    // The first byte is a weight: heavy ones go where least weighs, those of none to the first core.
    rig.control.place_connections(|request| {
        assert_eq!(request.address, address());
        let weight = u32::from(request.private_data.first().copied().unwrap_or(0));
        let lightest = request.members.iter().enumerate().min_by_key(|(_, member)| (member.weight, member.connections));
        Placed { member: if weight == 0 { 0 } else { lightest.unwrap().0 }, weight }
    });
    for (weight, expected) in [(0, [1, 0]), (5, [1, 1]), (2, [2, 1]), (2, [3, 1]), (2, [4, 1]), (1, [4, 2])] {
        rig.connect(&[weight]);
        assert_eq!(rig.connected(), expected, "{weight}");
    }
    rig.control.place_connections(|_| Placed { member: 99, weight: 0 });
    rig.connect(b"");
    assert_eq!(rig.connected(), [5, 2], "a member that is none counts as the first");
}

#[test]
fn the_listener_goes_with_the_last_core_that_listens() {
    let mut rig = Rig::new(2);
    rig.core(0).engine.stop_listening(address()).unwrap();
    rig.steps(10);
    assert_eq!(rig.core(0).listening, [true, false]);
    rig.connect(b"");
    assert_eq!(rig.connected(), [0, 1]);
    // Stopping twice says so again; joining again works.
    rig.core(0).engine.stop_listening(address()).unwrap();
    rig.core(0).engine.listen(address()).unwrap();
    rig.steps(10);
    assert_eq!(rig.core(0).listening, [true, false, false, true]);
    rig.connect(b"");
    assert_eq!(rig.connected(), [1, 1]);
    for core in 0..2 {
        rig.core(core).engine.stop_listening(address()).unwrap();
    }
    rig.steps(10);
    rig.connect(b"");
    assert_eq!((rig.connected(), rig.host.open_failed), (vec![1, 1], 1));
    rig.core(1).engine.listen(address()).unwrap();
    rig.steps(10);
    rig.connect(b"");
    assert_eq!(rig.connected(), [1, 2]);
}

#[test]
fn cores_that_change_their_minds_before_the_device_answers_are_each_told() {
    let mut rig = Rig::new(2);
    for core in 0..2 {
        rig.core(core).engine.stop_listening(address()).unwrap();
    }
    rig.steps(10);
    // All of it reaches Control in one poll: asked, not wanted any more, and wanted by the other core.
    rig.core(0).engine.listen(address()).unwrap();
    rig.core(0).engine.stop_listening(address()).unwrap();
    rig.core(1).engine.listen(address()).unwrap();
    rig.steps(10);
    assert_eq!(rig.core(0).listening[2..], [false]);
    assert_eq!(rig.core(1).listening[2..], [true]);
    rig.connect(b"");
    assert_eq!(rig.connected(), [0, 1]);
}

#[test]
fn a_core_that_is_gone_leaves_the_address_to_the_others() {
    let mut rig = Rig::new(2);
    rig.core(0).hold = true;
    rig.connect(b"");
    assert_eq!((rig.core(0).incoming.len(), rig.host.open_failed), (1, 0));
    rig.cores[0] = None;
    rig.steps(20);
    assert_eq!(rig.host.open_failed, 1, "nobody will answer that one");
    rig.connect(b"");
    assert_eq!(rig.connected(), [0, 1]);
}

#[test]
fn an_address_that_the_device_refuses_is_told_to_all_who_asked() {
    let mut rig = Rig::new(1);
    let fabric = rig._fabric.clone();
    let mut other = Control::new(Faulty::new(fabric.device(SoftOptions::new("reg_mr".parse().unwrap()))).0);
    let cores = (0..2).map(|_| Some(Core::new(&mut other))).collect();
    std::mem::swap(&mut rig.control, &mut other);
    let _first: Vec<_> = std::mem::replace(&mut rig.cores, cores);
    for core in 0..2 {
        rig.core(core).engine.listen(address()).unwrap();
    }
    rig.steps(10);
    assert!(rig.cores.iter().flatten().all(|core| core.listening == [false]));
}

#[test]
fn each_core_has_a_bound_of_its_own_on_unanswered_requests() {
    let mut rig = Rig::new(2);
    rig.core(0).hold = true;
    rig.control.tell_when_crowded(b"one after the other".as_slice().try_into().unwrap());
    rig.control
        .place_connections(|request| Placed { member: usize::from(request.private_data == b"other"), weight: 0 });
    for _ in 0..=MAX_INCOMING {
        rig.host.engine.connect(address(), b"", &ConnectionOptions::default()).unwrap();
        rig.steps(2);
    }
    rig.steps(40);
    assert_eq!((rig.core(0).incoming.len(), rig.host.open_failed), (MAX_INCOMING, 1));
    assert_eq!(rig.control.statistics().incoming_overflow, 1);
    assert!(rig.host.rejected_with.starts_with(b"one after the other"), "{:?}", rig.host.rejected_with);
    rig.connect(b"other");
    assert_eq!(rig.connected(), [0, 1]);
}

/// Connections and weights of the cores, as the last placement saw them. Each connection weighs 7, and goes where least weighs.
fn watched_placement(rig: &mut Rig) -> Arc<Mutex<Vec<(usize, u64)>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shown = Arc::clone(&seen);
    rig.control.place_connections(move |request| {
        *shown.lock().unwrap() = request.members.iter().map(|member| (member.connections, member.weight)).collect();
        let least = request.members.iter().enumerate().min_by_key(|(_, member)| member.weight);
        Placed { member: least.map_or(0, |(at, _)| at), weight: 7 }
    });
    seen
}

/// Its core has neither its place nor its buffers back: others have more room.
#[test]
fn a_queue_pair_that_is_kept_and_waited_for_weighs_on_its_core_until_it_is_destroyed() {
    let mut rig = Rig::new(2);
    let seen = watched_placement(&mut rig);
    rig.connect(b"");
    for (kind, times) in [(CommandKind::FailQueuePair, 1), (CommandKind::DestroyQueuePair, u32::MAX)] {
        rig.faults.fail_command(kind, CommandError::BUSY, times);
    }
    let first = rig.core(0).connected[0];
    rig.core(0).engine.disconnect(first);
    rig.steps(50);
    // A queue pair that works as before does not drain.
    let overdue = rig.now + OVERDUE;
    while rig.now < overdue {
        rig.now += Duration::from_millis(50);
        rig.steps(1);
    }
    rig.steps(200);
    assert_eq!((rig.core(0).kept, rig.core(0).disconnected), (1, 0), "it waits");
    rig.connect(b"");
    assert_eq!((rig.connected(), seen.lock().unwrap().clone()), (vec![1, 1], vec![(1, 7), (0, 0)]));
    rig.connect(b"");
    assert_eq!((rig.connected(), seen.lock().unwrap().clone()), (vec![2, 1], vec![(1, 7), (1, 7)]));
    rig.faults.clear();
    rig.steps(200);
    assert_eq!(rig.core(0).disconnected, 1, "the device has complied");
    rig.connect(b"");
    assert_eq!(*seen.lock().unwrap(), [(1, 7), (1, 7)], "of the first nothing is left");
}

/// Nothing of it is its core's any more.
#[test]
fn a_drained_queue_pair_that_is_kept_weighs_on_no_core() {
    let mut rig = Rig::new(2);
    let seen = watched_placement(&mut rig);
    rig.connect(b"");
    rig.connect(b"");
    rig.faults.fail_command(CommandKind::DestroyQueuePair, CommandError::BUSY, u32::MAX);
    let first = rig.core(0).connected[0];
    rig.core(0).engine.disconnect(first);
    rig.steps(200);
    assert_eq!((rig.core(0).kept, rig.core(0).disconnected), (0, 1), "its connection has ended");
    assert_eq!(rig.control.statistics().queue_pairs_kept, 1);
    rig.connect(b"");
    assert_eq!((rig.connected(), seen.lock().unwrap().clone()), (vec![2, 1], vec![(0, 0), (1, 7)]));
}
