//! Memory that a program has already, and gives away.

use core::any::Any;
use core::ptr::NonNull;
use memmap2::MmapMut;
use std::sync::Arc;

/// Memory with one owner, for [`Region::from_owned`](super::Region::from_owned): from a `Vec<u8>`, a `Box<[u8]>` or a `memmap2::MmapMut`.
#[derive(Debug)]
pub struct OwnedMemory {
    pub(super) pointer: NonNull<u8>,
    pub(super) len: usize,
    pub(super) owner: Arc<dyn Any + Send + Sync>,
}

/// A box that was taken apart, and is put together again to be freed.
#[derive(Debug)]
struct Boxed(NonNull<[u8]>);

// SAFETY: it is a `Box<[u8]>`, which may go to any thread, and nothing is done with a shared one.
unsafe impl Send for Boxed {}
// SAFETY: as above.
unsafe impl Sync for Boxed {}

impl Drop for Boxed {
    fn drop(&mut self) {
        // SAFETY: `from` made it of a box, nobody else frees it, and no region has it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl From<Box<[u8]>> for OwnedMemory {
    fn from(memory: Box<[u8]>) -> Self {
        let whole = NonNull::from(Box::leak(memory));
        Self { pointer: whole.cast(), len: whole.len(), owner: Arc::new(Boxed(whole)) }
    }
}

impl From<Vec<u8>> for OwnedMemory {
    fn from(memory: Vec<u8>) -> Self {
        memory.into_boxed_slice().into()
    }
}

/// A mapping of a file is the file's, too: who made it has promised that nobody else changes it or makes it shorter.
impl From<MmapMut> for OwnedMemory {
    fn from(mut memory: MmapMut) -> Self {
        let whole = NonNull::from(&mut memory[..]);
        Self { pointer: whole.cast(), len: whole.len(), owner: Arc::new(memory) }
    }
}
