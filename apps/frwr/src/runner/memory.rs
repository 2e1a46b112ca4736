//! Memory that cores own.

use crate::Error;
use frwr_mempool::{
    DeviceMemory, Region,
    region::{PagePolicy, RegionOptions},
};

/// Bytes beside what is computed: the alignment of what is carved.
const SLACK: usize = 128 << 10;

/// Alignment: a page.
const PAGE: usize = 4096;

/// Memory for so many bytes of its own.
pub(super) fn memory(bytes: usize, pages: PagePolicy, node: Option<u32>) -> Result<DeviceMemory, Error> {
    let mut region = map(bytes.next_multiple_of(PAGE) + SLACK, pages, node)?;
    Ok(region.carve(bytes, PAGE)?.into_device_memory())
}

/// A region on the core's node, of the wanted kind.
pub(crate) fn map(bytes: usize, pages: PagePolicy, node: Option<u32>) -> Result<Region, Error> {
    Ok(Region::map(&RegionOptions::new(bytes).pages(pages).node(node))?)
}
