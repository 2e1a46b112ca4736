//! What is particular to files and block devices: durability, errors of the medium, alignment, system calls.

use core::time::Duration;
use frwr_nvmf::storage::{
    AnyStorage, AttachError, Backing, CompletionBatch, Cookie, FileError, FileMedium, FileOptions, MAX_STORAGE_DEPTH,
    MediumKind, Operation, ResizeError, Storage, StorageError,
};
use frwr_reactor::{Context, Now, Placement, Reactors, Source, Topology};
use frwr_support::storage_harness::disks::{LoopDevice, SmallDisk, opened, skipped};
use frwr_support::storage_harness::{BLOCK, BUFFER_BYTES, Bench, Kind, Temporary, attached, memory};
use std::{fs, fs::File, io, process::Command};

const KINDS: [Kind; 2] = [Kind::Ring, Kind::Thread];

#[test]
fn data_survives_reopening_by_the_other_way() {
    let file = Temporary::sparse("reopen", 8 * BLOCK as u64);
    for (round, backing) in [Backing::Ring, Backing::Thread, Backing::Auto].into_iter().enumerate() {
        let mut bench = attached(file.open(backing, 8));
        if round > 0 {
            assert_eq!(bench.read(3, 1).unwrap(), vec![round as u8; BLOCK], "{backing:?}");
        }
        bench.write(3, 1, round as u8 + 1).unwrap();
        bench.run(Operation::Flush).unwrap();
    }
    // And by everybody else.
    let bytes = fs::read(&file.0).unwrap();
    assert_eq!(bytes[3 * BLOCK..4 * BLOCK], [3; BLOCK]);
    assert!(bytes[..3 * BLOCK].iter().chain(&bytes[4 * BLOCK..]).all(|byte| *byte == 0));
}

#[test]
fn what_was_started_ends_before_the_storage_is_gone() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, "drop", 64, 64);
        bench.buffers.fill(0, BUFFER_BYTES, 0xab).unwrap();
        for lba in 0..63 {
            let buffer = lba as usize * BLOCK;
            bench.storage.submit(Cookie(lba), Operation::Write { lba, blocks: 1, buffer }).unwrap();
        }
        bench.storage.flush();
        // Never started.
        bench.storage.submit(Cookie(63), Operation::Write { lba: 63, blocks: 1, buffer: 63 * BLOCK }).unwrap();
        let Bench { storage, file, .. } = bench;
        drop(storage);
        let bytes = fs::read(&file.as_ref().unwrap().0).unwrap();
        assert!(bytes[..63 * BLOCK].iter().all(|byte| *byte == 0xab), "{kind:?}");
        assert!(bytes[63 * BLOCK..].iter().all(|byte| *byte == 0), "{kind:?}");
    }
}

#[test]
fn a_flush_is_one_system_call() {
    let mut bench = Bench::new(Kind::Ring, "calls", 64, 64);
    let AnyStorage::Ring(ring) = &bench.storage else { panic!("no ring") };
    if !ring.inner().has_registered_buffers() {
        skipped("no registered buffers here (ulimit -l)");
    }
    for round in 1..=10 {
        for cookie in 0..32 {
            let operation = Operation::Write { lba: cookie, blocks: 1, buffer: cookie as usize * BLOCK };
            bench.storage.submit(Cookie(cookie), operation).unwrap();
        }
        let mut out = CompletionBatch::new();
        bench.storage.poll(Duration::ZERO, &mut out);
        assert!(out.is_empty());
        bench.completions(32);
        // Empty flushes and polls cost none.
        for _ in 0..100 {
            bench.storage.flush();
            bench.storage.poll(Duration::ZERO, &mut out);
        }
        let statistics = bench.storage.statistics();
        let calls = statistics.system_calls - statistics.restarts;
        assert_eq!((statistics.flushes - statistics.restarts, calls), (round, round));
        assert_eq!((statistics.submitted, statistics.completed), (32 * round, 32 * round));
    }
}

