//! What storages of this repository lie on, as the conformance suite takes it.
#![allow(unreachable_pub, reason = "a module of test binaries, not of a library")]

use super::disks::{FailingDisk, LoopDevice, opened};
use super::foreign::Foreign;
use super::{BLOCK, Temporary, memory};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::conformance::Medium;
use frwr_nvmf::storage::{
    Backing, Comparing, FileMedium, FileOptions, MemoryStorage, NbdError, NbdMedium, NbdOptions, RangeLocks, Storage,
};
use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

/// Blocks of each.
const BLOCKS: u64 = 128;
/// Operations of one way.
const DEPTH: usize = 64;

fn set_len(file: &Path, blocks: u64) -> bool {
    File::options().write(true).open(file).unwrap().set_len(blocks * BLOCK as u64).unwrap();
    true
}

/// A way to a file or device.
fn way(medium: &FileMedium, backing: Backing) -> Option<Box<dyn Storage>> {
    let (storage, _) = medium.storage(backing, DEPTH).unwrap();
    Some(Box::new(storage))
}

/// Memory that lives on when its storages are gone.
pub struct InMemory(DeviceMemory, Arc<RangeLocks>);

impl InMemory {
    pub fn new() -> Self {
        Self(memory(BLOCKS as usize * BLOCK), Arc::default())
    }

    fn storage(&self, read_only: bool) -> Option<Box<dyn Storage>> {
        let storage = MemoryStorage::new(self.0.clone(), BLOCK as u32, DEPTH).unwrap();
        let storage = if read_only { storage.read_only() } else { storage };
        Some(Box::new(Comparing::new(storage, &self.1).unwrap()))
    }
}

impl Default for InMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl Medium for InMemory {
    fn open(&mut self) -> Option<Box<dyn Storage>> {
        self.storage(false)
    }

    fn open_beside(&mut self) -> Option<Box<dyn Storage>> {
        self.open()
    }

    fn open_read_only(&mut self) -> Option<Box<dyn Storage>> {
        self.storage(true)
    }
}

/// A file in the folder of temporary files, past the page cache where that has such a thing.
pub struct InFile {
    file: Temporary,
    backing: Backing,
    medium: Option<FileMedium>,
}

impl InFile {
    pub fn new(backing: Backing) -> Self {
        Self { file: Temporary::sparse("conformance", BLOCKS * BLOCK as u64), backing, medium: None }
    }

    fn opened(&mut self, options: &FileOptions) -> Option<Box<dyn Storage>> {
        // The former one has its lock.
        self.medium = None;
        way(self.medium.insert(FileMedium::open(options).unwrap()), self.backing)
    }
}

impl Medium for InFile {
    fn open(&mut self) -> Option<Box<dyn Storage>> {
        self.opened(&self.file.options())
    }

    fn open_beside(&mut self) -> Option<Box<dyn Storage>> {
        way(self.medium.as_ref()?, self.backing)
    }

    fn open_read_only(&mut self) -> Option<Box<dyn Storage>> {
        self.medium = None;
        fs::set_permissions(&self.file.0, fs::Permissions::from_mode(0o444)).unwrap();
        self.opened(&self.file.options().read_only(true))
    }

    fn cut(&mut self, blocks: u64) -> bool {
        set_len(&self.file.0, blocks)
    }

    fn extend(&mut self, blocks: u64) -> bool {
        set_len(&self.file.0, blocks);
        self.medium.as_mut().is_some_and(|medium| medium.measure().is_ok())
    }
}

/// A file by way of the page cache, on a disk that a test has the power of.
pub struct OnDisk {
    disk: FailingDisk,
    backing: Backing,
    medium: Option<FileMedium>,
}

impl OnDisk {
    /// `None` where no disk can be mounted.
    pub fn new(backing: Backing) -> Option<Self> {
        let disk = FailingDisk::new()?;
        disk.create("disk", BLOCKS * BLOCK as u64);
        Some(Self { disk, backing, medium: None })
    }

    fn file(&self) -> PathBuf {
        self.disk.path("disk")
    }

    fn opened(&mut self, read_only: bool) -> Option<Box<dyn Storage>> {
        self.medium = None;
        let options = FileOptions::new(self.file()).direct(false).read_only(read_only);
        way(self.medium.insert(FileMedium::open(&options).unwrap()), self.backing)
    }
}

impl Medium for OnDisk {
    fn open(&mut self) -> Option<Box<dyn Storage>> {
        self.opened(false)
    }

    fn open_beside(&mut self) -> Option<Box<dyn Storage>> {
        way(self.medium.as_ref()?, self.backing)
    }

    fn open_read_only(&mut self) -> Option<Box<dyn Storage>> {
        self.opened(true)
    }

    fn lose_power(&mut self) -> bool {
        self.medium = None;
        self.disk.cut_power();
        self.disk.mount_again();
        true
    }

    fn fail_below(&mut self) -> bool {
        self.disk.fill_below();
        true
    }

    fn mend_below(&mut self) {
        self.disk.empty_below();
    }

    fn fill_up(&mut self) -> bool {
        self.disk.fill();
        true
    }

