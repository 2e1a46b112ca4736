//! A target of one core and of two that is changed at random under hosts whose data is verified: namespaces come, go, grow and shrink, paths
//! and hosts come and go, news between cores is slow. No request fails that a change does not explain, and nothing that was written is lost.

use core::time::Duration;
use frwr_engine::MemoryAccess;
use frwr_engine::control::Control;
use frwr_engine::gather::{MemoryId, Segment};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{
    AllowedHosts, ChangeError, ChangeEvent, ChangeId, NewNamespace, Subsystem, Target, TargetListening, TargetMessage,
    place_queues,
};
use frwr_nvmf::host::{Host, IoError};
use frwr_nvmf::storage::MemoryStorage;
use frwr_nvmf::wire::{AnaState, Nqn, SerialNumber, Status};
use frwr_support::Random;
use frwr_support::nvmf_harness::{BLOCK, engine_of, host_options, memory, subsystem, target_options};
use std::collections::VecDeque;

/// Blocks of each medium; the first half of them is never cut.
const BLOCKS: u64 = 32;
const CHANGES: u32 = 300;
/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(3600);

/// What a medium holds, as far as anybody knows.
struct Medium {
    memory: DeviceMemory,
    contents: Vec<Option<u8>>,
}

impl Medium {
    fn new() -> Self {
        let memory = memory(BLOCKS as usize * BLOCK as usize);
        Self { memory, contents: vec![Some(0); BLOCKS as usize] }
    }

    fn way(&self, blocks: u64) -> MemoryStorage {
        use frwr_nvmf::storage::Storage as _;
        let mut storage = MemoryStorage::new(self.memory.clone(), BLOCK, 64).unwrap();
        storage.resize(blocks).unwrap();
        storage
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Writing(u8),
    Reading,
}

/// A host of one namespace.
struct Guest {
    host: Host<SoftPort>,
    control: Control<SoftDevice>,
    data: DeviceMemory,
    data_id: MemoryId,
    doing: Vec<Doing>,
    /// Something was taken from it: its requests may fail by that.
    explained: bool,
    ended: u64,
}

impl Guest {
    fn new(fabric: &SoftFabric, namespace: u32, number: u8) -> Self {
        let name = Nqn::new(&format!("nqn.host{number}")).unwrap();
        let options = host_options().namespace(namespace).host(name).host_id([number; 16]).queues(2).queue_depth(8);
        let options = options.command_retries(None).longest_back_off(host_options().first_back_off);
        // Attempts follow each other without a pause to speak of, and a host that is kept away makes some hundred.
        let options = options.controller_loss_timeout(LONG).inaccessible_timeout(LONG).max_attempts(10_000);
        let mut control = Control::new(fabric.device(SoftOptions::new("reg_mr".parse().unwrap())));
        let mut engine = engine_of(&mut control, options.engine());
        let data = memory(2 * BLOCKS as usize * BLOCK as usize);
        let data_id = engine.add_memory(data.clone(), MemoryAccess::ReadWrite).unwrap();
        let mut host = Host::new(engine, memory(options.memory_bytes()), options).unwrap();
        host.start();
        Self { host, control, data, data_id, doing: vec![Doing::Nothing; BLOCKS as usize], explained: false, ended: 0 }
    }

    /// The first half of its memory is for writing, the second for reading.
    fn segment(&self, slot: u64) -> Segment {
        Segment { memory: self.data_id, offset: slot * u64::from(BLOCK), length: BLOCK }
    }

    fn submit(&mut self, random: &mut Random) {
        let block = random.below(BLOCKS);
        let blocks = self.host.geometry().map_or(0, |geometry| geometry.blocks());
        if self.doing[block as usize] != Doing::Nothing || block >= blocks {
            return;
        }
        let (byte, slot) = (random.bits() as u8, block as usize);
        let (submitted, doing) = if random.one_in(2) {
            self.data.fill(slot * BLOCK as usize, BLOCK as usize, byte).unwrap();
            (self.host.write(block, &[self.segment(block)], block), Doing::Writing(byte))
        } else {
            (self.host.read(block, &[self.segment(BLOCKS + block)], block), Doing::Reading)
        };
        if submitted.is_ok() {
            self.doing[slot] = doing;
        }
    }

