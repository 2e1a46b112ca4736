//! Hosts that have to prove themselves, on the queues of a target, and our host that does so: over the software NIC.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::Waker;
use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_nvmf::authentication::{AuthenticationFailure, Authenticator, Demand, Exchange, Parties, Turn, Verdict};
use frwr_nvmf::controller::Subsystem;
use frwr_nvmf::dhchap::{ControllerSide, DhChap, DhChapKey, Group, Hash, HostKeys, HostSide, Permitted, SystemRandom};
use frwr_nvmf::host::HostFailure;
use frwr_nvmf::storage::MemoryStorage;
use frwr_nvmf::wire::{
    AUTHENTICATION_REQUIRED, AuthenticationMessage, BlockRange, Command, CompletionQueueEntry, Identify, Nqn, Property,
    PropertyGet, PropertySize, Status, cns,
};
use frwr_support::nvmf_harness::raw::{Raw, connect, connect_data, keyed};
use frwr_support::nvmf_harness::{Pair, host_options, memory, subsystem, target_options};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[path = "authentication/again.rs"]
mod again;

const KEY: &str = "DHHC-1:00:ARIjNEVWZ3iJmqu8zd7vABEiM0RVZneImaq7zN3u/xDxPTl+:";
const OTHER: &str = "DHHC-1:01:ARIjNEVWZ3iJmqu8zd7vABEiM0RVZneImaq7zN3u/xDxPTl+:";
/// Bytes that hosts give for a message.
const ROOM: u32 = 4096;

/// Judges at once, or after so many looks: time here is not the machine's.
#[derive(Debug, Default)]
struct Inline {
    keys: Mutex<BTreeMap<String, HostKeys>>,
    permitted: Permitted,
    required: AtomicBool,
    /// Times that nothing can be said.
    busy: AtomicU32,
    /// Looks that a message takes.
    looks: AtomicU32,
    /// Transactions that controllers began.
    sides: AtomicU32,
}

impl Inline {
    fn new(group: Group) -> Arc<Self> {
        let permitted = Permitted { hashes: vec![Hash::Sha512], groups: vec![group] };
        Arc::new(Self { permitted, looks: 3.into(), ..Self::default() })
    }

    fn with(group: Group, host: &Nqn, keys: &HostKeys) -> Arc<Self> {
        let inline = Self::new(group);
        inline.set(host, Some(keys));
        inline
    }

    fn set(&self, host: &Nqn, keys: Option<&HostKeys>) {
        let mut all = self.keys.lock().unwrap();
        match keys {
            Some(keys) => all.insert(host.as_str().to_owned(), keys.clone()),
            None => all.remove(host.as_str()),
        };
    }

    fn of(&self, host: &Nqn) -> Option<HostKeys> {
        self.keys.lock().unwrap().get(host.as_str()).cloned()
    }

    fn is_busy(&self) -> bool {
        self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[derive(Debug)]
enum Side {
    Controller(ControllerSide),
    Host(HostSide),
}

#[derive(Debug)]
struct Judge {
    side: Side,
    keys: Option<HostKeys>,
    permitted: Permitted,
    looks: u32,
    left: u32,
    turn: Option<Turn>,
}

impl Exchange for Judge {
    fn tell(&mut self, message: &[u8], _: Option<&Waker>) {
        assert!(self.turn.is_none());
        let (keys, permitted) = (self.keys.as_ref(), &self.permitted);
        self.turn = Some(match &mut self.side {
            Side::Controller(side) => side.take(message, keys, permitted, &mut SystemRandom),
            Side::Host(side) => side.take(message, keys, permitted, &mut SystemRandom),
        });
        self.left = self.looks;
    }

    fn poll(&mut self) -> Option<Turn> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { self.turn.take() } else { None }
    }
}

impl Inline {
    fn judge(&self, side: Side, host: &Nqn) -> Box<dyn Exchange> {
        let (keys, permitted, looks) = (self.of(host), self.permitted.clone(), self.looks.load(Ordering::Relaxed));
        Box::new(Judge { side, keys, permitted, looks, left: 0, turn: None })
    }
}

impl Authenticator for Inline {
    fn demand(&self, host: Option<&Nqn>, _: &Nqn) -> Option<Demand> {
        if self.is_busy() {
            return None;
        }
        Some(match host.and_then(|host| self.of(host)) {
            Some(_) => Demand::Proof,
            None if self.required.load(Ordering::Relaxed) => Demand::Unknown,
            None => Demand::None,
        })
    }

