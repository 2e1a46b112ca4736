//! What a controller takes of one command.

use super::recourse::RetryDelays;
use crate::wire::{ControllerCapabilities, KEYED_DATA_BLOCK_LIMIT, SGL_DESCRIPTOR_BYTES, SerialNumber};

/// NLB is 16 bit and 0-based.
const MAX_BLOCKS: u32 = 1 << 16;

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
    /// What of OAES this host wants to hear of.
    pub(super) events: u32,
    pub(super) reports_ana: bool,
    /// Log pages can be read in parts (LPA).
    pub(super) log_offsets: bool,
    /// CRDT.
    pub(super) retry_delays: RetryDelays,
    /// I/O queues of this host.
    pub(super) queues: u16,
}

impl Limits {
    /// Bytes of the largest command: MDTS, NLB and the length of a keyed data block. `block`: bytes of one.
    pub(super) fn transfer(&self, block: u32) -> u32 {
        let limit = self.max_transfer.unwrap_or(u64::MAX);
        let limit = limit.min(u64::from(block) * u64::from(MAX_BLOCKS)).min(u64::from(KEYED_DATA_BLOCK_LIMIT));
        // At most KEYED_DATA_BLOCK_LIMIT.
        limit as u32 / block * block
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
