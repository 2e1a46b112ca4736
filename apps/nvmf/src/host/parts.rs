//! From requests to commands: cut (`cut`), submitted to the queue with the least in flight, and put together again.

use super::cut::{Cut, Fit, Location, slice};
use super::request::{IoError, Kind};
use super::timeouts::Abortion;
use super::transport::Outgoing;
use super::{Host, State};
use crate::wire::{
    BlockRange, Command, CompletionQueueEntry, DataPointer, DatasetManagement, KeyedDataBlock, Status, WriteZeroes,
};
use core::time::Duration;
use frwr_engine::gather::Segment;
use frwr_engine::provider::{Access, Port};
use frwr_engine::{Chunk, ConnectionId, SubmitError};
use frwr_mempool::mutant;

/// A command of a request, from the moment it was cut until it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) request: u16,
    /// First block, counted from the request's.
    pub(super) first: u32,
    pub(super) blocks: u32,
    /// Blocks behind them that follow in the same slot: the command was cut in a session with higher limits.
    pub(super) rest: u32,
    /// Keys that it takes.
    pub(super) keys: u8,
    pub(super) bounce: Option<u16>,
    /// The session, counted from 1, by whose limits it was cut; 0 for a rest that was not cut yet.
    pub(super) cut_in: u64,
    /// The queue that it was submitted to.
    pub(super) queue: u16,
    /// When it is to be aborted, or given up if it was, in watched time. `None` for never.
    pub(super) deadline: Option<Duration>,
    pub(super) abortion: Abortion,
    /// It was lost with a connection, and was not sent again yet.
    lost: bool,
    /// How often it was, and what that counts.
    pub(super) losses: u32,
    pub(super) blame: u16,
    /// How often the controller refused it with a status that lets it be sent again.
    pub(super) refusals: u16,
}

/// What became of an attempt to submit.
enum Attempt {
    Done,
    /// When a bounce buffer is free, which a command or request behind it may hold.
    NoBuffer,
    /// Later.
    NoRoom,
}

/// Commands, and requests, that one poll passes over because they lack a bounce buffer: the holder of one may stand behind
/// them, and is found in as many polls as it takes.
const MAX_PASSED_OVER: usize = 16;

impl<P: Port> Host<P> {
    /// Hands commands to the engine while there is a session and room.
    pub(super) fn submit_queued(&mut self) {
        if self.state != State::Ready || !self.ana.is_accessible() {
            return;
        }
        for suspects in [false, true] {
            if !self.submit_again(suspects) {
                return;
            }
        }
        self.submit_new();
    }

    /// Submits commands that wait; false where there is no room for more. Of suspects one is in flight at a time: requests that no command
    /// was made of yet overtake the others.
    fn submit_again(&mut self, suspects: bool) -> bool {
        let mut passed_over = 0;
        while let Some(&slot) = self.resend.line(suspects).front()
            && !(suspects && self.suspect.is_some())
        {
            if let Some(error) = self.given_up(slot) {
                self.resend.line(suspects).pop_front();
                self.command_ended(slot, Err(error));
                continue;
            }
            match self.fit_again(slot) {
                Fit::Fits => {}
                Fit::Ended => continue,
                Fit::NoBuffer if passed_over < MAX_PASSED_OVER.min(self.resend.line(suspects).len()) => {
                    passed_over += 1;
                    self.resend.line(suspects).rotate_left(1);
                    continue;
                }
                // The holder may also be in the other line, or a request that no command was made of yet.
                Fit::NoBuffer => break,
                Fit::NoRoom => return false,
            }
            if matches!(self.submit_command(slot), Attempt::NoRoom) {
                return false;
            }
            self.resend.line(suspects).pop_front();
        }
        true
    }

    /// Cuts requests that were not sent yet.
    fn submit_new(&mut self) {
        let mut passed_over = 0;
        while let Some(&index) = self.queued.front() {
            let attempt = self.cut_next(index);
            // A command that was refused may have ended its request.
            if self.queued.front() == Some(&index) && self.request_is_whole(index) {
                self.queued.pop_front();
                self.finish_if_ended(index);
            }
            match attempt {
                Attempt::Done => {}
                Attempt::NoBuffer if passed_over < MAX_PASSED_OVER.min(self.queued.len()) => {
                    passed_over += 1;
                    self.queued.rotate_left(1);
                }
                Attempt::NoBuffer | Attempt::NoRoom => return,
            }
        }
    }

    fn request_is_whole(&self, index: u16) -> bool {
        self.requests.get(usize::from(index)).and_then(Option::as_ref).is_none_or(|request| request.whole)
    }

