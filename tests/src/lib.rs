//! What only whole parts can show.

#![forbid(unsafe_code)]

pub mod simulation;
