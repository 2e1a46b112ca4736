//! The reactor application.
fn main() {}