    fn step(&mut self, now: Duration, medium: &mut Medium) {
        self.control.poll();
        self.host.poll(now);
        self.host.flush();
        self.control.poll();
        while let Some(completion) = self.host.next_completion() {
            let slot = completion.cookie as usize;
            let doing = core::mem::replace(&mut self.doing[slot], Doing::Nothing);
            self.ended += 1;
            match (completion.result, doing) {
                (Ok(()), Doing::Writing(byte)) => medium.contents[slot] = Some(byte),
                (Ok(()), Doing::Reading) => {
                    let mut read = vec![0; BLOCK as usize];
                    self.data.read((BLOCKS as usize + slot) * BLOCK as usize, &mut read).unwrap();
                    if let Some(byte) = medium.contents[slot] {
                        assert_eq!(read, vec![byte; BLOCK as usize], "block {slot}");
                    }
                }
                (Err(error), doing) => {
                    let by_change = match error {
                        IoError::Abandoned => true,
                        IoError::Status(status) => {
                            [Status::INVALID_NAMESPACE, Status::INVALID_FIELD, Status::LBA_OUT_OF_RANGE]
                                .contains(&status.without_flags())
                        }
                        _ => false,
                    };
                    assert!(
                        self.explained && by_change,
                        "{error}: {:?} {:?}",
                        self.host.failure(),
                        self.host.last_failure()
                    );
                    if let Doing::Writing(_) = doing {
                        medium.contents[slot] = None;
                    }
                }
                (_, Doing::Nothing) => panic!("block {slot} ended twice"),
            }
        }
    }
}

struct World {
    fabric: SoftFabric,
    control: Control<SoftDevice>,
    cores: Vec<Target<SoftPort, MemoryStorage>>,
    /// By the core that they are from and the one that they are for.
    lanes: Vec<Vec<VecDeque<TargetMessage>>>,
    now: Duration,
    random: Random,
    /// Of namespaces 1 and 2.
    media: [Medium; 2],
    guests: [Guest; 2],
    /// A change that is not taken everywhere.
    open: Option<ChangeId>,
    handed_back: usize,
    /// Namespace 2 is there, and its size.
    second: Option<u64>,
    leaving: usize,
    other: bool,
    paths: AnaState,
    taken: u32,
}

impl World {
    fn new(cores: u16, seed: u64) -> Self {
        let fabric = SoftFabric::new();
        let options = target_options().cores(cores).controllers(4).returning_controllers(1).io_queues(2);
        let options = options.namespaces(8).subsystems(2);
        let mut control = Control::new(fabric.device(SoftOptions::new("reg_mr".parse().unwrap())));
        control.place_connections(place_queues(0));
        let media = [Medium::new(), Medium::new()];
        let cores: Vec<_> = (0..cores)
            .map(|core| {
                let options = options.on_core(core);
                let engine = engine_of(&mut control, options.engine());
                let buffers = memory(options.buffer_memory_bytes(4));
                let namespaces = media.iter().map(|medium| medium.way(BLOCKS)).collect();
                let subsystems = vec![Subsystem::new(subsystem(), namespaces)];
                let mut target = Target::with_subsystems(engine, subsystems, buffers, options).unwrap();
                target.listen().unwrap();
                target
            })
            .collect();
        let lanes = vec![vec![VecDeque::new(); cores.len()]; cores.len()];
        let guests = [Guest::new(&fabric, 1, 1), Guest::new(&fabric, 2, 2)];
        let (now, random) = (Duration::ZERO, Random::new(seed));
        let mut world = Self {
            fabric,
            control,
            cores,
            lanes,
            now,
            random,
            media,
            guests,
            open: None,
            handed_back: 0,
            second: Some(BLOCKS),
            leaving: 0,
            other: false,
            paths: AnaState::Optimized,
            taken: 0,
        };
        world.until("listening", |world| {
            world.cores.iter().all(|core| core.statistics().listening == TargetListening::Listens)
        });
        world.until("ready", |world| world.guests.iter().all(|guest| guest.host.is_ready()));
        world
    }

