//! Which client a server serves: the same for all of its cores. Asked when connections come and go, never by a request.

use super::{
    askers::Askers,
    breach::Breach,
    parameters::{ConnectData, Parameters, Refusal},
};
use core::{fmt, time::Duration};
use frwr_engine::{DisconnectCause, Listening, provider::CommandError};
use frwr_reactor::Clock;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// News that the main thread has not said yet; more than these are counted.
const MAX_NEWS: usize = 64;

/// What the server says of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A client is served from now on.
    Came { peer: Option<SocketAddr>, parameters: Parameters },
    /// It took its leave.
    Left { served: u64 },
    /// It went without a word, or broke the protocol.
    Died { served: u64, cause: Ending },
    /// Somebody was refused.
    Refused { peer: Option<SocketAddr>, refusal: Refusal },
}

/// How a client's connection ended that had not taken its leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// As the engine says.
    Engine(DisconnectCause),
    /// It sent what it may not.
    Protocol(Breach),
    /// Nothing came of it for so long.
    Silent(Duration),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(cause) => cause.fmt(f),
            Self::Protocol(breach) => write!(f, "it broke the protocol: {breach}"),
            Self::Silent(silence) => {
                write!(f, "nothing has come of it for {} s, no request and no sign of life", silence.as_secs_f64())
            }
        }
    }
}

#[derive(Debug)]
struct State {
    /// What there is room for.
    capacity: Parameters,
    /// What was tried, and there cannot be room for.
    unaffordable: Option<Parameters>,
    askers: Askers,
    /// 0 while nobody is served.
    client: u64,
    connections: u32,
    served: u64,
    /// Grows where something comes of it.
    signs: u64,
    /// How its first connection ended that had not taken leave.
    died: Option<Ending>,
    /// What there is to be room for.
    wanted: Option<Parameters>,
    /// What is told of the client when its first connection is up.
    coming: Option<News>,
    news: Vec<News>,
    unsaid: u64,
    clients: u64,
    /// Cores that listen, and whether one cannot.
    listening: usize,
    cannot_listen: Option<CommandError>,
}

/// The desk; clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Desk(Arc<Mutex<State>>);

impl Desk {
    /// With room for this.
    pub(super) fn new(capacity: Parameters) -> Self {
        Self::knowing(capacity, None, Askers::new(Clock::system()))
    }

