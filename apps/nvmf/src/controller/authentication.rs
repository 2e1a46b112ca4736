//! Transactions of authentication (Base 8.13) on queues: what hosts say is handed to whoever judges it, and what comes of that waits to
//! be asked for.

use super::statistics::TargetStatistics;
use crate::authentication::{
    AuthenticationFailure, Authenticator, Demand, Exchange, MAX_MESSAGE_BYTES, Parties, Turn, Verdict,
};
use crate::wire::{Nqn, Status};
use core::task::Waker;
use core::time::Duration;
use frwr_engine::ConnectionId;
use std::sync::Arc;

/// How long a host has to ask why it is not believed, before its connection ends.
const FAILURE_GRACE: Duration = Duration::from_secs(1);

/// How far a queue's transaction is.
#[derive(Debug)]
enum State {
    /// There is none.
    Idle,
    /// The host's latest message is being judged.
    Judged(Box<dyn Exchange>),
    /// What came of it waits to be asked for.
    Says(Box<dyn Exchange>, Turn),
    /// The host's next message is awaited.
    Awaits(Box<dyn Exchange>),
    /// The host was told that it is not believed, or cannot be.
    Failed,
}

/// A queue that has to be authenticated, or whose host does so by itself.
#[derive(Debug)]
struct Entry {
    connection: ConnectionId,
    state: State,
    /// The command that asks for what comes of a message, where it is not known yet.
    asked: Option<u64>,
    /// When the connection ends, in watched time.
    by: Option<Duration>,
    /// Its host is not believed.
    failed: bool,
}

/// What a host is told, and what follows then.
pub(super) struct Said {
    pub(super) message: Vec<u8>,
    pub(super) verdict: Verdict,
}

/// What is said to who asks for a message.
pub(super) enum Answer {
    Said(Said),
    /// It is not known yet.
    Later,
    /// There is nothing to be asked for, or no room for what there is: that stays.
    Refused(Status),
}

/// What became known of a queue.
pub(super) enum News {
    /// The command that this cookie names is answered now.
    Answers(ConnectionId, u64),
    /// Its host is not believed: `ends` where it has nothing to ask for.
    Failed { connection: ConnectionId, why: AuthenticationFailure, ends: bool },
}

/// All queues' transactions of one core.
#[derive(Debug)]
pub(super) struct Authentications {
    authenticator: Option<Arc<dyn Authenticator>>,
    waker: Option<Waker>,
    /// By connection index.
    entries: Vec<Option<Entry>>,
    /// Connection indices of those whose messages are being judged: what each poll looks at.
    judged: Vec<u16>,
    /// What became of them; the other fields are zero.
    counted: TargetStatistics,
}

impl Authentications {
    pub(super) fn new(connections: u16) -> Self {
        let entries = (0..connections).map(|_| None).collect();
        let judged = Vec::with_capacity(connections.into());
        Self { authenticator: None, waker: None, entries, judged, counted: TargetStatistics::default() }
    }

    /// A host proved itself.
    pub(super) fn count_proven(&mut self) {
        self.counted.authentications += 1;
    }

    /// A host is not believed, or does not believe us.
    #[cold]
    pub(super) fn count_failed(&mut self, why: AuthenticationFailure) {
        let counted = &mut self.counted;
        *match why {
            AuthenticationFailure::Response => &mut counted.authentications_wrong,
            AuthenticationFailure::NoKey => &mut counted.authentications_without_key,
            AuthenticationFailure::Protocol
            | AuthenticationFailure::Concatenation
            | AuthenticationFailure::Hash
            | AuthenticationFailure::Group => &mut counted.authentications_without_choice,
            AuthenticationFailure::Late => &mut counted.authentications_late,
            AuthenticationFailure::ByPeer(_) => &mut counted.authentications_refused,
            AuthenticationFailure::Payload
            | AuthenticationFailure::Message
            | AuthenticationFailure::NoRandomNumbers => &mut counted.authentications_broken,
        } += 1;
    }

    pub(super) fn statistics(&self) -> TargetStatistics {
        let runs = |entry: &&Entry| matches!(entry.state, State::Judged(_) | State::Says(..) | State::Awaits(_));
        TargetStatistics { authenticating: self.entries.iter().flatten().filter(runs).count() as u64, ..self.counted }
    }

    /// Who judges.
    pub(super) fn set(&mut self, authenticator: Arc<dyn Authenticator>) {
        self.authenticator = Some(authenticator);
    }

    /// How the core is woken that sleeps.
    pub(super) fn wakes(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    /// What is asked of a host; `None` where that is to be asked again.
    pub(super) fn demand(&self, host: Option<&Nqn>, subsystem: &Nqn) -> Option<Demand> {
        self.authenticator.as_ref().map_or(Some(Demand::None), |known| known.demand(host, subsystem))
    }

    /// Something is being judged: every poll looks.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        !self.judged.is_empty()
    }

    /// The same, and nobody wakes the core when it has been.
    pub(super) fn needs_polls(&self) -> bool {
        self.waker.is_none() && self.is_busy()
    }

    fn find(&mut self, connection: ConnectionId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(usize::from(connection.index))?.as_mut()?;
        (entry.connection == connection).then_some(entry)
    }

