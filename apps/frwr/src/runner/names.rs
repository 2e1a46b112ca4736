//! What nobody has to say: names, an address, and a time.

use crate::Error;
use core::time::Duration;
use frwr_nvmf::wire::{DEFAULT_PORT, DISCOVERY_SUBSYSTEM, Nqn};
use std::net::SocketAddr;

/// Names under a domain that nobody can own (RFC 6761).
pub(super) const SUBSYSTEM: &str = "nqn.2026-11.invalid.frwr:file";
pub(super) const HOST: &str = "nqn.2026-11.invalid.frwr:host";
/// How long a step of bringing a session up may take between two processes, so that a target that is not there is soon
/// told as such.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn name(text: &str) -> Result<Nqn, Error> {
    Nqn::new(text).map_err(|error| Error::failed("name", format!("no NVMe qualified name: {error}")))
}

/// The subsystem of a command line, which `load` connects to.
pub(super) fn default_subsystem() -> Result<Nqn, Error> {
    name(SUBSYSTEM)
}

/// The discovery service's name, and the host's.
pub(super) fn discovery_names(host: Option<&str>) -> Result<(Nqn, Nqn), Error> {
    Ok((name(DISCOVERY_SUBSYSTEM)?, name(host.unwrap_or(HOST))?))
}

/// Where both sides of the loop meet on the software NIC.
pub(super) fn loop_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT))
}
