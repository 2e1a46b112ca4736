//! Where target and host meet: at sockets in a directory.

use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions};
use std::sync::Arc;
use tempfile::TempDir;

/// Devices that know nothing of each other but where they meet.
#[derive(Clone)]
pub(crate) struct Network(Arc<TempDir>);

impl Network {
    pub(crate) fn new() -> Self {
        Self(Arc::new(tempfile::tempdir().unwrap()))
    }

    pub(crate) fn device(&self, options: SoftOptions) -> SoftDevice {
        let fabric = SoftFabric::between_processes(&self.0.path().join("nics"));
        fabric.unwrap_or_else(|error| panic!("{error}")).device(options)
    }
}
