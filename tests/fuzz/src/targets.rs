//! A target, beside a peer that sends it whatever the bytes say. In the end it has nothing left of that peer.

use crate::script::Script;
use core::time::Duration;
use frwr_engine::control::Control;
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort, SoftProfile};
use frwr_engine::provider::{Access, QueuePairId, RemoteRange};
use frwr_nvmf::controller::{Subsystem, Target, TargetListening};
use frwr_nvmf::storage::MemoryStorage;
use frwr_nvmf::wire::{
    Command, Connect, ConnectData, ControllerConfiguration, DYNAMIC_CONTROLLER, DataPointer, KeyedDataBlock, Nqn,
    Property, PropertySet, PropertySize, RequestPrivateData, SubmissionQueueEntry,
};
use frwr_support::nvmf_harness::{engine_of, memory, subsystem, target_options};
use frwr_tests::hostile::{Dialed, Peer, World};
use zerocopy::IntoBytes as _;

/// Entries of the peer's queues where it says what is usual.
const ENTRIES: u16 = 32;
/// Operations of one input, and bytes of one message: more of either finds nothing new.
const OPERATIONS: usize = 64;
const BLOCK_BYTES: u32 = 512;
/// Steps in which everything of a peer that is gone goes away, each of them a long time for a target.
const STEPS_TO_SETTLE: usize = 2000;

/// The target and its device's control half.
struct Served {
    control: Control<SoftDevice>,
    target: Target<SoftPort, MemoryStorage>,
    now: Duration,
    tick: Duration,
}

impl World for Served {
    fn pass(&mut self) -> Duration {
        self.now += self.tick;
        self.control.poll();
        self.target.poll(self.now);
        self.target.flush();
        self.control.poll();
        while let Some(incident) = self.target.next_incident() {
            assert!(!incident.to_string().is_empty());
        }
        self.now
    }

    fn patience(&self) -> Duration {
        self.tick * 200
    }
}

impl Served {
    fn new(fabric: &SoftFabric, profile: SoftProfile) -> Self {
        let options = target_options()
            .in_capsule_bytes(1024)
            .buffer_bytes(8 << 10)
            .queue_entries(ENTRIES)
            .connect_timeout(Duration::from_millis(100))
            // A host without keep alive that goes without a word is missed by this alone, and within STEPS_TO_SETTLE.
            .max_silence(Duration::from_secs(1));
        let mut control = Control::new(fabric.device(SoftOptions::new(profile)));
        let engine = engine_of(&mut control, options.engine());
        let buffers = memory(options.buffer_memory_bytes(4));
        let namespace = MemoryStorage::new(memory(64 << 10), BLOCK_BYTES, 64).expect("a namespace");
        let subsystems = vec![Subsystem::new(subsystem(), vec![namespace])];
        let mut target = Target::with_subsystems(engine, subsystems, buffers, options).expect("a target");
        target.listen().expect("an address");
        let mut served = Self { control, target, now: Duration::ZERO, tick: Duration::from_micros(1) };
        while served.target.statistics().listening != TargetListening::Listens {
            served.pass();
        }
        served
    }

    /// Nobody is connected, and nothing is in hand.
    fn is_idle(&self) -> bool {
        let now = self.target.statistics();
        (now.queues, now.slots_used, now.commands_in_flight) == (0, 0, 0) && now.buffers_free == now.buffers
    }
}

/// The peer, and what it has.
struct Attacker {
    peer: Peer<SoftDevice, Served>,
    queues: Vec<QueuePairId>,
    keys: Vec<RemoteRange>,
    /// Of the last Connect that succeeded.
    controller: u16,
}