    fn insists(&self, host: &Nqn) -> Option<bool> {
        (!self.is_busy()).then(|| self.of(host).is_some_and(|keys| keys.controller.is_some()))
    }

    fn controller_side(&self, parties: Parties) -> Box<dyn Exchange> {
        self.sides.fetch_add(1, Ordering::Relaxed);
        self.judge(Side::Controller(ControllerSide::new(parties)), &parties.host)
    }

    fn host_side(&self, parties: Parties) -> Box<dyn Exchange> {
        self.judge(Side::Host(HostSide::new(parties)), &parties.host)
    }
}

fn key(text: &str) -> DhChapKey {
    DhChapKey::parse(text).unwrap()
}

fn keys(host: &str, controller: Option<&str>) -> HostKeys {
    HostKeys { host: key(host), controller: controller.map(key) }
}

fn our_name() -> Nqn {
    host_options().host
}

/// A host and a target, each with what it knows.
fn pair(host: Option<Arc<Inline>>, target: Option<Arc<Inline>>) -> Pair {
    let mut pair = Pair::with("reg_mr", host_options().queues(2), target_options().io_queues(2));
    if let Some(inline) = target {
        pair.target.authenticates(inline);
    }
    if let Some(inline) = host {
        pair.host.authenticates(inline);
    }
    pair
}

/// Why the host has given up, and what the target told of it.
fn failure(pair: &mut Pair) -> (HostFailure, Vec<String>) {
    pair.host.start();
    pair.until("given up", |pair| pair.host.failure().is_some());
    (pair.host.failure().unwrap(), told(pair))
}

fn told(pair: &mut Pair) -> Vec<String> {
    core::iter::from_fn(|| pair.target.next_incident()).map(|incident| incident.to_string()).collect()
}

fn reads_and_writes(pair: &mut Pair) {
    pair.fill(0, 7);
    let (written, read) = (pair.segment(0, 1), pair.segment(1, 1));
    pair.host.write(0, &[written], 1).unwrap();
    assert_eq!(pair.completed(1)[0].result, Ok(()));
    pair.host.read(0, &[read], 2).unwrap();
    assert_eq!(pair.completed(1)[0].result, Ok(()));
    assert_eq!(pair.block(1), pair.block(0));
}

#[test]
fn a_host_that_proves_itself_uses_the_namespace_and_so_do_both_ways() {
    for group in [Group::Null, Group::Ffdhe2048] {
        for keys in [keys(KEY, None), keys(OTHER, Some(KEY))] {
            let name = our_name();
            let (host, target) = (Inline::with(group, &name, &keys), Inline::with(group, &name, &keys));
            // Somebody changes keys while the host connects.
            host.busy.store(3, Ordering::Relaxed);
            target.busy.store(3, Ordering::Relaxed);
            let mut pair = pair(Some(host), Some(target));
            pair.bring_up();
            reads_and_writes(&mut pair);
            assert_eq!(told(&mut pair), [""; 0]);
            pair.finish();
        }
    }
}

#[test]
fn a_host_that_is_not_asked_proves_nothing_unless_the_controller_has_to() {
    let mut without = pair(Some(Inline::with(Group::Null, &our_name(), &keys(KEY, None))), None);
    without.bring_up();
    without.finish();
    // The target does not know how.
    let insists = Inline::with(Group::Null, &our_name(), &keys(KEY, Some(OTHER)));
    let (failed, told) = failure(&mut pair(Some(insists), None));
    let status = Status::INVALID_COMMAND_OPCODE.do_not_retry();
    assert_eq!(failed, HostFailure::Command { step: "Authentication Send", status });
    assert_eq!(told, [""; 0]);
}

#[test]
fn wrong_and_missing_keys_are_refused_and_told_on_both_sides() {
    let name = our_name();
    let known = |keys: &HostKeys| Some(Inline::with(Group::Null, &name, keys));
    let right = keys(KEY, Some(KEY));
    use AuthenticationFailure::{ByPeer, NoKey, Response};
    for (host, target, failed, told_of) in [
        (known(&keys(OTHER, Some(KEY))), known(&right), ByPeer(1), "does not follow from the key"),
        (known(&keys(KEY, Some(OTHER))), known(&right), Response, "the peer refused it: authentication failed"),
        (known(&right), known(&keys(KEY, None)), ByPeer(1), "there is no key for the host"),
        (known(&right), Some(Inline::with(Group::Ffdhe2048, &name, &right)), ByPeer(5), "no Diffie-Hellman group"),
        (Some(Inline::new(Group::Null)), known(&right), NoKey, ""),
    ] {
        let mut pair = pair(host, target);
        let (failure, told) = failure(&mut pair);
        assert_eq!(failure, HostFailure::Authentication(failed));
        match told_of {
            "" => assert_eq!(told, [""; 0]),
            text => {
                assert_eq!(told.len(), 1, "{told:?}");
                assert!(
                    told[0].contains("authentication failed, connection ended") && told[0].contains(text),
                    "{told:?}"
                );
                assert!(told[0].contains(name.as_str()), "{told:?}");
            }
        }
        pair.until("nothing is left", |pair| pair.target.statistics().queues == 0);
        let told = pair.target.statistics();
        let counted = [
            (told.authentications_wrong, "does not follow"),
            (told.authentications_refused, "the peer refused it"),
            (told.authentications_without_key, "there is no key"),
            (told.authentications_without_choice, "no Diffie-Hellman group"),
        ];
        assert!(counted.iter().all(|(count, text)| (*count == 1) == told_of.starts_with(text)), "{told:?}");
        // A host that does not believe the controller had proven itself.
        assert_eq!((told.authentications, told.authenticating), (u64::from(failed == Response), 0));
    }
    let (failed, _) = failure(&mut pair(None, known(&right)));
    assert_eq!(failed, HostFailure::AuthenticationRequired);
}

#[test]
fn a_replaced_key_is_asked_for_when_the_host_connects_again() {
    let (name, former, next) = (our_name(), keys(KEY, None), keys(OTHER, Some(OTHER)));
    let (host, target) = (Inline::with(Group::Null, &name, &former), Inline::with(Group::Null, &name, &former));
    let mut pair = pair(Some(Arc::clone(&host)), Some(Arc::clone(&target)));
    pair.bring_up();
    target.set(&name, Some(&next));
    reads_and_writes(&mut pair);
    assert_eq!(pair.host.statistics().sessions, 1);
    host.set(&name, Some(&next));
    pair.host.drop_connections();
    pair.tick = Duration::from_micros(100);
    pair.until("ready again", |pair| pair.host.is_ready() && pair.host.statistics().sessions == 2);
    reads_and_writes(&mut pair);
    target.set(&name, Some(&former));
    pair.host.drop_connections();
    pair.until("given up", |pair| pair.host.failure().is_some());
    assert_eq!(pair.host.failure(), Some(HostFailure::Authentication(AuthenticationFailure::ByPeer(1))));
}

#[test]
fn the_service_judges_on_a_thread_of_its_own() {
    let (name, subsystem) = (our_name(), subsystem());
    let service = DhChap::new(Permitted::default()).unwrap();
    let parties = Parties { host: name, subsystem };
    let wait =
        |demand: &dyn Fn() -> Option<Demand>| core::iter::from_fn(|| Some(demand())).find_map(|found| found).unwrap();
    assert_eq!(wait(&|| service.demand(Some(&name), &subsystem)), Demand::None);
    service.require(true);
    assert_eq!(wait(&|| service.demand(Some(&name), &subsystem)), Demand::Unknown);
    assert_eq!(wait(&|| service.demand(None, &subsystem)), Demand::Unknown);
    service.set(&name, Some(keys(KEY, Some(OTHER))));
    assert_eq!(wait(&|| service.demand(Some(&name), &subsystem)), Demand::Proof);
    let judged = |exchange: &mut Box<dyn Exchange>, message: &[u8]| {
        exchange.tell(message, Some(Waker::noop()));
        loop {
            match exchange.poll() {
                Some(turn) => return turn,
                None => std::thread::yield_now(),
            }
        }
    };
    let (mut host, mut controller) = (service.host_side(parties), service.controller_side(parties));
    let mut said = judged(&mut host, &[]);
    while said.verdict == Verdict::Open {
        let answer = judged(&mut controller, &said.say.unwrap());
        said = judged(&mut host, &answer.say.unwrap());
    }
    assert_eq!(said.verdict, Verdict::Proven);
    assert_eq!(judged(&mut controller, &said.say.unwrap()), Turn { say: None, verdict: Verdict::Proven });
    // One that nobody waits for is dropped, and others go on.
    let mut dropped = service.host_side(parties);
    dropped.tell(&[], None);
    drop(dropped);
    service.set(&name, None);
    let mut without = service.host_side(parties);
    let failed = Verdict::Failed(AuthenticationFailure::NoKey);
    assert_eq!(judged(&mut without, &[]), Turn { say: None, verdict: failed });
}

/// A host that is written by hand, against a target that asks it for a proof.
struct Locked {
    raw: Raw<MemoryStorage>,
    inline: Arc<Inline>,
    keys: HostKeys,
    name: Nqn,
}

impl Locked {
    fn new(cores: u16) -> Self {
        let options = target_options().cores(cores).io_queues(2);
        let mut raw = Raw::spread(options, |_| {
            let storage = MemoryStorage::new(memory(64 << 10), 512, 64).unwrap();
            vec![Subsystem::new(subsystem(), vec![storage])]
        });
        let (name, keys) = (connect_data(0).host.unwrap(), keys(KEY, Some(OTHER)));
        let inline = Inline::with(Group::Null, &name, &keys);
        raw.target.authenticates(Arc::clone(&inline) as Arc<dyn Authenticator>);
        for member in &mut raw.members {
            member.authenticates(Arc::clone(&inline) as Arc<dyn Authenticator>);
        }
        Self { raw, inline, keys, name }
    }

