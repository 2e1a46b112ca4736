//! Fused Compare and Write (Base 3.4.2, NVM 3.2.1 and 3.2.6): two commands that are next to each other in one queue become
//! one operation of the storage, or none.
//!
//! The first waits for what comes next in its queue. Both are then checked as if each were alone, and what is wrong with
//! one is the other's Failed Fused Command; so is what the storage says of a pair. They are answered in order.

use super::Target;
use super::commands::{Slot, Step};
use super::firsts::First;
use super::media::CommandKind;
use super::opcodes::{Arrival, fused};
use super::receive::Weighed;
use super::work::{Phase, Reply, Work, refused};
use crate::storage::Storage;
use crate::wire::{Fuse, Status, SubmissionQueueEntry, opcode};
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, Received};

/// In place of a partner that is not known yet.
const NO_PARTNER: u32 = u32::MAX;

/// What a command is of a fused operation. Of a fabrics command the bits mean nothing.
fn fuse_of(entry: &SubmissionQueueEntry) -> Fuse {
    if entry.opcode == opcode::FABRICS { Fuse::None } else { entry.fuse() }
}

/// The answer to a command that is not executed for its partner's sake.
fn failed_with_its_partner() -> Reply {
    Reply::of(Status::ABORTED_FAILED_FUSED)
}

impl<P: Port, S: Storage> Target<P, S> {
    /// A command that is fused, or that comes while the first of a pair waits in some queue.
    #[cold]
    pub(super) fn received_beside_fused(&mut self, arrival: &Arrival<'_>, received: Received) {
        let (connection, fuse) = (arrival.connection, fuse_of(arrival.entry));
        let is_offered = fuse != Fuse::None && self.offers_fused(arrival);
        match self.firsts.take(|first| first.connection == connection) {
            Some(first) if fuse == Fuse::Second && is_offered => return self.pair(first, arrival, received),
            Some(first) => self.answer_first(first, Status::ABORTED_MISSING_FUSED),
            None if fuse == Fuse::Second && is_offered => {
                return self.start(arrival, Err(Reply::of(Status::ABORTED_MISSING_FUSED)), None, received);
            }
            None => {}
        }
        if fuse == Fuse::First && is_offered && arrival.entry.opcode == opcode::COMPARE {
            return self.firsts.keep(First { connection, entry: *arrival.entry, received });
        }
        // What is fused and not offered is refused by its flags.
        self.received_alone(arrival, received);
    }

    /// The controller has Compare and Write.
    fn offers_fused(&self, arrival: &Arrival<'_>) -> bool {
        let subsystem = arrival.place().and_then(|place| self.controllers.get(place)?.subsystem());
        let Some(subsystem) = subsystem.and_then(|index| self.subsystems.get(index)) else { return false };
        !arrival.is_admin && fused::blocks_of_all(&self.options, &self.media, subsystem).is_some()
    }

    /// Both commands of a pair are there.
    fn pair(&mut self, first: First, arrival: &Arrival<'_>, received: Received) {
        let plain = first.entry.with_fuse(Fuse::None);
        let of_first = Arrival { entry: &plain, ..*arrival };
        let compare = self.weigh(&of_first, &first.received);
        let plain = arrival.entry.with_fuse(Fuse::None);
        let of_second = Arrival { entry: &plain, ..*arrival };
        let write = match plain.opcode {
            opcode::WRITE => self.weigh(&of_second, &received),
            _ => Err(refused(Status::INVALID_FIELD)),
        };
        let (compare, write) = match (compare, write) {
            (Ok(compare), Ok(write)) => match self.join(&compare.work, &write.work) {
                Ok((compares, writes)) => {
                    let (compare, write) = (Weighed { work: compares, ..compare }, Weighed { work: writes, ..write });
                    return self.begin_pair(arrival, (compare, first.received), (write, received));
                }
                Err(status) => (refused(status), refused(status)),
            },
            (Err(reply), Ok(_)) => (reply, failed_with_its_partner()),
            (Ok(_), Err(reply)) => (failed_with_its_partner(), reply),
            (Err(compare), Err(write)) => (compare, write),
        };
        self.start(&of_first, Err(compare), None, first.received);
        self.start(&of_second, Err(write), None, received);
    }

