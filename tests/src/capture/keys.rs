//! The life of each key, as the wire shows it.

use super::frame::{Frame, Headers};
use std::collections::{HashMap, HashSet};

/// Keys of one key index: the low byte of a key has as many values.
const KEYS_OF_AN_INDEX: usize = 256;
/// Uses of one key index before its full key may come again: all others.
pub const MIN_USES_BETWEEN_EQUAL_KEYS: usize = KEYS_OF_AN_INDEX - 1;

/// Bytes of a submission queue entry, which begins every command capsule (Base 3.3.3.1).
const COMMAND_BYTES: usize = 64;
/// Bytes of a response capsule.
const RESPONSE_BYTES: usize = 16;
/// Packet sequence numbers have 24 bits.
const SEQUENCES: u32 = 1 << 24;

/// What must not be on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An RDMA operation with a key that no unanswered command announced.
    UsedOutsideItsLife {
        /// Place in the capture.
        frame: usize,
        /// The key.
        key: u32,
    },
    /// An RDMA operation beyond the announced bytes.
    UsedBeyondItsBytes {
        /// Place in the capture.
        frame: usize,
        /// The key.
        key: u32,
    },
    /// A key that was announced fewer than [`MIN_USES_BETWEEN_EQUAL_KEYS`] uses of its index ago.
    AnnouncedAgain {
        /// Place in the capture.
        frame: usize,
        /// The key.
        key: u32,
        /// Uses of its index in between.
        uses: usize,
    },
    /// A key announced while it was alive.
    AnnouncedAlive {
        /// Place in the capture.
        frame: usize,
        /// The key.
        key: u32,
    },
    /// SEND_WITH_INV of a key that no unanswered command announced.
    InvalidatedOutsideItsLife {
        /// Place in the capture.
        frame: usize,
        /// The key.
        key: u32,
    },
}

/// A key that is alive.
#[derive(Clone, Copy, Debug)]
struct Grant {
    address: u64,
    length: u32,
    /// The target's queue pair that the command went to.
    target: u32,
    command: u16,
}

/// How often one key index was announced.
#[derive(Clone, Debug)]
struct Uses {
    count: usize,
    /// By low byte: the count when it was announced last.
    last: [Option<usize>; KEYS_OF_AN_INDEX],
}

impl Uses {
    const NONE: Self = Self { count: 0, last: [None; KEYS_OF_AN_INDEX] };

    /// Counts a use. Returns how many others were between this one and the last with the same low byte.
    fn count(&mut self, low: u8) -> Option<usize> {
        self.count += 1;
        let before = self.last.get_mut(usize::from(low))?.replace(self.count)?;
        Some(self.count - before - 1)
    }
}

/// Follows the keys of one host through a capture.
#[derive(Debug, Default)]
pub struct Keys {
    host: [u8; 4],
    alive: HashMap<u32, Grant>,
    /// By key index.
    uses: HashMap<u32, Uses>,
    /// Key indices of which a key was announced a second time.
    again: HashSet<u32>,
    /// Uses between two announcements of one key, the fewest.
    pub fewest_between: Option<usize>,
    /// The target's queue pair, by the host's.
    pairs: HashMap<u32, u32>,
    /// Sequence number that comes next, by sender's address and queue pair: what is older was sent before.
    expected: HashMap<([u8; 4], u32), u32>,
    /// Keys announced.
    pub announced: u64,
    /// RDMA READs and WRITEs with them.
    pub operations: u64,
    /// Keys that the target invalidated.
    pub invalidated: u64,
    /// Keys whose command was answered by a plain SEND.
    pub answered: u64,
    /// Packets that were sent again.
    pub repeated: u64,
    /// What must not be there.
    pub violations: Vec<Violation>,
}

impl Keys {
    /// Of the host with this address.
    #[must_use]
    pub fn of(host: [u8; 4]) -> Self {
        Self { host, ..Self::default() }
    }

