//! Files and block devices as media: opened once, checked, and then used by every core that serves them.

use super::super::{AnyStorage, Comparing, Geometry, GeometryError, MediumFault, RangeLocks, ResizeError, TooManyWays};
use super::{
    Backing, MAX_STORAGE_DEPTH, RingStorage, ThreadStorage,
    layout::{Kind, Layout},
    lock::{LockedFile, Sharing},
};
use core::fmt;
use frwr_mempool::limits::{Limits, Resource};
use std::{
    fs::{File, FileType, OpenOptions},
    io::{self, Seek as _, SeekFrom},
    os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::PathBuf,
    sync::Arc,
};

/// Logical blocks that disks and file systems have, and so what O_DIRECT may ask offsets, lengths and addresses to be
/// multiples of (open(2), Notes).
const ALIGNMENTS: [u32; 8] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// The largest of them.
const LARGEST: usize = 64 << 10;
/// Logical block of a device that does not say.
const SMALLEST_SECTOR: u32 = 512;
/// What ranges of fallocate(2) are multiples of nearly everywhere, where those of the medium itself were refused: blocks of file
/// systems, and pages. Larger ones are taken from the file system, up to [`LARGEST`].
const COARSE_GRANULE: u32 = 4096;

/// What a medium has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumKind {
    /// A regular file or a block device.
    Any,
    /// A regular file.
    File,
    /// A block device.
    Device,
}

frwr_mempool::options! {
    /// Which medium.
    #[derive(Clone, Debug)]
    pub struct FileOptions {
        /// Where it is.
        pub path: PathBuf,
        /// What it has to be.
        pub kind: MediumKind,
        /// Bytes per block of the namespace, a power of two. The namespace has as many whole blocks as the medium.
        pub block_bytes: u32,
        /// It is opened for reading only.
        pub read_only: bool,
        /// Past the page cache (O_DIRECT) where the file system can.
        pub direct: bool,
    }
}

impl FileOptions {
    /// A medium that is read and written, past the page cache, in blocks of 4096 bytes.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), kind: MediumKind::Any, block_bytes: 4096, read_only: false, direct: true }
    }
}

