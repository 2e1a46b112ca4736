//! The conformance suite of storages, tried itself: a storage that keeps every promise, and one for
//! each way to break one.

use core::{task::Waker, time::Duration};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::{
    conformance::{Medium, Only, PROMISES, Suite},
    storage::{
        AttachError, Completion, CompletionBatch, Cookie, Features, Geometry, MemoryStorage, Operation, QueueFull,
        ResizeError, Storage, StorageError, StorageStatistics,
    },
};
use frwr_support::storage_harness::memory;
use std::{cell::RefCell, collections::VecDeque, rc::Rc};

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;
/// Operations at a time.
const DEPTH: usize = 12;
/// Blocks of one compare and write.
const COMPARED: u32 = 8;
/// Polls until an operation that never ends is said to; none of these takes more than a few.
const PATIENCE: u64 = 1000;

/// What is wrong with a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    BlocksWrapAround,
    LastBlockRefused,
    NoBlocksRefused,
    MovesThePartThatFits,
    RoundsBuffersDown,
    TakesAnotherMemory,
    MixesRunsUp,
    TearsOneOfTwo,
    ForgetsAtItsEnd,
    ZeroesOneMore,
    ZeroesOneLess,
    DeallocatesOneMore,
    DoesWhatItDoesNotOffer,
    ComparesNothing,
    ComparesEarly,
    WritesWhatWasFound,
    CompletesTwice,
    LosesFailures,
    TakesWhatItRefuses,
    KeepsPlaces,
    ClearsTheBatch,
    MiscountsTheBatch,
    SpeaksUnasked,
    ChangesItsMind,
    Miscounts,
    DoesWhatWasTakenBack,
    TakesAnotherOneBack,
    WakesNobody,
    ReadsAnOldCopy,
    FlushesNothing,
    FlushesItsOwn,
    PromisesTooMuch,
    ForgetsThatAFlushFailed,
    WritesReadOnly,
    CallsFullBroken,
    ReadsZerosBehindACut,
    ReadsBehindItsEnd,
    HasWhatIsNotThere,
    ZeroesWhatItHasNot,
    WaitsForWhoIsGone,
    RunsOnWhenDropped,
}

/// Of a disk with a volatile cache.
struct Disk {
    fault: Fault,
    /// What reads find; what is left without power; by block.
    current: Vec<[u8; BLOCK]>,
    durable: Vec<[u8; BLOCK]>,
    /// Which way changed a block since it was durable, if any.
    dirty: Vec<Option<usize>>,
    /// Blocks that were written ever.
    written: Vec<bool>,
    /// Fewer where it was cut.
    whole: u64,
    ways: usize,
    fails: bool,
    lost: bool,
    full: bool,
    /// A way was dropped with something to do.
    ended: bool,
    /// What runs on though nobody asks any more.
    late: Vec<(Operation, DeviceMemory)>,
}

impl Disk {
    fn new(fault: Fault) -> Self {
        let blocks = vec![[7; BLOCK]; BLOCKS as usize];
        Self {
            fault,
            durable: blocks.clone(),
            dirty: vec![None; blocks.len()],
            written: vec![false; blocks.len()],
            current: blocks,
            whole: BLOCKS,
            ways: 0,
            fails: false,
            lost: false,
            full: false,
            ended: false,
            late: Vec::new(),
        }
    }

    fn change(&mut self, block: usize, bytes: [u8; BLOCK], way: usize) -> Result<(), StorageError> {
        if self.full && !self.written[block] {
            return Err(if self.fault == Fault::CallsFullBroken {
                StorageError::Medium
            } else {
                StorageError::NoSpace
            });
        }
        (self.current[block], self.dirty[block], self.written[block]) = (bytes, Some(way), true);
        Ok(())
    }

    fn flush(&mut self, way: usize) -> Result<(), StorageError> {
        if self.fails {
            self.lost |= self.fault != Fault::ForgetsThatAFlushFailed;
            // Counted as written from then on.
            self.dirty.fill(None);
        }
        if self.fails || self.lost {
            return Err(StorageError::Medium);
        }
        for block in 0..self.dirty.len() {
            let own = self.fault != Fault::FlushesItsOwn || self.dirty[block] == Some(way);
            if self.dirty[block].is_some() && own && self.fault != Fault::FlushesNothing {
                (self.durable[block], self.dirty[block]) = (self.current[block], None);
            }
        }
        Ok(())
    }
}

