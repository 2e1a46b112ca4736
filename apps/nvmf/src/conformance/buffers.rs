//! **Buffers** of [`Storage`](crate::storage::Storage): where data lies in memory.

use super::{
    content,
    outcome::{Outcome, ensure},
    trial::Trial,
    way::{Way, memory},
};
use crate::storage::{AttachError, Operation, StorageError};

/// Also where they begin inside: neither the part that would fit nor any block moves.
pub(super) fn buffers_outside_of_the_memory_are_refused(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let (bytes, block, stamp) = (way.buffer_bytes(), way.block_bytes(), trial.new_stamp());
    way.write(0, 4, stamp)?;
    let half_outside = [(bytes - block, 2), (bytes - block + 1, 1), (bytes - 3 * block, 4)];
    let outside = [(bytes, 1), (bytes + block, 1), (usize::MAX, 1), (usize::MAX - block + 1, 1), (usize::MAX - 1, 4)];
    for (buffer, blocks) in half_outside.into_iter().chain(outside) {
        for operation in [Operation::Read { lba: 0, blocks, buffer }, Operation::Write { lba: 0, blocks, buffer }] {
            way.fill_buffers(0x5a);
            let result = way.run(operation)?;
            ensure!(result == Err(StorageError::BufferOutOfRange), "{operation:?} of {bytes} bytes: {result:?}");
            ensure!(
                way.all_buffers().iter().all(|byte| *byte == 0x5a),
                "{operation:?} was refused, and moved something"
            );
            way.expect(0, &[stamp; 4])?;
        }
    }
    Ok(())
}

/// At every byte where the medium takes it, and else it is said that it does not; nothing but what
/// it is of changes.
pub(super) fn a_buffer_may_begin_anywhere_or_is_refused(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let (bytes, block) = (way.buffer_bytes(), way.block_bytes());
    for buffer in [0, 1, 8, 64, block / 2, block / 2 + 64, block, bytes - 2 * block, bytes - 2 * block - 1] {
        let [old, new] = [(); 2].map(|()| trial.new_stamp());
        way.write(0, 2, old)?;
        way.fill_buffers(0x5a);
        way.put_blocks(buffer, 0, 2, new);
        let before = way.all_buffers();
        let written = way.run(Operation::Write { lba: 0, blocks: 2, buffer })?;
        ensure!(way.all_buffers() == before, "a write from {buffer} changed buffers");
        let read = read_at(&mut way, buffer, if written.is_ok() { new } else { old })?;
        let unaligned = Err(StorageError::BufferUnaligned);
        ensure!(written == read && [Ok(()), unaligned].contains(&read), "at {buffer}: {written:?}, {read:?}");
        way.expect(0, &[if written.is_ok() { new } else { old }; 2])?;
    }
    Ok(())
}

/// Reads both blocks to there, and looks at all that is around them.
fn read_at(way: &mut Way, buffer: usize, stamp: u64) -> Outcome<Result<(), StorageError>> {
    way.fill_buffers(0x5a);
    let mut wanted = way.all_buffers();
    let read = way.run(Operation::Read { lba: 0, blocks: 2, buffer })?;
    if read.is_ok() {
        for lba in 0..2 {
            let bytes = content::of(stamp, lba, way.block_bytes());
            wanted[buffer + lba as usize * bytes.len()..][..bytes.len()].copy_from_slice(&bytes);
        }
    }
    ensure!(way.all_buffers() == wanted, "a read to {buffer} ({read:?}) left something else in the buffers");
    Ok(read)
}

/// A second memory is refused, and the first one stays in use.
pub(super) fn buffers_are_attached_once(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let bytes = way.buffer_bytes();
    let second = way.storage().attach(memory(bytes));
    ensure!(second == Err(AttachError::Twice), "a second memory: {second:?}");
    let stamp = trial.new_stamp();
    way.write(0, 4, stamp)?;
    way.expect(0, &[stamp; 4])
}
