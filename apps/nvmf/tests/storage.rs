//! What storages of this crate do beyond what all promise (`storage_conformance.rs`), and what they are made of.

use core::time::Duration;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::storage::{
    AttachError, CompletionBatch, Cookie, Features, Geometry, GeometryError, MemoryStorage, MemoryStorageError,
    Operation, QueueFull, Storage, StorageError, StorageStatistics,
};
use frwr_support::storage_harness::{BLOCK, Bench, KINDS, Kind, memory};
use proptest::prelude::*;

#[test]
fn memory_without_buffers_refuses_what_needs_one() {
    let mut detached = MemoryStorage::new(memory(4096), 512, 1).unwrap();
    let mut out = CompletionBatch::new();
    detached.submit(Cookie(1), Operation::Read { lba: 0, blocks: 1, buffer: 0 }).unwrap();
    detached.flush();
    assert_eq!(detached.poll(Duration::ZERO, &mut out), 1);
    assert_eq!(out[0].result, Err(StorageError::BufferOutOfRange));
}

#[test]
fn nothing_starts_before_flush_and_a_full_queue_refuses() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, "full", 16, 2);
        let mut out = CompletionBatch::new();
        bench.storage.submit(Cookie(1), Operation::Flush).unwrap();
        // One that fails without the medium holds its place as well.
        bench.storage.submit(Cookie(2), Operation::Deallocate { lba: 99, blocks: 1 }).unwrap();
        assert_eq!(bench.storage.submit(Cookie(3), Operation::Flush), Err(QueueFull), "{kind:?}");
        for _ in 0..1000 {
            assert_eq!(bench.storage.poll(Duration::ZERO, &mut out), 0, "{kind:?}");
        }
        let mut cookies: Vec<_> = bench.completions(2).iter().map(|completion| completion.cookie.0).collect();
        cookies.sort_unstable();
        assert_eq!(cookies, [1, 2]);
        bench.storage.submit(Cookie(3), Operation::Flush).unwrap();
        assert_eq!(bench.completions(1)[0].cookie, Cookie(3), "{kind:?}");
    }
}

#[test]
fn storages_say_what_they_can() {
    for kind in KINDS {
        let bench = Bench::new(kind, "features", 16, 4);
        let write_through = kind == Kind::Memory;
        let features = Features::default().write_zeroes(true).deallocate(true).write_through(write_through);
        // 32 KiB.
        assert_eq!(bench.storage.features(), features.compare_and_write(8));
        assert_eq!(bench.storage.geometry(), Geometry::new(16, BLOCK as u32).unwrap());
    }
}

#[test]
fn impossible_namespaces_name_limit_value_and_remedy() {
    for block_bytes in [0, 256, 511, 4097, 128 << 10] {
        let error = MemoryStorage::new(memory(4096), block_bytes, 1).unwrap_err();
        assert_eq!(error, MemoryStorageError::Geometry(GeometryError::BlockBytes(block_bytes)));
        let text = error.to_string();
        assert!(text.contains(&block_bytes.to_string()) && text.contains("65536"), "{text}");
    }
    assert!(matches!(MemoryStorage::new(memory(4096), 8192, 1), Err(MemoryStorageError::Geometry(_))));
    assert!(matches!(MemoryStorage::new(memory(4096), 4096, 0), Err(MemoryStorageError::Depth)));
    assert_eq!(Geometry::new(1 << 60, 4096), Err(GeometryError::Blocks(1 << 60)));
}

proptest! {
    #[test]
    fn extents_lie_in_the_namespace(blocks in 1_u64..1 << 40, shift in 9_u32..=16, lba: u64, count in 0_u32..=65536) {
        let geometry = Geometry::new(blocks, 1 << shift).unwrap();
        let fits = u128::from(lba) + u128::from(count) <= u128::from(blocks);
        match geometry.extent(lba, count) {
            Ok((start, bytes)) => {
                prop_assert!(fits);
                prop_assert_eq!((start, bytes), (lba << shift, u64::from(count) << shift));
            }
            Err(error) => prop_assert!(!fits && error == StorageError::LbaOutOfRange),
        }
    }
}

/// Says of each method that it was called.
struct Spy(Vec<&'static str>);

impl Storage for Spy {
    fn geometry(&self) -> Geometry {
        Geometry::new(3, 512).unwrap()
    }

    fn features(&self) -> Features {
        Features::default().write_zeroes(true)
    }

    fn attach(&mut self, _: DeviceMemory) -> Result<(), AttachError> {
        self.0.push("attach");
        Ok(())
    }

    fn submit(&mut self, _: Cookie, _: Operation) -> Result<(), QueueFull> {
        Err(QueueFull)
    }

    fn cancel(&mut self, _: Cookie) -> bool {
        true
    }

    fn flush(&mut self) {
        self.0.push("flush");
    }

    fn poll(&mut self, _: Duration, _: &mut CompletionBatch) -> usize {
        self.0.len()
    }

    fn statistics(&self) -> StorageStatistics {
        StorageStatistics { submitted: 7, ..StorageStatistics::default() }
    }
}

#[test]
fn a_boxed_storage_does_all_that_the_storage_in_it_does() {
    let mut boxed: Box<dyn Storage> = Box::new(Spy(Vec::new()));
    assert_eq!(Storage::geometry(&boxed), Geometry::new(3, 512).unwrap());
    assert!(Storage::features(&boxed).write_zeroes);
    assert_eq!(Storage::attach(&mut boxed, memory(4096)), Ok(()));
    assert_eq!(Storage::submit(&mut boxed, Cookie(0), Operation::Flush), Err(QueueFull));
    assert!(Storage::cancel(&mut boxed, Cookie(0)));
    Storage::flush(&mut boxed);
    assert_eq!(Storage::poll(&mut boxed, Duration::ZERO, &mut CompletionBatch::new()), 2);
    assert_eq!(Storage::statistics(&boxed).submitted, 7);
}
