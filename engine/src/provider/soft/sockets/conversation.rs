//! The socket on which connection managers of two processes talk about one connection (SOCK_SEQPACKET).

use super::message::{MAX_MESSAGE_BYTES, Message};
use arrayvec::ArrayVec;
use core::mem::MaybeUninit;
use rustix::cmsg_space;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Sockets that come with an accept: of requests and of responses.
pub(super) const SOCKETS: usize = 2;

/// What was read.
pub(super) enum Heard {
    /// A message, with the sockets that came with it.
    Message(Message, ArrayVec<OwnedFd, SOCKETS>),
    /// Nothing has come.
    Nothing,
    /// The peer is gone, or says what no connection manager says.
    End,
}

/// One end of a conversation.
pub(super) struct Talk(OwnedFd);

impl Talk {
    pub(super) const fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Says something. False where the peer does not hear it: it is gone, or has left unread so much that it is taken for gone
    /// (all that is ever said on one socket is less than its buffer).
    pub(super) fn say(&self, message: &Message, sockets: &[BorrowedFd<'_>]) -> bool {
        let bytes = message.encode();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
            return false;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags) {
                Err(Errno::INTR) => {}
                sent => return sent.is_ok(),
            }
        }
    }

    /// Reads one message.
    pub(super) fn hear(&self) -> Heard {
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
            Err(_) => return Heard::End,
        };
        let mut sockets = ArrayVec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // The kernel has cut off what the buffer has no room for.
                sockets.extend(descriptors.take(SOCKETS - sockets.len()));
            }
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Heard::End;
        }
        let message = bytes.get(..received.bytes).and_then(Message::decode);
        message.map_or(Heard::End, |message| Heard::Message(message, sockets))
    }
}

impl AsFd for Talk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
