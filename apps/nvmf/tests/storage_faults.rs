//! Media that lose what they were given: disks that run full below a file system, files that somebody makes shorter, devices that
//! shrink, fallocate(2) that is refused, limits of file sizes. What was acknowledged is there, or an error says that it is not.

use frwr_nvmf::storage::{Backing, Cookie, FileMedium, FileOptions, MediumFault, Operation, Storage, StorageError};
use frwr_support::storage_harness::disks::{
    JOURNAL_LATER, LoopDevice, OVERCOMMITTED_BYTES, Overcommitted, filtered, opened, skipped,
};
use frwr_support::storage_harness::{BLOCK, BUFFER_BYTES, Bench, Temporary, attached};
use std::{
    fs::{self, File},
    process::Command,
};

const BACKINGS: [Backing; 2] = [Backing::Ring, Backing::Thread];
/// Blocks that the harness has buffers for.
const BATCH: usize = BUFFER_BYTES / BLOCK;
const MIB: usize = 1 << 20;
const FILE_MIBS: usize = OVERCOMMITTED_BYTES / MIB;

/// Writes one MiB, of bytes that tell it from all others.
fn write_mib(bench: &mut Bench, at: usize) -> Result<(), StorageError> {
    (0..MIB / BUFFER_BYTES).try_for_each(|part| {
        let lba = (at * MIB + part * BUFFER_BYTES) / BLOCK;
        bench.write(lba as u64, BATCH, at as u8 + 1)
    })
}

/// What a full disk, and a file system that gives up over it, come to.
fn is_of_the_disk(error: StorageError) -> bool {
    matches!(error, StorageError::NoSpace | StorageError::Medium | StorageError::ReadOnly)
}

/// What fills the disk, and when it is flushed.
struct Filling {
    journal: bool,
    backing: Backing,
    direct: bool,
    /// After so many MiB.
    every: usize,
}

/// Bytes that hold all that is flushed at once.
const END: usize = FILE_MIBS;

impl Filling {
    /// Fills the disk below, so that what is acknowledged never gets there. False where no disk can be had; else the test says
    /// whether a flush failed.
    fn run(&self) -> Option<bool> {
        let Self { journal, backing, direct, every } = *self;
        let (format, options) = if journal { JOURNAL_LATER } else { (["-O", "^has_journal"], "errors=continue") };
        let what = format!("{format:?} {backing:?} direct {direct}, flushed every {every} MiB");
        let disk = Overcommitted::new(&format, options)?;
        let medium = FileMedium::open(&disk.options(direct)).unwrap();
        let mut bench = attached(medium.storage(backing, 4).unwrap().0);
        // MiB that are written, and those of them that are flushed.
        let (mut written, mut flushed, mut failed) = (Vec::new(), Vec::new(), false);
        for at in 0..FILE_MIBS {
            match write_mib(&mut bench, at) {
                Ok(()) => written.push(at),
                Err(error) => assert!(is_of_the_disk(error), "{error}"),
            }
            if (at + 1) % every != 0 {
                continue;
            }
            match bench.run(Operation::Flush) {
                Ok(()) => {
                    assert!(!failed, "{what}: done behind a flush that failed");
                    flushed.clone_from(&written);
                }
                Err(error) => {
                    assert!(is_of_the_disk(error), "{error}");
                    failed = true;
                }
            }
        }
        let again = [(); 4].map(|()| bench.run(Operation::Flush).is_err());
        assert_eq!(again, [failed; 4], "{what}");
        // Who opens another way to the same medium is told as well.
        let mut other = attached(medium.storage(Backing::Thread, 4).unwrap().0);
        assert_eq!(other.run(Operation::Flush).is_err(), failed, "{what}");
        let fault = failed.then_some(MediumFault::Unflushed);
        assert_eq!((medium.fault(), bench.storage.statistics().fault), (fault, fault), "{what}");
        println!("{what}: {} written, {} flushed, a flush failed: {failed}", written.len(), flushed.len());
        drop((bench, other, medium));
        if !flushed.is_empty() {
            let bytes = disk.remounted(options);
            for at in flushed {
                assert!(
                    bytes[at * MIB..][..MIB] == vec![at as u8 + 1; MIB],
                    "{what}: MiB {at} was flushed, and is gone"
                );
            }
        }
        Some(failed)
    }
}