    /// The queue with the least in flight, if one has room.
    pub(super) fn roomiest_queue(&self) -> Option<(u16, ConnectionId)> {
        let open = self.connections.io.iter().zip(&self.in_flight).zip(0..);
        let open = open.filter_map(|((connection, in_flight), queue)| Some((*in_flight, queue, (*connection)?)));
        let (in_flight, queue, connection) = open.min_by_key(|(in_flight, ..)| *in_flight)?;
        (in_flight < self.context.options.queue_depth).then_some((queue, connection))
    }

    /// Makes and submits the next command of a request.
    fn cut_next(&mut self, index: u16) -> Attempt {
        let Some((queue, connection)) = self.roomiest_queue() else { return Attempt::NoRoom };
        let Some(&slot) = self.free_slots.last() else { return Attempt::NoRoom };
        let Some(Some(request)) = self.requests.get(usize::from(index)) else { return Attempt::Done };
        if request.whole {
            return Attempt::Done;
        }
        let (first, rest) = (request.cut, request.blocks - request.cut);
        let (blocks, keys, bounce) = match self.cut(index, first, rest, connection) {
            Cut::Blocks { blocks, keys } => (blocks, keys, None),
            Cut::Bounced { blocks, buffer } => (blocks, 1, Some(buffer)),
            Cut::NoBuffer => return Attempt::NoBuffer,
            Cut::NoRoom => return Attempt::NoRoom,
            Cut::Impossible(error) => {
                if let Some(Some(request)) = self.requests.get_mut(usize::from(index)) {
                    request.result = request.result.and(Err(error));
                    request.whole = true;
                }
                return Attempt::Done;
            }
        };
        let Some(Some(request)) = self.requests.get_mut(usize::from(index)) else { return Attempt::Done };
        request.cut += blocks;
        request.whole = request.cut == request.blocks;
        request.outstanding += 1;
        request.commands += 1;
        let part = Part {
            request: index,
            first,
            blocks,
            rest: 0,
            keys,
            bounce,
            cut_in: self.statistics.sessions,
            queue,
            deadline: None,
            abortion: Abortion::None,
            lost: false,
            losses: 0,
            blame: 0,
            refusals: 0,
        };
        self.free_slots.pop();
        if let Some(place) = self.parts.get_mut(usize::from(slot)) {
            *place = Some(part);
        }
        if bounce.is_some() {
            self.statistics.bounced_commands += 1;
            self.copy_bounced(slot, true);
        }
        if matches!(self.submit_command(slot), Attempt::NoRoom) {
            self.send_again(slot);
            return Attempt::NoRoom;
        }
        Attempt::Done
    }

    pub(super) fn fits_capsule(&self, kind: Kind, location: &[Segment], bytes: u32) -> bool {
        self.context.options.in_capsule_data
            && matches!(kind, Kind::Write { .. } | Kind::Deallocate { .. })
            && location.len() == 1
            && u64::from(bytes) <= self.controller.in_capsule_bytes
    }

    /// Where a command's data lies, and its bytes.
    fn location(&self, part: &Part) -> Option<(Location, u32)> {
        let request = self.requests.get(usize::from(part.request))?.as_ref()?;
        let block = self.geometry?.block_bytes();
        let one = |segment| core::iter::once(segment).collect();
        // What moves data has MAX_REQUEST_BYTES at most; zeroes may be written to more blocks than 32 bits count bytes.
        let bytes = match request.kind {
            Kind::Read { .. } | Kind::Write { .. } | Kind::Compare => part.blocks * block,
            Kind::Deallocate { ranges, .. } => ranges * crate::wire::DATASET_RANGE_BYTES as u32,
            Kind::Flush | Kind::WriteZeroes { .. } => 0,
        };
        let location = match (request.kind, part.bounce) {
            (Kind::Flush | Kind::WriteZeroes { .. }, _) => Location::new(),
            (Kind::Deallocate { bounce, .. }, _) | (_, Some(bounce)) => one(self.bounce.segment(bounce, bytes)),
            (_, None) => slice(&request.segments, u64::from(part.first) * u64::from(block), bytes),
        };
        Some((location, bytes))
    }

    fn submit_command(&mut self, slot: u16) -> Attempt {
        let Some((queue, connection)) = self.roomiest_queue() else { return Attempt::NoRoom };
        match self.submit_on(slot, queue, connection) {
            Ok(()) => {}
            Err(SubmitError::NoSlot | SubmitError::NotConnected) => return Attempt::NoRoom,
            Err(SubmitError::Unannounced) => self.command_ended(slot, Err(IoError::TooManyKeys)),
            Err(error) => self.command_ended(slot, Err(IoError::Submit(error))),
        }
        Attempt::Done
    }