#[test]
fn a_file_has_one_writer_or_many_readers() {
    let file = Temporary::sparse("locked", 4 * BLOCK as u64);
    let reading = file.options().read_only(true);
    for backing in [Backing::Ring, Backing::Thread] {
        let medium = FileMedium::open(&file.options()).unwrap();
        for options in [file.options(), reading.clone()] {
            let error = FileMedium::open(&options).unwrap_err();
            assert!(matches!(&error, FileError::Locked { path } if *path == file.0), "{error}");
            let line = error.to_string();
            assert!(["locked", "once", "name another"].iter().all(|part| line.contains(part)), "{line}");
        }
        // Cores share it, and the last one gives it back.
        let mut cores =
            [(); 3].map(|()| attached(medium.clone().storage(backing, 4).unwrap().0)).into_iter().collect::<Vec<_>>();
        drop(medium);
        while let Some(mut core) = cores.pop() {
            core.write(1, 1, 0xab).unwrap();
            drop(core);
            assert_eq!(FileMedium::open(&file.options()).is_ok(), cores.is_empty(), "{backing:?}");
        }
        let readers = [(); 2].map(|()| FileMedium::open(&reading).unwrap());
        assert!(matches!(FileMedium::open(&file.options()), Err(FileError::Locked { .. })));
        drop(readers);
    }
}

#[test]
fn a_full_disk_is_told_as_such() {
    for backing in [Backing::Ring, Backing::Thread] {
        // One for each: a kernel that has ended a ring lets go of its file, and its space, in its own time.
        let Some(disk) = SmallDisk::mount("tmpfs", "size=1m") else {
            return skipped("no file system can be mounted here: not root");
        };
        let path = disk.path("disk");
        File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let (storage, _) = FileMedium::open(&FileOptions::new(&path)).unwrap().storage(backing, 4).unwrap();
        let mut bench = attached(storage);
        let results: Vec<_> = (0..64).map(|part| bench.write(part * 16, 16, 0xab)).collect();
        assert_eq!(results[0], Ok(()), "{backing:?}");
        assert_eq!(results[63], Err(StorageError::NoSpace), "{backing:?}");
        assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(StorageError::NoSpace))), "{backing:?}");
        // What was written is there, and space can be given back.
        assert_eq!(bench.read(0, 16).unwrap(), vec![0xab; 16 * BLOCK]);
        bench.run(Operation::Deallocate { lba: 0, blocks: 16 }).unwrap();
        bench.write(1008, 8, 0xcd).unwrap();
    }
}

#[test]
fn a_file_system_without_direct_access_is_buffered_and_says_so() {
    let Some(disk) = SmallDisk::mount("ramfs", "mode=0755") else {
        return skipped("no file system can be mounted here: not root");
    };
    let path = disk.path("disk");
    File::create(&path).unwrap().set_len(16 * BLOCK as u64).unwrap();
    let medium = FileMedium::open(&FileOptions::new(&path)).unwrap();
    for backing in [Backing::Ring, Backing::Thread] {
        let (storage, notes) = medium.storage(backing, 4).unwrap();
        if medium.alignment() == 1 {
            let [note] = notes.as_slice() else { panic!("{notes:?}") };
            let line = note.to_string();
            assert!(line.contains("O_DIRECT") && line.contains("page cache") && !line.contains('\n'), "{line}");
        }
        let mut bench = attached(storage);
        bench.write(3, 4, 0xab).unwrap();
        // Neither way of fallocate(2) is known here.
        bench.run(Operation::WriteZeroes { lba: 4, blocks: 2, deallocate: true }).unwrap();
        bench.run(Operation::Deallocate { lba: 3, blocks: 1 }).unwrap();
        let bytes = bench.read(3, 4).unwrap();
        assert_eq!((bytes[3 * BLOCK], &bytes[BLOCK..3 * BLOCK]), (0xab, &[0; 2 * BLOCK][..]));
    }
    if medium.alignment() != 1 {
        skipped("ramfs has O_DIRECT here");
    }
}

#[test]
fn direct_access_asks_for_alignment() {
    let file = Temporary::sparse("aligned", 64 * BLOCK as u64);
    let medium = FileMedium::open(&file.options()).unwrap();
    let alignment = medium.alignment() as usize;
    if alignment == 1 {
        return skipped("the folder of temporary files has no O_DIRECT");
    }
    assert!(alignment.is_power_of_two() && (512..=BLOCK).contains(&alignment));
    for backing in [Backing::Ring, Backing::Thread] {
        let (mut storage, _) = medium.storage(backing, 4).unwrap();
        let odd = memory(2 * BLOCK).slice(8, BLOCK).unwrap();
        let wanted = alignment as u32;
        assert_eq!(storage.attach(odd.clone()), Err(AttachError::Unaligned { address: odd.address(), wanted }));
        let mut bench = attached(storage);
        for buffer in [8, alignment / 2, alignment + 64] {
            let read = bench.run(Operation::Read { lba: 0, blocks: 1, buffer });
            assert_eq!(read, Err(StorageError::BufferUnaligned), "{buffer}");
        }
        assert_eq!(bench.run(Operation::Read { lba: 0, blocks: 1, buffer: alignment }), Ok(()));
    }
    drop(medium);
    // Blocks may be as small as the medium's, and no smaller.
    let smallest = file.options().block_bytes(alignment as u32);
    assert!(FileMedium::open(&smallest).is_ok());
    if alignment > 512 {
        let error = FileMedium::open(&file.options().block_bytes(512)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("512") && text.contains(&alignment.to_string()) && text.contains("choose"), "{text}");
    }
}

