//! Addresses, listeners, and how two identifiers come together and apart.

use super::{
    Asked, ConnectionManager, EPHEMERAL, Errno, Phase,
    abi::{
        Accept, Bind, Connect, Disconnect, EventAnswer, Listen, Parameters, Reject, ResolveAddress, ResolveRoute, event,
    },
};
use std::net::{Ipv4Addr, SocketAddrV4};
use zerocopy::FromZeros;

/// Private data that a connect request has room for: the message's 92 bytes less what the kernel writes in front.
const REQUEST_DATA: usize = 56;
/// Of a reply, and of a reject.
const REPLY_DATA: usize = 196;
const REJECT_DATA: usize = 148;

/// Reasons of a reject: nobody listens; the program says no.
const INVALID_SERVICE: i32 = 8;
const CONSUMER_DEFINED: i32 = 28;

impl ConnectionManager {
    pub(super) fn bind(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<Bind>()?;
        let address = wanted.address.get()?;
        self.bind_to(wanted.id, address)
    }

    fn bind_to(&mut self, number: u32, address: SocketAddrV4) -> Result<(), Errno> {
        if !address.ip().is_unspecified() && *address.ip() != self.settings.address {
            return Err(libc::ENODEV);
        }
        if self.id(number)?.local.is_some() {
            return Err(libc::EINVAL);
        }
        let is_taken = |port: u16| {
            let of = |id: &super::Id| id.local.is_some_and(|local| local.port() == port) && id.peer.is_none();
            self.ids.values().any(of)
        };
        let port = match address.port() {
            0 => {
                let free = (0..EPHEMERAL.len()).map(|_| {
                    self.next_port =
                        if self.next_port + 1 < EPHEMERAL.end { self.next_port + 1 } else { EPHEMERAL.start };
                    self.next_port
                });
                let free: Vec<u16> = free.take(EPHEMERAL.len()).collect();
                let is_taken =
                    |port: u16| self.ids.values().any(|id| id.local.is_some_and(|local| local.port() == port));
                free.into_iter().find(|port| !is_taken(*port)).ok_or(libc::EADDRNOTAVAIL)?
            }
            port if is_taken(port) => return Err(libc::EADDRINUSE),
            port => port,
        };
        self.id(number)?.local = Some(SocketAddrV4::new(*address.ip(), port));
        Ok(())
    }

    pub(super) fn resolve_address(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<ResolveAddress>()?;
        let destination = wanted.destination.get()?;
        let own = self.settings.address;
        if *destination.ip() != own {
            self.tell(wanted.id, event::ADDRESS_ERROR, -libc::EHOSTUNREACH, Parameters::empty());
            return self.id(wanted.id).map(|_| ());
        }
        if self.id(wanted.id)?.local.is_none() {
            let source = wanted.source.get().unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
            let ip = if source.ip().is_unspecified() { own } else { *source.ip() };
            self.bind_to(wanted.id, SocketAddrV4::new(ip, source.port()))?;
        }
        self.id(wanted.id)?.remote = Some(destination);
        self.tell(wanted.id, event::ADDRESS_RESOLVED, 0, Parameters::empty());
        Ok(())
    }

    pub(super) fn resolve_route(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<ResolveRoute>()?;
        if self.id(wanted.id)?.remote.is_none() {
            return Err(libc::EINVAL);
        }
        self.tell(wanted.id, event::ROUTE_RESOLVED, 0, Parameters::empty());
        Ok(())
    }