    fn submit_on(&mut self, slot: u16, queue: u16, connection: ConnectionId) -> Result<(), SubmitError> {
        let Some(&Some(part)) = self.parts.get(usize::from(slot)) else { return Ok(()) };
        let Some(Some(request)) = self.requests.get(usize::from(part.request)) else { return Ok(()) };
        let (kind, lba) = (request.kind, request.lba + u64::from(part.first));
        let Some((location, bytes)) = self.location(&part) else { return Ok(()) };
        let in_capsule = self.fits_capsule(kind, &location, bytes);
        let opens_memory = bytes > 0 && !in_capsule;
        let keys = if opens_memory { part.keys } else { 0 };
        // Of several keys a controller could invalidate one, but SPDK's refuses a list that asks for it.
        let invite = keys == 1
            && self.context.options.remote_invalidation
            && self.context.transport.engine().capabilities().remote_invalidation;
        let data = if in_capsule {
            DataPointer::InCapsule { offset: 0, length: bytes }
        } else {
            // The engine asks for address and key to be filled in when it knows them.
            DataPointer::Keyed(KeyedDataBlock { address: 0, length: bytes, key: 0, invalidate: invite })
        };
        let namespace = self.context.options.namespace;
        let range = BlockRange { namespace, lba, blocks: part.blocks, data };
        let (command, access) = match kind {
            // Mutant: more rights than the command needs.
            Kind::Read { .. } if mutant!(host_rights) => (Command::Read(range), Access::RemoteReadWrite),
            Kind::Read { .. } => (Command::Read(range), Access::RemoteWrite),
            Kind::Write { .. } => (Command::Write(range), Access::RemoteRead),
            Kind::Compare => (Command::Compare(range), Access::RemoteRead),
            Kind::Flush => (Command::Flush { namespace }, Access::RemoteRead),
            Kind::WriteZeroes { deallocate } => {
                let deallocate = deallocate && self.controller.zeroes_deallocate;
                let zeroes = WriteZeroes { namespace, lba, blocks: part.blocks, deallocate };
                (Command::WriteZeroes(zeroes), Access::RemoteRead)
            }
            Kind::Deallocate { ranges, .. } => {
                let ranges = DatasetManagement { namespace, ranges, deallocate: true, data };
                (Command::DatasetManagement(ranges), Access::RemoteRead)
            }
        };
        let segments = location.as_slice();
        let chunk = [Chunk { access, segments }];
        let outgoing = Outgoing {
            command,
            force_unit_access: kind.forces_unit_access(),
            keys,
            invite,
            inline: if in_capsule { segments } else { &[] },
            chunks: if opens_memory { &chunk } else { &[] },
        };
        self.context.transport.submit(connection, slot, &outgoing)?;
        let timeout = self.context.options.command_timeout;
        let deadline = (!timeout.is_zero()).then(|| self.context.time.watched().saturating_add(timeout));
        if let Some(in_flight) = self.in_flight.get_mut(usize::from(queue)) {
            *in_flight += 1;
        }
        self.statistics.submissions += 1;
        self.statistics.in_capsule_writes += u64::from(in_capsule);
        self.statistics.multi_key_commands += u64::from(keys > 1);
        self.statistics.resubmitted += u64::from(part.lost);
        if let Some(place) = self.parts.get_mut(usize::from(slot)) {
            *place = Some(Part { queue, deadline, abortion: Abortion::None, lost: false, ..part });
        }
        if self.is_suspect(part.blame) {
            self.suspect = Some(slot);
        }
        Ok(())
    }

    /// The controller answered.
    pub(super) fn answered(&mut self, slot: u16, response: &CompletionQueueEntry) {
        self.leave_queue(slot);
        let Some(Some(part)) = self.parts.get(usize::from(slot)) else { return };
        let (status, aborted) = (response.status(), part.abortion != Abortion::None);
        let result = match status.code() {
            0 => {
                self.path_is_open(slot);
                self.copy_bounced(slot, false);
                if self.goes_on(slot) {
                    return;
                }
                Ok(())
            }
            code if Status::COMMAND_ABORT_REQUESTED.code() == code && aborted && mutant!(host_aborted_succeeds) => {
                Ok(())
            }
            code if Status::COMMAND_ABORT_REQUESTED.code() == code && aborted => Err(IoError::TimedOut),
            // It was not executed, or failed: what follows depends on how.
            _ => return self.refused(slot, status),
        };
        self.command_ended(slot, result);
    }

    /// The controller took a command, however it ended: the next refusal is the first one of another time without a path.
    fn path_is_open(&mut self, slot: u16) {
        let Some(Some(part)) = self.parts.get(usize::from(slot)) else { return };
        if let Some(Some(request)) = self.requests.get_mut(usize::from(part.request)) {
            request.refused = None;
        }
    }

