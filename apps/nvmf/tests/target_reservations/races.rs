//! Random commands of several hosts at the same time, on several cores, over storages that hold on: how they end, what
//! hosts are told and what is in the blocks has to be as if they had come one after the other in some order, as the
//! model knows them.

use super::hosts::{CORES, Hosts, host_id};
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::Reservations;
use frwr_nvmf::storage::{Comparing, RangeLocks};
use frwr_nvmf::wire::{
    BlockRange, Command, Fuse, PersistChange, ReservationAcquire, ReservationKeys, ReservationRegister,
    ReservationRelease, Status, SubmissionQueueEntry,
};
use frwr_support::Random;
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::memory;
use frwr_support::nvmf_harness::raw::keyed;
use frwr_support::nvmf_harness::reservations::{Asked, HOSTS, Model};
use std::rc::Rc;
use std::sync::Arc;
use zerocopy::IntoBytes;

const ROUNDS: usize = 150;
/// Commands at the same time at most: their orders are all looked at.
const MOST: u64 = 4;
const BLOCK: u32 = 512;
/// Where writes go, and where pairs count.
const WRITTEN: u64 = 1;
const COUNTED: u64 = 3;
/// Each command has its data in a part of its own, of which a pair has two halves.
const PART: u64 = 2 * BLOCK as u64;
/// Identifiers of commands, two for each; of event requests, one for each host.
const FIRST_ID: u16 = 700;
const FIRST_EVENT: u16 = 900;
/// Steps in which whatever needs nobody else's answer has arrived.
const ENOUGH: usize = 30;
/// How often that is awaited until every command has ended.
const PATIENCE: usize = 100;

/// A command that was sent, and how it ended: a pair as one.
#[derive(Clone, Copy, Debug)]
struct Sent {
    host: usize,
    asked: Asked,
    ended: Status,
}

/// Hosts, each with a controller of two I/O queues, over one medium.
struct World {
    all: Hosts<Comparing<Gated>>,
    switch: Rc<Switch>,
    medium: DeviceMemory,
    random: Random,
    /// All that the model may be by now; more than one where answers do not tell in which order commands came.
    models: Vec<Model>,
    /// Each host has an event request under way; whether it was answered since it read its notifications.
    told: [bool; HOSTS],
    byte: u8,
    /// How commands have ended.
    seen: Vec<Status>,
}

impl World {
    fn new(seed: u64) -> Self {
        let (medium, locks) = (memory(64 << 10), Arc::new(RangeLocks::new()));
        let switch = Gated::new(128, BLOCK, 1).1;
        let storage = |_| Comparing::new(Gated::over(medium.clone(), BLOCK, 64, &switch), &locks).unwrap();
        let all = Hosts::over(&Reservations::new(), &[1, 2, 3, 4], storage);
        let (random, models) = (Random::new(seed), vec![Model::default()]);
        let mut world = Self { all, switch, medium, random, models, told: [true; HOSTS], byte: 0, seen: Vec::new() };
        (0..HOSTS).for_each(|host| world.listen(host));
        world
    }

    /// A host that was told something, and has read it, asks for the next event.
    fn listen(&mut self, host: usize) {
        if core::mem::take(&mut self.told[host]) {
            let entry = Command::AsynchronousEventRequest.encode(FIRST_EVENT + host as u16).unwrap();
            let admin = self.all.sessions[host].admin;
            self.all.raw.send(admin, entry, None);
            self.all.raw.steps(ENOUGH);
        }
    }

    fn byte_at(&self, block: u64) -> u8 {
        let mut byte = [0];
        self.medium.read(block as usize * BLOCK as usize, &mut byte).unwrap();
        byte[0]
    }

