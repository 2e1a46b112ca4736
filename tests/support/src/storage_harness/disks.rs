//! Disks that only root has: file systems and block devices that go away at the end.
#![allow(unreachable_pub, reason = "a module of a test binary, not of a library")]

use super::Temporary;
use frwr_nvmf::storage::{FileError, FileMedium, FileOptions};
use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

/// Says that a test did not run; under CI that is a failure.
pub fn skipped(why: &str) {
    println!("SKIPPED: {why}");
    assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "SKIPPED under CI: {why}");
}

/// Whether a command succeeded; what it said otherwise goes to the test's output.
fn ran(command: &mut Command) -> bool {
    match command.output() {
        Ok(output) if output.status.success() => true,
        failed => {
            eprintln!("{command:?}: {failed:?}");
            false
        }
    }
}

/// Installs a filter by which a system call fails with an errno, and becomes the program that follows.
const FILTERED: &str = r#"
my ($prctl, $call, $errno) = splice(@ARGV, 0, 3);
my $filter = pack("SCCL" x 4, 0x20, 0, 0, 0, 0x15, 0, 1, $call, 0x06, 0, 0, 0x50000 | $errno, 0x06, 0, 0, 0x7fff0000);
my $program = pack("S x6 P", 4, $filter);
syscall($prctl, 38, 1, 0, 0, 0) == 0 && syscall($prctl, 22, 2, $program) == 0 || exit 77;
exec(@ARGV) or exit 78;
"#;

/// This test binary once more, for one test, where the kernel refuses a system call; `None` where no filter can be had.
pub fn filtered(call: core::ffi::c_long, errno: i32, test: &str) -> Option<Command> {
    let with = |call: core::ffi::c_long| {
        let mut perl = Command::new("perl");
        perl.args(["-e", FILTERED, "--"]).args([libc::SYS_prctl, call, errno.into()].map(|number| number.to_string()));
        perl
    };
    // A call that nobody makes.
    ran(with(libc::SYS_acct).arg("true")).then(|| {
        let mut command = with(call);
        command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
        command
    })
}

/// A file system that goes away at the end.
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// One without a device, or on `device`.
    pub fn mount(kind: &str, options: &str) -> Option<Self> {
        Self::mount_device("frwr", kind, options)
    }

    /// One on a device.
    pub fn mount_device(device: &str, kind: &str, options: &str) -> Option<Self> {
        Self::mount_by(Command::new("mount"), device, kind, options)
    }

    /// One whose server is at the other end of `kernel`, an open /dev/fuse.
    pub fn mount_fuse(kernel: File) -> Option<Self> {
        let mut mount = Command::new("mount");
        // No program of FUSE's own stands in between, and what is inherited has number 0.
        mount.arg("--internal-only").stdin(kernel);
        Self::mount_by(mount, "frwr", "fuse", "fd=0,rootmode=40000,user_id=0,group_id=0")
    }

    fn mount_by(mut mount: Command, device: &str, kind: &str, options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        mount.args(["-t", kind, "-o", options, device]).arg(folder.path());
        ran(&mut mount).then(|| Self(folder))
    }

    /// Where a file of it is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// It becomes this large.
    pub fn resize(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(ran(Command::new("mount").args(["-o", &options]).arg(self.0.path())));
    }

    /// Takes it away now, as soon as nobody has a file of it open any more: a kernel that has ended a ring lets go of its file in its
    /// own time.
    pub fn unmount(self) {
        for _ in 0..100_000 {
            if Command::new("umount").arg(self.0.path()).output().is_ok_and(|output| output.status.success()) {
                return;
            }
            std::thread::yield_now();
        }
        panic!("{:?} is busy for ever", self.0.path());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// A disk in a file.
pub struct LoopDevice(String, Option<Temporary>);

impl LoopDevice {
    /// Of so many bytes, in a file of its own.
    pub fn new(bytes: u64, options: &[&str]) -> Option<Self> {
        let file = Temporary::sparse("loop", bytes);
        let mut device = Self::over(&file.0, options)?;
        device.1 = Some(file);
        Some(device)
    }

    /// In this file.
    pub fn over(file: &Path, options: &[&str]) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().ok()?;
        let device = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !device.is_empty()).then_some(Self(device, None))
    }

    pub fn path(&self) -> &str {
        &self.0
    }

    /// Asks losetup(8) for something.
    pub fn setup(&self, option: &str) -> bool {
        ran(Command::new("losetup").args([option, &self.0]))
    }

    /// The file that it is in, where that is its own.
    pub fn file(&self) -> Option<&Path> {
        self.1.as_ref().map(|file| file.0.as_path())
    }

    /// Makes a file system on it.
    pub fn format(&self, arguments: &[&str]) -> bool {
        ran(Command::new("mkfs.ext4").args(["-q", "-F"]).args(arguments).arg(&self.0))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A kernel that has ended a ring lets go of its file in its own time.
pub fn opened(options: &FileOptions) -> FileMedium {
    for _ in 0..1_000_000 {
        match FileMedium::open(options) {
            Err(FileError::Open { source, .. }) if source.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::yield_now();
            }
            medium => return medium.unwrap(),
        }
    }
    panic!("{options:?} is busy for ever")
}

