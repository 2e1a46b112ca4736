//! Messages between the cores of one target ([`spread`](super::spread)), and what becomes of them.

use super::Target;
use super::advance::abort_reply;
use super::options::HOME_CORE;
use super::refusal::Refusal;
use super::session::{Connecting, Names};
use super::spread::{Claim, ControllerName, Direction, Guest, Settings, Spread, TargetMessage, ToHome, ToMember};
use super::work::{Reply, Work};
use crate::storage::Storage;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Port;

impl<P: Port, S: Storage> Target<P, S> {
    /// The next message for the target of another core, and that core's number. To be asked after every poll until there is
    /// none; a message that cannot be carried at once has to be kept, and no further one taken for that core.
    pub fn next_message(&mut self) -> Option<(u16, TargetMessage)> {
        let Self { spread, sessions, commands, late, .. } = self;
        match spread {
            Spread::Home(home) => {
                let (core, message) = home.next_message(&self.controllers, &mut self.subsystems)?;
                Some((core, TargetMessage(Direction::ToMember(message))))
            }
            Spread::Member(member) => {
                // Of a queue whose queue pair the device keeps nothing is awaited but what the storage has: other hosts go on.
                let has_ended = |place| {
                    let mut of_place = sessions.iter().filter(|queue| queue.ended_with() == Some(place));
                    let stores = |of: ConnectionId| commands.has_storing(|connection| connection == of);
                    late.orphans_of(place) == 0 && of_place.all(|queue| queue.is_kept() && !stores(queue.connection()))
                };
                let (now, counters) = (self.clock.now(), self.media.counters());
                let message = member.next_message(now, counters, &self.controllers, has_ended)?;
                Some((HOME_CORE, TargetMessage(Direction::ToHome(message))))
            }
        }
    }

    /// Takes a message that the target of core `from` gave for this one. Others than those change nothing.
    pub fn deliver(&mut self, from: u16, message: TargetMessage) {
        match (message.0, &self.spread) {
            (Direction::ToHome(message), Spread::Home(home)) => {
                if let Some(member) = usize::from(from).checked_sub(1).filter(|member| *member < home.members()) {
                    self.deliver_to_home(member, message);
                }
            }
            (Direction::ToMember(message), Spread::Member(_)) if from == HOME_CORE => self.deliver_to_member(message),
            _ => {}
        }
        self.go_on();
    }

    fn deliver_to_home(&mut self, member: usize, message: ToHome) {
        match message {
            ToHome::Judge { seat, claim } => return self.judge(member, seat, &claim),
            ToHome::Obeyed { taken } => return self.obeyed(member, taken),
            _ => {}
        }
        let Some(home) = self.spread.home_mut() else { return };
        match message {
            ToHome::Judge { .. } | ToHome::Obeyed { .. } => {}
            ToHome::QueueEnded { seat } => home.queue_ended(member, seat),
            // What a member says may be about a controller that is gone.
            ToHome::Failed { name, failed, skipped } => {
                if let Some(controller) = self.controllers.named(name.place.into(), name.id) {
                    controller.note_skipped(skipped);
                    controller.note(&failed);
                }
            }
            ToHome::Heard { name } => {
                if let Some(controller) = self.controllers.named(name.place.into(), name.id) {
                    controller.touch(self.clock.watched());
                }
            }
            ToHome::Counted(counters) => home.count(member, counters),
            ToHome::SettingsApplied { place, version } => home.settings_applied(member, place.into(), version),
            ToHome::QueuesEnded { place, count } => home.queues_ended(member, place.into(), count),
            ToHome::Aborted { cookie, place, aborted } => {
                home.abort_answered(member, place.into());
                if let Some(index) = self.commands.index_of(cookie) {
                    self.commands.answer(index, abort_reply(aborted));
                }
            }
        }
    }

    /// A Connect that arrived on a member.
    fn judge(&mut self, member: usize, seat: u16, claim: &Claim) {
        let found = self.find_controller(claim);
        let Some(home) = self.spread.home_mut() else { return };
        let guest = found.map(|place| Guest { place, queue_id: claim.queue_id });
        if let Err(refusal) = guest.and_then(|guest| home.admit(member, seat, guest, &self.controllers)) {
            home.refuse(member, seat, refusal);
        }
    }

