//! What a controller says of itself, and whether this host can use it.

use super::delays::RetryDelays;
use super::failure::HostFailure;
use super::options::HostOptions;
use crate::wire::{
    self, ControllerCapabilities, IDENTIFY_BYTES, IdentifyController, IdentifyNvmController, KEYED_DATA_BLOCK_LIMIT,
    SGL_DESCRIPTOR_BYTES, SerialNumber,
};
use core::time::Duration;
use zerocopy::FromBytes;

/// NLB is 16 bit and 0-based.
const MAX_BLOCKS: u32 = 1 << 16;
/// Least IOCCSZ and IORCSZ, in their units of 16 bytes: the entries themselves (Base figure 275).
const LEAST_COMMAND_UNITS: u32 = (wire::COMMAND_CAPSULE_BYTES / 16) as u32;
const LEAST_RESPONSE_UNITS: u32 = (wire::RESPONSE_CAPSULE_BYTES / 16) as u32;

/// Asynchronous events that are switched on where the controller has them.
const WANTED_EVENTS: u32 =
    IdentifyController::NAMESPACE_EVENTS | IdentifyController::ANA_EVENTS | IdentifyController::SHUTDOWN_EVENTS;
/// The same of a discovery controller that is asked for a persistent connection.
const WANTED_OF_DISCOVERY: u32 = IdentifyController::DISCOVERY_EVENTS;

/// What is known of the controller of this session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) id: u16,
    pub(super) capabilities: ControllerCapabilities,
    pub(super) in_capsule_bytes: u64,
    pub(super) max_transfer: Option<u64>,
    pub(super) serial: Option<SerialNumber>,
    /// MSDBD; 0 for no limit.
    pub(super) max_data_blocks: u8,
    /// ONCS.
    pub(super) optional_commands: u16,
    /// Bytes of one Write Zeroes at most (WZSL); `None` for no limit.
    pub(super) max_zeroes: Option<u64>,
    /// Write Zeroes may ask the namespace to deallocate (DLFEAT).
    pub(super) zeroes_deallocate: bool,
    /// Blocks of one fused Compare and Write at most (FUSES, ACWU); `None` where there is none.
    pub(super) compare_and_write: Option<u32>,
    /// What of OAES this host wants to hear of.
    pub(super) events: u32,
    pub(super) reports_ana: bool,
    /// Log pages can be read in parts (LPA).
    pub(super) log_offsets: bool,
    /// CRDT.
    pub(super) retry_delays: RetryDelays,
    /// How long the controller may hear nothing of this host before it has ended the session and is done with its commands: the Keep
    /// Alive Timeout by its granularity (KAS), twice where any command counts as a sign (TBKAS: the timer looks back at its end), and what it
    /// needs then (CQT). `None` where it runs no Keep Alive Timer.
    pub(super) silence: Option<Duration>,
    /// I/O queues of this host.
    pub(super) queues: u16,
}

impl Limits {
    /// Connect named the controller. What a former one said holds until this one says otherwise.
    pub(super) fn named(&mut self, id: u16) {
        self.id = id;
    }

    /// The controller granted so many I/O queues for this host.
    pub(super) fn granted(&mut self, queues: u16) {
        self.queues = queues;
    }

    /// The controller took no Asynchronous Event Configuration.
    pub(super) fn without_events(&mut self) {
        self.events = 0;
    }

    /// The namespace says whether Write Zeroes may ask it to deallocate.
    pub(super) fn zeroes_may_deallocate(&mut self, may: bool) {
        self.zeroes_deallocate = may;
    }

    /// The namespace says how many blocks it compares and writes at most (NACWU).
    pub(super) fn compares_and_writes(&mut self, blocks: u32) {
        self.compare_and_write = self.compare_and_write.map(|_| blocks);
    }

    /// The same for a host that has so many of the controller's I/O queues.
    pub(super) fn with_queues(self, queues: u16) -> Self {
        Self { queues, ..self }
    }

