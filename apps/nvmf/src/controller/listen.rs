//! Addresses that a target listens at come and go while it serves. Every core listens at each: a core answers such an order when the
//! device has.

use super::Target;
use super::addresses::ElsewhereListener;
use super::change::{ChangeError, ChangeId};
use super::listeners::Heard;
use super::options::HOME_CORE;
use super::refusal::Rejection;
use super::spread::{Order, Spread};
use crate::storage::Storage;
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{Listening, OpenError};
use std::net::SocketAddr;

impl<P: Port, S: Storage> Target<P, S> {
    /// Listens at one more address. The discovery log lists it when all cores do ([`ChangeEvent::Done`]), and hosts that asked the
    /// discovery service for it are told by an asynchronous event. Where the device cannot, nothing is left of it
    /// ([`ChangeEvent::CannotListen`]). For the home core.
    ///
    /// [`ChangeEvent::Done`]: super::ChangeEvent::Done
    /// [`ChangeEvent::CannotListen`]: super::ChangeEvent::CannotListen
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn add_listener(&mut self, address: SocketAddr) -> Result<ChangeId, ChangeError> {
        self.may_change()?;
        self.sessions.listeners().check_new(address)?;
        self.engine.listen(address)?;
        self.sessions.listeners_mut().add(address);
        let id = self.pending.next_id();
        self.begin_as(id, Order::AddListener { address }, false);
        Ok(id)
    }

    /// Listens at an address no longer. The discovery log does not list it from now on, and hosts that asked the discovery service for it
    /// are told by an asynchronous event. Connect requests that wait are rejected. Connections that came by it stay, or where `drain` says
    /// so the controllers that were connected by it end as [`Target::drain`] says: done when none of them is left, or else when the device
    /// listens there no longer ([`ChangeEvent::Done`]). What holds that up behind that time is told. The last one may go. For the home
    /// core.
    ///
    /// [`ChangeEvent::Done`]: super::ChangeEvent::Done
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn remove_listener(&mut self, address: SocketAddr, drain: Option<Duration>) -> Result<ChangeId, ChangeError> {
        self.may_change()?;
        if drain.is_some() {
            self.pending.has_room_to_drain()?;
        }
        self.sessions.listeners().check_old(address)?;
        let id = self.pending.next_id();
        self.leave_listener(address);
        self.listeners_changed();
        self.begin_as(id, Order::RemoveListener { address, drain }, false);
        Ok(id)
    }

    /// Other targets that serve the same subsystems listen there, and nowhere else: the discovery log lists these behind its own. Hosts that
    /// asked the discovery service for it are told by an asynchronous event where that is news. Which hosts may come there those targets
    /// say. For the home core.
    ///
    /// # Errors
    /// [`ChangeError::NotHome`], and [`ChangeError::ListenersElsewhere`] where they are more than there may be.
    pub fn list_elsewhere(&mut self, listeners: &[ElsewhereListener]) -> Result<(), ChangeError> {
        if self.options.core != HOME_CORE {
            return Err(ChangeError::NotHome(self.options.core));
        }
        if self.sessions.listeners_mut().list_elsewhere(listeners)? {
            self.listeners_changed();
        }
        Ok(())
    }

    /// The discovery log lists others.
    pub(super) fn listeners_changed(&mut self) {
        self.subsystems.entries_changed();
        self.controllers.raise_discovery(|_| true, &mut self.commands);
        self.go_on();
    }

    /// An order of the home core: what comes of it, where that is known before the device has said anything.
    pub(super) fn listen_by_order(&mut self, address: SocketAddr) -> Option<bool> {
        if self.sessions.listeners().check_new(address).is_err() || self.engine.listen(address).is_err() {
            return Some(false);
        }
        self.sessions.listeners_mut().add(address);
        None
    }

    /// The same of one that goes.
    pub(super) fn leave_by_order(&mut self, address: SocketAddr) -> Option<bool> {
        self.leave_listener(address).then_some(true)
    }

    /// Begins to leave a listener; true where that is all.
    fn leave_listener(&mut self, address: SocketAddr) -> bool {
        // A change that is taken back may not have come so far.
        if !self.sessions.listeners().has(address) {
            return true;
        }
        match self.engine.stop_listening(address) {
            // Without Control nobody listens.
            Err(OpenError::NoControl) => self.sessions.listeners_mut().forget(address),
            told => self.sessions.listeners_mut().begin_removal(address, told.is_ok()),
        }
        self.pending.listeners_leave(self.sessions.listeners().unstopped().is_some());
        while let Some(request) = self.lobby.leave(address) {
            self.reject_request(&request, Rejection::ListenerRemoved);
        }
        !self.sessions.listeners().is_awaited(address)
    }

    /// Tells the device of listeners that Control was too busy to hear of.
    pub(super) fn stop_leaving(&mut self) {
        while let Some(address) = self.sessions.listeners().unstopped()
            && self.stop_listening_at(address)
        {
            self.sessions.listeners_mut().is_stopped(address);
        }
        self.pending.listeners_leave(self.sessions.listeners().unstopped().is_some());
    }

    /// The device has said whether it listens.
    pub(super) fn heard(&mut self, address: SocketAddr, state: Listening) {
        if let Some(heard) = self.sessions.listeners_mut().heard(address, state) {
            self.answer_order(heard);
        }
    }

    /// This core has done its part of an order, or could not.
    fn answer_order(&mut self, heard: Heard) {
        match &mut self.spread {
            Spread::Member(member) => member.obeyed(heard == Heard::Taken),
            Spread::Home(_) => {
                self.pending.answered_at_home(heard);
                self.finish_answered();
            }
        }
    }
}
