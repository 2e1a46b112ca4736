//! What a controller and its namespaces say of themselves, and whether this host can use them.

use super::recourse::RetryDelays;
use super::{Host, HostFailure};
use crate::storage::Geometry;
use crate::wire::{
    self, ControllerCapabilities, IDENTIFY_BYTES, IdentifyActiveNamespaces, IdentifyController, IdentifyNamespace,
    IdentifyNvmController, SerialNumber,
};
use frwr_engine::provider::Port;
use zerocopy::FromBytes;

/// Least IOCCSZ and IORCSZ, in their units of 16 bytes: the entries themselves (Base figure 275).
const LEAST_COMMAND_UNITS: u32 = (wire::COMMAND_CAPSULE_BYTES / 16) as u32;
const LEAST_RESPONSE_UNITS: u32 = (wire::RESPONSE_CAPSULE_BYTES / 16) as u32;

/// Asynchronous events that are switched on where the controller has them.
const WANTED_EVENTS: u32 =
    IdentifyController::NAMESPACE_EVENTS | IdentifyController::ANA_EVENTS | IdentifyController::SHUTDOWN_EVENTS;

impl<P: Port> Host<P> {
    /// Remembers the first active namespaces; what the controller does not list is found by its Identify.
    pub(super) fn take_active(&mut self, success: bool) {
        self.active_namespaces.clear();
        let mut bytes = [0; IDENTIFY_BYTES];
        // The memory holds ADMIN_DATA_BYTES, as many.
        let _ = self.admin_data.read(0, &mut bytes);
        let Ok(list) = IdentifyActiveNamespaces::ref_from_bytes(&bytes) else { return };
        let listed =
            list.namespaces.iter().map(|identifier| identifier.get()).take_while(|identifier| *identifier != 0);
        self.active_namespaces.extend(listed.take(if success { super::MAX_ACTIVE } else { 0 }));
    }

    pub(super) fn check_capabilities(&mut self, capabilities: ControllerCapabilities) -> Result<(), HostFailure> {
        self.limits.capabilities = capabilities;
        if !capabilities.has_nvm_command_set() {
            return Err(HostFailure::Unsupported("the NVM command set"));
        }
        if capabilities.minimum_page_size() > 4096 {
            return Err(HostFailure::Unsupported("memory pages of 4 KiB (CAP.MPSMIN)"));
        }
        if self.context.options.is_discovery() {
            // It has no I/O queues.
            return Ok(());
        }
        self.check_depth(self.context.options.io_entries(), capabilities.max_queue_entries())
    }

    pub(super) fn check_depth(&self, needed: u16, limit: u32) -> Result<(), HostFailure> {
        // The limit is of entries or commands; a depth is one less than the entries.
        if u32::from(needed) <= limit {
            return Ok(());
        }
        let beside = u32::from(needed - self.context.options.queue_depth);
        Err(HostFailure::QueueDepth { wanted: self.context.options.queue_depth, limit: limit.saturating_sub(beside) })
    }

    pub(super) fn check_controller(&mut self) -> Result<(), HostFailure> {
        let mut bytes = [0; IDENTIFY_BYTES];
        // The memory holds ADMIN_DATA_BYTES, as many.
        let _ = self.admin_data.read(0, &mut bytes);
        let Ok(identify) = IdentifyController::ref_from_bytes(&bytes) else {
            return Err(HostFailure::Unsupported("Identify Controller"));
        };
        if self.context.options.is_discovery() {
            if identify.controller_id.get() != self.limits.id {
                return Err(HostFailure::Unsupported("the identifier that Connect gave it (CNTLID)"));
            }
            return Ok(());
        }
        if !identify.supports_keyed_blocks() {
            return Err(HostFailure::Unsupported("keyed data blocks (SGLS)"));
        }
        if identify.controller_id.get() != self.limits.id {
            return Err(HostFailure::Unsupported("the identifier that Connect gave it (CNTLID)"));
        }
        let (command, response) = (identify.io_command_capsule.get(), identify.io_response_capsule.get());
        if command < LEAST_COMMAND_UNITS || response < LEAST_RESPONSE_UNITS {
            return Err(HostFailure::Unsupported("capsules as long as their entries (IOCCSZ, IORCSZ)"));
        }
        if identify.subsystem != self.context.options.subsystem.to_field() {
            return Err(HostFailure::Unsupported("the subsystem that it was connected to (SUBNQN)"));
        }
        let offset = identify.sgl_support.get() & IdentifyController::SGL_OFFSET != 0;
        // In-capsule data starts right behind the command, or this host does not use it.
        let usable = offset && identify.in_capsule_data_offset.get() == 0;
        self.limits.in_capsule_bytes = if usable { identify.in_capsule_bytes() } else { 0 };
        let page = self.limits.capabilities.minimum_page_size();
        self.limits.max_transfer = identify.max_transfer_bytes(page);
        self.limits.serial = SerialNumber::from_field(&identify.serial_number);
        self.limits.max_data_blocks = identify.max_data_blocks;
        self.limits.optional_commands = identify.optional_commands.get();
        self.limits.events = identify.events.get() & WANTED_EVENTS;
        self.limits.log_offsets = identify.log_pages & IdentifyController::LOG_OFFSETS != 0;
        self.limits.retry_delays = RetryDelays::new(identify.retry_delays.map(|units| units.get()));
        self.limits.reports_ana = identify.multi_path & IdentifyController::REPORTS_ANA != 0;
        match u32::from(identify.max_commands.get()) {
            0 => Ok(()),
            limit => self.check_depth(self.context.options.queue_depth, limit),
        }
    }

