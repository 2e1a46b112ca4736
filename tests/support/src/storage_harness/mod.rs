//! Storages of all kinds over the same bytes, and what drives one by hand.

pub mod ceph;
pub mod disks;
pub mod foreign;
pub mod hanging;
pub mod media;
pub mod nbd;

use core::time::Duration;
use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
use frwr_nvmf::storage::{
    AnyStorage, Backing, Comparing, Completion, CompletionBatch, Cookie, FileMedium, FileOptions, MemoryStorage,
    Operation, Storage, StorageError,
};
use std::{fs::File, path::PathBuf, sync::Arc};

/// Bytes of the attached memory.
pub const BUFFER_BYTES: usize = 256 << 10;
/// Bytes per block.
pub const BLOCK: usize = 4096;
/// Polls until a storage is taken to hang: far more than a disk under load needs.
const HANG_GUARD: u64 = 2_000_000_000;

pub fn memory(bytes: usize) -> DeviceMemory {
    let mut region = Region::map(&RegionOptions::new(bytes).pages(PagePolicy::Exactly(PageSize::Plain))).unwrap();
    region.carve(bytes, 4096).unwrap().into_device_memory()
}

/// A file in a folder of its own, which is deleted at the end.
pub struct Temporary(pub PathBuf, #[expect(dead_code, reason = "it is deleted when dropped")] tempfile::TempDir);

impl Temporary {
    /// A sparse file.
    pub fn sparse(name: &str, bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let temporary = Self(folder.path().join(name), folder);
        File::create(&temporary.0).unwrap().set_len(bytes).unwrap();
        temporary
    }

    pub fn options(&self) -> FileOptions {
        FileOptions::new(&self.0)
    }

    pub fn open(&self, backing: Backing, depth: usize) -> AnyStorage {
        let (storage, notes) = FileMedium::open(&self.options()).unwrap().storage(backing, depth).unwrap();
        for note in notes {
            eprintln!("{note}");
        }
        storage
    }
}

/// Kinds of storage that the same tests run over.
pub const KINDS: [Kind; 3] = [Kind::Memory, Kind::Ring, Kind::Thread];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Memory,
    Ring,
    Thread,
}

/// A storage, its buffers, and what it lives in.
pub struct Bench {
    pub storage: AnyStorage,
    pub buffers: DeviceMemory,
    /// Deleted at the end.
    #[allow(dead_code, reason = "kept for its end")]
    pub file: Option<Temporary>,
}

impl Bench {
    pub fn new(kind: Kind, test: &str, blocks: usize, depth: usize) -> Self {
        let (mut storage, file) = match kind {
            Kind::Memory => {
                let storage = MemoryStorage::new(memory(blocks * BLOCK), BLOCK as u32, depth).unwrap();
                let storage = Comparing::new(storage, &Arc::default()).unwrap();
                (AnyStorage::Memory(Box::new(storage)), None)
            }
            Kind::Ring | Kind::Thread => {
                let file = Temporary::sparse(&format!("{test}-{kind:?}"), (blocks * BLOCK) as u64);
                let backing = if kind == Kind::Ring { Backing::Ring } else { Backing::Thread };
                (file.open(backing, depth), Some(file))
            }
        };
        let buffers = memory(BUFFER_BYTES);
        storage.attach(buffers.clone()).unwrap();
        Self { storage, buffers, file }
    }

    pub fn run(&mut self, operation: Operation) -> Result<(), StorageError> {
        self.storage.submit(Cookie(7), operation).unwrap();
        self.storage.flush();
        let ended = self.completions(1);
        assert_eq!(ended[0].cookie, Cookie(7));
        ended[0].result
    }

    /// Polls until as many operations have ended; flushes what an operation needs more than one step for.
    pub fn completions(&mut self, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        for round in 0..HANG_GUARD {
            let mut out = CompletionBatch::new();
            self.storage.poll(Duration::ZERO, &mut out);
            all.extend(out);
            if all.len() >= count {
                assert_eq!(all.len(), count);
                return all;
            }
            self.storage.flush();
            if round % 64 == 63 {
                std::thread::yield_now();
            }
        }
        panic!("{} of {count} completions; {:?}", all.len(), self.storage.statistics());
    }

    pub fn write(&mut self, lba: u64, blocks: usize, byte: u8) -> Result<(), StorageError> {
        self.buffers.fill(0, blocks * BLOCK, byte).unwrap();
        self.run(Operation::Write { lba, blocks: blocks as u32, buffer: 0 })
    }

    /// Reads blocks by way of the end of the buffers.
    pub fn read(&mut self, lba: u64, blocks: usize) -> Result<Vec<u8>, StorageError> {
        let buffer = BUFFER_BYTES - blocks * BLOCK;
        self.buffers.fill(buffer, blocks * BLOCK, 0x55).unwrap();
        self.run(Operation::Read { lba, blocks: blocks as u32, buffer })?;
        let mut bytes = vec![0; blocks * BLOCK];
        self.buffers.read(buffer, &mut bytes).unwrap();
        Ok(bytes)
    }
}

/// A storage with buffers of its own.
#[allow(dead_code, reason = "for the tests of files and block devices")]
pub fn attached(mut storage: AnyStorage) -> Bench {
    let buffers = memory(BUFFER_BYTES);
    storage.attach(buffers.clone()).unwrap();
    Bench { storage, buffers, file: None }
}
