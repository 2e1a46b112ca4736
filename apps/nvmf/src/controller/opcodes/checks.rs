//! What commands are checked against, and how an entry of their tables looks.

use super::super::controllers::{Controller, Controllers};
use super::super::media::{Media, Medium};
use super::super::options::TargetOptions;
use super::super::session::{Association, Sessions};
use super::super::spread::Spread;
use super::super::subsystem::{Served, Subsystems};
use super::super::work::{Reply, Work, refused};
use crate::storage::{Features, Storage};
use crate::wire::{self, AnaState, DataPointer, EffectsLog, IdentifyController, Status, SubmissionQueueEntry};
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, Engine};

/// What a checked command asks for: its work with its data, or the answer that is known already.
pub(in super::super) type Accepted = Result<(Work, DataPointer), Reply>;

/// A command that arrived, and what is known of the queue that brought it.
#[derive(Clone, Copy)]
pub(in super::super) struct Arrival<'a> {
    pub(in super::super) connection: ConnectionId,
    pub(in super::super) entry: &'a SubmissionQueueEntry,
    /// It came by an admin queue.
    pub(in super::super) is_admin: bool,
    /// `None` as long as the connection is no queue.
    pub(in super::super) association: Option<Association>,
}

impl Arrival<'_> {
    /// The place of the controller whose queue brought it.
    #[inline]
    pub(in super::super) fn place(&self) -> Option<usize> {
        self.association.map(|association| association.controller)
    }
}

/// What commands are checked against: lent for one command.
pub(in super::super) struct Checks<'a, P: Port, S> {
    /// For what it counts.
    pub(in super::super) engine: &'a Engine<P>,
    pub(in super::super) options: &'a TargetOptions,
    pub(in super::super) sessions: &'a mut Sessions,
    pub(in super::super) controllers: &'a mut Controllers,
    pub(in super::super) spread: &'a mut Spread,
    pub(in super::super) subsystems: &'a Subsystems,
    pub(in super::super) media: &'a Media<S>,
    /// Watched time.
    pub(in super::super) now: Duration,
}

/// A function that checks commands of an opcode.
pub(super) type Check<P, S> = fn(&mut Checks<'_, P, S>, &Arrival<'_>) -> Accepted;

impl<'a, P: Port, S: Storage> Checks<'a, P, S> {
    /// What a command says, and the controller that executes it: what every function of the table begins with, but for
    /// fabrics commands.
    #[inline]
    pub(super) fn ready<T>(
        &mut self,
        arrival: &Arrival<'_>,
        decoded: Result<T, Status>,
    ) -> Result<(usize, &mut Controller, T), Reply> {
        let decoded = decoded.map_err(Reply::of)?;
        wire::check_flags(arrival.entry).map_err(Reply::of)?;
        let (place, controller) = self.controllers.addressed(arrival.place(), self.now)?;
        // Before CC.EN is 1, nothing else is executed (Base 3.5.1).
        if !controller.is_ready() {
            return Err(refused(Status::COMMAND_SEQUENCE_ERROR));
        }
        Ok((place, controller, decoded))
    }

    /// The same, and its subsystem; `None` for a discovery controller.
    #[inline]
    pub(super) fn ready_in<T>(
        &mut self,
        arrival: &Arrival<'_>,
        decoded: Result<T, Status>,
    ) -> Result<(Option<&'a Served>, T), Reply> {
        let (_, controller, decoded) = self.ready(arrival, decoded)?;
        let subsystem = controller.subsystem();
        let subsystems = self.subsystems;
        Ok((subsystem.and_then(|index| subsystems.get(index)), decoded))
    }

    /// The namespace that a command of an I/O queue names, by its place and its storage.
    #[inline]
    pub(super) fn usable(&self, subsystem: Option<&Served>, identifier: u32) -> Result<(usize, &'a Medium<S>), Reply> {
        usable(self.media, subsystem, identifier)
    }
}

/// The namespace of a subsystem, by its place and its storage, where commands can use it.
#[inline]
pub(in super::super) fn usable<'a, S: Storage>(
    media: &'a Media<S>,
    subsystem: Option<&Served>,
    identifier: u32,
) -> Result<(usize, &'a Medium<S>), Reply> {
    let subsystem = subsystem.ok_or(refused(Status::INVALID_NAMESPACE))?;
    let place = subsystem.namespaces().usable(identifier);
    let Some((place, medium)) = place.and_then(|place| Some((place, media.get(place)?))) else {
        return Err(unusable(subsystem, identifier));
    };
    Ok((place, medium))
}

/// One that takes no commands for now has an inactive identifier (Base 3.2.1.4), or its ANA group cannot be reached, and hosts try again
/// elsewhere, or later (Base 8.1.3). There is none where it was removed, or never was.
#[cold]
fn unusable(subsystem: &Served, identifier: u32) -> Reply {
    match subsystem.namespaces().ana_state(identifier) {
        Some(AnaState::Inaccessible) => return Reply::of(Status::ANA_INACCESSIBLE),
        Some(AnaState::PersistentLoss) => return Reply::of(Status::ANA_PERSISTENT_LOSS),
        Some(AnaState::Change) => return Reply::of(Status::ANA_TRANSITION),
        Some(AnaState::Optimized | AnaState::NonOptimized) | None => {}
    }
    let is_inactive = subsystem.namespaces().is_inactive(identifier);
    refused(if is_inactive { Status::INVALID_FIELD } else { Status::INVALID_NAMESPACE })
}

/// A command.
pub(super) struct Entry<P: Port, S> {
    pub(super) opcode: u8,
    /// All about it that can be said without its data, and its work.
    pub(super) check: Check<P, S>,
    /// Its dword in the log page of effects; 0 where that does not list it.
    pub(super) effects: u32,
    pub(super) optional: Option<Optional>,
}

/// A command that not all controllers have.
#[derive(Clone, Copy)]
pub(super) struct Optional {
    /// Of ONCS.
    pub(super) bit: u16,
    pub(super) needs: Needs,
}

/// What makes a command one that a controller has.
#[derive(Clone, Copy)]
pub(super) enum Needs {
    /// All namespaces of the subsystem are able to do this.
    Of(fn(&Features) -> bool),
    /// Somebody keeps reservations.
    Reservations,
}

impl<P: Port, S> Entry<P, S> {
    /// A command that every controller has.
    pub(super) const fn new(opcode: u8, check: Check<P, S>) -> Self {
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
        Self { optional: Some(Optional { bit, needs: Needs::Of(needs) }), ..self }
    }

    /// Only controllers have it whose target keeps reservations.
    pub(super) const fn of_reservations(self) -> Self {
        let bit = IdentifyController::RESERVATIONS;
        Self { optional: Some(Optional { bit, needs: Needs::Reservations }), ..self }
    }
}
