//! Exports of servers that others have written: nbdkit with its filters, and qemu-nbd over a qcow2 image. A server that is not installed
//! is told as skipped.

use frwr_nvmf::storage::{Cookie, MediumFault, NbdAddress, NbdOptions, Operation, Storage, StorageError};
use frwr_support::{
    Random,
    storage_harness::{
        BLOCK,
        disks::skipped,
        nbd::{NbdBench, flush_and_verify},
    },
};
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

const BYTES: u64 = 16 << 20;

/// A server at a socket of its own, which is killed at the end.
struct Foreign {
    child: Option<Child>,
    command: Vec<String>,
    folder: tempfile::TempDir,
}

impl Foreign {
    /// `SOCKET` and `FOLDER` stand for its own, and there is a `FOLDER/disk`; `None` where it, or what is run before, is not installed.
    fn start(before: &[&str], command: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let of = |word: &&str| word.replace("SOCKET", &format!("{path}/nbd")).replace("FOLDER", path);
        fs::File::create(folder.path().join("disk")).unwrap().set_len(BYTES).unwrap();
        if let [program, arguments @ ..] = before {
            let made = Command::new(program).args(arguments.iter().map(of)).status();
            if !made.as_ref().is_ok_and(std::process::ExitStatus::success) {
                skipped(&format!("{program} ({made:?}); apt-get install nbdkit qemu-utils"));
                return None;
            }
        }
        let mut server = Self { child: None, command: command.iter().map(of).collect(), folder };
        server.restart().then_some(server)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd")
    }

    /// Whether it could be started.
    fn restart(&mut self) -> bool {
        match self.command().spawn() {
            Ok(child) => self.child = Some(child),
            Err(error) => {
                skipped(&format!("{} ({error}); apt-get install nbdkit qemu-utils", self.command[0]));
                return false;
            }
        }
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "{:?} ended: {ended:?}", self.command);
            std::thread::yield_now();
        }
        true
    }

    /// SIGKILL.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let _ = fs::remove_file(self.socket());
    }

    fn options(&self) -> NbdOptions {
        NbdOptions::new(NbdAddress::Unix(self.socket()), "").patience(Duration::from_secs(24 * 60 * 60))
    }

    fn bench(&self) -> NbdBench {
        NbdBench::open(self.options(), 32).unwrap()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.kill();
    }
}

/// nbdkit over one of its plugins, by these filters and with these parameters.
fn nbdkit(plugin: [&str; 2], more: &[&str]) -> Option<Foreign> {
    let (filters, parameters) = more.iter().copied().partition::<Vec<_>, _>(|word| word.starts_with('-'));
    Foreign::start(&[], &[&["nbdkit", "-f", "-U", "SOCKET"][..], &filters, &plugin, &parameters].concat())
}

const MEMORY: [&str; 2] = ["memory", "size=16M"];
const FILE: [&str; 2] = ["file", "FOLDER/disk"];

fn exercised(mut bench: NbdBench) {
    assert_eq!(bench.storage.geometry().blocks(), BYTES / BLOCK as u64);
    for (lba, blocks, byte) in [(0, 1, 1), (7, 32, 2), (BYTES / BLOCK as u64 - 64, 64, 3)] {
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
        let Some(server) = nbdkit(MEMORY, filters) else { return };
        for connections in [1, 4] {
            exercised(NbdBench::open(server.options().connections(connections), 32).unwrap());
        }
        exercised(NbdBench::open(server.options().write_through(true), 32).unwrap());
    }
}

#[test]
fn nbdkit_serves_a_file_and_an_export_for_reading() {
    let Some(server) = nbdkit(FILE, &[]) else { return };
    exercised(server.bench());
    let Some(server) = nbdkit(FILE, &["-r"]) else { return };
    let mut bench = server.bench();
    assert!(bench.storage.features().read_only);
    assert_eq!(bench.write(0, 1, 1), Err(StorageError::ReadOnly));
    assert_eq!(bench.read(0, 1).unwrap(), [0; BLOCK]);
}

#[test]
fn errors_of_nbdkit_are_told_by_their_kind_and_succeed_when_tried_again() {
    let Some(server) = nbdkit(
        MEMORY,
        &["--filter=error", "error=ENOSPC", "error-pwrite-rate=30%", "error-pread=EIO", "error-pread-rate=30%"],
    ) else {
        return;
    };
    let mut bench = server.bench();
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
    let Some(mut server) = nbdkit(FILE, &["--filter=delay", "wdelay=1ms"]) else { return };
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

/// qemu-nbd over an image of its own.
fn qemu_nbd(shared: &str) -> Option<Foreign> {
    let bytes = BYTES.to_string();
    let make = ["qemu-img", "create", "-q", "-f", "qcow2", "FOLDER/image", &bytes];
    Foreign::start(
        &make,
        &["qemu-nbd", "--persistent", shared, "--socket", "SOCKET", "--format", "qcow2", "FOLDER/image"],
    )
}

#[test]
fn qemu_nbd_serves_a_qcow2_image() {
    let Some(server) = qemu_nbd("--shared=0") else { return };
    for connections in [1, 4] {
        exercised(NbdBench::open(server.options().connections(connections), 32).unwrap());
    }
    let Some(server) = qemu_nbd("--shared=1") else { return };
    let error = NbdBench::open(server.options().connections(2), 32).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("CAN_MULTI_CONN"), "{error}");
}