/// One way to it.
struct Way {
    disk: Rc<RefCell<Disk>>,
    number: usize,
    fault: Fault,
    geometry: Geometry,
    read_only: bool,
    buffers: Option<DeviceMemory>,
    queue: VecDeque<(Cookie, Operation)>,
    started: usize,
    waker: Option<Waker>,
    /// Who sleeps now is woken for what is under way, which the next poll but one ends.
    armed: bool,
    woke: bool,
    statistics: StorageStatistics,
    /// Operations that were done at once, so far.
    done: u64,
    /// Whether what was expected was there when they were submitted.
    early: Vec<(Cookie, bool)>,
    /// What the first way to it read once.
    copy: Option<Vec<[u8; BLOCK]>>,
}

impl Way {
    fn new(disk: &Rc<RefCell<Disk>>, read_only: bool) -> Self {
        let mut inner = disk.borrow_mut();
        for (operation, buffers) in core::mem::take(&mut inner.late) {
            let Operation::Write { lba, blocks, buffer } = operation else { continue };
            for step in 0..blocks as usize {
                let mut bytes = [0; BLOCK];
                buffers.read(buffer + step * BLOCK, &mut bytes).unwrap();
                inner.change(lba as usize + step, bytes, 0).unwrap();
            }
        }
        inner.ways += 1;
        let copy = (inner.fault == Fault::ReadsAnOldCopy && inner.ways == 2).then(|| inner.current.clone());
        Self {
            disk: Rc::clone(disk),
            number: inner.ways,
            fault: inner.fault,
            geometry: Geometry::new(inner.current.len() as u64, BLOCK as u32).unwrap(),
            read_only,
            buffers: None,
            queue: VecDeque::new(),
            started: 0,
            waker: None,
            armed: false,
            woke: false,
            statistics: StorageStatistics::default(),
            done: 0,
            early: Vec::new(),
            copy,
        }
    }

    /// What it is about once everything was checked.
    fn check(&self, operation: Operation) -> Result<(u64, u32), StorageError> {
        let (lba, blocks) = operation.blocks().unwrap_or((0, 1));
        let all = self.geometry.blocks();
        if self.fault == Fault::NoBlocksRefused && blocks == 0 {
            return Err(StorageError::LbaOutOfRange);
        }
        if self.fault == Fault::LastBlockRefused && lba.checked_add(blocks.into()) == Some(all) {
            return Err(StorageError::LbaOutOfRange);
        }
        let lba = if self.fault == Fault::BlocksWrapAround { lba % (1 << (u64::BITS - 9)) } else { lba };
        if self.read_only && operation.changes() && self.fault != Fault::WritesReadOnly {
            return Err(StorageError::ReadOnly);
        }
        let ends = self.fault != Fault::ReadsBehindItsEnd || all == BLOCKS;
        if ends {
            self.geometry.extent(lba, blocks)?;
        } else {
            Geometry::new(BLOCKS, BLOCK as u32).unwrap().extent(lba, blocks)?;
        }
        let (buffer, parts) = match operation {
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => (buffer, 1),
            Operation::CompareAndWrite { buffer, .. } if blocks <= COMPARED => (buffer, 3),
            Operation::CompareAndWrite { .. } => return Err(StorageError::Unsupported),
            _ => return Ok((lba, blocks)),
        };
        let buffers = self.buffers.as_ref().ok_or(StorageError::BufferOutOfRange)?;
        if self.fault != Fault::MovesThePartThatFits {
            let bytes = parts * blocks as usize * BLOCK;
            buffers.slice(buffer, bytes).map_err(|_| StorageError::BufferOutOfRange)?;
        }
        Ok((lba, blocks))
    }

    /// A block in the buffers.
    fn at(&self, buffer: usize, step: usize) -> usize {
        let buffer = if self.fault == Fault::RoundsBuffersDown { buffer & !63 } else { buffer };
        buffer.wrapping_add(step * BLOCK)
    }

    /// The blocks are as a compare and write expects them.
    fn is_expected(&self, operation: Operation) -> bool {
        let Operation::CompareAndWrite { lba, blocks, buffer } = operation else { return true };
        let (disk, Some(buffers)) = (self.disk.borrow(), &self.buffers) else { return false };
        (0..blocks as usize).all(|step| {
            let mut bytes = [0; BLOCK];
            let read = buffers.read(self.at(buffer, step), &mut bytes);
            read.is_ok() && disk.current.get(lba as usize + step) == Some(&bytes)
        })
    }

