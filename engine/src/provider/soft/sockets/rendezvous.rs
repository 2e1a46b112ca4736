//! Where the devices of a user's processes find each other: a directory with a socket for each address that one of them
//! listens at.

use crate::provider::Errno;
use rustix::fs::{FlockOperation, flock};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with, sockopt,
};
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of the longest name of a socket: an IPv6 address with a scope and a port.
const LONGEST_NAME: usize = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".len();
/// Bytes of the longest path of a socket (unix(7): 108 with the zero behind it).
const LONGEST_PATH: usize = 107;
/// Bytes of the longest path of a directory.
const LONGEST_DIRECTORY: usize = LONGEST_PATH - 1 - LONGEST_NAME;
/// Who may do anything there: its owner.
const PRIVATE: u32 = 0o700;
/// Rights of others.
const OF_OTHERS: u32 = 0o077;
/// Connections that may wait for the device to look: those of [`super::super`]'s connection manager.
const BACKLOG: i32 = 1024;
/// How often a lock is taken whose file somebody has deleted meanwhile, before the address counts as taken.
const LOCK_ATTEMPTS: u32 = 16;

/// Why devices of several processes cannot find each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// It is not there, and cannot be made.
    #[error(
        "directory {path:?} for the sockets of software NICs cannot be made ({source}); set XDG_RUNTIME_DIR to a directory \
         of your own"
    )]
    NotMade {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could put their sockets there.
    #[error(
        "{path:?} for the sockets of software NICs is no directory that is this user's and closed to others (mode 700); \
         remove it, or set XDG_RUNTIME_DIR to a directory of your own"
    )]
    NotPrivate {
        /// Which.
        path: PathBuf,
    },
    /// The path of a socket has a limit.
    #[error(
        "directory {path:?} for the sockets of software NICs has a path of {length} bytes, at most {LONGEST_DIRECTORY} fit in \
         front of a socket's name; set XDG_RUNTIME_DIR to a shorter one"
    )]
    TooLong {
        /// Which.
        path: PathBuf,
        /// Bytes of it.
        length: usize,
    },
}

/// The usual directory: `frwr` in XDG_RUNTIME_DIR, or in /run/user/UID where that variable is not set and the directory is there,
/// else /tmp/frwr-UID.
#[must_use]
pub fn runtime_directory() -> PathBuf {
    let user = geteuid().as_raw();
    let of_environment = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let of_system = || Some(PathBuf::from(format!("/run/user/{user}"))).filter(|path| path.is_dir());
    match of_environment.or_else(of_system) {
        Some(directory) => directory.join("frwr"),
        None => PathBuf::from(format!("/tmp/frwr-{user}")),
    }
}

/// A directory of sockets.
#[derive(Clone, Debug)]
pub(in super::super) struct Rendezvous {
    directory: PathBuf,
}

/// Why nobody was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreached {
    /// Nobody listens there.
    NoListener,
    /// Somebody may, and cannot be talked to.
    Failed,
}

impl Rendezvous {
    /// Makes the directory where it is not there.
    pub(in super::super) fn new(directory: &Path) -> Result<Self, RendezvousError> {
        let path = || directory.to_owned();
        let length = directory.as_os_str().as_bytes().len();
        if length > LONGEST_DIRECTORY {
            return Err(RendezvousError::TooLong { path: path(), length });
        }
        match DirBuilder::new().mode(PRIVATE).create(directory) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                return Err(RendezvousError::NotMade { path: path(), source });
            }
            _ => {}
        }
        // A symbolic link is none.
        let private = fs::symlink_metadata(directory)
            .is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & OF_OTHERS == 0);
        if !private {
            return Err(RendezvousError::NotPrivate { path: path() });
        }
        Ok(Self { directory: path() })
    }

    /// Takes an address.
    pub(super) fn listen(&self, address: SocketAddr) -> Result<Listening, Errno> {
        let path = self.directory.join(address.to_string());
        let lock_path = self.directory.join(format!("{address}.lock"));
        let lock = lock(&lock_path)?;
        // Whoever had the lock is dead, or has left: what it left is nobody's.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(errno(&error)),
            _ => {}
        }
        let socket = bound(&path).map_err(|error| Errno(error.raw_os_error()))?;
        Ok(Listening { address, socket, path, lock_path, _lock: lock })
    }

    /// Connects to whoever listens at an address, or at all of its family.
    pub(super) fn connect(&self, address: SocketAddr) -> Result<OwnedFd, Unreached> {
        let all: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        match self.connect_to(address) {
            Err(Unreached::NoListener) => self.connect_to(SocketAddr::new(all, address.port())),
            connected => connected,
        }
    }

    fn connect_to(&self, address: SocketAddr) -> Result<OwnedFd, Unreached> {
        let path = SocketAddrUnix::new(self.directory.join(address.to_string())).map_err(|_| Unreached::Failed)?;
        let socket = stream().map_err(|_| Unreached::Failed)?;
        // Never waits: a listener whose queue is full says so.
        connect(&socket, &path).map_err(|error| match error {
            rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED => Unreached::NoListener,
            _ => Unreached::Failed,
        })?;
        if is_of_this_user(&socket) { Ok(socket) } else { Err(Unreached::Failed) }
    }
}

/// An address that is taken. Dropping it gives it back.
pub(super) struct Listening {
    address: SocketAddr,
    socket: OwnedFd,
    path: PathBuf,
    lock_path: PathBuf,
    /// Held for as long as the address is taken; the kernel lets go of it when the process dies.
    _lock: File,
}

impl Listening {
    /// Whether a peer that calls this address means this one.
    pub(super) fn is_called(&self, address: SocketAddr) -> bool {
        let same_family = self.address.is_ipv4() == address.is_ipv4();
        let any = self.address.ip().is_unspecified() && same_family;
        self.address.port() == address.port() && (any || self.address.ip() == address.ip())
    }

    /// The next of this user's processes that has connected; `None` where there is none, or somebody else stands in front.
    pub(super) fn accept(&self) -> Option<OwnedFd> {
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()?;
        is_of_this_user(&socket).then_some(socket)
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // While the lock is held, so that neither can be anybody else's. What cannot be deleted is replaced by the next who listens.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// Takes the lock of an address.
fn lock(path: &Path) -> Result<File, Errno> {
    for _ in 0..LOCK_ATTEMPTS {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| errno(&error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Errno::EADDRINUSE),
            Err(error) => return Err(Errno(error.raw_os_error())),
            Ok(()) => {}
        }
        // Whoever had it may have deleted it: then it is the lock of nothing.
        let here = file.metadata().map_err(|error| errno(&error))?;
        if fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (here.dev(), here.ino())) {
            return Ok(file);
        }
    }
    Err(Errno::EADDRINUSE)
}

/// A socket that never blocks and keeps the limits of messages.
fn stream() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn bound(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = stream()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn is_of_this_user(socket: impl AsFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == geteuid())
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno)
}
