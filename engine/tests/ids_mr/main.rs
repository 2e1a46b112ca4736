//! One MR, through its public interface.

mod common;
mod early_return;
mod keys;
mod life;
mod model;
mod refusals;
