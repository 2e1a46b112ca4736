//! Fused Compare and Write, as a host sees it that may send whatever it likes: pairs, halves of pairs, and counters that
//! many queues on many cores share.

use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{Subsystem, TargetOptions};
use frwr_nvmf::storage::{
    AttachError, Comparing, CompletionBatch, Cookie, Features, Geometry, MemoryStorage, Operation, QueueFull,
    RangeLocks, Storage, StorageError,
};
use frwr_nvmf::wire::{
    Abort, BlockRange, Command, Fuse, Identify, IdentifyController, IdentifyNamespace, Status, SubmissionQueueEntry,
    cns,
};
use frwr_support::Random;
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::raw::{Raw, connect_data, keyed};
use frwr_support::nvmf_harness::{memory, subsystem, target_options};
use std::{collections::BTreeMap, rc::Rc, sync::Arc};
use zerocopy::FromBytes;

const BLOCK: u32 = 512;
const BLOCKS: usize = 128;
/// Where the two commands of a pair have their data.
const EXPECTED: u64 = 0;
const WRITTEN: u64 = 256 << 10;
/// Blocks of one pair at most: a third of a data buffer.
const MOST: u32 = (32 << 10) / 3 / BLOCK;

/// One whose lock is another gateway's when it is asked for a flush.
struct Loses {
    inner: Comparing<MemoryStorage>,
    flushes: Vec<Cookie>,
}

impl Storage for Loses {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn features(&self) -> Features {
        self.inner.features()
    }
    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.inner.attach(buffers)
    }
    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        self.inner.submit(cookie, operation)?;
        if operation == Operation::Flush {
            self.flushes.push(cookie);
        }
        Ok(())
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        let before = out.len();
        let found = self.inner.poll(now, out);
        for completion in &mut out[before..] {
            if let Some(at) = self.flushes.iter().position(|flush| *flush == completion.cookie) {
                self.flushes.remove(at);
                completion.result = Err(StorageError::NotOwner);
            }
        }
        found
    }
}

/// A target of so many cores over one memory, and what holds its storages back.
fn cores(options: TargetOptions) -> (Raw<Comparing<Gated>>, Rc<Switch>) {
    let (medium, locks) = (memory(BLOCKS * BLOCK as usize), Arc::new(RangeLocks::new()));
    let switch = Gated::new(BLOCKS as u64, BLOCK, 1).1;
    let raw = Raw::spread(options, |_| {
        let storage =
            |medium, locks: &Arc<RangeLocks>| Comparing::new(Gated::over(medium, BLOCK, 64, &switch), locks).unwrap();
        // The second namespace has a medium of its own on each core, which nobody looks at.
        let own = storage(memory(BLOCKS * BLOCK as usize), &Arc::new(RangeLocks::new()));
        vec![Subsystem::new(subsystem(), vec![storage(medium.clone(), &locks), own])]
    });
    (raw, switch)
}

fn one_core() -> Raw<Comparing<Gated>> {
    cores(target_options()).0
}

fn range(lba: u64, blocks: u32) -> BlockRange {
    BlockRange { namespace: 1, lba, blocks, data: keyed(blocks * BLOCK) }
}

fn first(range: BlockRange) -> SubmissionQueueEntry {
    Command::Compare(range).encode(0).unwrap().with_fuse(Fuse::First)
}

fn second(range: BlockRange) -> SubmissionQueueEntry {
    Command::Write(range).encode(0).unwrap().with_fuse(Fuse::Second)
}

/// Fills what is expected and what is written.
fn fill<S: Storage>(raw: &mut Raw<S>, expected: u8, written: u8) {
    raw.data.fill(EXPECTED as usize, 128 << 10, expected).unwrap();
    raw.data.fill(WRITTEN as usize, 128 << 10, written).unwrap();
}

