//! Either kind of object that a work request registers.

use super::{
    mkey::{Mkey, MkeyKind},
    objects::{ProtectionDomain, Window},
};
use std::{io, sync::Arc};

/// A window or a key for lists. A device has one kind.
pub(in super::super) enum Registered {
    Window(Window),
    List(Mkey),
}

impl Registered {
    /// A window, or a key of this kind.
    pub(in super::super) fn new(domain: &Arc<ProtectionDomain>, lists: Option<MkeyKind>) -> io::Result<Self> {
        match lists {
            None => Window::new(domain).map(Self::Window),
            Some(kind) => Mkey::new(domain, kind).map(Self::List),
        }
    }

    /// The key that it was made with.
    pub(in super::super) fn key(&self) -> u32 {
        match self {
            Self::Window(window) => window.key(),
            Self::List(mkey) => mkey.key(),
        }
    }

    /// What lists it takes; `None` for a window.
    pub(in super::super) fn lists(&self) -> Option<MkeyKind> {
        match self {
            Self::Window(_) => None,
            Self::List(mkey) => Some(mkey.kind()),
        }
    }

    /// Destroys it, whatever state it is in, or hands it back.
    pub(in super::super) fn destroy(self) -> Result<(), (Self, io::Error)> {
        match self {
            Self::Window(window) => window.destroy().map_err(|(window, error)| (Self::Window(window), error)),
            Self::List(mkey) => mkey.destroy().map_err(|(mkey, error)| (Self::List(mkey), error)),
        }
    }
}
