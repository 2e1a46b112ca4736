//! Where a control socket is, and how it comes there.

use rustix::{
    fs::{Mode, fchmod},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_to, connect, listen, socket_with},
    process::geteuid,
};
use std::{
    fs, io,
    os::unix::{fs::FileTypeExt as _, net::UnixListener},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Connections that the kernel keeps until they are taken, which the main thread does several times a second.
const BACKLOG: i32 = 16;
/// Held while a socket is bound.
static BINDING: Mutex<()> = Mutex::new(());
/// Sockets without a name of their own that one process may have.
const MAX_NUMBER: u32 = 64;

/// A socket for its owner alone, which does not block. One that a process left behind when it was killed is replaced.
///
/// # Errors
/// There is something else at its place, or a process that listens there, or it cannot be made there.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    // One that another thread of this process has bound, and not listened to yet, looks like one that was left behind.
    let _alone = BINDING.lock().unwrap_or_else(PoisonError::into_inner);
    match bind_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_left_behind(path)?;
            bind_new(path)
        }
        other => other,
    }
}

fn bind_new(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let socket = unconnected()?;
    // In front of bind(2), which makes the file as the socket is: there is no time in which others may connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind_to(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn unconnected() -> io::Result<std::os::fd::OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Removes a socket that nobody listens to.
fn remove_left_behind(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket has this name"));
    }
    if is_alive(path) {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
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

/// Sockets of that kind that somebody listens to, sorted.
pub(crate) fn candidates() -> Vec<PathBuf> {
    let Some(entries) = folder().and_then(|folder| fs::read_dir(folder).ok()) else { return Vec::new() };
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("frwr-") && name.ends_with(".sock") && is_alive(path)
    };
    let mut found: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_ours).collect();
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
        let first = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse, "somebody listens there");
        drop(first);
        let second = bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(second);
    }

    #[test]
    fn nothing_but_a_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "kept").unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        let long = folder.path().join("x".repeat(200));
        assert!(bind(&long).is_err());
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
                bind(&path).ok()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(bind_it)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(bound.len(), 1);
        UnixStream::connect(&path).unwrap();
    }
}