fn send<S: Storage>(raw: &mut Raw<S>, io: ConnectionId, id: u16, mut entry: SubmissionQueueEntry, at: u64) {
    entry.command_id = id.into();
    raw.data_at = at;
    let blocks = (entry.dwords_10_15[2].get() & 0xffff) + 1;
    let access = if entry.opcode == frwr_nvmf::wire::opcode::READ { Access::RemoteWrite } else { Access::RemoteRead };
    raw.send(io, entry, Some((access, blocks * BLOCK)));
    raw.data_at = 0;
}

/// Waits until as many are answered, and says how, in order: identifiers, and codes.
fn answers<S: Storage>(raw: &mut Raw<S>, count: usize) -> Vec<(u16, u16)> {
    raw.until("answered", |raw| raw.responses.len() >= count);
    raw.steps(4);
    assert_eq!(raw.responses.len(), count, "{:?}", raw.responses);
    raw.responses.drain(..).map(|response| (response.command_id.get(), response.status().code())).collect()
}

/// Sends two entries next to each other, with so many steps between them: how they are answered, in their order.
fn pair_of<S: Storage>(
    raw: &mut Raw<S>,
    io: ConnectionId,
    [one, other]: [SubmissionQueueEntry; 2],
    between: usize,
) -> [Status; 2] {
    raw.responses.clear();
    send(raw, io, 1001, one, EXPECTED);
    raw.steps(between);
    send(raw, io, 1002, other, WRITTEN);
    let answers = answers(raw, 2);
    let of = |id| answers.iter().find(|(answered, _)| *answered == id).map(|(_, code)| Status::from_wire(code << 1));
    [of(1001).unwrap(), of(1002).unwrap()]
}

fn pair<S: Storage>(raw: &mut Raw<S>, io: ConnectionId, range: BlockRange, between: usize) -> [Status; 2] {
    pair_of(raw, io, [first(range), second(range)], between)
}

fn read<S: Storage>(raw: &mut Raw<S>, io: ConnectionId, lba: u64) -> u8 {
    let response = raw.command(io, Command::Read(range(lba, 1)), Some((Access::RemoteWrite, BLOCK)));
    assert!(response.status().is_success(), "{}", response.status());
    let mut bytes = [0; BLOCK as usize];
    raw.data.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a block is one of the writes as a whole");
    bytes[0]
}

const BOTH: [Status; 2] = [Status::SUCCESS, Status::SUCCESS];
const MISCOMPARED: [Status; 2] = [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED];

#[test]
fn a_pair_writes_where_it_finds_what_it_expects_and_is_answered_in_order() {
    let mut raw = one_core();
    let (_, io) = raw.io_queue();
    for (between, blocks) in [(0, 1), (1, 1), (7, 1), (0, 3), (2, MOST)] {
        let byte = 10 + blocks as u8 + between as u8;
        raw.data.fill(0, (blocks * BLOCK) as usize, byte).unwrap();
        let data = Some((Access::RemoteRead, blocks * BLOCK));
        assert!(raw.command(io, Command::Write(range(5, blocks)), data).status().is_success());
        fill(&mut raw, byte, byte + 100);
        raw.responses.clear();
        send(&mut raw, io, 7, first(range(5, blocks)), EXPECTED);
        raw.steps(between);
        assert!(raw.responses.is_empty(), "a first one waits for its second one");
        send(&mut raw, io, 3, second(range(5, blocks)), WRITTEN);
        assert_eq!(answers(&mut raw, 2), [(7, 0), (3, 0)]);
        for (lba, wanted) in [(4, 0), (5, byte + 100), (4 + u64::from(blocks), byte + 100)] {
            assert_eq!(read(&mut raw, io, lba), wanted);
        }
        // What it expects is not there any more.
        fill(&mut raw, byte, byte + 50);
        assert_eq!(pair(&mut raw, io, range(5, blocks), between), MISCOMPARED);
        assert_eq!(read(&mut raw, io, 5), byte + 100);
    }
    let statistics = raw.target.statistics();
    assert_eq!((statistics.writes, statistics.compares), (10, 5));
    raw.shut_down();
}

