//! Identify (Base 5.17, NVM 4.1.5).

use super::super::controllers::{Controller, ERROR_LOG_ENTRIES, KEEP_ALIVE_UNITS, MAX_EVENT_REQUESTS, Notice};
use super::super::media::{Buffer, Buffers, Media};
use super::super::options::{TRANSFER_UNIT, TargetOptions};
use super::super::subsystem::{MAX_ANA_GROUPS, Served, Subsystems};
use super::super::work::{MAX_ABORTS, Work, refused};
use super::checks::{Accepted, Arrival, Checks};
use super::fused;
use crate::storage::Storage;
use crate::wire::{
    self, BROADCAST_NAMESPACE, COMMAND_CAPSULE_BYTES, DISCOVERY_SUBSYSTEM, DataPointer, IDENTIFY_BYTES, Identify,
    IdentifyActiveNamespaces, IdentifyController, IdentifyDescriptors, IdentifyNamespace, IdentifyNvmController,
    KeyedDataBlock, RESPONSE_CAPSULE_BYTES, Status, cns,
};
use frwr_engine::provider::Port;
use zerocopy::{FromZeros, IntoBytes};

/// IOCCSZ and IORCSZ count in units of this many bytes.
const CAPSULE_UNIT: u32 = 16;
const MODEL: &[u8] = b"frwr software target";
pub(super) const FIRMWARE: &[u8] = env!("CARGO_PKG_VERSION").as_bytes();
/// One slot, read only.
const FIRMWARE_SLOTS: u8 = 1 << 1 | 1;
/// Kelvin. Nothing is measured, so neither is ever reached.
const WARNING_TEMPERATURE: u16 = 343;
const CRITICAL_TEMPERATURE: u16 = 353;
/// Aborts at a time, 0-based: more than hosts send.
const ABORT_LIMIT: u8 = MAX_ABORTS - 1;
/// Seconds. A state changes at once.
const ANA_TRANSITION_TIME: u8 = 10;
/// Every state can be reported. That a group never changes (bit 6) is not said: nvme-cli then asks for too little of the log.
const ANA_CAPABILITIES: u8 = 0x1f;
/// Write Zeroes moves no data and is bounded all the same, because a reactor waits for memory: 1 MiB as a power of two of
/// [`TRANSFER_UNIT`].
const WRITE_ZEROES_SHIFT: u8 = 8;
/// Bytes of one Write Zeroes at most, or one block.
pub(super) const MAX_WRITE_ZEROES_BYTES: u64 = (TRANSFER_UNIT as u64) << WRITE_ZEROES_SHIFT;
const _: () = assert!(MAX_WRITE_ZEROES_BYTES >= crate::storage::MAX_BLOCK_BYTES as u64);

/// Identify (Base 5.17): what can be said before there is a buffer.
pub(super) fn identify<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (subsystem, identify) = checks.ready_in(arrival, Identify::decode(arrival.entry))?;
    let namespace = identify.namespace;
    match (identify.structure, subsystem) {
        (cns::CONTROLLER, _) => {}
        // A discovery controller has no namespaces (Base figure 273).
        (_, None) => return Err(refused(Status::INVALID_FIELD)),
        (cns::NAMESPACE | cns::DESCRIPTORS | cns::COMMAND_SET_NAMESPACE, Some(subsystem)) => {
            let namespaces = subsystem.namespaces();
            if !namespaces.is_valid(namespace) {
                return Err(refused(Status::INVALID_NAMESPACE));
            }
            // The others say zeros of an inactive one; these have something to say of an active one only (Base 3.2.1.4).
            if identify.structure == cns::DESCRIPTORS && !namespaces.is_active(namespace) {
                return Err(refused(Status::INVALID_FIELD));
            }
        }
        // The list starts behind the given identifier; the last two identifiers have no successor.
        (cns::ACTIVE_NAMESPACES, _) if namespace < BROADCAST_NAMESPACE - 1 => {}
        (cns::ACTIVE_NAMESPACES, _) => return Err(refused(Status::INVALID_NAMESPACE)),
        (cns::COMMAND_SET_CONTROLLER, _) => {}
        _ => return Err(refused(Status::INVALID_FIELD)),
    }
    let of_command_set = matches!(identify.structure, cns::COMMAND_SET_NAMESPACE | cns::COMMAND_SET_CONTROLLER);
    if of_command_set && arrival.entry.command_set() != 0 {
        return Err(refused(Status::INVALID_COMMAND_SET));
    }
    match identify.data {
        DataPointer::Keyed(KeyedDataBlock { length, .. }) if length as usize == IDENTIFY_BYTES => {
            Ok((Work::Identify { structure: identify.structure, namespace }, identify.data))
        }
        DataPointer::Keyed(_) => Err(refused(Status::DATA_SGL_LENGTH_INVALID)),
        DataPointer::InCapsule { .. } => Err(refused(Status::SGL_DESCRIPTOR_TYPE_INVALID)),
    }
}

