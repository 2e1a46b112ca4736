//! What embedders change while a target serves: namespaces and their states. What is of one core is checked and done here; what all cores
//! have to take is an order of the home core, and done when all have answered.

use super::Target;
use super::change::{ChangeError, ChangeEvent, ChangeId, NewNamespace, Refused};
use super::controllers::Notice;
use super::pending::{Deadline, Drained, Open, Until, Waiting};
use super::spread::Order;
use super::subsystem::{AllowedHosts, Subsystems};
use crate::storage::{Features, Geometry, Storage};
use crate::wire::{AnaState, Nqn, SerialNumber};
use core::time::Duration;
use frwr_engine::provider::Port;

impl<P: Port, S: Storage> Target<P, S> {
    /// What became of changes, the oldest first. To be asked of each core after its polls, until there is nothing.
    pub fn next_change(&mut self) -> Option<ChangeEvent<S>> {
        self.pending.next_event()
    }

    /// Gives a core that is not the home core its way to the medium of a namespace that is to be added: no host knows of it before
    /// [`Target::add_namespace`]. Where another core refuses, [`Target::withdraw_namespace`] takes it back.
    ///
    /// # Errors
    /// [`Refused`], with the storage.
    pub fn supply_namespace(&mut self, subsystem: &Nqn, identifier: u32, storage: S) -> Result<(), Refused<S>> {
        self.supply(subsystem, identifier, None, storage).map(drop)
    }

    /// Takes a storage back that no host knows of. `None`: there is none, or the target ends and flushes it; it goes with the target
    /// then.
    pub fn withdraw_namespace(&mut self, subsystem: &Nqn, identifier: u32) -> Option<S> {
        let at = self.subsystems.find(subsystem)?;
        let media = &self.media;
        let place = self.subsystems.namespaces_mut(at)?.withdraw(identifier, |place| !media.is_committing(place))?;
        self.detach(place)
    }

    /// Adds a namespace, of which every other core has its storage already ([`Target::supply_namespace`]): it is listed when all cores
    /// have taken it ([`ChangeEvent::Done`]), and hosts that asked for it are told by an asynchronous event; one that is not active they
    /// do not see. For the home core.
    ///
    /// # Errors
    /// [`Refused`], with the storage.
    pub fn add_namespace(&mut self, subsystem: &Nqn, namespace: NewNamespace<S>) -> Result<ChangeId, Refused<S>> {
        let NewNamespace { identifier, nguid, ana_group: group, active, storage } = namespace;
        if let Err(error) = self.may_change().and_then(|()| Subsystems::check_group(group)) {
            return Err(Refused { error, storage });
        }
        self.supply(subsystem, identifier, nguid, storage)?;
        Ok(self.begin(Order::AddNamespace { subsystem: *subsystem, identifier, group, active }))
    }