    fn deliver_to_member(&mut self, message: ToMember) {
        match message {
            ToMember::Admitted { seat, name, settings } => self.admitted(seat, name, settings),
            ToMember::Refused { seat, refusal } => {
                if let Some((connection, index)) = self.asked(seat) {
                    self.refuse(connection, index, refusal);
                }
            }
            ToMember::EndQueues { name } => self.end_queues(name),
            ToMember::Settings { name, settings } => self.apply(name, settings),
            ToMember::Abort { cookie, place, queue_id, command_id } => {
                let aborted = self.withdraw(place.into(), queue_id, command_id);
                if let Some(member) = self.spread.member_mut() {
                    member.aborted(cookie, place, aborted);
                }
            }
            ToMember::State(told) => self.subsystems.follow(told),
            ToMember::Order(order) => {
                // What waits for the device is answered when that has spoken.
                if let Some(taken) = self.obey(order)
                    && let Some(member) = self.spread.member_mut()
                {
                    member.obeyed(taken);
                }
            }
            ToMember::Drain { name, id, within } => self.drain_here(name, id, within),
        }
    }

    /// Who asked, unless the connection has ended since.
    fn asked(&mut self, seat: u16) -> Option<(ConnectionId, u32)> {
        let (connection, cookie) = self.spread.member_mut()?.answered(seat)?;
        let index = self.commands.index_of(cookie)?;
        self.sessions.find(connection)?.connect(Connecting::No);
        Some((connection, index))
    }

    fn admitted(&mut self, seat: u16, name: ControllerName, settings: Settings) {
        let asked = self.asked(seat);
        let place = usize::from(name.place);
        let orphaned = asked.and_then(|_| self.late.refuse_beside_orphans(place).err());
        let seated = asked.filter(|_| orphaned.is_none()).and_then(|(connection, index)| {
            self.copy_controller(connection, index, name, settings)?;
            Some(index)
        });
        if let (Some(index), Some((connection, _))) = (seated, asked) {
            self.seated(connection);
            return self.commands.answer(index, Reply::result(self.connect_result(connection, name.id)));
        }
        if let Some(member) = self.spread.member_mut() {
            member.decline_seat(seat);
        }
        if let Some((connection, index)) = asked {
            // Or the subsystem was removed here while the home core was asked.
            self.refuse(connection, index, orphaned.unwrap_or(Refusal::NoSubsystem));
        }
    }

    /// A controller has its first queue here, or another one.
    fn copy_controller(
        &mut self,
        connection: ConnectionId,
        index: u32,
        name: ControllerName,
        settings: Settings,
    ) -> Option<()> {
        let (data, place) = (self.connect_data(index).ok()?, usize::from(name.place));
        let purpose = self.purpose(&data).ok()?;
        let Work::Connect(connect) = self.commands.get(index)?.work() else { return None };
        let member = self.spread.member_mut()?;
        let copy = self.controllers.copy(place, name.id, &data, purpose, self.clock.watched())?;
        copy.follow(settings.write_cache);
        member.knows(name);
        member.take_seat(connection);
        self.sessions.seat(connection, place, connect, copy.host());
        Some(())
    }

    fn refuse(&mut self, connection: ConnectionId, index: u32, refusal: Refusal) {
        let names = self.connect_data(index).map_or_else(|_| Names::default(), |data| Names::of(&data));
        let reply = self.refuse_connect(connection, names, refusal);
        self.commands.answer(index, reply);
    }

    fn end_queues(&mut self, name: ControllerName) {
        let place = usize::from(name.place);
        self.end_io_queues(place);
        self.controllers.end(place);
        if let Some(member) = self.spread.member_mut() {
            member.owe_end(place);
        }
    }

    fn apply(&mut self, name: ControllerName, settings: Settings) {
        let place = usize::from(name.place);
        if let Some(copy) = self.controllers.named(place, name.id) {
            copy.follow(settings.write_cache);
        }
        if let Some(member) = self.spread.member_mut() {
            member.applied(place, settings.version);
        }
    }
}
