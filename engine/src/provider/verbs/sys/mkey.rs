//! Indirect memory keys of mlx5: what a UMR work request makes a list of ranges reachable by.

use super::{
    library::Mlx5Functions,
    mlx5_abi::{MKEY_INDIRECT, MKEY_REMOTE_INVALIDATE, MKEY_UPDATE_TAG, Mkey as RawMkey, MkeyAttributes},
    protection_domain::ProtectionDomain,
};
use core::ptr::NonNull;
use std::{io, sync::Arc};

/// What keys are made to be able to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct MkeyKind {
    /// Entries of one list.
    pub(in super::super) entries: u16,
    /// Their low byte changes from one registration to the next.
    pub(in super::super) rotates: bool,
    /// The peer's SEND_WITH_INV ends them.
    pub(in super::super) remote_invalidation: bool,
}

/// An indirect key, in no protection domain's use until a list is given to it.
pub(in super::super) struct Mkey {
    raw: NonNull<RawMkey>,
    created: bool,
    key: u32,
    kind: MkeyKind,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: libmlx5's functions may be called by any thread; the structure itself is written by the port that posts only.
unsafe impl Send for Mkey {}
// SAFETY: as above.
unsafe impl Sync for Mkey {}

impl Mkey {
    /// A free key. `kind.entries` are at least what was asked for.
    pub(in super::super) fn new(domain: &Arc<ProtectionDomain>, mut kind: MkeyKind) -> io::Result<Self> {
        let functions = functions(domain)?;
        let mut wanted =
            MkeyAttributes { pd: domain.raw.as_ptr(), create_flags: flags(kind), max_entries: kind.entries };
        // SAFETY: the domain is alive.
        let raw = NonNull::new(unsafe { (functions.mlx5dv_create_mkey)(&raw mut wanted) });
        let raw = raw.ok_or_else(io::Error::last_os_error)?;
        kind.entries = wanted.max_entries;
        // SAFETY: just made, and nobody else has it.
        let key = unsafe { raw.as_ref() }.rkey;
        Ok(Self { raw, created: true, key, kind, domain: Arc::clone(domain) })
    }

    /// As it was created.
    pub(in super::super) fn key(&self) -> u32 {
        self.key
    }

    pub(in super::super) fn kind(&self) -> MkeyKind {
        self.kind
    }

    /// For the list builder.
    pub(super) fn raw(&self) -> *mut RawMkey {
        self.raw.as_ptr()
    }

    /// Destroys it, with whatever is reachable by it, or hands it back.
    pub(in super::super) fn destroy(mut self) -> Result<(), (Self, io::Error)> {
        match self.end() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let functions = functions(&self.domain)?;
        // SAFETY: created, and not yet destroyed.
        super::check(unsafe { (functions.mlx5dv_destroy_mkey)(self.raw.as_ptr()) })?;
        self.created = false;
        Ok(())
    }
}

impl Drop for Mkey {
    fn drop(&mut self) {
        if self.created {
            // One that the device keeps goes with the process.
            let _ = self.end();
        }
    }
}

fn functions(domain: &ProtectionDomain) -> io::Result<&'static Mlx5Functions> {
    domain.context.library.mlx5().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn flags(kind: MkeyKind) -> u32 {
    let mut flags = MKEY_INDIRECT;
    if kind.rotates {
        flags |= MKEY_UPDATE_TAG;
    }
    if kind.remote_invalidation {
        flags |= MKEY_REMOTE_INVALIDATE;
    }
    flags
}
