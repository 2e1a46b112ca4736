//! Side-by-side measurements.

pub mod freelist;
