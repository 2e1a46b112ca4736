//! What only whole parts can show.

#![forbid(unsafe_code)]

pub mod carried;
pub mod simulation;