#[test]
fn a_pair_that_was_written_is_no_other_paths_whatever_its_flush_comes_to() {
    let mut raw = Raw::spread(target_options(), |_| {
        let inner = MemoryStorage::new(memory(BLOCKS * BLOCK as usize), BLOCK, 64).unwrap();
        let inner = Comparing::new(inner, &Arc::new(RangeLocks::new())).unwrap();
        vec![Subsystem::new(subsystem(), vec![Loses { inner, flushes: Vec::new() }])]
    });
    let (_, io) = raw.io_queue();
    fill(&mut raw, 0, 9);
    // Bit 30: force unit access.
    let mut durable = second(range(0, 1));
    durable.dwords_10_15[2].set(durable.dwords_10_15[2].get() | 1 << 30);
    let answered = pair_of(&mut raw, io, [first(range(0, 1)), durable], 0);
    assert_eq!(answered, [Status::SUCCESS, Status::INTERNAL_ERROR]);
    assert_eq!(read(&mut raw, io, 0), 9);
    raw.shut_down();
}

#[test]
fn halves_of_pairs_are_aborted_for_what_is_missing() {
    let mut raw = cores(target_options().io_queues(2)).0;
    let (_, controller) = raw.controller();
    let [io, other] = [1, 2].map(|id| raw.another_queue(controller, id));
    fill(&mut raw, 0, 9);
    let missing = Status::ABORTED_MISSING_FUSED.code();
    let normal = Command::Read(range(0, 1)).encode(0).unwrap();
    raw.responses.clear();
    send(&mut raw, io, 1, second(range(0, 1)), WRITTEN);
    assert_eq!(answers(&mut raw, 1), [(1, missing)]);
    // Something else comes next; the second one comes too late.
    send(&mut raw, io, 2, first(range(0, 1)), EXPECTED);
    send(&mut raw, io, 3, normal, WRITTEN + 4096);
    send(&mut raw, io, 4, second(range(0, 1)), WRITTEN);
    let mut found = answers(&mut raw, 3);
    found.sort_unstable();
    assert_eq!(found, [(2, missing), (3, 0), (4, missing)]);
    // Another pair begins; the first one of the former is without a second.
    send(&mut raw, io, 5, first(range(0, 1)), EXPECTED);
    send(&mut raw, io, 6, first(range(0, 1)), EXPECTED);
    send(&mut raw, io, 7, second(range(0, 1)), WRITTEN);
    assert_eq!(answers(&mut raw, 3), [(5, missing), (6, 0), (7, 0)]);
    // In two queues: none of both is the other's, and what else comes there disturbs nobody.
    send(&mut raw, io, 8, first(range(1, 1)), EXPECTED);
    raw.steps(3);
    send(&mut raw, other, 9, second(range(1, 1)), WRITTEN);
    send(&mut raw, other, 10, normal, WRITTEN + 4096);
    let mut found = answers(&mut raw, 2);
    found.sort_unstable();
    assert_eq!(found, [(9, missing), (10, 0)]);
    send(&mut raw, io, 11, second(range(1, 1)), WRITTEN);
    assert_eq!(answers(&mut raw, 2), [(8, 0), (11, 0)]);
    assert_eq!((read(&mut raw, io, 0), read(&mut raw, io, 1), read(&mut raw, io, 2)), (9, 9, 0));
    raw.shut_down();
}

