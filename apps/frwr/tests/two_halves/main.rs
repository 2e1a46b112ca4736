//! `serve` and `load` against each other: all of them but the opening of a device, over the software NIC.

mod cores;
mod endings;
mod generator;
mod harness;
mod moves;
mod network;
mod serving;
mod sleeping;

use harness::*;