/// A session to begin with, then operations.
pub(crate) fn target(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let fabric = SoftFabric::new();
    let profile = [SoftProfile::RegMr, SoftProfile::Window, SoftProfile::Rxe][usize::from(script.below(3))];
    let served = Served::new(&fabric, profile);
    let address = target_options().addresses[0];
    let peer = Peer::new(fabric.device(SoftOptions::new(profile)), address, served).expect("a peer");
    let mut attacker = Attacker { peer, queues: Vec::new(), keys: Vec::new(), controller: DYNAMIC_CONTROLLER };
    let begins = script.below(3);
    if begins > 0 {
        attacker.admin();
    }
    if begins > 1 {
        attacker.io(1);
    }
    for _ in 0..OPERATIONS {
        if script.is_over() {
            break;
        }
        attacker.operation(&mut script);
    }
    attacker.leave();
}

impl Attacker {
    fn operation(&mut self, script: &mut Script<'_>) {
        match script.below(12) {
            0 => self.dialed(script.bytes()),
            1 => {
                let private_data = RequestPrivateData::new(script.below(4).into(), script.next::<u8>().into());
                self.dialed(private_data.as_bytes());
            }
            2 => self.admin(),
            3 => self.io(script.below(4).into()),
            4 => self.send(script, |_, script| script.bytes().to_vec()),
            5..=7 => self.send(script, Self::capsule),
            8 => self.register(script),
            9 => self.rdma(script),
            10 => self.pump(script.below(32)),
            _ => self.end_or_wait(script),
        }
    }

    fn queue(&self, script: &mut Script<'_>) -> Option<QueuePairId> {
        self.queues.get(usize::from(script.below(self.queues.len().clamp(1, 16) as u8))).copied()
    }

    fn dial(&mut self, private_data: &[u8]) -> Option<QueuePairId> {
        match self.peer.dial(private_data) {
            Ok(Dialed::Up(queue_pair)) => {
                self.queues.push(queue_pair);
                Some(queue_pair)
            }
            _ => None,
        }
    }

    /// The same, whatever comes of it.
    fn dialed(&mut self, private_data: &[u8]) {
        let _ = self.dial(private_data);
    }

    fn pump(&mut self, times: u8) {
        for _ in 0..times {
            self.peer.pump();
        }
    }

    /// An admin queue of a controller that is enabled.
    fn admin(&mut self) {
        self.controller = DYNAMIC_CONTROLLER;
        let Some(admin) = self.connected(0) else { return };
        let (property, size) = (Property::Configuration, PropertySize::Four);
        let value = ControllerConfiguration::ENABLED.0.into();
        let enable = Command::PropertySet(PropertySet { property, size, value }).encode(2).expect("a command");
        if self.peer.send(admin, &[enable.as_bytes()]).is_ok() {
            let _ = self.peer.response_on(admin);
        }
    }

    fn io(&mut self, queue_id: u16) {
        let _ = self.connected(queue_id);
    }

    /// A connection behind its Connect, whatever came of that.
    fn connected(&mut self, queue_id: u16) -> Option<QueuePairId> {
        let queue_pair = self.dial(RequestPrivateData::new(queue_id, ENTRIES).as_bytes())?;
        self.peer.send(queue_pair, &[&connect(queue_id, self.controller)]).ok()?;
        let response = self.peer.response_on(queue_pair).ok()?;
        if response.status().is_success() {
            // The lower half is the controller's identifier.
            self.controller = response.result.get() as u16;
        }
        Some(queue_pair)
    }

