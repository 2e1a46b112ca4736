//! One MR, through its public interface.

mod common;
mod life;
mod model;
mod refusals;