/// A kernel tells once that it could not write something; then a flush says done, and nothing is there.
#[test]
fn no_flush_of_a_file_succeeds_behind_one_that_failed_and_what_was_flushed_is_there() {
    let mut failed = 0;
    for (journal, direct, every) in [(true, true, END), (true, true, 1), (true, false, END), (false, true, END)] {
        for backing in BACKINGS {
            let Some(of_this) = (Filling { journal, backing, direct, every }).run() else {
                return skipped("no disk can be mounted here: not root, or no losetup, mkfs.ext4 or loop device");
            };
            failed += usize::from(of_this);
        }
    }
    assert!(failed > 0, "a disk that ran full failed no flush, so nothing was shown");
}

/// A namespace of 1 MiB in a file, all of whose blocks hold 0xab.
struct Filled {
    file: Temporary,
    medium: FileMedium,
    bench: Bench,
}

impl Filled {
    fn new(backing: Backing, direct: bool) -> Self {
        let file = Temporary::sparse("cut", MIB as u64);
        fs::write(&file.0, vec![0xab; MIB]).unwrap();
        let medium = FileMedium::open(&file.options().direct(direct)).unwrap();
        let bench = attached(medium.storage(backing, 64).unwrap().0);
        Self { file, medium, bench }
    }

    fn cut(&self, bytes: u64) {
        File::options().write(true).open(&self.file.0).unwrap().set_len(bytes).unwrap();
    }

    fn is_out_of_order(&mut self, found: u64) {
        let fault = Some(MediumFault::Shrunk { found, wanted: MIB as u64 });
        assert_eq!((self.medium.fault(), self.bench.storage.statistics().fault), (fault, fault));
        for operation in EVERYTHING {
            assert_eq!(self.bench.run(operation), Err(StorageError::Shrunk), "{operation:?}");
        }
        // Nor by another way, nor once it is as long as it was.
        self.cut(MIB as u64);
        let mut other = attached(self.medium.storage(Backing::Thread, 4).unwrap().0);
        for bench in [&mut self.bench, &mut other] {
            assert_eq!(bench.read(140, 1), Err(StorageError::Shrunk));
            assert_eq!(bench.read(0, 1), Err(StorageError::Shrunk));
        }
        assert_eq!(self.medium.look(), fault);
    }
}

const EVERYTHING: [Operation; 7] = [
    Operation::Read { lba: 0, blocks: 1, buffer: 0 },
    Operation::Write { lba: 0, blocks: 1, buffer: 0 },
    Operation::Write { lba: 255, blocks: 1, buffer: 0 },
    Operation::Flush,
    Operation::WriteZeroes { lba: 0, blocks: 1, deallocate: false },
    Operation::WriteZeroes { lba: 255, blocks: 1, deallocate: true },
    Operation::Deallocate { lba: 0, blocks: 1 },
];

/// A host that writes behind the cut makes the file longer: what is between reads as zeros, as if it had never been written.
#[test]
fn what_was_cut_off_is_never_read_as_zeros() {
    let behind = [
        Operation::Write { lba: 255, blocks: 1, buffer: 0 },
        Operation::Write { lba: 192, blocks: 64, buffer: 0 },
        Operation::Write { lba: 200, blocks: 1, buffer: 0 },
        Operation::Write { lba: 127, blocks: 20, buffer: 0 },
        Operation::WriteZeroes { lba: 255, blocks: 1, deallocate: false },
        Operation::WriteZeroes { lba: 200, blocks: 5, deallocate: true },
        Operation::Deallocate { lba: 200, blocks: 5 },
        Operation::Read { lba: 140, blocks: 1, buffer: 0 },
        Operation::Read { lba: 120, blocks: 64, buffer: 0 },
        Operation::Flush,
    ];
    for backing in BACKINGS {
        for direct in [true, false] {
            for first in behind {
                let mut filled = Filled::new(backing, direct);
                filled.cut(512 << 10);
                assert_eq!(filled.bench.run(first), Err(StorageError::Shrunk), "{backing:?} {direct} {first:?}");
                assert_eq!(filled.bench.read(140, 1), Err(StorageError::Shrunk), "{backing:?} {direct} {first:?}");
                assert_eq!(filled.bench.read(0, 1), Err(StorageError::Shrunk), "{backing:?} {direct} {first:?}");
            }
        }
        for bytes in [0, 1, 4095, 512 << 10, (512 << 10) + 100, MIB as u64 - 1] {
            let mut filled = Filled::new(backing, true);
            filled.cut(bytes);
            assert_eq!(filled.bench.write(255, 1, 0xcd), Err(StorageError::Shrunk), "{backing:?} {bytes}");
            filled.is_out_of_order(bytes);
        }
    }
}

