//! Devices that are not there (`frwr-fake`), under the verbs provider as it is shipped.

use super::any::AnyDevice;
use frwr_engine::provider::verbs::{PostInterface, VerbsDevice, VerbsOptions};
use frwr_fake::{FakeDevice, FakeOptions};
use std::net::SocketAddr;
use std::sync::Arc;

/// Which device, and how it is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fake {
    /// Type 2 windows, by `ibv_wr_*`.
    Windows,
    /// Type 2 windows, by `ibv_post_send`.
    WindowsByLists,
}

impl Fake {
    pub const ALL: [Self; 2] = [Self::Windows, Self::WindowsByLists];

    /// Its name behind `fake:`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Windows => "window",
            Self::WindowsByLists => "window:post_send",
        }
    }

    fn options(self) -> FakeOptions {
        match self {
            Self::Windows | Self::WindowsByLists => FakeOptions::windows("mlx5"),
        }
    }

    fn change(self, options: &mut VerbsOptions) {
        match self {
            Self::Windows => options.post = PostInterface::Builder,
            Self::WindowsByLists => options.post = PostInterface::List,
        }
    }
}

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
        AnyDevice::fake(device, Arc::clone(&self.device))
    }
}