    /// The write of a compare and write that found what it expected.
    fn write_of(&self, cookie: Cookie, operation: Operation) -> Result<Operation, StorageError> {
        let Operation::CompareAndWrite { lba, blocks, buffer } = operation else { return Ok(operation) };
        self.check(operation)?;
        let early = self.early.iter().rev().find(|(of, _)| *of == cookie).is_some_and(|(_, expected)| *expected);
        let expected = match self.fault {
            Fault::ComparesNothing => true,
            Fault::ComparesEarly => early,
            // It believes in the write that came between.
            Fault::WritesWhatWasFound if early => true,
            _ => self.is_expected(operation),
        };
        let written = Operation::Write { lba, blocks, buffer: buffer + blocks as usize * BLOCK };
        if expected { Ok(written) } else { Err(StorageError::Miscompare) }
    }

    fn execute(&mut self, operation: Operation) -> Result<(), StorageError> {
        if operation == Operation::Flush {
            return self.disk.borrow_mut().flush(self.number);
        }
        if matches!(operation, Operation::Deallocate { .. })
            && !self.features().deallocate
            && self.fault != Fault::DoesWhatItDoesNotOffer
        {
            return Err(StorageError::Unsupported);
        }
        let (lba, blocks) = self.check(operation)?;
        let mut disk = self.disk.borrow_mut();
        let more = match operation {
            Operation::WriteZeroes { .. } if self.fault == Fault::ZeroesOneMore => 1,
            Operation::WriteZeroes { .. } if self.fault == Fault::ZeroesOneLess && blocks > 1 => -1,
            Operation::Deallocate { .. } if self.fault == Fault::DeallocatesOneMore => 1,
            _ => 0,
        };
        let buffers = self.buffers.as_ref().ok_or(StorageError::BufferOutOfRange)?;
        for step in 0..blocks.saturating_add_signed(more) as usize {
            let mut block = lba as usize + step;
            if self.fault == Fault::MixesRunsUp && step == 2 {
                block -= 1;
            }
            let Some(found) = disk.current.get(block).copied() else { continue };
            let cut = block as u64 >= disk.whole;
            if cut && self.fault != Fault::ReadsZerosBehindACut {
                return Err(StorageError::Medium);
            }
            match operation {
                Operation::Read { buffer, .. } => {
                    let copy = self.copy.as_ref().map(|copy| copy[block]);
                    let bytes = if cut { [0; BLOCK] } else { copy.unwrap_or(found) };
                    buffers.write(self.at(buffer, step), &bytes).map_err(|_| StorageError::BufferOutOfRange)?;
                }
                Operation::Write { buffer, .. } => {
                    let mut bytes = found;
                    let half = if self.fault == Fault::TearsOneOfTwo && self.done % 2 == 1 { BLOCK / 2 } else { BLOCK };
                    buffers
                        .read(self.at(buffer, step), &mut bytes[..half])
                        .map_err(|_| StorageError::BufferOutOfRange)?;
                    disk.change(block, bytes, self.number)?;
                }
                _ => disk.change(block, [0; BLOCK], self.number)?,
            }
        }
        Ok(())
    }
}

impl Storage for Way {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn features(&self) -> Features {
        let write_zeroes = self.fault != Fault::ChangesItsMind || self.done < 3;
        Features::default()
            .write_zeroes(write_zeroes)
            .deallocate(self.fault != Fault::DoesWhatItDoesNotOffer)
            .read_only(self.read_only)
            .write_through(self.fault == Fault::PromisesTooMuch)
            .compare_and_write(if self.read_only { 0 } else { COMPARED })
    }

    fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        let geometry = Geometry::new(blocks, BLOCK as u32)?;
        let limit = self.disk.borrow().current.len() as u64;
        if blocks > limit && self.fault != Fault::HasWhatIsNotThere {
            return Err(ResizeError::Medium { blocks, limit });
        }
        if self.fault == Fault::ZeroesWhatItHasNot {
            self.disk.borrow_mut().current[blocks as usize..].fill([0; BLOCK]);
        }
        self.geometry = geometry;
        Ok(())
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        if self.buffers.is_some() && self.fault != Fault::TakesAnotherMemory {
            return Err(AttachError::Twice);
        }
        self.buffers = Some(buffers);
        Ok(())
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        let kept = if self.fault == Fault::KeepsPlaces { self.statistics.failed as usize } else { 0 };
        if self.queue.len() + kept >= DEPTH {
            if self.fault == Fault::TakesWhatItRefuses {
                self.queue.push_back((cookie, operation));
            }
            return Err(QueueFull);
        }
        self.early.push((cookie, self.is_expected(operation)));
        self.queue.push_back((cookie, operation));
        self.statistics.submitted += 1;
        Ok(())
    }

    fn cancel(&mut self, cookie: Cookie) -> bool {
        let mut waiting = (self.started..self.queue.len()).filter(|at| self.queue[*at].0 == cookie);
        let Some(at) = waiting.next() else { return false };
        self.statistics.cancelled += 1;
        match self.fault {
            Fault::DoesWhatWasTakenBack => {
                let (_, operation) = self.queue.remove(at).unwrap();
                let _ = self.execute(operation);
            }
            Fault::TakesAnotherOneBack => drop(self.queue.remove(self.started)),
            _ => drop(self.queue.remove(at)),
        }
        true
    }

    fn flush(&mut self) {
        self.started = self.queue.len();
    }

    fn poll(&mut self, _: Duration, out: &mut CompletionBatch) -> usize {
        let before = out.len();
        if self.fault == Fault::ClearsTheBatch && self.started > 0 {
            out.clear();
        }
        if self.fault == Fault::WaitsForWhoIsGone && self.disk.borrow().ended {
            return 0;
        }
        if self.fault == Fault::SpeaksUnasked && self.done == 0 && self.queue.is_empty() {
            out.push(Completion { cookie: Cookie(0), result: Ok(()) });
        }
        if self.started > 0 && core::mem::take(&mut self.armed) && !core::mem::replace(&mut self.woke, true) {
            self.waker.iter().filter(|_| self.fault != Fault::WakesNobody).for_each(Waker::wake_by_ref);
            return 0;
        }
        self.woke = false;
        while self.started > 0 && !out.is_full() {
            // The latest of what is under way first, so that there is no order to rely on.
            let Some((cookie, operation)) = self.queue.remove(self.started - 1) else { break };
            self.started -= 1;
            self.done += 1;
            let result = self.write_of(cookie, operation).and_then(|operation| self.execute(operation));
            self.statistics.completed += 1;
            self.statistics.failed += u64::from(result.is_err() && self.fault != Fault::Miscounts);
            if result.is_ok() || self.fault != Fault::LosesFailures {
                out.push(Completion { cookie, result });
            }
            if self.fault == Fault::CompletesTwice && self.done.is_multiple_of(8) && !out.is_full() {
                out.push(Completion { cookie, result });
            }
        }
        out.len().saturating_sub(before) + usize::from(self.fault == Fault::MiscountsTheBatch && out.len() > before)
    }

    fn wakes(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    fn arm(&mut self) -> bool {
        self.armed = self.waker.is_some() && self.started == self.queue.len();
        self.armed
    }

    fn statistics(&self) -> StorageStatistics {
        self.statistics
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let mut disk = self.disk.borrow_mut();
        disk.ended |= !self.queue.is_empty();
        if self.fault == Fault::ForgetsAtItsEnd {
            disk.current.fill([9; BLOCK]);
        }
        if self.fault == Fault::RunsOnWhenDropped {
            let buffers = self.buffers.clone().unwrap();
            disk.late = self.queue.drain(..).map(|(_, operation)| (operation, buffers.clone())).collect();
        }
    }
}

/// A disk in the hands of the suite.
struct Rack(Rc<RefCell<Disk>>);

impl Medium for Rack {
    fn open(&mut self) -> Option<Box<dyn Storage>> {
        let mut disk = self.0.borrow_mut();
        (disk.lost, disk.ways) = (false, 0);
        drop(disk);
        Some(Box::new(Way::new(&self.0, false)))
    }

    fn open_beside(&mut self) -> Option<Box<dyn Storage>> {
        Some(Box::new(Way::new(&self.0, false)))
    }

    fn open_read_only(&mut self) -> Option<Box<dyn Storage>> {
        Some(Box::new(Way::new(&self.0, true)))
    }