    /// With room for this, where it is known that there is none for that, and who asked before.
    pub(super) fn knowing(capacity: Parameters, unaffordable: Option<Parameters>, askers: Askers) -> Self {
        Self(Arc::new(Mutex::new(State {
            capacity,
            unaffordable,
            askers,
            client: 0,
            connections: 0,
            served: 0,
            signs: 0,
            died: None,
            wanted: None,
            coming: None,
            news: Vec::with_capacity(MAX_NEWS),
            unsaid: 0,
            clients: 0,
            listening: 0,
            cannot_listen: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connect request of a client. Its connection counts from now on, until [`Desk::left`].
    pub(super) fn admit(&self, data: &ConnectData, peer: Option<SocketAddr>) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.client != 0 && state.client != data.client {
            return Err(Refusal::Busy);
        }
        if state.unaffordable == Some(data.parameters) {
            return Err(Refusal::NoRoom);
        }
        if state.wanted.is_some() || !state.capacity.covers(&data.parameters) {
            if state.client == 0 {
                if state.wanted.is_none() && state.askers.ask(data, peer) {
                    state.wanted = Some(data.parameters);
                }
                return Err(Refusal::Again);
            }
            // The same client asks for something else on another connection.
            return Err(Refusal::Malformed);
        }
        if state.client == 0 {
            (state.client, state.served, state.died) = (data.client, 0, None);
            state.clients += 1;
            state.coming = Some(News::Came { peer, parameters: data.parameters });
        }
        if state.connections >= u32::from(data.parameters.connections) {
            return Err(Refusal::Malformed);
        }
        state.connections += 1;
        state.signs += 1;
        Ok(())
    }

    /// A connection of the client is up.
    pub(super) fn connected(&self) {
        let mut state = self.state();
        if let Some(news) = state.coming.take() {
            state.tell(news);
        }
    }

    /// A core: whether something came of the client since the last time. Returns a number that is another one whenever a core
    /// has said so, or a connection was admitted.
    pub(super) fn heard(&self, heard: bool) -> u64 {
        let mut state = self.state();
        state.signs += u64::from(heard);
        state.signs
    }

    /// A connection of the client is gone: so many commands of it were served, and it had taken leave, or else why not.
    pub(super) fn left(&self, served: u64, died: Option<Ending>) {
        let mut state = self.state();
        state.connections = state.connections.saturating_sub(1);
        state.served += served;
        state.died = state.died.or(died);
        if state.connections > 0 {
            return;
        }
        let (client, served) = (core::mem::take(&mut state.client), state.served);
        match state.died.take() {
            None => {
                state.askers.served(client);
                state.tell(News::Left { served });
            }
            Some(cause) => state.tell(News::Died { served, cause }),
        }
    }

    /// Somebody was refused for a reason of its own.
    pub(super) fn refused(&self, peer: Option<SocketAddr>, refusal: Refusal) {
        self.state().tell(News::Refused { peer, refusal });
    }

    /// What there is to be room for, where somebody asked for more.
    pub(super) fn wanted(&self) -> Option<Parameters> {
        self.state().wanted
    }

    /// A core: it listens now, or cannot.
    pub(super) fn listens(&self, listens: Listening) {
        let mut state = self.state();
        match listens {
            Listening::Began => state.listening += 1,
            Listening::Failed(reason) => state.cannot_listen = Some(reason),
            // It was not told to end that.
            Listening::Stopped => {}
        }
    }

    /// Cores that listen; `None` where one cannot.
    pub(super) fn listening(&self) -> Option<usize> {
        let state = self.state();
        state.cannot_listen.is_none().then_some(state.listening)
    }

    /// Why one cannot.
    pub(super) fn cannot_listen(&self) -> Option<CommandError> {
        self.state().cannot_listen
    }

    /// Clients so far.
    pub(super) fn clients(&self) -> u64 {
        self.state().clients
    }

    /// News since the last time, and how many found no room.
    pub(super) fn take_news(&self) -> (Vec<News>, u64) {
        let mut state = self.state();
        (core::mem::take(&mut state.news), core::mem::take(&mut state.unsaid))
    }
}

impl State {
    fn tell(&mut self, news: News) {
        if self.news.len() < MAX_NEWS { self.news.push(news) } else { self.unsaid += 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Askers, Desk, Ending, News};
    use crate::latency::{
        operation::Operation,
        parameters::{ConnectData, Invalidation, KeyKind, Parameters, PeerDoes, Refusal},
    };
    use core::time::Duration;
    use frwr_engine::DisconnectCause;
    use frwr_reactor::{Clock, VirtualClock};

    const ROOM: Parameters = Parameters {
        operation: Operation::Request,
        key: KeyKind::Request,
        invalidation: Invalidation::Remote,
        peer_does: PeerDoes::Write,
        size: 4096,
        segments: 1,
        ranges: 1,
        depth: 32,
        batch: 1,
        connections: 2,
    };

    #[test]
    fn one_client_after_the_other() {
        let desk = Desk::new(ROOM);
        let of = |client| ConnectData { parameters: ROOM, client };
        assert_eq!(desk.admit(&of(1), None), Ok(()));
        assert_eq!(desk.admit(&of(2), None), Err(Refusal::Busy));
        assert_eq!(desk.admit(&of(1), None), Ok(()));
        assert_eq!(desk.admit(&of(1), None), Err(Refusal::Malformed), "it said two");
        desk.connected();
        desk.connected();
        desk.left(10, None);
        assert_eq!(desk.admit(&of(2), None), Err(Refusal::Busy));
        desk.left(20, Some(Ending::Engine(DisconnectCause::Peer)));
        assert_eq!(desk.admit(&of(2), None), Ok(()));
        desk.connected();
        desk.left(5, None);
        let came = || News::Came { peer: None, parameters: ROOM };
        let died = News::Died { served: 30, cause: Ending::Engine(DisconnectCause::Peer) };
        assert_eq!(desk.take_news(), (vec![came(), died, came(), News::Left { served: 5 }], 0));
        assert_eq!(desk.clients(), 2);
    }

    #[test]
    fn who_asks_for_more_is_told_to_come_again() {
        let time = VirtualClock::new();
        let desk = Desk::knowing(ROOM, None, Askers::new(Clock::from(&time)));
        let more = Parameters { depth: 64, ..ROOM };
        assert_eq!(desk.admit(&ConnectData { parameters: more, client: 1 }, None), Err(Refusal::Again));
        assert_eq!(desk.wanted(), None, "it may have hung up");
        time.advance(Duration::from_millis(50));
        assert_eq!(desk.admit(&ConnectData { parameters: more, client: 1 }, None), Err(Refusal::Again));
        // Nobody comes in between.
        assert_eq!(desk.admit(&ConnectData { parameters: ROOM, client: 2 }, None), Err(Refusal::Again));
        assert_eq!(desk.wanted(), Some(more));
        for less in [Parameters { depth: 1, ..ROOM }, Parameters { size: 512, connections: 1, ..ROOM }] {
            assert_eq!(Desk::new(ROOM).admit(&ConnectData { parameters: less, client: 1 }, None), Ok(()));
        }
    }

    #[test]
    fn what_was_tried_in_vain_is_not_tried_again() {
        let more = Parameters { depth: 64, ..ROOM };
        let desk = Desk::knowing(ROOM, Some(more), Askers::new(Clock::system()));
        assert_eq!(desk.admit(&ConnectData { parameters: more, client: 1 }, None), Err(Refusal::NoRoom));
        assert_eq!((desk.wanted(), desk.admit(&ConnectData { parameters: ROOM, client: 1 }, None)), (None, Ok(())));
    }

    #[test]
    fn what_nobody_reads_is_counted() {
        let desk = Desk::new(ROOM);
        for _ in 0..100 {
            desk.refused(None, Refusal::Malformed);
        }
        let (news, unsaid) = desk.take_news();
        assert_eq!((news.len(), unsaid), (64, 36));
    }
}
