//! Two hosts and the connections between them.

use super::{Builder, Host, SIZES};
use frwr_engine::provider::{
    Answer, Command, Completion, ConnectionEvent, ConnectionParameters, Device, DomainId, ListenerId, PrivateData,
    QueuePairId, QueueSizes,
};
use std::net::SocketAddr;

/// The owner has the registrations, the peer does RDMA.
pub struct Pair<D: Device> {
    pub owner: Host<D>,
    pub peer: Host<D>,
    pub address: SocketAddr,
    pub listener: ListenerId,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub owner: QueuePairId,
    pub peer: QueuePairId,
}

impl<D: Device> Pair<D> {
    /// The peer listens.
    pub fn new(owner: D, peer: D, address: SocketAddr) -> Self {
        Self::of(Host::new(owner), Host::new(peer), address)
    }

    pub fn of(owner: Host<D>, mut peer: Host<D>, address: SocketAddr) -> Self {
        let listener = match peer.command(Command::Listen { address }) {
            Ok(Answer::Listener(listener)) => listener,
            other => panic!("no listener: {other:?}"),
        };
        Self { owner, peer, address, listener }
    }

    pub fn step(&mut self) {
        self.owner.step();
        self.peer.step();
    }

    /// Steps until the condition holds; fails the test where it never does.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let mut patience = self.owner.patience();
        while patience.is_left() {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!(
            "never happened: {what}; owner {:?} {:?}, peer {:?} {:?}, events {:?} {:?}",
            self.owner.sent,
            self.owner.received,
            self.peer.sent,
            self.peer.received,
            self.owner.events,
            self.peer.events
        );
    }

    /// Steps long enough for anything that was going to happen: on a real device until it falls silent.
    pub fn settle(&mut self) {
        self.steps(200);
    }

    /// So many steps; a real device moves by itself, and is waited for until it falls silent.
    pub fn steps(&mut self, count: usize) {
        if !self.owner.is_real() {
            (0..count).for_each(|_| self.step());
            return;
        }
        let mut silence = self.owner.pace.silence();
        while !silence.is_long(self.owner.heard() + self.peer.heard()) {
            self.step();
        }
    }

    /// Steps until the owner's connection manager says something.
    pub fn until_owner_hears(&mut self) -> Vec<ConnectionEvent> {
        self.until("news for the owner", |pair| pair.owner.has_connection_event());
        self.owner.connection_events()
    }

    /// Steps until the peer's connection manager says something.
    pub fn until_peer_hears(&mut self) -> Vec<ConnectionEvent> {
        self.until("news for the peer", |pair| pair.peer.has_connection_event());
        self.peer.connection_events()
    }

    pub fn connect(&mut self) -> Ends {
        let (owner, peer) = (self.owner.domain, self.peer.domain);
        self.connect_with(owner, peer, SIZES, ConnectionParameters::default())
    }

    pub fn connect_with(
        &mut self,
        owner_domain: DomainId,
        peer_domain: DomainId,
        sizes: QueueSizes,
        parameters: ConnectionParameters,
    ) -> Ends {
        let owner = self.owner.queue_pair_in(owner_domain, sizes);
        let peer = self.peer.queue_pair_in(peer_domain, sizes);
        self.join(Ends { owner, peer }, parameters);
        Ends { owner, peer }
    }

    /// Connects two queue pairs that exist.
    pub fn join(&mut self, ends: Ends, parameters: ConnectionParameters) {
        let address = self.address;
        self.owner.connect(ends.owner, address, parameters);
        let mut joined = (false, false);
        let mut patience = self.owner.patience();
        while patience.is_left() {
            self.step();
            for event in self.peer.connection_events() {
                match event {
                    ConnectionEvent::Request { incoming, private_data, .. } => {
                        assert!(self.peer.is_text(&private_data, b"request"), "{private_data:?}");
                        let private_data: PrivateData = b"accept".iter().copied().collect();
                        let queue_pair = ends.peer;
                        let command = Command::Accept { incoming, queue_pair, private_data, parameters };
                        assert_eq!(self.peer.command(command), Ok(Answer::Done));
                    }
                    ConnectionEvent::Established { queue_pair, .. } => joined.1 |= queue_pair == ends.peer,
                    other => panic!("unexpected at the peer: {other:?}"),
                }
            }
            for event in self.owner.connection_events() {
                match event {
                    ConnectionEvent::Established { queue_pair, private_data } => {
                        assert!(self.owner.is_text(&private_data, b"accept"), "{private_data:?}");
                        joined.0 |= queue_pair == ends.owner;
                    }
                    other => panic!("unexpected at the owner: {other:?}"),
                }
            }
            if joined == (true, true) {
                return;
            }
        }
        panic!("never connected");
    }

    /// The owner posts a chain and waits for `count` more completions of its send queue.
    pub fn owner_runs(&mut self, queue_pair: QueuePairId, chain: &Builder, count: usize) -> Vec<Completion> {
        let before = self.owner.sent.len();
        self.owner.post(queue_pair, chain).expect("a chain that fits");
        self.until("completions of the owner", |pair| pair.owner.sent.len() >= before + count);
        self.owner.sent[before..].to_vec()
    }

    /// The peer posts a chain and waits for `count` more completions of its send queue.
    pub fn peer_runs(&mut self, queue_pair: QueuePairId, chain: &Builder, count: usize) -> Vec<Completion> {
        let before = self.peer.sent.len();
        self.peer.post(queue_pair, chain).expect("a chain that fits");
        self.until("completions of the peer", |pair| pair.peer.sent.len() >= before + count);
        self.peer.sent[before..].to_vec()
    }
}
