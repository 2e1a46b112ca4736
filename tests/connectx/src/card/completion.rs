//! Completion queues: entries in the card's own format.

use super::context::CompletionQueueContext;
use crate::memory;

/// Why a work request failed: syndromes of mlx5dv.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Syndrome {
    LocalLength = 0x01,
    LocalOperation = 0x02,
    LocalProtection = 0x04,
    Flushed = 0x05,
    Bind = 0x06,
    RemoteInvalidRequest = 0x12,
    RemoteAccess = 0x13,
    RemoteOperation = 0x14,
    RetriesExceeded = 0x15,
    ReceiverNotReady = 0x16,
}

/// What an entry says of its kind.
mod kind {
    pub(super) const REQUEST: u8 = 0;
    pub(super) const RECEIVED: u8 = 2;
    pub(super) const RECEIVED_INVALIDATED: u8 = 4;
    pub(super) const REQUEST_FAILED: u8 = 13;
    pub(super) const RECEIVE_FAILED: u8 = 14;
}

/// One completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    /// Of a work request that was sent.
    Sent { opcode: u8, position: u16, bytes: u32, failed: Option<Syndrome> },
    /// Of a receive; the position is asked for of a shared one only.
    Received { position: u16, result: Result<(u32, Option<u32>), Syndrome> },
}

/// A queue, and how many entries it ever had.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    context: CompletionQueueContext,
    produced: u32,
    /// Queue pairs that use it.
    pub(super) users: u32,
}

impl CompletionQueue {
    pub(super) fn new(context: CompletionQueueContext) -> Self {
        Self { context, produced: 0, users: 0 }
    }

    /// Tells the program. `false`: the queue has no room, which a card would not have noticed before it was too late.
    pub(super) fn push(&mut self, number: u32, user_index: u32, completion: &Completion) -> bool {
        let taken = memory::doorbell(self.context.doorbell) & 0x00ff_ffff;
        let waiting = self.produced.wrapping_sub(taken) & 0x00ff_ffff;
        let entries = self.context.entries;
        let place = u64::from(self.produced & (entries - 1)) * u64::from(self.context.entry_bytes);
        // Of a larger entry the second half.
        let half = u64::from(self.context.entry_bytes - 64);
        let owner = u8::from(self.produced & entries != 0);
        memory::publish(self.context.buffer + place + half, &entry(number, user_index, owner, completion));
        self.produced = self.produced.wrapping_add(1);
        waiting < entries
    }
}

fn entry(number: u32, user_index: u32, owner: u8, completion: &Completion) -> [u8; 64] {
    let mut entry = [0; 64];
    let mut put = |at: usize, word: u32| entry[at..at + 4].copy_from_slice(&word.to_be_bytes());
    put(32, user_index);
    let (kind, opcode, position, syndrome) = match *completion {
        Completion::Sent { opcode, position, bytes, failed } => {
            put(44, bytes);
            (if failed.is_some() { kind::REQUEST_FAILED } else { kind::REQUEST }, opcode, position, failed)
        }
        Completion::Received { position, result: Ok((bytes, invalidated)) } => {
            put(44, bytes);
            put(36, invalidated.unwrap_or(0));
            let kind = if invalidated.is_some() { kind::RECEIVED_INVALIDATED } else { kind::RECEIVED };
            (kind, 0, position, None)
        }
        Completion::Received { position, result: Err(syndrome) } => (kind::RECEIVE_FAILED, 0, position, Some(syndrome)),
    };
    put(56, u32::from(opcode) << 24 | number);
    if let Some(syndrome) = syndrome {
        // In the place of the bytes' and the time's last byte: vendor's reason, and the standard's.
        (entry[54], entry[55]) = (0, syndrome as u8);
    }
    entry[60..62].copy_from_slice(&position.to_be_bytes());
    entry[63] = kind << 4 | owner;
    entry
}