#[test]
fn pairs_that_are_none_change_nothing() {
    let mut raw = one_core();
    let (_, io) = raw.io_queue();
    fill(&mut raw, 0, 9);
    let (invalid, failed) = (Status::INVALID_FIELD, Status::ABORTED_FAILED_FUSED);
    let [of, more, aside] = [range(0, 2), range(0, 3), range(1, 2)];
    let elsewhere = BlockRange { namespace: 2, ..of };
    for (second_range, what) in [(more, "longer"), (aside, "aside"), (elsewhere, "of another namespace")] {
        assert_eq!(pair_of(&mut raw, io, [first(of), second(second_range)], 1), [invalid; 2], "{what}");
    }
    let too_many = range(0, MOST + 1);
    assert_eq!(pair(&mut raw, io, too_many, 0), [Status::ATOMIC_WRITE_UNIT_EXCEEDED; 2]);
    let outside = range(BLOCKS as u64 - 1, 2);
    let [one, other] = pair(&mut raw, io, outside, 0);
    assert_eq!([one, other], [Status::LBA_OUT_OF_RANGE; 2]);
    let nowhere = BlockRange { namespace: 7, ..of };
    assert_eq!(pair_of(&mut raw, io, [first(of), second(nowhere)], 2), [failed, Status::INVALID_NAMESPACE]);
    let short = BlockRange { data: keyed(BLOCK), ..of };
    assert_eq!(pair_of(&mut raw, io, [first(short), second(of)], 0), [Status::DATA_SGL_LENGTH_INVALID, failed]);
    // What is fused, and nothing that can be.
    let compares = Command::Compare(of).encode(0).unwrap();
    assert_eq!(pair_of(&mut raw, io, [first(of), compares.with_fuse(Fuse::Second)], 0), [failed, invalid]);
    let missing = Status::ABORTED_MISSING_FUSED;
    let reads = Command::Read(of).encode(0).unwrap();
    assert_eq!(pair_of(&mut raw, io, [reads.with_fuse(Fuse::First), second(of)], 0), [invalid, missing]);
    let reserved = compares.with_fuse(Fuse::Reserved);
    assert_eq!(pair_of(&mut raw, io, [reserved, reads], 0), [invalid, Status::SUCCESS]);
    assert_eq!((0..4).map(|lba| read(&mut raw, io, lba)).max(), Some(0), "nothing was written");
    assert_eq!(pair(&mut raw, io, of, 0), BOTH, "and the queue goes on");
    raw.shut_down();
}

