//! Target and host on memory that belongs to somebody else: an arena of the application, which gets it back at the end.
//!
//! `cargo run -p frwr-nvmf --example foreign_memory`; docs/embedding.md leads through it.

mod common;

use common::{BLOCK, BLOCKS, Error, HostSide, REGION_BYTES, TargetSide, both_to_the_end, pattern};
use core::{cell::UnsafeCell, ptr::NonNull};
use frwr_nvmf::frwr_engine::provider::soft::SoftFabric;
use frwr_nvmf::frwr_mempool::Region;
use frwr_nvmf::storage::MemoryStorage;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// The application's memory: words that others may write.
struct Arena {
    words: Box<[UnsafeCell<u64>]>,
    lent: AtomicBool,
}

// SAFETY: whoever lends the words out answers for who accesses them (`lend`); the arena itself gives access to nobody but
// its only owner.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    fn new(bytes: usize) -> Arc<Self> {
        let words = (0..bytes / size_of::<u64>()).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { words, lent: AtomicBool::new(false) })
    }

    /// A region over all of it, once. It stays lent until the region, and everything carved from it, is dropped.
    fn lend(self: &Arc<Self>) -> Result<Region, Error> {
        if self.lent.swap(true, Relaxed) {
            return Err("the arena is lent already".into());
        }
        let pointer = NonNull::new(UnsafeCell::raw_get(self.words.as_ptr()).cast::<u8>()).ok_or("no memory")?;
        let bytes = self.words.len() * size_of::<u64>();
        // SAFETY: the words are mapped and initialised for as long as the arena lives, which the region keeps alive. They
        // are in cells; `words` reads them only once nobody else has the arena; and no other region was made over them.
        Ok(unsafe { Region::from_foreign(pointer, bytes, Arc::clone(self) as _) })
    }

    /// The words, for the only owner.
    fn words(&mut self) -> impl Iterator<Item = u64> {
        self.words.iter_mut().map(|word| *word.get_mut())
    }
}

pub(crate) fn main() -> Result<(), Error> {
    let (hosts, targets) = (Arena::new(REGION_BYTES), Arena::new(REGION_BYTES));
    {
        let fabric = SoftFabric::new();
        let (mut near, mut far) = (hosts.lend()?, targets.lend()?);
        println!("host on {}, target on {}", near.kind(), far.kind());
        let medium = far.carve(BLOCKS * BLOCK, BLOCK)?.into_device_memory();
        let mut target = TargetSide::new(&fabric, &mut far, MemoryStorage::new(medium, BLOCK as u32, 64)?)?;
        both_to_the_end(&mut target, &mut HostSide::new(&fabric, &mut near)?)?;
    }
    // Everything is gone, and the application has its memory back. What the host wrote lies in it.
    let mut targets = Arc::into_inner(targets).ok_or("somebody still has the target's memory")?;
    Arc::into_inner(hosts).ok_or("somebody still has the host's memory")?;
    let bytes: Vec<u8> = targets.words().flat_map(u64::to_ne_bytes).collect();
    let all: Vec<u8> = (0..BLOCKS).flat_map(pattern).collect();
    if !contains(&bytes, &all) {
        return Err("what was written does not lie in the application's memory".into());
    }
    println!("{BLOCKS} blocks went there and back, and lie in the application's memory");
    Ok(())
}

/// Whether `all` lies somewhere in `bytes`, at a multiple of 8.
fn contains(bytes: &[u8], all: &[u8]) -> bool {
    (0..bytes.len().saturating_sub(all.len())).step_by(size_of::<u64>()).any(|at| bytes[at..].starts_with(all))
}
