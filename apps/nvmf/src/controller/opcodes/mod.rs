//! The tables of commands that a target takes, one of admin commands (`admin`) and one of I/O commands (`blocks`): an
//! entry for each, with the function that checks it and says what work comes of it, and with what hosts are told of it.
//! Whatever has no entry is an invalid opcode.

mod admin;
mod blocks;
mod checks;
mod fabrics;
mod features;
pub(super) mod fused;
pub(super) mod identify;
pub(super) mod log;
mod reservations;

use super::controllers::Controller;
use super::media::Media;
use super::subsystem::Subsystems;
use super::work::refused;
use crate::storage::Storage;
use crate::wire::Status;
use admin::ADMIN_ENTRIES;
use arrayvec::ArrayVec;
use blocks::IO_ENTRIES;
pub(super) use checks::{Accepted, Arrival, Checks, usable};
use checks::{Check, Entry, Needs, Optional};
use core::marker::PhantomData;
pub(super) use fabrics::is_authentication;
use frwr_engine::provider::Port;
use log::Dword;

/// Opcodes have 8 bits.
const OPCODES: usize = 1 << u8::BITS;

/// The function for each opcode.
const fn by_opcode<P: Port, S: Storage>(entries: &[Entry<P, S>]) -> [Check<P, S>; OPCODES] {
    let (mut checks, mut taken, mut at) = ([unknown::<P, S> as Check<P, S>; OPCODES], [false; OPCODES], 0);
    while at < entries.len() {
        let opcode = entries[at].opcode as usize;
        assert!(!taken[opcode], "an opcode is one command");
        (checks[opcode], taken[opcode]) = (entries[at].check, true);
        at += 1;
    }
    checks
}

fn unknown<P: Port, S: Storage>(_: &mut Checks<'_, P, S>, _: &Arrival<'_>) -> Accepted {
    Err(refused(Status::INVALID_COMMAND_OPCODE))
}

/// The tables of a target whose storages are of this type.
struct Tables<P, S>(PhantomData<(P, S)>);

impl<P: Port, S: Storage> Tables<P, S> {
    const ADMIN: [Entry<P, S>; ADMIN_ENTRIES] = admin::entries();
    const IO: [Entry<P, S>; IO_ENTRIES] = blocks::entries();
    const ADMIN_CHECKS: [Check<P, S>; OPCODES] = by_opcode(&Self::ADMIN);
    const IO_CHECKS: [Check<P, S>; OPCODES] = by_opcode(&Self::IO);
}

/// Everything about a command that can be said without its data.
#[inline]
pub(super) fn check<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let by_opcode = match arrival.is_admin {
        true => &Tables::<P, S>::ADMIN_CHECKS,
        false => &Tables::<P, S>::IO_CHECKS,
    };
    by_opcode[usize::from(arrival.entry.opcode)](checks, arrival)
}

/// The dwords of the log page of effects: an opcode's, of admin commands.
pub(super) fn admin_effects<P: Port, S: Storage>() -> ArrayVec<Dword, ADMIN_ENTRIES> {
    Tables::<P, S>::ADMIN.iter().map(|entry| (usize::from(entry.opcode), entry.effects)).collect()
}

/// The same of the others that a controller has.
pub(super) fn io_effects<P: Port, S: Storage>(
    controller: &Controller,
    subsystems: &Subsystems,
    media: &Media<S>,
) -> ArrayVec<Dword, IO_ENTRIES> {
    let all = Tables::<P, S>::IO.iter().filter(|entry| has(controller, subsystems, media, entry));
    all.map(|entry| (usize::from(entry.opcode), entry.effects)).collect()
}

/// ONCS: the optional commands that a controller has.
pub(super) fn optional_commands<P: Port, S: Storage>(
    controller: &Controller,
    subsystems: &Subsystems,
    media: &Media<S>,
) -> u16 {
    let offered = Tables::<P, S>::IO.iter().filter(|entry| has(controller, subsystems, media, entry));
    offered.filter_map(|entry| entry.optional).fold(0, |bits, optional| bits | optional.bit)
}

/// A discovery controller has no optional commands.
fn has<P: Port, S: Storage>(
    controller: &Controller,
    subsystems: &Subsystems,
    media: &Media<S>,
    entry: &Entry<P, S>,
) -> bool {
    let Some(Optional { needs, .. }) = entry.optional else { return true };
    let subsystem = controller.subsystem().and_then(|index| subsystems.get(index));
    subsystem.is_some_and(|subsystem| match needs {
        Needs::Of(needs) => media.are_able(subsystem.namespaces().places(), needs),
        Needs::Reservations => media.reserves(),
    })
}
