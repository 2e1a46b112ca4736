//! The table of admin commands, properties, Abort, and what embedders can change while a target serves.

use super::Target;
use super::command::{Phase, Reply, Work};
use super::controllers::{ConfigurationEffect, Controller};
use super::event::Notice;
use super::receive::refused;
use super::subsystem::{AllowedHosts, Served};
use super::table::{Accepted, Arrival, Entry};
use crate::storage::{Cookie, Storage};
use crate::wire::{
    self, ADMIN_QUEUE, Abort, AnaState, ControllerCapabilities, ControllerConfiguration, DataPointer, Property,
    PropertyGet, PropertySet, Status, fabrics, opcode,
};
use frwr_engine::provider::Port;
use frwr_mempool::mutant;

/// CAP.TO in units of 500 ms: this controller is ready at once, but a host may be slow to see it.
const READY_TIMEOUT_UNITS: u8 = 15;
/// Dword 0 of an Abort's completion: the command was not aborted (Base 5.1.1).
const NOT_ABORTED: u64 = 1;

/// The answer to an Abort that found nothing to abort.
pub(super) fn not_aborted() -> Reply {
    Reply::result(NOT_ABORTED)
}

/// Why a namespace cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// There is no such subsystem.
    #[error("the target has no subsystem of this name")]
    Subsystem,
    /// There is no such namespace.
    #[error("the subsystem has {count} namespaces, not namespace {identifier}")]
    Namespace {
        /// As asked for.
        identifier: u32,
        /// Namespaces that there are.
        count: u32,
    },
}

/// Commands of admin queues.
pub(super) const ADMIN_ENTRIES: usize = 8;

