//! What was asked of all hosts, what every block must hold, and what memory is meant to be open.

use super::block::Block;
use super::desk::{Desk, Kind, Pending};
use super::effects::Effects;
use frwr_nvmf::{
    host::{HostCompletion, IoError},
    storage::Geometry,
    wire::Status,
};
use frwr_support::Random;

/// What a seed asks for: how likely each kind of request is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// By [`Kind::ALL`].
    pub(super) weights: [u64; Kind::ALL.len()],
    /// Blocks of the largest request.
    pub(super) blocks: u64,
}

/// Of so many reads and writes one asks for Force Unit Access.
const FORCED: u64 = 4;

/// The model that every completion is compared with.
pub(super) struct Ledger {
    geometry: Geometry,
    blocks: Vec<Block>,
    /// By host.
    pub(super) desks: Vec<Desk>,
    next_version: u32,
    /// Counts what ends.
    now: u64,
    /// Power cuts so far.
    power_cuts: u32,
    /// What has ended needs no flush.
    write_through: bool,
    expected: Vec<u8>,
}

impl Ledger {
    /// A model of blocks that hold zeros.
    pub(super) fn new(geometry: Geometry, write_through: bool) -> Self {
        Self {
            geometry,
            blocks: vec![Block::new(); geometry.blocks() as usize],
            desks: Vec::new(),
            next_version: 1,
            now: 1,
            power_cuts: 0,
            write_through,
            expected: Vec::new(),
        }
    }

