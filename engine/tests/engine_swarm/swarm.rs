//! A storm and its calm.

use crate::{
    chance::{Chances, TARGET_RECEIVES, chances, setup},
    engine_harness::{
        GRANT, HEADER, Side, WatchedDevice, address,
        random::{Random, TOKEN_KINDS},
        scripted::Scripted,
    },
};
use core::time::Duration;
use frwr_engine::{
    Chunk, ConnectionId, EngineOptions, FetchRequest, ReceiveQueues, Received, RemoteSegment, RequestHandle,
    ResponseRequest, ReturnPolicy, TraceRecord, TransferError, WriteRequest,
    gather::Segment,
    provider::{
        Access, AsyncEvent, CommandError, Completion, CompletionQueue, DeviceEvent, FailureStatus, PortId, PostRefusal,
        QueuePairId, RemoteRange, SharedReceiveQueueId, Success, Token, TokenKind,
        fault::{CommandKind, CompletionFault, CompletionFilter},
        record::Record,
        soft::SoftProfile,
    },
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

    /// What must hold at any time.
    fn look(&mut self) {
        for record in self.test.watch.log() {
            match record {
                Record::Refused { reason: PostRefusal::QueueFull, queue_pair, .. } => {
                    panic!("{queue_pair:?} was overrun")
                }
                Record::SharedReceive { queue, .. } => self.shared = Some(*queue),
                _ => {}
            }
        }
        self.test.watch.clear();
        let ended = self.test.pair.host.ended[self.ended..].to_vec();
        for (cookie, status) in ended {
            self.ended += 1;
            let Some(flight) = self.flights.remove(&cookie) else { continue };
            if status == "replied" && flight.written {
                let mut at = 0;
                for (offset, length) in &flight.ranges {
                    let mut bytes = vec![0; *length as usize];
                    self.test.host.data.read(*offset as usize, &mut bytes).unwrap();
                    assert!(
                        bytes.iter().zip(at..).all(|(byte, at)| *byte == pattern(at)),
                        "request {cookie} lacks data"
                    );
                    at += bytes.len();
                }
            }
            let orphans = self.test.host.engine.statistics().mrs_orphaned > 0;
            self.rest[flight.place] = Some(self.digest(flight.place)).filter(|_| !orphans);
        }
        if self.is_quiet() {
            // Or they would keep all MRs.
            for (handle, _) in core::mem::take(&mut self.test.pair.host.grants) {
                let _ = self.test.host.engine.cancel(handle);
            }
        }
        for place in 0..PLACES {
            if let Some(digest) = self.rest[place] {
                assert_eq!(digest, self.digest(place), "somebody wrote to memory of a request that ended");
            }
        }
        let engine = &self.test.pair.host.engine;
        let (live, open) = (engine.statistics().keys_live(), self.test.open_bytes());
        // With the early return an MR may take several keys with it, of which two count.
        let exact = self.options.return_policy != ReturnPolicy::OnInvalidatePosted;
        assert!(!exact || live > 0 || open == 0, "{open} bytes are open, and no key is live");
        let _ = engine.poll_at();
        let all = if self.options.registrations == 0 { None } else { Some(self.options.registrations) };
        for connection in engine.connections() {
            let count = engine.descriptors(connection);
            let sum = count.free + count.used + count.quarantined + count.absent;
            assert!(all.is_none_or(|all| sum == all + u32::from(self.options.write_pad)), "{count:?}");
        }
    }

    fn digest(&self, place: usize) -> u64 {
        let mut bytes = [0; PLACE_BYTES];
        self.test.host.data.read(place * PLACE_BYTES, &mut bytes).unwrap();
        bytes.chunks(8).fold(0, |hash: u64, word| {
            (hash ^ u64::from_le_bytes(word.try_into().unwrap())).wrapping_mul(0x100_0000_01B3).rotate_left(5)
        })
    }

    /// Nobody does anything wrong: then no connection ends.
    fn is_quiet(&self) -> bool {
        self.chances.fault_one_in == 0
    }

    fn act(&mut self) {
        match self.random.below(24) {
            0..=8 => self.submit(),
            9 => self.register(),
            10..=11 if !self.is_quiet() && !self.handles.is_empty() => {
                let at = self.random.below(self.handles.len() as u64) as usize;
                let handle = self.handles.swap_remove(at);
                self.cancel(handle);
            }
            12 if !self.is_quiet() && self.random.one_in(8) => {
                if let Some(connection) = self.some_connection() {
                    self.test.host.engine.disconnect(connection);
                }
            }
            13 if !self.is_quiet() && self.random.one_in(8) => {
                let all: Vec<_> = self.test.target.engine.connections().collect();
                if !all.is_empty() {
                    let connection = self.random.of(&all);
                    self.test.target.engine.disconnect(connection);
                }
            }
            14..=17 => self.transfer(),
            18..=19 => self.connect(),
            _ => {}
        }
    }

    fn some_connection(&mut self) -> Option<ConnectionId> {
        let all: Vec<_> = self.test.host.engine.connections().collect();
        if all.is_empty() { None } else { Some(self.random.of(&all)) }
    }

    fn connect(&mut self) {
        let host = &mut self.test.pair.host;
        if host.engine.connect(address(), b"hello", &host.connection_options()).is_ok() {
            self.opened += 1;
        }
    }

    fn cancel(&mut self, handle: RequestHandle) {
        if self.random.one_in(4) {
            let Self { test, .. } = self;
            let pair = &mut test.pair;
            let (mut now, deadline) = (pair.now, pair.now + Duration::from_micros(20));
            let clock = || {
                now += Duration::from_micros(1);
                now
            };
            let _ = pair.host.engine.cancel_now(handle, deadline, clock, &mut pair.host.protocol);
            pair.now = now;
        } else {
            // Refusing is an answer; ending twice is not.
            let _ = self.test.host.engine.cancel(handle);
        }
    }

    fn submit(&mut self) {
        let Some(connection) = self.some_connection() else { return };
        let free: Vec<_> =
            (0..PLACES).filter(|place| !self.flights.values().any(|flight| flight.place == *place)).collect();
        if free.is_empty() {
            return;
        }
        self.cookie += 1;
        let (cookie, place) = (self.cookie, self.random.of(&free));
        let start = (place * PLACE_BYTES) as u64;
        let access = if self.random.one_in(4) { Access::RemoteRead } else { Access::RemoteWrite };
        let shapes: [&[(u64, u32)]; 6] = [
            &[(256, 512)],
            &[(256, 512)],
            &[(0, 4096), (4096, 4096)],
            &[(0, 4096), (4096, 100)],
            &[(256, 300), (4352, 512)],
            &[(0, 1024), (1024, 1024)],
        ];
        let mut chunks: Vec<Vec<Segment>> = Vec::new();
        for chunk in 0..self.random.of(&[0, 1, 1, 1, 2, 3]) {
            let shape = self.random.of(&shapes);
            let segment = |&(offset, length)| self.test.host.segment(start + chunk * CHUNK_BYTES + offset, length);
            chunks.push(shape.iter().map(segment).collect());
        }
        let inline = self.random.one_in(5);
        let inlined = if inline { vec![self.test.host.segment(start + INLINE_AT, INLINE_BYTES)] } else { vec![] };
        self.rest[place] = None;
        self.test.host.data.write((start + INLINE_AT) as usize, &inline_pattern(cookie)).unwrap();
        let invite = self.random.one_in(2);
        let host = &mut self.test.pair.host;
        host.protocol.refuse = self.random.one_in(20);
        host.connection = Some(connection);
        let all: Vec<_> = chunks.iter().map(|segments| Chunk { access, segments }).collect();
        let taken = host.submit_mixed(cookie, &all, &inlined, invite);
        host.protocol.refuse = false;
        if let Ok(handle) = taken {
            self.handles.push(handle);
            let ranges = chunks.iter().flatten().map(|segment| (segment.offset, segment.length)).collect();
            self.flights
                .insert(cookie, Flight { place, connection, access, ranges, inline, invited: invite, written: false });
        }
    }

    fn register(&mut self) {
        let Some(connection) = self.some_connection() else { return };
        self.cookie += 1;
        let host = &mut self.test.pair.host;
        let segment = host.segment(STANDALONE_AT + (self.cookie % 16) * 4096, 512);
        let chunk = Chunk { access: Access::RemoteRead, segments: &[segment] };
        if let Ok(handle) = host.engine.register_now(connection, &chunk, self.cookie, &mut host.protocol) {
            host.outstanding.insert(self.cookie, 512);
            self.handles.push(handle);
        }
    }

    /// The host writes or reads what the target opened for it, or answers what the target did not ask.
    fn transfer(&mut self) {
        let Some(ours) = self.some_connection() else { return };
        let Some(&theirs) = self.pairs.get(&ours) else { return };
        let Self { test, random, .. } = self;
        let pair = &mut test.pair;
        self.cookie += 1;
        let cookie = self.cookie;
        if !self.opened_for.contains(&theirs) {
            let chunk =
                Chunk { access: Access::RemoteReadWrite, segments: &[pair.target.segment(STANDALONE_AT, 4096)] };
            if let Ok(handle) = pair.target.engine.register_now(theirs, &chunk, cookie, &mut pair.target.protocol) {
                pair.target.outstanding.insert(cookie, 4096);
                self.opening.insert(handle, theirs);
                self.opened_for.insert(theirs);
            }
            return;
        }
        let opened = pair.target.grants.iter().find(|(handle, _)| self.opening.get(handle) == Some(&theirs));
        let Some(&(_, grant)) = opened else { return };
        let operations = random.of(&[1, 1, 2, 5, 16]);
        let ranges: Vec<_> = (0..operations)
            .map(|at| RemoteSegment {
                remote: RemoteRange { address: grant.address + 128 * at, key: grant.key },
                length: 128,
            })
            .collect();
        let host = &mut pair.host;
        let (local, remote) = (&[host.segment(TRANSFERS_AT, 128 * operations as u32)][..], &ranges[..]);
        // A reply to nobody takes a receive of the target that nothing gives back.
        let replies = self.replies < REPLIES && host.peer_receives == TARGET_RECEIVES;
        let begun = match random.below(if replies { 4 } else { 3 }) {
            0 => host.engine.fetch(ours, &FetchRequest { local, remote, cookie }),
            1..=2 => host.engine.write(ours, &WriteRequest { local, remote, cookie }),
            _ => {
                self.replies += 1;
                let (local, remote) = if random.one_in(2) { (local, remote) } else { (&[][..], &[][..]) };
                let message = &[0xFF; 12];
                host.engine.respond(ours, &ResponseRequest { local, remote, message, invalidate: None, cookie })
            }
        };
        if begun.is_ok() {
            self.transfers.push(cookie);
        }
    }

    /// The target answers, mostly well.
    fn serve(&mut self, well: bool) {
        let mut commands = core::mem::take(&mut self.unanswered);
        commands.append(self.test.target.every_command.as_mut().unwrap());
        for (connection, received) in commands {
            self.test.target.connection = Some(connection);
            let (name, grants) = self.test.target.read_command(&received);
            let cookie = u64::from_le_bytes(name);
            let first = self.seen.insert(cookie);
            if first {
                self.look_at_command(connection, cookie, &received);
            }
            let flight = self.flights.get_mut(&cookie);
            let writes = flight.as_ref().is_some_and(|flight| flight.access == Access::RemoteWrite);
            let writes = writes && self.random.one_in(2);
            let written = if writes { grants.clone() } else { Vec::new() };
            // What nobody asked for takes an imitated device's host down.
            let rude = !well && !self.is_rxe;
            let asked = flight.as_ref().is_some_and(|flight| flight.invited) || (rude && self.random.one_in(8));
            let key = grants.first().map(|grant| grant.key).filter(|_| asked && self.random.one_in(2));
            let bad = rude && self.random.one_in(60);
            let key = if bad { Some(self.random.next() as u32) } else { key };
            let key = key.filter(|_| self.test.host.engine.capabilities().remote_invalidation);
            match self.test.target.try_answer(name, &written, key) {
                Ok(()) => {
                    if let Some(flight) = flight {
                        flight.written = writes;
                    }
                    self.test.target.engine.release(received);
                }
                Err(TransferError::NoSlot) => {
                    self.seen.remove(&cookie);
                    self.unanswered.push((connection, received));
                }
                Err(_) => self.test.target.engine.release(received),
            }
        }
    }

    fn look_at_command(&mut self, connection: ConnectionId, cookie: u64, received: &Received) {
        let Some(flight) = self.flights.get(&cookie) else { return };
        self.pairs.insert(flight.connection, connection);
        let length = HEADER + 16 * GRANT;
        let mut inline = [0; INLINE_BYTES as usize];
        let found = self.test.target.engine.message(received, length as u32, &mut inline);
        assert_eq!(found, if flight.inline { inline.len() } else { 0 }, "request {cookie}");
        assert!(!flight.inline || inline == inline_pattern(cookie), "request {cookie}: its inline memory was not held");
    }

    fn fault(&mut self) {
        let on_host = self.random.below(4) > 0;
        let Self { test, random, asleep, .. } = self;
        let faults = if on_host { &test.faults } else { &test.target_faults };
        let side = if on_host { &test.pair.host } else { &test.pair.target };
        let total: u64 = self.chances.weights.iter().sum();
        if total == 0 {
            return;
        }
        let mut at = random.below(total);
        let kind = self.chances.weights.iter().position(|&weight| {
            let found = at < weight;
            at = at.saturating_sub(weight);
            found
        });
        let all: Vec<_> = side.engine.connections().filter_map(|found| side.engine.queue_pair(found)).collect();
        let queue_pair = if all.is_empty() { QueuePairId(1) } else { random.of(&all) };
        match kind.unwrap_or(0) {
            0 => faults.refuse_post(queue_pair, random.below(7) as usize, PostRefusal::Invalid),
            1 => match self.shared.filter(|_| on_host) {
                Some(queue) => faults.refuse_shared_receives(queue, random.below(3) as usize, PostRefusal::Invalid),
                None => faults.refuse_receives(queue_pair, random.below(3) as usize, PostRefusal::Invalid),
            },
            2 => {
                let kind = random.of(&TOKEN_KINDS);
                // Its grant goes to others when it is destroyed, and a receiver that is not ready hangs rxe's peer.
                let shares = self.shares[usize::from(!on_host)];
                let dies = shares && self.is_rxe && kind == TokenKind::Receive;
                let hold = if dies { CompletionFault::HoldWhileAlive } else { CompletionFault::Hold };
                faults.on_all_completions(CompletionFilter::kind(kind), hold);
            }
            3 => faults.release(),
            4 => faults.on_completions(CompletionFilter::default(), CompletionFault::Duplicate, 3),
            5 => {
                let statuses = [FailureStatus::Bind, FailureStatus::Flushed, FailureStatus::RemoteAccess];
                faults.fail_from_now(queue_pair, random.of(&statuses));
            }
            6 => {
                let queue_pair = if random.one_in(2) { queue_pair } else { QueuePairId(0xDEAD) };
                let token = Token::new(random.of(&TOKEN_KINDS), random.below(1 << 28) as u32, 0xFFFF_0000);
                let success = Success { bytes: random.next() as u32, invalidated: Some(random.next() as u32) };
                let result = if random.one_in(2) { Ok(success) } else { Err(FailureStatus::Flushed) };
                let queue = random.of(&[CompletionQueue::Send, CompletionQueue::Receive]);
                faults.inject(PortId(0), queue, Completion { token, queue_pair, result });
            }
            7 => {
                let kind = random.of(&[
                    CommandKind::AllocateRegistration,
                    CommandKind::CreateQueuePair,
                    CommandKind::CreateSharedReceiveQueue,
                    CommandKind::RegisterMemory,
                    CommandKind::AllocateDomain,
                    CommandKind::FailQueuePair,
                    CommandKind::DestroyQueuePair,
                    CommandKind::Connect,
                    CommandKind::Accept,
                ]);
                faults.fail_command(kind, CommandError::Exhausted, 1 + random.below(3) as u32);
            }
            8 => faults.fail_command(CommandKind::FreeRegistration, CommandError::Busy, 1 + random.below(3) as u32),
            9 => {
                let events = [AsyncEvent::QueuePairFatal(queue_pair), AsyncEvent::QueuePairAccessError(queue_pair)];
                faults.inject_event(DeviceEvent::Async(random.of(&events)));
            }
            10 => asleep[random.below(5) as usize] = random.below(60),
            // Nothing on a port whose completions were lost can be trusted (fault 13); of shared receives nobody would know.
            11 if self.options.receive_queues == ReceiveQueues::PerConnection => {
                self.lost_completions = true;
                test.faults.on_completions(CompletionFilter::default(), CompletionFault::Drop, 1);
            }
            _ => test.pair.now += Duration::from_micros(1 << random.below(24)),
        }
    }

    /// How often the host was told of the end of each of its transfers.
    fn transfers_told(&self) -> Vec<usize> {
        let mut told = HashMap::new();
        for event in &self.test.host.events {
            let ends = ["Fetched", "Written", "Responded"].iter().any(|name| event.starts_with(name));
            if let Some(cookie) = event.split("cookie: ").nth(1).filter(|_| ends) {
                let cookie: u64 = cookie.split(',').next().unwrap().parse().unwrap();
                *told.entry(cookie).or_insert(0) += 1;
            }
        }
        self.transfers.iter().map(|cookie| told.get(cookie).copied().unwrap_or(0)).collect()
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
        self.until("answered", |swarm| swarm.unanswered.is_empty());
        self.until("idle", |swarm| swarm.test.host.engine.is_idle() && swarm.test.target.engine.is_idle());
        self.nothing_left();
    }

    fn nothing_left(&mut self) {
        let statistics = self.test.host.engine.statistics();
        assert_eq!(statistics.requests_ended, self.test.host.ended.len() as u64);
        assert_eq!((statistics.request_slots_used, statistics.slots_held), (0, 0));
        let dead = statistics.local_invalidations + statistics.remote_invalidations + statistics.mrs_destroyed_live;
        let exact = self.options.return_policy != ReturnPolicy::OnInvalidatePosted;
        // An object that the device kept has its last key, live or not.
        let lives = statistics.registrations.saturating_sub(dead);
        let ends = lives <= statistics.mrs_orphaned && dead <= statistics.registrations;
        assert!(!exact || ends, "every key died in one way: {statistics:?}");
        assert_eq!(statistics.mrs_allocated, statistics.mrs_destroyed + statistics.mrs_orphaned);
        assert_eq!(self.test.host.gone.len(), self.opened, "one end per connection");
        let mut withdrawn = 0;
        for side in [&self.test.pair.host, &self.test.pair.target] {
            assert!(side.engine.is_idle(), "{:?}", side.engine.statistics());
            let (buffers, statistics) = (side.engine.receive_buffers(), side.engine.statistics());
            assert_eq!(buffers.held, 0);
            withdrawn += statistics.shared_receives_withdrawn;
            if statistics.shared_receives_free + statistics.shared_receives_withdrawn > 0 {
                let all = u64::from(buffers.posted + buffers.idle);
                assert_eq!(
                    statistics.shared_receives_free + statistics.shared_receives_withdrawn,
                    all,
                    "{statistics:?}"
                );
            }
        }
        if statistics.mrs_orphaned == 0 {
            assert_eq!(self.test.open_bytes(), 0, "no key survives its connection");
            // An object that the device kept is tried again behind its queue pair.
            let kept = self.test.host.control.statistics().frees_refused > 0;
            assert!(kept || self.test.monitor.stalled_destroys() == 0);
        }
        if withdrawn == 0 {
            self.test.host.every_command = None;
            self.test.target.every_command = None;
            // A connect request of the storm may still be on its way, from somebody who is gone, and takes a place for a moment.
            self.test.steps(100);
            self.test.reconnect_works();
        }
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
