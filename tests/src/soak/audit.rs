//! What is conserved, of an engine that nobody uses any more.

use frwr_engine::{Engine, provider::Port};

/// Everything is free, and every key is dead.
///
/// # Errors
/// What is left.
pub(super) fn at_rest<P: Port>(name: &str, engine: &Engine<P>) -> Result<(), String> {
    let statistics = engine.statistics();
    let fail = |what: &str| Err(format!("{name}: {what}: {statistics:?}"));
    if !engine.is_idle() || !engine.is_disconnected() {
        return fail("the engine is not idle");
    }
    if statistics.requests > statistics.requests_ended {
        return fail("requests that never ended");
    }
    if (statistics.request_slots_used, statistics.slots_held) != (0, 0) {
        return fail("slots are left");
    }
    let dead = statistics.local_invalidations + statistics.remote_invalidations + statistics.keys_destroyed_live;
    if statistics.registrations != dead || statistics.keys_live() != 0 {
        return fail("registrations are not invalidations and keys destroyed live");
    }
    if statistics.mrs_allocated != statistics.mrs_destroyed || statistics.mrs_orphaned != 0 {
        return fail("descriptors are left");
    }
    if engine.receive_buffers().held > 0 {
        return fail("receives are left with the caller");
    }
    match engine.port().remote_bytes_open().unwrap_or(0) {
        0 => Ok(()),
        open => fail(&format!("{open} bytes are open")),
    }
}
