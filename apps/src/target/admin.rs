//! Properties, Identify and features.

use super::Target;
use super::command::{Data, Reply, Work};
use super::controller::{ConfigurationEffect, KEEP_ALIVE_UNITS};
use super::options::TRANSFER_UNIT;
use crate::nvmf::{
    self, BROADCAST_NAMESPACE, COMMAND_CAPSULE_BYTES, ControllerCapabilities, ControllerConfiguration, DataPointer,
    IDENTIFY_BYTES, Identify, IdentifyActiveNamespaces, IdentifyController, IdentifyDescriptors, IdentifyNamespace,
    KeyedDataBlock, Property, PropertyGet, PropertySet, RESPONSE_CAPSULE_BYTES, SetFeatures, Status, cns, feature,
};
use crate::storage::Storage;
use frwr_engine::provider::Port;
use zerocopy::{FromZeros, IntoBytes};

/// CAP.TO in units of 500 ms: this controller is ready at once, but a host may be slow to see it.
const READY_TIMEOUT_UNITS: u8 = 15;
/// IOCCSZ and IORCSZ count in units of this many bytes.
const CAPSULE_UNIT: u32 = 16;
const MODEL: &[u8] = b"frwr software target";
const SERIAL: &[u8] = b"frwr";
const FIRMWARE: &[u8] = env!("CARGO_PKG_VERSION").as_bytes();