    /// The work of both, where they are about the same blocks, and about no more than the namespace can at once.
    fn join(&self, compare: &Work, write: &Work) -> Result<(Work, Work), Status> {
        let (&Work::Compare { namespace, lba, blocks }, &Work::Write { namespace: to, lba: at, blocks: written }) =
            (compare, write)
        else {
            return Err(Status::INTERNAL_ERROR);
        };
        if (namespace, lba, blocks) != (to, at, written) {
            return Err(Status::INVALID_FIELD);
        }
        let medium = self.media.get(namespace).ok_or(Status::INTERNAL_ERROR)?;
        let most = fused::blocks(&self.options, medium).ok_or(Status::INVALID_FIELD)?;
        let blocks = u16::try_from(blocks).ok().filter(|blocks| *blocks <= most);
        let blocks = blocks.ok_or(Status::ATOMIC_WRITE_UNIT_EXCEEDED)?;
        let partner = NO_PARTNER;
        Ok((
            Work::FusedCompare { namespace, lba, blocks, partner },
            Work::FusedWrite { namespace, lba, blocks, partner },
        ))
    }

    /// The second has its slot first, so that the first can name it; it waits there.
    fn begin_pair(
        &mut self,
        arrival: &Arrival<'_>,
        (compare, compared): (Weighed, Received),
        (write, written): (Weighed, Received),
    ) {
        let of_second = Arrival { entry: &write.entry, ..*arrival };
        let second = self.seat(&of_second, Ok((write.work, write.pointer)), write.scattered, written);
        let (Some(partner), Work::FusedCompare { namespace, lba, blocks, .. }) = (second, compare.work) else {
            return self.engine.release(compared);
        };
        let _ = self.commands.go(partner, Phase::Paired);
        let work = Work::FusedCompare { namespace, lba, blocks, partner };
        let of_first = Arrival { entry: &compare.entry, ..*arrival };
        self.start(&of_first, Ok((work, compare.pointer)), compare.scattered, compared);
    }

    /// The first one's data is in: now the second's.
    pub(super) fn step_fused_compare(&mut self, index: u32, second: u32) -> Step {
        if self.commands.hand_on(index, second) { Step::Pending } else { Step::Drop }
    }

    /// The storage is done with a pair: the first is answered, and when its answer is on its way the second.
    pub(super) fn step_fused_end(&mut self, index: u32) -> Step {
        let Some((slot, work)) = self.commands.get(index).map(|slot| (slot, slot.work())) else { return Step::Drop };
        let Work::FusedEnd { namespace, partner, compared, written } = work else { return Step::Drop };
        let (connection, found) = (slot.connection(), slot.found());
        let is_partner = |slot: &&Slot| {
            slot.connection() == connection
                && matches!(slot.work(), Work::FusedCompare { partner, .. } if partner == index)
        };
        let phase_of = |target: &Self| target.commands.get(partner).filter(is_partner).map(Slot::phase);
        if matches!(phase_of(self), Some(Phase::Paired)) {
            let now = self.clock.nanoseconds();
            for (status, kind) in [(compared, CommandKind::Other), (written, CommandKind::Write)] {
                if status.is_success() {
                    self.media.answered(namespace, kind, (found, now));
                }
            }
            self.commands.answer(partner, Reply::of(compared));
            self.go_on();
        }
        if matches!(phase_of(self), Some(Phase::Reply(_))) {
            // It found no room, and is in front of this one.
            return Step::Stall;
        }
        self.commands.go(index, Phase::Reply(Reply::of(written)))
    }

    /// A first command is answered, and not executed.
    fn answer_first(&mut self, first: First, status: Status) {
        let First { connection, entry, received } = first;
        let association = self.sessions.get(connection).and_then(|queue| queue.association());
        let arrival = Arrival { connection, entry: &entry, is_admin: false, association };
        self.start(&arrival, Err(Reply::of(status)), None, received);
    }

    /// A first command that waits is aborted; false where it is none.
    pub(super) fn withdraw_first(&mut self, connection: ConnectionId, command_id: u16) -> bool {
        let is_it = |first: &First| first.connection == connection && first.entry.command_id.get() == command_id;
        let Some(first) = self.firsts.take(is_it) else { return false };
        self.answer_first(first, Status::COMMAND_ABORT_REQUESTED);
        true
    }

    /// Those that wait in queues that take no commands any more, or are none: their second one does not come, or is refused because of the
    /// path. Then so are these.
    #[cold]
    pub(super) fn expire_firsts(&mut self) {
        while let Some(first) = self.firsts.take(|first| !self.sessions.is_open(first.connection)) {
            if self.sessions.is_draining(first.connection) {
                self.answer_first(first, Status::ANA_INACCESSIBLE);
            } else if self.sessions.is_queue(first.connection) {
                self.answer_first(first, Status::ABORTED_MISSING_FUSED);
            } else {
                self.engine.release(first.received);
            }
        }
    }
}
