//! Where a control socket is, and how it comes there.

use rustix::{
    fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat, open, stat},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with},
    process::geteuid,
};
use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{fs::FileTypeExt as _, net::UnixListener},
    },
    path::{Path, PathBuf},
};

/// Connections that the kernel keeps until they are taken, which the main thread does several times a second.
const BACKLOG: i32 = 16;
/// Sockets without a name of their own that one process may have.
const MAX_NUMBER: u32 = 64;
/// Behind the name of a socket: what its process has locked.
const LOCK_SUFFIX: &str = ".lock";
/// How often a lock is taken whose file somebody has deleted meanwhile, before the place counts as taken.
const LOCK_ATTEMPTS: u32 = 16;

/// Where the unit of `apps/frwr/packaging` has its socket.
const OF_SERVICE: &str = "/run/frwr/serve.sock";

/// A place, and the socket that listens there. Dropped, it gives the place back.
#[derive(Debug)]
pub(super) struct Place {
    listener: UnixListener,
    path: PathBuf,
    _lock: Lock,
}

impl Place {
    /// A socket for its owner alone, which does not block. One that a process left behind when it was killed is replaced.
    ///
    /// # Errors
    /// There is something else at its place, or a process that listens there, or it cannot be made there.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        // One that another process, or thread, has bound and not listened to yet looks like one that was left behind; and of two that
        // replace such a one, the second would replace the first.
        let lock = Lock::take(path)?;
        let listener = match bind_new(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_left_behind(path)?;
                bind_new(&address)
            }
            other => other,
        }?;
        Ok(Self { listener, path: path.to_owned(), _lock: lock })
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // While the lock is held, so that it is nobody else's. What cannot be removed is replaced by the next who comes.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whose place it is: the kernel lets go of it when the process dies. Its file lies beside the socket, and goes with it.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: OwnedFd,
}

impl Lock {
    fn take(of: &Path) -> io::Result<Self> {
        let mut path = of.as_os_str().to_owned();
        path.push(LOCK_SUFFIX);
        let path = PathBuf::from(path);
        for _ in 0..LOCK_ATTEMPTS {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = open(&path, flags, Mode::RUSR | Mode::WUSR)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(taken()),
                other => other?,
            }
            // Whoever had it may have deleted it: then it is the lock of nothing.
            let here = fstat(&file)?;
            if stat(&path).is_ok_and(|there| (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)) {
                return Ok(Self { path, _file: file });
            }
        }
        Err(taken())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is held.
        let _ = fs::remove_file(&self.path);
    }
}

fn taken() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")
}

fn bind_new(address: &SocketAddrUnix) -> io::Result<UnixListener> {
    let socket = unconnected()?;
    // In front of bind(2), which makes the file as the socket is: there is no time in which others may connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn unconnected() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Removes a socket that nobody listens to.
fn remove_left_behind(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket has this name"));
    }
    if is_alive(path) {
        return Err(taken());
    }
    fs::remove_file(path)
}

/// Somebody listens there, or it cannot be known that nobody does.
fn is_alive(path: &Path) -> bool {
    let connected = SocketAddrUnix::new(path).map_err(io::Error::from).and_then(|address| {
        let socket = unconnected()?;
        Ok(connect(&socket, &address)?)
    });
    match connected {
        Ok(()) => true,
        Err(error) => !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
    }
}

/// Where sockets go whose place nobody named: the user's folder for such things, of root the system's. `None` where there is none.
fn folder() -> Option<PathBuf> {
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    of_user.or_else(|| geteuid().is_root().then(|| PathBuf::from("/run")))
}

/// Places of sockets of this process that nobody named, in the order in which they are tried; `None` where there are none.
pub(super) fn default_paths() -> Option<impl Iterator<Item = PathBuf>> {
    let (folder, process) = (folder()?, std::process::id());
    let name = move |number| match number {
        1 => format!("frwr-{process}.sock"),
        _ => format!("frwr-{process}-{number}.sock"),
    };
    Some((1..=MAX_NUMBER).map(move |number| folder.join(name(number))))
}

/// Sockets of that kind that somebody listens to, and the service's of root, sorted.
pub(crate) fn candidates() -> Vec<PathBuf> {
    let of_service = geteuid().is_root().then(|| PathBuf::from(OF_SERVICE));
    alive(folder().as_deref(), of_service)
}

fn alive(folder: Option<&Path>, of_service: Option<PathBuf>) -> Vec<PathBuf> {
    let has_our_name = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("frwr-") && name.ends_with(".sock")
    };
    let entries = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
    let unnamed = entries.flatten().map(|entry| entry.path()).filter(has_our_name);
    let mut found: Vec<_> = unnamed.chain(of_service).filter(|path| is_alive(path)).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::{fs::PermissionsExt as _, net::UnixStream};

    #[test]
    fn a_socket_is_its_owners_alone_and_one_that_was_left_behind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = Place::take(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Place::take(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse, "somebody listens there");
        drop(first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left of it");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        let second = Place::take(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(second);
    }

    #[test]
    fn nothing_but_a_socket_that_nobody_listens_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "kept").unwrap();
        assert_eq!(Place::take(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        let other = folder.path().join("other");
        let _listens = UnixListener::bind(&other).unwrap();
        assert_eq!(
            Place::take(&other).unwrap_err().kind(),
            io::ErrorKind::AddrInUse,
            "of a program that knows no lock"
        );
        let long = folder.path().join("x".repeat(200));
        assert!(Place::take(&long).is_err());
    }

    /// A process that has the place and does not listen yet is not taken for one that is dead.
    #[test]
    fn a_socket_whose_owner_does_not_listen_yet_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let lock = Lock::take(&path).unwrap();
        let socket = unconnected().unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert_eq!(Place::take(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        listen(&socket, BACKLOG).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(lock);
    }

    #[test]
    fn who_names_none_finds_those_that_have_a_process_in_their_names_and_the_services() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let places = ["frwr-1.sock", "other.sock", "serve.sock"].map(|name| Place::take(&path(name)).unwrap());
        drop(UnixListener::bind(path("frwr-2.sock")).unwrap());
        let found = |service: Option<&str>| alive(Some(folder.path()), service.map(path));
        assert_eq!(found(None), [path("frwr-1.sock")]);
        assert_eq!(found(Some("serve.sock")), [path("frwr-1.sock"), path("serve.sock")]);
        assert_eq!(found(Some("none.sock")), [path("frwr-1.sock")]);
        assert_eq!(alive(None, Some(path("serve.sock"))), [path("serve.sock")]);
        drop(places);
    }

    /// As several targets in one process start: each has a socket of its own, and none takes another's for one that was left behind.
    #[test]
    fn threads_that_bind_one_place_at_a_time_leave_it_to_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let barrier = std::sync::Barrier::new(8);
        let bound: Vec<_> = std::thread::scope(|scope| {
            let bind_it = || {
                barrier.wait();
                Place::take(&path).ok()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(bind_it)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(bound.len(), 1);
        UnixStream::connect(&path).unwrap();
    }
}