    /// The queue of a connection has to be authenticated until then, in watched time.
    pub(super) fn demanded(&mut self, connection: ConnectionId, by: Duration) {
        self.close(connection);
        if let Some(place) = self.entries.get_mut(usize::from(connection.index)) {
            *place = Some(Entry { connection, state: State::Idle, asked: None, by: Some(by), failed: false });
        }
    }

    /// A connection is gone.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        let Some(place) = self.entries.get_mut(usize::from(connection.index)) else { return };
        if let Some(Entry { state: State::Judged(_), .. }) = place.take() {
            self.judged.retain(|index| *index != connection.index);
        }
    }

    /// A host said something, between these; by then it is over.
    pub(super) fn told(
        &mut self,
        connection: ConnectionId,
        parties: Parties,
        message: &[u8],
        by: Duration,
    ) -> Result<(), Status> {
        let authenticator = self.authenticator.clone().ok_or(Status::INVALID_COMMAND_OPCODE)?;
        if self.find(connection).is_none() {
            self.demanded(connection, by);
        }
        let waker = self.waker.clone();
        let entry = self.find(connection).ok_or(Status::INTERNAL_ERROR)?;
        let mut exchange = match core::mem::replace(&mut entry.state, State::Failed) {
            State::Idle => authenticator.controller_side(parties),
            State::Awaits(exchange) => exchange,
            // It does not ask for what is said first.
            others => {
                entry.state = others;
                return Err(Status::COMMAND_SEQUENCE_ERROR);
            }
        };
        exchange.tell(message, waker.as_ref());
        entry.state = State::Judged(exchange);
        entry.by = entry.by.or(Some(by));
        self.judged.push(connection.index);
        Ok(())
    }

    /// A host asks for a message by a command that this cookie names, which has room for so many bytes.
    pub(super) fn asked(&mut self, connection: ConnectionId, cookie: u64, room: usize) -> Answer {
        let Some(entry) = self.find(connection) else { return Answer::Refused(Status::COMMAND_SEQUENCE_ERROR) };
        match core::mem::replace(&mut entry.state, State::Failed) {
            State::Says(exchange, Turn { say: Some(message), verdict }) if message.len() <= room => {
                entry.state = match verdict {
                    Verdict::Open | Verdict::HostProven => State::Awaits(exchange),
                    Verdict::Proven => State::Idle,
                    Verdict::Failed(_) => State::Failed,
                };
                if verdict == Verdict::Proven {
                    entry.by = None;
                }
                Answer::Said(Said { message, verdict })
            }
            State::Judged(exchange) if entry.asked.is_none() => {
                (entry.state, entry.asked) = (State::Judged(exchange), Some(cookie));
                Answer::Later
            }
            others => {
                let has_words = matches!(others, State::Says(..));
                entry.state = others;
                Answer::Refused(if has_words { Status::INVALID_FIELD } else { Status::COMMAND_SEQUENCE_ERROR })
            }
        }
    }

    /// One of those that are being judged of which it is known by now what comes of it.
    fn poll_judged(&mut self) -> Option<(usize, Turn)> {
        let Self { entries, judged, .. } = self;
        judged.iter().enumerate().find_map(|(at, index)| {
            let entry = entries.get_mut(usize::from(*index))?.as_mut()?;
            let State::Judged(exchange) = &mut entry.state else { return None };
            Some((at, exchange.poll()?))
        })
    }

    /// What became known since, one after the other.
    pub(super) fn next(&mut self, now: Duration) -> Option<News> {
        while let Some((at, turn)) = self.poll_judged() {
            let index = self.judged.swap_remove(at);
            let Some(entry) = self.entries.get_mut(usize::from(index)).and_then(Option::as_mut) else { continue };
            let State::Judged(exchange) = core::mem::replace(&mut entry.state, State::Failed) else { continue };
            let (connection, verdict) = (entry.connection, turn.verdict);
            let has_words = turn.say.is_some();
            if has_words {
                entry.state = State::Says(exchange, turn);
            } else if verdict == Verdict::Proven {
                (entry.state, entry.by) = (State::Idle, None);
            }
            if let Verdict::Failed(why) = verdict {
                (entry.failed, entry.by) = (true, Some(now.saturating_add(FAILURE_GRACE)));
                return Some(News::Failed { connection, why, ends: !has_words });
            }
            if let Some(cookie) = entry.asked.take() {
                return Some(News::Answers(connection, cookie));
            }
        }
        None
    }

    /// The command of a host that is not believed, which asks why.
    pub(super) fn asks_why(&mut self, connection: ConnectionId) -> Option<u64> {
        self.find(connection)?.asked.take()
    }

    /// When queues are to be looked at, in watched time.
    pub(super) fn next_check(&self) -> Option<Duration> {
        self.entries.iter().flatten().filter_map(|entry| entry.by).min()
    }

    /// A connection that is to end now: beside it whether its host was told why already.
    pub(super) fn next_expired(&mut self, now: Duration) -> Option<(ConnectionId, bool)> {
        let mut entries = self.entries.iter_mut().flatten();
        let entry = entries.find(|entry| entry.by.is_some_and(|by| by <= now))?;
        entry.by = None;
        Some((entry.connection, entry.failed))
    }
}

const _: () = assert!(MAX_MESSAGE_BYTES <= super::options::MIN_BUFFER_BYTES as usize);