    /// Has the rest of a command follow that was cut again, unless its request has failed.
    fn goes_on(&mut self, slot: u16) -> bool {
        let Some(Some(part)) = self.parts.get_mut(usize::from(slot)) else { return false };
        let Some(Some(request)) = self.requests.get_mut(usize::from(part.request)) else { return false };
        if part.rest == 0 || request.result.is_err() {
            return false;
        }
        request.commands += 1;
        // The rest may need another one, or none.
        let bounce = part.bounce.take();
        (part.first, part.blocks, part.rest) = (part.first + part.blocks, part.rest, 0);
        (part.cut_in, part.lost, part.losses, part.blame, part.refusals) = (0, false, 0, 0, 0);
        if let Some(buffer) = bounce {
            self.bounce.give_back(buffer);
        }
        self.send_again(slot);
        true
    }

    pub(super) fn leave_queue(&mut self, slot: u16) {
        let Some(Some(part)) = self.parts.get(usize::from(slot)) else { return };
        if let Some(in_flight) = self.in_flight.get_mut(usize::from(part.queue)) {
            // S4: a queue is thought to be fuller, or emptier, than it is.
            *in_flight = if mutant!(S4_host_in_flight) {
                0
            } else {
                in_flight.saturating_sub(u16::from(!mutant!(S10_host_in_flight)))
            };
        }
        self.suspect.take_if(|suspect| *suspect == slot);
    }

    /// The connection ended before the answer: the command waits for the next session.
    pub(super) fn lost(&mut self, slot: u16) {
        if !mutant!(host_lost_in_flight) {
            self.leave_queue(slot);
        }
        self.statistics.lost += 1;
        let counted = self.count_loss(slot);
        self.path_is_open(slot);
        let Some(Some(part)) = self.parts.get_mut(usize::from(slot)) else { return };
        part.lost = true;
        let request = self.requests.get(usize::from(part.request)).and_then(Option::as_ref);
        match request.map(|request| request.result) {
            _ if matches!(self.state, State::Stopped | State::Failed(_)) => {
                self.command_ended(slot, Err(IoError::Abandoned));
            }
            Some(Err(error)) => self.command_ended(slot, Err(error)),
            // Mutant: a command that was lost counts as executed, or is never sent again.
            _ if mutant!(host_lost_succeeds) => self.command_ended(slot, Ok(())),
            _ if mutant!(host_lost_forgotten) => {}
            _ => match counted {
                Ok(()) => self.send_again(slot),
                Err(error) => self.command_ended(slot, Err(error)),
            },
        }
    }

    /// A command ended, and its keys are dead.
    pub(super) fn command_ended(&mut self, slot: u16, result: Result<(), IoError>) {
        let Some(part) = self.parts.get_mut(usize::from(slot)).and_then(Option::take) else { return };
        // S10: a command's slot, or its bounce buffer, never comes back.
        if !mutant!(S10_host_slot) {
            self.free_slots.push(slot);
        }
        if let Some(buffer) = part.bounce
            && !mutant!(S10_host_bounce)
        {
            self.bounce.give_back(buffer);
        }
        let Some(Some(request)) = self.requests.get_mut(usize::from(part.request)) else { return };
        request.outstanding -= 1;
        if result.is_err() {
            request.result = request.result.and(result);
            if !request.whole {
                // Nothing more is cut of it.
                request.whole = true;
                self.queued.retain(|&queued| queued != part.request);
            }
        }
        self.finish_if_ended(part.request);
    }

    /// Gathers a command's data into its bounce buffer, or scatters it out of there.
    pub(super) fn copy_bounced(&mut self, slot: u16, gather: bool) {
        let Some(&Some(part)) = self.parts.get(usize::from(slot)) else { return };
        let (Some(buffer), Some(geometry)) = (part.bounce, self.geometry) else { return };
        let Some(Some(request)) = self.requests.get(usize::from(part.request)) else { return };
        if gather == matches!(request.kind, Kind::Read { .. }) || !request.kind.moves_data() {
            return;
        }
        let block = geometry.block_bytes();
        let ranges = slice(&request.segments, u64::from(part.first) * u64::from(block), part.blocks * block);
        let mut at = 0;
        for Segment { memory, offset, length } in ranges {
            if let Some(memory) = self.context.transport.engine().memory(memory) {
                self.bounce.copy(buffer, at, memory, offset, length as usize, gather);
            }
            at += length as usize;
        }
        self.statistics.bounced_bytes += u64::from(part.blocks) * u64::from(block);
    }
}
