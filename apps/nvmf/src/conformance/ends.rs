//! **End** of [`Storage`](crate::storage::Storage): storages that are dropped.

use super::{
    outcome::{Outcome, ensure},
    trial::Trial,
    way::BUFFER_BLOCKS,
};
use crate::storage::Operation;
use frwr_mempool::DeviceMemory;

/// Blocks of one operation.
const RUN: u32 = 8;

fn bytes_of(buffers: &DeviceMemory) -> Vec<u8> {
    let mut bytes = vec![0; buffers.len()];
    buffers.read(0, &mut bytes).expect("all of it");
    bytes
}

/// And other ways go on: what one had under way, Flushes too, is nothing that another one waits for.
pub(super) fn other_ways_go_on_when_one_is_dropped(trial: &mut Trial<'_>) -> Outcome {
    let mut other = {
        let mut one = trial.open()?;
        let mut other = trial.open_beside()?;
        let [old, new] = [(); 2].map(|()| trial.new_stamp());
        one.write(0, RUN, old)?;
        one.put_blocks(0, 0, RUN, new);
        one.submit(Operation::Write { lba: 0, blocks: RUN, buffer: 0 });
        one.submit(Operation::Flush);
        one.flush();
        one.submit(Operation::Flush);
        // Beside those.
        other.submit(Operation::Flush);
        other.flush();
        drop(one);
        other
    };
    let ended = other.finish()?;
    ensure!(ended.iter().all(|completion| completion.result.is_ok()), "{ended:?}");
    for lba in [0, 16] {
        let stamp = trial.new_stamp();
        other.write(lba, RUN, stamp)?;
        other.succeed(Operation::Flush)?;
        other.expect(lba, &[stamp; RUN as usize])?;
    }
    Ok(())
}

/// With reads and writes in flight, with some that were never started, with completions that nobody
/// has asked for, and with nothing: from then on neither buffers nor medium change, and each block
/// is what it was or what was written.
pub(super) fn a_storage_that_is_dropped_leaves_everything_alone(trial: &mut Trial<'_>) -> Outcome {
    let blocks = BUFFER_BLOCKS as u32 / 2;
    for polls in [0, 0, 1, 100] {
        let mut way = trial.open_again()?;
        let [old, new] = [(); 2].map(|()| trial.new_stamp());
        let block = way.block_bytes();
        way.write(0, blocks, old)?;
        way.put_blocks(0, 0, blocks, new);
        // Half of the buffers is written from, the other half read to.
        for lba in (0..blocks).step_by(RUN as usize) {
            let (at, half) = (lba as usize * block, blocks as usize * block);
            way.submit(Operation::Write { lba: lba.into(), blocks: RUN, buffer: at });
            way.submit(Operation::Read { lba: lba.into(), blocks: RUN, buffer: half + at });
            if lba < blocks - RUN {
                way.flush();
            }
        }
        for _ in 0..polls {
            // Some may end meanwhile.
            way.poll()?;
        }
        let buffers = way.into_buffers();
        buffers.fill(0, buffers.len(), 0x77).expect("all of it");
        let mut way = trial.open_again()?;
        let found: Vec<_> = (0..blocks).map(|lba| way.stamp_of(lba.into(), &[old, new])).collect::<Result<_, _>>()?;
        for _ in 0..4 {
            way.succeed(Operation::Flush)?;
            way.expect(0, &found)?;
        }
        ensure!(bytes_of(&buffers).iter().all(|byte| *byte == 0x77), "buffers of a storage that is gone have changed");
    }
    Ok(())
}
