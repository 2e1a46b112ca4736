//! Command identifiers: from a response's bytes to the request that it answers.

use super::options::{ADMIN_COMMANDS, MAX_DATA_BLOCKS, MAX_QUEUE_DEPTH};
use crate::wire::{
    COMMAND_CAPSULE_BYTES, DataPointer, KeyedDataBlock, PreparedBlock, RESPONSE_CAPSULE_BYTES, SGL_DESCRIPTOR_BYTES,
    Status, SubmissionQueueEntry, last_segment, listed_blocks, parse_response,
};
use core::ops::Range;
use frwr_engine::mr::Grant;
use frwr_engine::{AnnounceError, Announcement, ConnectionId, Message, Protocol, RequestHandle};
use frwr_mempool::mutant;
use zerocopy::IntoBytes;

/// What tells commands of one slot apart is above the bits of an index.
const _: () = assert!(
    (MAX_QUEUE_DEPTH + ADMIN_COMMANDS + 1).next_power_of_two() <= 1 << 11,
    "5 of 16 bits count the commands of a slot"
);
/// Where the data pointer stands in a capsule.
const DATA_POINTER: Range<usize> = SubmissionQueueEntry::DATA_OFFSET..SubmissionQueueEntry::DATA_OFFSET + 16;

/// Bytes of the largest capsule without in-capsule data: a command, and the descriptors of its data blocks.
pub(super) const MAX_CAPSULE_BYTES: usize = COMMAND_CAPSULE_BYTES + MAX_DATA_BLOCKS as usize * SGL_DESCRIPTOR_BYTES;

/// The capsule of a command that lists its keys behind itself (RDMA 3.2). One for all: none is carried from where it is made to where
/// the engine copies it.
pub(super) struct Capsule {
    bytes: [u8; MAX_CAPSULE_BYTES],
}

impl Capsule {
    pub(super) const EMPTY: Self = Self { bytes: [0; MAX_CAPSULE_BYTES] };

    /// Becomes that of a command of several keys, none of which the controller may invalidate: with room for what says where each
    /// leads. `None` for more keys than [`MAX_DATA_BLOCKS`].
    pub(super) fn listed(&mut self, entry: &mut SubmissionQueueEntry, keys: u8) -> Option<&[u8]> {
        entry.data = listed_blocks(keys);
        let capsule = self.bytes.get_mut(..COMMAND_CAPSULE_BYTES + usize::from(keys) * SGL_DESCRIPTOR_BYTES)?;
        let (command, list) = capsule.split_at_mut(COMMAND_CAPSULE_BYTES);
        command.copy_from_slice(entry.as_bytes());
        // Those of a former command.
        list.fill(0);
        Some(capsule)
    }
}

/// Fills the keys into the data blocks that a command lists behind itself.
fn announce_list(list: &mut [u8], grants: &[Grant]) -> Result<(), AnnounceError> {
    let (descriptors, []) = list.as_chunks_mut::<SGL_DESCRIPTOR_BYTES>() else { return Err(AnnounceError) };
    if descriptors.len() != grants.len() {
        return Err(AnnounceError);
    }
    for (descriptor, grant) in descriptors.iter_mut().zip(grants) {
        let block = KeyedDataBlock { address: grant.address, length: grant.length, key: grant.key, invalidate: false };
        *descriptor = DataPointer::Keyed(block).encode().map_err(|_| AnnounceError)?;
    }
    Ok(())
}

/// What a controller said to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: Status,
    /// Command specific: dwords 0 and 1.
    pub(super) result: u64,
}

/// A command that the engine has.
#[derive(Clone, Copy, Debug)]
struct Flight {
    connection: ConnectionId,
    request: RequestHandle,
    /// Read where it came in.
    reply: Option<Reply>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Of the latest command.
    identifier: u16,
    flight: Option<Flight>,
}

/// All command identifiers of one host. An identifier is a slot's index, and above it a number that each command of the slot counts
/// on, so that a response that comes twice, or to a former command, answers nothing. The highest identifier, FFFFh, is never used.
#[derive(Debug)]
pub(super) struct Commands {
    slots: Vec<Slot>,
    /// From one identifier of a slot to the next: 1, above the bits of an index.
    step: u16,
}

impl Commands {
    pub(super) fn new(count: u16) -> Self {
        let slot = |identifier| Slot { identifier, flight: None };
        // One index more than there are slots stays unused, so FFFFh cannot come up.
        Self { slots: (0..count).map(slot).collect(), step: (count + 1).next_power_of_two() }
    }

    /// The next identifier of a slot. It answers to nothing before [`Commands::posted`].
    pub(super) fn next_identifier(&mut self, index: u16) -> u16 {
        let Some(slot) = self.slots.get_mut(usize::from(index)) else { return u16::MAX };
        // Mutant: all commands of a slot have one identifier.
        if !mutant!(host_identifier_again) {
            slot.identifier = slot.identifier.wrapping_add(self.step);
        }
        slot.flight = None;
        slot.identifier
    }

