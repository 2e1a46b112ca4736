//! Listening addresses, and connect requests on their way to the core that listens.

use super::{Control, Pending};
use crate::{
    link::{MAX_INCOMING, ToCore},
    provider::{Answer, Command, CommandError, Device, IncomingId, ListenerId, PrivateData},
};
use std::net::SocketAddr;

/// One listening address of one core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listener {
    core: usize,
    address: SocketAddr,
    step: Step,
}

/// How far a listener has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The device was asked.
    Asked,
    /// The same, but its core does not want it any more.
    Unwanted,
    /// The device listens.
    Listens(ListenerId),
}

impl<D: Device> Control<D> {
    pub(super) fn listen(&mut self, core: usize, address: SocketAddr) {
        // What the device cannot register is known before the first peer comes, and that one need not wait for it.
        let domain = self.domain_for(false);
        self.prepare_domain(domain, core);
        self.listeners.push(Listener { core, address, step: Step::Asked });
        self.command(Command::Listen { address }, Pending::Listen { core, address });
    }

    /// The domain of all connections was made: it gets what the cores that listen need in it.
    pub(super) fn prepare_listeners(&mut self, domain: usize) {
        for at in 0..self.listeners.len() {
            self.prepare_domain(domain, self.listeners[at].core);
        }
    }

    pub(super) fn listen_answered(&mut self, core: usize, address: SocketAddr, result: Result<Answer, CommandError>) {
        let asked = |listener: &Listener| {
            listener.core == core && listener.address == address && !matches!(listener.step, Step::Listens(_))
        };
        let Some(at) = self.listeners.iter().position(asked) else { return };
        let Ok(Answer::Listener(id)) = result else {
            self.listeners.remove(at);
            self.tell(core, ToCore::Listening { address, ok: false });
            return;
        };
        let unwanted = core::mem::replace(&mut self.listeners[at].step, Step::Listens(id)) == Step::Unwanted;
        if unwanted {
            self.stop(at);
        } else {
            self.tell(core, ToCore::Listening { address, ok: true });
        }
    }

    pub(super) fn stop_listening(&mut self, core: usize, address: SocketAddr) {
        match self.listeners.iter().position(|listener| listener.core == core && listener.address == address) {
            Some(at) => self.stop(at),
            None => self.tell(core, ToCore::Listening { address, ok: false }),
        }
    }

    /// Stops a listener, at once or as soon as the device has said that it listens.
    fn stop(&mut self, at: usize) {
        let Listener { core, address, step } = self.listeners[at];
        if let Step::Listens(listener) = step {
            self.listeners.remove(at);
            self.command(Command::StopListening { listener }, Pending::StopListening { core, address });
        } else {
            self.listeners[at].step = Step::Unwanted;
        }
    }

    /// A core is gone: so are its listeners, and nobody will answer what it was told of.
    pub(super) fn listeners_gone(&mut self, core: usize) {
        for at in (0..self.listeners.len()).rev() {
            if self.listeners[at].core == core {
                self.stop(at);
            }
        }
        for incoming in core::mem::take(&mut self.cores[core].incoming) {
            self.turn_away(incoming);
        }
    }

    /// A peer wants to connect. How many such requests wait for an answer is up to the core, not to its peers.
    pub(super) fn connect_request(
        &mut self,
        listener: ListenerId,
        incoming: IncomingId,
        peer: Option<SocketAddr>,
        private_data: PrivateData,
    ) {
        let owner = self.listeners.iter().find(|known| known.step == Step::Listens(listener));
        let Some(core) = owner.map(|listener| listener.core) else {
            self.turn_away(incoming);
            return;
        };
        if self.cores[core].incoming.len() >= MAX_INCOMING {
            self.statistics.incoming_overflow += 1;
            self.turn_away(incoming);
            return;
        }
        self.statistics.incoming += 1;
        self.cores[core].incoming.push(incoming);
        self.tell(core, ToCore::Incoming { incoming, peer, private_data });
    }

    /// A core has accepted or rejected a connect request.
    pub(super) fn incoming_answered(&mut self, core: usize, incoming: IncomingId) {
        self.cores[core].incoming.retain(|waiting| *waiting != incoming);
    }

    fn turn_away(&mut self, incoming: IncomingId) {
        self.command(Command::Reject { incoming, private_data: PrivateData::new() }, Pending::Nothing);
    }
}
