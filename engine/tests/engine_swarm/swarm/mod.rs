//! A storm and its calm.

mod acts;
mod checks;
mod faults;

use crate::{
    chance::{Chances, chances, setup},
    engine_harness::{Side, WatchedDevice, random::Random, scripted::Scripted},
};
use core::time::Duration;
use frwr_engine::{
    ConnectionId, EngineOptions, ReceiveQueues, Received, RequestHandle, TraceRecord,
    provider::{Access, AsyncEvent, DeviceEvent, PortId, SharedReceiveQueueId, soft::SoftProfile},
};
use frwr_mempool::lane;
use std::collections::{HashMap, HashSet};

/// Bytes of a request's place in the host's data, and places.
const PLACE_BYTES: usize = 32 << 10;
const PLACES: usize = 16;
/// Distance of its chunks, and where what it sends inline stands behind them.
const CHUNK_BYTES: u64 = 8 << 10;
const INLINE_AT: u64 = 3 * CHUNK_BYTES;
const INLINE_BYTES: u32 = 32;
/// Where standalone keys and transfers have their bytes.
const STANDALONE_AT: u64 = 524_288;
const TRANSFERS_AT: u64 = 786_432;
/// Replies to nobody in one run: fewer than one connection may send unasked.
const REPLIES: u32 = 24;
/// Steps behind which what has not happened will not.
const PATIENCE: u32 = 40_000;

/// A request of the host that has not ended.
struct Flight {
    place: usize,
    connection: ConnectionId,
    access: Access,
    ranges: Vec<(u64, u32)>,
    inline: bool,
    invited: bool,
    /// The target wrote to all of it in front of its reply.
    written: bool,
}

struct Swarm {
    test: Scripted,
    random: Random,
    chances: Chances,
    options: EngineOptions,
    is_rxe: bool,
    /// Host and target have one receive queue for all connections.
    shares: [bool; 2],
    cookie: u64,
    handles: Vec<RequestHandle>,
    flights: HashMap<u64, Flight>,
    /// What the bytes of a place were when its request ended.
    rest: [Option<u64>; PLACES],
    /// Looks so far.
    looked: usize,
    ended: usize,
    transfers: Vec<u64>,
    /// Commands that the target saw; none comes twice.
    seen: HashSet<u64>,
    /// The target's connection of each of the host's.
    pairs: HashMap<ConnectionId, ConnectionId>,
    /// Memory that the target opened for the host's transfers.
    opening: HashMap<RequestHandle, ConnectionId>,
    opened_for: HashSet<ConnectionId>,
    opened: usize,
    /// Replies to nobody.
    replies: u32,
    /// Commands that wait for a transfer slot.
    unanswered: Vec<(ConnectionId, Received)>,
    /// Steps that each still sleeps: both Controls, both engines, the taker of the host's events.
    asleep: [u64; 5],
    shared: Option<SharedReceiveQueueId>,
    /// Of the host.
    lost_completions: bool,
    trace: Option<lane::Receiver<TraceRecord>>,
}

fn pattern(at: usize) -> u8 {
    (at as u32).wrapping_mul(0x9E37_79B9).to_le_bytes()[3]
}

fn inline_pattern(cookie: u64) -> [u8; INLINE_BYTES as usize] {
    core::array::from_fn(|at| (cookie as usize + at * 7) as u8)
}

/// Runs one seed; returns how many requests ended.
pub(crate) fn run(seed: u64) -> usize {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for _ in 0..8 {
        random.next();
    }
    let chances = chances(&mut random);
    let setup = setup(&mut random);
    let (options, is_rxe) = (setup.host.clone(), setup.host_device.profile == SoftProfile::Rxe);
    let shares = [&setup.host, &setup.target].map(|engine| engine.receive_queues != ReceiveQueues::PerConnection);
    println!("seed {seed}: {options:?} {:?}", setup.host_device.profile);
    let mut test = Scripted::of(setup);
    test.target.every_command = Some(Vec::new());
    test.host.every_command = Some(Vec::new());
    let bytes: Vec<u8> = (0..STANDALONE_AT as usize).map(pattern).collect();
    test.target.data.write(0, &bytes).unwrap();
    test.host.pad_bytes = if options.write_pad { 4 * u64::from(options.connections) } else { 0 };
    let trace = test.host.engine.trace();
    let mut swarm = Swarm {
        test,
        random,
        chances,
        options,
        is_rxe,
        shares,
        cookie: 0,
        handles: Vec::new(),
        flights: HashMap::new(),
        rest: [None; PLACES],
        looked: 0,
        ended: 0,
        transfers: Vec::new(),
        seen: HashSet::new(),
        pairs: HashMap::new(),
        opening: HashMap::new(),
        opened_for: HashSet::new(),
        opened: 0,
        replies: 0,
        unanswered: Vec::new(),
        asleep: [0; 5],
        shared: None,
        lost_completions: false,
        trace,
    };
    for _ in 0..swarm.chances.steps {
        for _ in 0..swarm.random.below(4) {
            swarm.act();
        }
        if swarm.chances.fault_one_in > 0 && swarm.random.one_in(swarm.chances.fault_one_in) {
            swarm.fault();
        }
        if swarm.random.one_in(2) {
            swarm.serve(swarm.is_quiet());
        }
        let tick = swarm.random.below(swarm.chances.tick + 1);
        swarm.step(Duration::from_micros(tick));
    }
    swarm.calm();
    swarm.ended
}