    fn lose_power(&mut self) -> bool {
        let mut disk = self.0.borrow_mut();
        disk.current = disk.durable.clone();
        disk.dirty.fill(None);
        true
    }

    fn fail_below(&mut self) -> bool {
        self.0.borrow_mut().fails = true;
        true
    }

    fn mend_below(&mut self) {
        self.0.borrow_mut().fails = false;
    }

    fn fill_up(&mut self) -> bool {
        self.0.borrow_mut().full = true;
        true
    }

    fn cut(&mut self, blocks: u64) -> bool {
        self.0.borrow_mut().whole = blocks;
        true
    }

    fn extend(&mut self, blocks: u64) -> bool {
        let mut disk = self.0.borrow_mut();
        let count = blocks as usize;
        (disk.whole, disk.fault) = (blocks, disk.fault);
        disk.current.resize(count, [7; BLOCK]);
        disk.durable.resize(count, [7; BLOCK]);
        disk.dirty.resize(count, None);
        disk.written.resize(count, false);
        true
    }
}

fn rack(fault: Fault) -> Rack {
    Rack(Rc::new(RefCell::new(Disk::new(fault))))
}

/// Each fault, and a promise that it breaks.
const BROKEN: [(Fault, &str); 42] = [
    (Fault::BlocksWrapAround, "blocks_outside_of_the_namespace_are_refused"),
    (Fault::LastBlockRefused, "the_first_and_the_last_block_are_reached"),
    (Fault::NoBlocksRefused, "a_run_of_no_blocks_moves_nothing"),
    (Fault::MovesThePartThatFits, "buffers_outside_of_the_memory_are_refused"),
    (Fault::RoundsBuffersDown, "a_buffer_may_begin_anywhere_or_is_refused"),
    (Fault::TakesAnotherMemory, "buffers_are_attached_once"),
    (Fault::MixesRunsUp, "written_blocks_are_read_back"),
    (Fault::TearsOneOfTwo, "what_is_in_flight_together_ends_as_one_of_it"),
    (Fault::ForgetsAtItsEnd, "what_was_written_is_there_when_it_is_opened_again"),
    (Fault::ZeroesOneMore, "zeroed_blocks_read_as_zeros"),
    (Fault::ZeroesOneLess, "zeroed_blocks_read_as_zeros"),
    (Fault::DeallocatesOneMore, "deallocated_blocks_are_theirs_alone"),
    (Fault::DoesWhatItDoesNotOffer, "what_is_not_offered_is_refused"),
    (Fault::ComparesNothing, "only_what_was_expected_is_overwritten"),
    (Fault::ComparesEarly, "of_those_that_expect_the_same_one_writes"),
    (Fault::WritesWhatWasFound, "a_write_beside_it_is_in_front_or_behind"),
    (Fault::ComparesEarly, "ways_that_count_lose_nothing"),
    (Fault::CompletesTwice, "every_operation_ends_once"),
    (Fault::LosesFailures, "every_operation_ends_once"),
    (Fault::TakesWhatItRefuses, "a_full_queue_refuses_and_has_room_again"),
    (Fault::KeepsPlaces, "a_full_queue_refuses_and_has_room_again"),
    (Fault::ClearsTheBatch, "a_full_batch_keeps_the_rest"),
    (Fault::MiscountsTheBatch, "a_full_batch_keeps_the_rest"),
    (Fault::SpeaksUnasked, "what_has_nothing_to_do_says_nothing"),
    (Fault::ChangesItsMind, "what_a_storage_is_does_not_change"),
    (Fault::Miscounts, "statistics_count_what_happened"),
    (Fault::DoesWhatWasTakenBack, "what_is_taken_back_never_happens"),
    (Fault::TakesAnotherOneBack, "nothing_else_goes_with_what_is_taken_back"),
    (Fault::WakesNobody, "who_sleeps_is_woken_by_what_ends"),
    (Fault::ReadsAnOldCopy, "what_one_way_wrote_another_one_reads"),
    (Fault::FlushesNothing, "what_was_flushed_survives_a_loss_of_power"),
    (Fault::FlushesItsOwn, "a_flush_covers_what_every_way_wrote"),
    (Fault::PromisesTooMuch, "what_is_written_through_needs_no_flush"),
    (Fault::ForgetsThatAFlushFailed, "no_flush_succeeds_over_what_is_lost"),
    (Fault::WritesReadOnly, "a_read_only_way_changes_nothing"),
    (Fault::CallsFullBroken, "a_full_medium_is_told_as_full"),
    (Fault::ReadsZerosBehindACut, "what_was_cut_off_is_never_read_again"),
    (Fault::ReadsBehindItsEnd, "fewer_blocks_end_where_they_end"),
    (Fault::HasWhatIsNotThere, "more_blocks_are_had_when_the_medium_has_them"),
    (Fault::ZeroesWhatItHasNot, "blocks_are_there_again_when_it_has_them_again"),
    (Fault::WaitsForWhoIsGone, "other_ways_go_on_when_one_is_dropped"),
    (Fault::RunsOnWhenDropped, "a_storage_that_is_dropped_leaves_everything_alone"),
];