    /// A queue that is connected, and its Connect's result.
    fn queue(&mut self, id: u16, controller: u16) -> (ConnectionId, u64) {
        let connection = self.raw.open_queue(id, 32);
        let response = self.raw.connect(connection, connect(id, 31), &connect_data(controller));
        assert!(response.status().is_success(), "{}", response.status());
        (connection, response.result.get())
    }

    fn admin(&mut self) -> (ConnectionId, u64) {
        self.queue(0, frwr_nvmf::wire::DYNAMIC_CONTROLLER)
    }

    /// An admin queue of an enabled controller, and its identifier.
    fn controller(&mut self) -> (ConnectionId, u16) {
        let (admin, result) = self.admin();
        assert_eq!(self.authenticate(admin), Verdict::Proven);
        self.raw.enable(admin);
        (admin, result as u16)
    }

    fn send(&mut self, connection: ConnectionId, message: &[u8]) -> Status {
        let length = message.len() as u32;
        self.raw.data.write(0, message).unwrap();
        let send = Command::AuthenticationSend(AuthenticationMessage { length, data: keyed(length) });
        self.raw.command(connection, send, Some((Access::RemoteRead, length))).status()
    }

    fn receive(&mut self, connection: ConnectionId) -> Result<Vec<u8>, Status> {
        let receive = Command::AuthenticationReceive(AuthenticationMessage { length: ROOM, data: keyed(ROOM) });
        let status = self.raw.command(connection, receive, Some((Access::RemoteWrite, ROOM))).status();
        let mut bytes = vec![0; ROOM as usize];
        self.raw.data.read(0, &mut bytes).unwrap();
        if status.is_success() { Ok(bytes) } else { Err(status) }
    }

