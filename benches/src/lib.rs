//! Side-by-side measurements, and what they need.

pub mod null_device;
