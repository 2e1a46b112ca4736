//! **Ways** of [`Storage`](crate::storage::Storage): several to one medium, as several cores have.

use super::{content::ZEROS, outcome::Outcome, trial::Trial};
use crate::storage::Operation;

/// Once it has completed, without a Flush; in both directions, and also zeros.
pub(super) fn what_one_way_wrote_another_one_reads(trial: &mut Trial<'_>) -> Outcome {
    let mut one = trial.open()?;
    let mut other = trial.open_beside()?;
    for _ in 0..8 {
        let [first, second] = [(); 2].map(|()| trial.new_stamp());
        one.write(0, 8, first)?;
        other.expect(0, &[first; 8])?;
        other.write(4, 8, second)?;
        one.expect(2, &[first, first, second, second, second, second, second, second, second, second])?;
        if one.features().write_zeroes {
            one.succeed(Operation::WriteZeroes { lba: 3, blocks: 2, deallocate: true })?;
            other.expect(2, &[first, ZEROS, ZEROS, second])?;
        }
    }
    // What one has under way is nothing to the other.
    let stamp = trial.new_stamp();
    one.put_blocks(0, 20, 8, stamp);
    one.submit(Operation::Write { lba: 20, blocks: 8, buffer: 0 });
    one.flush();
    other.succeed(Operation::Flush)?;
    one.finish()?;
    other.expect(20, &[stamp; 8])?;
    drop(one);
    other.expect(20, &[stamp; 8])
}
