//! What of a medium matters to operations: what it is, where a namespace of it ends, and how transfers lie.

use super::super::{AttachError, Features, Geometry, Operation, ResizeError, StorageError};
use frwr_mempool::DeviceMemory;

/// What a medium is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A regular file. Whoever writes behind its end makes it longer.
    File,
    /// A block device.
    Device,
}

/// What of a medium matters to operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) geometry: Geometry,
    pub(super) kind: Kind,
    /// Buffers, offsets and lengths are multiples of this, a power of two; 1 for any.
    pub(super) alignment: u32,
    /// Ranges of fallocate(2) are, a power of two.
    pub(super) granule: u32,
    /// They may have to be: what is tried where such a range was refused. A power of two.
    pub(super) coarse_granule: u32,
    pub(super) read_only: bool,
}

impl Layout {
    /// Bytes of the namespace.
    pub(super) fn bytes(&self) -> u64 {
        self.geometry.bytes()
    }

    /// The same with so many blocks, of a medium that has so many bytes.
    pub(super) fn resized(&self, blocks: u64, measured: u64) -> Result<Self, ResizeError> {
        let block_bytes = self.geometry.block_bytes();
        let (geometry, limit) = (Geometry::new(blocks, block_bytes)?, measured / u64::from(block_bytes));
        if blocks > limit {
            return Err(ResizeError::Medium { blocks, limit });
        }
        Ok(Self { geometry, ..*self })
    }

    /// Whether transfers go through the page cache: O_DIRECT asks for some alignment.
    fn is_buffered(&self) -> bool {
        self.alignment == 1
    }

    /// A flush that succeeds says nothing of what an earlier one could not keep: all that a file system does, with O_DIRECT too (it
    /// may write through the page cache all the same, and the blocks are nothing without what says where they are), and the page cache
    /// of a device. A device that is asked directly answers for itself.
    pub(super) fn forgets_failed_flushes(&self) -> bool {
        self.kind == Kind::File || self.is_buffered()
    }

    /// Writes of ours can make it longer.
    pub(super) fn can_grow(&self) -> bool {
        self.kind == Kind::File && !self.read_only
    }

    /// Whether transfers to and from `buffers` can be aligned.
    pub(super) fn check_buffers(&self, buffers: &DeviceMemory) -> Result<(), AttachError> {
        let (address, wanted) = (buffers.address(), self.alignment);
        if address.is_multiple_of(wanted.into()) { Ok(()) } else { Err(AttachError::Unaligned { address, wanted }) }
    }

    /// What a medium of this kind can do.
    pub(super) fn features(&self) -> Features {
        // The page cache, and a disk's own.
        let read_only = self.read_only;
        Features {
            write_zeroes: true,
            deallocate: true,
            read_only,
            write_through: false,
            shared: false,
            compare_and_write: 0,
        }
    }

    /// Whether the operation can be carried out at all.
    pub(super) fn check(&self, operation: Operation, buffers: Option<&DeviceMemory>) -> Result<(), StorageError> {
        let Some((lba, blocks)) = operation.blocks() else { return Ok(()) };
        if self.read_only && operation.changes() {
            return Err(StorageError::ReadOnly);
        }
        let (_, bytes) = self.geometry.extent(lba, blocks)?;
        if let Operation::CompareAndWrite { .. } = operation {
            return Err(StorageError::Unsupported);
        }
        if let Operation::Read { buffer, .. } | Operation::Write { buffer, .. } = operation {
            // Lengths of single steps have 32 bits.
            let bytes = u32::try_from(bytes).map_err(|_| StorageError::BufferOutOfRange)?;
            let buffers = buffers.ok_or(StorageError::BufferOutOfRange)?;
            buffers.slice(buffer, bytes as usize).map_err(|_| StorageError::BufferOutOfRange)?;
            if !buffer.is_multiple_of(self.alignment as usize) {
                return Err(StorageError::BufferUnaligned);
            }
        }
        Ok(())
    }
}