impl<P: Port, S: Storage> Target<P, S> {
    pub(super) const ADMIN: [Entry<P, S>; ADMIN_ENTRIES] = [
        Entry::new(opcode::GET_LOG_PAGE, Self::get_log_page),
        Entry::new(opcode::IDENTIFY, Self::identify),
        Entry::new(opcode::ABORT, Self::abort),
        Entry::new(opcode::SET_FEATURES, Self::set_features),
        Entry::new(opcode::GET_FEATURES, Self::get_features),
        Entry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, Self::asynchronous_event_request),
        Entry::new(opcode::KEEP_ALIVE, Self::keep_alive),
        Entry::new(opcode::FABRICS, Self::fabrics),
    ];

    /// The subsystem of a controller; `None` for a discovery controller.
    pub(super) fn subsystem_of(&self, controller: usize) -> Option<&Served> {
        let found = self.controllers.get(controller)?.as_ref()?;
        self.subsystems.get(found.subsystem()?)
    }

    /// Fabrics commands (Base 6), whose type says which one it is.
    pub(super) fn fabrics(&mut self, arrival: &Arrival<'_>) -> Accepted {
        match arrival.entry.fabrics_type() {
            fabrics::CONNECT => self.connect(arrival),
            fabrics::PROPERTY_GET if arrival.is_admin => {
                let get = PropertyGet::decode(arrival.entry).map_err(Reply::of)?;
                let (controller, _) = self.addressed(arrival)?;
                Err(self.property_get(controller, get))
            }
            fabrics::PROPERTY_SET if arrival.is_admin => {
                let set = PropertySet::decode(arrival.entry).map_err(Reply::of)?;
                let (controller, _) = self.addressed(arrival)?;
                Err(self.property_set(controller, set))
            }
            _ => Err(refused(Status::INVALID_COMMAND_OPCODE)),
        }
    }

    /// Keep Alive (Base 5.18): that it arrived is all there is to it.
    pub(super) fn keep_alive(&mut self, arrival: &Arrival<'_>) -> Accepted {
        self.ready(arrival, Ok(()))?;
        Err(Reply::result(0))
    }

    /// Asynchronous Event Request (Base 5.2). Those that wait are kept by `start`, and need no slot.
    pub(super) fn asynchronous_event_request(&mut self, arrival: &Arrival<'_>) -> Accepted {
        self.ready(arrival, Ok(()))?;
        Err(refused(Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED))
    }

    /// Property Get (Base 6.4).
    fn property_get(&mut self, controller: usize, get: PropertyGet) -> Reply {
        let is_resetting =
            self.controllers.get(controller).and_then(Option::as_ref).is_some_and(Controller::is_resetting);
        let settled = is_resetting && !self.has_late_commands(controller);
        let Some(Some(controller)) = self.controllers.get_mut(controller) else {
            return refused(Status::INTERNAL_ERROR);
        };
        if settled {
            controller.reset_is_complete();
        }
        Reply::result(match get.property {
            Property::Capabilities => ControllerCapabilities::new(self.options.queue_entries, READY_TIMEOUT_UNITS).0,
            Property::Version => wire::VERSION.into(),
            Property::Configuration => controller.configuration().0.into(),
            Property::Status => controller.status().0.into(),
        })
    }

    /// Property Set (Base 6.5); CC is the only one that can be written.
    fn property_set(&mut self, controller: usize, set: PropertySet) -> Reply {
        let Some(Some(found)) = self.controllers.get_mut(controller) else { return refused(Status::INTERNAL_ERROR) };
        if set.property != Property::Configuration {
            return refused(Status::INVALID_FIELD);
        }
        // CC has 4 bytes.
        let effect = found.configure(ControllerConfiguration(set.value as u32));
        let shuts_down = found.begins_shutdown();
        if effect == ConfigurationEffect::Reset {
            let (admin, waited) = (found.admin, found.events.reset());
            // The reset ends event requests without an answer (Base 3.7.2), and their entries are free.
            for command_id in waited {
                let Some(admin) = admin else { break };
                self.release_identifier(admin, command_id);
                if let Some(queue) = self.queue_mut(admin) {
                    queue.outstanding = queue.outstanding.saturating_sub(1);
                }
            }
            self.disconnect_io_queues(controller);
        }
        if shuts_down {
            self.shut_down_controller(controller);
        }
        Reply::result(0)
    }

    /// Abort (Base 5.1), best effort: event requests, and commands that no medium has been given yet, on whatever core.
    pub(super) fn abort(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (controller, abort) = self.ready(arrival, Abort::decode(arrival.entry))?;
        let Some(Some(found)) = self.controllers.get_mut(controller) else {
            return Err(refused(Status::INTERNAL_ERROR));
        };
        if abort.queue_id == ADMIN_QUEUE && found.events.withdraw(abort.command_id) {
            self.answer(controller, abort.command_id, Reply::of(Status::COMMAND_ABORT_REQUESTED));
            return Err(Reply::result(0));
        }
        if self.member_of(controller, abort.queue_id).is_some() {
            return Ok((Work::Abort { controller, abort }, DataPointer::NONE));
        }
        let aborted = self.withdraw(controller, abort.queue_id, abort.command_id);
        Err(if aborted { Reply::result(0) } else { not_aborted() })
    }

    /// Aborts a command of a queue on this core. False where there is none, it is too late for that, or this iteration has
    /// looked for enough of them.
    pub(super) fn withdraw(&mut self, controller: usize, queue_id: u16, command_id: u16) -> bool {
        let named = self.queues.iter().flatten().find(|queue| {
            queue.asked.queue_id == queue_id
                && queue.association.is_some_and(|association| association.controller == controller)
        });
        let Some(queue) = named else { return false };
        let Some(searches) = self.abort_searches.checked_sub(1) else { return false };
        self.abort_searches = searches;
        let slot = self.slots.find(queue.connection, command_id);
        let aborted = slot.is_some_and(|index| self.abort_command(index));
        self.statistics.aborted_commands += u64::from(aborted);
        aborted
    }

    /// Has a command end without being executed; false where it is too late for that.
    fn abort_command(&mut self, index: u32) -> bool {
        let cookie = Cookie(self.slots.cookie(index));
        let is_whole =
            |slot: &&mut super::command::Slot| mutant!(target_aborted_half_done) || !slot.work.is_half_done();
        let Some(slot) = self.slots.get_mut(index).filter(is_whole) else { return false };
        let aborted = Phase::Reply(Reply::of(Status::COMMAND_ABORT_REQUESTED));
        match slot.phase {
            // Its turn may be long in coming.
            Phase::TakeBuffer => {
                self.leave_waiting(index);
                self.set_phase(index, aborted);
                self.advance(index);
            }
            // It waits for a transfer slot or the storage: every poll looks at it, and then it is answered.
            Phase::Fetch | Phase::Submit => slot.phase = aborted,
            // Mutant: it is said to be aborted, and executed.
            Phase::Fetching => slot.aborted = !mutant!(target_aborted_executed),
            Phase::Storing => {
                let namespace = slot.work.namespace().and_then(|namespace| self.namespaces.get_mut(namespace));
                let cancelled = namespace.is_some_and(|namespace| namespace.storage.cancel(cookie));
                // Mutant: it is answered as aborted while the storage executes it.
                if !cancelled && !mutant!(target_aborted_storing) {
                    return false;
                }
                self.set_phase(index, aborted);
                self.advance(index);
            }
            Phase::Execute | Phase::Elsewhere | Phase::Reply(_) | Phase::Replying => return false,
        }
        true
    }

    /// Lists a namespace, or takes it from hosts: it is then no longer listed, and its commands fail. Hosts that asked for
    /// it are told by an asynchronous event. To be called on the home core; the others follow.
    ///
    /// # Errors
    /// [`NamespaceError`].
    pub fn set_namespace_active(
        &mut self,
        subsystem: &wire::Nqn,
        identifier: u32,
        active: bool,
    ) -> Result<(), NamespaceError> {
        let members = self.all_members();
        let (at, served) = self.subsystem_named(subsystem)?;
        let count = served.count();
        let index = served.index(identifier).ok_or(NamespaceError::Namespace { identifier, count })?;
        let Some(namespace) = self.namespaces.get_mut(index) else {
            return Err(NamespaceError::Namespace { identifier, count });
        };
        if core::mem::replace(&mut namespace.active, active) != active {
            namespace.untold = members;
            for controller in self.controllers.iter_mut().flatten() {
                if controller.subsystem() == Some(at) {
                    controller.changed.add(identifier);
                }
            }
            self.raise_everywhere(at, Notice::NamespaceChanged);
        }
        Ok(())
    }

    /// Says how well a subsystem's namespaces can be reached here (Base 8.1). Where they cannot, commands fail with a status that
    /// makes hosts try another path, or wait. Hosts that asked for it are told by an asynchronous event. To be called on the
    /// home core; the others follow.
    ///
    /// # Errors
    /// [`NamespaceError`].
    pub fn set_ana_state(&mut self, subsystem: &wire::Nqn, state: AnaState) -> Result<(), NamespaceError> {
        let members = self.all_members();
        let (at, _) = self.subsystem_named(subsystem)?;
        if let Some(served) = self.subsystems.get_mut(at).filter(|served| served.ana != state) {
            (served.ana, served.untold) = (state, members);
            served.ana_changes += 1;
            self.raise_everywhere(at, Notice::AnaChanged);
        }
        Ok(())
    }

    /// Says that a namespace's storage has another size, which `Storage::geometry` tells already. Hosts that asked for it are
    /// told by an asynchronous event. To be called on the home core.
    ///
    /// # Errors
    /// [`NamespaceError`].
    pub fn tell_resized(&mut self, subsystem: &wire::Nqn, identifier: u32) -> Result<(), NamespaceError> {
        let (at, served) = self.subsystem_named(subsystem)?;
        let count = served.count();
        served.index(identifier).ok_or(NamespaceError::Namespace { identifier, count })?;
        for controller in self.controllers.iter_mut().flatten() {
            if controller.subsystem() == Some(at) {
                controller.changed.add(identifier);
            }
        }
        self.raise_everywhere(at, Notice::NamespaceChanged);
        Ok(())
    }

    /// Says who may use a subsystem from now on; controllers that there are stay. Hosts that asked the discovery service for
    /// it are told by an asynchronous event where the subsystem appears or disappears for them. Where a target has several
    /// cores, each of them has to be told, the home core last.
    ///
    /// # Errors
    /// [`NamespaceError::Subsystem`].
    pub fn set_allowed_hosts(&mut self, subsystem: &wire::Nqn, hosts: AllowedHosts) -> Result<(), NamespaceError> {
        let (at, _) = self.subsystem_named(subsystem)?;
        let Some(served) = self.subsystems.get_mut(at).filter(|served| served.hosts != hosts) else { return Ok(()) };
        let before = core::mem::replace(&mut served.hosts, hosts.clone());
        self.discovery_generation += 1;
        self.raise_discovery(|host| before.allows(host) != hosts.allows(host));
        Ok(())
    }

    fn subsystem_named(&self, name: &wire::Nqn) -> Result<(usize, &Served), NamespaceError> {
        self.subsystems.iter().enumerate().find(|(_, served)| served.name == *name).ok_or(NamespaceError::Subsystem)
    }
}