    /// Keys announced whose command was not answered by the end of the capture.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.alive.len()
    }

    /// Key indices that came round: one of their keys was announced again.
    #[must_use]
    pub fn came_round(&self) -> usize {
        self.again.len()
    }

    /// Takes the next packet.
    pub fn frame(&mut self, frame: &Frame) {
        if frame.headers == Headers::Other || self.is_repeated(frame) {
            return;
        }
        match frame.headers {
            Headers::Send { .. } if frame.addresses.0 == self.host => self.command(frame),
            Headers::Send { invalidate, .. } => self.response(frame, invalidate),
            Headers::SendEnd { invalidate } if frame.addresses.1 == self.host => self.invalidate(frame, invalidate),
            Headers::Rdma { address, key, length, .. } if frame.addresses.1 == self.host => {
                self.operation(frame, address, key, length);
            }
            _ => {}
        }
    }

    /// Whether a packet was seen before. Only first packets are asked, so that the numbers jump forward.
    fn is_repeated(&mut self, frame: &Frame) -> bool {
        let next = self.expected.entry((frame.addresses.0, frame.queue_pair)).or_insert(frame.sequence);
        let ahead = frame.sequence.wrapping_sub(*next) & (SEQUENCES - 1);
        let is_new = ahead < SEQUENCES / 2;
        if is_new {
            *next = (frame.sequence + 1) & (SEQUENCES - 1);
        } else {
            self.repeated += 1;
        }
        !is_new
    }

    /// A command capsule: its keyed data block announces a key (Base 4.3, figure 107).
    fn command(&mut self, frame: &Frame) {
        let Some(entry) = frame.payload.get(..COMMAND_BYTES) else { return };
        let kind = entry[39];
        let length = u32::from_le_bytes([entry[32], entry[33], entry[34], 0]);
        if kind >> 4 != 4 || length == 0 {
            return;
        }
        let key = u32::from_le_bytes([entry[35], entry[36], entry[37], entry[38]]);
        let address = u64::from_le_bytes(entry[24..32].try_into().unwrap_or_default());
        let command = u16::from_le_bytes([entry[2], entry[3]]);
        self.announced += 1;
        self.count_use(frame.number, key);
        let grant = Grant { address, length, target: frame.queue_pair, command };
        if self.alive.insert(key, grant).is_some() {
            self.violations.push(Violation::AnnouncedAlive { frame: frame.number, key });
        }
    }

    fn count_use(&mut self, frame: usize, key: u32) {
        let index = key >> 8;
        let uses = self.uses.entry(index).or_insert(Uses::NONE).count((key & 0xff) as u8);
        let Some(uses) = uses else { return };
        self.again.insert(index);
        self.fewest_between = Some(self.fewest_between.map_or(uses, |fewest| fewest.min(uses)));
        if uses < MIN_USES_BETWEEN_EQUAL_KEYS {
            self.violations.push(Violation::AnnouncedAgain { frame, key, uses });
        }
    }

    fn operation(&mut self, frame: &Frame, address: u64, key: u32, length: u32) {
        self.operations += 1;
        // A length of zero needs no key (IB specification, 9.7.5.2.8).
        if length == 0 {
            return;
        }
        let Some(grant) = self.alive.get(&key) else {
            self.violations.push(Violation::UsedOutsideItsLife { frame: frame.number, key });
            return;
        };
        self.pairs.insert(frame.queue_pair, grant.target);
        let end = address.checked_add(length.into());
        // A peer announces any address: bytes beyond the last one are nobody's.
        let granted = grant.address.saturating_add(grant.length.into());
        if address < grant.address || end.is_none_or(|end| end > granted) {
            self.violations.push(Violation::UsedBeyondItsBytes { frame: frame.number, key });
        }
    }

    /// A response capsule ends its command, and its command's key.
    fn response(&mut self, frame: &Frame, invalidate: Option<u32>) {
        if let Some(key) = invalidate {
            self.invalidate(frame, key);
            return;
        }
        let Some(entry) = frame.payload.get(..RESPONSE_BYTES) else { return };
        let command = u16::from_le_bytes([entry[12], entry[13]]);
        let target = self.pairs.get(&frame.queue_pair).copied();
        let is_its = |grant: &Grant| grant.command == command && target.is_none_or(|target| grant.target == target);
        let mut keys = self.alive.iter().filter(|(_, grant)| is_its(grant)).map(|(key, _)| *key);
        if let (Some(key), None) = (keys.next(), keys.next()) {
            self.alive.remove(&key);
            self.answered += 1;
        }
    }

    fn invalidate(&mut self, frame: &Frame, key: u32) {
        match self.alive.remove(&key) {
            Some(grant) => {
                self.pairs.insert(frame.queue_pair, grant.target);
                self.invalidated += 1;
            }
            None => self.violations.push(Violation::InvalidatedOutsideItsLife { frame: frame.number, key }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: [u8; 4] = [10, 9, 1, 1];
    const TARGET: [u8; 4] = [10, 9, 1, 2];
    const KEY: u32 = 0x0008_0105;

    /// Writes frames as they would be captured.
    struct Wire {
        keys: Keys,
        number: usize,
    }

    impl Wire {
        fn new() -> Self {
            Self { keys: Keys::of(HOST), number: 0 }
        }

        fn put(&mut self, from_host: bool, headers: Headers, payload: &[u8]) {
            self.number += 1;
            let addresses = if from_host { (HOST, TARGET) } else { (TARGET, HOST) };
            let queue_pair = if from_host { 0x21 } else { 0x11 };
            let sequence = self.number as u32;
            let payload = payload.to_vec();
            self.keys.frame(&Frame { number: self.number, addresses, queue_pair, sequence, headers, payload });
        }

        fn command(&mut self, command: u16, key: u32) {
            self.command_at(0x1000, command, key);
        }

        fn command_at(&mut self, address: u64, command: u16, key: u32) {
            let mut entry = [0; COMMAND_BYTES];
            entry[2..4].copy_from_slice(&command.to_le_bytes());
            entry[24..32].copy_from_slice(&address.to_le_bytes());
            entry[32..35].copy_from_slice(&4096_u32.to_le_bytes()[..3]);
            entry[35..39].copy_from_slice(&key.to_le_bytes());
            entry[39] = 0x4f;
            self.put(true, Headers::Send { is_whole: true, invalidate: None }, &entry);
        }

        fn write(&mut self, address: u64, key: u32, length: u32) {
            self.put(false, Headers::Rdma { is_write: true, address, key, length }, &[]);
        }

        fn reply(&mut self, command: u16, invalidate: Option<u32>) {
            let mut entry = [0; RESPONSE_BYTES];
            entry[12..14].copy_from_slice(&command.to_le_bytes());
            self.put(false, Headers::Send { is_whole: true, invalidate }, &entry);
        }
    }

    #[test]
    fn a_key_lives_from_its_command_to_its_reply() {
        for invalidate in [Some(KEY), None] {
            let mut wire = Wire::new();
            wire.command(3, KEY);
            wire.write(0x1000, KEY, 4096);
            wire.reply(3, invalidate);
            assert_eq!(wire.keys.violations, []);
            assert_eq!((wire.keys.announced, wire.keys.operations, wire.keys.alive()), (1, 1, 0));
            wire.write(0x1000, KEY, 1);
            assert_eq!(wire.keys.violations, [Violation::UsedOutsideItsLife { frame: 4, key: KEY }]);
        }
    }

    #[test]
    fn bytes_beside_the_announced_ones_are_seen() {
        for (address, length) in [(0xfff, 2), (0x1fff, 2), (u64::MAX, 2)] {
            let mut wire = Wire::new();
            wire.command(3, KEY);
            wire.write(address, KEY, length);
            assert_eq!(wire.keys.violations, [Violation::UsedBeyondItsBytes { frame: 2, key: KEY }]);
        }
    }

    #[test]
    fn bytes_that_are_announced_beyond_the_last_address_are_no_reason_to_stop() {
        let mut wire = Wire::new();
        wire.command_at(u64::MAX - 1, 3, KEY);
        wire.write(u64::MAX - 1, KEY, 1);
        assert_eq!(wire.keys.violations, []);
        wire.write(u64::MAX - 1, KEY, 2);
        assert_eq!(wire.keys.violations, [Violation::UsedBeyondItsBytes { frame: 3, key: KEY }]);
    }

    #[test]
    fn a_key_comes_again_after_all_others_of_its_index() {
        let mut wire = Wire::new();
        for use_ in 0..=256_u32 {
            assert_eq!((wire.keys.came_round(), wire.keys.fewest_between), (0, None), "use {use_}");
            let key = (KEY & !0xff) | (use_ & 0xff);
            wire.command(3, key);
            wire.reply(3, Some(key));
        }
        assert_eq!(wire.keys.violations, []);
        assert_eq!((wire.keys.came_round(), wire.keys.fewest_between), (1, Some(255)));
        wire.command(3, KEY & !0xff);
        let again = Violation::AnnouncedAgain { frame: wire.number, key: KEY & !0xff, uses: 0 };
        assert_eq!(wire.keys.violations, [again]);
        assert_eq!((wire.keys.came_round(), wire.keys.fewest_between), (1, Some(0)));
        // Another index has keys of its own.
        wire.command(4, KEY + 0x100);
        assert_eq!((wire.keys.came_round(), wire.keys.violations.len()), (1, 1));
    }

    #[test]
    fn invalidation_of_a_dead_key_is_seen() {
        let mut wire = Wire::new();
        wire.command(3, KEY);
        wire.reply(3, Some(KEY));
        wire.reply(4, Some(KEY));
        assert_eq!(wire.keys.violations, [Violation::InvalidatedOutsideItsLife { frame: 3, key: KEY }]);
    }

    #[test]
    fn what_is_sent_again_counts_once() {
        let mut wire = Wire::new();
        wire.command(3, KEY);
        wire.number = 0;
        wire.command(3, KEY);
        assert_eq!((wire.keys.announced, wire.keys.repeated), (1, 1));
        assert_eq!(wire.keys.violations, []);
    }
}
