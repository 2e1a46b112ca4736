//! Two cores of the host, each a thread with an engine of its own and two connections, over one device and one Control;
//! the main thread runs both Controls and the target's engine.

use crate::harness::any::{AnyDevice, AnyPort};
use crate::harness::pace::{REAL_PATIENCE, now};
use crate::harness::pattern;
use crate::harness::subject::{Network, Subject, on_all};
use core::time::Duration;
use frwr_engine::control::Control;
use frwr_engine::gather::{MemoryId, Segment};
use frwr_engine::mr::Grant;
use frwr_engine::provider::{Access, Device, RemoteRange};
use frwr_engine::{
    Chunk, ConnectionId, ConnectionOptions, Engine, EngineOptions, Event, MemoryAccess, RemoteSegment, RequestStatus,
    ResponseRequest, Submission,
};
use frwr_mempool::{DeviceMemory, PagePolicy, Region, RegionOptions};
use frwr_support::engine_harness::{GRANT, HEADER, Side, Tiny};
use std::net::SocketAddr;

/// Requests of each connection.
const REQUESTS: u64 = 200;
/// Requests of one connection at the same time, each with a part of the memory of its own.
const DEPTH: u64 = 8;
const CONNECTIONS: u64 = 2;
const BYTES: u32 = 5000;
const PART: u64 = 8192;
const MEMORY: usize = (CONNECTIONS * DEPTH * PART) as usize;

/// Different data that the target has; each has a place of its own in its memory.
const COLOURS: u64 = 64;

/// What a request's memory holds at its end: the target writes what the cookie says.
fn data(cookie: u64) -> Vec<u8> {
    pattern((cookie % COLOURS) as u8, BYTES as usize)
}

/// One core of the host.
struct Core {
    engine: Engine<AnyPort>,
    memory: MemoryId,
    bytes: DeviceMemory,
    protocol: Tiny,
    connections: Vec<ConnectionId>,
    /// Requests submitted and ended, by connection.
    submitted: [u64; CONNECTIONS as usize],
    ended: [u64; CONNECTIONS as usize],
    /// Parts of the memory in use.
    busy: [bool; (CONNECTIONS * DEPTH) as usize],
    number: u64,
    _region: Region,
}

impl Core {
    fn new(control: &mut Control<AnyDevice>, options: &EngineOptions, number: u64) -> Self {
        let capabilities = *control.device().capabilities();
        let needed = Engine::<AnyPort>::region_bytes(options, &capabilities).unwrap();
        let region = RegionOptions::new(needed + MEMORY + 4096).pages(PagePolicy::Ladder { allow_plain: true });
        let mut region = Region::map(&region).unwrap();
        let (send, receive) = Engine::<AnyPort>::completion_entries(options, &capabilities).unwrap();
        let (port, link) = control.open_core(send, receive).unwrap();
        let mut engine = Engine::new(port, link, &mut region, options.clone(), &capabilities).unwrap();
        let bytes = region.carve(MEMORY, 4096).unwrap().into_device_memory();
        let memory = engine.add_memory(bytes.clone(), MemoryAccess::ReadWrite).unwrap();
        Self {
            engine,
            memory,
            bytes,
            protocol: Tiny::default(),
            connections: Vec::new(),
            submitted: [0; CONNECTIONS as usize],
            ended: [0; CONNECTIONS as usize],
            busy: [false; (CONNECTIONS * DEPTH) as usize],
            number,
            _region: region,
        }
    }

    /// Connects, runs all requests, disconnects.
    fn run(mut self, address: SocketAddr) {
        let options = ConnectionOptions::default().peer_receives(DEPTH as u32);
        for _ in 0..CONNECTIONS {
            self.engine.connect(address, b"hello", &options).unwrap();
        }
        let all = CONNECTIONS as usize;
        let deadline = now() + REAL_PATIENCE;
        while self.ended.iter().sum::<u64>() < CONNECTIONS * REQUESTS {
            if self.connections.len() == all {
                self.submit();
            }
            self.step(deadline);
        }
        for connection in self.connections.clone() {
            self.engine.disconnect(connection);
        }
        while !self.engine.is_disconnected() {
            self.step(deadline);
        }
        assert_eq!(self.engine.statistics().connections, CONNECTIONS);
    }