    fn step(&mut self) {
        self.now += Duration::from_micros(1 + self.random.below(200));
        self.control.poll();
        for (guest, medium) in self.guests.iter_mut().zip(&mut self.media) {
            if !self.random.one_in(4) {
                guest.step(self.now, medium);
            }
        }
        for from in 0..self.cores.len() {
            if self.random.one_in(4) {
                continue;
            }
            self.cores[from].poll(self.now);
            while let Some((to, message)) = self.cores[from].next_message() {
                self.lanes[from][usize::from(to)].push_back(message);
            }
            for to in 0..self.cores.len() {
                while !self.random.one_in(3)
                    && let Some(message) = self.lanes[from][to].pop_front()
                {
                    self.cores[to].deliver(from as u16, message);
                }
            }
            self.cores[from].flush();
        }
        for at in 0..self.cores.len() {
            while let Some(event) = self.cores[at].next_change() {
                self.said(event);
            }
        }
    }

    fn said(&mut self, event: ChangeEvent<MemoryStorage>) {
        match event {
            ChangeEvent::Done { id } => self.open = self.open.filter(|open| *open != id),
            ChangeEvent::Removed { .. } => {
                self.handed_back += 1;
                self.leaving -= 1;
            }
            ChangeEvent::Shrunk { .. } | ChangeEvent::Superseded { .. } => {}
            ChangeEvent::Undone { .. } => panic!("every core had what it needs"),
            ChangeEvent::HeldUp { by, .. } => panic!("held up by {by}"),
            ChangeEvent::CannotListen { reason, .. } => panic!("nobody asked to listen: {reason}"),
        }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..60_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        let told =
            self.guests.iter().map(|guest| (guest.host.failure(), guest.host.last_failure(), guest.host.statistics()));
        panic!("never {what}: {:?}\n{:?}", told.collect::<Vec<_>>(), self.cores[0].statistics());
    }

    /// Requests of both hosts while time goes by.
    fn work(&mut self, steps: u64) {
        for _ in 0..steps {
            for guest in &mut self.guests {
                guest.submit(&mut self.random);
            }
            self.step();
        }
    }