fn identify<S: Storage>(raw: &mut Raw<S>, admin: ConnectionId, structure: u8, namespace: u32) -> [u8; 4096] {
    let identify = Command::Identify(Identify { structure, namespace, data: keyed(4096) });
    assert!(raw.command(admin, identify, Some((Access::RemoteWrite, 4096))).status().is_success());
    let mut bytes = [0; 4096];
    raw.data.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn hosts_are_told_of_it_where_every_namespace_can() {
    let mut raw = one_core();
    let (admin, _) = raw.io_queue();
    let bytes = identify(&mut raw, admin, cns::CONTROLLER, 0);
    let controller = IdentifyController::read_from_bytes(&bytes).unwrap();
    assert_eq!(controller.fused_operations.get(), IdentifyController::COMPARE_AND_WRITE);
    assert_eq!(u32::from(controller.compare_and_write_unit.get()) + 1, MOST);
    let bytes = identify(&mut raw, admin, cns::NAMESPACE, 1);
    let namespace = IdentifyNamespace::read_from_bytes(&bytes).unwrap();
    assert_eq!(namespace.features & IdentifyNamespace::OWN_ATOMIC_UNITS, IdentifyNamespace::OWN_ATOMIC_UNITS);
    assert_eq!(u32::from(namespace.compare_and_write_unit.get()) + 1, MOST);
    // Storages that cannot: nothing is said, and what is fused all the same is refused for that.
    let mut raw = Raw::default();
    let (admin, io) = raw.io_queue();
    let bytes = identify(&mut raw, admin, cns::CONTROLLER, 0);
    let controller = IdentifyController::read_from_bytes(&bytes).unwrap();
    assert_eq!((controller.fused_operations.get(), controller.compare_and_write_unit.get()), (0, 0));
    let bytes = identify(&mut raw, admin, cns::NAMESPACE, 1);
    assert_eq!(IdentifyNamespace::read_from_bytes(&bytes).unwrap().features, 0);
    for entry in [first(range(0, 1)), second(range(0, 1))] {
        let response = raw.exchange(io, entry, Some((Access::RemoteRead, BLOCK)));
        assert_eq!(response.status(), Status::INVALID_FIELD.do_not_retry());
    }
}

#[test]
fn a_first_one_that_waits_can_be_aborted_and_goes_with_its_queue() {
    let mut raw = one_core();
    let (admin, controller) = raw.controller();
    let io = raw.another_queue(controller, 1);
    fill(&mut raw, 0, 9);
    raw.responses.clear();
    send(&mut raw, io, 40, first(range(0, 1)), EXPECTED);
    raw.steps(5);
    let abort = Command::Abort(Abort { queue_id: 1, command_id: 40 });
    raw.send(admin, abort.encode(41).unwrap(), None);
    let mut found = answers(&mut raw, 2);
    found.sort_unstable();
    assert_eq!(found, [(40, Status::COMMAND_ABORT_REQUESTED.code()), (41, 0)]);
    // The connection ends between the two; the second one comes by the next one.
    send(&mut raw, io, 42, first(range(0, 1)), EXPECTED);
    raw.steps(5);
    raw.engine.disconnect(io);
    raw.until("ended", |raw| raw.disconnected.contains(&io));
    let io = raw.another_queue(controller, 1);
    raw.responses.clear();
    send(&mut raw, io, 43, second(range(0, 1)), WRITTEN);
    assert_eq!(answers(&mut raw, 1), [(43, Status::ABORTED_MISSING_FUSED.code())]);
    assert_eq!(read(&mut raw, io, 0), 0);
    assert_eq!(pair(&mut raw, io, range(0, 1), 3), BOTH);
    // A target that ends answers it.
    raw.responses.clear();
    send(&mut raw, io, 44, first(range(0, 1)), EXPECTED);
    raw.steps(5);
    raw.shut_down();
}

#[test]
fn a_pair_that_a_drain_comes_between_can_go_another_way() {
    let mut raw = one_core();
    let (_, io) = raw.io_queue();
    fill(&mut raw, 0, 9);
    raw.responses.clear();
    send(&mut raw, io, 40, first(range(0, 1)), EXPECTED);
    raw.steps(5);
    raw.target.drain(None, Duration::ZERO).unwrap();
    send(&mut raw, io, 41, second(range(0, 1)), WRITTEN);
    let refused = Status::ANA_INACCESSIBLE.code();
    assert_eq!(answers(&mut raw, 2), [(40, refused), (41, refused)]);
    let [one, other] = pair(&mut raw, io, range(0, 1), 0);
    assert_eq!((one.code(), other.code()), (refused, refused));
    raw.shut_down();
}

#[test]
fn a_pair_in_a_queue_that_is_full_goes_on_when_others_have_ended() {
    let (mut raw, switch) = cores(target_options());
    let (_, io) = raw.io_queue();
    fill(&mut raw, 0, 9);
    raw.responses.clear();
    switch.gate.set(Gate::Running);
    let normal = Command::Read(range(9, 1)).encode(0).unwrap();
    // With the first one as many as the queue has entries.
    for id in 0..32 {
        send(&mut raw, io, id, normal, WRITTEN + 4096);
    }
    send(&mut raw, io, 50, first(range(0, 1)), EXPECTED);
    raw.steps(20);
    assert!(raw.responses.is_empty());
    switch.gate.set(Gate::Open);
    assert_eq!(answers(&mut raw, 32).len(), 32);
    send(&mut raw, io, 51, second(range(0, 1)), WRITTEN);
    assert_eq!(answers(&mut raw, 2), [(50, 0), (51, 0)]);
    raw.shut_down();
}

#[test]
fn a_queue_that_ends_under_a_pair_leaves_nothing() {
    for steps in 0..12 {
        let (mut raw, switch) = cores(target_options());
        let (_, controller) = raw.controller();
        let io = raw.another_queue(controller, 1);
        fill(&mut raw, 0, 9);
        switch.gate.set(if steps % 2 == 0 { Gate::Open } else { Gate::Running });
        send(&mut raw, io, 1, first(range(0, 1)), EXPECTED);
        send(&mut raw, io, 2, second(range(0, 1)), WRITTEN);
        raw.steps(steps);
        raw.engine.disconnect(io);
        raw.steps(30);
        switch.gate.set(Gate::Open);
        raw.until("ended", |raw| raw.disconnected.contains(&io));
        let io = raw.another_queue(controller, 1);
        // As a whole, or not at all.
        assert!([0, 9].contains(&read(&mut raw, io, 0)), "{steps}");
        raw.shut_down();
    }
}

/// What a queue of the model is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    /// It has asked for the number.
    Reads,
    /// It counts on from this.
    Counts(u8),
    /// Half of the pair was sent.
    Half(u8),
}