#[test]
fn a_read_only_file_that_was_cut_is_out_of_order_once_that_is_seen() {
    for backing in BACKINGS {
        let file = Temporary::sparse("cut", MIB as u64);
        let medium = FileMedium::open(&file.options().read_only(true)).unwrap();
        let mut bench = attached(medium.storage(backing, 4).unwrap().0);
        File::options().write(true).open(&file.0).unwrap().set_len(512 << 10).unwrap();
        assert_eq!(bench.read(127, 1), Ok(vec![0; BLOCK]), "it is there");
        assert_eq!(bench.read(127, 2), Err(StorageError::Shrunk));
        assert_eq!(bench.read(127, 1), Err(StorageError::Shrunk));
    }
}

/// Another core's write has made the file longer, and nobody has told that core yet.
#[test]
fn one_core_does_not_believe_what_another_one_has_made_longer() {
    for (writing, reading) in [(Backing::Ring, Backing::Ring), (Backing::Ring, Backing::Thread)] {
        let mut filled = Filled::new(writing, true);
        let mut other = attached(filled.medium.storage(reading, 4).unwrap().0);
        assert_eq!(other.read(140, 1), Ok(vec![0xab; BLOCK]));
        filled.cut(512 << 10);
        filled.bench.storage.submit(Cookie(7), Operation::Write { lba: 200, blocks: 1, buffer: 0 }).unwrap();
        filled.bench.storage.flush();
        while fs::metadata(&filled.file.0).unwrap().len() < 201 * BLOCK as u64 {
            std::thread::yield_now();
        }
        assert_eq!(other.read(140, 1), Err(StorageError::Shrunk), "{reading:?}");
        assert_eq!(filled.bench.completions(1)[0].result, Err(StorageError::Shrunk));
    }
}

/// Somebody cuts a file while it is written to and read from: whatever is read is what was written.
#[test]
fn a_cut_under_load_gives_errors_and_no_zeros() {
    for backing in BACKINGS {
        for round in 0..20 {
            let mut filled = Filled::new(backing, round % 2 == 0);
            let path = filled.file.0.clone();
            filled.bench.buffers.fill(0, BUFFER_BYTES, 0xab).unwrap();
            let cutter = std::thread::spawn(move || {
                let file = File::options().write(true).open(path).unwrap();
                (0..round).for_each(|_| std::thread::yield_now());
                file.set_len(512 << 10).unwrap();
            });
            // Never the last block: who writes that in the instant of the cut hides it.
            for step in 0..4000 {
                let lba = 129 + step * 7 % 126;
                let batch = [
                    Operation::Write { lba, blocks: 1, buffer: 0 },
                    Operation::Read { lba: 128 + step * 11 % 126, blocks: 1, buffer: BLOCK },
                ];
                for (cookie, operation) in (0..).zip(batch) {
                    filled.bench.storage.submit(Cookie(cookie), operation).unwrap();
                }
                filled.bench.storage.flush();
                let ended = filled.bench.completions(2);
                let read = ended.iter().find(|completion| completion.cookie.0 == 1).unwrap();
                if read.result.is_ok() {
                    let mut bytes = [0; BLOCK];
                    filled.bench.buffers.read(BLOCK, &mut bytes).unwrap();
                    assert_eq!(bytes, [0xab; BLOCK], "{backing:?} {round} {step}");
                }
                if ended.iter().any(|completion| completion.result.is_err()) {
                    break;
                }
            }
            cutter.join().unwrap();
            assert!(filled.medium.look().is_some());
            assert_eq!(filled.bench.read(0, 1), Err(StorageError::Shrunk));
        }
    }
}

#[test]
fn a_block_device_that_shrank_is_out_of_order() {
    for backing in BACKINGS {
        for first in
            [Operation::Read { lba: 200, blocks: 1, buffer: 0 }, Operation::Write { lba: 200, blocks: 1, buffer: 0 }]
        {
            let Some(device) = LoopDevice::new(MIB as u64, &[]) else {
                return skipped("no loop device can be made here");
            };
            let medium = opened(&FileOptions::new(device.path()));
            let mut bench = attached(medium.storage(backing, 4).unwrap().0);
            assert_eq!(bench.write(200, 1, 0xab), Ok(()));
            let file = File::options().write(true).open(device.file().unwrap()).unwrap();
            file.set_len(512 << 10).unwrap();
            assert!(device.setup("--set-capacity"));
            assert_eq!(bench.run(first), Err(StorageError::Shrunk), "{backing:?} {first:?}");
            assert_eq!(medium.fault(), Some(MediumFault::Shrunk { found: 512 << 10, wanted: MIB as u64 }));
            assert_eq!(bench.read(0, 1), Err(StorageError::Shrunk), "{backing:?}");
        }
    }
}