    /// Nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.desks.iter().all(|desk| desk.in_flight() == 0)
    }

    /// Draws a request, and prepares its memory. `None` where another one is in its way, or its desk is full.
    ///
    /// # Errors
    /// Its memory had changed although nobody used it.
    pub(super) fn prepare(
        &mut self,
        desk: usize,
        random: &mut Random,
        work: &Work,
    ) -> Result<Option<(u64, Pending)>, String> {
        let total = self.geometry.blocks();
        let kind = random.weighted(&work.weights).map_or(Kind::Read, |at| Kind::ALL[at]);
        let blocks = (1 + random.below(work.blocks)).min(total);
        let lba = random.below(total - blocks + 1);
        let range = &self.blocks[lba as usize..(lba + blocks) as usize];
        if kind != Kind::Flush && range.iter().any(|block| block.written || (kind.changes() && block.readers > 0)) {
            return Ok(None);
        }
        // Half of all compares are of what the blocks hold.
        let version = match kind {
            Kind::WriteZeroes | Kind::Deallocate => 0,
            Kind::Compare if random.one_in(2) => range[0].versions()[0],
            _ => self.next_version,
        };
        self.prepared(desk, kind, lba, blocks, version, random)
    }

    /// The same for one read of one block.
    ///
    /// # Errors
    /// As [`Ledger::prepare`].
    pub(super) fn prepare_read(
        &mut self,
        desk: usize,
        lba: u64,
        random: &mut Random,
    ) -> Result<Option<(u64, Pending)>, String> {
        if self.blocks[lba as usize].written { Ok(None) } else { self.prepared(desk, Kind::Read, lba, 1, 0, random) }
    }

    fn prepared(
        &mut self,
        desk: usize,
        kind: Kind,
        lba: u64,
        blocks: u64,
        version: u32,
        random: &mut Random,
    ) -> Result<Option<(u64, Pending)>, String> {
        let (lba, blocks) = if kind == Kind::Flush { (0, 0) } else { (lba, blocks) };
        let block_bytes = self.geometry.block_bytes() as usize;
        let forced = matches!(kind, Kind::Read | Kind::Write) && random.one_in(FORCED);
        let (since, power_cuts) = (self.now, self.power_cuts);
        let pending = Pending { kind, forced, lba, blocks, version, since, power_cuts, turn: 0 };
        self.desks[desk].prepare(pending, block_bytes, random)
    }

    /// The request of [`Ledger::prepare`] was taken.
    pub(super) fn submitted(&mut self, desk: usize, cookie: u64, pending: Pending) {
        self.next_version += 1;
        for block in &mut self.blocks[pending.range()] {
            block.readers += u32::from(!pending.kind.changes());
            block.written |= pending.kind.changes();
        }
        self.desks[desk].submitted(cookie, pending);
    }

    /// A request ended.
    ///
    /// # Errors
    /// It had ended before or never begun, failed for no reason, or said or read what is not so.
    pub(super) fn completed(
        &mut self,
        desk: usize,
        completion: HostCompletion,
        explained: Effects,
    ) -> Result<(), String> {
        let HostCompletion { cookie, result } = completion;
        let pending = self.desks[desk].ended(cookie)?;
        self.now += 1;
        let failed = |error: &dyn core::fmt::Display| format!("request {cookie} {pending:?} failed: {error}");
        let differs = result == Err(IoError::Status(Status::COMPARE_FAILURE.do_not_retry()));
        match result {
            Ok(()) => {}
            Err(_) if differs && pending.kind == Kind::Compare => {}
            Err(IoError::Status(_)) if explained.contains(Effects::ERRORS) => {}
            Err(IoError::TimedOut) if explained.contains(Effects::TIME_OUTS) => {}
            Err(IoError::Aborted) if explained.contains(Effects::ABORTS) => {}
            Err(IoError::Unanswered { .. }) if explained.contains(Effects::ENDS) => {}
            Err(error) => return Err(failed(&error)),
        }
        if pending.kind == Kind::Compare && (result.is_ok() || differs) {
            self.check_compare(&pending, result.is_ok())?;
        }
        self.settle(&pending, result.is_ok());
        if pending.kind == Kind::Read && result.is_ok() {
            return self.check_read(desk, cookie, &pending);
        }
        self.desks[desk].check_memory(cookie, pending.kind == Kind::Read)
    }

    /// What a request did to its blocks.
    fn settle(&mut self, pending: &Pending, succeeded: bool) {
        let now = self.now;
        // The answer may have been on its way when the power went, and what it says was lost with that.
        let holds = succeeded && pending.power_cuts == self.power_cuts;
        if pending.kind == Kind::Flush && succeeded {
            self.blocks.iter_mut().for_each(|block| block.flushed(pending.since));
        }
        for block in &mut self.blocks[pending.range()] {
            match pending.kind {
                Kind::Write | Kind::WriteZeroes if holds => block.is(pending.version, now),
                // It may do nothing, or what it should.
                Kind::Write | Kind::WriteZeroes | Kind::Deallocate => block.may_be(pending.version),
                Kind::Read | Kind::Compare | Kind::Flush => block.readers -= 1,
            }
            if pending.kind.changes() {
                block.written = false;
                if self.write_through || (pending.forced && holds) {
                    block.forget_former();
                }
            }
        }
    }

    fn check_compare(&mut self, pending: &Pending, equal: bool) -> Result<(), String> {
        let blocks = &mut self.blocks[pending.range()];
        let version = pending.version;
        let may_equal = blocks.iter().all(|block| block.versions().contains(&version));
        let must_equal = blocks.iter().all(|block| block.versions() == [version]);
        if (equal && !may_equal) || (!equal && must_equal) {
            return Err(format!("{pending:?} found them equal: {equal}; they are {blocks:?}"));
        }
        if equal && pending.power_cuts == self.power_cuts {
            blocks.iter_mut().for_each(|block| block.was_found(version));
        }
        Ok(())
    }

    fn check_read(&mut self, desk: usize, cookie: u64, pending: &Pending) -> Result<(), String> {
        let length = self.geometry.block_bytes() as usize;
        self.expected.resize(length, 0);
        let found = self.desks[desk].take_read(cookie, pending, length)?;
        for (lba, found) in (pending.lba..).zip(found.chunks_exact(length)) {
            let block = &mut self.blocks[lba as usize];
            let known = block.versions().iter().copied().find(|&version| {
                super::desk::fill(&mut self.expected, lba, version);
                self.expected == found
            });
            let Some(version) = known else {
                let begins = &found[..16];
                return Err(format!(
                    "block {lba} is none of the versions {:?}; it begins with {begins:x?}; {pending:?}",
                    block.versions()
                ));
            };
            // A power cut in between may have changed it since.
            if pending.power_cuts == self.power_cuts {
                block.was_found(version);
                if pending.forced {
                    block.is_durable(version, self.now);
                }
            }
        }
        Ok(())
    }

    /// The disk lost its power.
    pub(super) fn lost_power(&mut self) {
        self.power_cuts += 1;
        self.blocks.iter_mut().for_each(Block::lost_power);
    }

    /// A host's program is gone: what was in flight may still be executed until its next session is there ([`Ledger::exorcise`]).
    pub(super) fn haunted(&mut self, desk: usize) {
        for pending in self.desks[desk].abandon() {
            if !pending.kind.changes() {
                self.settle(&pending, false);
            }
        }
    }

    /// A host has a session: nothing of its former program is executed any more.
    pub(super) fn exorcise(&mut self, desk: usize) {
        for pending in self.desks[desk].exorcise() {
            self.settle(&pending, false);
        }
    }

    /// Blocks that the power could still change, of which the model knows that they are durable: none where all is flushed.
    pub(super) fn blocks(&self) -> u64 {
        self.geometry.blocks()
    }
}