    fn side(&self) -> HostSide {
        HostSide::new(Parties { host: self.name, subsystem: subsystem() })
    }

    /// Runs a transaction; what it comes to for the host.
    fn authenticate(&mut self, connection: ConnectionId) -> Verdict {
        let (mut side, permitted, keys) = (self.side(), self.inline.permitted.clone(), self.keys.clone());
        let mut message = Vec::new();
        loop {
            let turn = side.take(&message, Some(&keys), &permitted, &mut SystemRandom);
            let Some(said) = turn.say else { return turn.verdict };
            assert!(self.send(connection, &said).is_success());
            if turn.verdict != Verdict::Open {
                return turn.verdict;
            }
            message = self.receive(connection).unwrap();
        }
    }

    fn status(&mut self, connection: ConnectionId, command: Command, access: Option<(Access, u32)>) -> Status {
        self.raw.command(connection, command, access).status()
    }

    fn reads(&mut self, io: ConnectionId) -> Status {
        let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(512) };
        self.status(io, Command::Read(range), Some((Access::RemoteWrite, 512)))
    }

    fn ended(&mut self, connection: ConnectionId) {
        self.raw.until("ended", |raw| raw.disconnected.contains(&connection));
    }
}

fn capabilities() -> Command {
    Command::PropertyGet(PropertyGet { property: Property::Capabilities, size: PropertySize::Eight })
}