    /// The engine took the slot's next command.
    pub(super) fn posted(&mut self, index: u16, connection: ConnectionId, request: RequestHandle) {
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            slot.flight = Some(Flight { connection, request, reply: None });
        }
    }

    /// The command has ended: its slot's index, and what the controller said to it, if it did.
    #[inline(always)]
    pub(super) fn ended(&mut self, identifier: u16) -> Option<(u16, Option<Reply>)> {
        let index = self.index(identifier);
        let slot = self.slots.get_mut(index)?;
        // Mutant: an answer to a former command ends the one that has its slot.
        let flight = slot.flight.take_if(|_| slot.identifier == identifier || mutant!(host_former_ends))?;
        // Below the number of slots, which is 16 bit.
        Some((index as u16, flight.reply))
    }

    /// Whether the slot's command is with the engine.
    pub(super) fn is_in_flight(&self, index: u16) -> bool {
        self.slots.get(usize::from(index)).is_some_and(|slot| slot.flight.is_some())
    }

    /// The identifier of the slot's command, while that is with the engine.
    pub(super) fn identifier(&self, index: u16) -> Option<u16> {
        self.slots.get(usize::from(index)).filter(|slot| slot.flight.is_some()).map(|slot| slot.identifier)
    }

    /// The slot whose command has this identifier, while that is with the engine.
    pub(super) fn in_flight(&self, identifier: u16) -> Option<u16> {
        let index = self.index(identifier);
        self.slots.get(index).filter(|slot| slot.identifier == identifier)?.flight?;
        // Below the number of slots, which is 16 bit.
        Some(index as u16)
    }

    fn index(&self, identifier: u16) -> usize {
        usize::from(identifier & (self.step - 1))
    }
}

impl Protocol for Commands {
    /// Puts addresses and keys into the keyed data blocks that the capsule was prepared with (RDMA 3.2): one in the command,
    /// or several behind it.
    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        let grants = announced.grants();
        let field =
            message.get_mut(DATA_POINTER).and_then(|field| <&mut [u8; SGL_DESCRIPTOR_BYTES]>::try_from(field).ok());
        let field = field.ok_or(AnnounceError)?;
        if let Some(block) = PreparedBlock::of(field) {
            match grants {
                [grant] if block.length() == grant.length => block.fill(grant.address, grant.key),
                [] if block.length() == 0 => {}
                _ => return Err(AnnounceError),
            }
            return Ok(());
        }
        match last_segment(*field) {
            Some(_) => announce_list(message.get_mut(COMMAND_CAPSULE_BYTES..).ok_or(AnnounceError)?, grants),
            // Data in the capsule.
            None if grants.is_empty() => Ok(()),
            None => Err(AnnounceError),
        }
    }

    const CLASSIFIED_BYTES: usize = RESPONSE_CAPSULE_BYTES;

    fn classify(&mut self, connection: ConnectionId, prefix: &[u8], length: u32) -> Message {
        if length as usize != RESPONSE_CAPSULE_BYTES {
            return Message::Malformed;
        }
        let Ok(response) = parse_response(prefix) else { return Message::Malformed };
        let identifier = response.command_id.get();
        let index = self.index(identifier);
        let Some(Slot { identifier: latest, flight: Some(flight) }) = self.slots.get_mut(index) else {
            return Message::Malformed;
        };
        // K20: an answer on another queue, or to a former command, is one all the same.
        let is_latest = *latest == identifier || mutant!(host_former_answers);
        let is_of_queue = flight.connection == connection || mutant!(host_other_queue_answers);
        // A second one answers nothing, whether the end of the command was told by then or not.
        if !(is_latest && is_of_queue) || flight.reply.is_some() {
            return Message::Malformed;
        }
        flight.reply = Some(Reply { status: response.status(), result: response.result.get() });
        Message::Reply(flight.request)
    }
}

#[cfg(test)]
mod tests {
    use super::{Capsule, Commands, Reply};
    use crate::wire::{
        BlockRange, Command, CompletionQueueEntry, DataPointer, KeyedDataBlock, Status, SubmissionQueueEntry,
        last_segment,
    };
    use frwr_engine::{
        Access, AnnounceError, Announcement, ChunkKeys, ConnectionId, Grant, Message, Protocol, RequestHandle,
    };
    use zerocopy::IntoBytes;

    const ADMIN: ConnectionId = ConnectionId { index: 0, epoch: 1 };
    const IO: ConnectionId = ConnectionId { index: 1, epoch: 1 };

    fn classify(commands: &mut Commands, connection: ConnectionId, identifier: u16) -> Message {
        let response = CompletionQueueEntry::new(identifier, 0, Status::SUCCESS, 0);
        commands.classify(connection, response.as_bytes(), 16)
    }

