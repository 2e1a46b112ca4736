//! Software NICs that reach each other by sockets: what only shows there. All that is the same within one process is in the
//! suites `conformance_*`, which run over sockets too.

#[path = "../harness/mod.rs"]
mod harness;

mod addresses;
mod hostile;
mod middleman;
mod pressure;
mod random;

use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A place for directories of sockets, which is deleted at the end.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A device of a process of its own, as far as others can tell.
fn device(directory: &Path, options: SoftOptions) -> SoftDevice {
    SoftFabric::between_processes(directory).unwrap_or_else(|error| panic!("{error}")).device(options)
}
