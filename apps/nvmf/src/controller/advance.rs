//! The life of a command: as far as it goes by itself, and what it needs of the rest of the target.

use super::Target;
use super::commands::{Next, Slot, Step};
use super::controllers::{ConfigurationEffect, Controller};
use super::opcodes::identify::Identified;
use super::opcodes::log::Pages;
use super::opcodes::{admin_effects, io_effects, optional_commands};
use super::session::Queue;
use super::work::{FailedCommand, Part, Phase, Reply, Work, refused};
use crate::storage::{Cookie, Storage, StorageError};
use crate::wire::{self, ADMIN_QUEUE, Abort, ControllerCapabilities, ControllerConfiguration, Property, Status};
use frwr_engine::provider::Port;

/// CAP.TO in units of 500 ms: this controller is ready at once, but a host may be slow to see it.
const READY_TIMEOUT_UNITS: u8 = 15;
/// Dword 0 of an Abort's completion: the command was not aborted (Base 5.1.1).
const NOT_ABORTED: u64 = 1;

/// The answer to an Abort.
pub(super) fn abort_reply(aborted: bool) -> Reply {
    Reply::result(if aborted { 0 } else { NOT_ABORTED })
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Takes a command as far as it goes now, which has just arrived.
    #[inline(always)]
    pub(super) fn first_steps(&mut self, index: u32) {
        let Self { engine, sessions, pool, media, .. } = self;
        match self.commands.advance(index, engine, sessions, pool, media) {
            Next::Nothing => {}
            next => self.help(index, next),
        }
    }

    /// The same of one that waited.
    pub(super) fn advance(&mut self, index: u32) {
        let next = self.settle(index, Step::Go);
        self.help(index, next);
    }

    fn settle(&mut self, index: u32, step: Step) -> Next {
        let Self { engine, sessions, pool, media, .. } = self;
        self.commands.settle(index, step, engine, sessions, pool, media)
    }

    /// What a command cannot do by itself.
    #[inline(never)]
    fn help(&mut self, index: u32, mut next: Next) {
        loop {
            next = match next {
                Next::Nothing | Next::Orphan(_) | Next::Unknown => return,
                Next::Execute => {
                    let step = self.execute(index);
                    // Who is answered by what was executed is so first.
                    self.go_on();
                    self.settle(index, step)
                }
                Next::Failed(status) => return self.note_failed(index, status),
            }
        }
    }

    /// Takes commands on that something else than themselves has answered.
    pub(super) fn go_on(&mut self) {
        while let Some(index) = self.commands.next_answered() {
            self.advance(index);
        }
    }

    /// Notes in the error log and of its namespace that a command was answered with a status which is no success.
    #[cold]
    fn note_failed(&mut self, index: u32, status: Status) {
        let Some(slot) = self.commands.get(index) else { return };
        let Some(queue) = self.sessions.get(slot.connection()) else { return };
        let Some(association) = queue.association() else { return };
        if !queue.is_admin()
            && let Some(place) =
                slot.work().namespace().or_else(|| self.listed(association.controller, slot.namespace()))
        {
            self.media.refused(place, status);
        }
        let failed = FailedCommand {
            queue_id: queue.id(),
            command_id: slot.command_id(),
            status: status.to_wire(),
            lba: slot.work().lba(),
            namespace: slot.namespace(),
        };
        if !self.spread.note_elsewhere(association.controller, &failed) {
            self.controllers.note(association.controller, &failed);
        }
    }

    /// The place of the storage of a namespace of that controller's subsystem, whether it takes commands or not.
    fn listed(&self, controller: usize, identifier: u32) -> Option<usize> {
        let subsystem = self.controllers.get(controller)?.subsystem()?;
        self.subsystems.get(subsystem)?.namespaces().listed(identifier).ok()
    }

    /// What no storage does.
    fn execute(&mut self, index: u32) -> Step {
        let Some(slot) = self.commands.get(index) else { return Step::Drop };
        let reply = match slot.work() {
            Work::Connect(connect) => return self.step_connect(index, connect),
            Work::AuthenticationSend { length } => return self.step_authentication_send(index, length),
            Work::AuthenticationReceive { length } => return self.step_authentication_receive(index, length),
            Work::FusedCompare { partner, .. } => return self.step_fused_compare(index, partner),
            Work::FusedEnd { .. } => return self.step_fused_end(index),
            Work::Abort { controller, abort } => return self.step_abort(index, controller, abort),
            // A host may rely on a feature once all cores go by it. Every poll looks again, so that no answer of a member leads to a
            // search for the commands that wait for it.
            Work::SettingsEverywhere { controller, version } if self.spread.is_any_behind(controller, version) => {
                return Step::Stall;
            }
            Work::SettingsEverywhere { .. } => Reply::result(0),
            Work::Reserve { namespace, request } => return self.step_reserve(index, namespace, request),
            Work::Persistence { namespace, persists } => return self.step_persistence(index, namespace, persists),
            Work::ReservationSettles { settling, .. } => return self.step_settle(index, settling),
            Work::ReservationReport { namespace, length } => return self.step_report(index, namespace, length),
            Work::PropertyGet { controller, property } => self.property_get(controller, property),
            Work::Configure { controller, configuration } => self.configure(controller, configuration),
            Work::Identify { structure, namespace } => self.execute_identify(slot, structure, namespace),
            Work::LogPage(get) => self.execute_log_page(index, get),
            Work::HostIdentifier => self.execute_host_identifier(slot),
            // The rest is for media.
            _ => Reply::of(Status::INTERNAL_ERROR),
        };
        self.commands.go(index, Phase::Reply(reply))
    }

    /// The controller whose queue brought a command.
    pub(super) fn controller_of(&self, slot: &Slot) -> Option<(usize, &Controller)> {
        let place = self.sessions.get(slot.connection())?.association()?.controller;
        Some((place, self.controllers.get(place)?))
    }

    /// Writes the structure into the command's buffer.
    fn execute_identify(&self, slot: &Slot, structure: u8, namespace: u32) -> Reply {
        let (Some((_, controller)), Some(buffer)) = (self.controller_of(slot), slot.answer_buffer()) else {
            return refused(Status::INTERNAL_ERROR);
        };
        let Self { options, subsystems, media, .. } = self;
        let optional_commands = optional_commands::<P, S>(controller, subsystems, media);
        let identified = Identified { options, controller, subsystems, media, optional_commands };
        written(identified.write(structure, namespace, self.pool.buffers(), buffer))
    }

    /// The host's identifier, as Connect said it.
    fn execute_host_identifier(&self, slot: &Slot) -> Reply {
        let (Some((_, controller)), Some(buffer)) = (self.controller_of(slot), slot.answer_buffer()) else {
            return refused(Status::INTERNAL_ERROR);
        };
        written(self.pool.buffers().write(buffer, 0, &controller.host_id()).is_ok())
    }

    /// Fills the command's buffer.
    fn execute_log_page(&mut self, index: u32, get: Part) -> Reply {
        let Some(slot) = self.commands.get(index) else { return refused(Status::INTERNAL_ERROR) };
        let (Some((place, controller)), Some(buffer)) = (self.controller_of(slot), slot.answer_buffer()) else {
            return refused(Status::INTERNAL_ERROR);
        };
        let pages = Pages {
            controller,
            subsystems: &self.subsystems,
            admin_effects: &admin_effects::<P, S>(),
            io_effects: &io_effects::<P, S>(controller, &self.subsystems, &self.media),
            counted: self.spread.counted(self.media.counters()),
            reserves: self.media.reserves(),
            listeners: self.sessions.listeners(),
            local: self.sessions.local_of(controller),
            now: self.clock.now(),
        };
        let fits = pages.write(&get, self.pool.buffers(), buffer);
        self.controllers.page_read(place, &get, &mut self.commands);
        written(fits)
    }

    /// Property Get (Base 6.4).
    fn property_get(&mut self, place: usize, property: Property) -> Reply {
        let is_resetting = self.controllers.get(place).is_some_and(Controller::is_resetting);
        let settled = is_resetting && !self.late.has_late_commands(place, self.whereabouts());
        let Some(controller) = self.controllers.get_mut(place) else { return refused(Status::INTERNAL_ERROR) };
        if settled {
            controller.reset_is_complete();
        }
        Reply::result(match property {
            Property::Capabilities => ControllerCapabilities::new(self.options.queue_entries, READY_TIMEOUT_UNITS).0,
            Property::Version => wire::VERSION.into(),
            Property::Configuration => controller.configuration().0.into(),
            Property::Status => controller.status().0.into(),
        })
    }

    /// Property Set of CC (Base 6.5).
    fn configure(&mut self, place: usize, configuration: u32) -> Reply {
        let Some(controller) = self.controllers.get_mut(place) else { return refused(Status::INTERNAL_ERROR) };
        let effect = controller.configure(ControllerConfiguration(configuration));
        let shuts_down = controller.begins_shutdown();
        if effect == ConfigurationEffect::Reset {
            // The reset ends event requests without an answer (Base 3.7.2), and their entries are free.
            let (waited, admin) = (controller.events().reset(), controller.admin());
            for (command_id, admin) in waited.into_iter().filter_map(|waited| Some((waited, admin?))) {
                self.sessions.forget_command(admin, command_id);
            }
            self.end_io_queues(place);
        }
        if shuts_down {
            self.controllers.shut_down(place, &self.subsystems, &mut self.media);
        }
        Reply::result(0)
    }

    /// Abort, of whatever core's command.
    fn step_abort(&mut self, index: u32, place: usize, abort: Abort) -> Step {
        let Abort { queue_id, command_id } = abort;
        let controller = self.controllers.get_mut(place).filter(|_| queue_id == ADMIN_QUEUE);
        if let Some(controller) = controller
            && controller.events().withdraw(command_id)
        {
            if let Some(admin) = controller.admin() {
                self.commands.answer_without(admin, command_id, Reply::of(Status::COMMAND_ABORT_REQUESTED));
            }
            return self.commands.go(index, Phase::Reply(abort_reply(true)));
        }
        // It is asked whoever has the queue.
        if let Some(member) = self.spread.member_of(place, queue_id)
            && let Some(home) = self.spread.home_mut()
        {
            let cookie = self.commands.cookie(index);
            if home.ask_abort(member, place, cookie, abort) {
                return self.commands.leave_to_another_core(index);
            }
            return self.commands.go(index, Phase::Reply(Reply::of(Status::ABORT_COMMAND_LIMIT_EXCEEDED)));
        }
        let aborted = self.withdraw(place, queue_id, command_id);
        self.commands.go(index, Phase::Reply(abort_reply(aborted)))
    }

    /// Aborts a command of a queue on this core. False where there is none, it is too late for that, or this iteration has
    /// looked for enough of them.
    pub(super) fn withdraw(&mut self, place: usize, queue_id: u16, command_id: u16) -> bool {
        let Some(connection) = self.sessions.queue_of(place, queue_id).map(Queue::connection) else { return false };
        if self.withdraw_first(connection, command_id) {
            return true;
        }
        let found = self.commands.find(connection, command_id);
        found.is_some_and(|index| self.commands.abort(index, &mut self.pool, &mut self.media))
    }

    /// Takes completions of all storages.
    pub(super) fn poll_storage(&mut self) -> u32 {
        let mut work = 0;
        for namespace in 0..self.media.len() {
            let completions = self.media.poll(namespace, self.clock.now());
            if completions == 0 {
                continue;
            }
            let now = self.clock.nanoseconds();
            // One by one, because an answer needs all of the target; answers leave the completions alone.
            for at in 0..completions {
                let completion = self.media.completion(at);
                self.stored(completion.cookie, completion.result, now);
            }
            // A batch is small.
            work += completions as u32;
        }
        work
    }

    #[inline]
    fn stored(&mut self, cookie: Cookie, result: Result<(), StorageError>, now: u64) {
        let Self { engine, sessions, pool, media, .. } = self;
        match self.commands.stored((cookie.0, result, now), engine, sessions, pool, media) {
            Next::Nothing => {}
            Next::Unknown => self.committed(cookie, result),
            Next::Orphan(place) => self.late.orphan_is_done(place),
            next => {
                if let Some(index) = self.commands.index_of(cookie.0) {
                    self.help(index, next);
                }
            }
        }
    }

    /// A storage has completed something that no command waits for.
    #[cold]
    fn committed(&mut self, cookie: Cookie, result: Result<(), StorageError>) {
        if let Some(committed) = self.media.committed(cookie, result) {
            self.controllers.committed(&committed, &self.subsystems, &self.media);
        }
    }

    /// Commands that waited: first those that hold a buffer already, then those that want one, each in order.
    pub(super) fn serve_waiting(&mut self) {
        for _ in 0..self.commands.stalled() {
            let Some(index) = self.commands.next_stalled() else { break };
            self.advance(index);
        }
        if self.pool.is_awaited() {
            self.serve_waiting_for_buffers();
        }
    }

    /// One command of each part in turn, until no part has room for its next one. In a part they go in order: one that needs two
    /// buffers is not overtaken for ever by those that need one.
    #[cold]
    fn serve_waiting_for_buffers(&mut self) {
        let mut without_room = 0;
        while without_room < self.pool.turns()
            && let Some((part, first)) = self.pool.next_turn()
        {
            let Some(index) = first else { continue };
            let work = self.commands.get(index).map_or(Work::Nothing, Slot::work);
            if self.pool.lets_in(part, index, &work) {
                without_room = 0;
                self.advance(index);
            } else {
                without_room += 1;
            }
            self.pool.queue_turn(part);
        }
    }
}

/// The answer with what was written into a command's buffer.
fn written(fits: bool) -> Reply {
    if fits { Reply::data() } else { refused(Status::INTERNAL_ERROR) }
}
