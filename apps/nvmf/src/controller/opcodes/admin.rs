//! The table of admin commands, and those of them that have no file of their own.

use super::super::work::{Reply, Work, refused};
use super::checks::{Accepted, Arrival, Checks, Entry};
use super::fabrics::fabrics;
use super::features::{get_features, set_features};
use super::identify::identify;
use super::log::get_log_page;
use crate::storage::Storage;
use crate::wire::{Abort, DataPointer, Status, opcode};
use frwr_engine::provider::Port;

/// Commands of admin queues.
pub(super) const ADMIN_ENTRIES: usize = 8;

pub(super) const fn entries<P: Port, S: Storage>() -> [Entry<P, S>; ADMIN_ENTRIES] {
    [
        Entry::new(opcode::GET_LOG_PAGE, get_log_page),
        Entry::new(opcode::IDENTIFY, identify),
        Entry::new(opcode::ABORT, abort),
        Entry::new(opcode::SET_FEATURES, set_features),
        Entry::new(opcode::GET_FEATURES, get_features),
        Entry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, asynchronous_event_request),
        Entry::new(opcode::KEEP_ALIVE, keep_alive),
        Entry::new(opcode::FABRICS, fabrics),
    ]
}

/// Keep Alive (Base 5.18): that it arrived is all there is to it.
fn keep_alive<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    checks.ready(arrival, Ok(()))?;
    Err(Reply::result(0))
}

/// Asynchronous Event Request (Base 5.2). Those that wait are kept when they arrive, and need no slot.
fn asynchronous_event_request<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    checks.ready(arrival, Ok(()))?;
    Err(refused(Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED))
}

/// Abort (Base 5.1), best effort: event requests, and commands that no medium has been given yet, on whatever core.
fn abort<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (controller, _, abort) = checks.ready(arrival, Abort::decode(arrival.entry))?;
    Ok((Work::Abort { controller, abort }, DataPointer::NONE))
}
