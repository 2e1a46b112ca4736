//! Exports of servers that others have written: nbdkit with its filters, and qemu-nbd over a qcow2 image. A server that is not installed
//! is told as skipped.

use frwr_nvmf::storage::{Cookie, MediumFault, Operation, Storage, StorageError};
use frwr_support::{
    Random,
    storage_harness::{
        BLOCK,
        foreign::{FOREIGN_BYTES, Foreign, NBDKIT_FILE, NBDKIT_MEMORY},
        nbd::{NbdBench, flush_and_verify},
    },
};

const BLOCKS: u64 = FOREIGN_BYTES / BLOCK as u64;

fn bench(server: &Foreign) -> NbdBench {
    NbdBench::open(server.options(), 32).unwrap()
}

fn exercised(mut bench: NbdBench) {
    assert_eq!(bench.storage.geometry().blocks(), BLOCKS);
    for (lba, blocks, byte) in [(0, 1, 1), (7, 32, 2), (BLOCKS - 64, 64, 3)] {
        assert_eq!(bench.write(lba, blocks, byte), Ok(()));
        assert_eq!(bench.read(lba, blocks).unwrap(), vec![byte; blocks as usize * BLOCK]);
    }
    let features = bench.storage.features();
    if features.write_zeroes {
        for deallocate in [false, true] {
            bench.write(9, 4, 5).unwrap();
            assert_eq!(bench.run(Operation::WriteZeroes { lba: 10, blocks: 2, deallocate }), Ok(()));
            let expected: Vec<u8> = [5, 0, 0, 5].iter().flat_map(|byte| [*byte; BLOCK]).collect();
            assert_eq!(bench.read(9, 4).unwrap(), expected);
        }
    }
    if features.deallocate {
        assert_eq!(bench.run(Operation::Deallocate { lba: 100, blocks: 1000 }), Ok(()));
    }
    assert_eq!(bench.run(Operation::Flush), Ok(()));
    flush_and_verify(&mut bench, &mut Random::new(5), 40);
    assert_eq!(bench.medium.fault(), None);
}

#[test]
fn nbdkit_keeps_what_was_written_with_any_number_of_connections_and_however_it_answers() {
    for filters in [
        &[][..],
        &["--no-sr"],
        &["--filter=delay", "rdelay=2ms", "wdelay=1ms"],
        &[
            "--filter=blocksize-policy",
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=8192",
            "blocksize-error-policy=error",
        ],
        &["--filter=fua", "fuamode=native"],
    ] {
        let Some(server) = Foreign::nbdkit(NBDKIT_MEMORY, filters) else { return };
        for connections in [1, 4] {
            exercised(NbdBench::open(server.options().connections(connections), 32).unwrap());
        }
        exercised(NbdBench::open(server.options().write_through(true), 32).unwrap());
    }
}

#[test]
fn nbdkit_serves_a_file_and_an_export_for_reading() {
    let Some(server) = Foreign::nbdkit(NBDKIT_FILE, &[]) else { return };
    exercised(bench(&server));
    let Some(server) = Foreign::nbdkit(NBDKIT_FILE, &["-r"]) else { return };
    let mut bench = bench(&server);
    assert!(bench.storage.features().read_only);
    assert_eq!(bench.write(0, 1, 1), Err(StorageError::ReadOnly));
    assert_eq!(bench.read(0, 1).unwrap(), [0; BLOCK]);
}

#[test]
fn errors_of_nbdkit_are_told_by_their_kind_and_succeed_when_tried_again() {
    let Some(server) = Foreign::nbdkit(
        NBDKIT_MEMORY,
        &["--filter=error", "error=ENOSPC", "error-pwrite-rate=30%", "error-pread=EIO", "error-pread-rate=30%"],
    ) else {
        return;
    };
    let mut bench = bench(&server);
    let mut failures = [0, 0];
    for lba in 0..200 {
        while let Err(error) = bench.write(lba, 1, lba as u8) {
            assert_eq!(error, StorageError::NoSpace);
            failures[0] += 1;
        }
        let found = loop {
            match bench.read(lba, 1) {
                Ok(found) => break found,
                Err(error) => assert_eq!(error, StorageError::Medium),
            }
            failures[1] += 1;
        };
        assert_eq!(found, vec![lba as u8; BLOCK]);
    }
    assert!(failures.iter().all(|count| *count > 10), "{failures:?}");
    assert_eq!(bench.medium.fault(), None);
}

#[test]
fn nbdkit_is_killed_under_load_and_nothing_that_was_told_as_written_is_lost() {
    let Some(mut server) = Foreign::nbdkit(NBDKIT_FILE, &["--filter=delay", "wdelay=1ms"]) else { return };
    let mut bench = NbdBench::open(server.options().connections(2), 32).unwrap();
    let mut random = Random::new(3);
    for round in 0..5_u8 {
        // The kernel keeps what a process has written, so that the data is there though the Flush cannot know.
        for at in 0..32_u64 {
            let buffer = at as usize * BLOCK;
            bench.buffers.fill(buffer, BLOCK, round * 32 + at as u8 + 1).unwrap();
            bench.storage.submit(Cookie(at), Operation::Write { lba: at * 9, blocks: 1, buffer }).unwrap();
        }
        bench.storage.flush();
        let mut ended = Vec::new();
        let until = random.below(30) as usize;
        while ended.len() < until {
            ended.extend(bench.poll());
        }
        server.kill();
        assert!(server.restart());
        ended.extend(bench.completions(32 - ended.len()));
        ended.sort_unstable_by_key(|ended| ended.cookie.0);
        assert!(ended.iter().zip(0..).all(|(ended, at)| ended.result.is_ok() && ended.cookie == Cookie(at)));
        for at in 0..32_u64 {
            assert_eq!(bench.read(at * 9, 1).unwrap(), vec![round * 32 + at as u8 + 1; BLOCK]);
        }
    }
    assert_eq!(bench.run(Operation::Flush), Err(StorageError::Medium));
    assert_eq!(bench.medium.fault(), Some(MediumFault::Interrupted));
}

#[test]
fn qemu_nbd_serves_a_qcow2_image() {
    let Some(server) = Foreign::qemu_nbd("--shared=0") else { return };
    for connections in [1, 4] {
        exercised(NbdBench::open(server.options().connections(connections), 32).unwrap());
    }
    let Some(server) = Foreign::qemu_nbd("--shared=1") else { return };
    let error = NbdBench::open(server.options().connections(2), 32).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("CAN_MULTI_CONN"), "{error}");
}
