//! Sockets that never block: what is done with them costs one system call, and says why a connection ended.

use super::{NbdAddress, wire::NbdBreach};
use core::time::Duration;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
        sockopt,
    },
};
use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
};

/// A peer that is silent for so long is asked whether it is there (TCP keep-alive), and then again in such intervals. One that was
/// started anew answers that it knows nothing of the connection, which ends it.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The most that Linux takes (MAX_TCP_KEEPCNT).
const KEEP_ALIVE_PROBES: u32 = 127;
/// How long a peer may be silent until our side gives it up, in milliseconds: a day. Who cannot be reached may still carry out what it
/// has, so requests wait for it as for a disk that hangs; that it is gone only it, or its machine, can say.
const GIVE_UP_MILLIS: u32 = 24 * 60 * 60 * 1000;

/// An address that is resolved.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Tcp(SocketAddr),
    Unix(SocketAddrUnix),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server, or its machine, ended it: it does nothing of what it was sent any more.
    ByServer,
    /// Our side gave it up. What the server still does nobody knows.
    Given(Errno),
    /// The server broke the protocol.
    Breach(NbdBreach),
}

impl Place {
    /// Resolves names; blocks.
    pub(super) fn all(address: &NbdAddress) -> io::Result<Vec<Self>> {
        match address {
            NbdAddress::Tcp { host, port } => Ok((host.as_str(), *port).to_socket_addrs()?.map(Self::Tcp).collect()),
            NbdAddress::Unix(path) => {
                let address = match path.as_os_str().as_bytes() {
                    [0, name @ ..] => SocketAddrUnix::new_abstract_name(name),
                    _ => SocketAddrUnix::new(path.as_path()),
                };
                Ok(vec![Self::Unix(address?)])
            }
        }
    }

    /// Begins to connect; whether that is done already.
    pub(super) fn connect(&self) -> Result<(Socket, bool), Errno> {
        let family = match self {
            Self::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Self::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Self::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        let connected = match self {
            Self::Tcp(address) => {
                sockopt::set_tcp_nodelay(&socket, true)?;
                sockopt::set_socket_keepalive(&socket, true)?;
                sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE)?;
                sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE)?;
                sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_PROBES)?;
                sockopt::set_tcp_user_timeout(&socket, GIVE_UP_MILLIS)?;
                connect(&socket, address)
            }
            Self::Unix(address) => connect(&socket, address),
        };
        match connected {
            Ok(()) => Ok((Socket(socket), true)),
            Err(Errno::INPROGRESS) => Ok((Socket(socket), false)),
            Err(errno) => Err(errno),
        }
    }
}

/// A connection, or one that is being made.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Whether the connection that was begun is there.
    pub(super) fn is_connected(&self) -> Result<bool, Errno> {
        let mut waits = [PollFd::new(&self.0, PollFlags::OUT)];
        if poll(&mut waits, Some(&Timespec::default()))? == 0 {
            return Ok(false);
        }
        sockopt::socket_error(&self.0)?.map(|()| true)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Blocks until there is something to do, for so long at most; false where that is over.
    pub(super) fn wait(&self, limit: Duration, to_send: bool) -> Result<bool, Errno> {
        let flags = if to_send { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
        let limit = Timespec { tv_sec: seconds, tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut [PollFd::from_borrowed_fd(self.0.as_fd(), flags)], Some(&limit)) {
            Err(Errno::INTR) => Ok(true),
            found => Ok(found? > 0),
        }
    }

    /// Hands bytes to the kernel; how many it took.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<usize, End> {
        match send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(taken) => Ok(taken),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Ok(0),
            Err(errno) => Err(End::of(errno)),
        }
    }

    /// Takes bytes from the kernel; how many there were.
    pub(super) fn receive(&self, into: &mut [u8]) -> Result<usize, End> {
        match recv(&self.0, into, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(End::ByServer),
            Ok((_, taken)) => Ok(taken),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Ok(0),
            Err(errno) => Err(End::of(errno)),
        }
    }
}

impl End {
    fn of(errno: Errno) -> Self {
        match errno {
            Errno::CONNRESET | Errno::PIPE => Self::ByServer,
            errno => Self::Given(errno),
        }
    }
}
