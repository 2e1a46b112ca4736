//! Storages: the same tests over memory, a file by io_uring, and a file by a worker thread.

use core::time::Duration;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::storage::{
    AttachError, CompletionBatch, Cookie, Features, Geometry, GeometryError, MemoryStorage, MemoryStorageError,
    Operation, QueueFull, Storage, StorageError, StorageStatistics,
};
use frwr_support::storage_harness::{BLOCK, BUFFER_BYTES, Bench, KINDS, Kind, memory};
use proptest::prelude::*;

#[test]
fn written_blocks_are_read_back() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, "written", 16, 4);
        bench.write(13, 3, 0xab).unwrap();
        bench.write(14, 1, 0xcd).unwrap();
        assert_eq!(bench.run(Operation::Flush), Ok(()));
        let bytes = bench.read(12, 4).unwrap();
        for (block, byte) in bytes.chunks(BLOCK).zip([0, 0xab, 0xcd, 0xab]) {
            assert_eq!(block, [byte; BLOCK], "{kind:?}");
        }
        let statistics = bench.storage.statistics();
        assert_eq!((statistics.submitted, statistics.completed, statistics.failed), (4, 4, 0), "{kind:?}");
    }
}

#[test]
fn zeroed_blocks_read_as_zeros() {
    for kind in KINDS {
        for deallocate in [false, true] {
            let mut bench = Bench::new(kind, "zeroes", 64, 4);
            bench.write(0, 32, 0xab).unwrap();
            assert_eq!(bench.run(Operation::WriteZeroes { lba: 3, blocks: 20, deallocate }), Ok(()), "{kind:?}");
            let bytes = bench.read(2, 22).unwrap();
            assert_eq!((bytes[BLOCK - 1], bytes[21 * BLOCK]), (0xab, 0xab), "{kind:?}");
            assert!(bytes[BLOCK..21 * BLOCK].iter().all(|byte| *byte == 0), "{kind:?}");
        }
    }
}

#[test]
fn deallocated_blocks_are_theirs_alone() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, "deallocate", 64, 4);
        bench.write(0, 8, 0xab).unwrap();
        assert_eq!(bench.run(Operation::Deallocate { lba: 2, blocks: 4 }), Ok(()), "{kind:?}");
        let bytes = bench.read(0, 8).unwrap();
        assert!(bytes[..2 * BLOCK].iter().chain(&bytes[6 * BLOCK..]).all(|byte| *byte == 0xab), "{kind:?}");
        // A hint: they are zeros or what they were.
        assert!(bytes[2 * BLOCK..6 * BLOCK].iter().all(|byte| *byte == 0 || *byte == 0xab), "{kind:?}");
    }
}

#[test]
fn blocks_outside_of_the_namespace_are_refused() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, "outside", 16, 4);
        for (lba, blocks) in [(15, 2), (16, 1), (u64::MAX, 1), (u64::MAX - 1, 65536)] {
            for operation in [
                Operation::Read { lba, blocks, buffer: 0 },
                Operation::Write { lba, blocks, buffer: 0 },
                Operation::WriteZeroes { lba, blocks, deallocate: true },
                Operation::Deallocate { lba, blocks },
            ] {
                assert_eq!(bench.run(operation), Err(StorageError::LbaOutOfRange), "{kind:?} {operation:?}");
            }
        }
        assert_eq!(bench.storage.statistics().failed, 16);
    }
}

#[test]
fn buffers_outside_of_the_memory_are_refused() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, "buffers", 16, 4);
        for buffer in [BUFFER_BYTES - BLOCK + 1, BUFFER_BYTES, usize::MAX] {
            let written = bench.run(Operation::Write { lba: 0, blocks: 1, buffer });
            assert_eq!(written, Err(StorageError::BufferOutOfRange), "{kind:?} {buffer}");
        }
    }
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
fn every_operation_of_a_full_queue_ends_once() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, "many", 256, 100);
        for round in 0..20_u64 {
            for cookie in 0..100 {
                let lba = (cookie * 2 + round) % 256;
                let buffer = (cookie as usize % 64) * BLOCK;
                let operation = match cookie % 4 {
                    0 => Operation::Write { lba, blocks: 1, buffer },
                    1 => Operation::Flush,
                    2 => Operation::WriteZeroes { lba, blocks: 1, deallocate: cookie % 8 == 2 },
                    _ => Operation::Read { lba, blocks: 1, buffer },
                };
                bench.storage.submit(Cookie(cookie), operation).unwrap();
            }
            assert_eq!(bench.storage.submit(Cookie(100), Operation::Flush), Err(QueueFull));
            let ended = bench.completions(100);
            assert!(ended.iter().all(|completion| completion.result == Ok(())), "{kind:?}");
            let mut cookies: Vec<_> = ended.iter().map(|completion| completion.cookie.0).collect();
            cookies.sort_unstable();
            assert!(cookies.into_iter().eq(0..100), "{kind:?}");
        }
    }
}

#[test]
fn a_full_batch_keeps_the_rest() {
    let mut bench = Bench::new(Kind::Memory, "batch", 16, 100);
    for cookie in 0..100 {
        bench.storage.submit(Cookie(cookie), Operation::Flush).unwrap();
    }
    bench.storage.flush();
    let mut out = CompletionBatch::new();
    assert_eq!(bench.storage.poll(Duration::ZERO, &mut out), 64);
    assert_eq!(bench.storage.poll(Duration::ZERO, &mut out), 0);
    out.clear();
    assert_eq!(bench.storage.poll(Duration::ZERO, &mut out), 36);
    assert_eq!(out[35].cookie, Cookie(99));
}

#[test]
fn storages_say_what_they_can_and_take_their_buffers_once() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, "features", 16, 4);
        let write_through = kind == Kind::Memory;
        let features = Features::default().write_zeroes(true).deallocate(true).write_through(write_through);
        assert_eq!(bench.storage.features(), features);
        assert_eq!(bench.storage.geometry(), Geometry::new(16, BLOCK as u32).unwrap());
        if kind != Kind::Memory {
            assert_eq!(bench.storage.attach(memory(BLOCK)), Err(AttachError::Twice));
        }
    }
}

#[test]
fn memory_that_is_never_changed() {
    let medium = memory(8 * 512);
    medium.fill(0, 8 * 512, 0xab).unwrap();
    let mut storage = MemoryStorage::new(medium.clone(), 512, 4).unwrap().read_only();
    storage.attach(memory(4096)).unwrap();
    assert!(storage.features().read_only);
    let mut out = CompletionBatch::new();
    for operation in [
        Operation::Write { lba: 0, blocks: 1, buffer: 0 },
        Operation::WriteZeroes { lba: 0, blocks: 1, deallocate: false },
        Operation::Deallocate { lba: 0, blocks: 1 },
    ] {
        storage.submit(Cookie(1), operation).unwrap();
        storage.flush();
        storage.poll(Duration::ZERO, &mut out);
        assert_eq!(out.pop().unwrap().result, Err(StorageError::ReadOnly));
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