    /// Puts the data of the `nth` command of a round where it belongs, and sends it.
    fn send(&mut self, nth: usize, io: ConnectionId, asked: Asked) {
        let at = nth as u64 * PART;
        let keys = |current: u64, other: u64| ReservationKeys { current: current.into(), other: other.into() };
        let range = |lba| BlockRange { namespace: 1, lba, blocks: 1, data: keyed(BLOCK) };
        let put = |keys: ReservationKeys| self.all.raw.data.write(at as usize, keys.as_bytes()).unwrap();
        let (command, bytes) = match asked {
            Asked::Register { action, ignores_key: ignore_key, keys: (current, new) } => {
                put(keys(current, new));
                let persist = PersistChange::None;
                let data = keyed(16);
                let register = ReservationRegister { namespace: 1, action, ignore_key, persist, data };
                (Command::ReservationRegister(register), 16)
            }
            Asked::Acquire { action, kind, keys: (current, other) } => {
                put(keys(current, other));
                let acquire = ReservationAcquire { namespace: 1, action, kind, data: keyed(16) };
                (Command::ReservationAcquire(acquire), 16)
            }
            Asked::Release { action, kind, key } => {
                put(keys(key, 0));
                let release = ReservationRelease { namespace: 1, action, kind: kind as u8, data: keyed(8) };
                (Command::ReservationRelease(release), 8)
            }
            Asked::Read => (Command::Read(range(WRITTEN)), BLOCK),
            Asked::Write => {
                self.byte = self.byte.wrapping_add(1);
                self.all.raw.data.fill(at as usize, BLOCK as usize, self.byte).unwrap();
                (Command::Write(range(WRITTEN)), BLOCK)
            }
            Asked::Pair => {
                let counted = self.byte_at(COUNTED);
                self.all.raw.data.fill(at as usize, BLOCK as usize, counted).unwrap();
                let next = counted.wrapping_add(1);
                self.all.raw.data.fill((at + u64::from(BLOCK)) as usize, BLOCK as usize, next).unwrap();
                (Command::Compare(range(COUNTED)), BLOCK)
            }
        };
        let id = FIRST_ID + 2 * nth as u16;
        let entry = command.encode(id).unwrap();
        let access = if asked == Asked::Read { Access::RemoteWrite } else { Access::RemoteRead };
        if asked != Asked::Pair {
            return self.post(io, entry, access, bytes, at);
        }
        self.post(io, entry.with_fuse(Fuse::First), access, bytes, at);
        let second = Command::Write(range(COUNTED)).encode(id + 1).unwrap().with_fuse(Fuse::Second);
        self.post(io, second, access, bytes, at + u64::from(BLOCK));
    }

    fn post(&mut self, io: ConnectionId, entry: SubmissionQueueEntry, access: Access, bytes: u32, at: u64) {
        self.all.raw.data_at = at;
        self.all.raw.send(io, entry, Some((access, bytes)));
        self.all.raw.data_at = 0;
    }

    /// How the command with this identifier ended, if it has.
    fn answer(&self, id: u16) -> Option<Status> {
        let mut all = self.all.raw.responses.iter().filter(|response| response.command_id.get() == id);
        let status = all.next().map(|response| response.status().without_flags());
        assert!(all.next().is_none(), "{id} is answered once");
        status
    }

    /// How the `nth` one did: a pair as one command.
    fn ended(&self, nth: usize, asked: Asked) -> Option<Status> {
        let id = FIRST_ID + 2 * nth as u16;
        let first = self.answer(id)?;
        if asked != Asked::Pair {
            return Some(first);
        }
        Some(match (first, self.answer(id + 1)?) {
            // Each is checked as if it were alone, and what is wrong with one ends the other.
            (told, other) if told == other => told,
            (told, Status::ABORTED_FAILED_FUSED) | (Status::ABORTED_FAILED_FUSED, told) => told,
            both => panic!("a pair ends as one: {both:?}"),
        })
    }

    fn round(&mut self) {
        self.all.raw.responses.clear();
        let (block, counted) = (self.byte_at(WRITTEN), self.byte_at(COUNTED));
        self.switch.gate.set(self.random.of(&[Gate::Open, Gate::Open, Gate::Full, Gate::Unstarted, Gate::Running]));
        let mut sent = Vec::new();
        let mut bytes = Vec::new();
        for nth in 0..=self.random.below(MOST) as usize {
            let host = self.random.below(HOSTS as u64) as usize;
            let io = self.all.io(host, self.random.below(CORES as u64) as usize);
            let asked = Asked::any(&self.models[0], host, &mut self.random);
            self.send(nth, io, asked);
            sent.push((host, asked));
            bytes.push(self.byte);
            let steps = self.random.below(4) as usize;
            self.all.raw.steps(steps * steps);
        }
        self.switch.gate.set(Gate::Open);
        let all: Vec<_> = sent.iter().enumerate().map(|(nth, (_, asked))| (nth, *asked)).collect();
        for _ in 0..PATIENCE {
            self.all.raw.steps(ENOUGH / 3);
            if all.iter().all(|(nth, asked)| self.ended(*nth, *asked).is_some()) {
                break;
            }
        }
        self.all.raw.steps(ENOUGH);
        let end = |(nth, (host, asked)): (usize, &(usize, Asked))| {
            let ended = self.ended(nth, *asked).expect("every command ends");
            Sent { host: *host, asked: *asked, ended }
        };
        let sent: Vec<Sent> = sent.iter().enumerate().map(end).collect();
        self.check_blocks(&sent, &bytes, (block, counted));
        for host in 0..HOSTS {
            self.told[host] |= self.answer(FIRST_EVENT + host as u16).is_some();
        }
        self.seen.extend(sent.iter().map(|sent| sent.ended));
        self.models = behind(&self.models, &sent);
        assert!(!self.models.is_empty(), "in no order do they end so: {sent:#?}");
    }