/// Of the file on a disk that is [`Overcommitted`].
pub const OVERCOMMITTED_BYTES: usize = 24 << 20;

/// How to format and mount a disk with a journal that takes its room when it is written, and that is not because five seconds are over.
pub const JOURNAL_LATER: ([&str; 2], &str) = (["-E", "lazy_journal_init=1"], "errors=continue,commit=300");

/// A file in a file system on a disk that promises more than what is below it can hold.
pub struct Overcommitted {
    below: SmallDisk,
    device: LoopDevice,
    mounted: SmallDisk,
}

impl Overcommitted {
    pub fn new(format: &[&str], options: &str) -> Option<Self> {
        let below = SmallDisk::mount("tmpfs", "size=12m")?;
        File::create(below.path("backing")).unwrap().set_len(96 << 20).unwrap();
        let device = LoopDevice::over(&below.path("backing"), &[])?;
        device.format(&[&["-b", "4096", "-N", "64"], format].concat()).then_some(())?;
        let mounted = SmallDisk::mount_device(device.path(), "ext4", options)?;
        let file = File::create(mounted.path("disk")).unwrap();
        file.set_len(OVERCOMMITTED_BYTES as u64).unwrap();
        // It is there, whatever follows.
        file.sync_all().unwrap();
        Some(Self { below, device, mounted })
    }

    pub fn options(&self, direct: bool) -> FileOptions {
        FileOptions::new(self.mounted.path("disk")).direct(direct)
    }

    /// The disk below has room from now on, so that it ends in order.
    pub fn give_room(&self) {
        self.below.resize("size=128m");
    }

    /// The file's bytes once the disk below has room, as whoever mounts it next sees them.
    pub fn remounted(self, options: &str) -> Vec<u8> {
        self.give_room();
        // The disk below is kept until its bytes are read.
        let Self { below: _below, device, mounted } = self;
        mounted.unmount();
        let mounted = SmallDisk::mount_device(device.path(), "ext4", options).unwrap();
        fs::read(mounted.path("disk")).unwrap()
    }
}

/// Makes a file system lose what it has in memory and has not promised to keep (FS_IOC_SHUTDOWN with FS_SHUTDOWN_FLAGS_NOLOGFLUSH, of
/// ext4 and others): from then on it is to be mounted again.
const SHUT_DOWN: &str = r#"
open(my $folder, "<", $ARGV[0]) or exit 77;
my $how = pack("L", 2);
ioctl($folder, 0x8004587d, $how) or exit 78;
"#;

/// How its file system is made: the journal's blocks are had from below when they are written.
const FAILING_FORMAT: [&str; 6] = ["-b", "4096", "-N", "64", "-E", "lazy_journal_init=1"];
/// Bytes of a disk that may fail, and of all that is below it.
const FAILING_BYTES: u64 = 24 << 20;
const BELOW: &str = "size=32m";

/// A disk with a file system, whose power a test can cut, and below which it can take the room away.
pub struct FailingDisk {
    mounted: Option<SmallDisk>,
    device: LoopDevice,
    below: SmallDisk,
}

impl FailingDisk {
    /// `None` where no disk can be mounted.
    pub fn new() -> Option<Self> {
        let below = SmallDisk::mount("tmpfs", BELOW)?;
        File::create(below.path("backing")).unwrap().set_len(FAILING_BYTES).unwrap();
        let device = LoopDevice::over(&below.path("backing"), &[])?;
        device.format(&FAILING_FORMAT).then_some(())?;
        let mounted = Some(Self::mount(&device)?);
        Some(Self { mounted, device, below })
    }

    fn mount(device: &LoopDevice) -> Option<SmallDisk> {
        SmallDisk::mount_device(device.path(), "ext4", JOURNAL_LATER.1)
    }

    fn disk(&self) -> &SmallDisk {
        self.mounted.as_ref().expect("it is mounted again behind each loss of power")
    }

    /// Where a file of it is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.disk().path(name)
    }

    /// A sparse file, which is there whatever follows.
    pub fn create(&self, name: &str, bytes: u64) {
        let file = File::create(self.path(name)).unwrap();
        file.set_len(bytes).unwrap();
        file.sync_all().unwrap();
    }

    /// What no flush has brought to the disk is lost; who has a file of it finds only errors.
    pub fn cut_power(&self) {
        assert!(ran(Command::new("perl").args(["-e", SHUT_DOWN]).arg(self.path(""))));
    }

    /// As it is found behind that, once nobody has a file of it any more.
    pub fn mount_again(&mut self) {
        self.empty_below();
        self.mounted.take().expect("it is mounted").unmount();
        self.mounted = Self::mount(&self.device);
    }

    /// No block has room that was never written.
    pub fn fill(&self) {
        fill(&self.path("filler"));
    }

    /// Below there is none any more for blocks that the disk has never written, which it knows nothing of.
    pub fn fill_below(&self) {
        fill(&self.below.path("filler"));
    }

    /// There is again.
    pub fn empty_below(&self) {
        let _ = fs::remove_file(self.below.path("filler"));
    }
}

/// Writes until nothing more can be.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    while file.write_all(&[0x11; 1 << 16]).is_ok() {}
    let _ = file.sync_all();
}