#[test]
fn before_its_host_has_proven_itself_a_queue_executes_nothing_else() {
    for cores in [1, 2] {
        let mut locked = Locked::new(cores);
        let (admin, result) = locked.admin();
        assert_eq!(result & !0xffff, AUTHENTICATION_REQUIRED);
        let identify = Command::Identify(Identify { structure: cns::CONTROLLER, namespace: 0, data: keyed(4096) });
        let out = Some((Access::RemoteWrite, 4096));
        for (command, access) in [
            (capabilities(), None),
            (identify, out),
            (Command::KeepAlive, None),
            (Command::AsynchronousEventRequest, None),
            (Command::Flush { namespace: 1 }, None),
        ] {
            assert_eq!(locked.status(admin, command, access), Status::AUTHENTICATION_REQUIRED.do_not_retry());
        }
        assert_eq!(locked.authenticate(admin), Verdict::Proven);
        assert!(locked.status(admin, capabilities(), None).is_success());
        locked.raw.enable(admin);
        // Each queue by itself.
        let (io, result) = locked.queue(1, result as u16);
        assert_eq!(result & !0xffff, AUTHENTICATION_REQUIRED);
        assert_eq!(locked.reads(io), Status::AUTHENTICATION_REQUIRED.do_not_retry());
        assert_eq!(locked.authenticate(io), Verdict::Proven);
        assert!(locked.reads(io).is_success());
        assert_eq!(locked.raw.told(), [""; 0]);
        let proven: u64 = locked.raw.cores().map(|target| target.statistics().authentications).sum();
        assert_eq!(proven, 2);
        locked.raw.shut_down();
    }
}

#[test]
fn who_does_not_prove_itself_in_time_is_ended_and_told_of() {
    let mut locked = Locked::new(1);
    let (_, controller) = locked.controller();
    let (io, _) = locked.queue(1, controller);
    let limit = target_options().connect_timeout;
    locked.raw.pass(limit / 2);
    assert!(!locked.raw.disconnected.contains(&io));
    locked.raw.pass(limit);
    locked.ended(io);
    let told = locked.raw.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("queue 1") && told[0].contains("not over within the time"), "{told:?}");
    // So is an admin queue, with its controller; and one that begins, and goes no further.
    let (admin, _) = locked.admin();
    let begun =
        locked.side().take(&[], Some(&locked.keys.clone()), &locked.inline.permitted.clone(), &mut SystemRandom);
    assert!(locked.send(admin, &begun.say.unwrap()).is_success());
    assert_eq!(locked.raw.target.statistics().authenticating, 1);
    locked.raw.pass(limit * 2);
    locked.ended(admin);
    let told = locked.raw.target.statistics();
    assert_eq!((told.authenticating, told.authentications_late, told.authentications), (0, 2, 1));
    locked.raw.shut_down();
}

#[test]
fn a_host_without_a_key_is_refused_where_every_host_needs_one() {
    let mut locked = Locked::new(1);
    locked.inline.required.store(true, Ordering::Relaxed);
    let stranger = Nqn::new("nqn.stranger").ok();
    let refused = |locked: &mut Locked, host: Option<Nqn>| -> CompletionQueueEntry {
        let admin = locked.raw.open_queue(0, 32);
        let mut data = connect_data(frwr_nvmf::wire::DYNAMIC_CONTROLLER);
        data.host = host;
        locked.raw.connect(admin, connect(0, 31), &data)
    };
    for host in [stranger, None] {
        let answer = refused(&mut locked, host);
        assert_eq!(answer.status(), Status::CONNECT_INVALID_HOST.do_not_retry());
        assert!(locked.raw.told()[0].contains("has no key"));
    }
    locked.inline.required.store(false, Ordering::Relaxed);
    let answer = refused(&mut locked, stranger);
    assert_eq!((answer.status(), answer.result.get() & !0xffff), (Status::SUCCESS, 0));
}

