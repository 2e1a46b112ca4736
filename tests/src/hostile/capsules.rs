//! What the attacks send: capsules with fields that no host would choose.

use frwr_nvmf::wire::{
    BlockRange, Command, Connect, ConnectData, ControllerConfiguration, DYNAMIC_CONTROLLER, DataPointer,
    KeyedDataBlock, Nqn, Property, PropertySet, PropertySize, Status, SubmissionQueueEntry, opcode,
};
use zerocopy::IntoBytes;

/// Bytes of a block of the namespaces that are attacked; others are only refused for another reason.
pub(super) const BLOCK_BYTES: u32 = 4096;

pub(super) fn keyed(address: u64, length: u32, key: u32) -> DataPointer {
    DataPointer::Keyed(KeyedDataBlock { address, length, key, invalidate: false })
}

fn bytes(command: &Command, command_id: u16) -> Result<Vec<u8>, String> {
    Ok(command.encode(command_id).map_err(|status: Status| status.to_string())?.as_bytes().to_vec())
}

/// Connect, with its data behind it.
pub(super) fn connect(
    queue_id: u16,
    entries: u16,
    host: Nqn,
    subsystem: Nqn,
    controller_id: Option<u16>,
) -> Result<Vec<u8>, String> {
    let data = ConnectData {
        host_id: host.identifier(1),
        controller_id: controller_id.unwrap_or(DYNAMIC_CONTROLLER),
        subsystem,
        host: Some(host),
    }
    .to_bytes();
    let length = data.len() as u32;
    let connect = Connect {
        record_format: 0,
        queue_id,
        queue_size: entries - 1,
        attributes: 0,
        keep_alive_timeout: 0,
        data: DataPointer::InCapsule { offset: 0, length },
    };
    let mut capsule = bytes(&Command::Connect(connect), 1)?;
    capsule.extend_from_slice(&data);
    Ok(capsule)
}

/// Property Set that enables the controller.
pub(super) fn enable() -> Result<Vec<u8>, String> {
    let (property, size) = (Property::Configuration, PropertySize::Four);
    let value = ControllerConfiguration::ENABLED.0.into();
    bytes(&Command::PropertySet(PropertySet { property, size, value }), 2)
}

/// A read of blocks.
pub(super) fn read(command_id: u16, blocks: u32, data: DataPointer) -> Result<Vec<u8>, String> {
    bytes(&Command::Read(BlockRange { namespace: 1, lba: 0, blocks, data }), command_id)
}

/// A write of blocks.
pub(super) fn write(command_id: u16, blocks: u32, data: DataPointer) -> Result<Vec<u8>, String> {
    bytes(&Command::Write(BlockRange { namespace: 1, lba: 0, blocks, data }), command_id)
}

/// A command with any descriptor in place of its data pointer.
pub(super) fn with_descriptor(mut capsule: Vec<u8>, descriptor: [u8; 16]) -> Vec<u8> {
    let at = SubmissionQueueEntry::DATA_OFFSET;
    if let Some(place) = capsule.get_mut(at..at + descriptor.len()) {
        place.copy_from_slice(&descriptor);
    }
    capsule
}

/// A descriptor by its parts.
pub(super) fn descriptor(address: u64, length: u32, identifier: u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[15] = identifier;
    bytes
}

/// An Asynchronous Event Request: answered when something happens, so that it stays outstanding.
pub(super) fn event_request(command_id: u16) -> Vec<u8> {
    SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, command_id).as_bytes().to_vec()
}

/// Bytes without meaning, the same ones every time (xorshift64).
pub(super) fn garbage(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    core::iter::repeat_with(next).take(length).collect()
}
