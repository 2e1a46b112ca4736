//! Reservation notifications of one controller (Base 8.19.1): those that its host has not read, and those that it does
//! not want.

use super::namespace_set::NamespaceSet;
use crate::wire::{ReservationNotification, ReservationNotificationKind};
use arrayvec::ArrayVec;
use zerocopy::FromZeros;

/// Notifications that a controller keeps for its host: a command of another host makes one of them at most,
/// and a host that wants to know of them reads before so many were made. What is more is lost, and the count says so.
pub(in super::super) const MAX_NOTIFICATIONS: usize = 16;
// How many there are is said in a byte.
const _: () = assert!(MAX_NOTIFICATIONS - 1 <= u8::MAX as usize);

#[derive(Clone, Copy, Debug)]
struct Unread {
    count: u64,
    kind: ReservationNotificationKind,
    namespace: u32,
}

/// All of them are gone with a reset of the controller, and so is what was masked.
#[derive(Debug, Default)]
pub(in super::super) struct Notifications {
    /// The oldest first.
    unread: ArrayVec<Unread, MAX_NOTIFICATIONS>,
    /// Log Page Count of the last one, also of one that was lost.
    count: u64,
    /// Of which namespaces the host does not want which kinds, in the order of [`ReservationNotificationKind::ALL`].
    masked: [NamespaceSet; ReservationNotificationKind::ALL.len()],
}

impl Notifications {
    /// Something happened; true where there is one more to read.
    pub(super) fn add(&mut self, kind: ReservationNotificationKind, namespace: u32) -> bool {
        if self.mask(namespace) & kind.mask() != 0 {
            return false;
        }
        if self.unread.is_full() {
            self.lose(1);
            return false;
        }
        self.count = self.count.wrapping_add(1);
        self.unread.push(Unread { count: self.count, kind, namespace });
        true
    }

    /// There were more, and what they were is not known: the last one that is there, or the next one, says so by its
    /// count.
    pub(super) fn lose(&mut self, lost: u64) {
        self.count = self.count.wrapping_add(lost);
        if let Some(last) = self.unread.last_mut() {
            last.count = self.count;
        }
    }

    /// The log page: the oldest one, or nothing.
    pub(in super::super) fn page(&self) -> ReservationNotification {
        let mut page = ReservationNotification::new_zeroed();
        if let Some((oldest, others)) = self.unread.split_first() {
            // At most MAX_NOTIFICATIONS.
            page.available = others.len() as u8;
            (page.count, page.kind, page.namespace) = (oldest.count.into(), oldest.kind as u8, oldest.namespace.into());
        }
        page
    }

    /// The oldest one was read.
    pub(super) fn take(&mut self) {
        self.unread.pop_at(0);
    }

    /// Reservation Notification Mask of a namespace.
    pub(in super::super) fn mask(&self, namespace: u32) -> u32 {
        let all = ReservationNotificationKind::ALL.iter().zip(&self.masked);
        all.filter(|(_, masked)| masked.has(namespace)).fold(0, |mask, (kind, _)| mask | kind.mask())
    }

    /// The same, to be another one.
    pub(in super::super) fn set_mask(&mut self, namespace: u32, mask: u32) {
        for (kind, masked) in ReservationNotificationKind::ALL.iter().zip(&mut self.masked) {
            masked.put(namespace, mask & kind.mask() != 0);
        }
    }
}
