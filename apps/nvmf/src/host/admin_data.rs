//! Commands that are no I/O, and the memory for what they carry.

use super::context::Context;
use super::options::{ADMIN_ENTRIES, AdminSlot};
use crate::authentication::MAX_MESSAGE_BYTES;
use crate::wire::{
    self, ADMIN_QUEUE, AuthenticationMessage, BROADCAST_NAMESPACE, Command, Connect, ConnectData, DYNAMIC_CONTROLLER,
    DataPointer, GetLogPage, IDENTIFY_BYTES, Identify, KeyedDataBlock, ReservationNotification, log_page,
};
use frwr_engine::gather::{MemoryId, Segment};
use frwr_engine::provider::{Access, Port};
use frwr_engine::{Chunk, ConnectionId, SubmitError};
use frwr_mempool::DeviceMemory;

/// Connect's data as a keyed data block says its length.
const CONNECT_DATA_BYTES: u32 = wire::CONNECT_DATA_BYTES as u32;
/// Identify structures as a keyed data block says their length.
const STRUCTURE_BYTES: u32 = IDENTIFY_BYTES as u32;

/// A command, and what of the memory it opens.
pub(super) struct Asked {
    command: Command,
    opens: Option<(Access, u32)>,
}

impl Asked {
    /// A command without data.
    pub(super) fn plain(command: Command) -> Self {
        Self { command, opens: None }
    }

    pub(super) fn identify(structure: u8, namespace: u32) -> Self {
        let command = Command::Identify(Identify { structure, namespace, data: keyed(STRUCTURE_BYTES) });
        Self { command, opens: Some((Access::RemoteWrite, STRUCTURE_BYTES)) }
    }

    /// 4 KiB of a log page, whose event is cleared by that.
    pub(super) fn log_page(page: u8, specific: u8, offset: u64) -> Self {
        Self::part_of_log_page(page, specific, offset, STRUCTURE_BYTES)
    }

    /// One reservation notification.
    pub(super) fn notification() -> Self {
        // 64 bytes.
        let length = size_of::<ReservationNotification>() as u32;
        Self::part_of_log_page(log_page::RESERVATION_NOTIFICATION, 0, 0, length)
    }

    fn part_of_log_page(page: u8, specific: u8, offset: u64, length: u32) -> Self {
        let command = Command::GetLogPage(GetLogPage {
            page,
            specific,
            retain_event: false,
            length: length.into(),
            offset,
            offset_is_index: false,
            namespace: BROADCAST_NAMESPACE,
            data: keyed(length),
        });
        Self { command, opens: Some((Access::RemoteWrite, length)) }
    }
}

/// Admin data whose address and key the engine asks for later.
fn keyed(length: u32) -> DataPointer {
    DataPointer::Keyed(KeyedDataBlock { address: 0, length, key: 0, invalidate: false })
}

/// Memory of [`super::ADMIN_DATA_BYTES`], of which one command at a time has use.
#[derive(Debug)]
pub(super) struct AdminData {
    memory: DeviceMemory,
    id: MemoryId,
    /// Of the message that is sent next.
    message_bytes: u32,
}

const _: () = assert!(MAX_MESSAGE_BYTES == IDENTIFY_BYTES);

impl AdminData {
    pub(super) fn new(memory: DeviceMemory, id: MemoryId) -> Self {
        Self { memory, id, message_bytes: 0 }
    }

    /// What a command brought.
    pub(super) fn read(&self) -> [u8; IDENTIFY_BYTES] {
        let mut bytes = [0; IDENTIFY_BYTES];
        // The memory holds ADMIN_DATA_BYTES, as many.
        let _ = self.memory.read(0, &mut bytes);
        bytes
    }

    /// The Connect of the admin queue, or with the identifier of a controller that of one of its I/O queues.
    pub(super) fn connect<P: Port>(&self, io: Option<(u16, u16)>, context: &Context<P>) -> Asked {
        let options = &context.options;
        let (queue_id, controller_id) = io.unwrap_or((ADMIN_QUEUE, DYNAMIC_CONTROLLER));
        let (host_id, subsystem, host) = (options.host_id, options.subsystem, Some(options.host));
        let data = ConnectData { host_id, controller_id, subsystem, host };
        // The memory holds ADMIN_DATA_BYTES, which is more.
        let _ = self.memory.write(0, &data.to_bytes());
        // More than 49 days is for ever.
        let milliseconds = u32::try_from(options.keep_alive.as_millis()).unwrap_or(u32::MAX);
        let (entries, keep_alive_timeout) =
            if io.is_some() { (options.io_entries(), 0) } else { (ADMIN_ENTRIES, milliseconds) };
        let connect = Connect {
            record_format: 0,
            queue_id,
            queue_size: entries - 1,
            attributes: 0,
            keep_alive_timeout,
            data: keyed(CONNECT_DATA_BYTES),
        };
        Asked { command: Command::Connect(connect), opens: Some((Access::RemoteRead, CONNECT_DATA_BYTES)) }
    }

    /// Authentication Send of a message.
    pub(super) fn send_message(&self) -> Asked {
        let length = self.message_bytes;
        let command = Command::AuthenticationSend(AuthenticationMessage { length, data: keyed(length) });
        Asked { command, opens: Some((Access::RemoteRead, length)) }
    }

    /// The message that is sent next, of [`MAX_MESSAGE_BYTES`] at most.
    pub(super) fn write_message(&mut self, message: &[u8]) {
        let message = message.get(..MAX_MESSAGE_BYTES).unwrap_or(message);
        // The memory holds ADMIN_DATA_BYTES, as many.
        let _ = self.memory.write(0, message);
        self.message_bytes = message.len() as u32;
    }

    /// Authentication Receive, with room for the largest message.
    pub(super) fn receive_message() -> Asked {
        let length = STRUCTURE_BYTES;
        let command = Command::AuthenticationReceive(AuthenticationMessage { length, data: keyed(length) });
        Asked { command, opens: Some((Access::RemoteWrite, length)) }
    }

    /// Submits a command.
    ///
    /// # Errors
    /// Where the engine has no room, or there is no connection, the next poll tries again.
    pub(super) fn send<P: Port>(
        &self,
        connection: Option<ConnectionId>,
        slot: AdminSlot,
        asked: Asked,
        context: &mut Context<P>,
    ) -> Result<(), SubmitError> {
        let connection = connection.ok_or(SubmitError::NotConnected)?;
        let segments = asked.opens.map(|(_, length)| [Segment { memory: self.id, offset: 0, length }]);
        let chunk = asked.opens.zip(segments.as_ref()).map(|((access, _), segments)| Chunk { access, segments });
        let slot = context.options.admin_slot(slot);
        context.transport.ask(connection, slot, &asked.command, chunk.as_slice())
    }
}
