//! **Taking back** of [`Storage`](crate::storage::Storage): operations that are cancelled.

use super::outcome::{Outcome, ensure, not_shown};
use super::trial::Trial;
use crate::storage::{Cookie, Operation};

/// A write, a read, a Flush: what was taken back moves nothing and does not complete, and its place
/// is free; what was not, completes. What has ended, or never was, cannot be taken back.
pub(super) fn what_is_taken_back_never_happens(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let mut taken_back = 0;
    for round in 0..32 {
        let [old, new] = [(); 2].map(|()| trial.new_stamp());
        way.write(0, 4, old)?;
        way.fill_buffers(0x5a);
        way.put_blocks(0, 0, 4, new);
        let before = way.all_buffers();
        let operation = match round % 4 {
            0 | 2 => Operation::Write { lba: 0, blocks: 4, buffer: 0 },
            1 => Operation::Read { lba: 0, blocks: 4, buffer: way.buffer_bytes() / 2 },
            _ => Operation::Flush,
        };
        ensure!(!way.cancel(Cookie(u64::MAX)), "something was taken back that never was");
        let Some(cookie) = way.submit(operation) else { return not_shown("it has no room") };
        if round >= 16 {
            way.flush();
        }
        if way.cancel(cookie) {
            taken_back += 1;
            ensure!(!way.cancel(cookie), "{operation:?} was taken back twice");
            // Whatever else goes on.
            way.succeed(Operation::Flush)?;
            ensure!(way.all_buffers() == before, "{operation:?} was taken back, and moved something");
            way.expect(0, &[old; 4])?;
        } else {
            way.finish()?;
            ensure!(!way.cancel(cookie), "{operation:?} has ended, and was taken back");
            way.expect(0, &[if round % 2 == 0 { new } else { old }; 4])?;
        }
    }
    if taken_back == 0 { not_shown("it takes nothing back") } else { Ok(()) }
}

/// Of several that wait, one in the middle: the others are carried out, and the place of what went
/// is had by another one.
pub(super) fn nothing_else_goes_with_what_is_taken_back(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let block = way.block_bytes();
    let [old, new] = [(); 2].map(|()| trial.new_stamp());
    way.write(0, 8, old)?;
    way.put_blocks(0, 0, 8, new);
    let mut cookies = Vec::new();
    for lba in 0..8 {
        let Some(cookie) = way.submit(Operation::Write { lba, blocks: 1, buffer: lba as usize * block }) else { break };
        cookies.push(cookie);
    }
    let mut wanted = [old; 8];
    wanted[..cookies.len()].fill(new);
    let mut taken_back = 0;
    for at in [cookies.len() / 2, 0] {
        if way.cancel(cookies[at]) {
            wanted[at] = old;
            taken_back += 1;
            ensure!(way.submit(Operation::Flush).is_some(), "no place is free where an operation was taken back");
        }
    }
    let ended = way.finish()?;
    ensure!(ended.iter().all(|completion| completion.result.is_ok()), "{ended:?}");
    ensure!(ended.len() == cookies.len(), "{} ended", ended.len());
    way.expect(0, &wanted)?;
    if taken_back == 0 { not_shown("it takes nothing back") } else { Ok(()) }
}
