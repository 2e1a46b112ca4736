//! One socket of packets, both ways. It keeps the limits of messages (SOCK_SEQPACKET): each is whole packets, written
//! whole or not at all.

use super::packet::{self, Decoded, Header, Kind, MAX_PACKET};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of one message at most: a system call for fifteen of the largest packets. The system's send buffer
/// (net.core.wmem_default, 208 KiB) has room for three.
const BATCH: usize = 64 << 10;

const _: () = assert!(BATCH >= 2 * MAX_PACKET);

/// Bytes from `start` to `end` are to be read, or written.
struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn new() -> Self {
        Self { bytes: vec![0; BATCH].into_boxed_slice(), start: 0, end: 0 }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }
}

/// One socket, with what waits on its way in and out.
pub(super) struct Channel {
    /// Also the peer's, which may set it to block: each call says that it does not.
    socket: OwnedFd,
    out: Buffer,
    input: Buffer,
    /// Nothing comes any more.
    ended: bool,
    /// Nobody takes anything any more.
    is_deaf: bool,
}

impl Channel {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, out: Buffer::new(), input: Buffer::new(), ended: false, is_deaf: false }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Nothing is left of what came, and nothing comes.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.input.is_empty()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Something came that was not taken yet.
    pub(super) fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// What came and nobody took is lost.
    pub(super) fn give_up_input(&mut self) {
        self.input.clear();
        self.ended = true;
    }

    /// Reads one message, where all of the one before was taken.
    pub(super) fn read(&mut self) {
        if self.ended || !self.input.is_empty() {
            return;
        }
        // The length of the message is told, also where it is longer than the buffer: the rest of it is lost then, and
        // does not make sense.
        match recv(&self.socket, &mut self.input.bytes[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, 0)) => self.ended = true,
            Ok((_, length)) => (self.input.start, self.input.end) = (0, length.min(BATCH)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.ended = true,
        }
    }

    /// The packet in front of what came; `Err` where there is something else.
    pub(super) fn front<K: Kind>(&self) -> Result<Option<Decoded<'_, K>>, NoPacket> {
        if self.input.is_empty() {
            return Ok(None);
        }
        packet::decode(&self.input.bytes[self.input.start..self.input.end]).map(Some).ok_or(NoPacket)
    }

    /// The packet in front was taken; it was so long.
    pub(super) fn take(&mut self, bytes: usize) {
        self.input.start = (self.input.start + bytes).min(self.input.end);
    }

    /// Whether the largest packet still fits into what goes out next.
    pub(super) fn has_room(&self) -> bool {
        BATCH - self.out.end >= MAX_PACKET
    }

    /// Adds a packet to what goes out next; the caller has asked for room.
    pub(super) fn push<K: Kind>(&mut self, packet: &K::Packet) -> Option<Header<K>> {
        let (header, length) = packet::encode::<K>(packet, &mut self.out.bytes[self.out.end..])?;
        self.out.end += length;
        Some(header)
    }

    /// Writes what is to go out, if the system takes it now.
    pub(super) fn write(&mut self) {
        if self.out.is_empty() {
            return;
        }
        match send(&self.socket, &self.out.bytes[..self.out.end], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => self.out.clear(),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {}
            Err(_) => {
                self.is_deaf = true;
                self.out.clear();
            }
        }
    }

    /// All that was to go out has gone.
    pub(super) fn is_flushed(&self) -> bool {
        self.out.is_empty()
    }

    /// Nothing is left to be done with what came, or is to go out.
    pub(super) fn rests(&self) -> bool {
        self.input.is_empty() && self.out.is_empty()
    }

    /// What goes out is heard by nobody.
    pub(super) fn is_deaf(&self) -> bool {
        self.is_deaf
    }
}

/// What came is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoPacket;