/// fallocate(2) takes multiples of the device's blocks only, and the namespace has smaller ones.
#[test]
fn zeros_and_hints_of_any_length_end_well_on_a_device_of_larger_blocks() {
    const SMALL: usize = 512;
    const BLOCKS: usize = 64;
    for backing in BACKINGS {
        let Some(device) = LoopDevice::new(MIB as u64, &["--sector-size", "4096"]) else {
            return skipped("no loop device of blocks of 4096 bytes can be made here");
        };
        let options = FileOptions::new(device.path()).block_bytes(SMALL as u32).direct(false);
        let mut bench = attached(opened(&options).storage(backing, 4).unwrap().0);
        for (lba, blocks) in [(0, 7), (0, 8), (1, 7), (3, 2), (1, 30), (8, 16), (7, 9), (0, 64), (63, 1)] {
            for deallocate in [false, true] {
                bench.buffers.fill(0, BLOCKS * SMALL, 0xab).unwrap();
                assert_eq!(bench.run(Operation::Write { lba: 0, blocks: BLOCKS as u32, buffer: 0 }), Ok(()));
                assert_eq!(bench.run(Operation::Deallocate { lba: 64 + lba, blocks }), Ok(()), "{lba} {blocks}");
                assert_eq!(bench.run(Operation::WriteZeroes { lba, blocks, deallocate }), Ok(()), "{lba} {blocks}");
                assert_eq!(bench.run(Operation::Read { lba: 0, blocks: BLOCKS as u32, buffer: 0 }), Ok(()));
                let mut found = vec![0; BLOCKS * SMALL];
                bench.buffers.read(0, &mut found).unwrap();
                let mut wanted = vec![0xab; BLOCKS * SMALL];
                wanted[lba as usize * SMALL..][..blocks as usize * SMALL].fill(0);
                assert!(found == wanted, "{backing:?} {lba} {blocks} {deallocate}");
            }
        }
    }
}

/// A flush waits for the answers of those beside it, on whatever core, and for nothing else.
#[test]
fn flushes_of_several_cores_beside_each_other_all_end() {
    let file = Temporary::sparse("beside", MIB as u64);
    let medium = FileMedium::open(&file.options()).unwrap();
    std::thread::scope(|scope| {
        for backing in [Backing::Ring, Backing::Thread, Backing::Ring] {
            let mut bench = attached(medium.storage(backing, 8).unwrap().0);
            scope.spawn(move || {
                for round in 0..25 {
                    for cookie in 0..8 {
                        let write = Operation::Write { lba: round * 8 + cookie, blocks: 1, buffer: 0 };
                        let operation = if cookie % 2 == 0 { Operation::Flush } else { write };
                        bench.storage.submit(Cookie(cookie), operation).unwrap();
                    }
                    bench.storage.flush();
                    let ended = bench.completions(8);
                    assert!(ended.iter().all(|completion| completion.result == Ok(())), "{backing:?} {ended:?}");
                }
            });
        }
    });
}

/// Set in the process whose files have a limit.
const LIMITED: &str = "FRWR_TEST_LIMITED";

