//! Commands in flight: one slot each, from the capsule's arrival until the device is done with the response.

mod slot;
mod slots;

use super::incident::Fault;
use super::media::{Media, Pool};
use super::session::Sessions;
use super::statistics::TargetStatistics;
use super::work::{MAX_ABORTS, Phase, Reply, Work};
use crate::storage::{Storage, StorageError};
use crate::wire::Status;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, Engine, Received};
use frwr_mempool::mutant;
use slot::{Aborted, Answers};
pub(super) use slot::{Data, Slot, Step, listed};
use slots::Slots;
use std::collections::VecDeque;

/// Aborts that may look for their command in one iteration, since each looks at every slot of the core. As many as one
/// controller's Abort Command Limit: correct hosts time out now and then. Others are told that nothing was aborted.
const MAX_ABORT_SEARCHES: u8 = MAX_ABORTS;

/// What a command cannot do by itself.
pub(super) enum Next {
    /// Somebody else brings it on, or it has ended.
    Nothing,
    /// To be executed; what came of that is said by [`Commands::settle`].
    Execute,
    /// It was answered with this status, which is to be noted.
    Failed(Status),
    /// It was left by its connection to the controller in this place, and has ended.
    Orphan(Option<usize>),
    /// It is no command.
    Unknown,
}

/// The commands of one core.
#[derive(Debug)]
pub(super) struct Commands {
    slots: Slots,
    /// Commands that found no transfer slot or no place in the storage, or wait for what other cores are told; tried again
    /// by every poll, in order.
    stalled: VecDeque<u32>,
    /// Commands whose next step is known, which something else than themselves has said: mostly their answer.
    answered: VecDeque<u32>,
    /// Aborts that may still look for their command until the next poll.
    abort_searches: u8,
    answers: Answers,
    /// How commands ended and what they waited for; the other fields are zero.
    counted: TargetStatistics,
}