    /// The limit of Write Zeroes. A controller that does not know the question is not asked for more than it transfers.
    pub(super) fn take_command_set(&mut self, success: bool) {
        let mut bytes = [0; IDENTIFY_BYTES];
        // As above.
        let _ = self.admin_data.read(0, &mut bytes);
        let page = self.limits.capabilities.minimum_page_size();
        self.limits.max_zeroes = match IdentifyNvmController::ref_from_bytes(&bytes) {
            Ok(limits) if success => limits.max_zeroes_bytes(page),
            _ => self.limits.max_transfer,
        };
    }

    /// The group that the namespace is in by now. Of the rest a controller without a path to it need not know.
    pub(super) fn take_group(&mut self) {
        let mut bytes = [0; IDENTIFY_BYTES];
        // As above.
        let _ = self.admin_data.read(0, &mut bytes);
        let Ok(identify) = IdentifyNamespace::ref_from_bytes(&bytes) else { return };
        let group = identify.ana_group.get();
        if group != 0 && group != self.ana.group {
            self.ana.group = group;
            self.begin_ana();
        }
    }

    /// `live`: the session goes on; else it begins, and the namespace may be another one.
    pub(super) fn check_namespace(&mut self, live: bool) -> Result<(), HostFailure> {
        let mut bytes = [0; IDENTIFY_BYTES];
        // As above.
        let _ = self.admin_data.read(0, &mut bytes);
        let Ok(identify) = IdentifyNamespace::ref_from_bytes(&bytes) else {
            return Err(HostFailure::Unsupported("Identify Namespace"));
        };
        let (blocks, block_bytes) = identify.geometry().map_err(HostFailure::Format)?;
        let geometry = Geometry::new(blocks, block_bytes)
            .map_err(|_| HostFailure::Unsupported("namespaces of fewer than 2^64 bytes"))?;
        self.ana.group = identify.ana_group.get();
        self.limits.zeroes_deallocate = identify.deallocate_features & IdentifyNamespace::ZEROES_DEALLOCATE != 0;
        let identity = (identify.nguid, identify.eui64);
        match self.geometry {
            // Lost writes must not reach another namespace in the place of theirs.
            Some(_) if is_other(self.identity, identity) => return Err(HostFailure::NamespaceChanged),
            // A namespace may have another size while it is used: requests behind its end fail. It may not have another block
            // size under requests that were taken for it, nor another size behind a reconnect, where it may be another one.
            Some(before) if live && before.block_bytes() == geometry.block_bytes() => {}
            Some(before) if before != geometry => return Err(HostFailure::NamespaceChanged),
            _ => {}
        }
        (self.geometry, self.identity) = (Some(geometry), identity);
        Ok(())
    }
}

/// NGUID and EUI64 of a namespace.
pub(super) type Identity = ([u8; 16], [u8; 8]);

/// Whether a namespace that was named says now that it is another one; zeros are no name.
fn is_other(before: Identity, now: Identity) -> bool {
    (before.0 != [0; 16] && before.0 != now.0) || (before.1 != [0; 8] && before.1 != now.1)
}
