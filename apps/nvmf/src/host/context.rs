//! What a part of the host is given for a call.

use super::options::HostOptions;
use super::time::Time;
use super::transport::Transport;
use frwr_engine::provider::Port;

/// The same for all parts, and none of theirs.
pub(super) struct Context<P: Port> {
    pub(super) transport: Transport<P>,
    pub(super) time: Time,
    pub(super) options: HostOptions,
}