/// Why a medium cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be opened.
    #[error("{path:?} cannot be opened for {purpose} ({source}); {remedy}")]
    Open {
        /// Which.
        path: PathBuf,
        /// Reading, or reading and writing.
        purpose: &'static str,
        /// Why.
        source: io::Error,
        /// What may help.
        remedy: &'static str,
    },
    /// It is served already.
    #[error(
        "{path:?} is locked by somebody else: a file that is written is served once; end the other, name another file, or \
         set read_only for all"
    )]
    Locked {
        /// Which.
        path: PathBuf,
    },
    /// It is something else.
    #[error("{path:?} is a {is}: must be a {wanted}; name another path")]
    Kind {
        /// Which.
        path: PathBuf,
        /// What it is.
        is: &'static str,
        /// What it has to be.
        wanted: &'static str,
    },
    /// Its size is no size of a namespace.
    #[error("{path:?} has {bytes} bytes, in blocks of {block_bytes}: {source}")]
    Geometry {
        /// Which.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
        /// Bytes of a block.
        block_bytes: u32,
        /// Why.
        source: GeometryError,
    },
    /// Blocks that are smaller than those of the medium.
    #[error(
        "{path:?}: blocks of {block_bytes} bytes, and the medium transfers multiples of {alignment}; choose blocks of \
         {alignment} bytes or more"
    )]
    BlockBytes {
        /// Which.
        path: PathBuf,
        /// Bytes of a block.
        block_bytes: u32,
        /// What O_DIRECT asks for.
        alignment: u32,
    },
    /// It cannot be read.
    #[error("{path:?} cannot be read ({source}); check the disk below it")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// More ways to it than there may be.
    #[error("{path:?}: {source}")]
    Ways {
        /// Which.
        path: PathBuf,
        /// Why.
        source: TooManyWays,
    },
    /// A depth that no storage has.
    #[error("storage depth {0}: must be from 1 to {MAX_STORAGE_DEPTH}; choose a value inside")]
    Depth(usize),
    /// io_uring was asked for, and cannot be had.
    #[error("{path:?}: io_uring is refused ({source}); {REMEDY}, or choose the backing `auto` or `thread`")]
    Ring {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The worker thread did not start.
    #[error("{path:?}: no worker thread ({source}); raise the limit of processes (ulimit -u)")]
    Thread {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What to do about a refused io_uring.
const REMEDY: &str = "see sysctl kernel.io_uring_disabled, the seccomp profile of the container, and that Linux is 5.6 \
                      or later";

/// What a person should know about how a medium is used: one line each.
#[derive(Debug)]
pub enum FileNote {
    /// Not past the page cache.
    Buffered {
        /// Which.
        path: PathBuf,
    },
    /// Not locked against being served twice.
    Unlocked {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Longer than the files of this process may be.
    SizeLimit {
        /// Which.
        path: PathBuf,
        /// Bytes of the namespace.
        bytes: u64,
        /// RLIMIT_FSIZE in bytes.
        limit: u64,
    },
    /// Not by io_uring.
    NoRing {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl fmt::Display for FileNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffered { path } => {
                write!(
                    f,
                    "{}: its file system has no O_DIRECT; reads and writes go through the page cache",
                    path.display()
                )
            }
            Self::Unlocked { path, source } => {
                write!(f, "{}: cannot be locked ({source}); make sure that nobody else serves it", path.display())
            }
            Self::SizeLimit { path, bytes, limit } => {
                write!(
                    f,
                    "{}: {bytes} bytes, and this process may write files up to {limit} (ulimit -f, RLIMIT_FSIZE); writes behind \
                     that fail as on a full disk; ulimit -f unlimited",
                    path.display()
                )
            }
            Self::NoRing { path, source } => {
                write!(
                    f,
                    "{}: io_uring is refused ({source}); a worker thread takes its place; {REMEDY}",
                    path.display()
                )
            }
        }
    }
}

/// An open file or block device. Clones are the same one.
#[derive(Clone, Debug)]
pub struct FileMedium {
    file: Arc<LockedFile>,
    range_locks: Arc<RangeLocks>,
    path: PathBuf,
    layout: Layout,
    buffered: bool,
    /// Why it is not locked, an errno.
    unlocked: Option<i32>,
}

impl FileMedium {
    /// Opens a medium. Blocks, so it is nothing for a reactor. A regular file is locked until the last clone and storage of
    /// the medium is dropped (flock(2)): it has one writer, or any number of readers. A block device is opened exclusively
    /// where it may be written: one that is mounted is refused, and so may be one whose last storage was dropped a moment ago. A write
    /// behind RLIMIT_FSIZE ends a process that neither ignores nor catches SIGXFSZ.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn open(options: &FileOptions) -> Result<Self, FileError> {
        let FileOptions { path, kind, block_bytes, read_only, direct } = options.clone();
        let purpose = if read_only { "reading" } else { "reading and writing" };
        let remedy = "name a file or block device that this user may open, or set read_only";
        let unopened = |source: io::Error| {
            let remedy = match source.raw_os_error() {
                Some(libc::EBUSY) => "it is mounted or used by somebody else: unmount it, or set read_only",
                Some(libc::ENOENT) => "create it first, for example by `truncate -s 1G FILE`",
                _ => remedy,
            };
            FileError::Open { path: path.clone(), purpose, source, remedy }
        };
        // Before it is opened: that alone may wait for ever where it is a pipe.
        let found = std::fs::metadata(&path).map_err(unopened)?.file_type();
        check_kind(found, kind).map_err(|(is, wanted)| FileError::Kind { path: path.clone(), is, wanted })?;
        let exclusive = if found.is_block_device() && !read_only { libc::O_EXCL } else { 0 };
        let open = |flags| OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(&path);
        let mut direct = direct;
        let mut file = match open(exclusive | if direct { libc::O_DIRECT } else { 0 }) {
            Err(error) if direct && error.raw_os_error() == Some(libc::EINVAL) => {
                direct = false;
                open(exclusive).map_err(unopened)?
            }
            opened => opened.map_err(unopened)?,
        };
        let sharing = match (found.is_block_device(), read_only) {
            (true, _) => Sharing::Unlocked,
            (false, true) => Sharing::Readers,
            (false, false) => Sharing::Exclusive,
        };
        let unreadable = |source| FileError::Read { path: path.clone(), source };
        // Block devices have no length, but an end.
        let bytes = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        let geometry = Geometry::new(bytes.checked_div(block_bytes.into()).unwrap_or(0), block_bytes)
            .map_err(|source| FileError::Geometry { path: path.clone(), bytes, block_bytes, source })?;
        let alignment = if direct { alignment(&file, bytes).map_err(unreadable)? } else { 1 };
        if alignment > block_bytes {
            return Err(FileError::BlockBytes { path, block_bytes, alignment });
        }
        let kind = if found.is_block_device() { Kind::Device } else { Kind::File };
        let granule = if kind == Kind::Device { logical_block_bytes(&file).unwrap_or(SMALLEST_SECTOR) } else { 1 };
        let coarse_granule = coarse_granule(&file).max(granule);
        let Ok((file, unlocked)) = LockedFile::new(file, bytes, sharing) else {
            return Err(FileError::Locked { path });
        };
        Ok(Self {
            file: Arc::new(file),
            range_locks: Arc::default(),
            path,
            layout: Layout { geometry, kind, alignment, granule, coarse_granule, read_only },
            buffered: options.direct && !direct,
            unlocked: unlocked.map(|error| error.raw_os_error().unwrap_or(libc::EOPNOTSUPP)),
        })
    }

    /// Size of the namespace.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.layout.geometry
    }

    /// What addresses of buffers have to be multiples of, in bytes.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        self.layout.alignment
    }

    /// It is a block device, and no regular file.
    #[must_use]
    pub fn is_device(&self) -> bool {
        self.layout.kind == Kind::Device
    }

    /// What is wrong with it for good, as its operations, on any core, have found by now.
    #[must_use]
    pub fn fault(&self) -> Option<MediumFault> {
        self.file.health().fault(self.layout.bytes())
    }

    /// The same after a look at its size: for whoever wants to know of a medium that became shorter before an operation finds it so. A
    /// system call, and nothing for a reactor.
    #[must_use]
    pub fn look(&self) -> Option<MediumFault> {
        self.file.is_too_short(&self.layout);
        self.fault()
    }

    /// Measures it again, once somebody has made it longer, or has cut what no namespace has any more. Its storages can have as many
    /// blocks from then on ([`Storage::resize`](super::super::Storage::resize)). A system call, and nothing for a reactor.
    ///
    /// # Errors
    /// [`FileError::Read`], [`FileError::Geometry`].
    pub fn measure(&mut self) -> Result<Geometry, FileError> {
        let bytes = self.file.measure().map_err(|source| FileError::Read { path: self.path.clone(), source })?;
        self.layout.geometry = self.whole(bytes)?;
        Ok(self.layout.geometry)
    }

    /// What that found the last time, by whichever clone.
    ///
    /// # Errors
    /// [`FileError::Geometry`].
    pub fn measured(&self) -> Result<Geometry, FileError> {
        self.whole(self.file.measured())
    }

    /// What it would find now, as far as this machine knows: no server of files is asked, and nothing is changed.
    ///
    /// # Errors
    /// [`FileError::Geometry`].
    pub fn looked(&self) -> Result<Geometry, FileError> {
        self.whole(self.file.known(self.layout.kind))
    }

    /// The blocks of so many bytes.
    fn whole(&self, bytes: u64) -> Result<Geometry, FileError> {
        let block_bytes = self.layout.geometry.block_bytes();
        let geometry = Geometry::new(bytes / u64::from(block_bytes), block_bytes);
        geometry.map_err(|source| FileError::Geometry { path: self.path.clone(), bytes, block_bytes, source })
    }

    /// Has so many blocks from now on, of those that it had when it was measured last: what [`FileMedium::look`] looks for, and storages
    /// that are made of it begin with. Those that there are already have their own ([`Storage::resize`](super::super::Storage::resize)).
    ///
    /// # Errors
    /// [`ResizeError`]; nothing has changed then.
    pub fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        self.layout = self.layout.resized(blocks, self.file.measured())?;
        Ok(())
    }

    /// One core's way to it, of `depth` operations at a time; and what was made out otherwise than asked for. To be made by a
    /// thread that is not pinned to that core: a worker thread runs where the calling thread may run.
    ///
    /// # Errors
    /// [`FileError::Depth`], [`FileError::Ring`], [`FileError::Thread`], [`FileError::Ways`].
    pub fn storage(&self, backing: Backing, depth: usize) -> Result<(AnyStorage, Vec<FileNote>), FileError> {
        if !(1..=MAX_STORAGE_DEPTH).contains(&depth) {
            return Err(FileError::Depth(depth));
        }
        let path = || self.path.clone();
        let mut notes = Vec::new();
        if self.buffered {
            notes.push(FileNote::Buffered { path: path() });
        }
        if let Some(errno) = self.unlocked {
            notes.push(FileNote::Unlocked { path: path(), source: io::Error::from_raw_os_error(errno) });
        }
        let bytes = self.layout.bytes();
        let limit = Limits::of_process().soft_limit(Resource::FileSize);
        if let Some(limit) = limit.filter(|limit| self.layout.can_grow() && *limit < bytes) {
            notes.push(FileNote::SizeLimit { path: path(), bytes, limit });
        }
        if backing != Backing::Thread {
            match RingStorage::new(Arc::clone(&self.file), self.layout, depth) {
                Ok(ring) => {
                    let storage = Comparing::new(ring, &self.range_locks);
                    let storage = storage.map_err(|source| FileError::Ways { path: path(), source })?;
                    return Ok((AnyStorage::Ring(Box::new(storage)), notes));
                }
                Err(source) if backing == Backing::Ring => return Err(FileError::Ring { path: path(), source }),
                Err(source) => notes.push(FileNote::NoRing { path: path(), source }),
            }
        }
        let storage = ThreadStorage::new(Arc::clone(&self.file), self.layout, depth);
        let storage = storage.map_err(|source| FileError::Thread { path: path(), source })?;
        let storage = Comparing::new(storage, &self.range_locks);
        let storage = storage.map_err(|source| FileError::Ways { path: path(), source })?;
        Ok((AnyStorage::Thread(Box::new(storage)), notes))
    }
}