    fn send(&mut self, script: &mut Script<'_>, message: fn(&Self, &mut Script<'_>) -> Vec<u8>) {
        let Some(queue_pair) = self.queue(script) else { return };
        let message = message(self, script);
        let invalidate = if script.below(16) == 1 { Some(script.next()) } else { None };
        let _ = self.peer.send_invalidating(queue_pair, &[&message], invalidate);
    }

    /// A capsule of which each field may be anything, and is something usual more often.
    fn capsule(&self, script: &mut Script<'_>) -> Vec<u8> {
        const OPCODES: [u8; 15] = [0, 1, 2, 5, 6, 8, 9, 0x0a, 0x0c, 0x18, 0x7f, 0x7f, 0x7f, 4, 0x0d];
        let opcode = OPCODES[usize::from(script.below(15))];
        let mut entry = SubmissionQueueEntry::new(opcode, script.next::<u8>().into());
        entry.namespace = u32::from(script.below(8)).into();
        let mut behind = Vec::new();
        for dword in &mut entry.dwords_10_15 {
            *dword = match script.below(4) {
                0 => 0,
                1 => u32::from(script.next::<u8>()),
                2 => u32::from(script.next::<u16>()) << 16,
                _ => script.next(),
            }
            .into();
        }
        match script.below(5) {
            0 => {}
            1 => {
                let length = u32::from(script.next::<u16>());
                let range = self.key(script);
                let block =
                    KeyedDataBlock { address: range.address, length, key: range.key, invalidate: script.next() };
                entry.data = DataPointer::Keyed(block).encode().expect("16 bits of length");
            }
            2 => {
                behind = script.bytes().to_vec();
                let length = behind.len() as u32;
                entry.data = DataPointer::InCapsule { offset: 0, length }.encode().expect("no key");
            }
            3 => entry.data = script.next(),
            _ => {
                behind = connect(script.below(4).into(), self.controller).split_off(entry.as_bytes().len());
                entry.data = script.next();
            }
        }
        if script.below(8) == 1 {
            entry.flags = script.next();
        }
        [entry.as_bytes(), &behind].concat()
    }

    fn key(&self, script: &mut Script<'_>) -> RemoteRange {
        let chosen = self.keys.get(usize::from(script.below(4))).copied();
        chosen.unwrap_or_else(|| RemoteRange { address: script.next(), key: script.next() })
    }

    fn register(&mut self, script: &mut Script<'_>) {
        let Some(queue_pair) = self.queue(script) else { return };
        let access = if script.next() { Access::RemoteRead } else { Access::RemoteWrite };
        let length = 1 + usize::from(script.next::<u16>());
        if let Ok(range) = self.peer.register(queue_pair, access, length) {
            self.keys.push(range);
        }
    }

    fn rdma(&mut self, script: &mut Script<'_>) {
        let Some(queue_pair) = self.queue(script) else { return };
        let _ = self.peer.write_remote(queue_pair, RemoteRange { address: script.next(), key: script.next() });
    }

    fn end_or_wait(&mut self, script: &mut Script<'_>) {
        let choice = script.below(4);
        if choice == 0 {
            self.peer.world.tick = Duration::from_millis(u64::from(script.below(40)));
            self.pump(4);
            self.peer.world.tick = Duration::from_micros(1);
            return;
        }
        let Some(queue_pair) = self.queue(script) else { return };
        self.queues.retain(|queue| *queue != queue_pair);
        let _ = if choice == 1 { self.peer.vanish(queue_pair) } else { self.peer.hang_up(queue_pair) };
    }

    /// Ends whatever there is.
    fn leave(mut self) {
        for queue_pair in core::mem::take(&mut self.queues) {
            let _ = self.peer.hang_up(queue_pair);
        }
        self.peer.world.tick = Duration::from_millis(20);
        for _ in 0..STEPS_TO_SETTLE {
            if self.peer.world.is_idle() {
                return;
            }
            self.peer.pump();
        }
        panic!("something is left: {:?}", self.peer.world.target.statistics());
    }
}

/// Connect, with its data in the capsule.
fn connect(queue_id: u16, controller_id: u16) -> Vec<u8> {
    let host = Nqn::new("nqn.2026-11.invalid.fuzz").ok();
    let data = ConnectData { host_id: [7; 16], controller_id, subsystem: subsystem(), host }.to_bytes();
    let connect = Connect {
        record_format: 0,
        queue_id,
        queue_size: ENTRIES - 1,
        attributes: 0,
        keep_alive_timeout: 0,
        data: DataPointer::InCapsule { offset: 0, length: data.len() as u32 },
    };
    let entry = Command::Connect(connect).encode(1).expect("a command");
    [entry.as_bytes(), &data].concat()
}
