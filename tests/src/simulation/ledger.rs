//! What was asked of all hosts, what every block must hold, and what memory is meant to be open.

use super::block::Block;
use super::desk::{Desk, Kind, Pending};
use super::effects::Effects;
use super::pairs::{PairEnd, Race, Races, Wholes};
use super::reservations::Fences;
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

/// Of so many pairs, reads and writes one joins pairs that are under way already, where there are any.
const JOINS: u64 = 2;
/// Of so many requests one is a write while pairs are under way, whatever the weight of writes: half of all seeds have none.
const BESIDE: u64 = 4;
/// Of so many pairs one expects what its blocks never held.
const IN_VAIN: u64 = 4;

/// What a request has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// What it was to do.
    Done,
    /// Nothing: it was not executed.
    Nothing,
    /// Nobody knows.
    Perhaps,
}

/// The way to the namespace was closed.
fn is_closed(result: Result<(), IoError>) -> bool {
    [Status::ANA_INACCESSIBLE, Status::ANA_TRANSITION].into_iter().any(|status| ended_with(result, status))
}

/// A request ended in this way, whatever else its controller says of it.
fn ended_with(result: Result<(), IoError>, status: Status) -> bool {
    matches!(result, Err(IoError::Status(said)) if said.without_flags() == status)
}

/// The model that every completion is compared with.
pub(super) struct Ledger {
    geometry: Geometry,
    blocks: Vec<Block>,
    races: Races,
    wholes: Wholes,
    /// Who may read and write.
    pub(super) fences: Fences,
    /// By host.
    pub(super) desks: Vec<Desk>,
    next_version: u32,
    /// Counts what ends.
    now: u64,
    /// Power cuts so far.
    power_cuts: u32,
    /// Writes that the medium failed so far.
    pub(super) failures: u64,
    /// What has ended needs no flush.
    write_through: bool,
    expected: Vec<u8>,
}

