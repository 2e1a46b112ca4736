//! The programs in processes of their own, over the software NIC: no device, no root, no kernel module. What is killed here is
//! killed with -9, so that nothing of it says goodbye.

mod changes;
mod deaths;
mod devices;
mod files;
mod gateways;
mod hanging;
mod key_traces;
mod keys;
mod latency;
mod moves;
mod nbd;
mod paths;
mod program;
mod rbd;
mod reservations;
mod service;
mod sleeping;
mod unwilling;
mod waits;

use program::Machine;