#[test]
fn media_that_cannot_be_are_refused_with_limit_value_and_remedy() {
    let file = Temporary::sparse("odd", 3 * BLOCK as u64 + 4000);
    let medium = FileMedium::open(&file.options()).unwrap();
    assert_eq!(medium.geometry().blocks(), 3, "rounded down to whole blocks");
    for depth in [0, MAX_STORAGE_DEPTH + 1] {
        let error = medium.storage(Backing::Auto, depth).unwrap_err().to_string();
        assert!(error.contains(&depth.to_string()) && error.contains("4096"), "{error}");
    }
    let missing = FileMedium::open(&FileOptions::new("/nonexistent/disk")).unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/disk") && missing.contains("truncate"), "{missing}");
    for (path, kind, says) in [
        (file.0.clone(), MediumKind::Device, "regular file"),
        (std::env::temp_dir(), MediumKind::Any, "folder"),
        ("/dev/null".into(), MediumKind::Any, "character device"),
    ] {
        let error = FileMedium::open(&FileOptions::new(path).kind(kind)).unwrap_err();
        assert!(matches!(error, FileError::Kind { .. }) && error.to_string().contains(says), "{error}");
    }
    let empty = Temporary::sparse("empty", 100);
    let error = FileMedium::open(&empty.options()).unwrap_err();
    assert!(matches!(error, FileError::Geometry { bytes: 100, block_bytes: 4096, .. }), "{error}");
    let error = FileMedium::open(&file.options().block_bytes(1000)).unwrap_err();
    assert!(matches!(error, FileError::Geometry { block_bytes: 1000, .. }), "{error}");
}

#[test]
fn a_block_device_is_served_and_nobody_elses_meanwhile() {
    let Some(device) = LoopDevice::new(1 << 20, &[]) else { return skipped("no loop device can be made here") };
    let options = FileOptions::new(device.path()).kind(MediumKind::Device);
    for backing in [Backing::Ring, Backing::Thread] {
        let medium = opened(&options);
        assert_eq!(medium.geometry().blocks(), 256);
        let (storage, _) = medium.storage(backing, 4).unwrap();
        let mut bench = attached(storage);
        bench.write(255, 1, 0xab).unwrap();
        bench.run(Operation::WriteZeroes { lba: 0, blocks: 8, deallocate: false }).unwrap();
        bench.run(Operation::Deallocate { lba: 8, blocks: 8 }).unwrap();
        bench.run(Operation::Flush).unwrap();
        assert_eq!(bench.read(255, 1).unwrap(), vec![0xab; BLOCK]);
        // Opened for writing it is ours.
        let error = FileMedium::open(&options).unwrap_err().to_string();
        assert!(error.contains("mounted or used"), "{error}");
    }
    drop(device);
}

/// Of a core that is built and never runs.
struct Nobody;

impl Context for Nobody {
    type Message = ();

    fn message(&mut self, _: Source, (): (), _: &Now) {}
}