impl Swarm {
    fn step(&mut self, tick: Duration) {
        let Self { test, asleep, .. } = self;
        test.pair.now += tick;
        let now = test.pair.now;
        let mut awake = [true; 5];
        for (left, awake) in asleep.iter_mut().zip(&mut awake) {
            *awake = *left == 0;
            *left = left.saturating_sub(1);
        }
        let takes_events = [awake[4], true];
        for (at, side) in [&mut test.pair.host, &mut test.pair.target].into_iter().enumerate() {
            step(side, now, awake[at], awake[2 + at], takes_events[at]);
        }
        if self.test.host.engine.statistics().mrs_orphaned > 0 {
            self.rest = [None; PLACES];
        }
        if let Some(trace) = &mut self.trace {
            while trace.pop().is_some() {}
        }
        for received in self.test.host.every_command.as_mut().unwrap().drain(..).collect::<Vec<_>>() {
            self.test.host.engine.release(received.1);
        }
        self.look();
    }

    /// Nobody does anything wrong: then no connection ends.
    fn is_quiet(&self) -> bool {
        self.chances.fault_one_in == 0
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        for at in 0..PATIENCE {
            if done(self) {
                return;
            }
            self.serve(true);
            // What waits for the clock, waits long.
            self.step(Duration::from_micros(if at > 2_000 { 1_000 } else { 2 }));
        }
        let (host, target) = (&self.test.pair.host, &self.test.pair.target);
        panic!(
            "never {what}: {:?} transfers {:?}\n{:?}\n{:?}\n{:?}",
            host.outstanding,
            self.transfers_told().iter().filter(|told| **told != 1).count(),
            host.engine.statistics(),
            target.engine.statistics(),
            host.engine.connections().map(|one| (one, host.engine.is_ready(one))).collect::<Vec<_>>(),
        );
    }

    /// Faults stop: all work ends.
    fn calm(&mut self) {
        for faults in [&self.test.faults, &self.test.target_faults] {
            faults.clear();
            faults.release();
        }
        self.asleep = [0; 5];
        if self.lost_completions {
            self.test.faults.inject_event(DeviceEvent::Async(AsyncEvent::CompletionQueueOverrun(PortId(0))));
        }
        self.until("settled", |swarm| {
            let engine = &swarm.test.host.engine;
            engine.connections().all(|connection| engine.is_ready(connection))
        });
        let handles = core::mem::take(&mut self.handles);
        let gives_up = !self.is_quiet();
        for handle in handles.into_iter().filter(|_| gives_up) {
            let _ = self.test.host.engine.cancel(handle);
        }
        if self.is_quiet() {
            self.until("all answered", |swarm| swarm.flights.is_empty());
        }
        self.until("all ended", |swarm| swarm.test.host.outstanding.is_empty());
        self.until("all transfers told", |swarm| swarm.transfers_told().iter().all(|told| *told >= 1));
        assert!(self.transfers_told().iter().all(|told| *told == 1), "each transfer is told once");
        let causes = [&self.test.host.causes, &self.test.target.causes];
        assert!(!self.is_quiet() || causes.iter().all(|causes| causes.is_empty()), "{causes:?}");
        for side in [&mut self.test.pair.host, &mut self.test.pair.target] {
            for connection in side.engine.connections().collect::<Vec<_>>() {
                side.engine.disconnect(connection);
            }
        }
        self.until("gone", |swarm| {
            swarm.test.host.engine.is_disconnected() && swarm.test.target.engine.is_disconnected()
        });
        // What came with the end of its connection, in the last step, was not looked at yet.
        let taken = |side: &Side<WatchedDevice>| side.every_command.as_ref().is_none_or(Vec::is_empty);
        self.until("answered", |swarm| swarm.unanswered.is_empty() && taken(&swarm.test.target));
        self.until("idle", |swarm| swarm.test.host.engine.is_idle() && swarm.test.target.engine.is_idle());
        self.nothing_left();
    }
}

/// One side's turn, as far as it is awake.
fn step(side: &mut Side<WatchedDevice>, now: Duration, control: bool, engine: bool, takes_events: bool) {
    if control {
        side.control.poll();
    }
    if engine {
        let work = side.engine.poll(now, &mut side.protocol);
        let mut told = 0;
        if side.engine.statistics().mrs_orphaned > 0 {
            // Told with the connection's end, and open until the device goes.
            side.pad_bytes = 1 << 40;
        }
        while takes_events && let Some(event) = side.engine.next_event() {
            side.event(event);
            told += 1;
        }
        let posted = side.engine.flush();
        assert!(work > 0 || (told, posted) == (0, 0), "a poll that found nothing leaves nothing behind");
    }
    if control {
        side.control.poll();
    }
}
