//! Bytes that are hot while a request lives (goal A23): `hot-bytes ITERATIONS` prints them; there is nothing to iterate.
#![allow(clippy::print_stdout, reason = "a program that prints sizes")]

fn main() {
    println!("mr {} request {}", size_of::<frwr_engine::mr::Mr>(), frwr_engine::REQUEST_SLOT_BYTES);
}