#[test]
fn a_storage_that_is_right_breaks_nothing_whatever_is_drawn() {
    for seed in 0..5 {
        let report = Suite::new("right", || rack(Fault::None)).patience(PATIENCE).seed(seed).run();
        report.assert_unbroken();
        // Nothing to ask: it offers everything, and has a cache.
        let rest = ["what_is_not_offered_is_refused", "what_is_written_through_needs_no_flush"];
        assert_eq!(report.not_shown(), rest);
        assert_eq!(report.verdicts().count(), PROMISES.len());
    }
}

#[test]
fn each_promise_is_broken_by_a_storage_that_breaks_it() {
    for (fault, promise) in BROKEN {
        let report = Suite::new("wrong", || rack(fault)).patience(PATIENCE).only(promise).run();
        assert_eq!(report.broken(), [promise], "{fault:?}");
    }
    let unbroken: Vec<_> =
        PROMISES.iter().filter(|promise| BROKEN.iter().all(|(_, name)| *name != promise.name())).collect();
    assert!(unbroken.is_empty(), "no storage breaks {unbroken:?}");
}

#[test]
fn a_broken_promise_fails_a_test_and_says_which() {
    let report = Suite::new("mine", || rack(Fault::ZeroesOneMore)).patience(PATIENCE).run();
    let failed = std::panic::catch_unwind(|| report.assert_unbroken()).unwrap_err();
    let said = failed.downcast_ref::<String>().unwrap();
    assert!(said.contains("mine") && said.contains("zeroed_blocks_read_as_zeros") && said.contains("block "), "{said}");
}

#[test]
fn a_medium_with_one_way_shows_what_can_be_shown_so() {
    let own = || MemoryStorage::new(memory(BLOCKS as usize * BLOCK), BLOCK as u32, DEPTH).unwrap();
    let report = Suite::new("memory", || Only::new(own())).run();
    report.assert_unbroken();
    assert!(report.is_shown("written_blocks_are_read_back") && !report.is_shown("a_flush_covers_what_every_way_wrote"));
    // A namespace that is too small for the suite is told so, not tried.
    let small = || MemoryStorage::new(memory(8 * BLOCK), BLOCK as u32, DEPTH).unwrap();
    let report = Suite::new("small", || Only::new(small())).run();
    assert_eq!(report.broken().len(), PROMISES.len());
    assert!(report.to_string().contains("8 blocks: a medium of the suite has 64 or more"), "{report}");
}

#[test]
fn time_is_what_the_clock_of_a_test_says() {
    /// Memory that completes nothing before noon.
    struct Late(MemoryStorage);
    const NOON: Duration = Duration::from_secs(43_200);
    impl Storage for Late {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
            self.0.attach(buffers)
        }
        fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
            self.0.submit(cookie, operation)
        }
        fn flush(&mut self) {
            self.0.flush();
        }
        fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
            if now < NOON { 0 } else { self.0.poll(now, out) }
        }
    }
    let own = || Only::new(Late(MemoryStorage::new(memory(BLOCKS as usize * BLOCK), BLOCK as u32, DEPTH).unwrap()));
    let one = "written_blocks_are_read_back";
    assert_eq!(Suite::new("late", own).patience(PATIENCE).only(one).run().broken(), [one]);
    let mut hours = 0;
    let clock = move || {
        hours += 1;
        Duration::from_secs(3600 * hours)
    };
    Suite::new("late", own).patience(PATIENCE).only(one).clock(clock).run().assert_unbroken();
}