    pub(super) fn check_capabilities(
        &mut self,
        capabilities: ControllerCapabilities,
        options: &HostOptions,
    ) -> Result<(), HostFailure> {
        self.capabilities = capabilities;
        if !capabilities.has_nvm_command_set() {
            return Err(HostFailure::Unsupported("the NVM command set"));
        }
        if capabilities.minimum_page_size() > 4096 {
            return Err(HostFailure::Unsupported("memory pages of 4 KiB (CAP.MPSMIN)"));
        }
        if options.is_discovery() {
            // It has no I/O queues.
            return Ok(());
        }
        check_depth(options, options.io_entries(), capabilities.max_queue_entries())
    }

    pub(super) fn check_controller(
        &mut self,
        bytes: &[u8; IDENTIFY_BYTES],
        options: &HostOptions,
    ) -> Result<(), HostFailure> {
        let Ok(identify) = IdentifyController::ref_from_bytes(bytes) else {
            return Err(HostFailure::Unsupported("Identify Controller"));
        };
        if options.is_discovery() {
            if identify.controller_id.get() != self.id {
                return Err(HostFailure::Unsupported("the identifier that Connect gave it (CNTLID)"));
            }
            let wanted = if options.keep_alive.is_zero() { 0 } else { WANTED_OF_DISCOVERY };
            self.events = identify.events.get() & wanted;
            return Ok(());
        }
        if !identify.supports_keyed_blocks() {
            return Err(HostFailure::Unsupported("keyed data blocks (SGLS)"));
        }
        if identify.controller_id.get() != self.id {
            return Err(HostFailure::Unsupported("the identifier that Connect gave it (CNTLID)"));
        }
        let (command, response) = (identify.io_command_capsule.get(), identify.io_response_capsule.get());
        if command < LEAST_COMMAND_UNITS || response < LEAST_RESPONSE_UNITS {
            return Err(HostFailure::Unsupported("capsules as long as their entries (IOCCSZ, IORCSZ)"));
        }
        if identify.subsystem != options.subsystem.to_field() {
            return Err(HostFailure::Unsupported("the subsystem that it was connected to (SUBNQN)"));
        }
        let offset = identify.sgl_support.get() & IdentifyController::SGL_OFFSET != 0;
        // In-capsule data starts right behind the command, or this host does not use it.
        let usable = offset && identify.in_capsule_data_offset.get() == 0;
        self.in_capsule_bytes = if usable { identify.in_capsule_bytes() } else { 0 };
        let page = self.capabilities.minimum_page_size();
        self.max_transfer = identify.max_transfer_bytes(page);
        self.serial = SerialNumber::from_field(&identify.serial_number);
        self.max_data_blocks = identify.max_data_blocks;
        self.optional_commands = identify.optional_commands.get();
        let fused = identify.fused_operations.get() & IdentifyController::COMPARE_AND_WRITE != 0;
        self.compare_and_write = fused.then(|| u32::from(identify.compare_and_write_unit.get()) + 1);
        self.events = identify.events.get() & WANTED_EVENTS;
        self.log_offsets = identify.log_pages & IdentifyController::LOG_OFFSETS != 0;
        self.retry_delays = RetryDelays::new(identify.retry_delays.map(|units| units.get()));
        self.silence = silence(options.keep_alive, identify);
        self.reports_ana = identify.multi_path & IdentifyController::REPORTS_ANA != 0;
        match u32::from(identify.max_commands.get()) {
            0 => Ok(()),
            limit => check_depth(options, options.queue_depth, limit),
        }
    }

    /// The limit of Write Zeroes. A controller that does not know the question is not asked for more than it transfers.
    pub(super) fn take_command_set(&mut self, bytes: &[u8; IDENTIFY_BYTES], success: bool) {
        let page = self.capabilities.minimum_page_size();
        self.max_zeroes = match IdentifyNvmController::ref_from_bytes(bytes) {
            Ok(limits) if success => limits.max_zeroes_bytes(page),
            _ => self.max_transfer,
        };
    }

