//! What embedders change while a target serves.

use super::Target;
use super::controllers::Notice;
use super::subsystem::{AllowedHosts, NamespaceError};
use crate::storage::Storage;
use crate::wire::{self, AnaState};
use frwr_engine::provider::Port;

impl<P: Port, S: Storage> Target<P, S> {
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
        let (at, namespace) = self.subsystems.namespace(subsystem, identifier)?;
        if self.subsystems.set_active(namespace, active, self.spread.all_members()) {
            self.controllers.namespace_changed(at, identifier);
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
        let at = self.subsystems.find(subsystem).ok_or(NamespaceError::Subsystem)?;
        if self.subsystems.set_ana(at, state, self.spread.all_members()) {
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
        let (at, _) = self.subsystems.namespace(subsystem, identifier)?;
        self.controllers.namespace_changed(at, identifier);
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
        let at = self.subsystems.find(subsystem).ok_or(NamespaceError::Subsystem)?;
        let Some(before) = self.subsystems.set_hosts(at, &hosts) else { return Ok(()) };
        self.controllers.raise_discovery(|host| before.allows(host) != hosts.allows(host), &mut self.commands);
        self.go_on();
        Ok(())
    }

    /// A state of a subsystem changed, and its hosts are told; members first, so that they act by it.
    fn raise_everywhere(&mut self, subsystem: usize, notice: Notice) {
        self.spread.tell_members();
        self.controllers.raise(subsystem, notice, &mut self.commands);
        self.go_on();
    }
}
