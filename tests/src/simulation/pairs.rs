//! Fused pairs of Compare and Write of several hosts to the same blocks at the same time, all of which expect the same there: one of
//! them at most finds it.

use super::desk::Pending;

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
    /// Power cuts when the first one was submitted.
    pub(super) power_cuts: u32,
    under_way: u32,
    /// What the one that found it has written.
    pub(super) wrote: Option<u32>,
    /// What others may have written.
    pub(super) perhaps: Vec<u32>,
    /// One of them found something else.
    pub(super) differs: bool,
}

/// All of them.
#[derive(Default)]
pub(super) struct Races(Vec<Race>);

impl Races {
    /// One that others may join.
    pub(super) fn some(&self, random: &mut frwr_support::Random) -> Option<&Race> {
        self.0.get(random.below(self.0.len() as u64) as usize)
    }

    fn position(&self, pending: &Pending) -> Option<usize> {
        self.0.iter().position(|race| race.lba == pending.lba)
    }

    /// A pair was taken.
    pub(super) fn begun(&mut self, pending: &Pending) {
        if let Some(at) = self.position(pending) {
            self.0[at].under_way += 1;
            return;
        }
        let Pending { lba, blocks, expected, power_cuts, .. } = *pending;
        let (wrote, perhaps, differs) = (None, Vec::new(), false);
        self.0.push(Race { lba, blocks, expected, power_cuts, under_way: 1, wrote, perhaps, differs });
    }

    /// One has ended: the race, where it was the last one.
    ///
    /// # Errors
    /// It was not the first one that wrote, and the power explains nothing.
    pub(super) fn ended(&mut self, pending: &Pending, end: PairEnd, power_cuts: u32) -> Result<Option<Race>, String> {
        let at = self.position(pending).ok_or_else(|| format!("{pending:?} is in no race"))?;
        let race = &mut self.0[at];
        race.under_way -= 1;
        match end {
            PairEnd::Wrote if race.wrote.is_some() && race.power_cuts == power_cuts => {
                return Err(format!("{pending:?} found what another one had replaced: {race:?}"));
            }
            PairEnd::Wrote => race.perhaps.extend(race.wrote.replace(pending.version)),
            PairEnd::Differs => race.differs = true,
            PairEnd::Refused => {}
            PairEnd::Perhaps => race.perhaps.push(pending.version),
        }
        Ok((race.under_way == 0).then(|| self.0.swap_remove(at)))
    }
}