    fn step(&mut self, deadline: std::time::Instant) {
        assert!(now() < deadline, "core {}: {:?} {:?}", self.number, self.ended, self.engine.statistics());
        self.engine.poll(Duration::ZERO, &mut self.protocol);
        while let Some(event) = self.engine.next_event() {
            self.event(event);
        }
        self.engine.flush();
        std::thread::yield_now();
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected { connection, .. } => self.connections.push(connection),
            Event::Completed { cookie, status: RequestStatus::Replied(received), .. } => {
                self.engine.release(received);
                let part = (cookie % (CONNECTIONS * DEPTH)) as usize;
                let mut found = vec![0; BYTES as usize];
                self.bytes.read(part * PART as usize + 3, &mut found).unwrap();
                assert!(found == data(cookie), "core {} request {cookie}", self.number);
                self.busy[part] = false;
                self.ended[part / DEPTH as usize] += 1;
                self.protocol.names.remove(&cookie);
            }
            Event::Disconnected { orphaned_mrs: 0, .. } => {}
            other => panic!("core {}: {other:?}", self.number),
        }
    }

    /// Fills both connections up.
    fn submit(&mut self) {
        for connection in 0..CONNECTIONS as usize {
            for place in 0..DEPTH as usize {
                let part = connection * DEPTH as usize + place;
                if self.busy[part] || self.submitted[connection] == REQUESTS {
                    continue;
                }
                // Different from core to core, and its remainder is its part of the memory.
                let round = self.submitted[connection] * 2 + self.number;
                self.submit_one(connection, round * CONNECTIONS * DEPTH + part as u64);
                self.busy[part] = true;
                self.submitted[connection] += 1;
            }
        }
    }

    fn submit_one(&mut self, connection: usize, cookie: u64) {
        let part = cookie % (CONNECTIONS * DEPTH);
        let segment = [Segment { memory: self.memory, offset: part * PART + 3, length: BYTES }];
        let mut message = [0; HEADER + 16 * GRANT];
        message[..8].copy_from_slice(&cookie.to_le_bytes());
        let submission = Submission {
            message: &message,
            inline: &[],
            chunks: &[Chunk { access: Access::RemoteWrite, segments: &segment }],
            invite_invalidation: cookie.is_multiple_of(3),
            iova_cookie: 0,
            cookie,
        };
        let handle = self.engine.submit(self.connections[connection], &submission, &mut self.protocol);
        let handle = handle.unwrap_or_else(|error| {
            self.step(now() + REAL_PATIENCE);
            panic!("core {}: {error}, and no event says why", self.number)
        });
        self.protocol.names.insert(cookie, handle);
    }
}

/// The target answers what came, on whatever connection.
fn serve(target: &mut Side<AnyDevice>) {
    for (connection, received) in target.every_command.replace(Vec::new()).unwrap_or_default() {
        let (name, grants) = target.read_command(&received);
        target.engine.release(received);
        answer(target, connection, name, &grants);
    }
}

fn answer(target: &mut Side<AnyDevice>, connection: ConnectionId, name: [u8; 8], grants: &[Grant]) {
    let cookie = u64::from_le_bytes(name);
    let place = (cookie % COLOURS) * PART;
    let local = [target.segment(place, BYTES)];
    let remote = RemoteRange { address: grants[0].address, key: grants[0].key };
    let remote = [RemoteSegment { remote, length: grants[0].length }];
    let mut message = [0xFF; 12];
    message[..8].copy_from_slice(&name);
    let can = target.engine.capabilities().remote_invalidation;
    let invalidate = (cookie.is_multiple_of(3) && can).then_some(grants[0].key);
    let response = ResponseRequest { local: &local, remote: &remote, message: &message, invalidate, cookie };
    target.engine.respond(connection, &response).unwrap();
}

fn two_cores(subject: Subject) {
    let network = Network::new(subject);
    let common = EngineOptions::default().connections(4).queue_depth(DEPTH as u32);
    let options = common.clone().connections(CONNECTIONS as u16);
    let mut control = Control::new(network.device());
    let cores = [0, 1].map(|number| Core::new(&mut control, &options, number));
    let target = common.transfer_depth(64).queue_depth(1).registrations(1);
    let mut target = Side::new(network.device(), target);
    target.every_command = Some(Vec::new());
    for colour in 0..COLOURS {
        target.data.write((colour * PART) as usize, &data(colour)).unwrap();
    }
    let address = network.address();
    target.engine.listen(address).unwrap();
    target.step(Duration::ZERO);
    let deadline = now() + REAL_PATIENCE;
    std::thread::scope(|scope| {
        let threads = cores.map(|core| scope.spawn(move || core.run(address)));
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            control.poll();
            target.step(Duration::ZERO);
            serve(&mut target);
            std::thread::yield_now();
            assert!(now() < deadline + REAL_PATIENCE, "the cores never end");
        }
    });
    while !target.engine.is_disconnected() && now() < deadline + REAL_PATIENCE {
        control.poll();
        target.step(Duration::ZERO);
    }
    control.poll();
    for device in [control.device(), target.control.device()] {
        assert_eq!((device.live().registrations.len(), device.live().queue_pairs.len()), (0, 0), "{subject}");
    }
    assert_eq!(control.statistics().commands_failed, 0);
}

#[test]
fn k27_s94_two_cores_with_two_queue_pairs_each() {
    on_all(two_cores);
}