#[test]
fn messages_have_their_turn_and_commands_their_form() {
    let mut locked = Locked::new(1);
    let (admin, _) = locked.admin();
    let sequence = Status::COMMAND_SEQUENCE_ERROR.do_not_retry();
    assert_eq!(locked.receive(admin), Err(sequence));
    let (mut side, permitted, keys) = (locked.side(), locked.inline.permitted.clone(), locked.keys.clone());
    let said = side.take(&[], Some(&keys), &permitted, &mut SystemRandom).say.unwrap();
    let length = said.len() as u32;
    let of = |length, bytes| AuthenticationMessage { length, data: keyed(bytes) };
    let access = Some((Access::RemoteRead, length));
    for (message, status) in [
        (of(length, length - 1), Status::DATA_SGL_LENGTH_INVALID),
        (of(0, 0), Status::INVALID_FIELD),
        (of(ROOM + 1, ROOM + 1), Status::INVALID_FIELD),
    ] {
        let send = Command::AuthenticationSend(message);
        assert_eq!(locked.status(admin, send, access), status.do_not_retry());
    }
    // Another security protocol.
    let mut entry = Command::AuthenticationSend(of(length, length)).encode(0).unwrap();
    entry.dwords_10_15[0] = 0x0100_0000.into();
    assert_eq!(locked.raw.exchange(admin, entry, access).status(), Status::INVALID_FIELD.do_not_retry());
    // A second message before what came of the first was asked for.
    assert!(locked.send(admin, &said).is_success());
    assert_eq!(locked.send(admin, &said), sequence);
    // Less room than it needs.
    let receive = Command::AuthenticationReceive(of(8, 8));
    let status = locked.status(admin, receive, Some((Access::RemoteWrite, 8)));
    assert_eq!(status, Status::INVALID_FIELD.do_not_retry());
    // It is still there for who has.
    let challenge = locked.receive(admin).unwrap();
    let said = side.take(&challenge, Some(&keys), &permitted, &mut SystemRandom).say.unwrap();
    assert!(locked.send(admin, &said).is_success());
    let success = locked.receive(admin).unwrap();
    assert_eq!(side.take(&success, Some(&keys), &permitted, &mut SystemRandom).verdict, Verdict::Proven);
}

#[test]
fn who_asks_for_a_message_where_none_follows_is_answered() {
    let mut locked = Locked::new(1);
    // So that each message is still being judged when what comes of it is asked for.
    locked.inline.looks.store(200, Ordering::Relaxed);
    let (admin, _) = locked.admin();
    assert_eq!(locked.authenticate(admin), Verdict::Proven);
    // Behind the success of its own it is told nothing.
    assert_eq!(locked.receive(admin), Err(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()));
    assert!(locked.status(admin, capabilities(), None).is_success());
    locked.raw.shut_down();
}

#[test]
fn a_host_may_prove_itself_again_and_ends_where_it_cannot() {
    let mut locked = Locked::new(2);
    let (admin, controller) = locked.controller();
    let (io, _) = locked.queue(1, controller);
    assert_eq!(locked.authenticate(io), Verdict::Proven);
    for _ in 0..2 {
        assert_eq!(locked.authenticate(admin), Verdict::Proven);
        assert_eq!(locked.authenticate(io), Verdict::Proven);
        assert!(locked.reads(io).is_success());
    }
    // Its key was replaced.
    let former = locked.keys.clone();
    let next = keys(OTHER, Some(KEY));
    locked.inline.set(&locked.name.clone(), Some(&next));
    assert!(locked.reads(io).is_success());
    locked.keys = next;
    assert_eq!(locked.authenticate(io), Verdict::Proven);
    locked.keys = former;
    assert_eq!(locked.authenticate(io), Verdict::Failed(AuthenticationFailure::ByPeer(1)));
    assert_eq!(locked.reads(io), Status::AUTHENTICATION_REQUIRED.do_not_retry());
    locked.raw.pass(Duration::from_secs(2));
    locked.ended(io);
    // The others are undisturbed.
    assert!(locked.status(admin, capabilities(), None).is_success());
    locked.raw.shut_down();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_somebody_sends_ends_his_connection_and_no_other(
        bytes in prop::collection::vec(any::<u8>(), 1..200), begins in any::<bool>(),
    ) {
        let mut locked = Locked::new(1);
        let (proven, _) = locked.controller();
        let (admin, _) = locked.admin();
        if begins {
            let keys = locked.keys.clone();
            let said = locked.side().take(&[], Some(&keys), &locked.inline.permitted.clone(), &mut SystemRandom);
            prop_assert!(locked.send(admin, &said.say.unwrap()).is_success());
            prop_assert!(locked.receive(admin).is_ok());
        }
        prop_assert!(locked.send(admin, &bytes).is_success());
        let refused = Status::AUTHENTICATION_REQUIRED.do_not_retry();
        prop_assert_eq!(locked.status(admin, capabilities(), None), refused);
        // AUTH_Failure1.
        prop_assert_eq!(&locked.receive(admin).unwrap()[..2], &[0, 0xf0]);
        prop_assert_eq!(locked.status(admin, capabilities(), None), refused);
        locked.raw.pass(Duration::from_secs(2));
        locked.ended(admin);
        prop_assert!(locked.status(proven, capabilities(), None).is_success());
    }
}