    #[test]
    fn responses_find_their_request_once_and_on_their_connection_only() {
        let mut commands = Commands::new(34);
        let first = commands.next_identifier(5);
        assert_eq!(classify(&mut commands, IO, first), Message::Malformed, "not posted yet");
        let request = RequestHandle::from_parts(9, 3);
        commands.posted(5, IO, request);
        assert_eq!(classify(&mut commands, ADMIN, first), Message::Malformed);
        assert_eq!(classify(&mut commands, ConnectionId { epoch: 2, ..IO }, first), Message::Malformed);
        assert_eq!(classify(&mut commands, IO, first), Message::Reply(request));
        assert_eq!(classify(&mut commands, IO, first), Message::Malformed, "answered twice");
        assert_eq!(commands.ended(first), Some((5, Some(Reply { status: Status::SUCCESS, result: 0 }))));
        assert_eq!(commands.ended(first), None);
        assert_eq!(classify(&mut commands, IO, first), Message::Malformed, "it has ended");
        let second = commands.next_identifier(5);
        commands.posted(5, IO, request);
        assert_eq!(classify(&mut commands, IO, first), Message::Malformed, "a former command");
        assert_eq!((commands.identifier(5), commands.in_flight(first)), (Some(second), None));
        assert_eq!(commands.ended(first), None, "its end is not that of the one that has its slot");
        assert!(commands.is_in_flight(5) && !commands.is_in_flight(6));
    }

    #[test]
    fn every_identifier_is_safe_to_look_up_and_the_highest_is_never_used() {
        for count in [3, 34, 64, 2047] {
            let mut commands = Commands::new(count);
            for index in [0, count - 1] {
                for _ in 0..70_000 {
                    assert_ne!(commands.next_identifier(index), u16::MAX);
                }
            }
            for identifier in 0..=u16::MAX {
                assert_eq!(classify(&mut commands, IO, identifier), Message::Malformed);
                assert_eq!(commands.ended(identifier), None);
            }
        }
    }

    #[test]
    fn responses_of_another_size_are_malformed() {
        let mut commands = Commands::new(4);
        let identifier = commands.next_identifier(0);
        commands.posted(0, IO, RequestHandle::from_parts(0, 1));
        let response = CompletionQueueEntry::new(identifier, 0, Status::SUCCESS, 0);
        for length in [0, 15, 17, 64] {
            assert_eq!(commands.classify(IO, response.as_bytes(), length), Message::Malformed);
        }
        assert_eq!(commands.classify(IO, &response.as_bytes()[..15], 16), Message::Malformed);
    }

    fn capsule(length: u32) -> SubmissionQueueEntry {
        let data = DataPointer::Keyed(KeyedDataBlock { address: 0, length, key: 0, invalidate: true });
        Command::Read(BlockRange { namespace: 1, lba: 0, blocks: 1, data }).encode(1).unwrap()
    }

    /// Of a request of one chunk.
    fn announce(message: &mut [u8], grants: &[Grant]) -> Result<(), AnnounceError> {
        let keys = [ChunkKeys { access: Access::RemoteWrite, keys: grants.len() as u8 }];
        Commands::new(4).announce(message, &Announcement::new(RequestHandle::NONE, 0, grants, &keys))
    }

    #[test]
    fn keys_are_announced_where_the_standard_wants_them() {
        let grant = Grant { key: 0x0102_0304, address: 0x1000, length: 512 };
        let mut entry = capsule(512);
        announce(entry.as_mut_bytes(), &[grant]).unwrap();
        let block = KeyedDataBlock { address: 0x1000, length: 512, key: 0x0102_0304, invalidate: true };
        assert_eq!(DataPointer::decode(entry.data), Ok(DataPointer::Keyed(block)));
        for grants in [&[][..], &[grant, grant][..], &[Grant { length: 513, ..grant }][..]] {
            assert!(announce(capsule(512).as_mut_bytes(), grants).is_err());
        }
        assert!(announce(&mut [0; 39], &[grant]).is_err());
        let mut none = Command::KeepAlive.encode(1).unwrap();
        assert!(announce(none.as_mut_bytes(), &[]).is_ok());
    }

    #[test]
    fn several_keys_are_listed_behind_the_command_and_none_of_them_is_to_be_invalidated() {
        let grant = |key: u32| Grant { key, address: u64::from(key) << 20, length: 512 * key };
        let (mut listed, mut entry) = (Capsule::EMPTY, capsule(512));
        let prepared = listed.listed(&mut entry, 3).unwrap().to_vec();
        let mut message = prepared.clone();
        assert_eq!(message.len(), 64 + 3 * 16);
        assert_eq!(last_segment(message[24..40].try_into().unwrap()), Some((0, 48)));
        announce(&mut message, &[grant(1), grant(2), grant(3)]).unwrap();
        for (at, descriptor) in (0..).zip(message[64..].as_chunks::<16>().0) {
            let Grant { key, address, length } = grant(at + 1);
            let block = KeyedDataBlock { address, length, key, invalidate: false };
            assert_eq!(DataPointer::decode(*descriptor), Ok(DataPointer::Keyed(block)));
        }
        for grants in [&[grant(1)][..], &[grant(1), grant(2)], &[grant(1 << 20); 3]] {
            assert!(announce(&mut prepared.clone(), grants).is_err());
        }
        assert!(listed.listed(&mut entry, 9).is_none());
    }
}
