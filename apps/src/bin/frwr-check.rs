//! The machine check.
fn main() {}
