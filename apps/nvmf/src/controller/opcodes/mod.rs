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
use checks::{Entry, Needs, Optional};
use core::marker::PhantomData;
pub(super) use fabrics::is_authentication;
use frwr_engine::provider::Port;
use log::Dword;

/// Opcodes have 8 bits.
const OPCODES: usize = 1 << u8::BITS;
/// In place of an entry's number.
const NO_ENTRY: u8 = u8::MAX;

/// The number of the entry for each opcode.
const fn numbers<P: Port, S>(entries: &[Entry<P, S>]) -> [u8; OPCODES] {
    let (mut numbers, mut at) = ([NO_ENTRY; OPCODES], 0);
    while at < entries.len() {
        let place = &mut numbers[entries[at].opcode as usize];
        assert!(*place == NO_ENTRY, "an opcode is one command");
        *place = at as u8;
        at += 1;
    }
    numbers
}

/// The tables of a target whose storages are of this type.
struct Tables<P, S>(PhantomData<(P, S)>);

impl<P: Port, S: Storage> Tables<P, S> {
    const ADMIN: [Entry<P, S>; ADMIN_ENTRIES] = admin::entries();
    const IO: [Entry<P, S>; IO_ENTRIES] = blocks::entries();
    const ADMIN_NUMBERS: [u8; OPCODES] = numbers(&Self::ADMIN);
    const IO_NUMBERS: [u8; OPCODES] = numbers(&Self::IO);
}

/// Everything about a command that can be said without its data.
#[inline]
pub(super) fn check<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (numbers, entries): (&[u8; OPCODES], &[Entry<P, S>]) = match arrival.is_admin {
        true => (&Tables::<P, S>::ADMIN_NUMBERS, &Tables::<P, S>::ADMIN),
        false => (&Tables::<P, S>::IO_NUMBERS, &Tables::<P, S>::IO),
    };
    match entries.get(usize::from(numbers[usize::from(arrival.entry.opcode)])) {
        Some(entry) => (entry.check)(checks, arrival),
        None => Err(refused(Status::INVALID_COMMAND_OPCODE)),
    }
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
