//! A host's side of a transaction, as a value: a message in, and what comes of it.

use super::group::{Group, Half};
use super::hash::Hash;
use super::message::Message;
use super::proof::{Proof, Prover};
use super::random::Random;
use super::secret::Secret;
use super::sides::{HostKeys, Permitted, challenge, say};
use crate::authentication::{AuthenticationFailure, Parties, Turn, Verdict};

/// What the controller was asked.
#[derive(Debug)]
struct Asked {
    hash: Hash,
    shared: Secret,
    challenge: Vec<u8>,
    sequence: u32,
    key: Secret,
}

#[derive(Debug)]
enum State {
    Begins,
    AwaitsChallenge { transaction: u16 },
    AwaitsSuccess1 { transaction: u16, asked: Option<Box<Asked>> },
    Over,
}

/// A host's side. It begins with an empty message, and takes nothing behind a verdict.
#[derive(Debug)]
pub struct HostSide {
    parties: Parties,
    state: State,
}

/// A challenge as the controller said it.
struct Challenge<'a> {
    transaction: u16,
    hash: Hash,
    group: Group,
    sequence: u32,
    challenge: &'a [u8],
    public: &'a [u8],
}

impl HostSide {
    /// Of a transaction that has not begun.
    #[must_use]
    pub fn new(parties: Parties) -> Self {
        Self { parties, state: State::Begins }
    }

    /// Takes a message of the controller's, of which what is behind its end is not looked at; with the keys that this host has.
    pub fn take(
        &mut self,
        message: &[u8],
        keys: Option<&HostKeys>,
        permitted: &Permitted,
        random: &mut dyn Random,
    ) -> Turn {
        let state = core::mem::replace(&mut self.state, State::Over);
        let known = match &state {
            State::AwaitsChallenge { transaction } | State::AwaitsSuccess1 { transaction, .. } => Some(*transaction),
            State::Begins | State::Over => None,
        };
        let taken = match (state, keys) {
            (_, None) => Err(AuthenticationFailure::NoKey),
            (State::Begins, Some(_)) => self.negotiate(permitted, random),
            (state, Some(keys)) => match Message::decode(message) {
                Some((message, _)) => self.judge(state, &message, keys, permitted, random),
                None => Err(AuthenticationFailure::Payload),
            },
        };
        taken.unwrap_or_else(|failure| {
            let known = known.filter(|_| !matches!(failure, AuthenticationFailure::ByPeer(_)));
            let explanation = failure.explanation();
            let say = known.map(|transaction| Message::Failure2 { transaction, explanation }.encode());
            Turn { say, verdict: Verdict::Failed(failure) }
        })
    }

    fn negotiate(&mut self, permitted: &Permitted, random: &mut dyn Random) -> Result<Turn, AuthenticationFailure> {
        let mut transaction = [0; 2];
        random.fill(&mut transaction)?;
        let transaction = u16::from_le_bytes(transaction);
        let hashes: Vec<u8> = permitted.hashes.iter().map(|hash| hash.identifier()).collect();
        let groups: Vec<u8> = permitted.groups.iter().map(|group| group.identifier()).collect();
        self.state = State::AwaitsChallenge { transaction };
        Ok(say(&Message::Negotiate { transaction, concatenation: 0, offered: Some((&hashes, &groups)) }))
    }

    fn judge(
        &mut self,
        state: State,
        message: &Message<'_>,
        keys: &HostKeys,
        permitted: &Permitted,
        random: &mut dyn Random,
    ) -> Result<Turn, AuthenticationFailure> {
        match (state, *message) {
            (State::Over, _) => Err(AuthenticationFailure::Message),
            (_, Message::Failure1 { explanation, .. }) => Err(AuthenticationFailure::ByPeer(explanation)),
            (
                State::AwaitsChallenge { transaction: awaited },
                Message::Challenge { transaction, hash, group, sequence, challenge, public },
            ) if transaction == awaited => {
                let challenge = Challenge { transaction, hash, group, sequence, challenge, public };
                self.respond(&challenge, keys, permitted, random)
            }
            (
                State::AwaitsSuccess1 { transaction: awaited, asked },
                Message::Success1 { transaction, response, .. },
            ) if transaction == awaited => self.conclude(transaction, asked.as_deref(), response),
            _ => Err(AuthenticationFailure::Message),
        }
    }

    fn respond(
        &mut self,
        asked: &Challenge<'_>,
        keys: &HostKeys,
        permitted: &Permitted,
        random: &mut dyn Random,
    ) -> Result<Turn, AuthenticationFailure> {
        let &Challenge { transaction, hash, group, sequence, challenge: value, public } = asked;
        if !permitted.hashes.contains(&hash) {
            return Err(AuthenticationFailure::Hash);
        }
        if !permitted.groups.contains(&group) {
            return Err(AuthenticationFailure::Group);
        }
        if value.len() != hash.bytes() {
            return Err(AuthenticationFailure::Payload);
        }
        let half = Half::new(group, random)?;
        let shared = half.shared(public).ok_or(AuthenticationFailure::Payload)?;
        let Parties { host, subsystem } = &self.parties;
        let (prover, names) = (Prover::Host, (host, subsystem));
        let proof = Proof { hash, shared: &shared, challenge: value, sequence, transaction, prover, names };
        let response = proof.make(&keys.host.transformed(host));
        let own = match &keys.controller {
            None => None,
            Some(key) => {
                let (own, sequence) = challenge(hash, random)?;
                Some(Box::new(Asked { hash, shared, challenge: own, sequence, key: key.transformed(subsystem) }))
            }
        };
        let reply = Message::Reply {
            transaction,
            sequence: own.as_ref().map_or(0, |own| own.sequence),
            response: &response,
            challenge: own.as_ref().map(|own| &own.challenge[..]),
            public: half.public(),
        };
        let turn = say(&reply);
        self.state = State::AwaitsSuccess1 { transaction, asked: own };
        Ok(turn)
    }

    /// The controller believes us; whether we believe it.
    fn conclude(
        &self,
        transaction: u16,
        asked: Option<&Asked>,
        response: Option<&[u8]>,
    ) -> Result<Turn, AuthenticationFailure> {
        let Some(Asked { hash, shared, challenge, sequence, key }) = asked else {
            return Ok(Turn { say: None, verdict: Verdict::Proven });
        };
        let Parties { host, subsystem } = &self.parties;
        let (hash, sequence, prover, names) = (*hash, *sequence, Prover::Controller, (subsystem, host));
        let proof = Proof { hash, shared, challenge, sequence, transaction, prover, names };
        // A controller that answers nothing has not proven itself.
        if !response.is_some_and(|response| proof.verify(key, response)) {
            return Err(AuthenticationFailure::Response);
        }
        Ok(Turn { say: Some(Message::Success2 { transaction }.encode()), verdict: Verdict::Proven })
    }
}
