//! RBD's exclusive lock of an image, as it is taken and given back explicitly. All of it may block.

use super::{
    Errno, check,
    functions::{FEATURE_EXCLUSIVE_LOCK, LOCK_MODE_EXCLUSIVE, Watcher},
    image::Image,
};
use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;

/// Clients that have one image open, at most: a few gateways, and Ceph's tools while they run.
const MAX_WATCHERS: usize = 64;

impl Image {
    /// It has the feature `exclusive-lock`.
    pub(in super::super) fn has_lock(&self) -> Result<bool, Errno> {
        let mut features = 0;
        // SAFETY: an open image, and a place for a number.
        check(unsafe { (self.functions().rbd_get_features)(self.pointer, &raw mut features) })?;
        Ok(features & FEATURE_EXCLUSIVE_LOCK != 0)
    }

    /// This client has the lock, as the OSD says that keeps it; ESHUTDOWN where it listens to this client no more.
    pub(in super::super) fn is_lock_owner(&self) -> Result<bool, Errno> {
        let mut is_owner: c_int = 0;
        // SAFETY: an open image, and a place for a number.
        check(unsafe { (self.functions().rbd_is_exclusive_lock_owner)(self.pointer, &raw mut is_owner) })?;
        Ok(is_owner != 0)
    }

    /// Takes the lock, from then on for good: no other client gets it by asking. From one that has no watch any more librbd takes it
    /// behind that client's blocklisting; who lives keeps it, and that is EROFS. Behind success OSDs that this client talks to know of
    /// all that were blocklisted before.
    pub(in super::super) fn acquire_lock(&self) -> Result<(), Errno> {
        // SAFETY: an open image.
        check(unsafe { (self.functions().rbd_lock_acquire)(self.pointer, LOCK_MODE_EXCLUSIVE) })?;
        let cluster = &self.pool.cluster;
        // SAFETY: its cluster is connected.
        check(unsafe { (cluster.library.rados.rados_wait_for_latest_osdmap)(cluster.pointer) })
    }

    /// Gives the lock back, behind all that was begun by it.
    pub(in super::super) fn release_lock(&self) -> Result<(), Errno> {
        // SAFETY: an open image.
        check(unsafe { (self.functions().rbd_lock_release)(self.pointer) })
    }

    /// Takes the lock from this client, whether it lives or not, behind its blocklisting. EBUSY where it has it no longer.
    pub(in super::super) fn break_lock(&self, owner: &CStr) -> Result<(), Errno> {
        // SAFETY: an open image, and a string.
        check(unsafe { (self.functions().rbd_lock_break)(self.pointer, LOCK_MODE_EXCLUSIVE, owner.as_ptr()) })
    }

    /// The address of the client that has the lock.
    pub(in super::super) fn lock_owner(&self) -> Result<Option<CString>, Errno> {
        let functions = self.functions();
        let (mut mode, mut count): (c_int, usize) = (0, 1);
        let mut owner: *mut c_char = core::ptr::null_mut();
        // SAFETY: an open image, and room for one string, as is said; an exclusive lock has one owner.
        let asked =
            unsafe { (functions.rbd_lock_get_owners)(self.pointer, &raw mut mode, &raw mut owner, &raw mut count) };
        match check(asked) {
            Err(Errno(libc::ENOENT)) => return Ok(None),
            asked => asked?,
        }
        if count == 0 || owner.is_null() {
            return Ok(None);
        }
        // SAFETY: a string that was made for us, and lives until the call below.
        let address = unsafe { CStr::from_ptr(owner) }.to_owned();
        // SAFETY: that string, which nobody has any more.
        unsafe { (functions.rbd_lock_get_owners_cleanup)(&raw mut owner, count) };
        Ok(Some(address))
    }

    /// That client has the image open, as far as its OSD has heard: one that is gone, or silent, does not behind osd_client_watch_timeout.
    pub(in super::super) fn is_watched_by(&self, address: &CStr) -> Result<bool, Errno> {
        let functions = self.functions();
        let mut watchers = [Watcher::EMPTY; MAX_WATCHERS];
        let mut count = MAX_WATCHERS;
        // SAFETY: an open image, and room for as many as are said.
        check(unsafe { (functions.rbd_watchers_list)(self.pointer, watchers.as_mut_ptr(), &raw mut count) })?;
        let filled = watchers.get(..count).unwrap_or_default();
        // SAFETY: the string of each that was filled in lives until the call below.
        let is_it = |watcher: &Watcher| unsafe { CStr::from_ptr(watcher.address) } == address;
        let found = filled.iter().any(is_it);
        // SAFETY: what was filled in, which nobody has any more.
        unsafe { (functions.rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), count) };
        Ok(found)
    }
}