    /// Blocks of the largest command: MDTS, NLB and the length of a keyed data block. `block`: bytes of one.
    #[inline(always)]
    pub(super) fn transfer(&self, block: u32) -> u32 {
        let limit = self.max_transfer.unwrap_or(u64::MAX).min(u64::from(KEYED_DATA_BLOCK_LIMIT));
        // At most KEYED_DATA_BLOCK_LIMIT.
        (limit as u32 / block).min(MAX_BLOCKS)
    }

    /// Blocks of one Write Zeroes at most: WZSL and NLB.
    pub(super) fn zeroes(&self, block: u32) -> u32 {
        let limit = self.max_zeroes.map_or(MAX_BLOCKS.into(), |bytes| bytes / u64::from(block));
        // At most MAX_BLOCKS; what is less than a block is refused by the controller.
        limit.clamp(1, MAX_BLOCKS.into()) as u32
    }

    /// Keys of one command at most, and `wanted` at most: the controller's data blocks (MSDBD; 0 for no limit), whose
    /// descriptors have to fit into its capsules behind the command where there are several.
    pub(super) fn keys(&self, wanted: u8) -> u8 {
        let offered = match self.max_data_blocks {
            0 => u8::MAX,
            blocks => blocks,
        };
        let room = self.in_capsule_bytes / SGL_DESCRIPTOR_BYTES as u64;
        let room = u8::try_from(room).unwrap_or(u8::MAX);
        wanted.min(offered).min(room).max(1)
    }
}

/// See [`Limits::silence`].
fn silence(keep_alive: Duration, identify: &IdentifyController) -> Option<Duration> {
    let unit = Duration::from_millis(100 * u64::from(identify.keep_alive.get()));
    // Without a granularity it has no Keep Alive Timer (Base figure 275).
    if keep_alive.is_zero() || unit.is_zero() {
        return None;
    }
    let units = keep_alive.as_millis().div_ceil(unit.as_millis());
    let rounded = unit.saturating_mul(u32::try_from(units).unwrap_or(u32::MAX));
    let by_traffic = identify.controller_attributes.get() & IdentifyController::TRAFFIC_BASED_KEEP_ALIVE != 0;
    let quiesces = Duration::from_millis(identify.command_quiesce_time.get().into());
    Some(rounded.saturating_mul(if by_traffic { 2 } else { 1 }).saturating_add(quiesces))
}

/// A queue of the host is not deeper than the controller allows.
pub(super) fn check_depth(options: &HostOptions, needed: u16, limit: u32) -> Result<(), HostFailure> {
    // The limit is of entries or commands; a depth is one less than the entries.
    if u32::from(needed) <= limit {
        return Ok(());
    }
    let beside = u32::from(needed - options.queue_depth);
    Err(HostFailure::QueueDepth { wanted: options.queue_depth, limit: limit.saturating_sub(beside) })
}

#[cfg(test)]
mod tests {
    use super::silence;
    use crate::wire::IdentifyController;
    use core::time::Duration;
    use zerocopy::FromZeros;

    #[test]
    fn silence_ends_a_controller_after_its_own_timer_and_one_without_a_timer_never() {
        let (second, ms) = (Duration::from_secs(1), Duration::from_millis(1));
        let mut identify = IdentifyController::new_zeroed();
        assert_eq!(silence(5 * second, &identify), None, "KAS says that there is no Keep Alive");
        identify.keep_alive = 20.into();
        assert_eq!(silence(5 * second, &identify), Some(6 * second));
        assert_eq!(silence(Duration::ZERO, &identify), None);
        identify.command_quiesce_time = 300.into();
        identify.controller_attributes = IdentifyController::TRAFFIC_BASED_KEEP_ALIVE.into();
        assert_eq!(silence(5 * second, &identify), Some(12 * second + 300 * ms));
    }
}
