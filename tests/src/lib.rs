//! What only whole parts can show.

#![forbid(unsafe_code)]

pub mod capture;
pub mod carried;
pub mod documents;
pub mod engine_world;
pub mod hostile;
pub mod kernel_host;
pub mod simulation;
pub mod soak;
