//! The tables of commands that a target takes, one of admin commands (`admin`) and one of I/O commands (`blocks`): an
//! entry for each, with the function that checks it and says what work comes of it, and with what hosts are told of it.
//! Whatever has no entry is an invalid opcode.

use super::Target;
use super::admin::ADMIN_ENTRIES;
use super::blocks::IO_ENTRIES;
use super::command::{Reply, Work};
use super::controllers::Controller;
use super::receive::refused;
use super::session::Association;
use crate::storage::{Features, Storage};
use crate::wire::{self, DataPointer, EffectsLog, Status, SubmissionQueueEntry};
use arrayvec::ArrayVec;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Port;

/// What a checked command asks for: its work with its data, or the answer that is known already.
pub(super) type Accepted = Result<(Work, DataPointer), Reply>;

/// A command that arrived, and what is known of the queue that brought it.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) connection: ConnectionId,
    pub(super) entry: &'a SubmissionQueueEntry,
    /// It came by an admin queue.
    pub(super) is_admin: bool,
    /// `None` as long as the connection is no queue.
    pub(super) association: Option<Association>,
}

/// A command.
pub(super) struct Entry<P: Port, S: Storage> {
    opcode: u8,
    /// All about it that can be said without its data, and its work.
    check: fn(&mut Target<P, S>, &Arrival<'_>) -> Accepted,
    /// Its dword in the log page of effects; 0 where that does not list it.
    effects: u32,
    optional: Option<Optional>,
}

/// A command that not all controllers have.
#[derive(Clone, Copy)]
struct Optional {
    /// Of ONCS.
    bit: u16,
    /// What all namespaces of the subsystem have to be able to.
    needs: fn(&Features) -> bool,
}

impl<P: Port, S: Storage> Entry<P, S> {
    /// A command that every controller has.
    pub(super) const fn new(opcode: u8, check: fn(&mut Target<P, S>, &Arrival<'_>) -> Accepted) -> Self {
        Self { opcode, check, effects: EffectsLog::SUPPORTED, optional: None }
    }

    /// It may change data.
    pub(super) const fn changes_data(self) -> Self {
        Self { effects: EffectsLog::SUPPORTED | EffectsLog::CHANGES_DATA, ..self }
    }

    /// The log page says nothing of it.
    pub(super) const fn unlisted(self) -> Self {
        Self { effects: 0, ..self }
    }

    /// Only controllers have it whose namespaces are able to do this.
    pub(super) const fn optional(self, bit: u16, needs: fn(&Features) -> bool) -> Self {
        Self { optional: Some(Optional { bit, needs }), ..self }
    }
}

/// By opcode.
type Dwords<const N: usize> = ArrayVec<(usize, u32), N>;

/// Opcodes have 8 bits.
const OPCODES: usize = 1 << u8::BITS;
/// In place of an entry's number.
const NO_ENTRY: u8 = u8::MAX;

/// The number of the entry for each opcode.
const fn numbers<P: Port, S: Storage>(entries: &[Entry<P, S>]) -> [u8; OPCODES] {
    let (mut numbers, mut at) = ([NO_ENTRY; OPCODES], 0);
    while at < entries.len() {
        let place = &mut numbers[entries[at].opcode as usize];
        assert!(*place == NO_ENTRY, "an opcode is one command");
        *place = at as u8;
        at += 1;
    }
    numbers
}

impl<P: Port, S: Storage> Target<P, S> {
    const ADMIN_NUMBERS: [u8; OPCODES] = numbers(&Self::ADMIN);
    const IO_NUMBERS: [u8; OPCODES] = numbers(&Self::IO);

    /// Everything about a command that can be said without its data.
    pub(super) fn check(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (numbers, entries): (&[u8; OPCODES], &[Entry<P, S>]) = match arrival.is_admin {
            true => (&Self::ADMIN_NUMBERS, &Self::ADMIN),
            false => (&Self::IO_NUMBERS, &Self::IO),
        };
        match entries.get(usize::from(numbers[usize::from(arrival.entry.opcode)])) {
            Some(entry) => (entry.check)(self, arrival),
            None => Err(refused(Status::INVALID_COMMAND_OPCODE)),
        }
    }

    /// The controller that a command is for, if its connection is a queue. The host is there.
    pub(super) fn addressed(&mut self, arrival: &Arrival<'_>) -> Result<(usize, &mut Controller), Reply> {
        // Only Connect makes a connection a queue (Base 6.3).
        let index = arrival.association.map(|association| association.controller);
        let found = index.and_then(|index| Some((index, self.controllers.get_mut(index)?.as_mut()?)));
        let (index, controller) = found.ok_or(refused(Status::COMMAND_SEQUENCE_ERROR))?;
        controller.touch(self.watched);
        Ok((index, controller))
    }

    /// What a command says, and the controller that executes it: what every function of the table begins with, but for
    /// fabrics commands.
    #[inline]
    pub(super) fn ready<T>(&mut self, arrival: &Arrival<'_>, decoded: Result<T, Status>) -> Result<(usize, T), Reply> {
        let decoded = decoded.map_err(Reply::of)?;
        wire::check_flags(arrival.entry).map_err(Reply::of)?;
        let (index, controller) = self.addressed(arrival)?;
        // Before CC.EN is 1, nothing else is executed (Base 3.5.1).
        if !controller.is_ready() {
            return Err(refused(Status::COMMAND_SEQUENCE_ERROR));
        }
        Ok((index, decoded))
    }

    /// The dwords of the log page of effects that are not 0: an opcode's, of admin commands and of others.
    pub(super) fn effects(&self, controller: &Controller) -> (Dwords<ADMIN_ENTRIES>, Dwords<IO_ENTRIES>) {
        let listed = |entry: &Entry<P, S>| (usize::from(entry.opcode), entry.effects);
        let admin = Self::ADMIN.iter().map(listed).collect();
        let io = Self::IO.iter().filter(|entry| self.has(controller, entry)).map(listed).collect();
        (admin, io)
    }

    /// ONCS: the optional commands that a controller has.
    pub(super) fn optional_commands(&self, controller: &Controller) -> u16 {
        let offered = Self::IO.iter().filter(|entry| self.has(controller, entry));
        offered.filter_map(|entry| entry.optional).fold(0, |bits, optional| bits | optional.bit)
    }

    /// A controller has an I/O command.
    pub(super) fn offers(&self, controller: usize, opcode: u8) -> bool {
        let found = self.controllers.get(controller).and_then(Option::as_ref);
        found.is_some_and(|found| Self::IO.iter().any(|entry| entry.opcode == opcode && self.has(found, entry)))
    }

    /// A discovery controller has no optional commands.
    fn has(&self, controller: &Controller, entry: &Entry<P, S>) -> bool {
        let Some(Optional { needs, .. }) = entry.optional else { return true };
        let subsystem = controller.subsystem().and_then(|index| self.subsystems.get(index));
        let namespaces = subsystem.and_then(|subsystem| self.namespaces.get(subsystem.namespaces.clone()));
        namespaces.is_some_and(|all| all.iter().all(|namespace| needs(&namespace.storage.features())))
    }
}
