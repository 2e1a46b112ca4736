//! A controller's side of a transaction, as a value: a message in, and what comes of it.

use super::group::{Group, Half};
use super::hash::Hash;
use super::message::{Message, transaction};
use super::proof::{Proof, Prover};
use super::random::Random;
use super::sides::{HostKeys, Permitted, challenge, say};
use crate::authentication::{AuthenticationFailure, Parties, Turn, Verdict};

/// What the host was asked, and what its reply is judged by.
#[derive(Debug)]
struct Asked {
    transaction: u16,
    hash: Hash,
    half: Half,
    challenge: Vec<u8>,
    sequence: u32,
}

#[derive(Debug)]
enum State {
    Begins,
    AwaitsReply(Box<Asked>),
    /// The host is proven; it may say what it thinks of the controller.
    AwaitsSuccess2 {
        transaction: u16,
    },
    Over,
}

/// A controller's side. It ends with a verdict, and takes nothing behind one that failed.
#[derive(Debug)]
pub struct ControllerSide {
    parties: Parties,
    state: State,
}

impl ControllerSide {
    /// Of a transaction that has not begun.
    #[must_use]
    pub fn new(parties: Parties) -> Self {
        Self { parties, state: State::Begins }
    }

    /// Takes a message of the host's, with the keys that the host has at this moment.
    pub fn take(
        &mut self,
        message: &[u8],
        keys: Option<&HostKeys>,
        permitted: &Permitted,
        random: &mut dyn Random,
    ) -> Turn {
        let state = core::mem::replace(&mut self.state, State::Over);
        let listens = matches!(state, State::Begins | State::AwaitsReply(_));
        let taken = match Message::decode(message) {
            Some((message, 0)) => self.judge(state, &message, keys, permitted, random),
            _ => Err(AuthenticationFailure::Payload),
        };
        taken.unwrap_or_else(|failure| {
            // A host that has ended it, or was told of success, listens no more.
            let is_over = matches!(failure, AuthenticationFailure::ByPeer(_)) || !listens;
            let (transaction, explanation) = (transaction(message), failure.explanation());
            let say = (!is_over).then(|| Message::Failure1 { transaction, explanation }.encode());
            Turn { say, verdict: Verdict::Failed(failure) }
        })
    }

    fn judge(
        &mut self,
        state: State,
        message: &Message<'_>,
        keys: Option<&HostKeys>,
        permitted: &Permitted,
        random: &mut dyn Random,
    ) -> Result<Turn, AuthenticationFailure> {
        match (state, message) {
            (State::Begins, Message::Negotiate { transaction, concatenation, offered }) => {
                if *concatenation != 0 {
                    return Err(AuthenticationFailure::Concatenation);
                }
                let offered = offered.ok_or(AuthenticationFailure::Protocol)?;
                // Whoever has no key is told so when he has shown an answer, as anybody with a wrong one is.
                self.challenge(*transaction, offered, permitted, random)
            }
            (State::AwaitsReply(asked), Message::Reply { transaction, .. }) if *transaction == asked.transaction => {
                self.reply(&asked, message, keys)
            }
            (State::AwaitsSuccess2 { transaction: awaited }, Message::Success2 { transaction })
                if awaited == *transaction =>
            {
                Ok(Turn { say: None, verdict: Verdict::Proven })
            }
            (State::AwaitsReply(_) | State::AwaitsSuccess2 { .. }, Message::Failure2 { explanation, .. }) => {
                Err(AuthenticationFailure::ByPeer(*explanation))
            }
            _ => Err(AuthenticationFailure::Message),
        }
    }

    /// The best of what both sides permit, and a challenge that was never used.
    fn challenge(
        &mut self,
        transaction: u16,
        (hashes, groups): (&[u8], &[u8]),
        permitted: &Permitted,
        random: &mut dyn Random,
    ) -> Result<Turn, AuthenticationFailure> {
        let hash = permitted.hashes.iter().find(|hash| hashes.contains(&hash.identifier()));
        let hash = *hash.ok_or(AuthenticationFailure::Hash)?;
        let group = permitted.groups.iter().find(|group| groups.contains(&group.identifier()));
        let group: Group = *group.ok_or(AuthenticationFailure::Group)?;
        let (challenge, sequence) = challenge(hash, random)?;
        let half = Half::new(group, random)?;
        let public = half.public();
        let turn = say(&Message::Challenge { transaction, hash, group, sequence, challenge: &challenge, public });
        self.state = State::AwaitsReply(Box::new(Asked { transaction, hash, half, challenge, sequence }));
        Ok(turn)
    }

    fn reply(
        &mut self,
        asked: &Asked,
        message: &Message<'_>,
        keys: Option<&HostKeys>,
    ) -> Result<Turn, AuthenticationFailure> {
        let &Message::Reply { transaction, sequence, response, challenge, public } = message else {
            return Err(AuthenticationFailure::Message);
        };
        if response.len() != asked.hash.bytes() {
            return Err(AuthenticationFailure::Payload);
        }
        // Our own challenge sent back would have us answer it.
        if challenge == Some(&asked.challenge) {
            return Err(AuthenticationFailure::Payload);
        }
        let shared = asked.half.shared(public).ok_or(AuthenticationFailure::Payload)?;
        let HostKeys { host, controller } = keys.ok_or(AuthenticationFailure::NoKey)?;
        let Parties { host: host_name, subsystem } = &self.parties;
        let proof = Proof {
            hash: asked.hash,
            shared: &shared,
            challenge: &asked.challenge,
            sequence: asked.sequence,
            transaction,
            prover: Prover::Host,
            names: (host_name, subsystem),
        };
        if !proof.verify(&host.transformed(host_name), response) {
            return Err(AuthenticationFailure::Response);
        }
        let own = match challenge {
            None => None,
            Some(challenge) => {
                let key = controller.as_ref().ok_or(AuthenticationFailure::NoKey)?.transformed(subsystem);
                let (prover, names) = (Prover::Controller, (subsystem, host_name));
                Some(Proof { challenge, sequence, prover, names, ..proof }.make(&key))
            }
        };
        let mut verdict = Verdict::Proven;
        if own.is_some() {
            (self.state, verdict) = (State::AwaitsSuccess2 { transaction }, Verdict::HostProven);
        }
        // A hash function's values have 64 bytes at most.
        let room = asked.hash.bytes() as u8;
        let success = Message::Success1 { transaction, room, response: own.as_deref() };
        Ok(Turn { say: Some(success.encode()), verdict })
    }
}
