//! Memory that a namespace lives in: of its own, for all cores of all devices, those that come later included.

use super::memory::memory;
use crate::Error;
use frwr_mempool::{DeviceMemory, PagePolicy};
use frwr_nvmf::storage::{AnyStorage, Comparing, Geometry, MemoryStorage, RangeLocks};
use std::sync::Arc;

/// Clones are the same memory, which is given back with the last of them and of the storages over it.
#[derive(Clone, Debug)]
pub(super) struct MemoryMedium {
    bytes: DeviceMemory,
    /// Of all its storages together.
    locks: Arc<RangeLocks>,
    geometry: Geometry,
    read_only: bool,
}

impl MemoryMedium {
    /// Memory of this kind, on this node, that holds this at first, before zeros.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn new(
        geometry: Geometry,
        content: Option<&[u8]>,
        read_only: bool,
        pages: PagePolicy,
        node: Option<u32>,
    ) -> Result<Self, Error> {
        // Sizes are bounded far below 2^64.
        let bytes = memory(geometry.blocks() as usize * geometry.block_bytes() as usize, pages, node)?;
        if let Some(content) = content {
            bytes.write(0, content).map_err(Error::setup)?;
        }
        Ok(Self { bytes, locks: Arc::default(), geometry, read_only })
    }

    /// One core's way to it, of `depth` operations at a time.
    ///
    /// # Errors
    /// There is no memory for that.
    pub(super) fn storage(&self, depth: usize) -> Result<AnyStorage, Error> {
        let storage = MemoryStorage::new(self.bytes.clone(), self.geometry.block_bytes(), depth);
        let storage = storage.map_err(Error::setup)?;
        let storage = if self.read_only { storage.read_only() } else { storage };
        let storage = Comparing::new(storage, &self.locks).map_err(Error::setup)?;
        Ok(AnyStorage::Memory(Box::new(storage)))
    }
}