#[test]
fn counters_of_many_queues_on_many_cores_lose_no_count() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let (mut raw, _) = cores(target_options().cores(3).io_queues(2).controllers(3));
        let controllers: Vec<u16> = (0..3).map(|_| raw.controller().1).collect();
        let mut queues = Vec::new();
        for controller in controllers {
            queues.extend([1, 2].map(|id| raw.another_queue_of(&connect_data(controller), id)));
        }
        let mut does = vec![Does::Nothing; queues.len()];
        let place = |queue: usize| 4096 * (queue as u64 + 1);
        let (mut counted, mut refused, mut identifier) = (0_u32, 0_u32, 100_u16);
        let mut asked: BTreeMap<u16, (usize, bool)> = BTreeMap::new();
        raw.responses.clear();
        while counted < 60 || does.iter().any(|does| *does != Does::Nothing) {
            for queue in 0..queues.len() {
                if random.one_in(2) {
                    continue;
                }
                match does[queue] {
                    Does::Nothing if counted < 60 => {
                        identifier += 1;
                        asked.insert(identifier, (queue, false));
                        does[queue] = Does::Reads;
                        send(
                            &mut raw,
                            queues[queue],
                            identifier,
                            Command::Read(range(3, 1)).encode(0).unwrap(),
                            place(queue),
                        );
                    }
                    Does::Counts(found) => {
                        identifier += 1;
                        raw.data.fill(place(queue) as usize, BLOCK as usize, found).unwrap();
                        raw.data.fill(place(queue) as usize + 512, BLOCK as usize, found + 1).unwrap();
                        send(&mut raw, queues[queue], identifier, first(range(3, 1)), place(queue));
                        does[queue] = Does::Half(found);
                    }
                    Does::Half(_) => {
                        identifier += 1;
                        asked.insert(identifier, (queue, true));
                        send(&mut raw, queues[queue], identifier, second(range(3, 1)), place(queue) + 512);
                        does[queue] = Does::Reads;
                    }
                    _ => {}
                }
            }
            raw.steps(random.below(3) as usize);
            raw.step();
            for response in std::mem::take(&mut raw.responses) {
                let Some((queue, is_write)) = asked.remove(&response.command_id.get()) else { continue };
                if is_write {
                    let status = response.status();
                    does[queue] = Does::Nothing;
                    if status.is_success() {
                        counted += 1;
                    } else {
                        assert_eq!(status.code(), Status::ABORTED_FAILED_FUSED.code());
                        refused += 1;
                    }
                } else {
                    let mut found = [0];
                    raw.data.read(place(queue) as usize, &mut found).unwrap();
                    does[queue] = Does::Counts(found[0]);
                }
            }
        }
        assert_eq!(u32::from(read(&mut raw, queues[0], 3)), counted, "seed {seed}");
        assert!(refused > 0, "they met at the same number, seed {seed}");
        raw.shut_down();
    }
}
