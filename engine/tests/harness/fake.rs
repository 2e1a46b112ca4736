//! Devices that are not there (`frwr-fake`), under the verbs provider as it is shipped.

use super::any::AnyDevice;
use frwr_engine::provider::verbs::{PostInterface, Registration, VerbsDevice, VerbsOptions};
use frwr_fake::{FakeDevice, FakeLists, FakeOptions, Manners};
use std::net::SocketAddr;
use std::sync::Arc;

/// Which device, and how it is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fake {
    /// Type 2 windows, by `ibv_wr_*`.
    Windows,
    /// Type 2 windows, by `ibv_post_send`.
    WindowsByLists,
    /// Type 2 windows of a library that never writes their keys, and refuses binds that mean nothing.
    Ionic,
    /// Type 2 windows of a library that writes their keys, and behind which a SEND needs the fence.
    Irdma,
    /// Lists of mlx5, on the newest kernel and library.
    Lists,
    /// With keys that do not rotate.
    ListsOfFixedKeys,
    /// With keys that the peer cannot invalidate.
    ListsInvalidatedHere,
    /// With neither: what the oldest library that registers lists can do.
    OldestLists,
}

impl Fake {
    pub const ALL: [Self; 8] = [
        Self::Windows,
        Self::WindowsByLists,
        Self::Ionic,
        Self::Irdma,
        Self::Lists,
        Self::ListsOfFixedKeys,
        Self::ListsInvalidatedHere,
        Self::OldestLists,
    ];

    /// Its name behind `fake:`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Windows => "window",
            Self::WindowsByLists => "window:post_send",
            Self::Ionic => "ionic",
            Self::Irdma => "irdma",
            Self::Lists => "mlx5",
            Self::ListsOfFixedKeys => "mlx5:fixed-key",
            Self::ListsInvalidatedHere => "mlx5:local-invalidation",
            Self::OldestLists => "mlx5:oldest",
        }
    }

    pub const fn has_windows(self) -> bool {
        matches!(self, Self::Windows | Self::WindowsByLists | Self::Ionic | Self::Irdma)
    }

    /// Whether a peer's SEND_WITH_INV ends its keys.
    pub const fn invalidates_remotely(self) -> bool {
        !matches!(self, Self::ListsInvalidatedHere | Self::OldestLists)
    }

    fn options(self) -> FakeOptions {
        let updates_tags = matches!(self, Self::Lists | Self::ListsInvalidatedHere);
        let remote_invalidation = self.invalidates_remotely();
        match self {
            Self::Windows | Self::WindowsByLists => FakeOptions::windows("mlx5"),
            Self::Ionic => FakeOptions::with_manners("ionic", Manners::IONIC),
            Self::Irdma => FakeOptions::with_manners("irdma", Manners::IRDMA),
            _ => FakeOptions::lists(FakeLists { updates_tags, remote_invalidation, entries: LIST_ENTRIES }),
        }
    }

    fn change(self, options: &mut VerbsOptions) {
        match self {
            Self::Windows => options.post = PostInterface::Builder,
            Self::WindowsByLists => options.post = PostInterface::List,
            Self::Ionic | Self::Irdma => {}
            Self::Lists | Self::ListsOfFixedKeys | Self::ListsInvalidatedHere | Self::OldestLists => {
                options.registration = Registration::Lists;
                options.list_entries = WANTED_ENTRIES;
            }
        }
    }
}

/// Entries of the longest list: less than the provider asks for.
const LIST_ENTRIES: u16 = 20;
const WANTED_ENTRIES: u16 = 32;

/// One such device; each opening of it is a machine of its own.
pub struct FakeNetwork {
    fake: Fake,
    device: Arc<FakeDevice>,
}

impl FakeNetwork {
    pub fn new(fake: Fake) -> Self {
        Self { fake, device: Arc::new(FakeDevice::new(fake.options())) }
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.device.address(), 4420)
    }

    pub fn open(&self) -> AnyDevice {
        let mut options = VerbsOptions::new(self.device.name());
        // `fake_self_test.rs` tests it.
        options.self_test = false;
        self.fake.change(&mut options);
        let opened = VerbsDevice::open_with(frwr_fake::library(), &options);
        let device = opened.unwrap_or_else(|error| panic!("device fake:{}: {error}", self.fake.name()));
        AnyDevice::over_fake(device, Arc::clone(&self.device))
    }
}
