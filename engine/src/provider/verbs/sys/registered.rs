//! Either kind of object that a work request registers.

use super::{
    mkey::{Mkey, MkeyKind},
    protection_domain::ProtectionDomain,
    window::Window,
};
use std::{io, sync::Arc};

/// What a device's keys are made of.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum KeyObjects {
    /// It opens none.
    None,
    /// Type 2 windows.
    Windows,
    /// Indirect keys of this kind.
    Lists(MkeyKind),
}

impl KeyObjects {
    /// What lists, if any.
    pub(in super::super) fn lists(self) -> Option<MkeyKind> {
        match self {
            Self::Lists(kind) => Some(kind),
            Self::None | Self::Windows => None,
        }
    }

    /// A few words for people.
    pub(in super::super) fn name(self) -> &'static str {
        match self {
            Self::None => "no keys of its own",
            Self::Windows => "type 2 memory windows",
            Self::Lists(_) => "lists by UMR work requests",
        }
    }
}

/// A window or a key for lists. A device has one kind.
pub(in super::super) enum Registered {
    Window(Window),
    List(Mkey),
}

impl Registered {
    /// One of these.
    pub(in super::super) fn new(domain: &Arc<ProtectionDomain>, keys: KeyObjects) -> io::Result<Self> {
        match keys {
            KeyObjects::None => Err(io::ErrorKind::Unsupported.into()),
            KeyObjects::Windows => Window::new(domain).map(Self::Window),
            KeyObjects::Lists(kind) => Mkey::new(domain, kind).map(Self::List),
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