impl Ledger {
    /// A model of blocks that hold zeros. `hosts`: their identifiers. `persists`: as [`Fences::new`].
    pub(super) fn new(geometry: Geometry, write_through: bool, hosts: Vec<[u8; 16]>, persists: bool) -> Self {
        Self {
            geometry,
            blocks: vec![Block::new(); geometry.blocks() as usize],
            races: Races::default(),
            wholes: Wholes::default(),
            fences: Fences::new(hosts, persists),
            desks: Vec::new(),
            next_version: 1,
            now: 1,
            power_cuts: 0,
            failures: 0,
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
        let drawn = random.weighted(&work.weights).map_or(Kind::Read, |at| Kind::ALL[at]);
        let race = self.races.some(random);
        let is_beside = race.is_some() && random.one_in(BESIDE);
        let kind = if is_beside { Kind::Write } else { drawn };
        let race = race.filter(|_| matches!(kind, Kind::Read | Kind::Write));
        let (first, all, most) = match race.filter(|_| is_beside || random.one_in(JOINS)) {
            Some(race) => (race.lba, race.blocks, race.blocks),
            None => (0, total, work.blocks),
        };
        let blocks = (1 + random.below(most)).min(all);
        let lba = first + random.below(all - blocks + 1);
        let range = &self.blocks[lba as usize..(lba + blocks) as usize];
        let is_free = |block: &Block| match kind {
            Kind::Flush => true,
            Kind::Read => !block.written,
            Kind::Write if block.has_pairs() => block.readers == 0 && self.races.takes_write(lba, blocks),
            Kind::Compare => !block.written && !block.has_pairs(),
            _ => block.rests(),
        };
        let has_pairs = range[0].has_pairs();
        if !range.iter().all(|block| is_free(block) && (!kind.changes() || block.has_pairs() == has_pairs)) {
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
        let forced = matches!(kind, Kind::Read | Kind::Write) && random.one_in(FORCED);
        let forced = forced && !self.blocks[lba as usize].has_pairs();
        let pending = Pending { forced, version, ..self.pending(kind, lba, blocks) };
        self.desks[desk].prepare(pending, self.geometry.block_bytes() as usize, random)
    }

    fn pending(&self, kind: Kind, lba: u64, blocks: u64) -> Pending {
        let (since, power_cuts, begun) = (self.now, self.power_cuts, self.fences.clock());
        let (forced, version, expected, sent_again, turn) = (false, 0, 0, 0, 0);
        Pending { kind, forced, lba, blocks, version, expected, begun, sent_again, since, power_cuts, turn }
    }

    /// [`Ledger::prepare`] for a pair of up to so many blocks.
    ///
    /// # Errors
    /// As [`Ledger::prepare`].
    pub(super) fn prepare_pair(
        &mut self,
        desk: usize,
        random: &mut Random,
        most: u64,
    ) -> Result<Option<(u64, Pending)>, String> {
        let race = self.races.some(random).filter(|_| random.one_in(JOINS));
        let (lba, blocks, expected) = match race {
            Some(race) => (race.lba, race.blocks, race.expected),
            None => {
                let total = self.geometry.blocks();
                let blocks = (1 + random.below(most)).min(total);
                let lba = random.below(total - blocks + 1);
                let range = &self.blocks[lba as usize..(lba + blocks) as usize];
                if !range.iter().all(Block::rests) {
                    return Ok(None);
                }
                let found = range[0].versions()[0];
                (lba, blocks, if random.one_in(IN_VAIN) { u32::MAX } else { found })
            }
        };
        let pending = Pending { expected, version: self.next_version, ..self.pending(Kind::Pair, lba, blocks) };
        self.desks[desk].prepare(pending, self.geometry.block_bytes() as usize, random)
    }

    /// [`Ledger::prepare`] for a change of reservations, or a report of them.
    ///
    /// # Errors
    /// As [`Ledger::prepare`].
    pub(super) fn prepare_question(
        &mut self,
        desk: usize,
        kind: Kind,
        random: &mut Random,
    ) -> Result<Option<(u64, Pending)>, String> {
        let pending = self.pending(kind, 0, 0);
        self.desks[desk].prepare(pending, self.geometry.block_bytes() as usize, random)
    }

    /// The request of [`Ledger::prepare`] was taken.
    pub(super) fn submitted(&mut self, desk: usize, cookie: u64, pending: Pending) {
        self.next_version += 1;
        if pending.kind.changes() {
            self.wholes.changed(&pending.range());
        }
        let is_beside = pending.kind == Kind::Write && self.blocks[pending.range()][0].has_pairs();
        if pending.kind == Kind::Pair || is_beside {
            let race = self.races.begun(&pending, self.failures);
            self.blocks[race].iter_mut().filter(|_| is_beside).for_each(Block::write_begins_beside);
        }
        for block in &mut self.blocks[pending.range()] {
            match pending.kind {
                Kind::Pair => block.pair_begins(pending.version),
                kind if kind.changes() => block.written = true,
                _ => block.readers += 1,
            }
        }
        self.desks[desk].submitted(cookie, pending);
    }

    /// A request ended. `sent_again`: commands that its host has sent more than once.
    ///
    /// # Errors
    /// It had ended before or never begun, failed for no reason, or said or read what is not so.
    pub(super) fn completed(
        &mut self,
        desk: usize,
        completion: HostCompletion,
        sent_again: u64,
        explained: Effects,
    ) -> Result<(), String> {
        let HostCompletion { cookie, result } = completion;
        let pending = self.desks[desk].ended(cookie)?;
        self.now += 1;
        let failed = |error: &dyn core::fmt::Display| format!("request {cookie} {pending:?} failed: {error}");
        let host = self.desks[desk].host;
        let differs = ended_with(result, Status::COMPARE_FAILURE);
        let refused = ended_with(result, Status::RESERVATION_CONFLICT);
        let aborted = ended_with(result, Status::COMMAND_ABORT_REQUESTED);
        match result {
            Ok(()) => {}
            Err(_) if differs && matches!(pending.kind, Kind::Compare | Kind::Pair) => {}
            // Looked at below.
            Err(_) if refused && pending.kind != Kind::Report => {}
            Err(_) if ended_with(result, Status::INVALID_FIELD) && pending.kind == Kind::Reserve => {}
            Err(_) if aborted && self.fences.may_be_aborted(host, pending.begun) => {}
            Err(IoError::Undecided)
                if pending.kind == Kind::Pair
                    && (explained.contains(Effects::ENDS) || explained.contains(Effects::TIME_OUTS)) => {}
            // It is sent once: what others wait for is told.
            Err(_) if pending.kind == Kind::Pair && explained.contains(Effects::REPEATS) && is_closed(result) => {}
            Err(IoError::Status(_)) if explained.contains(Effects::ERRORS) => {}
            Err(IoError::TimedOut) if explained.contains(Effects::TIME_OUTS) => {}
            Err(IoError::Aborted) if explained.contains(Effects::ABORTS) => {}
            Err(IoError::Unanswered { .. }) if explained.contains(Effects::ENDS) => {}
            Err(error) => return Err(failed(&error)),
        }
        let again = pending.sent_again != sent_again;
        if pending.kind.is_of_reservations() {
            return self.answered((desk, cookie), pending.kind, result, again, explained);
        }
        let may_pass = self.check_rights(host, &pending, result.is_ok() || differs, refused)?;
        if matches!(pending.kind, Kind::Compare | Kind::Pair) && (result.is_ok() || differs) {
            self.check_compare(&pending, result.is_ok())?;
        }
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(_) if differs && pending.kind == Kind::Pair => Outcome::Done,
            // One that was sent again may have been executed before, and of one of several commands a part.
            Err(_) if refused && (!may_pass || (!again && (pending.blocks == 1 || pending.kind == Kind::Pair))) => {
                Outcome::Nothing
            }
            Err(_) => Outcome::Perhaps,
        };
        if pending.kind == Kind::Read && result.is_ok() {
            self.check_read(desk, cookie, &pending)?;
            self.settle(&pending, outcome);
            return Ok(());
        }
        self.end(&pending, outcome, differs)?;
        self.desks[desk].check_memory(cookie, pending.kind == Kind::Read)
    }

    /// Whether some host may have been let do what a request did, where it went on, or was refused.
    ///
    /// # Errors
    /// It may not.
    fn check_rights(&self, host: usize, pending: &Pending, went_on: bool, refused: bool) -> Result<bool, String> {
        let (writes, begun) = (pending.kind.writes(), pending.begun);
        let may_pass = self.fences.may_pass(host, writes, begun);
        if went_on && !may_pass {
            let known = self.fences.describe();
            return Err(format!("host {host} is shut out, and went on with {pending:?}: {known}"));
        }
        if refused && !self.fences.may_be_refused(host, writes, begun) {
            let known = self.fences.describe();
            return Err(format!("host {host} may do it, and was refused {pending:?}: {known}"));
        }
        Ok(may_pass)
    }

    /// What a request did to its blocks.
    fn settle(&mut self, pending: &Pending, outcome: Outcome) {
        let now = self.now;
        let succeeded = outcome == Outcome::Done;
        // The answer may have been on its way when the power went, and what it says was lost with that.
        let holds = succeeded && pending.power_cuts == self.power_cuts;
        if pending.kind == Kind::Flush && succeeded {
            self.blocks.iter_mut().for_each(|block| block.flushed(pending.since));
        }
        for block in &mut self.blocks[pending.range()] {
            match pending.kind {
                Kind::Write | Kind::WriteZeroes | Kind::Deallocate if outcome == Outcome::Nothing => {}
                Kind::Write | Kind::WriteZeroes if holds => block.is(pending.version, now),
                // It may do nothing, or what it should.
                Kind::Write | Kind::WriteZeroes | Kind::Deallocate => block.may_be(pending.version),
                Kind::Read | Kind::Compare | Kind::Flush => block.reader_ends(),
                // These have ends of their own.
                Kind::Pair | Kind::Reserve | Kind::Report => {}
            }
            if pending.kind.changes() {
                block.written = false;
                if self.write_through || (pending.forced && holds) {
                    block.forget_former();
                }
            }
        }
    }

    /// A request ended.
    ///
    /// # Errors
    /// It is one of several that cannot all have ended so.
    fn end(&mut self, pending: &Pending, outcome: Outcome, differs: bool) -> Result<(), String> {
        let race = match pending.kind {
            Kind::Pair => {
                let end = match outcome {
                    Outcome::Done if differs => PairEnd::Differs,
                    Outcome::Done => PairEnd::Wrote,
                    Outcome::Nothing => PairEnd::Refused,
                    Outcome::Perhaps => PairEnd::Perhaps,
                };
                let may_have_written = matches!(end, PairEnd::Wrote | PairEnd::Perhaps);
                for block in &mut self.blocks[pending.range()] {
                    block.pair_ends(pending.version, may_have_written);
                }
                self.races.ended(pending, end, self.power_cuts)?
            }
            _ => match self.races.of_write(pending) {
                Some(race) => {
                    self.blocks[race].iter_mut().for_each(Block::write_ends_beside);
                    self.races.write_ended(pending, outcome, self.now)
                }
                None => {
                    self.settle(pending, outcome);
                    None
                }
            },
        };
        race.map_or(Ok(()), |race| self.end_race(&race))
    }

    /// The last one of those to the same blocks has ended: it is known what these hold.
    fn end_race(&mut self, race: &Race) -> Result<(), String> {
        let Race { expected, power_cuts, failures, wrote, perhaps, .. } = race;
        let (now, is_sure) = (self.now, *power_cuts == self.power_cuts);
        let blocks = &mut self.blocks[race.range()];
        let is_equal = blocks.iter().all(|block| block.versions() == [*expected]);
        if is_sure && race.differs && wrote.is_none() && perhaps.is_empty() && !race.has_writer() && is_equal {
            return Err(format!("nobody has changed what all of them expected: {race:?}"));
        }
        for (lba, block) in race.range().zip(blocks) {
            block.pairs_end();
            match wrote {
                // Others that wrote as well would have done so before, and this one would not have found what it did.
                Some(version) if is_sure => block.is(*version, now),
                _ => wrote.iter().chain(perhaps).for_each(|version| block.may_be(*version)),
            }
            match race.written_beside(lba) {
                // No pair finds what it expects behind that.
                Some((version, true)) if is_sure => block.is(version, now),
                Some((version, _)) => block.may_be(version),
                None => {}
            }
            if self.write_through {
                block.forget_former();
            }
        }
        // Where the medium fails it may have written a part.
        if is_sure && *failures == self.failures && wrote.is_none() && !race.has_writer() {
            self.wholes.add(race);
        }
        Ok(())
    }

    fn check_compare(&mut self, pending: &Pending, equal: bool) -> Result<(), String> {
        let blocks = &mut self.blocks[pending.range()];
        if pending.kind == Kind::Pair {
            // Others may be under way: what they come to is looked at behind the last one.
            let may_equal = blocks.iter().all(|block| block.versions().contains(&pending.expected));
            return match equal && !may_equal {
                true => Err(format!("{pending:?} found what it expected; there is {blocks:?}")),
                false => Ok(()),
            };
        }
        let version = pending.version;
        let may_equal = blocks.iter().all(|block| block.versions().contains(&version));
        let must_equal = blocks.iter().all(|block| block.versions() == [version]);
        if (equal && !may_equal) || (!equal && must_equal) {
            return Err(format!("{pending:?} found them equal: {equal}; they are {blocks:?}"));
        }
        if equal && pending.power_cuts == self.power_cuts {
            pending.range().for_each(|lba| self.wholes.found(&mut self.blocks, lba, version));
        }
        Ok(())
    }

    fn check_read(&mut self, desk: usize, cookie: u64, pending: &Pending) -> Result<(), String> {
        let length = self.geometry.block_bytes() as usize;
        self.expected.resize(length, 0);
        let found = self.desks[desk].take_read(cookie, pending, length)?;
        for (lba, found) in (pending.lba..).zip(found.chunks_exact(length)) {
            let block = &mut self.blocks[lba as usize];
            let known = block.versions().iter().chain(block.beside()).copied().find(|&version| {
                super::desk::fill(&mut self.expected, lba, version);
                self.expected == found
            });
            let Some(version) = known else {
                let begins = &found[..16];
                return Err(format!(
                    "block {lba} is none of the versions {:?} and {:?}; it begins with {begins:x?}; {pending:?}",
                    block.versions(),
                    block.beside()
                ));
            };
            // A power cut in between may have changed it since, and so may pairs.
            if pending.power_cuts == self.power_cuts && block.beside().is_empty() {
                self.wholes.found(&mut self.blocks, lba as usize, version);
                let block = &mut self.blocks[lba as usize];
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
        self.wholes = Wholes::default();
        self.blocks.iter_mut().for_each(Block::lost_power);
    }

    /// A host's program is gone: what was in flight may still be executed until its next session is there ([`Ledger::exorcise`]).
    pub(super) fn haunted(&mut self, desk: usize) {
        for pending in self.desks[desk].abandon() {
            if !pending.kind.changes() {
                self.settle(&pending, Outcome::Perhaps);
            }
        }
        self.fences.haunted(desk);
    }

    /// A host has a session: nothing of its former program is executed any more.
    ///
    /// # Errors
    /// What they did is not so.
    pub(super) fn exorcise(&mut self, desk: usize) -> Result<(), String> {
        for pending in self.desks[desk].exorcise() {
            self.end(&pending, Outcome::Perhaps, false)?;
        }
        self.fences.exorcise(desk)
    }

    /// What hosts have under way of which nothing may reach the medium any more.
    pub(super) fn shut_out(&self) -> Vec<Pending> {
        let of = self.desks.iter().filter(|desk| self.fences.is_shut_out(desk.host));
        of.flat_map(Desk::changes).copied().collect()
    }

    /// Blocks that the power could still change, of which the model knows that they are durable: none where all is flushed.
    pub(super) fn blocks(&self) -> u64 {
        self.geometry.blocks()
    }
}
