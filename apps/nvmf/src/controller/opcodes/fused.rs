//! Which fused operations a controller has: Compare and Write, where all namespaces of its subsystem are able to it. It says
//! so for all of them at once (FUSES), as it does of optional commands.

use super::super::media::{Media, Medium};
use super::super::options::TargetOptions;
use super::super::subsystem::Served;
use crate::storage::Storage;

/// What lies in the one data buffer of such an operation: what is compared, what is written, and the blocks as they are.
const PARTS_OF_BUFFER: u32 = 3;

/// Blocks of one Compare and Write of a namespace at most; `None` where it has none: its storage cannot, or a data buffer
/// is too small for a block.
pub(in super::super) fn blocks<S: Storage>(options: &TargetOptions, medium: &Medium<S>) -> Option<u16> {
    let fit = options.buffer_bytes / PARTS_OF_BUFFER / medium.geometry().block_bytes();
    let most = medium.features().compare_and_write.min(fit);
    // NLB has 16 bits, too.
    Some(u16::try_from(most).unwrap_or(u16::MAX)).filter(|blocks| *blocks > 0)
}

/// The same of whichever namespace; `None` where one has none, or there is none.
pub(in super::super) fn blocks_of_all<S: Storage>(
    options: &TargetOptions,
    media: &Media<S>,
    subsystem: &Served,
) -> Option<u16> {
    let of_each = subsystem.namespaces().places().map(|place| blocks(options, media.get(place)?));
    of_each.reduce(|one, other| Some(one?.min(other?))).flatten()
}
