//! Authentication Send and Authentication Receive (Base 6.1 and 6.2), and what follows from what they carry.

use super::Target;
use super::authentication::{Answer, News, Said};
use super::commands::{Slot, Step};
use super::incident::Fault;
use super::refusal::Refusal;
use super::session::Queue;
use super::work::{Phase, Reply, refused};
use crate::authentication::{AuthenticationFailure, Authenticator, Demand, MAX_MESSAGE_BYTES, Parties, Verdict};
use crate::storage::Storage;
use crate::wire::{AUTHENTICATION_REQUIRED, ConnectData, Status};
use frwr_engine::ConnectionId;
use frwr_engine::provider::Port;
use std::sync::Arc;

impl<P: Port, S: Storage> Target<P, S> {
    /// Says who proves hosts ([`Authenticator`]); all cores' targets share one. To be called before it listens. Without one no host has
    /// to prove itself.
    ///
    /// A host that has to does so on each of its queues, before anything else is executed there; the discovery service may be asked by
    /// everybody.
    pub fn authenticates(&mut self, authenticator: Arc<dyn Authenticator>) {
        self.authentications.set(authenticator);
        self.sessions.begin_to_authenticate();
    }

    /// Whether a host has to prove itself on a queue that it connects; `None` where that is to be asked again.
    pub(super) fn has_to_prove(&self, data: &ConnectData) -> Option<Result<bool, Refusal>> {
        Some(match self.authentications.demand(data.host.as_ref(), &data.subsystem)? {
            Demand::None => Ok(false),
            Demand::Proof => Ok(true),
            Demand::Unknown => Err(Refusal::NoKey { is_named: data.host.is_some() }),
        })
    }

    /// A connection has become a queue, which may have to be authenticated.
    pub(super) fn seated(&mut self, connection: ConnectionId) {
        if self.sessions.get(connection).is_some_and(Queue::is_locked) {
            let by = self.clock.watched().saturating_add(self.options.connect_timeout);
            self.authentications.demanded(connection, by);
            self.clock.look_by(Some(by));
        }
    }

    /// The result of a Connect that succeeded.
    pub(super) fn connect_result(&self, connection: ConnectionId, controller_id: u16) -> u64 {
        let is_locked = self.sessions.get(connection).is_some_and(Queue::is_locked);
        u64::from(controller_id) | if is_locked { AUTHENTICATION_REQUIRED } else { 0 }
    }

    /// Authentication Send: its message has arrived.
    pub(super) fn step_authentication_send(&mut self, index: u32, length: u32) -> Step {
        let reply = match self.take_message(index, length) {
            Ok(()) => Reply::result(0),
            Err(status) => refused(status),
        };
        self.commands.go(index, Phase::Reply(reply))
    }

    fn take_message(&mut self, index: u32, length: u32) -> Result<(), Status> {
        let slot = self.commands.get(index).ok_or(Status::INTERNAL_ERROR)?;
        let (connection, buffer) = (slot.connection(), slot.buffer().ok_or(Status::INTERNAL_ERROR)?);
        let parties = self.parties(connection).ok_or(Status::INVALID_COMMAND_OPCODE)?;
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        let message = bytes.get_mut(..length as usize).ok_or(Status::INVALID_FIELD)?;
        self.pool.buffers().read(buffer, 0, message).map_err(|_| Status::INTERNAL_ERROR)?;
        let by = self.clock.watched().saturating_add(self.options.connect_timeout);
        self.authentications.told(connection, parties, message, by)?;
        self.clock.look_by(self.authentications.next_check());
        Ok(())
    }

    /// Who may be authenticated on a queue: hosts with a name, for what is no discovery service.
    fn parties(&self, connection: ConnectionId) -> Option<Parties> {
        let queue = self.sessions.get(connection)?;
        let subsystem = self.controllers.get(queue.association()?.controller)?.subsystem()?;
        Some(Parties { host: queue.host()?, subsystem: *self.subsystems.get(subsystem)?.name() })
    }

    /// Authentication Receive: what is there is said, what is not yet is awaited.
    pub(super) fn step_authentication_receive(&mut self, index: u32, length: u32) -> Step {
        let Some(connection) = self.commands.get(index).map(Slot::connection) else { return Step::Drop };
        match self.authentications.asked(connection, self.commands.cookie(index), length as usize) {
            Answer::Said(said) => {
                let reply = self.say(index, &said, length);
                self.commands.go(index, Phase::Reply(reply))
            }
            Answer::Later => self.commands.leave_to_another_core(index),
            Answer::Refused(status) => self.commands.go(index, Phase::Reply(refused(status))),
        }
    }

    /// Puts a message into a command's buffer, of which so many bytes are for it, and draws the conclusion from it.
    fn say(&mut self, index: u32, said: &Said, length: u32) -> Reply {
        let Some(slot) = self.commands.get(index) else { return refused(Status::INTERNAL_ERROR) };
        let (connection, buffers) = (slot.connection(), self.pool.buffers());
        let Some(buffer) = slot.answer_buffer() else { return refused(Status::INTERNAL_ERROR) };
        let cleared = buffers.clear(buffer, length as usize);
        if cleared.and_then(|()| buffers.write(buffer, 0, &said.message)).is_err() {
            return refused(Status::INTERNAL_ERROR);
        }
        if matches!(said.verdict, Verdict::HostProven | Verdict::Proven) {
            self.sessions.unlock(connection);
            self.authentications.count_proven();
        }
        Reply::data()
    }

    /// Takes what was judged since the last poll.
    #[cold]
    pub(super) fn advance_authentications(&mut self) {
        while let Some(news) = self.authentications.next(self.clock.watched()) {
            match news {
                News::Answers(connection, cookie) => self.answer_asker(connection, cookie),
                News::Failed { connection, why, ends } => {
                    self.not_believed(connection, why);
                    match self.authentications.asks_why(connection) {
                        Some(cookie) if !ends => self.answer_asker(connection, cookie),
                        _ if ends => self.engine.disconnect(connection),
                        _ => {}
                    }
                }
            }
            self.go_on();
        }
        self.clock.look_by(self.authentications.next_check());
    }

    fn not_believed(&mut self, connection: ConnectionId, why: AuthenticationFailure) {
        self.sessions.lock(connection);
        self.authentications.count_failed(why);
        self.sessions.note(connection, Fault::Authentication(why));
    }

    /// The command that asked is answered, also where there turned out to be nothing to be said.
    fn answer_asker(&mut self, connection: ConnectionId, cookie: u64) {
        let Some(index) = self.commands.index_of(cookie) else { return };
        let Some(length) = self.commands.get(index).and_then(|slot| slot.work().message_room()) else { return };
        let reply = match self.authentications.asked(connection, cookie, length as usize) {
            Answer::Said(said) => self.say(index, &said, length),
            Answer::Refused(status) => refused(status),
            Answer::Later => return,
        };
        self.commands.answer(index, reply);
    }

    /// Ends connections whose hosts did not prove themselves in time, or were told that they are not believed.
    pub(super) fn expire_authentications(&mut self) {
        while let Some((connection, is_told)) = self.authentications.next_expired(self.clock.watched()) {
            if !is_told {
                self.authentications.count_failed(AuthenticationFailure::Late);
                self.sessions.note(connection, Fault::Authentication(AuthenticationFailure::Late));
            }
            self.engine.disconnect(connection);
        }
        self.clock.look_by(self.authentications.next_check());
    }
}
