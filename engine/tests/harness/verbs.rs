//! The verbs provider as a subject of the suite.

use frwr_engine::provider::verbs::{PostInterface, Registration, VerbsDevice, VerbsOptions};
use std::sync::atomic::{AtomicBool, Ordering};

/// 268 ms until a packet is sent again: the connection manager's choice of seconds makes every test of a dead peer take a
/// quarter of a minute.
const ACK_TIMEOUT: u8 = 16;

/// How chains are posted: `builder`, `list`, or what the table of devices says where it is not set.
const POST: &str = "FRWR_CONFORMANCE_POST";

fn post_interface() -> PostInterface {
    match std::env::var(POST).as_deref() {
        Ok("builder") => PostInterface::Builder,
        Ok("list") => PostInterface::List,
        Ok("") | Err(_) => PostInterface::Automatic,
        Ok(other) => panic!("{POST}={other}; it must be builder or list"),
    }
}

/// What is registered: `windows`, also where it is not set, or `lists`.
const REGISTRATION: &str = "FRWR_CONFORMANCE_REGISTRATION";

/// Whether the suite runs over lists. What a device chooses by itself depends on its library, and tests expect one thing.
pub fn has_lists() -> bool {
    match std::env::var(REGISTRATION).as_deref() {
        Ok("lists") => true,
        Ok("" | "windows") | Err(_) => false,
        Ok(other) => panic!("{REGISTRATION}={other}; it must be windows or lists"),
    }
}

/// Opens a device by its name, such as `rxe0`. The first one of a process tests itself.
pub fn open(name: &str) -> VerbsDevice {
    static TESTED: AtomicBool = AtomicBool::new(false);
    let mut options = VerbsOptions::new(name);
    options.ack_timeout = Some(ACK_TIMEOUT);
    options.post = post_interface();
    // On soft RoCE nothing is, unless it is asked for.
    options.inline_bytes = Some(64);
    options.registration = if has_lists() { Registration::Lists } else { Registration::Windows };
    options.self_test = !TESTED.swap(true, Ordering::Relaxed);
    VerbsDevice::open(&options).unwrap_or_else(|error| panic!("device {name}: {error}"))
}
