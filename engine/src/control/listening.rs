//! Listening addresses, and connect requests on their way to a core that listens.
//!
//! The device has one listener for an address, whatever number of cores listens there: each joins it and leaves it, and with
//! the last it goes.

use super::{
    Control, Pending,
    connecting::Stage,
    placement::{ConnectRequest, ListeningCore, Placed, Placement, fewest_connections},
};
use crate::{
    event::Listening,
    link::ToCore,
    provider::{Answer, Command, CommandError, Device, IncomingId, ListenerId, PrivateData},
};
use std::net::SocketAddr;

/// One listening address.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    /// Cores that listen here, in ascending order.
    members: Vec<usize>,
    step: Step,
}

/// How far a listener has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The device was asked.
    Asked,
    /// The same, but this core, the last that wanted it, does not want it any more.
    Unwanted(usize),
    /// The device listens.
    Listens(ListenerId),
}

impl<D: Device> Control<D> {
    /// Says which core gets a connect request where several listen at one address. Without, that is the one with the fewest
    /// connections, the first of several. What was placed before stays.
    pub fn place_connections(&mut self, placement: impl FnMut(&ConnectRequest<'_>) -> Placed + Send + 'static) {
        let placement: Placement = Box::new(placement);
        self.placement = Some(placement);
    }

    /// What peers are told whose connect request no core is asked about, since the one it would go to has
    /// [`crate::MAX_INCOMING`] to answer: the private data of the rejection. Nothing, unless this says so.
    pub fn tell_when_crowded(&mut self, private_data: PrivateData) {
        self.crowded = private_data;
    }

    pub(super) fn listen(&mut self, core: usize, address: SocketAddr) {
        // What the device cannot register is known before the first peer comes, and that one need not wait for it.
        let domain = self.domain_for(false);
        self.prepare_domain(domain, core);
        match self.listeners.iter().position(|listener| listener.address == address) {
            Some(at) => self.join(at, core),
            None => {
                self.listeners.push(Listener { address, members: vec![core], step: Step::Asked });
                self.command(Command::Listen { address }, Pending::Listen { address });
            }
        }
    }

    fn join(&mut self, at: usize, core: usize) {
        let listener = &mut self.listeners[at];
        let address = listener.address;
        if let Err(place) = listener.members.binary_search(&core) {
            listener.members.insert(place, core);
        }
        match listener.step {
            Step::Asked => {}
            Step::Unwanted(former) => {
                listener.step = Step::Asked;
                self.tell(former, ToCore::Listening { address, state: Listening::Stopped });
            }
            Step::Listens(_) => self.tell(core, ToCore::Listening { address, state: Listening::Began }),
        }
    }

    /// The domain of all connections was made: it gets what the cores that listen need in it.
    pub(super) fn prepare_listeners(&mut self, domain: usize) {
        for at in 0..self.listeners.len() {
            for member in 0..self.listeners[at].members.len() {
                self.prepare_domain(domain, self.listeners[at].members[member]);
            }
        }
    }

    pub(super) fn listen_answered(&mut self, address: SocketAddr, result: Result<Answer, CommandError>) {
        let asked = |listener: &Listener| listener.address == address && !matches!(listener.step, Step::Listens(_));
        let Some(at) = self.listeners.iter().position(asked) else { return };
        let (told, state) = match result {
            Ok(Answer::Listener(id)) => {
                let before = core::mem::replace(&mut self.listeners[at].step, Step::Listens(id));
                if let Step::Unwanted(core) = before {
                    return self.stop(at, core);
                }
                (self.listeners[at].members.clone(), Listening::Began)
            }
            other => {
                let reason = other.err().unwrap_or(CommandError::INVALID);
                (self.listeners.remove(at).concerned(), Listening::Failed(reason))
            }
        };
        for core in told {
            self.tell(core, ToCore::Listening { address, state });
        }
    }

    /// A core stops listening. Where others go on, connect requests that it was told of still wait for its answer.
    pub(super) fn stop_listening(&mut self, core: usize, address: SocketAddr) {
        let listens = |listener: &Listener| listener.address == address && listener.members.contains(&core);
        match self.listeners.iter().position(listens) {
            Some(at) => self.leave(at, core),
            None => self.tell(core, ToCore::Listening { address, state: Listening::Stopped }),
        }
    }

    fn leave(&mut self, at: usize, core: usize) {
        let Listener { address, members, step } = &mut self.listeners[at];
        members.retain(|member| *member != core);
        match (members.is_empty(), *step) {
            (false, _) => {
                let address = *address;
                self.tell(core, ToCore::Listening { address, state: Listening::Stopped });
            }
            (true, Step::Listens(_)) => self.stop(at, core),
            // As soon as the device has said that it listens.
            (true, Step::Asked | Step::Unwanted(_)) => *step = Step::Unwanted(core),
        }
    }

    /// Ends a listener whose last member has left.
    fn stop(&mut self, at: usize, core: usize) {
        let Listener { address, step, .. } = self.listeners.remove(at);
        if let Step::Listens(listener) = step {
            self.command(Command::StopListening { listener }, Pending::StopListening { core, address, listener });
        }
    }

    /// A core is gone: it listens nowhere any more, and nobody will answer what it was told of.
    pub(super) fn listeners_gone(&mut self, core: usize) {
        for at in (0..self.listeners.len()).rev() {
            if self.listeners[at].members.contains(&core) {
                self.leave(at, core);
            }
        }
        for (incoming, _) in core::mem::take(&mut self.cores[core].incoming) {
            self.turn_away(incoming);
        }
    }

    /// A peer wants to connect. How many such requests wait for an answer is up to the core, not to its peers.
    pub(super) fn connect_request(
        &mut self,
        listener: ListenerId,
        incoming: IncomingId,
        [peer, local]: [Option<SocketAddr>; 2],
        private_data: PrivateData,
    ) {
        let Some(at) = self.listeners.iter().position(|known| known.step == Step::Listens(listener)) else {
            self.turn_away(incoming);
            return;
        };
        let (core, weight) = self.place(at, &private_data);
        if self.cores[core].incoming.try_push((incoming, weight)).is_err() {
            self.statistics.incoming_overflow += 1;
            let private_data = self.crowded.clone();
            self.command(Command::Reject { incoming, private_data }, Pending::Nothing);
            return;
        }
        self.statistics.incoming += 1;
        self.tell(core, ToCore::Incoming { incoming, peer, local, private_data });
    }

    /// The core that a connect request goes to, and what it weighs there. A listener has a member as long as it listens.
    fn place(&mut self, at: usize, private_data: &[u8]) -> (usize, u32) {
        let Listener { address, members, .. } = &self.listeners[at];
        let members: Vec<_> = members.iter().map(|core| self.listening_core(*core)).collect();
        let request = ConnectRequest { address: *address, private_data, members: &members };
        let placed = match &mut self.placement {
            Some(placement) => placement(&request),
            None => fewest_connections(&request),
        };
        let member = members.get(placed.member).or(members.first());
        (member.map_or(0, |member| member.core), placed.weight)
    }

    fn listening_core(&self, core: usize) -> ListeningCore {
        // Of one that has left only its queue pair is still there.
        let open = self.links.iter().flatten().filter(|link| link.core == core && link.stage != Stage::Left);
        let open = open.map(|link| link.weight);
        let unanswered = self.cores[core].incoming.iter().map(|(_, weight)| *weight);
        let (connections, weight) =
            open.chain(unanswered).fold((0, 0), |(count, sum), weight| (count + 1, sum + u64::from(weight)));
        ListeningCore { core, connections, weight }
    }

    /// A core has accepted or rejected a connect request; returns what it weighs.
    pub(super) fn incoming_answered(&mut self, core: usize, incoming: IncomingId) -> u32 {
        let waiting = &mut self.cores[core].incoming;
        let found = waiting.iter().position(|(id, _)| *id == incoming);
        found.map_or(0, |at| waiting.remove(at).1)
    }

    fn turn_away(&mut self, incoming: IncomingId) {
        self.command(Command::Reject { incoming, private_data: PrivateData::new() }, Pending::Nothing);
    }
}

impl Listener {
    /// Cores that have asked for it and were not told what became of it.
    fn concerned(self) -> Vec<usize> {
        match self.step {
            Step::Unwanted(core) => vec![core],
            Step::Asked | Step::Listens(_) => self.members,
        }
    }
}