    fn note(&mut self, change: Result<ChangeId, ChangeError>) -> bool {
        match change {
            Ok(id) => {
                self.taken += 1;
                self.open = Some(id);
                true
            }
            Err(ChangeError::Busy(_) | ChangeError::Leaving { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// One change at random.
    fn change(&mut self) {
        match self.random.below(12) {
            0..=2 if self.second.is_none() => self.add(),
            0 | 1 => self.remove(),
            2 | 3 if self.second.is_some() => self.resize(),
            4..7 => {
                let states = [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible, AnaState::Change];
                self.paths = self.random.of(&states);
                self.cores[0].set_ana_state(&subsystem(), None, self.paths).unwrap();
                self.taken += 1;
            }
            7 => self.drain(),
            8 => {
                let listed = ["nqn.host1", "nqn.host2"].map(|name| Nqn::new(name).unwrap()).to_vec();
                let hosts = if self.random.one_in(2) { AllowedHosts::Any } else { AllowedHosts::Listed(listed) };
                let change = self.cores[0].set_allowed_hosts(&subsystem(), hosts, LONG);
                self.note(change);
            }
            9 if self.second.is_some() => {
                self.guests[1].explained = true;
                for active in [false, true] {
                    self.cores[0].set_namespace_active(&subsystem(), 2, active).unwrap();
                    self.work(20);
                }
                self.taken += 1;
            }
            _ => self.change_other(),
        }
    }

    /// The second host begins anew, and knows nothing of what it had in flight.
    fn replace_second(&mut self) {
        let Medium { contents, .. } = &mut self.media[1];
        for (content, doing) in contents.iter_mut().zip(&self.guests[1].doing) {
            if let Doing::Writing(_) = doing {
                *content = None;
            }
        }
        self.guests[1] = Guest::new(&self.fabric, 2, 2);
    }

    fn add(&mut self) {
        let blocks = BLOCKS / 2 + self.random.below(BLOCKS / 2 + 1);
        for at in 1..self.cores.len() {
            let storage = self.media[1].way(blocks);
            if self.cores[at].supply_namespace(&subsystem(), 2, storage).is_err() {
                // Commands of the one before have not ended there.
                (1..at).for_each(|at| drop(self.cores[at].withdraw_namespace(&subsystem(), 2)));
                return;
            }
        }
        let namespace =
            NewNamespace { identifier: 2, nguid: None, ana_group: 1, active: true, storage: self.media[1].way(blocks) };
        let added = self.cores[0].add_namespace(&subsystem(), namespace).map_err(|refused| refused.error);
        if self.note(added) {
            self.second = Some(blocks);
            self.until("added", |world| world.open.is_none());
            // Whoever comes now finds what was there before.
            self.replace_second();
        } else {
            (1..self.cores.len()).for_each(|at| drop(self.cores[at].withdraw_namespace(&subsystem(), 2)));
        }
    }

    fn remove(&mut self) {
        self.guests[1].explained = true;
        let change = self.cores[0].remove_namespace(&subsystem(), 2, LONG);
        if self.note(change) {
            self.second = None;
            self.leaving += self.cores.len();
        }
    }

    fn resize(&mut self) {
        let blocks = BLOCKS / 2 + self.random.below(BLOCKS / 2 + 1);
        self.guests[1].explained = true;
        for at in 1..self.cores.len() {
            self.cores[at].prepare_resize(&subsystem(), 2, blocks).unwrap();
        }
        let change = self.cores[0].resize_namespace(&subsystem(), 2, blocks, LONG);
        if self.note(change) {
            self.second = Some(blocks);
            self.until("resized", |world| world.open.is_none());
        }
    }

    fn drain(&mut self) {
        let whom = [None, Nqn::new("nqn.host1").ok(), Nqn::new("nqn.host2").ok()][self.random.below(3) as usize];
        let drained = self.cores[0].drain(whom, LONG);
        if self.note(drained) {
            let steps = self.random.below(400);
            self.work(steps);
            if self.random.one_in(2) {
                self.until("drained", |world| world.open.is_none());
            }
            assert!(self.cores[0].resume(whom));
        }
    }

    /// Another subsystem, of which nobody knows.
    fn change_other(&mut self) {
        let name = Nqn::new("nqn.other").unwrap();
        if self.other {
            let change = self.cores[0].remove_subsystem(&name, LONG);
            self.other = !self.note(change);
            return;
        }
        let added = self.cores[0].add_subsystem(name, AllowedHosts::Any, SerialNumber::of_subsystem(&name));
        if added != Err(ChangeError::SubsystemName) {
            self.other = self.note(added);
        }
    }
}

fn run(cores: u16, seed: u64) {
    let mut world = World::new(cores, seed);
    while world.taken < CHANGES {
        let steps = world.random.below(80);
        world.work(steps);
        if world.guests[1].host.failure().is_some() && world.second.is_some() && world.open.is_none() {
            assert!(world.guests[1].explained, "{:?}", world.guests[1].host.failure());
            world.replace_second();
        }
        world.change();
    }
    world.cores[0].set_ana_state(&subsystem(), None, AnaState::Optimized).unwrap();
    world.until("all of it done", |world| world.open.is_none() && world.leaving == 0);
    world.until("served", |world| {
        let first = &world.guests[0];
        first.host.is_ready() && first.doing.iter().all(|doing| *doing == Doing::Nothing)
    });
    assert_eq!(world.guests[0].host.failure(), None);
    assert!(world.guests[0].ended > u64::from(CHANGES), "{}", world.guests[0].ended);
    assert!(world.handed_back > 0);
    // What is on the media is what was written.
    let Medium { memory, contents } = &world.media[0];
    for (block, content) in contents.iter().enumerate() {
        let mut byte = [0];
        memory.read(block * BLOCK as usize, &mut byte).unwrap();
        assert_eq!(Some(byte[0]), *content);
    }
    for core in &mut world.cores {
        core.shut_down();
    }
    world.guests.iter_mut().for_each(|guest| guest.host.shut_down());
    world.until("drained", |world| world.cores.iter().all(|core| core.is_drained()));
    for core in &world.cores {
        let statistics = core.statistics();
        assert_eq!((statistics.slots_used, statistics.orphans), (0, 0));
        assert_eq!(statistics.buffers, statistics.buffers_free);
    }
}

#[test]
fn a_target_of_one_core_is_changed_at_random_and_loses_nothing() {
    (1..=2).for_each(|seed| run(1, seed));
}

#[test]
fn a_target_of_two_cores_is_changed_at_random_and_loses_nothing() {
    (1..=2).for_each(|seed| run(2, seed));
}
