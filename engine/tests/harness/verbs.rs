//! The verbs provider as a subject of the suite.

use frwr_engine::provider::verbs::{VerbsDevice, VerbsOptions};
use std::sync::atomic::{AtomicBool, Ordering};

/// 268 ms until a packet is sent again: the connection manager's choice of seconds makes every test of a dead peer take a
/// quarter of a minute.
const ACK_TIMEOUT: u8 = 16;

/// Opens a device by its name, such as `rxe0`. The first one of a process tests itself.
pub fn open(name: &str) -> VerbsDevice {
    static TESTED: AtomicBool = AtomicBool::new(false);
    let mut options = VerbsOptions::new(name);
    options.ack_timeout = Some(ACK_TIMEOUT);
    options.self_test = !TESTED.swap(true, Ordering::Relaxed);
    VerbsDevice::open(&options).unwrap_or_else(|error| panic!("device {name}: {error}"))
}
