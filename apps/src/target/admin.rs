//! Properties, Abort, and what embedders can change while a target serves.

use super::Target;
use super::command::{Phase, Reply};
use super::controller::ConfigurationEffect;
use super::event::Notice;
use super::receive::refused;
use super::subsystem::Served;
use crate::nvmf::{
    self, ADMIN_QUEUE, Abort, AnaState, ControllerCapabilities, ControllerConfiguration, Property, PropertyGet,
    PropertySet, Status,
};
use crate::storage::Storage;
use frwr_engine::provider::Port;

/// CAP.TO in units of 500 ms: this controller is ready at once, but a host may be slow to see it.
const READY_TIMEOUT_UNITS: u8 = 15;
/// Dword 0 of an Abort's completion: the command was not aborted (Base 5.1.1).
const NOT_ABORTED: u64 = 1;

/// Why a namespace cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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

impl<P: Port, S: Storage> Target<P, S> {
    /// The subsystem of a controller; `None` for a discovery controller.
    pub(super) fn subsystem_of(&self, controller: usize) -> Option<&Served> {
        let found = self.controllers.get(controller)?.as_ref()?;
        self.subsystems.get(found.subsystem()?)
    }

    /// Property Get (Base 6.4).
    pub(super) fn property_get(&self, controller: usize, get: PropertyGet) -> Reply {
        let Some(Some(controller)) = self.controllers.get(controller) else { return refused(Status::INTERNAL_ERROR) };
        Reply::result(match get.property {
            Property::Capabilities => ControllerCapabilities::new(self.options.queue_entries, READY_TIMEOUT_UNITS).0,
            Property::Version => nvmf::VERSION.into(),
            Property::Configuration => controller.configuration().0.into(),
            Property::Status => controller.status().0.into(),
        })
    }

    /// Property Set (Base 6.5); CC is the only one that can be written.
    pub(super) fn property_set(&mut self, controller: usize, set: PropertySet) -> Reply {
        let Some(Some(found)) = self.controllers.get_mut(controller) else { return refused(Status::INTERNAL_ERROR) };
        if set.property != Property::Configuration {
            return refused(Status::INVALID_FIELD);
        }
        // CC has 4 bytes.
        if found.configure(ControllerConfiguration(set.value as u32)) == ConfigurationEffect::Reset {
            let (admin, waited) = (found.admin, found.events.reset());
            // The reset ends event requests without an answer (Base 3.7.2), and their entries are free.
            for command_id in waited {
                self.release_identifier(admin, command_id);
                if let Some(queue) = self.queue_mut(admin) {
                    queue.outstanding = queue.outstanding.saturating_sub(1);
                }
            }
            self.disconnect_io_queues(controller);
        }
        Reply::result(0)
    }

    /// Abort (Base 5.1), best effort: event requests, and commands that wait for a buffer.
    pub(super) fn abort(&mut self, controller: usize, abort: Abort) -> Reply {
        let aborted = Reply::of(Status::COMMAND_ABORT_REQUESTED);
        let Some(Some(found)) = self.controllers.get_mut(controller) else { return refused(Status::INTERNAL_ERROR) };
        if abort.queue_id == ADMIN_QUEUE && found.events.withdraw(abort.command_id) {
            self.answer(controller, abort.command_id, aborted);
            return Reply::result(0);
        }
        let named = self.queues.iter().flatten().find(|queue| {
            queue.asked.queue_id == abort.queue_id
                && queue.association.is_some_and(|association| association.controller == controller)
        });
        let Some(connection) = named.map(|queue| queue.connection) else { return Reply::result(NOT_ABORTED) };
        for index in self.waiting.iter().copied() {
            let waits = self.slots.get_mut(index).filter(|slot| {
                slot.connection == connection
                    && slot.command_id == abort.command_id
                    && matches!(slot.phase, Phase::TakeBuffer)
            });
            if let Some(slot) = waits {
                // Its turn comes in order; then it is answered and not executed.
                slot.phase = Phase::Reply(aborted);
                self.statistics.aborted_commands += 1;
                return Reply::result(0);
            }
        }
        Reply::result(NOT_ABORTED)
    }

    /// Lists a namespace, or takes it from hosts: it is then no longer listed, and its commands fail. Hosts that asked for
    /// it are told by an asynchronous event.
    ///
    /// # Errors
    /// [`NamespaceError`].
    pub fn set_namespace_active(
        &mut self,
        subsystem: &nvmf::Nqn,
        identifier: u32,
        active: bool,
    ) -> Result<(), NamespaceError> {
        let (at, served) = self.subsystem_named(subsystem)?;
        let count = served.count();
        let index = served.index(identifier).ok_or(NamespaceError::Namespace { identifier, count })?;
        let Some(namespace) = self.namespaces.get_mut(index) else {
            return Err(NamespaceError::Namespace { identifier, count });
        };
        if core::mem::replace(&mut namespace.active, active) != active {
            for controller in self.controllers.iter_mut().flatten() {
                if controller.subsystem() == Some(at) {
                    controller.changed.add(identifier);
                }
            }
            self.raise(at, Notice::NamespaceChanged);
        }
        Ok(())
    }

    /// Says how well a subsystem's namespaces can be reached here (Base 8.1). Where they cannot, commands fail with a status that
    /// makes hosts try another path, or wait. Hosts that asked for it are told by an asynchronous event.
    ///
    /// # Errors
    /// [`NamespaceError`].
    pub fn set_ana_state(&mut self, subsystem: &nvmf::Nqn, state: AnaState) -> Result<(), NamespaceError> {
        let (at, _) = self.subsystem_named(subsystem)?;
        if let Some(served) = self.subsystems.get_mut(at).filter(|served| served.ana != state) {
            served.ana = state;
            served.ana_changes += 1;
            self.raise(at, Notice::AnaChanged);
        }
        Ok(())
    }

    fn subsystem_named(&self, name: &nvmf::Nqn) -> Result<(usize, &Served), NamespaceError> {
        self.subsystems.iter().enumerate().find(|(_, served)| served.name == *name).ok_or(NamespaceError::Subsystem)
    }
}
