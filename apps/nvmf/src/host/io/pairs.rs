//! The two commands of a compare and write: next to each other in one queue, sent once.

use super::{Attempt, Io, part_of};
use crate::host::context::Context;
use crate::host::cut::{Uncut, cut};
use crate::host::error::IoError;
use crate::host::parts::Extent;
use crate::host::path::Path;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, SubmitError};

/// The second command of a pair whose first one is on its way, and which found no room. Nothing else may follow that one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
    slot: u16,
    queue: u16,
    connection: ConnectionId,
}

impl Half {
    /// It is the command of this slot.
    pub(super) fn is(self, slot: u16) -> bool {
        self.slot == slot
    }
}

impl Io {
    /// Makes both commands of a pair and submits them.
    #[cold]
    pub(super) fn cut_pair<P: Port>(&mut self, index: u16, path: &mut Path<'_>, context: &mut Context<P>) -> Attempt {
        // Room for both.
        let depth = context.options.queue_depth.saturating_sub(1);
        let Some((queue, connection)) = path.queues.roomiest(depth) else { return Attempt::NoRoom };
        let Some(blocks) = self.requests.get(index).map(|request| request.blocks) else { return Attempt::NoRoom };
        if !self.parts.has_room_for(2) {
            return Attempt::NoRoom;
        }
        let extents = match self.cut_halves(index, blocks, connection, path, context) {
            Ok(extents) => extents,
            Err(Uncut::NoBuffer) => return Attempt::NoBuffer,
            Err(Uncut::NoRoom) => return Attempt::NoRoom,
            Err(Uncut::Impossible(error)) => {
                self.requests.fail_first(index, error, &mut self.bounce);
                return Attempt::Done;
            }
        };
        if self.requests.get_mut(index).is_some_and(|request| request.cut(blocks, 2)) {
            self.requests.pop_queued();
        }
        let [first, second] = [(0, extents[0]), (blocks, extents[1])].map(|(at, extent)| {
            self.statistics.bounced_commands += u64::from(extent.bounce.is_some());
            self.parts.begin(index, at, extent)
        });
        // There is room for both.
        let (Some(first), Some(second)) = (first, second) else { return Attempt::NoRoom };
        for slot in [first, second] {
            self.copy_bounced(slot, true, path, context);
        }
        match self.submit_on(first, (queue, connection), path, context) {
            Ok(()) => {}
            Err(SubmitError::NoSlot | SubmitError::NotConnected) => {
                for slot in [first, second] {
                    let part = self.parts.end(slot);
                    part.and_then(|part| part.extent.bounce)
                        .into_iter()
                        .for_each(|buffer| self.bounce.give_back(buffer));
                }
                self.requests.uncut(index);
                return Attempt::NoRoom;
            }
            Err(error) => {
                self.command_ended(first, Err(IoError::Submit(error)));
                self.command_ended(second, Err(IoError::Submit(error)));
                return Attempt::Done;
            }
        }
        self.half = Some(Half { slot: second, queue, connection });
        if self.send_half(path, context) { Attempt::Done } else { Attempt::NoRoom }
    }

    /// Where both halves lie. Neither is cut in two, and both have their keys at the same time: the first is not answered before the
    /// second has come.
    fn cut_halves<P: Port>(
        &mut self,
        index: u16,
        blocks: u32,
        connection: ConnectionId,
        path: &Path<'_>,
        context: &mut Context<P>,
    ) -> Result<[Extent; 2], Uncut> {
        let Some(request) = self.requests.get(index) else { return Err(Uncut::NoRoom) };
        // A half that is refused behind the other one would leave that alone.
        if request.segments.iter().any(|segment| context.transport.engine().memory(segment.memory).is_none()) {
            return Err(Uncut::Impossible(IoError::Submit(SubmitError::UnknownMemory)));
        }
        let first = cut(request, (0, blocks), connection, path, &mut self.bounce, context)?;
        let second = cut(request, (blocks, blocks), connection, path, &mut self.bounce, context);
        let registrations = context.transport.engine().sizes().registrations;
        let fit = |second: &Extent| u32::from(first.keys) + u32::from(second.keys) <= registrations;
        let halves = match second {
            Ok(second) if [first.blocks, second.blocks] == [blocks; 2] && fit(&second) => return Ok([first, second]),
            Ok(second) => {
                second.bounce.into_iter().for_each(|buffer| self.bounce.give_back(buffer));
                Uncut::Impossible(IoError::TooManyKeys)
            }
            Err(uncut) => uncut,
        };
        first.bounce.into_iter().for_each(|buffer| self.bounce.give_back(buffer));
        Err(halves)
    }

    /// Submits the second half that waits, before anything else; false where there is no room for it yet.
    #[cold]
    pub(super) fn send_half<P: Port>(&mut self, path: &mut Path<'_>, context: &mut Context<P>) -> bool {
        let Some(half) = self.half else { return true };
        if part_of(half.slot, &self.parts, &self.requests).is_some() {
            match self.submit_on(half.slot, (half.queue, half.connection), path, context) {
                Ok(()) => {}
                Err(SubmitError::NoSlot) => return false,
                Err(error) => self.command_ended(half.slot, Err(IoError::Submit(error))),
            }
        }
        self.half = None;
        true
    }

    /// One of a pair was lost with its connection: it is not sent again. It ends as soon as its controller is over, as far as that is
    /// this host's to know: with its next session.
    #[cold]
    pub(super) fn lost_of_pair(&mut self, slot: u16, request: u16, posted: bool, last: bool) {
        let error = match () {
            () if self.gives_back => IoError::GivenBack { in_flight: posted },
            () if last => IoError::Abandoned,
            () => IoError::Undecided,
        };
        let is_other = |half: &mut Half| {
            part_of(half.slot, &self.parts, &self.requests).is_some_and(|(part, _)| part.request == request)
        };
        if let Some(half) = self.half.take_if(is_other) {
            self.command_ended(half.slot, Err(error));
        }
        if self.gives_back || last {
            self.command_ended(slot, Err(error));
        } else {
            self.requests.fail(request, error);
            self.send_again(slot);
        }
    }
}