    pub(super) fn listen(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<Listen>()?;
        if self.id(wanted.id)?.local.is_none() {
            self.bind_to(wanted.id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        }
        let id = self.id(wanted.id)?;
        if id.phase != Phase::Idle {
            return Err(libc::EINVAL);
        }
        id.phase = Phase::Listening;
        Ok(())
    }

    pub(super) fn connect(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<Connect>()?;
        let data = wanted.parameters.private_data(REQUEST_DATA)?;
        let id = self.id(wanted.id)?;
        let (Some(local), Some(remote), Phase::Idle) = (id.local, id.remote, id.phase) else {
            return Err(libc::EINVAL);
        };
        (id.own, id.phase) = (wanted.parameters, Phase::Requesting);
        let listens = |id: &super::Id| {
            let there =
                |at: SocketAddrV4| at.port() == remote.port() && (at.ip().is_unspecified() || at.ip() == remote.ip());
            id.phase == Phase::Listening && id.local.is_some_and(there)
        };
        let Some((&listener, found)) = self.ids.iter().find(|(_, id)| listens(id)) else {
            self.id(wanted.id)?.phase = Phase::Ended;
            self.tell(wanted.id, event::REJECTED, INVALID_SERVICE, Parameters::empty());
            return Ok(());
        };
        let (channel, user) = (found.channel, found.user);
        // The program names it when it accepts.
        let made = self.add(channel, 0);
        let told = wanted.parameters.turned(data, REQUEST_DATA);
        let id = self.id(made)?;
        (id.local, id.remote, id.phase) = (Some(remote), Some(local), Phase::Requested);
        (id.peer, id.listener, id.theirs) = (Some(wanted.id), Some(listener), wanted.parameters);
        self.id(wanted.id)?.peer = Some(made);
        let mut answer = EventAnswer::new_zeroed();
        (answer.user, answer.id, answer.event, answer.parameters) = (user, made, event::CONNECT_REQUEST, told);
        self.queue(listener, answer);
        Ok(())
    }

    /// The answer of who was asked, or the last message of who asked.
    pub(super) fn accept(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<Accept>()?;
        let id = self.id(wanted.id)?;
        let peer = id.peer;
        match id.phase {
            Phase::Requested if wanted.parameters.valid != 0 => {
                let data = wanted.parameters.private_data(REPLY_DATA)?;
                (id.user, id.own, id.phase) = (wanted.user, wanted.parameters, Phase::Answered);
                let told = wanted.parameters.turned(data, REPLY_DATA);
                let Some(peer) = peer else {
                    // Who asked is gone: the reply is never answered.
                    id.phase = Phase::Ended;
                    self.tell(wanted.id, event::UNREACHABLE, -libc::ETIMEDOUT, Parameters::empty());
                    return Ok(());
                };
                let other = self.id(peer)?;
                (other.theirs, other.phase) = (wanted.parameters, Phase::Answered);
                self.tell(peer, event::CONNECT_RESPONSE, 0, told);
                Ok(())
            }
            Phase::Answered if wanted.parameters.valid == 0 => {
                id.phase = Phase::Connected;
                let peer = peer.ok_or(libc::ENOTCONN)?;
                self.id(peer)?.phase = Phase::Connected;
                self.tell(peer, event::ESTABLISHED, 0, Parameters::empty());
                Ok(())
            }
            _ => Err(libc::EINVAL),
        }
    }

    pub(super) fn reject(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<Reject>()?;
        let data = wanted.private_data.get(..usize::from(wanted.private_data_bytes)).ok_or(libc::EINVAL)?;
        if data.len() > REJECT_DATA {
            return Err(libc::EINVAL);
        }
        let id = self.id(wanted.id)?;
        if !matches!(id.phase, Phase::Requested | Phase::Answered) {
            return Err(libc::EINVAL);
        }
        self.rejected(wanted.id, data);
        Ok(())
    }

    /// One end of what is not yet a connection says no.
    fn rejected(&mut self, number: u32, data: &[u8]) {
        let Some(id) = self.ids.get_mut(&number) else { return };
        id.phase = Phase::Ended;
        let Some(peer) = id.peer.take() else { return };
        if let Some(other) = self.ids.get_mut(&peer) {
            (other.phase, other.peer) = (Phase::Ended, None);
            self.tell(peer, event::REJECTED, CONSUMER_DEFINED, Parameters::empty().turned(data, REJECT_DATA));
        }
    }

    pub(super) fn disconnect(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<Disconnect>()?;
        match self.id(wanted.id)?.phase {
            Phase::Connected | Phase::Answered => {}
            _ => return Err(libc::EINVAL),
        }
        self.end(wanted.id);
        self.tell(wanted.id, event::DISCONNECTED, 0, Parameters::empty());
        self.tell(wanted.id, event::TIMEWAIT_EXIT, 0, Parameters::empty());
        Ok(())
    }

    /// One end goes: the other one is told, by what it is.
    pub(super) fn end(&mut self, number: u32) {
        let Some(id) = self.ids.get_mut(&number) else { return };
        match id.phase {
            Phase::Requested => self.rejected(number, &[]),
            Phase::Answered | Phase::Connected => {
                id.phase = Phase::Ended;
                let Some(peer) = id.peer.take() else { return };
                if let Some(other) = self.ids.get_mut(&peer) {
                    (other.phase, other.peer) = (Phase::Ended, None);
                    self.tell(peer, event::DISCONNECTED, 0, Parameters::empty());
                    self.tell(peer, event::TIMEWAIT_EXIT, 0, Parameters::empty());
                }
            }
            Phase::Requesting => {
                id.phase = Phase::Ended;
                if let Some(peer) = id.peer.take()
                    && let Some(other) = self.ids.get_mut(&peer)
                {
                    other.peer = None;
                }
            }
            Phase::Idle | Phase::Listening | Phase::Ended => {}
        }
    }
}