    fn cut(&mut self, blocks: u64) -> bool {
        set_len(&self.file(), blocks)
    }

    fn extend(&mut self, blocks: u64) -> bool {
        set_len(&self.file(), blocks);
        self.medium.as_mut().is_some_and(|medium| medium.measure().is_ok())
    }
}

/// A block device, asked directly, over a file on a disk that a test has the power of.
pub struct OnDevice {
    device: Option<LoopDevice>,
    disk: FailingDisk,
    backing: Backing,
    medium: Option<FileMedium>,
}

impl OnDevice {
    /// `None` where there are no loop devices.
    pub fn new(backing: Backing) -> Option<Self> {
        let disk = FailingDisk::new()?;
        disk.create("disk", BLOCKS * BLOCK as u64);
        let device = Some(LoopDevice::over(&disk.path("disk"), &[])?);
        Some(Self { device, disk, backing, medium: None })
    }

    fn opened(&mut self, read_only: bool) -> Option<Box<dyn Storage>> {
        self.medium = None;
        let options = FileOptions::new(self.device.as_ref()?.path()).read_only(read_only);
        way(self.medium.insert(opened(&options)), self.backing)
    }

    fn set_capacity(&self, blocks: u64) -> bool {
        set_len(&self.disk.path("disk"), blocks);
        self.device.as_ref().is_some_and(|device| device.setup("--set-capacity"))
    }
}

/// No promise of a medium that fails below: a loop device forgets that it could not write to its
/// file, which is not ours to mend.
impl Medium for OnDevice {
    fn open(&mut self) -> Option<Box<dyn Storage>> {
        self.opened(false)
    }

    fn open_beside(&mut self) -> Option<Box<dyn Storage>> {
        way(self.medium.as_ref()?, self.backing)
    }

    fn open_read_only(&mut self) -> Option<Box<dyn Storage>> {
        self.opened(true)
    }

    fn lose_power(&mut self) -> bool {
        self.medium = None;
        self.disk.cut_power();
        self.device = None;
        self.disk.mount_again();
        self.device = LoopDevice::over(&self.disk.path("disk"), &[]);
        self.device.is_some()
    }

    fn cut(&mut self, blocks: u64) -> bool {
        self.set_capacity(blocks)
    }

    fn extend(&mut self, blocks: u64) -> bool {
        self.set_capacity(blocks) && self.medium.as_mut().is_some_and(|medium| medium.measure().is_ok())
    }
}

/// Connections of one way to a server, so that it answers out of order.
const CONNECTIONS: u8 = 4;

/// The time of whoever waits for servers.
pub fn time() -> impl FnMut() -> Duration {
    let began = Instant::now();
    move || began.elapsed()
}

/// How long a server that was just started may refuse whoever comes.
const BEGINNING: Duration = Duration::from_secs(20);

fn opened_export(medium: &mut Option<NbdMedium>, options: NbdOptions) -> Option<Box<dyn Storage>> {
    *medium = None;
    let (options, began) = (options.connections(CONNECTIONS), Instant::now());
    let opened = loop {
        match NbdMedium::open(options.clone()) {
            // A foreign one may end connections that come early, where the machine is busy.
            Err(NbdError::Unreachable { .. }) if began.elapsed() < BEGINNING => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    another(medium.insert(opened))
}

fn another(medium: &NbdMedium) -> Option<Box<dyn Storage>> {
    Some(Box::new(medium.storage(DEPTH).unwrap()))
}

/// An export of nbdkit: a file on a disk that a test has the power of.
pub struct OnNbdkit {
    server: Option<Foreign>,
    disk: FailingDisk,
    medium: Option<NbdMedium>,
}

impl OnNbdkit {
    /// `None` where no disk can be mounted, or nbdkit is not installed.
    pub fn new() -> Option<Self> {
        // Who is asked for it and does not have it says so once.
        Command::new("nbdkit").arg("--version").output().ok()?;
        let disk = FailingDisk::new()?;
        disk.create("disk", BLOCKS * BLOCK as u64);
        let server = Some(Self::serve(&disk)?);
        Some(Self { server, disk, medium: None })
    }

    fn serve(disk: &FailingDisk) -> Option<Foreign> {
        let file = disk.path("disk").display().to_string();
        Foreign::start(&[], &["nbdkit", "-f", "-U", "SOCKET", "file", &file])
    }
}

impl Medium for OnNbdkit {
    fn open(&mut self) -> Option<Box<dyn Storage>> {
        opened_export(&mut self.medium, self.server.as_ref()?.options())
    }

    fn open_beside(&mut self) -> Option<Box<dyn Storage>> {
        another(self.medium.as_ref()?)
    }

    fn lose_power(&mut self) -> bool {
        self.medium = None;
        self.disk.cut_power();
        self.server = None;
        self.disk.mount_again();
        self.server = Self::serve(&self.disk);
        self.server.is_some()
    }

    fn fail_below(&mut self) -> bool {
        self.disk.fill_below();
        true
    }

    fn mend_below(&mut self) {
        self.disk.empty_below();
    }

    fn fill_up(&mut self) -> bool {
        self.disk.fill();
        true
    }
}
