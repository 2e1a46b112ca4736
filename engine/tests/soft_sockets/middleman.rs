//! A process between two others, which sees each message that they send each other, and may hand on another one. It knows
//! how sockets are found and passed on, and nothing of what is said on them.

use arrayvec::ArrayVec;
use core::mem::MaybeUninit;
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg,
    socket_with, socketpair,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// Bytes of the longest message.
const LONGEST: usize = 64 << 10;

/// Whose talk a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Talk {
    ConnectionManagers,
    QueuePairs,
}

/// What becomes of a message: what is handed on, one after the other.
pub(crate) type Meddle<'a> = &'a mut dyn FnMut(Talk, Vec<u8>) -> Vec<Vec<u8>>;

/// Two ends that messages are moved between.
struct Line {
    talk: Talk,
    ends: [OwnedFd; 2],
}

/// The process between.
pub(crate) struct Middleman {
    listener: OwnedFd,
    to: PathBuf,
    lines: Vec<Line>,
    /// What those get who are to get a socket of queue pairs.
    instead: Option<fn() -> OwnedFd>,
}

fn socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None).expect("a socket")
}

fn named(directory: &Path, address: &str) -> SocketAddrUnix {
    SocketAddrUnix::new(directory.join(address)).expect("a short path")
}

/// Connects as a process does, and says nothing.
pub(crate) fn connected(directory: &Path, address: &str) -> OwnedFd {
    let socket = socket();
    connect(&socket, &named(directory, address)).expect("somebody listens");
    socket
}

/// Says something.
pub(crate) fn say(socket: &OwnedFd, bytes: &[u8], sockets: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(sockets)));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
}

impl Middleman {
    /// Listens at an address in one directory for those who mean the one who listens there in the other.
    pub(crate) fn new(here: &Path, to: &Path, address: &str) -> Self {
        let listener = socket();
        bind(&listener, &named(here, address)).expect("a free name");
        listen(&listener, 8).expect("listening");
        Self { listener, to: to.join(address), lines: Vec::new(), instead: None }
    }

    /// From now on descriptors of something else are passed on instead of sockets, or sockets again.
    pub(crate) fn pass(&mut self, instead: Option<fn() -> OwnedFd>) {
        self.instead = instead;
    }

    /// Ends every conversation and every connection, as the death of both other processes would.
    pub(crate) fn cut(&mut self) {
        self.lines.clear();
    }

    /// Moves what has been said.
    pub(crate) fn step(&mut self, meddle: Meddle<'_>) {
        if let Ok(asking) = accept_with(&self.listener, FLAGS) {
            let asked = socket();
            if connect(&asked, &SocketAddrUnix::new(&self.to).expect("a short path")).is_ok() {
                self.lines.push(Line { talk: Talk::ConnectionManagers, ends: [asking, asked] });
            }
        }
        let mut new = Vec::new();
        let instead = self.instead;
        self.lines.retain(|line| (0..2).all(|from| line.carry(from, instead, meddle, &mut new)));
        self.lines.append(&mut new);
    }
}

impl Line {
    /// False where the line is dead.
    fn carry(&self, from: usize, instead: Option<fn() -> OwnedFd>, meddle: Meddle<'_>, new: &mut Vec<Line>) -> bool {
        let mut bytes = vec![0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let (near, far) = (&self.ends[from], &self.ends[1 - from]);
        let length = match recvmsg(near, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::DONTWAIT) {
            Err(rustix::io::Errno::AGAIN) => return true,
            Ok(received) if received.bytes > 0 => received.bytes,
            _ => return false,
        };
        bytes.truncate(length);
        let mut passed: ArrayVec<OwnedFd, 2> = ArrayVec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                passed.extend(descriptors);
            }
        }
        // Those who get sockets get ours, and we keep theirs.
        let mut handed: ArrayVec<OwnedFd, 2> = ArrayVec::new();
        for theirs in passed {
            let (ours, out) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None).expect("sockets");
            new.push(Line { talk: Talk::QueuePairs, ends: [ours, theirs] });
            handed.push(instead.map_or(out, |instead| instead()));
        }
        let mut sockets: ArrayVec<BorrowedFd<'_>, 2> = handed.iter().map(AsFd::as_fd).collect();
        meddle(self.talk, bytes).into_iter().all(|message| {
            let sent = say(far, &message, &sockets);
            sockets.clear();
            sent
        })
    }
}
