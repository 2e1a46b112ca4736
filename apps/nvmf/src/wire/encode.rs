//! Commands to submission queue entries: what a host writes into its capsules.

use super::command::{
    AuthenticationMessage, BlockRange, Command, Connect, DatasetManagement, GetFeatures, GetLogPage, Identify,
    PropertyGet, PropertySet, PropertySize, Select, SetFeatures, WriteZeroes, fabrics, opcode,
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
            Self::AuthenticationSend(message) => {
                encode_authentication(fabrics::AUTHENTICATION_SEND, message, command_id)
            }
            Self::AuthenticationReceive(message) => {
                encode_authentication(fabrics::AUTHENTICATION_RECEIVE, message, command_id)
            }
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
            Self::SetFeatures(SetFeatures { feature, save, namespace, value }) => {
                let mut entry = SubmissionQueueEntry::new(opcode::SET_FEATURES, command_id);
                entry.namespace = (*namespace).into();
                entry.dwords_10_15[0] = (u32::from(*feature) | u32::from(*save) << 31).into();
                entry.dwords_10_15[1] = (*value).into();
                Ok(entry)
            }
            Self::GetFeatures(get) => encode_get_features(get, command_id),
            Self::GetLogPage(get) => encode_get_log_page(get, command_id),
            Self::Abort(abort) => {
                let mut entry = SubmissionQueueEntry::new(opcode::ABORT, command_id);
                entry.dwords_10_15[0] = (u32::from(abort.queue_id) | u32::from(abort.command_id) << 16).into();
                Ok(entry)
            }
            Self::KeepAlive => Ok(SubmissionQueueEntry::new(opcode::KEEP_ALIVE, command_id)),
            Self::AsynchronousEventRequest => {
                Ok(SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, command_id))
            }
            Self::Read(range) => range.encode(opcode::READ, command_id),
            Self::Write(range) => range.encode(opcode::WRITE, command_id),
            Self::Compare(range) => range.encode(opcode::COMPARE, command_id),
            Self::WriteZeroes(zeroes) => encode_write_zeroes(zeroes, command_id),
            Self::DatasetManagement(ranges) => encode_dataset_management(ranges, command_id),
            Self::Flush { namespace } => {
                let mut entry = SubmissionQueueEntry::new(opcode::FLUSH, command_id);
                entry.namespace = (*namespace).into();
                Ok(entry)
            }
            Self::ReservationRegister(register) => register.encode(command_id),
            Self::ReservationAcquire(acquire) => acquire.encode(command_id),
            Self::ReservationRelease(release) => release.encode(command_id),
            Self::ReservationReport(report) => report.encode(command_id),
        }
    }
}

#[inline(always)]
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

fn encode_authentication(
    command_type: u8,
    message: &AuthenticationMessage,
    command_id: u16,
) -> Result<SubmissionQueueEntry, Status> {
    let mut entry = fabrics_entry(command_type, command_id);
    entry.dwords_10_15[0] = AuthenticationMessage::PROTOCOL.into();
    entry.dwords_10_15[1] = message.length.into();
    entry.with_data(message.data)
}

impl BlockRange {
    /// The entry of a command that moves these blocks, which its opcode names.
    ///
    /// # Errors
    /// As [`Command::encode`].
    #[inline(always)]
    pub(crate) fn encode(&self, opcode: u8, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
        if self.blocks == 0 || self.blocks > MAX_BLOCKS {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        let mut entry = SubmissionQueueEntry::new(opcode, command_id);
        entry.namespace = self.namespace.into();
        [entry.dwords_10_15[0], entry.dwords_10_15[1]] = halves(self.lba);
        entry.dwords_10_15[2] = (self.blocks - 1).into();
        entry.data = self.data.encode()?;
        Ok(entry)
    }
}

fn encode_get_features(get: &GetFeatures, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
    let mut entry = SubmissionQueueEntry::new(opcode::GET_FEATURES, command_id);
    let select: u32 = match get.select {
        Select::Current => 0,
        Select::Default => 1,
        Select::Saved => 2,
        Select::Capabilities => 3,
    };
    entry.namespace = get.namespace.into();
    entry.dwords_10_15[0] = (u32::from(get.feature) | select << 8).into();
    entry.dwords_10_15[1] = get.value.into();
    entry.with_data(get.data)
}

/// [`Status::INVALID_FIELD`] where the length is no multiple of 4, 0, or above 2^34.
fn encode_get_log_page(get: &GetLogPage, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
    let dwords = (get.length / 4).checked_sub(1).and_then(|dwords| u32::try_from(dwords).ok());
    let Some(dwords) = dwords.filter(|_| get.length.is_multiple_of(4)) else {
        return Err(Status::INVALID_FIELD.do_not_retry());
    };
    let mut entry = SubmissionQueueEntry::new(opcode::GET_LOG_PAGE, command_id);
    entry.namespace = get.namespace.into();
    let specific = u32::from(get.specific & 0x7f) | u32::from(get.retain_event) << 7;
    entry.dwords_10_15[0] = (u32::from(get.page) | specific << 8 | (dwords & 0xffff) << 16).into();
    entry.dwords_10_15[1] = (dwords >> 16).into();
    [entry.dwords_10_15[2], entry.dwords_10_15[3]] = halves(get.offset);
    entry.dwords_10_15[4] = (u32::from(get.offset_is_index) << 23).into();
    entry.with_data(get.data)
}

fn encode_write_zeroes(zeroes: &WriteZeroes, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
    let WriteZeroes { namespace, lba, blocks, deallocate } = *zeroes;
    let range = BlockRange { namespace, lba, blocks, data: super::DataPointer::NONE };
    let mut entry = range.encode(opcode::WRITE_ZEROES, command_id)?;
    entry.dwords_10_15[2] = ((blocks - 1) | u32::from(deallocate) << 25).into();
    Ok(entry)
}

fn encode_dataset_management(ranges: &DatasetManagement, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
    if ranges.ranges == 0 || ranges.ranges > super::MAX_DATASET_RANGES {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let mut entry = SubmissionQueueEntry::new(opcode::DATASET_MANAGEMENT, command_id);
    entry.namespace = ranges.namespace.into();
    entry.dwords_10_15[0] = (ranges.ranges - 1).into();
    entry.dwords_10_15[1] = (u32::from(ranges.deallocate) << 2).into();
    entry.with_data(ranges.data)
}