#[test]
fn a_limit_of_file_sizes_is_told_at_the_start_and_is_a_full_disk_to_hosts() {
    let Some(path) = std::env::var_os(LIMITED) else {
        // In units of 512 bytes, as POSIX has it; the last one is no multiple of any block.
        for limit in ["1024", "1025"] {
            let file = Temporary::sparse("limited", MIB as u64);
            let mut child = Command::new("sh");
            // As a program does it that catches what would end it.
            child.args(["-c", "trap '' XFSZ && ulimit -f \"$0\" && exec \"$1\" --exact \"$2\" --nocapture", limit]);
            child.arg(std::env::current_exe().unwrap());
            child.arg("a_limit_of_file_sizes_is_told_at_the_start_and_is_a_full_disk_to_hosts");
            let output = child.env(LIMITED, &file.0).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        return;
    };
    let medium = FileMedium::open(&FileOptions::new(path)).unwrap();
    for backing in BACKINGS {
        let (storage, notes) = medium.storage(backing, 4).unwrap();
        let said = notes.iter().map(ToString::to_string).find(|note| note.contains("RLIMIT_FSIZE"));
        let said = said.unwrap_or_else(|| panic!("{notes:?}"));
        assert!(["1048576", "524", "ulimit -f unlimited"].iter().all(|part| said.contains(part)), "{said}");
        let mut bench = attached(storage);
        assert_eq!(bench.write(100, 28, 0xab), Ok(()), "{backing:?}");
        for (lba, blocks) in [(129, 1), (140, 16), (120, 16), (255, 1)] {
            assert_eq!(bench.write(lba, blocks, 0xcd), Err(StorageError::NoSpace), "{backing:?} {lba}");
        }
        assert_eq!(bench.read(100, 20), Ok(vec![0xab; 20 * BLOCK]));
        // Nothing is out of order by that.
        assert_eq!(bench.run(Operation::Flush), Ok(()));
        assert_eq!(bench.run(Operation::Deallocate { lba: 200, blocks: 1 }), Ok(()));
        assert_eq!(bench.write(0, 1, 0xab), Ok(()), "{backing:?}");
    }
    // Who only reads has nothing to fear.
    drop(medium);
    let path = std::env::var_os(LIMITED).unwrap();
    let reading = FileMedium::open(&FileOptions::new(path).read_only(true)).unwrap();
    assert!(reading.storage(Backing::Thread, 4).unwrap().1.is_empty());
}

/// Set in a process that the kernel refuses something.
const REFUSED: &str = "FRWR_TEST_REFUSED";

/// A container's profile may let a ring be set up, and refuse to enter it.
#[test]
fn a_ring_that_cannot_be_entered_is_replaced_by_a_thread_with_a_line() {
    let name = "a_ring_that_cannot_be_entered_is_replaced_by_a_thread_with_a_line";
    if let Some(path) = std::env::var_os(REFUSED) {
        let medium = FileMedium::open(&FileOptions::new(path)).unwrap();
        let error = medium.storage(Backing::Ring, 4).unwrap_err().to_string();
        assert!(error.contains("io_uring is refused") && error.contains("seccomp"), "{error}");
        let (storage, notes) = medium.storage(Backing::Auto, 4).unwrap();
        let [note] = notes.as_slice() else { panic!("{notes:?}") };
        assert!(note.to_string().contains("a worker thread takes its place"), "{note}");
        let mut bench = attached(storage);
        assert_eq!(bench.write(3, 1, 0xab), Ok(()));
        assert_eq!(bench.read(3, 1), Ok(vec![0xab; BLOCK]));
        return;
    }
    for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EOPNOTSUPP] {
        let Some(mut child) = filtered(libc::SYS_io_uring_enter, errno, name) else {
            return skipped("no filter of system calls can be installed here: no perl, or no seccomp");
        };
        let file = Temporary::sparse("refused", MIB as u64);
        let output = child.env(REFUSED, &file.0).output().unwrap();
        assert!(output.status.success(), "{errno}: {output:?}");
    }
}

#[test]
fn zeros_are_written_and_hints_end_well_where_fallocate_is_refused() {
    let name = "zeros_are_written_and_hints_end_well_where_fallocate_is_refused";
    if let Some(path) = std::env::var_os(REFUSED) {
        let medium = FileMedium::open(&FileOptions::new(path)).unwrap();
        let mut bench = attached(medium.storage(Backing::Thread, 4).unwrap().0);
        for deallocate in [false, true] {
            assert_eq!(bench.write(0, 40, 0xab), Ok(()));
            assert_eq!(bench.run(Operation::WriteZeroes { lba: 1, blocks: 38, deallocate }), Ok(()));
            assert_eq!(bench.run(Operation::Deallocate { lba: 0, blocks: 1 }), Ok(()));
            let found = bench.read(0, 40).unwrap();
            assert!(found[..BLOCK] == [0xab; BLOCK] && found[39 * BLOCK..] == [0xab; BLOCK]);
            assert!(found[BLOCK..39 * BLOCK].iter().all(|byte| *byte == 0));
        }
        return;
    }
    for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL, libc::EOPNOTSUPP, libc::EINTR, libc::EIO, libc::ENOSPC] {
        let Some(mut child) = filtered(libc::SYS_fallocate, errno, name) else {
            return skipped("no filter of system calls can be installed here: no perl, or no seccomp");
        };
        let file = Temporary::sparse("refused", MIB as u64);
        let output = child.env(REFUSED, &file.0).output().unwrap();
        assert!(output.status.success(), "{errno}: {output:?}");
    }
}
