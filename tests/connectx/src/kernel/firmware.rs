//! Commands of the firmware that libmlx5 gives by way of DEVX: CREATE_MKEY, and nothing else.

use super::Errno;
use crate::card::context::MemoryKey;

/// Opcode of CREATE_MKEY.
const CREATE_MKEY: u16 = 0x200;

/// Where the key's context stands in the command.
const CONTEXT: usize = 16;

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WantedKey {
    pub(super) kind: MemoryKey,
    pub(super) low_byte: u8,
}

/// Reads the command.
///
/// # Errors
/// EOPNOTSUPP for other commands, EINVAL for a key that this firmware would not make: one that is not free, is not for work
/// requests, is no list, or is for one queue pair.
pub(super) fn parse(command: &[u8]) -> Result<WantedKey, Errno> {
    let word = |at: usize| -> Option<u32> { Some(u32::from_be_bytes(command.get(at..at + 4)?.try_into().ok()?)) };
    if word(0).map(|first| (first >> 16) as u16) != Some(CREATE_MKEY) {
        return Err(libc::EOPNOTSUPP);
    }
    let context = |at: usize| word(CONTEXT + at).ok_or(libc::EINVAL);
    let (first, second, domain, entries) = (context(0)?, context(4)?, context(12)?, context(52)?);
    let bit = |word: u32, at: u32| word >> (31 - at) & 1 == 1;
    let is_free = bit(first, 1);
    let is_for_work_requests = bit(first, 16);
    let is_list = first >> 8 & 0b11 == 2;
    let any_queue_pair = second >> 8 == 0x00ff_ffff;
    if !is_free || !is_for_work_requests || !is_list || !any_queue_pair || entries == 0 {
        return Err(libc::EINVAL);
    }
    let remote_invalidation = bit(domain, 7);
    let kind = MemoryKey::List { domain: domain & 0x00ff_ffff, entries, remote_invalidation };
    Ok(WantedKey { kind, low_byte: second as u8 })
}

/// The answer to it.
pub(super) fn created(key: u32) -> [u8; 16] {
    let mut answer = [0; 16];
    answer[8..12].copy_from_slice(&(key >> 8).to_be_bytes());
    answer
}

#[cfg(test)]
mod tests {
    use super::{CONTEXT, CREATE_MKEY, MemoryKey, WantedKey, created, parse};

    /// CREATE_MKEY as libmlx5 gives it for a list of 20 entries in domain 7 that a peer may invalidate.
    fn command() -> Vec<u8> {
        let mut words = [0u32; 4 + 16];
        words[0] = u32::from(CREATE_MKEY) << 16;
        let context = &mut words[CONTEXT / 4..];
        // Free, for work requests, local reads, a list.
        context[0] = 1 << 30 | 1 << 15 | 1 << 10 | 2 << 8;
        context[1] = 0x00ff_ffff << 8 | 0x42;
        context[3] = 1 << 24 | 7;
        context[13] = 20;
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn a_list_is_read_as_libmlx5_writes_it() {
        let kind = MemoryKey::List { domain: 7, entries: 20, remote_invalidation: true };
        assert_eq!(parse(&command()), Ok(WantedKey { kind, low_byte: 0x42 }));
    }

    #[test]
    fn what_is_no_list_of_work_requests_is_not_made() {
        for (place, wrong) in [
            // Not free, not for work requests, no list, for one queue pair, without entries.
            (CONTEXT, 1u32 << 15 | 2 << 8),
            (CONTEXT, 1 << 30 | 2 << 8),
            (CONTEXT, 1 << 30 | 1 << 15 | 1 << 8),
            (CONTEXT + 4, 5 << 8),
            (CONTEXT + 52, 0),
        ] {
            let mut command = command();
            command[place..place + 4].copy_from_slice(&wrong.to_be_bytes());
            assert_eq!(parse(&command), Err(libc::EINVAL), "{place}: {wrong:#x}");
        }
        assert_eq!(parse(&[0; 80]), Err(libc::EOPNOTSUPP));
        assert_eq!(parse(&command()[..40]), Err(libc::EINVAL));
        assert_eq!(parse(&[]), Err(libc::EOPNOTSUPP));
    }

    #[test]
    fn the_answer_has_the_index_without_its_low_byte() {
        assert_eq!(created(0x0012_3456)[8..12], [0, 0, 0x12, 0x34]);
    }
}
