//! The write pad of a connection (1.I): what keeps it from being made.

use crate::provider::PostError;

/// Why a connection has no write pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum PadFailure {
    /// The device made no MR for it.
    #[error("the device made no MR for it")]
    NoMr,
    /// The engine's own memory is not registered in the connection's domain.
    #[error("the engine's memory is not registered in the connection's protection domain")]
    NoMemory,
    /// The device refused to register it.
    #[error("the device refused its registration: {0}")]
    PostRefused(PostError),
}