/// What the file system says to transfer in multiples of, where that may help.
fn coarse_granule(file: &File) -> u32 {
    let said = file.metadata().ok().and_then(|metadata| u32::try_from(metadata.blksize()).ok());
    let usable = said.filter(|bytes| bytes.is_power_of_two() && *bytes as usize <= LARGEST);
    usable.unwrap_or(COARSE_GRANULE).max(COARSE_GRANULE)
}

/// What it is, and what it has to be.
fn check_kind(found: FileType, wanted: MediumKind) -> Result<(), (&'static str, &'static str)> {
    let fits = match wanted {
        MediumKind::Any => found.is_file() || found.is_block_device(),
        MediumKind::File => found.is_file(),
        MediumKind::Device => found.is_block_device(),
    };
    if fits {
        return Ok(());
    }
    let is = match () {
        () if found.is_file() => "regular file",
        () if found.is_block_device() => "block device",
        () if found.is_dir() => "folder",
        () => "character device, pipe or socket",
    };
    Err((
        is,
        match wanted {
            MediumKind::Any => "regular file or block device",
            MediumKind::File => "regular file",
            MediumKind::Device => "block device",
        },
    ))
}

/// Bytes of a device's logical block: what the ranges of fallocate(2) are multiples of. `None` where it does not say.
fn logical_block_bytes(device: &File) -> Option<u32> {
    rustix::fs::ioctl_blksszget(device).ok().filter(|bytes| bytes.is_power_of_two())
}

/// The least that an O_DIRECT file takes offsets, lengths and addresses in multiples of, found by trying: sysfs knows disks
/// only, and file systems have rules of their own.
fn alignment(file: &File, bytes: u64) -> io::Result<u32> {
    let mut memory = vec![0_u8; 4 * LARGEST];
    for alignment in ALIGNMENTS {
        let step = alignment as usize;
        // An address that is a multiple of this, and of nothing larger.
        let base = memory.as_ptr().addr();
        let start = base.next_multiple_of(2 * step) + step - base;
        let offset = if bytes >= 2 * u64::from(alignment) { alignment.into() } else { 0 };
        match memory.get_mut(start..start + step).map(|part| file.read_at(part, offset)) {
            Some(Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Some(Err(error)) => return Err(error),
            Some(Ok(_)) | None => return Ok(alignment),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}
