//! Fused pairs of Compare and Write of several hosts to the same blocks at the same time, all of which expect the same there: one of
//! them at most finds it.

use super::block::Block;
use super::desk::{Kind, Pending};
use super::ledger::Outcome;
use core::ops::Range;

/// How one of them ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairEnd {
    /// It found what it expected, and wrote.
    Wrote,
    /// It did not, and wrote nothing.
    Differs,
    /// It was not executed.
    Refused,
    /// Nobody knows.
    Perhaps,
}

/// Pairs under way to the same blocks.
#[derive(Clone, Debug)]
pub(super) struct Race {
    pub(super) lba: u64,
    pub(super) blocks: u64,
    /// What all of them expect.
    pub(super) expected: u32,
    /// Power cuts, and writes that the medium failed, when the first one was submitted.
    pub(super) power_cuts: u32,
    pub(super) failures: u64,
    under_way: u32,
    /// What the one that found it has written.
    pub(super) wrote: Option<u32>,
    /// What others may have written.
    pub(super) perhaps: Vec<u32>,
    /// One of them found something else.
    pub(super) differs: bool,
    /// A write to some of the blocks meanwhile.
    beside: Option<Beside>,
}

/// A write beside pairs.
#[derive(Clone, Debug)]
struct Beside {
    pending: Pending,
    /// How it ended, and when.
    ended: Option<(Outcome, u64)>,
}

impl Race {
    pub(super) fn range(&self) -> Range<usize> {
        self.lba as usize..(self.lba + self.blocks) as usize
    }

    /// What may have been written to a block beside pairs; and whether it was.
    pub(super) fn written_beside(&self, lba: usize) -> Option<(u32, bool)> {
        let Beside { pending, ended: Some((outcome, _)) } = self.beside.as_ref()? else { return None };
        let is_so = pending.range().contains(&lba) && *outcome != Outcome::Nothing;
        is_so.then_some((pending.version, *outcome == Outcome::Done))
    }

    /// Something may have been.
    pub(super) fn has_writer(&self) -> bool {
        self.range().any(|lba| self.written_beside(lba).is_some())
    }