fn refused(status: Status) -> Reply {
    Reply::of(status.do_not_retry())
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Property Get (Base 6.4).
    pub(super) fn property_get(&self, controller: usize, get: PropertyGet) -> Reply {
        let Some(Some(controller)) = self.controllers.get(controller) else { return refused(Status::INTERNAL_ERROR) };
        Reply::result(match get.property {
            Property::Capabilities => ControllerCapabilities::new(self.options.queue_entries, READY_TIMEOUT_UNITS).0,
            Property::Version => nvmf::VERSION.into(),
            Property::Configuration => controller.configuration().0.into(),
            Property::Status => controller.status().0.into(),
        })
    }

    /// Property Set (Base 6.5); CC is the only one that can be written.
    pub(super) fn property_set(&mut self, controller: usize, set: PropertySet) -> Reply {
        let Some(Some(found)) = self.controllers.get_mut(controller) else { return refused(Status::INTERNAL_ERROR) };
        if set.property != Property::Configuration {
            return refused(Status::INVALID_FIELD);
        }
        // CC has 4 bytes.
        if found.configure(ControllerConfiguration(set.value as u32)) == ConfigurationEffect::Reset {
            let (admin, awaited_event) = (found.admin, core::mem::take(&mut found.awaits_event));
            // The reset ends the event request without an answer (Base 3.7.2), and its entry is free.
            if let Some(queue) = self.queue_mut(admin).filter(|_| awaited_event) {
                queue.outstanding = queue.outstanding.saturating_sub(1);
            }
            self.disconnect_io_queues(controller);
        }
        Reply::result(0)
    }

    /// Set Features (Base 5.27).
    pub(super) fn set_features(&mut self, controller: usize, set: SetFeatures) -> Reply {
        if set.save {
            return refused(Status::FEATURE_NOT_SAVEABLE);
        }
        match set.feature {
            feature::NUMBER_OF_QUEUES => self.set_queues(set.value),
            feature::KEEP_ALIVE_TIMER => {
                if let Some(Some(controller)) = self.controllers.get_mut(controller) {
                    controller.set_keep_alive(set.value);
                }
                Reply::result(0)
            }
            // There are no events to report, so every choice among those that OAES offers, which are none, holds. Bits 7:0
            // are health warnings, which every controller has.
            feature::ASYNCHRONOUS_EVENTS if set.value <= 0xff => Reply::result(0),
            _ => refused(Status::INVALID_FIELD),
        }
    }

    /// Number of Queues: both numbers are 0-based, and fabrics queues come in pairs.
    fn set_queues(&self, value: u32) -> Reply {
        let (submission, completion) = (value & 0xffff, value >> 16);
        if submission == 0xffff || completion == 0xffff {
            return refused(Status::INVALID_FIELD);
        }
        let granted = u64::from(submission.min(completion).min(u32::from(self.options.io_queues) - 1));
        Reply::result(granted | granted << 16)
    }

    /// What can be said of an Identify before there is a buffer.
    pub(super) fn check_identify(&self, identify: Identify) -> Result<(Work, DataPointer), Reply> {
        let namespace = identify.namespace;
        match identify.structure {
            cns::NAMESPACE | cns::DESCRIPTORS => {
                self.namespace_index(namespace).ok_or(refused(Status::INVALID_NAMESPACE))?;
            }
            cns::CONTROLLER => {}
            // The list starts behind the given identifier; the last two identifiers have no successor.
            cns::ACTIVE_NAMESPACES if namespace < BROADCAST_NAMESPACE - 1 => {}
            cns::ACTIVE_NAMESPACES => return Err(refused(Status::INVALID_NAMESPACE)),
            _ => return Err(refused(Status::INVALID_FIELD)),
        }
        match identify.data {
            DataPointer::Keyed(KeyedDataBlock { length, .. }) if length as usize == IDENTIFY_BYTES => {
                Ok((Work::Identify(identify), identify.data))
            }
            DataPointer::Keyed(_) => Err(refused(Status::DATA_SGL_LENGTH_INVALID)),
            DataPointer::InCapsule { .. } => Err(refused(Status::SGL_DESCRIPTOR_TYPE_INVALID)),
        }
    }

    /// Writes the structure into the command's buffer.
    pub(super) fn execute_identify(&mut self, index: u32, identify: Identify) -> Reply {
        let Some(slot) = self.slots.get_mut(index) else { return refused(Status::INTERNAL_ERROR) };
        let association = self.queues.get(usize::from(slot.connection.index)).and_then(Option::as_ref);
        let Some(association) = association.and_then(|queue| queue.association) else {
            return refused(Status::INTERNAL_ERROR);
        };
        let (Some(buffer), Data::Remote(_)) = (slot.buffer.take(), &slot.data) else {
            return refused(Status::INTERNAL_ERROR);
        };
        let written = match identify.structure {
            cns::CONTROLLER => {
                let structure = self.identify_controller(association.controller);
                self.buffers.write(&buffer, 0, structure.as_bytes())
            }
            cns::ACTIVE_NAMESPACES => {
                let structure = self.active_namespaces(identify.namespace);
                self.buffers.write(&buffer, 0, structure.as_bytes())
            }
            cns::DESCRIPTORS => {
                let structure = IdentifyDescriptors::new(self.nguid(identify.namespace));
                self.buffers.write(&buffer, 0, structure.as_bytes())
            }
            _ => {
                let structure = self.identify_namespace(identify.namespace);
                self.buffers.write(&buffer, 0, structure.as_bytes())
            }
        };
        if let Some(slot) = self.slots.get_mut(index) {
            slot.buffer = Some(buffer);
        }
        if written.is_ok() { Reply::data() } else { refused(Status::INTERNAL_ERROR) }
    }

    fn identify_controller(&self, controller: usize) -> IdentifyController {
        let mut identify = IdentifyController::new_zeroed();
        pad(&mut identify.serial_number, SERIAL);
        pad(&mut identify.model_number, MODEL);
        pad(&mut identify.firmware_revision, FIRMWARE);
        identify.controller_id =
            self.controllers.get(controller).and_then(Option::as_ref).map_or(0, |controller| controller.id).into();
        // At most 2^11 times the unit: MAX_BUFFER_BYTES.
        identify.max_data_transfer = (self.options.buffer_bytes / TRANSFER_UNIT).ilog2() as u8;
        identify.version = nvmf::VERSION.into();
        // Every controller serves all namespaces: a host takes two that do not say so for two disks of one name.
        identify.multi_path = IdentifyController::MULTI_CONTROLLER;
        identify.controller_attributes = IdentifyController::TRAFFIC_BASED_KEEP_ALIVE.into();
        identify.controller_type = IdentifyController::IO_CONTROLLER;
        identify.keep_alive = KEEP_ALIVE_UNITS.into();
        identify.submission_entry_size = IdentifyController::SUBMISSION_ENTRY;
        identify.completion_entry_size = IdentifyController::COMPLETION_ENTRY;
        identify.max_commands = self.options.queue_entries.into();
        // At most MAX_NAMESPACES.
        identify.namespaces = (self.namespaces.len() as u32).into();
        // Bits 2:1: Flush takes the broadcast identifier (11b) or does not (10b); no volatile cache that could be
        // switched off.
        identify.volatile_write_cache = if self.namespaces.len() == 1 { 0b110 } else { 0b100 };
        let offset = if self.options.in_capsule_bytes > 0 { IdentifyController::SGL_OFFSET } else { 0 };
        identify.sgl_support = (IdentifyController::SGL_SUPPORTED | IdentifyController::SGL_KEYED | offset).into();
        identify.subsystem = self.options.subsystem.to_field();
        let capsule = COMMAND_CAPSULE_BYTES as u32 + self.options.in_capsule_bytes;
        identify.io_command_capsule = (capsule / CAPSULE_UNIT).into();
        identify.io_response_capsule = (RESPONSE_CAPSULE_BYTES as u32 / CAPSULE_UNIT).into();
        identify.max_data_blocks = 1;
        identify
    }

    fn identify_namespace(&self, identifier: u32) -> IdentifyNamespace {
        let mut identify = IdentifyNamespace::new_zeroed();
        let namespace = self.namespace_index(identifier).and_then(|index| self.namespaces.get(index));
        let Some(geometry) = namespace.map(Storage::geometry) else { return identify };
        identify.size = geometry.blocks().into();
        identify.capacity = geometry.blocks().into();
        identify.utilization = geometry.blocks().into();
        // A power of two of at most 2^16.
        identify.lba_formats[0].block_shift = geometry.block_bytes().ilog2() as u8;
        identify.sharing = IdentifyNamespace::SHARED;
        identify.nguid = self.nguid(identifier);
        identify
    }

    fn active_namespaces(&self, behind: u32) -> IdentifyActiveNamespaces {
        let mut list = IdentifyActiveNamespaces::new_zeroed();
        // At most MAX_NAMESPACES.
        let last = self.namespaces.len() as u32;
        for (place, identifier) in list.namespaces.iter_mut().zip(behind.saturating_add(1)..=last) {
            *place = identifier.into();
        }
        list
    }

    fn nguid(&self, identifier: u32) -> [u8; 16] {
        self.options.subsystem.identifier(identifier.into())
    }
}

/// ASCII fields end in spaces (Base 1.4.2).
fn pad<const N: usize>(field: &mut [u8; N], text: &[u8]) {
    *field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text) {
        *to = *from;
    }
}
