//! Commands to submission queue entries: what a host writes into its capsules.

use super::command::{
    BlockRange, Command, Connect, Identify, PropertyGet, PropertySet, PropertySize, SetFeatures, fabrics, opcode,
};
use super::{Property, Status, SubmissionQueueEntry};
use zerocopy::little_endian::U32;

/// Largest number of blocks of one command: NLB is a 0-based 16-bit field (NVM 3.2.4).
const MAX_BLOCKS: u32 = 1 << 16;

impl Command {
    /// The entry that asks for this command.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] where the number of blocks is 0 or above 65536, and what
    /// [`super::DataPointer::encode`] says.
    pub fn encode(&self, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
        match self {
            Self::Connect(connect) => encode_connect(connect, command_id),
            Self::PropertyGet(PropertyGet { property, size }) => {
                Ok(property_entry(fabrics::PROPERTY_GET, *property, *size, command_id))
            }
            Self::PropertySet(PropertySet { property, size, value }) => {
                let mut entry = property_entry(fabrics::PROPERTY_SET, *property, *size, command_id);
                [entry.dwords_10_15[2], entry.dwords_10_15[3]] = halves(*value);
                Ok(entry)
            }
            Self::Identify(Identify { structure, namespace, data }) => {
                let mut entry = SubmissionQueueEntry::new(opcode::IDENTIFY, command_id);
                entry.namespace = (*namespace).into();
                entry.dwords_10_15[0] = u32::from(*structure).into();
                entry.with_data(*data)
            }
            Self::SetFeatures(SetFeatures { feature, save, value }) => {
                let mut entry = SubmissionQueueEntry::new(opcode::SET_FEATURES, command_id);
                entry.dwords_10_15[0] = (u32::from(*feature) | u32::from(*save) << 31).into();
                entry.dwords_10_15[1] = (*value).into();
                Ok(entry)
            }
            Self::KeepAlive => Ok(SubmissionQueueEntry::new(opcode::KEEP_ALIVE, command_id)),
            Self::AsynchronousEventRequest => {
                Ok(SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, command_id))
            }
            Self::Read(range) => encode_blocks(opcode::READ, range, command_id),
            Self::Write(range) => encode_blocks(opcode::WRITE, range, command_id),
            Self::Flush { namespace } => {
                let mut entry = SubmissionQueueEntry::new(opcode::FLUSH, command_id);
                entry.namespace = (*namespace).into();
                Ok(entry)
            }
        }
    }
}

fn halves(value: u64) -> [U32; 2] {
    [(value as u32).into(), ((value >> 32) as u32).into()]
}

fn fabrics_entry(command_type: u8, command_id: u16) -> SubmissionQueueEntry {
    let mut entry = SubmissionQueueEntry::new(opcode::FABRICS, command_id);
    entry.namespace = u32::from(command_type).into();
    entry
}

fn property_entry(command_type: u8, property: Property, size: PropertySize, command_id: u16) -> SubmissionQueueEntry {
    let mut entry = fabrics_entry(command_type, command_id);
    let attributes: u32 = match size {
        PropertySize::Four => 0,
        PropertySize::Eight => 1,
    };
    entry.dwords_10_15[0] = attributes.into();
    entry.dwords_10_15[1] = property.offset().into();
    entry
}

fn encode_connect(connect: &Connect, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
    let mut entry = fabrics_entry(fabrics::CONNECT, command_id);
    entry.dwords_10_15[0] = (u32::from(connect.record_format) | u32::from(connect.queue_id) << 16).into();
    entry.dwords_10_15[1] = (u32::from(connect.queue_size) | u32::from(connect.attributes) << 16).into();
    entry.dwords_10_15[2] = connect.keep_alive_timeout.into();
    entry.with_data(connect.data)
}

fn encode_blocks(opcode: u8, range: &BlockRange, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
    if range.blocks == 0 || range.blocks > MAX_BLOCKS {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let mut entry = SubmissionQueueEntry::new(opcode, command_id);
    entry.namespace = range.namespace.into();
    [entry.dwords_10_15[0], entry.dwords_10_15[1]] = halves(range.lba);
    entry.dwords_10_15[2] = (range.blocks - 1).into();
    entry.with_data(range.data)
}
