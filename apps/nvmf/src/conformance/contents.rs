//! **Contents** of [`Storage`](crate::storage::Storage): what blocks hold.

use super::{
    model::Model,
    outcome::{Outcome, ensure},
    trial::Trial,
};
use crate::storage::Operation;

/// Of a run, of a part of it that was written again, and of nothing beside it.
pub(super) fn written_blocks_are_read_back(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let [around, run, middle] = [(); 3].map(|()| trial.new_stamp());
    way.write(0, 16, around)?;
    way.write(3, 9, run)?;
    way.write(6, 1, middle)?;
    way.write(8, 2, middle)?;
    let mut wanted = [around; 16];
    wanted[3..12].fill(run);
    wanted[6] = middle;
    wanted[8..10].fill(middle);
    way.expect(0, &wanted)?;
    // In parts it is the same, and a Flush changes nothing.
    way.succeed(Operation::Flush)?;
    for (lba, stamp) in (0..).zip(wanted) {
        way.expect(lba, &[stamp])?;
    }
    way.expect(5, &wanted[5..11])
}

/// Rounds of operations of all kinds at the same time on few blocks, some taken back, against a
/// model of what each block may hold: what was there before, or what one of them wrote, as a whole
/// once all have ended.
pub(super) fn what_is_in_flight_together_ends_as_one_of_it(trial: &mut Trial<'_>) -> Outcome {
    /// Of a few operations each.
    const ROUNDS: usize = 200;
    let mut way = trial.open()?;
    let mut model = Model::new(&mut way, trial)?;
    for round in 0..ROUNDS {
        model.round(&mut way, trial)?;
        if round % 8 == 7 {
            model.check(&mut way)?;
        }
    }
    model.check(&mut way)?;
    ensure!(way.in_flight() == 0, "{} operations are left", way.in_flight());
    Ok(())
}

/// Everything that was written and flushed.
pub(super) fn what_was_written_is_there_when_it_is_opened_again(trial: &mut Trial<'_>) -> Outcome {
    let stamps: Vec<_> = (0..3).map(|_| trial.new_stamp()).collect();
    for (round, stamp) in stamps.iter().enumerate() {
        let mut way = if round == 0 { trial.open()? } else { trial.open_again()? };
        if round > 0 {
            way.expect(0, &stamps[..round])?;
        }
        way.write(round as u64, 1, *stamp)?;
        way.succeed(Operation::Flush)?;
    }
    trial.open_again()?.expect(0, &stamps)
}
