//! The verbs provider as a subject of the suite.

use frwr_engine::provider::verbs::{VerbsDevice, VerbsOptions};

/// Opens a device by its name, such as `rxe0`.
pub fn open(name: &str) -> VerbsDevice {
    VerbsDevice::open(&VerbsOptions::new(name)).unwrap_or_else(|error| panic!("device {name}: {error}"))
}