    /// Removes a namespace: new commands of it get Invalid Namespace, those that there are end as they would have, and then each core
    /// hands its storage back ([`ChangeEvent::Removed`]). Hosts that asked for it are told by an asynchronous event. What holds that up
    /// behind `within` is told, and waited for. For the home core.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn remove_namespace(
        &mut self,
        subsystem: &Nqn,
        identifier: u32,
        within: Duration,
    ) -> Result<ChangeId, ChangeError> {
        self.may_change()?;
        let (at, _) = self.listed_namespace(subsystem, identifier)?;
        let id = self.pending.next_id();
        self.remove_here(at, identifier, id, within);
        self.subsystems.ana_group_changed(at, identifier);
        self.tell_changed(at, identifier);
        self.begin_as(id, Order::RemoveNamespace { subsystem: *subsystem, identifier, id, within }, false);
        Ok(id)
    }

    /// Makes sure on a core that is not the home core that its storage can have so many blocks, which more of them it has from now on;
    /// no host knows before [`Target::resize_namespace`]. A change before that, which waits until it is smaller, waits no longer
    /// ([`ChangeEvent::Superseded`]).
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn prepare_resize(&mut self, subsystem: &Nqn, identifier: u32, blocks: u64) -> Result<(), ChangeError> {
        let (_, place) = self.listed_namespace(subsystem, identifier)?;
        let Some(has) = self.media.storage_geometry(place) else { return Ok(()) };
        Geometry::new(blocks, has.block_bytes()).map_err(crate::storage::ResizeError::from)?;
        // Fewer are no matter before nobody uses those that go.
        self.media.resize_storage(place, blocks.max(has.blocks()))?;
        // Else it could take them away before the order comes.
        self.pending.supersede_shrinking(place);
        Ok(())
    }

    /// A namespace has so many blocks, which all other cores are prepared for ([`Target::prepare_resize`]). Hosts that asked for it are
    /// told by an asynchronous event. Commands beyond the new end are refused; those that came before end as they would have, and then
    /// the medium may be cut ([`ChangeEvent::Shrunk`]). What holds that up behind `within` is told. For the home core.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn resize_namespace(
        &mut self,
        subsystem: &Nqn,
        identifier: u32,
        blocks: u64,
        within: Duration,
    ) -> Result<ChangeId, ChangeError> {
        self.may_change()?;
        self.prepare_resize(subsystem, identifier, blocks)?;
        let id = self.pending.next_id();
        let order = Order::ResizeNamespace { subsystem: *subsystem, identifier, blocks, id, within };
        self.begin_as(id, order, false);
        Ok(id)
    }

    /// Lists a namespace, or takes it from hosts: it is then no longer listed, and its commands fail. Hosts that asked for
    /// it are told by an asynchronous event. To be called on the home core; the others follow.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn set_namespace_active(&mut self, subsystem: &Nqn, identifier: u32, active: bool) -> Result<(), ChangeError> {
        self.may_change_here()?;
        let (at, _) = self.listed_namespace(subsystem, identifier)?;
        if self.subsystems.set_active(at, identifier, active, self.spread.all_members()) {
            self.tell_changed(at, identifier);
        }
        Ok(())
    }

    /// Says how well the namespaces of an ANA group of a subsystem can be reached here, or of all groups (`None`; Base 8.1). Where they
    /// cannot, commands fail with a status that makes hosts try another path, or wait. Hosts that asked for it are told by an
    /// asynchronous event. A group may have its state before it has namespaces. To be called on the home core; the others follow.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn set_ana_state(&mut self, subsystem: &Nqn, group: Option<u32>, state: AnaState) -> Result<(), ChangeError> {
        self.may_change_here()?;
        let at = self.subsystems.find(subsystem).ok_or(ChangeError::Subsystem)?;
        if self.subsystems.set_ana(at, group, state, self.spread.all_members())? {
            self.raise_everywhere(at, Notice::AnaChanged);
        }
        Ok(())
    }

    /// Adds a subsystem without namespaces. Hosts see it when all cores have taken it ([`ChangeEvent::Done`]), and those that asked the
    /// discovery service for it are told by an asynchronous event. Who wants it seen with its namespaces only allows no host at first.
    /// For the home core.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn add_subsystem(
        &mut self,
        name: Nqn,
        hosts: AllowedHosts,
        serial: SerialNumber,
    ) -> Result<ChangeId, ChangeError> {
        self.may_change()?;
        self.subsystems.add(name, hosts, serial, (0, false))?;
        Ok(self.begin(Order::AddSubsystem { name }))
    }

    /// This is the home core of a target that does not end.
    pub(super) fn may_change_here(&self) -> Result<(), ChangeError> {
        if self.spread.is_member() {
            return Err(ChangeError::NotHome(self.options.core));
        }
        if self.ending.is_ending() { Err(ChangeError::Ending) } else { Ok(()) }
    }

    /// The same, and all cores have taken the last change.
    pub(super) fn may_change(&self) -> Result<(), ChangeError> {
        self.may_change_here()?;
        self.pending.may_begin()
    }

    /// The index of a subsystem, and the place of the storage of a namespace that it has.
    fn listed_namespace(&self, subsystem: &Nqn, identifier: u32) -> Result<(usize, usize), ChangeError> {
        let at = self.subsystems.find(subsystem).ok_or(ChangeError::Subsystem)?;
        let served = self.subsystems.get(at).ok_or(ChangeError::Subsystem)?;
        Ok((at, served.namespaces().listed(identifier)?))
    }

    /// This core has the storage of a new namespace.
    fn supply(
        &mut self,
        subsystem: &Nqn,
        identifier: u32,
        nguid: Option<[u8; 16]>,
        storage: S,
    ) -> Result<(), Refused<S>> {
        let (at, nguid) = match self.check_new(subsystem, identifier, nguid, &storage) {
            Ok(checked) => checked,
            Err(error) => return Err(Refused { error, storage }),
        };
        let place = self.media.attach(storage, self.pool.buffers().memory())?;
        if let Some(namespaces) = self.subsystems.namespaces_mut(at) {
            namespaces.supply(identifier, place, nguid);
        }
        self.reserve_new(at, identifier, nguid, place);
        self.share_buffers();
        Ok(())
    }

    fn check_new(
        &self,
        subsystem: &Nqn,
        identifier: u32,
        nguid: Option<[u8; 16]>,
        storage: &S,
    ) -> Result<(usize, [u8; 16]), ChangeError> {
        let at = self.subsystems.find(subsystem).ok_or(ChangeError::Subsystem)?;
        let served = self.subsystems.get(at).ok_or(ChangeError::Subsystem)?;
        let nguid = nguid.unwrap_or_else(|| served.usual_nguid(identifier));
        served.namespaces().check_new(identifier, &nguid)?;
        let (block_bytes, buffer_bytes) = (storage.geometry().block_bytes(), self.options.buffer_bytes);
        if block_bytes > buffer_bytes {
            return Err(ChangeError::BlockBytes { block_bytes, buffer_bytes });
        }
        let (places, features) = (served.namespaces().places(), storage.features());
        let lacks = |needs: fn(&Features) -> bool| {
            places.clone().next().is_some() && self.media.are_able(places.clone(), needs) && !needs(&features)
        };
        if lacks(|features| features.write_zeroes) {
            return Err(ChangeError::Features("Write Zeroes"));
        }
        if lacks(|features| features.deallocate) {
            return Err(ChangeError::Features("Deallocate"));
        }
        Ok((at, nguid))
    }

    /// A storage that no command can reach.
    pub(super) fn detach(&mut self, place: usize) -> Option<S> {
        let storage = self.media.detach(place);
        self.share_buffers();
        storage
    }

    /// Namespaces have come or gone.
    pub(super) fn share_buffers(&mut self) {
        let media = &self.media;
        let is_done = self.pool.share(media.most(), |place| media.is_taken(place));
        self.pending.buffers_are_shared(is_done);
    }

    fn begin(&mut self, order: Order) -> ChangeId {
        let id = self.pending.next_id();
        self.begin_as(id, order, false);
        id
    }

    /// Tells all other cores. `undoes`: the change is not to be.
    pub(super) fn begin_as(&mut self, id: ChangeId, order: Order, undoes: bool) {
        self.order_members(order);
        self.open_order(Open::new(id, order, self.owed(&order), undoes));
    }

    fn order_members(&mut self, order: Order) {
        if let Some(home) = self.spread.home_mut() {
            home.order(order);
        }
    }

    fn open_order(&mut self, open: Open) {
        self.pending.open(open);
        self.finish_answered();
    }

    /// Who has to answer an order: these members, and whether this core's own device.
    fn owed(&self, order: &Order) -> (u64, bool) {
        let home = order.listener().is_some_and(|address| self.sessions.listeners().is_awaited(address));
        (self.spread.all_members(), home)
    }

    /// A member has answered.
    pub(super) fn obeyed(&mut self, member: usize, taken: bool) {
        self.pending.answered(1 << member, taken);
        self.finish_answered();
    }

    pub(super) fn finish_answered(&mut self) {
        let Some(open) = self.pending.take_answered() else { return };
        let id = open.id;
        if open.undoes {
            self.pending.tell(match open.reason {
                Some(reason) => ChangeEvent::CannotListen { id, reason },
                None => ChangeEvent::Undone { id },
            });
        } else if open.failed || !self.finish(&open) {
            self.undo(&open);
        } else if let Order::RemoveListener { address, drain: Some(within) } = open.order {
            // It is done when those have ended.
            self.begin_drain(id, Drained::Listener(address), within);
        } else {
            self.pending.tell(ChangeEvent::Done { id });
        }
    }

    /// All other cores have taken a change: this one does, and hosts are told. False where it cannot, as another core.
    fn finish(&mut self, open: &Open) -> bool {
        match open.order {
            Order::AddSubsystem { name } => {
                let Some(at) = self.subsystems.find_any(&name) else { return false };
                self.subsystems.list(at);
                self.tell_discovery(at);
            }
            Order::AddNamespace { subsystem, identifier, active, .. } => {
                let Some(at) = self.subsystems.find_any(&subsystem).filter(|_| self.obeys(open.order)) else {
                    return false;
                };
                self.subsystems.ana_group_changed(at, identifier);
                // Of one that is not active hosts hear when it becomes so.
                if active {
                    self.tell_changed(at, identifier);
                }
            }
            Order::ResizeNamespace { subsystem, identifier, .. } => {
                let Some(at) = self.subsystems.find_any(&subsystem).filter(|_| self.obeys(open.order)) else {
                    return false;
                };
                self.tell_changed(at, identifier);
            }
            Order::RemoveSubsystem { .. } => return self.obeys(open.order),
            Order::AddListener { address } => {
                self.sessions.listeners_mut().list(address);
                self.listeners_changed();
            }
            Order::RemoveNamespace { .. } | Order::RemoveListener { .. } => {}
        }
        true
    }

    /// Some core could not.
    #[cold]
    fn undo(&mut self, open: &Open) {
        let (id, within) = (open.id, Duration::ZERO);
        let back = match open.order {
            Order::AddSubsystem { name } => Order::RemoveSubsystem { name, id, within },
            Order::AddNamespace { subsystem, identifier, .. } => {
                Order::RemoveNamespace { subsystem, identifier, id, within }
            }
            Order::AddListener { address } => Order::RemoveListener { address, drain: None },
            // That storages have more blocks than hosts know is no harm; who has fewer could not before.
            _ => return self.pending.tell(ChangeEvent::Undone { id }),
        };
        self.obey(back);
        self.order_members(back);
        self.open_order(Open::new(id, back, self.owed(&back), true).because(open.reason));
    }

    /// Takes a change of which is known at once whether this core can.
    fn obeys(&mut self, order: Order) -> bool {
        self.obey(order).unwrap_or_default()
    }

    /// Takes a change of the home core; false where this core was not given what it needs, `None` where it is not known yet whether it
    /// can.
    pub(super) fn obey(&mut self, order: Order) -> Option<bool> {
        Some(match order {
            Order::AddListener { address } => return self.listen_by_order(address),
            Order::RemoveListener { address, .. } => return self.leave_by_order(address),
            Order::AddSubsystem { name } => {
                let serial = SerialNumber::of_subsystem(&name);
                self.subsystems.add(name, AllowedHosts::Any, serial, (0, true)).is_ok()
            }
            Order::RemoveSubsystem { name, id, within } => {
                if let Some(at) = self.subsystems.find_any(&name) {
                    self.remove_all_here(at, id, within);
                    self.subsystems.vacate(at);
                }
                true
            }
            Order::AddNamespace { subsystem, identifier, group, active } => {
                let at = self.subsystems.find_any(&subsystem);
                at.and_then(|at| self.subsystems.namespaces_mut(at))
                    .is_some_and(|all| all.list(identifier, group, active))
            }
            Order::RemoveNamespace { subsystem, identifier, id, within } => {
                if let Some(at) = self.subsystems.find_any(&subsystem) {
                    self.remove_here(at, identifier, id, within);
                }
                true
            }
            Order::ResizeNamespace { subsystem, identifier, blocks, id, within } => {
                let deadline = Deadline::new(id, self.clock.now(), within);
                self.resize_here(subsystem, identifier, blocks, deadline)
            }
        })
    }

    /// New commands of a namespace are refused, and its storage is handed back when it has none.
    fn remove_here(&mut self, subsystem: usize, identifier: u32, id: ChangeId, within: Duration) {
        let place = self.subsystems.namespaces_mut(subsystem).and_then(|all| all.begin_removal(identifier));
        let (Some(place), Some(served)) = (place, self.subsystems.get(subsystem)) else { return };
        let (subsystem, deadline) = (*served.name(), Deadline::new(id, self.clock.now(), within));
        self.pending.supersede_shrinking(place);
        self.pending.wait(Waiting { deadline, place, subsystem, identifier, until: Until::Gone });
    }

    fn remove_all_here(&mut self, subsystem: usize, id: ChangeId, within: Duration) {
        let highest = self.subsystems.get(subsystem).map_or(0, |served| served.namespaces().highest());
        for identifier in 1..=highest {
            self.remove_here(subsystem, identifier, id, within);
        }
    }

    fn resize_here(&mut self, subsystem: Nqn, identifier: u32, blocks: u64, deadline: Deadline) -> bool {
        let Ok((_, place)) = self.listed_namespace(&subsystem, identifier) else { return false };
        let Some(has) = self.media.storage_geometry(place).filter(|has| has.blocks() >= blocks) else { return false };
        let Ok(geometry) = Geometry::new(blocks, has.block_bytes()) else { return false };
        self.pending.supersede_shrinking(place);
        self.media.set_geometry(place, geometry);
        if has.blocks() > blocks {
            self.pending.wait(Waiting { deadline, place, subsystem, identifier, until: Until::Within { blocks } });
        }
        true
    }

    /// A namespace came, went, or has another size or state: hosts are told.
    fn tell_changed(&mut self, subsystem: usize, identifier: u32) {
        self.controllers.namespace_changed(subsystem, identifier);
        self.raise_everywhere(subsystem, Notice::NamespaceChanged);
    }

    /// Those that see a subsystem in the discovery log, or saw it.
    pub(super) fn tell_discovery(&mut self, subsystem: usize) {
        let Some(served) = self.subsystems.get(subsystem) else { return };
        self.controllers.raise_discovery(|host| served.allows(host), &mut self.commands);
        self.go_on();
    }

    /// A state of a subsystem changed, and its hosts are told; members first, so that they act by it.
    pub(super) fn raise_everywhere(&mut self, subsystem: usize, notice: Notice) {
        self.spread.tell_members();
        self.controllers.raise(subsystem, notice, &mut self.commands);
        self.go_on();
    }
}
