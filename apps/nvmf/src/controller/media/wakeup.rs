//! How storages wake a core that sleeps.

use super::Media;
use crate::storage::Storage;
use core::task::Waker;
use rustix::{event::epoll, io::Errno};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// What storages are told of their core.
#[derive(Debug)]
pub(super) struct Wakeup {
    waker: Waker,
    /// Has the descriptors of all storages that have one: those come and go, and this one stays.
    epoll: OwnedFd,
}

impl Wakeup {
    fn new(waker: &Waker) -> io::Result<Self> {
        Ok(Self { waker: waker.clone(), epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Whether the storage wakes the core from now on, where it says that it does ([`Storage::arm`]). A descriptor leaves by itself when
    /// the last of its storages closes it: one of several is there once.
    pub(super) fn tell<S: Storage>(&self, storage: &mut S) -> bool {
        storage.wakes(&self.waker);
        let Some(descriptor) = storage.descriptor() else { return true };
        // Nobody asks which of them it was.
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET);
        matches!(epoll::add(&self.epoll, descriptor, data, flags), Ok(()) | Err(Errno::EXIST))
    }
}

impl<S: Storage> Media<S> {
    /// From now on storages wake their core, those that come later too.
    pub(in super::super) fn wakes(&mut self, waker: &Waker) -> io::Result<()> {
        let wakeup = Wakeup::new(waker)?;
        for medium in self.media.iter_mut().flatten() {
            medium.wakes = wakeup.tell(&mut medium.storage);
        }
        self.wakeup = Some(wakeup);
        Ok(())
    }

    /// What becomes readable where a storage of an armed core has completed something.
    pub(in super::super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wakeup.as_ref().map(|wakeup| wakeup.epoll.as_fd())
    }

    /// Whether storages with operations can wake anybody.
    fn can_wake(&self) -> bool {
        self.wakeup.is_some()
    }

    /// The core wants to sleep: whether whatever its storages complete from now on wakes it.
    pub(in super::super) fn arm(&mut self) -> bool {
        self.can_wake() && self.media.iter_mut().flatten().all(|medium| medium.wakes && medium.storage.arm())
    }

    /// Behind [`Media::arm`] and the poll that followed it: its storages have left nothing for another poll.
    pub(in super::super) fn rest(&self) -> bool {
        self.can_wake() && self.media.iter().flatten().all(|medium| medium.storage.rests())
    }
}