/// What the structures of Identify are made of: lent for one command.
pub(in super::super) struct Identified<'a, S> {
    pub(in super::super) options: &'a TargetOptions,
    pub(in super::super) controller: &'a Controller,
    pub(in super::super) subsystems: &'a Subsystems,
    pub(in super::super) media: &'a Media<S>,
    /// ONCS.
    pub(in super::super) optional_commands: u16,
}

impl<S: Storage> Identified<'_, S> {
    /// Writes the structure into a command's buffer; false where that cannot be.
    pub(in super::super) fn write(&self, structure: u8, namespace: u32, buffers: &Buffers, buffer: &Buffer) -> bool {
        let subsystem = self.controller.subsystem().and_then(|index| self.subsystems.get(index));
        let written = match (structure, subsystem) {
            (cns::CONTROLLER, subsystem) => buffers.write(buffer, 0, self.identify_controller(subsystem).as_bytes()),
            (cns::ACTIVE_NAMESPACES, Some(subsystem)) => {
                buffers.write(buffer, 0, self.active_namespaces(subsystem, namespace).as_bytes())
            }
            (cns::DESCRIPTORS, Some(subsystem)) => {
                let nguid = subsystem.namespaces().nguid(namespace).unwrap_or_default();
                let structure = IdentifyDescriptors::new(nguid);
                buffers.write(buffer, 0, structure.as_bytes())
            }
            // No protection information and no metadata: all fields are 0 (NVM figure 100).
            (cns::COMMAND_SET_NAMESPACE, Some(_)) => buffers.clear(buffer, IDENTIFY_BYTES),
            (cns::COMMAND_SET_CONTROLLER, Some(_)) => {
                let mut limits = IdentifyNvmController::new_zeroed();
                limits.write_zeroes_limit = WRITE_ZEROES_SHIFT;
                buffers.write(buffer, 0, limits.as_bytes())
            }
            (cns::NAMESPACE, Some(subsystem)) => {
                buffers.write(buffer, 0, self.identify_namespace(subsystem, namespace).as_bytes())
            }
            _ => return false,
        };
        written.is_ok()
    }

    fn identify_controller(&self, subsystem: Option<&Served>) -> IdentifyController {
        let mut identify = IdentifyController::new_zeroed();
        pad(&mut identify.model_number, MODEL);
        pad(&mut identify.firmware_revision, FIRMWARE);
        identify.controller_id = self.controller.id().into();
        // At most 2^11 times the unit: MAX_BUFFER_BYTES.
        identify.max_data_transfer = (self.options.buffer_bytes / TRANSFER_UNIT).ilog2() as u8;
        identify.version = wire::VERSION.into();
        identify.controller_attributes = IdentifyController::TRAFFIC_BASED_KEEP_ALIVE.into();
        identify.async_event_limit = (MAX_EVENT_REQUESTS - 1) as u8;
        identify.abort_limit = ABORT_LIMIT;
        identify.log_pages = IdentifyController::LOG_OFFSETS;
        identify.error_log_entries = (ERROR_LOG_ENTRIES - 1) as u8;
        identify.keep_alive = KEEP_ALIVE_UNITS.into();
        identify.max_commands = self.options.queue_entries.into();
        let offset = if self.options.in_capsule_bytes > 0 { IdentifyController::SGL_OFFSET } else { 0 };
        identify.sgl_support = (IdentifyController::SGL_SUPPORTED | IdentifyController::SGL_KEYED | offset).into();
        let Some(subsystem) = subsystem else {
            // What is not set is reserved for a discovery controller (Base figure 275).
            identify.controller_type = IdentifyController::DISCOVERY_CONTROLLER;
            identify.events = Notice::OF_DISCOVERY.into();
            let name = wire::Nqn::new(DISCOVERY_SUBSYSTEM);
            identify.subsystem = name.map_or([0; 256], |name| name.to_field());
            return identify;
        };
        self.identify_io(&mut identify, subsystem);
        identify
    }

    /// What only an I/O controller has.
    fn identify_io(&self, identify: &mut IdentifyController, subsystem: &Served) {
        identify.serial_number = subsystem.serial().to_field();
        // Every controller serves all namespaces: a host takes two that do not say so for two disks of one name.
        identify.multi_path = IdentifyController::MULTI_CONTROLLER | IdentifyController::REPORTS_ANA;
        identify.controller_type = IdentifyController::IO_CONTROLLER;
        identify.events = Notice::SUPPORTED.into();
        identify.firmware = FIRMWARE_SLOTS;
        identify.log_pages |= IdentifyController::EFFECTS_LOG;
        identify.warning_temperature = WARNING_TEMPERATURE.into();
        identify.critical_temperature = CRITICAL_TEMPERATURE.into();
        identify.ana_transition_time = ANA_TRANSITION_TIME;
        identify.ana_capabilities = ANA_CAPABILITIES;
        (identify.ana_max_group, identify.ana_groups) = (MAX_ANA_GROUPS.into(), MAX_ANA_GROUPS.into());
        identify.submission_entry_size = IdentifyController::SUBMISSION_ENTRY;
        identify.completion_entry_size = IdentifyController::COMPLETION_ENTRY;
        // As many as there may be, as hosts keep what they read once, and ask for log pages by it.
        let highest = subsystem.namespaces().highest();
        (identify.namespaces, identify.max_namespaces) = (highest.into(), highest.into());
        identify.optional_commands = self.optional_commands.into();
        // Bit 0: what was written may be lost before a flush. Bits 2:1: Flush takes the broadcast identifier (11b) or not.
        identify.volatile_write_cache = if highest == 1 { 0b111 } else { 0b101 };
        if let Some(blocks) = fused::blocks_of_all(self.options, self.media, subsystem) {
            identify.fused_operations = IdentifyController::COMPARE_AND_WRITE.into();
            identify.compare_and_write_unit = (blocks - 1).into();
        }
        identify.subsystem = subsystem.name().to_field();
        let capsule = COMMAND_CAPSULE_BYTES as u32 + self.options.in_capsule_bytes;
        identify.io_command_capsule = (capsule / CAPSULE_UNIT).into();
        identify.io_response_capsule = (RESPONSE_CAPSULE_BYTES as u32 / CAPSULE_UNIT).into();
        identify.max_data_blocks = self.options.data_blocks;
    }

    /// An inactive namespace's structure is zeros (Base 5.17.2.1).
    fn identify_namespace(&self, subsystem: &Served, identifier: u32) -> IdentifyNamespace {
        let mut identify = IdentifyNamespace::new_zeroed();
        let namespaces = subsystem.namespaces();
        let Some(medium) = namespaces.active(identifier).and_then(|place| self.media.get(place)) else {
            return identify;
        };
        let geometry = medium.geometry();
        identify.size = geometry.blocks().into();
        identify.capacity = geometry.blocks().into();
        identify.utilization = geometry.blocks().into();
        // A power of two of at most 2^16.
        identify.lba_formats[0].block_shift = geometry.block_bytes().ilog2() as u8;
        identify.sharing = IdentifyNamespace::SHARED;
        identify.reservations = self.media.reservation_capabilities(medium);
        identify.ana_group = namespaces.group(identifier).unwrap_or_default().into();
        let features = medium.features();
        identify.deallocate_features = if features.write_zeroes { IdentifyNamespace::ZEROES_DEALLOCATE } else { 0 };
        identify.attributes = if features.read_only { IdentifyNamespace::WRITE_PROTECTED } else { 0 };
        identify.nguid = namespaces.nguid(identifier).unwrap_or_default();
        if fused::blocks_of_all(self.options, self.media, subsystem).is_some()
            && let Some(blocks) = fused::blocks(self.options, medium)
        {
            identify.features = IdentifyNamespace::OWN_ATOMIC_UNITS;
            identify.compare_and_write_unit = (blocks - 1).into();
        }
        identify
    }

    fn active_namespaces(&self, subsystem: &Served, behind: u32) -> IdentifyActiveNamespaces {
        let mut list = IdentifyActiveNamespaces::new_zeroed();
        let namespaces = subsystem.namespaces();
        let is_active = |identifier: &u32| namespaces.is_active(*identifier);
        let active = (behind.saturating_add(1)..=namespaces.highest()).filter(is_active);
        for (place, identifier) in list.namespaces.iter_mut().zip(active) {
            *place = identifier.into();
        }
        list
    }
}

/// ASCII fields end in spaces (Base 1.4.2).
pub(super) fn pad<const N: usize>(field: &mut [u8; N], text: &[u8]) {
    *field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text) {
        *to = *from;
    }
}