impl Commands {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            slots: Slots::new(slots),
            stalled: VecDeque::with_capacity(slots as usize),
            answered: VecDeque::with_capacity(slots as usize),
            abort_searches: MAX_ABORT_SEARCHES,
            answers: Answers::default(),
            counted: TargetStatistics::default(),
        }
    }

    /// A poll begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.abort_searches = MAX_ABORT_SEARCHES;
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.used() == 0
    }

    /// Commands that wait for a transfer slot, a place in their storage, or what other cores are told.
    pub(super) fn count_stalled(&self) -> u32 {
        // There are at most as many as slots.
        self.stalled.len() as u32
    }

    /// A new command; `None` where all slots are taken: what it holds would be lost then.
    #[inline(always)]
    pub(super) fn insert(&mut self, command: Slot) -> Option<u32> {
        self.slots.insert(command)
    }

    /// A command that was just made reads its data from its capsule, or by what that lists.
    #[inline]
    pub(super) fn keep(&mut self, index: u32, received: Received) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.keep(received);
        }
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index)
    }

    /// The slot of the command that a cookie names, unless it was used again since.
    #[inline]
    pub(super) fn index_of(&mut self, cookie: u64) -> Option<u32> {
        self.slots.index_of(cookie)
    }

    /// What names a command.
    pub(super) fn cookie(&self, index: u32) -> u64 {
        self.slots.cookie(index)
    }

    /// Takes a command as far as it goes by itself.
    #[inline(always)]
    pub(super) fn advance<P: Port, S: Storage>(
        &mut self,
        index: u32,
        engine: &mut Engine<P>,
        sessions: &mut Sessions,
        pool: &mut Pool,
        media: &mut Media<S>,
    ) -> Next {
        let Some((cookie, slot)) = self.slots.with_cookie(index) else { return Next::Nothing };
        match slot.advance(cookie, engine, sessions, pool, media, &mut self.answers) {
            Step::Pending => Next::Nothing,
            step => self.settle(index, step, engine, sessions, pool, media),
        }
    }

    /// A storage is done with what a cookie names, in a poll that began then: the command goes on, unless its connection is gone.
    #[inline]
    pub(super) fn stored<P: Port, S: Storage>(
        &mut self,
        (cookie, result, now): (u64, Result<(), StorageError>, u64),
        engine: &mut Engine<P>,
        sessions: &mut Sessions,
        pool: &mut Pool,
        media: &mut Media<S>,
    ) -> Next {
        let Some((index, slot)) = self.slots.named(cookie) else { return Next::Unknown };
        if let Some(left_to) = slot.left_to()
            && !mutant!(target_answers_gone)
        {
            self.end(index, engine, pool);
            return Next::Orphan(left_to);
        }
        match slot.stored((cookie, result, now), engine, sessions, pool, media, &mut self.answers) {
            Step::Pending => Next::Nothing,
            step => self.settle(index, step, engine, sessions, pool, media),
        }
    }

    /// What follows from a step that is none of the usual ones.
    #[inline(never)]
    pub(super) fn settle<P: Port, S: Storage>(
        &mut self,
        index: u32,
        step: Step,
        engine: &mut Engine<P>,
        sessions: &mut Sessions,
        pool: &mut Pool,
        media: &mut Media<S>,
    ) -> Next {
        match step {
            Step::Go => return self.advance(index, engine, sessions, pool, media),
            Step::Pending => {}
            Step::Execute => return Next::Execute,
            Step::WaitForBuffer => self.wait_for_buffer(index, pool),
            Step::Stall => {
                self.counted.stalls += 1;
                // K11: who found no room is not looked at again.
                if !mutant!(K11_target_stalled) {
                    self.stalled.push_back(index);
                }
            }
            Step::Drop => self.end(index, engine, pool),
            Step::Refused => {
                if let Some(connection) = self.slots.get(index).map(Slot::connection) {
                    sessions.protocol_error(connection, Fault::Transfer, engine);
                }
                self.end(index, engine, pool);
            }
            Step::Failed(status) => {
                self.counted.failed_commands += 1;
                return Next::Failed(status);
            }
        }
        Next::Nothing
    }

    /// The next step of a command is to be taken in this phase.
    pub(super) fn go(&mut self, index: u32, phase: Phase) -> Step {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.set_phase(phase);
        }
        Step::Go
    }

    /// It asks for something else from now on.
    pub(super) fn becomes(&mut self, index: u32, work: Work) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.set_work(work);
        }
    }

    /// Another core brings it on.
    pub(super) fn leave_to_another_core(&mut self, index: u32) -> Step {
        let _ = self.go(index, Phase::Elsewhere);
        Step::Pending
    }

    /// The first of a fused pair has its data: its partner goes on, with its buffer. False where there is none.
    pub(super) fn hand_on(&mut self, first: u32, second: u32) -> bool {
        let Some((slot, partner)) = self.slots.pair(first, second) else { return false };
        let goes_on = slot.hand_on(first, partner);
        if goes_on {
            self.answered.push_back(second);
        }
        goes_on
    }

    /// Somebody else has its answer.
    pub(super) fn answer(&mut self, index: u32, reply: Reply) {
        let _ = self.go(index, Phase::Reply(reply));
        self.answered.push_back(index);
    }

    /// An answer to a command that has no slot. There has to be room for one.
    pub(super) fn answer_without(&mut self, connection: ConnectionId, command_id: u16, reply: Reply) {
        // No storage has it, so that nobody asks when it came.
        let slot = Slot::new(connection, command_id, Work::Nothing, Data::None, 0).at(Phase::Reply(reply));
        if let Some(index) = self.slots.insert(slot) {
            self.answered.push_back(index);
        }
    }

    /// A command that has its answer by [`Commands::answer`], and goes on.
    #[inline]
    pub(super) fn next_answered(&mut self) -> Option<u32> {
        self.answered.pop_front()
    }

    /// RDMA READs ended. The command goes on, unless they failed.
    pub(super) fn fetched<P: Port>(
        &mut self,
        cookie: u64,
        done: bool,
        engine: &mut Engine<P>,
        pool: &mut Pool,
    ) -> Option<u32> {
        let (index, slot) = self.slots.named(cookie)?;
        // K5: data that did not arrive is taken for what did.
        if !done && !mutant!(K5_target_fetched) {
            self.end(index, engine, pool);
            return None;
        }
        slot.fetched();
        Some(index)
    }

    /// Frees a command's slot, and whatever it holds.
    #[inline]
    pub(super) fn end<P: Port>(&mut self, index: u32, engine: &mut Engine<P>, pool: &mut Pool) {
        self.slots.remove(index, |slot| slot.end(engine, pool));
    }

    /// The device is done with a response: the command's slot and buffer are free.
    #[inline]
    pub(super) fn responded<P: Port>(&mut self, cookie: u64, engine: &mut Engine<P>, pool: &mut Pool) {
        self.slots.remove_named(cookie, |slot| slot.end(engine, pool));
    }

    /// A command waits for its buffers behind all others of its part.
    #[cold]
    pub(super) fn wait_for_buffer(&mut self, index: u32, pool: &mut Pool) {
        if let Some(slot) = self.slots.get(index) {
            pool.wait(&slot.work(), index);
        }
    }

    /// Commands that wait for no buffer.
    #[inline]
    pub(super) fn stalled(&self) -> usize {
        self.stalled.len()
    }

    /// The first of them; it is none any more.
    pub(super) fn next_stalled(&mut self) -> Option<u32> {
        self.stalled.pop_front()
    }

    /// The command of a connection that was not answered yet, unless this iteration has looked for enough of them.
    pub(super) fn find(&mut self, connection: ConnectionId, command_id: u16) -> Option<u32> {
        self.abort_searches = self.abort_searches.checked_sub(1)?;
        let is_it =
            |slot: &Slot| slot.connection() == connection && slot.command_id() == command_id && slot.is_unanswered();
        self.slots.position(is_it)
    }

    /// Has a command end without being executed; false where it is too late for that. What is to be done for that at once is told
    /// by [`Commands::next_answered`].
    pub(super) fn abort<S: Storage>(&mut self, index: u32, pool: &mut Pool, media: &mut Media<S>) -> bool {
        let Some((cookie, slot)) = self.slots.with_cookie(index) else { return false };
        let (work, waited) = (slot.work(), matches!(slot.phase(), Phase::TakeBuffer));
        match slot.abort(|namespace| media.cancel(namespace, cookie)) {
            Aborted::No => return false,
            Aborted::Later => {}
            Aborted::Now => {
                if waited {
                    pool.leave(&work, index);
                }
                self.answered.push_back(index);
            }
        }
        self.counted.aborted_commands += 1;
        true
    }

    /// Has the commands of a namespace end that read or write its blocks, of connections that this is about: those that can be are
    /// aborted, the others have to be waited for, and so have those of which nobody knows (`None`), since their connections are gone.
    /// What names those that are left, for [`Commands::has_ended`].
    pub(super) fn end_all_of<S: Storage>(
        &mut self,
        place: usize,
        concerns: impl Fn(ConnectionId) -> Option<bool>,
        pool: &mut Pool,
        media: &mut Media<S>,
    ) -> Vec<u64> {
        let mut left = Vec::new();
        for index in 0..self.slots.count() {
            let Some(slot) = self.slots.get(index) else { continue };
            let is_of = slot.work().namespace() == Some(place) && slot.work().is_of_blocks();
            if !is_of || !slot.is_unanswered() {
                continue;
            }
            match concerns(slot.connection()) {
                Some(false) => continue,
                Some(true) if !slot.is_aborted() => _ = self.abort(index, pool, media),
                Some(true) | None => {}
            }
            let cookie = self.slots.cookie(index);
            if !self.has_ended(cookie) {
                left.push(cookie);
            }
        }
        left
    }

    /// A command has its answer, or is gone.
    pub(super) fn has_ended(&mut self, cookie: u64) -> bool {
        let index = self.slots.index_of(cookie);
        index.and_then(|index| self.slots.get(index)).is_none_or(|slot| !slot.is_unanswered())
    }

    /// A command of this namespace that was not answered, and of which `concerns` says so.
    pub(super) fn unanswered_of(&self, place: usize, concerns: impl Fn(&Work) -> bool) -> Option<&Slot> {
        let is_of = |slot: &&Slot| {
            let work = slot.work();
            work.namespace() == Some(place) && slot.is_unanswered() && concerns(&work)
        };
        self.slots.iter().find(is_of)
    }

    /// There are commands of a connection, or answers that the device has not reported as done.
    pub(super) fn has_of(&self, connection: ConnectionId) -> bool {
        self.slots.iter().any(|slot| slot.connection() == connection)
    }

    /// One of these that was not answered, whatever it is about.
    pub(super) fn unanswered(&self, wanted: impl Fn(&Slot) -> bool) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.is_unanswered() && wanted(slot))
    }

    /// Some command's answer needed nothing but itself, and is on its way.
    pub(super) fn has_plain_answers(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot.work(), Work::Nothing))
    }

    /// A connection is gone: commands of it that the storage has belong to a controller's place from now on. How many.
    pub(super) fn orphan(&mut self, connection: ConnectionId, place: Option<usize>) -> u32 {
        // There are at most 4096 controllers.
        let left_to = place.map(|place| place as u16);
        // S5: the end of a connection is also that of the former one in its place.
        let is_former = |of: ConnectionId| of.index == connection.index && mutant!(S5_target_queue);
        let of_it = |slot: &&mut Slot| slot.connection() == connection || is_former(slot.connection());
        let of_it = self.slots.iter_mut().filter(of_it);
        // Fewer than there are slots.
        of_it.map(|slot| u32::from(slot.leave_to(left_to))).sum()
    }

    /// Whether the storage has a command of any of these connections.
    pub(super) fn has_storing(&self, wanted: impl Fn(ConnectionId) -> bool) -> bool {
        self.slots.iter().any(|slot| slot.is_storing() && wanted(slot.connection()))
    }

    /// A connection is gone, and none of its commands waits any more for a buffer, or for what another core says.
    pub(super) fn end_waiting<P: Port>(&mut self, connection: ConnectionId, engine: &mut Engine<P>, pool: &mut Pool) {
        for index in 0..self.slots.count() {
            let Some(slot) = self.slots.get(index).filter(|slot| slot.connection() == connection) else { continue };
            match slot.phase() {
                Phase::TakeBuffer => pool.leave(&slot.work(), index),
                Phase::Elsewhere | Phase::Paired => {}
                _ => continue,
            }
            self.end(index, engine, pool);
        }
    }

    pub(super) fn statistics(&self) -> TargetStatistics {
        let (remote_invalidations, plain_responses) = self.answers.counts();
        let slots_used = self.slots.used() as u64;
        TargetStatistics { remote_invalidations, plain_responses, slots_used, ..self.counted }
    }
}