/// Who polls leaves a thread on the same core no time but what it takes from it.
#[test]
fn a_worker_is_not_pinned_to_the_core_that_it_works_for() {
    let topology = Topology::of_machine();
    let cpu = topology.cores().iter().find_map(|core| topology.may_pin(core.id).then_some(core.id));
    let Some(cpu) = cpu.filter(|_| topology.allowed().len() > 1) else { return skipped("one CPU") };
    let file = Temporary::sparse("affinity", 16 * BLOCK as u64);
    let mut storage = Some(file.open(Backing::Thread, 4));
    let launched = Reactors::<()>::new(Placement::Cores(vec![cpu])).launch::<Nobody, _, _>(|_| {
        let storage = storage.take().unwrap();
        move |_, _| {
            let mut bench = attached(storage);
            bench.write(0, 1, 0xab).unwrap();
            for thread in fs::read_dir("/proc/self/task").unwrap() {
                let of = |name| fs::read_to_string(thread.as_ref().unwrap().path().join(name)).unwrap_or_default();
                let (name, status) = (of("comm"), of("status"));
                let mut cores = status.lines().filter_map(|line| line.strip_prefix("Cpus_allowed_list:"));
                let pinned = cores.any(|cores| cores.trim() == cpu.to_string());
                assert!(name.trim() != "frwr-storage" || !pinned, "it is pinned to {cpu}");
            }
            Err(io::Error::other("that was all"))
        }
    });
    let Err(error) = launched else { panic!("a reactor runs") };
    assert!(format!("{error:?}").contains("that was all"), "{error:?}");
}

/// Set in the process that has no file descriptor left for a ring.
const STARVED: &str = "FRWR_TEST_STARVED";

#[test]
fn a_refused_ring_is_replaced_by_a_thread_in_one_line() {
    let Some(path) = std::env::var_os(STARVED) else {
        let file = Temporary::sparse("starved", 16 * BLOCK as u64);
        let mut child = Command::new("sh");
        child.args(["-c", "ulimit -n 64; exec \"$0\" --exact \"$1\" --nocapture"]);
        child.arg(std::env::current_exe().unwrap()).arg("a_refused_ring_is_replaced_by_a_thread_in_one_line");
        let output = child.env(STARVED, &file.0).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read(&file.0).unwrap()[..BLOCK], [0xab; BLOCK]);
        return;
    };
    let medium = FileMedium::open(&FileOptions::new(path)).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    let error = medium.storage(Backing::Ring, 4).unwrap_err().to_string();
    assert!(error.contains("io_uring is refused") && error.contains("io_uring_disabled"), "{error}");
    let (storage, notes) = medium.storage(Backing::Auto, 4).unwrap();
    let [note] = notes.as_slice() else { panic!("{notes:?}") };
    let line = note.to_string();
    assert!(line.contains("io_uring is refused") && line.contains("worker thread") && !line.contains('\n'), "{line}");
    assert_eq!(storage.name(), "worker thread");
    attached(storage).write(0, 1, 0xab).unwrap();
}

/// A medium that grows and is cut under its storages, each when the target says that nobody is in the way.
#[test]
fn a_storage_has_as_many_blocks_as_its_medium_was_measured_with() {
    for backing in [Backing::Ring, Backing::Thread] {
        let file = Temporary::sparse("resize", 4 * BLOCK as u64);
        let mut medium = FileMedium::open(&FileOptions::new(&file.0).direct(false)).unwrap();
        let Ok((storage, _)) = medium.storage(backing, 8) else { continue };
        let mut bench = attached(storage);
        let too_many = ResizeError::Medium { blocks: 8, limit: 4 };
        assert_eq!(bench.storage.resize(8), Err(too_many));
        let length = |blocks: u64| {
            File::options().write(true).open(&file.0).unwrap().set_len(blocks * BLOCK as u64).unwrap();
        };
        length(8);
        assert_eq!(bench.storage.resize(8), Err(too_many), "nobody has looked");
        assert_eq!(bench.write(7, 1, 7), Err(StorageError::LbaOutOfRange));
        assert_eq!(medium.measure().unwrap().blocks(), 8);
        bench.storage.resize(8).unwrap();
        bench.write(7, 1, 7).unwrap();
        assert_eq!((bench.read(7, 1).unwrap(), bench.storage.geometry().blocks()), (vec![7; BLOCK], 8));
        bench.storage.resize(2).unwrap();
        length(2);
        assert_eq!(medium.measure().unwrap().blocks(), 2);
        assert_eq!(bench.write(2, 1, 1), Err(StorageError::LbaOutOfRange));
        bench.write(1, 1, 1).unwrap();
        assert_eq!(
            (bench.read(1, 1).unwrap(), bench.storage.statistics().fault, medium.look()),
            (vec![1; BLOCK], None, None)
        );
        assert_eq!(bench.storage.resize(3), Err(ResizeError::Medium { blocks: 3, limit: 2 }));
        assert!(matches!(bench.storage.resize(0), Err(ResizeError::Geometry(_))));
    }
}
