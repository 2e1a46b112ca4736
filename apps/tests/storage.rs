//! The namespace in memory.

use core::time::Duration;
use frwr_apps::storage::{
    Completion, CompletionBatch, Cookie, Geometry, GeometryError, MemoryStorage, MemoryStorageError, Operation,
    QueueFull, Storage, StorageError,
};
use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
use proptest::prelude::*;

fn memory(bytes: usize) -> DeviceMemory {
    let mut region = Region::map(&RegionOptions::new(bytes).pages(PagePolicy::Exactly(PageSize::Plain))).unwrap();
    region.carve(bytes, 4096).unwrap().into_device_memory()
}

fn storage(blocks: usize, depth: usize) -> (MemoryStorage, DeviceMemory) {
    let buffers = memory(8192);
    let mut storage = MemoryStorage::new(memory(blocks * 512), 512, depth).unwrap();
    storage.attach(buffers.clone()).unwrap();
    (storage, buffers)
}

fn run(storage: &mut MemoryStorage, operation: Operation) -> Result<(), StorageError> {
    storage.submit(Cookie(7), operation).unwrap();
    storage.flush();
    let mut out = CompletionBatch::new();
    assert_eq!(storage.poll(Duration::ZERO, &mut out), 1);
    assert_eq!(out[0].cookie, Cookie(7));
    out[0].result
}

#[test]
fn written_blocks_are_read_back() {
    let (mut storage, buffers) = storage(16, 4);
    buffers.write(0, &[0xab; 1024]).unwrap();
    assert_eq!(run(&mut storage, Operation::Write { lba: 14, blocks: 2, buffer: 0 }), Ok(()));
    assert_eq!(run(&mut storage, Operation::Flush), Ok(()));
    assert_eq!(run(&mut storage, Operation::Read { lba: 14, blocks: 2, buffer: 3000 }), Ok(()));
    let mut bytes = [0; 1024];
    buffers.read(3000, &mut bytes).unwrap();
    assert_eq!(bytes, [0xab; 1024]);
}

#[test]
fn blocks_outside_of_the_namespace_are_refused() {
    let (mut storage, _) = storage(16, 4);
    for (lba, blocks) in [(15, 2), (16, 1), (u64::MAX, 1), (u64::MAX - 1, 65536)] {
        let read = run(&mut storage, Operation::Read { lba, blocks, buffer: 0 });
        assert_eq!(read, Err(StorageError::LbaOutOfRange), "{lba} {blocks}");
    }
}

#[test]
fn buffers_outside_of_the_memory_are_refused() {
    let (mut storage, _) = storage(16, 4);
    for buffer in [8192 - 511, 8192, usize::MAX] {
        let written = run(&mut storage, Operation::Write { lba: 0, blocks: 1, buffer });
        assert_eq!(written, Err(StorageError::BufferOutOfRange), "{buffer}");
    }
    let mut detached = MemoryStorage::new(memory(4096), 512, 1).unwrap();
    let read = run(&mut detached, Operation::Read { lba: 0, blocks: 1, buffer: 0 });
    assert_eq!(read, Err(StorageError::BufferOutOfRange));
}

#[test]
fn nothing_starts_before_flush_and_a_full_queue_refuses() {
    let (mut storage, _) = storage(16, 2);
    let mut out = CompletionBatch::new();
    storage.submit(Cookie(1), Operation::Flush).unwrap();
    assert_eq!(storage.poll(Duration::ZERO, &mut out), 0);
    storage.flush();
    storage.submit(Cookie(2), Operation::Flush).unwrap();
    assert_eq!(storage.submit(Cookie(3), Operation::Flush), Err(QueueFull));
    assert_eq!(storage.poll(Duration::ZERO, &mut out), 1);
    assert_eq!(out.as_slice(), [Completion { cookie: Cookie(1), result: Ok(()) }]);
    storage.submit(Cookie(3), Operation::Flush).unwrap();
    storage.flush();
    assert_eq!(storage.poll(Duration::ZERO, &mut out), 2);
    assert_eq!(out[2].cookie, Cookie(3));
}

#[test]
fn a_full_batch_keeps_the_rest() {
    let (mut storage, _) = storage(16, 100);
    for cookie in 0..100 {
        storage.submit(Cookie(cookie), Operation::Flush).unwrap();
    }
    storage.flush();
    let mut out = CompletionBatch::new();
    assert_eq!(storage.poll(Duration::ZERO, &mut out), 64);
    assert_eq!(storage.poll(Duration::ZERO, &mut out), 0);
    out.clear();
    assert_eq!(storage.poll(Duration::ZERO, &mut out), 36);
    assert_eq!(out[35].cookie, Cookie(99));
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