    /// One of what is under way has ended.
    fn count(&mut self) -> bool {
        self.under_way -= 1;
        self.under_way == 0
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Races(Vec<Race>);

impl Races {
    /// One that others may join.
    pub(super) fn some(&self, random: &mut frwr_support::Random) -> Option<&Race> {
        if self.0.is_empty() { None } else { self.0.get(random.below(self.0.len() as u64) as usize) }
    }

    /// Those whose blocks these are, or some of them.
    fn position(&self, pending: &Pending) -> Option<usize> {
        let (first, last) = (pending.lba, pending.lba + pending.blocks);
        self.0.iter().position(|race| race.lba <= first && last <= race.lba + race.blocks)
    }

    /// A write to these blocks may begin beside pairs, which no other one does.
    pub(super) fn takes_write(&self, lba: u64, blocks: u64) -> bool {
        let is_its = |race: &&Race| race.lba <= lba && lba + blocks <= race.lba + race.blocks;
        self.0.iter().find(is_its).is_some_and(|race| race.beside.is_none())
    }

    /// Blocks of the pairs beside which a write began, if it did.
    pub(super) fn of_write(&self, pending: &Pending) -> Option<Range<usize>> {
        let race = self.position(pending).map(|at| &self.0[at]).filter(|_| pending.kind == Kind::Write)?;
        let is_it = race.beside.as_ref().is_some_and(|beside| beside.pending.version == pending.version);
        is_it.then(|| race.range())
    }

    /// A pair was taken, or a write beside pairs: the blocks of all of them. `failures`: writes that the medium had failed.
    pub(super) fn begun(&mut self, pending: &Pending, failures: u64) -> Range<usize> {
        if let Some(race) = self.position(pending).map(|at| &mut self.0[at]) {
            race.under_way += 1;
            if pending.kind == Kind::Write {
                race.beside = Some(Beside { pending: *pending, ended: None });
            }
            return race.range();
        }
        let Pending { lba, blocks, expected, power_cuts, .. } = *pending;
        let (under_way, wrote, perhaps, differs, beside) = (1, None, Vec::new(), false, None);
        self.0.push(Race { lba, blocks, expected, power_cuts, failures, under_way, wrote, perhaps, differs, beside });
        pending.range()
    }

    /// A pair has ended: the race, where it was the last one.
    ///
    /// # Errors
    /// It was not the first one that wrote, or found what had been written over, and the power explains nothing.
    pub(super) fn ended(&mut self, pending: &Pending, end: PairEnd, power_cuts: u32) -> Result<Option<Race>, String> {
        let at = self.position(pending).ok_or_else(|| format!("{pending:?} is in no race"))?;
        let race = &mut self.0[at];
        let written = race.beside.as_ref().and_then(|beside| beside.ended);
        let is_over = written.is_some_and(|(outcome, when)| outcome == Outcome::Done && when <= pending.since);
        match end {
            PairEnd::Wrote if (race.wrote.is_some() || is_over) && race.power_cuts == power_cuts => {
                return Err(format!("{pending:?} found what another one had replaced: {race:?}"));
            }
            PairEnd::Wrote => race.perhaps.extend(race.wrote.replace(pending.version)),
            PairEnd::Differs => race.differs = true,
            PairEnd::Refused => {}
            PairEnd::Perhaps => race.perhaps.push(pending.version),
        }
        Ok(race.count().then(|| self.0.swap_remove(at)))
    }

    /// A write beside pairs has ended: as [`Races::ended`].
    pub(super) fn write_ended(&mut self, pending: &Pending, outcome: Outcome, now: u64) -> Option<Race> {
        let at = self.position(pending)?;
        let race = &mut self.0[at];
        race.beside = Some(Beside { pending: *pending, ended: Some((outcome, now)) });
        race.count().then(|| self.0.swap_remove(at))
    }
}

/// Blocks of pairs of which nobody knows whether they wrote: they did to all of these, or to none.
#[derive(Debug)]
struct Whole {
    range: Range<usize>,
    versions: Vec<u32>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Wholes(Vec<Whole>);

impl Wholes {
    /// Nobody knows what became of these pairs.
    pub(super) fn add(&mut self, race: &Race) {
        self.0.push(Whole { range: race.range(), versions: race.perhaps.clone() });
    }

    /// These blocks are changed.
    pub(super) fn changed(&mut self, range: &Range<usize>) {
        self.0.retain(|whole| whole.range.end <= range.start || range.end <= whole.range.start);
    }

    /// A block was found to hold a version, and so the others do, or do not.
    pub(super) fn found(&self, blocks: &mut [Block], lba: usize, version: u32) {
        blocks[lba].was_found(version);
        let Some(Whole { range, versions }) = self.0.iter().find(|whole| whole.range.contains(&lba)) else { return };
        for block in &mut blocks[range.clone()] {
            match versions.contains(&version) {
                true => block.was_found(version),
                false => block.was_not(versions),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Kind, Outcome, PairEnd, Pending, Races, Whole, Wholes};

    fn pending(kind: Kind, version: u32, since: u64) -> Pending {
        let (forced, expected, begun, sent_again, power_cuts, turn) = (false, 0, 0, 0, 0, 0);
        Pending { kind, lba: 4, forced, blocks: 2, version, expected, begun, sent_again, since, power_cuts, turn }
    }

    #[test]
    fn a_pair_that_began_behind_a_write_does_not_find_what_that_replaced() {
        for (outcome, since, is_wrong) in [
            (Outcome::Done, 5, true),
            (Outcome::Done, 4, false),
            (Outcome::Perhaps, 5, false),
            (Outcome::Nothing, 5, false),
        ] {
            let (mut races, write) = (Races::default(), pending(Kind::Write, 8, 2));
            races.begun(&pending(Kind::Pair, 7, 1), 0);
            assert!(races.takes_write(5, 1) && !races.takes_write(5, 2));
            races.begun(&write, 0);
            assert!(!races.takes_write(5, 1));
            assert_eq!(races.of_write(&write), Some(4..6));
            assert!(races.write_ended(&write, outcome, 5).is_none());
            let pair = pending(Kind::Pair, 9, since);
            races.begun(&pair, 0);
            assert_eq!(races.ended(&pair, PairEnd::Wrote, 0).is_err(), is_wrong);
        }
    }

    #[test]
    fn a_lost_pair_has_written_all_of_its_blocks_or_none() {
        for (found, others) in [(7, [7]), (0, [0])] {
            let mut blocks = vec![Block::new(); 3];
            blocks.iter_mut().for_each(|block| block.may_be(7));
            let mut wholes = Wholes(vec![Whole { range: 0..2, versions: vec![7] }]);
            wholes.found(&mut blocks, 1, found);
            assert_eq!((blocks[0].versions(), blocks[2].versions()), (&others[..], &[0, 7][..]));
            wholes.changed(&(1..3));
            blocks[0].may_be(9);
            wholes.found(&mut blocks, 1, 9);
            assert!(blocks[0].versions().contains(&others[0]), "it was changed since");
        }
    }
}