    /// `bytes`: what each write wrote.
    fn check_blocks(&self, sent: &[Sent], bytes: &[u8], (block, counted): (u8, u8)) {
        let succeeded = |sent: &&Sent| sent.ended == Status::SUCCESS;
        let written: Vec<u8> = sent
            .iter()
            .zip(bytes)
            .filter(|(sent, _)| sent.asked == Asked::Write && succeeded(sent))
            .map(|(_, byte)| *byte)
            .collect();
        let found = self.byte_at(WRITTEN);
        let is_one = if written.is_empty() { found == block } else { written.contains(&found) };
        assert!(is_one, "{found} is none of {written:?}, {block} was there: {sent:#?}");
        let pairs = || sent.iter().filter(|sent| sent.asked == Asked::Pair);
        let counts = pairs().filter(succeeded).count() as u8;
        assert_eq!(self.byte_at(COUNTED), counted.wrapping_add(counts), "{sent:#?}");
        // They may expect different numbers where one of them was counted meanwhile.
        let failed = pairs().any(|sent| sent.ended == Status::COMPARE_FAILURE);
        assert!(!failed || counts > 0, "a pair failed, and none counted: {sent:#?}");
    }

    /// What hosts are told and what is reported leaves some models, and not all: one at least.
    fn look(&mut self) {
        for host in 0..HOSTS {
            let told = self.told[host];
            self.models.retain(|model| model.told[host].is_empty() != told);
            assert!(!self.models.is_empty(), "host {host} had an event: {told}");
            if told && self.random.one_in(2) || self.models[0].told[host].len() > 8 {
                let found = self.all.notifications(host);
                self.models.retain(|model| model.told[host] == found);
                assert!(!self.models.is_empty(), "host {host} was told {found:?}");
                self.models.iter_mut().for_each(|model| model.told[host].clear());
                self.listen(host);
            }
        }
        let io = self.all.io(self.random.below(HOSTS as u64) as usize, 0);
        let (head, mut registrants) = self.all.report(io);
        registrants.sort_unstable();
        self.models.retain(|model| {
            let listed = model.registrants().map(|(host, key, holds)| (host_id(host as u8 + 1), key, holds));
            head.kind == model.kind().map_or(0, |kind| kind as u8) && listed.eq(registrants.iter().copied())
        });
        assert!(!self.models.is_empty(), "type {}, {registrants:?}", head.kind);
    }
}

/// All that models may be once these commands, which were under way together, have ended so.
fn behind(models: &[Model], sent: &[Sent]) -> Vec<Model> {
    let mut found = Vec::new();
    for model in models {
        let mut model = model.clone();
        model.forget_orders();
        in_any_order(&model, sent, 0, &mut found);
    }
    found
}

/// `done`: a bit for each of those that the model knows already.
fn in_any_order(model: &Model, sent: &[Sent], done: u32, found: &mut Vec<Model>) {
    let mut left = sent.iter().enumerate().filter(|(nth, _)| done & 1 << nth == 0).peekable();
    if left.peek().is_none() {
        let aborted = |sent: &&Sent| sent.ended == Status::COMMAND_ABORT_REQUESTED;
        if sent.iter().filter(aborted).all(|sent| model.has_ended(sent.host)) && !found.contains(model) {
            found.push(model.clone());
        }
        return;
    }
    for (nth, Sent { host, asked, ended }) in left {
        let mut next = model.clone();
        let fits = match *ended {
            // It was not executed.
            Status::COMMAND_ABORT_REQUESTED => true,
            Status::COMPARE_FAILURE => next.apply(*host, *asked) == Status::SUCCESS,
            ended => next.apply(*host, *asked) == ended,
        };
        if fits {
            in_any_order(&next, sent, done | 1 << nth, found);
        }
    }
}

#[test]
fn commands_at_the_same_time_end_as_if_they_had_come_in_some_order() {
    let mut seen = Vec::new();
    for seed in 1..=6 {
        let mut world = World::new(seed);
        for round in 0..ROUNDS {
            world.round();
            world.look();
            assert!(world.models.len() < 64, "seed {seed}, round {round}: answers tell too little");
        }
        seen.append(&mut world.seen);
        world.all.raw.shut_down();
    }
    for status in [
        Status::SUCCESS,
        Status::RESERVATION_CONFLICT,
        Status::INVALID_FIELD,
        Status::COMPARE_FAILURE,
        Status::COMMAND_ABORT_REQUESTED,
    ] {
        assert!(seen.contains(&status), "nothing ended with {status}");
    }
}
